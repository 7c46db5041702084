"""--redact on screens and documents: no value of the record is anywhere, its place and verdict stay."""

import json
import re
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.redact import hash_value
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

FLIPPED = sample("flipped-bit-5.3.3")
DAMAGED = 97187
ALL = "body,keys,tags,properties,hosts"
STORES = (FLIPPED, sample("healthy-5.5.0"), oracle.store("broker", "dledger-5.3.3"))

run = runner()


def values_of(store: Path) -> dict[int, list[bytes]]:
    """Return the values that `--redact` hides, of some records by physical offset; short ones are everywhere."""
    found = {}
    for batch in MESSAGES_TABLE.rows(open_store([str(store)]), Request()):
        for row in batch.to_pylist()[::40]:
            values = [value.encode() for _, value in row["properties"]] + [row["body"][:20]]
            values += [row["born_host"].encode(), *(key.encode() for key in row["keys"] or ())]
            found[row["physical_offset"]] = [value for value in values if len(value) > 5]
    return found


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
@pytest.mark.parametrize("format_", ["table", "json"])
def test_no_value_of_a_record_is_shown(store: Path, format_: str, run: Run) -> None:
    for offset, values in list(values_of(store).items())[:12]:
        for body in ("full", "preview"):
            out = run("show", store, "--at", offset, "--redact", ALL, "-f", format_, "--body", body)[1]
            hexes = re.sub(r"\s", "", out)
            for value in values:
                assert value.decode("utf-8", "replace") not in out, (offset, value)
                assert value.hex() not in hexes, (offset, value)


def test_a_damaged_record_keeps_its_place_and_verdict(run: Run) -> None:
    status, out, _ = run("show", FLIPPED, "--at", DAMAGED, "--redact", "body")
    assert status == 3
    assert "DAMAGED       body_crc" in out
    assert "! differs" in out
    assert not any(checksum in out for checksum in ("600743239", "23ce9d47", "949938881"))  # stored, computed
    assert "'H'" not in out
    assert "110 bytes, hidden" in out
    document = json.loads(run("show", FLIPPED, "--at", DAMAGED, "--redact", "body", "-f", "json")[1])
    assert "body" not in document
    assert [row["bytes"] for row in document["rows"] if row["name"] in ("body", "topic")] == [None, b"BatchTopic".hex()]


def test_words_hide_what_they_name_and_nothing_else(run: Run) -> None:
    shown = run("show", FLIPPED, "--at", DAMAGED)[1]
    hidden = run("show", FLIPPED, "--at", DAMAGED, "--redact", "tags")[1]
    assert "T-4" in shown and "82171" in shown
    assert "T-4" not in hidden and "82171" not in hidden
    assert "B98_0" in hidden
    assert "WAIT             true" in hidden


def test_hashes_are_those_of_the_tables(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sesame")
    words = f"keys=hash:{tmp_path}/key,body=hash:{tmp_path}/key"
    document = json.loads(run("show", FLIPPED, "--at", DAMAGED, "--redact", words, "-f", "json")[1])
    (keys,) = [row for row in document["rows"] if row["name"] == "KEYS"]
    decoded = run("decode", FLIPPED, "--offset", DAMAGED, "-f", "jsonl", "--redact", words, "-j", "1")[1]
    row = json.loads(decoded)
    assert keys["value"] == hash_value(b"B98_0", b"sesame") == row["keys"][0]
    assert [fact["text"] for fact in document["facts"] if fact["name"] == "body"] == [f"110 bytes, {row['body']}"]
    assert f"key {keys['value']}" in " ".join(run("verify", FLIPPED, "--redact", words, "-j", "1")[1].split())


@pytest.mark.parametrize("format_", [[], ["-f", "json"], ["-f", "csv"], ["-f", "jsonl"]])
def test_findings_quote_no_value(format_: list[str], run: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["verify", FLIPPED, "-j", "1", "--level", "deep", "--report", report, *format_]
    assert "'H'" in "".join(run(*words)[1:]) and "'H'" in report.read_text()
    report.unlink()
    status, out, err = run(*words, "--redact", "keys")
    assert status == 3
    for printed in (out, err, report.read_text()):
        assert "'H'" not in printed
        assert "B98_0" not in printed
        assert "949938881" not in printed
    assert "CL-CRC-BODY" in out
    assert "the CRC of the body is not the one stored in the record" in report.read_text()


@pytest.mark.parametrize("format_", ["table", "json", "csv"])
def test_differences_quote_no_key_and_no_tag(format_: str, run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    copied = oracle.copy("broker", "main-5.3.3", tmp_path)
    segment = sorted((copied / "commitlog").iterdir())[1]
    raw = bytearray(segment.read_bytes())
    at = raw.index(b"KEYS\x01") + 5
    key = bytes(raw[at : raw.index(b"\x02", at)]).split(b" ")[0].decode()
    record = raw.rindex(b"\xda\xa3\x20\xa7", 0, at) - 4
    raw[record + 8] ^= 1  # its CRC
    segment.write_bytes(raw)
    command = ["diff", oracle.store("broker", "main-5.3.3"), store, "-f", format_]
    status, shown, _ = run(*command)
    assert status == 3
    hidden = run(*command, "--redact", "keys,tags")[1]
    assert key not in hidden
    assert run(*command, "--fail-on", "never")[0] == 0
    assert format_ == "csv" or key in shown

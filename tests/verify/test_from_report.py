"""`verify --from REPORT` prints what the run printed, without the store; a report that is none is one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner("verify")

FLIPPED = sample("flipped-bit-5.3.3")
DEEP = ("--level", "deep")

# What is verified, with which options, and the options that change what is printed of it.
RUNS: dict[str, tuple[Callable[[], Path], tuple[str, ...], tuple[str, ...]]] = {
    "damaged record, digests": (lambda: FLIPPED, ("--hash", "sha256"), ("--tz", "Asia/Tokyo", "--color", "always")),
    "killed broker, quick": (lambda: sample("killed-4.9.7"), ("--level", "quick"), ("--fail-on", "warning")),
    "lost page": (lambda: sample("zeroed-page-4.7.1"), DEEP, ("-v",)),
    "DLedger": (lambda: oracle.store("broker", "dledger-5.3.3"), (), ()),
    "ext queues, few checks": (lambda: oracle.store("broker", "ext-4.9.7"), ("--check", "CQ-MISSING,EX-ADDRESS"), ()),
    "RocksDB unread": (lambda: oracle.store("broker", "rocksdb-5.4.0"), ("--no-rocksdb",), ()),
    "lost log": (lambda: oracle.store("crash", "log_dir_lost-5.3.3-c"), DEEP, ("--fail-on", "never")),
    "lost segment": (lambda: oracle.store("crash", "seg_missing_mid-4.9.7-c"), DEEP, ("--color", "always")),
    "lost queues, few rows": (lambda: oracle.store("crash", "cq_lost-4.9.7-h"), (*DEEP, "--max-findings", "2"), ()),
    "another version": (lambda: sample("healthy-5.5.0"), ("--broker-version", "4.2.0"), ()),
    "one segment": (lambda: FLIPPED / "commitlog" / f"{65536:020}", (), ("--redact", "keys")),
    "one queue": (lambda: next((FLIPPED / "consumequeue").iterdir()), (), ()),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_report_prints_what_its_run_printed(run: Run, tmp_path: Path, name: str) -> None:
    find, words, look = RUNS[name]
    report = tmp_path / "report.json"
    status, out, _ = run(find(), *words, *look, "-j", "1", "--report", report)
    assert "VERDICT " in out
    assert run("--from", report, *look) == (status, out, "")


def test_the_store_may_be_gone_and_something_was_not_read(run: Run, tmp_path: Path) -> None:
    store, report = tmp_path / "store", tmp_path / "report.json"
    shutil.copytree(FLIPPED, store)
    (store / "consumequeue" / "loop").symlink_to("nowhere")
    printed = run(store, "--fail-on", "never", "--report", report)
    assert "INCOMPLETE" in printed[1]
    shutil.rmtree(store)
    assert run("--from", report, "--fail-on", "never")[:2] == printed[:2]
    assert run("--from", report)[0] == 3


def test_the_table_of_findings_and_the_quiet_status_come_from_a_report_too(run: Run, tmp_path: Path) -> None:
    report, rows = tmp_path / "report.json", tmp_path / "rows.csv"
    table = run(FLIPPED, "-f", "jsonl", "-q", "--report", report)
    verdict = run("--from", report)[1].splitlines()[-1]
    assert run("--from", report, "-f", "jsonl") == (3, table[1], f"{verdict}\n")
    assert run("--from", report, "-q", "-o", rows) == (3, "", "")
    assert rows.read_text().splitlines()[1].startswith("CL-CRC-BODY,error,")
    assert run("--from", report, "-q") == (3, "", "")


def test_a_report_is_redacted_when_it_was_written_or_when_it_is_printed(run: Run, tmp_path: Path) -> None:
    plain, redacted = tmp_path / "plain.json", tmp_path / "redacted.json"
    run(FLIPPED, "--report", plain)
    hidden = run(FLIPPED, "--redact", "keys", "--report", redacted)[1]
    assert run("--from", redacted)[1] == hidden == run("--from", plain, "--redact", "keys")[1]
    assert "B98_0" not in hidden + redacted.read_text()
    assert "B98_0" in plain.read_text()


def test_an_interrupted_run_stays_interrupted(run: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    document = written(run, report)
    report.write_text(json.dumps(document | {"interrupted": "segments read: 1 of 5"}))
    status, out, _ = run("--from", report)
    assert status == 130
    assert "interrupted  segments read: 1 of 5" in out


def test_a_report_of_an_earlier_version_has_no_next_start(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    document = written(run, path)
    assert "NEXT START   STARTS, LOSES DATA" in run("--from", path)[1]
    del document["next_start"]
    path.write_text(json.dumps(document))
    status, out, _ = run("--from", path)
    assert (status, "NEXT START" in out) == (3, False)


@pytest.mark.parametrize(
    "words",
    [("--level", "deep"), ("-j", "2"), ("--report", "x"), ("--against", "x"), ("--check", "CQ-TAG")],
)
def test_a_report_needs_no_store_and_takes_no_option_of_the_checks(run: Run, words: tuple[str, ...]) -> None:
    status, out, err = run("--from", "report.json", *words)
    assert (status, out) == (2, "")
    assert "--from prints a report and reads no store" in err


# --- reports that are none ------------------------------------------------------------------------------


def written(run: Run, path: Path) -> dict[str, Any]:
    if not path.exists():
        run(FLIPPED, "-q", "--report", path)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def refusal(run: Run, path: Path) -> str:
    """Return what is said about a file that is no report: one line on stderr behind the usage."""
    status, out, err = run("--from", path)
    assert (status, out) == (2, "")
    line = err.splitlines()[-1]
    start = f"Error: Invalid value for --from: {path}: "
    assert line.startswith(start)
    return line.removeprefix(start)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("schema_version",), 2, "a report with a schema version other than 1"),
        (("findings", 0, "offset"), "1", "Expected `int | null`, got `str` - at `$.findings[0].offset`"),
        (("findings", 0, "offset"), True, "Expected `int | null`, got `bool` - at `$.findings[0].offset`"),
        (("findings", 0, "offset"), 1.5, "Expected `int | null`, got `float` - at `$.findings[0].offset`"),
        (("findings", 0, "severity"), "fatal", "Invalid enum value 'fatal' - at `$.findings[0].severity`"),
        (
            ("findings", 0, "code"),
            "\x1b[2J",
            "Expected `str` matching regex '^[A-Z0-9]+(-[A-Z0-9]+)*\\\\Z' - at `$.findings[0].code`",
        ),
        (("findings", 0, "queue_id"), 1 << 40, "Expected `int` <= 2147483647 - at `$.findings[0].queue_id`"),
        (("findings", 0, "store_timestamp"), "yesterday", "store_timestamp is not a time - at `$.findings[0]`"),
        (("findings", 0, "message"), None, "Expected `str`, got `null` - at `$.findings[0].message`"),
        (("findings",), {}, "Expected `array`, got `object` - at `$.findings`"),
        (("counts", "CL-CRC-BODY"), [], "Expected `int`, got `array` - at `$.counts[...]`"),
        (("run", "ended"), "2026-01-01T00:00:00+01:00", "ended is not a time - at `$.run`"),
        (("custody", "files", 0, "size"), None, "Expected `int`, got `null` - at `$.custody.files[0].size`"),
    ],
)
def test_a_wrong_field_is_named(run: Run, tmp_path: Path, path: tuple[Any, ...], value: Any, words: str) -> None:
    document = part = written(run, tmp_path / "report.json")
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    assert refusal(run, tmp_path / "wrong.json").removeprefix("not a complete report of verify: ") == words


def test_a_file_that_is_no_report_is_refused(run: Run, tmp_path: Path) -> None:
    document = written(run, tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text()
    (tmp_path / "old.json").write_text(json.dumps({name: document[name] for name in document if name != "summary"}))
    wrong = {
        "cut": text[: len(text) // 2],
        "other": '{"rows": []}',
        "list": "[]",
        "nothing": "",
        "deep": '{"a":' * 100_000,
        "huge": text.replace('"offset": 31651', '"offset": 9' + "9" * 5000),
        "segment": "\0" * 4096,
    }
    for name, content in wrong.items():
        (tmp_path / name).write_text(content)
        assert "not a report of verify" in refusal(run, tmp_path / name)
    assert refusal(run, tmp_path / "old.json").endswith(
        "not a complete report of verify, or of an earlier version: Object missing required field `summary`"
    )
    status, out, err = run("--from", tmp_path / "nowhere")
    assert (status, out, err.count("\n")) == (4, "", 1)


def test_texts_of_a_report_are_escaped_and_numbers_may_be_large(run: Run, tmp_path: Path) -> None:
    document = written(run, tmp_path / "report.json")
    nasty = "a\x1b[31m\ud800\n{x}"
    for name in ("file", "topic", "expected", "found", "message", "broker_effect", "next", "do", "keys"):
        document["findings"][0][name] = nasty
    for name in ("summary", "given", "not_given", "interrupted"):
        document[name] = nasty
    document["not_checked"] = [nasty]
    document["segments"][0]["file_size"] = (1 << 63) - 1
    document["findings"][0]["code"] = "ZZ-FUTURE"
    document["counts"]["ZZ-FUTURE"] = -(1 << 63)
    (tmp_path / "nasty.json").write_text(json.dumps(document))
    for words in ((), ("-v",), ("--redact", "keys"), ("-f", "jsonl"), ("-f", "csv")):
        status, out, err = run("--from", tmp_path / "nasty.json", *words)
        assert status == 130
        assert "\x1b" not in out + err
    assert "ZZ-FUTURE" in out

"""Bodies of message traces: the fields that the decoders of the clients of all releases find in them."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.codec.traces import LAYOUTS, STATUSES, is_trace, read_contexts
from rmqinspect.tables.table import text
from tests.support import traced

NAMES = {
    "client_timestamp": "time",
    "cost_ms": "cost",
    "broker_address": "store_host",
    "reconsume_times": "retry_times",
    "from_transaction_check": "from_check",
}


def contexts(*bodies: str) -> list[dict[str, Any]]:
    """Return the contexts of some bodies, without what is null."""
    of, columns = read_contexts(pa.array(bodies, pa.string()))
    rows = pa.table({**columns, "of": of}).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_the_decoder_of_each_release_finds_the_same() -> None:
    different: list[Any] = []
    seen: set[tuple[str, str]] = set()
    for line in traced.codec_lines():
        found = contexts(line["body"])
        known = [row for row in found if row["type"] in LAYOUTS]
        if "error" in line:
            # The next context behind the last field of one is read here, where the client's decoder fails.
            run_on = len(known) > line["body"].count("\2")
            different += [] if run_on or any(row["status"] != "ok" for row in found) else [(line, found)]
            continue
        # A decoder passes over the types of later releases, and takes what is no boolean for false.
        assert len(known) == len(line["contexts"])
        for row, context in zip(known, line["contexts"], strict=True):
            wanted = {NAMES.get(name, name): value for name, value in traced.told(context).items()}
            if "result" not in row and wanted.get("result") == "SUCCESS":  # the default
                del wanted["result"]
            if row["status"] == "ok":
                seen.add((line["release"], row["type"]))
                different += [] if {name: row.get(name) for name in wanted} == wanted else [(line, row)]
            else:
                assert context["isSuccess"] is False or "isFromTransactionCheck" in wanted, line
    assert different == []
    assert {release for release, _ in seen} == {"4.4.0", "4.8.0", "4.9.7", "5.1.4", "5.2.0", "5.3.0", "5.3.3", "5.5.0"}
    assert {type_ for _, type_ in seen} == set(LAYOUTS)


# A field ends with | here, a context with ;.
PUB = "Pub|1764037200000|R|PG|Orders|ID|null|K1 K2|127.0.0.1:10911|12|3|0"
AFTER = "SubAfter|REQ|{}|3|true|k|0|"


def written(text: str) -> str:
    """Return a body as a client writes it."""
    return text.replace("|", "\x01").replace(";", "\x02")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{PUB}|true;", {"success": True}),  # before 4.4
        (f"{PUB}|OFFSET|false;", {"success": False, "offset_msg_id": "OFFSET"}),
        (f"{PUB}|OFFSET|true|9.9.9.9@1;", {"success": True, "client_host": "9.9.9.9@1"}),  # 4.8.0
        (PUB.replace("K1 K2", " K1  K2 ") + "|true;", {"keys": ["K1", "K2"]}),
        (f"{PUB}|OFFSET|tru", {"status": "malformed"}),
        (PUB.replace("|12|", "|twelve|") + "|OFFSET|true", {"status": "malformed", "cost": 3}),
        (PUB.removesuffix("0") + "9|OFFSET|true", {"status": "malformed", "message_type": "9"}),
        ("SubBefore|1|R|g|REQ|ID|0;", {"status": "malformed", "msg_id": "ID"}),
        ("SubBefore|99999999999999999999|R|g|REQ|ID|0|k;", {"status": "malformed", "group": "g"}),
        ("EndTransaction|1|R", {"status": "malformed", "region_id": "R"}),
        ("Sub|", {"status": "unknown_type", "type": "Sub"}),
        ("||", {"status": "unknown_type"}),
    ],
)
def test_a_context_has_what_can_be_read_of_it(body: str, expected: dict[str, Any]) -> None:
    (row,) = contexts(written(body))
    assert row["status"] in STATUSES
    assert {name: row[name] for name in ({"status": "ok"} | expected)} == {"status": "ok"} | expected


def test_contexts_without_an_end_between_them_are_all_read() -> None:
    # 5.3.0 and before, for the cloud.
    body = "".join(AFTER.format(number) for number in range(5)) + f"{PUB}|OFFSET|true;" + AFTER.format(5)
    rows = contexts("junk", written(body), "")
    assert [row.get("msg_id") for row in rows] == [None, "0", "1", "2", "3", "4", "ID", "5"]
    assert [row["of"] for row in rows] == [0] + [1] * 7
    assert {row["status"] for row in rows[1:]} == {"ok"}


def test_only_a_type_and_the_end_of_a_field_begin_a_trace() -> None:
    assert is_trace(b"SubAfter\1x") and is_trace(written(PUB).encode())
    assert not any(map(is_trace, (b"", b"Pub", b"Pub\2", b"Publish\1", b"\1Pub\1", b"x" * 99 + b"\1")))


def test_changed_bytes_are_rows_and_each_body_is_read_alone() -> None:
    chance, bodies = Random(5), [line["body"].encode() for line in traced.codec_lines()]
    for _ in range(60):
        some = [_changed(bytearray(chance.choice(bodies)), chance) for _ in range(4)]
        texts, _ = text(pa.array(some, pa.binary()))
        of, columns = read_contexts(texts)
        rows = pa.table({**columns, "of": of}).to_pylist()
        assert columns["status"].null_count == 0
        for number in range(len(some)):
            _, own = read_contexts(texts.slice(number, 1))
            alone = [row | {"of": number} for row in pa.table(own).to_pylist()]
            assert alone == [row for row in rows if row["of"] == number], some[number]


def _changed(body: bytearray, chance: Random) -> bytes:
    for _ in range(chance.randrange(12)):
        at = chance.randrange(len(body) + 1)
        if chance.random() < 0.5:
            body[at : at + 1] = bytes([chance.choice((0, 1, 2, 32, 45, 48, 57, 128, 255))])
        else:
            del body[at : at + chance.randrange(30)]
    return bytes(body)

"""One record, one row: the worked examples of the format, compressed bodies, and what a field can say."""

import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.schemas.message import COMPRESSIONS, SysFlag
from rmqinspect.tables.request import Request
from tests.support.building import BORN, PRODUCER, PRODUCER_V6, STORED, lay, record, write_segment
from tests.support.scanning import host, shown, statuses, table

WORKED_V1 = """
00 00 00 d1 da a3 20 a7 69 c8 65 ed 00 00 00 03  00 00 00 00 00 00 00 00 00 00 00 2a 00 00 00 00
40 00 10 00 00 00 00 00 00 00 01 8f 95 1f 6a 53  c0 a8 01 0a 00 00 d0 ae 00 00 01 8f 95 1f 6a 5f
0a 00 00 05 00 00 2a 9f 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 0e 48 65 6c 6c 6f 20 52 6f
63 6b 65 74 4d 51 09 54 6f 70 69 63 54 65 73 74  00 5f 4b 45 59 53 01 4f 52 44 45 52 2d 31 30 30
31 20 55 37 37 02 55 4e 49 51 5f 4b 45 59 01 43  30 41 38 30 31 30 41 31 41 32 42 31 38 42 34 41
41 43 32 36 33 41 42 46 41 35 33 30 30 30 37 02  43 4c 55 53 54 45 52 01 44 65 66 61 75 6c 74 43
6c 75 73 74 65 72 02 54 41 47 53 01 54 61 67 41  02
"""

WORKED_CRC = """
00 00 00 71 da a3 20 a7 68 b7 be 43 00 00 00 03  00 00 00 00 00 00 00 00 00 00 00 2a 00 00 00 00
40 00 10 00 00 00 00 00 00 00 01 8f 95 1f 6a 53  c0 a8 01 0a 00 00 d0 ae 00 00 01 8f 95 1f 6a 5f
0a 00 00 05 00 00 2a 9f 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 01 61 01 54 00 14 5f 5f 43
52 43 33 32 23 01 31 38 36 38 37 33 32 30 31 30  02
"""

WORKED_V2_HEAD = """
00 00 01 29 da a3 20 ab 69 c8 65 ed 00 00 00 00  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
40 00 10 d1 00 00 00 30 00 00 01 8f 95 1f 6a 53  20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01
00 00 d0 ae 00 00 01 8f 95 1f 6a 60 20 01 0d b8  00 00 00 00 00 00 00 00 00 00 00 02 00 00 2a 9f
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 0e  48 65 6c 6c 6f 20 52 6f 63 6b 65 74 4d 51 00 89
25 52 45 54 52 59 25
"""
WORKED_V2_TAIL = """
2b 54 6f 70 69 63 54 65 73 74 00 1e 54 41 47 53  01 54 61 67 41 02 5f 5f 43 52 43 33 32 23 01 33
32 35 37 37 37 34 36 31 31 02
"""
WORKED_V2 = bytes.fromhex(WORKED_V2_HEAD) + b"g" * 120 + bytes.fromhex(WORKED_V2_TAIL)
WORKED_AT = 0x40001000
WORKED_PROPERTIES = {
    "KEYS": "ORDER-1001 U77",
    "UNIQ_KEY": "C0A8010A1A2B18B4AAC263ABFA530007",
    "CLUSTER": "DefaultCluster",
    "TAGS": "TagA",
}
WORKED_TOPIC = "%RETRY%" + "g" * 120 + "+TopicTest"


def test_the_worked_examples_are_what_the_builder_builds() -> None:
    first = record(WORKED_AT, queue_id=3, queue_offset=42, properties=WORKED_PROPERTIES)
    assert first.hex(" ") == bytes.fromhex(WORKED_V1).hex(" ")
    smallest = record(WORKED_AT, topic="T", body=b"a", queue_id=3, queue_offset=42, crc=True)
    assert smallest.hex(" ") == bytes.fromhex(WORKED_CRC).hex(" ")
    long = record(
        WORKED_AT + len(first),
        topic=WORKED_TOPIC,
        properties={"TAGS": "TagA"},
        store_timestamp=STORED + 1,
        born_host=PRODUCER_V6,
        store_host="[2001:db8::2]:10911",
        crc=True,
    )
    assert long.hex(" ") == WORKED_V2.hex(" ")


def test_the_worked_examples_are_rows(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, bytes.fromhex(WORKED_V1) + WORKED_V2, WORKED_AT)
    first, second = table(segment).to_pylist()
    assert shown(first) == {
        "topic": "TopicTest",
        "queue_id": 3,
        "queue_offset": 42,
        "size": 209,
        "msg_id": "C0A8010A1A2B18B4AAC263ABFA530007",
        "offset_msg_id": "0A00000500002A9F0000000040001000",
        "tags": "TagA",
        "keys": ["ORDER-1001", "U77"],
        "flag": 0,
        "sys_flag": 0,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "born_timestamp": BORN,
        "store_timestamp": STORED,
        "born": host(PRODUCER),
        "store": host("10.0.0.5:10911"),
        "properties": WORKED_PROPERTIES,
    }
    assert first["store_timestamp"].isoformat() == "2024-05-20T08:30:15.135000+00:00"
    assert first["physical_offset"] == WORKED_AT
    assert (first["version"], first["body"], first["record_crc_ok"]) == (1, b"Hello RocketMQ", None)
    assert (second["physical_offset"], second["size"]) == (0x400010D1, 297)
    assert (second["version"], second["topic"], second["sys_flag"]) == (2, WORKED_TOPIC, 0x30)
    assert (second["born_host"], second["born_port"]) == ("2001:db8::1", 53422)
    assert (second["store_host"], second["store_port"]) == ("2001:db8::2", 10911)
    assert second["offset_msg_id"] == "20010DB800000000000000000000000200002A9F00000000400010D1"
    assert dict(second["properties"]) == {"TAGS": "TagA", "__CRC32#": "3257774611"}
    assert (second["record_crc_ok"], second["body_crc_ok"]) == (True, True)
    assert [first["status"], second["status"]] == ["ok", "ok"]


def test_the_smallest_record_with_a_crc_is_a_row(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, bytes.fromhex(WORKED_CRC), WORKED_AT)
    [row] = table(segment).to_pylist()
    assert (row["topic"], row["body"], row["size"], row["record_crc_ok"]) == ("T", b"a", 113, True)
    assert (row["msg_id"], row["tags"], row["keys"]) == (None, None, [])


PAYLOAD = b"Hello RocketMQ " * 400  # 6000 bytes
PACKED = {
    "zlib": zlib.compress(PAYLOAD),
    "lz4": pa.compress(PAYLOAD, codec="lz4", asbytes=True),
    "zstd": pa.compress(PAYLOAD, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_body_is_a_payload_or_a_status(name: str, tmp_path: Path) -> None:
    flag = SysFlag.COMPRESSED | COMPRESSIONS.index(name) << 8
    packed = PACKED[name]
    bodies = {
        packed: "ok",
        packed[:-3]: "body_undecodable",
        packed[: len(packed) // 2]: "body_undecodable",
        packed[:5]: "body_undecodable",
        b"\0garbage": "body_undecodable",
        b"": "ok",  # the broker asks for a body before it asks for the flag
    }
    segment = write_segment(tmp_path, lay({"body": body, "sys_flag": flag} for body in bodies))
    found = table(segment)
    assert found["status"].to_pylist() == list(bodies.values())
    assert found["body"].to_pylist() == [PAYLOAD, *list(bodies)[1:]]
    assert set(found["compression"].to_pylist()) == {name}
    assert found["body_size"].to_pylist() == [len(body) for body in bodies]
    assert table(segment, Request(raw_body=True))["body"].to_pylist() == list(bodies)
    assert set(statuses(segment, Request(raw_body=True))) == {"ok"}


@pytest.mark.parametrize("name", PACKED)
def test_a_body_beyond_the_limit_stays_as_stored(name: str, tmp_path: Path) -> None:
    flag = SysFlag.COMPRESSED | COMPRESSIONS.index(name) << 8
    segment = write_segment(tmp_path, lay([{"body": PACKED[name], "sys_flag": flag}, {"body": PAYLOAD}]))
    assert statuses(segment, Request(max_body=len(PAYLOAD))) == ["ok", "ok"]
    # The limit is about what a compressed body may become, not about what is stored.
    small = table(segment, Request(max_body=len(PAYLOAD) - 1))
    assert small["status"].to_pylist() == ["body_too_large", "ok"]
    assert small["body"].to_pylist() == [PACKED[name], PAYLOAD]


def packed(kind: int) -> dict[str, Any]:
    return {"body": PACKED["zlib"], "sys_flag": SysFlag.COMPRESSED | kind << 8}


UNKNOWN = {"status": "body_undecodable", "compression": None, "body": PACKED["zlib"]}
TWICE = b"TAGS\x01a\x02KEYS\x01k\x02TAGS\x01b\x02TAGS\x01\x02"
MANY = b"".join(b"n%d\x01v\x02" % number for number in range(70))
BOUND = {"real_topic": None, "real_queue_id": None, "deliver_timestamp": None}

# Fields of a record, and what its row says.
RECORDS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    *((packed(kind), UNKNOWN) for kind in (4, 5, 6, 7)),
    # Type bits without the compressed bit mean nothing.
    ({"sys_flag": 0x300}, {"status": "ok", "compression": None, "body": b"Hello RocketMQ"}),
    ({"store_timestamp": -62135596800001}, {"status": "bad_timestamp"}),
    ({"born_timestamp": 253402300800000}, {"status": "bad_timestamp"}),
    ({"born_timestamp": 253402300799999}, {"status": "ok"}),
    ({"born_timestamp": 2**63 - 1}, {"status": "bad_timestamp"}),
    ({"topic": b"a\xff"}, {"status": "invalid_utf8"}),
    ({"properties": b"a\x01\xff\x02"}, {"status": "invalid_utf8"}),
    ({"properties": b"a\xff\x01b\x02"}, {"status": "invalid_utf8"}),
    ({"properties": b"a\x02"}, {"status": "bad_properties"}),
    ({"properties": b"\x01b\x02"}, {"status": "bad_properties"}),
    ({"properties": b"a\x01\x02"}, {"status": "ok"}),
    ({"properties": b"a\x01b\x01c\x02"}, {"status": "ok"}),
    ({"properties": b"a\x01b"}, {"status": "ok"}),
    ({"topic": b"a\xff", "properties": b"a\x02", "born_timestamp": 2**62}, {"status": "invalid_utf8"}),
    ({"queue_offset": -1, "queue_id": -1, "flag": -(2**31), "reconsume_times": -1}, {"status": "ok"}),
    # Of equal names the last one that has a value wins.
    ({"properties": TWICE}, {"tags": "b", "keys": ["k"], "properties": [("KEYS", "k"), ("TAGS", "b")]}),
    # Keys are split at spaces.
    ({"properties": {"KEYS": "a"}}, {"keys": ["a"]}),
    ({"properties": {"KEYS": " a  b "}}, {"keys": ["a", "b"]}),
    ({"properties": {"KEYS": " "}}, {"keys": []}),
    ({"properties": {"KEYS": "键 b"}}, {"keys": ["键", "b"]}),
    ({}, {"keys": [], **BOUND}),
    # A wrapped record says where it is bound.
    ({"properties": {"REAL_TOPIC": "a", "REAL_QID": "3"}}, BOUND | {"real_topic": "a", "real_queue_id": 3}),
    ({"properties": {"RETRY_TOPIC": "b"}}, BOUND | {"real_topic": "b"}),
    ({"properties": {"REAL_TOPIC": "a", "RETRY_TOPIC": "b", "REAL_QID": "x"}}, BOUND | {"real_topic": "a"}),
    (
        {"properties": {"TIMER_OUT_MS": str(STORED), "REAL_QID": "99999999999"}},
        BOUND | {"deliver_timestamp": datetime.fromtimestamp(STORED // 1000, UTC).replace(microsecond=135_000)},
    ),
    ({"properties": {"TIMER_OUT_MS": "9" * 18, "REAL_QID": "-1"}}, BOUND | {"real_queue_id": -1}),
    # With more names than bits, repeats are found in another way.
    ({"properties": MANY}, {"properties": sorted((f"n{number}", "v") for number in range(70))}),
)


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:-1]], ids=["all", "with few names"])
def test_what_a_record_says_is_in_its_row(
    records: tuple[tuple[dict[str, Any], dict[str, Any]], ...], tmp_path: Path
) -> None:
    found = table(write_segment(tmp_path, lay(fields for fields, _ in records))).to_pylist()
    for (fields, expected), row in zip(records, found, strict=True):
        row["properties"] = sorted(row["properties"])
        assert {name: row[name] for name in expected} == expected, fields

"""Index files, checkpoint and configuration, against what real brokers said about them."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.java import index_hash, index_key
from rmqinspect.config.json_files import read_config
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, Geometry, read_index_files
from rmqinspect.rocksdb.unpack import has_rocksdict
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.schemas.index import IndexEntry, IndexHeader
from rmqinspect.store.discover import open_store
from rmqinspect.tables.config import CHECKPOINT, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.pointers import INDEX_ENTRIES, INDEX_FILES, QUEUE_UNITS, QUEUES
from rmqinspect.tables.table import Table
from tests.support import oracle
from tests.support.sampling import sampled
from tests.support.side_tables import (
    BROKERS,
    FILE_QUEUES,
    ROCKSDB,
    UNDAMAGED,
    broker,
    crash,
    milliseconds,
    rows,
    rows_of_broker,
    store_of,
    write,
)

TABLES = (
    QUEUE_UNITS,
    QUEUES,
    INDEX_FILES,
    INDEX_ENTRIES,
    CHECKPOINT,
    TOPICS,
    SUBSCRIPTION_GROUPS,
    GROUPS,
    DELAY_OFFSETS,
)

# --- index --------------------------------------------------------------------------------------


def as_truth(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["file"].removeprefix("index/"),
        "begin_timestamp": milliseconds(row["begin_timestamp"]),
        "end_timestamp": milliseconds(row["end_timestamp"]),
        "begin_phy": row["begin_physical_offset"],
        "end_phy": row["end_physical_offset"],
        "hash_slot_count": row["used_slots"],
        "index_count": row["entries"] + 1,
    }


def geometry_of(name: str) -> tuple[int, int]:
    settings = oracle.case("crash", name)["settings"]
    return int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"])


@pytest.mark.parametrize("name", sampled(oracle.cases("crash"), 6))
def test_the_geometry_is_that_of_the_writers_settings(name: str) -> None:
    slots, entries = geometry_of(name)
    for row in rows(INDEX_FILES, crash(name)):
        if row["file_size"]:
            assert (row["slots"], row["capacity"]) == (slots, entries - 1)


@pytest.mark.parametrize("name", [name for name in UNDAMAGED if name.startswith("base-")])
def test_one_index_file_alone_is_enough_for_its_geometry(name: str) -> None:
    for file in crash(name).index_files:
        [index] = read_index_files(open_store([file.path]))
        assert index.geometry == Geometry(*geometry_of(name))


def clean(name: str) -> bool:
    """Say whether the store's index files are loaded as they are, damaged or not."""
    return not oracle.truth("crash", name)["abort_before"] and oracle.truth("crash", name)["load_ok"]


@pytest.mark.parametrize("name", [name for name in UNDAMAGED if clean(name)])
def test_index_headers_are_those_the_broker_loads(name: str) -> None:
    assert [as_truth(row) for row in rows(INDEX_FILES, crash(name))] == [
        {**header, "index_count": max(1, header["index_count"])}
        for header in oracle.truth("crash", name)["index_after_load"]
    ]


def test_every_key_lookup_of_the_broker_is_answered_from_the_entries() -> None:
    looked_up = 0
    for name in oracle.cases("crash"):
        truth = oracle.truth("crash", name)
        if not truth["load_ok"] or name.startswith("idx_trunc"):
            continue  # what is cut off a file breaks chains: the broker finds less than there is
        store = crash(name)
        headers = truth["index_after_dispatch"]
        if {row["name"]: row for row in headers} != {
            row["name"]: row for row in map(as_truth, rows(INDEX_FILES, store))
        }:
            continue  # the broker deleted files, or wrote entries
        offsets = defaultdict(list)
        for entry in rows(INDEX_ENTRIES, store):
            offsets[entry["key_hash"]].append(entry["physical_offset"])
        for key in truth["keys"]:
            hashed = index_hash(index_key(key["topic"], key["key"]))
            assert sorted(offsets[hashed])[:64] == key["index_offsets"], (name, key["key"])
            looked_up += 1
    assert looked_up > 2000


@pytest.mark.parametrize("name", [name for name in BROKERS if name.startswith(("main", "ext", "dledger"))])
def test_entries_lie_in_their_chains_and_lead_to_records(name: str) -> None:
    store = broker(name)
    log = oracle.truth("broker", name)["log"]
    stored = {row["physical_offset"]: row["store_timestamp"] for row in log if "store_timestamp" in row}
    newest: dict[tuple[str, int], int] = {}
    entries = rows(INDEX_ENTRIES, store)
    assert len(entries) == sum(row["entries"] for row in rows(INDEX_FILES, store)) > 0
    for entry in entries:
        chain = entry["file"], entry["slot"]
        assert entry["previous"] == newest.get(chain, 0)
        newest[chain] = entry["entry"]
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=stored[entry["physical_offset"]])
        # Whole seconds after the file's begin; the first entry of a file that follows counts from elsewhere.
        late = moment - entry["store_timestamp"]
        assert entry["entry"] == 1 or timedelta(0) <= late < timedelta(seconds=1)


def index_file(geometry: Geometry, offsets: Sequence[int], hashes: Sequence[int], begin: int = 1000) -> bytearray:
    raw = bytearray(geometry.size)
    for number, (offset, key_hash) in enumerate(zip(offsets, hashes, strict=True), 1):
        slot = geometry.slot_position(key_hash % geometry.slots)
        entry = {"key_hash": key_hash, "physical_offset": offset, "time_diff": 0}
        entry["previous"] = int.from_bytes(raw[slot : slot + 4], "big")
        at = geometry.entry_position(number)
        raw[at : at + 20] = IndexEntry.build(entry)
        raw[slot : slot + 4] = number.to_bytes(4, "big")
    raw[:40] = IndexHeader.build(
        {
            "begin_timestamp": begin,
            "end_timestamp": begin,
            "begin_physical_offset": offsets[0] if offsets else 0,
            "end_physical_offset": offsets[-1] if offsets else 0,
            "hash_slot_count": len(hashes),
            "index_count": len(hashes) + 1,
        }
    )
    return raw


NAME = "index/20261121084837378"


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 97, 100_003])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("first", [0, 7_000])
def test_an_odd_geometry_is_inferred_from_few_entries(tmp_path: Path, slots: int, count: int, first: int) -> None:
    geometry = Geometry(slots, 60)
    hashes = [index_hash(f"T#{number}") for number in range(count)]
    raw = index_file(geometry, [first + 300 * (number // 3) for number in range(count)], hashes)
    write(tmp_path, NAME, bytes(raw))
    [index] = read_index_files(store_of(tmp_path))
    if first == 0 and (count, slots) in ((1, 1), (2, 3)):
        assert index.geometry is None  # an entry of offset 0 among zeros: several choices fit as well
    else:
        assert index.geometry == geometry
        assert index.readable_entries == count


def test_the_default_geometry_needs_no_entries(tmp_path: Path) -> None:
    path = write(tmp_path, NAME, bytes(40))
    with path.open("r+b") as file:
        file.truncate(DEFAULT_GEOMETRY.size)
    [row] = rows(INDEX_FILES, store_of(tmp_path))
    assert (row["slots"], row["capacity"], row["entries"]) == (5_000_000, 19_999_999, 0)
    assert DEFAULT_GEOMETRY.size == 420_000_040


def test_without_entries_or_settings_the_geometry_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, NAME, bytes(40 + 400 + 2000))
    store = store_of(tmp_path)
    [row] = rows(INDEX_FILES, store)
    assert (row["slots"], row["capacity"], row["entries"], row["begin_timestamp"]) == (None, None, 0, None)
    assert rows(INDEX_ENTRIES, store) == []
    settings = write(tmp_path, "broker.conf", b"maxHashSlotNum = 100\nmaxIndexNum=100\n")
    [row] = rows(INDEX_FILES, open_store([str(tmp_path)], config=str(settings)))
    assert (row["slots"], row["capacity"]) == (100, 99)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index_count", 2**31 - 1),
        ("index_count", -(2**31)),
        ("begin_timestamp", 2**63 - 1),
        ("begin_timestamp", -(2**63)),
        ("end_physical_offset", -1),
    ],
)
def test_a_damaged_index_header_is_shown_as_stored(tmp_path: Path, field: str, value: int) -> None:
    raw = index_file(Geometry(100, 60), [10, 20, 30], [5, 105, 7])
    header = dict(IndexHeader.parse(bytes(raw[:40])))
    header[field] = value
    raw[:40] = IndexHeader.build({name: header[name] for name in (f.name for f in IndexHeader.subcons)})
    write(tmp_path, NAME, bytes(raw))
    write(tmp_path, "index/20261121084837379", bytes(index_file(Geometry(100, 60), [40, 50], [5, 6])))
    store = store_of(tmp_path)
    row, _ = rows(INDEX_FILES, store)
    assert (row["slots"], row["capacity"]) == (100, 59)
    entries = [entry for entry in rows(INDEX_ENTRIES, store) if entry["file"] == NAME]
    assert [entry["physical_offset"] for entry in entries[:3]] == (
        [] if value == -(2**31) and field == "index_count" else [10, 20, 30]
    )


def test_a_negative_hash_has_no_slot_and_odd_times_are_null(tmp_path: Path) -> None:
    raw = index_file(Geometry(10, 20), [10, 20, 30, 40, 50, 60], [1, 11, 2, 3, 4, 5])
    at = Geometry(10, 20).entry_position(4)
    raw[at : at + 20] = IndexEntry.build(
        {"key_hash": -8, "physical_offset": -9, "time_diff": 2**31 - 1, "previous": -1}
    )
    write(tmp_path, NAME, bytes(raw))
    entry = rows(INDEX_ENTRIES, store_of(tmp_path))[3]
    assert (entry["slot"], entry["key_hash"], entry["previous"]) == (None, -8, -1)
    assert entry["store_timestamp"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC) + timedelta(seconds=2**31 - 1)


# --- checkpoint ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKERS)
def test_checkpoint_values_are_those_the_brokers_class_reads(name: str) -> None:
    found = {row["field"].replace("_", ""): row for row in rows(CHECKPOINT, broker(name))}
    truth = oracle.truth("broker", name)["store"]["checkpoint"]
    for field, value in truth.items():
        if not field.startswith(("Min", "Tmp")):  # derived, and not in the file
            row = found[field.lower()]
            assert row["value"] == value
            assert milliseconds(row["timestamp"]) == (value if field.endswith("Timestamp") else 0)


@pytest.mark.parametrize("length", [0, 1, 8, 20, 47, 48, 4096])
def test_a_short_checkpoint_gives_the_fields_it_holds(tmp_path: Path, length: int) -> None:
    names = [field.name for field in Checkpoint.subcons]
    raw = Checkpoint.build({name: -(2**63) + number for number, name in enumerate(names)})
    write(tmp_path, "checkpoint", raw.ljust(4096, b"\0")[:length])
    found = rows(CHECKPOINT, store_of(tmp_path))
    assert [row["field"] for row in found] == names[: length // 8]
    assert [row["value"] for row in found] == [-(2**63) + number for number in range(len(found))]
    assert all(row["timestamp"] is None for row in found)


def test_a_store_without_files_beside_its_log_gives_no_rows(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    assert [rows(table, store) for table in TABLES] == [[]] * len(TABLES)


# --- configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_topics_and_subscription_groups_are_the_brokers(name: str) -> None:
    truth, store = oracle.truth("broker", name), broker(name)
    names = ("topic", "read_queues", "write_queues", "perm", "order", "type")
    assert [tuple(row[column] for column in names) for row in rows(TOPICS, store)] == sorted(
        (
            row["topic"],
            row["read"],
            row["write"],
            row["perm"],
            row["order"],
            row.get("attributes", {}).get("message.type"),
        )
        for row in truth["topic_configs"]
    )
    groups = rows(SUBSCRIPTION_GROUPS, store)
    assert [row["group"] for row in groups] == sorted(truth["subscription_groups"])
    for row in groups:
        assert row["consume_enable"] in (True, False)
        assert row["retry_queues"] >= 0
        assert row["file"] == "config/subscriptionGroup.json"


@pytest.mark.parametrize("name", BROKERS)
def test_delay_offsets_are_the_brokers(name: str) -> None:
    found = rows_of_broker(DELAY_OFFSETS, name)
    assert {str(row["level"]): row["delivered_offset"] for row in found} == oracle.truth("broker", name)[
        "delay_offsets"
    ]
    ends = {
        row["queue_id"]: row["max"]
        for row in oracle.truth("broker", name)["queues"]
        if row["topic"] == "SCHEDULE_TOPIC_XXXX" and (has_rocksdict() or name not in ROCKSDB)
    }
    for row in found:
        assert row["queue_id"] == row["level"] - 1
        assert row["max_offset"] == ends.get(row["queue_id"])
        expected = None if row["max_offset"] is None else row["max_offset"] - row["delivered_offset"]
        assert row["pending"] == expected


def test_hostile_configuration_gives_nulls(tmp_path: Path) -> None:
    topics = rb"""{"topicConfigTable":{"\ud800":{"perm":99999999999999999999,"order":1,
        "readQueueNums":4294967296,"writeQueueNums":true,"attributes":{"message.type":[1]}},"x":5,"y":{"attributes":"?"}}}"""
    write(tmp_path, "config/topics.json", topics)
    write(tmp_path, "config/subscriptionGroup.json", b'{"subscriptionGroupTable":{"g":{"groupRetryPolicy":1}}}')
    write(
        tmp_path,
        "config/delayOffset.json",
        b'{"offsetTable":{-2147483648:1,"x":1,3:"y",2:-9223372036854775808}}',
    )
    store = store_of(tmp_path)
    assert [tuple(row.values()) for row in rows(TOPICS, store)] == [
        ("y", None, None, None, None, None),
        ("\ufffd", None, None, None, None, None),
    ]
    assert rows(SUBSCRIPTION_GROUPS, store)[0]["retry_policy"] is None
    assert [(row["level"], row["queue_id"]) for row in rows(DELAY_OFFSETS, store)] == [
        (-(2**31), None),
        (2, 1),
    ]


def version(counter: int, state: int = 0, topic: str = "T") -> bytes:
    text = '{"dataVersion":{"counter":%d,"stateVersion":%d,"timestamp":1},"topicConfigTable":{"%s":{}}}'
    return (text % (counter, state, topic)).encode()


@pytest.mark.parametrize(
    ("main", "tmp", "bak", "chosen"),
    [
        (version(2), None, version(1), "topics.json"),
        (version(1), None, version(1), "topics.json"),
        (version(1), version(2), version(1), "topics.json.tmp"),
        (version(1), None, version(0, state=1), "topics.json.bak"),
        (b"", None, version(1), "topics.json.bak"),
        (b"\0" * 100, None, version(1), "topics.json.bak"),
        (version(9)[:-4], None, version(1), "topics.json.bak"),
        (b"[]", None, version(1), "topics.json.bak"),
        (None, None, version(1), "topics.json.bak"),
        (None, version(3), version(1), "topics.json.tmp"),
        (b"{}", None, version(9), "topics.json"),
        (b"{", b"{", b"{", None),
    ],
)
def test_of_the_copies_the_newest_that_can_be_read_is_chosen(
    tmp_path: Path, main: bytes | None, tmp: bytes | None, bak: bytes | None, chosen: str | None
) -> None:
    for end, raw in (("", main), (".tmp", tmp), (".bak", bak)):
        if raw is not None:
            write(tmp_path, "config/topics.json" + end, raw)
    document = read_config(store_of(tmp_path), "topics.json")
    assert document is not None
    assert (document.source.name if document.source else None) == (chosen and "config/" + chosen)
    assert bool(document.problems) == (chosen != "topics.json")


def test_an_empty_delay_table_of_a_failed_start_gives_way_to_its_backup(tmp_path: Path) -> None:
    write(tmp_path, "config/delayOffset.json", b'{"dataVersion":{"counter":1,"timestamp":9},"offsetTable":{}}')
    write(
        tmp_path,
        "config/delayOffset.json.bak",
        b'{"dataVersion":{"counter":0,"timestamp":8},"offsetTable":{3:7}}',
    )
    [row] = rows(DELAY_OFFSETS, store_of(tmp_path))
    assert (row["level"], row["delivered_offset"], row["file"]) == (3, 7, "config/delayOffset.json.bak")


# --- all tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled([name for name in oracle.cases("crash") if oracle.is_damaged(name)], 6))
def test_every_table_of_a_damaged_store_has_valid_rows(name: str) -> None:
    store = crash(name)
    for table in TABLES:
        rows(table, store)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "1", "T@G", "x"]), inner),
    max_leaves=8,
)
TABLES_OF_CONFIG = (
    "offsetTable",
    "lmqOffsetTable",
    "topicConfigTable",
    "subscriptionGroupTable",
    "dataVersion",
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=400), min_size=4, max_size=4),
    st.dictionaries(st.sampled_from(TABLES_OF_CONFIG), JUNK),
)
def test_every_table_of_random_files_has_valid_rows(raw: list[bytes], config: dict[str, Any]) -> None:
    queue, batch, index, checkpoint = raw
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, "consumequeue/T/0/00000000000000000000", queue)
        write(root, "consumequeue_ext/T/0/00000000000000000000", queue[::-1])
        write(root, "batchconsumequeue/T/1/00000000000000000000", batch)
        write(root, "commitlog/00000000000000000000", queue)
        write(root, NAME, index)
        write(root, "index/20261121084837379", bytes(36) + index)  # few entries, as counts are small
        write(root, "checkpoint", checkpoint)
        for name in ("topics", "subscriptionGroup", "consumerOffset", "lmqConsumerOffset", "delayOffset"):
            write(root, f"config/{name}.json", json.dumps(config).encode())
            write(root, f"config/{name}.json.bak", queue)
        store = open_store([folder])
        for table in TABLES:
            rows(table, store)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_has_a_meaning_and_brief_names_columns(table: Table) -> None:
    for field in table.schema:
        assert field.metadata[b"doc"]
    assert set(table.brief) <= set(table.schema.names)

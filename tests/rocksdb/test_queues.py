"""Queues in RocksDB, against what real brokers served from them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import queue_ends, survey_queues
from rmqinspect.consumequeue.units import find_unit
from rmqinspect.rocksdb.queue_reader import read_end, write_queues
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.rocksdb import EndKeyTail, EndValue, KeyHead, UnitKeyTail, UnitValue
from rmqinspect.store.discover import open_store
from rmqinspect.tables.pointers import QUEUE_UNITS
from tests.support import oracle
from tests.support.rocksdb import database, needs_rocksdict
from tests.support.side_tables import ROCKSDB, broker, rows, units_of, write

Item = tuple[bytes, bytes]
Queue = tuple[str, int, list[int]]  # topic, number, physical offsets of its units
Ends = dict[tuple[str, int], tuple[int, int]]


@needs_rocksdict
@pytest.mark.parametrize("name", ROCKSDB)
def test_queues_are_those_the_broker_serves(name: str) -> None:
    truth = oracle.truth("broker", name)
    expected = {(row["topic"], row["queue_id"]): (row["min"], row["max"]) for row in truth["queues"] if row["max"]}
    with unpacked(broker(name), Unpacking()) as store:
        units = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in rows(QUEUE_UNITS, store)}
        assert {
            (one.topic, one.queue_id): (one.min_offset, one.max_offset)
            for one in survey_queues(store, searches_minimum(store))
        } == expected
    for row in truth["served"]:
        unit = units.pop((row["topic"], row["queue_id"], row["queue_offset"]))
        assert unit["physical_offset"] == row.get("cq_physical_offset", row["physical_offset"])
        assert unit["size"] == row.get("cq_size", row["store_size"])
        assert unit["tags_code"] == row["cq_tags_code"]
        assert unit["file"] == f"consumequeue (RocksDB)/{row['topic']}/{row['queue_id']}"
    assert not units


# --- entries made by hand -------------------------------------------------------------------------


def entry(topic: bytes, queue_id: int, queue_offset: int, physical_offset: int = 0, **changes: int) -> Item:
    head = {"topic_size": len(topic), "separator": 1}
    tail = {"separator": 1, "queue_id": queue_id, "queue_separator": 1, "queue_offset": queue_offset}
    value = {"physical_offset": physical_offset, "size": 100, "tags_code": 7, "store_timestamp": 9}
    key: bytes = KeyHead.build({**head, **changes}) + topic + UnitKeyTail.build({**tail, **changes})
    return key, UnitValue.build(value)


def end(topic: bytes, queue_id: int, which: bytes, physical_offset: int, queue_offset: int) -> Item:
    tail = {"separator": 1, "which": which, "which_separator": 1, "queue_id": queue_id}
    key: bytes = KeyHead.build({"topic_size": len(topic), "separator": 1}) + topic + EndKeyTail.build(tail)
    return key, EndValue.build({"physical_offset": physical_offset, "queue_offset": queue_offset})


def written(folder: Path, items: list[Item], chunk: int = 1_000) -> tuple[dict[str, Any], list[Queue]]:
    """Return the totals and the queues of entries that come in chunks."""
    index = io.StringIO()
    totals = write_queues([items[at : at + chunk] for at in range(0, len(items), chunk)], str(folder), index)
    found = []
    for line in map(json.loads, index.getvalue().splitlines()):
        units = np.fromfile(folder / line["file"], dtype_of(QueueUnit))
        found.append((bytes.fromhex(line["topic"]).decode(), line["queue_id"], units["physical_offset"].tolist()))
        assert units["size"][0] == 100
        assert units["tags_code"][-1] == 7
    return totals, found


def test_queues_are_told_apart_by_topic_and_number(tmp_path: Path) -> None:
    items = [
        *(entry(b"A", 0, number, 10 + number) for number in range(3)),
        entry(b"A", 1, 0, 20),
        entry(b"B", 1, 1, 30),
        entry(b"B", 1, 2, 31),
        entry(b"B", -1, 5, 32),
        entry(b"Long", 0, 0, 40),
    ]
    totals, found = written(tmp_path, items)
    assert found == [
        ("A", 0, [10, 11, 12]),
        ("A", 1, [20]),
        ("B", 1, [30, 31]),
        ("B", -1, [32]),
        ("Long", 0, [40]),
    ]
    assert totals == {"entries": 8, "malformed": 0}


def test_a_queue_longer_than_a_chunk_is_one_file(tmp_path: Path) -> None:
    _, found = written(tmp_path, [entry(b"T", 0, number, number) for number in range(100, 150)], chunk=7)
    assert found == [("T", 0, list(range(100, 150)))]


def test_missing_entries_are_unused_units(tmp_path: Path) -> None:
    totals, found = written(tmp_path, [entry(b"T", 0, number, number) for number in (100, 101, 104)])
    assert found == [("T", 0, [100, 101, 0, 0, 104])]
    assert totals["entries"] == 3


def test_an_entry_far_behind_its_queue_is_left_out(tmp_path: Path) -> None:
    numbers = (5, 6, 7 + (1 << 24), 8 + (1 << 24), 2**57)
    totals, found = written(tmp_path, [entry(b"T", 0, number, number) for number in numbers])
    assert found == [("T", 0, [5, 6])]
    assert totals == {"entries": 2, "malformed": 3}


@pytest.mark.parametrize(
    "item",
    [
        (b"", b""),
        (b"\0" * 19, bytes(28)),
        (b"\0" * 20, bytes(28)),
        (entry(b"T", 0, 1)[0], bytes(27)),
        (entry(b"T", 0, 1)[0], bytes(29)),
        entry(b"T", 0, 1, topic_size=2),
        entry(b"T", 0, 1, separator=2),
        entry(b"T", 0, 1, queue_separator=0),
        entry(b"T", 0, -1),
        entry(b"T", 0, 2**62),
    ],
)
def test_what_is_no_entry_is_counted_and_left_out(item: Item, tmp_path: Path) -> None:
    totals, found = written(tmp_path, [entry(b"S", 0, 0, 50), item, entry(b"T", 0, 2, 60)])
    assert found == [("S", 0, [50]), ("T", 0, [60])]
    assert totals == {"entries": 2, "malformed": 1}


def test_the_ends_of_queues_are_read() -> None:
    assert read_end(*end(b"Topic", 3, b"max", 100, 7)) == {
        "topic": b"Topic".hex(),
        "queue_id": 3,
        "which": "max",
        "physical_offset": 100,
        "queue_offset": 7,
    }
    key, _ = end(b"CHECKPOINT_TOPIC", 0, b"max", 0, 0)
    assert read_end(key, (12345).to_bytes(8, "big")) == {}
    for wrong in (b"", b"\0" * 14, key[1:], end(b"T", 0, b"mid", 0, 0)[0]):
        assert read_end(wrong, bytes(16)) is None
    assert read_end(end(b"T", 0, b"max", 0, 0)[0], bytes(15)) is None


# --- databases made by hand -----------------------------------------------------------------------

# Of each queue: its entries, then what column family `offset` says of it.
NOTED = {
    0: (range(3, 6), [(b"max", 5_005, 5), (b"min", 5_003, 3)]),
    1: (range(3, 6), [(b"max", 5_009, 9), (b"min", 5_001, 1)]),  # as after CombineConsumeQueueStore#start
    2: (range(3, 6), [(b"max", 5_005, 5), (b"min", 4_001, 1)]),  # the first have expired since
    3: (range(3, 6), []),
    4: ((), [(b"max", 4_990, 90), (b"min", 4_000, 7)]),  # all have expired, and a compaction has removed them
    5: (range(-15, 6), [(b"max", 5_005, 35)]),  # entries of expired records, not compacted yet
    6: ((), [(b"max", -1, -1)]),  # never had a message
}
ENDS: Ends = {
    ("T", 0): (3, 6),
    ("T", 1): (1, 10),
    ("T", 2): (3, 6),
    ("T", 3): (3, 6),
    ("T", 4): (91, 91),
    ("T", 5): (30, 36),
}


def noted_store(root: Path) -> Path:
    """Make a store whose log begins at 5000, with the queues of NOTED."""
    write(root, "commitlog/00000000000000005000", bytes(100))
    entries, ends = [], []
    for queue_id, (offsets, noted) in NOTED.items():
        shift = 30 if queue_id == 5 else 0
        entries += [entry(b"T", queue_id, number + shift, 5_000 + number) for number in offsets]
        ends += [end(b"T", queue_id, which, physical, number) for which, physical, number in noted]
    database(root / "consumequeue", {"default": entries, "offset": ends})
    return root


@needs_rocksdict
def test_queues_end_where_the_broker_has_noted_it(tmp_path: Path) -> None:
    with unpacked(open_store([str(noted_store(tmp_path / "store"))]), Unpacking()) as store:
        found = {(one.topic, one.queue_id): one for one in survey_queues(store, searches_minimum(store))}
        assert {name: (one.min_offset, one.max_offset) for name, one in found.items()} == ENDS
        assert [one.units for one in found.values()] == [3, 3, 3, 3, 0, 21]
        assert find_unit(found["T", 0].files, 4) == (5_004, 100)


@needs_rocksdict
def test_a_quick_look_reads_few_entries_and_finds_the_same_ends(tmp_path: Path) -> None:
    with unpacked(open_store([str(noted_store(tmp_path / "store"))]), Unpacking(ends_only=True)) as store:
        found = {
            (one.topic, one.queue_id): (one.min_offset, one.max_offset)
            for one in queue_ends(store, searches_minimum(store))
        }
    assert found == {name: ends for name, ends in ENDS.items() if name[1] != 3}  # only its entries tell of that


@needs_rocksdict
@pytest.mark.parametrize("overtaken", [False, True])
def test_of_queues_in_both_forms_those_count_that_a_broker_reads(overtaken: bool, tmp_path: Path) -> None:
    """Double write: the files, and light messages in RocksDB. After a change to RocksDB: what is in RocksDB."""
    last = 900 if overtaken else 300
    database(
        tmp_path / "store" / "consumequeue",
        {
            "default": [entry(topic, 0, 0, 100) for topic in (b"Both", b"Gone", b"%LMQ%x")],
            "offset": [
                end(b"%LMQ%x", 0, b"max", 950, 0),
                end(b"Both", 0, b"max", last, 8),
                end(b"Gone", 0, b"max", 100, 0),
            ],
        },
    )
    for topic in ("Both", "Old"):
        write(tmp_path, f"store/consumequeue/{topic}/0/00000000000000000000", units_of((300, 100, 0)))
    with unpacked(open_store([str(tmp_path / "store")]), Unpacking()) as store:
        found = {queue.topic: (queue.kind, queue.max_offset) for queue in survey_queues(store, searches_minimum(store))}
        (remark,) = (text for text in store.remarks if "RocksDB" in text)
    light = {"%LMQ%x": ("rocksdb", 1), "Old": ("file", 1)}
    if overtaken:
        assert found == light | {"Both": ("rocksdb", 9), "Gone": ("rocksdb", 1)}
    else:
        assert found == light | {"Both": ("file", 1)}
    assert ("RocksDB counts" in remark) == overtaken

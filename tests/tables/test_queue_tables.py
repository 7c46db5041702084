"""Queues and their units, against what real brokers said about them."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqinspect.consumequeue.bounds
from rmqinspect.broker.eras import searches_minimum
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends, survey_queues
from rmqinspect.consumequeue.units import find_unit
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import PRE_BLANK, BatchUnit, ExtHead, QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.config import SUBSCRIPTION_GROUPS, TOPICS
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.pointers import QUEUE_UNITS, QUEUES
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import BATCH_ROWS
from tests.support import oracle
from tests.support.side_tables import (
    CUT,
    FILE_QUEUES,
    ROCKSDB,
    UNDAMAGED,
    broker,
    crash,
    milliseconds,
    rows,
    store_of,
    units_of,
    write,
)


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_units_are_those_the_broker_serves(name: str) -> None:
    units = {}
    for unit in rows(QUEUE_UNITS, broker(name)):
        assert unit["kind"] == "message"
        for number in range(unit["message_count"]):
            units[unit["topic"], unit["queue_id"], unit["queue_offset"] + number] = unit
    served = oracle.truth("broker", name)["served"]
    for row in served:
        # A compacted topic answers with the next survivor, and shows the unit of what was asked for.
        asked = row.get("requested_offset", row["queue_offset"])
        unit = units[row["topic"], row["queue_id"], asked]
        if "status" in row:  # expired: the broker gives no unit
            continue
        assert unit["physical_offset"] == row.get("cq_physical_offset", row.get("physical_offset"))
        assert unit["size"] == row.get("cq_size", row.get("store_size"))
        assert unit["ext_tags_code"] == row.get("ext_tags_code")
        # 5.x looks the tags code up behind the address before it shows the unit.
        assert row["cq_tags_code"] in (unit["tags_code"], unit["ext_tags_code"])
        if "cq_base" in row:
            assert (unit["queue_offset"], unit["message_count"]) == (row["cq_base"], row["cq_batch_num"])
    assert len(served) > 200


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_queues_begin_and_end_where_the_broker_says(name: str) -> None:
    found = {(row["topic"], row["queue_id"]): row for row in rows(QUEUES, broker(name))}
    truth = {(row["topic"], row["queue_id"]): row for row in oracle.truth("broker", name)["queues"]}
    assert found.keys() == truth.keys()
    for key, row in truth.items():
        assert found[key]["max_offset"] == row["max"]
        assert found[key]["min_offset"] == row["min"]  # 4.x leaves 0 where all units of a queue have expired


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_the_last_store_timestamp_is_that_of_the_last_record_served(name: str) -> None:
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for row in oracle.truth("broker", name)["served"]:
        last[row["topic"], row["queue_id"]] = row
    for row in rows(QUEUES, broker(name)):
        served = last.get((row["topic"], row["queue_id"]), {})
        # A unit whose physical offset is served from elsewhere shows another record.
        if "store_timestamp" in served and "requested_offset" not in served and "status" not in served:
            assert milliseconds(row["last_store_timestamp"]) == served["store_timestamp"]
            assert row["last_physical_offset"] == served.get("cq_physical_offset", served.get("physical_offset"))


@pytest.mark.parametrize("name", ROCKSDB)
def test_queues_and_configuration_in_rocksdb_are_not_called_empty(name: str) -> None:
    for table in (QUEUES, QUEUE_UNITS, TOPICS, SUBSCRIPTION_GROUPS, GROUPS):
        with pytest.raises(Unreadable, match="not read: RocksDB"):
            rows(table, broker(name))
        told: list[str] = []
        assert rows(table, broker(name), Request(on_unreadable=told.append)) == []
        assert len(told) == 1


@pytest.mark.parametrize("name", UNDAMAGED)
def test_units_of_undamaged_stores_are_those_the_store_class_loads(name: str) -> None:
    store, truth = crash(name), oracle.truth("crash", name)
    units = defaultdict(list)
    for row in rows(QUEUE_UNITS, store):
        unit = [row["queue_offset"], row["physical_offset"], row["size"], row["tags_code"]]
        units[row["topic"], row["queue_id"]].append(unit)
    queues = {(row["topic"], row["queue_id"]): row for row in rows(QUEUES, store)}
    caught_up = case_exit(name) != "b" and name not in CUT
    assert truth["load_ok"]
    for loaded in truth["after_load"]["queues"]:
        key = loaded["topic"], loaded["queue_id"]
        if key not in queues:
            assert loaded["max_offset"] == 0  # made in memory by 4.9.7
            continue
        ours = [unit for unit in units.pop(key) if unit[0] >= loaded["min_offset"]]
        shared = min(len(ours), len(loaded["units"]))
        # Where the dispatcher had not caught up the load adds units, and a cut takes some.
        assert ours[:shared] == loaded["units"][:shared]
        if caught_up:
            assert len(ours) == len(loaded["units"])
            assert queues[key]["max_offset"] == loaded["max_offset"]
    if caught_up:
        assert not units


def case_exit(name: str) -> str:
    variant: str = oracle.case("crash", name)["base_variant"]
    return variant


def looked_at(store: Store) -> list[QueueSummary]:
    return list(queue_ends(store, searches_minimum(store)))


def surveyed(store: Store) -> list[QueueSummary]:
    return list(survey_queues(store, searches_minimum(store)))


@pytest.mark.parametrize("name", ["none-4.7.1-r", "none-5.3.3-r"])
def test_after_retention_the_minimum_is_the_brokers_and_the_first_kept_message_is_told_apart(name: str) -> None:
    store, truth = crash(name), oracle.truth("crash", name)
    start = truth["after_load"]["min_phy"]
    loaded = {(row["topic"], row["queue_id"]): row for row in truth["after_load"]["queues"]}
    differing = 0
    for queue in surveyed(store):
        row = loaded[queue.topic, queue.queue_id]
        there = [unit[0] for unit in row["units"] if unit[1] >= start]
        assert queue.min_offset == row["min_offset"]
        assert queue.first_kept == (there[0] if there else row["max_offset"])
        # The broker looks in the first file only: with none there its minimum stays 0.
        differing += queue.min_offset != queue.first_kept
    assert differing == 2


@pytest.mark.parametrize("name", [*FILE_QUEUES, *(("crash:" + name) for name in UNDAMAGED)])
def test_the_quick_look_agrees_with_the_full_survey(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = crash(name.removeprefix("crash:")) if name.startswith("crash:") else broker(name)
    exact = surveyed(store)
    assert looked_at(store) == exact
    # Everything is short here; small pages make the searching part do the work.
    monkeypatch.setattr(rmqinspect.consumequeue.bounds, "_SHORT", -1)
    monkeypatch.setattr(rmqinspect.consumequeue.bounds, "_PAGE_OF_LOOK", 100)
    assert looked_at(store) == exact


BLANK = QueueUnit.build(PRE_BLANK)
UNUSED = bytes(QueueUnit.sizeof())


def test_a_hole_garbage_filler_and_trailing_bytes(tmp_path: Path) -> None:
    raw = BLANK + units_of((100, 90, 1)) + UNUSED + units_of((-5, -1, 2), (200, 90, 3)) + UNUSED * 2
    write(tmp_path, "consumequeue/T/3/00000000000000000140", raw + b"\1" * 7)
    store = store_of(tmp_path)
    found = [(row["queue_offset"], row["physical_offset"], row["kind"]) for row in rows(QUEUE_UNITS, store)]
    assert found == [(7, 0, "pre_blank"), (8, 100, "message"), (10, -5, "message"), (11, 200, "message")]
    [queue] = rows(QUEUES, store)
    assert (queue["min_offset"], queue["max_offset"], queue["units"]) == (7, 9, 2)  # as a broker reads it
    assert (queue["first_physical_offset"], queue["last_physical_offset"]) == (100, 200)
    assert queue["last_store_timestamp"] is None
    assert queue["records"] is None
    assert queue["shift"] is None


@pytest.mark.parametrize(
    ("raw", "ends"),
    [(b"", (0, 7)), (UNUSED * 7, (0, 7)), (BLANK * 2 + UNUSED * 5, (7, 9)), (b"\1" * 19, (0, 7))],
)
def test_the_ends_of_a_queue_without_a_message(
    tmp_path: Path, raw: bytes, ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "consumequeue/T/0/00000000000000000140", raw)
    store = store_of(tmp_path)
    [queue] = rows(QUEUES, store)
    assert (queue["min_offset"], queue["max_offset"]) == ends
    assert (queue["units"], queue["first_physical_offset"]) == (0, None)
    monkeypatch.setattr(rmqinspect.consumequeue.bounds, "_SHORT", -1)
    assert looked_at(store) == surveyed(store)


def long_queue(root: Path, count: int, start: int = 0, segment: int = 0) -> Store:
    """Make a queue in files of 300 000 units, one record per 100 bytes; the log begins at `segment`."""
    units = np.zeros(-(-count // 300_000) * 300_000, dtype_of(QueueUnit))
    units["physical_offset"][:count] = np.arange(count) * 100
    units["size"][:count] = 100
    for number in range(0, len(units), 300_000):
        name = f"consumequeue/T/0/{(start + number) * 20:020}"
        write(root, name, units[number : number + 300_000].tobytes())
    write(root, f"commitlog/{segment:020}", bytes(1000))
    return open_store([str(root)])


@pytest.mark.parametrize("count", [1, 204, 205, 5_000, 299_999, 300_000, 300_001])
def test_long_queues_are_looked_at_and_surveyed_alike(tmp_path: Path, count: int) -> None:
    store = long_queue(tmp_path, count, segment=min(count // 2 * 100 + 50, 10**9))
    [queue] = looked_at(store)
    assert [queue] == surveyed(store)
    assert (queue.max_offset, queue.units) == (count, count)
    assert queue.min_offset == (count // 2 + 1 if count > 1 else 1)
    assert find_unit(queue.files, count - 1) == ((count - 1) * 100, 100)
    assert find_unit(queue.files, count) is None
    assert find_unit(queue.files, -1) is None


def test_batches_end_at_their_limit_and_hold_every_unit(tmp_path: Path) -> None:
    store = long_queue(tmp_path, 250_000, start=300_000)
    batches = list(QUEUE_UNITS.rows(store, Request()))
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    offsets = np.concatenate([batch.column("queue_offset").to_numpy() for batch in batches])
    assert np.array_equal(offsets, np.arange(300_000, 550_000))


def test_progress_counts_the_bytes_that_are_read(tmp_path: Path) -> None:
    store, read = long_queue(tmp_path, 5_000), [0]
    rows(QUEUE_UNITS, store, Request(progress=lambda count: read.append(read[-1] + count)))
    assert 100_000 <= read[-1] <= 6_000_000


def test_ext_addresses_that_lead_nowhere_give_null(tmp_path: Path) -> None:
    def ext(size: int, tags: int, bitmap: bytes) -> bytes:
        head = {"size": size, "tags_code": tags, "store_timestamp": 1, "bitmap_size": len(bitmap)}
        return bytes(ExtHead.build(head)) + bitmap

    first = ext(22, 111, b"ab") + ext(99, 222, b"") + ext(20, 333, b"")
    write(tmp_path, "consumequeue_ext/T/0/00000000000000000000", first.ljust(100, b"\0"))
    write(tmp_path, "consumequeue_ext/T/0/00000000000000000100", ext(20, 444, b"").ljust(30, b"\0"))
    places = [0, 22, 42, 100, 95, 120, 2**62, 2**63 - 2**31 - 1]
    write(
        tmp_path,
        "consumequeue/T/0/00000000000000000000",
        units_of(*((1, 1, place - 2**63) for place in places)),
    )
    found = [row["ext_tags_code"] for row in rows(QUEUE_UNITS, store_of(tmp_path))]
    assert found == [111, None, 333, 444, None, None, None, None]


def test_a_batch_queue_counts_messages_and_survives_extreme_numbers(tmp_path: Path) -> None:
    def unit(offset: int, base: int, count: int) -> bytes:
        known = {"physical_offset": offset, "size": 50, "queue_offset": base, "message_count": count}
        return bytes(BatchUnit.build({field.name: 0 for field in BatchUnit.subcons} | known))

    raw = unit(10, 0, 4) + unit(60, 4, 1) + unit(110, 2**63 - 1, 32767) + bytes(46)
    write(tmp_path, "batchconsumequeue/T/0/00000000000000000000", raw)
    store = store_of(tmp_path)
    [queue] = rows(QUEUES, store)
    assert (queue["kind"], queue["min_offset"], queue["max_offset"]) == ("batch", 0, -(2**63) + 32766)  # Java's sum
    [summary] = looked_at(store)
    assert [find_unit(summary.files, number) for number in (0, 3, 4, 5)] == [
        (10, 50),
        (10, 50),
        (60, 50),
        None,
    ]


def test_folder_names_that_are_no_utf_8_are_escaped(tmp_path: Path) -> None:
    write(tmp_path, "consumequeue/T\udcff/0/00000000000000000000", units_of((1, 1, 1)))
    assert rows(QUEUE_UNITS, store_of(tmp_path))[0]["topic"] == r"T\xff"
    assert rows(QUEUES, store_of(tmp_path))[0]["topic"] == r"T\xff"

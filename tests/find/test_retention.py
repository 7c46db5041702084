"""What a retention would take from consumer groups, against the units of their queues."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.groups import is_system_group
from rmqinspect.consumequeue.bounds import queue_end, queue_files_of
from rmqinspect.find.summaries import last_times, read_waiting, retained
from rmqinspect.store.model import Store
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.log import SEGMENTS_TABLE
from rmqinspect.tables.pointers import QUEUE_UNITS
from rmqinspect.tables.request import Request
from rmqinspect.tables.usage import Sample, read_usage
from tests.support.side_tables import broker, milliseconds, rows, store_of, units_of, write

# With batch queues, light queues and DLedger's heads of entries; several segments each.
CASES = ("main-5.3.3", "lmq-4.9.7", "dledger-4.9.7", "retention-4.9.7")


def unconsumed(store: Store) -> dict[tuple[str, str, int], list[tuple[int, int, int]]]:
    """Return (queue offset, messages, physical offset) of what each group has not consumed of each queue."""
    units = defaultdict(list)
    for row in rows(QUEUE_UNITS, store):
        units[row["topic"], row["queue_id"]].append((row["queue_offset"], row["message_count"], row["physical_offset"]))
    found = {}
    for row in rows(GROUPS, store):
        if not is_system_group(row["group"]) and row["min_offset"] is not None:
            behind = [unit for unit in units[row["topic"], row["queue_id"]] if unit[2] >= store.log_start]
            begin = max(row["consumer_offset"], behind[0][0] if behind else row["max_offset"])
            waiting = [unit for unit in behind if unit[0] + unit[1] > begin]
            found[row["group"], row["topic"], row["queue_id"]] = [
                (max(offset, begin), offset + number - max(offset, begin), place) for offset, number, place in waiting
            ]
    return {key: waiting for key, waiting in found.items() if waiting}


@pytest.mark.parametrize("name", CASES)
def test_groups_lose_what_lies_in_the_deleted_segments(name: str) -> None:
    store = broker(name)
    expected = unconsumed(store)
    waiting = read_waiting(store, Request()) or []
    assert {
        (one.position.entry.group, one.position.entry.topic, one.position.entry.queue_id): one.queue_offset
        for one in waiting
    } == {key: units[0][0] for key, units in expected.items()}
    assert waiting and waiting[0].physical_offset == min(units[0][2] for units in expected.values())
    times = last_times(store, read_usage(store, Request()), Request())
    now = max(time for time in times if time is not None)
    hours = {(now - time) / 3_600_000 for time in times if time is not None} | {0.0}
    for one in sorted(hours):
        found = retained(store, times, waiting, one, now)
        start = store.segments[len(found.segments)].base
        lost: dict[str, int] = defaultdict(int)
        for (group, _, _), units in expected.items():
            lost[group] += sum(number for _, number, place in units if place < start)
        assert dict(found.losses or {}) == {group: number for group, number in lost.items() if number}
        assert found.size == sum(segment.size for segment in store.segments[: len(found.segments)])


def test_times_are_those_of_the_last_records_also_of_a_sample() -> None:
    store = broker("main-5.3.3")
    usage = read_usage(store, Request())
    times = [row["last_store_timestamp"] for row in rows(SEGMENTS_TABLE, store)]
    expected = [None if time is None else milliseconds(time) for time in times]
    assert last_times(store, usage, Request()) == expected
    assert last_times(store, replace(usage, sample=Sample((), 1, 2)), Request()) == expected


def test_the_first_kept_message_is_the_first_one_of_a_log_that_begins_there() -> None:
    store = broker("main-5.3.3")
    units = defaultdict(list)
    for row in rows(QUEUE_UNITS, store):
        units[row["topic"], row["queue_id"]].append((row["physical_offset"], row["queue_offset"]))
    for files in queue_files_of(store):
        queue = units[files[0].topic, files[0].queue_id]
        for start in (0, store.segments[1].base, store.segments[-1].base, 1 << 60):
            expected = [offset for place, offset in queue if place >= start]
            kept = queue_end(files, start, lambda: True)
            assert kept.first_kept == (expected[0] if expected else kept.max_offset)


def test_a_damaged_unit_behind_the_new_minimum_is_no_negative_loss(tmp_path: Path) -> None:
    for base in (0, 1000):
        write(tmp_path, f"commitlog/{base:020d}", bytes(1000))
    places = (1000, 1200, 100, 1400)  # the third one points before the others
    write(tmp_path, "consumequeue/T/0/00000000000000000000", units_of(*((place, 100, 0) for place in places)))
    write(tmp_path, "config/consumerOffset.json", json.dumps({"offsetTable": {"T@G": {"0": 2}}}).encode())
    store = store_of(tmp_path)
    waiting = read_waiting(store, Request())
    assert waiting and waiting[0].physical_offset == 100
    found = retained(store, [0, 0], waiting, 1, 1 << 40)
    assert len(found.segments) == 1
    assert found.losses == {}

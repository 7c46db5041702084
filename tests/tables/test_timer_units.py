"""The table `timer_units`: against the records that brokers served from the timer's topic, and damaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqinspect.codec.java import java_string_hash
from rmqinspect.commitlog.records import records_at
from rmqinspect.schemas.timer import UNIT_SIZE
from rmqinspect.store.model import Store
from rmqinspect.tables.pointers import TIMER_UNITS
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.building import lay, record, write_segment
from tests.support.side_tables import BROKERS, broker, milliseconds, rows, store_of
from tests.support.timers import FILE_SIZE, NOW, ROOM, Timer, some

TIMERS = tuple(name for name in BROKERS if oracle.truth("broker", name)["timer"])
TIMER_TOPIC = "rmq_sys_wheel_timer"
DELETE = "TIMER_DEL_UNIQKEY"


@pytest.mark.parametrize("name", TIMERS)
def test_units_lead_to_the_records_that_the_broker_served(name: str) -> None:
    store = broker(name)
    served = [row for row in oracle.truth("broker", name)["served"] if row["topic"] == TIMER_TOPIC]
    by_place = {row["physical_offset"]: row for row in served}
    units = rows(TIMER_UNITS, store)
    assert len({unit["physical_offset"] for unit in units}) == len(units) > 2
    for number, unit in enumerate(units):
        record = by_place[unit["physical_offset"]]
        properties = record["properties"]
        assert unit["timer_log_offset"] == number * UNIT_SIZE
        assert unit["msg_id"] == properties["UNIQ_KEY"]
        assert unit["size"] == record["store_size"]
        assert unit["real_topic"] == properties["REAL_TOPIC"]
        assert unit["real_topic_hash"] == java_string_hash(properties["REAL_TOPIC"])
        assert ("delete" in unit["magic"]) == (DELETE in properties)
        fires, due = milliseconds(unit["fire_timestamp"]), int(properties["TIMER_OUT_MS"])
        assert (fires < due) if "roll" in unit["magic"] else (fires == due)
    if not store.of_kind("abort"):
        # The wheel is written once a second, so it lags behind the log of a broker that was killed.
        assert all(unit["in_wheel"] for unit in units)


def in_wheel(store: Store) -> list[bool]:
    return [unit["in_wheel"] for unit in rows(TIMER_UNITS, store, Request(columns=frozenset({"in_wheel"})))]


def test_the_wheel_leads_to_all_units_of_three_files(tmp_path: Path) -> None:
    units = rows(TIMER_UNITS, some().write(tmp_path))
    assert all(unit["in_wheel"] for unit in units)
    assert [unit["position"] for unit in units[ROOM : ROOM + 2]] == [0, UNIT_SIZE]
    assert units[ROOM]["timer_log_offset"] == FILE_SIZE


def test_without_a_wheel_nothing_leads_to_a_unit(tmp_path: Path) -> None:
    timer = some()
    timer.wheel = None
    assert not any(in_wheel(timer.write(tmp_path)))


def test_a_snapshot_counts_instead_of_the_wheel(tmp_path: Path) -> None:
    timer = some()
    timer.wheel = "timerwheel.100"
    store = timer.write(tmp_path)
    assert all(in_wheel(store))
    (tmp_path / "timerwheel").write_bytes(b"")
    assert all(in_wheel(store_of(tmp_path)))


def test_a_wrong_link_hides_the_units_before_it(tmp_path: Path) -> None:
    timer = Timer().add(*[NOW + 10] * 5).change(3, previous=0)
    assert in_wheel(timer.write(tmp_path)) == [False, False, False, True, True]


def test_a_slot_that_points_at_an_older_unit_hides_those_behind_it(tmp_path: Path) -> None:
    timer = Timer().add(*[NOW + 10] * 5, NOW + 11).slot(NOW + 10, last=2 * UNIT_SIZE)
    assert in_wheel(timer.write(tmp_path)) == [True, True, True, False, False, True]


def test_a_slot_that_points_at_a_unit_of_another_time_leads_to_none(tmp_path: Path) -> None:
    timer = Timer().add(NOW + 10, NOW + 11).slot(NOW + 10, last=UNIT_SIZE)
    assert in_wheel(timer.write(tmp_path)) == [False, True]


def test_units_of_deleted_files_are_not_needed(tmp_path: Path) -> None:
    timer = some()
    timer.base = FILE_SIZE
    assert all(in_wheel(timer.write(tmp_path)))


# --- records at known places ----------------------------------------------------------------------


@pytest.mark.parametrize("joined", [False, True])
def test_records_are_read_where_they_prove_themselves(tmp_path: Path, joined: bool) -> None:
    bodies = [bytes(100_000 * (number in (4, 20)) + number) for number in range(40)]  # two that part the others
    write_segment(tmp_path / "commitlog", lay([{"body": body} for body in bodies]))
    places = np.cumsum([0, *(len(record(body=body)) for body in bodies)])
    sizes = np.diff(places)
    store = store_of(tmp_path)
    asked = np.array([places[7], places[3], places[3] + 1, places[39], places[5], (1 << 63) - 1, -1])
    asked_sizes = np.array([sizes[7], sizes[3], 200, sizes[39], 99, 200, 200])
    found: dict[int, Any] = {}
    reads = 0
    for which, records in records_at(store, asked, asked_sizes, joined=joined):
        reads += 1
        stored = (
            records.bytes[first:last].tobytes()
            for first, last in zip(records.body_starts, records.body_ends, strict=True)
        )
        found |= dict(zip(which.tolist(), stored, strict=True))
    assert found == {0: bodies[7], 1: bodies[3], 3: bodies[39]}
    assert reads == (1 if joined else 3)

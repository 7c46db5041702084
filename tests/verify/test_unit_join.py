"""Loops over queue units: of hostile ones they say what the fields say, compiled or not, in step or one by one."""

from bisect import bisect_right
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.broker.dispatch import Dispatched, Extra
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.loops import pointer_rows as walk
from rmqinspect.loops.pointers import step_units, survey_units
from rmqinspect.schemas.consumequeue import PRE_BLANK, PRE_BLANK_SIZE, BatchUnit, QueueUnit
from rmqinspect.store.model import QueueFile
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify import queue_join
from rmqinspect.verify.plan import CrossPlan, LogMap, Runs
from rmqinspect.verify.pointers import LogRanges
from rmqinspect.verify.queue_join import UnitResult, join_units
from tests.support.loop_ways import loop_way, sources
from tests.support.strict import strict_loops

_RUN_OF = [*signature(sources()["pointers"].step_units).parameters].index("run_of")

LOW, STORED, SIZE = 5000, 1_700_000_000_000, 90
QUEUES = [("bulk", 0, "batch_queue"), ("orders", 0, "queue"), ("orders", 1, "queue"), (SCHEDULE_TOPIC, 2, "queue")]

_record = st.tuples(
    st.integers(0, len(QUEUES) - 1),
    st.sampled_from([0, 0, 0, 7]),  # bytes before it
    st.sampled_from([True, True, True, False]),  # entitled to a unit
    st.booleans(),  # delayed
    st.sampled_from([3, 3, -(2**31)]),  # tags code
)
_values = st.one_of(st.integers(-2, 2000), st.sampled_from([LOW, LOW + SIZE, STORED, PRE_BLANK_SIZE, -(2**63), 2**62]))
_change = st.tuples(
    st.integers(0, len(QUEUES) - 1),
    st.integers(0, 30),  # row
    st.sampled_from(["drop", "twice", "swap", "zero", "physical_offset", "size", "tags_code", "store_timestamp"]),
    _values,
)


class Case:
    """Records, and the files of units that a broker would have written for them, changed."""

    def __init__(self, folder: Path, records: list[Any], changes: list[Any], cut: int, more: list[Any]) -> None:
        queue, before, entitled, delayed, tags = (np.array(column) for column in zip(*records, strict=True))
        places = LOW + np.cumsum(before) + SIZE * np.arange(len(records))
        numbers: Ints = np.zeros(len(records), np.int64)
        for one in range(len(QUEUES)):
            of_queue = np.flatnonzero((queue == one) & entitled)
            numbers[of_queue] = np.arange(len(of_queue))
        ones, none = np.ones(len(records), np.int64), np.empty(0, np.int32)
        self.records = Dispatched(
            physical_offset=places,
            size=(ones * SIZE).astype(np.int32),
            queue=queue.astype(np.int32),
            queue_offset=numbers,
            tags_code=tags.astype(np.int32),
            store_timestamp=ones * STORED,
            messages=ones.astype(np.int32),
            real_topic=np.zeros(len(records), np.int32),
            key_count=np.zeros(len(records), np.int32),
            entitled=entitled,
            sound=ones > 0,
            delayed=delayed,
            tagged=ones > 0,
            key_record=none,
            key_hash=none,
            key_kind=np.empty(0, np.int8),
            extras=[
                Extra(at % len(records), QUEUES[one][0], QUEUES[one][1], offset) for at, one, offset in sorted(more)
            ],
            queues=[(topic.encode(), queue_id) for topic, queue_id, _ in QUEUES],
        )
        self.end = int(places[-1]) + SIZE
        files: list[QueueFile] = []
        runs: list[tuple[int, ...]] = []
        for one, (topic, queue_id, kind) in enumerate(QUEUES):
            of_queue = np.flatnonzero((queue == one) & entitled)
            units = np.zeros(len(of_queue), dtype_of(LAYOUTS[kind]))
            units["physical_offset"], units["size"] = places[of_queue], SIZE
            scheduled = (topic == SCHEDULE_TOPIC) & delayed[of_queue]
            units["tags_code"] = np.where(scheduled, STORED + 5000, tags[of_queue])
            if kind == "batch_queue":
                units["store_timestamp"], units["queue_offset"] = STORED, numbers[of_queue]
                units["message_count"] = 1
            for number, row, what, value in changes:
                if number == one and row < len(units):
                    units = _changed(units, row, what, value)
            for first, behind in pairwise(sorted({0, min(cut, len(units)), len(units)})):
                path = folder / f"{one}-{first}"
                path.write_bytes(units[first:behind].tobytes())
                runs.append((1, len(files), 0, behind - first))
                base = first * units.itemsize
                files.append(QueueFile(str(path), path.name, path.stat().st_size, kind, topic, queue_id, base))
        self.files, self.runs = tuple(files), Runs(np.array(runs, np.int64).reshape(-1, 4))

    def join(self, mode: str, *, by_recovery: bool) -> UnitResult:
        plan = CrossPlan(
            LogMap((0, LOW, self.end)),
            deep=True,
            queue_files=self.files,
            runs={"unit": self.runs},
            whole=True,
            may_hold=frozenset(["plain_schedule_tags"] if by_recovery else []),
        )
        with loop_way(mode):
            return join_units(self.records, plan, 1, LogRanges.of([], [], self.end), 1000)


def _changed(units: Any, row: int, what: str, value: int) -> Any:
    if what == "drop":
        return np.delete(units, row)
    if what == "twice":
        return np.insert(units, row, units[row])
    units = units.copy()
    if what == "zero":
        units[row] = np.zeros((), units.dtype)
    elif what == "swap":
        units[[row, row // 2]] = units[[row // 2, row]]
    elif what in units.dtype.names:
        units[what][row] = value if what != "size" else value % (1 << 31) - (value < -9)
    return units


def _none_in_step(*arguments: Any) -> int:
    """Do what `step_units` does where no queue is followed: the record of each unit is searched for."""
    arguments[_RUN_OF].fill(-1)
    return step_units(*arguments)


@settings(deadline=None, max_examples=40)  # the first example compiles
@given(
    records=st.lists(_record, min_size=1, max_size=25),
    changes=st.lists(_change, max_size=6),
    cut=st.integers(0, 5),
    more=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 3), st.integers(0, 5)), max_size=2),
    by_recovery=st.booleans(),
)
def test_units_in_step_are_those_that_the_rules_accept(
    records: list[Any],
    changes: list[Any],
    cut: int,
    more: list[Any],
    by_recovery: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    case = Case(tmp_path_factory.mktemp("units"), records, changes, cut, more)
    result = case.join("compiled", by_recovery=by_recovery)
    assert result == case.join("uncompiled", by_recovery=by_recovery)
    with strict_loops():
        assert result == case.join("as it is", by_recovery=by_recovery)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_join, "step_units", _none_in_step)
        assert result == case.join("as it is", by_recovery=by_recovery)


def test_no_unit_of_a_healthy_split_breaks_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [(n % len(QUEUES), 0, n % 5 != 0, True, 3) for n in range(40)]
    found: list[int] = []

    def count(*arguments: Any) -> int:
        found.append(step_units(*arguments))
        return found[-1]

    monkeypatch.setattr(queue_join, "step_units", count)
    outcome = Case(tmp_path, records, [], 3, []).join("compiled", by_recovery=False)
    assert outcome == UnitResult(joined=32, last_physical_offset=LOW + 39 * SIZE, last_timestamp=STORED)
    assert found == [0, 0]  # of plain units, and of batch units


# --- a queue by itself ----------------------------------------------------------------------------

FIRST = 70  # number in the queue of the first row
LAST = 2**63 - 1

_places = st.one_of(st.integers(0, 40), st.sampled_from([-(2**63), -1, LAST]))
_sizes = st.sampled_from([1, 1, 90, 0, -1, PRE_BLANK_SIZE])
_queue_units = st.one_of(
    st.fixed_dictionaries({"physical_offset": _places, "size": _sizes, "tags_code": st.sampled_from([0, 5, -(2**63)])}),
    st.just(PRE_BLANK),
    st.just(dict.fromkeys(PRE_BLANK, 0)),
)
_batch_fields = {
    "store_timestamp": st.sampled_from([0, 7, 8, -(2**63)]),
    "queue_offset": st.one_of(st.integers(0, 9), st.sampled_from([-1, LAST])),
    "message_count": st.sampled_from([0, 1, 2, -1]),
    "compacted_offset": st.sampled_from([0, -1]),
    "reserved": st.just(0),
}
_batch_units = st.tuples(_queue_units, st.fixed_dictionaries(_batch_fields)).map(lambda parts: {**parts[0], **parts[1]})


class Surveyed(NamedTuple):
    totals: list[int]
    runs: list[list[int]]
    deviations: list[list[int]]


def survey(mode: str, raw: bytes, unit_size: int, borders: list[int], log_start: int, room: int) -> Surveyed:
    """Survey a window with a table of `room` deviations at a time."""
    totals = np.zeros(walk.TOTALS, np.int64)
    totals[[walk.FIRST_KEPT, walk.LAST_PLACE]] = -1
    totals[[walk.NEXT_OFFSET, walk.SPLIT]], totals[walk.LAST_USED], totals[walk.LAST_TIME] = -2, FIRST - 1, -(2**63)
    rows, row = len(raw) // unit_size, 0
    runs, table = np.full((rows, 3), -9, np.int64), np.zeros((room, 3), np.int64)
    deviations = []
    with loop_way(mode):
        while row < rows:
            totals[walk.DEVIATIONS] = 0
            window, ends = np.frombuffer(raw, np.uint8), np.array(borders, np.int64)
            row = survey_units(window, unit_size, row, rows, FIRST, ends, log_start, totals, runs, table)
            deviations += table[: totals[walk.DEVIATIONS]].tolist()
    return Surveyed(totals.tolist(), runs[: totals[walk.RUNS]].tolist(), deviations)


@pytest.mark.parametrize("batch", [False, True])
@settings(deadline=None, max_examples=60)  # the first example compiles
@given(
    data=st.data(),
    borders=st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True).map(sorted),
    log_start=st.integers(0, 40),
    room=st.integers(2, 5),
)
def test_a_survey_says_what_the_fields_of_the_units_say(
    batch: bool, data: Any, borders: list[int], log_start: int, room: int
) -> None:
    layout = BatchUnit if batch else QueueUnit
    units: list[dict[str, int]] = data.draw(st.lists(_batch_units if batch else _queue_units, max_size=20))
    raw, size = b"".join(map(layout.build, units)), layout.sizeof()
    found = survey("compiled", raw, size, borders, log_start, room)
    assert found == survey("uncompiled", raw, size, borders, log_start, room)

    used = [row for row, unit in enumerate(units) if any(unit.values())]
    invalid = [
        row
        for row in used
        if units[row]["physical_offset"] < 0
        or units[row]["size"] <= 0
        or (batch and (units[row]["queue_offset"] < 0 or units[row]["message_count"] <= 0))
    ]
    messages = [row for row in used if row not in invalid and not PRE_BLANK.items() <= units[row].items()]
    places = [units[row]["physical_offset"] for row in messages]
    assert found.totals[walk.UNITS] == len(messages)
    assert [row for kind, row, _ in found.deviations if kind == walk.INVALID] == invalid
    holes = [row for kind, first, rows in found.deviations if kind == walk.HOLE for row in range(first, first + rows)]
    assert holes == [FIRST + row for row in range(max(used, default=0)) if row not in used]
    behind = places[: next((at for at, place in enumerate(places) if place >= log_start), len(places))]
    assert found.totals[walk.EXPIRED] + found.totals[walk.ZERO_BEHIND] == len(behind)
    assert found.totals[walk.ZERO_BEHIND] == behind.count(0)
    assert found.totals[walk.LAST_PLACE] == (places[-1] if places else -1)
    times = [units[row]["store_timestamp"] if batch else 0 for row in messages]
    ascends = all(a < b for a, b in pairwise(places)) and times == sorted(times)
    assert found.totals[walk.DISORDER] == (not ascends)
    for row, place in zip(messages, places, strict=True):
        split = bisect_right(borders, place) - 1
        assert [split] == [number for number, first, last in found.runs if first <= row <= last]

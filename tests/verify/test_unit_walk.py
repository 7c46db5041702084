"""Kernels over queue units: what they say of hostile ones is what the fields say, compiled or not."""

from bisect import bisect_right
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.kernels import compile_mode
from rmqinspect.schemas.consumequeue import PRE_BLANK, PRE_BLANK_SIZE, BatchUnit, QueueUnit
from rmqinspect.verify import queue_survey as walk

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
    with compile_mode(mode):
        while row < rows:
            totals[walk.DEVIATIONS] = 0
            window, ends = np.frombuffer(raw, np.uint8), np.array(borders, np.int64)
            row = walk.survey_units(window, unit_size, row, rows, FIRST, ends, log_start, totals, runs, table)
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
    found = survey("always", raw, size, borders, log_start, room)
    assert found == survey("never", raw, size, borders, log_start, room)

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

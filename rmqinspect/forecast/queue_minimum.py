"""The minimum of a queue: it follows that of the log.

    scan     4.x: the first unit of the first file that points at the start of the log or behind it
    search   5.0.0: the same by binary search, from the present minimum on; the maximum where the newest unit points
             before the log

Source: ConsumeQueue#correctMinOffset, BatchConsumeQueue#correctMinOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Sequence

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.forecast.outcome import Refusal
from rmqinspect.forecast.queue_cut import revise_minimum
from rmqinspect.forecast.queue_state import QueueState
from rmqinspect.forecast.queue_units import (
    APPENDED,
    BASE,
    BLANK_END,
    FILE_SIZE,
    FIRST,
    FIRST_WRITTEN,
    KEPT,
    LAST,
    MIN,
    POSITION,
    UNIT,
)

_WINDOW = 4096  # units


def correct_minimum(state: QueueState, log_min: int) -> Refusal | None:
    """Correct the minimum of all queues; return why the start fails, if it does.

    5.0.0 to 5.4.0 read the unit in front of the position of the last file, also where that is 0.
    """
    refusal = _find_empty(state) if state.rules.empty_queue_file == "refuse" else None
    if state.rules.minimum == "search":
        _search(state, log_min)
    else:
        _scan(state, log_min)
    for row in np.flatnonzero(~state.simple).tolist():
        _correct_batches(state, row, log_min)
    return refusal


def _first_offsets(state: QueueState) -> Ints:
    """Return the physical offset of unit 0 of the first file of each queue."""
    numbers = state.numbers
    known = len(state.recovered.names)
    found = np.where(numbers[:, BLANK_END] > numbers[:, FIRST], 0, numbers[:, FIRST_WRITTEN])
    kept = numbers[:known, KEPT] > 0
    kept &= (numbers[:known, APPENDED] < 0) | (numbers[:known, APPENDED] > numbers[:known, FIRST])
    found[:known][kept] = state.recovered.first_offsets[kept]
    return found


def _readable(state: QueueState) -> Ints:
    """Return the read position of the first file of each queue; 0 without files."""
    counts = state.file_counts
    found: Ints = np.where(counts > 1, state.numbers[:, FILE_SIZE], state.numbers[:, POSITION])
    found[counts == 0] = 0
    return found


def _scan(state: QueueState, log_min: int) -> None:
    numbers, readable = state.numbers, _readable(state)
    asked: Bools = state.simple & (readable > 0)
    at_once = asked & (_first_offsets(state) >= log_min)
    numbers[at_once, MIN] = numbers[at_once, FIRST]
    for row in np.flatnonzero(asked & ~at_once).tolist():
        units, first = int(readable[row]) // UNIT, int(numbers[row, FIRST])
        for start in range(0, units, _WINDOW):
            offsets = state.units(row, first, start, min(_WINDOW, units - start)).offsets
            reached = offsets >= log_min
            if reached.any():
                numbers[row, MIN] = first + (start + int(reached.argmax())) * UNIT
                break


def _find_empty(state: QueueState) -> Refusal | None:
    numbers = state.numbers
    ends = numbers[:, BASE] + numbers[:, POSITION]
    empty = state.simple & (state.file_counts > 0) & (numbers[:, POSITION] == 0) & (numbers[:, MIN] < ends)
    for row in np.flatnonzero(empty).tolist():
        _, topic, queue_id = state.names[row]
        file = f"consumequeue/{topic}/{queue_id}/{int(numbers[row, BASE]):020d}"
        why = f"{file}, the last file of its queue, has no unit, and the start reads the one in front of it"
        return Refusal(file, "empty_queue_file", why, f"move {file} to a place outside of the store")
    return None


def _search(state: QueueState, log_min: int) -> None:
    numbers, readable = state.numbers, _readable(state)
    ends = numbers[:, BASE] + numbers[:, POSITION]
    asked: Bools = state.simple & (state.file_counts > 0) & (numbers[:, MIN] < ends)
    expired = asked & (numbers[:, POSITION] >= UNIT) & (numbers[:, LAST] < log_min)
    starts = numbers[:, MIN] - numbers[:, FIRST]
    is_intact = starts >= 0
    starts = np.maximum(starts, 0)
    asked &= ~expired & (starts < readable)
    first_offsets = _first_offsets(state)
    first_offsets[starts > 0] = -1
    written = (numbers[:, APPENDED] >= 0) & (starts > 0) & (starts + numbers[:, FIRST] == numbers[:, BLANK_END])
    first_offsets[written] = numbers[written, FIRST_WRITTEN]
    asked &= ~(is_intact & (first_offsets >= log_min))
    numbers[expired, MIN] = ends[expired]
    for row in np.flatnonzero(asked).tolist():
        first, start = int(numbers[row, FIRST]), int(starts[row]) // UNIT
        offsets = state.units(row, first, start, int(readable[row]) // UNIT - start).offsets
        if not (is_intact[row] and offsets[0] >= log_min):
            found = _search_units(offsets, log_min)
            if found is not None:
                numbers[row, MIN] = first + (start + found) * UNIT


def _search_units(offsets: Ints | Sequence[int], log_min: int) -> int | None:
    """Return the unit that the search ends at; None where it points before the log."""
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle] == log_min:
            low = high = middle
        elif offsets[middle] > log_min:
            high = middle
        else:
            low = middle
    return next((at for at in range(low, high + 1) if offsets[at] >= log_min), None)


def _correct_batches(state: QueueState, row: int, log_min: int) -> None:
    revise_minimum(state, row)
    readable = state.readable(row)
    if not readable:
        return
    numbers = state.numbers[row]
    units = state.units(row, int(numbers[FIRST]))
    count = readable // state.ends.layouts[state.names[row][0]].itemsize
    reached = units.offsets[:count] >= log_min
    before = int(reached.argmax()) if reached.any() else count
    if before:
        numbers[MIN] = (units.bases + units.counts)[before - 1]  # of arrays: the sum may wrap, as in Java

"""The cut of a queue at the end of the log.

    last file   |u0|u1|u2|u3|..    u0 only has to point before the end: an unused one, of zeros, becomes a unit
                 ^ points behind the end: the file is deleted, and the one before it is looked at
    others                         up to the first that points behind the end, or is not accepted; so stale units
                                   behind the newest one are accepted again

Source: ConsumeQueue#truncateDirtyLogicFiles, BatchConsumeQueue#truncateDirtyLogicFiles; RocketMQ 4.0.0 to 5.5.0.
"""

from typing import NamedTuple

import numpy as np

from rmqinspect.forecast.queue_state import QueueState, UnitColumns
from rmqinspect.forecast.queue_units import (
    APPENDED,
    BASE,
    BATCH_MAX,
    BLANK_END,
    FILE_SIZE,
    FIRST,
    FIRST_WRITTEN,
    IS_FRESH,
    KEPT,
    LAST,
    MADE,
    MAX_PHYSIC,
    MIN,
    POSITION,
    TOP,
    UNIT_SIZE,
    Prefix,
)


class _Accepted(NamedTuple):
    """The units of a file up to which a queue is cut."""

    units: int
    offset: int = 0  # of the last one
    reach: int = 0  # maxPhysicOffset by it


def truncate(state: QueueState, end: int) -> None:
    """Cut all queues at the end of the log."""
    numbers, recovered = state.numbers, state.recovered
    none_left = np.where(state.simple & (state.rules.queue_end == "end"), end, end - 1)
    # As `recover` left it, the last file holds units up to its end, or up to one that is not accepted. Of what the
    # start has written behind them, all points before the end, and a file that it has made ends there.
    known = slice(0, len(recovered.names))
    sound = np.ones(len(numbers), np.bool_)
    sound[known] = (numbers[known, MADE] > 0) | ((recovered.accepted > 0) & (recovered.tops < end))
    sound &= (numbers[:, POSITION] > 0) & (numbers[:, TOP] < end) & (end > 0)
    sound &= (numbers[:, MADE] > 0) | ((numbers[:, APPENDED] < 0) & ~state.cut)
    sound &= numbers[:, BASE] % np.maximum(1, numbers[:, FILE_SIZE]) == 0  # else files overlap, and it holds others
    for row in np.flatnonzero((state.file_counts > 0) & ~sound).tolist():
        _truncate(state, row, end, int(none_left[row]))
    _forget_cut(state)
    emptied = state.file_counts == 0
    numbers[emptied, MAX_PHYSIC] = none_left[emptied]
    for row in np.flatnonzero(~state.simple).tolist():
        revise(state, row)


def _truncate(state: QueueState, row: int, end: int, none_left: int) -> None:
    numbers = state.numbers[row]
    written_reach = int(numbers[MAX_PHYSIC])
    numbers[MAX_PHYSIC] = none_left
    while state.has_files(row):
        accepted = _accepted(state, row, end - 1, written_reach)
        if accepted.units:
            numbers[POSITION] = accepted.units * numbers[UNIT_SIZE]
            numbers[LAST], numbers[MAX_PHYSIC] = accepted.offset, accepted.reach
            break
        _delete_last(state, row)
        written_reach = -1
    state.cut[row] = True


def _accepted(state: QueueState, row: int, most: int, written_reach: int) -> _Accepted:
    """Return the units of the last file that a cut accepts; offsets above `most` are not.

    `written_reach`: maxPhysicOffset by the unit in front of the end, if the start has written that.
    """
    numbers = state.numbers[row]
    base, unit, size = int(numbers[BASE]), int(numbers[UNIT_SIZE]), int(numbers[FILE_SIZE])
    file, end = state.file_at(row, base), state.end(row)
    first = max(0, (int(numbers[APPENDED]) - base) // unit) if numbers[APPENDED] >= 0 else size // unit
    behind = (end - base) // unit
    if first < behind and (numbers[TOP] > most or most < 0 or written_reach < 0):
        # Zeros follow in a file that the start has made; its size is a setting, and may be anything.
        count = size // unit if file is not None else min(size // unit, behind + 1)
        return _of_columns(state, row, state.units(row, base, 0, count), most)
    found = _Accepted(0)
    if file is not None and first > 0:
        prefix = state.units_in_file(row, file, 0, most, exempt=True)
        found = _of_prefix(state, row, prefix)
        if prefix.row < min(first, behind) or first >= behind:
            return found
    elif first >= behind:  # a file that the start has made, and where nothing was written
        if most >= 0:
            _note_unused(state, row)
        return _Accepted(int(most >= 0))
    found = _Accepted(behind, int(numbers[LAST]), written_reach)
    if file is not None and behind * unit < size:
        stale = state.units_in_file(row, file, behind, most, exempt=False)
        if stale.row > behind:
            _note_stale(state, row, behind, stale.row)
            found = _of_prefix(state, row, stale)
    return found


def _of_prefix(state: QueueState, row: int, prefix: Prefix) -> _Accepted:
    return _Accepted(prefix.row, prefix.offset, state.reach(row, prefix.offset, prefix.size))


def _of_columns(state: QueueState, row: int, units: UnitColumns, most: int) -> _Accepted:
    refused = (units.offsets < 0) | (units.sizes <= 0) | (units.bases < 0) | (units.counts <= 0)
    refused[0] = False
    refused |= units.offsets > most
    count = int(refused.argmax()) if refused.any() else len(refused)
    if count == 0:
        return _Accepted(0)
    behind = (state.end(row) - int(state.numbers[row, BASE])) // int(state.numbers[row, UNIT_SIZE])
    if count > behind:
        _note_stale(state, row, behind, count)
    offset, size = int(units.offsets[count - 1]), int(units.sizes[count - 1])
    return _Accepted(count, offset, state.reach(row, offset, size))


def _note_stale(state: QueueState, row: int, first: int, behind: int) -> None:
    """Take stale units that are accepted again for written ones: they lie behind those."""
    numbers = state.numbers[row]
    base, unit = int(numbers[BASE]), int(numbers[UNIT_SIZE])
    file = state.file_at(row, base)
    if file is None:
        return
    units = state.ends.units(file, first, behind - first)
    addresses = base + unit * np.arange(first, behind, dtype=np.int64)
    offsets = units["physical_offset"].astype(np.int64)
    state.written.note(row, addresses, offsets, units["size"].astype(np.int64))
    if state.is_batch(row):
        bases, counts = (units[name].astype(np.int64) for name in ("queue_offset", "message_count"))
        state.written_batches.note(row, addresses, bases, counts)
    if numbers[APPENDED] < 0:
        numbers[APPENDED] = numbers[BLANK_END] = addresses[0]
        numbers[FIRST_WRITTEN] = offsets[0]
    numbers[TOP] = max(int(numbers[TOP]), int(offsets.max()))


def _note_unused(state: QueueState, row: int) -> None:
    """Take the unused unit 0 of the last file for a written one, if there are written ones before it."""
    if state.numbers[row, APPENDED] >= 0:
        zero = np.zeros(1, np.int64)
        for written in (state.written, state.written_batches):
            written.note(row, zero + state.numbers[row, BASE], zero, zero)


def _delete_last(state: QueueState, row: int) -> None:
    """Delete the last file; the one before it is full. Source: MappedFileQueue#deleteLastMappedFile."""
    numbers, size = state.numbers[row], int(state.numbers[row, FILE_SIZE])
    if numbers[MADE]:
        numbers[MADE] -= 1
    else:
        numbers[KEPT] -= 1
        state.deleted.append(state.files[row][int(numbers[KEPT])])
    numbers[IS_FRESH] = 0
    if not state.has_files(row):
        numbers[[BASE, POSITION, FIRST]] = 0
        return
    numbers[POSITION] = size
    if numbers[MADE]:
        numbers[BASE] -= size
        numbers[IS_FRESH] = int(numbers[MADE] == 1 and not numbers[KEPT])
    else:
        numbers[BASE] = state.files[row][int(numbers[KEPT]) - 1].base


def _forget_cut(state: QueueState) -> None:
    """Forget what was written at or behind the end of each queue."""
    numbers = state.numbers
    ends = np.where(state.file_counts > 0, numbers[:, BASE] + numbers[:, POSITION], -1)
    gone = numbers[:, APPENDED] >= ends
    numbers[gone, APPENDED] = numbers[gone, TOP] = -1
    state.written.forget(ends)
    state.written_batches.forget(ends)


def revise(state: QueueState, row: int) -> None:
    """Set minimum and maximum of a batch queue. Source: BatchConsumeQueue#reviseMaxAndMinOffsetInQueue."""
    numbers = state.numbers[row]
    revise_minimum(state, row)
    numbers[BATCH_MAX] = 0
    if not state.has_files(row):
        return
    unit, size = int(numbers[UNIT_SIZE]), int(numbers[FILE_SIZE])
    base, last = int(numbers[BASE]), int(numbers[POSITION]) // unit - 1
    if last < 0 and numbers[KEPT] + numbers[MADE] > 1:
        base, last = _base_before(state, row), size // unit - 1
    if last >= 0:
        units = state.units(row, base, last, 1)
        numbers[BATCH_MAX] = (units.bases + units.counts)[0]  # of arrays: the sum may wrap, as in Java


def _base_before(state: QueueState, row: int) -> int:
    numbers = state.numbers[row]
    if numbers[MADE] > 1:
        return int(numbers[BASE] - numbers[FILE_SIZE])
    kept = int(numbers[KEPT]) - (0 if numbers[MADE] else 1)
    return state.files[row][kept - 1].base


def revise_minimum(state: QueueState, row: int) -> None:
    """Set the minimum of a batch queue. Source: BatchConsumeQueue#reviseMinOffsetInQueue."""
    numbers = state.numbers[row]
    numbers[MIN] = -1
    if not state.has_files(row):
        numbers[BATCH_MAX] = 0
    elif state.readable(row):
        numbers[MIN] = state.units(row, int(numbers[FIRST]), 0, 1).bases[0]

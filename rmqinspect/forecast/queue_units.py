"""The units of one queue file as `ConsumeQueue` reads them, and how a record is put: the loops.

    unit 0 .. n-1    offset >= 0 and size > 0: accepted
    unit n           the first other one: recovery stops there, whatever lies behind it

The state of a queue is one row of numbers. A file that is not the last one is always full, so of all positions a queue
has only that of its last file.

Source: ConsumeQueue#recover, #truncateDirtyLogicFiles, #putMessagePositionInfo, MappedFileQueue#getLastMappedFile.
"""

# mypy: disable-error-code="no-any-return"

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import Bytes, IntsOut, TableOut, int32_at, int64_at, kernel
from rmqinspect.codec.layout import dtype_of, place_of
from rmqinspect.consumequeue.units import FIRST_WINDOW, LAST_WINDOW
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE, QueueUnit
from rmqinspect.store.reader import FileReader

UNIT: int = QueueUnit.sizeof()
LAYOUT = dtype_of(QueueUnit)
_OFFSET, _SIZE = place_of(QueueUnit, "physical_offset"), place_of(QueueUnit, "size")
_PAGE = 4096 // UNIT * UNIT

# The columns of a queue's state.
(
    MAX_PHYSIC,  # maxPhysicOffset
    MIN_LOGIC,  # minLogicOffset, bytes
    FILE_SIZE,  # bytes of each file
    KEPT,  # files that were there and are still
    MADE,  # files that this start has made behind them
    FIRST,  # base of the first file
    BASE,  # base of the last file
    POSITION,  # of the last file: where it is written
    IS_FRESH,  # the last file was made as the first of its queue (MappedFile#isFirstCreateInQueue)
    LAST,  # physical offset of the newest unit
    APPENDED,  # address (file base + position) of the first unit that this start has written; -1: none
    BLANK_END,  # address behind the filler at APPENDED
    FIRST_WRITTEN,  # physical offset of the first message at BLANK_END
    TOP,  # largest physical offset written; -1: none
    WRITTEN,  # units written, without filler
) = range(15)
COLUMNS = 15


class Prefix(NamedTuple):
    """The accepted units from the start of a file on, and the very first unit, accepted or not."""

    units: int
    last_offset: int  # of the last accepted unit; -1: none
    last_size: int
    top: int  # largest offset of an accepted unit; -1: none
    first_offset: int  # of unit 0

    @property
    def end(self) -> int:
        """Bytes."""
        return self.units * UNIT


@kernel
def _walk(raw: Bytes, units: int, found: IntsOut) -> int:
    """Return how many of the units are accepted; `found`: last offset, last size, largest offset."""
    for unit in range(units):
        offset, size = int64_at(raw, unit * UNIT + _OFFSET), int32_at(raw, unit * UNIT + _SIZE)
        if offset < 0 or size <= 0:
            return unit
        found[0] = offset
        found[1] = size
        if offset > found[2]:
            found[2] = offset
    return units


def read_prefix(reader: FileReader, file_size: int) -> Prefix:
    """Return the accepted units at the start of a file; holes are zeros, so they are not read.

    :raises Unreadable: the system reports an I/O error.
    """
    found = np.full(3, -1, np.int64)
    rows = min(reader.size, file_size) // UNIT
    first_offset, row, window = 0, 0, _PAGE
    while row < rows:
        if row and reader.next_allocated(row * UNIT) >= (row + 1) * UNIT:
            break
        raw = reader.read(row * UNIT, min(window, (rows - row) * UNIT))
        units = len(raw) // UNIT
        if row == 0 and units:
            first_offset = int.from_bytes(raw[_OFFSET : _OFFSET + 8], "big", signed=True)
        accepted = _walk(np.frombuffer(raw, np.uint8), units, found)
        row += accepted
        if accepted < units or not units:
            break
        window = min(max(window * 4, FIRST_WINDOW), LAST_WINDOW) // UNIT * UNIT
    last_offset, last_size, top = found.tolist()
    return Prefix(row, last_offset, last_size, top, first_offset)


@kernel
def put(
    state: TableOut,
    is_end: int,
    queues: Ints,
    offsets: Ints,
    ends: Ints,
    numbers: Ints,
    expected: Ints,
    addresses: IntsOut,
) -> int:
    """Put units in the order of the log; `addresses` gets where each is written, -1: it is not. Return how many are.

    `queues` are rows of `state`, `numbers` queue offsets, `expected` the same in bytes, `ends` offset + size: both as
    Java computes them, which may overflow. `is_end`: what maxPhysicOffset is.
    """
    written = 0
    for at in range(len(queues)):
        queue, offset = queues[at], offsets[at]
        addresses[at] = -1
        reach = ends[at] if is_end else offset
        if reach <= state[queue, MAX_PHYSIC]:
            continue
        size, expect = state[queue, FILE_SIZE], expected[at]
        beyond = expect % size if expect >= 0 else -(-expect % size)  # Java's remainder
        if state[queue, KEPT] + state[queue, MADE] == 0:
            state[queue, FIRST] = expect - beyond
            state[queue, BASE] = expect - beyond
            state[queue, POSITION] = 0
            state[queue, MADE] = 1
            state[queue, IS_FRESH] = 1
        elif state[queue, POSITION] == size:
            state[queue, BASE] += size
            state[queue, POSITION] = 0
            state[queue, MADE] += 1
            state[queue, IS_FRESH] = 0
        if state[queue, IS_FRESH] and numbers[at] != 0 and state[queue, POSITION] == 0:
            state[queue, MIN_LOGIC] = expect
            if beyond > 0:
                state[queue, APPENDED] = state[queue, BASE]
                state[queue, POSITION] = (beyond + UNIT - 1) // UNIT * UNIT
                state[queue, BLANK_END] = state[queue, BASE] + state[queue, POSITION]
                state[queue, LAST] = 0
        address = state[queue, BASE] + state[queue, POSITION]
        if numbers[at] != 0 and expect < address:
            continue
        if state[queue, APPENDED] < 0:
            state[queue, APPENDED] = address
            state[queue, BLANK_END] = address
        if address == state[queue, BLANK_END]:
            state[queue, FIRST_WRITTEN] = offset
        state[queue, MAX_PHYSIC] = reach
        state[queue, LAST] = offset
        if offset > state[queue, TOP]:
            state[queue, TOP] = offset
        state[queue, POSITION] += UNIT
        state[queue, WRITTEN] += 1
        addresses[at] = address
        written += 1
    return written


FILLER = PRE_BLANK_SIZE

"""The units of one queue file as the broker reads them, and how a record is put: the loops.

    unit 0 .. n-1    accepted: offset >= 0, size > 0; of a batch queue also queue offset >= 0, messages > 0
    unit n           the first other one: reading stops there, whatever lies behind it

The state of a queue is one row of numbers. A file that is not the last one is always full, so of all positions a queue
has only that of its last file.

Source: ConsumeQueue and BatchConsumeQueue #recover, #truncateDirtyLogicFiles, #putMessagePositionInfo,
#putBatchMessagePositionInfo, MappedFileQueue#getLastMappedFile.
"""

# mypy: disable-error-code="no-any-return"

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import Bytes, IntsOut, TableOut, int16_at, int32_at, int64_at, kernel
from rmqinspect.codec.layout import place_of
from rmqinspect.schemas.consumequeue import BatchUnit, QueueUnit
from rmqinspect.store.reader import FileReader

UNIT: int = QueueUnit.sizeof()
BATCH_UNIT: int = BatchUnit.sizeof()
_OFFSET, _SIZE = place_of(QueueUnit, "physical_offset"), place_of(QueueUnit, "size")
_BASE, _COUNT = place_of(BatchUnit, "queue_offset"), place_of(BatchUnit, "message_count")
_FIRST_WINDOW, _NEXT_WINDOW, _LAST_WINDOW = 4 << 10, 64 << 10, 256 << 10
ANY = 2**63 - 1  # no limit of offsets
_HOSTILE = 2**62

# The columns of a queue's state.
(
    MAX_PHYSIC,  # maxPhysicOffset; of a batch queue maxMsgPhyOffsetInCommitLog
    MIN,  # minLogicOffset, bytes; of a batch queue minOffsetInQueue
    BATCH_MAX,  # maxOffsetInQueue of a batch queue
    UNIT_SIZE,
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
    FIRST_WRITTEN,  # physical offset of the message at BLANK_END
    TOP,  # largest physical offset written; -1: none
) = range(16)
COLUMNS = 16
WITHOUT_FILES = np.zeros(COLUMNS, np.int64)
WITHOUT_FILES[[MAX_PHYSIC, LAST, APPENDED, TOP]] = -1


class Prefix(NamedTuple):
    """The accepted units from some row of a file on; -1 where there is none."""

    row: int  # behind the last accepted one
    offset: int = -1  # of the last accepted one
    size: int = -1
    top: int = -1  # largest offset
    base: int = -1  # of a batch queue: first queue offset and messages of the last accepted one
    messages: int = -1
    first_offset: int = 0  # of unit 0 of the file, accepted or not, if it was read
    first_base: int = 0


@kernel
def _walk(raw: Bytes, units: int, unit_size: int, most: int, exempt: int, found: IntsOut) -> int:
    """Return how many units are accepted; `found`: offset, size, largest offset, base, count.

    Offsets above `most` are refused. The first `exempt` units may have any size and a negative offset.
    """
    is_batch = unit_size == BATCH_UNIT
    for unit in range(units):
        at = unit * unit_size
        offset, size, base, count = int64_at(raw, at + _OFFSET), int32_at(raw, at + _SIZE), 0, 1
        if is_batch:
            base, count = int64_at(raw, at + _BASE), int16_at(raw, at + _COUNT)
        if offset > most or (unit >= exempt and (offset < 0 or size <= 0 or base < 0 or count <= 0)):
            return unit
        found[0] = offset
        found[1] = size
        if offset > found[2]:
            found[2] = offset
        found[3] = base
        found[4] = count
    return units


def read_units(
    reader: FileReader, unit_size: int, rows: int, *, row: int = 0, most: int = ANY, exempt: bool = False
) -> Prefix:
    """Return the accepted units of a file from `row` on and before `rows`; holes are zeros, so they are not read.

    Offsets above `most` are refused. With `exempt` nothing else is asked of unit 0.

    :raises Unreadable: the system reports an I/O error.
    """
    found = np.full(7, -1, np.int64)
    found[5:] = 0
    rows, window, buffer = min(rows, reader.size // unit_size), _FIRST_WINDOW, bytearray()
    while row < rows:
        if row and reader.next_allocated(row * unit_size) >= (row + 1) * unit_size:
            break
        size = min(window // unit_size, rows - row) * unit_size
        buffer = buffer if len(buffer) == size else bytearray(size)
        units = reader.read_into(buffer, row * unit_size) // unit_size
        if row == 0 and units:
            found[5] = int.from_bytes(buffer[_OFFSET : _OFFSET + 8], "big", signed=True)
            found[6] = int.from_bytes(buffer[_BASE : _BASE + 8], "big", signed=True)
        accepted = _walk(np.frombuffer(buffer, np.uint8), units, unit_size, most, int(exempt and row == 0), found)
        row += accepted
        if accepted < units or not units:
            break
        window = _NEXT_WINDOW if window < _NEXT_WINDOW else _LAST_WINDOW
    return Prefix(row, *found.tolist())


@kernel
def put(
    state: TableOut,
    is_end: int,
    appends_repeated: int,
    queues: Ints,
    offsets: Ints,
    ends: Ints,
    numbers: Ints,
    expected: Ints,
    addresses: IntsOut,
) -> int:
    """Put units in the order of the log; `addresses` gets where each is written, -1: it is not. Return how many are.

    `queues` are rows of `state`, `numbers` queue offsets, `expected` the same in bytes, `ends` offset + size: both as
    Java computes them, which may overflow. `is_end` and `appends_repeated`: the rules queue_end and repeated_unit.
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
        elif state[queue, POSITION] >= size:
            state[queue, BASE] += size
            state[queue, POSITION] = 0
            state[queue, MADE] += 1
            state[queue, IS_FRESH] = 0
        if state[queue, IS_FRESH] and numbers[at] != 0 and state[queue, POSITION] == 0:
            state[queue, MIN] = expect
            if beyond > 0:
                state[queue, APPENDED] = state[queue, BASE]
                state[queue, POSITION] = (beyond + UNIT - 1) // UNIT * UNIT
                state[queue, BLANK_END] = state[queue, BASE] + state[queue, POSITION]
                state[queue, LAST] = 0
        address = state[queue, BASE] + state[queue, POSITION]
        if numbers[at] != 0 and expect < address and not appends_repeated:
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
        if offset < 0:
            state[queue, TOP] = _HOSTILE  # a cut has to look at each unit
        state[queue, POSITION] += UNIT
        addresses[at] = address
        written += 1
    return written


@kernel
def put_batches(state: TableOut, queues: Ints, offsets: Ints, bases: Ints, counts: Ints, addresses: IntsOut) -> int:
    """Put units of batch queues as `put` does; `bases` and `counts`: INNER_BASE and INNER_NUM, -1 without."""
    written = 0
    for at in range(len(queues)):
        queue, offset = queues[at], offsets[at]
        addresses[at] = -1
        if bases[at] < 0 or counts[at] < 0 or offset <= state[queue, MAX_PHYSIC]:
            continue
        if state[queue, KEPT] + state[queue, MADE] == 0:
            state[queue, FIRST] = 0
            state[queue, BASE] = 0
            state[queue, POSITION] = 0
            state[queue, MADE] = 1
            state[queue, IS_FRESH] = 1
        elif state[queue, POSITION] >= state[queue, FILE_SIZE]:
            state[queue, BASE] += state[queue, FILE_SIZE]
            state[queue, POSITION] = 0
            state[queue, MADE] += 1
            state[queue, IS_FRESH] = 0
        address = state[queue, BASE] + state[queue, POSITION]
        if state[queue, APPENDED] < 0:
            state[queue, APPENDED] = address
            state[queue, BLANK_END] = address
            state[queue, FIRST_WRITTEN] = offset
        state[queue, MAX_PHYSIC] = offset
        state[queue, LAST] = offset
        if offset > state[queue, TOP]:
            state[queue, TOP] = offset
        if counts[at] == 0:
            state[queue, TOP] = _HOSTILE
        state[queue, BATCH_MAX] = bases[at] + counts[at]
        if state[queue, IS_FRESH] and state[queue, MIN] == -1:
            state[queue, MIN] = bases[at]
        state[queue, POSITION] += BATCH_UNIT
        addresses[at] = address
        written += 1
    return written

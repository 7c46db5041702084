"""Continuity of queue offsets in the log, per queue: CL-QUEUE-OFFSET.

QUEUEOFFSET counts the messages of one (topic, queue id). Prepared and rollback records have 0 and do not
count; an inner batch counts INNER_NUM. After a gap any offset may follow.

Queues are numbered as they appear (`codec.byte_ranges`). A table holds one row of state for each:

    queues    | next offset, first record, last jump | ...

Invariant: a queue offset is any 64-bit number; the one behind it is at most the largest.

Source: CommitLog.DefaultAppendMessageCallback#doAppend.
"""

from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.byte_ranges import Key, Numbering
from rmqinspect.codec.kernels import IntsOut, Table, TableOut, inlined, kernel
from rmqinspect.commitlog import columns
from rmqinspect.commitlog.records import Records
from rmqinspect.schemas.message import SysFlag

Queue = Key  # topic, queue id

_UNKNOWN = -1
_LAST_OFFSET = (1 << 63) - 1

# Columns of the table of queues.
_NEXT, _FIRST_OFFSET, _FIRST_PLACE, _JUMPED, _WANTED, _BEHIND, _JUMP_PLACE = range(7)
_NEW = (_UNKNOWN, 0, -1, 0, 0, 0, 0)  # the row of a queue that appears
_32_BITS = 0xFFFFFFFF

_START = columns.START
_OFFSET, _FLAGS = columns.QUEUE_OFFSET, columns.SYS_FLAG
_UNCOUNTED = int(SysFlag.TRANSACTION_PREPARED)  # the bit that prepared and rollback records share


class Jump(NamedTuple):
    """A record whose queue offset does not follow the one before it in its queue."""

    position: int  # in the window, or a physical offset
    queue: Queue
    expected: int
    found: int


class QueueEnds(Struct):
    """What the judge of the whole log needs of a split: where its queues begin, and where they go on."""

    # First record of each queue, unless a gap precedes it: (queue offset, physical offset).
    firsts: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    # Next queue offset of each queue seen since the last gap.
    nexts: dict[Queue, int] = field(default_factory=dict)
    gap: bool = False  # a gap lies in the split
    # Physical offsets of the jumps behind which the queue goes on as if the record had the expected offset.
    undone: set[int] = field(default_factory=set)


@inlined
def _plus(offset: int, steps: int) -> int:
    return offset + steps if offset <= _LAST_OFFSET - steps else _LAST_OFFSET


@kernel
def _follow(
    rows: Table,
    numbers: Ints,
    steps: Ints,
    base: int,
    after_gap: int,
    queues: TableOut,
    jumps: TableOut,
    undone: IntsOut,
) -> int:
    """Write (row, queue, expected, found) of each jump; return jumps * 2^32 + places of jumps that were undone.

    `steps`: how many offsets each record takes, empty where all take one.

    One damaged number, or one record that strayed in from another queue, makes two jumps: away and back. Only the
    first is written; the next record of the queue may undo it.
    """
    found = back = 0
    for row in range(len(rows)):
        if rows[row, _FLAGS] & _UNCOUNTED:
            continue
        queue, offset, place = numbers[row], rows[row, _OFFSET], base + rows[row, _START]
        step = steps[row] if len(steps) > 0 else 1
        wanted, jumped = queues[queue, _NEXT], queues[queue, _JUMPED]
        queues[queue, _NEXT] = _plus(offset, step)
        queues[queue, _JUMPED] = 0
        if wanted == _UNKNOWN:
            if after_gap == 0 and queues[queue, _FIRST_PLACE] < 0:
                queues[queue, _FIRST_OFFSET] = offset
                queues[queue, _FIRST_PLACE] = place
        elif offset != wanted:
            if jumped and offset == queues[queue, _BEHIND]:
                undone[back] = queues[queue, _JUMP_PLACE]
                back += 1
            elif not jumped or offset != queues[queue, _WANTED]:
                queues[queue, _JUMPED] = 1
                queues[queue, _WANTED] = wanted
                queues[queue, _BEHIND] = _plus(wanted, step)
                queues[queue, _JUMP_PLACE] = place
                jumps[found, 0] = row
                jumps[found, 1] = queue
                jumps[found, 2] = wanted
                jumps[found, 3] = offset
                found += 1
    return (found << 32) | back


class QueueOffsets:
    """The next offset of every queue, followed through the windows of one split."""

    def __init__(self) -> None:
        self.queues: list[Queue] = []
        self.gap = False
        self._undone: set[int] = set()
        self._numbering = Numbering()
        self._table = np.array([_NEW], np.int64)  # with room for more queues

    def forget(self) -> None:
        """Forget all next offsets: a gap may have held any number of records."""
        self._table[:, _NEXT] = _UNKNOWN
        self._table[:, _JUMPED] = 0
        self.gap = True

    def ends(self) -> QueueEnds:
        """Return what the neighbouring splits need."""
        rows = self._table[: len(self.queues)].tolist()
        firsts, nexts = {}, {}
        for queue, row in zip(self.queues, rows, strict=True):
            if row[_FIRST_PLACE] >= 0:
                firsts[queue] = row[_FIRST_OFFSET], row[_FIRST_PLACE]
            if row[_NEXT] != _UNKNOWN:
                nexts[queue] = row[_NEXT]
        return QueueEnds(firsts, nexts, self.gap, self._undone)

    def number(self, records: Records) -> Ints:
        """Return the number of each record's queue, an index into `queues`; adds queues not seen before."""
        topics = records.topic_starts, records.topic_ends
        numbers = self._numbering.number(records.bytes, *topics, records.field("queue_id"))
        self.queues += self._numbering.keys_from(len(self.queues))
        if len(self._table) < len(self.queues):
            self._table = np.concatenate((self._table, np.full((len(self.queues), len(_NEW)), _NEW, np.int64)))
        return numbers

    def follow(self, records: Records, numbers: Ints) -> list[Jump]:
        """Return the jumps among the records of one window; their positions are in the window."""
        jumps = np.empty((len(records), 4), np.int64)
        undone = np.empty(len(records), np.int64)
        counts = _follow(
            records.rows, numbers, offsets_taken(records), records.base, int(self.gap), self._table, jumps, undone
        )
        found, back = counts >> 32, counts & _32_BITS
        self._undone.update(undone[:back].tolist())
        starts = records.starts
        return [
            Jump(int(starts[row]), self.queues[queue], wanted, offset)
            for row, queue, wanted, offset in jumps[:found].tolist()
        ]


def offsets_taken(records: Records) -> Ints:
    """Return how many queue offsets each record takes, one for each message in it; nothing where all take one."""
    batches = np.flatnonzero(records.sys_flag & SysFlag.INNER_BATCH)
    if not len(batches):
        return np.empty(0, np.int64)
    steps: Ints = np.ones(len(records), np.int64)
    for at in batches.tolist():
        value = records.properties.value_of(b"INNER_NUM", at)
        steps[at] = int(value) if value is not None and value.isdigit() and len(value) < 6 else 1
    return steps

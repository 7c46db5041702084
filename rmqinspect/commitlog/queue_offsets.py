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
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.record_rows import FIRST_OFFSET, FIRST_PLACE, JUMPED, NEXT_OFFSET, UNKNOWN_OFFSET
from rmqinspect.loops.records import follow_queues
from rmqinspect.schemas.message import SysFlag

Queue = Key  # topic, queue id


_NEW = (UNKNOWN_OFFSET, 0, -1, 0, 0, 0, 0)  # the row of a queue that appears
_32_BITS = 0xFFFFFFFF


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
        self._table[:, NEXT_OFFSET] = UNKNOWN_OFFSET
        self._table[:, JUMPED] = 0
        self.gap = True

    def ends(self) -> QueueEnds:
        """Return what the neighbouring splits need."""
        rows = self._table[: len(self.queues)].tolist()
        firsts, nexts = {}, {}
        for queue, row in zip(self.queues, rows, strict=True):
            if row[FIRST_PLACE] >= 0:
                firsts[queue] = row[FIRST_OFFSET], row[FIRST_PLACE]
            if row[NEXT_OFFSET] != UNKNOWN_OFFSET:
                nexts[queue] = row[NEXT_OFFSET]
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
        counts = follow_queues(
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

"""Continuity of queue offsets in the log, per queue: CL-QUEUE-OFFSET.

QUEUEOFFSET counts the messages of one (topic, queue id). Prepared and rollback records have 0 and do not
count; an inner batch counts INNER_NUM. After a gap any offset may follow.

Queues are numbered as they appear. A table holds one row of state for each, found by a hash of (topic, queue id)
in a table of slots, with the topic's bytes compared:

    slots     | 0 | 2 | 0 | 1 | ...      0, or the number of a queue + 1; the next free slot where several collide
    queues    | hash, topic in `names`, queue id, next offset, first record, last jump | ...

Invariant: a queue offset is any 64-bit number; the one behind it is at most the largest.

Source: CommitLog.DefaultAppendMessageCallback#doAppend.
"""

import os
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import (
    Bytes,
    BytesOut,
    IntsOut,
    Table,
    TableOut,
    copy_bytes,
    inlined,
    kernel,
    same_bytes,
    uint32_at,
)
from rmqinspect.commitlog import columns
from rmqinspect.commitlog.records import Records
from rmqinspect.schemas.message import SysFlag

Queue = tuple[bytes, int]  # topic, queue id

_UNKNOWN = -1
_LAST_OFFSET = (1 << 63) - 1

# Columns of the table of queues.
_HASH, _TEXT, _SIZE, _QUEUE_ID, _NEXT, _FIRST_OFFSET, _FIRST_PLACE, _JUMPED, _WANTED, _BEHIND, _JUMP_PLACE = range(11)
_WIDTH = 11
_FEW = 64  # queues, at first
_LONGEST_TOPIC = 1 << 15

# Hashes differ from process to process, so that nobody can write a store whose queues all collide.
_SEED = int.from_bytes(os.urandom(4), "big")
_FACTOR = 0x5BD1E995  # odd, and below 2^31: a product with 32 bits stays within 63
_32_BITS = 0xFFFFFFFF

_START = columns.START
_TOPIC_START, _TOPIC_END, _ID = columns.TOPIC_START, columns.TOPIC_END, columns.QUEUE_ID
_OFFSET, _FLAGS = columns.QUEUE_OFFSET, columns.SYS_FLAG
_UNCOUNTED = int(SysFlag.TRANSACTION_PREPARED)  # the bit that prepared and rollback records share


class Jump(NamedTuple):
    """A record whose queue offset does not follow the one before it in its queue."""

    position: int  # in the window, or a physical offset
    queue: Queue
    expected: int
    found: int


@dataclass(slots=True)
class QueueEnds:
    """What the judge of the whole log needs of a split: where its queues begin, and where they go on."""

    # First record of each queue, unless a gap precedes it: (queue offset, physical offset).
    firsts: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    # Next queue offset of each queue seen since the last gap.
    nexts: dict[Queue, int] = field(default_factory=dict)
    gap: bool = False  # a gap lies in the split
    # Physical offsets of the jumps behind which the queue goes on as if the record had the expected offset.
    undone: set[int] = field(default_factory=set)


@inlined
def _mixed(value: int, more: int) -> int:
    """Return 32 bits of hash from those so far and a number."""
    value = ((value ^ more) * _FACTOR) & _32_BITS
    return value ^ (value >> 15)


@inlined
def _hash_of(raw: Bytes, start: int, end: int, queue_id: int, seed: int) -> int:
    """Return 32 bits of hash of a topic and a queue id, four bytes at a time; the last four may overlap others."""
    value = _mixed(seed, (queue_id ^ ((end - start) << 16)) & _32_BITS)
    at = start
    if end - start < 4:
        while at < end:
            value = _mixed(value, raw[at])
            at += 1
        return value
    while at + 4 < end:
        value = _mixed(value, uint32_at(raw, at))
        at += 4
    return _mixed(value, uint32_at(raw, end - 4))


@kernel
def _number(
    seed: int,
    raw: Bytes,
    rows: Table,
    first: int,
    slots: IntsOut,
    queues: TableOut,
    names: BytesOut,
    used: IntsOut,
    numbers: IntsOut,
) -> int:
    """Write the number of each record's queue, from row `first` on; return the row where a table was too small.

    The records are sound, so each topic lies inside of `raw`. `used` holds how many queues there are, and how many
    bytes of names; at least half of the slots, whose number is a power of two, are free.
    """
    for row in range(first, len(rows)):
        start, queue_id = rows[row, _TOPIC_START], rows[row, _ID]
        size = rows[row, _TOPIC_END] - start
        hashed = _hash_of(raw, start, start + size, queue_id, seed)
        slot = hashed & (len(slots) - 1)
        while slots[slot] > 0:
            queue = slots[slot] - 1
            alike = queues[queue, _HASH] == hashed and queues[queue, _QUEUE_ID] == queue_id
            if alike and queues[queue, _SIZE] == size and same_bytes(raw, start, names, queues[queue, _TEXT], size):
                break
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] == 0:
            queue, text = used[0], used[1]
            if queue == len(queues) or text + size > len(names):
                return row
            slots[slot] = queue + 1
            copy_bytes(raw, start, start + size, names, text)
            queues[queue, _HASH] = hashed
            queues[queue, _TEXT] = text
            queues[queue, _SIZE] = size
            queues[queue, _QUEUE_ID] = queue_id
            queues[queue, _NEXT] = _UNKNOWN
            queues[queue, _FIRST_PLACE] = -1
            queues[queue, _JUMPED] = 0
            used[0], used[1] = queue + 1, text + size
        numbers[row] = slots[slot] - 1
    return len(rows)


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
        self._used = np.zeros(2, np.int64)  # queues, bytes of names
        self._names = np.empty(_FEW * 32, np.uint8)
        self._undone: set[int] = set()
        self._table = np.zeros((_FEW, _WIDTH), np.int64)
        self._slots = np.zeros(2 * _FEW, np.int64)

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
        numbers = np.empty(len(records), np.int64)
        tables = self._slots, self._table, self._names
        done = _number(_SEED, records.bytes, records.rows, 0, *tables, self._used, numbers)
        while done < len(records):
            self._grow()
            tables = self._slots, self._table, self._names
            done = _number(_SEED, records.bytes, records.rows, done, *tables, self._used, numbers)
        for text, size, queue_id in self._table[len(self.queues) : self._used[0], _TEXT : _QUEUE_ID + 1].tolist():
            self.queues.append((self._names[text : text + size].tobytes(), queue_id))
        return numbers

    def _grow(self) -> None:
        """Double all tables; a name may be as long as any."""
        count = int(self._used[0])
        self._table = np.concatenate((self._table, np.zeros_like(self._table)))
        self._names = np.concatenate((self._names, np.empty(len(self._names) + _LONGEST_TOPIC, np.uint8)))
        self._slots = np.zeros(2 * len(self._table), np.int64)
        for queue, hashed in enumerate(self._table[:count, _HASH].tolist()):
            slot = hashed % len(self._slots)
            while self._slots[slot]:
                slot = (slot + 1) % len(self._slots)
            self._slots[slot] = queue + 1

    def follow(self, records: Records, numbers: Ints) -> list[Jump]:
        """Return the jumps among the records of one window; their positions are in the window."""
        jumps = np.empty((len(records), 4), np.int64)
        undone = np.empty(len(records), np.int64)
        counts = _follow(
            records.rows, numbers, _steps(records), records.base, int(self.gap), self._table, jumps, undone
        )
        found, back = counts >> 32, counts & _32_BITS
        self._undone.update(undone[:back].tolist())
        starts = records.starts
        return [
            Jump(int(starts[row]), self.queues[queue], wanted, offset)
            for row, queue, wanted, offset in jumps[:found].tolist()
        ]


def _steps(records: Records) -> Ints:
    """Return how many queue offsets each record takes; nothing where all take one."""
    batches = np.flatnonzero(records.sys_flag & SysFlag.INNER_BATCH)
    if not len(batches):
        return np.empty(0, np.int64)
    steps: Ints = np.ones(len(records), np.int64)
    for at in batches.tolist():
        value = records.properties.value_of(b"INNER_NUM", at)
        steps[at] = int(value) if value is not None and value.isdigit() and len(value) < 6 else 1
    return steps

"""Continuity of queue offsets in the log, per queue: CL-QUEUE-OFFSET.

QUEUEOFFSET counts the messages of one (topic, queue id). Prepared and rollback records have 0 and do not
count; an inner batch counts INNER_NUM. After a gap any offset may follow.

Every record of the log passes here, so it works by columns: hash (topic, queue id) to a queue number,
sort a window's records by number, compare each offset with the one before it in its queue.

Source: CommitLog.DefaultAppendMessageCallback#doAppend.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import FIBONACCI, Bools, Ints
from rmqinspect.codec.properties import split_properties
from rmqinspect.commitlog.records import Records
from rmqinspect.schemas.message import SysFlag

Queue = tuple[bytes, int]  # topic, queue id

_UNKNOWN = -1
# Slots of the table from hash to queue number, by the top bits of the hash; a power of two.
_SLOTS = 1 << 16
_WORD = np.dtype("<u8")
_INNER_NUM = b"INNER_NUM"


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


class QueueOffsets:
    """The next offset of every queue, followed through the windows of one split."""

    def __init__(self) -> None:
        self.queues: list[Queue] = []
        self._numbers: dict[int, int] = {}  # hash -> number of the queue
        self._slots = np.zeros(_SLOTS, np.int64)
        self._hashes = np.zeros(1, np.uint64)
        self._next = np.full(1, _UNKNOWN, np.int64)
        # Queues whose last record jumped: the expected offset, the one behind it, and the place of the jump.
        self._healing: dict[int, tuple[int, int, int]] = {}
        self._undone: set[int] = set()
        self.firsts: dict[Queue, tuple[int, int]] = {}
        self.gap = False

    def forget(self) -> None:
        """Forget all next offsets: a gap may have held any number of records."""
        self._next[:] = _UNKNOWN
        self._healing.clear()
        self.gap = True

    def ends(self) -> QueueEnds:
        """Return what the neighbouring splits need."""
        known = np.flatnonzero(self._next[: len(self.queues)] != _UNKNOWN)
        nexts = {self.queues[number]: int(self._next[number]) for number in known}
        return QueueEnds(self.firsts, nexts, self.gap, self._undone)

    def number(self, records: Records) -> Ints:
        """Return the number of each record's queue, an index into `queues`; adds queues not seen before."""
        hashes = _hash_queues(records)
        slots = (hashes >> np.uint64(48)).astype(np.int64)
        numbers = self._slots[slots]
        unknown = self._hashes[numbers] != hashes
        if unknown.any():
            which = np.flatnonzero(unknown)
            values, first, inverse = np.unique(hashes[which], return_index=True, return_inverse=True)
            found = [self._number_of(int(value), records, which[at]) for value, at in zip(values, first, strict=True)]
            numbers[which] = np.array(found)[inverse]
        return numbers

    def _number_of(self, value: int, records: Records, at: int) -> int:
        if value not in self._numbers:
            number = len(self.queues)
            topic = bytes(records.raw[int(records.topic_starts[at]) : int(records.topic_ends[at])])
            self.queues.append((topic, int(records.field("queue_id")[at])))
            self._numbers[value] = number
            if number >= len(self._hashes):
                self._hashes = np.concatenate((self._hashes, np.zeros_like(self._hashes)))
                self._next = np.concatenate((self._next, np.full_like(self._next, _UNKNOWN)))
            self._hashes[number] = value
            self._slots[value >> 48] = number
        return self._numbers[value]

    def follow(self, records: Records, numbers: Ints) -> list[Jump]:
        """Return the jumps among the records of one window; their positions are in the window."""
        offsets = records.field("queue_offset")
        steps = _steps(records)
        uncounted = np.flatnonzero(records.sys_flag & SysFlag.TRANSACTION_PREPARED)  # and rollback
        if len(uncounted):
            counted = np.flatnonzero((records.sys_flag & SysFlag.TRANSACTION_PREPARED) == 0)
            if not len(counted):
                return []
        else:
            counted = None
        # Stable, so log order stays within a queue; numpy sorts 16-bit keys by radix.
        keys = numbers if counted is None else numbers[counted]
        order = np.argsort(keys.astype(np.uint16) if len(self.queues) < 1 << 16 else keys, kind="stable")
        if counted is not None:
            order = counted[order]
        queue, offset = numbers[order], offsets[order]
        after = offset + (1 if steps is None else steps[order])
        begins = np.flatnonzero(np.concatenate(([True], queue[1:] != queue[:-1])))
        expected = np.empty_like(after)
        expected[1:] = after[:-1]
        heads = queue[begins]
        expected[begins] = self._next[heads]
        wrong = (expected != offset) & (expected != _UNKNOWN)
        new = begins[expected[begins] == _UNKNOWN]
        if not self.gap:
            for at in new.tolist():
                place = records.base + int(records.starts[order[at]])
                self.firsts.setdefault(self.queues[queue[at]], (int(offset[at]), place))
        lasts = np.concatenate((begins[1:] - 1, [len(order) - 1]))
        jumps = (
            self._explain(records, order, queue, offset, after, expected, wrong) if wrong.any() or self._healing else []
        )
        self._next[heads] = after[lasts]
        return [Jump(int(records.starts[at]), self.queues[number], want, got) for at, number, want, got in jumps]

    def _explain(
        self,
        records: Records,
        order: Ints,
        queue: Ints,
        offset: Ints,
        after: Ints,
        expected: Ints,
        wrong: Bools,
    ) -> list[tuple[int, int, int, int]]:
        """Return the jumps without those that only undo the jump before them.

        One damaged number, or one record that strayed in from another queue, makes two jumps: away and
        back. Only the first is reported; the next record of the queue may heal it.
        """
        jumps: list[tuple[int, int, int, int]] = []
        carried, healing = self._healing, dict[int, tuple[int, int, int]]()
        jumped: dict[int, int] = {}  # queue -> where in the sorted columns it jumped last
        for at in np.flatnonzero(wrong).tolist():
            number, found = int(queue[at]), int(offset[at])
            is_first = at == 0 or queue[at - 1] != number
            heals = (carried if is_first else healing).get(number)
            if heals is not None and found in heals[:2] and (is_first or jumped.get(number) == at - 1):
                if found == heals[1]:
                    self._undone.add(heals[2])
                continue
            want, place = int(expected[at]), records.base + int(records.starts[order[at]])
            healing[number], jumped[number] = (want, want + int(after[at]) - found, place), at
            jumps.append((int(order[at]), number, want, found))
        lasts = {number for number, at in jumped.items() if at + 1 == len(queue) or queue[at + 1] != number}
        seen = set(queue.tolist())
        self._healing = {number: offsets for number, offsets in carried.items() if number not in seen}
        self._healing |= {number: healing[number] for number in lasts}
        jumps.sort()
        return jumps


def _hash_queues(records: Records) -> NDArray[np.uint64]:
    """Return a 64-bit hash of (topic, queue id) of each record, taking eight bytes of topic at a time.

    The last word ends where the topic ends and overlaps the one before it.
    """
    starts = records.topic_starts
    length = records.topic_ends - starts
    words = records.view(_WORD)
    hashes: NDArray[np.uint64] = records.field("queue_id").view(np.uint64) * FIBONACCI
    hashes += length.view(np.uint64)
    last = np.maximum(length - 8, 0)
    short = np.flatnonzero(length < 8)
    # The low bytes of a little-endian word come first in the text.
    beyond = (np.uint64(1) << (8 * length[short]).view(np.uint64)) - np.uint64(1)
    for at in range(0, max(int(length.max()), 1), 8):
        word = words[starts + np.minimum(last, at)]
        if len(short):
            word[short] &= beyond
        hashes ^= word
        hashes *= FIBONACCI
        hashes ^= hashes >> np.uint64(29)
    # Never 0, which is "no queue yet" in the tables.
    return hashes * FIBONACCI | np.uint64(1)


def _steps(records: Records) -> Ints | None:
    """Return how many queue offsets each record takes; None where all take one."""
    batches = np.flatnonzero(records.sys_flag & SysFlag.INNER_BATCH)
    if not len(batches):
        return None
    steps: Ints = np.ones(len(records), np.int64)
    for at in batches.tolist():
        text = records.raw[int(records.properties_starts[at]) : int(records.properties_ends[at])]
        items = split_properties(np.frombuffer(text, np.uint8), np.array([0, len(text)], np.int64))
        for item in range(len(items.name_starts)):
            if bytes(text[items.name_starts[item] : items.name_ends[item]]) == _INNER_NUM:
                value = bytes(text[items.value_starts[item] : items.value_ends[item]])
                steps[at] = int(value) if value.isdigit() and len(value) < 6 else 1
    return steps

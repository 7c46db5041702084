"""Records that only one of two logs has, and whether the other log has them at another offset.

A record is the same in both logs if offset, size and all bytes (by CRC) are equal. Across offsets it is identified by
its key: queue, queue offset, store time and body. Sides are 0 (A) and 1 (B).
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.records import Records
from rmqinspect.text import text_of

Keys = NDArray[np.uint64]

# Keys kept per log to find records at other offsets: 8 MB.
SAMPLE_SIZE = 1 << 20
# 2^64 / golden ratio, for Fibonacci hashing; odd, so multiplying by it is invertible.
_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)


class OnlyRecord(NamedTuple):
    """A record that only one log has."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int  # ms
    why: str  # hole, behind, other: the state of the other log there


@dataclass(slots=True)
class OnlyIn:
    """The records that only one log has: the first ones, and exact counts."""

    rows: list[OnlyRecord] = field(default_factory=list)
    count: int = 0
    size: int = 0  # bytes
    by_topic: dict[str, int] = field(default_factory=dict)  # most frequent first
    elsewhere: int = 0  # of them, those that the other log has at another offset
    elsewhere_exact: bool = True  # False: estimated from a sample


class Columns(NamedTuple):
    """Consecutive records of one log: arrays of shape (n,), ascending by physical offset."""

    physical_offset: Ints
    size: Ints
    crc: Ints  # of all bytes of the record
    queue: Ints  # number of (topic, queue id), the same for both logs
    queue_offset: Ints
    store_timestamp: Ints
    key: Keys  # identity independent of the offset


_NO_INTS = np.zeros(0, np.int64)
NOTHING = Columns(_NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS, np.zeros(0, np.uint64))


class RecordDiff:
    """Collects the records that only one of two logs has."""

    def __init__(self, only: tuple[OnlyIn, OnlyIn], limit: int) -> None:
        self.only = only
        self.limit = limit  # rows of each log
        self._queues = QueueOffsets()
        self._counts = [_NO_INTS, _NO_INTS]  # records by number of the queue
        self._samples = (_Sample(), _Sample())

    def columns(self, records: Records, end: int) -> Iterator[Columns]:
        """Yield the records before the end of their log as columns."""
        inside = records.base + records.starts < end
        if not inside.all():
            records = records.select(inside)
        if not len(records):
            return
        queue = self._queues.number(records)
        queue_offset, timestamp = records.field("queue_offset"), records.field("store_timestamp")
        content, spans = records.raw, zip(records.starts.tolist(), records.ends.tolist(), strict=True)
        yield Columns(
            records.base + records.starts,
            records.total_size,
            np.fromiter(map(zlib.crc32, (content[start:end] for start, end in spans)), np.int64, len(records)),
            queue,
            queue_offset,
            timestamp,
            _mix(queue, queue_offset, timestamp, records.field("body_crc") | records.body_size << 32),
        )

    def add(self, side: int, mine: Columns, other: Columns, why: str) -> None:
        """Note the records of one log that the other lacks; both cover the same range of offsets."""
        at = _rows_of(mine.physical_offset, other.physical_offset)
        paired = at >= 0
        at = at[paired]
        only, moved = ~paired, ~paired
        only[paired] = (other.size[at] != mine.size[paired]) | (other.crc[at] != mine.crc[paired])
        # A record that differs in its properties only has not moved.
        moved[paired] = other.key[at] != mine.key[paired]
        which = np.flatnonzero(only)
        if len(which):
            self._note(side, mine, which, why)
            self._samples[side].add(mine.key[only & moved])

    def _note(self, side: int, columns: Columns, which: Ints, why: str) -> None:
        found = self.only[side]
        found.count += len(which)
        found.size += int(columns.size[which].sum())
        counts = np.bincount(columns.queue[which], minlength=len(self._counts[side]))
        counts[: len(self._counts[side])] += self._counts[side]
        self._counts[side] = counts
        for at in which[: max(0, self.limit - len(found.rows))].tolist():
            topic, queue_id = self._queues.queues[int(columns.queue[at])]
            numbers = (int(columns.queue_offset[at]), int(columns.store_timestamp[at]))
            place = (int(columns.physical_offset[at]), int(columns.size[at]))
            found.rows.append(OnlyRecord(*place, text_of(topic), queue_id, *numbers, why))

    def finish(self) -> None:
        """Compute the totals."""
        for side, only in enumerate(self.only):
            totals: dict[str, int] = {}
            for number in np.flatnonzero(self._counts[side]).tolist():
                topic = text_of(self._queues.queues[number][0])
                totals[topic] = totals.get(topic, 0) + int(self._counts[side][number])
            only.by_topic = dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
            only.elsewhere, only.elsewhere_exact = self._samples[side].count_in(self._samples[1 - side])


class _Sample:
    """Keys in bounded memory: all of them, or those whose last bits are zero."""

    def __init__(self) -> None:
        self.keys: Keys = np.zeros(0, np.uint64)
        self.mask = 0

    def add(self, keys: Keys) -> None:
        """Add keys."""
        self.keys = np.concatenate((self.keys, self._pick(keys)))
        while len(self.keys) > SAMPLE_SIZE and self.mask < 1 << 32:
            self.mask = 2 * self.mask + 1
            self.keys = self._pick(self.keys)

    def _pick(self, keys: Keys) -> Keys:
        picked: Keys = keys[keys & np.uint64(self.mask) == 0]
        return picked

    def count_in(self, other: "_Sample") -> tuple[int, bool]:
        """Return how many keys the other sample has too, and whether the number is exact."""
        mask = max(self.mask, other.mask)
        found = np.isin(self.keys, other.keys) & (self.keys & np.uint64(mask) == 0)
        return int(np.count_nonzero(found)) * (mask + 1), mask == 0


def _rows_of(values: Ints, ascending: Ints) -> Ints:
    """Return the row of each value in an ascending column, -1 where absent."""
    if not len(ascending):
        return np.full(len(values), -1)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: Ints = np.where(ascending[at] == values, at, -1)
    return found


def _mix(*columns: Ints) -> Keys:
    """Return a 64-bit hash of the values of each row."""
    keys: Keys = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        keys = (keys ^ column.astype(np.int64).view(np.uint64)) * _FIBONACCI
        keys ^= keys >> np.uint64(29)
    return keys


def join(parts: list[Columns]) -> Columns:
    """Concatenate columns."""
    return Columns(*map(np.concatenate, zip(*parts, strict=True))) if parts else NOTHING

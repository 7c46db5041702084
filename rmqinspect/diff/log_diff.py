"""What two logs differ in: ranges that one lacks, runs of bytes, records that only one has.

A record is the same in both logs if offset, size and all bytes (by CRC) are equal. Across offsets it is identified by
its key: queue, queue offset, store time and body. Sides are 0 (A) and 1 (B).
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints, find, merge
from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.records import Records
from rmqinspect.store.model import Segment
from rmqinspect.text import text_of

Keys = NDArray[np.uint64]
Range = tuple[int, int]  # physical offsets, half-open

# Differing bytes at most this far apart are one run: the fields of a record.
JOIN = 64
# Keys kept per log to find records at other offsets: 8 MB.
SAMPLE_SIZE = 1 << 20
# 2^64 / golden ratio, for Fibonacci hashing; odd, so multiplying by it is invertible.
_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)


# --- what two logs cover --------------------------------------------------------------------------


class Part(NamedTuple):
    """Physical offsets [start, end) and the segment that holds them."""

    start: int
    end: int
    segment: Segment


class Piece(NamedTuple):
    """Physical offsets [start, end) and the segment of each log, None where it has none."""

    start: int
    end: int
    segments: tuple[Segment | None, Segment | None]

    @property
    def is_cut_by_one_segment(self) -> bool:
        """Whether a segment of one log alone starts or ends at a border of the piece, which may cut a record."""
        a, b = self.segments
        if a is None or b is None:
            return False
        starts_alone = a.base != b.base and self.start in (a.base, b.base)
        return starts_alone or (a.end != b.end and self.end in (a.end, b.end))


def cover(segments: Iterable[Segment]) -> list[Part]:
    """Return which segment holds which physical offsets, ascending and without overlap.

    A segment that is too long ends where the next one starts; of two with the same base the first counts.
    """
    by_base: dict[int, Segment] = {}
    for segment in segments:
        if segment.size:
            by_base.setdefault(segment.base, segment)
    ordered = [by_base[base] for base in sorted(by_base)]
    nexts = {segment.base: following.base for segment, following in pairwise(ordered)}
    return [Part(one.base, min(one.end, nexts.get(one.base, one.end)), one) for one in ordered]


def pieces(covered: tuple[list[Part], list[Part]]) -> Iterator[Piece]:
    """Yield the ranges that at least one log covers, cut where a segment of either starts or ends."""
    starts = [[part.start for part in parts] for parts in covered]
    for start, end in pairwise(sorted({edge for parts in covered for part in parts for edge in part[:2]})):
        found: list[Segment | None] = []
        for parts, begins in zip(covered, starts, strict=True):
            which = bisect_right(begins, start) - 1
            found.append(parts[which].segment if which >= 0 and start < parts[which].end else None)
        if found != [None, None]:
            yield Piece(start, end, (found[0], found[1]))


def extend(ranges: list[Range], start: int, end: int) -> None:
    """Append a range, merged with the last one where they touch."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = ranges[-1][0], end
    else:
        ranges.append((start, end))


# --- records --------------------------------------------------------------------------------------


class OnlyRecord(NamedTuple):
    """A record that only one log has."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int  # ms
    why: str  # hole, behind, other: the state of the other log there


class OnlyIn(Struct):
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

    def columns(self, records: Records, end: int) -> Columns:
        """Return the records before the end of their log as columns."""
        inside = records.base + records.starts < end
        if not inside.all():
            records = records.select(inside)
        if not len(records):
            return NOTHING
        queue = self._queues.number(records)
        queue_offset, timestamp = records.field("queue_offset"), records.field("store_timestamp")
        content, spans = records.raw, zip(records.starts.tolist(), records.ends.tolist(), strict=True)
        return Columns(
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
        at = find(other.physical_offset, mine.physical_offset)
        paired = at >= 0
        at = at[paired]
        only, moved = ~paired, ~paired
        only[paired] = (other.size[at] != mine.size[paired]) | (other.crc[at] != mine.crc[paired])
        # A record that differs in its properties only has not moved.
        moved[paired] = other.key[at] != mine.key[paired]
        which = np.flatnonzero(only)
        if not len(which):
            return
        self._samples[side].add(mine.key[only & moved])
        found = self.only[side]
        found.count += len(which)
        found.size += int(mine.size[which].sum())
        counts = np.bincount(mine.queue[which], minlength=len(self._counts[side]))
        counts[: len(self._counts[side])] += self._counts[side]
        self._counts[side] = counts
        for at in which[: max(0, self.limit - len(found.rows))].tolist():
            topic, queue_id = self._queues.queues[int(mine.queue[at])]
            place = int(mine.physical_offset[at]), int(mine.size[at])
            numbers = int(mine.queue_offset[at]), int(mine.store_timestamp[at])
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


def _mix(*columns: Ints) -> Keys:
    """Return a 64-bit hash of the values of each row."""
    keys: Keys = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        keys = (keys ^ column.astype(np.int64).view(np.uint64)) * _FIBONACCI
        keys ^= keys >> np.uint64(29)
    return keys


# --- both logs ------------------------------------------------------------------------------------


class OneSided(NamedTuple):
    """Physical offsets [start, end) that only one log covers, before the end of the longer log."""

    start: int
    end: int
    side: int  # the log that has them
    why: str  # before, hole, behind: where they lie in the other log


class ByteRun(NamedTuple):
    """A range [start, end) of physical offsets with `differing` bytes that differ."""

    start: int
    end: int
    differing: int


class ByteRuns:
    """The runs of differing bytes: the first `limit` of them, and exact totals."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept: list[ByteRun] = []
        self.count = 0
        self.differing = 0
        self.first: int | None = None  # first byte that differs
        self._last = -JOIN - 1  # last byte that differs

    def add(self, offsets: Ints) -> None:
        """Add offsets of differing bytes, ascending, all behind those added before."""
        begins = np.flatnonzero(np.diff(offsets, prepend=self._last) > JOIN)
        borders = [*begins.tolist(), len(offsets)]
        if borders[0] and len(self.kept) == self.count:  # the last run goes on, and it was kept
            last, goes_on = self.kept.pop(), borders[0]
            self.kept.append(ByteRun(last.start, int(offsets[goes_on - 1]) + 1, last.differing + goes_on))
        for begin, end in list(pairwise(borders[: self.limit - len(self.kept) + 1])):
            self.kept.append(ByteRun(int(offsets[begin]), int(offsets[end - 1]) + 1, end - begin))
        self.count += len(begins)
        self.differing += len(offsets)
        self.first = int(offsets[0]) if self.first is None else self.first
        self._last = int(offsets[-1])


class LogDiff(Struct):
    """The result of comparing two logs."""

    covered: tuple[list[Part], list[Part]]
    runs: ByteRuns
    ends: list[int | None] = field(default_factory=lambda: [None, None])  # None: no record was found
    reach: list[int] = field(default_factory=lambda: [-1, -1])  # the same; without records, where the log starts
    tail: int | None = None  # end of the bytes that are no record, behind the end of the log that ends first
    one_sided: list[OneSided] = field(default_factory=list)
    compared: list[Range] = field(default_factory=list)  # ranges whose bytes were compared
    only: tuple[OnlyIn, OnlyIn] = field(default_factory=lambda: (OnlyIn(), OnlyIn()))
    unread: dict[tuple[int, str], None] = field(default_factory=dict)  # (side, message); an ordered set
    reached: int | None = None  # progress of the comparison
    interrupted: bool = False

    @property
    def first(self) -> int | None:
        """The first offset where both cover it and differ, or where one of them ends."""
        ended = min(self.reach) if self.reach[0] != self.reach[1] and min(self.reach) >= 0 else None
        return min((offset for offset in (self.runs.first, ended) if offset is not None), default=None)

    @property
    def compared_bytes(self) -> int:
        """Bytes of each log that were compared."""
        return sum(end - start for start, end in self.compared)

    @property
    def in_neither(self) -> list[Range]:
        """The ranges inside of the logs that no segment of either holds: between two segments, or behind a short one.

        What lies before the first segment of both is none: retention takes it from any log.
        """
        held = merge((part.start, part.end) for parts in self.covered for part in parts)
        end = max(self.reach)
        return [(behind, start) for (_, behind), (start, _) in pairwise(held) if behind < end]

    def ranges(self, side: int) -> list[Range]:
        """Return the ranges that the segments of one log cover, merged where they touch."""
        return merge((part.start, part.end) for part in self.covered[side])

"""Commit-log bytes → the records of the chain, and the gaps between them.

A segment is a chain: each record ends where the next begins, until a blank record, zeros, or
damage. The scan walks the chain window by window, proves each record by its lengths, and behind
damage looks for the next record that proves itself: magic, plausible lengths, its own physical
offset, a good body CRC. Every byte belongs to a record or to exactly one gap.

A split of a segment starts by walking from a little before its first byte, so that it finds the
same records as a reader that comes from the segment's start.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from rmqinspect.errors import Unreadable
from rmqinspect.gaps import Gap
from rmqinspect.layout import place_of
from rmqinspect.records import SLACK, Records
from rmqinspect.resync import BLANK_SIZE, BLOCK, ENTRY_HEAD, RECORD_MAGICS, Search, Unread
from rmqinspect.schemas import dledger, message
from rmqinspect.store import FileReader, Segment, open_file

# What one read brings; memory stays in the processor's caches. 16 and 64 MiB were slower.
WINDOW_SIZE = 4 << 20

# A split looks this far back for its first record: the broker's largest record (4 MiB and 64 KiB
# by default) and a neighbour. A larger one costs a search, never an answer.
LOOK_BACK = 6 << 20
_LOOK_BACK_FIRST = 256 << 10  # nearly always far enough

# The columns of so many records stay in the second-level cache; of fewer, numpy's calls cost more.
_BATCH_RECORDS = 3500
_BATCH_SIZE = 256 << 10  # bytes of the first batch, and of any at least
_PARTS = 96  # parts of a batch that are followed at once
_PART_SIZE = 4096  # bytes of a part at least
_FEW_PARTS = 8  # of fewer, numpy's calls cost more than following one by one
_STEPS = 8  # records of each part followed between two looks whether all are done

_PHYSICAL_OFFSET = place_of(message.HEADS[False, False], "physical_offset")
_ENTRY_SIZE = place_of(dledger.EntryHead, "size")
_ENTRY_BODY_SIZE = place_of(dledger.EntryHead, "body_size")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of the chain in one window, and how the first one was found."""

    records: Records
    carved: bool  # the first record stands behind a gap; the rest follow from it in the chain
    stale: bool  # all of them stand behind a gap and are older than the record before it


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range [start, end) of a segment, in positions; its records are those that start there."""

    segment: Segment
    start: int
    end: int


Event = Stretch | Gap | Unread


def plan_splits(segments: Iterable[Segment], split_size: int) -> list[Split]:
    """Cut segments at multiples of `split_size`; an empty segment gives no split."""
    return [
        Split(segment, start, min(start + split_size, segment.size))
        for segment in segments
        for start in range(0, segment.size, split_size)
    ]


def scan_split(split: Split, window_size: int = WINDOW_SIZE) -> Iterator[Event]:
    """Yield the records that start in a split, and its gaps, in order.

    A gap is cut at the split's borders: `merge_gaps` joins the parts again. The records of a
    stretch are valid until the next step of the iterator, which reuses the window.

    :raises Unreadable: the file cannot be opened.
    """
    with open_file(split.segment) as reader:
        chain = _Chain(reader, split.segment, window_size)
        yield from chain.run(split.start, min(split.end, reader.size))


class _Chain:
    """The walk over one segment. Positions are bytes from the segment's start."""

    def __init__(self, reader: FileReader, segment: Segment, window_size: int) -> None:
        self.reader = reader
        self.search = Search(reader, segment)
        self.base, self.size, self.lead = self.search.base, self.search.size, self.search.lead
        self.window_size = window_size
        self.last_timestamp: int | None = None
        self.batch_size = _BATCH_SIZE
        self._use_buffer(min(window_size, max(self.size, 1)))

    # --- from start to end ----------------------------------------------------------------------

    def run(self, start: int, end: int) -> Iterator[Event]:
        """Yield what starts in [start, end), having walked up to it from a little before."""
        position, carved, stale = self._enter(start, end), False, False
        if position > start:  # nothing before the split proved itself: it begins inside a gap
            yield from self.search.describe(start, position, None)
            carved, stale = True, position < end and self._is_stale(position)
        while position < end:
            records = self._walk(position)
            yield from self._take_unread()
            if len(records):
                position = self.start + int(records.ends[-1])
                self.last_timestamp = int(records.field("store_timestamp")[-1])
                inside = self._inside(records, start, end)
                if len(inside):
                    yield Stretch(inside, carved and inside.starts[0] == records.starts[0], stale)
                carved = False
                continue
            kind, reason = self._judge(position)
            if kind == "blank":
                yield Gap(self.base + max(position, start), self.base + min(self.size, end), "filler", reason)
                break
            if kind == "damage":
                gap, position = position, self.search.find_next(position + 1, end)
                yield from self.search.describe(max(gap, start), position, reason)
                carved, stale = True, position < end and self._is_stale(position)
            yield from self._take_unread()

    def _enter(self, start: int, end: int) -> int:
        """Return where to begin walking for a split that begins at `start`."""
        for distance in (_LOOK_BACK_FIRST, LOOK_BACK):
            begin = start - distance
            if begin <= 0:
                return 0
            before = self.search.find_next(begin, start)
            if before < start:
                return before
        return self.search.find_next(start, end)

    def _inside(self, records: Records, start: int, end: int) -> Records:
        """Return the records that start in the split."""
        borders = np.array((start, end)) - self.start + self.lead
        first, last = np.searchsorted(records.starts, borders)
        return records if (first, last) == (0, len(records)) else records.select(slice(first, last))

    def _take_unread(self) -> Iterator[Unread]:
        taken, self.search.unread = self.search.unread, []
        return iter(taken)

    # --- the window -----------------------------------------------------------------------------

    def _use_buffer(self, size: int) -> None:
        self.buffer = bytearray(size + SLACK)
        self.octets = memoryview(self.buffer)
        self.int32 = np.ndarray((size + SLACK - 3,), ">i4", self.buffer, 0, (1,))
        self.uint32 = self.int32.view(">u4")
        self.int64 = np.ndarray((size + SLACK - 7,), ">i8", self.buffer, 0, (1,))
        self.start = self.filled = 0  # position of the window's first byte; its valid bytes

    def _load(self, position: int) -> None:
        """Fill the window from `position` on; what cannot be read is taken as zeros, and noted."""
        capacity = len(self.buffer) - SLACK
        self.start = position
        self.filled = max(0, min(capacity, self.size - position))
        try:
            self.filled = self.reader.read_into(self.octets[: self.filled], position)
        except Unreadable:
            for at in range(0, self.filled, BLOCK):
                block = self.octets[at : min(at + BLOCK, self.filled)]
                try:
                    self.reader.read_into(block, position + at)
                except Unreadable as error:
                    block[:] = bytes(len(block))
                    place = self.base + position + at
                    self.search.unread.append(Unread(place, place + len(block), str(error)))

    def _has(self, position: int, size: int) -> bool:
        return self.start <= position and position + size <= self.start + self.filled

    def _need(self, position: int, size: int) -> int:
        """Load the window unless it holds these bytes; return the position in the window."""
        if not self._has(position, min(size, self.size - position)):
            if size > len(self.buffer) - SLACK:
                self._use_buffer(size)
            self._load(position)
        return position - self.start

    def _records(self, starts: NDArray[np.int64]) -> Records:
        return Records(self.octets, self.base + self.start, starts)

    # --- the chain ------------------------------------------------------------------------------

    def _walk(self, position: int) -> Records:
        """Return a batch of the chain from `position` on, none where it stops.

        The records are proved by magic, size and lengths.
        """
        batch = min(self.batch_size, self.window_size, self.size - position)
        if not self._has(position, batch):
            self._load(position)
        starts = self._guess_starts(position - self.start)
        records = self._records(starts)
        size, magic = records.total_size, records.magic
        sound = (magic == message.MAGIC_V1) | (magic == message.MAGIC_V2)
        sound &= (size >= message.FIXED_SIZE) & (records.ends <= self.filled)
        sound &= records.lengths_agree
        if self.lead:
            entries = starts - self.lead
            body = self.int32[entries + _ENTRY_BODY_SIZE]
            sound &= (body == size) & (self.int32[entries + _ENTRY_SIZE] == size + self.lead)
            sound &= np.isin(self.int32[entries], dledger.ENTRY_MAGICS)
        if not sound.all():
            records = records.select(slice(int(np.argmin(sound))))
        if len(records):
            walked = int(records.ends[-1] - records.starts[0])
            self.batch_size = max(walked // len(records) * _BATCH_RECORDS, _BATCH_SIZE)
        return records

    def _guess_starts(self, at: int) -> NDArray[np.int64]:
        """Follow the total sizes from `at` as far as a batch goes, without judging them.

        A chain is followed from record to record, which is slow in Python. So several records
        further on that know their own place are found by their magic, and the chain is followed
        from all of them at once: where each part ends exactly where the next begins, the parts
        are the chain. Sizes are read unsigned: a part only moves forward.
        """
        at += self.lead
        last = min(self.filled - message.FIXED_SIZE, at + self.batch_size)
        begins = self._find_begins(at, last)
        if len(begins) < _FEW_PARTS:
            return self._follow_one(at, last)
        ends = np.append(begins[1:], last + 1)
        most = int((ends - begins).max()) // message.FIXED_SIZE + 1  # records a part can have
        steps, position, uint32 = [begins], begins, self.uint32
        while len(steps) <= most and (position < ends).any():
            for _ in range(_STEPS):
                position = position + uint32[position]
                if self.lead:
                    position += self.lead
                # Behind the last start nothing is followed: any value there will do.
                np.minimum(position, last + 1, out=position)
                steps.append(position)
        places = np.array(steps)
        inside = places < ends
        counts = np.count_nonzero(inside, axis=0)
        reached = places[np.minimum(counts, len(places) - 1), np.arange(len(begins))]
        broken = np.flatnonzero(reached[:-1] != begins[1:])
        if len(broken):
            inside[:, int(broken[0]) + 1 :] = False
        starts: NDArray[np.int64] = places.T[inside.T]
        return starts

    def _follow_one(self, at: int, last: int) -> NDArray[np.int64]:
        """Follow the total sizes from `at` one by one: where parts do not help."""
        starts: list[int] = []
        size_at = self.uint32.item
        # A size of 0 is stopped by the number of records there can be.
        for _ in repeat(None, max(0, last - at) // message.FIXED_SIZE + 1):
            if at > last:
                break
            starts.append(at)
            at += size_at(at) + self.lead
        return np.array(starts, np.int64)

    def _find_begins(self, at: int, last: int) -> NDArray[np.int64]:
        """Return `at` and some records behind it, up to `last`, that know their own place."""
        step = max((last - at) // _PARTS, _PART_SIZE)
        find, magic = self.buffer.find, message.MAGIC_PREFIX
        # -1, nothing found in this stretch, leads to a place before the window's first record.
        found = [find(magic, begin + 4, begin + step) for begin in range(at + step, last - 4, step)]
        places = np.array(found, np.int64) - 4
        places = places[(places > at) & (places <= last)]
        own = self.int64[places + _PHYSICAL_OFFSET] == self.base + self.start + places
        return np.concatenate(([at], places[own]))

    def _judge(self, position: int) -> tuple[str, str | None]:
        """Say what stands where the chain stopped: ("more" | "blank" | "damage", reason).

        "more": the window ended here, or in the middle of a plausible record; now it begins here.
        """
        left = self.size - position
        if left < BLANK_SIZE:
            return "damage", "short"
        if not self._has(position, BLANK_SIZE):
            self._load(position)
            return "more", None
        at = position - self.start
        if self.lead:
            return self._judge_entry(position, left)
        size, magic = int(self.int32[at]), int(self.int32[at + 4])
        if magic == message.MAGIC_BLANK:
            return "blank", None if size == left else "blank_size"
        if magic not in RECORD_MAGICS:
            return "damage", "zero" if magic == 0 else "magic"
        if size < message.FIXED_SIZE:
            return "damage", "size"
        if size > left:
            return "damage", "cut" if self._knows_place(position, at) else "size"
        return self._judge_size(position, size)

    def _judge_entry(self, position: int, left: int) -> tuple[str, str | None]:
        at = position - self.start
        magic, size = int(self.int32[at]), int(self.int32[at + 4])
        if magic == dledger.ENTRY_MAGIC_BLANK:
            return "blank", None if size == left else "blank_size"
        if magic == 0:
            return "damage", "zero"
        if magic not in dledger.ENTRY_MAGICS or not ENTRY_HEAD <= size <= left:
            return "damage", "entry"
        return self._judge_size(position, size)

    def _judge_size(self, position: int, size: int) -> tuple[str, str | None]:
        """Decide between a record that the window cut and one whose lengths disagree."""
        # Larger than a window is believed only when its own lengths lead to the same end.
        if not self._has(position, size) and (
            size <= self.window_size or self.search.read_record(position + self.lead) is not None
        ):
            self._need(position, size)
            return "more", None
        return "damage", "entry" if self.lead else "length"

    def _knows_place(self, position: int, at: int) -> bool:
        front = self._records(np.array([at], np.int64))
        return int(front.physical_offset[0]) == self.base + position

    def _is_stale(self, position: int) -> bool:
        """Whether the record at `position`, found behind a gap, is older than the one before the gap.

        Truncation erases nothing: what an earlier life of the store wrote behind the new end stays
        there, whole and at its own offset, and is older than what was written since.
        Source: MappedFileQueue#truncateDirtyFiles.
        """
        record = self.search.read_record(position + self.lead)
        before = self.last_timestamp if self.last_timestamp is not None else self.search.timestamp_before(position)
        return record is not None and before is not None and int(record.field("store_timestamp")[0]) < before

"""Commit-log bytes → the records of the chain, and the gaps between them.

A segment is a chain: each record ends where the next begins, until a blank record, zeros, or
damage. The scan walks the chain window by window, proves each record by its lengths, and behind
damage looks for the next record that proves itself: magic, plausible lengths, its own physical
offset, a good body CRC. Every byte belongs to a record or to exactly one gap.

A split of a segment starts by walking from a little before its first byte, so that it finds the
same records as a reader that comes from the segment's start.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TypeVar

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import place_of
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.records import SLACK, Records
from rmqinspect.commitlog.resync import BLANK_SIZE, ENTRY_HEAD, RECORD_MAGICS, Search, Unread
from rmqinspect.commitlog.splits import SEGMENT_START, Borders, ScanState, Split
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader, open_file

Result = TypeVar("Result")

# What one read brings; memory stays in the processor's caches. 16 and 64 MiB were slower. Of large records
# twice as much, for what their columns cost besides the records.
WINDOW_SIZE = 2 << 20

# A split looks this far back for its first record: the broker's largest record (4 MiB and 64 KiB
# by default) and a neighbour. A larger one costs a search, never an answer.
LOOK_BACK = 6 << 20
_LOOK_BACK_FIRST = 256 << 10  # nearly always far enough

# The columns of so many records stay in the second-level cache; of fewer, numpy's calls cost more.
_BATCH_RECORDS = 5000
_BATCH_SIZE = 256 << 10  # bytes of the first batch, and of any at least
_PARTS = 96  # parts of a batch that are followed at once
_PART_SIZE = 4096  # bytes of a part at least
_FEW_PARTS = 8  # of fewer, numpy's calls cost more than following one by one
_STEPS = 8  # records of each part followed between two looks whether all are done

# Records are told as older by the middle of a few times, and by more than a clock is set back now
# and then: one damaged time, or a step of the clock, makes no earlier life.
_FEW_TIMES = 3
_OLDER_MS = 1000

_PHYSICAL_OFFSET = place_of(message.HEADS[False, False], "physical_offset")
_ENTRY_SIZE = place_of(dledger.EntryHead, "size")
_ENTRY_BODY_SIZE = place_of(dledger.EntryHead, "body_size")
_ENTRY_POSITION = place_of(dledger.EntryHead, "position")


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records of the chain in one window, and how the first one was found."""

    records: Records
    carved: bool  # the first record stands behind a gap; the rest follow from it in the chain
    stale: bool  # all of them stand behind a gap and are older than the record before it


Event = RecordRun | Gap | Unread | Borders


def scan_split(split: Split, window_size: int = WINDOW_SIZE) -> Iterator[Event]:
    """Yield the records that start in a split, and its gaps, in order; last its borders.

    A gap is cut at the split's borders: `merge_gaps` joins the parts again. The records of a
    stretch are valid until the next step of the iterator, which reuses the window.

    :raises Unreadable: the file cannot be opened.
    """
    with open_file(split.segment) as reader:
        chain = _Chain(reader, split, window_size)
        yield from chain.run()
        yield from chain.take_unread()
        yield Borders(chain.entry or chain.exit, chain.exit)


def walk_to(segment: Segment, start: int, border: int) -> ScanState:
    """Return where the chain stands at `border`, for the `entry` of a split that begins there.

    Found by walking the frames from `start` on, which is exact and costs the reading of what lies between.
    For splits that nobody can compute again when the one before them is done.

    :raises Unreadable: the file cannot be opened.
    """
    edges = [event.exit for event in scan_split(Split(segment, start, border)) if isinstance(event, Borders)]
    return edges[-1]


def redo_where_borders_differ(
    results: Iterable[Result],
    split_of: Callable[[Result], Split],
    borders_of: Callable[[Result], Borders | None],
    again: Callable[[Split], Result],
) -> Generator[Result, None, None]:
    """Yield the results of splits in order, each computed from where the one before it ended.

    A split that looked back and saw the same goes through as it is; the rare other one is computed
    `again` from the known border. So the splits of a segment give exactly what one reader gives.
    """
    expected: ScanState | None = None
    for result in results:
        split, borders = split_of(result), borders_of(result)
        if split.start == 0:
            expected = SEGMENT_START
        if borders is not None and expected is not None and borders.entry != expected:
            result = again(replace(split, entry=expected))
            borders = borders_of(result)
        expected = borders.exit if borders is not None else None
        yield result


class _Chain:
    """The walk over one segment. Positions are bytes from the segment's start."""

    def __init__(self, reader: FileReader, split: Split, window_size: int) -> None:
        self.reader = reader
        self.search = Search(reader, split.segment)
        self.base, self.size, self.lead = self.search.base, self.search.size, self.search.lead
        self.begin, self.end = split.start, min(split.end, self.size)
        self.window_size = window_size
        self.last_times: tuple[int, ...] = ()
        self.batch_size = _BATCH_SIZE
        self.entry: ScanState | None = split.entry
        self.exit = ScanState(self.end)
        self._use_buffer(min(window_size, max(self.size, 1)))

    # --- from start to end ----------------------------------------------------------------------

    def run(self) -> Iterator[RecordRun | Gap | Unread]:
        """Yield what starts in the split, having walked up to it from a little before if need be."""
        now = self.entry if self.entry is not None else self._look_back()
        self.last_times = now.last_times
        carved = False
        if now.closed:
            yield Gap(self.base + self.begin, self.base + self.end, "filler", None)
        while now.position < self.end and not now.closed:
            if now.position >= self.begin:
                self._note_entry(now)
            if now.in_gap:
                now = yield from self._cross_gap(now.position, now.position, None)
                carved = True
                continue
            records = self._walk(now.position)
            yield from self.take_unread()
            if len(records):
                places = records.starts + (self.start - self.lead)
                first, last = np.searchsorted(places, (self.begin, self.end)).tolist()
                if first < last:
                    self._note_entry(replace(now, position=int(places[first])))
                    inside = records if last - first == len(records) else records.select(slice(first, last))
                    yield RecordRun(inside, carved and first == 0, now.stale)
                if not now.stale:
                    # Of the records before the border only: the split behind it comes by the others.
                    times = records.field("store_timestamp")[:last][-_FEW_TIMES:].tolist()
                    self.last_times = (*(() if carved else self.last_times), *times)[-_FEW_TIMES:]
                carved = False
                ends = self.start + int(records.ends[-1])
                now = replace(now, position=int(places[last]) if last < len(places) else ends)
                continue
            kind, reason = self._judge(now.position)
            if kind == "blank":
                yield Gap(self.base + max(now.position, self.begin), self.base + self.end, "filler", reason)
                now = ScanState(self.end, closed=True)
                self._note_entry(replace(now, position=self.begin))
            elif kind == "entry":
                after = now.position + self._entry_size(now.position)
                if now.position >= self.begin:
                    yield Gap(self.base + now.position, self.base + after, "filler", None)
                now = replace(now, position=after)
            elif kind == "damage":
                now = yield from self._cross_gap(now.position, now.position + 1, reason)
                carved = True
            yield from self.take_unread()
        self._note_entry(now)
        self.exit = replace(now, last_times=self.last_times)

    def _cross_gap(self, gap: int, search_from: int, reason: str | None) -> Generator[Gap, None, ScanState]:
        """Yield the gap that begins at `gap`, as far as it is the split's; return what follows it."""
        found = self.search.find_next(search_from, self.end)
        if gap < self.begin <= found:
            self._note_entry(ScanState(self.begin, in_gap=True))
        if self.begin < found:
            yield from self.search.describe(max(gap, self.begin), found, reason)
        if found >= self.end:
            return ScanState(self.end, in_gap=True)
        return ScanState(found, stale=self._is_stale(found))

    def _look_back(self) -> ScanState:
        """Find out how the split begins: walk from a record before it that proves itself."""
        for distance in (_LOOK_BACK_FIRST, LOOK_BACK):
            position = self.begin - distance
            if position <= 0:
                return SEGMENT_START
            before = self.search.find_next(position, self.begin)
            if before < self.begin:
                return ScanState(before)
        return ScanState(self.begin, in_gap=True)

    def _note_entry(self, edge: ScanState) -> None:
        if self.entry is None:
            self.entry = edge

    def take_unread(self) -> Iterator[Unread]:
        """Yield what could not be read since the last time."""
        taken, self.search.unread = self.search.unread, []
        return iter(taken)

    # --- the window -----------------------------------------------------------------------------

    def _use_buffer(self, size: int) -> None:
        self.buffer = bytearray(size + SLACK)
        self.raw = memoryview(self.buffer)
        self.int32 = np.ndarray((size + SLACK - 3,), ">i4", self.buffer, 0, (1,))
        self.uint32 = self.int32.view(">u4")
        self.int64 = np.ndarray((size + SLACK - 7,), ">i8", self.buffer, 0, (1,))
        self.start = self.filled = 0  # position of the window's first byte; its valid bytes

    def _load(self, position: int) -> None:
        """Fill the window from `position` on; what cannot be read is taken as zeros, and noted."""
        self.start = position
        self.filled = max(0, min(len(self.buffer) - SLACK, self.size - position))
        self.search.fill(self.raw[: self.filled], position)

    def _has(self, position: int, size: int) -> bool:
        return self.start <= position and position + size <= self.start + self.filled

    def _need(self, position: int, size: int) -> int:
        """Load the window unless it holds these bytes; return the position in the window."""
        if not self._has(position, min(size, self.size - position)):
            if size > len(self.buffer) - SLACK:
                self._use_buffer(size)
            self._load(position)
        return position - self.start

    def _records(self, starts: Ints) -> Records:
        return Records(self.raw, self.base + self.start, starts)

    # --- the chain ------------------------------------------------------------------------------

    def _walk(self, position: int) -> Records:
        """Return a batch of the chain from `position` on, none where it stops.

        The records are proved by magic, size and lengths.
        """
        batch = min(self.batch_size, 2 * self.window_size, self.size - position)
        if not self._has(position, batch):
            if batch > len(self.buffer) - SLACK:
                # And some more: the mean size of records changes a little.
                self._use_buffer(min(batch + batch // 8, 2 * self.window_size))
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

    def _guess_starts(self, at: int) -> Ints:
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
        starts: Ints = places.T[inside.T]
        return starts

    def _follow_one(self, at: int, last: int) -> Ints:
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

    def _find_begins(self, at: int, last: int) -> Ints:
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
        """Say what stands where the chain stopped: ("more" | "blank" | "entry" | "damage", reason).

        "entry": a DLedger entry that wraps no record.
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
        if magic != dledger.ENTRY_MAGICS[0] and self._is_sound_entry(position):
            return "entry", None
        return self._judge_size(position, size)

    def _is_sound_entry(self, position: int) -> bool:
        """Whether a no-op or configuration entry, which wraps no record, fits its own head."""
        at = self._need(position, ENTRY_HEAD)
        own = int(self.int64[at + _ENTRY_POSITION]) == self.base + position
        return own and int(self.int32[at + _ENTRY_BODY_SIZE]) == self._entry_size(position) - ENTRY_HEAD

    def _entry_size(self, position: int) -> int:
        return int(self.int32[self._need(position, ENTRY_HEAD) + _ENTRY_SIZE])

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
        before = _middle(self.last_times) if self.last_times else self.search.timestamp_before(position)
        times: list[int] = []
        while len(times) < _FEW_TIMES and (record := self.search.read_record(position + self.lead)) is not None:
            times.append(int(record.field("store_timestamp")[0]))
            position += self.lead + int(record.total_size[0])
        return bool(times) and before is not None and before - _middle(times) > _OLDER_MS


def _middle(times: Sequence[int]) -> int:
    return sorted(times)[len(times) // 2]

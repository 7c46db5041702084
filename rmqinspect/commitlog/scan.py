r"""Commit-log bytes → the records of the chain, and the gaps between them.

A segment is a chain: each record ends where the next begins, until a blank record or zeros. Where a
record is damaged the chain breaks, and goes on at the next record that proves itself:

    |rec|rec|rec|rec|??????????|rec|rec|rec|blank......|   segment
     \_____run_____/\___gap____/\___run___/\__filler___/    events of `scan_split`
                    ^          ^           ^
              the chain stops  |           StopJudge: the segment ends
              StopJudge: damage|
                               ChainFinder: a record at its own offset, with a good body CRC

A split is a part of a segment, scanned on its own. Its records are those that start in it, so it reads
past its end to finish the last one, and walks up to its start from a record before it:

           look back             split                read on
    ...|rec|rec|rec|re|c|rec|rec|rec|rec|rec|rec|re|c|...
            ^ walked    ^ entry                   ^ exit

Invariants:
- every byte of a split belongs to a record or to exactly one gap, and events ascend;
- the splits of a segment, each entered where the one before it ended, give what one reader gives:
  `redo_where_borders_differ` repeats the rare split that looked back and saw something else;
- a record is proved by its lengths in the chain, behind a gap also by its own offset and its CRC; other
  damaged fields break no chain and are left to the callers;
- memory is bounded by the window and the largest sound record, never by what a size claims.

A part of a segment in memory, and the records that the chain leads to in it.

    segment   |------------------------------------------------|  positions
                        start              start + filled
    window              |#####################|·····|              indexes 0 .. filled, then SLACK

The buffer is reused: whatever was made from one window is valid until the next `load`.

Invariants: `bytes[i]` is the byte at position `start + i` for 0 <= i < `filled`; behind `filled` there
are at least SLACK bytes of any value, so that a whole head can be read from any index; what could not
be read is zeros, and the reader has noted it.

Judging where the chain stopped: the segment's end, the window's end, or damage.

Asked for a position at which no sound record begins in the window. Most often the window ended in the
middle of a record; then it is loaded again from there, and the walk goes on.

Records of an earlier life of a file: whole, in their place, and behind the log's end.

A broker that starts after a crash cuts the log at the last record it trusts, but erases nothing. What
stood behind the cut stays there until new records reach it:

    |new|new|new|new|zeros or a torn record|old|old|old|...

Such records prove themselves like any other. Their store times give them away: older than those of the
records before the gap. Source: MappedFileQueue#truncateDirtyFiles.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect import loops
from rmqinspect.codec.arrays import Ints, lazy
from rmqinspect.commitlog.find_record import ChainFinder, LenientReader, Unread, is_possible_time
from rmqinspect.commitlog.gaps import BRIDGED, SEGMENT_START, Borders, Gap, ScanState, Split, describe_gap
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.record_rows import COLUMNS, SLACK
from rmqinspect.loops.records import first_bridge, follow
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader, open_file

# Records of a batch at most: their rows take 200 bytes each.
BATCH_RECORDS = 16384
# Bytes read at first at a segment's start; each read is four times the last. It may be a hole behind its first records.
_FIRST_READ = 256 << 10
_GROWTH = 4
_BEHIND = 64 << 10  # bytes read behind the limit
_SMALLEST = 100  # bytes of a record, roughly: a small window needs few rows


class Window:
    """Reads a segment through one buffer. Positions are bytes from the segment's start, indexes from the window's."""

    def __init__(self, reader: LenientReader, size: int, limit: int) -> None:
        """Take up to `size` bytes at a time; behind position `limit` only a few, to finish the last record."""
        self.reader = reader
        self._limit = limit
        self._step = 0  # bytes to read next
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        self.capacity = size
        self.bytes = np.empty(size + SLACK, np.uint8)
        self.raw = self.bytes.data
        self.start = self.filled = 0

    @property
    def physical_offset(self) -> int:
        """Physical offset of the window's first byte."""
        return self.reader.base + self.start

    def load(self, position: int, least: int = _BEHIND) -> None:
        """Fill the window from a position on, with at least so many bytes if it and the file have them."""
        self.start = position
        first = _FIRST_READ if position < _FIRST_READ else self.capacity
        self._step = min(self._step * _GROWTH or first, self.capacity)
        wanted = max(min(self._step, self._limit - position), least)
        self.filled = max(0, min(self.capacity, self.reader.size - position, wanted))
        self.reader.fill(self.raw[: self.filled], position)

    def holds(self, position: int, size: int) -> bool:
        """Whether bytes [position, position + size) are in the window."""
        return self.start <= position and position + size <= self.start + self.filled

    def need(self, position: int, size: int) -> int:
        """Return the index of a position, having loaded `size` bytes from it, or all up to the file's end.

        A buffer that is too small is replaced.
        """
        if not self.holds(position, min(size, self.reader.size - position)):
            if size > self.capacity:
                self._allocate(size)
            self.load(position, size)
        return position - self.start

    def next_batch(self, position: int) -> Records:
        """Return records of the chain from a position on, at least one unless what stands there is not sound.

        They are proved by magic, size and lengths; of a DLedger file also by the sizes of their entries.
        """
        records = self._follow(position)
        if not len(records) and self.start != position:
            self.load(position)
            records = self._follow(position)
        return records

    def _follow(self, position: int) -> Records:
        left = max(0, self.start + self.filled - position) if position >= self.start else 0
        rows = np.empty((min(left // _SMALLEST + 1, BATCH_RECORDS), len(COLUMNS)), np.int64)
        found = follow(self.bytes, position - self.start, self.filled, self.reader.lead, rows) if left else 0
        return Records(self.raw, self.physical_offset, rows[:found])


_BLANK_SIZE = message.Blank.sizeof()
_SIZE, _MAGIC, _OWN_OFFSET = (
    place_of(message.HEADS[False, False], name) for name in ("total_size", "magic", "physical_offset")
)
_ENTRY_MAGIC, _ENTRY_SIZE, _ENTRY_BODY_SIZE, _ENTRY_POSITION = (
    place_of(dledger.EntryHead, name) for name in ("magic", "size", "body_size", "position")
)


class ChainStop(NamedTuple):
    """What stands where the chain stopped."""

    kind: Literal["more", "blank", "entry", "damage"]
    reason: str | None = None  # a key of `gaps.REASONS`; of a blank record None if its size is right
    end: int = 0  # of an entry: position behind it


# The window ended here, or in the middle of a plausible record; now it begins here.
_MORE = ChainStop("more")


class StopJudge:
    """Judges positions of one segment, through the window of its scan."""

    def __init__(self, window: Window, finder: ChainFinder, window_size: int) -> None:
        self._window = window
        self._finder = finder
        self._window_size = window_size
        self._base, self._size, self._lead = window.reader.base, window.reader.size, window.reader.lead

    def judge(self, position: int) -> ChainStop:
        """Return what stands at a position. May load the window again."""
        left = self._size - position
        if left < _BLANK_SIZE:
            return ChainStop("damage", "short")
        if not self._window.holds(position, _BLANK_SIZE):
            self._window.load(position)
            return _MORE
        return self._judge_entry(position, left) if self._lead else self._judge_record(position, left)

    def _judge_record(self, position: int, left: int) -> ChainStop:
        at = position - self._window.start
        size, magic = self._int(at + _SIZE), self._int(at + _MAGIC)
        if magic == message.MAGIC_BLANK:
            return self._judge_blank(position, size == left)
        if magic not in message.RECORD_MAGICS:
            return ChainStop("damage", "zero" if magic == 0 else "magic")
        if size < message.FIXED_SIZE:
            return ChainStop("damage", "size")
        if size > left:
            in_place = self._int(at + _OWN_OFFSET, 8) == self._base + position
            return ChainStop("damage", "cut" if in_place else "size")
        return self._judge_size(position, size)

    def _judge_entry(self, position: int, left: int) -> ChainStop:
        at = position - self._window.start
        magic, size = self._int(at + _ENTRY_MAGIC), self._int(at + _ENTRY_SIZE)
        if magic == dledger.ENTRY_MAGIC_BLANK:
            return self._judge_blank(position, size == left)
        if magic == 0:
            return ChainStop("damage", "zero")
        if magic not in dledger.ENTRY_MAGICS or not self._lead <= size <= left:
            return ChainStop("damage", "entry")
        if magic != dledger.ENTRY_MAGICS[0] and self._wraps_no_record(position, size):
            return ChainStop("entry", end=position + size)
        return self._judge_size(position, size)

    def _judge_blank(self, position: int, has_right_size: bool) -> ChainStop:
        """Tell a blank record, which ends a segment, from a record or entry whose magic became that of one.

        Brokers write the number of bytes left as its size (CommitLog.DefaultAppendMessageCallback#doAppend). One of
        another size ends the segment if no record's head stands here in its own place, and nothing proves itself
        behind it; their padding may hold old records, but of other places.
        """
        if has_right_size:
            return ChainStop("blank")
        at = self._window.need(position, min(self._lead + _OWN_OFFSET + 8, self._size - position))
        end = self._base + self._size
        is_record = self._int(at + self._lead + _OWN_OFFSET, 8) == self._base + self._lead + position
        if is_record or self._finder.find_next(self._base + position + 1, end) < end:
            return ChainStop("damage", "blank_size")
        return ChainStop("blank", "blank_size")

    def _wraps_no_record(self, position: int, size: int) -> bool:
        """Whether a no-op or a configuration change stands here, whole by its own head."""
        at = self._window.need(position, self._lead)
        in_place = self._int(at + _ENTRY_POSITION, 8) == self._base + position
        return in_place and self._int(at + _ENTRY_BODY_SIZE) == size - self._lead

    def _judge_size(self, position: int, size: int) -> ChainStop:
        """Decide between a record that the window cut and one whose lengths disagree."""
        # Larger than a window is believed only when its own lengths lead to the same end.
        if not self._window.holds(position, size) and (
            size <= self._window_size
            or self._finder.frame_at(self._base + position + self._lead, anywhere=True) is not None
        ):
            self._window.need(position, size)
            return _MORE
        return ChainStop("damage", "entry" if self._lead else "length")

    def _int(self, at: int, size: int = 4) -> int:
        return int.from_bytes(self._window.raw[at : at + size], "big", signed=True)


# The median of a few times, and more than a clock is set back now and then: one damaged time, or a
# step of the clock, makes no earlier life.
_FEW_TIMES = 3
_OLDER_MS = 1000


class LastTimes:
    """The store times (ms) of the last records of this life, as the scan meets them, also across gaps."""

    def __init__(self, finder: ChainFinder, start: int, last: tuple[int, ...]) -> None:
        """`last`: those before the physical offset `start`, as far as they are known."""
        self._finder, self._start = finder, start
        self._lacking = _FEW_TIMES - len(last)
        self.last = last

    @lazy
    def _earlier(self) -> list[int]:
        """The times before the walk began that are not known: searched for once, at its first gap."""
        return self._finder.timestamps_before(self._start, self._lacking)

    def take(self, times: Ints) -> None:
        """Take the times of a run of records."""
        self.last = (*self.last, *filter(is_possible_time, times[-_FEW_TIMES:].tolist()))[-_FEW_TIMES:]

    def is_stale(self, physical_offset: int) -> bool:
        """Whether the records from an offset on, found behind a gap, are older than those before the gap."""
        before = [*self._earlier, *self.last][-_FEW_TIMES:]
        times = self._finder.timestamps_from(physical_offset, _FEW_TIMES)
        return bool(times) and bool(before) and _median(before) - _median(times) > _OLDER_MS


def _median(times: Sequence[int]) -> int:
    return sorted(times)[len(times) // 2]


Result = TypeVar("Result")

# Bytes per read: larger ones were no faster, smaller ones leave threads waiting for each other's Python.
WINDOW_SIZE = 4 << 20

# A split looks this far back for its first record: the broker's largest record (4 MiB and 64 KiB
# by default) and a neighbour. A larger one costs a search, never an answer.
LOOK_BACK = 6 << 20
LOOK_BACK_FIRST = 256 << 10  # nearly always far enough


class RecordRun(Struct, frozen=True):
    """Consecutive records of the chain in one window, and how the first one was found."""

    records: Records
    carved: bool  # the first record stands behind a gap; the rest follow from it in the chain
    stale: bool  # all of them stand behind a gap and are older than the record before it
    named: bool = False  # one record, whose head is damaged: a queue unit says where it is (`damage.named_record`)


Event = RecordRun | Gap | Unread | Borders


def scan_split(
    split: Split, window_size: int = WINDOW_SIZE, entered: Callable[[ScanState], None] = lambda state: None
) -> Iterator[Event]:
    """Yield the records that start in a split, and its gaps, in order; last its borders.

    A gap is cut at the split's borders: `merge_gaps` joins the parts again. The records of a
    run are valid until the next step of the iterator, which reuses the window. `entered` gets the
    first of the borders before anything is yielded that depends on it.

    :raises Unreadable: the file cannot be opened.
    """
    with open_file(split.segment) as reader:
        loops.expect(min(split.end - split.start, reader.allocated))
        chain = _Chain(reader, split, window_size, entered)
        yield from chain.run()
        yield from chain.reader.take_unread()
        yield Borders(chain.entry or chain.exit, chain.exit)


def walk_to(segment: Segment, start: int, border: int, entry: ScanState | None = None) -> ScanState:
    """Return the state of the scan at `border`: the `entry` of a split that begins there.

    Exact, and costs a walk over all that lies between, from `start` on, where `entry` is the state. For
    splits whose border nobody can repair later (`redo_where_borders_differ`).

    :raises Unreadable: the file cannot be opened.
    """
    exits = [event.exit for event in scan_split(Split(segment, start, border, entry)) if isinstance(event, Borders)]
    return exits[-1]


def redo_where_borders_differ(
    results: Iterable[Result],
    split_of: Callable[[Result], Split],
    borders_of: Callable[[Result], Borders | None],
    again: Callable[[Split], Result],
) -> Generator[Result, None, None]:
    """Yield the results of splits in order, each computed from where the one before it ended.

    A result whose split was entered where the one before it ended goes through; any other is computed
    `again` from the known border. Of the borders, the entry is looked at before a result goes through,
    the exit afterwards: a result may be computed while it is used.
    """
    expected: ScanState | None = None
    for result in results:
        split, borders = split_of(result), borders_of(result)
        if split.start == 0:
            expected = SEGMENT_START
        if borders is not None and expected is not None and borders.entry != expected:
            result = again(replace(split, entry=expected))
        yield result
        borders = borders_of(result)
        expected = borders.exit if borders is not None else None


class _Chain:
    """The walk over one split. Positions are bytes from the segment's start."""

    def __init__(self, file: FileReader, split: Split, window_size: int, entered: Callable[[ScanState], None]) -> None:
        self.reader = LenientReader(file, split.segment)
        self.base, self.lead = self.reader.base, self.reader.lead
        self.begin, self.end = split.start, min(split.end, self.reader.size)
        self.window = Window(self.reader, min(window_size, max(self.reader.size, 1)), self.end)
        self.finder = ChainFinder(self.reader)
        self.stops = StopJudge(self.window, self.finder, window_size)
        self.carved = False  # a gap lies between the last record and here
        self.entry: ScanState | None = None
        self._entered = entered
        if split.entry is not None:
            self._note_entry(split.entry)
        self.exit = ScanState(self.end)
        self.times = LastTimes(self.finder, self.base + self.begin, ())

    def run(self) -> Iterator[RecordRun | Gap | Unread]:
        """Yield what starts in the split; without a known entry, walk up to it from a little before."""
        state = self.entry if self.entry is not None else self._look_back()
        self.times = LastTimes(self.finder, self.base + state.position, state.last_times)
        if state.closed:
            yield Gap(self.base + self.begin, self.base + self.end, "filler", None)
        while state.position < self.end and not state.closed:
            if state.position >= self.begin:
                self._note_entry(state)
            state = yield from self._step(state)
        self._note_entry(state)
        self.exit = dataclasses.replace(state, last_times=self.times.last)

    def _step(self, state: ScanState) -> Generator[RecordRun | Gap | Unread, None, ScanState]:
        """Yield what begins at the state's position: a run of records, or a gap. Return what follows it."""
        if state.in_gap:
            return (yield from self._cross_gap(state.position, state.position, None))
        records = self.window.next_batch(state.position)
        yield from self.reader.take_unread()
        if len(records):
            return (yield from self._take(records, state))
        state = yield from self._take_stop(state)
        yield from self.reader.take_unread()
        return state

    def _take(self, records: Records, state: ScanState) -> Generator[RecordRun | Gap, None, ScanState]:
        """Yield those of a batch that start in the split."""
        shift, starts = self.window.start - self.lead, records.starts
        first, last = 0, len(records)
        if int(starts[0]) + shift < self.begin or int(starts[-1]) + shift >= self.end:
            first, last = np.searchsorted(starts, (self.begin - shift, self.end - shift)).tolist()
        if first < last:
            self._note_entry(dataclasses.replace(state, position=int(starts[first]) + shift))
            inside = records if last - first == len(records) else records.select(slice(first, last))
            yield from self._without_bridges(inside, RecordRun(inside, self.carved and first == 0, state.stale))
        if not state.stale:
            # Of the records before the border only: the next split knows the others itself.
            self.times.take(records.field("store_timestamp")[:last])
        self.carved = False
        end = self.window.start + int(records.ends[-1])
        return dataclasses.replace(state, position=int(starts[last]) + shift if last < len(records) else end)

    def _without_bridges(self, records: Records, run: RecordRun) -> Iterator[RecordRun | Gap]:
        """Yield a run, but fillers in the place of the bridges in it."""
        at, bridge = 0, first_bridge(records.rows, 0)
        if bridge == len(records):
            yield run
            return
        while at < len(records):
            if at < bridge:
                yield replace(run, records=records.select(slice(at, bridge)), carved=run.carved and at == 0)
            at = bridge
            while at < len(records) and first_bridge(records.rows[at : at + 1], 0) == 0:
                at += 1
            if bridge < at:
                start, end = records.starts[bridge] - self.lead, records.ends[at - 1]
                yield Gap(records.base + int(start), records.base + int(end), "filler", BRIDGED)
            bridge = first_bridge(records.rows, at)

    def _take_stop(self, state: ScanState) -> Generator[Gap, None, ScanState]:
        """Yield the gap that begins where the chain stopped, if one does."""
        stop = self.stops.judge(state.position)
        if stop.kind == "blank":
            yield Gap(self.base + max(state.position, self.begin), self.base + self.end, "filler", stop.reason)
            closed = ScanState(self.end, closed=True)
            self._note_entry(dataclasses.replace(closed, position=self.begin))
            return closed
        if stop.kind == "entry":
            if state.position >= self.begin:
                yield Gap(self.base + state.position, self.base + stop.end, "filler", None)
            return dataclasses.replace(state, position=stop.end)
        if stop.kind == "damage":
            return (yield from self._cross_gap(state.position, state.position + 1, stop.reason))
        return state

    def _cross_gap(self, gap: int, search_from: int, reason: str | None) -> Generator[Gap, None, ScanState]:
        """Yield the gap that begins at `gap`, as far as it is the split's; return what follows it."""
        self.carved = True
        found = self.finder.find_next(self.base + search_from, self.base + self.end) - self.base
        if gap < self.begin <= found:
            self._note_entry(ScanState(self.begin, in_gap=True))
        if self.begin < found:
            yield from describe_gap(self.reader, max(gap, self.begin), found, reason)
        if found >= self.end:
            return ScanState(self.end, in_gap=True)
        return ScanState(found, stale=self.times.is_stale(self.base + found))

    def _look_back(self) -> ScanState:
        """Return a state before the split: at a record that proves itself, from where the walk leads to its start."""
        for distance in (LOOK_BACK_FIRST, LOOK_BACK):
            position = self.begin - distance
            if position <= 0:
                return SEGMENT_START
            found = self.finder.find_next(self.base + position, self.base + self.begin) - self.base
            if found < self.begin:
                return ScanState(found)
        return ScanState(self.begin, in_gap=True)

    def _note_entry(self, state: ScanState) -> None:
        if self.entry is None:
            self.entry = state
            self._entered(state)

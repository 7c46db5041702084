"""Commit-log bytes → the records of the chain, and the gaps between them.

A segment is a chain: each record ends where the next begins, until a blank record or zeros. Where a
record is damaged the chain breaks, and goes on at the next record that proves itself:

    |rec|rec|rec|rec|??????????|rec|rec|rec|blank......|   segment
     \\_____run_____/\\___gap____/\\___run___/\\__filler___/    events of `scan_split`
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
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rmqinspect.codec import kernels
from rmqinspect.commitlog.find_record import ChainFinder
from rmqinspect.commitlog.gaps import Gap, describe_gap
from rmqinspect.commitlog.lenient_reader import LenientReader, Unread
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.splits import SEGMENT_START, Borders, ScanState, Split
from rmqinspect.commitlog.stale import LastTimes
from rmqinspect.commitlog.stops import StopJudge
from rmqinspect.commitlog.window import Window
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader, open_file

Result = TypeVar("Result")

# Bytes per read: larger ones were no faster, smaller ones leave threads waiting for each other's Python.
WINDOW_SIZE = 4 << 20

# A split looks this far back for its first record: the broker's largest record (4 MiB and 64 KiB
# by default) and a neighbour. A larger one costs a search, never an answer.
LOOK_BACK = 6 << 20
LOOK_BACK_FIRST = 256 << 10  # nearly always far enough


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records of the chain in one window, and how the first one was found."""

    records: Records
    carved: bool  # the first record stands behind a gap; the rest follow from it in the chain
    stale: bool  # all of them stand behind a gap and are older than the record before it


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
        kernels.expect(min(split.end - split.start, reader.allocated))
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
        self.times = LastTimes(self.finder)
        self.carved = False  # a gap lies between the last record and here
        self.entry: ScanState | None = None
        self._entered = entered
        if split.entry is not None:
            self._note_entry(split.entry)
        self.exit = ScanState(self.end)

    def run(self) -> Iterator[RecordRun | Gap | Unread]:
        """Yield what starts in the split; without a known entry, walk up to it from a little before."""
        state = self.entry if self.entry is not None else self._look_back()
        self.times.last = state.last_times
        if state.closed:
            yield Gap(self.base + self.begin, self.base + self.end, "filler", None)
        while state.position < self.end and not state.closed:
            if state.position >= self.begin:
                self._note_entry(state)
            state = yield from self._step(state)
        self._note_entry(state)
        self.exit = replace(state, last_times=self.times.last)

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

    def _take(self, records: Records, state: ScanState) -> Generator[RecordRun, None, ScanState]:
        """Yield those of a batch that start in the split."""
        shift, starts = self.window.start - self.lead, records.starts
        first, last = 0, len(records)
        if int(starts[0]) + shift < self.begin or int(starts[-1]) + shift >= self.end:
            first, last = np.searchsorted(starts, (self.begin - shift, self.end - shift)).tolist()
        if first < last:
            self._note_entry(replace(state, position=int(starts[first]) + shift))
            inside = records if last - first == len(records) else records.select(slice(first, last))
            yield RecordRun(inside, self.carved and first == 0, state.stale)
        if not state.stale:
            # Of the records before the border only: the next split knows the others itself.
            self.times.take(records.field("store_timestamp")[:last], follows=not self.carved)
        self.carved = False
        end = self.window.start + int(records.ends[-1])
        return replace(state, position=int(starts[last]) + shift if last < len(records) else end)

    def _take_stop(self, state: ScanState) -> Generator[Gap, None, ScanState]:
        """Yield the gap that begins where the chain stopped, if one does."""
        stop = self.stops.judge(state.position)
        if stop.kind == "blank":
            yield Gap(self.base + max(state.position, self.begin), self.base + self.end, "filler", stop.reason)
            closed = ScanState(self.end, closed=True)
            self._note_entry(replace(closed, position=self.begin))
            return closed
        if stop.kind == "entry":
            if state.position >= self.begin:
                yield Gap(self.base + state.position, self.base + stop.end, "filler", None)
            return replace(state, position=stop.end)
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

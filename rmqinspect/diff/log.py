"""Two logs side by side: what each covers, where bytes differ, where each ends.

A slave's log is a copy of its master's, byte by byte at the same physical offsets. So bytes are
compared, window by window, where both logs have a segment, up to where both end. Records are read
only where bytes differ, and where one log goes on without the other: a cell of log that is the same
in both, and that both chains of records enter the same way, holds the same records.

Pairs are (A, B), offsets are physical. Source: HAConnection, HAClient (what a slave writes), core 1.9, aux 12.1.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.lenient_reader import LenientReader, Unread
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.commitlog.splits import Borders, ScanState, Split
from rmqinspect.diff.records import NOTHING, Columns, OnlyIn, RecordDiff, join
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

Range = tuple[int, int]

SIDES = ("A", "B")

WINDOW_SIZE = 2 << 20
# Records are read by cells: small, so that one flipped bit costs little, and larger than the largest
# record of a broker with default settings, so that a look back nearly always ends in the cell before.
CELL_SIZE = 8 << 20
# Bytes that differ and lie at most this far apart are one range: the fields of a record.
JOIN = 64


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


class OneSided(NamedTuple):
    """Physical offsets [start, end) that only one log covers, before the end of the longer one."""

    start: int
    end: int
    side: int  # which log has them
    why: str  # before, hole, behind: where that is in the other log


class Run(NamedTuple):
    """A range [start, end) of physical offsets in which `differing` bytes are not the same."""

    start: int
    end: int
    differing: int


class Runs:
    """The ranges in which bytes differ: the first `limit` of them, and exact totals."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept: list[Run] = []
        self.count = 0
        self.differing = 0
        self.first: int | None = None  # the first byte that differs
        self._last = -JOIN - 1  # the last one

    def add(self, places: Ints) -> None:
        """Take the offsets of bytes that differ, ascending, all behind those taken before."""
        begins = np.flatnonzero(np.diff(places, prepend=self._last) > JOIN)
        borders = [*begins.tolist(), len(places)]
        if borders[0] and len(self.kept) == self.count:  # the last range goes on, and it was kept
            last, goes_on = self.kept.pop(), borders[0]
            self.kept.append(Run(last.start, int(places[goes_on - 1]) + 1, last.differing + goes_on))
        for begin, end in list(pairwise(borders[: self.limit - len(self.kept) + 1])):
            self.kept.append(Run(int(places[begin]), int(places[end - 1]) + 1, end - begin))
        self.count += len(begins)
        self.differing += len(places)
        self.first = int(places[0]) if self.first is None else self.first
        self._last = int(places[-1])


@dataclass(slots=True)
class LogDiff:
    """What two logs have in common and what not."""

    covered: tuple[list[Part], list[Part]]
    runs: Runs
    ends: list[int | None] = field(default_factory=lambda: [None, None])  # None: no record was found
    reach: list[int] = field(default_factory=lambda: [-1, -1])  # the same; without records, where the log begins
    tail: int | None = None  # the log that ends first has bytes up to here that are no record
    one_sided: list[OneSided] = field(default_factory=list)
    compared: list[Range] = field(default_factory=list)  # of these the bytes were compared
    only: tuple[OnlyIn, OnlyIn] = field(default_factory=lambda: (OnlyIn(), OnlyIn()))
    unread: dict[str, None] = field(default_factory=dict)  # one line each; a set that keeps its order
    reached: int | None = None  # up to here the logs were read
    interrupted: bool = False

    @property
    def first(self) -> int | None:
        """The first offset where the logs differ though both cover it, or where one of them ends."""
        ended = min(self.reach) if self.reach[0] != self.reach[1] and min(self.reach) >= 0 else None
        return min((place for place in (self.runs.first, ended) if place is not None), default=None)

    @property
    def compared_bytes(self) -> int:
        """How many bytes of each log were compared."""
        return sum(end - start for start, end in self.compared)

    def ranges(self, side: int) -> list[Range]:
        """Return the ranges that the segments of one log cover, those that touch joined."""
        joined: list[Range] = []
        for part in self.covered[side]:
            _extend(joined, part.start, part.end)
        return joined


def compare_logs(
    stores: tuple[Store, Store],
    limit: int = 10,
    progress: Callable[[int], None] = lambda size: None,
    window_size: int = WINDOW_SIZE,
) -> LogDiff:
    """Compare two logs; `progress` is told how many more bytes were read, `limit` bounds the rows.

    Where loose segments are given, only what they cover is in question. Ctrl-C ends the reading and
    leaves what was found so far.
    """
    a, b = (cover(store.segments) for store in stores)
    covered = (a if stores[1].neighbours else _clip(a, b), b if stores[0].neighbours else _clip(b, a))
    diff = LogDiff(covered, Runs(limit))
    records = RecordDiff(diff.only, limit)
    walk = _Walk(diff, records, progress, window_size)
    try:
        walk.run()
    except KeyboardInterrupt:
        diff.interrupted = True
        if not walk.borders:  # one end is known at most, and nothing to compare it with
            diff.ends, diff.reach = [None, None], [-1, -1]
    records.finish()
    return diff


# --- what the segments cover ----------------------------------------------------------------------


def cover(segments: Iterable[Segment]) -> list[Part]:
    """Return which segment holds which physical offsets, ascending and without overlap.

    A segment that is longer than it should be ends where the next one begins; of two with the same
    base the first counts.
    """
    by_base: dict[int, Segment] = {}
    for segment in segments:
        if segment.size:
            by_base.setdefault(segment.base, segment)
    bases = sorted(by_base)
    nexts = dict(pairwise(bases))
    ends = {base: base + by_base[base].size for base in bases}
    return [Part(base, min(ends[base], nexts.get(base, ends[base])), by_base[base]) for base in bases]


def _clip(parts: list[Part], to: list[Part]) -> list[Part]:
    return [
        Part(piece.start, piece.end, piece.segments[0])
        for piece in pieces((parts, to))
        if piece.segments[0] is not None and piece.segments[1] is not None
    ]


def pieces(covered: tuple[list[Part], list[Part]]) -> Iterator[Piece]:
    """Yield the ranges that at least one log covers, cut where a segment of either begins or ends."""
    starts = [[part.start for part in parts] for parts in covered]
    for start, end in pairwise(sorted({edge for parts in covered for part in parts for edge in part[:2]})):
        found: list[Segment | None] = []
        for parts, begins in zip(covered, starts, strict=True):
            which = bisect_right(begins, start) - 1
            found.append(parts[which].segment if which >= 0 and start < parts[which].end else None)
        if found != [None, None]:
            yield Piece(start, end, (found[0], found[1]))


def _extend(ranges: list[Range], start: int, end: int) -> None:
    """Add a range behind the others, joined with the last one where they touch."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = ranges[-1][0], end
    else:
        ranges.append((start, end))


# --- one walk over both ---------------------------------------------------------------------------


class _File:
    """A segment that is read by windows; what cannot be read is taken as zeros and remembered."""

    def __init__(self, segment: Segment, reader: FileReader) -> None:
        self.base = segment.base
        self.reader = reader
        self.lenient = LenientReader(reader, segment)

    def next_allocated(self, offset: int) -> int:
        return self.base + self.reader.next_allocated(offset - self.base)

    def fill(self, buffer: bytearray, offset: int, size: int) -> bytearray:
        """Return `size` bytes from a physical offset on: in `buffer`, or in a new one where they are fewer."""
        raw = buffer if size == len(buffer) else bytearray(size)
        self.lenient.fill(memoryview(raw), offset - self.base)
        return raw

    def forget_dark(self, differs: Bools, offset: int) -> None:
        """Take away what could not be read: nobody knows whether it differs."""
        position = offset - self.base
        for start, end in reversed(self.lenient.dark):
            if end <= position:
                break
            differs[max(0, start - position) : max(0, end - position)] = False


class _Walk:
    def __init__(self, diff: LogDiff, records: RecordDiff, progress: Callable[[int], None], window_size: int) -> None:
        self.diff = diff
        self.records = records
        self.progress = progress
        self.window_size = window_size
        self.buffers = (bytearray(window_size), bytearray(window_size))
        self.borders: list[int] = []  # where cells are cut besides the grid; the last is the end of the longer log
        self.cut = 0  # bytes behind it are not compared
        # How the chain of each log left the cell before, None where the cell was not walked.
        self.edges: list[ScanState | None] = [None, None]
        self.failed = False  # something could not be read since this was made false

    def run(self) -> None:
        """Compare everything."""
        covered, reach = self.diff.covered, self.diff.reach
        self._find_ends()
        first, last = min(reach), max(reach)
        # Zeros behind the end of one log are room for records, not other bytes than the other log's.
        self.cut = last if first == last else self._last_used(reach.index(first), first, last)
        self.diff.tail = self.cut if first < self.cut and first != last else None
        self.borders = sorted({first, self.cut, last})
        for piece in pieces(covered):
            why, end = self._why(piece), min(piece.end, last)
            if why is not None and piece.start < end:
                self._note_one_sided(piece, end, why)
            if why != "before" and piece.start < end:
                self._compare(piece, end)
                piece = piece._replace(start=end)
            self._tell(piece)

    def _tell(self, piece: Piece) -> None:
        """Tell how much of both logs, or of the one that is there, is done with."""
        self.progress((piece.end - piece.start) * sum(segment is not None for segment in piece.segments))

    def _note(self, side: int, message: str) -> None:
        self.diff.unread[f"{SIDES[side]}: {message}"] = None

    # --- where a log ends -----------------------------------------------------------------------

    def _find_ends(self) -> None:
        """Find how far each log reaches.

        Without any record in either, both reach as far as there are segments: bytes are compared all the
        same. A log whose end could not be read is taken to reach as far as the other one.
        """
        ends, reach = self.diff.ends, self.diff.reach
        unsure = []
        for side, parts in enumerate(self.diff.covered):
            self.failed = False
            ends[side] = self._find_end(side)
            begin = parts[0].start if parts else -1
            reach[side] = begin if ends[side] is None else ends[side] or 0
            unsure += [side] if self.failed else []
        if ends == [None, None]:
            reach[:] = 2 * [max((part.end for parts in self.diff.covered for part in parts), default=-1)]
        for side in unsure:
            reach[side] = max(reach)

    def _find_end(self, side: int) -> int | None:
        """Return where the last record ends, or the blank record behind it; None without any record.

        The last segment with records is walked whole: only so what an earlier life of the file left
        behind the end is told from what belongs to the log.
        """
        for part in reversed(self.diff.covered[side]):
            end: int | None = None
            for event in self._events(side, Split(part.segment, 0, part.segment.size)):
                if isinstance(event, RecordRun) and not event.stale:
                    end = event.records.base + int(event.records.ends[-1])
                elif isinstance(event, Gap) and event.kind == "filler" and event.start == end:
                    end = event.end
            if end is not None:
                return min(end, part.end)
        return None

    def _last_used(self, side: int, low: int, high: int) -> int:
        """Return where the last byte of [low, high) that is not zero ends; `low` if there is none."""
        for part in reversed(self.diff.covered[side]):
            start, end = max(part.start, low), min(part.end, high)
            try:
                with open_file(part.segment) as reader:
                    file = _File(part.segment, reader)
                    while start < end:
                        begin = max(start, end - self.window_size)
                        if file.next_allocated(begin) < end:
                            used = file.fill(self.buffers[0], begin, end - begin).rstrip(b"\0")
                            if used:
                                return begin + len(used)
                        end = begin
            except Unreadable as error:
                self._note(side, str(error))
        return low

    # --- pieces ---------------------------------------------------------------------------------

    def _why(self, piece: Piece) -> str | None:
        """Return why only one log covers a piece: it lies before the other, in a hole of it, behind it."""
        if None not in piece.segments:
            return None
        other = piece.segments.index(None)
        parts = self.diff.covered[other]
        if self.diff.ends[other] is None or piece.start >= parts[-1].end:
            return "behind"
        return "before" if piece.end <= parts[0].start else "hole"

    def _note_one_sided(self, piece: Piece, end: int, why: str) -> None:
        found, side = self.diff.one_sided, 1 - piece.segments.index(None)
        if found and (found[-1].end, found[-1].side, found[-1].why) == (piece.start, side, why):
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(OneSided(piece.start, end, side, why))

    def _compare(self, piece: Piece, end: int) -> None:
        """Compare the bytes of a piece cell by cell, and the records of the cells that differ."""
        self.edges = [None, None]
        with ExitStack() as stack:
            files = self._open(piece, stack)
            offset = piece.start
            while offset < end:
                cell = self._cell(piece, offset)
                differs = bool(files) and cell.start < self.cut and self._compare_bytes(cell, files)
                differs |= bool(files) and begins_or_ends_alone(cell)
                self._compare_cell(piece, cell, differs)
                self._tell(cell)
                self.diff.reached = offset = cell.end

    def _cell(self, piece: Piece, offset: int) -> Piece:
        """Return the cell of a piece that an offset lies in: the piece, cut at the borders and on a grid."""
        grid = offset // CELL_SIZE * CELL_SIZE
        cuts = [piece.start, piece.end, grid, grid + CELL_SIZE, *self.borders]
        return Piece(
            max(cut for cut in cuts if cut <= offset), min(cut for cut in cuts if cut > offset), piece.segments
        )

    def _open(self, piece: Piece, stack: ExitStack) -> list[_File]:
        """Return the files of both logs, none where only one has a segment that can be opened."""
        files = []
        for side, segment in enumerate(piece.segments):
            if segment is None:
                return []
            try:
                files.append(_File(segment, stack.enter_context(open_file(segment))))
            except Unreadable as error:
                self._note(side, str(error))
                return []
        return files

    def _compare_bytes(self, cell: Piece, files: list[_File]) -> bool:
        """Note where the bytes of a cell differ; tell whether any do."""
        position, before = cell.start, self.diff.runs.differing
        while position < cell.end:
            # What is a hole in both files is zeros in both.
            position = max(position, min(file.next_allocated(position) for file in files))
            size = min(self.window_size, cell.end - position)
            if size <= 0:
                break
            a, b = (file.fill(buffer, position, size) for file, buffer in zip(files, self.buffers, strict=True))
            if a != b:
                differs = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
                for file in files:
                    file.forget_dark(differs, position)
                places = np.flatnonzero(differs)
                if len(places):
                    self.diff.runs.add(places + position)
            position += size
        _extend(self.diff.compared, cell.start, cell.end)
        for side, file in enumerate(files):
            for unread in file.lenient.take_unread():
                self._note(side, unread.message)
        return self.diff.runs.differing > before

    # --- records --------------------------------------------------------------------------------

    def _compare_cell(self, piece: Piece, cell: Piece, differs: bool) -> None:
        """Compare the records of a cell, unless they are known to be the same."""
        sides = [side for side in (0, 1) if cell.segments[side] and cell.start < self.diff.reach[side]]
        if len(sides) == 1:
            self._compare_records(cell, sides)
        elif len(sides) == 2 and (differs or self._entered_differently(cell)):
            if self.edges == [None, None]:
                for earlier in self._cells_before(piece, cell):
                    self._compare_records(earlier, sides)
            self._compare_records(cell, sides)
        else:
            self.edges = [None, None]

    def _entered_differently(self, cell: Piece) -> bool:
        a, b = (_absolute(edge, segment) for edge, segment in zip(self.edges, cell.segments, strict=True))
        return a is not None and b is not None and a != b

    def _cells_before(self, piece: Piece, cell: Piece) -> list[Piece]:
        """Return the cells before one in which a record may begin that reaches into it."""
        before: list[Piece] = []
        while cell.start > piece.start:
            cell = self._cell(piece, cell.start - 1)
            before.insert(0, cell)
            if not any(_is_spanned(self._walk(cell, side, None)[1], cell.end, cell.segments[side]) for side in (0, 1)):
                break
        return before

    def _compare_records(self, cell: Piece, sides: list[int]) -> None:
        """Note which records of a cell only one log has; a log that is not in `sides` has none."""
        columns, self.failed = [NOTHING, NOTHING], False
        for side in sides:
            columns[side], borders = self._walk(cell, side, self.edges[side])
            self.edges[side] = borders.exit if borders is not None else None
        if len(sides) == 2 and self.failed:
            return  # what could not be read is not missing
        for side in sides:
            self.records.add(side, columns[side], columns[1 - side], self._why_only(cell, 1 - side))

    def _why_only(self, cell: Piece, other: int) -> str:
        if cell.start >= self.diff.reach[other]:
            return "behind"
        return "hole" if cell.segments[other] is None else "other"

    def _walk(self, cell: Piece, side: int, entry: ScanState | None) -> tuple[Columns, Borders | None]:
        """Return the records that begin in a cell of one log, and its borders if it could be read."""
        segment = cell.segments[side]
        assert segment is not None
        found: list[Columns] = []
        borders = None
        for event in self._events(side, Split(segment, cell.start - segment.base, cell.end - segment.base, entry)):
            if isinstance(event, RecordRun):
                found += self.records.columns(event.records, self.diff.reach[side])
            elif isinstance(event, Borders):
                borders = event
        return join(found), borders

    def _events(self, side: int, split: Split) -> Iterator[RecordRun | Gap | Borders]:
        """Yield what the scan of a split tells; what could not be read is noted."""
        try:
            for event in scan_split(split, self.window_size):
                if isinstance(event, Unread):
                    self.failed = True
                    self._note(side, event.message)
                else:
                    yield event
        except Unreadable as error:
            self.failed = True
            self._note(side, str(error))


def begins_or_ends_alone(cell: Piece) -> bool:
    """Whether a segment begins or ends at a cell's border in one log only, which may cut a record there."""
    a, b = cell.segments
    if a is None or b is None:
        return False
    ends = (a.base + a.size, b.base + b.size)
    return (a.base != b.base and cell.start in (a.base, b.base)) or (ends[0] != ends[1] and cell.end in ends)


def _absolute(edge: ScanState | None, segment: Segment | None) -> tuple[int, bool, bool, bool] | None:
    """Return an edge as both logs would tell it: with a physical offset."""
    if edge is None or segment is None:
        return None
    return segment.base + edge.position, edge.in_gap, edge.stale, edge.closed


def _is_spanned(borders: Borders | None, end: int, segment: Segment | None) -> bool:
    """Whether nothing begins before `end` because a record reaches to it from further before."""
    if borders is None or segment is None or borders.entry.in_gap or borders.entry.closed:
        return False
    return borders.entry.position >= end - segment.base

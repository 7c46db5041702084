"""Two logs side by side: bytes, ends, and the records that only one of them has.

A slave's log is a copy of its master's: the same bytes at the same physical offsets. So bytes are compared first, and
records are scanned only where that is not enough.

    A         |--- seg ---|--- seg ---|           |--- seg ---|
    B                     |--- seg ---|--- seg ---|--- seg ---|
    pieces    |  A only   |   both    |  B only   |   both    |     each log has one segment, or none
    cells     |   :   :   |:   :   :  | :   :   : |   :   :   |     parts of pieces, cut at the same lines for both

    A   |....................................|.........x..........|......  end of A
    B   |....................................|....................|..............  end of B
        |    cell: equal, entered alike      |  cell: bytes       |  cell: one log
        |    -> the same records             |  differ -> scan    |  goes on -> scan
                                             |<- scan earlier cells while a record
                                                 may reach into the one that differs

Steps: find both ends; cut what the logs cover into pieces; compare the bytes of each cell in windows, and its records
if bytes differ, if the scans entered it in different states, or if only one log goes on there.

Invariants:
- Equal bytes entered in the same state hold the same records, so an equal cell needs no scan.
- Zeros behind the end of the shorter log are unused space, not a difference; other bytes there are (`tail`).
- Unreadable bytes are reported and never count as different, nor their records as missing.
- The result does not depend on the sizes of cells and windows. Memory is bounded by windows and the limit on rows.

Ranges are half-open; offsets are physical. Pairs and lists of two are (A, B).

Source: HAConnection, HAClient (what a slave writes).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from rmqinspect.commitlog.find_record import LenientReader, Unread
from rmqinspect.commitlog.gaps import Borders, Gap, ScanState, Split
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.diff.log_diff import (
    NOTHING,
    ByteRuns,
    Columns,
    LogDiff,
    OneSided,
    Part,
    Piece,
    RecordDiff,
    cover,
    extend,
    pieces,
)
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

WINDOW_SIZE = 2 << 20
# Small, so that a flipped bit costs little; larger than the largest record with a broker's default settings, so that
# looking back for the start of a record nearly always ends in the cell before.
CELL_SIZE = 8 << 20


# --- the comparison -------------------------------------------------------------------------------


def compare_logs(
    stores: tuple[Store, Store],
    limit: int = 10,
    progress: Callable[[int], None] = lambda size: None,
    *,
    window_size: int = WINDOW_SIZE,
    cell_size: int = CELL_SIZE,
) -> LogDiff:
    """Compare two logs. `progress` gets the bytes read since its last call; `limit` bounds the rows of each kind.

    Of loose segments only what both cover is compared. Ctrl-C ends the comparison and keeps what was found.
    """
    a, b = (cover(store.segments) for store in stores)
    both = [piece for piece in pieces((a, b)) if None not in piece.segments]
    if not stores[1].neighbours:
        a = [Part(piece.start, piece.end, segment) for piece in both if (segment := piece.segments[0])]
    if not stores[0].neighbours:
        b = [Part(piece.start, piece.end, segment) for piece in both if (segment := piece.segments[1])]
    diff = LogDiff((a, b), ByteRuns(limit))
    records = RecordDiff(diff.only, limit)
    comparison = _Comparison(diff, records, progress, window_size, cell_size)
    try:
        comparison.run()
    except KeyboardInterrupt:
        diff.interrupted = True
        if not comparison.ends_known:
            diff.ends, diff.reach = [None, None], [-1, -1]
    records.finish()
    return diff


class _Bytes:
    """The bytes of one segment, by physical offsets."""

    def __init__(self, segment: Segment, reader: FileReader) -> None:
        self.base = segment.base
        self.reader = reader
        self.lenient = LenientReader(reader, segment)

    def next_allocated(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in a hole of a sparse file."""
        return self.base + self.reader.next_allocated(offset - self.base)

    def fill(self, buffer: bytearray, offset: int, size: int) -> bytearray:
        """Return `size` bytes from `offset` on, in `buffer` if it has that size, else in a new one."""
        content = buffer if size == len(buffer) else bytearray(size)
        self.lenient.fill(memoryview(content), offset - self.base)
        return content


class _Log:
    """One of the two logs. What of it cannot be read counts as zeros and is noted, never as a difference."""

    def __init__(self, side: int, diff: LogDiff, window_size: int) -> None:
        self.side = side
        self.parts = diff.covered[side]
        self.window_size = window_size
        self.failed = False  # set when something could not be scanned; callers reset it
        self.state: ScanState | None = None  # in which the scan left the last cell; None: that was not scanned
        self._unread = diff.unread

    def note(self, message: str) -> None:
        """Add a message about this log."""
        self._unread[self.side, message] = None

    def events(self, split: Split) -> Iterator[RecordRun | Gap | Borders]:
        """Yield the events of a scan; what could not be read is noted."""
        try:
            for event in scan_split(split, self.window_size):
                if isinstance(event, Unread):
                    self.failed = True
                    self.note(event.message)
                else:
                    yield event
        except Unreadable as error:
            self.failed = True
            self.note(str(error))

    def find_end(self) -> int | None:
        """Return the end of the last record, or of the blank record behind it; None without any record.

        The last segment with records is scanned completely: only then are records of an earlier life of the file,
        which may follow the end, told from records of the log.
        """
        for part in reversed(self.parts):
            end: int | None = None
            for event in self.events(Split(part.segment, 0, part.segment.size)):
                if isinstance(event, RecordRun) and not event.stale:
                    end = event.records.base + int(event.records.ends[-1])
                elif isinstance(event, Gap) and event.kind == "filler" and event.start == end:
                    end = event.end
            if end is not None:
                return min(end, part.end)
        return None

    def last_used(self, low: int, high: int) -> int:
        """Return the end of the last byte in [low, high) that is not zero; `low` if all are."""
        buffer = bytearray(self.window_size)
        for part in reversed(self.parts):
            start, end = max(part.start, low), min(part.end, high)
            try:
                with open_file(part.segment) as opened:
                    segment = _Bytes(part.segment, opened)
                    while start < end:
                        begin = max(start, end - self.window_size)
                        if segment.next_allocated(begin) < end:
                            used = segment.fill(buffer, begin, end - begin).rstrip(b"\0")
                            if used:
                                return begin + len(used)
                        end = begin
            except Unreadable as error:
                self.note(str(error))
        return low


class _Comparison:
    """One pass over both logs, piece by piece and cell by cell."""

    def __init__(
        self, diff: LogDiff, records: RecordDiff, progress: Callable[[int], None], window_size: int, cell_size: int
    ) -> None:
        self.ends_known = False
        self._diff = diff
        self._records = records
        self._progress = progress
        self._cell_size = cell_size
        self._logs = _Log(0, diff, window_size), _Log(1, diff, window_size)
        self._buffers = bytearray(window_size), bytearray(window_size)
        self._cut = 0  # bytes from here on are not compared

    def run(self) -> None:
        """Compare everything."""
        reach = self._diff.reach
        self._find_ends()
        first, last = min(reach), max(reach)
        self._cut = last if first == last else self._logs[reach.index(first)].last_used(first, last)
        self._diff.tail = self._cut if first < self._cut and first != last else None
        self.ends_known = True
        for piece in pieces(self._diff.covered):
            why, end = self._why_one_sided(piece), min(piece.end, last)
            if why is not None and piece.start < end:
                self._note_one_sided(piece, end, why)
            if why != "before" and piece.start < end:
                self._compare(piece, end)
                piece = piece._replace(start=end)
            self._report_progress(piece)

    def _find_ends(self) -> None:
        """Find `ends` and `reach` of both logs.

        Without a record in either, both reach to their last segment, so bytes are compared all the same. A log whose
        end could not be read is taken to reach as far as the other one.
        """
        ends, reach = self._diff.ends, self._diff.reach
        for log in self._logs:
            end = ends[log.side] = log.find_end()
            reach[log.side] = end if end is not None else log.parts[0].start if log.parts else -1
        if ends == [None, None]:
            reach[:] = 2 * [max((part.end for log in self._logs for part in log.parts), default=-1)]
        for log in self._logs:
            if log.failed:
                reach[log.side] = max(reach)

    def _report_progress(self, piece: Piece) -> None:
        self._progress((piece.end - piece.start) * sum(segment is not None for segment in piece.segments))

    def _why_one_sided(self, piece: Piece) -> str | None:
        """Return where a piece lies in the log that does not cover it; None if both do."""
        if None not in piece.segments:
            return None
        other = piece.segments.index(None)
        parts = self._diff.covered[other]
        if self._diff.ends[other] is None or piece.start >= parts[-1].end:
            return "behind"
        return "before" if piece.end <= parts[0].start else "hole"

    def _note_one_sided(self, piece: Piece, end: int, why: str) -> None:
        found, side = self._diff.one_sided, 1 - piece.segments.index(None)
        if found and (found[-1].end, found[-1].side, found[-1].why) == (piece.start, side, why):
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(OneSided(piece.start, end, side, why))

    def _compare(self, piece: Piece, end: int) -> None:
        """Compare the bytes of a piece cell by cell, and the records where needed."""
        for log in self._logs:
            log.state = None
        with ExitStack() as stack:
            segments = self._open_both(piece, stack)
            offset = piece.start
            while offset < end:
                cell = self._cell_at(piece, offset)
                differs = bool(segments) and cell.start < self._cut and self._compare_bytes(cell, segments)
                differs |= bool(segments) and cell.is_cut_by_one_segment
                self._compare_records(piece, cell, differs)
                self._report_progress(cell)
                self._diff.reached = offset = cell.end

    def _cell_at(self, piece: Piece, offset: int) -> Piece:
        """Return the cell of a piece that holds an offset."""
        line = offset // self._cell_size * self._cell_size
        cuts = [piece.start, piece.end, line, line + self._cell_size, *self._diff.reach, self._cut]
        return piece._replace(
            start=max(cut for cut in cuts if cut <= offset), end=min(cut for cut in cuts if cut > offset)
        )

    # --- bytes ----------------------------------------------------------------------------------

    def _open_both(self, piece: Piece, stack: ExitStack) -> list[_Bytes]:
        """Open the segments of both logs; return [] where only one log has one that can be opened."""
        found = []
        for log, segment in zip(self._logs, piece.segments, strict=True):
            if segment is None:
                return []
            try:
                found.append(_Bytes(segment, stack.enter_context(open_file(segment))))
            except Unreadable as error:
                log.note(str(error))
                return []
        return found

    def _compare_bytes(self, cell: Piece, segments: list[_Bytes]) -> bool:
        """Note where the bytes of a cell differ; return whether any do."""
        offset, before = cell.start, self._diff.runs.differing
        while offset < cell.end:
            # What is a hole in both files is zeros in both.
            offset = max(offset, min(segment.next_allocated(offset) for segment in segments))
            size = min(len(self._buffers[0]), cell.end - offset)
            if size <= 0:
                break
            a, b = (segment.fill(buffer, offset, size) for segment, buffer in zip(segments, self._buffers, strict=True))
            if a != b:
                differs = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
                for segment in segments:
                    for start, end in segment.lenient.dark:
                        first, last = (segment.base + position - offset for position in (start, end))
                        differs[max(0, first) : max(0, last)] = False
                positions = np.flatnonzero(differs)
                if len(positions):
                    self._diff.runs.add(positions + offset)
            offset += size
        extend(self._diff.compared, cell.start, cell.end)
        for log, segment in zip(self._logs, segments, strict=True):
            for unread in segment.lenient.take_unread():
                log.note(unread.message)
        return self._diff.runs.differing > before

    # --- records --------------------------------------------------------------------------------

    def _compare_records(self, piece: Piece, cell: Piece, differs: bool) -> None:
        """Compare the records of a cell, unless they are known to be the same."""
        logs = [log for log in self._logs if cell.segments[log.side] and cell.start < self._diff.reach[log.side]]
        if len(logs) == 1:
            self._scan_both(cell, logs)
        elif len(logs) == 2 and (differs or self._states_differ(cell)):
            if all(log.state is None for log in logs):
                for earlier in self._cells_before(piece, cell):
                    self._scan_both(earlier, logs)
            self._scan_both(cell, logs)
        else:
            for log in self._logs:
                log.state = None

    def _states_differ(self, cell: Piece) -> bool:
        """Whether both scans know how they enter a cell, and do so differently; the segments may have other bases."""
        found = [
            replace(log.state, position=segment.base + log.state.position)
            for log, segment in zip(self._logs, cell.segments, strict=True)
            if log.state is not None and segment is not None
        ]
        return len(found) == 2 and found[0] != found[1]

    def _cells_before(self, piece: Piece, cell: Piece) -> list[Piece]:
        """Return the cells before one in which a record may start that reaches into it."""
        before: list[Piece] = []
        while cell.start > piece.start:
            cell = self._cell_at(piece, cell.start - 1)
            before.insert(0, cell)
            if not any(self._is_spanned(cell, log) for log in self._logs):
                break
        return before

    def _is_spanned(self, cell: Piece, log: _Log) -> bool:
        """Whether no record starts in a cell of one log, because one from an earlier cell reaches over it."""
        segment = cell.segments[log.side]
        assert segment is not None
        _, borders = self._scan(cell, log, None)
        if borders is None or borders.entry.in_gap or borders.entry.closed:
            return False
        return segment.base + borders.entry.position >= cell.end

    def _scan_both(self, cell: Piece, logs: list[_Log]) -> None:
        """Note the records of a cell that only one log has; a log that is not in `logs` has none."""
        columns = [NOTHING, NOTHING]
        for log in logs:
            log.failed = False
            columns[log.side], borders = self._scan(cell, log, log.state)
            log.state = None if borders is None else borders.exit
        if len(logs) == 2 and any(log.failed for log in logs):
            return  # unreadable records are not missing
        for log in logs:
            other = 1 - log.side
            why = "hole" if cell.segments[other] is None else "other"
            if cell.start >= self._diff.reach[other]:
                why = "behind"
            self._records.add(log.side, columns[log.side], columns[other], why)

    def _scan(self, cell: Piece, log: _Log, entry: ScanState | None) -> tuple[Columns, Borders | None]:
        """Return the records that start in a cell of one log, and its borders if it could be read."""
        segment = cell.segments[log.side]
        assert segment is not None
        found: list[Columns] = []
        borders = None
        for event in log.events(Split(segment, cell.start - segment.base, cell.end - segment.base, entry)):
            if isinstance(event, RecordRun):
                found.append(self._records.columns(event.records, self._diff.reach[log.side]))
            elif isinstance(event, Borders):
                borders = event
        return Columns(*map(np.concatenate, zip(*found, strict=True))) if found else NOTHING, borders

"""Two logs side by side: bytes, ends, and the records that only one of them has.

A slave's log is a copy of its master's: the same bytes at the same physical offsets. So bytes are compared first, and
records are scanned only where that is not enough.

    A   |....................................|.........x..........|......  end of A
    B   |....................................|....................|..............  end of B
        |    cell: equal, entered alike      |  cell: bytes       |  cell: one log
        |    -> the same records             |  differ -> scan    |  goes on -> scan
                                             |<- scan earlier cells while a record
                                                 may reach into the one that differs

Steps: find both ends; cut what the logs cover into pieces (coverage.py); compare the bytes of each cell in windows, and
its records if bytes differ, if the scans entered it in different states, or if only one log goes on there.

Invariants:
- Equal bytes entered in the same state hold the same records, so an equal cell needs no scan.
- Zeros behind the end of the shorter log are unused space, not a difference; other bytes there are (`tail`).
- Unreadable bytes are reported and never count as different, nor their records as missing.
- The result does not depend on the sizes of cells and windows. Memory is bounded by windows and the limit on rows.

Source: HAConnection, HAClient (what a slave writes).
"""

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from rmqinspect.diff.cell_records import CellRecords
from rmqinspect.diff.coverage import Grid, Piece, cover, extend, overlap, pieces
from rmqinspect.diff.log_diff import ByteRuns, LogDiff, OneSided
from rmqinspect.diff.log_ends import find_ends, last_used
from rmqinspect.diff.log_reader import LogReader, SegmentReader
from rmqinspect.diff.records import RecordDiff
from rmqinspect.store.model import Store

WINDOW_SIZE = 2 << 20
# Small, so that a flipped bit costs little; larger than the largest record with a broker's default settings, so that
# looking back for the start of a record nearly always ends in the cell before.
CELL_SIZE = 8 << 20


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
    covered = (a if stores[1].neighbours else overlap(a, b), b if stores[0].neighbours else overlap(b, a))
    diff = LogDiff(covered, ByteRuns(limit))
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


class _Comparison:
    """One pass over both logs, piece by piece and cell by cell."""

    def __init__(
        self, diff: LogDiff, records: RecordDiff, progress: Callable[[int], None], window_size: int, cell_size: int
    ) -> None:
        self.ends_known = False
        self._diff = diff
        self._records = records
        self._progress = progress
        self._window_size = window_size
        self._cell_size = cell_size
        self._reader = LogReader(diff.unread, window_size)
        self._buffers = (bytearray(window_size), bytearray(window_size))
        self._cut = 0  # bytes from here on are not compared

    def run(self) -> None:
        """Compare everything."""
        covered, reach = self._diff.covered, self._diff.reach
        find_ends(self._diff, self._reader)
        first, last = min(reach), max(reach)
        self._cut = last
        if first != last:
            shorter = reach.index(first)
            self._cut = last_used(shorter, covered[shorter], first, last, self._reader)
        self._diff.tail = self._cut if first < self._cut and first != last else None
        self.ends_known = True
        grid = Grid(self._cell_size, (first, self._cut, last))
        records = CellRecords(self._reader, self._records, reach, grid)
        for piece in pieces(covered):
            why, end = self._why_one_sided(piece), min(piece.end, last)
            if why is not None and piece.start < end:
                self._note_one_sided(piece, end, why)
            if why != "before" and piece.start < end:
                self._compare(piece, end, grid, records)
                piece = piece._replace(start=end)
            self._report_progress(piece)

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

    def _compare(self, piece: Piece, end: int, grid: Grid, records: CellRecords) -> None:
        """Compare the bytes of a piece cell by cell, and the records where needed."""
        records.enter()
        with ExitStack() as stack:
            segments = self._reader.open_both(piece, stack)
            offset = piece.start
            while offset < end:
                cell = grid.cell_at(piece, offset)
                differs = bool(segments) and cell.start < self._cut and self._compare_bytes(cell, segments)
                differs |= bool(segments) and cell.is_cut_by_one_segment
                records.compare(piece, cell, differs)
                self._report_progress(cell)
                self._diff.reached = offset = cell.end

    def _compare_bytes(self, cell: Piece, segments: list[SegmentReader]) -> bool:
        """Note where the bytes of a cell differ; return whether any do."""
        offset, before = cell.start, self._diff.runs.differing
        while offset < cell.end:
            # What is a hole in both files is zeros in both.
            offset = max(offset, min(segment.next_allocated(offset) for segment in segments))
            size = min(self._window_size, cell.end - offset)
            if size <= 0:
                break
            a, b = (segment.fill(buffer, offset, size) for segment, buffer in zip(segments, self._buffers, strict=True))
            if a != b:
                differs = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
                for segment in segments:
                    segment.clear_unread(differs, offset)
                positions = np.flatnonzero(differs)
                if len(positions):
                    self._diff.runs.add(positions + offset)
            offset += size
        extend(self._diff.compared, cell.start, cell.end)
        for side, segment in enumerate(segments):
            for unread in segment.lenient.take_unread():
                self._reader.note(side, unread.message)
        return self._diff.runs.differing > before

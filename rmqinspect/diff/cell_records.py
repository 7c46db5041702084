"""The records of a cell in both logs, compared where they can differ."""

from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.commitlog.splits import Borders, ScanState, Split
from rmqinspect.diff.coverage import Grid, Piece
from rmqinspect.diff.log_reader import LogReader
from rmqinspect.diff.records import NOTHING, Columns, RecordDiff, join
from rmqinspect.store.model import Segment


class CellRecords:
    """Compares the records of cells, in the order of the log.

    Keeps the state in which the scan of each log left the last cell, None where that cell was not scanned.
    """

    def __init__(self, reader: LogReader, records: RecordDiff, reach: list[int], grid: Grid) -> None:
        self._reader = reader
        self._records = records
        self._reach = reach
        self._grid = grid
        self._states: list[ScanState | None] = [None, None]

    def enter(self) -> None:
        """Start a new piece: no cell before it was scanned."""
        self._states = [None, None]

    def compare(self, piece: Piece, cell: Piece, differs: bool) -> None:
        """Compare the records of a cell, unless they are known to be the same."""
        sides = [side for side in (0, 1) if cell.segments[side] and cell.start < self._reach[side]]
        if len(sides) == 1:
            self._compare_records(cell, sides)
        elif len(sides) == 2 and (differs or self._states_differ(cell)):
            if self._states == [None, None]:
                for earlier in self._cells_before(piece, cell):
                    self._compare_records(earlier, sides)
            self._compare_records(cell, sides)
        else:
            self._states = [None, None]

    def _states_differ(self, cell: Piece) -> bool:
        a, b = (_absolute(state, segment) for state, segment in zip(self._states, cell.segments, strict=True))
        return a is not None and b is not None and a != b

    def _cells_before(self, piece: Piece, cell: Piece) -> list[Piece]:
        """Return the cells before one in which a record may start that reaches into it."""
        before: list[Piece] = []
        while cell.start > piece.start:
            cell = self._grid.cell_at(piece, cell.start - 1)
            before.insert(0, cell)
            if not any(_is_spanned(self._scan(cell, side, None)[1], cell.end, cell.segments[side]) for side in (0, 1)):
                break
        return before

    def _compare_records(self, cell: Piece, sides: list[int]) -> None:
        """Note the records of a cell that only one log has; a log that is not in `sides` has none."""
        columns = [NOTHING, NOTHING]
        self._reader.failed = False
        for side in sides:
            columns[side], borders = self._scan(cell, side, self._states[side])
            self._states[side] = borders.exit if borders is not None else None
        if len(sides) == 2 and self._reader.failed:
            return  # unreadable records are not missing
        for side in sides:
            self._records.add(side, columns[side], columns[1 - side], self._why_only(cell, 1 - side))

    def _why_only(self, cell: Piece, other: int) -> str:
        if cell.start >= self._reach[other]:
            return "behind"
        return "hole" if cell.segments[other] is None else "other"

    def _scan(self, cell: Piece, side: int, entry: ScanState | None) -> tuple[Columns, Borders | None]:
        """Return the records that start in a cell of one log, and its borders if it could be read."""
        segment = cell.segments[side]
        assert segment is not None
        found: list[Columns] = []
        borders = None
        split = Split(segment, cell.start - segment.base, cell.end - segment.base, entry)
        for event in self._reader.events(side, split):
            if isinstance(event, RecordRun):
                found += self._records.columns(event.records, self._reach[side])
            elif isinstance(event, Borders):
                borders = event
        return join(found), borders


def _absolute(state: ScanState | None, segment: Segment | None) -> tuple[int, bool, bool, bool] | None:
    """Return a state with a physical offset, comparable between logs with other segments."""
    if state is None or segment is None:
        return None
    return segment.base + state.position, state.in_gap, state.stale, state.closed


def _is_spanned(borders: Borders | None, end: int, segment: Segment | None) -> bool:
    """Whether no record starts before `end`, because one from an earlier cell reaches to it."""
    if borders is None or segment is None or borders.entry.in_gap or borders.entry.closed:
        return False
    return borders.entry.position >= end - segment.base

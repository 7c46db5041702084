"""The state of all queues in one walk, and their units as they are at that time.

    address     FIRST         APPENDED   BLANK_END    end
    files       |....accepted....|..filler..|..written..|stale.....|
    from          the file          the start made them    the file, or zeros where the start made it

Source: ConsumeQueue, MappedFileQueue.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.queue_ends import BATCH, SIMPLE, QueueEnds, QueueName, max_physic_of
from rmqinspect.forecast.queue_units import (
    APPENDED,
    BASE,
    BLANK_END,
    COLUMNS,
    FILE_SIZE,
    FIRST_WRITTEN,
    KEPT,
    MADE,
    MAX_PHYSIC,
    MIN,
    POSITION,
    UNIT_SIZE,
    WITHOUT_FILES,
    Prefix,
    read_units,
)
from rmqinspect.forecast.written import Written
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import open_file


class UnitColumns(NamedTuple):
    """Columns of consecutive units; `bases` and `counts` of a queue that is no batch queue are 0 and 1."""

    offsets: Ints
    sizes: Ints
    bases: Ints
    counts: Ints


class QueueState:
    """Rows of numbers, one for each queue, and the files they speak of."""

    def __init__(self, ends: QueueEnds, rules: Rules, loaded: Mapping[QueueName, tuple[QueueFile, ...]] | None) -> None:
        """Take the queues as `recover` leaves them."""
        self.ends = ends
        self.rules = rules
        self.recovered = ends.recovered(rules, loaded)
        self.names = list(self.recovered.names)
        self.files = list(self.recovered.files)
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.numbers = self._numbers = self.recovered.state.copy()
        self.numbers[:, MAX_PHYSIC] = max_physic_of(rules, self.recovered)
        self.deleted = list(self.recovered.deleted)
        # Not as `recover` left it, apart from what was written.
        self.cut = self._cut = np.zeros(len(self.names), np.bool_)
        self.written = Written()  # offsets and sizes
        self.written_batches = Written()  # bases and counts of units of batch queues

    def row_of(self, name: QueueName) -> int:
        """Return the row of a queue; without one, make it."""
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = len(self.names)
            self.names.append(name)
            self.files.append(())
            fresh = WITHOUT_FILES.copy()
            fresh[UNIT_SIZE], fresh[FILE_SIZE] = self.ends.layouts[name[0]].itemsize, self.ends.file_sizes[name[0]]
            if name[0] == BATCH:
                fresh[MIN] = -1
            self._make_room(row)
            self.numbers[row], self.cut[row] = fresh, True
        return row

    def _make_room(self, row: int) -> None:
        """Let numbers and marks go on to a row, with room for as many again: a log may have a million queues."""
        if row >= len(self._numbers):
            self._numbers = np.resize(self.numbers, (2 * row + 64, COLUMNS))
            self._cut = np.resize(self.cut, 2 * row + 64)
        self.numbers, self.cut = self._numbers[: row + 1], self._cut[: row + 1]

    def is_batch(self, row: int) -> bool:
        """Return whether a queue is a batch queue."""
        return self.names[row][0] == BATCH

    @property
    def simple(self) -> Bools:
        """Which rows are of queues that are no batch queues."""
        simple: Bools = self.numbers[:, UNIT_SIZE] == self.ends.layouts[SIMPLE].itemsize
        return simple

    @property
    def file_counts(self) -> Ints:
        """Files of each queue."""
        counts: Ints = self.numbers[:, KEPT] + self.numbers[:, MADE]
        return counts

    def end(self, row: int) -> int:
        """Return the address behind the newest unit; 0 without files. Source: MappedFileQueue#getMaxOffset."""
        return int(self.numbers[row, BASE] + self.numbers[row, POSITION])

    def has_files(self, row: int) -> bool:
        """Return whether a queue has a file."""
        return bool(self.numbers[row, KEPT] + self.numbers[row, MADE])

    def readable(self, row: int) -> int:
        """Return the read position of the first file; 0 without files."""
        numbers = self.numbers[row]
        count = numbers[KEPT] + numbers[MADE]
        return int(numbers[POSITION] if count <= 1 else numbers[FILE_SIZE]) if count else 0

    def reach(self, row: int, offset: int, size: int) -> int:
        """Return maxPhysicOffset by the newest unit."""
        return offset if self.rules.queue_end == "start" or self.is_batch(row) else offset + size

    def file_at(self, row: int, base: int) -> QueueFile | None:
        """Return the file with a base that was there before; None for one that the start has made."""
        kept = self.files[row][: int(self.numbers[row, KEPT])]
        return next((file for file in reversed(kept) if file.base == base), None)

    def made_bases(self, row: int) -> list[int]:
        """Return the bases of the files that the start has made."""
        size, last, made = (int(self.numbers[row, column]) for column in (FILE_SIZE, BASE, MADE))
        return [last - number * size for number in range(made)]

    # --- units ----------------------------------------------------------------------------------

    def units_in_file(self, row: int, file: QueueFile, start: int, most: int, *, exempt: bool) -> Prefix:
        """Return the units of a file on disk that are accepted from the unit `start` on; none if it cannot be read."""
        unit, size = int(self.numbers[row, UNIT_SIZE]), int(self.numbers[row, FILE_SIZE])
        try:
            with open_file(file) as reader:
                return read_units(reader, unit, size // unit, row=start, most=most, exempt=exempt)
        except Unreadable as error:
            self.ends.problems.append(str(error))
            return Prefix(start)

    def units(self, row: int, base: int, start: int = 0, count: int | None = None) -> UnitColumns:
        """Return units of a file as they are now, from its unit `start` on; behind its end what lies there."""
        numbers = self.numbers[row]
        unit, file = int(numbers[UNIT_SIZE]), self.file_at(row, base)
        if count is None:
            count = int(numbers[FILE_SIZE]) // unit - start
        offsets, sizes, bases = np.zeros((3, count), np.int64)
        found = UnitColumns(offsets, sizes, bases, np.ones(count, np.int64))
        if file is not None:
            units = self.ends.units(file, start, count)
            found.offsets[:], found.sizes[:] = units["physical_offset"], units["size"]
            if self.is_batch(row):
                found.bases[:], found.counts[:] = units["queue_offset"], units["message_count"]
        elif self.is_batch(row):
            found.counts[:] = 0
        if numbers[APPENDED] >= 0:
            self._lay_written_over(row, base + start * unit, found)
        return found

    def _lay_written_over(self, row: int, address: int, found: UnitColumns) -> None:
        """Lay over units from an address on what the start has written there."""
        numbers, count = self.numbers[row], len(found.offsets)
        unit, end = int(numbers[UNIT_SIZE]), self.end(row)
        borders = (int(numbers[APPENDED]), int(numbers[BLANK_END]), end)
        first, blank, behind = (min(max(0, (border - address) // unit), count) for border in borders)
        found.offsets[first:blank], found.sizes[first:blank] = 0, PRE_BLANK_SIZE
        # What is not kept any more points in order, and before the end of the scan.
        found.offsets[blank:behind], found.sizes[blank:behind] = numbers[FIRST_WRITTEN], 1
        span = range(address, address + count * unit, unit)
        self.written.lay_over(row, span, end, found.offsets, found.sizes)
        if self.is_batch(row):
            self.written_batches.lay_over(row, span, end, found.bases, found.counts)

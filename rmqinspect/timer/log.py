"""The timer log: its files and units."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units, groups
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.timer import (
    UNIT_MAGICS,
    UNIT_SIZE,
    TimerBlank,
    TimerUnit,
)
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import FileReader, open_file

BLANK_SIZE: int = TimerBlank.sizeof()


_WINDOW = 2 << 20  # bytes read at a time


# The wheel, and its snapshots (timerWheelSnapshotFlush, 5.4.0+). A `.tmp` is half of one.
_WHEEL_NAME = re.compile(r"timerwheel(\.[0-9]{1,19})?")


# A file name is a Java long; the sums made with it must be some, too.
_LAST_BASE = 1 << 62


class SlotRun(NamedTuple):
    """The slots of a wheel that are not all zeros, as columns."""

    number: Ints
    time: Ints
    first: Ints
    last: Ints

    def select(self, which: Any) -> "SlotRun":
        return SlotRun(*(column[which] for column in self))


class LogPart(NamedTuple):
    """One file of the timer log."""

    file: StoreFile
    base: int  # timer log offset of its first byte
    rows: int  # units that it has room for

    @property
    def end(self) -> int:
        return self.base + self.file.size


def are_units(units: Units) -> Bools:
    """Return which units a broker takes for one. Source: TimerMessageStore#isMagicOK."""
    good: Bools = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~UNIT_MAGICS[-1]) == 0)
    return good


def due_times(units: Units) -> Ints:
    """Return when each unit fires, ms."""
    due: Ints = units["enqueue_timestamp"].astype(np.int64) + units["delay"]
    return due


def read_rows(reader: FileReader, dtype: np.dtype[Any], rows: int) -> Iterator[tuple[int, Units]]:
    """Yield (first row, structs) of the windows of a file up to row `rows`; holes are left out."""
    row = 0
    while row < rows:
        row = max(row, reader.next_allocated(row * dtype.itemsize) // dtype.itemsize)
        buffer = bytearray(min(_WINDOW // dtype.itemsize, max(0, rows - row)) * dtype.itemsize)
        count = reader.read_into(buffer, row * dtype.itemsize) // dtype.itemsize
        if count == 0:
            return
        yield row, np.frombuffer(buffer, dtype, count)
        row += count


def wheels_of(store: Store) -> list[StoreFile]:
    files = store.of_kind("timer_wheel")
    return [file for file in files if _WHEEL_NAME.fullmatch(file.name.rpartition("/")[2])]


def parts_of(store: Store) -> list[LogPart]:
    parts = []
    for file in store.of_kind("timer_log"):
        name = file.name.rpartition("/")[2]
        if name.isascii() and name.isdecimal() and int(name) + file.size < _LAST_BASE:
            # A unit is appended only where a blank has room behind it. Source: TimerLog#append.
            parts.append(LogPart(file, int(name), max(0, file.size - BLANK_SIZE) // UNIT_SIZE))
    return sorted(parts, key=lambda part: part.base)


class TimerLog:
    """The files of the timer log as one row of bytes; positions are timer log offsets."""

    def __init__(self, parts: Sequence[LogPart]) -> None:
        self.parts = parts
        self.start = parts[0].base if parts else 0
        self.bases = np.array([part.base for part in parts], np.int64)
        self._gaps: list[tuple[Ints, Ints]] = []

    def part_at(self, position: int) -> LogPart | None:
        """Return the file that holds a position."""
        return next((part for part in reversed(self.parts) if part.base <= position < part.end), None)

    def add_gaps(self, starts: Ints, ends: Ints) -> None:
        """Remember places where units were; they come in ascending order."""
        if len(starts):
            self._gaps.append((starts, ends))

    def in_gap(self, positions: Ints) -> Bools:
        """Return which positions lie where units were: nothing is known of them."""
        inside = np.zeros(len(positions), np.bool_)
        if self._gaps and len(positions):
            starts, ends = (np.concatenate(column) for column in zip(*self._gaps, strict=True))
            at = np.searchsorted(starts, positions, "right") - 1
            inside = (at >= 0) & (positions < ends[at])
        return inside

    def read_at(self, positions: Ints) -> tuple[Units, Bools]:
        """Return what stands at each position, and where that is a unit.

        :raises Unreadable: the system reports an I/O error.
        """
        units = np.zeros(len(positions), dtype_of(TimerUnit))
        found = np.zeros(len(positions), np.bool_)
        part_of = np.searchsorted(self.bases, positions, "right") - 1
        for number in np.unique(part_of[part_of >= 0]).tolist():
            part = self.parts[number]
            row, rest = np.divmod(positions - part.base, UNIT_SIZE)
            mine = np.flatnonzero((part_of == number) & (rest == 0) & (row < part.rows))
            mine = mine[np.argsort(row[mine], kind="stable")]
            windows = row[mine] // (_WINDOW // UNIT_SIZE)
            with open_file(part.file) as reader:
                for first, behind in groups(windows):
                    some = mine[first:behind]
                    low, high = int(row[some[0]]), int(row[some[-1]]) + 1
                    raw = reader.read(low * UNIT_SIZE, (high - low) * UNIT_SIZE)
                    if len(raw) == (high - low) * UNIT_SIZE:  # else cut since it was listed
                        units[some] = np.frombuffer(raw, units.dtype)[row[some] - low]
                        found[some] = are_units(units[some])
        return units, found

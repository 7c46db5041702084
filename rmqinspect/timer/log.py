"""The timer log: its files and units.

The timer log is one stream of bytes cut into files of one size. A position in it is a timer log offset, and a
file is named by the offset of its first byte. Units follow each other without a gap; a blank fills the end of
a file that has no room for another unit and a blank.

    00000000000000000000                00000000000000001040
    | unit | unit | ... | unit | blank  | unit | unit | zeros, preallocated
    ^ base              rows    ^ end

Source: TimerLog#append, TimerMessageStore#isMagicOK; RocketMQ 5.0.0 to 5.5.0.

config/timercheck: how far the timer has read and flushed. Source: TimerCheckpoint.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units, groups
from rmqinspect.codec.joins import find_range
from rmqinspect.codec.layout import Container, dtype_of, parse
from rmqinspect.schemas.timer import BLANK_MAGIC, UNIT_MAGICS, UNIT_SIZE, TimerBlank, TimerCheck, TimerUnit
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import FileReader, open_file

BLANK_SIZE: int = TimerBlank.sizeof()

_WINDOW = 2 << 20  # bytes per read
_LAST_BASE = 1 << 62  # a file name is a Java long, and sums of two must fit into int64


class TimerLogFile(NamedTuple):
    """One file of the timer log."""

    file: StoreFile
    base: int  # timer log offset of its first byte
    rows: int  # units that fit

    @property
    def end(self) -> int:
        """Timer log offset behind its last byte."""
        return self.base + self.file.size


def timer_log_files(files: Iterable[StoreFile]) -> list[TimerLogFile]:
    """Return the files of the timer log among `files`, by offset; names that are no offset are skipped."""
    found = []
    for file in files:
        if file.kind != "timer_log":
            continue
        name = file.name.rpartition("/")[2]
        if name.isascii() and name.isdecimal() and int(name) + file.size < _LAST_BASE:
            # A unit is appended only where a blank fits behind it. Source: TimerLog#append.
            found.append(TimerLogFile(file, int(name), max(0, file.size - BLANK_SIZE) // UNIT_SIZE))
    return sorted(found, key=lambda part: part.base)


def are_units(units: Units) -> Bools:
    """Return which units a broker accepts. Source: TimerMessageStore#isMagicOK."""
    good: Bools = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~UNIT_MAGICS[-1]) == 0)
    return good


def due_times(units: Units) -> Ints:
    """Return when each unit fires, ms."""
    due: Ints = units["enqueue_timestamp"].astype(np.int64) + units["delay"]
    return due


def read_rows(reader: FileReader, dtype: np.dtype[Any], rows: int) -> Iterator[tuple[int, Units]]:
    """Yield (first row, structs) of the windows of a file up to row `rows`; holes are skipped."""
    row = 0
    while row < rows:
        row = max(row, reader.next_allocated(row * dtype.itemsize) // dtype.itemsize)
        buffer = bytearray(min(_WINDOW // dtype.itemsize, max(0, rows - row)) * dtype.itemsize)
        count = reader.read_into(buffer, row * dtype.itemsize) // dtype.itemsize
        if count == 0:
            return
        yield row, np.frombuffer(buffer, dtype, count)
        row += count


def is_blank_at(reader: FileReader, position: int) -> bool:
    """Return whether a blank stands at a position of a file.

    :raises Unreadable: the system reports an I/O error.
    """
    raw = reader.read(position, BLANK_SIZE)
    return len(raw) == BLANK_SIZE and bool(TimerBlank.parse(raw).magic == BLANK_MAGIC)


class TimerLog:
    """The files of the timer log as one stream; positions are timer log offsets."""

    def __init__(self, files: Sequence[TimerLogFile]) -> None:
        self.files = files
        self.start = files[0].base if files else 0
        self.bases = np.array([part.base for part in files], np.int64)
        self._gaps: list[tuple[Ints, Ints]] = []

    def file_at(self, position: int) -> TimerLogFile | None:
        """Return the file that holds a position."""
        return next((part for part in reversed(self.files) if part.base <= position < part.end), None)

    def add_gaps(self, starts: Ints, ends: Ints) -> None:
        """Remember ranges whose units are lost; they come in ascending order."""
        if len(starts):
            self._gaps.append((starts, ends))

    def in_gap(self, positions: Ints) -> Bools:
        """Return which positions lie in a gap: a unit may have been there."""
        if not self._gaps:
            return np.zeros(len(positions), np.bool_)
        starts, ends = (np.concatenate(column) for column in zip(*self._gaps, strict=True))
        return find_range(starts, ends, positions) >= 0

    def read_at(self, positions: Ints) -> tuple[Units, Bools]:
        """Return the unit at each position, and where there is one.

        :raises Unreadable: the system reports an I/O error.
        """
        units = np.zeros(len(positions), dtype_of(TimerUnit))
        found = np.zeros(len(positions), np.bool_)
        number_of = np.searchsorted(self.bases, positions, "right") - 1
        for number in np.unique(number_of[number_of >= 0]).tolist():
            part = self.files[number]
            row, rest = np.divmod(positions - part.base, UNIT_SIZE)
            inside = np.flatnonzero((number_of == number) & (rest == 0) & (row < part.rows))
            inside = inside[np.argsort(row[inside], kind="stable")]
            windows = row[inside] // (_WINDOW // UNIT_SIZE)
            with open_file(part.file) as reader:
                for first, behind in groups(windows):
                    some = inside[first:behind]
                    low, high = int(row[some[0]]), int(row[some[-1]]) + 1
                    raw = reader.read(low * UNIT_SIZE, (high - low) * UNIT_SIZE)
                    if len(raw) == (high - low) * UNIT_SIZE:  # else truncated since it was listed
                        units[some] = np.frombuffer(raw, units.dtype)[row[some] - low]
                        found[some] = are_units(units[some])
        return units, found


def read_timercheck(file: StoreFile | None) -> Container:
    """Return the fields of timercheck; those that the file lacks are 0, as in the file that a broker maps.

    :raises Unreadable: the system reports an I/O error.
    """
    if file is None:
        return no_timercheck()
    with open_file(file) as reader:
        return _parse(reader.read(0, TimerCheck.sizeof()))


def no_timercheck() -> Container:
    """Return the fields of a timercheck that does not exist: all 0."""
    return _parse(b"")


def _parse(raw: bytes) -> Container:
    return parse(TimerCheck, raw.ljust(TimerCheck.sizeof(), b"\0"), lambda: "timercheck")

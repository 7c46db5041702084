"""The timer: its log, its wheel, and what has not fired.

The timer log is one stream of bytes cut into files of one size. A position in it is a timer log offset, and a
file is named by the offset of its first byte. Units follow each other without a gap; a blank fills the end of
a file that has no room for another unit and a blank.

    00000000000000000000                00000000000000001040
    | unit | unit | ... | unit | blank  | unit | unit | zeros, preallocated
    ^ base              rows    ^ end

Source: TimerLog#append, TimerMessageStore#isMagicOK; RocketMQ 5.0.0 to 5.5.0.

config/timercheck says how far the timer has read and flushed. Source: TimerCheckpoint.

A slot of the timer wheel holds the pending units of one due time as a chain through the timer log: the slot has the
positions of its first and its last unit, each unit that of the unit before it.

    wheel   | ... | time, first, last | ... |
                       |       |
                       v       v
    log     ... unit <- unit <- unit ...        `previous` of each unit; NO_UNIT in the first

`WheelReplay` puts the units of the log into a wheel of its own, as a starting broker does. What the units and
the stored wheel say must agree with that.

Source: TimerWheel, Slot, TimerMessageStore#doEnqueue; RocketMQ 5.0.0 to 5.5.0.

The precision of the timer wheel: ms per slot, which no file of the timer states.

Source: MessageStoreConfig.timerPrecisionMs, TimerMessageStore#formatTimeMs.

Which units of the timer log the stored wheel leads to.

A broker fires what it finds on the way from a slot's last unit back through `previous`. The way ends at NO_UNIT, before
the first file, or where a link is wrong:

    slot      time T, last = D
    log       A <- B    C <- D <- E        all due at T
                   ^--x-'         ^ behind the slot's last: written after the wheel was
              lost to the wheel, as C does not lead to B

The log is read once, from its first unit to its last: a replayed wheel says where each unit should lead, and of the
units that lead elsewhere the last one of each slot is kept. Nothing before it is reached.

Source: TimerMessageStore#dequeue, #doEnqueue; RocketMQ 5.0.0 to 5.5.0.

What of the timer log has not fired: units whose slot the timer has not read yet.

    timer log   | unit | unit | unit | ... | unit |
                                ^ start-up puts the units from here on into the wheel again
    a unit waits if its slot is not read, and the wheel leads to it or start-up puts it in

Source: TimerMessageStore#dequeue, #recover; RocketMQ 5.0.0 to 5.5.0.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units, distinct, find_range, groups, used_units
from rmqinspect.codec.layout import Container, dtype_of, parse
from rmqinspect.schemas.timer import (
    BLANK_MAGIC,
    DEFAULT_PRECISION,
    NO_UNIT,
    UNIT_MAGICS,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerBlank,
    TimerCheck,
    TimerUnit,
    WheelSlot,
)
from rmqinspect.store.broker_conf import setting_size
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
        for number in distinct(number_of[number_of >= 0]).tolist():
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


SLOT_SIZE: int = WheelSlot.sizeof()
WHEEL_SIZE = WHEEL_SLOTS * SLOT_SIZE

# Stands for "no unit" and "no time" in a replay. Not NO_UNIT (-1): no single flipped bit turns that into this.
NO_POSITION = -(1 << 63)

# The wheel and its snapshots (timerWheelSnapshotFlush, 5.4.0+). A `.tmp` is a snapshot that was not finished.
_WHEEL_NAME = re.compile(r"timerwheel(\.[0-9]{1,19})?")


_SLOTS_AT_ONCE = 1 << 15


class Slots(NamedTuple):
    """The used slots of a wheel, as columns."""

    number: Ints
    time: Ints  # due time / precision
    first: Ints
    last: Ints

    def select(self, which: Any) -> "Slots":
        """Return some of the slots; `which` indexes a column."""
        return Slots(*(column[which] for column in self))


def wheel_files(files: Iterable[StoreFile]) -> list[StoreFile]:
    """Return the wheel and its snapshots among `files`."""
    wheels = (file for file in files if file.kind == "timer_wheel")
    return [file for file in wheels if _WHEEL_NAME.fullmatch(file.name.rpartition("/")[2])]


def read_slots(file: StoreFile) -> Slots:
    """Return the slots of a wheel that are not all zeros.

    :raises Unreadable: the system reports an I/O error.
    """
    columns: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in Slots._fields]
    with open_file(file) as reader:
        for row, slots in read_rows(reader, dtype_of(WheelSlot), min(reader.size // SLOT_SIZE, WHEEL_SLOTS)):
            used = np.flatnonzero(used_units(slots))
            values = row + used, *(slots[name][used] for name in Slots._fields[1:])
            for column, window in zip(columns, values, strict=True):
                column.append(window.astype(np.int64))
    return Slots(*(np.concatenate(column) for column in columns))


def count_in_slots(file: StoreFile, first: int, last: int) -> int:
    """Return how many messages the slots of times from `first` to `last` hold; times as in `WheelSlot`.

    Only those slots are read. A slot of an earlier lap of the wheel has another time.

    :raises Unreadable: the system reports an I/O error.
    """
    found, slots = 0, dtype_of(WheelSlot)
    last = min(last, first + WHEEL_SLOTS - 1)
    with open_file(file) as reader:
        while first <= last:
            row = first % WHEEL_SLOTS
            number = min(last + 1 - first, WHEEL_SLOTS - row, _SLOTS_AT_ONCE)
            raw = reader.read(row * SLOT_SIZE, number * SLOT_SIZE)
            some = np.frombuffer(raw, slots, len(raw) // SLOT_SIZE)
            in_time = some["time"] == first + np.arange(len(some))
            found += int(np.maximum(some["message_count"], 0)[in_time].sum(dtype=np.int64))
            first += number
    return found


class WheelReplay:
    """The wheel after all units of the timer log were put in: columns of shape (WHEEL_SLOTS,)."""

    def __init__(self) -> None:
        self.time: Ints = np.full(WHEEL_SLOTS, NO_POSITION, np.int64)
        self.first: Ints = np.zeros(WHEEL_SLOTS, np.int64)
        self.last: Ints = np.zeros(WHEEL_SLOTS, np.int64)

    def put(self, time: Ints, position: Ints) -> Ints:
        """Put units in, in log order; return the position of the unit before each one in its slot.

        NO_POSITION where the timer log has none. Source: TimerMessageStore#doEnqueue.
        """
        # The units of each slot together, oldest first.
        order = np.argsort(time, kind="stable")
        time, position = time[order], position[order]
        before = np.concatenate(([NO_POSITION], position[:-1]))
        begin = np.flatnonzero(np.concatenate(([True], time[1:] != time[:-1])))
        tail = np.append(begin[1:], len(time)) - 1
        # Two times two weeks apart share a slot: the units that come later in the log take it over.
        late = np.argsort(position[tail])
        begin, tail = begin[late], tail[late]
        slot = time[begin] % WHEEL_SLOTS
        known = self.time[slot] == time[begin]
        before[begin] = np.where(known, self.last[slot], NO_POSITION)
        self.first[slot[~known]] = position[begin[~known]]
        self.last[slot], self.time[slot] = position[tail], time[begin]
        result = np.empty_like(before)
        result[order] = before
        return result


_JAVA_INT = 1 << 31  # the setting is one
_SAMPLED_SLOTS = 64
_CANDIDATES = (1000, 500, 200, 100, 50, 20, 10, 5, 2, 1)  # ms
# Share of enqueue times that are multiples of the precision; of a precision twice as large only half are.
_SHARE = 0.75


def find_precision(settings: Mapping[str, str], log: TimerLog, wheels: Iterable[Slots]) -> int:
    """Return the precision in ms: as configured, else as slots and their units show, else as enqueue times do.

    :raises Unreadable: the system reports an I/O error.
    """
    configured = setting_size(settings, "timerPrecisionMs")
    if configured and configured < _JAVA_INT:
        return configured
    if not log.files:
        return DEFAULT_PRECISION
    return next(filter(None, (_from_slots(log, slots) for slots in wheels)), None) or _from_units(log)


def _from_slots(log: TimerLog, slots: Slots) -> int | None:
    """Return the ratio of a unit's due time to its slot's time that most slots show."""
    sample = slots.select(np.flatnonzero((slots.time > 0) & (slots.last >= log.start))[:_SAMPLED_SLOTS])
    units, found = log.read_at(sample.last)
    votes = Counter((due_times(units)[found] // sample.time[found]).tolist())
    likely = max(votes, key=lambda vote: votes[vote], default=0)
    return likely if 0 < likely < _JAVA_INT else None


def _from_units(log: TimerLog) -> int:
    """Return the largest precision that most enqueue times are a multiple of: they are cut to it."""
    first = log.files[0]
    with open_file(first.file) as reader:
        for _, units in read_rows(reader, dtype_of(TimerUnit), first.rows):
            times = units["enqueue_timestamp"][are_units(units)]
            fits = (p for p in _CANDIDATES if len(times) and np.mean(times % p == 0) >= _SHARE)
            return next(fits, DEFAULT_PRECISION)
    return DEFAULT_PRECISION


def current_wheel(files: Sequence[StoreFile]) -> StoreFile | None:
    """Return the wheel that a starting broker reads: the snapshot with the highest number, else `timerwheel`.

    Source: TimerWheel#getMaxSnapshotFlag, 5.4.0.
    """
    numbers = {file: file.name.rpartition("/")[2].partition(".")[2] for file in wheel_files(files)}
    return max(numbers, key=lambda file: int(numbers[file] or -1), default=None)


def units_of(part: TimerLogFile) -> Iterator[tuple[Ints, Units]]:
    """Yield (rows, units) of the windows of a file: what a broker accepts, up to the blank that ends the file.

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(part.file) as reader:
        for first, window in read_rows(reader, dtype_of(TimerUnit), part.rows):
            blanks = np.flatnonzero(window["magic"] == BLANK_MAGIC)
            rows = np.flatnonzero(are_units(window[: blanks[0]] if len(blanks) else window))
            if len(rows):
                yield first + rows, window[rows]
            if len(blanks):
                return


class WheelReach:
    """What the slots of a stored wheel lead to; without a wheel, nothing."""

    def __init__(self, log: TimerLog, slots: Slots | None, precision: int) -> None:
        """Read the log.

        :raises Unreadable: the system reports an I/O error.
        """
        self.precision = precision
        self._time, self._last = np.full((2, WHEEL_SLOTS), NO_POSITION, np.int64)
        self._end = np.full(WHEEL_SLOTS, NO_POSITION, np.int64)  # where the way back ends
        if slots is None or not log.files:
            return
        units, found = log.read_at(slots.last)
        used = slots.select(found & (due_times(units) // precision == slots.time))
        self._time[used.number], self._last[used.number] = used.time, used.last
        replay = WheelReplay()
        for part in log.files:
            for rows, some in units_of(part):
                self._follow(log, replay, part.base + rows * UNIT_SIZE, some)

    def _follow(self, log: TimerLog, replay: WheelReplay, positions: Ints, units: Units) -> None:
        times = due_times(units) // self.precision
        expected, previous = replay.put(times, positions), units["previous"].astype(np.int64)
        gone = (previous == NO_UNIT) | ((previous >= 0) & (previous < log.start))
        wrong = np.where(gone, NO_POSITION, previous) != expected
        wrong &= self.leads_to(times, positions)
        np.maximum.at(self._end, times[wrong] % WHEEL_SLOTS, positions[wrong])

    def leads_to(self, times: Ints, positions: Ints) -> Bools:
        """Return which units are on the way of their slot; `times`: of the slots, due time / precision."""
        slots = times % WHEEL_SLOTS
        led: Bools = (self._time[slots] == times) & (self._end[slots] <= positions) & (positions <= self._last[slots])
        return led


_ROLL, _DELETE = 2, 4  # TimerMessageStore.MAGIC_ROLL, MAGIC_DELETE


class PendingUnits(NamedTuple):
    """The newest unit of each record that has not fired: columns, by physical offset."""

    place: Ints  # physical offset of the record
    size: Ints  # of the record
    fires: Ints  # ms; before the message is due where it is to be rolled
    position: Ints  # timer log offset of the unit
    deletes: Bools
    reached: Bools  # false: no broker finds it any more


class TimerLogRead(NamedTuple):
    """The timer log after it was read."""

    pending: PendingUnits
    last: tuple[int, int] | None  # physical offset and size of the record of the last unit
    end: int  # timer log offset behind the last unit


def read_pending(log: TimerLog, reach: WheelReach, read_time: int, flushed: int) -> TimerLogRead:
    """Read the timer log; keep what fires at `read_time` (ms) or later, the slot that the timer reads next.

    `flushed`: up to where the log was flushed, as timercheck says.

    :raises Unreadable: the system reports an I/O error.
    """
    part = log.file_at(max(0, flushed - (log.files[-1].file.size if log.files else 0)))
    again = part.base if part is not None else log.start
    kept: list[list[Units]] = [[] for _ in PendingUnits._fields]
    last, end = None, log.start
    for file in log.files:
        for rows, units in units_of(file):
            positions = file.base + rows * UNIT_SIZE
            last, end = _record_of(units[-1]), int(positions[-1]) + UNIT_SIZE
            slots = due_times(units) // reach.precision
            waiting = np.flatnonzero(slots >= read_time // reach.precision)
            some, positions = units[waiting], positions[waiting]
            found = PendingUnits(
                some["physical_offset"].astype(np.int64),
                some["record_size"].astype(np.int64),
                due_times(some),
                positions,
                (some["magic"] & (_ROLL | _DELETE)) == _DELETE,
                (positions >= again) | reach.leads_to(slots[waiting], positions),
            )
            for column, values in zip(kept, found, strict=True):
                column.append(values)
    return TimerLogRead(_newest(kept), last, end)


def _record_of(unit: Units) -> tuple[int, int]:
    return int(unit["physical_offset"]), int(unit["record_size"])


def _newest(parts: list[list[Units]]) -> PendingUnits:
    """Return the units by physical offset, and empty `parts`; a restart may have put a record in twice."""
    types = (np.int64, np.int64, np.int64, np.int64, np.bool_, np.bool_)
    columns = []
    for column, type_ in zip(parts, types, strict=True):
        columns.append(np.concatenate([np.empty(0, type_), *column]))
        column.clear()
    units = PendingUnits(*columns)
    if (units.place[1:] > units.place[:-1]).all():  # as the timer takes them from its topic
        return units
    order = np.lexsort((units.position, units.place))
    places = units.place[order]
    order = order[np.append(places[1:] != places[:-1], True)]
    return PendingUnits(*(column[order] for column in units))

"""Which units of the timer log the stored wheel leads to.

A broker fires what it finds on the way from a slot's last unit back through `previous`. The way ends at NO_UNIT, before
the first file, or where a link is wrong:

    slot      time T, last = D
    log       A <- B    C <- D <- E        all due at T
                   ^--x-'         ^ behind the slot's last: written after the wheel was
              lost to the wheel, as C does not lead to B

The log is read once, from its first unit to its last: a replayed wheel says where each unit should lead, and of the
units that lead elsewhere the last one of each slot is kept. Nothing before it is reached.

Source: TimerMessageStore#dequeue, #doEnqueue; RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.timer import BLANK_MAGIC, NO_UNIT, UNIT_SIZE, WHEEL_SLOTS, TimerUnit
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.timer.log import TimerLog, TimerLogFile, are_units, due_times, read_rows
from rmqinspect.timer.wheel import NO_POSITION, Slots, WheelReplay, wheel_files


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

"""The timer wheel: its slots as stored, and the slots that the timer log implies.

A slot holds the pending units of one due time as a chain through the timer log: the slot has the positions of
its first and its last unit, each unit that of the unit before it.

    wheel   | ... | time, first, last | ... |
                       |       |
                       v       v
    log     ... unit <- unit <- unit ...        `previous` of each unit; NO_UNIT in the first

`WheelReplay` puts the units of the log into a wheel of its own, as a starting broker does. What the units and
the stored wheel say must agree with that.

Source: TimerWheel, Slot, TimerMessageStore#doEnqueue; RocketMQ 5.0.0 to 5.5.0.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints, used_units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.timer import WHEEL_SLOTS, WheelSlot
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.timer.log import read_rows

SLOT_SIZE: int = WheelSlot.sizeof()
WHEEL_SIZE = WHEEL_SLOTS * SLOT_SIZE

# Stands for "no unit" and "no time" in a replay. Not NO_UNIT (-1): no single flipped bit turns that into this.
NO_POSITION = -(1 << 63)

# The wheel and its snapshots (timerWheelSnapshotFlush, 5.4.0+). A `.tmp` is a snapshot that was not finished.
_WHEEL_NAME = re.compile(r"timerwheel(\.[0-9]{1,19})?")


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

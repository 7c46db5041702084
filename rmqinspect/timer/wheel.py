"""The timer wheel, replayed from the timer log."""

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.schemas.timer import WHEEL_SLOTS, WheelSlot

SLOT_SIZE: int = WheelSlot.sizeof()


WHEEL_SIZE = WHEEL_SLOTS * SLOT_SIZE


# The position before the first unit of a slot, or before the first that the timer log still has; and
# the time of a slot without a unit. No damage of one bit makes it of NO_UNIT.
NO_POSITION = -(1 << 63)


class WheelReplay:
    """The wheel that the timer log makes: what each slot holds when all units have been put in."""

    def __init__(self) -> None:
        self.time: Ints = np.full(WHEEL_SLOTS, NO_POSITION, np.int64)
        self.first: Ints = np.zeros(WHEEL_SLOTS, np.int64)
        self.last: Ints = np.zeros(WHEEL_SLOTS, np.int64)

    def put(self, time: Ints, position: Ints) -> Ints:
        """Put units in, in log order; return the position of the unit before each one in its slot.

        `_NONE` where the timer log has none. Source: TimerMessageStore#doEnqueue.
        """
        # The units of each slot together, oldest first.
        order = np.argsort(time, kind="stable")
        time, place = time[order], position[order]
        before = np.concatenate(([NO_POSITION], place[:-1]))
        begin = np.flatnonzero(np.concatenate(([True], time[1:] != time[:-1])))
        tail = np.append(begin[1:], len(time)) - 1
        # Two times may share a slot, two weeks apart: the later units take it over.
        late = np.argsort(place[tail])
        begin, tail = begin[late], tail[late]
        slot = time[begin] % WHEEL_SLOTS
        known = self.time[slot] == time[begin]
        before[begin] = np.where(known, self.last[slot], NO_POSITION)
        self.first[slot[~known]] = place[begin[~known]]
        self.last[slot], self.time[slot] = place[tail], time[begin]
        result = np.empty_like(before)
        result[order] = before
        return result

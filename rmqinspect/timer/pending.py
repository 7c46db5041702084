"""What of the timer log has not fired: units whose slot the timer has not read yet.

    timer log   | unit | unit | unit | ... | unit |
                                ^ start-up puts the units from here on into the wheel again
    a unit waits if its slot is not read, and the wheel leads to it or start-up puts it in

Source: TimerMessageStore#dequeue, #recover; RocketMQ 5.0.0 to 5.5.0.
"""

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.schemas.timer import UNIT_SIZE
from rmqinspect.timer.log import TimerLog, due_times
from rmqinspect.timer.reach import WheelReach, units_of

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

"""Queue units paired with the records that they point at.

The usual split costs one comparison: queues are numbered in the order of their files, so records sorted by queue
stand exactly as their units do. Only where that fails is each unit's record searched for.

    units                records, sorted by queue
    orders/0    100      orders/0    100
    orders/0    340      orders/0    340         all equal: pairs without a search
    orders/1    220      orders/1    220

A hit is a unit that points at the start of a record. It is good when that record is of the unit's queue (or was
multi-dispatched to it), has the unit's size, and is entitled to a unit. All else about a unit is judged for good
hits only: a unit of the wrong record says nothing about tags or queue offsets.
"""

from dataclasses import dataclass

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.text import text_of
from rmqinspect.verify.consumequeue.units import QueuePointers
from rmqinspect.verify.dangling import find_starts
from rmqinspect.verify.plan import CrossPlan, QueueName


class QueueNumbers:
    """One numbering for the queues of the unit files and those of the records."""

    def __init__(self, records: Dispatched, plan: CrossPlan) -> None:
        names = [(file.topic, file.queue_id) for file in plan.queue_files]
        self.names: list[QueueName] = list(dict.fromkeys(names))  # in the order of the files
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self.of_file = np.array([self.number_of[name] for name in names], np.int64)
        # The queues of the records, as the records number them.
        self.own_names = [(text_of(topic), queue_id) for topic, queue_id in records.queues]
        numbers = np.array([self.number_of.get(name, -1) for name in self.own_names], np.int64)
        # By record; -1: its queue has no file.
        self.of_record = numbers[records.queue] if len(records) else np.empty(0, np.int64)


@dataclass(slots=True)
class Match:
    """Units, records and the h hits between them. Columns from `unit` on have shape (h,)."""

    plan: CrossPlan
    records: Dispatched
    queues: QueueNumbers
    units: QueuePointers
    dangling: Ints  # indices of the units that are no hit
    unit: Ints  # index of the unit
    record: Ints  # index of the record that starts where the unit points
    expected: Ints  # queue offset that the record gives the unit
    own: Bools  # the record is of the unit's queue
    extra: Bools  # or was multi-dispatched to it
    same_size: Bools
    good: Bools


def match_units(plan: CrossPlan, records: Dispatched, queues: QueueNumbers, units: QueuePointers) -> Match:
    """Pair units with the records that start where they point."""
    at, hit = _in_step(records, queues, units) or find_starts(records.physical_offset, units.physical_offset)
    unit = np.flatnonzero(hit)
    record = at[unit]
    expected, own, extra = _expected_offsets(records, queues, record, queues.of_file[units.file[unit]])
    same_size = units.size[unit] == records.size[record]
    good = (own | extra) & same_size & (records.entitled[record] | extra)
    dangling = np.flatnonzero(~hit)
    return Match(plan, records, queues, units, dangling, unit, record, expected, own, extra, same_size, good)


def _in_step(records: Dispatched, queues: QueueNumbers, units: QueuePointers) -> tuple[Ints, Bools] | None:
    """Return what `find_starts` does where the units are those of the records, queue by queue; else None."""
    queue = queues.of_record
    if len(queue) != len(units.physical_offset) or not len(queue) or int(queue.min()) < 0:
        return None
    narrow = np.uint16 if len(queues.names) < 1 << 16 else np.int64  # numpy sorts 16 bits by radix
    order = np.argsort(queue.astype(narrow), kind="stable")
    if (records.physical_offset[order] != units.physical_offset).any():
        return None
    return order, np.ones(len(order), np.bool_)


def _expected_offsets(
    records: Dispatched, queues: QueueNumbers, record: Ints, queue: Ints
) -> tuple[Ints, Bools, Bools]:
    """Return (queue offset, own queue, by multi-dispatch) of hits, given each one's record and queue."""
    expected = records.queue_offset[record].copy()
    own = queues.of_record[record] == queue
    extra = np.zeros(len(record), np.bool_)
    if records.extras:
        wanted = [(e.record, queues.number_of.get((e.topic, e.queue_id), -1), e.queue_offset) for e in records.extras]
        rows = np.array(wanted, np.int64)
        # Record and queue as one number.
        keys = rows[:, 0] * len(queues.names) + rows[:, 1]
        keys = np.where(rows[:, 1] < 0, -1, keys)
        order = np.argsort(keys, kind="stable")
        hits = record * len(queues.names) + queue
        at = np.minimum(np.searchsorted(keys[order], hits), len(keys) - 1)
        extra = (keys[order][at] == hits) & ~own
        expected[extra] = rows[order[at[extra]], 2]
    return expected, own, extra

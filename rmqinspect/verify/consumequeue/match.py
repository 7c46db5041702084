"""Queue units paired with the records that they point at.

Nearly all units are in step with the records of their queue, and right in all that they say (`in_step`). Only for the
others each unit's record is searched for.

A hit is a unit that points at the start of a record. It is good when that record is of the unit's queue (or was
multi-dispatched to it), has the unit's size, and is entitled to a unit. All else about a unit is judged for good
hits only: a unit of the wrong record says nothing about tags or queue offsets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.text import text_of
from rmqinspect.verify.consumequeue.in_step import InStep, find_in_step
from rmqinspect.verify.consumequeue.units import QueuePointers, UnitBytes
from rmqinspect.verify.dangling import find_starts
from rmqinspect.verify.plan import CrossPlan, QueueName


@dataclass(slots=True)
class Match:
    """Records, and the h hits of units that are not in step. Columns from `unit` on have shape (h,)."""

    plan: CrossPlan
    records: Dispatched
    own_names: list[QueueName]  # of the records' queues, as the records number them
    own_numbers: Ints  # their numbers in `plan.queues`; -1: no file
    step: InStep
    units: QueuePointers  # that are not in step
    dangling: Ints  # indices of the units that are no hit
    unit: Ints  # index of the unit
    record: Ints  # index of the record that starts where the unit points
    expected: Ints  # queue offset that the record gives the unit
    own: Bools  # the record is of the unit's queue
    extra: Bools  # or was multi-dispatched to it
    same_size: Bools
    good: Bools


def match_units(plan: CrossPlan, number: int, records: Dispatched, parts: Sequence[UnitBytes]) -> Match:
    """Pair the units in `parts` that point into split `number` with the records that start where they point."""
    names = [(text_of(topic), queue_id) for topic, queue_id in records.queues]
    numbers = np.array([plan.queues.number_of.get(name, -1) for name in names], np.int64)
    step = find_in_step(plan, number, records, numbers, parts)
    units = step.others
    at, hit = find_starts(records.physical_offset, units.physical_offset)
    unit = np.flatnonzero(hit)
    record = at[unit]
    queue = plan.queues.of_file[units.file[unit]]
    own = numbers[records.queue[record]] == queue
    expected, extra = _expected_offsets(plan, records, record, queue, own)
    same_size = units.size[unit] == records.size[record]
    good = (own | extra) & same_size & (records.entitled[record] | extra)
    dangling = np.flatnonzero(~hit)
    return Match(
        plan, records, names, numbers, step, units, dangling, unit, record, expected, own, extra, same_size, good
    )


def _expected_offsets(
    plan: CrossPlan, records: Dispatched, record: Ints, queue: Ints, own: Bools
) -> tuple[Ints, Bools]:
    """Return (queue offset, by multi-dispatch) of hits, given each one's record and queue."""
    expected = records.queue_offset[record].copy()
    extra = np.zeros(len(record), np.bool_)
    if records.extras:
        queues = plan.queues
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
    return expected, extra

"""The queue units that are right in all that they say, found in one walk over records and units of a split.

    record of the log      the next unit of its queue
    100  orders/0          100     right
    220  orders/1          220     right
    340  orders/0          341     not the record's: one of the others, which are judged one by one
    520  orders/0          520     right

A unit that points too far ahead holds up those behind it: they are judged one by one as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools
from rmqinspect.codec.kernels import (
    Bytes,
    BytesOut,
    Int32s,
    Ints,
    IntsOut,
    TableOut,
    inlined,
    int16_at,
    int32_at,
    int64_at,
    kernel,
)
from rmqinspect.consumequeue.unit_bytes import MESSAGES, OFFSET, PLACE, SIZE, STORED, TAGS, UNIT_SIZE, is_filler
from rmqinspect.verify.consumequeue.units import QueuePointers, UnitBytes
from rmqinspect.verify.plan import CrossPlan

SECOND = 1000  # ms

# Columns of the runs of units: next row and row behind the last, what to add to a row for its queue offset, whether
# the next run is of the same queue, whether units hold times of delivery, and how many are right.
_NEXT, _BEHIND, _SHIFT, _GOES_ON, _SCHEDULED, _RIGHT = range(6)


@dataclass(slots=True)
class InStep:
    """The units that are right, and the others."""

    has_unit: Bools  # by record
    units: Ints  # by number of the file: how many are right
    others: QueuePointers


def find_in_step(
    plan: CrossPlan, number: int, records: Dispatched, numbers: Ints, parts: Sequence[UnitBytes]
) -> InStep:
    """Tell the units of `parts` that point into split `number` and are right from the others.

    `numbers` has those of the records' queues in `plan.queues`; -1: no file.
    """
    queues = plan.queues
    low, high = plan.range_of(number)
    has_unit = np.zeros(len(records), np.uint8)
    of_file = np.zeros(len(plan.queue_files), np.int64)
    others = []
    for part in parts:
        file, first_row, rows = np.array(part.runs, np.int64).T
        behind, queue = np.cumsum(rows), queues.of_file[file]
        runs = np.zeros((len(file), _RIGHT + 1), np.int64)
        runs[:, _NEXT], runs[:, _BEHIND], runs[:, _SCHEDULED] = behind - rows, behind, queues.scheduled[file]
        runs[:, _SHIFT] = queues.first_offset[file] + first_row - runs[:, _NEXT]
        runs[:-1, _GOES_ON] = queue[1:] == queue[:-1]
        first_run = np.full(len(queues.names) + 1, -1, np.int64)  # the last one for number -1
        first_run[queue[::-1]] = np.arange(len(queue))[::-1]
        deviating = np.empty(len(part.raw) // part.layout.itemsize, np.int64)
        count = step_units(
            part.raw,
            part.layout.itemsize,
            low,
            high - 1,
            int("plain_schedule_tags" in plan.may_hold),
            records.queue,
            records.physical_offset,
            records.size,
            records.queue_offset,
            records.tags_code,
            records.store_timestamp,
            records.messages,
            records.entitled.view(np.uint8),
            records.delayed.view(np.uint8),
            first_run[numbers],
            runs,
            has_unit,
            deviating,
        )
        np.add.at(of_file, file, runs[:, _RIGHT])
        others.append(part.columns(np.sort(deviating[:count])))
    return InStep(has_unit.view(np.bool_), of_file, QueuePointers.joined(others))


@kernel
def step_units(
    raw: Bytes,
    unit_size: int,
    low: int,
    most: int,
    by_recovery: int,
    queue: Int32s,
    physical_offset: Ints,
    size: Int32s,
    queue_offset: Ints,
    tags_code: Int32s,
    store_timestamp: Ints,
    messages: Int32s,
    entitled: Bytes,
    delayed: Bytes,
    run_of: IntsOut,
    runs: TableOut,
    has_unit: BytesOut,
    deviating: IntsOut,
) -> int:
    """Find the units of messages that point at [low, most] and are not right; return how many.

    `queue` to `delayed` are columns of the records, `run_of` the run that each of their queues is at, -1: none.
    `deviating` gets rows of `raw`. `by_recovery`: delayed messages may have the hash of their tags.
    """
    count = 0
    for record in range(len(has_unit)):
        own = queue[record]
        run = run_of[own] if 0 <= own < len(run_of) else -1
        while 0 <= run < len(runs):
            row = runs[run, _NEXT]
            at = row * unit_size
            if row >= runs[run, _BEHIND] or at + unit_size > len(raw):
                run = run + 1 if runs[run, _GOES_ON] else -1
                run_of[own] = run
                continue
            place = int64_at(raw, at + PLACE)
            if not is_judged(raw, at, unit_size, low, most):
                runs[run, _NEXT] = row + 1
                continue
            if place > physical_offset[record]:
                break
            runs[run, _NEXT] = row + 1
            tags = int64_at(raw, at + TAGS)
            offset, number, time = row + runs[run, _SHIFT], messages[record], store_timestamp[record]
            if unit_size > UNIT_SIZE:
                offset = int64_at(raw, at + OFFSET)
                if int64_at(raw, at + STORED) != 0:
                    number, time = int16_at(raw, at + MESSAGES), int64_at(raw, at + STORED)
            right = tags == tags_code[record]
            if runs[run, _SCHEDULED] and delayed[record]:
                right = (right and by_recovery != 0) or is_delivery(tags, store_timestamp[record])
            if (
                right
                and entitled[record] != 0
                and place == physical_offset[record]
                and int32_at(raw, at + SIZE) == size[record]
                and offset == queue_offset[record]
                and number == messages[record]
                and time == store_timestamp[record]
            ):
                has_unit[record] = 1
                runs[run, _RIGHT] += 1
                break
            if count < len(deviating):
                deviating[count] = row
                count += 1
    for run in range(len(runs)):
        for row in range(runs[run, _NEXT], runs[run, _BEHIND]):
            at = row * unit_size
            inside = row >= 0 and at + unit_size <= len(raw) and count < len(deviating)
            if inside and is_judged(raw, at, unit_size, low, most):
                deviating[count] = row
                count += 1
    return count


@inlined
def is_judged(raw: Bytes, at: int, unit_size: int, low: int, most: int) -> bool:
    """Return whether a unit is of a message and points at [low, most]."""
    place, size = int64_at(raw, at + PLACE), int32_at(raw, at + SIZE)
    if place < low or place > most or size <= 0:
        return False
    if unit_size > UNIT_SIZE and (int64_at(raw, at + OFFSET) < 0 or int16_at(raw, at + MESSAGES) <= 0):
        return False
    return not is_filler(place, size, int64_at(raw, at + TAGS))


@inlined
def is_delivery(tags: int, stored: int) -> bool:
    """Return whether a tags code is a store time and whole seconds of delay."""
    if stored < 0 or tags <= stored:
        return False
    return (tags - stored) % SECOND == 0  # neither is negative: the difference cannot overflow

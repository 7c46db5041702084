"""Queue units against the records of a split, both ways.

    unit -> record     does a record start where the unit points? is it of this queue, of this size, at this
                       queue offset, with these tags?           CQ-DANGLING, CQ-MISMATCH, CQ-SHIFT, CQ-TAG, BQ-COUNT
    record -> unit     has each record that is entitled to a unit one?                CQ-MISSING (level deep)

A split is joined on its own: units ascend in physical offset, so those that point into a split are few runs of
rows per file, which the survey has noted. Invariants:

  - a unit is judged in the one split whose range holds its physical offset;
  - each fault of a unit is reported once: a wrong record (`Match.good`) hides all else about the unit;
  - runs (dangling, shifted, missing) are capped, never dropped: what they mean is judged over all splits.

Source: ConsumeQueue, BatchConsumeQueue, CommitLogDispatcherBuildConsumeQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.verify.consumequeue.match import Match, match_units
from rmqinspect.verify.consumequeue.missing import Missing, find_missing
from rmqinspect.verify.consumequeue.tags import check_tags
from rmqinspect.verify.consumequeue.units import QueuePointers, locate_unit, read_unit_bytes
from rmqinspect.verify.dangling import Dangling, LogRanges
from rmqinspect.verify.findings import Finding, capped_findings
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import MOST_RUNS, Evidence, PointerReport
from rmqinspect.verify.wrong_records import Misnamed


class Shift(NamedTuple):
    """Consecutive units of a queue that are a constant number of places off their records' queue offsets."""

    file: str
    position: int
    topic: str
    queue_id: int
    unit: int  # number of the first
    units: int
    by: int  # number of the unit minus queue offset of the record
    physical_offset: int  # of the first unit's record


def capped_shifts(limit: int) -> CappedList[Shift, str]:
    """Return an empty list of up to `limit` runs; overflow becomes one run per file."""
    return CappedList(limit, lambda run: run.file, merge=lambda run, other: run._replace(units=run.units + other.units))


@dataclass(slots=True)
class UnitResult:
    """What the units of one split show."""

    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)
    shifts: list[Shift] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    dangling: list[Dangling] = field(default_factory=list)
    last_physical_offset: int | None = None  # physical offset of the last record that has its unit
    last_timestamp: int = 0  # its store time, ms
    joined: int = 0  # units that point at their record
    unread: list[Finding] = field(default_factory=list)  # ST-IO
    misnamed: list[Misnamed] = field(default_factory=list)


def join_units(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> UnitResult:
    """Check the units that point into split `number`, and its records; `limit` bounds the findings of a code."""
    kept = capped_findings(limit)
    result = UnitResult(kept.rows, kept.suppressed)
    unread: set[QueueName] = set()
    parts = read_unit_bytes(plan, number, result.unread, unread)
    match = match_units(plan, number, records, parts)
    units = match.units
    report = PointerReport(units, partial(locate_unit, plan, units), kept)
    result.dangling = report.dangling("unit", match.dangling, ranges, partial(_prove, units))
    _check_records(match, report, result.misnamed)
    result.joined = int(match.step.units.sum()) + int(np.count_nonzero(match.good))
    if result.joined:
        has_unit = match.step.has_unit.copy()
        has_unit[match.record[match.good]] = True
        last = np.flatnonzero(has_unit)[-1]
        result.last_physical_offset = int(records.physical_offset[last])
        result.last_timestamp = int(records.store_timestamp[last])
    result.shifts = _find_shifts(match, report)
    check_tags(match, report, result.unread)
    _check_batches(match, report)
    _, high = plan.range_of(number)
    result.missing = find_missing(match, high, unread, result.last_physical_offset)
    return result


def _prove(units: QueuePointers, at: Ints) -> Evidence:
    times = units.timestamp[at]
    newest = int(times.max()) if times.any() else None
    return Evidence(int(units.offset[at[0]]), int(units.messages[at].sum()), newest)


def _check_records(match: Match, report: PointerReport, misnamed: list[Misnamed]) -> None:
    """Report units that point at a record which is not theirs; add those whose record may be wrong to `misnamed`."""
    records, units = match.records, match.units
    for number in report.each("CQ-MISMATCH", np.flatnonzero(~match.good)):
        at, record = int(match.unit[number]), int(match.record[number])
        expected: object = None
        found: object = None
        if not match.own[number] and not match.extra[number]:
            what = "the unit points at a record of another queue"
            topic, queue_id = match.own_names[records.queue[record]]
            file = match.plan.queue_files[int(units.file[at])]
            expected, found = f"{file.topic} queue {file.queue_id}", f"{topic} queue {queue_id}"
            if (
                match.same_size[number]
                and records.queue_offset[record] == units.offset[at]
                and records.entitled[record]
            ):
                place, queue = int(records.physical_offset[record]), (file.topic, file.queue_id)
                misnamed.append(Misnamed(place, int(units.offset[at]), queue, (topic, queue_id)))
        elif not match.same_size[number]:
            what = "the unit's size differs from that of the record it points at"
            expected, found = records.size[record], units.size[at]
        else:
            what = "the unit points at a prepared or rolled-back message, which gets no unit"
        report.add("CQ-MISMATCH", what, at, expected, found)


def _find_shifts(match: Match, report: PointerReport) -> list[Shift]:
    """Return runs of units whose number is not the queue offset of their record."""
    units = match.units
    wrong = np.flatnonzero(match.good & (units.offset[match.unit] != match.expected))
    at = match.unit[wrong]
    order = np.lexsort((units.row[at], units.file[at]))
    at, by = at[order], (units.offset[at] - match.expected[wrong])[order]
    consecutive = units.row[at] - np.arange(len(at))
    shifts = capped_shifts(MOST_RUNS)
    for first, behind in groups(units.file[at], by, consecutive):
        unit = int(at[first])
        file, position, _, topic, queue_id, offset = report.locate(unit)
        assert topic is not None and queue_id is not None and offset is not None
        physical_offset = int(units.physical_offset[unit])
        shifts.add(Shift(file, position, topic, queue_id, offset, behind - first, int(by[first]), physical_offset))
    return shifts.rows


def _check_batches(match: Match, report: PointerReport) -> None:
    """Check what batch units alone hold: a number of messages and a store time."""
    numbers = np.flatnonzero(match.good & (match.units.timestamp[match.unit] != 0))
    at, record = match.unit[numbers], match.record[numbers]
    for code, what, found, expected in (
        (
            "BQ-COUNT",
            "the batch unit's message count differs from that of its record",
            match.units.messages[at],
            match.records.messages[record],
        ),
        (
            "CQ-MISMATCH",
            "the batch unit's store timestamp differs from that of the record it points at",
            match.units.timestamp[at],
            match.records.store_timestamp[record],
        ),
    ):
        for number in report.each(code, np.flatnonzero(found != expected)):
            report.add(code, what, int(at[number]), expected[number], found[number])

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

Records that are entitled to a queue unit and have none.

A wrong unit counts as its record's: CQ-MISMATCH reports it. Consecutive records of a queue are one `Missing`; what
it means (lost, not dispatched yet, deleted with its topic) is known only when all splits were read.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import field

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools, Ints, distinct, groups
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, read_ext_tags
from rmqinspect.errors import Unreadable
from rmqinspect.loops import pointer_rows as bits
from rmqinspect.loops.pointer_rows import OWN_UNIT, WRONG_UNIT
from rmqinspect.loops.pointers import judge_all_tags, step_units
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.text import text_of
from rmqinspect.topics import LMQ_PREFIX
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import (
    MOST_RUNS,
    Evidence,
    Joined,
    Kind,
    Location,
    LogRanges,
    PointerReport,
    Pointers,
    Verdict,
)
from rmqinspect.verify.queue_step import VALUES, JoinedUnits, UnitBytes, read_unit_bytes
from rmqinspect.verify.wrong_records import Misnamed

_DEAD_LETTERS = b"%DLQ%"
_LITE_PREFIX = f"{LMQ_PREFIX}$"


class Missing(NamedTuple):
    """Consecutive records of a queue that have no unit."""

    topic: str
    queue_id: int
    queue_offset: int  # of the first
    records: int
    messages: int
    low: int  # physical offsets of the first and the last
    high: int
    first_timestamp: int  # ms
    last_timestamp: int
    newest: bool  # no record of this split behind the first one has a unit

    def merged(self, other: "Missing") -> "Missing":
        """Return both as one row: sums and bounds of both, the place of this one."""
        return self._replace(
            records=self.records + other.records,
            messages=self.messages + other.messages,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            first_timestamp=min(self.first_timestamp, other.first_timestamp),
            last_timestamp=max(self.last_timestamp, other.last_timestamp),
        )


def capped_missing(limit: int) -> CappedList[Missing, tuple[str, int, bool]]:
    """Return an empty list of up to `limit` runs; overflow becomes one run per queue."""
    return CappedList(limit, lambda run: (run.topic, run.queue_id, run.newest), merge=Missing.merged)


class _MissingFinder:
    def __init__(self, units: JoinedUnits, high: int, unread: set[QueueName], last_physical_offset: int | None) -> None:
        """`high`: end of the split's range; `unread`: queues whose units could not be read.

        `last_physical_offset`: of the last record with a good unit.
        """
        self.units, self.high, self.unread = units, high, unread
        self.last_physical_offset = -1 if last_physical_offset is None else last_physical_offset
        self.missing = capped_missing(MOST_RUNS)

    def find(self) -> list[Missing]:
        """Return the records without a unit, in runs."""
        units, records = self.units, self.units.records
        has = (units.has_unit & (OWN_UNIT | WRONG_UNIT)) != 0
        # A record behind the split's range is in another segment too, and judged there.
        lacking = np.flatnonzero(records.entitled & records.sound & ~has & (records.physical_offset < self.high))
        if len(lacking):
            judged = np.array([not self._is_unread(name) for name in units.own_names])
            if not units.plan.whole:
                judged &= units.own_numbers >= 0
            lacking = lacking[judged[records.queue[lacking]]]
            self._add_runs(
                lacking,
                records.queue[lacking],
                records.queue_offset[lacking],
                records.messages[lacking],
                units.own_names,
            )
        if records.extras:
            self._find_further()
        return self.missing.rows

    def _is_unread(self, name: QueueName) -> bool:
        return name in self.unread or self.units.plan.is_unread(name)

    def _find_further(self) -> None:
        """Find units of multi-dispatch that are missing."""
        units, records, plan = self.units, self.units.records, self.units.plan
        lacking: list[tuple[int, int, int]] = []
        names: dict[QueueName, int] = {}
        for extra in records.extras:
            name = extra.topic, extra.queue_id
            number = plan.queues.number_of.get(name, -1)
            if units.own_numbers[records.queue[extra.record]] == number:
                has_unit = bool(units.has_unit[extra.record] & OWN_UNIT)
            else:
                has_unit = (extra.record, number) in units.further
            own_topic, _ = records.queues[int(records.queue[extra.record])]
            # 5.5.0 copies the names of the queues into a dead letter, and gives it no new offsets.
            entitled = records.entitled[extra.record] and not own_topic.startswith(_DEAD_LETTERS)
            if has_unit or self._is_unread(name) or not entitled or not records.sound[extra.record]:
                continue
            # An expired lite queue is deleted; with RocksDB, queues may be kept there alone.
            if number < 0 and (not plan.whole or plan.elsewhere or extra.topic.startswith(_LITE_PREFIX)):
                continue
            lacking.append((extra.record, names.setdefault(name, len(names)), extra.queue_offset))
        if lacking:
            rows = np.array(lacking, np.int64)
            self._add_runs(rows[:, 0], rows[:, 1], rows[:, 2], np.ones(len(rows), np.int64), list(names))

    def _add_runs(self, lacking: Ints, queue: Ints, offset: Ints, messages: Ints, names: list[QueueName]) -> None:
        """Add records without a unit; the other columns are those of `lacking`, `queue` an index of `names`."""
        if not len(lacking):
            return
        records = self.units.records
        order = np.lexsort((lacking, queue))
        lacking, queue, offset, messages = lacking[order], queue[order], offset[order], messages[order]
        newest = records.physical_offset[lacking] > self.last_physical_offset
        # A queue offset minus all messages before it: constant along a run.
        lead = offset - (np.cumsum(messages) - messages)
        for first, behind in groups(queue, lead, newest.astype(np.int64)):
            at = lacking[first:behind]
            topic, queue_id = names[int(queue[first])]
            run = Missing(
                topic,
                queue_id,
                int(offset[first]),
                len(at),
                int(messages[first:behind].sum()),
                int(records.physical_offset[at[0]]),
                int(records.physical_offset[at[-1]]),
                int(records.store_timestamp[at[0]]),
                int(records.store_timestamp[at[-1]]),
                bool(newest[first]),
            )
            self.missing.add(run)


_NO_EXT_UNIT = bits.OF_FURTHER << 1  # the bit of an address that leads nowhere

UNITS = Kind(
    "unit",
    "the unit",
    "CQ-DANGLING",
    "CQ-BEYOND",
    {
        bits.WRONG_QUEUE: Verdict(
            "CQ-MISMATCH", "the unit points at a record of another queue", "{row[queue]}", "{record[queue]}"
        ),
        bits.WRONG_SIZE: Verdict(
            "CQ-MISMATCH",
            "the unit's size differs from that of the record it points at",
            "{record[size]}",
            "{row[size]}",
        ),
        bits.NOT_ENTITLED: Verdict(
            "CQ-MISMATCH", "the unit points at a prepared or rolled-back message, which gets no unit"
        ),
        bits.WRONG_TIME: Verdict(
            "CQ-MISMATCH",
            "the batch unit's store timestamp differs from that of the record it points at",
            "{record[store_timestamp]}",
            "{row[timestamp]}",
        ),
        _NO_EXT_UNIT: Verdict("EX-ADDRESS", "the unit's ext address points to no ext unit", found="{row[tags]}"),
        bits.WRONG_DELAY: Verdict(
            "CQ-TAG",
            "the delivery time is not the store timestamp plus whole seconds of delay",
            "{record[store_timestamp]} and seconds",
            "{row[tags]}",
        ),
        bits.WRONG_TAGS: Verdict(
            "CQ-TAG",
            "the tags code is not the hash of the record's tags: consumers that filter by tag miss the message",
            "{record[tags_code]}",
            "{row[tags]}",
        ),
        bits.WRONG_COUNT: Verdict(
            "BQ-COUNT",
            "the batch unit's message count differs from that of its record",
            "{record[messages]}",
            "{row[messages]}",
        ),
    },
)


class Shift(NamedTuple):
    """Consecutive units of a queue that are a constant number of places off their records' queue offsets.

    Or that all lead to one record, so that the number is that of the first one.
    """

    file: str
    position: int
    topic: str
    queue_id: int
    unit: int  # number of the first
    units: int
    by: int  # number of the unit minus queue offset of the record
    physical_offset: int  # of the first unit's record
    one_record: bool = False


def capped_shifts(limit: int) -> CappedList[Shift, str]:
    """Return an empty list of up to `limit` runs; overflow becomes one run per file."""
    return CappedList(limit, lambda run: run.file, merge=lambda run, other: run._replace(units=run.units + other.units))


class SplitComparison(NamedTuple):
    """What folds of records take (`RecordFold.settle`)."""

    settled: Ints  # physical offsets of records with their unit
    wrong: Mapping[QueueName, Ints]  # queue offsets of the other units


class UnitResult(Joined):
    """What the units of one split show."""

    shifts: list[Shift] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    last_physical_offset: int | None = None  # physical offset of the last record that has its unit
    last_timestamp: int = 0  # its store time, ms
    misnamed: list[Misnamed] = field(default_factory=list)
    comparison: SplitComparison | None = None  # if asked; for folds, and not kept for a later run


def join_units(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> UnitResult:
    """Check the units that point into split `number`, and its records; `limit` bounds the findings of a code."""
    kept = capped_findings(limit)
    result = UnitResult(findings=kept.rows, suppressed=kept.suppressed)
    unread: set[QueueName] = set()
    units = step_through(plan, number, records, read_unit_bytes(plan, number, result.unread, unread))
    _judge_ext_tags(units, result.unread)
    wrong = units.wrong

    def locate(at: int) -> Location:
        file = plan.queue_files[int(wrong.file[at])]
        size, offset = dtype_of(LAYOUTS[file.kind]).itemsize, int(wrong.values["offset"][at])
        return Location(file.name, int(wrong.row[at]) * size, size, file.topic, file.queue_id, offset)

    def prove(at: Ints) -> Evidence:
        times = wrong.values["timestamp"][at]
        messages = int(wrong.values["messages"][at].sum())
        return Evidence(int(wrong.values["offset"][at[0]]), messages, int(times.max()) if times.any() else None)

    report = PointerReport(UNITS, wrong, records, locate, kept)
    result.dangling = report.dangling(ranges, prove)
    report.add_findings()
    result.misnamed = _misnamed(units, limit)
    result.shifts = _find_shifts(wrong, report, plan)
    result.joined = int(units.joined.sum())
    if result.joined:
        last = np.flatnonzero(units.has_unit & (bits.OWN_UNIT | bits.FURTHER_UNIT))[-1]
        result.last_physical_offset = int(records.physical_offset[last])
        result.last_timestamp = int(records.store_timestamp[last])
    _, high = plan.range_of(number)
    if plan.settles:
        result.comparison = SplitComparison(_settled(units, high), _wrong_units(units))
    if len(records):
        result.missing = _MissingFinder(units, high, unread, result.last_physical_offset).find()
    return result


def _settled(units: JoinedUnits, high: int) -> Ints:
    """Return where the sound records lie whose plain queue has a unit of them that breaks no rule, ascending."""
    records, plain = units.records, units.plan.plain_queues
    is_plain = np.array([name in plain for name in units.own_names], np.bool_)
    if not is_plain.any():
        return np.empty(0, np.int64)
    which = (units.has_unit == OWN_UNIT) & records.sound & records.entitled & (records.messages == 1)
    which &= is_plain[records.queue] & (records.physical_offset < high)
    hit = units.wrong.record
    which[hit[hit >= 0]] = False
    found: Ints = records.physical_offset[which]
    return found


def _wrong_units(units: JoinedUnits) -> dict[QueueName, Ints]:
    """Return the queue offsets of the plain units that are none of a settled record, by queue."""
    plan, wrong = units.plan, units.wrong
    found: dict[QueueName, Ints] = {}
    for file in distinct(wrong.file).tolist():
        name = plan.queue_files[file].topic, plan.queue_files[file].queue_id
        if name in plan.plain_queues:
            offsets = wrong.values["offset"][wrong.file == file]
            found[name] = np.concatenate((found.get(name, offsets[:0]), offsets))
    for extra in units.records.extras if units.further else ():
        name = extra.topic, extra.queue_id
        # No record has a light queue as its own.
        if not extra.topic.startswith(LMQ_PREFIX) and (extra.record, plan.queues.number_of.get(name)) in units.further:
            found[name] = np.append(found.get(name, np.empty(0, np.int64)), extra.queue_offset)
    return found


def step_through(plan: CrossPlan, number: int, records: Dispatched, parts: Sequence[UnitBytes]) -> JoinedUnits:
    """Judge the units in `parts` that point into split `number`."""
    queues = plan.queues
    names = [(text_of(topic), queue_id) for topic, queue_id in records.queues]
    numbers = np.array([queues.number_of.get(name, -1) for name in names], np.int64)
    low, high = plan.range_of(number)
    # Units by multi-dispatch, each as a number of record and queue.
    more = [(e.record, queues.number_of.get((e.topic, e.queue_id), -1), e.queue_offset) for e in records.extras]
    rows = np.array(more, np.int64).reshape(-1, 3)
    record, queue, offset = rows[rows[:, 1] >= 0].T
    keys = record * len(queues.names) + queue
    order = np.argsort(keys, kind="stable")
    has_further = np.zeros(len(keys), np.uint8)
    has_unit = np.zeros(len(records), np.uint8)
    joined = np.zeros(len(plan.queue_files), np.int64)
    found = []
    for part in parts:
        file, first_row, rows = np.array(part.runs, np.int64).T
        behind, of_file = np.cumsum(rows), queues.of_file[file]
        runs = np.zeros((len(file), bits.RUN_COLUMNS), np.int64)
        runs[:, bits.NEXT], runs[:, bits.BEHIND], runs[:, bits.QUEUE] = behind - rows, behind, of_file
        runs[:, bits.SCHEDULED] = queues.scheduled[file]
        runs[:, bits.SHIFT] = queues.first_offset[file] + first_row - runs[:, bits.NEXT]
        runs[:-1, bits.GOES_ON] = of_file[1:] == of_file[:-1]
        first_run = np.full(len(queues.names) + 1, -1, np.int64)  # the last one for number -1
        first_run[of_file[::-1]] = np.arange(len(of_file))[::-1]
        wrong = np.empty((len(part.raw) // part.layout.itemsize, bits.UNIT_COLUMNS), np.int64)
        count = step_units(
            part.raw,
            part.layout.itemsize,
            low,
            high - 1,
            plan.by_recovery,
            numbers,
            records.queue,
            records.physical_offset,
            records.size,
            records.queue_offset,
            records.tags_code,
            records.store_timestamp,
            records.messages,
            records.entitled.view(np.uint8),
            records.delayed.view(np.uint8),
            len(queues.names),
            keys[order],
            offset[order],
            has_further,
            first_run[numbers],
            runs,
            has_unit,
            wrong,
        )
        np.add.at(joined, file, runs[:, bits.JOINED])
        wrong = wrong[:count]
        found.append(part.pointers(wrong[np.argsort(wrong[:, bits.ROW])]))
    there = order[has_further != 0]
    further = set(zip(record[there].tolist(), queue[there].tolist(), strict=True))
    return JoinedUnits(plan, records, names, numbers, Pointers.joined(found, VALUES), has_unit, further, joined)


def _judge_ext_tags(units: JoinedUnits, unread: list[Finding]) -> None:
    """Judge the units whose tags code is the address of an ext unit, which holds one of those without.

    Source: ConsumeQueue#isExtAddr, ConsumeQueueExt#get.
    """
    plan, wrong = units.plan, units.wrong
    in_ext = wrong.which(bits.IN_EXT)
    judged = np.zeros(len(wrong.row), np.bool_)
    for file_number in distinct(wrong.file[in_ext]).tolist():
        file = plan.queue_files[file_number]
        name = file.topic, file.queue_id
        which, exts = in_ext[wrong.file[in_ext] == file_number], plan.ext_files.get(name, ())
        # Without ext files, a few such numbers are damaged hashes; many say that the files are lost.
        if not exts and 2 * len(which) <= units.joined[file_number]:
            judged[which] = True
        elif name not in plan.hidden_ext:
            addresses, known = wrong.values["tags"][which], np.zeros(len(which), np.bool_)
            tags = np.zeros(len(which), np.int64)
            try:
                read_ext_tags(exts, addresses, tags, known)
            except Unreadable as error:
                unread.append(unread_finding(error))
                continue
            wrong.values["tags"][which[known]] = tags[known]
            wrong.verdict[which[~known]] |= _NO_EXT_UNIT
            judged[which[known]] = True
    _judge_tags(units, np.flatnonzero(judged))


def _judge_tags(units: JoinedUnits, which: Ints) -> None:
    """Add the verdicts on the tags codes of some units, which are known by now."""
    records, wrong = units.records, units.wrong
    record, verdict = wrong.record[which], wrong.verdict[which]
    scheduled = units.plan.queues.scheduled[wrong.file[which]] != 0
    has_delay: Bools = scheduled & records.delayed[record] & (verdict & bits.OF_FURTHER == 0)
    judge_all_tags(
        wrong.values["tags"][which],
        record,
        has_delay.view(np.uint8),
        units.plan.by_recovery,
        records.tags_code,
        records.store_timestamp,
        verdict,
    )
    wrong.verdict[which] = verdict


def _misnamed(units: JoinedUnits, limit: int) -> list[Misnamed]:
    """Return what may be a record that names another queue than it was put into, of the first wrong units."""
    records, wrong = units.records, units.wrong
    found: list[Misnamed] = []
    for at in wrong.which(bits.WRONG_RECORD)[:limit].tolist():
        record, offset = int(wrong.record[at]), int(wrong.values["offset"][at])
        if (
            wrong.verdict[at] == bits.WRONG_QUEUE
            and wrong.values["size"][at] == records.size[record]
            and records.queue_offset[record] == offset
            and records.entitled[record]
        ):
            file, named = units.plan.queue_files[int(wrong.file[at])], units.own_names[records.queue[record]]
            place = int(records.physical_offset[record])
            found.append(Misnamed(place, offset, (file.topic, file.queue_id), named))
    return found


def _find_shifts(wrong: Pointers, report: PointerReport, plan: CrossPlan) -> list[Shift]:
    """Return runs of units whose number is not the queue offset of their record."""
    at = wrong.which(bits.SHIFTED)
    at = at[np.lexsort((wrong.row[at], wrong.file[at]))]
    by = wrong.values["offset"][at] - wrong.values["expected"][at]
    file, row, place = wrong.file[at], wrong.row[at], wrong.values["physical_offset"][at]
    is_batch = np.array([one.kind == "batch_queue" for one in plan.queue_files], np.bool_)
    goes_on = (file[1:] == file[:-1]) & ~is_batch[file[1:]]
    goes_on &= (row[1:] == row[:-1] + 1) & (place[1:] == place[:-1])
    one_record = np.zeros(len(at), np.bool_)
    one_record[1:] |= goes_on
    one_record[:-1] |= goes_on
    kind = np.where(one_record, place, by)
    shifts = capped_shifts(MOST_RUNS)
    for first, behind in groups(file, kind, one_record.astype(np.int64), row - np.arange(len(at))):
        unit = int(at[first])
        name, position, _, topic, queue_id, offset = report.locate(unit)
        assert topic is not None and queue_id is not None and offset is not None
        units, is_one = behind - first, bool(one_record[first])
        shift = Shift(name, position, topic, queue_id, offset, units, int(by[first]), int(place[first]), is_one)
        shifts.add(shift)
    return shifts.rows

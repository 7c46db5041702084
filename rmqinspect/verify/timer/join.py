"""Units of the timer log against the records of a split: TM-CHAIN, TM-BEYOND.

A unit has the offset and size of the record that waits in the timer topic, and the hash of the topic it is bound
for. Each unit gets one verdict at most, in this order:

    place >= log end              beyond      TM-BEYOND
    no record starts at place     lost        TM-CHAIN; normal before the log: retention took the record
    another record size           resized     TM-CHAIN
    another REAL_TOPIC            retargeted  TM-CHAIN; of a unit unpacked from RocksDB the topic is not known

Where the commit log was cut, the timer log is not: TimerMessageStore#recover looks at the timer log only
(apache/rocketmq issue 10668).

Source: TimerMessageStore#getMessageByCommitOffset, #hashTopicForMetrics; RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools, Ints, Units, groups
from rmqinspect.codec.kernels import Int32s
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.timer import UNIT_SIZE, TimerUnit
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.timer.log import are_units
from rmqinspect.verify.dangling import Dangling, LogRanges
from rmqinspect.verify.findings import Finding, capped_findings
from rmqinspect.verify.plan import CrossPlan
from rmqinspect.verify.pointers import Evidence, Location, PointerReport, Pointers, read_runs
from rmqinspect.verify.runs import Run

_ANYWHERE = (1 << 63) - 1

# By mask of the verdict: code and message.
_FAULTS = {
    "beyond": ("TM-BEYOND", "the timer unit points behind the end of the commit log: its message is gone"),
    "lost": ("TM-CHAIN", "the timer unit points to no record: its message is not delivered when its time comes"),
    "resized": ("TM-CHAIN", "the timer unit points to a record of another size"),
    "retargeted": ("TM-CHAIN", "the timer unit points to a record for another topic"),
}


@dataclass(slots=True)
class TimerResult:
    """What the timer units of one split show."""

    findings: list[Finding] = field(default_factory=list)
    dangling: list[Dangling] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def join_timer(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> TimerResult:
    """Check the timer units that point into split `number`; `limit` bounds the rows of a fault."""
    result = TimerResult()
    low, high = plan.range_of(number)

    def read(file: int, first: int, count: int) -> tuple[Ints, Units]:
        return read_timer_units(plan.timer_files[file], Run(first, count, number), low, high)

    for which, found in read_runs(plan.timer_runs.of_split(number), read, result.unread):
        if found is None:
            continue
        file, (rows, units) = plan.timer_files[which], found
        # Whether a unit points behind the log's end is for the judge of the whole log to say.
        verdict = judge_timer_units(units, records.physical_offset, records.size, records.real_topic, low, _ANYWHERE)
        result.dangling += _dangling(file, rows, units, np.flatnonzero(verdict.lost), ranges)
        nowhere = np.zeros(len(units), np.bool_)
        judged_here = verdict._replace(lost=nowhere)
        if file.kind != "timer_log":
            judged_here = judged_here._replace(retargeted=nowhere)
        result.findings += timer_unit_findings(file, rows, units, judged_here, records.size, records.real_topic, limit)
    return result


def _dangling(file: StoreFile, rows: Ints, units: Units, lost: Ints, ranges: LogRanges) -> list[Dangling]:
    pointers = Pointers(units["physical_offset"].astype(np.int64), np.zeros_like(rows), rows)

    def locate(at: int) -> Location:
        return Location(file.name, int(rows[at]) * UNIT_SIZE, UNIT_SIZE)

    report = PointerReport(pointers, locate, capped_findings(0))
    return report.dangling("timer", lost, ranges, lambda at: Evidence(int(rows[at[0]]), len(at)))


def read_timer_units(file: StoreFile, run: Run, low: int, high: int) -> tuple[Ints, Units]:
    """Return (rows, units) of a run that point at physical offsets [low, high).

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(file) as reader:
        raw = reader.read(run.first * UNIT_SIZE, run.rows * UNIT_SIZE)
    units = np.frombuffer(raw, dtype_of(TimerUnit), len(raw) // UNIT_SIZE)
    inside = np.flatnonzero(are_units(units) & (units["physical_offset"] >= low) & (units["physical_offset"] < high))
    return run.first + inside, units[inside]


class UnitVerdict(NamedTuple):
    """What n timer units point to. At most one mask, shape (n,), marks a unit; none marks a good one."""

    record: Ints  # index of the record that starts there, -1 without
    beyond: Bools
    lost: Bools
    resized: Bools
    retargeted: Bools


def judge_timer_units(
    units: Units, starts: Ints, sizes: Int32s, real_topic_hashes: Int32s, log_start: int, log_end: int
) -> UnitVerdict:
    """Return what each timer unit points to, given all records of the part of the log that they point into.

    `starts`, ascending, are physical offsets; a real topic hash is `java_string_hash` of REAL_TOPIC, 0
    for a record without.
    """
    place = units["physical_offset"].astype(np.int64)
    at = np.minimum(np.searchsorted(starts, place), len(starts) - 1)
    hit = starts[at] == place if len(starts) else np.zeros(len(units), np.bool_)
    record = np.where(hit, at, -1)
    resized, retargeted = np.zeros((2, len(units)), np.bool_)
    resized[hit] = units["record_size"][hit] != sizes[at[hit]]
    retargeted[hit] = units["real_topic_hash"][hit] != real_topic_hashes[at[hit]]
    beyond = ~hit & (place >= log_end)
    lost = ~hit & (place >= log_start) & ~beyond
    return UnitVerdict(record, beyond, lost, resized, retargeted & ~resized)


def timer_unit_findings(
    file: StoreFile,
    rows: Ints,
    units: Units,
    verdict: UnitVerdict,
    sizes: Int32s,
    real_topic_hashes: Int32s,
    limit: int = 1000,
) -> Iterator[Finding]:
    """Yield the faults of the units at `rows` of a file; consecutive rows with one fault are one finding.

    `sizes` and `real_topic_hashes` are those that the verdict was made with. Over `limit` findings, the
    rest of each fault is one more, with its count.
    """
    fault = np.zeros(len(units), np.int64)
    for number, name in enumerate(_FAULTS, 1):
        fault[getattr(verdict, name)] = number
    bad = np.flatnonzero(fault)
    runs = groups(fault[bad], rows[bad] - np.arange(len(bad)))
    some = [bad[first:behind] for first, behind in runs[:limit]]
    rest = bad[runs[limit][0] :] if len(runs) > limit else bad[:0]
    some += [rest[fault[rest] == number] for number in np.unique(fault[rest])]
    for which in some:
        at = int(which[0])
        name = list(_FAULTS)[fault[at] - 1]
        code, message = _FAULTS[name]
        expected, found = None, f"{units['record_size'][at]} bytes at {units['physical_offset'][at]}"
        if name == "resized":
            expected = f"{sizes[verdict.record[at]]} bytes"
        elif name == "retargeted":
            expected = f"topic hash {real_topic_hashes[verdict.record[at]]}"
            found = f"topic hash {units['real_topic_hash'][at]}"
        first, last = int(rows[at]), int(rows[which[-1]])
        yield Finding(
            code,
            message,
            file=file.name,
            offset=first * UNIT_SIZE,
            length=(last + 1 - first) * UNIT_SIZE,
            physical_offset=int(units["physical_offset"][at]),
            count=len(which),
            expected=expected,
            found=found,
        )

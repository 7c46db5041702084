"""Units of the timer log against the records of a split: TM-CHAIN, TM-BEYOND.

A unit has the offset and size of the record that waits in the timer topic, and the hash of the topic it is bound
for. Each unit gets one verdict at most, in this order:

    no record starts at place     dangling; normal before the log: retention took the record
    another record size           TM-CHAIN
    another REAL_TOPIC            TM-CHAIN; of a unit unpacked from RocksDB the topic is not known

Where the commit log was cut, the timer log is not: TimerMessageStore#recover looks at the timer log only
(apache/rocketmq issue 10668).

Source: TimerMessageStore#getMessageByCommitOffset, #hashTopicForMetrics; RocketMQ 5.0.0 to 5.5.0.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.timer import UNIT_SIZE, TimerUnit
from rmqinspect.store.reader import open_file
from rmqinspect.timer.log import are_units
from rmqinspect.verify.findings import Finding, capped_findings
from rmqinspect.verify.pointers import (
    DANGLING,
    Dangling,
    Evidence,
    Kind,
    Location,
    LogRanges,
    PointerReport,
    Pointers,
    Verdict,
    read_runs,
)
from rmqinspect.verify.survey import CrossPlan

_WRONG_SIZE, _WRONG_TOPIC = DANGLING << 1, DANGLING << 2

TIMERS = Kind(
    "timer",
    {
        _WRONG_SIZE: Verdict(
            "TM-CHAIN",
            "the timer unit points to a record of another size",
            "{record[size]} bytes",
            "{row[record_size]} bytes at {row[physical_offset]}",
        ),
        _WRONG_TOPIC: Verdict(
            "TM-CHAIN",
            "the timer unit points to a record for another topic",
            "topic hash {record[real_topic]}",
            "topic hash {row[real_topic_hash]}",
        ),
    },
    joins_rows=True,
)
_VALUES = ("physical_offset", "record_size", "real_topic_hash")


@dataclass(slots=True)
class TimerResult:
    """What the timer units of one split show."""

    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)
    dangling: list[Dangling] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def join_timer(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> TimerResult:
    """Check the timer units that point into split `number`; `limit` bounds the findings."""
    kept = capped_findings(limit)
    result = TimerResult(kept.rows, kept.suppressed)
    low, high = plan.range_of(number)

    def read(which: int, first: int, count: int) -> Pointers:
        file = plan.timer_files[which]
        with open_file(file) as reader:
            raw = reader.read(first * UNIT_SIZE, count * UNIT_SIZE)
        units = np.frombuffer(raw, dtype_of(TimerUnit), len(raw) // UNIT_SIZE)
        inside = are_units(units) & (units["physical_offset"] >= low) & (units["physical_offset"] < high)
        rows = np.flatnonzero(inside)
        values = {name: units[name][rows].astype(np.int64) for name in _VALUES}
        units_of_file = Pointers(np.full_like(rows, which), first + rows, *_judge(values, records), values)
        if file.kind != "timer_log":
            units_of_file.verdict &= ~_WRONG_TOPIC
        return units_of_file

    parts = [found for _, found in read_runs(plan.timer_runs.of_split(number), read, result.unread) if found]
    units = Pointers.joined(parts, _VALUES)

    def locate(at: int) -> Location:
        return Location(plan.timer_files[units.file[at]].name, int(units.row[at]) * UNIT_SIZE, UNIT_SIZE)

    report = PointerReport(TIMERS, units, records, locate, kept)
    result.dangling = report.dangling(ranges, lambda at: Evidence(int(units.row[at[0]]), len(at)))
    report.add_findings()
    return result


def _judge(units: dict[str, Ints], records: Dispatched) -> tuple[Ints, Ints]:
    """Return the record that each unit points at, -1 without, and its verdict."""
    places = units["physical_offset"]
    hit = np.isin(places, records.physical_offset)
    record = np.where(hit, np.searchsorted(records.physical_offset, places), -1)
    verdict = np.where(hit, 0, DANGLING)
    at = record[hit]
    wrong_topic = units["real_topic_hash"][hit] != records.real_topic[at]
    wrong_size = units["record_size"][hit] != records.size[at]
    verdict[hit] = np.where(wrong_size, _WRONG_SIZE, np.where(wrong_topic, _WRONG_TOPIC, 0))
    return record, verdict

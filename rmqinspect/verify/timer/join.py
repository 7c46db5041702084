"""Units of the timer log against the records of a split: where each leads.

Source: TimerMessageStore#getMessageByCommitOffset; aux 5.7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.timer import UNIT_SIZE
from rmqinspect.verify.dangling import Dangling, LogRanges, where_of
from rmqinspect.verify.findings import Finding, unread_finding
from rmqinspect.verify.plan import CrossPlan
from rmqinspect.verify.runs import Run
from rmqinspect.verify.timer.survey import judge_timer_units, read_timer_units, tell_timer_units

_ANYWHERE = (1 << 63) - 1


@dataclass(slots=True)
class TimerResult:
    """What the timer units of one split told."""

    findings: list[Finding] = field(default_factory=list)
    dangling: list[Dangling] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def join_timer(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> TimerResult:
    """Check the timer units that point into split `number`; `limit` bounds the rows of a fault."""
    result = TimerResult()
    low, high = plan.range_of(number)
    for which, first, count in plan.timer_runs.of_split(number):
        file = plan.timer_files[which]
        try:
            rows, units = read_timer_units(file, Run(first, count, number), low, high)
        except Unreadable as error:
            result.unread.append(unread_finding(error))
            continue
        # Whether a unit points behind the log's end is for the judge of the whole log to say.
        verdict = judge_timer_units(units, records.place, records.size, records.real_topic, low, _ANYWHERE)
        place = units["physical_offset"].astype(np.int64)
        result.dangling += _lost(file.name, rows[verdict.lost], place[verdict.lost], ranges)
        reported = verdict._replace(lost=np.zeros(len(units), np.bool_))
        result.findings += tell_timer_units(file, rows, units, reported, records.size, records.real_topic, limit)
    return result


def _lost(file: str, rows: Ints, place: Ints, ranges: LogRanges) -> Sequence[Dangling]:
    number = ranges.look_up(place)
    return [
        Dangling(
            "timer",
            file,
            int(rows[first]) * UNIT_SIZE,
            UNIT_SIZE,
            behind - first,
            int(rows[first]),
            None,
            None,
            int(place[first:behind].min()),
            int(place[first:behind].max()),
            where_of(int(number[first])),
            behind - first,
            None,
        )
        for first, behind in groups(number, rows - np.arange(len(rows)))
    ]

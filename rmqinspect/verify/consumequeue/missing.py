"""Records that are entitled to a queue unit and have none.

A wrong unit counts as its record's: CQ-MISMATCH reports it. Consecutive records of a queue are one `Missing`; what
it means (lost, not dispatched yet, deleted with its topic) is known only when all splits were read.
"""

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.topics import LMQ_PREFIX
from rmqinspect.verify.consumequeue.match import Match
from rmqinspect.verify.plan import QueueName
from rmqinspect.verify.pointers import MOST_RUNS

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


def find_missing(match: Match, high: int, unread: set[QueueName], last_physical_offset: int | None) -> list[Missing]:
    """Return the records without a unit, in runs.

    `high`: end of the split's range; `unread`: queues whose units could not be read; `last_physical_offset`: physical
    offset of the last record with a good unit.
    """
    return _MissingFinder(match, high, unread, last_physical_offset).find() if len(match.records) else []


class _MissingFinder:
    def __init__(self, match: Match, high: int, unread: set[QueueName], last_physical_offset: int | None) -> None:
        self.match, self.high, self.unread = match, high, unread
        self.last_physical_offset = -1 if last_physical_offset is None else last_physical_offset
        self.missing = capped_missing(MOST_RUNS)

    def find(self) -> list[Missing]:
        match, records = self.match, self.match.records
        has = match.step.has_unit.copy()
        has[match.record[match.good & ~match.extra]] = True
        has[match.record[~match.good]] = True
        # A record behind the split's range is in another segment too, and judged there.
        lacking = np.flatnonzero(records.entitled & records.sound & ~has & (records.physical_offset < self.high))
        if len(lacking):
            judged = np.array([not self._is_unread(name) for name in match.own_names])
            if not match.plan.whole:
                judged &= match.own_numbers >= 0
            lacking = lacking[judged[records.queue[lacking]]]
            self._add_runs(
                lacking,
                records.queue[lacking],
                records.queue_offset[lacking],
                records.messages[lacking],
                match.own_names,
            )
        if records.extras:
            self._find_extras()
        return self.missing.rows

    def _is_unread(self, name: QueueName) -> bool:
        return name in self.unread or self.match.plan.is_unread(name)

    def _find_extras(self) -> None:
        """Find units of multi-dispatch that are missing."""
        match, records = self.match, self.match.records
        queues = match.plan.queues.of_file[match.units.file[match.unit[match.good]]]
        had = set(zip(match.record[match.good].tolist(), queues.tolist(), strict=True))
        lacking: list[tuple[int, int, int]] = []
        names: dict[QueueName, int] = {}
        for extra in records.extras:
            name = extra.topic, extra.queue_id
            number = match.plan.queues.number_of.get(name, -1)
            in_step = match.step.has_unit[extra.record] and match.own_numbers[records.queue[extra.record]] == number
            if in_step or (extra.record, number) in had or self._is_unread(name) or self._needs_no_extra(extra.record):
                continue
            if number < 0 and self._may_lack_files(extra.topic):
                continue
            lacking.append((extra.record, names.setdefault(name, len(names)), extra.queue_offset))
        if lacking:
            rows = np.array(lacking, np.int64)
            self._add_runs(rows[:, 0], rows[:, 1], rows[:, 2], np.ones(len(rows), np.int64), list(names))

    def _needs_no_extra(self, record: int) -> bool:
        """Whether a record gets no further units, or its properties cannot be believed."""
        records = self.match.records
        if not records.sound[record] or not records.entitled[record]:
            return True
        # 5.5.0 copies the names of the queues into a dead letter, and gives it no new offsets.
        return records.queues[int(records.queue[record])][0].startswith(_DEAD_LETTERS)

    def _may_lack_files(self, topic: str) -> bool:
        """Whether a queue of multi-dispatch without files is no loss.

        An expired lite queue is deleted; with RocksDB, queues may be kept there alone.
        """
        plan = self.match.plan
        return not plan.whole or plan.elsewhere or topic.startswith(_LITE_PREFIX)

    def _add_runs(self, lacking: Ints, queue: Ints, offset: Ints, messages: Ints, names: list[QueueName]) -> None:
        """Add records without a unit; the other columns are those of `lacking`, `queue` an index of `names`."""
        if not len(lacking):
            return
        records = self.match.records
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

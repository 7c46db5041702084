"""What a start gives up: the records at or behind the new end of the log, each counted once.

    log      |----kept----|rejected|rec|rec|rec|stale|zeros|
                          ^ new end
    lost                   x        x   x   x

A record that the scan refuses counts too, if it is one at all. Records of an earlier life of the file (`commitlog.
stale`) were lost at an earlier start: they do not count again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rmqinspect.codec.arrays import Bools
from rmqinspect.commitlog.columns import PHYSICAL_OFFSET
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.forecast.outcome import Losses
from rmqinspect.schemas.message import TRANSACTION_MASK, SysFlag
from rmqinspect.store.model import Store
from rmqinspect.tables.fold import fold_log
from rmqinspect.tables.table import Request
from rmqinspect.tables.tally import BYTES, FIRST, RECORDS, Tally
from rmqinspect.text import text_of

_BEHIND_ALL = 1 << 63
_LOOKED_AT = 1 << 20  # bytes behind an end, and of each segment behind it, in which a record shows that there are more
_ALL_ONE = np.empty(0, np.int64)
_COUNTED = (0, int(SysFlag.TRANSACTION_COMMIT))


@dataclass(slots=True)
class LossFold:
    """Sums of the records of a part of the log."""

    queues: Tally = field(default_factory=Tally)  # topic, queue id
    intact: int = 0
    end: int | None = None  # physical offset behind the last record
    first_timestamp: int | None = None  # ms
    last_timestamp: int | None = None
    next_offsets: dict[tuple[bytes, int], int] = field(default_factory=dict)  # behind the highest of each queue
    _keys: list[tuple[bytes, int]] = field(default_factory=list)  # of `queues`, as far as they were asked for

    def take(self, run: RecordRun) -> None:
        """Count a run of records; those of an earlier life do not count."""
        records = run.records
        if run.stale or not len(records):
            return
        topics = records.topic_starts, records.topic_ends
        self.queues.take(records.bytes, *topics, records.field("queue_id"), records.rows, _ALL_ONE)
        in_place = records.rows[:, PHYSICAL_OFFSET] == records.base + records.starts
        intact = in_place & records.body_crc_ok
        self.intact += int(np.count_nonzero(intact))
        times = records.field("store_timestamp")
        if self.first_timestamp is None:
            self.first_timestamp = int(times[0])
        self.last_timestamp = int(times[-1])
        self.end = records.base + int(records.ends[-1])
        self._note_offsets(run, intact)

    def join(self, following: Self) -> None:
        """Add the sums of the part that follows."""
        self.queues.join(following.queues)
        self.intact += following.intact
        if self.first_timestamp is None:
            self.first_timestamp = following.first_timestamp
        if following.last_timestamp is not None:
            self.last_timestamp = following.last_timestamp
            self.end = following.end
        for queue, offset in following.next_offsets.items():
            self.next_offsets[queue] = max(offset, self.next_offsets.get(queue, 0))

    def losses(self) -> Losses:
        """Return the sums as part of an outcome."""
        found = Losses(end=self.end, intact=self.intact)
        found.first_timestamp, found.last_timestamp = self.first_timestamp, self.last_timestamp
        for (topic, _), sums in zip(self.queues.keys.keys_from(0), self.queues.sums.tolist(), strict=True):
            name = text_of(topic)
            found.messages += sums[RECORDS]
            found.bytes += sums[BYTES]
            found.by_topic[name] = found.by_topic.get(name, 0) + sums[RECORDS]
            found.bytes_by_topic[name] = found.bytes_by_topic.get(name, 0) + sums[BYTES]
            found.first_by_topic[name] = min(sums[FIRST], found.first_by_topic.get(name, sums[FIRST]))
        found.messages += int(self.queues.others[RECORDS])
        found.bytes += int(self.queues.others[BYTES])
        return found

    def _note_offsets(self, run: RecordRun, intact: Bools) -> None:
        """Keep the next queue offset of each queue, as its whole records say it."""
        records = run.records
        numbers = self.queues.keys.number(
            records.bytes, records.topic_starts, records.topic_ends, records.field("queue_id")
        )
        transactions = records.sys_flag & TRANSACTION_MASK
        with_offset = np.flatnonzero(intact & np.isin(transactions, _COUNTED))
        if not len(with_offset):
            return
        steps = offsets_taken(records)
        behind = records.field("queue_offset") + (steps if len(steps) else 1)
        met, which = np.unique(numbers[with_offset], return_inverse=True)
        highest = np.full(len(met), -1, np.int64)
        np.maximum.at(highest, which, behind[with_offset])
        self._keys += self.queues.keys.keys_from(len(self._keys))
        for number, offset in zip(met.tolist(), highest.tolist(), strict=True):
            if offset >= 0:
                queue = self._keys[number]
                self.next_offsets[queue] = max(offset, self.next_offsets.get(queue, 0))


def count_losses(
    store: Store, start: int, stop: int, jobs: int, progress: Callable[[int], None] | None, unread: list[str]
) -> LossFold:
    """Return the sums of all records that start at physical offsets from `start` to before `stop`.

    What the system refuses to read is noted in `unread`.
    """
    request = Request(offsets=(start, stop), jobs=jobs, progress=progress, on_unreadable=unread.append)
    return fold_log(store, request, LossFold)


@dataclass
class LossCounter:
    """Counts what lies behind several ends of one log; no byte of it is read twice."""

    store: Store
    jobs: int
    progress: Callable[[int], None] | None
    unread: list[str]  # what the system refused to read
    _known: dict[int, LossFold] = field(default_factory=dict)  # by the end behind which it counts

    def behind(self, end: int) -> LossFold:
        """Return the sums of all records at or behind an end."""
        if end not in self._known:
            stop = min((known for known in self._known if known > end), default=_BEHIND_ALL)
            fold = count_losses(self.store, end, stop, self.jobs, self.progress, self.unread)
            if stop in self._known:
                fold.join(self._known[stop])
            self._known[end] = fold
        return self._known[end]

    def any_behind(self, end: int) -> bool:
        """Return whether a record lies at or behind an end; of each segment only the beginning is read for that."""
        starts = (end, *(segment.base for segment in self.store.segments if segment.base > end))
        parts = (
            count_losses(self.store, start, start + _LOOKED_AT, self.jobs, self.progress, self.unread)
            for start in starts
        )
        return any(part.losses().messages for part in parts)

"""What a start does to every consume queue: recover, dispatch, cut, minimum.

    QueueEnds.read                 the files, once for all walks
        Queues(ends, rules, …)     what `recover` leaves; a walk's own state
            dispatch(batch)        records of the scan, in log order
            truncate(end)          all queues are cut at the end of the log
            correct_minimum(...)   the minimum follows the log
            outcomes()             every queue before and after

Each queue is a `Queue`, which does what the broker's does. The units of records are handed to it many at a time.

Source: ConsumeQueue, DefaultMessageStore#recover, ConsumeQueueStore (5.0.0+); RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.dispatch import further_units, has_queue_unit, unreadable_offset
from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.properties import Items
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.outcome import QueueOutcome, Refusal
from rmqinspect.forecast.queue import BASE, COUNT, OFFSET, PLACE, SIZE, BatchQueue, Kept, Queue
from rmqinspect.forecast.queue_ends import BATCH, NO_QUEUE, SIMPLE, QueueEnds, QueueName
from rmqinspect.schemas.message import TRANSACTION_SHIFT, TRANSACTIONS
from rmqinspect.store.model import QueueFile
from rmqinspect.topics import SCHEDULE_TOPIC

# Topics whose records are not multi-dispatched, by their beginnings.
_NOT_MULTIPLIED = {
    "no_retry": (b"%RETRY%",),
    "no_retry_timer_schedule": (b"%RETRY%", b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX"),
    "no_retry_system_schedule": (b"%RETRY%", b"rmq_sys_", b"SCHEDULE_TOPIC_XXXX"),
}

_SKIPS_PATHS = ("no_retry_timer_schedule", "no_retry_system_schedule")

_DIGITS = 18  # of a number that always fits into a long
_PENDING = 1 << 18  # units that are kept before they are put


class _Units(NamedTuple):
    """Units to be put, in log order."""

    rows: Ints  # numbers of queues
    table: Ints  # a column for each unit: PHYSICALOFFSET, size, queue offset, messages, where the record lies


class Queues:
    """The queues in one walk."""

    def __init__(
        self, ends: QueueEnds, rules: Rules, loaded: Mapping[QueueName, tuple[QueueFile, ...]] | None = None
    ) -> None:
        """Take the queues as `recover` leaves them; `loaded`: those that this release has loaded, else all."""
        self._ends = ends
        self._rules = rules
        self._kept = Kept()
        self._names: list[QueueName] = []
        self._queues: list[Queue] = []
        self._numbers: dict[QueueName, int] = {}  # of the queues
        self._has_batches = False
        self._pending: list[_Units] = []
        self.refusal: Refusal | None = None  # why dispatch fails, and with it the start
        self.failed_at: tuple[str, int] | None = None  # (file in the place of a folder, PHYSICALOFFSET)
        self.dropped = 0  # units that were not written, from that record on
        self._listed: list[tuple[str, int]] = []  # the queues of the scan
        self._rows: Ints = np.empty(0, np.int64)  # number of each of them, -1: none yet
        for name, files in (ends.loaded(rules) if loaded is None else loaded).items():
            self._queues[self._number_of(name, files)].recover()

    # --- what the walk asks ---------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """All queues, in the order in which they were loaded or made."""
        self._flush()
        return dict(zip(self._names, self._queues, strict=True))

    @property
    def max_physic_offset(self) -> int:
        """The largest maxPhysicOffset of all queues; -1: none."""
        self._flush()
        return max((queue.max_physic for queue in self._queues), default=-1)

    @property
    def asks_properties(self) -> bool:
        """Whether dispatch asks for properties of records: of batches, and of further units."""
        multiplies = self._ends.settings.enable_multi_dispatch and self._rules.multi_dispatch != "none"
        return self._has_batches or bool(self._ends.batch_topics) or multiplies

    @property
    def deleted_files(self) -> list[str]:
        """Names of the queue files that are gone, relative to the store; not those that the start makes again."""
        found = []
        for queue in self.queues.values():
            made = {file.base for file in queue.files if file.disk is None} if queue.deleted else ()
            found += [file.name for file in queue.deleted if file.base not in made]
        return sorted(found)

    # --- what the start does --------------------------------------------------------------------

    def dispatch(self, batch: Batch) -> None:
        """Put the units of records."""
        for size in batch.mismatched:
            self._put_nameless(size)
        records = batch.records
        chosen = np.flatnonzero(has_unit(records.sys_flag))
        if not len(chosen):
            return
        rows = self._rows_of(batch, batch.numbers[chosen])
        written = self._writable(batch, chosen, rows)
        chosen, rows = chosen[:written], rows[:written]
        table = np.ones((PLACE + 1, len(chosen)), np.int64)
        for row, column in (
            (OFFSET, records.physical_offset),
            (SIZE, records.total_size),
            (BASE, records.field("queue_offset")),
            (PLACE, records.starts + records.base),
        ):
            table[row] = column if len(chosen) == len(records) else column[chosen]
        if self._has_batches:
            is_batch = np.array([self._names[row][0] == BATCH for row in rows.tolist()], np.bool_)
            properties = records.select(chosen[is_batch]).properties
            table[BASE, is_batch], table[COUNT, is_batch] = (
                _numbers(properties, name) for name in (b"INNER_BASE", b"INNER_NUM")
            )
        else:
            is_batch = np.zeros(len(chosen), np.bool_)
        units = _Units(rows, table)
        if self._ends.settings.enable_multi_dispatch and self._rules.multi_dispatch != "none":
            units = self._with_further(batch, chosen, units, ~is_batch)
        self._put(units)

    def truncate(self, end: int) -> None:
        """Cut all queues at the end of the log."""
        for queue in self.queues.values():
            queue.truncate(end)

    def destroy(self) -> None:
        """Delete all queues: the log has no segment."""
        for queue in self.queues.values():
            queue.destroy()

    def correct_minimum(self, log_min: int) -> Refusal | None:
        """Let the minimum of each queue follow that of the log; return why the start fails, if it does.

        Then make the queues of all delay levels. Source: ScheduleMessageService#correctDelayOffset.
        """
        refusal = None
        for (_, topic, queue_id), queue in self.queues.items():
            if not queue.correct_minimum(log_min) and refusal is None:
                file = f"consumequeue/{topic}/{queue_id}/{queue.files[-1].base:020d}"
                why = f"{file}, the last file of its queue, has no unit, and the start reads the one in front of it"
                remedy = f"move {file} to a place outside of the store"
                refusal = Refusal(file, "empty_queue_file", why, remedy, moves=True)
        if self._rules.schedule_queues:
            for level in range(len(self._ends.settings.message_delay_level.split())):
                self._number_of((SIMPLE, SCHEDULE_TOPIC, level))
        return refusal

    def outcomes(self, log: range) -> list[QueueOutcome]:
        """Return every queue before and after, by topic and queue id; `log`: physical offsets that are left."""
        found = []
        for name, queue in sorted(self.queues.items(), key=lambda one: one[0][1:]):
            before = self._ends.before.get(name, NO_QUEUE)
            cut, added, unreachable = queue.difference(before.max_offset, log)
            both = before.min_offset, before.max_offset, *queue.ends
            stays = queue.stays(before.max_offset)
            found.append(QueueOutcome(*name[1:], *both, cut, added, stays, unreachable))
        return found

    # --- dispatch -------------------------------------------------------------------------------

    def _number_of(self, name: QueueName, files: Sequence[QueueFile] = ()) -> int:
        """Return the number of a queue; without one, make it."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._queues)
            self._names.append(name)
            kind = BatchQueue if name[0] == BATCH else Queue
            self._has_batches |= kind is BatchQueue
            self._queues.append(kind(self._ends, self._rules, self._kept, files))
        return number

    def _rows_of(self, batch: Batch, numbers: Ints) -> Ints:
        """Return the row of the queue of each record; the first record that is put into a queue makes it."""
        if batch.queues is not self._listed:
            self._listed, self._rows = batch.queues, np.empty(0, np.int64)
        more = np.full(len(batch.queues) - len(self._rows), -1, np.int64)
        self._rows = np.concatenate((self._rows, more))
        for number in np.unique(numbers[self._rows[numbers] < 0]).tolist():
            self._rows[number] = self._number_of(self._name_of(*batch.queues[number]))
        return self._rows[numbers]

    def _writable(self, batch: Batch, chosen: Ints, rows: Ints) -> int:
        """Return how many of the chosen records get a unit: those before the first one whose queue cannot be made.

        The put of that one is tried for 30 seconds; then RunningFlags#isCQWriteable is false, and every put of any
        queue is dropped. Source: ConsumeQueue#putMessagePositionInfoWrapper.
        """
        written = len(chosen)
        if not self._ends.files_for_folders:
            return written
        if self.failed_at is not None:
            written = 0
        else:
            above = [self._ends.file_above(*queue) for queue in batch.queues]
            failing = np.array([file is not None for file in above])[batch.numbers[chosen]]
            if failing.any():
                written = int(failing.argmax())
                file = above[int(batch.numbers[chosen[written]])] or ""
                self.failed_at = file, int(batch.records.physical_offset[chosen[written]])
        if written < len(chosen):
            self._flush()
            reached = np.array([self._queues[row].max_physic for row in rows[written:].tolist()])
            self.dropped += int((batch.records.physical_offset[chosen[written:]] >= reached).sum())
        return written

    def _name_of(self, topic: str, queue_id: int) -> QueueName:
        """Return the queue that findConsumeQueue gives: what is loaded, else by the type of the topic."""
        compared = self._rules.queue_types == "compared"
        if compared and (BATCH, topic, queue_id) in self._numbers:
            return BATCH, topic, queue_id
        if (SIMPLE, topic, queue_id) in self._numbers:
            return SIMPLE, topic, queue_id
        return BATCH if compared and topic in self._ends.batch_topics else SIMPLE, topic, queue_id

    def _put_nameless(self, size: int) -> None:
        """Put the unit that 4.3.1 and earlier make of a record whose lengths do not add up: it has no topic.

        Source: CommitLog#recoverAbnormally.
        """
        row = np.array([self._number_of((SIMPLE, "", 0))])
        self._put(_Units(row, np.array([[0], [size], [0], [1], [0]])))

    def _put(self, units: _Units) -> None:
        """Keep units until there are many: a queue takes those of several windows at once."""
        self._pending.append(units)
        if sum(len(pending.rows) for pending in self._pending) > _PENDING:
            self._flush()

    def _flush(self) -> None:
        """Put what was kept, queue by queue."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        rows, table = (np.concatenate(parts, axis=-1) for parts in zip(*pending, strict=True))
        # Short integers are sorted by their digits.
        short = rows.astype(np.int16) if len(self._queues) < 1 << 15 else rows
        order = np.argsort(short, kind="stable")
        rows, table = rows[order], np.take(table, order, axis=1)
        starts = [0, *(np.flatnonzero(np.diff(rows)) + 1).tolist(), len(rows)]
        for start, end in pairwise(starts):
            if start < end:
                self._queues[rows[start]].put(table[:, start:end])

    def _with_further(self, batch: Batch, records: Ints, units: _Units, have_further: Bools) -> _Units:
        """Return units and, behind that of their record, the further ones of multi-dispatch."""
        found = list(self._further(batch, records, have_further))
        if not found:
            return units
        whose, rows, numbers = (np.array(column, np.int64) for column in zip(*found, strict=True))
        further = units.table[:, whose]
        further[BASE] = numbers
        order = np.argsort(np.concatenate((np.arange(len(units.rows)), whose)), kind="stable")
        pairs = zip(units, (rows, further), strict=True)
        return _Units(*(np.concatenate(pair, axis=-1)[..., order] for pair in pairs))

    def _further(self, batch: Batch, records: Ints, have_further: Bools) -> Iterator[tuple[int, int, int]]:
        """Yield (number in `records`, number of the queue, queue offset) of further units."""
        properties, is_light = batch.records.properties, self._ends.settings.enable_lmq
        single = _NOT_MULTIPLIED.get(self._rules.multi_dispatch, ())
        skips_paths = self._rules.multi_dispatch in _SKIPS_PATHS
        multiplied = np.flatnonzero((properties.of(b"INNER_MULTI_QUEUE_OFFSET")[records] >= 0) & have_further)
        for number in multiplied.tolist():
            at = int(records[number])
            topic, queue_id = batch.queues[int(batch.numbers[at])]
            names = properties.value_of(b"INNER_MULTI_DISPATCH", at) or b""
            offsets = properties.value_of(b"INNER_MULTI_QUEUE_OFFSET", at) or b""
            bad = unreadable_offset(topic.encode(), names, offsets, single, skips_paths=skips_paths)
            if bad is not None and self.refusal is None:
                self.refusal = _no_offset(batch, at, bad)
            for name, light_id, offset in further_units(
                topic.encode(errors="replace"), queue_id, names, offsets, single
            ):
                queue = (name, light_id if is_light else queue_id)
                yield number, self._number_of((SIMPLE, *queue)), offset


def _no_offset(batch: Batch, at: int, text: str) -> Refusal:
    """Return the refusal of a record whose further queue offsets cannot be read."""
    place = int(batch.records.base + batch.records.starts[at])
    why = f"INNER_MULTI_QUEUE_OFFSET of the record at {place} holds {text!r}, which is no number: dispatch fails there"
    return Refusal(
        batch.segment.name,
        "multi_dispatch",
        why,
        "set enableMultiDispatch=false in broker.conf",
        settings=(("enableMultiDispatch", "false"),),
    )


def has_unit(sys_flags: Ints) -> Bools:
    """Return which records get queue units."""
    transactions = np.array([has_queue_unit(number << TRANSACTION_SHIFT) for number in range(len(TRANSACTIONS))])
    entitled: Bools = transactions[(sys_flags >> TRANSACTION_SHIFT) & 3]
    return entitled


def _numbers(properties: Items, name: bytes) -> Ints:
    """Return a property of each record as a number; -1 without it, or for what Java would not take."""
    found = properties.find(name)
    numbers = np.full(len(found), -1, np.int64)
    for at in np.flatnonzero(found >= 0).tolist():
        item = found[at]
        text = properties.raw[properties.name_ends[item] + 1 : properties.value_ends[item]].tobytes()
        if text.isdigit() and len(text) <= _DIGITS:
            numbers[at] = int(text)
    return numbers

"""What a start does to every consume queue: recover, dispatch, cut, minimum.

    QueueEnds.read                 the files, once for all walks
        Queues(ends, rules, …)     what `recover` leaves; a walk's own state
            dispatch(batch)        records of the scan, in log order
            truncate(end)          all queues are cut at the end of the log
            correct_minimum(...)   the minimum follows the log
            outcomes()             every queue before and after

Each queue is a `Queue` or a `BatchQueue`, which does what the broker's does. The units of records are handed to it many
at a time.

Source: ConsumeQueue, DefaultMessageStore#recover, ConsumeQueueStore (5.0.0+); RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct

from rmqinspect.broker.dispatch import further_units, unreadable_offset
from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Bools, Ints, distinct
from rmqinspect.codec.properties import Items
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.forecast.batch import Batch, has_unit
from rmqinspect.forecast.batch_queue import BatchQueue
from rmqinspect.forecast.config_files import BATCH_TYPE, topic_types
from rmqinspect.forecast.outcome import QueueOutcome, Refusal
from rmqinspect.forecast.queue import BASE, COUNT, OFFSET, PLACE, SIZE, Kept, Queue
from rmqinspect.forecast.settings import Settings
from rmqinspect.forecast.shelf import BATCH, SIMPLE, Shelf
from rmqinspect.store.model import Place, QueueFile, Store
from rmqinspect.topics import SCHEDULE_TOPIC

QueueName = tuple[str, str, int]  # kind of its files, topic, queue id
SIMPLE_FOLDER = "consumequeue"
_FOLDERS = {SIMPLE_FOLDER: SIMPLE, "batchconsumequeue": BATCH}
# Topics whose records are not multi-dispatched, by their beginnings.
_NOT_MULTIPLIED = {
    "no_retry": (b"%RETRY%",),
    "no_retry_timer_schedule": (b"%RETRY%", b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX"),
    "no_retry_system_schedule": (b"%RETRY%", b"rmq_sys_", b"SCHEDULE_TOPIC_XXXX"),
}

_SKIPS_PATHS = ("no_retry_timer_schedule", "no_retry_system_schedule")

_DIGITS = 18  # of a number that always fits into a long
_PENDING = 1 << 18  # units that are kept before they are put


class Before(Struct, frozen=True):
    """A queue as its files say; the numbers of the table `queues`."""

    min_offset: int
    max_offset: int
    last_physical_offset: int | None = None  # of the newest unit


NO_QUEUE = Before(0, 0)


class QueueEnds(Shelf):
    """All consume queues of a store as they are before a start, read once for all walks."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Take a store; `read` also reads it."""
        super().__init__(settings)
        self.store = store
        self.settings = settings
        self.before: dict[QueueName, Before] = {}
        self.summaries: list[QueueSummary] = []  # of all kinds
        self.batch_topics: frozenset[str] = frozenset()  # whose queues are batch queues, from 5.0.0 on
        self._queues: dict[QueueName, tuple[QueueFile, ...]] = {}
        self.files_for_folders: frozenset[Place] = frozenset()  # that lie where folders of queues have to be

    @classmethod
    def read(cls, store: Store, settings: Settings) -> Self:
        """Read the ends of all queues; what cannot be read is in `problems`."""
        table = cls(store, settings)
        kinds = {"file": SIMPLE, "batch": BATCH}
        for ends in queue_ends(store, searches_minimum(store), on_unreadable=table.problems.append):
            table.summaries.append(ends)
            if ends.kind in kinds:
                name = kinds[ends.kind], ends.topic, ends.queue_id
                table.before[name] = Before(ends.min_offset, ends.max_offset, ends.last_physical_offset)
        table.batch_topics = frozenset(topic for topic, own in topic_types(store).items() if own == BATCH_TYPE)
        found: dict[QueueName, list[QueueFile]] = {}
        for folder, topic, queue_id in store.queue_folders:
            if folder in _FOLDERS and queue_id.isdecimal():
                found[_FOLDERS[folder], topic, int(queue_id)] = []
        for file in store.queue_files:
            if file.kind in LAYOUTS and file.noted is None:
                found.setdefault((file.kind, file.topic, file.queue_id), []).append(file)
        root = {(SIMPLE_FOLDER,)} if store.has_file(SIMPLE_FOLDER) else set()
        strays = (oddity.place for oddity in store.oddities if oddity.kind == "stray" and len(oddity.place) in (2, 3))
        table.files_for_folders = frozenset(root.union(place for place in strays if place[0] == SIMPLE_FOLDER))
        table._queues = {name: tuple(files) for name, files in sorted(found.items())}
        return table

    @property
    def last_offsets(self) -> list[int]:
        """Physical offsets of the newest units, one of each queue that has one."""
        offsets = (queue.last_physical_offset for queue in self.before.values())
        return [offset for offset in offsets if offset is not None]

    def last_of(self, topic: str, queue_id: int) -> int | None:
        """Return the physical offset of the newest unit of a queue."""
        known = (self.before.get((kind, topic, queue_id), NO_QUEUE) for kind in (SIMPLE, BATCH))
        return max(
            (queue.last_physical_offset for queue in known if queue.last_physical_offset is not None), default=None
        )

    def file_above(self, topic: str, queue_id: int) -> str | None:
        """Return the name of the file that lies where a broker would make the folder of a queue; None: it can."""
        place = SIMPLE_FOLDER, topic, str(queue_id)
        found = (place[:depth] for depth in (1, 2, 3) if place[:depth] in self.files_for_folders)
        return next(("/".join(above) for above in found), None)

    def loaded(self, rules: Rules) -> Mapping[QueueName, tuple[QueueFile, ...]]:
        """Return all queues of the kinds that a release has, and their files."""
        kinds = (SIMPLE, BATCH) if rules.queue_types == "compared" else (SIMPLE,)
        return {name: files for name, files in self._queues.items() if name[0] in kinds}


class Led(NamedTuple):
    """The units of a queue after a start."""

    state: tuple[object, ...]  # equal ones have the same units
    ends: tuple[int, int]  # minimum and maximum, queue offsets
    tables: Callable[[], Iterator[Ints]]  # queue offsets and physical offsets, in parts


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
            properties = batch.whole.select(chosen[is_batch]).properties
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
                refusal = Refusal.till_moved(file, "empty_queue_file", why)
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

    def led(self) -> Mapping[tuple[str, int], "Led"]:
        """Return the units of each queue after the start."""
        found: dict[tuple[str, int], Led] = {}
        for (_, topic, queue_id), queue in self.queues.items():
            found[topic, queue_id] = Led(queue.state, queue.ends, queue.leads)
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
        for number in distinct(numbers[self._rows[numbers] < 0]).tolist():
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
        properties, is_light = batch.whole.properties, self._ends.settings.enable_lmq
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
    return Refusal.till_off(batch.segment.name, "multi_dispatch", why, "enableMultiDispatch")


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

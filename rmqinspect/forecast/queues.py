"""What a start does to every consume queue: recover, dispatch, cut, minimum.

    QueueEnds.read                 the files, once for all walks
        Queues(ends, rules, …)     what `recover` leaves; a walk's own state
            dispatch(batch)        records of the scan, in log order
            truncate(end)          all queues are cut at the end of the log
            correct_minimum(...)   the minimum follows the log
            outcomes()             every queue before and after

Units that a walk writes are not kept one by one: the state of a queue says where they begin and end. The newest ones
are kept as columns (`Written`), and all whose record lies elsewhere than its PHYSICALOFFSET says: only those can be
cut at the end of the scan, before which all others lie.

Source: ConsumeQueue, DefaultMessageStore#recover, ConsumeQueueStore (5.0.0+); RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.dispatch import further_units, has_queue_unit, unreadable_offset
from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.properties import Items
from rmqinspect.forecast.outcome import QueueOutcome, Refusal
from rmqinspect.forecast.queue_cut import revise, truncate
from rmqinspect.forecast.queue_ends import BATCH, NO_QUEUE, SIMPLE, Queue, QueueEnds, QueueName
from rmqinspect.forecast.queue_minimum import correct_minimum
from rmqinspect.forecast.queue_state import QueueState
from rmqinspect.forecast.queue_units import (
    APPENDED,
    BASE,
    BATCH_MAX,
    BLANK_END,
    FILE_SIZE,
    KEPT,
    MADE,
    MAX_PHYSIC,
    MIN,
    POSITION,
    UNIT,
    UNIT_SIZE,
    WITHOUT_FILES,
    put,
    put_batches,
)
from rmqinspect.forecast.scan import Batch
from rmqinspect.forecast.written import Written
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
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

_FAR = 2**62  # a queue offset in bytes beyond it is hostile: kept inside 64 bits


class _Units(NamedTuple):
    """Units to be put, in log order."""

    rows: Ints  # of the state
    offsets: Ints  # PHYSICALOFFSET
    sizes: Ints
    numbers: Ints  # queue offsets
    places: Ints  # where the records lie

    def select(self, which: Ints | Bools) -> "_Units":
        return _Units(*(column[which] for column in self))


class Queues:
    """The queues in one walk."""

    def __init__(
        self, ends: QueueEnds, rules: Rules, loaded: Mapping[QueueName, tuple[QueueFile, ...]] | None = None
    ) -> None:
        """Take the queues as `recover` leaves them; `loaded`: those that this release has loaded, else all."""
        self._ends = ends
        self._rules = rules
        self._state = QueueState(ends, rules, loaded)
        # Without a unit in the last file, the maximum of a batch queue is that of the file before it.
        for row in np.flatnonzero(~self._state.simple & (self._state.numbers[:, POSITION] == 0)).tolist():
            revise(self._state, row)
        self.refusal: Refusal | None = None  # why dispatch fails, and with it the start
        self._listed: list[Queue] = []  # the queues of the scan
        self._rows: Ints = np.empty(0, np.int64)  # row of each of them, -1: none yet

    # --- what the walk asks ---------------------------------------------------------------------

    @property
    def max_physic_offset(self) -> int:
        """The largest maxPhysicOffset of all queues; -1: none."""
        return int(self._state.numbers[:, MAX_PHYSIC].max(initial=-1))

    @property
    def deleted_files(self) -> list[str]:
        """Names of the queue files that are gone, relative to the store; not those that the start makes again."""
        state = self._state
        if not state.deleted:
            return []
        made = {
            (*state.names[row], base)
            for row in np.flatnonzero(state.numbers[:, MADE]).tolist()
            for base in state.made_bases(row)
        }
        gone = (file for file in state.deleted if (file.kind, file.topic, file.queue_id, file.base) not in made)
        return sorted(file.name for file in gone)

    # --- what the start does --------------------------------------------------------------------

    def dispatch(self, batch: Batch) -> None:
        """Put the units of records."""
        for size in batch.mismatched:
            self._put_nameless(size)
        records = batch.records
        entitled = has_unit(records.sys_flag)
        chosen = np.flatnonzero(entitled)
        if not len(chosen):
            return
        rows = self._rows_of(batch, batch.numbers[chosen])
        places = records.base + records.starts
        columns = (records.physical_offset, records.total_size, records.field("queue_offset"), places)
        units = _Units(rows, *(column[chosen] for column in columns))
        is_batch = self._state.numbers[rows, UNIT_SIZE] != UNIT
        if is_batch.any():
            self._put_batches(batch, chosen[is_batch], units.select(is_batch))
            units, chosen = units.select(~is_batch), chosen[~is_batch]
        if self._ends.settings.enable_multi_dispatch and self._rules.multi_dispatch != "none":
            units = self._with_further(batch, chosen, units)
        self._put(units)

    def truncate(self, end: int) -> None:
        """Cut all queues at the end of the log. Source: ConsumeQueue#truncateDirtyLogicFiles."""
        truncate(self._state, end)

    def destroy(self) -> None:
        """Delete all queues: the log has no segment. Source: ConsumeQueue#destroy, BatchConsumeQueue#destroy."""
        state = self._state
        for row, files in enumerate(state.files):
            state.deleted += files[: int(state.numbers[row, KEPT])]
        others = [column for column in range(len(WITHOUT_FILES)) if column not in _LASTING]
        state.numbers[:, others] = WITHOUT_FILES[others]
        state.numbers[~state.simple, MIN] = -1
        state.written, state.written_batches = Written(), Written()
        state.cut[:] = True

    def correct_minimum(self, log_min: int) -> Refusal | None:
        """Let the minimum of each queue follow that of the log; return why the start fails, if it does.

        Then make the queues of all delay levels. Source: ScheduleMessageService#correctDelayOffset.
        """
        refusal = correct_minimum(self._state, log_min)
        if self._rules.schedule_queues:
            for level in range(len(self._ends.settings.message_delay_level.split())):
                self._state.row_of((SIMPLE, SCHEDULE_TOPIC, level))
        return refusal

    def outcomes(self, log: range) -> list[QueueOutcome]:
        """Return every queue before and after, by topic and queue id; `log`: physical offsets that are left."""
        state = self._state
        numbers, is_batch = state.numbers, ~state.simple
        minima = np.where(is_batch, numbers[:, MIN], _divided(numbers[:, MIN], UNIT)).tolist()
        ends = numbers[:, BASE] + numbers[:, POSITION]
        maxima = np.where(is_batch, numbers[:, BATCH_MAX], _divided(ends, UNIT)).tolist()
        found = []
        for row in sorted(range(len(state.names)), key=lambda row: state.names[row][1:]):
            _, topic, queue_id = name = state.names[row]
            before = self._ends.before.get(name, NO_QUEUE)
            cut, added, unreachable = self._difference(row, log)
            both = before.min_offset, before.max_offset, minima[row], maxima[row]
            found.append(QueueOutcome(topic, queue_id, *both, cut, added, self._stays(row, both), unreachable))
        return found

    # --- dispatch -------------------------------------------------------------------------------

    def _rows_of(self, batch: Batch, numbers: Ints) -> Ints:
        """Return the row of the queue of each record; the first record that is put into a queue makes it."""
        if batch.queues is not self._listed:
            self._listed, self._rows = batch.queues, np.empty(0, np.int64)
        more = np.full(len(batch.queues) - len(self._rows), -1, np.int64)
        self._rows = np.concatenate((self._rows, more))
        for number in np.unique(numbers[self._rows[numbers] < 0]).tolist():
            self._rows[number] = self._state.row_of(self._name_of(*batch.queues[number]))
        return self._rows[numbers]

    def _name_of(self, topic: str, queue_id: int) -> QueueName:
        """Return the queue that findConsumeQueue gives: what is loaded, else by the type of the topic."""
        compared = self._rules.queue_types == "compared"
        if compared and (BATCH, topic, queue_id) in self._state.rows:
            return BATCH, topic, queue_id
        if (SIMPLE, topic, queue_id) in self._state.rows:
            return SIMPLE, topic, queue_id
        return BATCH if compared and topic in self._ends.batch_topics else SIMPLE, topic, queue_id

    def _put_nameless(self, size: int) -> None:
        """Put the unit that 4.3.1 and earlier make of a record whose lengths do not add up: it has no topic.

        Source: CommitLog#recoverAbnormally.
        """
        row, zero = np.array([self._state.row_of((SIMPLE, "", 0))]), np.zeros(1, np.int64)
        self._put(_Units(row, zero, np.array([size], np.int64), zero, zero))

    def _put(self, units: _Units) -> None:
        addresses = np.empty(len(units.rows), np.int64)
        expected = np.clip(units.numbers * UNIT, -_FAR, _FAR)  # the product wraps, as in Java
        rules = int(self._rules.queue_end == "end"), int(self._rules.repeated_unit == "append")
        ends = units.offsets + units.sizes
        if put(self._state.numbers, *rules, units.rows, units.offsets, ends, units.numbers, expected, addresses):
            self._state.written.add(units.rows, addresses, units.offsets, units.sizes, units.places)

    def _put_batches(self, batch: Batch, records: Ints, units: _Units) -> None:
        """Put units into batch queues; of one that is no inner batch there is none."""
        properties = batch.records.select(records).properties
        bases, counts = (_numbers(properties, name) for name in (b"INNER_BASE", b"INNER_NUM"))
        bases[counts < 0] = -1
        addresses = np.empty(len(records), np.int64)
        if put_batches(self._state.numbers, units.rows, units.offsets, bases, counts, addresses):
            self._state.written.add(units.rows, addresses, units.offsets, units.sizes, units.places)
            self._state.written_batches.add(units.rows, addresses, bases, counts, bases)

    def _with_further(self, batch: Batch, records: Ints, units: _Units) -> _Units:
        """Return units and, behind that of their record, the further ones of multi-dispatch."""
        found = list(self._further(batch, records))
        if not found:
            return units
        whose, rows, numbers = (np.array(column, np.int64) for column in zip(*found, strict=True))
        further = units.select(whose)._replace(rows=rows, numbers=numbers)
        order = np.argsort(np.concatenate((np.arange(len(units.rows)), whose)), kind="stable")
        pairs = zip(units, further, strict=True)
        return _Units(*(np.concatenate(pair)[order] for pair in pairs))

    def _further(self, batch: Batch, records: Ints) -> Iterator[tuple[int, int, int]]:
        """Yield (number in `records`, row, queue offset) of further units."""
        properties, is_light = batch.records.properties, self._ends.settings.enable_lmq
        single = _NOT_MULTIPLIED.get(self._rules.multi_dispatch, ())
        skips_paths = self._rules.multi_dispatch in _SKIPS_PATHS
        multiplied = np.flatnonzero(properties.of(b"INNER_MULTI_QUEUE_OFFSET")[records] >= 0)
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
                yield number, self._state.row_of((SIMPLE, *queue)), offset

    # --- before and after -----------------------------------------------------------------------

    def _stays(self, row: int, both: tuple[int, int, int, int]) -> int:
        """Return the queue offset behind the units that stay as they are, given minima and maxima before and after."""
        numbers, (_, before, _, after) = self._state.numbers[row], both
        if numbers[APPENDED] < 0 or self._state.is_batch(row):
            return min(before, after)
        return int(numbers[APPENDED]) // UNIT

    def _difference(self, row: int, log: range) -> tuple[int, int, int]:
        """Return how many units of a queue are gone, how many new ones it has, and how many records have none now."""
        state = self._state
        numbers, name = state.numbers[row], state.names[row]
        unit = int(numbers[UNIT_SIZE])
        end = state.end(row) if state.has_files(row) else 0
        since, added = end, 0
        if numbers[APPENDED] >= 0:
            since, added = int(numbers[APPENDED]), (end - int(numbers[BLANK_END])) // unit
        files = state.recovered.files[row] if row < len(state.recovered.files) else ()
        before = self._ends.before.get(name, NO_QUEUE)
        behind = files[-1].base + files[-1].size if files and state.is_batch(row) else before.max_offset * unit
        gone = same = left_alone = 0
        if since < behind:
            bases = {file.base for file in state.files[row][: int(numbers[KEPT])]} | set(state.made_bases(row))
            for file in files:
                if file.base < behind and file.base + file.size > since:
                    span = range(
                        max(0, since - file.base) // unit, (min(behind, file.base + file.size) - file.base) // unit
                    )
                    counts = self._compare(row, file, span, end, log, is_left=file.base in bases)
                    gone, same, left_alone = gone + counts[0], same + counts[1], left_alone + counts[2]
        # A unit that is put at another queue offset than before is gone and new.
        return gone - same, added - same, max(0, left_alone - (added - same))

    def _compare(
        self, row: int, file: QueueFile, span: range, end: int, log: range, *, is_left: bool
    ) -> tuple[int, int, int]:
        """Return how many messages a part of a file held before, and how many of them the queue has now.

        The third number counts those that the queue has not, and the log has.
        """
        units = self._ends.units(file, span.start, len(span))
        messages: Bools = (units["physical_offset"] >= 0) & (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE)
        in_log = messages & (units["physical_offset"] >= log.start) & (units["physical_offset"] < log.stop)
        if not is_left or not messages.any():
            return int(messages.sum()), 0, int(in_log.sum())
        now = self._state.units(row, file.base, span.start, len(span))
        again = messages & (now.offsets == units["physical_offset"])
        again[max(0, (end - file.base) // units.itemsize - span.start) :] = False
        return int(messages.sum()), int(again.sum()), int((in_log & ~again).sum())


_LASTING = frozenset([UNIT_SIZE, FILE_SIZE])  # a queue's own sizes


def _no_offset(batch: Batch, at: int, text: str) -> Refusal:
    """Return the refusal of a record whose further queue offsets cannot be read."""
    place = int(batch.records.base + batch.records.starts[at])
    why = f"INNER_MULTI_QUEUE_OFFSET of the record at {place} holds {text!r}, which is no number: dispatch fails there"
    return Refusal(batch.segment.name, "multi_dispatch", why, "set enableMultiDispatch=false in broker.conf")


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
        if text.isdigit() and len(text) < len(str(_FAR)):
            numbers[at] = int(text)
    return numbers


def _divided(values: Ints, by: int) -> Ints:
    """Return quotients rounded towards zero, as in Java."""
    quotients: Ints = np.where(values < 0, -(-values // by), values // by)
    return quotients

"""The table `delays`: each delayed message, of delay levels and of the timer, and what became of it.

    queue units, timer units, entries of RocksDB  ->  records in the log  ->  one row each
    a pass over the log                           ->  delivered copies    ->  state (`broker.delays`)
    a second look, where a copy is missed         ->  copies of other writers

Without the pass only what still waits is known (`DelayChoice.waiting`): that takes the queues, the timer's files and
the records of those messages, whatever the size of the log.

Source: ScheduleMessageService, TimerMessageStore, Timeline; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.delays import (
    APPEND_TOPIC,
    MAY_HAVE_COPIES,
    OVERDUE,
    REASONS,
    STATES,
    STUCK,
    DeleteKeys,
    Facts,
    delete_keys,
    judge,
    level_delay,
)
from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.version_estimate import estimate_store
from rmqinspect.codec.arrays import Bools, Ints, Keyed, find, take
from rmqinspect.commitlog.records import records_at
from rmqinspect.consumequeue.bounds import queue_ends
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import Store
from rmqinspect.tables.delay_sources import (
    COPY_COLUMNS,
    NO_OFFSET,
    RECORD_COLUMNS,
    TIMER_COLUMNS,
    AlikeFold,
    CopyFold,
    DelayUnits,
    columns_of_copies,
    columns_of_level,
    columns_of_timer,
    read_delay_sources,
    units_of_topic,
)
from rmqinspect.tables.read_log import fold_log
from rmqinspect.tables.record_columns import CHUNK_ROWS, columns_at
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import (
    QUEUE_DATABASES,
    STORE_DATABASE,
    TIMESTAMP,
    Source,
    Table,
    batch_with,
    column,
    millis,
    pick,
    repeat,
)
from rmqinspect.text import count
from rmqinspect.topics import SCHEDULE_TOPIC, SYSTEM_PREFIX, TIMER_TOPIC

SCHEMA = pa.schema(
    [
        column("source", pa.string(), "level, timer, or rocksdb_timer (5.4.0)"),
        column("level", pa.int32(), "delay level, from 1; null for the timer"),
        column("queue_id", pa.int32(), "queue that it waits in, of SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer"),
        column("queue_offset", pa.int64(), "in that queue; null if no unit of the queue leads to the record"),
        column("physical_offset", pa.int64(), "of the record that waits or waited"),
        column("size", pa.int32(), "of that record, bytes"),
        column("due_timestamp", TIMESTAMP, "when it is to be delivered"),
        column("state", pa.string(), ", ".join(STATES)),
        column("real_topic", pa.string(), "where it is bound for; null if its record cannot be read"),
        column("real_queue_id", pa.int32(), "the queue it is bound for"),
        column("msg_id", pa.string(), "UNIQ_KEY"),
        column("keys", pa.list_(pa.string()), "KEYS split at spaces"),
        column(
            "store_timestamp", TIMESTAMP, "when the record was stored; due_timestamp less this is the delay of a level"
        ),
        column("reconsume_times", pa.int32(), "how often a consumer sent it back"),
        column("roll_times", pa.int32(), "how often the timer stored it again before it was due (TIMER_ROLL_TIMES)"),
        column("deletes", pa.string(), "what a delete_mark names (TIMER_DEL_UNIQKEY)"),
        column("timer_log_offset", pa.int64(), "of its unit, if that has not fired"),
        column("delivered_physical_offset", pa.int64(), "of the first delivered copy"),
        column("deliveries", pa.int32(), "delivered copies; after a crash there may be two"),
        column("system", pa.bool_(), "bound for a topic of the broker, such as acks of pop consumers"),
        column("reason", pa.string(), "why it is lost or unknown"),
    ]
)

_BRIEF = ("source", "level", "queue_offset", "physical_offset", "due_timestamp", "state", "real_topic", "msg_id")


class DelayChoice(Struct, frozen=True):
    """Which delayed messages."""

    waiting: bool = False  # only what still waits; the log is not read from end to end
    at: int | None = None  # ms: messages due before are overdue; None: the last activity of the broker
    states: frozenset[str] = frozenset()  # of STATES; none: any
    system: bool = True  # with those bound for topics of the broker

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the filters choose."""
        mask = pa.repeat(pa.scalar(value=True), batch.num_rows)
        if self.states:
            mask = pc.and_(mask, pc.is_in(batch.column("state"), pa.array(sorted(self.states))))
        if not self.system:
            mask = pc.and_(mask, pc.invert(batch.column("system")))
        return batch.filter(mask)


_ALL = DelayChoice()
_LAST = 1 << 63
_EARLY = 60_000  # ms: a slot of the wheel fires before the times in it, and clocks are set
_NOWHERE = np.empty(0, np.int64)


class _Held(NamedTuple):
    """Where the timer's own files hold some messages: indexes, ABSENT where they do not."""

    unit: Ints  # into the pending units of the timer log
    entry: Ints  # into the entries of RocksDB


class Delays:
    """The delayed messages of one store."""

    def __init__(
        self,
        store: Store,
        request: Request,
        choice: DelayChoice,
        found: CopyFold | None = None,
        damage_end: int = 0,
    ) -> None:
        """Read the store; its log only if what the records say is not `found` already.

        With it comes the physical offset behind the last range that lost its records.
        """
        self.store, self.request, self.choice = store, request, choice
        self.sources = read_delay_sources(store, request)
        self.now = self.sources.now if choice.at is None else choice.at
        # Whether all of the log was given: what is not there is lost.
        self.whole = bool(store.segments) and store.neighbours and not store.hides_log
        self._judged = 0  # records that became rows, before the filters
        self._damage_end = damage_end  # physical offset behind the last range that lost its records
        found = self._look() if found is None else found
        self._disobeyed = found.disobeyed()
        self._waited = len(found.found["waiting"]["identity"])
        self._without_copy = found.without_copy()
        self._alike = AlikeFold(self._without_copy)
        self._alike_from = _LAST  # physical offset: from here on the log was read again
        self._likes = self._alike.keyed()
        self._runs = found.found["run"]
        self.copies, self.rolled, self.orders = map(found.keyed, ("copy", "rolled", "order"))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the choice."""
        for batch in chain(self._level_rows(), self._timer_rows()):
            chosen = self.choice.select(batch)
            if chosen.num_rows:
                yield chosen

    @property
    def unqueued(self) -> int:
        """How many delayed messages of the log no unit leads to: nothing is known of them. After `rows`."""
        return 0 if self.choice.waiting else max(0, self._waited - self._judged)

    @property
    def queues_given(self) -> bool:
        """Whether there are queues to look into."""
        return bool(self.store.queue_files) or not self.store.segments

    # --- what the log says ------------------------------------------------------------------------

    def _look(self) -> CopyFold:
        """Find copies and orders to delete: in the log, or only orders among what waits."""
        if not self.choice.waiting:
            return fold_log(self.store, replace(self.request, on_gap=self._note_gap), CopyFold)
        found, units = CopyFold(), self.sources.units
        self._take_orders(found, units.place[units.deletes], units.size[units.deletes])
        taken = self.sources.timer_offset
        if taken is None:
            return found
        for queue in self._timer_queue():
            behind = queue.select(queue.offsets >= taken)
            self._take_orders(found, behind.places, behind.sizes)
        return found

    def _take_orders(self, found: CopyFold, places: Ints, sizes: Ints) -> None:
        for first in range(0, len(places), CHUNK_ROWS):
            some = slice(first, first + CHUNK_ROWS)
            for _, records in records_at(self.store, places[some], sizes[some]):
                found.take_timer(records)

    def _note_gap(self, kind: str, start: int, end: int) -> None:
        self._damage_end = max(self._damage_end, end)
        if self.request.on_gap is not None:
            self.request.on_gap(kind, start, end)

    def _alike_behind(self, states: Ints, units: DelayUnits) -> tuple[Keyed, Keyed]:
        """Return the records that are copies by what every writer keeps, and those that may be.

        The log is read again from where the first of them can be: behind the record that waits. If its time has just
        come, also behind that time. A message that waits is not passed over, so nothing else was done with it.
        """
        first = int(units.places.min())
        if len(self._runs["place"]):
            highest = np.maximum.accumulate(self._runs["last_time"])
            due = np.searchsorted(highest, units.due - _EARLY - 2 * self.sources.precision)
            stored = self._runs["place"][np.minimum(due, len(highest) - 1)]
            first = int(np.where(states == OVERDUE, np.maximum(stored, units.places), units.places).min())
        if first < self._alike_from:
            # Gaps, and what cannot be read, the first pass has told.
            quiet = replace(self.request, on_gap=None, on_unreadable=lambda _: None, on_records=None, progress=None)
            again = replace(quiet, offsets=(first, self._alike_from))
            found = fold_log(self.store, again, partial(AlikeFold, self._without_copy))
            found.join(self._alike)
            self._alike, self._alike_from, self._likes = found, first, found.keyed()
        return self._likes

    @cached_property
    def _delete_keys(self) -> DeleteKeys:
        """The forms of orders that the broker obeys: by its settings, else its estimated version and its deeds."""
        if APPEND_TOPIC in self.store.settings:
            return delete_keys((), self.store.settings)
        possible = delete_keys(estimate_store(self.store, self.sources.last_records).releases, {})
        seen = DeleteKeys(*(can and not failed for can, failed in zip(possible, self._disobeyed, strict=True)))
        return seen if any(seen) else possible

    # --- delay levels -----------------------------------------------------------------------------

    def _level_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of all levels, by level and queue offset."""
        for queue in units_of_topic(self.store, SCHEDULE_TOPIC, self.request):
            in_log = queue.places >= self.store.log_start
            # What the level's offset has passed before it was due waits as well.
            kept = self._level_waits(queue) | (in_log & (queue.due >= self.now))
            if not self.choice.waiting:
                kept |= in_log
            for units in queue.select(kept).chunks():
                yield self._level_batch(units)

    def _level_waits(self, units: DelayUnits) -> Bools:
        if self.sources.level_offsets is not None:
            return units.offsets >= self.sources.level_offsets.get(units.queue_id + 1, 0)
        # A broker without the file begins each queue again; which messages it has delivered the copies tell.
        return units.due >= self.now if self.choice.waiting else np.ones(len(units.due), np.bool_)

    def _level_batch(self, units: DelayUnits) -> pa.RecordBatch:
        records = columns_at(self.store, units.places, units.sizes, columns_of_level, RECORD_COLUMNS)
        level, stored = units.queue_id + 1, _numbers(records["store_timestamp"])
        # An ext unit that cannot be read. Source: ScheduleMessageService#computeDeliverTimestamp.
        unknown = (units.due == 0) & (stored > 0)
        units.due = np.where(unknown, stored + level_delay(level, self.store.settings), units.due)
        count = len(units.due)
        told = {"source": repeat("level", count), "level": pa.array(np.full(count, level, np.int32))}
        waits = self._level_waits(units)
        beyond = level in self._levels_beyond
        return self._batch(told, units, records, waits=waits, level_ahead=~waits & (beyond | (units.due >= self.now)))

    @cached_property
    def _levels_beyond(self) -> frozenset[int]:
        """The levels whose offset lies beyond the end of their queue: it does not tell what was delivered."""
        offsets = self.sources.level_offsets or {}
        wanted = {(SCHEDULE_TOPIC, level - 1) for level in offsets}
        ends = queue_ends(self.store, searches_minimum(self.store), wanted, on_unreadable=lambda message: None)
        return frozenset(one.queue_id + 1 for one in ends if offsets[one.queue_id + 1] > one.max_offset)

    # --- the timer --------------------------------------------------------------------------------

    def _timer_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the timer, by queue offset; then those that only its own files know."""
        units, entries = self.sources.units, self.sources.entries
        unseen = np.ones(len(units.place), np.bool_)
        unseen_entries = np.zeros(0, np.bool_) if entries is None else entries.waits.copy()
        for queue in self._timer_queue():
            held = self._held(queue)
            unseen[held.unit[held.unit >= 0]] = False
            unseen_entries[held.entry[held.entry >= 0]] = False
            kept = self._timer_waits(queue, held)
            # Without an offset of the topic only the records tell what may wait.
            if not self.choice.waiting or self.sources.timer_offset is None:
                kept |= queue.places >= self.store.log_start
            for some in queue.select(kept).chunks():
                yield self._timer_batch(some)
        rest = [(units.place[unseen], units.size[unseen], units.fires[unseen])]
        if entries is not None:
            rest.append((entries.place[unseen_entries], entries.size[unseen_entries], entries.due[unseen_entries]))
        for columns in rest:
            outside = DelayUnits(0, np.full(len(columns[0]), NO_OFFSET, np.int64), *columns)
            for some in outside.chunks():
                yield self._timer_batch(some)

    def _timer_queue(self) -> Iterator[DelayUnits]:
        for queue in units_of_topic(self.store, TIMER_TOPIC, self.request):
            queue.due = np.zeros(len(queue.due), np.int64)  # the tags code is that of the tags
            yield queue

    def _held(self, units: DelayUnits) -> _Held:
        entries = self.sources.entries
        places = _NOWHERE if entries is None else entries.place
        return _Held(find(self.sources.units.place, units.places), find(places, units.places))

    def _entry_waits(self, held: _Held) -> Bools:
        entries = self.sources.entries
        return np.zeros(len(held.entry), np.bool_) if entries is None else _hold(entries.waits, held.entry)

    def _timer_waits(self, units: DelayUnits, held: _Held) -> Bools:
        """Return what the timer has in its wheel or in RocksDB, or has yet to take from its topic."""
        waits = _hold(self.sources.units.reached, held.unit) | self._entry_waits(held)
        if self.sources.timer_offset is not None:
            return waits | (units.offsets >= self.sources.timer_offset)
        return waits | ((units.due > 0) & (units.due >= self.now))

    def _timer_batch(self, units: DelayUnits) -> pa.RecordBatch:
        records = columns_at(self.store, units.places, units.sizes, columns_of_timer, TIMER_COLUMNS)
        held, pending = self._held(units), self.sources.units
        due = _numbers(records["deliver_timestamp"])
        units.due = np.where(due > 0, due, np.where(units.due > 0, units.due, take(pending.fires, held.unit, 0)))
        waits = self._timer_waits(units, held)
        fires = take(pending.fires, held.unit, 0)
        ahead = np.where(fires > 0, fires, units.due) < self.sources.clock_ahead
        present = records["identity"].is_valid().to_numpy(zero_copy_only=False)
        rolled, _ = self.rolled.behind(_numbers(records["identity"]), units.places)
        in_rocksdb = (held.entry >= 0) | (held.unit < 0)
        if self.sources.entries is None:
            in_rocksdb[:] = False
        told = {
            "source": pick(("timer", "rocksdb_timer"), in_rocksdb.astype(np.int32)),
            "timer_log_offset": pa.array(take(pending.position, held.unit, 0), mask=held.unit < 0),
        }
        batch = self._batch(
            told,
            units,
            records,
            waits=waits,
            rolled=(rolled >= 0) & present,
            cancelled=self._cancelled(records, held) & present,
            unreached=_hold(~pending.reached, held.unit),
            clock_ahead=ahead,
        )
        return batch.filter(pa.array(waits)) if self.choice.waiting else batch

    def _cancelled(self, records: Mapping[str, pa.Array], held: _Held) -> Bools:
        """Return what an order deletes."""
        plain, with_topic = (self.orders.has(_numbers(records[name])) for name in ("plain_key", "topic_key"))
        either = plain | with_topic
        if self.sources.entries is not None:
            # It obeys both forms, and takes the entry away: what has one is not deleted. Source: Timeline.
            return either & ~self._entry_waits(held)
        if not (plain != with_topic).any():
            return either
        return (plain & self._delete_keys.plain) | (with_topic & self._delete_keys.with_topic)

    # --- rows -------------------------------------------------------------------------------------

    def _batch(
        self, told: Mapping[str, pa.Array], units: DelayUnits, records: Mapping[str, pa.Array], **known: Bools
    ) -> pa.RecordBatch:
        """Return rows; `told`: columns that are known already; `known`: some of `Facts`, false where not given."""
        count, identity = len(units.places), _numbers(records["identity"])
        present: Bools = records["identity"].is_valid().to_numpy(zero_copy_only=False)
        delivered, copies = self.copies.behind(identity, units.places)
        copies = np.where(present, copies, 0)
        self._judged += int(np.count_nonzero(present))
        none = np.zeros(count, np.bool_)
        facts = Facts(*[none] * len(Facts._fields))._replace(
            deletes=records["deletes"].is_valid().to_numpy(zero_copy_only=False),
            delivered=copies > 0,
            due=units.due < self.now,
            readable=present | (not self.whole),
            copy_lost=(units.places < self._damage_end) | (not self.whole),
            **known,
        )
        states, reasons = judge(facts)
        missed = np.isin(states, MAY_HAVE_COPIES) & present & (not self.choice.waiting)
        if missed.any():
            some = units.select(missed)
            twins, alike = self._alike_behind(states[missed], some)
            numbers = columns_at(self.store, some.places, some.sizes, columns_of_copies, COPY_COLUMNS)
            delivered[missed], copies[missed] = twins.behind(_numbers(numbers["twin"]), some.places)
            like = none.copy()
            like[missed] = alike.behind(_numbers(numbers["likeness"]), some.places)[1] > 0
            states, reasons = judge(facts._replace(delivered=copies > 0, alike=like))
        system = pc.starts_with(records["real_topic"], SYSTEM_PREFIX)
        roll_times = records["roll_times"]
        small = pc.match_substring_regex(roll_times, r"^[0-9]{1,9}$")
        stored = records["store_timestamp"]
        columns = {
            name: records[name]
            for name in ("real_topic", "real_queue_id", "msg_id", "keys", "reconsume_times", "deletes")
        }
        columns |= told
        columns |= {
            "queue_id": pa.array(np.full(count, units.queue_id, np.int32)),
            "queue_offset": pa.array(units.offsets, mask=units.offsets == NO_OFFSET),
            "physical_offset": pa.array(units.places),
            "size": pa.array(units.sizes.astype(np.int32)),
            "due_timestamp": pc.if_else(pa.array(units.due == 0), pa.scalar(None, TIMESTAMP), millis(units.due)[0]),
            "state": pick(STATES, states),
            "store_timestamp": pc.if_else(stored.is_valid(), millis(_numbers(stored))[0], pa.scalar(None, TIMESTAMP)),
            "roll_times": pc.if_else(small, roll_times, pa.scalar(None, pa.string())).cast(pa.int32()),
            "delivered_physical_offset": pa.array(delivered, mask=copies == 0),
            "deliveries": pa.array(copies.astype(np.int32), mask=np.full(count, self.choice.waiting)),
            "system": pc.fill_null(system, pa.scalar(value=False)),
            "reason": pick(REASONS, reasons),
        }
        return batch_with(SCHEMA, columns, count)


def _hold(values: Bools, rows: Ints) -> Bools:
    """Return the values in some rows, false for no row."""
    found = rows >= 0
    found[found] = values[rows[found]]
    return found


def _numbers(column: pa.Array) -> Ints:
    """Return a column of numbers, or of times in ms; 0 for null."""
    values: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return values // 1000 if pa.types.is_timestamp(column.type) else values


def _rows(store: Store, request: Request, choice: DelayChoice) -> Iterator[pa.RecordBatch]:
    delays = Delays(store, request, choice)
    yield from delays.rows()
    if request.on_remark is not None and delays.unqueued:
        request.on_remark(f"{store.name}: {unqueued_words(delays)}")
    if request.on_remark is not None and not delays.queues_given:
        request.on_remark(f"{store.name}: {no_queues_words(store)}")


def no_queues_words(store: Store) -> str:
    """Return what is said of a store none of whose queues was read."""
    return f"{why_unknown(store, 'queues') or 'no consume queue was given'}: delayed messages are found by their queues"


def unqueued_words(delays: Delays) -> str:
    """Return what is said of delayed messages that no unit leads to."""
    unread = not delays.queues_given or why_unknown(delays.store, "queues")
    where = ", whose queues were not read" if unread else " in no queue"
    return f"{count(delays.unqueued, 'delayed message')} of the log{where}: nothing is known of them"


def delays_table(choice: DelayChoice = _ALL) -> Table:
    """Return the table with the rows of a choice."""
    return Table(
        "delays",
        SCHEMA,
        _BRIEF,
        partial(_rows, choice=choice),
        scans=(Source.QUEUES,) if choice.waiting else (Source.LOG,),
        looks_into=(Source.LOG if choice.waiting else Source.QUEUES, Source.TIMER, Source.CONFIG),
        databases=(*QUEUE_DATABASES, STORE_DATABASE),
    )


DELAYS = delays_table()


def count_stuck(store: Store) -> int:
    """Return how many timer messages wait for a time before that of a timer's clock that ran ahead."""
    choice = DelayChoice(waiting=True, system=False, states=frozenset({STATES[STUCK]}))
    batches = Delays(store, Request(on_unreadable=lambda message: None), choice).rows()
    return sum(pc.sum(pc.not_equal(batch.column("source"), "level")).as_py() for batch in batches)

"""What a store says of delayed messages: where they wait, how far the broker is with them, and their copies in the log.

    delayOffset.json                  -> next queue offset of each delay level
    timercheck, timer log, wheel      -> next slot to read, units that wait, next queue offset of the timer's topic
    rocksdbstore                      -> the same of the timer in RocksDB (5.4.0)
    the log's last record, timercheck -> the last time at which the broker did anything: "now" of an evidence

A copy has the topic that its original was bound for, and the original's UNIQ_KEY, born time, count of reconsumptions
and either its DELAY or its TIMER_OUT_MS: those survive in all versions. (REAL_TOPIC and the times at which the wheel
took it in and out do not: the RocksDB timer of 5.4.0 leaves them out.) Of each one number is kept, and where it is.

Other writers keep less: the copies of rocketmq-rust have no DELAY. So a message without such a copy is looked for once
more, by its topic and UNIQ_KEY alone; without a UNIQ_KEY by its born time and body (`AlikeFold`).

Source: ScheduleMessageService#load and #messageTimeUp, TimerMessageStore#recover and #convert,
TimerMessageRocksDBStore#start and #convertMessage.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Self

import numpy as np
import pyarrow as pa
from msgspec import Struct

from rmqinspect.broker.clock import last_activity, runs_ahead
from rmqinspect.codec.arrays import Bools, Ints, Keyed, Units
from rmqinspect.codec.byte_ranges import hash_of, hash_texts, mixed
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.records import Records, records_at
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.commitlog.tail import Sample, find_log_end
from rmqinspect.consumequeue.missing import missing_units
from rmqinspect.consumequeue.units import messages_in, read_ext_tags
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import TimerCheckpoints, read_timer_checkpoints, timer_units_file
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.schemas.timer import DEFAULT_PRECISION, TimerUnit
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.config import level_offsets
from rmqinspect.tables.pointers import stored_slots
from rmqinspect.tables.read_log import Collected
from rmqinspect.tables.record_columns import CHUNK_ROWS, property_columns, property_values
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import TIMESTAMP
from rmqinspect.timer.log import (
    PendingUnits,
    TimerLog,
    WheelReach,
    find_precision,
    no_timercheck,
    read_pending,
    read_rows,
    read_timercheck,
    timer_log_files,
)
from rmqinspect.times import END_MILLI
from rmqinspect.topics import SCHEDULE_TOPIC, SYSTEM_PREFIX, TIMER_TOPIC

# --- beside the log -------------------------------------------------------------------------------


class Entries(Struct, frozen=True):
    """The timer in RocksDB: its entries by physical offset, and its checkpoints."""

    place: Ints  # physical offset of the record
    size: Ints
    due: Ints  # ms
    checkpoints: TimerCheckpoints
    delivered: int  # ms; what is due before was delivered: the timeline checkpoint, unless that ran ahead

    @property
    def waits(self) -> Bools:
        """Which entries were not delivered."""
        waiting: Bools = self.due >= self.delivered
        return waiting


class DelaySources(Struct, frozen=True):
    """What a store says of delayed messages, but for their queues and records."""

    level_offsets: dict[int, int] | None  # next to deliver, by level; None: no copy of delayOffset.json can be read
    units: PendingUnits
    entries: Entries | None  # None: the timer in RocksDB was never used
    timer_offset: int | None  # next queue offset of the timer's topic to take; None: not known
    read_time: int  # ms; slots of the wheel before it have fired; 0: not known
    precision: int  # ms of a slot
    now: int  # ms; 0: nothing tells
    clock_ahead: int  # ms; what is due before it no timer delivers, as its clock ran ahead; 0: it did not
    timercheck_ahead: int  # ms; the time in timercheck, if that is what ran ahead
    last_record: int  # store time of the log's last record, ms; 0: not known
    last_records: Sample  # of the log


def read_delay_sources(store: Store, request: Request) -> DelaySources:
    """Read them; what is wrong is told through the request."""
    check = no_timercheck()
    try:
        check = read_timercheck(store.config_files.get("timercheck"))
    except Unreadable as error:
        request.tell_unread(error)
    read_time = int(check.last_read_timestamp)
    end = find_log_end(store, [])
    entries = _read_entries(store, end.last_timestamp)
    fired = max(read_time, 0 if entries is None else entries.checkpoints.timeline)
    clock_ahead = fired if runs_ahead(end.last_timestamp, fired) else 0
    now = last_activity(end.last_timestamp, read_time if read_time < END_MILLI else 0)
    timercheck_ahead = read_time if runs_ahead(end.last_timestamp, read_time) else 0
    read_time = now if timercheck_ahead else read_time
    log = TimerLog(timer_log_files(store.files))
    flushed = int(check.last_timer_log_flush_pos)
    try:
        slots = stored_slots(store, request)
        reach = WheelReach(log, slots, find_precision(store.settings, log, [slots] if slots is not None else ()))
        # 0 is the trace of a failed start (5.4.0): what is due later than all else has not fired.
        read = read_pending(log, reach, read_time or now, flushed)
    except Unreadable as error:
        request.tell_unread(error)
        reach = WheelReach(TimerLog(()), None, DEFAULT_PRECISION)
        read = read_pending(TimerLog(()), reach, 0, 0)
    taken = int(check.last_timer_queue_offset)
    if flushed > read.end:
        # The timer log lost its end: startup takes the topic again from behind the last unit that is left.
        taken = _behind(store, read.last, taken)
    if entries is not None:
        taken = max(taken, entries.checkpoints.scan)
    known = "timercheck" in store.config_files or entries is not None
    levels = level_offsets(store, request)
    return DelaySources(
        None if levels is None else dict(levels.offsets),
        read.pending,
        entries,
        taken if known else None,
        read_time,
        reach.precision,
        now,
        clock_ahead,
        timercheck_ahead,
        end.last_timestamp or 0,
        end.sample,
    )


def _behind(store: Store, last: tuple[int, int] | None, taken: int) -> int:
    """Return the queue offset behind the record of a unit. Source: TimerMessageStore#reviseQueueOffset."""
    if last is None:
        return taken
    place, size = last
    for _, records in records_at(store, np.array([place]), np.array([size])):
        return min(taken, int(records.field("queue_offset")[0]) + 1)
    return taken


def _read_entries(store: Store, last_record: int | None) -> Entries | None:
    file, checkpoints = timer_units_file(store), read_timer_checkpoints(store)
    if file is None or checkpoints is None:
        return None
    names, layout = ("physical_offset", "record_size", "enqueue_timestamp"), dtype_of(TimerUnit)
    blocks = [np.empty((len(names), 0), np.int64)]
    with open_file(file) as reader:
        for _, units in read_rows(reader, layout, reader.size // layout.itemsize):
            blocks.append(np.stack([units[name].astype(np.int64) for name in names]))
    columns = np.concatenate(blocks, axis=1)
    if not columns.size and not checkpoints.scan:
        return None
    place, size, due = columns[:, np.argsort(columns[0], kind="stable")]
    delivered = last_activity(last_record, checkpoints.timeline)
    if not runs_ahead(last_record, checkpoints.timeline):
        delivered = checkpoints.timeline
    return Entries(place, size, due, checkpoints, delivered)


# --- the queues in which they wait ----------------------------------------------------------------

NO_OFFSET = -1


class DelayUnits(Struct):
    """Some messages of one queue: columns of one length."""

    queue_id: int
    offsets: Ints  # queue offsets; NO_OFFSET where no unit of the queue leads to the record
    places: Ints  # physical offsets of the records
    sizes: Ints  # of the records
    due: Ints  # ms; 0 where only the record tells

    def select(self, which: Bools | slice) -> "DelayUnits":
        """Return some of them."""
        return DelayUnits(self.queue_id, self.offsets[which], self.places[which], self.sizes[which], self.due[which])

    def chunks(self) -> Iterator["DelayUnits"]:
        """Yield a few at a time: their records are read together."""
        for first in range(0, len(self.places), CHUNK_ROWS):
            yield self.select(slice(first, first + CHUNK_ROWS))


def units_of_topic(store: Store, topic: str, request: Request) -> Iterator[DelayUnits]:
    """Yield the message units of a topic, by queue and queue offset; `due` is the tags code.

    0 is the tags code of an ext unit that cannot be read.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    request.tell_missing(one for one in missing_units(store) if one.queue[0] == topic)
    files = sorted((file for file in store.queue_files if file.topic == topic), key=lambda file: file.queue_id)
    for queue_id, group in groupby(files, lambda file: file.queue_id):
        of_queue = list(group)
        exts = [file for file in of_queue if file.kind == "ext_queue"]
        for file in of_queue:
            try:
                for offsets, units in messages_in(file) if file.kind == "queue" else ():
                    places, sizes = (units[name].astype(np.int64) for name in ("physical_offset", "size"))
                    yield DelayUnits(queue_id, offsets, places, sizes, _tags_codes(units, exts))
            except Unreadable as error:
                request.tell_unread(error)


def _tags_codes(units: Units, exts: Sequence[QueueFile]) -> Ints:
    tags: Ints = units["tags_code"].astype(np.int64)
    in_ext = tags <= EXT_ADDRESS_MAX
    if not in_ext.any():
        return tags
    found, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), np.bool_)
    read_ext_tags(exts, tags, found, known)
    return np.where(in_ext, np.where(known, found, 0), tags)


# --- what stands for a message --------------------------------------------------------------------

LEVEL, TIME = b"DELAY", b"TIMER_OUT_MS"
_DELETE = b"TIMER_DEL_UNIQKEY"
_ROLLS = (b"TIMER_ROLL_TIMES", b"TIMER_ROLL_LABEL")  # by the wheel; by the RocksDB timer


def _hash(records: Records, name: bytes, before: Ints | None = None) -> Ints:
    """Return the hash of a property of each record, 0 (or `before`) without it; goes on from `before`."""
    items = records.properties
    which = items.of(name)
    if not len(items.value_ends):
        return np.zeros(len(which), np.int64) if before is None else before
    starts = np.where(which >= 0, items.value_starts[which], 0)
    return hash_texts(items.raw, starts, np.where(which >= 0, items.value_ends[which], 0), before)


def _identity(records: Records, topic: Ints, wait: bytes) -> Ints:
    """Return a number for each delayed message; `topic`: hash of the one it is bound for; `wait`: LEVEL or TIME."""
    return mixed(
        topic,
        _hash(records, b"UNIQ_KEY"),
        _hash(records, wait),
        np.full(len(records), len(wait), np.int64),
        records.field("reconsume_times"),
        records.field("born_timestamp"),
    )


def _likeness(records: Records, topic: Ints) -> Ints:
    """Return the same number for all records that may be copies of one message; `topic`: hash of the real one."""
    key = _hash(records, b"UNIQ_KEY")
    body = mixed(*(records.field(name) for name in ("body_crc", "body_size", "born_timestamp")))
    return mixed(topic, np.where(key != 0, key, body))


def _twin(records: Records, alike: Ints) -> Ints:
    """Return the same number for records of one likeness that were sent once, and as often sent back."""
    return mixed(alike, records.field("born_timestamp"), records.field("reconsume_times"))


def _delete_targets(records: Records, topic: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of orders that delete each record: with its UNIQ_KEY, with its topic before that.

    `topic`: hash of the one it is bound for.
    """
    due = _hash(records, TIME)
    plus = np.frombuffer(b"+", np.uint8)
    topic = hash_texts(plus, np.zeros(len(topic), np.int64), np.ones(len(topic), np.int64), topic)
    return mixed(_hash(records, b"UNIQ_KEY"), due), mixed(_hash(records, b"UNIQ_KEY", topic), due)


# --- passes over the log --------------------------------------------------------------------------

_AT_ONCE = 8192  # records: the positions of their properties take six times their bytes
_SYSTEM = int.from_bytes(SYSTEM_PREFIX.encode(), "big")  # eight bytes
_SCHEDULE, _TIMER = hash_of(SCHEDULE_TOPIC.encode()), hash_of(TIMER_TOPIC.encode())


def _few_at_once(run: RecordRun) -> Iterator[Records]:
    """Yield the records of a run, a few at once; none of an earlier life of the file."""
    for first in range(0, 0 if run.stale else len(run.records), _AT_ONCE):
        yield run.records.select(slice(first, first + _AT_ONCE))


class CopyFold:
    """Copies, orders to delete, and rolled messages of a part of the log. A `LogFold`."""

    def __init__(self) -> None:
        found = {"number": np.int64, "place": np.int64}
        self.found = Collected(
            {
                "copy": found,
                "rolled": found,
                "order": found,
                # What would have deleted the messages of users that were delivered, in either form: see `disobeyed`.
                "obeyed": {"plain": np.int64, "with_topic": np.int64},
                # Records in the topics in which messages wait; `likeness`: of their copies.
                "waiting": {"identity": np.int64, "likeness": np.int64},
                "run": {"place": np.int64, "last_time": np.int64},  # the highest store time (ms) of a run of records
            }
        )

    def keyed(self, kind: str) -> Keyed:
        """Return where the records of a kind are, by number."""
        return Keyed(*self.found[kind].values())

    def take(self, run: RecordRun) -> None:
        """Take the next records."""
        if not run.stale and len(run.records):
            self.found.add("run", run.records.places[:1], int(run.records.field("store_timestamp").max()))
        for records in _few_at_once(run):
            self._take_some(records)

    def _take_some(self, records: Records) -> None:
        of_level, of_timer = records.properties.of(LEVEL) >= 0, records.properties.of(TIME) >= 0
        some = np.flatnonzero(of_level | of_timer)
        if not len(some):
            return
        records = records.select(some)
        topic = hash_texts(records.bytes, records.topic_starts, records.topic_ends)
        for wait, has, waits_in in ((LEVEL, of_level[some], _SCHEDULE), (TIME, of_timer[some], _TIMER)):
            waiting = records.select(topic == waits_in)
            real = _hash(waiting, b"REAL_TOPIC")
            self.found.add("waiting", _identity(waiting, real, wait), _likeness(waiting, real))
            rows = np.flatnonzero(has & (topic != _SCHEDULE) & (topic != _TIMER))
            copies = records.select(rows)
            self.found.add("copy", _identity(copies, topic[rows], wait), copies.places)
            if wait == TIME:
                users = np.flatnonzero(copies.view(np.dtype(">i8"))[copies.topic_starts] != _SYSTEM)
                self.found.add("obeyed", *_delete_targets(copies.select(users), topic[rows][users]))
        self.take_timer(records.select(topic == _TIMER))

    def take_timer(self, records: Records) -> None:
        """Take records of the timer's topic."""
        items = records.properties
        orders = records.select(items.of(_DELETE) >= 0)
        self.found.add("order", mixed(_hash(orders, _DELETE), _hash(orders, TIME)), orders.places)
        rolled = records.select(np.logical_or.reduce([items.of(name) >= 0 for name in _ROLLS]))
        self.found.add("rolled", _identity(rolled, _hash(rolled, b"REAL_TOPIC"), TIME), rolled.places)

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        self.found.join(following.found)

    def disobeyed(self) -> tuple[bool, bool]:
        """Return which form of an order, plain or with the topic, was given for a message that was delivered."""
        orders = self.found["order"]["number"]
        plain, with_topic = (bool(np.isin(orders, keys).any()) for keys in self.found["obeyed"].values())
        return plain, with_topic

    def without_copy(self) -> Ints:
        """Return the likenesses of the records that wait and have no copy, ascending."""
        waiting = self.found["waiting"]
        lacks = ~np.isin(waiting["identity"], self.found["copy"]["number"])
        return np.unique(waiting["likeness"][lacks])


class AlikeFold:
    """Records of a part of the log that may be copies of some messages. A `LogFold`."""

    def __init__(self, wanted: Ints) -> None:
        self._wanted = wanted  # likenesses, ascending
        self.found = Collected({"alike": {"likeness": np.int64, "twin": np.int64, "place": np.int64}})

    def take(self, run: RecordRun) -> None:
        """Take the next records."""
        for records in _few_at_once(run):
            numbers = _likeness(records, hash_texts(records.bytes, records.topic_starts, records.topic_ends))
            rows = np.flatnonzero(np.isin(numbers, self._wanted))
            if len(rows):
                found = records.select(rows)
                self.found.add("alike", numbers[rows], _twin(found, numbers[rows]), found.places)

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        self.found.join(following.found)

    def keyed(self) -> tuple[Keyed, Keyed]:
        """Return where the records are: by what tells that they are copies, by what tells that they may be."""
        alike, twin, place = self.found["alike"].values()
        return Keyed(twin, place), Keyed(alike, place)


# --- the records that wait ------------------------------------------------------------------------

RECORD_COLUMNS = (
    ("real_topic", pa.string()),
    ("real_queue_id", pa.int32()),
    ("msg_id", pa.string()),
    ("keys", pa.list_(pa.string())),
    ("store_timestamp", pa.int64()),  # ms
    ("reconsume_times", pa.int32()),
    ("deliver_timestamp", TIMESTAMP),
    ("roll_times", pa.string()),
    ("deletes", pa.string()),
    ("identity", pa.int64()),  # every record has one
)
TIMER_COLUMNS = (*RECORD_COLUMNS, ("plain_key", pa.int64()), ("topic_key", pa.int64()))
"""With those of an order to delete it, in its two forms."""

COPY_COLUMNS = (("twin", pa.int64()), ("likeness", pa.int64()))
"""Only the numbers by which copies of other writers are known."""


def columns_of_level(records: Records) -> dict[str, pa.Array]:
    """Return RECORD_COLUMNS of messages of a delay level."""
    return _columns_of(records, LEVEL)


def columns_of_timer(records: Records) -> dict[str, pa.Array]:
    """Return TIMER_COLUMNS of messages of the timer."""
    plain, with_topic = _delete_targets(records, _hash(records, b"REAL_TOPIC"))
    return _columns_of(records, TIME) | {"plain_key": pa.array(plain), "topic_key": pa.array(with_topic)}


def _columns_of(records: Records, wait: bytes) -> dict[str, pa.Array]:
    columns, _ = property_columns(records)
    return columns | {
        "store_timestamp": pa.array(records.field("store_timestamp")),
        "reconsume_times": pa.array(records.field("reconsume_times").astype(np.int32)),
        "roll_times": property_values(records, b"TIMER_ROLL_TIMES"),
        "deletes": property_values(records, _DELETE),
        "identity": pa.array(_identity(records, _hash(records, b"REAL_TOPIC"), wait)),
    }


def columns_of_copies(records: Records) -> dict[str, pa.Array]:
    """Return COPY_COLUMNS of messages that wait."""
    alike = _likeness(records, _hash(records, b"REAL_TOPIC"))
    return {"twin": pa.array(_twin(records, alike)), "likeness": pa.array(alike)}

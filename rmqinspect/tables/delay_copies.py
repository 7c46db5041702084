"""Which record of the log is the delivered copy of which delayed message.

A copy has the topic that its original was bound for, and the original's UNIQ_KEY, born time, count of reconsumptions
and either its DELAY or its TIMER_OUT_MS: those survive in all versions. (REAL_TOPIC and the times at which the wheel
took it in and out do not: the RocksDB timer of 5.4.0 leaves them out.) Of each one number is kept, and where it is.

Other writers keep less: the copies of rocketmq-rust have no DELAY. So a message without such a copy is looked for once
more, by its topic and UNIQ_KEY alone; without a UNIQ_KEY by its born time and body (`AlikeFold`).

Source: ScheduleMessageService#messageTimeUp, TimerMessageStore#convert, TimerMessageRocksDBStore#convertMessage.

What the records of delayed messages say, and the numbers that stand for them (`tables.delay_copies`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Bools, Ints, Keyed
from rmqinspect.codec.byte_ranges import hash_of, hash_texts, mixed
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.store.model import Store
from rmqinspect.tables.delay_sources import DelayUnits
from rmqinspect.tables.record_columns import columns_at, property_columns, property_values
from rmqinspect.tables.table import TIMESTAMP, millis
from rmqinspect.topics import SCHEDULE_TOPIC, SYSTEM_PREFIX, TIMER_TOPIC

LEVEL, TIME = b"DELAY", b"TIMER_OUT_MS"
DELETE = b"TIMER_DEL_UNIQKEY"
_ROLLS = (b"TIMER_ROLL_TIMES", b"TIMER_ROLL_LABEL")  # by the wheel; by the RocksDB timer
_AT_ONCE = 8192  # records: the positions of their properties take six times their bytes
_NONE = np.empty(0, np.int64)
_SYSTEM = int.from_bytes(SYSTEM_PREFIX.encode(), "big")  # eight bytes
_SCHEDULE, _TIMER = hash_of(SCHEDULE_TOPIC.encode()), hash_of(TIMER_TOPIC.encode())


# --- what stands for a message ----------------------------------------------------------------------


def property_hash(records: Records, name: bytes, before: Ints | None = None) -> Ints:
    """Return the hash of a property of each record, 0 (or `before`) without it; goes on from `before`."""
    items = records.properties
    which = items.of(name)
    if not len(items.value_ends):
        return np.zeros(len(which), np.int64) if before is None else before
    starts = np.where(which >= 0, items.value_starts[which], 0)
    return hash_texts(items.raw, starts, np.where(which >= 0, items.value_ends[which], 0), before)


def identity(records: Records, topic: Ints, wait: bytes) -> Ints:
    """Return a number for each delayed message; `topic`: hash of the one it is bound for; `wait`: LEVEL or TIME."""
    return mixed(
        topic,
        property_hash(records, b"UNIQ_KEY"),
        property_hash(records, wait),
        np.full(len(records), len(wait), np.int64),
        records.field("reconsume_times"),
        records.field("born_timestamp"),
    )


def likeness(records: Records, topic: Ints) -> Ints:
    """Return the same number for all records that may be copies of one message; `topic`: hash of the real one."""
    key = property_hash(records, b"UNIQ_KEY")
    columns = (records.field(name) for name in ("body_crc", "body_size", "born_timestamp"))
    body = mixed(*columns)
    return mixed(topic, np.where(key != 0, key, body))


def twin(records: Records, alike: Ints) -> Ints:
    """Return the same number for records of one likeness that were sent once, and as often sent back."""
    return mixed(alike, records.field("born_timestamp"), records.field("reconsume_times"))


def delete_orders(records: Records) -> Ints:
    """Return a number for what each order to delete names."""
    return mixed(property_hash(records, DELETE), property_hash(records, TIME))


def delete_targets(records: Records, topic: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of orders that delete each record: with its UNIQ_KEY, with its topic before that.

    `topic`: hash of the one it is bound for.
    """
    due = property_hash(records, TIME)
    plus = np.frombuffer(b"+", np.uint8)
    topic = hash_texts(plus, np.zeros(len(topic), np.int64), np.ones(len(topic), np.int64), topic)
    return mixed(property_hash(records, b"UNIQ_KEY"), due), mixed(property_hash(records, b"UNIQ_KEY", topic), due)


# --- a pass over the log ----------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """Numbers and physical offsets of records."""

    numbers: list[Ints] = field(default_factory=list)
    places: list[Ints] = field(default_factory=list)

    def add(self, numbers: Ints, places: Ints) -> None:
        """Add records."""
        if len(numbers):
            self.numbers.append(numbers)
            self.places.append(places)

    def join(self, following: "Found") -> None:
        """Add those of the part of the log that follows."""
        self.numbers += following.numbers
        self.places += following.places

    def keyed(self) -> Keyed:
        """Return them by number."""
        return Keyed(_joined(self.numbers), _joined(self.places))


@dataclass(slots=True)
class CopyFold:
    """Copies, orders to delete, and rolled messages of a part of the log. A `LogFold`."""

    copies: Found = field(default_factory=Found)
    rolled: Found = field(default_factory=Found)
    orders: Found = field(default_factory=Found)
    # What would have deleted the messages of users that were delivered, in either form: see `disobeyed`.
    plain_keys: list[Ints] = field(default_factory=list)
    topic_keys: list[Ints] = field(default_factory=list)
    waited: int = 0  # records in the topics in which messages wait
    waiting: Found = field(default_factory=Found)  # those records, by the likeness of their copies
    waiting_identities: list[Ints] = field(default_factory=list)  # of the same
    runs: list[tuple[int, int]] = field(default_factory=list)  # physical offset, the highest store time (ms) in it

    def take(self, run: RecordRun) -> None:
        """Take the next records."""
        if not run.stale and len(run.records):
            self.runs.append((int(_places(run.records)[0]), int(run.records.field("store_timestamp").max())))
        for first in range(0, 0 if run.stale else len(run.records), _AT_ONCE):
            self._take_some(run.records.select(slice(first, first + _AT_ONCE)))

    def _take_some(self, records: Records) -> None:
        of_level, of_timer = records.properties.of(LEVEL) >= 0, records.properties.of(TIME) >= 0
        some = np.flatnonzero(of_level | of_timer)
        if not len(some):
            return
        records = records.select(some)
        topic = hash_texts(records.bytes, records.topic_starts, records.topic_ends)
        self._take_waiting(records.select(topic == _SCHEDULE), LEVEL)
        self._take_waiting(records.select(topic == _TIMER), TIME)
        for wait, has in ((LEVEL, of_level[some]), (TIME, of_timer[some])):
            rows = np.flatnonzero(has & (topic != _SCHEDULE) & (topic != _TIMER))
            copies = records.select(rows)
            self.copies.add(identity(copies, topic[rows], wait), _places(copies))
            if wait == TIME:
                self._take_keys(copies, topic[rows])
        self.take_timer(records.select(topic == _TIMER))

    def _take_waiting(self, records: Records, wait: bytes) -> None:
        self.waited += len(records)
        topic = property_hash(records, b"REAL_TOPIC")
        self.waiting.add(likeness(records, topic), _places(records))
        self.waiting_identities.append(identity(records, topic, wait))

    def take_timer(self, records: Records) -> None:
        """Take records of the timer's topic."""
        items = records.properties
        orders = records.select(items.of(DELETE) >= 0)
        self.orders.add(delete_orders(orders), _places(orders))
        rolled = records.select(np.logical_or.reduce([items.of(name) >= 0 for name in _ROLLS]))
        self.rolled.add(identity(rolled, property_hash(rolled, b"REAL_TOPIC"), TIME), _places(rolled))

    def _take_keys(self, copies: Records, topic: Ints) -> None:
        users = np.flatnonzero(copies.view(np.dtype(">i8"))[copies.topic_starts] != _SYSTEM)
        keys = delete_targets(copies.select(users), topic[users])
        for kept, found in zip((self.plain_keys, self.topic_keys), keys, strict=True):
            kept.append(found)

    def disobeyed(self) -> tuple[bool, bool]:
        """Return which form of an order, plain or with the topic, was given for a message that was delivered."""
        orders = _joined(self.orders.numbers)
        plain, with_topic = (bool(np.isin(orders, _joined(keys)).any()) for keys in (self.plain_keys, self.topic_keys))
        return plain, with_topic

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        self.waited += following.waited
        self.plain_keys += following.plain_keys
        self.topic_keys += following.topic_keys
        self.waiting.join(following.waiting)
        self.waiting_identities += following.waiting_identities
        self.runs += following.runs
        self.copies.join(following.copies)
        self.rolled.join(following.rolled)
        self.orders.join(following.orders)

    def without_copy(self) -> Ints:
        """Return the likenesses of the records that wait and have no copy, ascending."""
        lacks = ~np.isin(_joined(self.waiting_identities), _joined(self.copies.numbers))
        return np.unique(_joined(self.waiting.numbers)[lacks])


@dataclass(slots=True)
class AlikeFold:
    """Records of a part of the log that may be copies of some messages. A `LogFold`."""

    wanted: Ints  # likenesses, ascending
    alike: Found = field(default_factory=Found)
    twins: Found = field(default_factory=Found)

    def take(self, run: RecordRun) -> None:
        """Take the next records."""
        for first in range(0, 0 if run.stale else len(run.records), _AT_ONCE):
            records = run.records.select(slice(first, first + _AT_ONCE))
            numbers = likeness(records, hash_texts(records.bytes, records.topic_starts, records.topic_ends))
            rows = np.flatnonzero(np.isin(numbers, self.wanted))
            if len(rows):
                found = records.select(rows)
                self.alike.add(numbers[rows], _places(found))
                self.twins.add(twin(found, numbers[rows]), _places(found))

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        self.alike.join(following.alike)
        self.twins.join(following.twins)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([_NONE, *parts])


def _places(records: Records) -> Ints:
    return records.base + records.starts


_COLUMNS = (
    ("real_topic", pa.string()),
    ("real_queue_id", pa.int32()),
    ("msg_id", pa.string()),
    ("keys", pa.list_(pa.string())),
    ("store_timestamp", pa.int64()),  # ms
    ("reconsume_times", pa.int32()),
    ("deliver_timestamp", TIMESTAMP),
    ("roll_times", pa.string()),
    ("deletes", pa.string()),
    ("identity", pa.int64()),
    ("plain_key", pa.int64()),  # of an order to delete it, in its two forms
    ("topic_key", pa.int64()),
)

_OF_COPIES = (("likeness", pa.int64()), ("twin", pa.int64()))


class DelayRecords:
    """The records of some delayed messages, in their order; null or 0 where a record is gone."""

    def __init__(self, columns: pa.Table) -> None:
        self._columns = columns

    @classmethod
    def of_level(cls, store: Store, units: DelayUnits) -> "DelayRecords":
        """Read those of a delay level."""
        return cls._read(store, units, _of_level)

    @classmethod
    def of_timer(cls, store: Store, units: DelayUnits) -> "DelayRecords":
        """Read those of the timer."""
        return cls._read(store, units, _of_timer)

    @classmethod
    def of_copies(cls, store: Store, units: DelayUnits) -> "DelayRecords":
        """Read only the numbers by which copies of other writers are known."""
        return cls(columns_at(store, units.places, units.sizes, _of_copies, _OF_COPIES))

    @classmethod
    def _read(
        cls, store: Store, units: DelayUnits, columns_of: Callable[[Records], dict[str, pa.Array]]
    ) -> "DelayRecords":
        return cls(columns_at(store, units.places, units.sizes, columns_of, _COLUMNS))

    def column(self, name: str) -> pa.Array:
        """Return a column as the table has it."""
        return self._columns.column(name).combine_chunks()

    def has(self, name: str) -> Bools:
        """Return which records have a value; every one has an `identity`."""
        present: Bools = self._columns.column(name).is_valid().to_numpy()
        return present

    def numbers(self, name: str) -> Ints:
        """Return a column of numbers, or of times in ms."""
        column = self._columns.column(name)
        micros = pa.types.is_timestamp(column.type)
        values: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        return values // 1000 if micros else values

    def store_timestamps(self) -> pa.Array:
        """Return when each record was stored."""
        times, _ = millis(self.numbers("store_timestamp"))
        return pc.if_else(pa.array(self.has("store_timestamp")), times, pa.scalar(None, TIMESTAMP))

    def roll_times(self) -> pa.Array:
        """Return how often the timer had stored each one again."""
        texts = self.column("roll_times")
        small = pc.match_substring_regex(texts, r"^[0-9]{1,9}$")
        return pc.if_else(small, texts, pa.scalar(None, pa.string())).cast(pa.int32())


def _of_level(records: Records) -> dict[str, pa.Array]:
    nothing = pa.nulls(len(records), pa.int64())
    return _of_record(records, LEVEL) | {"plain_key": nothing, "topic_key": nothing}


def _of_timer(records: Records) -> dict[str, pa.Array]:
    plain, with_topic = delete_targets(records, property_hash(records, b"REAL_TOPIC"))
    return _of_record(records, TIME) | {"plain_key": pa.array(plain), "topic_key": pa.array(with_topic)}


def _of_record(records: Records, wait: bytes) -> dict[str, pa.Array]:
    columns, _ = property_columns(records)
    return columns | {
        "store_timestamp": pa.array(records.field("store_timestamp")),
        "reconsume_times": pa.array(records.field("reconsume_times").astype(np.int32)),
        "roll_times": property_values(records, b"TIMER_ROLL_TIMES"),
        "deletes": property_values(records, b"TIMER_DEL_UNIQKEY"),
        "identity": pa.array(identity(records, property_hash(records, b"REAL_TOPIC"), wait)),
    }


def _of_copies(records: Records) -> dict[str, pa.Array]:
    alike = likeness(records, property_hash(records, b"REAL_TOPIC"))
    return {"likeness": pa.array(alike), "twin": pa.array(twin(records, alike))}

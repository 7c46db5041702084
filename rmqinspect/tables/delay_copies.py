"""Which record of the log is the delivered copy of which delayed message.

A copy has the topic that its original was bound for, and the original's UNIQ_KEY, born time, count of reconsumptions
and either its DELAY or its TIMER_OUT_MS: those survive in all versions. (REAL_TOPIC and the times at which the wheel
took it in and out do not: the RocksDB timer of 5.4.0 leaves them out.) Of each one number is kept, and where it is.

Source: ScheduleMessageService#messageTimeUp, TimerMessageStore#convert, TimerMessageRocksDBStore#convertMessage.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.text_hash import hash_of, hash_texts, mixed
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.topics import SCHEDULE_TOPIC, SYSTEM_PREFIX, TIMER_TOPIC

LEVEL, TIME = b"DELAY", b"TIMER_OUT_MS"
DELETE = b"TIMER_DEL_UNIQKEY"
_ROLLS = (b"TIMER_ROLL_TIMES", b"TIMER_ROLL_LABEL")  # by the wheel; by the RocksDB timer
_AT_ONCE = 8192  # records: the positions of their properties take six times their bytes
_NOWHERE = -1
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

    def take(self, run: RecordRun) -> None:
        """Take the next records."""
        for first in range(0, 0 if run.stale else len(run.records), _AT_ONCE):
            self._take_some(run.records.select(slice(first, first + _AT_ONCE)))

    def _take_some(self, records: Records) -> None:
        of_level, of_timer = records.properties.of(LEVEL) >= 0, records.properties.of(TIME) >= 0
        some = np.flatnonzero(of_level | of_timer)
        if not len(some):
            return
        records = records.select(some)
        topic = hash_texts(records.bytes, records.topic_starts, records.topic_ends)
        self.waited += int(np.count_nonzero((topic == _SCHEDULE) | (topic == _TIMER)))
        for wait, has in ((LEVEL, of_level[some]), (TIME, of_timer[some])):
            rows = np.flatnonzero(has & (topic != _SCHEDULE) & (topic != _TIMER))
            copies = records.select(rows)
            self.copies.add(identity(copies, topic[rows], wait), _places(copies))
            if wait == TIME:
                self._take_keys(copies, topic[rows])
        self.take_timer(records.select(topic == _TIMER))

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
        orders = np.concatenate([_NONE, *self.orders.numbers])
        plain, with_topic = (
            bool(np.isin(orders, np.concatenate([_NONE, *keys])).any()) for keys in (self.plain_keys, self.topic_keys)
        )
        return plain, with_topic

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        self.waited += following.waited
        self.plain_keys += following.plain_keys
        self.topic_keys += following.topic_keys
        self.copies.join(following.copies)
        self.rolled.join(following.rolled)
        self.orders.join(following.orders)


def _places(records: Records) -> Ints:
    return records.base + records.starts


class Places:
    """Where the records with a number are: looked up by number and the physical offset they lie behind."""

    def __init__(self, found: Found) -> None:
        """Take what was found, and empty it: both together would take twice the memory."""
        numbers, places = np.concatenate([_NONE, *found.numbers]), np.concatenate([_NONE, *found.places])
        found.numbers.clear()
        found.places.clear()
        order = np.lexsort((places, numbers))
        self._numbers, self._places = numbers[order], np.append(places[order], _NOWHERE)

    def has(self, numbers: Ints) -> Bools:
        """Return which numbers there are."""
        found: Bools = self._numbers.searchsorted(numbers, "right") > self._numbers.searchsorted(numbers)
        return found

    def behind(self, numbers: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Return the first place with each number behind a place, -1 without one, and how many there are."""
        low, end = self._numbers.searchsorted(numbers), self._numbers.searchsorted(numbers, "right")
        high = end.copy()
        while (low < high).any():  # a binary search for each: places ascend for one number
            middle = (low + high) // 2
            open_ = low < high
            before = open_ & (self._places[np.where(open_, middle, 0)] <= places)
            low, high = np.where(before, middle + 1, low), np.where(open_ & ~before, middle, high)
        return self._places[np.where(low < end, low, -1)], end - low

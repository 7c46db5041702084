"""What a scan hands on to dispatch: records of one part of the log, still in memory or as columns."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rmqinspect.broker.dispatch import Dispatched, Dispatcher
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.records import has_queue_unit
from rmqinspect.schemas.message import TRANSACTION_MASK, TRANSACTION_SHIFT, TRANSACTIONS
from rmqinspect.store.model import Segment

Queue = tuple[str, int]  # topic, queue id


class Columns:
    """What dispatch asks of records that are no longer in memory; each lies where it says."""

    base = 0

    def __init__(self, dispatched: Dispatched, which: Any = slice(None)) -> None:
        """Take the records of a split that are chosen."""
        self._dispatched, self._which = dispatched, which
        self.physical_offset: Ints = dispatched.physical_offset[which]
        self.total_size: Ints = dispatched.size[which].astype(np.int64)
        self.sys_flag: Ints = np.where(dispatched.entitled[which], 0, TRANSACTION_MASK)

    def __len__(self) -> int:
        return len(self.physical_offset)

    @property
    def starts(self) -> Ints:
        """Where each record lies: a physical offset, for `base` is 0."""
        return self.physical_offset

    def field(self, name: str) -> Ints:
        """Return `queue_offset` or `store_timestamp`; dispatch asks for no other field."""
        found: Ints = getattr(self._dispatched, name)[self._which]
        return found

    def select(self, which: Any) -> Self:
        """Return some of the records."""
        return type(self)(self._dispatched, np.arange(len(self._dispatched))[self._which][which])

    def index_keys(self, *, tags: bool) -> Ints:
        """Return the number of index keys of each record, with or without that of its tag."""
        keys: Ints = self._dispatched.key_count[self._which].astype(np.int64)
        if tags:
            keys += self._dispatched.tagged[self._which]
        return keys


@dataclass(slots=True)
class Batch:
    """Valid records of one window in log order, as they are dispatched; good until `take` returns."""

    records: Records | Columns  # PHYSICALOFFSET, the field, is what the broker dispatches
    numbers: Ints  # of each record: index in `queues`
    queues: list[Queue]  # the same list in all batches of a scan; grows. Bytes that are not UTF-8 may share a name
    segment: Segment
    mismatched: tuple[int, ...] = ()
    # Up to 4.3.1 after an unclean exit: the sizes of what is dispatched to topic "", queue 0, with physical offset 0;
    # a batch of these has no records.
    _index_keys: dict[bool, Ints] = field(default_factory=dict, init=False)

    @property
    def whole(self) -> Records:
        """The records with all that they hold, which only a scan has that reads the log itself."""
        assert isinstance(self.records, Records)
        return self.records

    def chosen(self, which: Bools) -> "Batch":
        """Return the records that are chosen."""
        if which.all():
            return self
        return replace(self, records=self.records.select(which), numbers=self.numbers[which])

    def index_keys(self, *, tags: bool) -> Ints:
        """Return the number of index keys of each record, with or without that of its tag."""
        if tags not in self._index_keys:
            self._index_keys[tags] = _index_keys(self.records, tags=tags)
        return self._index_keys[tags]


def _index_keys(records: Records | Columns, *, tags: bool) -> Ints:
    if isinstance(records, Columns):
        return records.index_keys(tags=tags)
    dispatcher = Dispatcher(keys=False, key_counts=True, rules=())
    # Only the number of keys counts, so all topics are one.
    dispatcher.take(records, np.zeros(len(records), np.int64), [(b"", 0)], np.ones(len(records), np.bool_))
    return Columns(dispatcher.columns([(b"", 0)])).index_keys(tags=tags)


def has_unit(sys_flags: Ints) -> Bools:
    """Return which records get queue units."""
    transactions = np.array([has_queue_unit(number << TRANSACTION_SHIFT) for number in range(len(TRANSACTIONS))])
    entitled: Bools = transactions[(sys_flags >> TRANSACTION_SHIFT) & 3]
    return entitled

"""The sums behind the table `usage`: one fold of the log counts in few dimensions, and the others follow from those.

    queue and transaction bits  ->  kind, topic, queue          TAGS       ->  tag
    minute of the store time    ->  hour                        born host  ->  host

Invariant: the sums of one dimension are those of all records that were chosen; `content` adds the bytes that are no
record, up to the size of the log.

A sample of the log: windows of equal size, evenly spread, and how far sums from them may be off.

    log        |-------------------------------------------------------|
    windows       |--|          |--|          |--|          |--|

Each window counts the records that start in it. The windows are taken as if drawn at random, one cluster of records
each; a log that repeats itself in step with them would deceive it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqinspect.broker.copies import RECORD_KINDS, record_kind
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Split, holes_in
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables import messages
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.read_log import add_account, folds_of, report_holes, splits_in
from rmqinspect.tables.table import Request, millis, name_column
from rmqinspect.tables.tally import MOST, RECORDS, Tally

WINDOW = 1 << 20  # bytes

_TWO_SIDED_95 = 1.96  # standard deviations


@dataclass(frozen=True, slots=True)
class Sample:
    """Windows of the log."""

    splits: tuple[Split, ...]
    size: int  # bytes of them
    whole: int  # bytes of the log

    @property
    def scale(self) -> float:
        """What sums over the windows are multiplied by."""
        return self.whole / self.size if self.size else 1.0

    def errors(self, sums: Ints, squares: NDArray[np.float64]) -> Ints:
        """Return half the 95 % interval around each scaled sum; `squares`: the sum of squares of each window's."""
        count = len(self.splits)
        variance = (squares - sums.astype(np.float64) ** 2 / count) / max(count - 1, 1)
        unread = 1 - self.size / self.whole
        off = _TWO_SIDED_95 * self.scale * np.sqrt(np.maximum(variance, 0) * count * unread)
        return np.rint(off).astype(np.int64)


def plan_sample(segments: Sequence[Segment], size: int) -> Sample | None:
    """Return windows of together about `size` bytes; None where that is all of the log, or nearly."""
    whole = sum(segment.size for segment in segments)
    count = max(2, size // WINDOW)
    if count * WINDOW * 2 > whole:
        return None
    splits, begins, at = [], [whole * (2 * number + 1) // (2 * count) for number in range(count)], 0
    for segment in segments:
        for begin in (begin for begin in begins if at <= begin < at + segment.size):
            start = max(0, min(begin - at, segment.size - WINDOW))
            splits.append(Split(segment, start, min(start + WINDOW, segment.size)))
        at += segment.size
    return Sample(tuple(splits), sum(split.end - split.start for split in splits), whole)


# What the bytes of a log are: `ByteAccount.gap_bytes`, and records.
CONTENTS = ("records", "records not selected", "filler", "zeros", "unknown")

COSTLY = ("tag", "host")
"""Dimensions that are counted only if they are asked for."""

_MINUTE, HOUR = 60_000, 3_600_000  # ms
SMALLEST_CLASS, _CLASSES = 8, 24  # sizes up to 2^8, 2^9, ... bytes
WITHOUT = 1  # the integer of a key that stands for no value
_ADDRESS_V4, _ADDRESS_V6 = 4, 16  # bytes

Choice = Callable[[RecordRun], Bools]  # which records of a run are counted


def choice_of(selection: Selection) -> Choice | None:
    """Return which records pass filters by topic, queue and store time; None where all do.

    :raises KeyError: another filter is in use.
    """
    if not selection.columns(messages.SCHEMA):
        return None

    def choose(run: RecordRun) -> Bools:
        records = run.records
        columns = {
            "topic": name_column(take_ranges(records.bytes, records.topic_starts, records.topic_ends))[0],
            "queue_id": pa.array(records.field("queue_id")),
            "store_timestamp": millis(records.field("store_timestamp"))[0],
        }
        mask = selection.mask_of(pa.record_batch(columns))
        chosen: Bools = np.ones(len(records), np.bool_) if mask is None else mask.to_numpy(zero_copy_only=False)
        return chosen

    return choose


@dataclass(slots=True)
class UsageFold:
    """Sums of some records."""

    choose: Choice | None = None
    by: frozenset[str] = frozenset(COSTLY)  # those asked for
    queues: Tally = field(default_factory=Tally)  # topic, queue id * 4 + transaction
    left_out: Tally = field(default_factory=Tally)  # records that were not chosen: one key
    tags: Tally = field(default_factory=Tally)
    hosts: Tally = field(default_factory=Tally)  # address
    times: Tally = field(default_factory=Tally)  # by number of `unit`
    unit: int = _MINUTE  # ms
    sizes: Tally = field(default_factory=Tally)  # by class

    def take(self, run: RecordRun) -> None:
        """Count the records of a run."""
        records = run.records
        if self.choose is not None:
            chosen = self.choose(run)
            _take_all(self.left_out, records.select(~chosen))
            records = records.select(chosen)
        if not len(records):
            return
        take = _Taking(records, offsets_taken(records))
        transactions = (records.sys_flag & message.TRANSACTION_MASK) >> message.TRANSACTION_SHIFT
        take(self.queues, records.field("queue_id") * 4 + transactions, records.topic_starts, records.topic_ends)
        take(self.times, records.field("store_timestamp") // self.unit)
        take(self.sizes, np.searchsorted(_LIMITS, records.total_size))
        if "host" in self.by:
            hosts = records.field("born_host")
            size = np.where(records.sys_flag & SysFlag.BORNHOST_V6, _ADDRESS_V6, _ADDRESS_V4)
            take(self.hosts, np.zeros(len(records), np.int64), hosts, hosts + size)
        if "tag" in self.by:
            take(self.tags, *_tags(records))
        self._coarsen()

    def join(self, following: Self) -> None:
        """Add the sums of the part that follows."""
        for part in (self, following):
            part._coarsen(max(self.unit, following.unit))
        for name in ("queues", "left_out", "tags", "hosts", "times", "sizes"):
            getattr(self, name).join(getattr(following, name))
        self._coarsen()

    def _coarsen(self, unit: int = 0) -> None:
        """Count by the hour once there are very many minutes: those of damaged clocks, or of months."""
        if self.unit < max(unit, HOUR if len(self.times.keys) > MOST // 2 else 0):
            self.times = self.times.by_integer(self.times.keys.integers * self.unit // HOUR)
            self.unit = HOUR

    def hours(self) -> Tally:
        """Return the sums by hours since 1970."""
        return self.times.by_integer(self.times.keys.integers * self.unit // HOUR)

    def topics(self) -> Tally:
        """Return the sums by topic."""
        return self._by_topic(np.zeros(len(self.queues.keys), np.int64))

    def whole_queues(self) -> Tally:
        """Return the sums by topic and queue id."""
        return self._by_topic(self.queues.keys.integers // 4)

    def kinds(self) -> Tally:
        """Return the sums by number in RECORD_KINDS."""
        keys = self.queues.keys
        integers = [
            RECORD_KINDS.index(record_kind(topic, queue % 4))
            for topic, queue in zip(names_of(self.queues, slice(None)).to_pylist(), keys.integers.tolist(), strict=True)
        ]
        return self.queues.by_integer(np.array(integers, np.int64))

    def _by_topic(self, integers: Ints) -> Tally:
        keys = self.queues.keys
        return self.queues.regrouped(keys.names, keys.starts, keys.starts + keys.sizes, integers)


_LIMITS = 1 << np.arange(SMALLEST_CLASS, SMALLEST_CLASS + _CLASSES, dtype=np.int64)


@dataclass(slots=True)
class _Taking:
    records: Records
    messages: Ints

    def __call__(self, tally: Tally, integers: Ints, starts: Ints | None = None, ends: Ints | None = None) -> None:
        nothing = np.zeros(len(integers), np.int64) if starts is None or ends is None else None
        begins, stops = (nothing, nothing) if nothing is not None else (starts, ends)
        tally.take(self.records.bytes, begins, stops, integers, self.records.rows, self.messages)  # type: ignore[arg-type]


def _take_all(tally: Tally, records: Records) -> None:
    if len(records):
        _Taking(records, offsets_taken(records))(tally, np.zeros(len(records), np.int64))


def _tags(records: Records) -> tuple[Ints, Ints, Ints]:
    """Return the integer of each record's key, and where its tag begins and ends."""
    items = records.properties
    which = items.of(b"TAGS")
    without = which < 0
    if without.all():
        nothing = np.zeros(len(records), np.int64)
        return nothing + WITHOUT, nothing, nothing
    starts, ends = items.name_ends[which] + 1, items.value_ends[which]
    return np.where(without, WITHOUT, 0), starts, np.where(without, starts, ends)


# --- the sums of a store --------------------------------------------------------------------------


@dataclass(slots=True)
class Usage:
    """The sums of a store by dimension, and the byte accounts of its segments, unless it was sampled."""

    store: Store
    dimensions: dict[str, Tally]
    times: Tally  # by `unit` of store time since 1970
    unit: int  # ms
    accounts: dict[str, ByteAccount]  # by path
    sample: Sample | None  # None: exact

    @property
    def records(self) -> int:
        """The records that were counted; those of a sample are not scaled."""
        return int(self.dimensions["kind"].total()[RECORDS])


@dataclass(slots=True)
class UsageSums:
    """The folds of a store's log, joined in its order."""

    store: Store
    whole: UsageFold = field(default_factory=UsageFold)
    segments: Tally = field(default_factory=Tally)  # by number

    def join(self, segment: Segment, fold: UsageFold) -> None:
        """Add the fold of a part of a segment."""
        self.whole.join(fold)
        self.segments.join(fold.queues.by_one(self.store.segments.index(segment)))

    def usage(self, accounts: dict[str, ByteAccount]) -> Usage:
        """Return all sums; `accounts` are those of the segments, by path."""
        content = _content(accounts.values(), self.whole)
        dimensions = _dimensions(self.whole, content, self.segments)
        return Usage(self.store, dimensions, self.whole.times, self.whole.unit, accounts, None)


def read_usage(
    store: Store,
    request: Request,
    choose: Choice | None = None,
    by: Iterable[str] = COSTLY,
    sample: Sample | None = None,
) -> Usage:
    """Return the sums of a store; `choose` says which records count, `by` which of COSTLY are wanted.

    :raises Unreadable: a file cannot be opened, and there is no `request.on_unreadable`.
    """
    new = partial(UsageFold, choose, frozenset(by))
    if sample is not None:
        return _read_sample(store, request, new, sample)
    sums, accounts = UsageSums(store, new()), dict[str, ByteAccount]()
    report_holes(holes_in(store), request)
    for fold, account in folds_of(splits_in(store.segments, request), request, new):
        sums.join(account.segment, fold)
        add_account(accounts, account)
    return sums.usage(accounts)


def _read_sample(store: Store, request: Request, new: Callable[[], UsageFold], sample: Sample) -> Usage:
    whole, dimensions = new(), dict[str, Tally]()
    numbers = {segment.path: number for number, segment in enumerate(store.segments)}
    for fold, account in folds_of(sample.splits, request, new, apart=True):
        whole.join(fold)
        content = _content([account], fold)
        segments = fold.queues.by_one(numbers[account.segment.path])
        # Joined window by window: how much the windows differ says how far the sums may be off.
        for name, tally in _dimensions(fold, content, segments).items():
            dimensions.setdefault(name, Tally()).join(tally)
    return Usage(store, dimensions or _dimensions(whole, Tally(), Tally()), whole.times, whole.unit, {}, sample)


def _dimensions(fold: UsageFold, content: Tally, segments: Tally) -> dict[str, Tally]:
    found = {
        "content": content,
        "kind": fold.kinds(),
        "topic": fold.topics(),
        "queue": fold.whole_queues(),
        "tag": fold.tags,
        "host": fold.hosts,
        "hour": fold.hours(),
        "size": fold.sizes,
        "segment": segments,
    }
    return {name: tally for name, tally in found.items() if name not in COSTLY or name in fold.by}


def _content(accounts: Iterable[ByteAccount], fold: UsageFold) -> Tally:
    """Return the sums by number in CONTENTS."""
    content = Tally()
    content.join(fold.queues.by_one(CONTENTS.index("records")))
    content.join(fold.left_out.by_one(CONTENTS.index("records not selected")))
    for account in accounts:
        for kind, size in account.gap_bytes.items():
            content.add(CONTENTS.index(kind), size)
    return content


def texts_of(tally: Tally, which: Ints | slice) -> pa.Array:
    keys = tally.keys
    starts = keys.starts[which]
    return take_ranges(keys.names, starts, starts + keys.sizes[which])


def names_of(tally: Tally, which: Ints | slice) -> pa.Array:
    return name_column(texts_of(tally, which))[0]

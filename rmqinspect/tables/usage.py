"""The table `usage`: what takes the bytes of the log, by topic, queue, tag, producer, hour, segment, kind.

One fold of the log counts in few dimensions, and the others follow from those:

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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.broker.copies import RECORD_KINDS, record_kind
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Split
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.loops.record_rows import SUM_BYTES, SUM_FIRST, SUM_LAST, SUM_MESSAGES, SUM_RECORDS
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables import messages
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.read_log import add_account, folds_of, report_account, report_behind, splits_in
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import TIMESTAMP, Table, column, millis, name_column, text
from rmqinspect.tables.tally import MOST, Tally, joined
from rmqinspect.times import format_millis

SCHEMA = pa.schema(
    [
        column("dimension", pa.string(), "content, kind, topic, queue, tag, host, hour, size, segment"),
        column("value", pa.string(), "one of the dimension's values; null where `covers` is not value"),
        column("queue_id", pa.int32(), "of a queue, beside its topic; else null"),
        column("covers", pa.string(), "value; none: records without one; others: values that are not listed"),
        column("records", pa.int64(), "commit-log records"),
        column("messages", pa.int64(), "messages: an inner batch holds several"),
        column("bytes", pa.int64(), "whole records (TOTALSIZE); content: all bytes of the log"),
        column("share", pa.float64(), "of the bytes of all rows of the dimension, 0 to 1"),
        column("first_store_timestamp", TIMESTAMP, "lowest broker's clock"),
        column("last_store_timestamp", TIMESTAMP, "highest broker's clock"),
        column("bytes_error", pa.int64(), "how far `bytes` may be off; null: exact"),
    ]
)
BRIEF = ("dimension", "value", "queue_id", "records", "messages", "bytes", "share", "last_store_timestamp")


WINDOW = 1 << 20  # bytes

_TWO_SIDED_95 = 1.96  # standard deviations


class Sample(Struct, frozen=True):
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


# --- the sums of a part of the log ----------------------------------------------------------------

# What the bytes of a log are: `ByteAccount.gap_bytes`, and records.
CONTENTS = ("records", "records not selected", "filler", "zeros", "unknown")

COSTLY = ("tag", "host")
"""Dimensions that are counted only if they are asked for."""

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000  # ms
_SMALLEST_CLASS, _CLASSES = 8, 24  # sizes up to 2^8, 2^9, ... bytes
_LIMITS = 1 << np.arange(_SMALLEST_CLASS, _SMALLEST_CLASS + _CLASSES, dtype=np.int64)
_WITHOUT = 1  # the integer of a key that stands for no value
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


class UsageFold(Struct):
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
            if not chosen.all():
                left = records.select(~chosen)
                nothing = np.zeros(len(left), np.int64)
                self.left_out.take(left.bytes, nothing, nothing, nothing, left.rows, offsets_taken(left))
            records = records.select(chosen)
        if not len(records):
            return
        nothing, counted = np.zeros(len(records), np.int64), offsets_taken(records)

        def take(tally: Tally, integers: Ints, starts: Ints = nothing, ends: Ints = nothing) -> None:
            tally.take(records.bytes, starts, ends, integers, records.rows, counted)

        transactions = (records.sys_flag & message.TRANSACTION_MASK) >> message.TRANSACTION_SHIFT
        take(self.queues, records.field("queue_id") * 4 + transactions, records.topic_starts, records.topic_ends)
        take(self.times, records.field("store_timestamp") // self.unit)
        take(self.sizes, np.searchsorted(_LIMITS, records.total_size))
        if "host" in self.by:
            hosts = records.field("born_host")
            sizes = np.where(records.sys_flag & SysFlag.BORNHOST_V6, _ADDRESS_V6, _ADDRESS_V4)
            take(self.hosts, nothing, hosts, hosts + sizes)
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
        if self.unit < max(unit, _HOUR if len(self.times.keys) > MOST // 2 else 0):
            self.times, self.unit = self._hours(), _HOUR

    def _hours(self) -> Tally:
        return self.times.by_integer(self.times.keys.integers * self.unit // _HOUR)

    def _kinds(self) -> Tally:
        queues = zip(names_of(self.queues).to_pylist(), self.queues.keys.integers.tolist(), strict=True)
        kinds = [RECORD_KINDS.index(record_kind(topic, queue % 4)) for topic, queue in queues]
        return self.queues.by_integer(np.array(kinds, np.int64))

    def dimensions(self, accounts: Iterable[ByteAccount], segments: Tally) -> dict[str, Tally]:
        """Return the sums by dimension; `accounts` are of the bytes that were read, `segments` by number."""
        content = Tally()
        content.join(self.queues.by_one(CONTENTS.index("records")))
        content.join(self.left_out.by_one(CONTENTS.index("records not selected")))
        for account in accounts:
            for kind, size in account.gap_bytes.items():
                content.add(CONTENTS.index(kind), size)
        queues = self.queues.keys
        found = {
            "content": content,
            "kind": self._kinds(),  # by number in RECORD_KINDS
            "topic": self.queues.with_integers(np.zeros(len(queues), np.int64)),
            "queue": self.queues.with_integers(queues.integers // 4),
            "tag": self.tags,
            "host": self.hosts,
            "hour": self._hours(),  # since 1970
            "size": self.sizes,
            "segment": segments,
        }
        return {name: tally for name, tally in found.items() if name not in COSTLY or name in self.by}


def _tags(records: Records) -> tuple[Ints, Ints, Ints]:
    """Return the integer of each record's key, and where its tag begins and ends."""
    items = records.properties
    which = items.of(b"TAGS")
    without = which < 0
    if without.all():
        nothing = np.zeros(len(records), np.int64)
        return nothing + _WITHOUT, nothing, nothing
    starts, ends = items.name_ends[which] + 1, items.value_ends[which]
    return np.where(without, _WITHOUT, 0), starts, np.where(without, starts, ends)


# --- the sums of a store --------------------------------------------------------------------------


class Usage(Struct):
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
        return int(self.dimensions["kind"].total()[SUM_RECORDS])


class UsageSums(Struct):
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
        dimensions = self.whole.dimensions(accounts.values(), self.segments)
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
    report_account(store, request)
    report_behind(store, request)
    if sample is not None:
        return _read_sample(store, request, new, sample)
    sums, accounts = UsageSums(store, new()), dict[str, ByteAccount]()
    for fold, account in folds_of(splits_in(store.log_files, request), request, new):
        sums.join(account.segment, fold)
        add_account(accounts, account)
    return sums.usage(accounts)


def _read_sample(store: Store, request: Request, new: Callable[[], UsageFold], sample: Sample) -> Usage:
    whole, dimensions = new(), dict[str, Tally]()
    numbers = {segment.path: number for number, segment in enumerate(store.segments)}
    for fold, account in folds_of(sample.splits, request, new, apart=True):
        whole.join(fold)
        segments = fold.queues.by_one(numbers[account.segment.path])
        # Joined window by window: how much the windows differ says how far the sums may be off.
        for name, tally in fold.dimensions([account], segments).items():
            dimensions.setdefault(name, Tally()).join(tally)
    return Usage(store, dimensions or whole.dimensions((), Tally()), whole.times, whole.unit, {}, sample)


def texts_of(tally: Tally, which: Ints | slice = slice(None)) -> pa.Array:
    """Return the bytes of some keys."""
    starts = tally.keys.starts[which]
    return take_ranges(tally.keys.names, starts, starts + tally.keys.sizes[which])


def names_of(tally: Tally, which: Ints | slice = slice(None)) -> pa.Array:
    """Return the bytes of some keys as names."""
    return name_column(texts_of(tally, which))[0]


# --- rows -----------------------------------------------------------------------------------------


def usage_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `usage`."""
    yield from usage_batches(read_usage(store, request))


def usage_batches(usage: Usage, most: int | None = None, by: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a store, dimension by dimension: times and sizes ascending, all others by their bytes.

    With `most`, of kinds, topics, queues, tags and hosts only those with the most bytes; the rest is `others`.
    With `by`, only some dimensions.
    """
    for name, tally in usage.dimensions.items():
        if len(tally.keys) and (by is None or name in by):
            yield _batch(name, tally, usage, most if name in CUT else None)


def _batch(dimension: str, tally: Tally, usage: Usage, most: int | None) -> pa.RecordBatch:
    order = _order(dimension, tally)
    order, rest = order[:most], order[len(order) if most is None else most :]
    values, queue_ids, covers = _names(dimension, tally, usage, order)
    sums, errors = tally.sums[order], _errors(tally, usage.sample)
    offs = None if errors is None else errors[order]
    others = joined(np.vstack((tally.sums[rest], tally.others)))
    if others[SUM_RECORDS]:
        sums = np.vstack((sums, others))
        values, queue_ids = (pa.concat_arrays([one, pa.nulls(1, one.type)]) for one in (values, queue_ids))
        covers = pa.concat_arrays([covers, pa.array(["others"])])
        # Of a sum, each part may be off: together at most by so much.
        offs = None if errors is None or offs is None else np.append(offs, errors[rest].sum() + tally.forgotten)
    counts = [sums[:, which] for which in (SUM_RECORDS, SUM_MESSAGES, SUM_BYTES)]
    if usage.sample is not None:
        counts = [np.rint(column * usage.sample.scale).astype(np.int64) for column in counts]
    columns = [
        pa.repeat(pa.scalar(dimension), len(sums)),
        values,
        queue_ids,
        covers,
        *map(pa.array, counts),
        pa.array(np.round(sums[:, SUM_BYTES] / max(int(sums[:, SUM_BYTES].sum()), 1), 9)),
        *(millis(sums[:, which])[0] for which in (SUM_FIRST, SUM_LAST)),
        pa.nulls(len(sums), pa.int64()) if offs is None else pa.array(offs),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _order(dimension: str, tally: Tally) -> Ints:
    """Return the keys in the order of the rows, which does not depend on the order in which they appeared."""
    keys = pa.table({"first": tally.keys.integers, "name": texts_of(tally), "bytes": -tally.sums[:, SUM_BYTES]})
    by = ("first",) if dimension in _ASCENDING else ("bytes", "name", "first")
    order: Ints = pc.sort_indices(keys, [(name, "ascending") for name in by]).to_numpy().astype(np.int64)
    return order


def _names(dimension: str, tally: Tally, usage: Usage, order: Ints) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the columns that say what a row is about: value, queue id, what it covers."""
    integers = tally.keys.integers[order]
    values = _VALUES[dimension](usage, tally, order).cast(pa.string())
    queue_ids = pa.array(integers.astype(np.int32)) if dimension == "queue" else pa.nulls(len(order), pa.int32())
    if dimension != "tag":
        return values, queue_ids, pa.repeat(pa.scalar("value"), len(order))
    without = pa.array(integers == _WITHOUT)
    return pc.if_else(without, None, values), queue_ids, pc.if_else(without, "none", "value")


def _errors(tally: Tally, sample: Sample | None) -> Ints | None:
    """Return how far the bytes of each value may be off; None: not at all."""
    if sample is not None:
        return sample.errors(tally.sums[:, SUM_BYTES], tally.squares)
    return np.full(len(tally.keys), tally.forgotten) if tally.forgotten else None


_ASCENDING = ("content", "hour", "size", "segment")
CUT = ("kind", "topic", "queue", "tag", "host")
"""Dimensions of which the largest values are told, and the rest together."""


def _by_integer(word_of: Callable[[int, Usage], str]) -> Callable[[Usage, Tally, Ints], pa.Array]:
    """Return what gives the values of keys that are integers as texts."""
    return lambda usage, tally, order: pa.array(
        [word_of(number, usage) for number in tally.keys.integers[order].tolist()], pa.string()
    )


# Dimension -> its values as texts, in an order.
_VALUES: Mapping[str, Callable[[Usage, Tally, Ints], pa.Array]] = {
    "content": _by_integer(lambda number, _: CONTENTS[number]),
    "kind": _by_integer(lambda number, _: RECORD_KINDS[number]),
    "topic": lambda _, tally, order: names_of(tally, order),
    "queue": lambda _, tally, order: names_of(tally, order),
    "tag": lambda _, tally, order: text(texts_of(tally, order))[0],
    "host": lambda _, tally, order: pa.array([str(ip_address(one)) for one in texts_of(tally, order).to_pylist()]),
    "hour": _by_integer(lambda number, _: format_millis(number * _HOUR) or str(number * _HOUR)),
    "size": _by_integer(lambda number, _: str(1 << _SMALLEST_CLASS + number)),
    "segment": _by_integer(lambda number, usage: usage.store.segments[number].name),
}
DIMENSIONS = tuple(_VALUES)

USAGE = Table("usage", SCHEMA, BRIEF, usage_rows)


# --- how many bytes came in when ------------------------------------------------------------------

_STEPS = (
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 7, 30, 90, 365)),
)


class Inflow(Struct, frozen=True):
    """Bytes of records by store time."""

    begin: int  # ms since 1970, a multiple of `step`
    step: int  # ms
    sizes: tuple[int, ...]  # bytes in each step

    @property
    def end(self) -> int:
        """The end of the last step, in ms."""
        return self.begin + self.step * len(self.sizes)


def inflow_of(usage: Usage, most: int) -> Inflow | None:
    """Return the bytes in at most so many steps; None without records, or where clocks were years apart."""
    times = usage.times.keys.integers
    if not len(times):
        return None
    for step in _STEPS:
        if step < usage.unit:
            continue
        numbers = times // (step // usage.unit)
        first = int(numbers.min())
        if int(numbers.max()) - first < most:
            sizes = np.zeros(int(numbers.max()) - first + 1, np.int64)
            np.add.at(sizes, numbers - first, usage.times.sums[:, SUM_BYTES])
            return Inflow(first * step, step, tuple(sizes.tolist()))
    return None

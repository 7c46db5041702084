"""The tables of the commit log: messages, gaps, segments."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import TypeAlias

import pyarrow as pa

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap, holes_in
from rmqinspect.commitlog.lenient_reader import Unread
from rmqinspect.commitlog.scan import WINDOW_SIZE, RecordRun, redo_where_borders_differ, scan_split
from rmqinspect.commitlog.splits import Borders, ScanState, Split, plan_splits
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.system.limits import keep_freed_memory
from rmqinspect.system.workers import run_ordered, stream_ordered
from rmqinspect.tables import messages
from rmqinspect.tables.arrow import batches_of
from rmqinspect.tables.table import TIMESTAMP, Request, Table, column
from rmqinspect.times import millis_to_micros

# Bytes. Large enough that the start of a split costs little; as many bytes of rows wait for each thread until those
# before them are taken.
SPLIT_SIZE = 32 << 20

_SMALL_WINDOW = 64 << 10

GAPS = pa.schema(
    [
        column("start", pa.int64(), "physical offset of the first byte"),
        column("end", pa.int64(), "physical offset after the last byte"),
        column("kind", pa.string(), "filler (blank record and what it covers), zeros, unknown, missing (no file)"),
        column("reason", pa.string(), "why the chain of records broke here; null where nothing is wrong"),
        column("witnesses", pa.int64(), "queue units that point into it: how many messages it held at least"),
    ]
)

# Kinds of gaps that no broker leaves: records stood there. So do zeros that records follow.
_LOST_KINDS = frozenset({"unknown", "missing"})

SEGMENTS = pa.schema(
    [
        column("base", pa.int64(), "physical offset of the first byte"),
        column("path", pa.string(), "file, relative to the store"),
        column("file_size", pa.int64(), "bytes; the sum of the four that follow records"),
        column("records", pa.int64(), "commit-log records"),
        column("record_bytes", pa.int64(), "bytes in records"),
        column("filler_bytes", pa.int64(), "the blank record and what it covers; DLedger: also entry heads"),
        column("zero_bytes", pa.int64(), "zeros: the unused tail, or lost pages"),
        column("unknown_bytes", pa.int64(), "bytes that nothing explains"),
        column("first_store_timestamp", TIMESTAMP, "broker's clock at the first record"),
        column("last_store_timestamp", TIMESTAMP, "broker's clock at the last record"),
        column("end", pa.int64(), "physical offset after the last record"),
        column("state", pa.string(), "full, current (still written), preallocated (empty), damaged, missing (no file)"),
    ]
)


@dataclass(frozen=True, slots=True)
class LogSplitRead:
    """The result of reading one split, apart from its rows."""

    split: Split
    unread: list[Unread]
    account: ByteAccount
    borders: Borders | None  # None: the file could not be opened


def message_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `messages` in log order, whatever the number of threads."""
    report_holes(holes_in(store), request)
    yield from messages_in(store.segments, request)


def report_holes(holes: Iterable[Gap], request: Request) -> None:
    """Report the holes that reach into the range of offsets asked for."""
    first, last = request.offsets or (0, 1 << 63)
    for hole in holes:
        if request.on_gap is not None and hole.start < last and first < hole.end:
            request.on_gap(hole.kind, hole.start, hole.end)


def messages_in(
    segments: Sequence[Segment], request: Request, take: Callable[[ByteAccount], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `messages` from some segments; holes between them are not reported.

    `take` gets the byte account of each split.
    """
    splits = _splits_in(segments, request)
    lost = _LostRanges(request)
    read = partial(_read_split, rows_of=partial(messages.message_batches, request=request))
    with closing(stream_ordered(read, splits, request.jobs, _size_of, request.jobs * SPLIT_SIZE)) as streams:
        started = (_Reading(split, items) for split, items in zip(splits, streams, strict=True))
        readings = redo_where_borders_differ(
            started,
            lambda reading: reading.split,
            lambda reading: reading.borders,
            lambda split: _Reading(split, read(split)),
        )
        for number, reading in enumerate(readings):
            yield from reading.rows(request)
            lost.take(reading.account, splits[number + 1 : number + 2])
            if take is not None:
                take(reading.account)


class _LostRanges:
    """Reports the ranges that lost their records, when a segment was read: its splits cut gaps at their borders."""

    def __init__(self, request: Request) -> None:
        self._report = request.on_gap
        self._account: ByteAccount | None = None  # of the segment that is read
        self._zeros: list[Gap] = []  # at the end of what was read: unused space, unless records follow

    def take(self, account: ByteAccount, following: Sequence[Split] = ()) -> None:
        """Take the next split's account; `following` begins with the split after it."""
        if self._account is None:
            self._account = ByteAccount(account.segment)
        self._account.join(account)
        if self._report is None or (following and following[0].segment.path == account.segment.path):
            return
        gaps = [*self._zeros, *self._account.merged_gaps()]
        lost = lost_gaps(gaps, self._account.end or 0)
        for gap in lost:
            self._report(*_told(gap))
        self._zeros = [gap for gap in gaps if gap.kind == "zeros" and gap not in lost]
        self._account = None


def lost_gaps(gaps: Iterable[Gap], log_end: int) -> list[Gap]:
    """Return the gaps that held records; `log_end` is the physical offset after the last record."""
    return [gap for gap in gaps if gap.kind in _LOST_KINDS or (gap.kind == "zeros" and gap.start < log_end)]


def _told(gap: Gap) -> tuple[str, int, int]:
    return gap.kind, gap.start, gap.end


def gap_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `gaps`, in log order, missing segments included."""
    accounts = _accounts(store.segments, request)
    yield from _reported_gaps(gaps_in(store, accounts), accounts, request)


def segment_gap_rows(segment: Segment, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `gaps` for one segment."""
    accounts = _accounts([segment], request)
    gaps = [gap for account in accounts.values() for gap in account.merged_gaps()]
    yield from _reported_gaps(gaps, accounts, request)


def _reported_gaps(
    gaps: Sequence[Gap], accounts: Mapping[str, ByteAccount], request: Request
) -> Iterator[pa.RecordBatch]:
    """Report the gaps that held records, and yield all as rows of the table."""
    if request.on_gap is not None:
        for gap in lost_gaps(gaps, end_of_log(accounts)):
            request.on_gap(*_told(gap))
    yield from gap_batches(gaps)


def end_of_log(accounts: Mapping[str, ByteAccount]) -> int:
    """Return the physical offset after the last record of some segments, 0 without a record."""
    return max((account.end for account in accounts.values() if account.end is not None), default=0)


def gaps_in(store: Store, accounts: Mapping[str, ByteAccount]) -> list[Gap]:
    """Return the gaps in log order; `accounts` has the segments that were read, by path."""
    holes = holes_in(store)
    gaps: list[Gap] = []
    for segment in store.segments:
        before = [gap for gap in holes if gap.start < segment.base]
        holes = holes[len(before) :]
        gaps += before
        if segment.path in accounts:
            gaps += accounts[segment.path].merged_gaps()
    return gaps


def gap_batches(gaps: Sequence[Gap], witnesses: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the table `gaps`; `witnesses` counts the units that point into each gap, None if not counted."""
    counts: Iterable[int | None] = repeat(None) if witnesses is None else witnesses
    yield from batches_of(GAPS, ((*gap, number) for gap, number in zip(gaps, counts, strict=False)))


def segment_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `segments`."""
    accounts = _accounts(store.segments, replace(request, offsets=None))
    lost = _LostRanges(request)
    for account in accounts.values():
        lost.take(account)
    yield from segment_batches(store, accounts)


def segment_batches(store: Store, accounts: Mapping[str, ByteAccount]) -> Iterator[pa.RecordBatch]:
    """Yield the table `segments`; `accounts` has the segments that were read, by path."""
    rows = [_missing_row(gap) for gap in holes_in(store)]
    last_base = max((account.segment.base for account in accounts.values() if account.records), default=-1)
    for segment in store.segments:
        account = accounts.get(segment.path) or ByteAccount(segment)
        rows.append(_segment_row(account, segment.base < last_base, store.segment_size))
    if rows:
        yield pa.RecordBatch.from_pylist(sorted(rows, key=_base), schema=SEGMENTS)


# --- reading --------------------------------------------------------------------------------------


def _splits_in(segments: Sequence[Segment], request: Request) -> list[Split]:
    splits = plan_splits(segments, SPLIT_SIZE if request.jobs > 1 else 1 << 62)
    if request.offsets is None:
        return splits
    start, end = request.offsets
    inside = (
        replace(
            split,
            start=max(split.start, start - split.segment.base),
            end=min(split.end, end - split.segment.base),
            entry=request.entry if split.start <= start - split.segment.base < split.end else None,
        )
        for split in splits
    )
    return [split for split in inside if split.start < split.end]


# What becomes known of a split while it is read, in this order: where it was entered; rows, the position up to which
# they are known, and what could not be read; the result.
_Item: TypeAlias = ScanState | pa.RecordBatch | int | Unread | LogSplitRead


def _read_split(split: Split, rows_of: Callable[[RecordRun], Iterable[pa.RecordBatch]]) -> Generator[_Item, None, None]:
    """Read a split to its end, whatever its damage.

    :raises Unreadable: the file cannot be opened; after the result.
    """
    keep_freed_memory()
    unread: list[Unread] = []
    account, borders = ByteAccount(split.segment), None
    entered: list[ScanState] = []
    failure: Unreadable | None = None
    try:
        for event in scan_split(split, _window_for(split), entered.append):
            if entered:
                yield entered.pop()
            if isinstance(event, Unread):
                unread.append(event)
                yield event
            elif isinstance(event, Borders):
                borders = event
            else:
                account.add(event)
            if isinstance(event, RecordRun):
                yield from rows_of(event)
                yield event.records.base + int(event.records.ends[-1]) - split.segment.base
    except Unreadable as error:
        base = split.segment.base
        unread.append(Unread(base + split.start, base + split.end, str(error)))
        failure = error
    yield LogSplitRead(split, unread, account, borders)
    if failure is not None:
        raise failure


def _size_of(item: _Item) -> int:
    """Return the bytes that an item takes while it waits."""
    return item.nbytes if isinstance(item, pa.RecordBatch) else 0


class _Reading:
    """A split whose rows are taken while it is read."""

    def __init__(self, split: Split, items: Iterator[_Item]) -> None:
        self.split = split
        self.account = ByteAccount(split.segment)
        self.borders: Borders | None = None  # the exit is right once all rows are taken
        first = next(items)
        if isinstance(first, ScanState):
            self.borders = Borders(first, first)
            self._items = items
        else:
            self._items = chain((first,), items)

    def rows(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the rows; progress, and what could not be read, is told in between."""
        tell, progress = request.on_unreadable, request.progress or (lambda size: None)
        done = self.split.start
        try:
            for item in self._items:
                if isinstance(item, pa.RecordBatch):
                    yield item
                elif isinstance(item, int):
                    progress(item - done)
                    done = item
                elif isinstance(item, LogSplitRead):
                    self.account, self.borders = item.account, item.borders
                elif isinstance(item, Unread) and tell is not None:
                    tell(item.message)
        except Unreadable as error:
            if tell is None:
                raise
            tell(str(error))
        progress(self.split.end - done)


def _window_for(split: Split) -> int:
    """Return the bytes to read at a time: a split of few records needs no large window."""
    return max(_SMALL_WINDOW, min(WINDOW_SIZE, split.end - split.start))


def _accounts(segments: Sequence[Segment], request: Request) -> dict[str, ByteAccount]:
    """Read the log; return the byte account of each segment, by path."""
    accounts: dict[str, ByteAccount] = {}
    work = partial(read_log_split, request=request)
    with closing(run_ordered(work, _splits_in(segments, request), request.jobs)) as results:
        for read in redo_where_borders_differ(results, lambda read: read.split, lambda read: read.borders, work):
            accounts.setdefault(read.split.segment.path, ByteAccount(read.split.segment)).join(read.account)
            _report(read, request)
    return accounts


def read_log_split(
    split: Split, request: Request, take: Callable[[pa.RecordBatch], None] | None = None
) -> LogSplitRead:
    """Read a split to its end, whatever its damage; `take` gets the rows of `messages`, in order."""
    rows_of = partial(messages.message_batches, request=request)
    with closing(_read_split(split, rows_of if take is not None else lambda run: ())) as items:
        for item in items:
            if isinstance(item, LogSplitRead):
                return item
            if isinstance(item, pa.RecordBatch) and take is not None:
                take(item)
    raise AssertionError("a split ends with its result")


def _report(read: LogSplitRead, request: Request) -> None:
    if request.on_unreadable is not None:
        for unread in read.unread:
            request.on_unreadable(unread.message)
    if request.progress is not None:
        request.progress(read.split.end - read.split.start)


def _segment_row(account: ByteAccount, follows_data: bool, segment_size: int | None) -> dict[str, object]:
    segment, sums = account.segment, account.gap_bytes
    return {
        "base": segment.base,
        "path": segment.name,
        "file_size": segment.size,
        "records": account.records,
        "record_bytes": account.record_bytes,
        "filler_bytes": sums["filler"],
        "zero_bytes": sums["zeros"],
        "unknown_bytes": sums["unknown"],
        "first_store_timestamp": _micros(account.first_timestamp),
        "last_store_timestamp": _micros(account.last_timestamp),
        "end": account.end if account.end is not None else segment.base,
        "state": account.state(follows_data=follows_data, segment_size=segment_size),
    }


def _missing_row(gap: Gap) -> dict[str, object]:
    sums = dict.fromkeys(("file_size", "records", "record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes"), 0)
    return {"base": gap.start, "path": f"{gap.start:020}", **sums, "end": gap.start, "state": "missing"}


def _base(row: dict[str, object]) -> int:
    return int(str(row["base"]))


def _micros(millis: int | None) -> int | None:
    return None if millis is None else millis_to_micros(millis)


MESSAGES_TABLE = Table("messages", messages.SCHEMA, messages.BRIEF, message_rows)
GAPS_TABLE = Table("gaps", GAPS, tuple(GAPS.names), gap_rows)
SEGMENTS_TABLE = Table(
    "segments",
    SEGMENTS,
    ("base", "file_size", "records", "record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes", "state"),
    segment_rows,
)

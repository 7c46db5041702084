"""The tables of the commit log: messages, gaps, segments."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.behind_files import missing_behind
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.missing import absent_in, missing_in
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.damage.named_record import named_record
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables import messages
from rmqinspect.tables.read_log import (
    SPLIT_SIZE,
    Item,
    LogFold,
    OnlyBytes,
    add_account,
    folds_of,
    readings,
    report_account,
    report_behind,
    splits_in,
)
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import TIMESTAMP, Table, batches_of, column
from rmqinspect.times import millis_to_micros

GAPS = pa.schema(
    [
        column("start", pa.int64(), "physical offset of the first byte", filled=True),
        column("end", pa.int64(), "physical offset after the last byte", filled=True),
        column(
            "kind",
            pa.string(),
            "filler (blank record and what it covers), zeros, unknown, missing (no file has them)",
            filled=True,
        ),
        column("reason", pa.string(), "why the chain of records broke here; null where nothing is wrong"),
        column("witnesses", pa.int64(), "queue units that point into it: how many messages it held at least"),
    ]
)

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
        column(
            "state",
            pa.string(),
            "full, current (still written), preallocated (empty), damaged, missing (no file), double (another file of "
            "this base is read)",
        ),
    ]
)


def message_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `messages` in log order, whatever the number of threads."""
    report_account(store, request)
    yield from messages_in(store.log_files, request)
    report_behind(store, request)  # last: who takes the first rows alone does not wait for it


def messages_in(
    segments: Sequence[Segment], request: Request, take: Callable[[ByteAccount], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `messages` from some segments; what no file has is not reported.

    `take` gets the byte account of each split.
    """
    splits = splits_in(segments, request, whole=request.jobs == 1)
    new = partial(MessageRows, request)
    with closing(readings(splits, request, new, _size_of, request.jobs * SPLIT_SIZE)) as read_splits:
        for reading in read_splits:
            yield from reading.rows(request)
            if take is not None:
                take(reading.end().account)


class MessageRows(Struct, frozen=True):
    """Work on a split: the rows of `messages`, if they are wanted; `fold` gets all records besides."""

    request: Request
    wanted: bool = True
    fold: LogFold | None = None

    def take(self, run: RecordRun) -> Iterable[pa.RecordBatch]:
        """Return the rows of a run, of those that may pass the filters of the request."""
        if self.fold is not None:
            self.fold.take(run)
        return messages.message_batches(run, self.request) if self.wanted else ()

    def take_gap(self, segment: Segment, gap: Gap) -> Iterable[pa.RecordBatch]:
        """Return the rows of the records in a gap that the request names."""
        named = self.request.named if self.wanted else ()
        for place, size in named[bisect_left(named, (gap.start, 0)) : bisect_left(named, (gap.end, 0))]:
            record = named_record(segment, place, size, [])  # the scan has told what the system refuses to read
            if record is not None:
                run = RecordRun(record, carved=False, stale=False, named=True)
                yield from messages.message_batches(run, self.request)


def _size_of(item: Item[pa.RecordBatch]) -> int:
    """Return the bytes that an item takes while it waits."""
    return item.nbytes if isinstance(item, pa.RecordBatch) else 0


def gap_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `gaps`, in log order, with what no file has."""
    whole = replace(request, offsets=None)  # all of them are rows
    report_account(store, whole)
    report_behind(store, whole)
    yield from gap_batches(gaps_in(store, _accounts(store.log_files, request)))


def segment_gap_rows(segment: Segment, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `gaps` for one segment."""
    accounts = _accounts([segment], request)
    yield from gap_batches([gap for account in accounts.values() for gap in account.merged_gaps()])


def end_of_log(accounts: Mapping[str, ByteAccount]) -> int:
    """Return the physical offset after the last record of some segments, 0 without a record."""
    return max((account.end for account in accounts.values() if account.end is not None), default=0)


def gaps_in(store: Store, accounts: Mapping[str, ByteAccount]) -> list[Gap]:
    """Return the gaps in log order; `accounts` has the segments that were read, by path."""
    missing = missing_in(store)
    gaps: list[Gap] = []
    for segment in store.log_files:
        before = [gap for gap in missing if gap.start < segment.base]
        missing = missing[len(before) :]
        gaps += before
        if segment.path in accounts:
            gaps += accounts[segment.path].merged_gaps()
    return [*gaps, *missing, *missing_behind(store)]


def gap_batches(gaps: Sequence[Gap], witnesses: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the table `gaps`; `witnesses` counts the units that point into each gap, None if not counted."""
    counts: Iterable[int | None] = repeat(None) if witnesses is None else witnesses
    yield from batches_of(GAPS, ((*gap, number) for gap, number in zip(gaps, counts, strict=False)))


def segment_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `segments`."""
    whole = replace(request, offsets=None)
    report_account(store, whole)
    report_behind(store, whole)
    accounts = _accounts(store.log_files, whole)
    # What is lost of the log is lost of these.
    yield from segment_batches(store, {**accounts, **_accounts(store.doubles, replace(whole, on_gap=None))})


def segment_batches(store: Store, accounts: Mapping[str, ByteAccount]) -> Iterator[pa.RecordBatch]:
    """Yield the table `segments`; `accounts` has the segments that were read, by path."""
    zero = dict.fromkeys(("file_size", "records", "record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes"), 0)
    rows: list[dict[str, Any]] = [
        {"base": gap.start, "path": f"{gap.start:020}", **zero, "end": gap.start, "state": "missing"}
        for gap in absent_in(store)
    ]
    last_base = max((account.segment.base for account in accounts.values() if account.records), default=-1)
    for segment in store.segments:
        account = accounts.get(segment.path) or ByteAccount(segment)
        row = _segment_row(account, segment.base < last_base, store.segment_size)
        rows.append(row if segment not in store.doubles else {**row, "state": "double"})
    if rows:
        yield pa.RecordBatch.from_pylist(sorted(rows, key=itemgetter("base")), schema=SEGMENTS)


def _accounts(segments: Sequence[Segment], request: Request) -> Mapping[str, ByteAccount]:
    """Read some segments; return the byte account of each, by path."""
    accounts: dict[str, ByteAccount] = {}
    for _, account in folds_of(splits_in(segments, request), request, OnlyBytes):
        add_account(accounts, account)
    return accounts


def _segment_row(account: ByteAccount, follows_data: bool, segment_size: int | None) -> dict[str, Any]:
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

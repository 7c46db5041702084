"""Scans of one segment: records, gaps and byte counts, whole or in splits; every byte is accounted for once."""

from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple

import pyarrow as pa

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Borders, Gap, Split, merge_gaps, plan_splits
from rmqinspect.commitlog.scan import WINDOW_SIZE, RecordRun, redo_where_borders_differ, scan_split
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.store.model import Segment
from rmqinspect.tables.messages import SCHEMA, message_batches
from rmqinspect.tables.request import Request
from tests.support.side_tables import milliseconds

ENTIRE = 1 << 62  # a split size that no segment reaches

_SAME = (
    "topic",
    "queue_id",
    "queue_offset",
    "size",
    "msg_id",
    "offset_msg_id",
    "tags",
    "keys",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
)


class Found(NamedTuple):
    """A record in the result of a scan."""

    physical_offset: int
    size: int
    carved: bool
    stale: bool


class Scan(NamedTuple):
    """Result of the scan of one segment."""

    records: list[Found]
    gaps: list[Gap]
    account: ByteAccount


def scan(segment: Segment, split_size: int = ENTIRE, window_size: int = WINDOW_SIZE) -> Scan:
    """Scan a segment in splits, as several threads do; assert that every byte is reported once."""
    records: list[Found] = []
    gaps: list[Gap] = []
    account = ByteAccount(segment)
    lead = EntryHead.sizeof() if segment.kind == "dledger" else 0
    reached = segment.base
    parts = (_scan_part(split, window_size) for split in plan_splits([segment], split_size))
    again = partial(_scan_part, window_size=window_size)
    for part in redo_where_borders_differ(parts, lambda part: part.split, lambda part: part.borders, again):
        for item in part.items:
            if isinstance(item, Gap):
                assert item.start == reached < item.end
                reached = item.end
                gaps.append(item)
            else:
                assert item.physical_offset - lead == reached
                reached = item.physical_offset + item.size
                records.append(item)
        account.join(part.account)
    end = segment.base + segment.size
    assert reached == end or not segment.size
    assert account.total == segment.size
    assert account.records == len(records)
    return Scan(records, list(merge_gaps(gaps, end)), account)


class _Part(NamedTuple):
    split: Split
    items: list[Gap | Found]
    account: ByteAccount
    borders: Borders | None


def _scan_part(split: Split, window_size: int) -> _Part:
    items: list[Gap | Found] = []
    account, borders = ByteAccount(split.segment), None
    for event in scan_split(split, window_size):
        if isinstance(event, Borders):
            borders = event
        elif isinstance(event, Gap):
            account.add(event)
            items.append(event)
        elif isinstance(event, RecordRun):
            account.add(event)
            items += _founds(event)
    return _Part(split, items, account, borders)


def table(segment: Segment, request: Request | None = None, window_size: int = WINDOW_SIZE) -> pa.Table:
    """Return the rows of a segment's messages."""
    batches = [
        batch
        for event in scan_split(Split(segment, 0, segment.size), window_size)
        if isinstance(event, RecordRun)
        for batch in message_batches(event, request or Request())
    ]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, SCHEMA)


def statuses(segment: Segment, request: Request | None = None) -> list[str]:
    """Return the status of each row of a segment."""
    found: list[str] = table(segment, request)["status"].to_pylist()
    return found


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in the form of a truth: times in ms, (host, port) pairs."""
    return {name: row[name] for name in _SAME} | {
        "born_timestamp": milliseconds(row["born_timestamp"]),
        "store_timestamp": milliseconds(row["store_timestamp"]),
        "born": (row["born_host"], row["born_port"]),
        "store": (row["store_host"], row["store_port"]),
        "properties": dict(row["properties"]),
    }


def host(said: str) -> tuple[str, int]:
    """Parse Java's `address:port`, where IPv6 is in brackets and uncompressed."""
    address, _, port = said.rpartition(":")
    return str(ip_address(address.strip("[]"))), int(port)


def _founds(event: RecordRun) -> list[Found]:
    records = event.records
    return [
        Found(records.base + start, size, event.carved and number == 0, event.stale)
        for number, (start, size) in enumerate(zip(records.starts.tolist(), records.total_size.tolist(), strict=True))
    ]

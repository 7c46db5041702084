"""The content of one log at a physical offset, in words: a record, a gap, or nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from rmqinspect.commitlog.find_record import RecordFinder
from rmqinspect.commitlog.locate import locate
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.messages import message_batches
from rmqinspect.tables.table import Request
from rmqinspect.text import group_digits
from rmqinspect.times import format_millis

_SHOWN = ("physical_offset", "size", "topic", "queue_id", "queue_offset", "keys", "status")

_GAPS = {
    "record": "a record that fails its own checks",
    "blank": "the blank record that ends a segment",
    "entry": "a DLedger entry without a record",
    "zeros": "zeros",
    "unknown": "bytes that are no record",
}


@dataclass(frozen=True, slots=True)
class OffsetContent:
    """The content of a log at a physical offset."""

    kind: str  # record, blank, entry, zeros, unknown, nothing (no segment), unread
    text: str
    start: int | None = None  # physical offset where it starts
    row: Mapping[str, Any] = field(default_factory=dict)  # of a record: columns of `messages`


def read_content(store: Store, offset: int, zone: tzinfo = UTC) -> OffsetContent:
    """Return what a store's log holds at a physical offset."""
    try:
        spot = locate(store, offset)
    except NothingFound:
        return OffsetContent("nothing", "no segment")
    except Unreadable as error:
        return OffsetContent("unread", str(error))
    row = _read_row(spot.segment, spot.start, zone) if spot.kind == "record" else {}
    if row:
        return OffsetContent("record", describe_row(row), spot.start, row)
    return OffsetContent(spot.kind, f"{_GAPS[spot.kind]}, from {group_digits(spot.start)} on", spot.start)


def _read_row(segment: Segment, offset: int, zone: tzinfo) -> Mapping[str, Any]:
    """Return the record at a physical offset as columns of `messages`; {} if there is no whole one."""
    try:
        with open_file(segment) as reader:
            frame = RecordFinder(segment, reader.size, reader.read).frame_at(offset, anywhere=True)
            if frame is None:
                return {}
            record = Records.of_one(reader.read(offset - segment.base, frame.head.size), offset)
    except Unreadable:
        return {}
    batch = next(message_batches(RecordRun(record, False, False), Request(columns=frozenset((*_SHOWN, "status")))))
    row = {name: batch.column(name)[0].as_py() for name in _SHOWN}
    return row | {"store_timestamp": format_store_time(int(record.field("store_timestamp")[0]), zone)}


def describe_row(row: Mapping[str, Any]) -> str:
    """Return a record in words: place, queue, first key, time."""
    key = f", key {row['keys'][0]}" if row["keys"] else ""
    status = "" if row["status"] == "ok" else f", status {row['status']}"
    return (
        f"record {group_digits(row['physical_offset'])}: {row['topic']} queue {row['queue_id']} "
        f"offset {row['queue_offset']}{key}, {row['store_timestamp']}{status}"
    )


def format_store_time(milliseconds: int, zone: tzinfo) -> str:
    """Return a store time as text, also one outside the years 1 to 9999."""
    return format_millis(milliseconds, zone) or f"{milliseconds} ms"

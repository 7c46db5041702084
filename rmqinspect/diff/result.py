"""What two stores differ in: the table of differences, the facts around it, and its JSON document."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.diff.log_diff import LogDiff
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.store.model import Store
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.tables.messages import message_batches
from rmqinspect.tables.redact import Redaction
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import batches_of, column
from rmqinspect.text import group_digits
from rmqinspect.times import format_millis
from rmqinspect.version import tool_name

# A minor change adds fields at the end, a major one renames.
SCHEMA_VERSION = 1

# Kinds of files that are not compared, and their names.
_IGNORED = {
    "index": "index files",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
    "rocksdb": "RocksDB files",
    "timer_log": "timer log",
    "timer_wheel": "timer wheel",
    "compaction_log": "compaction logs",
    "compaction_queue": "compaction queues",
    "dledger_index": "DLedger index",
    "other": "other files",
}

SIDES = ("A", "B")

# Kind of difference → part of the store, as named in the verdict.
KINDS = {
    "segment_only": "segments",
    "segment_length": "segments",
    "range_only": "log",
    "range_neither": "log",
    "log_end": "log",
    "bytes": "log",
    "record_only": "records",
    "queue_only": "queues",
    "queue_min": "queues",
    "queue_max": "queues",
    "queue_units": "queues",
    "group_offset": "groups",
    "topic_only": "topics",
}

SCHEMA = pa.schema(
    [
        column("what", pa.string(), ", ".join(KINDS)),
        column("only_in", pa.string(), "A or B where only one has it, else null"),
        column("topic", pa.string(), "topic"),
        column("group", pa.string(), "consumer group"),
        column("queue_id", pa.int32(), "queue"),
        column("queue_offset", pa.int64(), "logical offset in the queue; queue_units: the first that differs"),
        column("physical_offset", pa.int64(), "where it begins in the commit log"),
        column("length", pa.int64(), "bytes concerned"),
        column("count", pa.int64(), "bytes that differ in a range, units of a queue, else 1"),
        column("a", pa.string(), "what A has, short"),
        column("b", pa.string(), "what B has, short"),
        column("message", pa.string(), "what it is and what it may come from"),
    ]
)

_SHOWN = ("physical_offset", "size", "topic", "queue_id", "queue_offset", "keys", "status")

_GAPS = {
    "record": "a record that fails its own checks",
    "blank": "the blank record that ends a segment",
    "entry": "a DLedger entry without a record",
    "zeros": "zeros",
    "unknown": "bytes that are no record",
}

_HIDDEN = "hidden"  # what --redact leaves of values of messages


# --- the table of differences ---------------------------------------------------------------------


class Difference(Struct, frozen=True):
    """One row of the table. The fields are its columns."""

    what: str
    message: str
    only_in: str | None = None
    topic: str | None = None
    group: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    length: int | None = None
    count: int = 1
    a: str | None = None
    b: str | None = None


class Differences:
    """The first `limit` rows of each kind and side, and exact counts."""

    def __init__(self, limit: int) -> None:
        self._capped = CappedList[Difference, tuple[str, str | None]](limit, lambda row: (row.what, row.only_in))
        self.rows = self._capped.rows
        self.counts = dict.fromkeys(KINDS, 0)

    def add(self, difference: Difference) -> None:
        """Count a difference; keep it, unless the limit is reached."""
        self.counts[difference.what] += 1
        self._capped.add(difference)

    def count_more(self, what: str, number: int) -> None:
        """Count differences without rows."""
        self.counts[what] += number

    def of(self, *kinds: str) -> list[Difference]:
        """Return the rows of some kinds, in the order they were found."""
        return [row for row in self.rows if row.what in kinds]

    @property
    def suppressed(self) -> int:
        """Differences that are counted without a row."""
        return sum(self.counts.values()) - len(self.rows)

    @property
    def parts(self) -> list[str]:
        """The parts of the stores that differ, in the order of KINDS."""
        return list(dict.fromkeys(part for what, part in KINDS.items() if self.counts[what]))


def only_in(a: bool, b: bool) -> str | None:
    """Return the side that has something; None if both do."""
    return None if a and b else SIDES[0] if a else SIDES[1]


def difference_batches(rows: Sequence[Difference]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as batches with SCHEMA."""
    yield from batches_of(SCHEMA, ([getattr(row, name) for name in SCHEMA.names] for row in rows))


# --- what lies at an offset -----------------------------------------------------------------------


class OffsetContent(Struct, frozen=True):
    """The content of a log at a physical offset."""

    kind: str  # record, blank, entry, zeros, unknown, nothing (no segment), unread
    text: str
    start: int | None = None  # physical offset where it starts
    row: Mapping[str, Any] = field(default_factory=dict)  # of a record: columns of `messages`


def read_content(store: Store, offset: int, zone: tzinfo = UTC) -> OffsetContent:
    """Return what a store's log holds at a physical offset."""
    try:
        with RecordReader(store) as log:
            spot = log.locate(offset)
            content = log.content_at(spot.start, anywhere=True) if spot.kind == "record" else None
    except NothingFound:
        return OffsetContent("nothing", "no segment")
    except Unreadable as error:
        return OffsetContent("unread", str(error))
    if content is None:
        return OffsetContent(spot.kind, f"{_GAPS[spot.kind]}, from {group_digits(spot.start)} on", spot.start)
    record = Records.of_one(content, spot.start)
    batch = next(message_batches(RecordRun(record, False, False), Request(columns=frozenset(_SHOWN))))
    row = {name: batch.column(name)[0].as_py() for name in _SHOWN}
    row["store_timestamp"] = format_store_time(int(record.field("store_timestamp")[0]), zone)
    return OffsetContent("record", describe_row(row), spot.start, row)


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


# --- the result -----------------------------------------------------------------------------------


class DiffResult(Struct):
    """The differences of two stores, and the facts a screen or document shows around them."""

    stores: tuple[Store, Store]
    differences: Differences
    compared: dict[str, str] = field(default_factory=dict)  # part → why it was not compared, "" if it was
    log: LogDiff | None = None
    at_first: tuple[OffsetContent, OffsetContent] | None = None  # at the first offset where the logs differ
    queues: int = 0  # in both
    same_queues: int = 0
    group_offsets: int = 0  # in both
    topics: int = 0
    notes: list[str] = field(default_factory=list)  # entries in one store only that are not compared
    unread: list[str] = field(default_factory=list)  # messages
    interrupted: str | None = None  # where

    @property
    def complete(self) -> bool:
        """Whether everything that should be compared was."""
        return not self.unread and self.interrupted is None

    @property
    def verdict(self) -> str:
        """SAME or DIFFERENT; INCOMPLETE comes first, and never with SAME, if not everything was compared.

        Two stores can be the same in what they have, and both lack a part of the log.
        """
        different = any(number for what, number in self.differences.counts.items() if what != "range_neither")
        if self.complete and self.differences.counts["range_neither"] and not different:
            return "SAME, BOTH WITH A HOLE"
        if self.complete:
            return "DIFFERENT" if different else "SAME"
        return f"INCOMPLETE, {'DIFFERENT' if different else 'no difference so far'}"


def not_compared(result: DiffResult) -> list[str]:
    """Return everything that was not compared, with the reason unless it is never compared."""
    kinds = {file.kind for store in result.stores for file in store.files}
    reasons = [f"{part}: {why}" for part, why in result.compared.items() if why]
    behind = ["bytes behind the ends of the logs"] if result.log is not None else []
    lengths = ["lengths of queue files"] if not result.compared["queues"] else []
    return reasons + [words for kind, words in _IGNORED.items() if kind in kinds] + behind + lengths


def diff_document(result: DiffResult, names: Sequence[str]) -> dict[str, Any]:
    """Return the result as a document; `names` are the stores as given."""
    differences = result.differences
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool_name(),
        "complete": result.complete,
        "verdict": result.verdict,
        "different": differences.parts,
        "a": names[0],
        "b": names[1],
        "counts": differences.counts,
        "log": None if result.log is None else _log_document(result, result.log),
        "queues": {"in_both": result.queues, "same": result.same_queues},
        "groups": {"offsets_in_both": result.group_offsets},
        "topics": {"in_both": result.topics},
        "not_compared": not_compared(result),
        "notes": result.notes,
        "unread": result.unread,
        "interrupted": result.interrupted,
        "rows_left_out": differences.suppressed,
        "rows": [asdict(row) for row in differences.rows],
    }


def _log_document(result: DiffResult, log: LogDiff) -> dict[str, Any]:
    contents = [None, None] if result.at_first is None else [asdict(content) for content in result.at_first]
    return {
        "covered": {side: log.ranges(number) for number, side in enumerate(("a", "b"))},
        "end": {"a": log.ends[0], "b": log.ends[1]},
        "bytes_behind_the_first_end": log.tail,
        "compared": log.compared,
        "compared_bytes": log.compared_bytes,
        "first_difference": None
        if log.first is None
        else {"physical_offset": log.first, "a": contents[0], "b": contents[1]},
        "ranges": log.runs.count,
        "differing_bytes": log.runs.differing,
        "records_only_in": {
            side: {
                "records": only.count,
                "bytes": only.size,
                "by_topic": only.by_topic,
                "elsewhere_in_the_other": only.elsewhere,
                "elsewhere_exact": only.elsewhere_exact,
            }
            for side, only in zip(("a", "b"), log.only, strict=True)
        },
    }


def redact_result(result: DiffResult, redaction: Redaction) -> None:
    """Mask the keys of the records at the first difference, and the tags codes of queue units, in place."""
    if result.at_first is not None:
        a, b = (_redacted(content, redaction) for content in result.at_first)
        result.at_first = a, b
    if redaction.hides("tags"):
        rows = result.differences.rows
        rows[:] = [replace(row, a=_HIDDEN, b=_HIDDEN) if row.what == "queue_units" else row for row in rows]


def _redacted(content: OffsetContent, redaction: Redaction) -> OffsetContent:
    if not content.row:
        return content
    row = {**content.row, "keys": [key for key in map(redaction.one_key, content.row["keys"] or ()) if key]}
    return replace(content, text=describe_row(row), row=row)

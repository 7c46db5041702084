"""The request of an export: everything that decides which rows go to which file.

File and folder names from untrusted text: deterministic, and safe on every file system.

Which file holds which range of the commit log.

    physical offset   0         file_size   2·file_size        end of the log
    segments          |------seg 0-----|------seg 1-----|------seg 2--:·······|
    parts             |----part----|----part-----|----part-----|-part-:-tail--|

The grid is absolute, at multiples of `file_size` in physical offsets, so borders stay where they are when
retention deletes the first segments. The end of the log is a border too: what lies behind it was not covered and is
exported again later. So is the end of an earlier export, and with --closed-only the start of the open segment.

The stores of an export, each under a name of its own.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

from rmqinspect.choices import FILE_SIZE
from rmqinspect.commitlog.gaps import Split
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.lost_records import ANY_START, AskedStart
from rmqinspect.tables.redact import Redaction

MESSAGES, FINDINGS = "messages", "findings"
# Tables that are computed while the log is read.
LOG_TABLES = frozenset({"segments", "gaps", "queues", "usage"})


class ExportRequest(Struct, frozen=True):
    """What to export, and how. Picklable; the same for all parts of an export."""

    tables: tuple[str, ...] = (MESSAGES,)
    file_size: int = FILE_SIZE
    schema: str = "native"  # of SCHEMAS
    partition_by: tuple[str, ...] = ()  # of PARTITIONS
    selection: Selection = field(default_factory=Selection)
    redaction: Redaction | None = None
    raw_body: bool = False
    text_bodies: bool = False  # the column `body` as text
    max_body: int = 64 << 20
    closed_only: bool = False
    relative: tuple[tuple[str, str], ...] = ()  # since and until as given, where they are relative: `-2h`, `last-5m`
    start: AskedStart = ANY_START  # that the table `next_starts` is about

    def as_document(self) -> dict[str, Any]:
        """Return what must be equal for --incremental. A key of --redact appears as a hash."""
        start = {"broker_version": self.start.release, "clean_exit": self.start.clean_exit}
        return {
            "tables": list(self.tables),
            "file_size": self.file_size,
            "schema": self.schema,
            "partition_by": list(self.partition_by),
            "filters": filters(self.selection) | dict(self.relative),
            "redacted": _redacted(self.redaction),
            "raw_body": self.raw_body,
            **({"body": "text"} if self.text_bodies else {}),
            "max_body": self.max_body,
            **{name: value for name, value in start.items() if value is not None},
        }


def filters(selection: Selection) -> dict[str, Any]:
    """Return the filters in use, by name."""
    plain = Selection()
    # `in_queues` follows from `queue_offsets`, `unconsumed_in` from `unconsumed` and the store, `lost` from
    # `lost_at_start` and the store.
    hidden = ("topics_seen", "in_queues", "unconsumed_in", "lost")
    names = [name for name in selection.__dataclass_fields__ if name not in hidden]
    values = {name: getattr(selection, name) for name in names}
    return {name: _as_list(value) for name, value in values.items() if value != getattr(plain, name)}


def _as_list(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_as_list(one) for one in value] if isinstance(value, tuple) else value


def _redacted(redaction: Redaction | None) -> Mapping[str, str | None]:
    if redaction is None:
        return {}
    return {
        word: None if key is None else hashlib.sha256(b"rmqinspect key " + key).hexdigest()[:16]
        for word, key in sorted(redaction.keys.items())
    }


# File systems allow 255 bytes. The temporary name of a range adds 74 to the store's name, a hash another 17.
_MAX_LENGTH = 160
_NULL = "__HIVE_DEFAULT_PARTITION__"  # read as null by Hive, Spark and DuckDB


def safe_name(text: str) -> str:
    """Return `text` percent-encoded; if too long for a file name, cut and followed by a hash."""
    encoded = quote(text, safe=" +,@").replace(" ", "%20")
    # Names that start with a dot or an underscore are hidden; `.` and `..` are folders.
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= _MAX_LENGTH:
        return encoded
    return f"{encoded[:_MAX_LENGTH]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def range_name(store: str, start: int, end: int) -> str:
    """Return the file name for the records of [start, end), physical offsets."""
    return f"{safe_name(store)}-{start:020}-{end:020}.parquet"


def numbered_name(store: str, number: int) -> str:
    """Return the file name for a part of any other table."""
    return f"{safe_name(store)}-{number:05}.parquet"


def partition_folder(column: str, value: object) -> str:
    """Return the Hive name of a partition's folder, `column=value`."""
    text = "" if value is None else str(value)
    return f"{column}={safe_name(text) if text else _NULL}"


class LogPart(Struct, frozen=True):
    """The records of one store that start in [start, end), physical offsets: one file, or one per partition."""

    store: str
    start: int
    end: int
    splits: tuple[Split, ...]
    is_tail: bool = False  # behind the log's end, where a live broker writes next: exported again by --incremental
    writes: bool = True  # its messages are exported; else it is only read for LOG_TABLES
    cold: bool = False  # starts inside a segment whose earlier bytes no part reads

    @property
    def name(self) -> str:
        """Name of the file."""
        return range_name(self.store, self.start, self.end)

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(split.end - split.start for split in self.splits)


class LogReach(Struct, frozen=True):
    """How far the log of a store goes. Offsets are physical."""

    start: int
    end: int  # behind the last record and the blank record that may follow it
    open_segment: Segment | None  # the one the broker writes to; None if the log ends with a full one
    pointed_at: int | None = None  # highest offset that a queue points at

    def is_closed(self, segment: Segment) -> bool:
        """Whether a segment lies completely before the log's end."""
        return segment.end <= self.end


def plan_log(
    store: Store, file_size: int, reach: LogReach, start: int = 0, *, closed_only: bool = False
) -> list[LogPart]:
    """Cut a log into parts, ascending. `start` is where an earlier export ended, 0 without one."""
    borders = {start, reach.end}
    if closed_only and reach.open_segment is not None:
        borders.add(reach.open_segment.base)
    splits: dict[tuple[int, int], list[Split]] = defaultdict(list)
    for segment in store.segments:
        for first, end in pairwise(_cuts(segment, file_size, borders)):
            key = first // file_size, sum(first >= border for border in borders)
            splits[key].append(Split(segment, first - segment.base, end - segment.base))
    return [_part(store.name, splits[key], reach) for key in sorted(splits)]


def _cuts(segment: Segment, file_size: int, borders: set[int]) -> list[int]:
    first, end = segment.base, segment.end
    grid = range((first // file_size + 1) * file_size, end, file_size)
    return sorted({first, end, *grid, *(border for border in borders if first < border < end)})


def _part(store: str, splits: list[Split], reach: LogReach) -> LogPart:
    start = min(split.segment.base + split.start for split in splits)
    end = max(split.segment.base + split.end for split in splits)
    return LogPart(store, start, end, tuple(splits), start >= reach.end)

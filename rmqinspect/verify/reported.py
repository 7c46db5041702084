"""The report of `verify`, read: what the screen prints, and the files that `--against` compares.

A run prints its screen from its own report, so the screen of a report that was written is the same. A report that
comes from outside is checked field by field: the classes here say which fields there must be, and of which type.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from rmqinspect.errors import Unreadable
from rmqinspect.verify.custody import Record, Recorded
from rmqinspect.verify.findings import FindingRow

# A minor change adds fields at the end, a major one renames.
SCHEMA_VERSION = 1

_LIMIT = 1 << 63  # of numbers: those of Java and Arrow have 64 bits


@dataclass(frozen=True, slots=True)
class SegmentAccount:
    """The byte account of a segment, in bytes."""

    base: int
    file: str
    file_size: int
    records: int
    record_bytes: int
    filler_bytes: int
    zero_bytes: int
    unknown_bytes: int

    @property
    def adds_up(self) -> bool:
        """Whether the whole segment was read."""
        return self.record_bytes + self.filler_bytes + self.zero_bytes + self.unknown_bytes == self.file_size


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """Units of all consume queues."""

    read: int
    lead_to_their_record: int


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """Entries of all index files."""

    lead_to_their_record: int


@dataclass(frozen=True, slots=True)
class Lost:
    """What the log has lost."""

    summary: str


@dataclass(frozen=True, slots=True)
class BrokerVersion:
    """Whose rules were applied."""

    contradiction: str | None


@dataclass(frozen=True, slots=True)
class CustodyFile:
    """A file of the evidence."""

    file: str
    size: int
    mtime: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class CustodyOther:
    """An entry of the evidence that is no regular file."""

    file: str
    what: str


@dataclass(frozen=True, slots=True)
class CustodyChange:
    """A file that changed during the run."""

    file: str
    what: str


@dataclass(frozen=True, slots=True)
class ReportedCustody:
    """The files, and what changed during the run."""

    algorithm: str | None  # None: nothing was hashed
    files: tuple[CustodyFile, ...]
    changed: tuple[CustodyChange, ...]


@dataclass(frozen=True, slots=True)
class NextStart:
    """What the next start of a broker does to the store."""

    verdict: str
    lines: tuple[str, ...]  # of the screen


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """When the run was, and of which version."""

    tool: str
    started: str  # ISO 8601 in UTC, like `ended`
    ended: str


@dataclass(frozen=True, slots=True)
class Report:
    """What the screen of a run is printed from; docs/report.md says what the fields mean."""

    complete: bool
    errors: int
    warnings: int
    counts: Mapping[str, int]
    findings_left_out: int
    findings: tuple[FindingRow, ...]
    segments: tuple[SegmentAccount, ...]
    queue_units: QueueUnits
    index_entries: IndexEntries
    loss: Lost | None
    broker_version: BrokerVersion | None
    unread: tuple[str, ...]
    custody: ReportedCustody | None
    summary: str
    given: str | None
    not_given: str | None
    not_checked: tuple[str, ...]
    interrupted: str | None
    run: ReportedRun
    next_start: NextStart | None = None  # earlier reports have none

    @property
    def damage(self) -> int:
        """How many errors are damage, and not only something that could not be read."""
        return self.errors - self.counts.get("ST-IO", 0)


@dataclass(frozen=True, slots=True)
class _FileList:
    files: tuple[CustodyFile, ...]
    others: tuple[CustodyOther, ...]


@dataclass(frozen=True, slots=True)
class _End:
    ended: str


@dataclass(frozen=True, slots=True)
class _Inventory:
    """The part of a report that `--against` compares: reports without the fields of the screen have it, too."""

    custody: _FileList
    run: _End


Read = TypeVar("Read", Report, _Inventory)


def read_report(path: str) -> Report:
    """Return the report in a file.

    :raises Unreadable: the file cannot be read.
    :raises ValueError: it is no report of this schema, or one that is damaged.
    """
    return _read(Report, path)


def read_record(path: str) -> Record:
    """Return what a report says about the files, to compare them with what they are now.

    :raises Unreadable: the file cannot be read.
    :raises ValueError: it is no report of this schema, or one without a list of files.
    """
    report = _read(_Inventory, path)
    return Record(
        moment=report.run.ended,
        files={file.file: Recorded(file.size, file.mtime, file.sha256) for file in report.custody.files},
        others={other.file: other.what for other in report.custody.others},
    )


def typed(document: Mapping[str, Any]) -> Report:
    """Return a document, as `report_document` makes it, with its types.

    :raises ValueError: a field is missing, or is not what it should be.
    """
    report: Report = _typed(Report, document, "")
    return report


def _read(kind: type[Read], path: str) -> Read:
    document = _load(path)
    if not isinstance(document, dict) or not {"schema_version", "verdict", "run"} <= document.keys():
        raise ValueError(f"{path}: not a report of verify")
    if document["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"{path}: a report with a schema version other than {SCHEMA_VERSION}")
    try:
        result: Read = _typed(kind, document, "")
        _obey_rules(result.run, "run")
        rows: tuple[FindingRow, ...] = result.findings if isinstance(result, Report) else ()
        for number, row in enumerate(rows):
            _obey_rules(row, f"findings[{number}]")
    except ValueError as error:
        raise ValueError(f"{path}: not a complete report of verify: {error}") from error
    return result


def _load(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            # A segment given by mistake is not read to its end.
            raw = head + file.read() if head.lstrip().startswith(b"{") else b""
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    if not raw:
        raise ValueError(f"{path}: not a report of verify, not even JSON")
    try:
        return json.loads(raw, parse_int=_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a report of verify, or cut short: no JSON at byte {error.pos}") from error
    except OverflowError as error:
        raise ValueError(f"{path}: not a report of verify: a number of more than 64 bits") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a report of verify, not even JSON") from error


def _number(digits: str) -> int:
    number = int(digits) if len(digits) <= len(str(-_LIMIT)) else _LIMIT
    if not -_LIMIT <= number < _LIMIT:
        raise OverflowError
    return number


# --- types ------------------------------------------------------------------------------------------------

_NAMES = {
    int: "a number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    NoneType: "null",
    float: "no whole number",
}

_CODE = re.compile(r"[A-Z0-9]+(?:-[A-Z0-9]+)*")


def moment(text: str) -> datetime:
    """Return a time of the report.

    :raises ValueError: it is not ISO 8601 in UTC.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is not UTC:
        raise ValueError(text)
    return time


def _is_moment(text: str) -> bool:
    try:
        return bool(moment(text))
    except ValueError:
        return False


# What fields of these names must be beside their type.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "code": (lambda text: bool(_CODE.fullmatch(text)), "a code"),
    "severity": (lambda text: text in ("error", "warning", "info"), "error, warning or info"),
    "store_timestamp": (_is_moment, "a time"),
    "started": (_is_moment, "a time"),
    "ended": (_is_moment, "a time"),
    "queue_id": (lambda number: -(1 << 31) <= number < 1 << 31, "a queue id"),
}


def _obey_rules(part: FindingRow | ReportedRun | _End, place: str) -> None:
    for name, (holds, what) in _RULES.items():
        value = getattr(part, name, None)
        if value is not None and not holds(value):
            raise ValueError(f"{place}.{name} is not {what}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _optional(kind: type) -> frozenset[str]:
    """Return the fields that a report of an earlier version lacks."""
    return frozenset(field.name for field in fields(kind) if field.default is not MISSING)


def _typed(kind: Any, value: Any, place: str) -> Any:
    """Return a value of JSON as `kind`: a class of this module, or the type of one of its fields."""
    if get_origin(kind) is UnionType:
        return None if value is None else _typed(get_args(kind)[0], value, place)
    if isinstance(kind, type) and is_dataclass(kind):
        _expect(dict, value, place)
        optional = _optional(kind)
        return kind(
            **{
                name: _field(hint, value, name, place)
                for name, hint in _hints(kind).items()
                if name in value or name not in optional
            }
        )
    if get_origin(kind) is tuple:
        _expect(list, value, place)
        return tuple(_typed(get_args(kind)[0], item, f"{place}[{number}]") for number, item in enumerate(value))
    if get_origin(kind) is Mapping:
        _expect(dict, value, place)
        return {name: _typed(get_args(kind)[1], item, f"{place}.{name[:40]}") for name, item in value.items()}
    _expect(kind, value, place)
    # A lone surrogate, which JSON may spell, cannot be printed.
    return value.encode("utf-8", "backslashreplace").decode() if kind is str else value


def _field(kind: Any, document: Mapping[str, Any], name: str, place: str) -> Any:
    path = f"{place}.{name}" if place else name
    if name not in document:
        raise ValueError(f"it has no field {path}, or is of an earlier version")
    return _typed(kind, document[name], path)


def _expect(kind: type, value: Any, place: str) -> None:
    if type(value) is not kind:
        raise ValueError(f"{place} is {_NAMES[type(value)]}, not {_NAMES[kind]}")

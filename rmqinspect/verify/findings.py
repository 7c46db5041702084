"""Findings: what a check reports, and the table of them.

Neighbours are merged, so ten million of one kind are one row. A finding may quote any value: the byte of a flipped bit,
a key that no record has, a host. With `verify --redact` its place stays, and what its code says about all findings of
its kind.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from rmqinspect import notebook
from rmqinspect.commands import choose_parts, fill_command, placeholders
from rmqinspect.document import Part, means
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.system.uri import is_remote
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.times import format_millis
from rmqinspect.verify.codes import BY_CODE, NEVER_CAPPED, NO_MEND, fill_do, fill_mend

if TYPE_CHECKING:
    from rmqinspect.tables.redact import Redaction  # reads Arrow, which the checks do without


class Finding(Struct, frozen=True):
    """One problem, or `count` of one kind in a row. The fields up to `found` are columns of the table `findings`.

    `count` is the number of records, units or entries that fail the check, each of which would be a finding by
    itself. A finding about one thing, such as the log's start, is one: its texts say how many messages it covers.

    >>> import rmqinspect
    >>> result = rmqinspect.verify_store(rmqinspect.open_store("samples/flipped-bit-5.3.3"))
    >>> finding = next(iter(result.findings))
    >>> finding.code, finding.severity, finding.physical_offset, finding.topic
    ('CL-CRC-BODY', 'error', 97187, 'BatchTopic')
    """

    code: str
    message: str
    severity: str = ""  # the code's own unless the check sets another
    file: str | None = None
    offset: int | None = None  # position in that file
    length: int | None = None
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    expected: str | None = None
    found: str | None = None
    # For the screen.
    counted: bool = False  # the message states `count`
    timestamp: int | None = None  # store time of the record, ms
    keys: str | None = None
    unchecked: str = ""  # of ST-UNCHECKED: the part of the store
    remedy: str = ""  # of ST-UNCHECKED: the option that checks it
    covered: bool = False  # of ST-UNCHECKED: the level reads it, so that the verdict is incomplete without it
    absent: bool = False  # the file is not there: no command can show it
    do: str = ""  # what a person has to do; the code's own unless the check knows better
    mend: str = ""  # a name of `codes.MENDS`; the code's own unless the check knows better

    def __post_init__(self) -> None:
        if not self.severity:
            force_setattr(self, "severity", BY_CODE[self.code].severity)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        texts = (("rule", BY_CODE[self.code].rule), ("do", what_to_do(self)))
        fields = ((name.replace("_", " "), getattr(self, name)) for name in _SHOWN)
        return notebook.heading(f"{self.code} {self.severity}: {self.message}") + notebook.labelled((*fields, *texts))


_SHOWN = (
    "file",
    "offset",
    "length",
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "keys",
    "count",
    "expected",
    "found",
)
"""Fields of a finding that a notebook shows below its message."""

_NUMBER = re.compile(r"\d+")


class LogPlace(TypedDict):
    """The fields of a finding that say where in the log it is."""

    file: str | None
    offset: int | None
    physical_offset: int


def place_in(segment: Segment | None, physical_offset: int) -> LogPlace:
    """Return where a physical offset is in a segment; without a file if there is none."""
    if segment is None:
        return LogPlace(file=None, offset=None, physical_offset=physical_offset)
    return LogPlace(file=segment.name, offset=physical_offset - segment.base, physical_offset=physical_offset)


def place_in_log(store: Store, physical_offset: int) -> LogPlace:
    """Return where a physical offset is; without a file if no segment has it."""
    return place_in(store.segment_at(physical_offset), physical_offset)


class Found(Struct, kw_only=True):
    """What one part of a store shows."""

    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)  # findings over the limit, by code
    unread: list[Finding] = field(default_factory=list)  # ST-IO: what could not be read


# Rows that the judges of the whole log keep for each row shown: many are merged into few.
MERGED_ROWS = 8


_Code = Annotated[str, msgspec.Meta(pattern="^[A-Z0-9]+(-[A-Z0-9]+)*\\Z")]
_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class FindingRow(Part, frozen=True):
    """A finding as the report has it: complete, with what its code says and the command to run."""

    code: Annotated[
        _Code,
        means(
            "the code; `rmqinspect verify --list-checks` lists the rules, [findings.md](findings.md) explains them",
        ),
    ]
    severity: Annotated[Literal["error", "warning", "info"], means("`error`, `warning` or `info`")]
    file: Annotated[str | None, means("name relative to the store")]
    offset: Annotated[int | None, means("position in that file")]
    length: Annotated[int | None, means("number of affected bytes")]
    physical_offset: Annotated[int | None, means("offset in the log")]
    topic: Annotated[str | None, means("of the record or queue")]
    queue_id: Annotated[_Int32 | None, means("of the record or queue")]
    queue_offset: Annotated[int | None, means("of the record or queue unit")]
    count: Annotated[int, means("number of findings folded into this row")]
    expected: Annotated[str | None, means("the expected value")]
    found: Annotated[str | None, means("the value found")]
    message: Annotated[str, means("what is wrong, in words")]
    broker_effect: Annotated[
        str | None,
        means(
            "what the next start of a broker does there, and what a client gets as long as the damage stays; null if a "
            "start has nothing to do with it, or no whole store was given"
        ),
    ]
    next: Annotated[str | None, means("the command to run next")]
    do: Annotated[str | None, means("what a person has to do; null if nothing")]
    store_timestamp: Annotated[str | None, means("store timestamp of the record, where the screen shows one")]
    keys: Annotated[str | None, means("keys of the record, separated by spaces; masked by `--redact`")]
    counted: Annotated[bool, means("whether `message` states `count` itself")]

    def __post_init__(self) -> None:
        if self.store_timestamp is not None:
            moment(self.store_timestamp, "store_timestamp")

    def columns(self) -> dict[str, object]:
        """Return the fields that are columns of the table `findings`."""
        return {name: getattr(self, name) for name in COLUMNS}


# The last three are for the screen.
COLUMNS = FindingRow.__struct_fields__[:-3]


def moment(text: str, name: str = "it") -> datetime:
    """Return a time of the report, whose field is `name`.

    :raises ValueError: it is not ISO 8601 in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is not UTC:
        raise ValueError(f"{name} is not a time")
    return time


def unread_finding(error: Unreadable) -> Finding:
    """Return ST-IO for a file, or a part of one, that could not be read."""
    return Finding("ST-IO", str(error), file=error.file)


def capped_findings(limit: int) -> CappedList[Finding, str]:
    """Return an empty list that keeps `limit` findings of each code."""
    return CappedList(limit, lambda finding: finding.code, size=lambda finding: finding.count)


class Findings:
    """The findings of a run, in file order: neighbours merged, at most `limit` rows of a code, exact totals."""

    def __init__(self, limit: int) -> None:
        self._capped = capped_findings(limit)
        self.rows = self._capped.rows
        self.counts: Counter[str] = Counter()  # by code
        self.severities: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        names = ("severity", "code", "message", "file", "offset", "topic", "count")
        return notebook.table(names, ([getattr(row, name) for name in names] for row in self.rows), len(self.rows))

    @property
    def suppressed(self) -> int:
        """How many findings have no row."""
        return self._capped.suppressed.total()

    def add(self, finding: Finding) -> None:
        """Add a finding; one that continues the last row (same words and file, next byte) is merged into it."""
        self.counts[finding.code] += finding.count
        self.severities[finding.severity] += finding.count
        last = self.rows[-1] if self.rows else None
        if last is not None and _continues(last, finding):
            length = None if last.length is None or finding.length is None else last.length + finding.length
            self.rows[-1] = replace(last, count=last.count + finding.count, counted=False, length=length)
        elif finding.code in NEVER_CAPPED:
            self.rows.append(finding)
        else:
            self._capped.add(finding)

    def add_suppressed(self, suppressed: Mapping[str, int]) -> None:
        """Count findings by code that were suppressed before they came here."""
        for code, count in suppressed.items():
            if count:
                self.counts[code] += count
                self.severities[BY_CODE[code].severity] += count
                self._capped.suppressed[code] += count

    def as_rows(
        self, stores: Sequence[str], root: str, broker_line: Callable[[Finding], str | None] = lambda finding: None
    ) -> Iterator[FindingRow]:
        """Yield the rows of the report, with commands about the `stores`, as `fill_command` names them.

        `root` is the path below which their files lie; `broker_line` says what the next start does at a finding.
        """
        own = [name for name in FindingRow.__struct_fields__ if name in Finding.__struct_fields__]
        # `rebuild` refuses a log that needs `salvage`, and ends queues before the offsets of their groups.
        mend = "salvage" if any(mend_of(finding) == "salvage" for finding in self.rows) else ""
        for finding in self.rows:
            row = {name: getattr(finding, name) for name in own} | {
                "broker_effect": broker_line(finding),
                "next": next_command(finding, stores, root),
                "do": what_to_do(finding, mend, stores),
                "store_timestamp": None if finding.timestamp is None else format_millis(finding.timestamp),
            }
            yield FindingRow(**row)


def next_command(finding: Finding, stores: Sequence[str], root: str) -> str | None:
    """Return the command that shows what the finding is about, quoted for a shell; None if there is nothing to show.

    `stores` and `root` are those of `Findings.as_rows`.
    """
    template = BY_CODE[finding.code].next
    values = {
        "at": finding.physical_offset,
        "topic": finding.topic,
        "queue": finding.queue_id,
        "file": None,
    }
    if finding.file and not finding.absent:
        # A store may be this one file.
        own = f"/{root}".endswith(f"/{finding.file}")
        values["file"] = root if own else posixpath.join(root, finding.file)
    known = {name: value for name, value in values.items() if value is not None}
    template = choose_parts(template, {"store", *known})
    if not placeholders(template) <= {"store", *known} or (template.startswith("ls ") and is_remote(root)):
        return None
    return fill_command(template, stores, **known)


def what_to_do(finding: Finding, mend: str = "", stores: Sequence[str] = ()) -> str | None:
    """Return what a person has to do about a finding, None if nothing; paths in it are relative to the store.

    The command that mends comes last: for `stores` the one of `mend`, a name of `codes.MENDS`, or the finding's own.
    """
    template = finding.do or BY_CODE[finding.code].do
    parts = [fill_do(template, finding.file)] if template else []
    if own := mend_of(finding):
        parts.append(fill_mend(mend or own, stores))
    return "; ".join(parts) or None


def mend_of(finding: Finding) -> str:
    """Return the name of the command that makes a store without a finding, "" for none; of a note there is none."""
    name = finding.mend or BY_CODE[finding.code].mend
    return "" if finding.severity == "info" or name == NO_MEND else name


def _continues(last: Finding, finding: Finding) -> bool:
    return (
        (last.code, last.severity, last.file) == (finding.code, finding.severity, finding.file)
        and last.offset is not None
        and last.length is not None
        and finding.offset == last.offset + last.length
        and _words(last) == _words(finding)
    )


def _words(finding: Finding) -> str:
    """Return what the message says before its likely cause, without numbers; other words are about another thing."""
    return _NUMBER.sub("", finding.message.partition(";")[0])


# They quote names of files and errors of the system only.
_QUOTE_NOTHING = frozenset({"ST-IO", "ST-UNCHECKED"})


def redact_findings(rows: Iterable[Finding], redaction: "Redaction") -> list[Finding]:
    """Return masked findings. Only of a finished run: its parts are computed from what findings quote."""
    return [replace(row, **_masked(row, redaction)) for row in rows]


def redact_rows(rows: Iterable[FindingRow], redaction: "Redaction") -> list[FindingRow]:
    """Return masked findings of a report."""
    return [msgspec.structs.replace(row, **_masked(row, redaction)) for row in rows]


def _masked(finding: Finding | FindingRow, redaction: "Redaction") -> dict[str, Any]:
    """Return the fields that are replaced, with their values."""
    keys = " ".join(filter(None, map(redaction.one_key, (finding.keys or "").split(" ")))) or None
    if finding.code in _QUOTE_NOTHING:
        return {"keys": keys}
    # A report may have codes of a later version.
    rule = BY_CODE[finding.code].rule if finding.code in BY_CODE else "hidden by --redact"
    return {"message": rule, "counted": False, "expected": None, "found": None, "keys": keys}

"""The report of `verify` as one JSON document: two runs on the same files differ only in `run`.

    VerifyResult -> report_of -> Report -> as_object -> the file of --report
                                   |  ^
                                   |  `--- read_reports <- the file of --from
                                   `-----> the screen

A run prints its screen from its own report, so the screen of a report that was written is the same. docs/report.md has
every field; a test compares it with the structs here.
"""

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, TypeVar

from msgspec import structs

from rmqinspect.document import Part, means, typed
from rmqinspect.errors import Unreadable
from rmqinspect.system.run import Run, describe_run
from rmqinspect.times import format_millis
from rmqinspect.verify.carry import FORMAT
from rmqinspect.verify.codes import CODES
from rmqinspect.verify.custody import Custody, Record, ReportedCustody
from rmqinspect.verify.findings import FindingRow, moment
from rmqinspect.verify.log_map import LogMap
from rmqinspect.verify.next_start import NextStart, start_document
from rmqinspect.verify.result import VerifyOptions, VerifyResult, given, interruption, not_checked, not_given, summary
from rmqinspect.verify.since import Earlier, Resume, TakenOver
from rmqinspect.version import tool_name

SCHEMA_VERSION = 1
"""A minor change adds fields at the end, a major one renames."""

# A checksum has no secret. docs/evidence.md has more of it.
NOT_PROVED = (
    "that nobody changed the files: a body can be forged with a right checksum. Digests from before (--against), a "
    "replica (diff), or logs of clients would tell"
)

_LIMIT = 1 << 63  # of numbers: those of Java and Arrow have 64 bits

# --- its fields -----------------------------------------------------------------------------------------


class SegmentAccount(Part, frozen=True):
    """The byte account of a segment."""

    base: Annotated[int, means("physical offset of its first byte")]
    file: Annotated[str, means("name relative to the store")]
    file_size: Annotated[int, means("bytes")]
    records: Annotated[int, means("number of records")]
    record_bytes: Annotated[int, means("bytes of records")]
    filler_bytes: Annotated[int, means("the blank record that ends a full segment; DLedger entry heads")]
    zero_bytes: Annotated[int, means("the unused tail, or lost pages")]
    unknown_bytes: Annotated[int, means("bytes that are neither record nor filler nor zeros")]
    first_store_timestamp: Annotated[str | None, means("store timestamp of its first record")]
    last_store_timestamp: Annotated[str | None, means("store timestamp of its last record")]

    @property
    def adds_up(self) -> bool:
        """Whether the whole segment was read."""
        return self.record_bytes + self.filler_bytes + self.zero_bytes + self.unknown_bytes == self.file_size


class QueueUnits(Part, frozen=True):
    """Units of all consume queues."""

    read: Annotated[int, means("units of messages in all queues")]
    lead_to_their_record: Annotated[int, means("units whose record is at their offset and belongs to them")]


class IndexEntries(Part, frozen=True):
    """Entries of all index files."""

    lead_to_their_record: Annotated[
        int, means("entries whose record is at their offset and has their key; 0 below level deep")
    ]


class Lost(Part, frozen=True):
    """What the log has lost."""

    summary: Annotated[str, means("the same in one sentence")]
    messages: Annotated[
        dict[str, Annotated[int, means("lost messages of this topic")]],
        means("lost messages by topic, counted by queue units: a lower bound"),
    ]
    index_entries: Annotated[int, means("different records that index entries point to and that are not in the log")]
    newest_store_timestamp: Annotated[str | None, means("the newest store timestamp that anything refers to")]
    last_store_timestamp: Annotated[str | None, means("store timestamp of the last record in the log")]


class BrokerVersion(Part, frozen=True):
    """Whose rules were applied."""

    assumed: Annotated[str, means("a release or a range of releases")]
    why: Annotated[
        list[str],
        means(
            "the clues in the content of the store, or that `--broker-version` was given, or what contradicts it",
        ),
    ]
    contradiction: Annotated[str | None, means("what in the store contradicts the version of `--broker-version`")]


class Input(Part, frozen=True):
    """A file of the store."""

    file: Annotated[str, means("name relative to the store")]
    size: Annotated[int, means("bytes")]
    kind: Annotated[str, means("its kind: `segment`, `queue`, `index`, `checkpoint`, … or `other`")]


class ReportedRun(Run, frozen=True, kw_only=True):
    """What may differ between two runs of `verify` on the same files."""

    store: Annotated[str, means("the path as given")]
    words: Annotated[
        tuple[str, ...], means("what names the store in a command: its paths, `--config` and its like")
    ] = ()
    jobs: Annotated[int, means("threads")]

    def __post_init__(self) -> None:
        for name in ("started", "ended"):
            moment(getattr(self, name), name)


class Report(Part, frozen=True, kw_only=True):
    """The whole report."""

    schema_version: Annotated[int, means("of this document: 1")]
    verdict: Annotated[
        str,
        means(
            "`WHOLE`, `WHOLE, n WARNINGS` or `DAMAGED`; or, if something requested could not be read, `INCOMPLETE: ` "
            "with what was read, then `DAMAGED` or `no damage so far`"
        ),
    ]
    level: Annotated[str, means("the level of the run: `quick`, `standard` or `deep`")]
    complete: Annotated[bool, means("whether everything requested was read; `false` if the verdict is `INCOMPLETE`")]
    errors: Annotated[
        int,
        means("findings of severity error, folded rows counted one by one; what could not be read (ST-IO) is included"),
    ]
    warnings: Annotated[int, means("the same, of severity warning")]
    counts: Annotated[
        dict[str, Annotated[int, means("findings of this code")]],
        means("number of findings of each code; exact even if `--max-findings` dropped rows"),
    ]
    findings_left_out: Annotated[int, means("findings that were counted but have no row in `findings`")]
    checks: Annotated[
        list[str], means("the codes that were checked: all, or those that `--check` and `--skip` selected")
    ]
    findings: Annotated[list[FindingRow], means("one object per row")]
    segments: Annotated[list[SegmentAccount], means("in log order")]
    queue_units: Annotated[QueueUnits, means("units of the consume queues; both numbers are 0 at level quick")]
    index_entries: Annotated[IndexEntries, means("entries of the index files")]
    loss: Annotated[
        Lost | None,
        means("messages that queues, index or checkpoint refer to and the log does not contain; null: none known"),
    ]
    broker_version: Annotated[
        BrokerVersion | None,
        means("the version whose rules were applied; null at level quick, where no rule depends on it"),
    ]
    unread: Annotated[
        list[str],
        means(
            "files that could not be read, or that changed while they were read, one text each; empty in a complete "
            "report"
        ),
    ]
    inputs: Annotated[list[Input], means("the files of the store, by name")]
    inferred: Annotated[
        list[str],
        means("settings inferred from the files because no configuration was given, one text each"),
    ]
    custody: Annotated[
        ReportedCustody | None,
        means("the files, and whether they changed during the run (null in a report made from Python without them)"),
    ]
    summary: Annotated[str, means("the verdict as the screen has it, with its numbers and how much was read")]
    given: Annotated[str | None, means("what was given instead of a whole store; null: a store")]
    not_given: Annotated[str | None, means("which parts of a store were not given and so not checked")]
    not_checked: Annotated[list[str], means("what was not checked, each with the option that checks it, one text each")]
    interrupted: Annotated[str | None, means("how far the log was read when Ctrl-C came; null if it did not come")]
    next_start: Annotated[
        NextStart | None,
        means(
            "the forecast; null for parts of a store, if the run was interrupted before it, and in reports of earlier "
            "versions"
        ),
    ] = None
    taken_over: Annotated[
        TakenOver | None, means("what `--since` took over from an earlier report; null: everything was read")
    ] = None
    resume: Annotated[
        Resume | None,
        means(
            "from what a later run with `--since` goes on; null at level quick, with `--redact`, and if the run was "
            "interrupted"
        ),
    ] = None
    not_proved: Annotated[
        list[str] | None,
        means("what the verdict does not prove, one sentence each; null in reports of earlier versions"),
    ] = None
    map: Annotated[
        LogMap | None,
        means(
            "what a picture of the store shows; null if the run was interrupted before the checks, and in reports of "
            "earlier versions"
        ),
    ] = None
    run: Annotated[ReportedRun, means("everything that may differ between two runs on the same files")]

    @property
    def damage(self) -> int:
        """How many errors are damage, and not only something that could not be read."""
        return self.errors - self.counts.get("ST-IO", 0)


# --- of a run -------------------------------------------------------------------------------------------


def report_of(
    result: VerifyResult,
    store: str,
    custody: Custody | None = None,
    *,
    started: datetime | None = None,
    redacted: bool = False,
    written: bool = True,
) -> Report:
    """Return the report: verdict, byte account per segment, findings, inputs, and what the run was.

    `store` is the path as given; the commands in `next` name it. Without `custody` no later run can be
    compared with the report, and none can go on from it if it is `redacted`. `started` is when the run of this store
    began, if not with the command; without `written` it is for a screen.
    """
    memory = result.options.memory
    return Report(
        schema_version=SCHEMA_VERSION,
        verdict=result.verdict,
        level=result.options.level,
        complete=result.complete,
        errors=result.errors,
        warnings=result.warnings,
        counts=dict(sorted(result.findings.counts.items())),
        findings_left_out=result.findings.suppressed,
        checks=[code.code for code in CODES if code.code in result.options.codes],
        findings=list(result.rows()),
        segments=[
            SegmentAccount(
                base=account.segment.base,
                file=account.segment.name,
                file_size=account.segment.size,
                records=account.records,
                record_bytes=account.record_bytes,
                filler_bytes=account.gap_bytes["filler"],
                zero_bytes=account.gap_bytes["zeros"],
                unknown_bytes=account.gap_bytes["unknown"],
                first_store_timestamp=_time(account.first_timestamp),
                last_store_timestamp=_time(account.last_timestamp),
            )
            for account in result.accounts
        ],
        queue_units=QueueUnits(result.units, result.joined_units),
        index_entries=IndexEntries(result.joined_entries),
        loss=_loss(result),
        broker_version=_broker_version(result),
        unread=result.unread,
        inputs=[
            Input(file.name, file.size, file.kind) for file in sorted(result.store.files, key=lambda file: file.name)
        ],
        inferred=list(result.store.remarks),
        custody=None if custody is None else custody.document(),
        summary=summary(result, custody),
        given=given(result.store),
        not_given=not_given(result.store),
        not_checked=not_checked(result),
        interrupted=interruption(result),
        next_start=start_document(result.next_start, result.log_end, result.findings.counts, result.store.words),
        taken_over=None if memory is None else memory.taken_over(),
        not_proved=[NOT_PROVED],
        map=result.log_map,
        resume=None if redacted or result.interrupted_at is not None else result.resume,
        run=ReportedRun(
            **structs.asdict(describe_run(result.store.paths, started, written=written)),
            store=store,
            words=result.store.words,
            jobs=result.options.jobs,
        ),
    )


def _loss(result: VerifyResult) -> Lost | None:
    loss = result.loss
    if not loss:
        return None
    messages = dict(sorted(loss.messages.items()))
    return Lost(str(loss), messages, loss.entries, _time(loss.newest), _time(loss.last))


def _broker_version(result: VerifyResult) -> BrokerVersion | None:
    versions = result.versions
    if versions is None:
        return None
    why = [versions.contradiction] if versions.contradiction else []
    why += [f"{versions.other}: {', '.join(versions.other.clues)}"] if versions.other else []
    return BrokerVersion(str(versions), [*why, *versions.clues], versions.contradiction or None)


def _time(millis: int | None) -> str | None:
    return None if millis is None else format_millis(millis)


Read = TypeVar("Read", Report, Record)


def read_reports(path: str) -> dict[str | None, Report | str]:
    """Return the report in a file, under None; of several stores their reports by name, or why there is none.

    :raises Unreadable: the file cannot be read.
    :raises ValueError: it is no report of this schema, or one that is damaged.
    """
    document = _load(_bytes_of(path), path)
    stores = document.get("stores") if isinstance(document, dict) else None
    if not isinstance(stores, list):
        return {None: _typed(Report, document, path)}
    found: dict[str | None, Report | str] = {}
    for element in stores:
        name, error = (element.get(key) if isinstance(element, dict) else None for key in ("store", "error"))
        if not isinstance(name, str) or name in found:
            raise ValueError(f"{path}: not a report of verify about several stores: each has a name of its own")
        found[name] = error if isinstance(error, str) else _typed(Report, element, path)
    return found


def read_record(path: str) -> Record:
    """Return what a report says about the files, to compare them with what they are now.

    :raises Unreadable: the file cannot be read.
    :raises ValueError: it is no report of this schema, or one without a list of files.
    """
    return _typed(Record, _load(_bytes_of(path), path), path)


def read_earlier(path: str, options: VerifyOptions) -> Earlier:
    """Return the report from which a run with these options goes on.

    :raises Unreadable: the file cannot be read.
    :raises ValueError: it is no report, or one of a run that was asked for something else.
    """
    raw = _bytes_of(path)
    report = _typed(Report, _load(raw, path), path)
    resume, custody = report.resume, report.custody
    if resume is None or custody is None:
        raise ValueError(
            f"{path}: nothing to go on from: a report of level quick, with --redact, of an interrupted run, or of an "
            "earlier version"
        )
    if resume.format != FORMAT or _major(report.run.tool) != _major(tool_name()):
        raise ValueError(f"{path}: {report.run.tool} wrote what it carries; this is {tool_name()}")
    codes = [code.code for code in CODES if code.code in options.codes]
    for what, was, now in (
        ("--level", report.level, options.level),
        ("--max-findings", resume.max_findings, options.max_findings),
        ("--broker-version", resume.broker_version or "estimated", options.broker_version or "estimated"),
        ("--check and --skip", f"{len(report.checks)} checks", f"{len(codes)} checks"),
    ):
        if was != now:
            raise ValueError(f"{path}: a run with other options: {what} was {was}, and is {now}")
    if set(report.checks) != set(codes):
        raise ValueError(f"{path}: a run with other options: --check and --skip")
    last = max((number for number, one in enumerate(report.segments) if one.records), default=0)
    full = frozenset(one.file for one in report.segments[:last])
    return Earlier(path, hashlib.sha256(raw).hexdigest(), report.run.started, report.run.ended, custody, resume, full)


def _major(tool: str) -> str:
    return tool.partition(".")[0]


def _typed(kind: type[Read], document: Any, path: str) -> Read:
    if not isinstance(document, dict) or not {"schema_version", "verdict", "run"} <= document.keys():
        raise ValueError(f"{path}: not a report of verify")
    if document["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"{path}: a report with a schema version other than {SCHEMA_VERSION}")
    try:
        return typed(document, kind)
    except ValueError as error:
        hint = ", or of an earlier version" if "missing required field" in str(error) else ""
        raise ValueError(f"{path}: not a complete report of verify{hint}: {error}") from error


def _bytes_of(path: str) -> bytes:
    """Return the bytes of a file that may be a report, b"" for one that is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            # A segment given by mistake is not read to its end.
            return head + file.read() if head.lstrip().startswith(b"{") else b""
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def _load(raw: bytes, path: str) -> Any:
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

"""`rmqinspect verify`: all checks of a level, the byte account, one verdict, an exit status.

The sequence of a run, each step interruptible by Ctrl-C without losing the verdict:

    open -> inventory (--report) -> quick part (long reads) -> digests (--hash) + checks -> forecast -> inventory again
         -> report -> screen or table -> exit status

Results come from `verify.run`; this module announces, prints and writes them.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import click
from msgspec.structs import replace

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import (
    choose_format,
    count_jobs,
    given_stores,
)
from rmqinspect.cli.session import refuse_early, tell_broker, write_document
from rmqinspect.cli.terminal import LONG_READ, Progress, least_time
from rmqinspect.cli.verbs.verify import VerifyArguments
from rmqinspect.cli.verify_against import compare_with_report
from rmqinspect.cli.verify_screen import SCREEN, where
from rmqinspect.cli.verify_since import read_share, remember, tell_taken_over
from rmqinspect.cli.verify_written import (
    print_report,
    print_several,
    print_written,
    status_of_report,
)
from rmqinspect.document import as_object
from rmqinspect.errors import NotAStore
from rmqinspect.fleet.given import Given
from rmqinspect.forecast.versions import ForecastRequest
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.model import Store
from rmqinspect.system.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.system.output_file import METRICS_HEAD, SUMS
from rmqinspect.system.uri import shown
from rmqinspect.system.workers import read_bound
from rmqinspect.text import count, describe_duration, describe_size, escape
from rmqinspect.verify.custody import Custody, Watch, sums_of
from rmqinspect.verify.findings import redact_findings
from rmqinspect.verify.next_start import next_start, start_words
from rmqinspect.verify.report import Report, report_of
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import (
    can_verify,
    interrupted,
    nothing_judged,
    quick_part,
    splits_to_read,
    verify_after,
    with_custody,
)

if TYPE_CHECKING:
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.output.openmetrics import Sample
    from rmqinspect.tables.redact import Redaction

_FILES = f".files{SUMS}"  # what the name of the list of files ends in
_QUICK_ERRORS = 3  # named when the quick part is done; the screen lists all
_WHY = {
    "quick": "the last segment with records, and the preallocated ones after it",
    "standard": "every record and every queue unit is checked",
    "deep": "every record is checked against queues and index, and they against the log",
}


class RunOptions(Protocol):
    """What a command that runs the checks is told about their run."""

    @property
    def hash(self) -> str | None:
        """How files are digested."""

    @property
    def redact(self) -> "Redaction | None":
        """What is hidden."""

    @property
    def progress(self) -> bool | None:
        """Whether progress is shown."""

    @property
    def quiet(self) -> bool:
        """Whether nothing is remarked."""

    @property
    def verbose(self) -> int:
        """How much more is remarked."""


def run(arguments: VerifyArguments) -> int:
    """Do what `verify` is asked for, and return the exit status."""
    if arguments.from_report is not None:
        return print_written(arguments, arguments.from_report, arguments.paths)
    if arguments.against:
        for name in ("report", "since", "reread", "hash", "format", "output", "check", "skip"):
            if getattr(arguments, name):
                raise click.UsageError(f"--against runs no checks: --{name} cannot be combined with it.")
        return compare_with_report(arguments, arguments.against)
    if arguments.hash and not arguments.report:
        raise click.UsageError("--hash: the digests are written into the report, so --report FILE is needed.")
    read_share(arguments, arguments.level)
    format_ = choose_format(arguments)
    given = given_stores(arguments)
    if len(given) > 1:
        return _tell_several(arguments, given, format_)
    with interrupted_once(), ExitStack() as copies:
        try:
            report, store = checked(arguments, given[0], copies)
        except KeyboardInterrupt:
            if not arguments.quiet:
                told = "INCOMPLETE: nothing read, interrupted while the files were listed, at level"
                line = SCREEN.line("VERDICT", f"{told} {arguments.level}")
                click.echo(line, err=arguments.format not in (None, "table"))
            return ExitStatus.INTERRUPTED
        digest = write_document(as_object(report), arguments.report, store.paths) if arguments.report else None
        if arguments.report and arguments.hash and arguments.sums:
            _write_sums_of_files(report, arguments.report, store)
    print_report(report, arguments.report or "", format_, arguments, evidence=store.paths)
    if arguments.report and digest and not arguments.quiet:
        click.echo(f"{escape(arguments.report)}  sha256 {digest}", err=True)
    return status_of_report(report, arguments.fail_on)


def _write_sums_of_files(report: Report, path: str, store: Store) -> None:
    """Write the digests of the files of the store beside the report, as `sha256sum -c` takes them."""
    from rmqinspect.output import open_destination

    if report.custody is not None and (lines := sums_of(report.custody, store.paths)):
        with open_destination(f"{path}{_FILES}", store.paths) as out:
            out.write(lines)


def checked(arguments: VerifyArguments, given: Given, copies: ExitStack) -> tuple[Report, Store]:
    """Return the report of a store, and the store; what is unpacked of its databases lasts as long as `copies`.

    :raises KeyboardInterrupt: Ctrl-C, while the files were listed; later the report says how far the log was read.
    """
    started = datetime.now(UTC)
    options = VerifyOptions(
        arguments.level, arguments.codes, arguments.max_findings, count_jobs(arguments), arguments.broker_version
    )
    listed, watch = _open(arguments, given)
    # At level quick no RocksDB database is read unless that is asked for; else all are.
    databases = () if arguments.level == "quick" and not arguments.rocksdb else None
    store = copies.enter_context(unpacked(listed, arguments.unpacking, databases))
    if watch is not None and arguments.level != "quick":
        share = read_share(arguments, arguments.level)
        options = replace(options, memory=remember(store, watch, options, arguments.since, share))
    outcome, custody = run_checks(store, watch, options, arguments)
    name, written = name_of(given.paths, listed), bool(arguments.report)
    return told(outcome, custody, arguments, name, started, written=written), store


def told(
    outcome: VerifyResult,
    custody: Custody | None,
    arguments: RunOptions,
    name: str,
    started: datetime,
    *,
    written: bool = True,
) -> Report:
    """Return the report of a run, redacted as asked for; `name` is the store as the user named it."""
    redacted = arguments.redact is not None
    if arguments.redact is not None:
        outcome.findings.rows[:] = redact_findings(outcome.findings.rows, arguments.redact)
    # The store may be a folder inside the path: print the path that was given.
    return report_of(outcome, name, custody, started=started, redacted=redacted, written=written)


def _open(arguments: VerifyArguments, given: Given) -> tuple[Store, Watch | None]:
    """Return the store and, for a report, the inventory of its files, taken before any other is opened."""
    store = given.open(**arguments.opening)
    if not can_verify(store):
        raise NotAStore(f"{name_of(given.paths, store)}: contains nothing to verify by itself: give the whole store")
    if arguments.report:
        refuse_early(arguments.report, store.paths)
        refuse_early(f"{arguments.report}{_FILES}" if arguments.hash and arguments.sums else None, store.paths)
    replaces = METRICS_HEAD if choose_format(arguments) == "openmetrics" else b""
    refuse_early(arguments.output, store.paths, replaces=replaces)
    return store, Watch(store) if arguments.report or arguments.since else None


def name_of(paths: Sequence[str], store: Store) -> str:
    """Return the store as the user named it."""
    return shown(paths[0]) if paths else store.name


# --- the run --------------------------------------------------------------------------------------


def run_checks(
    store: Store, watch: Watch | None, options: VerifyOptions, arguments: RunOptions
) -> tuple[VerifyResult, Custody | None]:
    """Run the checks, take the digests and forecast the next start; Ctrl-C ends all and keeps what they found."""
    log = sum(split.end - split.start for split in splits_to_read(store, options.level))
    exhibits = watch.before.exhibits if watch is not None and arguments.hash else {}
    known = options.memory.digests if options.memory is not None and arguments.hash else {}
    exhibits = {name: exhibit for name, exhibit in exhibits.items() if name not in known}
    hashed = sum(exhibit.file.size for exhibit in exhibits.values())
    outcome = nothing_judged(store, options)
    digests = None
    with Progress(log + hashed, arguments.progress, quiet=arguments.quiet) as progress:
        try:
            _announce(store, options, log, hashed, progress)
            tell_taken_over(options.memory, progress.remark)
            for remark in store.remarks if arguments.verbose else ():
                progress.remark(remark)
            goes_on = options.memory is not None and options.memory.earlier is not None
            if log > LONG_READ and options.level != "quick" and not goes_on:
                outcome, was_interrupted = _check_quickly(
                    store, options, progress, redacts=arguments.redact is not None
                )
                if was_interrupted:
                    raise KeyboardInterrupt
            if watch is not None and arguments.hash:
                digests = watch.take_digests(exhibits, options.jobs)
            outcome = verify_after(outcome, lambda size: progress(size + (digests.take_hashed() if digests else 0)))
            if digests is not None and outcome.interrupted_at is None:
                digests.wait(progress)
        except KeyboardInterrupt:
            outcome = interrupted(outcome)
        finally:
            interrupt_no_more()
            if digests is not None:
                digests.stop()
    custody = watch.conclude() if watch else None
    if custody is not None and known:
        custody = replace(custody, digests={**custody.digests, **known})
    return (outcome if custody is None else with_custody(outcome, custody)), custody


def _announce(store: Store, options: VerifyOptions, log: int, hashed: int, progress: Progress) -> None:
    """Print what will be read; for a long read also why, the least time, and the cheaper way."""
    tell_broker(store, progress.remark)
    queues = {(file.topic, file.queue_id) for file in store.queue_files if file.kind != "ext_queue"}
    numbers = [count(len(store.segments), "segment")]
    numbers += [count(len(some), noun) for some, noun in ((queues, "queue"), (store.index_files, "index file")) if some]
    size = log
    size += sum(file.size for file in store.queue_files) if options.level != "quick" else 0
    size += sum(file.size for file in store.index_files) if options.level == "deep" else 0
    if options.memory is not None:
        size -= sum(file.size for file in store.files if file.name in options.memory.same)
    if size + hashed <= LONG_READ:
        progress.remark(f"{describe_size(size)} in {', '.join(numbers)}; level {options.level}")
        return
    words = f"{', '.join(numbers)}, {describe_size(size)} to read: {_WHY[options.level]}"
    if hashed:
        # A read at a limited rate does not leave its pages in the cache.
        words += f"; {describe_size(hashed)} to hash, " + ("read again" if read_bound() else "from the page cache")
    words += least_time(size + hashed)
    if options.level != "quick":
        quick = sum(split.end - split.start for split in splits_to_read(store, "quick"))
        words += f". --level quick reads {describe_size(quick)}"
    progress.remark(words)


def _check_quickly(
    store: Store, options: VerifyOptions, progress: Progress, *, redacts: bool
) -> tuple[VerifyResult, bool]:
    """Run the quick part, print its errors and the next start at once; return it, and whether Ctrl-C ended it."""
    begin = time.monotonic()
    outcome, was_interrupted = quick_part(store, options)
    if was_interrupted:
        return outcome, True
    request = ForecastRequest(options.broker_version, count_losses=False, jobs=options.jobs)
    outcome = replace(outcome, next_start=next_start(store, request))
    words = f"quick part done in {describe_duration(time.monotonic() - begin)}: {count(outcome.errors, 'error')}"
    errors = [finding for finding in outcome.findings.rows if finding.severity == "error"]
    places = (where(finding) or ("" if redacts else finding.message) for finding in errors[:_QUICK_ERRORS])
    named = ", ".join(f"{finding.code} {place}".rstrip() for finding, place in zip(errors, places, strict=False))
    more = ", …" if len(errors) > _QUICK_ERRORS else ""
    words = f"{words}: {named}{more}" if errors else words
    progress.remark(f"{words}; next start: {start_words(outcome.next_start)}" if outcome.next_start else words)
    return outcome, False


# --- of several stores ----------------------------------------------------------------------------


def _tell_several(arguments: VerifyArguments, given: Sequence[Given], format_: str) -> ExitStatus:
    """Verify stores side by side: a line for each, findings as one table, reports in one document."""
    from rmqinspect.cli.fleet import (
        ask_each,
        command_about,
        evidence_of,
        fleet_document,
        refuse_several,
        status_of_all,
    )

    refuse_several(arguments, given, "since", "reread")
    evidence = evidence_of(given)
    refuse_early(arguments.report, evidence)
    refuse_early(arguments.output, evidence, replaces=METRICS_HEAD if format_ == "openmetrics" else b"")
    wants_rows = format_ not in ("table", "openmetrics") or (arguments.output is not None and format_ == "table")
    answers = ask_each(arguments, given, partial(_ask, wants_rows, format_ == "openmetrics"))
    digest = write_document(fleet_document(answers), arguments.report, evidence) if arguments.report else None
    print_several(answers, command_about("verify", arguments, given), format_, arguments, evidence)
    if arguments.report and digest and not arguments.quiet:
        click.echo(f"{escape(arguments.report)}  sha256 {digest}", err=True)
    return status_of_all(answers)


def _ask(wants_rows: bool, wants_metrics: bool, arguments: VerifyArguments, given: Given) -> "Answer":
    """Return what is told of one of several stores."""
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.fleet.summary import row_of_report

    with ExitStack() as copies:
        report, store = checked(arguments, given, copies)
    told = as_object(report)
    row = row_of_report(str(given.name), store, told)
    status = status_of_report(report, arguments.fail_on)
    samples: list[Sample] = []
    if wants_metrics:
        from rmqinspect.cli.metrics import of_report

        samples = list(of_report(report, str(given.name)))
    return Answer(row, status, told if arguments.report else None, report.findings if wants_rows else (), samples)

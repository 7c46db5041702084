"""`rmqinspect verify`: all checks of a level, the byte account, one verdict, an exit status.

The sequence of a run, each step interruptible by Ctrl-C without losing the verdict:

    open -> inventory (--report) -> quick part (long reads) -> digests (--hash) + checks -> forecast -> inventory again
         -> report -> screen or table -> exit status

Results come from `verify.run`; this module announces, prints and writes them.
"""

import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import (
    FORMAT_NAMES,
    FleetOptions,
    LookOptions,
    OutputOptions,
    RedactOptions,
    VerdictOptions,
    choose_format,
    count_jobs,
    given_stores,
    use_colour,
)
from rmqinspect.cli.parameters import option, release_option, takes
from rmqinspect.cli.session import refuse_early, tell_broker, write_table
from rmqinspect.cli.terminal import (
    LONG_READ,
    Progress,
    interrupt_no_more,
    interrupted_once,
    least_time,
)
from rmqinspect.cli.verify_against import AgainstOptions, compare_with_report
from rmqinspect.cli.verify_screen import SCREEN, Look, screen, verdict_line, where
from rmqinspect.document import as_object
from rmqinspect.errors import NotAStore
from rmqinspect.fleet.given import Given
from rmqinspect.forecast.versions import ForecastRequest
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.model import Store
from rmqinspect.system.uri import shown, without_secrets
from rmqinspect.system.workers import read_bound
from rmqinspect.text import count, describe_duration, describe_size, escape
from rmqinspect.verify.codes import BY_CODE, CODES, DEFAULT_LEVEL, LEVELS
from rmqinspect.verify.custody import ALGORITHM, Custody, Watch
from rmqinspect.verify.findings import redact_findings, redact_rows
from rmqinspect.verify.next_start import next_start, start_words
from rmqinspect.verify.report import Report, read_report, report_of
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

_QUICK_ERRORS = 3  # named when the quick part is done; the screen lists all
_WHY = {
    "quick": "the last segment with records, and the preallocated ones after it",
    "standard": "every record and every queue unit is checked",
    "deep": "every record is checked against queues and index, and they against the log",
}


def _check_codes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    codes = tuple(code.strip().upper() for text in value for code in text.split(","))
    for code in codes:
        if code not in BY_CODE:
            raise click.BadParameter(f"{escape(code)} is not a code; --list-checks prints all", ctx, param)
    return codes


def _list_checks(ctx: click.Context, _: click.Parameter, asked: bool) -> bool:
    if asked and not ctx.resilient_parsing:
        width = max(len(code.code) for code in CODES)
        for code in CODES:
            click.echo(f"{code.code:{width}}  {code.severity:7}  {code.level:8}  {code.rule}")
        ctx.exit()
    return asked


@dataclass(frozen=True, kw_only=True)
class VerifyOutputOptions(OutputOptions, VerdictOptions, RedactOptions, LookOptions):
    """What is printed of a report: `--from` takes these options and no others."""

    format: str | None = option(
        "-f",
        "--format",
        type=click.Choice(FORMAT_NAMES),
        help="Default: a screen. Other formats: the table of findings, with the verdict on stderr.",
    )
    quiet: bool = option(
        "-q", "--quiet", is_flag=True, help="Only the exit status; -f, -o and --report write what they always do."
    )
    verbose: int = option(
        "-v", "--verbose", count=True, help="Show each finding, and more remarks; -vv adds a traceback to a bug."
    )


@dataclass(frozen=True, kw_only=True)
class VerifyArguments(VerifyOutputOptions, AgainstOptions, FleetOptions):
    """What `verify` is asked for."""

    level: str = option(
        "--level",
        type=click.Choice(LEVELS),
        default=DEFAULT_LEVEL,
        show_default=True,
        help="quick: names, sizes, checkpoint, last segment; standard: every record; deep: everything.",
    )
    check: tuple[str, ...] = option(
        "--check", multiple=True, metavar="CODE", callback=_check_codes, help="Run only these checks."
    )
    skip: tuple[str, ...] = option(
        "--skip", multiple=True, metavar="CODE", callback=_check_codes, help="Do not run these checks."
    )
    list_checks: bool = option(
        "--list-checks",
        is_flag=True,
        is_eager=True,
        callback=_list_checks,
        help="Print every code with its severity, level and rule, and exit.",
    )
    max_findings: int = option(
        "--max-findings",
        type=click.IntRange(min=1),
        default=1000,
        show_default=True,
        metavar="N",
        help="Findings printed per code; the counts stay exact.",
    )
    broker_version: str | None = release_option()
    report: str | None = option(
        "--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write everything to FILE as JSON."
    )
    from_report: str | None = option(
        "--from",
        type=click.Path(dir_okay=False),
        metavar="REPORT",
        help="Run no checks, read no STORE: print the screen of a report again.",
    )
    hash: str | None = option(
        "--hash",
        type=click.Choice((ALGORITHM,)),
        help="Add the digest of every file to the report; a file that changes during the run makes it incomplete.",
    )

    def __post_init__(self) -> None:
        if self.from_report is None:
            super().__post_init__()
        else:
            refuse_options_of_checks()

    @property
    def codes(self) -> frozenset[str]:
        """The checks to run.

        :raises click.UsageError: there are none.
        """
        chosen = (frozenset(self.check) or frozenset(BY_CODE)) - frozenset(self.skip)
        if not chosen:
            raise click.UsageError("--check and --skip leave no check to run.")
        return chosen


@click.command("verify")
@takes(VerifyArguments)
def command(arguments: VerifyArguments) -> int:
    """Check a store, reading only: is the commit log whole, do queues and index agree? Ends with one verdict.

    Exit status: 0 whole, 3 damage (--fail-on sets the lowest severity), 4 not everything could be read,
    130 interrupted.

    \b
    Examples:
      rmqinspect verify STORE
      rmqinspect verify STORE --level quick
      rmqinspect verify STORE --hash sha256 --report evidence.json
      rmqinspect verify STORE --against evidence.json
      rmqinspect verify --from evidence.json
      rmqinspect verify 00000000001073741824
      rmqinspect verify /mnt/*/store --level quick
    """
    if arguments.from_report is not None:
        return print_written(arguments, arguments.from_report)
    if arguments.against:
        for name in ("report", "hash", "format", "output", "check", "skip"):
            if getattr(arguments, name):
                raise click.UsageError(f"--against runs no checks: --{name} cannot be combined with it.")
        return compare_with_report(arguments, arguments.against)
    if arguments.hash and not arguments.report:
        raise click.UsageError("--hash: the digests are written into the report, so --report FILE is needed.")
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
        digest = write_report(as_object(report), arguments.report, store.paths) if arguments.report else None
    print_report(report, arguments.report or "", format_, arguments, evidence=store.paths)
    if arguments.report and digest and not arguments.quiet:
        click.echo(f"{escape(arguments.report)}  sha256 {digest}", err=True)
    return status_of_report(report, arguments.fail_on)


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
    outcome, custody = _verify(store, watch, options, arguments)
    if arguments.redact is not None:
        outcome.findings.rows[:] = redact_findings(outcome.findings.rows, arguments.redact)
    # The store may be a folder inside the path: print the path that was given.
    words = [without_secrets(argument) for argument in sys.argv[1:]]
    return report_of(outcome, name_of(given.paths, listed), started, words, custody), store


def _open(arguments: VerifyArguments, given: Given) -> tuple[Store, Watch | None]:
    """Return the store and, for a report, the inventory of its files, taken before any other is opened."""
    store = given.open(**arguments.opening)
    if not can_verify(store):
        raise NotAStore(f"{name_of(given.paths, store)}: contains nothing to verify by itself: give the whole store")
    for path in filter(None, (arguments.report, arguments.output)):
        refuse_early(path, store.paths)
    return store, Watch(store) if arguments.report else None


def name_of(paths: Sequence[str], store: Store) -> str:
    """Return the store as the user named it."""
    return shown(paths[0]) if paths else store.name


# --- the run --------------------------------------------------------------------------------------


def _verify(
    store: Store, watch: Watch | None, options: VerifyOptions, arguments: VerifyArguments
) -> tuple[VerifyResult, Custody | None]:
    """Run the checks, take the digests and forecast the next start; Ctrl-C ends all and keeps what they found."""
    log = sum(split.end - split.start for split in splits_to_read(store, options.level))
    exhibits = watch.before.exhibits if watch is not None and arguments.hash else {}
    hashed = sum(exhibit.file.size for exhibit in exhibits.values())
    outcome = nothing_judged(store, options)
    digests = None
    with Progress(log + hashed, arguments.progress, quiet=arguments.quiet) as progress:
        try:
            _announce(store, options, log, hashed, progress)
            for remark in store.remarks if arguments.verbose else ():
                progress.remark(remark)
            if log > LONG_READ and options.level != "quick":
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


def write_report(report: Mapping[str, Any], path: str, evidence: Sequence[str]) -> str:
    """Write the document of a report, or of several, and return its digest."""
    from rmqinspect.output import open_destination

    raw = (json.dumps(report, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
    with open_destination(path, evidence) as out:
        out.write(raw)
    return hashlib.sha256(raw).hexdigest()


def print_written(options: VerifyOutputOptions, path: str) -> ExitStatus:
    """Print a report that was written by an earlier run; return the exit status of that run.

    :raises click.BadParameter: it is no report.
    """
    format_ = choose_format(options)
    try:
        report = read_report(path)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--from") from error
    if options.redact is not None:
        report = msgspec.structs.replace(report, findings=redact_rows(report.findings, options.redact))
    print_report(report, path, format_, options)
    return status_of_report(report, options.fail_on)


def refuse_options_of_checks() -> None:
    """Refuse what has no meaning without a store.

    :raises click.UsageError: such an argument or option was given.
    """
    context = click.get_current_context()
    takes = {"from_report", "progress", *VerifyOutputOptions.__dataclass_fields__}
    for param in context.command.params:
        if param.name not in takes and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
            name = param.opts[-1] if isinstance(param, click.Option) else param.make_metavar(context)
            raise click.UsageError(f"--from prints a report and reads no store: {name} cannot be combined with it.")


def print_report(
    report: Report, path: str, format_: str, options: VerifyOutputOptions, evidence: Sequence[str] = ()
) -> None:
    """Print the screen, or write the table of findings with the verdict on stderr.

    `path` is the file of the report; the output is not written into `evidence`.
    """
    if format_ != "table" or options.output:
        from rmqinspect.verify.findings import SCHEMA, row_batches

        rows = row_batches(report.findings)
        write_table(format_, SCHEMA, rows, options.output, options, complete=report.complete, evidence=evidence)
        if not options.quiet:
            click.echo(verdict_line(report), err=True)
    elif not options.quiet:
        colour = use_colour(options.color)
        for line in screen(report, path, Look(options.zone, colour, unfold=options.verbose > 0)):
            click.echo(line, color=colour)


def status_of_report(report: Report, fail_on: str) -> ExitStatus:
    """Return the exit status that a report means."""
    if report.interrupted is not None:
        return ExitStatus.INTERRUPTED
    if fail_on != "never":
        if report.damage or (fail_on == "warning" and report.warnings):
            return ExitStatus.DAMAGE
        if report.unread:
            return ExitStatus.UNREADABLE
    return ExitStatus.DONE


# --- of several stores ----------------------------------------------------------------------------


def _tell_several(arguments: VerifyArguments, given: Sequence[Given], format_: str) -> ExitStatus:
    """Verify stores side by side: a line for each, findings as one table, reports in one document."""
    from rmqinspect.cli.fleet import ask_each, evidence_of, fleet_document, print_screen, status_of_all

    evidence = evidence_of(given)
    for path in filter(None, (arguments.report, arguments.output)):
        refuse_early(path, evidence)
    wants_rows = format_ != "table" or arguments.output is not None
    answers = ask_each(arguments, given, partial(_ask, wants_rows))
    digest = None
    if arguments.report:
        digest = write_report(fleet_document(answers), arguments.report, evidence)
    if wants_rows:
        from rmqinspect.verify.findings import SCHEMA_OF_STORES, row_batches_of_stores

        complete = all(answer.status in (ExitStatus.DONE, ExitStatus.DAMAGE) for answer in answers)
        rows = row_batches_of_stores((answer.row.store, answer.findings) for answer in answers)
        write_table(format_, SCHEMA_OF_STORES, rows, arguments.output, arguments, complete=complete, evidence=evidence)
    if not arguments.quiet:
        colour = not wants_rows and use_colour(arguments.color)
        print_screen("verify", arguments, given, answers, colour=colour, err=wants_rows)
        if arguments.report and digest:
            click.echo(f"{escape(arguments.report)}  sha256 {digest}", err=True)
    return status_of_all(answers)


def _ask(wants_rows: bool, arguments: VerifyArguments, given: Given) -> "Answer":
    """Return what is told of one of several stores."""
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.fleet.summary import row_of_report

    with ExitStack() as copies:
        report, store = checked(arguments, given, copies)
    told = as_object(report)
    row = row_of_report(str(given.name), store, told)
    status = status_of_report(report, arguments.fail_on)
    return Answer(row, status, told if arguments.report else None, report.findings if wants_rows else ())

"""What `verify` prints of a report: the screen, or the table of findings; and the exit status it means.

The report is that of the run, or with `--from` that of an earlier one: nothing here asks the store.

`rmqinspect verify --against REPORT`: are the files still those of an earlier run?
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import click
import msgspec
from click.core import ParameterSource

from rmqinspect.cli.labelled import Screen
from rmqinspect.cli.options import (
    FORMAT_NAMES,
    JobOptions,
    LookOptions,
    OutputOptions,
    RedactOptions,
    SourceOptions,
    TalkOptions,
    VerdictOptions,
    choose_format,
    count_jobs,
    use_colour,
)
from rmqinspect.cli.parameters import option
from rmqinspect.cli.progress import LONG_READ, Progress, interrupt_no_more, interrupted_once, least_time
from rmqinspect.cli.status import ExitStatus, exit_status
from rmqinspect.cli.verify_screen import Look, screen, verdict_line
from rmqinspect.store.discover import open_store
from rmqinspect.text import count, describe_size, escape, group_digits
from rmqinspect.verify.custody import Custody, CustodyChange, Record, Watch
from rmqinspect.verify.findings import redact_rows
from rmqinspect.verify.report import Report, read_record, read_report


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
        _write_table(report, format_, options, evidence)
        if not options.quiet:
            click.echo(verdict_line(report), err=True)
    elif not options.quiet:
        colour = use_colour(options.color)
        for line in screen(report, path, Look(options.zone, colour, unfold=options.verbose > 0)):
            click.echo(line, color=colour)


def _write_table(report: Report, format_: str, options: VerifyOutputOptions, evidence: Sequence[str]) -> None:
    from rmqinspect.output import View, open_writer
    from rmqinspect.verify.findings import SCHEMA, row_batches

    view = View(zone=options.zone, colour=use_colour(options.color, options.output))
    with open_writer(format_, SCHEMA, options.output, view=view, evidence=evidence) as writer:
        writer.complete = report.complete
        for batch in row_batches(report.findings):
            writer.write(batch)


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


_SCREEN = Screen(indent=9)


@dataclass(frozen=True, kw_only=True)
class AgainstOptions(VerdictOptions, SourceOptions, JobOptions, TalkOptions):
    """The options that a comparison uses."""

    against: str | None = option(
        "--against",
        type=click.Path(dir_okay=False),
        metavar="REPORT",
        help="Run no checks: compare all files with those in a report.",
    )


def compare_with_report(options: AgainstOptions, report: str) -> ExitStatus:
    """Compare names, sizes and digests of all files with a report, print the differences, return the status."""
    try:
        record = read_record(report)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--against") from error
    with interrupted_once():
        try:
            watch = Watch(open_store(options.paths, **options.opening))
        except KeyboardInterrupt:
            _print([], "INCOMPLETE: interrupted while the files were listed", quiet=options.quiet)
            return ExitStatus.INTERRUPTED
        now, interrupted = _take_digests(watch, record, options)
    for line in (*now.unread, *(f"{change.file}: changed while it was read: {change.what}" for change in now.changed)):
        click.echo(escape(line), err=True)
    differences = record.differences(now)
    words, failed = _result(record, now, differences), len(now.unread) + len(now.changed)
    if interrupted:
        read = f"{group_digits(len(now.digests))} of {count(len(record.comparable(watch.before)), 'file')}"
        words = f"INCOMPLETE: interrupted, {read} read: {words}"
    elif failed:
        words = f"INCOMPLETE: {count(failed, 'place')} unreadable or changed meanwhile: {words}"
    _print(differences, words, quiet=options.quiet)
    if interrupted:
        return ExitStatus.INTERRUPTED
    return exit_status(options.fail_on, damaged=differences, unread=failed)


def _print(differences: list[CustodyChange], words: str, *, quiet: bool) -> None:
    if quiet:
        return
    for change in differences:
        for line in _SCREEN.rows(change.kind, f"{change.file}: {change.what}"):
            click.echo(line)
    click.echo(escape(words))


def _take_digests(watch: Watch, record: Record, options: AgainstOptions) -> tuple[Custody, bool]:
    """Return the state of the files now, and whether Ctrl-C came before all digests were taken."""
    names = record.comparable(watch.before)
    size = sum(watch.before.exhibits[name].file.size for name in names)
    interrupted = False
    with Progress(size, options.progress, quiet=options.quiet) as progress:
        if size > LONG_READ:
            words = f"{count(len(names), 'file')}, {describe_size(size)} to read: their digests are compared"
            progress.remark(f"{words}{least_time(size)}. A report without digests is compared by sizes and times alone")
        try:
            watch.take_digests(names, count_jobs(options)).wait(progress)
        except KeyboardInterrupt:
            interrupted = True
        interrupt_no_more()
        return watch.conclude(), interrupted


def _result(record: Record, now: Custody, differences: list[CustodyChange]) -> str:
    """Return the last line: equal or different, from how many files, recorded when."""
    files, moment = count(len(record.files), "file"), record.run.ended.split(".")[0].rstrip("Z") + "Z"
    if differences:
        kinds = Counter(change.kind for change in differences)
        numbers = ", ".join(f"{group_digits(number)} {kind}" for kind, number in sorted(kinds.items()))
        return f"DIFFERENT from the {files} recorded on {moment}: {numbers}"
    words = f"{files} as recorded on {moment}: same names, sizes"
    if record.undigested == len(record.files):
        return f"{words}, times; no digests to compare"
    words += ", sha256"
    if record.undigested:
        words += f"; {group_digits(record.undigested)} without a digest: same times"
    elif touched := record.touched(now.inventory):
        words += f"; {group_digits(touched)} with another time"
    return words

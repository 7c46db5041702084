"""Reports of `rmqinspect verify` as they are printed: of this run, or with `--from` of an earlier one.

A report is a screen, or the table of its findings with the verdict on stderr. One of several stores is a line for
each, or the screens of those that are named.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
import msgspec

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import (
    choose_format,
    use_colour,
)
from rmqinspect.cli.pager import print_answered
from rmqinspect.cli.session import write_table
from rmqinspect.cli.verbs.verify import VerifyOutputOptions, refused_with_from
from rmqinspect.cli.verify_screen import Look, screen, verdict_line
from rmqinspect.commands import fill_command
from rmqinspect.document import as_object
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.text import escape
from rmqinspect.verify.findings import redact_rows
from rmqinspect.verify.report import Report, read_reports

if TYPE_CHECKING:
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.output.openmetrics import Sample


def print_written(options: VerifyOutputOptions, path: str, names: Sequence[str]) -> ExitStatus:
    """Print a report that was written by an earlier run; return the exit status of that run.

    Of a report of several stores: the line of each, or the screens of those that are named.

    :raises click.BadParameter: it is no report, or has no store of that name.
    """
    format_ = choose_format(options)
    try:
        found = read_reports(path)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--from") from error
    if options.redact is not None:
        found = {
            name: msgspec.structs.replace(report, findings=redact_rows(report.findings, options.redact))
            if isinstance(report, Report)
            else report
            for name, report in found.items()
        }
    if (report := found.get(None)) is not None:
        if names:
            raise refused_with_from(click.get_current_context(), "paths")
        assert isinstance(report, Report)
        print_report(report, path, format_, options)
        return status_of_report(report, options.fail_on)
    return _print_written_of_several(
        {str(name): report for name, report in found.items()}, path, format_, options, names
    )


def _print_written_of_several(
    found: Mapping[str, Report | str], path: str, format_: str, options: VerifyOutputOptions, names: Sequence[str]
) -> ExitStatus:
    from rmqinspect.cli.fleet import Answer, status_of_all
    from rmqinspect.fleet.summary import StoreRow, row_of_report

    for name in names:
        if name not in found:
            known = ", ".join(map(escape, found))
            raise click.BadParameter(f"no store {escape(name)!r} in it; there are: {known}", param_hint="--from")
    answers = []
    for name in dict.fromkeys(names or found):
        report = found[name]
        if isinstance(report, str):
            answers.append(Answer(StoreRow(store=name, error=report), ExitStatus.UNREADABLE))
            continue
        status = status_of_report(report, options.fail_on)
        samples: list[Sample] = []
        if format_ == "openmetrics":
            from rmqinspect.cli.metrics import of_report

            samples = list(of_report(report, name))
        answers.append(Answer(row_of_report(name, None, as_object(report)), status, None, report.findings, samples))
    if names and format_ == "table" and options.output is None:
        for number, answer in enumerate(answers):
            report = found[answer.row.store]
            if number and not options.quiet:
                click.echo()
            if isinstance(report, str):
                click.echo(f"{escape(answer.row.store)}: not read: {escape(report)}", err=True)
            else:
                print_report(report, path, format_, options)
    else:

        def screen_of(number: int) -> str:
            return fill_command("rmqinspect verify --from {file} {name}", file=path, name=answers[number].row.store)

        print_several(answers, screen_of, format_, options)
    return status_of_all(answers)


def print_report(
    report: Report, path: str, format_: str, options: VerifyOutputOptions, evidence: Sequence[str] = ()
) -> None:
    """Print the screen, or write the table of findings with the verdict on stderr.

    `path` is the file of the report; the output is not written into `evidence`.
    """
    if format_ == "openmetrics":
        from rmqinspect.cli.metrics import of_report, write_metrics

        name = PurePath(report.run.store.rstrip("/")).name or report.run.store
        write_metrics(of_report(report, name), options.output, evidence)
    elif format_ != "table" or options.output:
        from rmqinspect.verify.finding_rows import SCHEMA, row_batches

        rows = row_batches(report.findings)
        write_table(format_, SCHEMA, rows, options.output, options, complete=report.complete, evidence=evidence)
        if not options.quiet:
            click.echo(verdict_line(report), err=True)
    elif not options.quiet:
        colour = use_colour(options.color)
        lines = screen(report, path, Look(options.zone, colour, unfold=options.verbose > 0))
        print_answered(lines, colour=colour)


def status_of_report(report: Report, fail_on: str) -> ExitStatus:
    """Return the exit status that a report means."""
    if report.interrupted is not None:
        return ExitStatus.INTERRUPTED
    if fail_on != "never":
        if report.damage or (fail_on == "warning" and report.warnings) or _start_loses(report):
            return ExitStatus.DAMAGE
        if report.unread:
            return ExitStatus.UNREADABLE
    return ExitStatus.DONE


def _start_loses(report: Report) -> bool:
    """Whether the next start loses messages: files may be whole, and consumers not get what they hold."""
    start = report.next_start
    return start is not None and start.verdict in (Verdict.LOSES, Verdict.EMPTY)


def print_several(
    answers: "Sequence[Answer]",
    screen_of: Callable[[int], str],
    format_: str,
    options: VerifyOutputOptions,
    evidence: Sequence[str] = (),
) -> None:
    """Print the screen of several stores, or write the table of their findings with the screen on stderr."""
    from rmqinspect.cli.fleet import print_screen
    from rmqinspect.verify.finding_rows import SCHEMA_OF_STORES, row_batches_of_stores

    wants_rows = format_ != "table" or options.output is not None
    if format_ == "openmetrics":
        from rmqinspect.cli.metrics import of_failed, write_metrics

        told = [answer.samples or of_failed("verify", answer.row.store) for answer in answers]
        write_metrics(chain.from_iterable(told), options.output, evidence)
    elif wants_rows:
        complete = all(answer.status in (ExitStatus.DONE, ExitStatus.DAMAGE) for answer in answers)
        rows = row_batches_of_stores((answer.row.store, answer.findings) for answer in answers)
        write_table(format_, SCHEMA_OF_STORES, rows, options.output, options, complete=complete, evidence=evidence)
    if not options.quiet:
        print_screen(answers, screen_of, colour=not wants_rows and use_colour(options.color), err=wants_rows)

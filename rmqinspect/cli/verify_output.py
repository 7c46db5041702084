"""What `verify` prints of a report: the screen, or the table of findings; and the exit status it means.

The report is that of the run, or with `--from` that of an earlier one: nothing here asks the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click
from click.core import ParameterSource

from rmqinspect.cli.options import (
    FORMAT_NAMES,
    LookOptions,
    OutputOptions,
    RedactOptions,
    VerdictOptions,
    choose_format,
    use_colour,
)
from rmqinspect.cli.parameters import option
from rmqinspect.cli.status import ExitStatus
from rmqinspect.cli.verify_screen import Look, screen, verdict_line
from rmqinspect.text import escape
from rmqinspect.verify.redacted import redact_findings
from rmqinspect.verify.reported import Report, read_report


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
        report = replace(report, findings=tuple(redact_findings(report.findings, options.redact)))
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
    from rmqinspect.verify.table import SCHEMA, row_batches

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

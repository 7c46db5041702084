"""Options and help of `verify`."""

import re

import click
from click.core import ParameterSource

from rmqinspect.choices import ALGORITHM, DEFAULT_LEVEL, LEVELS
from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import (
    METRIC_FORMAT_NAMES,
    FleetOptions,
    JobOptions,
    LookOptions,
    MetricOptions,
    NamedSourceOptions,
    RedactOptions,
    TalkOptions,
    VerdictOptions,
)
from rmqinspect.cli.parameters import option, option_group, release_option, takes
from rmqinspect.cli.verbs import run
from rmqinspect.text import escape


@option_group
class AgainstOptions(VerdictOptions, NamedSourceOptions, JobOptions, TalkOptions):
    """The options that a comparison uses."""

    against: str | None = option(
        "--against",
        type=click.Path(dir_okay=False),
        metavar="REPORT",
        help="Run no checks: compare all files with those in a report.",
    )


def _check_share(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and (not re.fullmatch(r"\d{1,3}(\.\d{1,6})?%", value) or not 0 < float(value[:-1]) <= 100):
        raise click.BadParameter("a share above 0% and up to 100%, such as 5%", ctx, param)
    return value


@option_group
class SinceOptions:
    """From what a run goes on."""

    since: str | None = option(
        "--since",
        type=click.Path(dir_okay=False),
        metavar="REPORT",
        help="Go on from an earlier report: do not read again what is as it was, by size and time.",
    )
    reread: str | None = option(
        "--reread",
        metavar="SHARE",
        callback=_check_share,
        help="With --since: read a random part of what is as it was all the same, such as 5%.",
    )


@option_group
class VerifyOutputOptions(MetricOptions, VerdictOptions, RedactOptions, LookOptions):
    """What is printed of a report: `--from` takes these options and no others."""

    format: str | None = option(
        "-f",
        "--format",
        type=click.Choice(METRIC_FORMAT_NAMES),
        help="Default: a screen. openmetrics: numbers for a textfile collector. Others: the table of findings, with"
        " the verdict on stderr.",
    )
    quiet: bool = option(
        "-q", "--quiet", is_flag=True, help="Only the exit status; -f, -o and --report write what they always do."
    )
    verbose: int = option(
        "-v", "--verbose", count=True, help="Show each finding, and more remarks; -vv adds a traceback to a bug."
    )


def _check_codes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        return ()
    from rmqinspect.verify.codes import BY_CODE

    codes = tuple(code.strip().upper() for text in value for code in text.split(","))
    for code in codes:
        if code not in BY_CODE:
            raise click.BadParameter(f"{escape(code)} is not a code; --list-checks prints all", ctx, param)
    return codes


def _list_checks(ctx: click.Context, _: click.Parameter, asked: bool) -> bool:
    if asked and not ctx.resilient_parsing:
        from rmqinspect.verify.codes import CODES

        width = max(len(code.code) for code in CODES)
        for code in CODES:
            click.echo(f"{code.code:{width}}  {code.severity:7}  {code.level:8}  {code.rule}")
        ctx.exit()
    return asked


@option_group
class VerifyArguments(VerifyOutputOptions, AgainstOptions, SinceOptions, FleetOptions):
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
        help="Run no checks, read no STORE: print the screen of a report again; of several stores, NAME… are chosen.",
    )
    hash: str | None = option(
        "--hash",
        type=click.Choice((ALGORITHM,)),
        help="Add the digest of every file to the report; a file that changes during the run makes it incomplete.",
    )

    def __post_init__(self) -> None:
        if self.from_report is None:
            super().__post_init__()
            if not self.codes:
                raise click.UsageError("--check and --skip leave no check to run.")
        else:
            _refuse_options_of_checks()

    @property
    def codes(self) -> frozenset[str]:
        """The checks to run."""
        from rmqinspect.verify.codes import BY_CODE

        return (frozenset(self.check) or frozenset(BY_CODE)) - frozenset(self.skip)


def _refuse_options_of_checks() -> None:
    """Refuse what has no meaning without a store; words may be names of stores in a report of several.

    :raises click.UsageError: such an option was given.
    """
    context = click.get_current_context()
    takes = {"from_report", "progress", "paths", *VerifyOutputOptions.__dataclass_fields__}
    for param in context.command.params:
        if param.name not in takes and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
            raise refused_with_from(context, str(param.name))


def refused_with_from(context: click.Context, name: str) -> click.UsageError:
    """Return the error about a parameter beside --from."""
    param = next(param for param in context.command.params if param.name == name)
    shown_as = param.opts[-1] if isinstance(param, click.Option) else param.make_metavar(context)
    return click.UsageError(f"--from prints a report and reads no store: {shown_as} cannot be combined with it.")


@click.command("verify", cls=Command)
@takes(VerifyArguments)
def command(arguments: VerifyArguments) -> int:
    """Check a store, reading only: is the commit log whole, do queues and index agree? Ends with one verdict.

    Exit status: 0 whole, 3 damage (--fail-on sets the lowest severity) or a next start that loses data,
    4 not everything could be read, 130 interrupted.

    \b
    Examples:
      rmqinspect verify STORE
      rmqinspect verify STORE --level quick
      rmqinspect verify STORE --hash sha256 --report evidence.json
      rmqinspect verify STORE --against evidence.json
      rmqinspect verify STORE --since last-night.json --report tonight.json
      rmqinspect verify --from evidence.json
      rmqinspect verify --from fleet.json b7
      rmqinspect verify 00000000001073741824
      rmqinspect verify /mnt/*/store --level quick
    """
    return run("verify", arguments)

"""Options and help of `report`."""

import sys

import click
from click.core import ParameterSource

from rmqinspect.choices import ALGORITHM
from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import (
    FileOptions,
    FleetOptions,
    RedactOptions,
    VerdictOptions,
    ZoneOptions,
)
from rmqinspect.cli.parameters import option, option_group, release_option, takes
from rmqinspect.cli.verbs import run


@option_group
class ReportArguments(FileOptions, VerdictOptions, RedactOptions, ZoneOptions, FleetOptions):
    """What `report` is asked for."""

    from_report: str | None = option(
        "--from",
        type=click.Path(dir_okay=False),
        metavar="REPORT",
        help="Make the page of a report that verify wrote, and read no STORE; of several stores, NAME… are chosen.",
    )
    broker_version: str | None = release_option()
    hash: str | None = option(
        "--hash",
        type=click.Choice((ALGORITHM,)),
        help="Put the digest of every file on the page; a file that changes during the run makes it incomplete.",
    )

    def __post_init__(self) -> None:
        if self.from_report is None:
            super().__post_init__()
        else:
            _refuse_with_from()
        if self.output is None and sys.stdout.isatty():
            raise click.UsageError("A page is not for a terminal: give -o FILE.html, or a pipe.")


def _refuse_with_from() -> None:
    """Refuse what has no meaning without a store.

    :raises click.UsageError: such an option was given.
    """
    context = click.get_current_context()
    own = {"from_report", "paths", "output", "zone", "redact", "fail_on", "quiet", "verbose", "progress"}
    for param in context.command.params:
        if param.name not in own and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--from reads no store: {param.opts[-1]} cannot be combined with it.")


@click.command("report", cls=Command)
@takes(ReportArguments)
def command(arguments: ReportArguments) -> int:
    """Make one page about stores: is it intact, what is lost, whose, since when, and what to do now.

    An HTML file that loads nothing, for a browser, a printer or an e-mail. It has what verify, forecast,
    groups, usage, transactions and delays say, from one pass over the log.

    Exit status: that of verify.

    \b
    Examples:
      rmqinspect report STORE -o store.html
      rmqinspect report STORE --hash sha256 --tz Asia/Shanghai -o store.html
      rmqinspect report /mnt/*/store -j 4 --redact keys,hosts -o fleet.html
      rmqinspect report --from evidence.json -o store.html
    """
    return run("report", arguments)

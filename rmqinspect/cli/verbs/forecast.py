"""Options and help of `forecast`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.lost import exit_option
from rmqinspect.cli.options import (
    PATH,
    DocumentsOptions,
    FleetOptions,
    LookOptions,
)
from rmqinspect.cli.parameters import option, option_group, release_option, takes
from rmqinspect.cli.verbs import run


@option_group
class ForecastArguments(DocumentsOptions, LookOptions, FleetOptions):
    """What `forecast` is asked for."""

    format: str | None = option(
        "-f",
        "--format",
        type=click.Choice(("table", "json", "jsonl", "openmetrics")),
        help="Default: the suffix of the -o file, else table. jsonl: a document a line, also of several stores;"
        " openmetrics: for a textfile collector (*.prom).",
    )

    broker_version: str | None = release_option()
    all_versions: bool = option(
        "--all-versions", is_flag=True, help="Work out the start of every release; one line for each answer."
    )
    exit: str | None = exit_option()
    explain: bool = option(
        "--explain", is_flag=True, help="Show every decision of the start, its inputs, and the class it was read from."
    )
    script: bool = option(
        "--script",
        is_flag=True,
        help="Print a shell script instead: a copy of the store, and each choice with its forecast. Runs nothing.",
    )
    replica: str | None = option(
        "--replica",
        type=PATH,
        metavar="OTHER",
        help="Tell how many of the lost messages another store has, such as that of a slave.",
    )
    salvage: bool = option(
        "--salvage",
        is_flag=True,
        help="Price a salvage, too: what a new store would have, and what it would not. Reads all, as verify does.",
    )
    as_copied: bool = option(
        "--as-copied",
        is_flag=True,
        help="Tell of the files as they are, though a process holds the lock: for a store that was copied from under a"
        " running broker, or if that process is no broker.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.all_versions and self.broker_version:
            raise click.UsageError("--all-versions walks every release: --broker-version cannot be combined with it.")
        if self.replica and (self.script or self.all_versions):
            raise click.UsageError("--replica is about one start: --script and --all-versions cannot be combined.")
        if self.salvage and (self.script or self.all_versions):
            raise click.UsageError("--salvage is about one start: --script and --all-versions cannot be combined.")
        if self.script and (self.all_versions or self.explain or self.format):
            raise click.UsageError("--script prints a script: --all-versions, --explain and -f cannot be combined.")


@click.command("forecast", cls=Command)
@takes(ForecastArguments)
def command(arguments: ForecastArguments) -> int:
    """Tell what a broker does to a store at its next start: will it start, and what will be gone?

    Without --broker-version every release that may have written the store is worked out; where they differ
    all are shown, and the worst one decides. Nothing is started and nothing is changed.

    Exit status: 0 the start loses nothing more, 3 it loses data or starts empty, or the broker does not
    start, 4 it cannot be told, or a broker runs on the store.

    \b
    Examples:
      rmqinspect forecast STORE
      rmqinspect forecast STORE --broker-version 5.3.3 --config broker.conf
      rmqinspect forecast STORE --all-versions
      rmqinspect forecast STORE --explain
      rmqinspect forecast STORE --salvage
      rmqinspect forecast STORE --script -o start.sh
      rmqinspect forecast STORE -q && systemctl start rocketmq
      rmqinspect forecast /mnt/*/store --stores-from more.txt
    """
    return run("forecast", arguments)

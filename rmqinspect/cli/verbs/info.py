"""Options and help of `info`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import DocumentsOptions, FleetOptions, LookOptions
from rmqinspect.cli.parameters import option_group, takes
from rmqinspect.cli.verbs import run


@option_group
class InfoArguments(DocumentsOptions, LookOptions, FleetOptions):
    """What `info` is asked for."""


@click.command("info", cls=Command)
@takes(InfoArguments)
def command(arguments: InfoArguments) -> int:
    """Show one screen about a store: layout, last stop, log, queues, index, groups. No full scan.

    Of several stores a line each, the worst first; they are read side by side, -j at a time.

    \b
    Examples:
      rmqinspect info STORE
      rmqinspect info /mnt/*/store
      rmqinspect info a=STORE b=s3://bucket/store -f jsonl
    """
    return run("info", arguments)

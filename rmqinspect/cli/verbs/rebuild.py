"""Options and help of `rebuild`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.new_store import NewStoreOptions, dry_run_option, output_option
from rmqinspect.cli.options import (
    JobOptions,
    LookOptions,
    RedactOptions,
    SourceOptions,
    TalkOptions,
)
from rmqinspect.cli.parameters import option, option_group, release_option, takes
from rmqinspect.cli.verbs import run


@option_group
class RebuildArguments(NewStoreOptions, SourceOptions, JobOptions, RedactOptions, LookOptions, TalkOptions):
    """What `rebuild` is asked for."""

    output: str = output_option("NEW.receipt.json is written")
    only: str | None = option(
        "--only",
        type=click.Choice(("queues", "index")),
        help="Write only these anew, and the checkpoint; bring the others as they are.",
    )
    set_offsets: bool = option(
        "--set-offsets",
        is_flag=True,
        help="Set offsets of groups beyond the end of their rebuilt queue back to it, in NEW/config.",
    )
    dry_run: bool = dry_run_option()
    broker_version: str | None = release_option()


@click.command("rebuild", cls=Command)
@takes(RebuildArguments)
def command(arguments: RebuildArguments) -> int:
    """Make a store with new queues, index and checkpoint from a sound log; the old one is only read.

    The log and config/ are brought to NEW; all that follows from the log is written as a broker of the version writes
    it. NEW is verified, and its next start worked out: it gets its name only if it is whole and the start loses
    nothing.

    Where groups would not get new messages, because their offsets lie beyond the ends of the rebuilt queues, nothing is
    made: the offsets are listed with what is better, salvage or --set-offsets.

    Exit status: 0 made, 3 the log is damaged (salvage takes it), groups would skip messages, topics.json has to be put
    in order before a start, or the new store was not whole, 6 NEW exists, lies inside the store, or has no room.

    \b
    Examples:
      rmqinspect rebuild STORE -o NEW
      rmqinspect rebuild STORE --dry-run
      rmqinspect rebuild STORE/commitlog -o NEW --config broker.conf
      rmqinspect rebuild STORE -o NEW --only index --broker-version 4.9.7
      rmqinspect rebuild STORE -o NEW --link
    """
    return run("rebuild", arguments)

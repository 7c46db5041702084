"""Options and help of `groups`."""

import click

from rmqinspect.choices import OFFSET_STATUSES
from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import MetricOptions, NamedSourceOptions
from rmqinspect.cli.parameters import option, option_group, takes
from rmqinspect.cli.selection import TopicOptions, UnconsumedOptions
from rmqinspect.cli.verbs import run
from rmqinspect.cli.verbs.decode import MessageOptions, RowsOptions


@option_group
class GroupsArguments(NamedSourceOptions, MetricOptions, RowsOptions, MessageOptions, TopicOptions, UnconsumedOptions):
    """What `groups` is asked for."""

    groups: tuple[str, ...] = option("--group", multiple=True, metavar="GLOB", help="Consumer group; repeatable.")
    statuses: tuple[str, ...] = option(
        "--status",
        multiple=True,
        type=click.Choice(OFFSET_STATUSES),
        help="How an offset lies to its queue; repeatable.",
    )


@click.command("groups", cls=Command)
@takes(GroupsArguments)
def command(arguments: GroupsArguments) -> int:
    """Show how far consumer groups are: lag, messages lost to them, what they popped, what nobody consumes.

    Little is read, whatever the size of the store. The other formats print the rows of the table
    groups, with --unconsumed those of the table messages; --body, --raw-body and --scan are for these.

    \b
    Examples:
      rmqinspect groups STORE
      rmqinspect groups STORE --group 'order-*' --status behind_min
      rmqinspect groups STORE --unconsumed order-service -o unconsumed.parquet
      rmqinspect groups STORE -f csv
    """
    return run("groups", arguments)

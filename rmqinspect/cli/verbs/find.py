"""Options and help of `find`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.lost import LostOptions
from rmqinspect.cli.options import NamedSourceOptions
from rmqinspect.cli.parameters import TEXT, option, option_group, release_option, takes
from rmqinspect.cli.selection import SelectionOptions, TraceOptions
from rmqinspect.cli.verbs import run
from rmqinspect.cli.verbs.decode import MessageOptions, RowsOptions

_QUEUE_ID = click.IntRange(0, 2**31 - 1)
_OFFSET = click.IntRange(-(2**63), 2**63 - 1)
_BOUNDARIES = ("lower", "upper")  # of `broker.offset_by_time`, which is imported later


@option_group
class ConsumerOptions:
    """What a consumer asks."""

    pull: tuple[str, int, int] | None = option(
        "--pull",
        type=(TEXT, _QUEUE_ID, _OFFSET),
        metavar="TOPIC QUEUE OFFSET",
        help="What a consumer gets that pulls there: status, next offset, -n messages (32); --tag may be 'A || B'.",
    )
    offset_by_time: tuple[str, int, str] | None = option(
        "--offset-by-time",
        type=(TEXT, _QUEUE_ID, TEXT),
        metavar="TOPIC QUEUE TIME",
        help="The queue offset that the broker names for a time: where a consumer begins that is set back to it.",
    )
    boundary: str | None = option(
        "--boundary",
        type=click.Choice(_BOUNDARIES),
        help="Of --offset-by-time: the first or the last of several messages that fit. Default: lower.",
    )
    group: str | None = option(
        "--group", type=TEXT, metavar="GROUP", help="Of --pull: the group that asks; it may be refused."
    )
    broker_version: str | None = release_option()

    @property
    def asks_broker(self) -> bool:
        """Whether a broker's answer is asked for, and not messages."""
        return self.pull is not None or self.offset_by_time is not None


@option_group
class QuestionOptions(ConsumerOptions, RowsOptions, MessageOptions, SelectionOptions, LostOptions):
    """All that `find` may be asked with."""


@option_group
class FindArguments(NamedSourceOptions, QuestionOptions, TraceOptions):
    """What `find` is asked for."""

    evidence: str | None = option(
        "--evidence",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write FILE as JSON: records with their bytes, what leads to them, what was searched, digests.",
    )

    life: bool | None = option(
        "--life/--no-life",
        is_flag=True,
        default=None,
        help="What became of each message: its copies, and who passed it. Default: of up to 5 messages.",
    )


@click.command("find", cls=Command)
@takes(FindArguments)
def command(arguments: FindArguments) -> int:
    """Find messages by id, key, queue offset, time or content; say why there are none.

    Takes several stores, such as the brokers of a cluster. An id may be a message id or an offset
    message id: both are tried. Commas join the ids of a batch.

    Exit status: 0 found, 3 damage: of a record found, or where one that was not found is or may have been,
    4 unreadable, 5 something asked for is not there.

    \b
    Examples:
      rmqinspect find STORE -t orders -k ORDER-1001
      rmqinspect find a=/a/store b=/b/store --id C0A8010A1A2B18B4AAC263ABFA530007
      rmqinspect find STORE -t orders --queue 3 --queue-offset 12
      rmqinspect find STORE --body-contains 4711 --since -2h -f json
      rmqinspect find STORE --pull orders 3 12 --tag 'TagA || TagB'
    """
    return run("find", arguments)

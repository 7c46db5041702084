"""Options and help of `delays`."""

import click

from rmqinspect.choices import DELAY_STATES
from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import NamedSourceOptions
from rmqinspect.cli.parameters import option, option_group, takes
from rmqinspect.cli.selection import TimeOptions
from rmqinspect.cli.verbs import run
from rmqinspect.cli.verbs.decode import RowsOptions


@option_group
class DelaysArguments(NamedSourceOptions, RowsOptions, TimeOptions):
    """What `delays` is asked for."""

    pending: bool = option(
        "--pending", is_flag=True, help="Only what still waits: queues, timer and single records are read, not the log."
    )
    topics: tuple[str, ...] = option("-t", "--topic", multiple=True, metavar="GLOB", help="Real topic; repeatable.")
    states: tuple[str, ...] = option(
        "--state",
        multiple=True,
        type=click.Choice(DELAY_STATES),
        metavar="STATE",
        help=f"{', '.join(DELAY_STATES)}; repeatable.",
    )
    since: str | None = option("--since", metavar="TIME", help="Due from TIME on; forms of TIME as in decode.")
    until: str | None = option("--until", metavar="TIME", help="Due before TIME.")
    at: str | None = option(
        "--at", metavar="TIME", help="What is due before TIME is overdue. Default: the last activity of the broker."
    )
    system_topics: bool | None = option(
        "--system-topics/--no-system-topics",
        default=None,
        help="With messages to the broker's own topics, such as acks of pop. Default: not on the screen.",
    )
    limit: int | None = option(
        "-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N rows; on the screen, of each kind."
    )


@click.command("delays", cls=Command)
@takes(DelaysArguments)
def command(arguments: DelaysArguments) -> int:
    """Show delayed messages: of delay levels, of the timer, and of the timer in RocksDB.

    The screen counts them by level and topic; other formats print the rows of the table `delays`. The whole log is
    read, for the delivered copies, unless --pending is given.

    \b
    Examples:
      rmqinspect delays STORE --pending
      rmqinspect delays STORE -t orders --state lost -f jsonl
      rmqinspect delays STORE --since last --until 2026-11-21T10:00Z -o due.csv
    """
    return run("delays", arguments)

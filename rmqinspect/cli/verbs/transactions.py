"""Options and help of `transactions`."""

import click

from rmqinspect.choices import TRANSACTION_STATES
from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import NamedSourceOptions
from rmqinspect.cli.parameters import option, option_group, takes
from rmqinspect.cli.selection import TimeOptions, TopicNameOptions
from rmqinspect.cli.verbs import run
from rmqinspect.cli.verbs.decode import RowsOptions


@option_group
class TransactionsArguments(NamedSourceOptions, RowsOptions, TopicNameOptions, TimeOptions):
    """What `transactions` is asked for."""

    states: tuple[str, ...] = option(
        "--state", multiple=True, type=click.Choice(TRANSACTION_STATES), help="State; repeatable. Default: all."
    )


@click.command("transactions", cls=Command)
@takes(TransactionsArguments)
def command(arguments: TransactionsArguments) -> int:
    """Show what became of half messages: pending, committed, rolled back or given up.

    The screen counts them by producer group and real topic, and lists the pending ones, oldest first:
    -n says how many, --state others. With --columns, and in other formats: the rows of the table
    transactions. -t takes real topics; --since and --until compare when the newest copy was stored.

    \b
    Examples:
      rmqinspect transactions STORE
      rmqinspect transactions STORE --state pending --state given_up -n 100
      rmqinspect transactions STORE -t orders --since -2h -f csv
    """
    return run("transactions", arguments)

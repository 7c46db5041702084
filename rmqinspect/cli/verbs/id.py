"""Options and help of `id`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import DocumentOptions, LookOptions
from rmqinspect.cli.parameters import argument, option, option_group, takes
from rmqinspect.cli.verbs import run


@option_group
class IdArguments(DocumentOptions, LookOptions):
    """What `id` is asked for."""

    texts: tuple[str, ...] = argument("ID...", required=True)
    anchor: str | None = option(
        "--anchor",
        metavar="TIME",
        help="A time near the message, best its born timestamp (ISO 8601, epoch ms): the id contains no month.",
    )
    year_month: str | None = option("--year-month", metavar="YYYY-MM", help="Month of the id, instead of --anchor.")


@click.command("id", cls=Command)
@takes(IdArguments)
def command(arguments: IdArguments) -> int:
    """Decode a message id: broker and physical offset, or client, process and time.

    32 hex digits can be an offset message id or a message id: both readings are shown, the plausible
    one first. Commas join the ids of a batch. An id counts from the start of a month in the client's
    zone: --tz names it.

    \b
    Examples:
      rmqinspect id 7F000001000055970000000000038270
      rmqinspect id C0A8010A1A2B18B4AAC263ABFA530007 --year-month 2024-05
    """
    return run("id", arguments)

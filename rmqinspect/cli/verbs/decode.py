"""Options and help of `decode`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.lost import LostOptions
from rmqinspect.cli.options import (
    PATH,
    BodyOptions,
    CarveOptions,
    LookOptions,
    ManySourceOptions,
    OutputOptions,
    ReadingOptions,
    RedactOptions,
)
from rmqinspect.cli.parameters import argument, complete_tables, option, option_group, takes
from rmqinspect.cli.selection import RowChoiceOptions
from rmqinspect.cli.verbs import run


@option_group
class RowsOptions(OutputOptions, RedactOptions, LookOptions, ManySourceOptions, ReadingOptions):
    """How the rows of a table are read and written."""

    limit: int | None = option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N rows.")
    columns: str | None = option("--columns", metavar="A,B|all", help="Columns, in this order.")


@option_group
class MessageOptions(BodyOptions):
    """How messages are read and written."""

    body: str | None = option(
        "--body",
        type=click.Choice(("full", "text", "preview", "none")),
        help="How much of each body; text: as text, null where it is none. Default: preview in the table format, "
        "else full.",
    )
    scan: bool = option(
        "--scan",
        is_flag=True,
        help="Read the whole log for a look-up, too: by id, key, queue offset or time.",
    )


@option_group
class DecodeArguments(RowsOptions, MessageOptions, RowChoiceOptions, LostOptions, CarveOptions):
    """What `decode` is asked for."""

    paths: tuple[str, ...] = argument("[NAME=]PATH...", type=PATH)
    table: str | None = option(
        "--table",
        metavar="NAME",
        shell_complete=complete_tables,
        help="messages, segments, gaps, queues, queue_units, index_files, index_entries, groups, topics, "
        "subscription_groups, checkpoint, … Default: by the kind of PATH; messages for a store.",
    )


@click.command("decode", cls=Command)
@takes(DecodeArguments)
def command(arguments: DecodeArguments) -> int:
    """Print the rows of a store, or of any one file in it; the kind of file is detected.

    Several stores are printed as one table, with the column `store` first. Damage is a row with a
    status; after all rows are written it ends the command with exit status 3.

    \b
    Examples:
      rmqinspect decode STORE -t orders -n 5
      rmqinspect decode STORE --offset 96253..97955 -f jsonl --columns keys,status
      rmqinspect decode STORE/index -f csv
      rmqinspect decode STORE --since last-5m -o rows.parquet
      rmqinspect decode STORE --lost-at-start -o lost.parquet
      rmqinspect decode --carve disk.img -t orders -o orders.parquet
    """
    return run("decode", arguments)

"""Options and help of `diff`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import (
    FORMAT_NAMES,
    PATH,
    LookOptions,
    OutputOptions,
    ReadOptions,
    RedactOptions,
    RocksdbOptions,
    TalkOptions,
    VerdictOptions,
)
from rmqinspect.cli.parameters import argument, option, option_group, takes
from rmqinspect.cli.verbs import run


@option_group
class DiffArguments(
    OutputOptions, RedactOptions, LookOptions, ReadOptions, RocksdbOptions, VerdictOptions, TalkOptions
):
    """What `diff` is asked for."""

    a: str = argument("A", nargs=1, type=PATH)
    b: str = argument("B", nargs=1, type=PATH)
    limit: int = option(
        "-n",
        "--limit",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        metavar="N",
        help="Rows kept of each kind of difference; the counts stay exact.",
    )
    format: str | None = option(
        "-f",
        "--format",
        type=click.Choice(FORMAT_NAMES),
        help="Default: a screen. json: one document; other formats: the table of differences.",
    )


@click.command("diff", cls=Command)
@takes(DiffArguments)
def command(arguments: DiffArguments) -> int:
    """Compare two stores: replica with master, before with after, a copy with its original.

    Compares segments, the bytes of the log ranges that both have, records, consume queues, consumer
    offsets and topics. Index files and checkpoints always differ and are not compared.

    Exit status: 0 equal, 3 different or a hole in both, 4 not everything could be read, 130 interrupted.

    \b
    Examples:
      rmqinspect diff MASTER REPLICA
      rmqinspect diff BEFORE AFTER -f json
      rmqinspect diff A/commitlog B/commitlog
    """
    return run("diff", arguments)

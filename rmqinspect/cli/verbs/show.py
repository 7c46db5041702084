"""Options and help of `show`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import (
    PATH,
    BodyOptions,
    DocumentOptions,
    LookOptions,
    RedactOptions,
    SourceOptions,
    VerdictOptions,
)
from rmqinspect.cli.parameters import RemarkOptions, argument, option, option_group, parsed_by, takes
from rmqinspect.cli.verbs import run
from rmqinspect.text import parse_size


@option_group
class ShowArguments(
    DocumentOptions, BodyOptions, RedactOptions, LookOptions, SourceOptions, VerdictOptions, RemarkOptions
):
    """What `show` is asked for."""

    paths: tuple[str, ...] = argument("PATH...", type=PATH)
    at: str | None = option(
        "--at",
        metavar="OFFSET",
        help="Physical offset, decimal or 0x hex; SEGMENT+POSITION; or an offset message id.",
    )
    id: str | None = option("--id", metavar="ID", help="Message id or offset message id.")
    key: str | None = option("-k", "--key", metavar="KEY", help="A key that one record has.")
    topic: str | None = option("-t", "--topic", metavar="TOPIC", help="With -k, or with --queue and --queue-offset.")
    queue_id: int | None = option("--queue", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Queue id.")
    queue_offset: int | None = option(
        "--queue-offset", type=click.IntRange(0, 2**63 - 2), metavar="N", help="Logical offset in the queue."
    )
    raw: bool = option(
        "--raw", is_flag=True, help="Write its bytes as they lie in the log, and nothing else; their SHA-256 on stderr."
    )
    size: int | None = option(
        "--size",
        metavar="SIZE",
        callback=parsed_by(parse_size),
        help="With --raw: so many bytes from the offset on, whatever lies there.",
    )
    body: str | None = option(
        "--body",
        type=click.Choice(["full", "preview", "none"]),
        help="How much of the body. Default: preview; full with -f json.",
    )


@click.command("show", cls=Command)
@takes(ShowArguments)
def command(arguments: ShowArguments) -> int:
    """Show one record: every field with its bytes, properties, body, neighbours, queue units.

    Any offset inside a record finds it. A damaged record is shown as far as it can be parsed.

    Exit status: 0 a sound record, 3 damage, or the record may be in a gap, 4 unreadable, 5 no record there.

    \b
    Examples:
      rmqinspect show STORE --at 97187
      rmqinspect show STORE -k ORDER-1001
      rmqinspect show STORE -t orders --queue 3 --queue-offset 12
      rmqinspect show STORE --at 97187 --raw -o record.bin
    """
    return run("show", arguments)

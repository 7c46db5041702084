"""Options and help of `usage`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import (
    LookOptions,
    MetricOptions,
    NamedSourceOptions,
    ReadingOptions,
    RedactOptions,
)
from rmqinspect.cli.parameters import TEXT, option, option_group, parsed_by, takes
from rmqinspect.cli.selection import TimeOptions, TopicOptions
from rmqinspect.text import parse_size

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.tables.usage import Usage
from rmqinspect.cli.verbs import run


def _parse_dimensions(text: str) -> tuple[str, ...]:
    from rmqinspect.tables.usage import DIMENSIONS

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in DIMENSIONS:
            raise ValueError(f"no dimension {name!r}; there are: {', '.join(DIMENSIONS)}")
    return names or DIMENSIONS


def _parse_hours(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("h", "d") else (text, "h")
    try:
        hours = float(number) * (24 if unit == "d" else 1)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number of hours: 48h, 3d") from error
    if not 0 <= hours < 1e6:
        raise ValueError(f"{text!r} is not a retention")
    return hours


@option_group
class UsageArguments(
    MetricOptions, RedactOptions, TopicOptions, TimeOptions, LookOptions, NamedSourceOptions, ReadingOptions
):
    """What `usage` is asked for."""

    by: tuple[str, ...] | None = option(
        "--by",
        metavar="A,B",
        callback=parsed_by(_parse_dimensions),
        help="Dimensions: content, kind, topic, queue, tag, host, hour, size, segment. Default: all; on the screen"
        " those that fit.",
    )
    limit: int | None = option(
        "-n",
        "--limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="At most N kinds, topics, queues, tags and hosts. Default: 5 in the table format, else all.",
    )
    retention: tuple[float, ...] = option(
        "--retention",
        multiple=True,
        metavar="HOURS",
        callback=parsed_by(_parse_hours),
        help="Say what a retention (fileReservedTime) of 48h, 3d, … frees; repeatable. Default: 72h.",
    )
    sample: int | None = option(
        "--sample",
        is_flag=False,
        flag_value="256MiB",
        metavar="[SIZE]",
        callback=parsed_by(parse_size),
        default=None,
        type=TEXT,
        help="Read only SIZE of the log, evenly spread, and estimate. Default of SIZE: 256MiB.",
    )

    def shown_rows(
        self, usage: "Usage", most: int | None, default: tuple[str, ...] | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of each dimension asked for, else of the `default` ones (None: all), as they may be shown."""
        from rmqinspect.tables.usage import usage_batches

        for batch in usage_batches(usage, most, default if self.by is None else self.by):
            yield self.redact.mask(batch) if self.redact else batch


@click.command("usage", cls=Command)
@takes(UsageArguments)
def command(arguments: UsageArguments) -> int:
    """Show what takes the bytes of the log: by topic, queue, tag, producer, hour, kind, segment.

    Also what a retention would free, and what consumer groups would lose by it. Numbers are exact
    unless --sample is given.

    \b
    Examples:
      rmqinspect usage STORE
      rmqinspect usage STORE --retention 48h --retention 24h
      rmqinspect usage STORE --by tag,host -t orders --since -2h
      rmqinspect usage STORE --sample 1GiB
      rmqinspect usage STORE -f csv -o usage.csv
    """
    return run("usage", arguments)

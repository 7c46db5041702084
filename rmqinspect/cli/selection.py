"""Options that choose messages: topic and queue, time, content, what a group has not consumed; and their filters."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.options import ZoneOptions
from rmqinspect.cli.parameters import complete_topics, option, option_group, table_parser
from rmqinspect.text import escape
from rmqinspect.times import parse_time

if TYPE_CHECKING:
    from rmqinspect.tables.filters import Selection


@option_group
class TopicNameOptions:
    """Which topics."""

    topics: tuple[str, ...] = option(
        "-t",
        "--topic",
        multiple=True,
        metavar="GLOB",
        shell_complete=complete_topics,
        help="Topic; repeatable.",
    )


@option_group
class TopicOptions(TopicNameOptions):
    """Which queues."""

    queue_id: int | None = option("--queue", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Queue id.")
    system_topics: bool = option(
        "--system-topics/--no-system-topics", default=True, help="Default: with the broker's own topics."
    )


@option_group
class TraceOptions:
    """Which topics hold message traces."""

    trace_topics: tuple[str, ...] = option(
        "--trace-topic",
        multiple=True,
        metavar="NAME",
        help="Also a topic of message traces. RMQ_SYS_TRACE_TOPIC, and topics that begin with a trace, are found.",
    )


@option_group
class TimeOptions(ZoneOptions):
    """Which times; `with_times` reads them."""

    since: str | None = option(
        "--since",
        metavar="TIME",
        help="From TIME on: ISO 8601, epoch ms, yyyy-MM-dd#HH:mm:ss:SSS, -2h, last-5m, now.",
    )
    until: str | None = option("--until", metavar="TIME", help="Before TIME.")


@option_group
class SelectionOptions(TopicOptions, TimeOptions):
    """Which messages. `read_selection` and `with_times` make a Selection of it."""

    queue_offsets: tuple[int, int] | None = option(
        "--queue-offset",
        metavar="A[..B]",
        callback=table_parser("filters", "parse_range"),
        help="Logical offset in the queue.",
    )
    offsets: tuple[int, int] | None = option(
        "--offset",
        metavar="A[..B]",
        callback=table_parser("filters", "parse_range"),
        help="Physical offset in the commit log.",
    )
    tags: tuple[str, ...] = option("--tag", multiple=True, metavar="TAG", help="Tag; repeatable.")
    keys: tuple[str, ...] = option("-k", "--key", multiple=True, metavar="KEY", help="One of the keys; repeatable.")
    ids: tuple[str, ...] = option(
        "--id", multiple=True, metavar="ID", help="Message id or offset message id; repeatable."
    )
    properties: tuple[tuple[str, str | None], ...] = option(
        "--property",
        multiple=True,
        metavar="NAME[=VALUE]",
        callback=table_parser("filters", "parse_property"),
        help="Property; if repeated, all must match.",
    )
    body_text: str | None = option("--body-contains", metavar="TEXT", help="Text in the body.")
    body_bytes: bytes | None = option(
        "--body-bytes",
        metavar="HEX",
        callback=table_parser("filters", "parse_bytes"),
        help="Bytes in the body, as hex digits.",
    )
    time_field: str = option(
        "--time-field",
        type=click.Choice(("store", "born")),
        default="store",
        show_default=True,
        help="Timestamp that --since and --until compare.",
    )
    host: tuple[str, int | None] | None = option(
        "--host", metavar="IP[:PORT]", callback=table_parser("filters", "parse_host"), help="Address of the producer."
    )


@option_group
class UnconsumedOptions:
    """What a consumer group has not consumed."""

    unconsumed: str | None = option(
        "--unconsumed",
        metavar="GROUP",
        help="Messages that a consumer group has not consumed, those of its retry topics among them.",
    )


@option_group
class RowChoiceOptions(SelectionOptions, TraceOptions, UnconsumedOptions):
    """Which rows of any table."""


def read_selection(options: SelectionOptions) -> "Selection":
    """Return the filters without the times, which `with_times` adds: `last` is another time in each store."""
    from rmqinspect.tables.filters import Selection

    # The options are named like the fields that they set; times are texts yet.
    names = {one.name for one in fields(SelectionOptions)} & {one.name for one in fields(Selection)} - {
        "since",
        "until",
    }
    return Selection(
        **{name: getattr(options, name) for name in names},
        in_queues=options.queue_offsets is not None,
        time_column=f"{options.time_field}_timestamp",
        unconsumed=options.unconsumed if isinstance(options, UnconsumedOptions) else None,
        lost_at_start=getattr(options, "asked_start", None),  # of `cli.lost.LostOptions`, which few commands have
    )


def with_times(
    selection: "Selection",
    options: TimeOptions,
    last_record: Callable[[], int | None],
    now: datetime | None = None,
) -> "Selection":
    """Return the selection with --since and --until; both share the set of topics seen.

    `last_record` returns the store time of the last record, in microseconds.

    :raises click.BadParameter: a time that cannot be parsed.
    """
    moment = now or datetime.now(UTC)
    since = read_time("since", options.since, options.zone, last_record, moment)
    until = read_time("until", options.until, options.zone, last_record, moment)
    return replace(selection, since=since, until=until)


def read_time(
    name: str,
    text: str | None,
    zone: tzinfo,
    last_record: Callable[[], int | None] = lambda: None,
    now: datetime | None = None,
) -> int | None:
    """Return the time of the option `name` in microseconds, None without one; `last_record` as in `with_times`.

    :raises click.BadParameter: it cannot be parsed.
    """
    try:
        return None if text is None else parse_time(text, zone, lambda: now or datetime.now(UTC), last_record)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint=f"--{name}") from error

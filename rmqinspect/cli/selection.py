"""The options that choose rows, and the filters made of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.completion import complete_topics
from rmqinspect.cli.options import ZoneOptions
from rmqinspect.cli.parameters import filter_parser, option
from rmqinspect.text import escape
from rmqinspect.times import parse_time

if TYPE_CHECKING:
    from rmqinspect.rocksdb.unpack import Unpacking
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class TopicOptions(TopicNameOptions):
    """Which queues."""

    queue_id: int | None = option("--queue", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Queue id.")
    system_topics: bool = option(
        "--system-topics/--no-system-topics", default=True, help="Default: with the broker's own topics."
    )


@dataclass(frozen=True, kw_only=True)
class TimeOptions(ZoneOptions):
    """Which times; `with_times` reads them."""

    since: str | None = option(
        "--since",
        metavar="TIME",
        help="From TIME on: ISO 8601, epoch ms, yyyy-MM-dd#HH:mm:ss:SSS, -2h, last-5m, now.",
    )
    until: str | None = option("--until", metavar="TIME", help="Before TIME.")


@dataclass(frozen=True, kw_only=True)
class SelectionOptions(TopicOptions, TimeOptions):
    """Which messages. `read_selection` and `with_times` make a Selection of it."""

    queue_offsets: tuple[int, int] | None = option(
        "--queue-offset",
        metavar="A[..B]",
        callback=filter_parser("parse_range"),
        help="Logical offset in the queue.",
    )
    offsets: tuple[int, int] | None = option(
        "--offset", metavar="A[..B]", callback=filter_parser("parse_range"), help="Physical offset in the commit log."
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
        callback=filter_parser("parse_property"),
        help="Property; if repeated, all must match.",
    )
    body_text: str | None = option("--body-contains", metavar="TEXT", help="Text in the body.")
    body_bytes: bytes | None = option(
        "--body-bytes", metavar="HEX", callback=filter_parser("parse_bytes"), help="Bytes in the body, as hex digits."
    )
    time_field: str = option(
        "--time-field",
        type=click.Choice(("store", "born")),
        default="store",
        show_default=True,
        help="Timestamp that --since and --until compare.",
    )
    host: tuple[str, int | None] | None = option(
        "--host", metavar="IP[:PORT]", callback=filter_parser("parse_host"), help="Address of the producer."
    )


@dataclass(frozen=True, kw_only=True)
class UnconsumedOptions:
    """What a consumer group has not consumed."""

    unconsumed: str | None = option(
        "--unconsumed",
        metavar="GROUP",
        help="Messages that a consumer group has not consumed, those of its retry topics among them.",
    )


@contextmanager
def with_offsets(
    stores: "Sequence[Store]", options: UnconsumedOptions, unpacking: "Unpacking"
) -> "Iterator[Sequence[Store]]":
    """Give the stores with what queue offsets and `--unconsumed` need of their RocksDB databases, until the block ends.

    :raises NothingFound: no store has an offset of the group.
    """
    in_queue = isinstance(options, SelectionOptions) and read_selection(options).needs_queues
    if options.unconsumed is None and not in_queue:
        yield stores
        return
    from rmqinspect.find.consumers import expect_group
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.tables.groups import GROUPS
    from rmqinspect.tables.table import QUEUE_DATABASES

    databases = QUEUE_DATABASES if options.unconsumed is None else GROUPS.databases
    with ExitStack() as copies:
        whole = [copies.enter_context(unpacked(store, unpacking, databases)) for store in stores]
        if options.unconsumed is not None:
            expect_group(whole, options.unconsumed)
        yield whole


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

    def micros(name: str, text: str | None) -> int | None:
        try:
            return None if text is None else parse_time(text, options.zone, lambda: moment, last_record)
        except ValueError as error:
            raise click.BadParameter(escape(str(error)), param_hint=f"--{name}") from error

    return replace(selection, since=micros("since", options.since), until=micros("until", options.until))

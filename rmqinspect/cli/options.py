"""Options that mean the same in every command, and what is made of them.

Texts become values here (`ValueError` of a parser is a usage error); nothing of Arrow is imported
before an option really needs it.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqinspect.text import escape, parse_size
from rmqinspect.times import parse_time, parse_zone

if TYPE_CHECKING:
    from rmqinspect.output import View
    from rmqinspect.tables.filters import Selection

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FORMAT_NAMES = ("table", "jsonl", "json", "csv", "parquet", "arrow")
_SUFFIXES = {f".{name}": name for name in FORMAT_NAMES if name != "table"}
_BINARY_FORMATS = ("parquet", "arrow")


def _parse_range(text: str) -> tuple[int, int]:
    from rmqinspect.tables.filters import parse_range

    return parse_range(text)


def _parse_host(text: str) -> tuple[str, int | None]:
    from rmqinspect.tables.filters import parse_host

    return parse_host(text)


def _parse_redaction(text: str) -> object:
    from rmqinspect.tables.redact import parse_redaction

    return parse_redaction(text)


def _parse_property(text: str) -> tuple[str, str | None]:
    from rmqinspect.tables.filters import parse_property

    return parse_property(text)


def _parse_offset(text: str) -> int:
    from rmqinspect.tables.filters import parse_offset

    return parse_offset(text)


def _reader(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that reads the text, or each of several, with `parse`."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(map(parse, value))
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(escape(str(error)), ctx, param) from error

    return read


_read_range = _reader(_parse_range)


def _bound_reads(ctx: click.Context, param: click.Parameter, text: str | None) -> None:
    from rmqinspect.system.throttle import ReadRate, bound_reads

    rate = _reader(parse_size)(ctx, param, text)
    if rate == 0:
        raise click.BadParameter("at 0 nothing is ever read", ctx, param)
    bound_reads(None if rate is None or ctx.resilient_parsing else ReadRate(rate))


def _complain_of_settings(ctx: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Say which sizes in a broker.conf are none: a broker takes its default for them, without a word.

    Source: MixAll#properties2Object, which ignores what cannot be parsed.
    """
    if path is None or ctx.resilient_parsing:
        return path
    from rmqinspect.store.broker_conf import odd_settings

    for name, value in odd_settings(path):
        click.echo(escape(f"{path}: {name} = {value[:80]}: no positive number, not used"), err=True)
    return path


_OUTPUT = (
    click.option(
        "-f",
        "--format",
        "format_",
        type=click.Choice(FORMAT_NAMES),
        help="Default: what the name given with -o ends in, else table.",
    ),
    click.option("-o", "--output", type=click.Path(dir_okay=False), help="A new file; it appears when it is whole."),
    click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N rows."),
    click.option("--columns", metavar="A,B|all", help="Which columns, in which order."),
    click.option(
        "--body",
        type=click.Choice(("full", "preview", "none")),
        help="How much of the bodies. Default: preview in the table view, else full.",
    ),
)

_VALUES = (
    click.option("--raw-body", is_flag=True, help="Bodies as they are stored, not decompressed."),
    click.option(
        "--max-body",
        metavar="SIZE",
        callback=_reader(parse_size),
        default="64MiB",
        show_default=True,
        help="Larger bodies stay compressed.",
    ),
    click.option(
        "--redact",
        metavar="WORDS",
        callback=_reader(_parse_redaction),
        help="Hide body,keys,tags,properties,hosts; keys=hash:KEYFILE gives keyed hashes instead.",
    ),
)

_LOOKS = (
    click.option(
        "--tz",
        "zone",
        metavar="ZONE",
        callback=_reader(parse_zone),
        default="UTC",
        show_default=True,
        help="Zone of the times printed, and of times given without one.",
    ),
    click.option(
        "--color",
        type=click.Choice(("auto", "always", "never")),
        default="auto",
        help="Default auto: on a terminal, unless NO_COLOR is set.",
    ),
)

_FILTERS = (
    click.option("-t", "--topic", "topics", multiple=True, metavar="GLOB", help="Repeat for more."),
    click.option("--queue", "queue_id", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Queue id."),
    click.option(
        "--queue-offset",
        "queue_offsets",
        metavar="A[..B]",
        callback=_read_range,
        help="Logical offset in the queue.",
    ),
    click.option(
        "--offset",
        "offsets",
        metavar="A[..B]",
        callback=_read_range,
        help="Physical offset in the commit log.",
    ),
    click.option("--tag", "tags", multiple=True, metavar="TAG"),
    click.option("-k", "--key", "keys", multiple=True, metavar="KEY", help="One of the record's keys."),
    click.option("--id", "ids", multiple=True, metavar="ID", help="Message id or offset message id."),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="NAME[=VALUE]",
        callback=_reader(_parse_property),
        help="Repeat: all must hold.",
    ),
    click.option("--body-contains", "body_text", metavar="TEXT"),
    click.option(
        "--since",
        metavar="TIME",
        help="Included. ISO 8601, epoch ms, yyyy-MM-dd#HH:mm:ss:SSS, -2h, last-5m, now.",
    ),
    click.option("--until", metavar="TIME", help="Excluded."),
    click.option(
        "--time-field",
        type=click.Choice(("store", "born")),
        default="store",
        show_default=True,
        help="The clock that --since and --until mean.",
    ),
    click.option("--host", metavar="IP[:PORT]", callback=_reader(_parse_host), help="The producer's address."),
    click.option("--system-topics/--no-system-topics", default=True, help="Default: with the broker's own topics."),
)

_TALK = (
    click.option("-q", "--quiet", is_flag=True, help="No remarks on stderr, only errors."),
    click.option("-v", "--verbose", count=True, help="More remarks; -vv: where a bug is."),
    click.option("--progress/--no-progress", default=None, help="Default: when stderr is a terminal."),
)

_SOURCE = (
    click.option(
        "--config",
        type=click.Path(dir_okay=False),
        metavar="BROKER.CONF",
        callback=_complain_of_settings,
        help="Sizes and paths; otherwise they are inferred.",
    ),
    click.option(
        "--base",
        metavar="OFFSET",
        callback=_reader(_parse_offset),
        help="Physical offset at which a loose segment begins.",
    ),
    click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes. Default: cores, at most 4."),
    click.option(
        "--read-rate",
        metavar="SIZE",
        callback=_bound_reads,
        expose_value=False,
        help="Read at most so many bytes a second (200M), and leave the page cache as it was.",
    ),
)

_VERDICT = (
    click.option(
        "--fail-on",
        type=click.Choice(("error", "warning", "never")),
        default="error",
        show_default=True,
        help="What makes the exit status 3.",
    ),
)


def _adder(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Decorated], Decorated]:
    def add(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return add


output_options = _adder(_OUTPUT + _VALUES)
"""-f -o -n --columns --body --raw-body --max-body --redact: for commands that print rows of a table."""
value_options = _adder(_VALUES)
"""--raw-body --max-body --redact: what stands in the cells, for commands with an output of their own."""
look_options = _adder(_LOOKS)
"""--tz --color."""
filter_options = _adder(_FILTERS)
"""Which rows; `read_selection` makes a Selection of them."""
talk_options = _adder(_TALK)
"""-q -v --progress."""
source_options = _adder(_SOURCE)
"""--config --base -j --read-rate; the last is in force as soon as it is read, for all processes."""
verdict_options = _adder(_VERDICT)
"""--fail-on."""


def choose_format(options: Mapping[str, Any]) -> str:
    """Return the output format.

    :raises click.UsageError: it is a binary one, and stdout is a terminal.
    """
    path: str | None = options["output"]
    by_name = _SUFFIXES.get(os.path.splitext(path or "")[1].lower(), "table")
    format_: str = options["format_"] or by_name
    if format_ in _BINARY_FORMATS and path in (None, "-") and sys.stdout.isatty():
        raise click.UsageError(f"{format_} is not for a terminal: give -o PATH, or a pipe.")
    return format_


def use_colour(choice: str, path: str | None = None) -> bool:
    """Tell whether output to `path` (None: stdout) is coloured; `choice` is the value of --color."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return path in (None, "-") and sys.stdout.isatty()


def terminal_width(path: str | None = None) -> int | None:
    """Return the width of the terminal that output to `path` (None: stdout) appears on, if it is one."""
    if path not in (None, "-") or not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def read_view(options: Mapping[str, Any], format_: str) -> "View":
    """Return how rows are to be shown."""
    from rmqinspect.output import PREVIEW_SIZE, View

    redaction = options["redact"]
    return View(
        zone=options["zone"],
        colour=use_colour(options["color"], options["output"]),
        width=terminal_width(options["output"]),
        preview=PREVIEW_SIZE if body_choice(options, format_) == "preview" else None,
        redacted=redaction.words if redaction else (),
    )


def body_choice(options: Mapping[str, Any], format_: str) -> str:
    """Return `full`, `preview` or `none`."""
    chosen: str | None = options["body"]
    return chosen or ("preview" if format_ == "table" else "full")


def read_selection(options: Mapping[str, Any]) -> "Selection":
    """Return the filters without the times; `with_times` adds them, because `last` depends on the store."""
    from rmqinspect.tables.filters import Selection

    return Selection(
        topics=options["topics"],
        queue_id=options["queue_id"],
        queue_offsets=options["queue_offsets"],
        offsets=options["offsets"],
        tags=options["tags"],
        keys=options["keys"],
        ids=options["ids"],
        properties=options["properties"],
        body_text=options["body_text"],
        time_column=f"{options['time_field']}_timestamp",
        host=options["host"],
        system_topics=options["system_topics"],
    )


def with_times(
    selection: "Selection",
    options: Mapping[str, Any],
    last_record: Callable[[], int | None],
    now: datetime | None = None,
) -> "Selection":
    """Return the selection with --since and --until; it shares the memory of topics.

    `last_record` gives the store time of the last record, in microseconds.

    :raises click.BadParameter: a time that cannot be read.
    """
    from dataclasses import replace

    moment = now or datetime.now(UTC)
    times: dict[str, int | None] = {}
    for name in ("since", "until"):
        text: str | None = options[name]
        try:
            times[name] = None if text is None else parse_time(text, options["zone"], lambda: moment, last_record)
        except ValueError as error:
            raise click.BadParameter(escape(str(error)), param_hint=f"--{name}") from error
    return replace(selection, since=times["since"], until=times["until"])


def refuse_equal_names(names: Sequence[str], way_out: str = "") -> None:
    """Make sure that each store has a name of its own; `way_out` says how to give one.

    :raises click.UsageError: the rows of two would look alike.
    """
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"Two stores are called {escape(name)!r}: their rows would look alike.{way_out}")


def count_jobs(options: Mapping[str, Any]) -> int:
    """Return the number of processes: -j, else the cores this process may use, at most 4."""
    from rmqinspect.system.workers import default_jobs

    return options["jobs"] or default_jobs()

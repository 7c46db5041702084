"""The options that commands share, in groups: each declared once, as a field (`cli/parameters.py`); what they mean.

Arrow is imported only when an option needs it, so that `--help` stays fast.
"""

import os
import sys
from collections.abc import Iterable
from datetime import tzinfo
from typing import TYPE_CHECKING, TypedDict

import click

from rmqinspect.cli import NO_PAGER, go_without_pager
from rmqinspect.cli.parameters import (
    RemarkOptions,
    argument,
    option,
    option_group,
    parsed_by,
    size_option,
    table_parser,
)
from rmqinspect.errors import Unreadable
from rmqinspect.text import describe_size, escape, parse_size
from rmqinspect.times import parse_zone

if TYPE_CHECKING:
    from rmqinspect.fleet.given import Given
    from rmqinspect.rocksdb.unpack import Unpacking
    from rmqinspect.store.model import Store
    from rmqinspect.tables.redact import Redaction

FORMAT_NAMES = ("table", "jsonl", "json", "csv", "parquet", "arrow")
METRIC_FORMAT_NAMES = (*FORMAT_NAMES, "openmetrics")
_SUFFIXES = {f".{name}": name for name in FORMAT_NAMES if name != "table"}
PATH = click.Path(readable=False)  # a shell completes it; what cannot be read is not wrong usage but status 4
_SLOWEST = 1_000_000  # bytes a second that --read-rate takes without a unit: less is probably meant in MB
_BINARY_FORMATS = ("parquet", "arrow")


def _limit_reads(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Put the limit in force for all threads."""
    from rmqinspect.system.workers import ReadRate, bound_reads

    rate: int | None = parsed_by(parse_size)(ctx, param, text)
    if rate == 0:
        raise click.BadParameter("must be more than 0 bytes a second", ctx, param)
    if rate is not None and rate < _SLOWEST and str(text).strip().isdigit():
        raise click.BadParameter(
            f"{rate} bytes a second? Give a unit: {rate}M for megabytes, {rate}B for bytes", ctx, param
        )
    bound_reads(None if rate is None or ctx.resilient_parsing else ReadRate(rate))
    return rate


def _warn_of_settings(ctx: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Warn of sizes in a broker.conf that are not numbers: a broker silently uses its default for them.

    Source: MixAll#properties2Object, which ignores values it cannot parse.
    """
    if path is None or ctx.resilient_parsing:
        return path
    from rmqinspect.store.broker_conf import odd_settings

    for name, value in odd_settings(path):
        click.echo(escape(f"{path}: {name} = {value[:80]}: not a positive number, ignored"), err=True)
    return path


# --- parts that commands share ------------------------------------------------------------------------


class Opening(TypedDict):
    """Arguments of `store.discover.open_store`."""

    config: str | None
    base: int | None
    max_config: int


@option_group
class ReadOptions:
    """How stores are read."""

    config: str | None = option(
        "--config",
        type=click.Path(dir_okay=False),
        metavar="BROKER.CONF",
        callback=_warn_of_settings,
        help="Take file sizes and paths from a broker configuration. Default: inferred.",
    )
    base: int | None = option(
        "--base",
        metavar="OFFSET",
        callback=table_parser("filters", "parse_offset"),
        help="Physical offset of the first byte of a loose segment.",
    )
    read_rate: int | None = option(
        "--read-rate",
        metavar="SIZE",
        callback=_limit_reads,
        help="Read at most SIZE a second (200M: 200 MB) and leave the page cache as it was.",
    )
    max_config: int = size_option(
        "--max-config",
        "13MiB",
        "Do not read JSON files in config/ of more than SIZE: each takes ten times its size in memory.",
    )

    @property
    def opening(self) -> Opening:
        """The options of `open_store`."""
        return {"config": self.config, "base": self.base, "max_config": self.max_config}

    def words_for(self, shown_paths: Iterable[str]) -> tuple[str, ...]:
        """Return what names a store in a command: its paths, and the options that it was opened with."""
        from rmqinspect.store.discover import option_words

        return (*shown_paths, *option_words(**self.opening))


@option_group
class SourceOptions(ReadOptions):
    """What is read."""

    paths: tuple[str, ...] = argument("STORE...", type=PATH)

    def __post_init__(self) -> None:
        if not self.paths and not self.config:
            raise click.UsageError("Missing argument: give a path, or --config.", click.get_current_context())


@option_group
class ManySourceOptions(SourceOptions):
    """Stores that are read, given as words or in a list: `paths` has both."""

    stores_from: str | None = option(
        "--stores-from",
        type=click.Path(dir_okay=False, readable=False, allow_dash=True),
        metavar="FILE",
        help="Read the stores in FILE, too (-: stdin): a STORE or NAME=STORE a line; # begins a comment.",
    )

    def __post_init__(self) -> None:
        if self.stores_from is not None:
            object.__setattr__(self, "paths", (*self.paths, *_read_stores(self.stores_from)))
            object.__setattr__(self, "stores_from", None)  # a copy of these options reads nothing again
        super().__post_init__()


def _read_stores(path: str) -> list[str]:
    """Return what a list of stores names.

    :raises Unreadable: it cannot be read.
    :raises click.BadParameter: it is no such list.
    """
    from rmqinspect.fleet.given import MOST_LISTED, listed_stores

    try:
        with click.open_file(path, "rb") as file:
            content = file.read(MOST_LISTED + 1)
        if len(content) > MOST_LISTED:
            raise ValueError(f"not a list of stores: more than {describe_size(MOST_LISTED)}")
        return listed_stores(content)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise click.BadParameter(f"{escape(path)}: {error}", param_hint="--stores-from") from error


@option_group
class NamedSourceOptions(ManySourceOptions):
    """Stores that are read, such as the brokers of a cluster; each may be given a name."""

    paths: tuple[str, ...] = argument("[NAME=]STORE...", type=PATH)


@option_group
class CarveOptions:
    """Whether what is given is no store."""

    carve: bool = option(
        "--carve",
        is_flag=True,
        help="Search files for records at any byte: disk images, block devices, core dumps.",
    )


@option_group
class RocksdbOptions:
    """Whether and where RocksDB is read."""

    rocksdb: bool | None = option(
        "--rocksdb/--no-rocksdb",
        default=None,
        help="Read queues, timers and configuration in RocksDB, from a private copy. Default: if the extra is there.",
    )
    rocksdb_copy: str | None = option(
        "--rocksdb-copy",
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Make the private copy in DIR; it is removed afterwards. Default: $TMPDIR.",
    )

    @property
    def unpacking(self) -> "Unpacking":
        """The same for `rocksdb.unpack`."""
        from rmqinspect.rocksdb.unpack import Unpacking

        return Unpacking(self.rocksdb, self.rocksdb_copy)


@option_group
class JobOptions:
    """How many threads read."""

    jobs: int | None = option(
        "-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Threads. Default: CPU cores, at most 4."
    )


@option_group
class ZoneOptions:
    """Times."""

    zone: tzinfo = option(
        "--tz",
        metavar="ZONE",
        callback=parsed_by(parse_zone),
        default="UTC",
        show_default=True,
        help="Time zone of printed times, and of times given without one.",
    )


@option_group
class ColorOptions:
    """What a screen looks like on a terminal."""

    color: str = option(
        "--color",
        type=click.Choice(("auto", "always", "never")),
        default="auto",
        help="Default: auto, which is on a terminal unless NO_COLOR is set.",
    )
    no_pager: bool = option(
        "--no-pager",
        is_flag=True,
        is_eager=True,
        callback=go_without_pager,
        help=NO_PAGER,
    )


@option_group
class LookOptions(ZoneOptions, ColorOptions):
    """How a screen looks."""


@option_group
class TalkOptions(RemarkOptions):
    """What goes to stderr."""

    progress: bool | None = option("--progress/--no-progress", default=None, help="Default: when stderr is a terminal.")


@option_group
class CaseOptions:
    """What a document says of itself, in its object `run`."""

    case: str | None = option("--case", metavar="TEXT", help="Name the case in the documents that are written.")
    examiner: str | None = option("--examiner", metavar="TEXT", help="Name the examiner in them, too.")


@option_group
class FileOptions(CaseOptions):
    """Where the output goes."""

    output: str | None = option(
        "-o", "--output", type=click.Path(dir_okay=False), help="Write a new file; it appears when it is complete."
    )
    sums: bool = option(
        "--sums", is_flag=True, help="Write FILE.sha256 beside each file that is written, for sha256sum -c."
    )


@option_group
class DocumentOptions(FileOptions):
    """A screen for people, or one JSON document."""

    format: str | None = option(
        "-f", "--format", type=click.Choice(("table", "json")), help="Default: the suffix of the -o file, else table."
    )


@option_group
class DocumentsOptions(DocumentOptions):
    """A screen for people, or a JSON document for each store."""

    format: str | None = option(
        "-f",
        "--format",
        type=click.Choice(("table", "json", "jsonl")),
        help="Default: the suffix of the -o file, else table. jsonl: a document a line, also of several stores.",
    )


@option_group
class OutputOptions(FileOptions):
    """Where rows go, and in which format."""

    format: str | None = option(
        "-f", "--format", type=click.Choice(FORMAT_NAMES), help="Default: the suffix of the -o file, else table."
    )


@option_group
class MetricOptions(OutputOptions):
    """The format of commands whose numbers a monitoring system may get."""

    format: str | None = option(
        "-f",
        "--format",
        type=click.Choice(METRIC_FORMAT_NAMES),
        help="Default: the suffix of the -o file, else table. openmetrics: for a textfile collector (*.prom).",
    )


@option_group
class BodyOptions:
    """How bodies are decoded."""

    raw_body: bool = option("--raw-body", is_flag=True, help="Bodies as stored, not decompressed.")
    max_body: int = size_option("--max-body", "64MiB", "Leave bodies compressed that decompress to more than SIZE.")


@option_group
class RedactOptions:
    """What is hidden."""

    redact: "Redaction | None" = option(
        "--redact",
        metavar="WORDS",
        callback=table_parser("redact", "parse_redaction"),
        help="Hide body,keys,tags,properties,hosts; keys=hash:KEYFILE replaces keys by keyed hashes.",
    )


@option_group
class VerdictOptions:
    """What fails the command."""

    fail_on: str = option(
        "--fail-on",
        type=click.Choice(("error", "warning", "never")),
        default="error",
        show_default=True,
        help="Lowest severity that makes the exit status 3.",
    )


@option_group
class FleetOptions(NamedSourceOptions, RocksdbOptions, JobOptions, TalkOptions):
    """What a command is run with that reads stores side by side, and tells a line of each."""


@option_group
class ReadingOptions(RocksdbOptions, JobOptions, VerdictOptions, TalkOptions):
    """What a `Session` of a command is run with."""


# --- what commands make of them -----------------------------------------------------------------------


def choose_format(options: OutputOptions) -> str:
    """Return the output format.

    :raises click.UsageError: it is binary, and stdout is a terminal.
    """
    suffix = os.path.splitext(options.output or "")[1].lower()
    usual = "openmetrics" if suffix == ".prom" and isinstance(options, MetricOptions) else "table"
    chosen = options.format or _SUFFIXES.get(suffix, usual)
    if chosen == "openmetrics":
        from rmqinspect.output.openmetrics import check_installed

        check_installed()
    if chosen in _BINARY_FORMATS and options.output in (None, "-") and sys.stdout.isatty():
        raise click.UsageError(f"{chosen} is not for a terminal: give -o PATH, or a pipe.")
    return chosen


def use_colour(choice: str, path: str | None = None) -> bool:
    """Return whether output to `path` (None: stdout) is coloured; `choice` is the value of --color."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return path in (None, "-") and sys.stdout.isatty()


def terminal_width(path: str | None = None) -> int | None:
    """Return the columns of the terminal that output to `path` (None: stdout) goes to; None without one."""
    if path not in (None, "-") or not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def given_stores(options: SourceOptions) -> "list[Given]":
    """Return the stores that a command was given, each with its words; nothing is opened.

    :raises BadOption: two have one name.
    """
    from rmqinspect.fleet.given import stores_of

    return stores_of(options.paths)


def open_named(options: SourceOptions) -> "list[Store]":
    """Open the stores of a command that takes `NAME=STORE`, each under a name that no other has.

    :raises BadOption: two have one name.
    """
    return [given.open(**options.opening) for given in given_stores(options)]


def count_jobs(options: JobOptions) -> int:
    """Return the number of threads: -j, else the cores this process may use, at most 4."""
    from rmqinspect.system.workers import default_jobs

    return options.jobs or default_jobs()

"""The options of `export`."""

from dataclasses import dataclass

import click

from rmqinspect.cli.completion import complete_tables
from rmqinspect.cli.options import (
    BodyOptions,
    JobOptions,
    LookOptions,
    NamedSourceOptions,
    RedactOptions,
    RocksdbOptions,
    TalkOptions,
    VerdictOptions,
)
from rmqinspect.cli.parameters import option
from rmqinspect.cli.selection import SelectionOptions, UnconsumedOptions
from rmqinspect.export.request import FILE_SIZE, PARTITIONS, SCHEMAS
from rmqinspect.text import escape, parse_size

_SMALLEST_FILE = 4096  # bytes of log


def _read_file_size(ctx: click.Context, param: click.Parameter, text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), ctx, param) from error
    if size < _SMALLEST_FILE:
        raise click.BadParameter(f"at least {_SMALLEST_FILE} bytes", ctx, param)
    return size


def _read_output(ctx: click.Context, param: click.Parameter, path: str) -> str:
    if path in ("", "-"):  # an unset variable of a script, and a pipe
        raise click.BadParameter(f"{path!r} is not a folder", ctx, param)
    return path


def _read_partitions(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    columns = tuple(dict.fromkeys(word.strip() for word in text.split(","))) if text is not None else ()
    for column in columns:
        if column not in PARTITIONS:
            raise click.BadParameter(f"{escape(column)!r} is not one of {', '.join(PARTITIONS)}", ctx, param)
    return columns


@dataclass(frozen=True, kw_only=True)
class ExportArguments(
    SelectionOptions,
    UnconsumedOptions,
    BodyOptions,
    RedactOptions,
    LookOptions,
    NamedSourceOptions,
    RocksdbOptions,
    JobOptions,
    VerdictOptions,
    TalkOptions,
):
    """What `export` is asked for."""

    output: str = option(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        callback=_read_output,
        help="A new or empty folder, local or on object storage (s3://bucket/folder).",
    )
    tables: tuple[str, ...] = option(
        "--table",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_tables,
        help="Table; repeatable. Default: messages.",
    )
    all: bool = option("--all", is_flag=True, help="All tables, and the findings of verify.")
    engine: str = option(
        "--engine",
        type=click.Choice(("auto", "spark", "local")),
        default="auto",
        show_default=True,
        help="What runs the parts: auto takes Spark if pyspark and Java 17 are installed. The files are the same.",
    )
    master: str | None = option(
        "--master", metavar="URL", help="Spark master. Default: $SPARK_REMOTE, $SPARK_MASTER, else local[*]."
    )
    file_size: int = option(
        "--file-size",
        metavar="SIZE",
        callback=_read_file_size,
        default=f"{FILE_SIZE >> 20}MiB",
        show_default=True,
        help="Bytes of commit log per file.",
    )
    partition_by: tuple[str, ...] = option(
        "--partition-by",
        metavar="A,B",
        callback=_read_partitions,
        help="Folders of messages by topic, day (UTC, of the store time), queue_id, store; the files keep the columns.",
    )
    schema: str = option(
        "--schema",
        type=click.Choice(SCHEMAS),
        default="native",
        show_default=True,
        help="kafka: messages with the columns of Spark's Kafka source.",
    )
    incremental: bool = option("--incremental", is_flag=True, help="Add what is new to an earlier export in DIR.")
    closed_only: bool = option("--closed-only", is_flag=True, help="Leave out the segment that is still being written.")
    replace_changed: bool = option(
        "--replace-changed", is_flag=True, help="With --incremental: export changed segments again."
    )
    overwrite: bool = option("--overwrite", is_flag=True, help="Replace an earlier export in DIR.")

"""Options and help of `export`."""

import click

from rmqinspect.choices import FILE_SIZE, PARTITIONS, SCHEMAS
from rmqinspect.cli.help_page import Command
from rmqinspect.cli.lost import LostOptions
from rmqinspect.cli.options import (
    BodyOptions,
    CaseOptions,
    LookOptions,
    NamedSourceOptions,
    ReadingOptions,
    RedactOptions,
)
from rmqinspect.cli.parameters import complete_tables, option, option_group, parsed_by, takes
from rmqinspect.cli.selection import SelectionOptions, UnconsumedOptions
from rmqinspect.cli.verbs import run
from rmqinspect.text import escape, parse_size

_SMALLEST_FILE = 4096  # bytes of log


def _parse_file_size(text: str) -> int:
    size = parse_size(text)
    if size < _SMALLEST_FILE:
        raise ValueError(f"at least {_SMALLEST_FILE} bytes")
    return size


def _parse_output(path: str) -> str:
    if path in ("", "-"):  # an unset variable of a script, and a pipe
        raise ValueError(f"{path!r} is not a folder")
    return path


def _read_partitions(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    columns = tuple(dict.fromkeys(word.strip() for word in text.split(","))) if text is not None else ()
    for column in columns:
        if column not in PARTITIONS:
            raise click.BadParameter(f"{escape(column)!r} is not one of {', '.join(PARTITIONS)}", ctx, param)
    return columns


@option_group
class ExportArguments(
    SelectionOptions,
    UnconsumedOptions,
    LostOptions,
    BodyOptions,
    RedactOptions,
    LookOptions,
    NamedSourceOptions,
    ReadingOptions,
    CaseOptions,
):
    """What `export` is asked for."""

    output: str = option(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        callback=parsed_by(_parse_output),
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
        callback=parsed_by(_parse_file_size),
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
    body: str = option(
        "--body",
        type=click.Choice(("bytes", "text")),
        default="bytes",
        show_default=True,
        help="text: the column body as text, null where it is not UTF-8.",
    )
    incremental: bool = option("--incremental", is_flag=True, help="Add what is new to an earlier export in DIR.")
    resume: bool = option(
        "--resume",
        is_flag=True,
        help="Go on with an export that was interrupted; if this run is, leave what it has finished to the next.",
    )
    skip_unreadable: bool = option(
        "--skip-unreadable",
        is_flag=True,
        help="Of several stores leave out those that cannot be read: listed in the manifest, exit status 4.",
    )
    closed_only: bool = option("--closed-only", is_flag=True, help="Leave out the segment that is still being written.")
    replace_changed: bool = option(
        "--replace-changed", is_flag=True, help="With --incremental: export changed segments again."
    )
    overwrite: bool = option("--overwrite", is_flag=True, help="Replace an earlier export in DIR.")


@click.command("export", cls=Command)
@takes(ExportArguments)
def command(arguments: ExportArguments) -> int:
    """Write tables of whole stores as Parquet, for DuckDB, pandas, Spark.

    DIR gets a folder per table, _manifest.json and, when everything is written, _SUCCESS. File names
    and rows depend only on the stores and --file-size. Damaged records are marked in the column
    status, unreadable ranges are left out; both are reported and end with exit status 3. Use
    --fail-on never in pipelines that accept them.

    \b
    Examples:
      rmqinspect export STORE -o lake
      rmqinspect export a=STORE b=STORE -o lake --all --partition-by topic,day
      rmqinspect export STORE -o lake --incremental --closed-only --fail-on never
    """
    return run("export", arguments)

"""`rmqinspect export`: tables of whole stores as Parquet files, all of them or none.

arguments -> ExportRequest -> plan of each store -> engine writes parts -> commit -> screen
                                                Ctrl-C, an error: what was written is removed
"""

import secrets
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.completion import complete_tables
from rmqinspect.cli.export_screen import bad_statuses, lost_ranges, screen
from rmqinspect.cli.options import (
    PATH,
    BodyOptions,
    JobOptions,
    LookOptions,
    RedactOptions,
    RocksdbOptions,
    SourceOptions,
    TalkOptions,
    VerdictOptions,
    count_jobs,
    refuse_equal_names,
)
from rmqinspect.cli.parameters import argument, option, takes
from rmqinspect.cli.progress import LONG_READ, Progress, least_time, running_broker
from rmqinspect.cli.selection import SelectionOptions, read_selection, with_times
from rmqinspect.cli.status import ExitStatus
from rmqinspect.errors import NotInstalled, Refused
from rmqinspect.export.request import FILE_SIZE, FINDINGS, MESSAGES, PARTITIONS, SCHEMAS, ExportRequest
from rmqinspect.system.uri import abspath
from rmqinspect.text import count, describe_size, escape, group_digits, parse_size

if TYPE_CHECKING:
    from rmqinspect.export.job import Engine, ExportResult
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.target import Target
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection

MANY_FILES = 1000  # more are announced
MOST_PARTS = 100_000  # a plan of more parts takes more memory than the export
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
    BodyOptions,
    RedactOptions,
    LookOptions,
    SourceOptions,
    RocksdbOptions,
    JobOptions,
    VerdictOptions,
    TalkOptions,
):
    """What `export` is asked for."""

    paths: tuple[str, ...] = argument("[NAME=]STORE...", type=PATH)
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


@click.command("export")
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
    from rmqinspect.export.stores import open_named_stores
    from rmqinspect.rocksdb.unpack import unpacked

    _refuse_contradictions(arguments)
    arguments = replace(arguments, engine=_choose_engine(arguments))
    started = datetime.now(UTC)
    request = _make_request(arguments)
    listed = open_named_stores(arguments.paths, **arguments.opening)
    refuse_equal_names([store.name for store in listed], " Give NAME=STORE.")
    with ExitStack() as copies:
        stores = [copies.enter_context(unpacked(store, arguments.unpacking, _databases(request))) for store in listed]
        if not arguments.quiet and not arguments.verbose:  # -v shows all remarks
            for store, before in zip(stores, listed, strict=True):
                for remark in store.remarks[len(before.remarks) :]:
                    click.echo(escape(f"{store.name}: {remark}"), err=True)
        return _export(stores, request, arguments, started)


def _databases(request: ExportRequest) -> Collection[str] | None:
    """Return which RocksDB databases are read; None: all."""
    from rmqinspect.tables.sources import databases_of

    return None if FINDINGS in request.tables else {name for table in request.tables for name in databases_of(table)}


def _export(stores: "Sequence[Store]", request: ExportRequest, arguments: ExportArguments, started: datetime) -> int:
    selections = _select(stores, request, arguments)

    from rmqinspect.export.target import Target

    evidence = [path for store in stores for path in store.paths]
    mode = "incremental" if arguments.incremental else "overwrite" if arguments.overwrite else "fresh"
    target = Target(arguments.output, mode, evidence)
    plans = _plan(stores, request, target, arguments)
    with Progress(sum(plan.size for plan in plans), arguments.progress, quiet=arguments.quiet) as progress:
        run = _Run(plans, request, selections, target, arguments, progress, started)
        return run.go()


def _refuse_contradictions(arguments: ExportArguments) -> None:
    if arguments.all and arguments.tables:
        raise click.UsageError("--all and --table contradict each other.")
    if arguments.overwrite and arguments.incremental:
        raise click.UsageError("--overwrite and --incremental contradict each other.")
    if arguments.replace_changed and not arguments.incremental:
        raise click.UsageError("--replace-changed needs --incremental.")
    if arguments.master and arguments.engine == "local":
        raise click.UsageError("--master needs --engine spark.")
    if arguments.read_rate is not None and (arguments.engine == "spark" or arguments.master):
        raise click.UsageError("--read-rate limits this process only: it needs --engine local.")
    if arguments.incremental and (relative := _relative_times(arguments)):
        raise click.UsageError(f"--incremental needs a fixed --{relative[0][0]}: an absolute time.")


def _choose_engine(arguments: ExportArguments) -> str:
    """Return the engine: for auto Spark, unless it is not there or cannot do what is asked for; a remark says why.

    :raises NotInstalled: Spark is asked for and not there.
    """
    if arguments.engine == "local":
        return "local"
    insists = arguments.engine == "spark" or arguments.master is not None
    if not insists and arguments.read_rate is not None:
        _remark(arguments, "engine local: --read-rate limits this process only")
        return "local"
    from rmqinspect.spark.session import WITHOUT, check_spark

    try:
        check_spark(arguments.master)
    except NotInstalled as error:
        if insists:
            raise
        _remark(arguments, f"{str(error).removesuffix(f'; {WITHOUT}')}. Engine local: the files are the same")
        return "local"
    return "spark"


def _remark(arguments: ExportArguments, text: str) -> None:
    if not arguments.quiet:
        click.echo(escape(text), err=True)


def _relative_times(arguments: ExportArguments) -> tuple[tuple[str, str], ...]:
    """Return those of --since and --until that are relative (`-2h`, `last-5m`, `now`), by name."""
    given = [("since", arguments.since), ("until", arguments.until)]
    return tuple((name, text) for name, text in given if text and not text[:1].isdigit())


def _make_request(arguments: ExportArguments) -> ExportRequest:
    from rmqinspect.tables import TABLES

    known = [*TABLES, FINDINGS]
    tables = tuple(known) if arguments.all else tuple(dict.fromkeys(arguments.tables)) or (MESSAGES,)
    for name in tables:
        if name not in known:
            raise click.BadParameter(f"no table {escape(name)!r}; there are: {', '.join(known)}", param_hint="--table")
    # An incremental export may name the tables in another order.
    tables = tuple(name for name in known if name in tables)
    if MESSAGES not in tables:
        for name, given in (("--partition-by", arguments.partition_by), ("--raw-body", arguments.raw_body)):
            if given:
                raise click.UsageError(f"{name} is for the table messages.")
    relative = _relative_times(arguments)
    names = dict(relative)
    absolute = replace(
        arguments,
        since=None if "since" in names else arguments.since,
        until=None if "until" in names else arguments.until,
    )
    return ExportRequest(
        tables=tables,
        file_size=arguments.file_size,
        schema=arguments.schema,
        partition_by=arguments.partition_by,
        selection=with_times(read_selection(arguments), absolute, lambda: 0),
        redaction=arguments.redact,
        raw_body=arguments.raw_body,
        max_body=arguments.max_body,
        closed_only=arguments.closed_only,
        relative=relative,
    )


def _select(stores: "Sequence[Store]", request: ExportRequest, arguments: ExportArguments) -> "dict[str, Selection]":
    """Return the selection by store name: `last` is another time in each store."""
    from rmqinspect.export.part import schema_of
    from rmqinspect.tables.sources import last_store_time

    now = datetime.now(UTC)
    with_times(request.selection, arguments, lambda: 0, now)  # reports a time that cannot be parsed before any work
    selections = {
        store.name: with_times(request.selection, arguments, cache(partial(last_store_time, store)), now)
        for store in stores
    }
    timed = (
        next(iter(selections.values()))
        if arguments.since is None and arguments.until is None
        else replace(request.selection, since=0)
    )
    for table in request.tables:
        plain = replace(request, schema="native")  # rows are selected before their conversion
        if missing := timed.missing_columns(schema_of(table, plain)):
            raise click.UsageError(f"The table {table} has no column for {missing[0]}.")
    return selections


def _plan(
    stores: "Sequence[Store]", request: ExportRequest, target: "Target", arguments: ExportArguments
) -> "list[StorePlan]":
    from rmqinspect.export.plan import plan_store
    from rmqinspect.export.survey import survey_store

    earlier = target.earlier
    if earlier is not None and earlier.request != request.as_document():
        asked = request.as_document()
        changed = [name for name in asked if earlier.request.get(name) != asked[name]]
        raise Refused(
            f"{arguments.output}: the export there was made with different {', '.join(changed) or 'options'}; "
            "its rows and new ones would not fit together. --overwrite replaces it"
        )
    parts = sum(-(-segment.size // request.file_size) for store in stores for segment in store.segments)
    if parts > MOST_PARTS:
        raise click.BadParameter(
            f"so small a size makes {group_digits(parts)} files; the limit is {group_digits(MOST_PARTS)}",
            param_hint="--file-size",
        )
    names = {store.name for store in stores}
    for gone in [known.name for known in earlier.stores if known.name not in names] if earlier else ():
        raise Refused(f"{arguments.output}: the export there also has a store {gone}; give it as {gone}=STORE")
    replace_changed = arguments.replace_changed
    return [
        plan_store(
            store,
            survey_store(store),
            request,
            earlier,
            replace_changed=replace_changed,
            unpacking=arguments.unpacking,
        )
        for store in stores
    ]


class _Run:
    """One export: announce, write, commit, print."""

    def __init__(
        self,
        plans: "list[StorePlan]",
        request: ExportRequest,
        selections: "dict[str, Selection]",
        target: "Target",
        arguments: ExportArguments,
        progress: Progress,
        started: datetime,
    ) -> None:
        from rmqinspect.export.part import ExportSpec

        self.plans, self.request, self.target = plans, request, target
        self.arguments, self.progress, self.started = arguments, progress, started
        self.jobs = count_jobs(arguments)
        notes = {plan.store.name: _notes(plan) for plan in plans}
        # Tasks of a cluster run in another working directory.
        self.spec = ExportSpec(abspath(target.folder.path), secrets.token_hex(4), request, notes, selections)
        self.rows = 0

    def go(self) -> int:
        """Write and commit; if anything ends it before that, nothing is left behind."""
        try:
            self._announce()
            with _open_engine(self.arguments, self.jobs) as engine:
                self.progress.remark(f"engine: {engine.description}")
                self.target.begin()
                outcome = self._write(engine)
                status = self._judge(outcome)
                if status == ExitStatus.NOTHING_FOUND:
                    self.target.abandon(self.spec.run)
                    return status
                self._commit(outcome, engine)
        except BaseException:
            self.progress.clear()
            self.target.abandon(self.spec.run)
            raise
        if not self.arguments.quiet:
            for line in screen(outcome, self.plans, self.spec.request, self.target, status):
                click.echo(line)
        return status

    # --- before -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        """Print what will be done, and refuse what cannot be, before Spark takes its seconds to start."""
        from rmqinspect.export.estimate import estimate_size
        from rmqinspect.store.lock import lock_holder
        from rmqinspect.tables.sources import scans_log

        remark = self.progress.remark
        for plan in self.plans:
            for text in plan.store.remarks if self.arguments.verbose else ():
                remark(text)
            if (holder := lock_holder(plan.store)) is not None:
                remark(f"{plan.store.name}: {running_broker(holder)}")
            if not plan.store.segments and (empty := [table for table in self.request.tables if scans_log(table)]):
                remark(f"{plan.store.name}: no commit log segments: no rows of {', '.join(empty)}")
            self._announce_earlier(plan)
        need, free = estimate_size(self.plans), self.target.free
        if free is not None and need > free:
            raise Refused(
                f"{self.arguments.output}: about {describe_size(need)} are needed, {describe_size(free)} are free"
            )
        size = sum(plan.size + sum(part.split.size for part in plan.side_parts) for plan in self.plans)
        room = "" if free is None else f"; free {describe_size(free)}"
        stores = count(len(self.plans), "store")
        wait = "; waiting for Spark" if self.arguments.engine == "spark" else ""
        remark(f"{describe_size(size)} to read of {stores}, about {describe_size(need)} to write{room}{wait}")
        if size > LONG_READ:
            remark(
                "The whole log is read: messages are nowhere else. Cheaper: --offset A..B reads only that range, "
                "--incremental only what is new" + least_time(size)
            )
        self._warn_of_many_files()

    def _announce_earlier(self, plan: "StorePlan") -> None:
        if plan.known is None:
            return
        kept = sum(entry["base"] < plan.start for entry in plan.known.segments) - plan.expired - len(plan.missed)
        words = [f"{count(kept, 'segment')} already exported and unchanged (size, first and last record)"]
        words += [
            f"segment {base} is gone from the log's end; its rows are removed"
            if base in plan.cut
            else f"segment {base} has changed, or was not read completely, and is exported again"
            for base in plan.replaced
        ]
        if plan.expired:
            words.append(
                f"{count(plan.expired, 'segment')} of the earlier export no longer in the store; their rows are kept"
            )
        self.progress.remark(f"{plan.store.name}: {'; '.join(words)}")

    def _warn_of_many_files(self) -> None:
        """Announce an impractical number of files before hours of work."""
        files = 0
        for plan in self.plans:
            queues = plan.store.queue_files
            topics, ids = {file.topic for file in queues}, {file.queue_id for file in queues}
            values = {"topic": len(topics), "queue_id": len(ids)}
            widths = [values.get(column, 1) for column in self.request.partition_by]
            files += sum(part.writes for part in plan.parts) * max([1, *widths])
        if self.request.partition_by and files > MANY_FILES:
            self.progress.remark(
                f"--partition-by {','.join(self.request.partition_by)}: expect at least {group_digits(files)} "
                "files; a larger --file-size or another column makes fewer"
            )

    # --- the work ---------------------------------------------------------------------------------

    def _write(self, engine: "Engine") -> "ExportResult":
        from rmqinspect.export.job import run_export

        return run_export(self.plans, self.spec, engine, self._advance, self.jobs)

    def _advance(self, size: int, rows: int) -> None:
        self.rows += rows
        self.progress.note = count(self.rows, "row")
        self.progress(size)

    def _commit(self, outcome: "ExportResult", engine: "Engine") -> None:
        from rmqinspect.export.manifest import describe_run

        if outcome.nothing_new and self.target.earlier is not None and not self._replaces(outcome):
            self.target.keep()
            return
        packages = ["pyarrow", *(["pyspark"] if engine.name == "spark" else [])]
        outcome.manifest.run = describe_run(["rmqinspect", *sys.argv[1:]], engine.name, self.started, packages)
        self.target.commit(outcome.manifest, outcome.names)

    def _replaces(self, outcome: "ExportResult") -> bool:
        """Return whether files of the earlier export are removed although none is added."""
        earlier = self.target.earlier
        return earlier is not None and {file.name for file in earlier.files} != {
            file.name for file in outcome.manifest.files
        }

    # --- after ------------------------------------------------------------------------------------

    def _judge(self, outcome: "ExportResult") -> ExitStatus:
        manifest = outcome.manifest
        for result in outcome.results:
            for message in dict.fromkeys(result.unread):
                self.progress.complain(message)
        unmatched = self._unmatched(outcome)
        nothing = bool(unmatched) and not any(file.rows for file in manifest.files)
        bad = bool(bad_statuses(manifest) or lost_ranges(manifest, self.request))
        if bad and not nothing and self.arguments.fail_on != "never":
            return ExitStatus.DAMAGE
        if not manifest.complete:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if nothing else ExitStatus.DONE

    def _unmatched(self, outcome: "ExportResult") -> list[str]:
        if self.target.earlier is not None:
            return []  # the new rows need not have every topic
        seen = replace(self.request.selection, topics_seen=outcome.topics)
        unmatched = seen.unmatched_topics()
        for pattern in unmatched:
            near = ", ".join(seen.near_topics(pattern))
            self.progress.complain(f"no topic matches {pattern}" + (f"; near: {near}" if near else ""))
        return unmatched


def _notes(plan: "StorePlan") -> dict[str, str]:
    """Return the metadata of each file of a store."""
    from rmqinspect.system.uri import shown

    return {
        "store_paths": " ".join(map(shown, plan.store.paths)),
        "broker_versions": " ".join(plan.releases),
    }


@contextmanager
def _open_engine(arguments: ExportArguments, jobs: int) -> "Iterator[Engine]":
    if arguments.engine == "spark":
        from rmqinspect.spark import spark_engine

        with spark_engine(arguments.master, verbose=bool(arguments.verbose)) as engine:
            yield engine
        return
    from rmqinspect.export.job import local_engine

    yield local_engine(jobs)

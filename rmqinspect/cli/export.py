"""`rmqinspect export`: tables of whole stores as Parquet files, whole or not there at all."""

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.export_screen import bad_statuses, lost_ranges, screen
from rmqinspect.cli.options import (
    count_jobs,
    filter_options,
    look_options,
    read_selection,
    refuse_equal_names,
    source_options,
    talk_options,
    value_options,
    verdict_options,
    with_times,
)
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.status import ExitStatus
from rmqinspect.errors import Refused
from rmqinspect.export.request import FILE_SIZE, FINDINGS, MESSAGES, PARTITIONS, SCHEMAS, ExportRequest
from rmqinspect.system.throttle import read_bound
from rmqinspect.system.uri import abspath
from rmqinspect.text import count, describe_size, escape, group_digits, parse_size

if TYPE_CHECKING:
    from rmqinspect.export.job import Engine, ExportResult
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.target import Target
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection

MANY_FILES = 1000
MOST_PARTS = 100_000  # a plan of more takes more memory than the reading
_SMALLEST_FILE = 4096  # bytes of log
_OF_SEGMENTS = (MESSAGES, "segments", "gaps")


def _read_file_size(ctx: click.Context, param: click.Parameter, text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), ctx, param) from error
    if size < _SMALLEST_FILE:
        raise click.BadParameter(f"at least {_SMALLEST_FILE} bytes", ctx, param)
    return size


def _read_output(ctx: click.Context, param: click.Parameter, path: str) -> str:
    if path in ("", "-"):  # what a script makes of a variable that is not set, and a pipe, which has no folders
        raise click.BadParameter(f"{path!r} is no folder", ctx, param)
    return path


def _read_partitions(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    columns = tuple(dict.fromkeys(word.strip() for word in text.split(","))) if text is not None else ()
    for column in columns:
        if column not in PARTITIONS:
            raise click.BadParameter(f"{escape(column)!r} is none of {', '.join(PARTITIONS)}", ctx, param)
    return columns


@click.command("export")
@click.argument("paths", nargs=-1, metavar="[NAME=]STORE...", type=click.Path(readable=False))
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    required=True,
    callback=_read_output,
    help="A new or empty folder, here or on object storage (s3://bucket/folder).",
)
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Repeat for more. Default: messages.")
@click.option("--all", "all_", is_flag=True, help="All tables, and the findings of verify.")
@click.option(
    "--engine",
    type=click.Choice(("spark", "local")),
    default="spark",
    show_default=True,
    help="What runs the parts; local needs no Java.",
)
@click.option("--master", metavar="URL", help="Of Spark. Default: $SPARK_REMOTE, $SPARK_MASTER, else local[*].")
@click.option(
    "--file-size",
    metavar="SIZE",
    callback=_read_file_size,
    default=f"{FILE_SIZE >> 20}MiB",
    show_default=True,
    help="Bytes of commit log in one file.",
)
@click.option(
    "--partition-by",
    metavar="A,B",
    callback=_read_partitions,
    help="Folders of messages by topic, day (UTC, of the store time), queue_id, store; the columns stay in the files.",
)
@click.option(
    "--schema",
    type=click.Choice(SCHEMAS),
    default="native",
    show_default=True,
    help="kafka: messages as Spark's Kafka source gives them.",
)
@click.option("--incremental", is_flag=True, help="Add what is new to an earlier export in DIR.")
@click.option("--closed-only", is_flag=True, help="Leave out the segment that is still written.")
@click.option(
    "--replace-changed", is_flag=True, help="With --incremental: export segments again that are not what they were."
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier export in DIR.")
@filter_options
@value_options
@look_options
@source_options
@verdict_options
@talk_options
def command(paths: tuple[str, ...], **options: Any) -> int:
    """Tables of whole stores as Parquet: for DuckDB, pandas, Spark.

    DIR gets a folder for each table, _manifest.json and, when all is there, _SUCCESS. File names and
    rows depend on the stores and --file-size alone. Damage is left out or marked in the column
    status, said, and ends with exit status 3; --fail-on never is for pipelines.

    \b
    Examples:
      rmqinspect export STORE -o lake --engine local
      rmqinspect export a=STORE b=STORE -o lake --all --partition-by topic,day
      rmqinspect export STORE -o lake --incremental --closed-only --fail-on never
    """
    _refuse_contradictions(paths, options)
    if options["engine"] == "spark":
        from rmqinspect.spark.session import check_spark

        check_spark(options["master"])
    started = datetime.now(UTC)
    stores = _open_stores(paths, options)
    request = _read_wish(options)
    selections = _select(stores, request, options)

    from rmqinspect.export.target import Target

    evidence = [path for store in stores for path in store.paths]
    mode = "incremental" if options["incremental"] else "overwrite" if options["overwrite"] else "fresh"
    target = Target(options["output"], mode, evidence)
    plans = _plan(stores, request, target, options)
    with Progress(sum(plan.size for plan in plans), options["progress"], quiet=options["quiet"]) as progress:
        run = _Run(plans, request, selections, target, options, progress, started)
        return run.go()


def _refuse_contradictions(paths: Sequence[str], options: dict[str, Any]) -> None:
    if not paths and not options["config"]:
        raise click.UsageError("Missing argument '[NAME=]STORE...'.")
    if options["all_"] and options["tables"]:
        raise click.UsageError("--all and --table contradict each other.")
    if options["overwrite"] and options["incremental"]:
        raise click.UsageError("--overwrite and --incremental contradict each other.")
    if options["replace_changed"] and not options["incremental"]:
        raise click.UsageError("--replace-changed only means something with --incremental.")
    if options["master"] and options["engine"] == "local":
        raise click.UsageError("--master is for --engine spark.")
    if read_bound() is not None and options["engine"] == "spark":
        raise click.UsageError("--read-rate bounds processes of this machine: it needs --engine local.")
    if options["incremental"] and (relative := _relative_times(options)):
        raise click.UsageError(f"--incremental needs a --{relative[0][0]} that stays the same: an absolute time.")


def _relative_times(options: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return --since and --until, by name, where they are no time of their own: `-2h`, `last-5m`, `now`."""
    given = [(name, options[name]) for name in ("since", "until")]
    return tuple((name, text) for name, text in given if text and not text[:1].isdigit())


def _open_stores(paths: Sequence[str], options: dict[str, Any]) -> "list[Store]":
    """Open `STORE` and `NAME=STORE`: those without a name are taken together, as other commands take them."""
    from rmqinspect.store.discover import open_stores
    from rmqinspect.tables.splits import split_name

    named = [split_name(path) for path in paths]
    plain = [path for name, path in named if name is None]
    settings = {"config": options["config"], "base": options["base"]}
    stores = open_stores(plain, **settings) if plain or not paths else []
    for place, (name, path) in enumerate(named):
        if name is not None:
            stores.insert(place, replace(open_stores([path], **settings)[0], name=name))
    stores = [replace(one, name=_as_text(one.name)) for one in stores]
    refuse_equal_names([store.name for store in stores], " Give NAME=STORE.")
    return stores


def _read_wish(options: dict[str, Any]) -> ExportRequest:
    from rmqinspect.tables import TABLES

    known = [*TABLES, FINDINGS]
    tables = tuple(known) if options["all_"] else tuple(dict.fromkeys(options["tables"])) or (MESSAGES,)
    for name in tables:
        if name not in known:
            raise click.BadParameter(f"no table {escape(name)!r}; there are: {', '.join(known)}", param_hint="--table")
    # The order of the tables is no part of the wish: an incremental export may name them in another.
    tables = tuple(name for name in known if name in tables)
    if MESSAGES not in tables:
        for option in ("partition_by", "raw_body"):
            if options[option]:
                raise click.UsageError(f"--{option.replace('_', '-')} is for the table messages.")
    relative = _relative_times(options)
    return ExportRequest(
        tables,
        options["file_size"],
        options["schema"],
        options["partition_by"],
        with_times(read_selection(options), options | dict.fromkeys(dict(relative)), lambda: 0),
        options["redact"],
        options["raw_body"],
        options["max_body"],
        options["closed_only"],
        relative,
    )


def _select(stores: "Sequence[Store]", request: ExportRequest, options: dict[str, Any]) -> "dict[str, Selection]":
    """Return the selection of each store: `last` is another time in each."""
    from rmqinspect.export.part import schema_of
    from rmqinspect.tables.sources import last_store_time

    now = datetime.now(UTC)
    with_times(request.selection, options, lambda: 0, now)  # a time that cannot be read is told before any work
    selections = {
        store.name: with_times(request.selection, options, cache(partial(last_store_time, store)), now)
        for store in stores
    }
    timed = (
        next(iter(selections.values()))
        if options["since"] is None and options["until"] is None
        else replace(request.selection, since=0)
    )
    for table in request.tables:
        plain = replace(request, schema="native")  # rows are chosen before they change their form
        if missing := timed.missing_columns(schema_of(table, plain)):
            raise click.UsageError(f"The table {table} has no column for {missing[0]}.")
    return selections


def _plan(
    stores: "Sequence[Store]", request: ExportRequest, target: "Target", options: dict[str, Any]
) -> "list[StorePlan]":
    from rmqinspect.export.plan import plan_store

    earlier = target.earlier
    if earlier is not None and earlier.request != request.as_document():
        asked = request.as_document()
        changed = [name for name in asked if earlier.request.get(name) != asked[name]]
        raise Refused(
            f"{options['output']}: the export there was made with another {', '.join(changed) or 'wish'}; "
            "rows of both would not go together. --overwrite makes it anew"
        )
    parts = sum(-(-segment.size // request.file_size) for store in stores for segment in store.segments)
    if parts > MOST_PARTS:
        raise click.BadParameter(
            f"so small a size makes {group_digits(parts)} files; {group_digits(MOST_PARTS)} are the most",
            param_hint="--file-size",
        )
    names = {store.name for store in stores}
    for gone in [known.name for known in earlier.stores if known.name not in names] if earlier else ():
        raise Refused(f"{options['output']}: the export there has a store {gone}, too; give it as {gone}=STORE")
    return [plan_store(store, request, earlier, replace_changed=options["replace_changed"]) for store in stores]


class _Run:
    """One export: announced, written, committed, told."""

    def __init__(
        self,
        plans: "list[StorePlan]",
        request: ExportRequest,
        selections: "dict[str, Selection]",
        target: "Target",
        options: dict[str, Any],
        progress: Progress,
        started: datetime,
    ) -> None:
        from rmqinspect.export.part import Orders

        self.plans, self.request, self.target = plans, request, target
        self.options, self.progress, self.started = options, progress, started
        self.jobs = count_jobs(options)
        notes = {plan.store.name: _notes(plan) for plan in plans}
        # A task of a cluster runs in another folder.
        self.orders = Orders(abspath(target.folder.path), secrets.token_hex(4), request, notes, selections)
        self.rows = 0

    def go(self) -> int:
        """Write and commit; whatever ends it before that leaves nothing behind."""
        try:
            self._announce()
            with _open_engine(self.options, self.jobs) as engine:
                self.progress.remark(f"engine: {engine.words}")
                self.target.begin()
                outcome = self._write(engine)
                status = self._judge(outcome)
                if status == ExitStatus.NOTHING_FOUND:
                    self.target.abandon(self.orders.run)
                    return status
                self._commit(outcome, engine)
        except BaseException:
            self.progress.clear()
            self.target.abandon(self.orders.run)
            raise
        if not self.options["quiet"]:
            for line in screen(outcome, self.plans, self.orders.request, self.target, status):
                click.echo(escape(line))
        return status

    # --- before -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        """Say what is going to be done, and refuse what cannot be, before Spark takes its seconds to start."""
        from rmqinspect.export.estimate import estimate_size
        from rmqinspect.store.lock import lock_holder

        remark = self.progress.remark
        for plan in self.plans:
            for text in plan.store.remarks if self.options["verbose"] else ():
                remark(text)
            if (holder := lock_holder(plan.store)) is not None:
                remark(
                    f"{plan.store.name}: a broker runs on this store (pid {holder} holds the lock): "
                    "the files may change while they are read"
                )
            if not plan.store.segments and (empty := [table for table in self.request.tables if table in _OF_SEGMENTS]):
                remark(f"{plan.store.name}: no segment of a commit log is there: no rows of {', '.join(empty)}")
            self._announce_earlier(plan)
        need, free = estimate_size(self.plans), self.target.free
        if free is not None and need > free:
            raise Refused(
                f"{self.options['output']}: about {describe_size(need)} are needed, {describe_size(free)} are free"
            )
        size = sum(plan.size + sum(part.split.size for part in plan.side_parts) for plan in self.plans)
        room = "" if free is None else f"; free {describe_size(free)}"
        stores = count(len(self.plans), "store")
        wait = "; waiting for Spark" if self.options["engine"] == "spark" else ""
        remark(f"{describe_size(size)} to read of {stores}, about {describe_size(need)} to write{room}{wait}")
        if size > LONG_READ:
            remark(
                "All of it is read, because the messages stand nowhere else. Cheaper: --offset A..B reads only that "
                "range, --incremental only what is new" + least_time(size)
            )
        self._warn_of_many_files()

    def _announce_earlier(self, plan: "StorePlan") -> None:
        if plan.known is None:
            return
        kept = sum(entry["base"] < plan.start for entry in plan.known.segments) - plan.expired - len(plan.missed)
        words = [f"{count(kept, 'segment')} already exported and unchanged (size, first and last record)"]
        words += [
            f"segment {base} is gone from the log's end and its rows with it"
            if base in plan.cut
            else f"segment {base} has changed, or was not read whole, and is exported again"
            for base in plan.replaced
        ]
        if plan.expired:
            words.append(f"{count(plan.expired, 'segment')} of the earlier export no longer in the store, rows kept")
        self.progress.remark(f"{plan.store.name}: {'; '.join(words)}")

    def _warn_of_many_files(self) -> None:
        """Tell before hours of work that there will be more files than anybody wants to open."""
        files = 0
        for plan in self.plans:
            queues = plan.store.queue_files
            topics, ids = {file.topic for file in queues}, {file.queue_id for file in queues}
            values = {"topic": len(topics), "queue_id": len(ids)}
            widths = [values.get(column, 1) for column in self.request.partition_by]
            files += sum(part.writes for part in plan.parts) * max([1, *widths])
        if self.request.partition_by and files > MANY_FILES:
            self.progress.remark(
                f"--partition-by {','.join(self.request.partition_by)}: at least {group_digits(files)} files are to be "
                "expected; fewer with a larger --file-size or another column"
            )

    # --- the work ---------------------------------------------------------------------------------

    def _write(self, engine: "Engine") -> "ExportResult":
        from rmqinspect.export.job import run_export

        return run_export(self.plans, self.orders, engine, self._advance, self.jobs)

    def _advance(self, raw: int, rows: int) -> None:
        self.rows += rows
        self.progress.note = count(self.rows, "row")
        self.progress(raw)

    def _commit(self, outcome: "ExportResult", engine: "Engine") -> None:
        from rmqinspect.export.manifest import describe_run

        if outcome.nothing_new and self.target.earlier is not None and not self._replaces(outcome):
            self.target.keep()
            return
        packages = ["pyarrow", *(["pyspark"] if engine.name == "spark" else [])]
        outcome.manifest.run = describe_run(["rmqinspect", *sys.argv[1:]], engine.name, self.started, packages)
        self.target.commit(outcome.manifest, outcome.names)

    def _replaces(self, outcome: "ExportResult") -> bool:
        """Whether files of the earlier export go, though none comes."""
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
        if bad and not nothing and self.options["fail_on"] != "never":
            return ExitStatus.DAMAGE
        if not manifest.complete:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if nothing else ExitStatus.DONE

    def _unmatched(self, outcome: "ExportResult") -> list[str]:
        if self.target.earlier is not None:
            return []  # what is new need not have them all
        seen = replace(self.request.selection, topics_seen=outcome.topics)
        unmatched = seen.unmatched_topics()
        for pattern in unmatched:
            near = ", ".join(seen.near_topics(pattern))
            self.progress.complain(f"no topic matches {pattern}" + (f"; near: {near}" if near else ""))
        return unmatched


def _as_text(path: str) -> str:
    """Return a path that need not be text so that it can stand in a column."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _notes(plan: "StorePlan") -> dict[str, str]:
    """Return what each file of a store says of it."""
    from rmqinspect.system.uri import shown

    return {
        "store_paths": _as_text(" ".join(map(shown, plan.store.paths))),
        "broker_versions": " ".join(plan.releases),
    }


@contextmanager
def _open_engine(options: dict[str, Any], jobs: int) -> "Iterator[Engine]":
    if options["engine"] == "spark":
        from rmqinspect.spark import spark_engine

        with spark_engine(options["master"], verbose=bool(options["verbose"])) as engine:
            yield engine
        return
    from rmqinspect.export.job import LocalEngine

    yield LocalEngine(jobs)

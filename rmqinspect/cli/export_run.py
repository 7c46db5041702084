"""One export as it runs: announce, write, commit, print; whatever ends it before the commit leaves nothing behind.

The options of `export`.

The screen of `export`: rows by table, what was left out, what is damaged, one verdict.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rmqinspect.cli import ExitStatus, exit_status
from rmqinspect.cli.lost import LostOptions
from rmqinspect.cli.options import (
    BodyOptions,
    CaseOptions,
    LookOptions,
    NamedSourceOptions,
    ReadingOptions,
    RedactOptions,
    count_jobs,
)
from rmqinspect.cli.parameters import complete_tables, option, parsed_by
from rmqinspect.cli.selection import SelectionOptions, UnconsumedOptions
from rmqinspect.cli.session import tell_broker, tell_holder, tell_unmatched
from rmqinspect.cli.terminal import LONG_READ, Progress, Screen, least_time
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.export.request import FILE_SIZE, PARTITIONS, SCHEMAS, ExportRequest
from rmqinspect.system.uri import abspath, shown
from rmqinspect.text import count, describe_size, escape, group_digits, parse_size

if TYPE_CHECKING:
    from rmqinspect.export.job import Engine, ExportResult
    from rmqinspect.export.manifest import Manifest, SkippedStore
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.shared import StoresPart
    from rmqinspect.export.target import Target
    from rmqinspect.tables.filters import Selection

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


@dataclass(frozen=True, kw_only=True)
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


_SCREEN = Screen(indent=10)
_RANGES = 3  # without records, on the screen


def bad_statuses(manifest: "Manifest") -> dict[str, int]:
    """Return the number of rows by status, without those that are ok."""
    rows: dict[str, int] = {}
    for file in manifest.files:
        for status, number in file.statuses.items():
            rows[status] = rows.get(status, 0) + number
    return rows


def lost_ranges(manifest: "Manifest", request: ExportRequest) -> list[tuple[str, int, int, str]]:
    """Return (store, start, end, kind) of the ranges without records that should have some, in the range asked for."""
    first, last = request.selection.offsets or (0, 1 << 63)
    return [
        (store.name, max(start, first), min(end, last), kind)
        for store in manifest.stores
        for start, end, kind in store.lost
        if max(start, first) < min(end, last)
    ]


def screen(
    outcome: "ExportResult", plans: "Sequence[StorePlan]", request: ExportRequest, target: "Target", status: ExitStatus
) -> Iterator[str]:
    """Yield the lines of the screen."""
    manifest = outcome.manifest
    if outcome.nothing_new and target.earlier is not None:
        rows = sum(file.rows for file in manifest.files)
        yield f"nothing new: {count(rows, 'row')}, {count(len(manifest.files), 'file')} unchanged"
    new = [file for file in manifest.files if file.name in outcome.names]
    files = Screen(indent=max(_SCREEN.indent, *(len(table) + 2 for table in request.tables)))
    for table in request.tables:
        of_table = [file for file in new if file.table == table]  # the manifest has their names
        if of_table:
            tail = sum(file.is_tail for file in of_table)
            beyond = f", {group_digits(tail)} beyond the log's end" if tail else ""
            rows_of_table = count(sum(file.rows for file in of_table), "row")
            yield files.line(table, f"{rows_of_table:>14} in {count(len(of_table), 'file')}{beyond}")
    for skipped in manifest.skipped:
        yield from _SCREEN.fitted("skipped", f"{skipped.name}: {skipped.error}")
    yield from _suppressed(manifest, plans, request)
    yield from _damaged(outcome)
    yield from Screen(indent=0).fitted("", _manifest_line(manifest, request, target))
    yield from _SCREEN.fitted("VERDICT", _verdict(manifest, request, status))


def _suppressed(manifest: "Manifest", plans: "Sequence[StorePlan]", request: ExportRequest) -> Iterator[str]:
    for plan in plans if request.closed_only else ():
        segment = plan.reach.open_segment
        if segment is not None:
            size = describe_size(plan.reach.end - segment.base)
            yield from _SCREEN.fitted(
                "left out", f"segment {segment.base} of {plan.store.name} is open ({size} so far)"
            )
    lost = lost_ranges(manifest, request)
    for store, start, end, kind in lost[:_RANGES]:
        where = f"physical {group_digits(start)} to {group_digits(end)}"
        yield from _SCREEN.fitted(
            "left out", f"{count(end - start, 'byte')} of {store} without a record ({kind}), {where}"
        )
    if lost[_RANGES:]:
        yield from _SCREEN.fitted(
            "", f"and {count(len(lost) - _RANGES, 'range')} more: lost in _manifest.json, --table gaps"
        )


def _damaged(outcome: "ExportResult") -> Iterator[str]:
    firsts: dict[str, tuple[str, int]] = {}
    for result in outcome.results:
        for status, offset in result.first_bad.items():
            firsts.setdefault(status, (result.name, offset))
    for status, rows in sorted(bad_statuses(outcome.manifest).items()):
        verb = "has" if rows == 1 else "have"
        where = ""
        if status in firsts:
            store, offset = firsts[status]
            first = "" if rows == 1 else "first at "
            where = f" ({first}{store}, physical offset {group_digits(offset)})"
        yield from _SCREEN.fitted("damaged", f"{count(rows, 'row')} {verb} status {status}{where}")


def _manifest_line(manifest: "Manifest", request: ExportRequest, target: "Target") -> str:
    from rmqinspect.export.manifest import MANIFEST

    rows = sum(file.rows for file in manifest.files)
    words = [count(len(manifest.files), "file"), count(rows, "row"), f"schema {request.schema}"]
    if len(manifest.stores) == 1 and (only := manifest.stores[0]).start is not None and only.end is not None:
        complete = "complete" if manifest.complete else "incomplete"
        words.append(f"{complete} for physical {group_digits(only.start)} to {group_digits(only.end)}")
    elif len(manifest.stores) > 1:
        words.append(count(len(manifest.stores), "store"))
    return f"{shown(target.path)}/{MANIFEST}: {', '.join(words)}"


def _verdict(manifest: "Manifest", request: ExportRequest, status: ExitStatus) -> str:
    rows, lost = sum(bad_statuses(manifest).values()), lost_ranges(manifest, request)
    parts = [count(rows, "row")] if rows else []
    if lost:
        parts.append(f"{count(len(lost), 'range')} without records")
    words = f"DAMAGED: {', '.join(parts)}" if parts else "EXPORTED"
    if not manifest.complete:
        words = f"INCOMPLETE: not everything could be read; {words if parts else 'the rest was exported'}"
    if manifest.findings is not None:
        found = ", ".join(count(number, severity) for severity, number in manifest.findings.items() if number)
        words += f"; verify found {found or 'nothing'}"
    if status == ExitStatus.DAMAGE:
        words += f". Pipelines that accept {'rows marked in status' if rows else 'gaps'}: --fail-on never"
    return words


MANY_FILES = 1000  # more are announced


class ExportRun:
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
        skipped: "Sequence[SkippedStore]" = (),
        shared: "Sequence[StoresPart]" = (),
        order: Sequence[str] = (),
    ) -> None:
        from rmqinspect.export.part import ExportSpec
        from rmqinspect.export.shared import notes_of

        self.skipped = list(skipped)
        self.shared, self.order = shared, order
        self.plans, self.request, self.target = plans, request, target
        self.arguments, self.progress, self.started = arguments, progress, started
        self.jobs = count_jobs(arguments)
        # Metadata of each file of a store.
        notes = {plan.store.name: notes_of(plan.paths, plan.releases) for plan in plans}
        # Tasks of a cluster run in another working directory.
        # On object storage a record costs two requests a part: there only where it is asked for.
        records = arguments.resume or not target.folder.is_remote
        self.spec = ExportSpec(
            abspath(target.folder.path),
            secrets.token_hex(4),
            request,
            notes,
            selections,
            records=records,
            resumes=arguments.resume,
        )
        self.rows = 0

    def go(self) -> int:
        """Write and commit; if anything ends it before that, nothing is left behind."""
        from rmqinspect.cli.export_engine import open_engine
        from rmqinspect.export.job import run_export

        try:
            self._announce()
            asked = self.arguments
            with open_engine(asked.engine, asked.master, self.jobs, verbose=bool(asked.verbose)) as engine:
                self.progress.remark(f"engine: {engine.description}")
                self.target.begin()
                absent = self._absent()
                outcome = run_export(
                    self.plans, self.spec, engine, self._advance, self.jobs, absent, self.shared, self.order
                )
                self._tell_shared(outcome)
                status = self._judge(outcome)
                if outcome.taken_over:
                    self.progress.remark(f"{count(outcome.taken_over, 'part')} of an interrupted export taken over")
                if status == ExitStatus.NOTHING_FOUND:
                    self.target.abandon(self.spec.run)
                    return status
                self._commit(outcome, engine)
        except BaseException:
            self.progress.clear()
            self.target.abandon(self.spec.run)
            if self.target.resumes:
                self.progress.remark("what is finished stays: the same command goes on behind it")
            raise
        if not self.arguments.quiet:
            for line in screen(outcome, self.plans, self.spec.request, self.target, status):
                click.echo(line)
        return status

    # --- before -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        """Print what will be done, and refuse what cannot be, before Spark takes its seconds to start."""
        from rmqinspect.export.plan import estimate_size
        from rmqinspect.export.shared import without_log

        remark = self.progress.remark
        for plan in self.plans:
            for text in plan.store.remarks if self.arguments.verbose else ():
                remark(text)
            tell_broker(plan.store, remark, plan.store.name)
            for text in without_log(plan.store, self.request.tables):
                remark(text)
            self._announce_earlier(plan)
        self._announce_absent()
        need, free = estimate_size(self.plans), self.target.free
        if free is not None and need > free:
            raise Refused(
                f"{self.arguments.output}: about {describe_size(need)} are needed, {describe_size(free)} are free"
            )
        size = sum(plan.size + sum(part.split.size for part in plan.side_parts) for plan in self.plans)
        size_of_small = sum(part.size for part in self.shared)
        size, need = size + size_of_small, need + size_of_small
        room = "" if free is None else f"; free {describe_size(free)}"
        stores = count(len(self.plans) + sum(len(part.stores) for part in self.shared), "store")
        wait = "; waiting for Spark" if self.arguments.engine == "spark" else ""
        remark(f"{describe_size(size)} to read of {stores}, about {describe_size(need)} to write{room}{wait}")
        if size > LONG_READ:
            remark(
                "The whole log is read: messages are nowhere else. Cheaper: --offset A..B reads only that range, "
                "--incremental only what is new" + least_time(size)
            )
        self._warn_of_many_files()

    def _absent(self) -> "Manifest | None":
        """Return what the earlier export has of stores that this one does not read."""
        earlier, planned = self.target.earlier, {plan.store.name for plan in self.plans}
        if earlier is None:
            return None
        stores = [store for store in earlier.stores if store.name not in planned]
        names = {store.name for store in stores}
        return replace(earlier, stores=stores, files=[file for file in earlier.files if file.store in names])

    def _announce_absent(self) -> None:
        absent, skipped = self._absent(), {store.name for store in self.skipped}
        for store in absent.stores if absent is not None else ():
            why = "" if store.name in skipped else "not given: "
            self.progress.remark(f"{store.name}: {why}its rows of the earlier export stay")

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

    def _advance(self, size: int, rows: int) -> None:
        self.rows += rows
        self.progress.note = count(self.rows, "row")
        self.progress(size)

    def _commit(self, outcome: "ExportResult", engine: "Engine") -> None:
        from rmqinspect.export.manifest import describe_run

        earlier = self.target.earlier
        # Files of the earlier export may go although none is added.
        before = None if earlier is None else {file.name for file in earlier.files}
        same = before == {file.name for file in outcome.manifest.files}
        if outcome.nothing_new and same and earlier is not None and earlier.skipped == self.skipped:
            self.target.keep()
            return
        packages = ["pyarrow", *(["pyspark"] if engine.name == "spark" else [])]
        outcome.manifest.run = describe_run(engine.name, self.started, packages)
        self.target.commit(outcome.manifest, outcome.names)

    # --- after ------------------------------------------------------------------------------------

    def _tell_shared(self, outcome: "ExportResult") -> None:
        """Say what is said of other stores before anything is written.

        :raises Unreadable: none of the stores could be read.
        """
        from rmqinspect.export.shared import FinishedStore

        for store in outcome.results:
            if isinstance(store, FinishedStore):
                for text in store.remarks:
                    self.progress.remark(text)
                tell_holder(store.holder, self.progress.remark, store.name)
        for skipped in outcome.manifest.skipped:
            self.progress.complain(f"{skipped.error}; skipped")
        places = {name: place for place, name in enumerate(self.order)}
        self.skipped += outcome.manifest.skipped
        self.skipped.sort(key=lambda store: places.get(store.name, 0))
        outcome.manifest.skipped = self.skipped
        if self.skipped and not outcome.manifest.stores:
            raise Unreadable("no store could be read")

    def _judge(self, outcome: "ExportResult") -> ExitStatus:
        manifest = outcome.manifest
        for result in outcome.results:
            for message in dict.fromkeys(result.unread):
                self.progress.complain(message)
        seen = replace(self.request.selection, topics_seen=outcome.topics)
        # With an earlier export the new rows need not have every topic.
        unmatched = self.target.earlier is None and tell_unmatched(seen, self.progress)
        nothing = unmatched and not any(file.rows for file in manifest.files)
        bad = bad_statuses(manifest) or lost_ranges(manifest, self.request)
        return exit_status(
            self.arguments.fail_on, damaged=bad and not nothing, unread=not manifest.complete, missed=nothing
        )

"""One export as it runs: announce, write, commit, print; whatever ends it before the commit leaves nothing behind."""

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.export_options import ExportArguments
from rmqinspect.cli.export_screen import bad_statuses, lost_ranges, screen
from rmqinspect.cli.options import count_jobs
from rmqinspect.cli.progress import LONG_READ, Progress, least_time, running_broker
from rmqinspect.cli.status import ExitStatus
from rmqinspect.errors import Refused
from rmqinspect.export.request import ExportRequest
from rmqinspect.system.uri import abspath
from rmqinspect.text import count, describe_size, group_digits

if TYPE_CHECKING:
    from rmqinspect.export.job import Engine, ExportResult
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.target import Target
    from rmqinspect.tables.filters import Selection

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

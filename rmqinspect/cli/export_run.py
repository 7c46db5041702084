"""One export as it runs: announce, write, commit, print; whatever ends it before the commit leaves nothing behind.

The options of `export`.
"""

import dataclasses
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rmqinspect.cli import ExitStatus, exit_status
from rmqinspect.cli.export_screen import bad_statuses, lost_ranges, screen
from rmqinspect.cli.options import (
    count_jobs,
)
from rmqinspect.cli.session import tell_broker, tell_holder, tell_unmatched
from rmqinspect.cli.terminal import LONG_READ, Progress, least_time
from rmqinspect.cli.verbs.export import ExportArguments
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.export.request import ExportRequest
from rmqinspect.system.uri import abspath
from rmqinspect.text import count, describe_size, group_digits

if TYPE_CHECKING:
    from rmqinspect.export.apart import StoreToPlan
    from rmqinspect.export.job import Engine, ExportResult
    from rmqinspect.export.manifest import Manifest, SkippedStore
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.shared import StoresPart
    from rmqinspect.export.target import Target
    from rmqinspect.tables.filters import Selection


def _notes(plans: "Sequence[StorePlan]") -> dict[str, dict[str, str]]:
    """Return the metadata of each file of a store, by store."""
    from rmqinspect.export.shared import notes_of

    return {plan.store.name: notes_of(plan.paths, plan.releases) for plan in plans}


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
        apart: "Sequence[StoreToPlan]" = (),
    ) -> None:
        from rmqinspect.export.part import ExportSpec

        self.skipped = list(skipped)
        self.shared, self.order, self.apart = shared, order, apart
        self.plans, self.request, self.target = plans, request, target
        self.arguments, self.progress, self.started = arguments, progress, started
        self.jobs = count_jobs(arguments)
        # Tasks of a cluster run in another working directory.
        # On object storage a record costs two requests a part: there only where it is asked for.
        records = arguments.resume or not target.folder.is_remote
        self.spec = ExportSpec(
            abspath(target.folder.path),
            secrets.token_hex(4),
            request,
            _notes(plans),
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
            asked = self.arguments
            if not self.apart:
                self._announce()
            with open_engine(asked.engine, asked.master, self.jobs, verbose=bool(asked.verbose)) as engine:
                self.progress.remark(f"engine: {engine.description}")
                if self.apart:
                    self._plan_apart(engine)
                    self._announce()
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

    def _plan_apart(self, engine: "Engine") -> None:
        """Have tasks plan the stores that are not planned yet."""
        from rmqinspect.cli.export_engine import plan_apart

        plans, skipped = plan_apart(self.apart, self.spec, engine, self.progress)
        self.skipped += skipped
        self.plans += plans
        self.progress.total += sum(plan.size for plan in plans)
        selections = {
            plan.store.name: dataclasses.replace(plan.by_task.how.selection, topics_seen=set())
            for plan in plans
            if plan.by_task is not None
        }
        self.spec = replace(self.spec, notes=_notes(self.plans), selections={**self.spec.selections, **selections})

    def _announce(self) -> None:
        """Print what will be done, and refuse what cannot be; if it can be, before Spark takes its seconds to start."""
        from rmqinspect.export.plan import estimate_size
        from rmqinspect.export.shared import without_log

        remark = self.progress.remark
        for plan in self.plans:
            if plan.by_task is not None:
                for text in plan.by_task.remarks:
                    remark(text)
                tell_holder(plan.by_task.holder, remark, plan.store.name)
                continue
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
        wait = "; waiting for Spark" if self.arguments.engine == "spark" and not self.apart else ""
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
            queues, told = plan.store.queue_files, plan.by_task
            topics, ids = len({file.topic for file in queues}), len({file.queue_id for file in queues})
            values = {"topic": told.topics if told else topics, "queue_id": told.queue_ids if told else ids}
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
        seen = dataclasses.replace(self.request.selection, topics_seen=outcome.topics)
        # With an earlier export the new rows need not have every topic.
        unmatched = self.target.earlier is None and tell_unmatched(seen, self.progress)
        nothing = unmatched and not any(file.rows for file in manifest.files)
        bad = bad_statuses(manifest) or lost_ranges(manifest, self.request)
        return exit_status(
            self.arguments.fail_on, damaged=bad and not nothing, unread=not manifest.is_read, missed=nothing
        )

"""One export from its plan to what is to be committed, whatever engine runs the parts."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from rmqinspect.commitlog.splits import SEGMENT_START, ScanState
from rmqinspect.export.collect import StoreResult
from rmqinspect.export.log_parts import LogPart
from rmqinspect.export.manifest import Manifest
from rmqinspect.export.part import LogPartRead, Orders, Part, PartRead, write_part
from rmqinspect.export.plan import StorePlan
from rmqinspect.export.request import FINDINGS, MESSAGES, OF_THE_LOG
from rmqinspect.system.workers import run_ordered
from rmqinspect.tables.sources import is_read_for
from rmqinspect.text import describe_offset


class Engine(Protocol):
    """What runs the parts of an export."""

    @property
    def name(self) -> str:
        """What it is called: local, spark."""

    @property
    def words(self) -> str:
        """How it runs them, for people."""

    def run(self, parts: Sequence[Part], orders: Orders) -> Generator[PartRead, None, None]:
        """Yield what `write_part` gives for each part, in order."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs the parts in processes of this machine; no JVM."""

    jobs: int
    name: str = "local"

    @property
    def words(self) -> str:
        """How it runs them, for people."""
        return f"{self.jobs} {'process' if self.jobs == 1 else 'processes'}"

    def run(self, parts: Sequence[Part], orders: Orders) -> Generator[PartRead, None, None]:
        """Yield what `write_part` gives for each part, in order."""
        return run_ordered(partial(write_part, orders=orders), parts, self.jobs, preload="rmqinspect.export.part")


@dataclass(slots=True)
class ExportResult:
    """What an export did: all its files stand there, under the names that their process gave them."""

    manifest: Manifest
    results: list[StoreResult]
    names: dict[str, str]  # name of each new file → what it was written as
    topics: set[str]  # that passed by a topic filter

    @property
    def nothing_new(self) -> bool:
        """Whether an earlier export has all there is."""
        return not self.names


def run_export(
    plans: Sequence[StorePlan],
    orders: Orders,
    engine: Engine,
    progress: Callable[[int, int], None] = lambda size, rows: None,
    jobs: int = 1,
) -> ExportResult:
    """Write all parts, then the tables that are made of them; nothing is committed yet.

    `progress` is told how many more bytes of log were read and how many more rows written; `jobs` are the
    processes for what no engine runs.
    """
    results = {plan.store.name: StoreResult(plan, unread=[*_not_read(plan, orders), *plan.missed]) for plan in plans}
    parts: list[Part] = []
    for plan in plans:
        parts += [*plan.parts, *plan.side_parts]
    outcome = ExportResult(Manifest(orders.request.as_document()), list(results.values()), {}, set())
    with closing(engine.run(parts, orders)) as reads:
        for read in _settle(reads, partial(write_part, orders=orders)):
            result = results[read.part.store]
            if isinstance(read, LogPartRead):
                result.take_log_part(read)
                progress(read.part.size, read.rows)
            else:
                result.take_side_part(read)
                progress(0, sum(file.rows for file in read.files))
            outcome.topics |= read.topics
            outcome.names.update({file.name: file.written_as for file in read.files})
    for result in outcome.results:
        made = result.make_tables(orders, jobs) if not _is_unchanged(result, orders) else []
        outcome.topics |= orders.selection(result.plan.store.name).topics_seen
        outcome.names.update({file.name: file.written_as for file in made})
        outcome.manifest.files += [*result.plan.kept, *result.files]
        outcome.manifest.stores.append(result.as_store())
    counted = [result.findings for result in outcome.results if result.findings is not None]
    if FINDINGS in orders.request.tables:
        outcome.manifest.findings = {
            severity: sum(found[severity] for found in counted) for severity in ("error", "warning", "info")
        }
    return outcome


def _not_read(plan: StorePlan, orders: Orders) -> list[str]:
    """Return what of a store no table shows, though it was asked for: folders that cannot be listed, for one."""
    store, asked = plan.store, orders.request.tables
    unread = [
        f"{oddity.name}: not read: {oddity.detail}"
        for oddity in store.oddities
        if oddity.is_unread and any(is_read_for(table, oddity.place) for table in asked)
    ]
    pointed_at = plan.reach.pointed_at
    headless = store.place == "store" and not store.segments and pointed_at is not None
    if headless and not {MESSAGES, *OF_THE_LOG}.isdisjoint(asked):
        where = describe_offset(pointed_at or 0)
        unread.append(f"{store.name}: no segment of a commit log is there, though queues point into one, up to {where}")
    return unread


def _is_unchanged(result: StoreResult, orders: Orders) -> bool:
    """Whether an earlier export has all of a store that this one asks for."""
    return result.plan.known is not None and not result.files and orders.request.tables == ("messages",)


def _settle(reads: Iterable[PartRead], again: Callable[[LogPart], PartRead]) -> Iterator[PartRead]:
    """Yield the parts in order, each read from where the one before it ended.

    A part that looked back and saw the same goes through as it is; the rare other one is written again,
    as `scan.redo_where_borders_differ` does it for splits.
    """
    exits: dict[str, ScanState | None] = {}  # by path of the segment
    for read in reads:
        if isinstance(read, LogPartRead):
            entries = [
                SEGMENT_START if one.split.start == 0 else exits.get(one.split.segment.path) for one in read.reads
            ]
            if any(
                entry is not None and one.borders is not None and one.borders.entry != entry
                for entry, one in zip(entries, read.reads, strict=True)
            ):
                splits = [replace(one.split, entry=entry) for one, entry in zip(read.reads, entries, strict=True)]
                read = again(replace(read.part, splits=tuple(splits), cold=False))
                assert isinstance(read, LogPartRead)
            for one in read.reads:
                exits[one.split.segment.path] = one.borders.exit if one.borders is not None else None
        yield read

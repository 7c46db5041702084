"""One export from its plan to the files that are ready to commit, on any engine.

    plans -> parts --engine--> one result per part, in order --> StoreResult -> tables of the log, manifest
                                        |
                                        `-- entered differently than the part before left? write it again, here

Parts are written in parallel, so a part that starts inside a segment cannot know how the part before it ends: it looks
back in the log for the state of the scan. Nearly always both agree. Where damage makes them differ, the part is written
again from the state in which its predecessor really ended.

Invariants:
- Results arrive in the order of the parts, whatever the engine. So rows, file names and the manifest depend on the
  store and the request alone.
- Nothing here renames or deletes: files keep the names that their part gave them until `Target.commit`. A part that
  is written twice leaves two sets of temporary files; only those in `ExportResult.names` are committed, and on object
  storage the second overwrites the first.
- A part that cannot be read is still a result. Only a Spark job that fails, or a target that refuses, ends the export.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from rmqinspect.commitlog.splits import SEGMENT_START, ScanState
from rmqinspect.export.collect import StoreResult
from rmqinspect.export.log_parts import LogPart
from rmqinspect.export.manifest import Manifest
from rmqinspect.export.part import ExportSpec, LogPartRead, Part, PartRead, write_part
from rmqinspect.export.plan import StorePlan
from rmqinspect.export.request import FINDINGS, LOG_TABLES, MESSAGES
from rmqinspect.system.workers import run_ordered
from rmqinspect.tables.sources import unread_places
from rmqinspect.text import count, describe_offset


@dataclass(frozen=True)
class Engine:
    """What runs `write_part` for the parts of an export.

    `run` yields the result of each part, in order, while later ones still run; closing it stops them.
    What ends an engine for another reason than a part, it raises.
    """

    name: str  # local, spark
    description: str  # for people: how it runs them
    run: Callable[[Sequence[Part], ExportSpec], Generator[PartRead, None, None]]


def local_engine(jobs: int) -> Engine:
    """Return the engine that runs the parts in threads of this process; no JVM."""

    def run(parts: Sequence[Part], spec: ExportSpec) -> Generator[PartRead, None, None]:
        return run_ordered(partial(write_part, spec=spec), parts, jobs)

    return Engine("local", count(jobs, "thread"), run)


@dataclass(slots=True)
class ExportResult:
    """The outcome of an export that is ready to commit: all files are written, under the names their part chose."""

    manifest: Manifest
    results: list[StoreResult]
    names: dict[str, str]  # name of each new file → name it was written under
    topics: set[str]  # seen by a topic filter

    @property
    def nothing_new(self) -> bool:
        """Whether the earlier export has everything."""
        return not self.names


def run_export(
    plans: Sequence[StorePlan],
    spec: ExportSpec,
    engine: Engine,
    progress: Callable[[int, int], None] = lambda size, rows: None,
    jobs: int = 1,
) -> ExportResult:
    """Write all parts, then the tables that are computed from them. Commits nothing.

    `progress` gets the bytes of log read and the rows written since the last call; `jobs` is the number of threads
    for work that does not go through the engine.
    """
    stores = {plan.store.name: StoreResult(plan, unread=[*_not_read(plan, spec), *plan.missed]) for plan in plans}
    result = ExportResult(Manifest(spec.request.as_document()), list(stores.values()), {}, set())
    parts: list[Part] = []
    for plan in plans:
        parts += [*plan.parts, *plan.side_parts]
    with closing(engine.run(parts, spec)) as reads:
        for read in _rewrite_where_entries_differ(reads, partial(write_part, spec=spec)):
            store = stores[read.part.store]
            if isinstance(read, LogPartRead):
                store.add_log_part(read)
                progress(read.part.size, read.rows)
            else:
                store.add_side_part(read)
                progress(0, sum(file.rows for file in read.files))
            result.topics |= read.topics
            result.names.update({file.name: file.written_as for file in read.files})
    for store in result.results:
        made = store.make_tables(spec, jobs) if not _is_unchanged(store, spec) else []
        result.topics |= spec.selection(store.plan.store.name).topics_seen
        result.names.update({file.name: file.written_as for file in made})
        result.manifest.files += [*store.plan.kept, *store.files]
        result.manifest.stores.append(store.as_store())
    if FINDINGS in spec.request.tables:
        counted = [store.findings for store in result.results if store.findings is not None]
        result.manifest.findings = {
            severity: sum(found[severity] for found in counted) for severity in ("error", "warning", "info")
        }
    return result


def _not_read(plan: StorePlan, spec: ExportSpec) -> list[str]:
    """Return a message for everything the tables need and the plan cannot read, such as unreadable folders."""
    store, tables = plan.store, spec.request.tables
    unread = unread_places(store, tables)
    pointed_at = plan.reach.pointed_at
    headless = store.given == "store" and not store.segments and pointed_at is not None
    if headless and not {MESSAGES, *LOG_TABLES}.isdisjoint(tables):
        where = describe_offset(pointed_at or 0)
        unread.append(f"{store.name}: no segment of a commit log is there, though queues point into one, up to {where}")
    return unread


def _is_unchanged(store: StoreResult, spec: ExportSpec) -> bool:
    """Whether the earlier export has everything of a store that this one asks for."""
    return store.plan.known is not None and not store.files and spec.request.tables == (MESSAGES,)


def _rewrite_where_entries_differ(
    reads: Iterable[PartRead], rewrite: Callable[[LogPart], PartRead]
) -> Iterator[PartRead]:
    """Yield the results in order, each scanned from the state in which the one before it ended.

    The same rule for splits: `commitlog.scan.redo_where_borders_differ`.
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
                read = rewrite(replace(read.part, splits=tuple(splits), cold=False))
                assert isinstance(read, LogPartRead)
            for one in read.reads:
                exits[one.split.segment.path] = one.borders.exit if one.borders is not None else None
        yield read

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

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.commitlog.gaps import SEGMENT_START, ScanState
from rmqinspect.export.apart import PlannedStore, StoreToFinish, StoreToPlan, plan_in_task, whole_again
from rmqinspect.export.manifest import Manifest
from rmqinspect.export.part import (
    ExportSpec,
    LogPartRead,
    Part,
    PartRead,
    SidePartRead,
    write_part,
)
from rmqinspect.export.plan import StorePlan, not_read
from rmqinspect.export.request import FINDINGS, MESSAGES, LogPart
from rmqinspect.export.resume import finished_parts, write_recorded
from rmqinspect.export.shared import FinishedStore, StoresPart, StoresRead, write_stores
from rmqinspect.export.store_result import StoreResult
from rmqinspect.system.workers import run_ordered
from rmqinspect.text import count

Work = Part | StoresPart | StoreToPlan | StoreToFinish
WorkRead = PartRead | StoresRead | PlannedStore | FinishedStore


class Engine(Struct, frozen=True):
    """What runs `run_part` for the parts of an export.

    `run` yields the result of each part, in order, while later ones still run; closing it stops them.
    What ends an engine for another reason than a part, it raises.
    """

    name: str  # local, spark
    description: str  # for people: how it runs them
    run: Callable[[Sequence[Work], ExportSpec], Generator[WorkRead, None, None]]


def local_engine(jobs: int) -> Engine:
    """Return the engine that runs the parts in threads of this process; no JVM."""

    def run(parts: Sequence[Work], spec: ExportSpec) -> Generator[WorkRead, None, None]:
        return run_ordered(partial(run_part, spec=spec), parts, jobs)

    return Engine("local", count(jobs, "thread"), run)


def run_part(part: Work, spec: ExportSpec) -> WorkRead:
    """Write a part of a store, or some small stores; plan a large store, or finish it.

    :raises Refused: a file cannot be written.
    """
    if isinstance(part, StoresPart):
        return write_stores(part, spec, _finish_alone)
    if isinstance(part, StoreToPlan):
        return plan_in_task(part, spec)
    if isinstance(part, StoreToFinish):
        with whole_again(part) as store:
            outcome = ExportResult(Manifest(spec.request.as_document()), [], {}, set())
            _finish(store, outcome, spec, jobs=1)
            return _alone(outcome, store.findings)
    return write_recorded(part, spec)


def _finish_alone(plan: StorePlan, spec: ExportSpec) -> FinishedStore:
    """Export one store in this thread."""
    outcome = run_export([plan], spec, local_engine(1))
    return _alone(outcome, outcome.manifest.findings)


def _alone(outcome: "ExportResult", findings: Mapping[str, int] | None) -> FinishedStore:
    """Return what has become of the only store."""
    (result,), (entry,) = outcome.results, outcome.manifest.stores
    first_bad = dict(result.first_bad)
    return FinishedStore(entry.name, entry, outcome.manifest.files, outcome.names, findings, first_bad, outcome.topics)


class ExportResult(Struct):
    """The outcome of an export that is ready to commit: all files are written, under the names their part chose."""

    manifest: Manifest
    results: list[StoreResult | FinishedStore]
    names: dict[str, str]  # name of each new file → name it was written under
    topics: set[str]  # seen by a topic filter
    taken_over: int = 0  # parts that an interrupted run had finished

    @property
    def planned(self) -> list[StoreResult]:
        """The results of the stores that were planned in this process."""
        return [result for result in self.results if isinstance(result, StoreResult)]

    @property
    def nothing_new(self) -> bool:
        """Whether the earlier export has everything."""
        return not self.names


def plan_by_tasks(
    works: Sequence[StoreToPlan], spec: ExportSpec, engine: Engine
) -> Generator[PlannedStore, None, None]:
    """Yield what a job of a task a store says of each, in their order."""
    with closing(engine.run(works, spec)) as answers:
        for answer in answers:
            assert isinstance(answer, PlannedStore)
            yield answer


def run_export(
    plans: Sequence[StorePlan],
    spec: ExportSpec,
    engine: Engine,
    progress: Callable[[int, int], None] = lambda size, rows: None,
    jobs: int = 1,
    absent: Manifest | None = None,
    shared: Sequence[StoresPart] = (),
    order: Sequence[str] = (),
) -> ExportResult:
    """Write all parts, then the tables that are computed from them. Commits nothing.

    `absent` has the stores of an earlier export that are not planned, and their files: they stay as they are.
    `shared` are stores that their tasks plan; `order` are the names of all, in the order of the manifest.
    `progress` gets the bytes of log read and the rows written since the last call; `jobs` is the number of threads
    for work that does not go through the engine.
    """
    planned = {
        plan.store.name: StoreResult(plan, unread=[*not_read(plan, spec.request.tables), *plan.missed])
        for plan in plans
    }
    finished: dict[str, FinishedStore] = {}
    result = ExportResult(Manifest(spec.request.as_document()), [], {}, set())
    parts: list[Work] = [*shared]
    for plan in plans:
        parts += [*plan.parts, *plan.side_parts]
    taken_over = finished_parts(parts, spec) if spec.resumes else {}
    result.taken_over = len(taken_over)
    with closing(_with_finished(parts, taken_over, lambda rest: engine.run(rest, spec))) as reads:
        for read in _rewrite_where_entries_differ(reads, partial(write_part, spec=spec)):
            if isinstance(read, StoresRead):
                finished |= {store.name: store for store in read.stores}
                result.manifest.skipped += read.skipped
                progress(read.part.size, sum(file.rows for store in read.stores for file in store.files))
                continue
            assert isinstance(read, LogPartRead | SidePartRead)
            store = planned[read.part.store]
            if isinstance(read, LogPartRead):
                store.add_log_part(read)
                progress(read.part.size, read.rows)
            else:
                store.add_side_part(read)
                progress(0, sum(file.rows for file in read.files))
            result.topics |= read.topics
            result.names.update({file.name: file.written_as for file in read.files})
    finished |= _finish_by_tasks([*planned.values()], spec, engine)
    found: dict[str, int] = Counter()
    for name in order or planned:
        if name in finished:
            done = finished[name]
            result.topics |= done.topics
            result.names.update(done.names)
            result.manifest.files += done.files
            result.manifest.stores.append(done.entry)
            result.results.append(done)
            found.update(done.findings or {})
        elif name in planned:
            _finish(planned[name], result, spec, jobs)
            found.update(planned[name].findings or {})
    if absent is not None:
        result.manifest.files += absent.files
        result.manifest.stores += absent.stores
    if FINDINGS in spec.request.tables:
        result.manifest.findings = {severity: found[severity] for severity in ("error", "warning", "info")}
    return result


def _finish(store: StoreResult, result: ExportResult, spec: ExportSpec, jobs: int) -> None:
    """Make the tables of a planned store, and add what it has to the result."""
    # The earlier export may have everything of a store that this one asks for.
    unchanged = store.plan.known is not None and not store.files and spec.request.tables == (MESSAGES,)
    made = [] if unchanged else store.make_tables(spec, jobs)
    result.topics |= spec.selection(store.name).topics_seen
    result.names.update({file.name: file.written_as for file in made})
    result.manifest.files += [*store.plan.kept, *store.files]
    result.manifest.stores.append(store.as_store())
    result.results.append(store)


def _finish_by_tasks(stores: Sequence[StoreResult], spec: ExportSpec, engine: Engine) -> dict[str, FinishedStore]:
    """Have tasks make the tables of the stores that tasks have planned; return what became of each."""
    works = [StoreToFinish(store, store.plan.by_task.how) for store in stores if store.plan.by_task is not None]
    done: dict[str, FinishedStore] = {}
    with closing(engine.run(works, spec)) as answers:
        for answer in answers if works else ():
            assert isinstance(answer, FinishedStore)
            done[answer.name] = answer
    return done


def _with_finished(
    parts: Sequence[Work],
    finished: Mapping[int, PartRead],
    run: Callable[[Sequence[Work]], Generator[WorkRead, None, None]],
) -> Generator[WorkRead, None, None]:
    """Yield the results in the order of the parts; only those that are not finished are run."""
    with closing(run([part for number, part in enumerate(parts) if number not in finished])) as reads:
        for number in range(len(parts)):
            yield finished[number] if number in finished else next(reads)


def _rewrite_where_entries_differ(
    reads: Iterable[WorkRead], rewrite: Callable[[LogPart], PartRead]
) -> Iterator[WorkRead]:
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

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

The results of one store's parts, added up, and the tables that are computed from the sum.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import SEGMENT_START, Gap, ScanState
from rmqinspect.errors import RmqinspectError
from rmqinspect.export.manifest import ExportedFile, ExportedStore, Manifest, fingerprint
from rmqinspect.export.part import (
    ExportSpec,
    LogPartRead,
    PartFile,
    PartRead,
    SidePartRead,
    write_part,
    write_rows,
)
from rmqinspect.export.plan import StorePlan
from rmqinspect.export.queue_checksums import QueueSums, UnitFacts, compare_units
from rmqinspect.export.request import FINDINGS, LOG_TABLES, MESSAGES, LogPart, numbered_name
from rmqinspect.export.resume import finished_parts, write_recorded
from rmqinspect.export.shared import FinishedStore, StoresPart, StoresRead, Work, WorkRead, write_stores
from rmqinspect.store.model import Store
from rmqinspect.system.filesystem import Files, files_below, stat
from rmqinspect.system.uri import is_below, realpath, shown
from rmqinspect.system.workers import run_ordered
from rmqinspect.tables import TABLES
from rmqinspect.tables.log import end_of_log, gap_batches, gaps_in, segment_batches
from rmqinspect.tables.read_log import add_account, lost_gaps
from rmqinspect.tables.sources import unread_places
from rmqinspect.tables.table import Request
from rmqinspect.tables.usage import UsageSums, usage_batches
from rmqinspect.text import count, describe_offset
from rmqinspect.verify.result import VerifyOptions, finding_batches
from rmqinspect.verify.run import verify_and_forecast


@dataclass(slots=True)
class StoreResult:
    """The results of one store so far."""

    plan: StorePlan
    files: list[ExportedFile] = field(default_factory=list)
    accounts: dict[str, ByteAccount] = field(default_factory=dict)  # by path, of the segments read
    covered: dict[str, ByteAccount] = field(
        default_factory=dict
    )  # the same for parts whose messages are exported for good
    rows: int = 0  # messages written
    statuses: Counter[str] = field(default_factory=Counter)  # of those
    first_bad: dict[str, int] = field(default_factory=dict)  # status → physical offset of its first row
    sums: QueueSums = field(default_factory=QueueSums)
    usage: UsageSums = field(init=False)
    unread: list[str] = field(default_factory=list)
    findings: Counter[str] | None = None  # by severity
    missed: set[int] = field(default_factory=set)  # bases of segments that could not be read completely

    def __post_init__(self) -> None:
        self.usage = UsageSums(self.plan.store)

    @property
    def name(self) -> str:
        """Name of the store."""
        return self.plan.store.name

    def add_log_part(self, read: LogPartRead) -> None:
        """Add the result of a part of the log."""
        part = read.part
        for one in read.reads:
            add_account(self.accounts, one.account)
            if one.work is not None:
                self.usage.join(one.split.segment, one.work)
            if part.writes and not part.is_tail:
                add_account(self.covered, one.account)
                self.missed.update([one.account.segment.base] if one.unread else [])
            self.unread += [unread.message for unread in one.unread]
        self.rows += read.rows
        self.statuses.update(read.statuses)
        for status, offset in read.first_bad.items():
            self.first_bad.setdefault(status, offset)
        self.sums.join(read.sums)
        bad = {status: number for status, number in sorted(read.statuses.items()) if status != "ok"}
        for number, file in enumerate(read.files):
            self.files.append(
                ExportedFile(
                    file.name,
                    MESSAGES,
                    part.store,
                    file.rows,
                    file.size,
                    part.start,
                    part.end,
                    part.is_tail,
                    {} if number else bad,
                )
            )

    def add_side_part(self, read: SidePartRead) -> None:
        """Add the result of a part of another table."""
        self._add_files(read.part.table, read.files)
        self.unread += read.unread

    def _add_files(self, table: str, files: Sequence[PartFile]) -> None:
        store = self.plan.store.name
        self.files += [ExportedFile(file.name, table, store, file.rows, file.size) for file in files]

    # --- tables computed from the whole log ------------------------------------------------------

    def make_tables(self, spec: ExportSpec, jobs: int) -> list[PartFile]:
        """Write the tables computed from the parts, and an empty file for each table without rows."""
        request, store = spec.request, self.plan.store
        gaps = gaps_in(store, self.accounts)
        facts = UnitFacts(witnesses=[0] * len(gaps))
        if not {"gaps", "queues"}.isdisjoint(request.tables):
            facts = compare_units(store, self.sums, gaps)
            self.unread += facts.unread
        makers = {
            "segments": lambda: segment_batches(store, self.accounts),
            "gaps": lambda: gap_batches(gaps, facts.witnesses),
            "queues": lambda: self._queue_batches(facts),
            "usage": lambda: usage_batches(self.usage.usage(self.accounts)),
            FINDINGS: lambda: self._findings(jobs),
        }
        made: list[PartFile] = []
        for table in request.tables:
            have = {file.table for file in (*self.files, *self.plan.kept)}
            if table in makers or table not in have:
                batches = makers[table]() if table in makers else iter(())
                name = numbered_name(store.name, 0)
                written = write_rows(spec, table, store.name, name, batches)
                self._add_files(table, written)
                made += written
        return made

    def _queue_batches(self, facts: UnitFacts) -> Iterator[pa.RecordBatch]:
        for batch in TABLES["queues"].rows(self.plan.store, Request(on_unreadable=self.unread.append)):
            queues = list(zip(batch.column("topic").to_pylist(), batch.column("queue_id").to_pylist(), strict=True))
            counts = [sums.count if (sums := self.sums.queues.get(queue)) else 0 for queue in queues]
            known = {"records": counts, "shift": [facts.shifts.get(queue) for queue in queues]}
            for name, values in known.items():
                at = batch.schema.get_field_index(name)
                batch = batch.set_column(at, batch.schema.field(at), pa.array(values, pa.int64()))
            yield batch

    def _findings(self, jobs: int) -> Iterator[pa.RecordBatch]:
        store = self.plan.store
        result = verify_and_forecast(store, VerifyOptions(jobs=jobs))
        self.findings = Counter(result.findings.severities)
        self.unread += [message for message in result.unread if message not in self.unread]
        return finding_batches(result, shown(self.plan.paths[0]))

    # --- the entry of the manifest ----------------------------------------------------------------

    def lost_gaps(self) -> list[Gap]:
        """Return the ranges that lost their records: unknown bytes, missing segments, zeros that records follow."""
        first = self.plan.parts[0].start if self.plan.parts else 0
        gaps = [gap for gap in gaps_in(self.plan.store, self.accounts) if gap.end > first]
        return lost_gaps(gaps, end_of_log(self.accounts))

    def as_store(self) -> ExportedStore:
        """Return the store's entry of the manifest, merged with that of the earlier export."""
        plan, store = self.plan, self.plan.store
        known = plan.known
        written = [part for part in plan.parts if part.writes and not part.is_tail]
        start = min([part.start for part in written], default=None)
        end = max([part.end for part in written], default=None)
        kept_lost, kept_prints = [], []
        if known is not None:
            start, end = known.start if known.start is not None else start, end or plan.start
            kept_lost = [lost for lost in known.lost if lost[0] < plan.start]
            kept_prints = [entry for entry in known.segments if entry["base"] < plan.start]
        lost = [(gap.start, gap.end, gap.kind) for gap in self.lost_gaps() if gap.start >= plan.start]
        return ExportedStore(
            store.name,
            plan.paths,
            _inputs(store),
            start,
            end,
            self._fingerprints(kept_prints, end),
            [*kept_lost, *lost],
            list(dict.fromkeys(self.unread)),
            plan.releases,
        )

    def _fingerprints(self, kept: list[dict[str, object]], end: int | None) -> list[dict[str, object]]:
        """Return the fingerprints of all covered segments; one continued from the earlier export keeps its start."""
        known = {entry["base"]: entry for entry in kept}
        for account in self.covered.values():
            segment = account.segment
            begin = known.get(segment.base, {}).get("begin", account.begin) or account.begin
            last = account.end if account.end is not None else known.get(segment.base, {}).get("end")
            whole = known.get(segment.base, {}).get("complete", True) and segment.base not in self.missed
            known[segment.base] = {**fingerprint(segment, begin, last), "complete": whole}  # type: ignore[arg-type]
        return [known[base] for base in sorted(known)]  # type: ignore[type-var]


def _inputs(store: Store) -> list[dict[str, object]]:
    """Return name, size and modification time of all files of a store, as of now."""
    inputs: list[dict[str, object]] = []
    roots: dict[str, Files] = {}
    with suppress(OSError, RmqinspectError):
        roots = {realpath(path): files_below(path) for path in store.paths}
    for file in store.files:
        files = next((below for root, below in roots.items() if is_below(file.path, root)), None)
        try:
            status = files.lstat(file.path) if files is not None else stat(file.path)
        except (OSError, RmqinspectError):
            inputs.append({"file": file.name, "size": None, "modified": None})
            continue
        changed = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="microseconds")
        inputs.append({"file": file.name, "size": status.st_size, "modified": changed})
    return inputs


@dataclass(frozen=True)
class Engine:
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
    """Write a part of a store, or some small stores.

    :raises Refused: a file cannot be written.
    """
    return write_stores(part, spec, _finish_alone) if isinstance(part, StoresPart) else write_recorded(part, spec)


def _finish_alone(plan: StorePlan, spec: ExportSpec) -> FinishedStore:
    """Export one store in this thread."""
    outcome = run_export([plan], spec, local_engine(1))
    (result,), (entry,) = outcome.results, outcome.manifest.stores
    findings = outcome.manifest.findings
    return FinishedStore(
        entry.name, entry, outcome.manifest.files, outcome.names, findings, dict(result.first_bad), outcome.topics
    )


@dataclass(slots=True)
class ExportResult:
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
    planned = {plan.store.name: StoreResult(plan, unread=[*_not_read(plan, spec), *plan.missed]) for plan in plans}
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
            store = planned[read.part.store]
            if isinstance(read, LogPartRead):
                store.add_log_part(read)
                progress(read.part.size, read.rows)
            else:
                store.add_side_part(read)
                progress(0, sum(file.rows for file in read.files))
            result.topics |= read.topics
            result.names.update({file.name: file.written_as for file in read.files})
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


def _with_finished(
    parts: Sequence[Work],
    finished: Mapping[int, PartRead],
    run: Callable[[Sequence[Work]], Generator[WorkRead, None, None]],
) -> Generator[WorkRead, None, None]:
    """Yield the results in the order of the parts; only those that are not finished are run."""
    with closing(run([part for number, part in enumerate(parts) if number not in finished])) as reads:
        for number in range(len(parts)):
            yield finished[number] if number in finished else next(reads)


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

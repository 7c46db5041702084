"""The results of one store's parts, added up, and the tables that are computed from the sum."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.errors import RmqinspectError
from rmqinspect.export.manifest import ExportedFile, ExportedStore, fingerprint
from rmqinspect.export.part import (
    ExportSpec,
    LogPartRead,
    PartFile,
    SidePartRead,
    write_rows,
)
from rmqinspect.export.plan import StorePlan
from rmqinspect.export.queue_checksums import QueueSums, UnitFacts, compare_units
from rmqinspect.export.request import FINDINGS, MESSAGES, numbered_name
from rmqinspect.store.model import Store
from rmqinspect.system.filesystem import Files, files_below, stat
from rmqinspect.system.uri import is_below, realpath
from rmqinspect.tables import TABLES
from rmqinspect.tables.log import end_of_log, gap_batches, gaps_in, segment_batches
from rmqinspect.tables.read_log import add_account, lost_gaps
from rmqinspect.tables.request import Request
from rmqinspect.tables.usage import UsageSums, usage_batches
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
        request = Request(
            on_missing=lambda _, __, message: self.unread.append(message), on_unreadable=self.unread.append
        )
        for batch in TABLES["queues"].rows(self.plan.store, request):
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
        return finding_batches(result, () if self.plan.paths == store.paths else self.plan.paths)

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

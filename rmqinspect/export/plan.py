"""What is read of one store: all of it, or what an earlier export does not have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rmqinspect.broker.version_estimate import assume_writer
from rmqinspect.errors import Refused
from rmqinspect.export.log_parts import LogPart, LogReach, plan_log, reach_of
from rmqinspect.export.manifest import (
    ExportedFile,
    ExportedStore,
    Manifest,
    changed_segments,
    cut_segments,
    missed_segments,
)
from rmqinspect.export.names import numbered_name
from rmqinspect.export.part import SidePart
from rmqinspect.export.request import FINDINGS, MESSAGES, OF_THE_LOG, ExportRequest
from rmqinspect.store.model import Store
from rmqinspect.tables.splits import split_table


@dataclass(slots=True)
class StorePlan:
    """The parts of one store, and what an earlier export has of it."""

    store: Store
    reach: LogReach
    parts: list[LogPart] = field(default_factory=list)
    side_parts: list[SidePart] = field(default_factory=list)
    start: int = 0  # messages before this physical offset were exported before
    known: ExportedStore | None = None  # by that export
    kept: list[ExportedFile] = field(default_factory=list)  # of messages, from there
    expired: int = 0  # segments of that export that the store no longer has
    replaced: list[int] = field(default_factory=list)  # bases of segments that have changed since
    releases: Sequence[str] = ()  # of the broker, that may have written the store
    cut: list[int] = field(default_factory=list)  # of these, the ones that are gone from the log's end
    missed: list[str] = field(default_factory=list)  # what that export could not read and is not read now

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(part.size for part in self.parts)


def plan_store(
    store: Store, request: ExportRequest, earlier: Manifest | None = None, *, replace_changed: bool = False
) -> StorePlan:
    """Decide what is read of a store.

    :raises Refused: what an earlier export holds has changed since, and may not be replaced.
    :raises Unreadable: queue files that are to be split cannot be opened.
    """
    plan = StorePlan(store, reach_of(store), releases=assume_writer(store, [], None).releases)
    if earlier is not None:
        _take_up(plan, earlier, replace_changed=replace_changed)
    plan.parts = _mark_cold(_log_parts(plan, request))
    for table in request.tables:
        if table not in (MESSAGES, FINDINGS) and table not in OF_THE_LOG:
            for number, split in enumerate(split_table(table, store, request.file_size)):
                plan.side_parts.append(SidePart(store.name, table, numbered_name(store.name, number), split))
    return plan


def _log_parts(plan: StorePlan, request: ExportRequest) -> list[LogPart]:
    """Return the parts to read. Tables that are made of the whole log read also those that write nothing."""
    messages, whole = MESSAGES in request.tables, not OF_THE_LOG.isdisjoint(request.tables)
    first, last = request.selection.offsets or (0, 1 << 63)
    cut = plan_log(plan.store, request.file_size, plan.reach, plan.start, closed_only=request.closed_only)
    parts = []
    for part in cut if messages or whole else ():
        closed = not request.closed_only or all(plan.reach.is_closed(split.segment) for split in part.splits)
        wanted = messages and closed and part.start >= plan.start and part.start < last and first < part.end
        if wanted or whole:
            parts.append(replace(part, writes=wanted))
    return parts


def _mark_cold(parts: list[LogPart]) -> list[LogPart]:
    """Mark the parts that begin inside of a segment of which no part before them is read."""
    read: set[tuple[str, int]] = set()
    marked = []
    for part in parts:
        cold = any(split.start and (split.segment.path, split.start) not in read for split in part.splits)
        read.update((split.segment.path, split.end) for split in part.splits)
        marked.append(replace(part, cold=cold))
    return marked


def _take_up(plan: StorePlan, earlier: Manifest, *, replace_changed: bool) -> None:
    """Find out what of an earlier export still holds, and where the new one begins."""
    store = plan.store
    known = next((one for one in earlier.stores if one.name == store.name), None)
    if known is None or known.end is None:
        return
    changed = [segment.base for segment in changed_segments(store, known, plan.reach.end)]
    cut = cut_segments(store, known)
    if (changed or cut) and not replace_changed:
        when = str(earlier.run.get("started", ""))[:10]
        raise Refused(
            f"{store.name}: segment {changed[0]} differs from the export of {when}; --replace-changed exports it again"
            if changed
            else f"{store.name}: segment {cut[0]} of the export of {when} is gone, and no later one is there: the log "
            "was cut; --replace-changed takes its rows out"
        )
    missed = missed_segments(store, known)
    if replace_changed:
        changed = sorted({*changed, *(segment.base for segment in missed)})
    else:
        plan.missed = [
            f"{segment.name}: not read whole by the earlier export; --replace-changed exports it again"
            for segment in missed
        ]
    plan.known, plan.start = known, known.end
    plan.kept = [file for file in earlier.files if _covers(file, store) and not file.is_tail]
    if changed or cut:
        # A file may hold several segments: from the first one that has some of a changed segment on,
        # all are written again.
        plan.replaced, plan.cut = [*changed, *cut], cut
        plan.start = min([*plan.replaced, *_starts_behind(plan.kept, min(plan.replaced))])
        plan.kept = [file for file in plan.kept if file.end is not None and file.end <= plan.start]
    bases = {segment.base for segment in store.segments}
    plan.expired = sum(entry["base"] not in bases for entry in known.segments if entry["base"] < plan.start)


def _covers(file: ExportedFile, store: Store) -> bool:
    return file.table == MESSAGES and file.store == store.name


def _starts_behind(files: list[ExportedFile], offset: int) -> Iterator[int]:
    """Yield where the files begin that reach behind an offset."""
    for file in files:
        if file.start is not None and file.end is not None and file.end > offset:
            yield file.start

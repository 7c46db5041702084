"""What to read of one store: all of it, or what an earlier export does not have.

The size of an export, estimated from samples of the log before anything is written.

What a few MiB of a store tell before an export is planned: how far the log goes, and who wrote it.

The end of the log is searched once. The records on the way are also the sample that the version estimate needs.
"""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.broker.version_estimate import estimate_store
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.errors import BadOption, Refused, Unreadable
from rmqinspect.export.manifest import (
    ExportedFile,
    ExportedStore,
    Manifest,
    changed_segments,
    cut_segments,
    missed_segments,
)
from rmqinspect.export.part import SidePart
from rmqinspect.export.request import (
    FINDINGS,
    LOG_TABLES,
    MESSAGES,
    ExportRequest,
    LogPart,
    LogReach,
    numbered_name,
    plan_log,
)
from rmqinspect.rocksdb.unpack import Unpacking, has_rocksdict
from rmqinspect.store.model import MAX_CONFIG_SIZE, Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.sources import range_to_read, unread_places
from rmqinspect.tables.splits import split_table
from rmqinspect.text import describe_offset, group_digits


class StoreSurvey(Struct, frozen=True):
    """The reach of a store's log, and the broker releases that may have written it."""

    reach: LogReach
    releases: Sequence[str]


def survey_store(store: Store) -> StoreSurvey:
    """Return what planning an export needs to know; damage near the log's end makes it shorter, never longer."""
    hints = last_places(store, [])
    found = find_log_end(store, hints)
    end = found.end if found.last_record is not None and found.end is not None else store.log_start
    reach = LogReach(store.log_start, end, store.segment_at(end), max(hints, default=None))
    return StoreSurvey(reach, estimate_store(store, found.sample).releases)


class HowToRead(Struct, frozen=True):
    """What the tasks that open stores have in common."""

    selection: Selection
    unpacking: Unpacking = field(default_factory=Unpacking)
    databases: Collection[str] | None = None  # those of RocksDB that are read; None: all
    max_config: int = MAX_CONFIG_SIZE
    skips: bool = False  # whether a store that cannot be read is left out
    verbose: bool = False  # whether inferred values are told
    reads_rocksdb: bool = field(default_factory=has_rocksdict)  # whether the driver can: then all can, or it ends


class ByTask(Struct, frozen=True):
    """What a task has told of a store that it planned, and another one finishes."""

    how: HowToRead
    remarks: tuple[str, ...]  # for people
    holder: int | None  # pid of the broker that runs on it
    unread: tuple[str, ...]  # what the tables need and no part reads
    size: int  # estimated bytes of its files
    topics: int  # that have queue files
    queue_ids: int


class StorePlan(Struct):
    """The parts of one store, and what an earlier export has of it."""

    store: Store
    reach: LogReach
    parts: list[LogPart] = field(default_factory=list)
    side_parts: list[SidePart] = field(default_factory=list)
    start: int = 0  # messages before this physical offset are in the earlier export
    known: ExportedStore | None = None  # the store's entry in the earlier manifest
    kept: list[ExportedFile] = field(default_factory=list)  # its files of messages that stay
    expired: int = 0  # its segments that the store no longer has
    replaced: list[int] = field(default_factory=list)  # bases of its segments to export again: changed, or cut
    releases: Sequence[str] = ()  # broker releases that may have written the store
    cut: list[int] = field(default_factory=list)  # those of `replaced` that are gone from the log's end
    missed: list[str] = field(default_factory=list)  # segments it could not read completely, one message each
    paths: Sequence[str] = ()  # of the store, as they were given
    by_task: ByTask | None = None  # then `store` has its log only

    def __post_init__(self) -> None:
        self.paths = self.paths or self.store.paths

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(part.size for part in self.parts)


MOST_PARTS = 100_000
"""A plan of more parts takes more memory than the export."""


def expect_few_parts(stores: Sequence[Store], file_size: int) -> None:
    """Check that a log is not cut into crumbs.

    :raises BadOption: it would be.
    """
    parts = sum(-(-segment.size // file_size) for store in stores for segment in store.segments)
    if parts > MOST_PARTS:
        raise BadOption(
            f"--file-size: so small a size makes {group_digits(parts)} files; the limit is {group_digits(MOST_PARTS)}"
        )


def plan_store(
    store: Store,
    survey: StoreSurvey,
    request: ExportRequest,
    earlier: Manifest | None = None,
    *,
    replace_changed: bool = False,
    unpacking: Unpacking | None = None,
) -> StorePlan:
    """Decide what to read of a store, which has what its RocksDB databases hold, unpacked as `unpacking` says.

    :raises Refused: segments of the earlier export have changed and may not be replaced.
    :raises Unreadable: queue files that are to be split cannot be opened.
    """
    plan = StorePlan(store, survey.reach, releases=survey.releases)
    if earlier is not None:
        _resume(plan, earlier, replace_changed=replace_changed)
    plan.parts = _mark_cold(_log_parts(plan, request))
    for table in request.tables:
        if table not in (MESSAGES, FINDINGS) and table not in LOG_TABLES:
            for number, split in enumerate(split_table(table, store, request.file_size, unpacking=unpacking)):
                plan.side_parts.append(SidePart(store.name, table, numbered_name(store.name, number), split))
    return plan


def _log_parts(plan: StorePlan, request: ExportRequest) -> list[LogPart]:
    """Return the parts to read. Tables made from the whole log need all of them, also those that write nothing."""
    messages, whole = MESSAGES in request.tables, not LOG_TABLES.isdisjoint(request.tables)
    first, last = range_to_read(plan.store, request.selection.offsets) or (0, 1 << 63)
    cut = plan_log(plan.store, request.file_size, plan.reach, plan.start, closed_only=request.closed_only)
    parts = []
    for part in cut if messages or whole else ():
        closed = not request.closed_only or all(plan.reach.is_closed(split.segment) for split in part.splits)
        writes = messages and closed and part.start >= plan.start and part.start < last and first < part.end
        if writes or whole:
            parts.append(replace(part, writes=writes))
    return parts


def _mark_cold(parts: list[LogPart]) -> list[LogPart]:
    """Mark the parts that start inside a segment whose earlier bytes no part reads."""
    read: set[tuple[str, int]] = set()
    marked = []
    for part in parts:
        cold = any(split.start and (split.segment.path, split.start) not in read for split in part.splits)
        read.update((split.segment.path, split.end) for split in part.splits)
        marked.append(replace(part, cold=cold))
    return marked


def not_read(plan: StorePlan, tables: Sequence[str]) -> list[str]:
    """Return a message for everything the tables need and the plan cannot read, such as unreadable folders."""
    if plan.by_task is not None:
        return [*plan.by_task.unread]
    store = plan.store
    unread = unread_places(store, tables)
    pointed_at = plan.reach.pointed_at
    headless = store.given == "store" and not store.segments and pointed_at is not None
    if headless and not {MESSAGES, *LOG_TABLES}.isdisjoint(tables):
        where = describe_offset(pointed_at or 0)
        unread.append(f"{store.name}: no segment of a commit log is there, though queues point into one, up to {where}")
    return unread


# --- after an earlier export ----------------------------------------------------------------------


def _resume(plan: StorePlan, earlier: Manifest, *, replace_changed: bool) -> None:
    """Find what of the earlier export still holds, and where the new one starts."""
    store = plan.store
    known = next((one for one in earlier.stores if one.name == store.name), None)
    if known is None or known.end is None:
        return
    changed = [segment.base for segment in changed_segments(store, known, plan.reach.end)]
    cut = cut_segments(store, known)
    missed = missed_segments(store, known)
    if replace_changed:
        changed = sorted({*changed, *(segment.base for segment in missed)})
    elif changed or cut:
        raise Refused(_refusal(store, earlier, changed, cut))
    else:
        plan.missed = [
            f"{segment.name}: not read whole by the earlier export; --replace-changed exports it again"
            for segment in missed
        ]
    plan.known, plan.start = known, known.end
    plan.kept = [
        file for file in earlier.files if file.table == MESSAGES and file.store == store.name and not file.is_tail
    ]
    plan.replaced, plan.cut = [*changed, *cut], cut
    if plan.replaced:
        # From the first replaced segment on. A file may hold several segments: all files from there are written anew.
        first = min(plan.replaced)
        ranges = [(file.start, file.end) for file in plan.kept]
        starts = [start for start, end in ranges if start is not None and end is not None and end > first]
        plan.start = min([first, *starts])
        plan.kept = [file for file in plan.kept if file.end is not None and file.end <= plan.start]
    bases = {segment.base for segment in store.segments}
    plan.expired = sum(entry["base"] not in bases for entry in known.segments if entry["base"] < plan.start)


def _refusal(store: Store, earlier: Manifest, changed: list[int], cut: list[int]) -> str:
    when = str(earlier.run.get("started", ""))[:10]
    if changed:
        return (
            f"{store.name}: segment {changed[0]} differs from the export of {when}; --replace-changed exports it again"
        )
    return (
        f"{store.name}: segment {cut[0]} of the export of {when} is gone, and no later one exists: the log was cut; "
        "--replace-changed removes its rows"
    )


_SAMPLE_SIZE = 1 << 20
_SAMPLES = 16  # per store
# Columns compress better than the log, but bodies that are stored compressed get unpacked.
_MARGIN = 1.2


def estimate_size(plans: Sequence[StorePlan]) -> int:
    """Return the estimated bytes of all files, on the high side.

    The log counts as its samples compress; the sources of other tables count in full.
    """
    told = sum(plan.by_task.size for plan in plans if plan.by_task is not None)
    here = [plan for plan in plans if plan.by_task is None]
    return told + sum(_log_size(plan) + sum(part.split.size for part in plan.side_parts) for plan in here)


def _log_size(plan: StorePlan) -> int:
    sampled = packed = 0
    for content in _samples(plan):
        sampled += len(content)
        packed += len(pa.compress(content, "zstd", asbytes=True))
    size = sum(part.size for part in plan.parts if part.writes and not part.is_tail)
    return int(size * packed / sampled * _MARGIN) if sampled else 0


def _samples(plan: StorePlan) -> Iterator[bytes]:
    """Yield samples of the log before its end, evenly spread over what will be written."""
    places: list[tuple[Segment, int, int]] = []
    for part in plan.parts:
        if part.writes and not part.is_tail:
            for split in part.splits:
                starts = range(split.start, split.end, _SAMPLE_SIZE)
                places += [(split.segment, start, split.end) for start in starts]
    for segment, start, end in places[:: max(1, len(places) // _SAMPLES)]:
        try:
            with open_file(segment) as reader:
                yield reader.read(start, min(_SAMPLE_SIZE, end - start))
        except Unreadable:
            continue

"""What `verify` keeps for a picture of the store (`rmqinspect.picture`): the log as runs, and what leads into it.

Everything here comes from the results of the one pass over the log: nothing is read for it but the 48 bytes of the
checkpoint. The runs are painted in layers; of each byte the last layer that knows something holds:

    records, filler, zeros, bridges   byte account: the gaps of a segment, and records between them
    records of an earlier life        of the splits
    damage                            gaps that are unknown; records with a wrong CRC or offset; findings of the log
    not read                          what the system could not read, what the level leaves out, what Ctrl-C left over

So every damaged range of a finding lies in a run of kind damage, unless it could not be read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import BRIDGED
from rmqinspect.commitlog.log_runs import KINDS, MOST_RUNS, FoldedRanges, Run, folded, painted
from rmqinspect.commitlog.missing import log_range, missing_in
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.document import Part, means
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS
from rmqinspect.store.model import Store
from rmqinspect.text import group_digits
from rmqinspect.times import format_millis
from rmqinspect.verify.findings import Finding, FindingRow
from rmqinspect.verify.queue_survey import QueueSurvey
from rmqinspect.verify.whole_log import SegmentState

_OF_FILES = frozenset({"CL-NAME", "CL-SIZE", "CL-HOLE", "CL-DUPLICATE", "CL-FIRST", "DL-INDEX"})
"""Codes of the log that are about files, not about bytes of the log."""


class MapRun(Part, frozen=True):
    """Bytes of the log that are of one kind."""

    start: Annotated[int, means("physical offset of its first byte")]
    end: Annotated[int, means("physical offset behind its last byte")]
    kind: Annotated[str, means("; ".join(f"`{kind}`: {words}" for kind, words in KINDS.items()))]
    mixed: Annotated[
        bool,
        means("whether neighbours of other kinds were folded into it, as there were too many; it has the worst kind"),
    ]


class MapQueue(Part, frozen=True):
    """A queue, and which part of the log its units lead into."""

    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    units: Annotated[int, means("units of messages")]
    min_offset: Annotated[int, means("queue offset of the first unit that points into the log")]
    max_offset: Annotated[int, means("queue offset behind the last unit")]
    first_physical_offset: Annotated[int | None, means("where its first unit in the log points; null without one")]
    last_physical_offset: Annotated[int | None, means("where its last unit points; null without one")]


class MapIndex(Part, frozen=True):
    """An index file, and which part of the log it covers, by its header."""

    file: Annotated[str, means("name relative to the store")]
    entries: Annotated[int, means("entries in use")]
    first_physical_offset: Annotated[int, means("of the record of the first entry")]
    last_physical_offset: Annotated[int, means("of the record of the last entry")]


class MapCheckpoint(Part, frozen=True):
    """Times of the checkpoint."""

    physic_msg_timestamp: Annotated[str | None, means("store timestamp in this field; null: 0, or not a time")]
    logics_msg_timestamp: Annotated[str | None, means("the same, of the queues")]
    index_msg_timestamp: Annotated[str | None, means("the same, of the index")]


class LogMap(Part, frozen=True):
    """The store as a picture shows it."""

    runs: Annotated[
        list[MapRun],
        means(
            "in log order, without gap or overlap, from the first byte of the first segment to the end of the last, or "
            "to where it should end; "
            f"about {group_digits(MOST_RUNS)} at most"
        ),
    ]
    queues: Annotated[list[MapQueue], means("by topic and number; empty at level quick")]
    index_files: Annotated[list[MapIndex], means("by name, those with an entry")]
    checkpoint: Annotated[MapCheckpoint | None, means("the times of the checkpoint; null without one")]


def log_map(
    store: Store,
    segments: Sequence[SegmentState],
    damaged: FoldedRanges,
    findings: Iterable[Finding],
    unread: Iterable[Unread],
    queues: Iterable[QueueSurvey],
    index: Iterable[IndexFile],
    interrupted_at: int | None = None,
) -> LogMap:
    """Return the map; `damaged` are the records that break a rule, `findings` those of the log, before any cap."""
    runs: list[Run] = []
    if store.segments:
        beneath = "missing" if store.neighbours else "unread"
        _, end = log_range(store)
        layers = _layers(store, segments, damaged, findings, unread, end if interrupted_at is None else interrupted_at)
        runs = folded(painted(layers, store.segments[0].base, end, beneath))
    return LogMap(
        [MapRun(*run) for run in runs],
        sorted(map(_queue, queues), key=lambda queue: (queue.topic, queue.queue_id)),
        [_index(one) for one in index if one.header is not None and one.entries],
        _checkpoint(store),
    )


def _layers(
    store: Store,
    segments: Sequence[SegmentState],
    damaged: FoldedRanges,
    findings: Iterable[Finding],
    unread: Iterable[Unread],
    reached: int,
) -> Iterator[list[Run]]:
    """Yield the layers, the last of which holds."""
    known = {state.account.segment.base for state in segments}
    yield [run for state in segments for run in _account(state)]
    found = [finding for finding in findings if finding.physical_offset is not None]
    tails = [_range(finding, "stale") for finding in found if finding.code == "CL-STALE-TAIL"]
    yield [*tails, *(Run(start, end, "stale") for state in segments for start, end, _ in state.stale)]
    ranges = [Run(start, end, "damage", mixed) for start, end, mixed in damaged]
    yield [*ranges, *(_range(finding, "damage") for finding in found if is_damage(finding))]
    yield [
        *(Run(segment.base, segment.end, "unread") for segment in store.segments if segment.base not in known),
        *(
            Run(max(reached, segment.base), segment.end, "unread")
            for segment in store.segments
            if segment.end > reached
        ),
        *(Run(part.start, part.end, "unread") for part in unread),
    ]
    # A record that goes on where the file ends is damaged, and so far as no file has it missing.
    yield [Run(gap.start, gap.end, "missing") for gap in missing_in(store)]


def _account(state: SegmentState) -> Iterator[Run]:
    """Yield the bytes of a segment as the byte account has them: gaps, and records between them."""
    segment = state.account.segment
    at = segment.base
    for gap in state.account.merged_gaps():
        if at < gap.start:
            yield Run(at, gap.start, "records")
        if gap.kind != "unknown":
            yield Run(gap.start, gap.end, "bridged" if gap.reason == BRIDGED else gap.kind)
        elif gap.reason == "unreadable":
            yield Run(gap.start, gap.end, "unread")
        else:
            yield Run(gap.start, gap.end, "damage")
        at = gap.end
    if at < segment.end:
        yield Run(at, segment.end, "records")


def is_damage(finding: Finding | FindingRow) -> bool:
    """Whether a finding says that bytes of the log are damaged."""
    of_log = finding.code.startswith(("CL-", "DL-")) and finding.code not in _OF_FILES
    return of_log and finding.severity == "error"


def _range(finding: Finding, kind: str) -> Run:
    assert finding.physical_offset is not None
    return Run(finding.physical_offset, finding.physical_offset + max(finding.length or 1, 1), kind)


def _queue(survey: QueueSurvey) -> MapQueue:
    return MapQueue(
        survey.topic,
        survey.queue_id,
        survey.units,
        survey.first_kept,
        survey.max_offset,
        survey.first_physical_offset,
        survey.last_physical_offset,
    )


def _index(one: IndexFile) -> MapIndex:
    assert one.header is not None
    header = one.header
    return MapIndex(one.file.name, one.entries, int(header.begin_physical_offset), int(header.end_physical_offset))


def _checkpoint(store: Store) -> MapCheckpoint | None:
    try:
        values = read_checkpoint(store)
    except Unreadable:
        return None
    times = (values.get(name, 0) for name in TIMESTAMP_FIELDS)
    return MapCheckpoint(*(format_millis(time) if time > 0 else None for time in times)) if values else None

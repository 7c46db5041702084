"""Rows of some spans of the log: the same that a scan of the whole log has there.

A scan knows from all that lies before a record whether it is the log's: not an older one behind a gap or behind
the blank record that ends a segment. So a span is entered in one of two ways:

- its first record has a unit in its queue that points at it: the broker took it for the log's, too. A short look
  back then tells the state of the scan;
- any other is entered by a walk from the start of its segment, which reads what lies between.

Spans of the log, and how they were found.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Span, merge
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap, ScanState, Split, holes_in
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.scan import RecordRun, scan_split, walk_to
from rmqinspect.consumequeue.units import find_unit
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.read_log import lost_gaps, report_holes
from rmqinspect.tables.table import Request

# Spans nearer than this are read as one: entering a span costs as much.
NEAR = 512 << 10


@dataclass(frozen=True, slots=True)
class Way:
    """How one filter finds its records: the spans of the log that may hold them, and what to say of it."""

    name: str
    spans: list[Span]
    searched: str
    beside: Sequence[Span] = ()  # to be read as well, for records that should not be there
    told: str = ""  # the way in more words: how many pointers there are, and what no pointer could be trusted for


def whole_log(store: Store) -> Span:
    """Return the span from the first byte of the log to its last; (0, 0) without segments."""
    ends = [segment.end for segment in store.segments]
    return store.log_start, max(ends, default=0)


def place_span(store: Store, place: int) -> Span:
    """Return the span to read for the record at a place: a DLedger record begins with its entry head."""
    segment = store.segment_at(place)
    return place - (segment.lead if segment is not None else 0), place + 1


_AROUND = 64 << 10  # bytes around a span that ends in a gap; sixteen times as many at each further look


def rows_at(
    store: Store, places: Collection[int], request: Request, log: RecordReader | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `messages` at some physical offsets, ascending; places without a record give none.

    Rows have the columns of the request. `log` is used as by `planned_rows`.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    wanted = pa.array(sorted(set(places)), pa.int64())
    spans = [place_span(store, place) for place in places]
    for batch in planned_rows(store, spans, request, log):
        rows = batch.filter(pc.is_in(batch.column("physical_offset"), wanted))
        yield from (rows if request.columns is None else rows.select(sorted(request.columns))).to_pylist()


def planned_rows(
    store: Store, spans: Sequence[Span], request: Request, log: RecordReader | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `messages` in some spans of the log, and maybe of what lies between near ones.

    `log` is an open reader of the store: what it has read of a record that a span begins with is not read again.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    holes = holes_in(store)
    for span in spans if holes else ():
        report_holes(holes, replace(request, offsets=span))
    joined = merge(spans, NEAR)
    with nullcontext(log) if log is not None else RecordReader(store) as log:
        doors = _Doors(store, log)
        for segment in store.segments:
            for start, end in joined:
                inside = max(start, segment.base), min(end, segment.end)
                if inside[0] < inside[1]:
                    yield from _rows_inside(segment, inside, doors, request)


def _rows_inside(segment: Segment, span: Span, doors: "_Doors", request: Request) -> Iterator[pa.RecordBatch]:
    account = ByteAccount(segment)
    try:
        inside = replace(request, offsets=span, entry=doors.entry(segment, span[0]), on_gap=None)
        yield from messages_in([segment], inside, account.join)
        if request.on_gap is not None:
            for gap in _lost_gaps(account, span, doors.records_behind):
                request.on_gap(gap.kind, gap.start, gap.end)
    except Unreadable as error:
        if request.on_unreadable is None:
            raise
        request.on_unreadable(str(error))


def _lost_gaps(account: ByteAccount, span: Span, records_behind: Callable[[Segment], bool]) -> list[Gap]:
    """Return the gaps of a span that held records: what a gap is depends on the bytes around it, and what follows."""
    segment, around = account.segment, 0
    gaps = account.merged_gaps()
    while any(_is_cut(gap, segment, (span[0] - around, span[1] + around)) for gap in gaps):
        around = around * 16 or _AROUND
        start, end = span[0] - segment.base - around, span[1] - segment.base + around
        account = ByteAccount(segment)
        for event in scan_split(Split(segment, max(0, start), min(segment.size, end))):
            if isinstance(event, RecordRun | Gap):
                account.add(event)
        gaps = [gap for gap in account.merged_gaps() if gap.start < span[1] and span[0] < gap.end]
    to_the_end = any(gap.kind == "zeros" and gap.end >= segment.end for gap in gaps)
    return lost_gaps(gaps, segment.end if to_the_end and records_behind(segment) else account.end or 0)


def _is_cut(gap: Gap, segment: Segment, span: Span) -> bool:
    """Whether a gap may go on beyond the span that was read."""
    before = segment.base < span[0] and gap.start <= span[0]
    behind = span[1] < segment.end and gap.end >= span[1]
    return gap.kind in ("unknown", "zeros") and (before or behind)


class _Doors:
    """How spans are entered; spans come in ascending order."""

    def __init__(self, store: Store, log: RecordReader) -> None:
        self._store = store
        self._log = log
        self._segment: Segment | None = None
        self._walked: tuple[int, ScanState | None] = 0, None  # position in the segment, and the scan's state there

    @cached_property
    def _queues(self) -> dict[tuple[str, int], list[QueueFile]]:
        queues = defaultdict(list)
        for file in self._store.queue_files:
            if file.kind == "queue":
                queues[file.topic, file.queue_id].append(file)
        return queues

    def entry(self, segment: Segment, offset: int) -> ScanState | None:
        """Return the state of the scan at an offset of a segment; None if a look back tells it."""
        position = offset - segment.base
        if segment is not self._segment:
            self._segment, self._walked = segment, (0, None)
        if position == 0 or self._has_unit(offset + segment.lead):
            return None
        start, state = self._walked
        state = walk_to(segment, start, position, state)
        self._walked = position, state
        return state

    def records_behind(self, segment: Segment) -> bool:
        """Whether a record lies in a segment behind this one."""
        later = (other for other in self._store.segments if other.base > segment.base)
        return any(self._log.next_record(other.base, other.end) is not None for other in later)

    def _has_unit(self, place: int) -> bool:
        """Whether the queue's unit for the record at a place points at it."""
        identity = self._log.identity_at(place)
        files = self._queues.get((identity.topic, identity.queue_id)) if identity is not None else None
        if identity is None or not files:
            return False
        try:
            return find_unit(files, identity.queue_offset) == (place, identity.size)
        except Unreadable:
            return False

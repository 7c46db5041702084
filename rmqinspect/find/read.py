"""Rows of some spans of the log: the same that a scan of the whole log has there.

A scan knows from all that lies before a record whether it is the log's: not an older one behind a gap or behind
the blank record that ends a segment. So a span is entered in one of two ways:

- its first record has a unit in its queue that points at it: the broker took it for the log's, too. A short look
  back then tells the state of the scan;
- any other is entered by a walk from the start of its segment, which reads what lies between.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap, holes_in
from rmqinspect.commitlog.scan import RecordRun, scan_split, walk_to
from rmqinspect.commitlog.splits import ScanState, Split
from rmqinspect.consumequeue.units import find_unit
from rmqinspect.errors import Unreadable
from rmqinspect.find.spans import NEAR, Log
from rmqinspect.index.lookup import Span, merge
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.read_log import lost_gaps, report_holes
from rmqinspect.tables.table import Request

_AROUND = 64 << 10  # bytes around a span that ends in a gap; sixteen times as many at each further look


def planned_rows(store: Store, spans: Sequence[Span], request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `messages` in some spans of the log, and maybe of what lies between near ones.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    holes = holes_in(store)
    for span in spans if holes else ():
        report_holes(holes, replace(request, offsets=span))
    joined = merge(spans, NEAR)
    with Log(store) as log:
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
        account = _account(Split(segment, max(0, start), min(segment.size, end)))
        gaps = [gap for gap in account.merged_gaps() if gap.start < span[1] and span[0] < gap.end]
    to_the_end = any(gap.kind == "zeros" and gap.end >= segment.end for gap in gaps)
    return lost_gaps(gaps, segment.end if to_the_end and records_behind(segment) else account.end or 0)


def _account(split: Split) -> ByteAccount:
    account = ByteAccount(split.segment)
    for event in scan_split(split):
        if isinstance(event, RecordRun | Gap):
            account.add(event)
    return account


def _is_cut(gap: Gap, segment: Segment, span: Span) -> bool:
    """Whether a gap may go on beyond the span that was read."""
    before = segment.base < span[0] and gap.start <= span[0]
    behind = span[1] < segment.end and gap.end >= span[1]
    return gap.kind in ("unknown", "zeros") and (before or behind)


class _Doors:
    """How spans are entered; spans come in ascending order."""

    def __init__(self, store: Store, log: Log) -> None:
        self._store = store
        self._log = log
        self._segment: Segment | None = None
        self._walked = 0, None  # position in the segment, and the state of the scan there

    _walked: tuple[int, ScanState | None]

    @cached_property
    def _queues(self) -> dict[tuple[str, int], list[QueueFile]]:
        queues: dict[tuple[str, int], list[QueueFile]] = {}
        for file in self._store.queue_files:
            if file.kind == "queue":
                queues.setdefault((file.topic, file.queue_id), []).append(file)
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

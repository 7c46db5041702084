"""Store times to spans of the log: a search between records that lie in the order of their times.

    segments     |r.......|r.......|r.......|r.......|        first the times of the segments' first records
    window              |------|
    read               |###|####|                             then by halves, down to a mebibyte

A broker stores records in the order of its clock, which may be set back, and a damaged record may have any time.
Where the times of the records looked at do not ascend, all between them is read; so is what has no record to look
at. Between two records in order, a record out of order is not seen.

Source: MappedFileQueue#getMappedFileByTime, CommitLog#pickupStoreTimestamp.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rmqinspect.find.spans import Log, Way, whole_log
from rmqinspect.index.lookup import Span, merge
from rmqinspect.store.model import Store
from rmqinspect.text import describe_size

_SMALL = 1 << 20  # bytes read without a search inside
_LARGE = 16 << 20  # bytes not left out before a look at some records inside
_LOOKS = 3
_MARGIN_MS = 100  # times of neighbours may be out of order by so much


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place in the log, and the store time (ms) of the record there; None if no record was found."""

    offset: int
    time: int | None


def by_times(store: Store, since: int | None, until: int | None) -> Way:
    """Return how to find the records of a window of store times: microseconds, [since, until)."""
    low = -(1 << 63) if since is None else since // 1000 - _MARGIN_MS
    high = (1 << 63) if until is None else -(-until // 1000) + _MARGIN_MS
    whole = whole_log(store)
    with Log(store) as log:
        spans = merge(_Search(log, low, high).between(_segment_starts(store, log, whole)))
    size = sum(end - start for start, end in spans)
    return Way("by the times of records", spans, f"{describe_size(size)} of the log, by the times of records")


def _segment_starts(store: Store, log: Log, whole: Span) -> list[_Spot]:
    """Return the first record of each segment, none nearer than `_SMALL` to the one before, and the log's end."""
    spots: list[_Spot] = []
    for segment in store.segments:
        if not spots or segment.base - spots[-1].offset >= _SMALL:
            found = log.next_record(segment.base, segment.end)
            spots.append(_Spot(segment.base, None if found is None else found[1]))
    return [*spots, _Spot(whole[1], None)]


class _Search:
    """Yields the spans that may hold records with times in [low, high), in ms."""

    def __init__(self, log: Log, low: int, high: int) -> None:
        self._log = log
        self._low, self._high = low, high

    def between(self, spots: list[_Spot]) -> Iterator[Span]:
        """Yield what to read between neighbouring places, ascending."""
        for start, end in pairwise(spots):
            yield from self._narrow(start, end)

    def _narrow(self, start: _Spot, end: _Spot) -> Iterator[Span]:
        size = end.offset - start.offset
        ordered = start.time is not None and (end.time is None or start.time <= end.time + _MARGIN_MS)
        if size <= _SMALL or not ordered:
            yield start.offset, end.offset
        elif self._overlaps(start, end):
            yield from self._halve(start, end)
        elif size > _LARGE and end.time is not None:
            looks = [self._look(start.offset + size * number // (_LOOKS + 1), end) for number in range(1, _LOOKS + 1)]
            if any(look.time is not None and not self._in_order(start, look, end) for look in looks):
                yield start.offset, end.offset

    def _halve(self, start: _Spot, end: _Spot) -> Iterator[Span]:
        middle = self._look((start.offset + end.offset) // 2, end)
        if middle.time is None or middle.offset >= end.offset:
            # Behind the middle is no record to go by: damage, zeros, or a hole that need not be read.
            half = (start.offset + end.offset) // 2
            yield from self._narrow(start, _Spot(half, None))
            data = self._log.next_data(half)
            if data < end.offset:
                yield data, end.offset
        elif not self._in_order(start, middle, end):
            yield start.offset, end.offset
        else:
            yield from self._narrow(start, middle)
            yield from self._narrow(middle, end)

    def _look(self, offset: int, end: _Spot) -> _Spot:
        found = self._log.next_record(offset, end.offset)
        return _Spot(offset, None) if found is None else _Spot(*found)

    def _in_order(self, start: _Spot, middle: _Spot, end: _Spot) -> bool:
        assert start.time is not None
        assert middle.time is not None
        return start.time <= middle.time + _MARGIN_MS and (end.time is None or middle.time <= end.time + _MARGIN_MS)

    def _overlaps(self, start: _Spot, end: _Spot) -> bool:
        assert start.time is not None
        return start.time < self._high and (end.time is None or end.time >= self._low)

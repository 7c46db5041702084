"""Queue offsets to places in the log, by the units of the queue.

    offset     ...  40   41   42   43   44  ...
    unit            p0   p1    ?   p3   p4          ?: not written, damaged, or of another record
    read                 |====...====|              42 may be anywhere between its neighbours

A unit counts if the record it points at says that it is this queue's message with this offset. What has no such
unit may lie anywhere between the nearest offsets that have one. A broker that restarts may give offsets out twice,
so a little of the log around each record is read as well.

Source: ConsumeQueue, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rmqinspect.consumequeue.around import units_around
from rmqinspect.consumequeue.units import LAYOUTS, queue_end
from rmqinspect.find.spans import Log, Way, place_span, whole_log
from rmqinspect.index.lookup import Span, merge
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.text import group_digits
from rmqinspect.topics import LMQ_PREFIX

_AROUND = 64  # units looked at on either side of those asked for
_NEARBY = 256 << 10  # bytes of the log read on either side of a record
_MOST_PROVEN = 1 << 16  # units; of more, the first and the last are proven, and all between is read


def by_units(store: Store, topic: str, queue_id: int, wanted: Span) -> Way:
    """Return how to find the records with a range of queue offsets in one queue.

    :raises Unreadable: a queue file cannot be read.
    """
    whole = whole_log(store)
    queue = f"queue {queue_id} of {topic}"
    files = tuple(
        file for file in store.queue_files if file.topic == topic and file.queue_id == queue_id and file.kind in LAYOUTS
    )
    if not files:
        return Way(f"by a scan, for there are no files of {queue}", [whole], "the whole log")
    first, end = _extent(files, store.log_start)
    with Log(store) as log:
        units = _Units(log, files, (topic, queue_id), (min(wanted[0], end), max(min(wanted[1], end), first)))
        spans = merge(_spans(store, units, wanted, whole))
    name = f"by a scan, for no unit of {queue} leads there" if spans == [whole] else "by the queue's units"
    extent = f"{queue}, which has units from {group_digits(first)} to {group_digits(end - 1)}"
    return Way(name, spans, extent, units.around)


def _extent(files: Sequence[QueueFile], log_start: int) -> Span:
    """Return the lowest and highest extent of the queue's units in queue offsets, [first, end)."""
    kinds = dict.fromkeys(file.kind for file in files)
    ends = [queue_end(tuple(file for file in files if file.kind == kind), log_start) for kind in kinds]
    return min(end.min_offset for end in ends), max(end.max_offset for end in ends)


class _Units:
    """The units around some queue offsets, ascending, and which of them their records confirm."""

    def __init__(self, log: Log, files: Sequence[QueueFile], queue: tuple[str, int], around: Span) -> None:
        self._log = log
        self._queue = queue
        self.around: list[Span] = []  # of records that were used
        first, behind = around
        windows = [(first - _AROUND, behind + _AROUND)]
        if behind - first > _MOST_PROVEN:  # what lies between both ends is read as a whole
            windows = [(first - _AROUND, first + _AROUND), (behind - _AROUND, behind + _AROUND)]
        found = [units_around(files, max(0, low), high) for low, high in windows]
        if files[0].kind == "batch_queue":
            del found[1:]  # each has all units
        self.offsets: list[int] = [offset for offsets, _ in found for offset in offsets.tolist()]
        self.places: list[int] = [place for _, places in found for place in places.tolist()]

    def is_proven(self, row: int) -> bool:
        """Whether the record that a unit points at is the queue's message with the unit's offset.

        A light message names its own queue; that of the unit is among its properties, which a filter compares.
        """
        identity = self._log.identity_at(self.places[row])
        is_light = self._queue[0].startswith(LMQ_PREFIX)
        return identity is not None and (is_light or identity[1:] == (*self._queue, self.offsets[row]))

    def place_below(self, row: int) -> int | None:
        """Return the place of the nearest proven unit before a row."""
        return next((self.places[at] for at in range(row - 1, -1, -1) if self.is_proven(at)), None)

    def place_from(self, row: int) -> int | None:
        """Return the place of the nearest proven unit at or behind a row."""
        return next((self.places[at] for at in range(row, len(self.places)) if self.is_proven(at)), None)

    def note_around(self, row: int) -> None:
        """Note the span around a proven unit's record, between records of the same queue."""
        place = self.places[row]
        around = self.places[max(0, row - _AROUND) : row + _AROUND]
        last = max(other for other in around if other <= place + _NEARBY)
        self.around.append((min(other for other in around if other >= place - _NEARBY), last + 1))


def _spans(store: Store, units: _Units, wanted: Span, whole: Span) -> Iterator[Span]:
    """Yield what to read of the log: each proven record, and what lies between where one is not proven."""
    low, high = bisect_left(units.offsets, wanted[0]), bisect_left(units.offsets, wanted[1])
    rows = range(low, high) if high - low <= _MOST_PROVEN else ()
    expected = wanted[0]
    below = units.place_below(low)
    for row in rows:
        if not units.is_proven(row):
            continue
        if units.offsets[row] > expected:
            yield _between(store, whole, below, units.places[row])
        yield place_span(store, units.places[row])
        units.note_around(row)
        below, expected = units.places[row], units.offsets[row] + 1
    if expected < wanted[1]:
        yield _between(store, whole, below, units.place_from(bisect_right(units.offsets, wanted[1] - 1)))


def _between(store: Store, whole: Span, below: int | None, above: int | None) -> Span:
    """Return the span from one proven record to another; without one, from or to the end of the log."""
    start = whole[0] if below is None else place_span(store, below)[0]
    end = whole[1] if above is None else above
    # Units out of order: what is looked for may be anywhere.
    return (start, end) if start < end else whole

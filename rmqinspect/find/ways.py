"""Queue offsets to places in the log, by the units of the queue.

    offset     ...  40   41   42   43   44  ...
    unit            p0   p1    ?   p3   p4          ?: not written, damaged, or of another record
    read                 |====...====|              42 may be anywhere between its neighbours

A unit counts if the record it points at says that it is this queue's message with this offset. What has no such
unit may lie anywhere between the nearest offsets that have one. A broker that restarts may give offsets out twice,
so a little of the log around each record is read as well.

Source: ConsumeQueue, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.

Topics to spans of the log, by the units of their queues.

    log          |..a0.a1..........a2.a3.a4..............|a5....|
    units of a       0  1           2  ?  4               5        ?: zero, damaged, or of another record
    clusters        |====|         |======|              |=|       read whole
    also read                                             |====|   what lies behind the last unit of a queue

Units whose records lie close together are a cluster, which is read whole, so it does not matter what a unit inside
of it says. Between two clusters lies no record of the queue if the last unit of the one and the first of the other
follow each other, and the records that they point at say that they are these messages. Where that is not so, all
between is read.

A record has no unit where the broker made none: prepared and rollback records, up to 4.2; records that it had not
dispatched when it stopped. And units are lost, also from the end of a queue, so all behind the last one is read. A
record with the queue offset of another, and one of a queue without files, are not seen.

Source: ConsumeQueue, CommitLogDispatcherBuildConsumeQueue; RocketMQ 4.0.0 to 5.5.0.

Store times to spans of the log: a search between records that lie in the order of their times.

    segments     |r.......|r.......|r.......|r.......|        first the times of the segments' first records
    window              |------|
    read               |###|####|                             then by halves, down to a mebibyte

A broker stores records in the order of its clock, which may be set back, and a damaged record may have any time.
Where the times of the records looked at do not ascend, all between them is read; so is what has no record to look
at. Between two records in order, a record out of order is not seen.

Source: MappedFileQueue#getMappedFileByTime, CommitLog#pickupStoreTimestamp.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.codec.arrays import Ints, Span, intersect, merge
from rmqinspect.commitlog.missing import log_range
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.tail import Sample, find_log_end
from rmqinspect.consumequeue.bounds import queue_end
from rmqinspect.consumequeue.units import messages_in, units_around
from rmqinspect.find.queue_units import files_of_queue
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.text import describe_size, group_digits
from rmqinspect.topics import LMQ_PREFIX

# Spans nearer than this are read as one: entering a span costs as much.
NEAR = 512 << 10


class Way(Struct, frozen=True):
    """How one filter finds its records: the spans of the log that may hold them, and what to say of it."""

    name: str
    spans: list[Span]
    searched: str
    beside: Sequence[Span] = ()  # to be read as well, for records that should not be there
    told: str = ""  # the way in more words: how many pointers there are, and what no pointer could be trusted for


def gaps_asked(gap: Span, spans: Sequence[Span], whole: Span) -> list[Span]:
    """Return the parts of a gap that lie in what was searched, the `spans`; all offsets are physical.

    What is missing behind the last file belongs to a search of the whole log.
    """
    all_of_it = whole[0] == whole[1] or list(spans) == [whole]
    return [gap] if all_of_it and gap[0] >= whole[1] else intersect([gap], merge(spans))


def whole_log(store: Store) -> Span:
    """Return the span from the first byte of the log to its last, with what no file has; (0, 0) without segments."""
    return log_range(store)


def place_span(store: Store, place: int) -> Span:
    """Return the span to read for the record at a place: a DLedger record begins with its entry head."""
    segment = store.segment_at(place)
    return place - (segment.lead if segment is not None else 0), place + 1


_AROUND = 64  # units looked at on either side of those asked for
_NEARBY = 256 << 10  # bytes of the log read on either side of a record
_MOST_PROVEN = 1 << 16  # units; of more, the first and the last are proven, and all between is read


def by_units(store: Store, topic: str, queue_id: int, wanted: Span) -> Way:
    """Return how to find the records with a range of queue offsets in one queue.

    :raises Unreadable: a queue file cannot be read.
    """
    whole = whole_log(store)
    queue = f"queue {queue_id} of {topic}"
    files = files_of_queue(store, topic, queue_id)
    if not files:
        why = why_unknown(store, "queues", topic, str(queue_id)) or f"there are no files of {queue}"
        return Way(f"by a scan, for {why}", [whole], "the whole log")
    kinds = dict.fromkeys(file.kind for file in files)
    ends = [
        queue_end(tuple(file for file in files if file.kind == kind), store.log_start, lambda: True) for kind in kinds
    ]
    first, end = min(one.first_kept for one in ends), max(one.max_offset for one in ends)
    with RecordReader(store) as log:
        units = _Units(log, files, (topic, queue_id), (min(wanted[0], end), max(min(wanted[1], end), first)))
        spans = merge(_unit_spans(store, units, wanted, whole))
    name = f"by a scan, for no unit of {queue} leads there" if spans == [whole] else "by the queue's units"
    extent = f"{queue}, which has units from {group_digits(first)} to {group_digits(end - 1)}"
    return Way(name, spans, extent, units.around)


class _Units:
    """The units around some queue offsets, ascending, and which of them their records confirm."""

    def __init__(self, log: RecordReader, files: Sequence[QueueFile], queue: tuple[str, int], around: Span) -> None:
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


def _unit_spans(store: Store, units: _Units, wanted: Span, whole: Span) -> Iterator[Span]:
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


SMALL_LOG = 64 << 20  # bytes: reading up to so much costs no more than thinking about it
SHARE = 4  # the units pay if they save all but a fourth of the reading
_PREPARED_IN_HALF_TOPIC = RELEASES.index("4.3.0")  # before, prepared records lay in their own topic, without units


class _Cluster(NamedTuple):
    """Units of one queue whose records lie close together: the first and the last of them."""

    first: int  # physical offset
    last: int
    first_number: int  # queue offset
    last_number: int


class _Unusable(Exception):
    """The units do not tell where the records are, or reading by them costs as much as a scan."""


def by_topics(store: Store, topics: Sequence[str], queue_id: int | None, within: Sequence[Span]) -> Way | None:
    """Return how to find the records of some topics in some spans of the log; None if units do not help there.

    :raises Unreadable: a queue file cannot be read.
    """
    size = sum(end - start for start, end in within)
    if size <= SMALL_LOG or store.unread_entries or any(topic.startswith(LMQ_PREFIX) for topic in topics):
        return None
    try:
        queues = [files for topic in topics for files in _queues_of(store, topic, queue_id)]
        spans = _topic_spans(store, queues, within, size // SHARE)
    except _Unusable:
        return None
    read = describe_size(sum(end - start for start, end in spans))
    return Way(f"by the units of {', '.join(topics)}", spans, f"{read} of the log, by the units of the queues")


def _queues_of(store: Store, topic: str, queue_id: int | None) -> list[tuple[QueueFile, ...]]:
    files = [file for file in store.queue_files if file.topic == topic and queue_id in (None, file.queue_id)]
    files = [file for file in files if file.kind != "ext_queue"]
    in_database = any(oddity.kind == "rocksdb" for oddity in store.oddities) or any(
        file.noted for file in store.queue_files
    )
    if not files or in_database or any(file.kind != "queue" for file in files):
        raise _Unusable
    return [tuple(group) for _, group in groupby(files, lambda file: file.queue_id)]


def _topic_spans(store: Store, queues: Sequence[Sequence[QueueFile]], within: Sequence[Span], most: int) -> list[Span]:
    """Return what to read of some spans of the log.

    :raises _Unusable: more than `most` bytes.
    """
    walked = [_Queue(store, files, most) for files in queues]
    spans = [span for queue in walked for span in queue.spans()]
    _check_cost(intersect(merge(spans), within), most)
    end = find_log_end(store, [queue.newest for queue in walked])
    if may_lack_units(store, end.sample):
        raise _Unusable
    with RecordReader(store) as log:
        for queue in walked:
            spans += queue.doubtful(log)
    last = min(queue.last_proven for queue in walked)
    # What is preallocated behind the log's last record costs little, and a scan reads it too.
    used = whole_log(store)[1] if end.end is None or end.goes_on else end.end
    _check_cost(intersect(merge([*spans, (last, used)]), within), most)
    return intersect(merge([*spans, (last, whole_log(store)[1])]), within)


def _check_cost(spans: Sequence[Span], most: int) -> None:
    if sum(end - start + NEAR for start, end in merge(spans, NEAR)) > most:
        raise _Unusable


def may_lack_units(store: Store, last: Sample) -> bool:
    """Whether prepared and rollback records may lie in their own topic, where they have no units.

    Since 4.3 a broker keeps them in topics of its own. A bare message store, which has no topics.json, does not.
    Source: SendMessageProcessor, TransactionalMessageBridge#parseHalfMessageInner.
    """
    low = estimate_store(store, last).low
    return "topics.json" not in store.config_files or RELEASES.index(low) < _PREPARED_IN_HALF_TOPIC


class _Queue:
    """What the units of one queue say about the log."""

    def __init__(self, store: Store, files: Sequence[QueueFile], most: int) -> None:
        self._store = store
        self._queue = files[0].topic, files[0].queue_id
        self._whole = whole_log(store)
        self._most = most
        self._before = -1  # the newest queue offset whose record lay in front of the log
        self.newest = -1  # the place of the last unit's record, which need not be in the log
        self._newest_number = -1  # its queue offset
        self._clusters: list[_Cluster] = []
        cost = 0
        for file in files:
            for numbers, units in messages_in(file):
                found = self._clusters_in(units["physical_offset"].astype(np.int64), numbers)
                self._clusters += found
                cost += sum(cluster.last - cluster.first for cluster in found) + NEAR * max(0, len(found) - 1)
                if cost > most:
                    raise _Unusable
        if (self.newest, self._newest_number) == (-1, -1):
            raise _Unusable
        # The last proven record and its queue offset; `doubtful` goes through the clusters.
        self._below = self._whole[0], self._before

    @property
    def last_proven(self) -> int:
        """The place behind which a record without a unit may lie; after `doubtful`."""
        return self._below[0]

    def _clusters_in(self, places: Ints, numbers: Ints) -> list[_Cluster]:
        if not len(places):
            return []
        ascending = (places[1:] > places[:-1]).all() and (numbers[1:] > numbers[:-1]).all()
        if not ascending or places[0] <= self.newest or numbers[0] <= self._newest_number:
            raise _Unusable  # a record may then be anywhere
        self.newest, self._newest_number = int(places[-1]), int(numbers[-1])
        start, end = np.searchsorted(places, self._whole).tolist()
        self._before = int(numbers[start - 1]) if start else self._before
        places, numbers = places[start:end], numbers[start:end]
        if not len(places):
            return []
        breaks = np.flatnonzero(np.diff(places) > NEAR)
        firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(places) - 1)
        if len(firsts) * NEAR > self._most:
            raise _Unusable
        ends = (places[firsts], places[lasts], numbers[firsts], numbers[lasts])
        return [_Cluster(*row) for row in zip(*(column.tolist() for column in ends), strict=True)]

    def spans(self) -> Iterator[Span]:
        """Yield the clusters."""
        for cluster in self._clusters:
            yield place_span(self._store, cluster.first)[0], cluster.last + 1

    def doubtful(self, log: RecordReader) -> Iterator[Span]:
        """Yield what lies between clusters that do not follow each other."""
        for cluster in self._clusters:
            first = self._is_proven(log, cluster.first, cluster.first_number)
            last = self._is_proven(log, cluster.last, cluster.last_number)
            place, number = self._below
            if (first or last) and not (first and cluster.first_number == number + 1):
                yield place, cluster.first
            if last:
                self._below = cluster.last, cluster.last_number
            elif first:
                self._below = cluster.first, cluster.first_number

    def _is_proven(self, log: RecordReader, place: int, number: int) -> bool:
        identity = log.identity_at(place)
        return identity is not None and identity[1:] == (*self._queue, number)


_SMALL = 1 << 20  # bytes read without a search inside
_LARGE = 16 << 20  # bytes not left out before a look at some records inside
_LOOKS = 3
_MARGIN_MS = 100  # times of neighbours may be out of order by so much


class _Spot(NamedTuple):
    """A place in the log, and the store time (ms) of the record there; None if no record was found."""

    offset: int
    time: int | None


def by_times(store: Store, since: int | None, until: int | None) -> Way:
    """Return how to find the records of a window of store times: microseconds, [since, until)."""
    low = -(1 << 63) if since is None else since // 1000 - _MARGIN_MS
    high = (1 << 63) if until is None else -(-until // 1000) + _MARGIN_MS
    with RecordReader(store) as log:
        # The first record of each segment, none nearer than `_SMALL` to the one before, and the log's end.
        spots: list[_Spot] = []
        for segment in store.segments:
            if not spots or segment.base - spots[-1].offset >= _SMALL:
                found = log.next_record(segment.base, segment.end)
                spots.append(_Spot(segment.base, None if found is None else found[1]))
        spots.append(_Spot(whole_log(store)[1], None))
        search = _Search(log, low, high)
        spans = merge(span for start, end in pairwise(spots) for span in search.between(start, end))
    size = sum(end - start for start, end in spans)
    return Way("by the times of records", spans, f"{describe_size(size)} of the log, by the times of records")


class _Search:
    """Yields the spans that may hold records with times in [low, high), in ms."""

    def __init__(self, log: RecordReader, low: int, high: int) -> None:
        self._log = log
        self._low, self._high = low, high

    def between(self, start: _Spot, end: _Spot) -> Iterator[Span]:
        """Yield what to read between two places, ascending."""
        size = end.offset - start.offset
        if size <= _SMALL or start.time is None or (end.time is not None and start.time > end.time + _MARGIN_MS):
            yield start.offset, end.offset
        elif start.time < self._high and (end.time is None or end.time >= self._low):
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
            yield from self.between(start, _Spot(half, None))
            data = self._log.next_data(half)
            if data < end.offset:
                yield data, end.offset
        elif not self._in_order(start, middle, end):
            yield start.offset, end.offset
        else:
            yield from self.between(start, middle)
            yield from self.between(middle, end)

    def _look(self, offset: int, end: _Spot) -> _Spot:
        found = self._log.next_record(offset, end.offset)
        return _Spot(offset, None) if found is None else _Spot(*found)

    def _in_order(self, start: _Spot, middle: _Spot, end: _Spot) -> bool:
        assert start.time is not None
        assert middle.time is not None
        return start.time <= middle.time + _MARGIN_MS and (end.time is None or middle.time <= end.time + _MARGIN_MS)

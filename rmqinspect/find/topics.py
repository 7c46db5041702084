"""Topics to spans of the log, by the units of their queues.

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
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.sample import Sample
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.consumequeue.units import filler_units, read_units, unit_numbers, valid_units
from rmqinspect.find.spans import NEAR, Log, Way, place_span, whole_log
from rmqinspect.index.lookup import Span, intersect, merge
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import describe_size
from rmqinspect.topics import LMQ_PREFIX

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
        spans = _spans(store, queues, within, size // SHARE)
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


def _spans(store: Store, queues: Sequence[Sequence[QueueFile]], within: Sequence[Span], most: int) -> list[Span]:
    """Return what to read of some spans of the log.

    :raises _Unusable: more than `most` bytes.
    """
    walked = [_Queue(store, files, most) for files in queues]
    spans = [span for queue in walked for span in queue.spans()]
    _check_cost(intersect(merge(spans), within), most)
    end = find_log_end(store, [queue.newest for queue in walked])
    if may_lack_units(store, end.sample):
        raise _Unusable
    with Log(store) as log:
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
        self._newest = -1, -1  # physical offset and queue offset of the last unit
        self._clusters = self._walk(files)
        if self._newest == (-1, -1):
            raise _Unusable
        # The last proven record and its queue offset; `doubtful` goes through the clusters.
        self._below = self._whole[0], self._before

    @property
    def newest(self) -> int:
        """The place of the last unit's record, which need not be in the log."""
        return self._newest[0]

    @property
    def last_proven(self) -> int:
        """The place behind which a record without a unit may lie; after `doubtful`."""
        return self._below[0]

    def _walk(self, files: Sequence[QueueFile]) -> list[_Cluster]:
        clusters: list[_Cluster] = []
        cost = 0
        for file in files:
            with open_file(file) as reader:
                for row, units in read_units(reader, file.kind):
                    message = (valid_units(units) != 0) & ~filler_units(units)
                    found = self._clusters_in(
                        units["physical_offset"].astype(np.int64)[message], unit_numbers(file, row, units)[0][message]
                    )
                    clusters += found
                    cost += sum(cluster.last - cluster.first for cluster in found) + NEAR * max(0, len(found) - 1)
                    if cost > self._most:
                        raise _Unusable
        return clusters

    def _clusters_in(self, places: Ints, numbers: Ints) -> list[_Cluster]:
        if not len(places):
            return []
        ascending = (places[1:] > places[:-1]).all() and (numbers[1:] > numbers[:-1]).all()
        if not ascending or places[0] <= self._newest[0] or numbers[0] <= self._newest[1]:
            raise _Unusable  # a record may then be anywhere
        self._newest = int(places[-1]), int(numbers[-1])
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

    def doubtful(self, log: Log) -> Iterator[Span]:
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

    def _is_proven(self, log: Log, place: int, number: int) -> bool:
        identity = log.identity_at(place)
        return identity is not None and identity[1:] == (*self._queue, number)

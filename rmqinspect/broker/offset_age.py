"""How old the consumer offsets of a store are, against its messages.

    consumerOffset.json     written 00:39:14          a broker writes it every five seconds, the first time 10 s after a
    last message            stored  00:40:13          start: what groups consumed in the 59 s between is not known

    %RETRY%billing          "orders 1, 740" came back to billing   the group had consumed that message
    consumerOffset.json     billing, orders 1: 312                 so the file is older than that: as from a backup

The time of the file counts, or that of the newest message that any of its offsets has passed, if that is later: a copy
may have lost the time. A retry or dead letter counts if the broker went on for longer than it keeps offsets in memory
alone. The offset of a queue can also stay behind what a group gave back while an earlier message is still worked on.

Source: BrokerController (flushConsumerOffsetInterval), SendMessageProcessor#consumerSendMsgBack (ORIGIN_MESSAGE_ID),
ProcessQueue#removeMessage; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqinspect.broker.groups import dlq_topic, is_system_group, retry_topic
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.config.json_files import OFFSET_FILES, ConsumerOffset
from rmqinspect.consumequeue.bounds import QueueSummary
from rmqinspect.consumequeue.units import find_units
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store
from rmqinspect.store.reader import modified_at

Queue = tuple[str, int]

_TOLD_MS = 60_000  # a file that is older than the last message by less is that of the last few seconds of a broker
_FLUSHED_MS = 15_000  # longer than a broker keeps an offset in memory alone
_COPIED_MS = 60_000  # a log that was last changed so long before its last message has lost its times
_MOST_QUEUES = 256  # whose offsets are looked up for their times
_MOST_RETURNED = 8  # of each retry and dead-letter queue, the newest of those that count
_MOST_RETURNING = 256  # retry and dead-letter queues


class Contradiction(NamedTuple):
    """A group had consumed more of a queue than its offset says."""

    group: str
    topic: str
    queue_id: int
    offset: int  # in the file: the next to consume
    consumed: int  # queue offset of a message that the group gave back
    topic_of_proof: str  # the retry or dead-letter topic that has it

    @property
    def again(self) -> int:
        """How many messages come again, at least."""
        return self.consumed + 1 - self.offset


class OffsetAge(NamedTuple):
    """How old the offsets are."""

    file: str
    written: int | None  # ms; None: not known
    newest: int | None  # ms, store time of the last message of any queue
    is_old: bool  # by times: the file is older than the last message by more than a broker leaves it
    contradictions: tuple[Contradiction, ...]  # by group, topic and queue


def offset_age(
    store: Store, entries: Sequence[ConsumerOffset], queues: Mapping[Queue, QueueSummary], newest: int | None
) -> OffsetAge | None:
    """Return how old the offsets are; None without any. `newest`: store time in ms of the last message.

    Few records are read: the newest of the retry and dead-letter queues and their originals, and, if the file seems to
    be old, those that its offsets have passed.
    """
    if not entries:
        return None
    file = entries[0].file
    written = written_at(store, file)
    is_old = newest is not None and written is not None and written + _TOLD_MS < newest and _keeps_times(store, newest)
    with RecordReader(store) as reader:
        if is_old and newest is not None and written is not None:
            written = max(written, newest_passed(entries, queues, reader))
            is_old = written + _TOLD_MS < newest
        found = tuple(_contradictions(entries, queues, reader, newest))
    return OffsetAge(file, written, newest, is_old, found)


def written_at(store: Store, file: str) -> int | None:
    """Return when a file of consumer offsets was written (ms), by the file system; None for one in RocksDB."""
    for name in OFFSET_FILES:
        for end in ("", ".bak"):
            source = store.config_files.get(name + end)
            if source is not None and source.name == file:
                # Archives keep whole seconds.
                return modified_at(source) // 1_000_000_000 * 1000 + 999 if modified_at(source) else None
    return None


def _keeps_times(store: Store, newest: int) -> bool:
    """Return whether the files have the times of the broker: a copy may have lost them all."""
    if not store.segments:
        return False
    return max(map(modified_at, store.segments)) // 1_000_000 > newest - _COPIED_MS


def newest_passed(entries: Iterable[ConsumerOffset], queues: Mapping[Queue, QueueSummary], reader: RecordReader) -> int:
    """Return the store time (ms) of the newest message that an offset has passed; 0 if none is known."""
    highest: dict[Queue, int] = {}
    for entry in entries:
        queue = entry.topic, entry.queue_id
        highest[queue] = max(entry.offset, highest.get(queue, 0))
    newest = 0
    for queue, offset in list(highest.items())[:_MOST_QUEUES]:
        summary = queues.get(queue)
        if summary is not None and summary.first_kept < offset <= summary.max_offset:
            newest = max([newest, *_times(summary, [offset - 1], reader)])
    return newest


def _times(queue: QueueSummary, offsets: Sequence[int], reader: RecordReader) -> Iterator[int]:
    for place in _places(queue, offsets):
        time = reader.timestamp_of(*place)
        if time is not None:
            yield time


def _places(queue: QueueSummary, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (physical offset, size) of the records of a queue at some offsets."""
    try:
        units = find_units(queue.files, offsets)
    except Unreadable:  # what needs the queue itself says so
        return
    yield from ((unit[0], unit[1]) for unit in units if unit is not None)


def _contradictions(
    entries: Sequence[ConsumerOffset], queues: Mapping[Queue, QueueSummary], reader: RecordReader, newest: int | None
) -> Iterator[Contradiction]:
    offsets: dict[str, dict[Queue, int]] = defaultdict(dict)
    for entry in entries:
        if not is_system_group(entry.group):
            offsets[entry.group][entry.topic, entry.queue_id] = entry.offset
    by_topic: dict[str, list[QueueSummary]] = defaultdict(list)
    for (topic, _), summary in queues.items():
        by_topic[topic].append(summary)
    left = _MOST_RETURNING
    for group, own in sorted(offsets.items()):
        highest: dict[Queue, tuple[int, str]] = {}
        for topic in (retry_topic(group), dlq_topic(group)):
            returning = by_topic.get(topic, [])[: max(0, left)]
            left -= len(returning)
            for queue, consumed in _given_back(returning, reader, newest):
                highest[queue] = max(highest.get(queue, (-1, "")), (consumed, topic))
        for queue, (consumed, proof) in sorted(highest.items()):
            if queue in own and own[queue] <= consumed:
                yield Contradiction(group, *queue, own[queue], consumed, proof)


def _given_back(
    queues: Iterable[QueueSummary], reader: RecordReader, newest: int | None
) -> Iterator[tuple[Queue, int]]:
    """Yield queue and queue offset of the messages that the newest records of retry or dead-letter queues are of."""
    if newest is None:
        return
    for queue in queues:
        end = _stored_before(queue, reader, newest - _FLUSHED_MS)
        for place, _ in _places(queue, list(range(max(queue.first_kept, end - _MOST_RETURNED), end))):
            copy = reader.fields_at(place)
            origin = None if copy is None else _place_of(copy.properties.get("ORIGIN_MESSAGE_ID", ""))
            if copy is None or origin is None:
                continue
            original = reader.fields_at(origin)
            if original is not None and original.topic == copy.properties.get("RETRY_TOPIC"):
                yield (original.topic, original.number("queue_id")), original.number("queue_offset")


def _stored_before(queue: QueueSummary, reader: RecordReader, time: int) -> int:
    """Return the queue offset behind the messages of a queue that were stored before a time (ms), by halves."""
    low, high = queue.first_kept, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        stored = next(_times(queue, [middle], reader), None)
        if stored is not None and stored < time:
            low = middle + 1
        else:
            high = middle
    return low


def _place_of(offset_id: str) -> int | None:
    """Return the physical offset in an offset msg id: its last eight bytes."""
    if len(offset_id) not in (32, 56):
        return None
    try:
        return int(offset_id[-16:], 16)
    except ValueError:
        return None

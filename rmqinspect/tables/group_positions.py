"""How far each consumer group is in each queue: its offset against the files of the queue, and the times of messages.

Which queues a store must have had files of: a queue gets its files with its first message, so one without files is
usually one that nothing was written to.

Source: ConsumerOffsetManager, LmqConsumerOffsetManager, ConsumerProgressSubCommand; RocketMQ 4.0.0 to 5.5.0.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from rmqinspect.broker.behind_files import missing_behind
from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.groups import is_system_group
from rmqinspect.broker.refusals import Access, access_of
from rmqinspect.broker.version_estimate import YOUNGEST
from rmqinspect.codec.arrays import Span
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.config.json_files import ConsumerOffset, integer, read_config
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.consumequeue.missing import missing_units
from rmqinspect.consumequeue.units import find_units
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import QUEUES, unread_databases
from rmqinspect.store.model import Store
from rmqinspect.tables.read_log import report_missing
from rmqinspect.tables.request import Request
from rmqinspect.text import count
from rmqinspect.times import millis_to_micros
from rmqinspect.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC


class ExpectedQueues:
    """Which queues without files must have had some, if a consumer offset lies behind their start."""

    def __init__(self, store: Store) -> None:
        document = read_config(store, "topics.json")
        self._store = store
        self._with_files = {(file.topic, file.queue_id) for file in store.queue_files if file.kind != "ext_queue"}
        self._topics = document.table("topicConfigTable") if document else {}
        # After retention, or on a slave that joined later, a queue may be absent: its records are before the log.
        # Nothing is known of queues in a RocksDB that was not read, or that were not given.
        unread = unread_databases(store, QUEUES)
        self._all_known = store.given == "store" and not store.log_start and not unread

    def was_read(self, topic: str, queue_id: int) -> bool:
        """Return whether the files of a queue, if it has any, were given and could be read."""
        absent = bool(self._with_files) and (topic, queue_id) not in self._with_files
        return absent and not self._store.hides_queue(topic, queue_id)

    def had_files(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue with consumer offsets should exist: not that of a deleted topic."""
        if not self._all_known or self._store.hides_queue(topic, queue_id):
            return False
        if topic == SCHEDULE_TOPIC:
            return True
        settings = self._topics.get(topic)
        if not isinstance(settings, dict):
            return False
        # A topic with fewer queues than before keeps the offsets of the others.
        numbers = (integer(settings.get(name), 32) or 0 for name in ("readQueueNums", "writeQueueNums"))
        return queue_id < max(numbers)


INFLOW_MESSAGES = 1000  # the newest ones of a queue, whose times tell how many come in
_OF_TIMES = ("oldest_unconsumed", "last_consumed", "newest", "inflow")
_HOUR = 3_600_000  # ms


class Position(Struct, frozen=True):
    """How far a group is in a queue."""

    entry: ConsumerOffset
    queue: QueueSummary | None
    status: str | None  # None: what was not given or not read cannot be compared

    @property
    def lag(self) -> int | None:
        """Messages up to the queue's end, negative beyond it; None without the queue."""
        return None if self.queue is None else integer(self.queue.max_offset - self.entry.offset)

    @property
    def lost(self) -> int | None:
        """Messages that were gone before the group got them; None without the queue."""
        return None if self.queue is None else max(0, self.queue.first_kept - max(0, self.entry.offset))

    @property
    def next_offset(self) -> int | None:
        """The queue offset of the group's next message; None if there is none."""
        if self.queue is None or self.entry.offset >= self.queue.max_offset:
            return None
        return max(self.entry.offset, self.queue.first_kept)


class Times(Struct):
    """Store times of a position, in microseconds, and messages an hour."""

    oldest_unconsumed: int | None = None
    last_consumed: int | None = None
    newest: int | None = None
    inflow: int | None = None


def positions(
    entries: Sequence[ConsumerOffset], queues: Mapping[tuple[str, int], QueueSummary], store: Store
) -> Iterator[Position]:
    """Yield how far each group is; `queues` has those of the entries that could be read."""
    expected = ExpectedQueues(store)
    for entry in entries:
        key = entry.topic, entry.queue_id
        queue = queues.get(key)
        status = _status(entry, queue, expected) if queue or expected.was_read(*key) else None
        yield Position(entry, queue, status)


def _status(entry: ConsumerOffset, queue: QueueSummary | None, expected: ExpectedQueues) -> str:
    """Return how an offset lies to its queue; a queue that nothing was written to has no files, and ends at 0.

    Source: DefaultMessageStore#getMaxOffsetInQueue.
    """
    offset = entry.offset
    if queue is None:
        return "beyond_max" if offset > 0 and expected.had_files(entry.topic, entry.queue_id) else "no_queue"
    if offset < queue.first_kept:
        return "behind_min"
    return "beyond_max" if offset > queue.max_offset else "ok"


class Refused(NamedTuple):
    """Messages that wait for consumers in queues of a topic that no consumer can read."""

    topic: str
    queue_ids: tuple[int, ...]
    messages: int  # of each queue, what the group that is furthest behind has not consumed
    groups: tuple[str, ...]  # that have not consumed all of them
    why: str  # what topics.json says of the topic
    cure: str  # the command that lets consumers read


def refused_messages(store: Store, everyone: Iterable[Position]) -> list[Refused]:
    """Return the messages that no consumer can read, by topic; dead letters, which nobody reads, are left out."""
    access = access_of(store)
    lags: dict[str, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for position in everyone:
        entry = position.entry
        readable = access.read_queues(entry.topic)
        lag = (position.lag or 0) if readable is not None and entry.queue_id >= readable else 0
        own = entry.topic.startswith((DLQ_PREFIX, RETRY_PREFIX)) or is_system_group(entry.group)
        if lag > 0 and not own:
            lags[entry.topic][entry.queue_id][entry.group] = lag
    return [
        Refused(
            topic,
            tuple(sorted(queues)),
            sum(max(of_queue.values()) for of_queue in queues.values()),
            tuple(sorted({group for of_queue in queues.values() for group in of_queue})),
            _why_refused(access, topic),
            _cure(access, topic, max(queues)),
        )
        for topic, queues in sorted(lags.items())
    ]


def _cure(access: Access, topic: str, queue_id: int) -> str:
    refusal = access.refusal(topic, queue_id, YOUNGEST)
    return "" if refusal is None else refusal.cure


def _why_refused(access: Access, topic: str) -> str:
    entry = access.topics.get(topic)
    if not isinstance(entry, dict):
        return "topics.json does not name the topic"
    perm = integer(entry.get("perm"))
    if access.read_queues(topic) == 0 and perm is not None:
        return f"its perm in topics.json is {perm}, which allows no reading"
    return f"topics.json gives it {count(access.read_queues(topic) or 0, 'read queue')}"


def times_of(store: Store, some: Sequence[Position], request: Request) -> list[Times]:
    """Return the times of some positions; of `request.columns`, those that are not asked for are None.

    The records are read in the order of the log, each once.
    """
    wanted = [name for name in _OF_TIMES if request.columns is None or name in request.columns]
    places = [_places(position, wanted, request) for position in some]
    distinct = sorted({place for found in places for place in found.values()})
    with RecordReader(store, request.on_unreadable) as reader:
        known = {place: reader.timestamp_of(*place) for place in distinct}

    def millis(found: Mapping[str, tuple[int, int]], name: str) -> int | None:
        return known[found[name]] if name in found else None

    result = []
    for position, found in zip(some, places, strict=True):
        asked = (millis(found, name) for name in ("oldest_unconsumed", "last_consumed", "newest"))
        oldest, consumed, newest = (None if one is None else millis_to_micros(one) for one in asked)
        inflow = _rate(_inflow_messages(position), millis(found, "inflow"), millis(found, "last"))
        result.append(Times(oldest, consumed, newest, inflow))
    return result


def _places(position: Position, wanted: Sequence[str], request: Request) -> dict[str, tuple[int, int]]:
    """Return the records (physical offset, size) whose times are needed, by what they are needed for."""
    queue, found = position.queue, dict[str, tuple[int, int]]()
    if queue is None or queue.last_physical_offset is None or queue.last_size is None:
        return found
    last = queue.last_physical_offset, queue.last_size
    found |= {name: last for name, asked in (("newest", "newest"), ("last", "inflow")) if asked in wanted}
    offsets = {
        "oldest_unconsumed": position.next_offset,
        "last_consumed": position.entry.offset - 1,
        "inflow": queue.max_offset - 1 - _inflow_messages(position),
    }
    inside = {
        name: offset
        for name, offset in offsets.items()
        if name in wanted and offset is not None and queue.first_kept <= offset < queue.max_offset
    }
    try:
        units = find_units(queue.files, list(inside.values())) if inside else []
    except Unreadable as error:  # vanished since the ends of the queue were read
        request.tell_unread(error)
        return {}
    return found | {name: unit[:2] for name, unit in zip(inside, units, strict=True) if unit is not None}


def _inflow_messages(position: Position) -> int:
    """Return the messages that follow the first one of those whose times tell the inflow."""
    queue = position.queue
    return 0 if queue is None else max(0, min(INFLOW_MESSAGES, queue.max_offset - queue.first_kept) - 1)


def _rate(messages: int, first: int | None, last: int | None) -> int | None:
    if first is None or last is None or last <= first:
        return None
    return messages * _HOUR // (last - first)


def waiting_in(ranges: Sequence[Span], position: Position, request: Request) -> int:
    """Return how many messages of a lag have their record in some ranges of the log, which are ascending and apart.

    :raises Unreadable: the queue cannot be read, and there is no `request.on_unreadable`.
    """
    queue, first = position.queue, position.next_offset
    if queue is None or first is None or queue.last_physical_offset is None:
        return 0
    near = [one for one in ranges if one[0] <= queue.last_physical_offset]
    try:
        return _count_in(queue, first, near) if near else 0
    except Unreadable as error:
        request.tell_unread(error)
        return 0


def _count_in(queue: QueueSummary, first: int, ranges: Sequence[Span]) -> int:
    """Return how many messages from a queue offset on have their record in some ranges; their places ascend."""

    def place_of(offset: int) -> int:
        unit = find_units(queue.files, [offset])[0]
        return -1 if unit is None else unit[0]

    place, offsets = place_of(first), range(first, queue.max_offset)
    return sum(
        bisect_left(offsets, end, key=place_of) - bisect_left(offsets, start, key=place_of)
        for start, end in ranges
        if end > place
    )


def tell_missing_lag(store: Store, some: Iterable[Position], request: Request) -> None:
    """Tell what no file has of the log and of queues, where messages lie that a group has still to get."""
    groups = [one for one in some if one.queue is not None and not is_system_group(one.entry.group)]
    gaps = [*missing_in(store), *missing_behind(store, [one.queue for one in groups if one.queue is not None])]
    units = missing_units(store)
    if not gaps and not units:
        return
    report_missing(
        (gap for gap in gaps if any(waiting_in([(gap.start, gap.end)], position, request) for position in groups)),
        request,
    )
    lowest: dict[tuple[str, int], int] = {}
    for position in groups:
        queue = position.entry.topic, position.entry.queue_id
        lowest[queue] = min(position.entry.offset, lowest.get(queue, position.entry.offset))
    request.tell_missing(
        one
        for one in units
        if one.queue in lowest and (one.offset_behind is None or one.offset_behind > lowest[one.queue])
    )


def ends_of(
    store: Store, request: Request, only: set[tuple[str, int]] | None = None
) -> dict[tuple[str, int], QueueSummary]:
    """Return the ends of queues; what cannot be read is reported.

    :raises Unreadable: a queue cannot be read, and there is no `request.on_unreadable`.
    """
    found = queue_ends(store, searches_minimum(store), only, request.on_unreadable)
    return {(queue.topic, queue.queue_id): queue for queue in found}

"""The table `groups`: how far each consumer group is in each queue, and what of it is still there.

    queue    |  deleted   | a .. b | c d e f |          b last_consumed, c oldest_unconsumed, f newest
             0           min     offset     max         lag 4; with an offset below min the rest is lost

The offsets are those of consumerOffset.json and lmqConsumerOffset.json, or of their copies in RocksDB. Little is read
of a queue, and single records for the times that are asked for.

Source: ConsumerOffsetManager, LmqConsumerOffsetManager, ConsumerProgressSubCommand; RocketMQ 4.0.0 to 5.5.0.

Which queues a store must have had files of.

A queue gets its files with its first message, so one without files is usually one that nothing was written to.

The checkpoints and acks of popped messages, by the units of their topics: how much each group has in flight.

    rmq_sys_wheel_timer          each checkpoint and ack when it is written, until it is due
    rmq_sys_REVIVE_LOG_cluster   the same when it is due; handled up to the offset of CID_RMQ_SYS_REVIVE_GROUP

Read are the newest units, and of these the records whose tag is that of a checkpoint or an ack: an ack follows its
checkpoint, so none of those that are read misses one. Not seen: what a broker keeps in memory (enablePopBufferMerge)
or in RocksDB (popConsumerKVServiceInit), and ordered pops.

Source: PopMessageProcessor, AckMessageProcessor, PopReviveService; RocketMQ 5.0.0 to 5.5.0.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from rmqinspect.broker.behind_files import missing_behind
from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.groups import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    REVIVE_GROUP,
    PopCount,
    PopStates,
    is_system_group,
    kind_of,
    read_body,
)
from rmqinspect.broker.refusals import Access, access_of
from rmqinspect.broker.version_estimate import YOUNGEST
from rmqinspect.codec.arrays import Ints, Span
from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.java import java_string_hash
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records, records_at
from rmqinspect.config.json_files import ConsumerOffset, integer, read_config, read_consumer_offsets
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.consumequeue.missing import missing_units
from rmqinspect.consumequeue.units import find_units, message_units
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import QUEUES, unread_databases
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import Store
from rmqinspect.tables.config import report_problems
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.read_log import report_missing
from rmqinspect.tables.table import (
    CONFIG_DATABASES,
    QUEUE_DATABASES,
    TIMESTAMP,
    Request,
    Source,
    Table,
    batches_of,
    column,
)
from rmqinspect.text import count, group_digits
from rmqinspect.times import millis_to_micros
from rmqinspect.topics import DLQ_PREFIX, RETRY_PREFIX, REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC


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


MOST_UNITS = 1 << 18  # of each queue: 5 MB
MOST_UNITS_BEFORE = 1 << 16  # while there is no revive queue: most such stores have timer messages, and no pop
MOST_RECORDS = 1 << 14  # checkpoints and acks; reading so many takes a second

_TAGS = np.array([java_string_hash(tag) for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)], np.int64)
_LONGEST = 1 << 16  # bytes of a body

Queue = tuple[str, int]


def pop_queues(store: Store) -> set[Queue]:
    """Return the queues that may hold checkpoints and acks.

    The first revive queue is made when the first checkpoint falls due, so the timer's topic alone may hold some.
    """
    queues = {(file.topic, file.queue_id) for file in store.queue_files if file.kind == "queue"}
    return {queue for queue in queues if queue[0].startswith(REVIVE_PREFIX) or queue[0] == TIMER_TOPIC}


def _units(queues: Mapping[Queue, QueueSummary], handled: Mapping[Queue, int]) -> Ints:
    """Return (physical offset, size, whether the broker has handled it) of units that may be checkpoints or acks."""
    found = [np.empty((0, 3), np.int64)]
    most = MOST_UNITS if any(topic.startswith(REVIVE_PREFIX) for topic, _ in queues) else MOST_UNITS_BEFORE
    for queue, ends in queues.items():
        reached = handled.get(queue, -1)
        for numbers, units in message_units(ends.files, max(0, ends.max_offset - most), ends.max_offset):
            tags = units["tags_code"].astype(np.int64)
            # A tag in an ext file, which is not looked at, may be one of them.
            some = np.isin(tags, _TAGS) | (tags <= EXT_ADDRESS_MAX)
            columns = units["physical_offset"][some], units["size"][some], numbers[some] <= reached
            found.append(np.stack([column.astype(np.int64) for column in columns], axis=1))
    return np.concatenate(found)


def _bodies(records: Records) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield (row, parsed body) of the records that are in a revive topic, or on their way to it."""
    prefix = REVIVE_PREFIX.encode()
    spans = zip(records.topic_starts.tolist(), records.body_starts.tolist(), records.body_ends.tolist(), strict=True)
    for row, (topic, start, end) in enumerate(spans):
        bound_for = records.raw[topic : topic + len(prefix)], records.properties.value_of(b"REAL_TOPIC", row) or b""
        if not any(bytes(name).startswith(prefix) for name in bound_for) or end - start > _LONGEST:
            continue
        try:
            value = parse_json(bytes(records.raw[start:end])).value
        except NotJson:
            continue
        if isinstance(value, dict):
            yield row, value


INFLOW_MESSAGES = 1000  # the newest ones of a queue, whose times tell how many come in

SCHEMA = pa.schema(
    [
        column("group", pa.string(), "consumer group; with a second @ a proxy's broadcast consumer"),
        column("topic", pa.string(), "topic it consumes"),
        column("queue_id", pa.int32(), "queue of that topic"),
        column("consumer_offset", pa.int64(), "next queue offset to consume; of a group that pops: to pop"),
        column("min_offset", pa.int64(), "of the queue; null without its files"),
        column("max_offset", pa.int64(), "of the queue; null without its files"),
        column("lag", pa.int64(), "max_offset minus consumer_offset; negative beyond the maximum"),
        column("oldest_unconsumed", TIMESTAMP, "store time of the next message; null if none"),
        column(
            "status",
            pa.string(),
            "ok, behind_min (messages lost), beyond_max, no_queue; null without queues",
        ),
        column(
            "lost", pa.int64(), "messages gone from the log before the group got them; null without the queue's files"
        ),
        column("kind", pa.string(), "normal, retry, pop_retry, dlq, lmq, broadcast, system"),
        column("last_consumed", TIMESTAMP, "store time of the message before consumer_offset; null if it is gone"),
        column("newest", TIMESTAMP, "store time of the queue's last message; null if none"),
        column(
            "inflow", pa.int64(), "messages an hour, by the times of the queue's last 1,000; null without two times"
        ),
        column("file", pa.string(), "file the offset was read from"),
        column("in_flight", pa.int64(), "popped, neither acknowledged nor due again; null without a pop"),
        column("awaiting_revive", pa.int64(), "popped, due again, not looked at by the broker; null without a pop"),
        column("acked", pa.int64(), "popped and acknowledged, of the checkpoints that are there; null without a pop"),
    ]
)
_OF_TIMES = ("oldest_unconsumed", "last_consumed", "newest", "inflow")
_OF_POP = ("in_flight", "awaiting_revive", "acked")
_HOUR = 3_600_000  # ms
_AT_ONCE = 4096  # rows whose records are read in the order of the log


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


def _asks_for(position: Position, selection: Selection) -> bool:
    """Whether a selection leaves the row of a position, by what rows of `groups` are chosen by."""
    entry = position.entry
    texts = {"group": entry.group, "status": position.status or ""}
    return selection.wants_queue(entry.topic, entry.queue_id) and all(
        any(fnmatchcase(texts.get(name, ""), pattern) for pattern in patterns) for name, patterns in selection.cells
    )


def ends_of(
    store: Store, request: Request, only: set[tuple[str, int]] | None = None
) -> dict[tuple[str, int], QueueSummary]:
    """Return the ends of queues; what cannot be read is reported.

    :raises Unreadable: a queue cannot be read, and there is no `request.on_unreadable`.
    """
    found = queue_ends(store, searches_minimum(store), only, request.on_unreadable)
    return {(queue.topic, queue.queue_id): queue for queue in found}


def _rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    entries, problems = read_consumer_offsets(store)
    report_problems(problems, request, readable=bool(entries))
    with_pop = request.columns is None or not request.columns.isdisjoint(_OF_POP)
    noted = pop_queues(store) if with_pop else set()
    queues = ends_of(store, request, noted | {(entry.topic, entry.queue_id) for entry in entries})
    pops = pop_counts(store, entries, {queue: ends for queue, ends in queues.items() if queue in noted}, request)
    asked = (
        one for one in positions(entries, queues, store) if all(_asks_for(one, each) for each in request.records_of)
    )
    tell_missing_lag(store, asked, request)

    def rows() -> Iterator[tuple[Any, ...]]:
        found = positions(entries, queues, store)
        while some := list(islice(found, _AT_ONCE)):
            for position, times in zip(some, times_of(store, some, request), strict=True):
                entry, queue = position.entry, position.queue
                popped = pops.get((entry.group, entry.topic, entry.queue_id))
                yield (
                    entry.group,
                    entry.topic,
                    entry.queue_id,
                    entry.offset,
                    queue.min_offset if queue else None,
                    queue.max_offset if queue else None,
                    position.lag,
                    times.oldest_unconsumed,
                    position.status,
                    position.lost,
                    kind_of(entry.group, entry.topic),
                    times.last_consumed,
                    times.newest,
                    times.inflow,
                    entry.file,
                    *((popped.in_flight, popped.awaiting_revive, popped.acked) if popped else (None, None, None)),
                )

    yield from batches_of(SCHEMA, rows())


def pop_counts(
    store: Store,
    entries: Sequence[ConsumerOffset],
    notes: Mapping[tuple[str, int], QueueSummary],
    request: Request,
    most: int | None = None,
) -> Mapping[tuple[str, str, int], PopCount]:
    """Return what became of popped messages by (group, topic, queue id); `notes` are the ends of `pop_queues`.

    What is in flight is judged at the store time of their last record. Of more than `most` checkpoints and acks the
    newest are read, and a remark says so.
    """
    most = MOST_RECORDS if most is None else most
    handled = {(one.topic, one.queue_id): one.offset for one in entries if one.group == REVIVE_GROUP}
    lasts = [(ends.last_physical_offset, ends.last_size) for ends in notes.values()]
    newest = max(((place, size) for place, size in lasts if place is not None and size is not None), default=None)
    if newest is None:
        return {}
    with RecordReader(store, request.on_unreadable) as reader:
        now = reader.timestamp_of(*newest)
    try:
        units = _units(notes, handled)
    except Unreadable as error:
        request.tell_unread(error)
        return {}
    states, latest = PopStates(), units[np.argsort(units[:, 0], kind="stable")[-most:]]
    for which, records in records_at(store, latest[:, 0].copy(), latest[:, 1].copy()):
        for row, body in _bodies(records):
            if (found := read_body(body)) is not None:
                states.add(found, handled=bool(latest[which[row], 2]))
    if len(units) > most and request.on_remark is not None:
        request.on_remark(
            f"{store.name}: popped messages are counted by the newest {group_digits(most)} checkpoints and acks"
        )
    return states.count(now or 0)


GROUPS = Table(
    "groups",
    SCHEMA,
    tuple(SCHEMA.names[: SCHEMA.names.index("status") + 1]),
    _rows,
    scans=(Source.CONFIG,),
    looks_into=(Source.QUEUES, Source.LOG),
    databases=("config/consumerOffsets", "config/topics", *CONFIG_DATABASES, *QUEUE_DATABASES),
)

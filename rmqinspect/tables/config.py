"""What the JSON files of `config/` say: `topics`, `subscription_groups`, `groups`, `delay_offsets`.

A broker rewrites these files in place every few seconds and keeps the last copy beside them, so
each is read in all of its copies. A store that keeps its configuration in RocksDB has none of
these files, and then these tables have no rows.

Source: ConfigManager, MixAll#string2File, ConsumerOffsetManager, TopicConfigManager,
SubscriptionGroupManager, ScheduleMessageService; RocketMQ 4.0.0 to 5.5.0.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rmqinspect.errors import Unreadable
from rmqinspect.fastjson import MAX_PROBLEMS, NotJson, parse
from rmqinspect.queue_files import QueueSummary, find_unit, queue_ends
from rmqinspect.store import Store, StoreFile, open_file
from rmqinspect.store_times import StoreTimes
from rmqinspect.tables.arrow import batches_of, moment, printable
from rmqinspect.tables.table import TIMESTAMP, Request, Table, column

# A million (topic, group) pairs with eight queues each take about 100 MB.
MAX_CONFIG_SIZE = 256 << 20
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)  # Python's int() takes more than Java's parseLong

TOPICS_SCHEMA = pa.schema(
    [
        column("topic", pa.string(), "topic"),
        column("read_queues", pa.int32(), "queues to read from: ids 0 to n-1"),
        column("write_queues", pa.int32(), "queues to write to"),
        column("perm", pa.int32(), "bits: 4 read, 2 write, 1 inherit, 8 priority"),
        column("order", pa.bool_(), "ordered topic"),
        column("type", pa.string(), "attribute message.type (NORMAL, FIFO, …), null if not set"),
    ]
)

SUBSCRIPTION_GROUPS_SCHEMA = pa.schema(
    [
        column("group", pa.string(), "consumer group"),
        column("consume_enable", pa.bool_(), "may consume"),
        column("consume_from_min_enable", pa.bool_(), "may begin at the oldest message"),
        column("consume_broadcast_enable", pa.bool_(), "may consume in broadcast mode"),
        column("consume_message_orderly", pa.bool_(), "consumes in order; null before 5.0.0"),
        column("retry_queues", pa.int32(), "queues of its retry topic"),
        column("retry_max_times", pa.int32(), "deliveries again before the dead-letter topic"),
        column("retry_policy", pa.string(), "CUSTOMIZED or EXPONENTIAL; null before 5.0.0"),
        column("consume_timeout_minutes", pa.int32(), "minutes a message may be held; null before 5.0.0"),
        column("broker_id", pa.int64(), "broker to consume from"),
        column("file", pa.string(), "file this was read from"),
    ]
)

GROUPS_SCHEMA = pa.schema(
    [
        column("group", pa.string(), "consumer group; with a second @ a proxy's broadcast consumer"),
        column("topic", pa.string(), "topic"),
        column("queue_id", pa.int32(), "queue"),
        column("consumer_offset", pa.int64(), "next queue offset to consume"),
        column("min_offset", pa.int64(), "of the queue; null without its files"),
        column("max_offset", pa.int64(), "of the queue; null without its files"),
        column("lag", pa.int64(), "max_offset minus consumer_offset; negative beyond the maximum"),
        column("oldest_unconsumed", TIMESTAMP, "store time of the next message; null if none"),
        column("status", pa.string(), "ok; behind_min: messages lost to the group; beyond_max; no_queue"),
    ]
)

DELAY_OFFSETS_SCHEMA = pa.schema(
    [
        column("level", pa.int32(), "delay level, from 1"),
        column("queue_id", pa.int32(), "queue of the schedule topic: level - 1"),
        column("delivered_offset", pa.int64(), "next queue offset to deliver"),
        column("min_offset", pa.int64(), "of the queue; null without its files"),
        column("max_offset", pa.int64(), "of the queue; null without its files"),
        column("pending", pa.int64(), "messages not delivered yet; null without the queue's files"),
        column("file", pa.string(), "file this was read from"),
    ]
)


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConfigDocument:
    """One configuration file as its best copy says."""

    name: str  # the bare name asked for
    value: Mapping[str, Any]  # empty when no copy can be read
    source: StoreFile | None  # the copy; None when no copy can be read
    problems: tuple[str, ...]
    others: tuple["ConfigDocument", ...] = field(default=(), repr=False)  # further readable copies

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the member `name` where it is an object, else an empty one."""
        member = self.value.get(name)
        return member if isinstance(member, dict) else {}


def read_config(store: Store, name: str) -> ConfigDocument | None:
    """Return the newest readable copy of a configuration file; None if the store has no copy.

    The copies are the file itself, its `.tmp` (up to 5.0.0) and its `.bak`. Where all readable
    ones carry a dataVersion the highest wins, else the file itself, else the one modified last.
    A broker is simpler: it takes the file, or `.bak` when the file is missing or unreadable.
    """
    files = store.config_files
    copies = [files[name + end] for end in ("", ".tmp", ".bak") if name + end in files]
    if not copies:
        return None
    readable: list[ConfigDocument] = []
    problems: list[str] = []
    for copy in copies:
        document = _read_copy(copy, name)
        problems += [f"{copy.name}: {problem}" for problem in document.problems]
        if document.source:
            readable.append(document)
    if name not in store.config_files:
        problems.append(f"{name} is missing: only {', '.join(copy.name for copy in copies)}")
    if not readable:
        return ConfigDocument(name, {}, None, tuple(problems))
    best, *others = _newest_first(readable)
    if best.source and best.source.name != copies[0].name:
        problems.append(f"{best.source.name} is used instead of {copies[0].name}")
    return replace(best, problems=tuple(problems), others=tuple(others))


def _read_copy(file: StoreFile, name: str) -> ConfigDocument:
    def unusable(problem: str) -> ConfigDocument:
        return ConfigDocument(name, {}, None, (problem,))

    if file.size == 0:
        return unusable("empty")
    if file.size > MAX_CONFIG_SIZE:
        return unusable(f"{file.size} bytes are too many to read, the limit is {MAX_CONFIG_SIZE}")
    try:
        with open_file(file) as reader:
            parsed = parse(reader.read(0, MAX_CONFIG_SIZE))
    except (NotJson, Unreadable) as error:
        return unusable(str(error))
    if not isinstance(parsed.value, dict):
        return unusable("a list, not an object")
    return ConfigDocument(name, parsed.value, file, parsed.problems)


def _newest_first(documents: Sequence[ConfigDocument]) -> list[ConfigDocument]:
    """Sort readable copies; of equals the one given first stays first."""
    if all(_version(document) for document in documents):
        return sorted(documents, key=lambda document: _version(document) or (), reverse=True)
    return sorted(documents, key=_by_file, reverse=True)


def _by_file(document: ConfigDocument) -> tuple[bool, int]:
    file = document.source
    if file is None:
        return False, 0
    return os.path.basename(file.name) == document.name, _modified(file)


def _version(document: ConfigDocument) -> tuple[int, ...] | None:
    """Return (state version, counter, timestamp). Source: DataVersion#compare."""
    version = document.table("dataVersion")
    if not version:
        return None
    return tuple(_integer(version.get(name)) or 0 for name in ("stateVersion", "counter", "timestamp"))


def _modified(file: StoreFile) -> int:
    try:
        return os.stat(file.path).st_mtime_ns
    except OSError:
        return 0


def _integer(value: Any, bits: int = 64) -> int | None:
    """Return a value that is a number of so many bits, else None; JSON's true is a Python int too."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _key_number(key: str, bits: int = 32) -> int | None:
    return _integer(int(key), bits) if _NUMBER.fullmatch(key) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _objects(document: ConfigDocument | None, table: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, object) of a table by name; what is no object is passed over."""
    for name, entry in sorted(document.table(table).items()) if document else ():
        if isinstance(entry, dict):
            yield name, entry


# --- topics and subscription groups -------------------------------------------------------------


def _topic_rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    document = read_config(store, "topics.json")
    rows = (
        (
            topic,
            _integer(entry.get("readQueueNums"), 32),
            _integer(entry.get("writeQueueNums"), 32),
            _integer(entry.get("perm"), 32),
            _flag(entry.get("order")),
            _text(_member(entry, "attributes", "message.type")),
        )
        for topic, entry in _objects(document, "topicConfigTable")
    )
    yield from batches_of(TOPICS_SCHEMA, rows)


def _member(entry: Mapping[str, Any], name: str, inner: str) -> Any:
    value = entry.get(name)
    return value.get(inner) if isinstance(value, dict) else None


def _subscription_rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    document = read_config(store, "subscriptionGroup.json")
    source = printable(document.source.name) if document and document.source else None
    rows = (
        (
            group,
            _flag(entry.get("consumeEnable")),
            _flag(entry.get("consumeFromMinEnable")),
            _flag(entry.get("consumeBroadcastEnable")),
            _flag(entry.get("consumeMessageOrderly")),
            _integer(entry.get("retryQueueNums"), 32),
            _integer(entry.get("retryMaxTimes"), 32),
            _text(_member(entry, "groupRetryPolicy", "type")),
            _integer(entry.get("consumeTimeoutMinute"), 32),
            _integer(entry.get("brokerId")),
            source,
        )
        for group, entry in _objects(document, "subscriptionGroupTable")
    )
    yield from batches_of(SUBSCRIPTION_GROUPS_SCHEMA, rows)


# --- consumer offsets ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class ConsumerOffset:
    """Where a group goes on in a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int  # the next queue offset to consume


def read_consumer_offsets(store: Store) -> tuple[list[ConsumerOffset], tuple[str, ...]]:
    """Return the consumer offsets, sorted, and what was odd about their files.

    With enableLmq a broker writes lmqConsumerOffset.json instead of consumerOffset.json, which may
    stay beside it: where both have an entry, that of lmqConsumerOffset.json counts.
    """
    offsets: dict[tuple[str, str, int], int] = {}
    problems: list[str] = []
    for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
        document = read_config(store, name)
        if document is None:
            continue
        problems += document.problems
        for key, queues in document.table("offsetTable").items():
            # Topic and group names cannot contain "@"; a third part marks a proxy's broadcast consumer.
            topic, _, group = key.partition("@")
            for queue, offset in queues.items() if isinstance(queues, dict) else [(str(queues), None)]:
                queue_id, number = _key_number(queue), _integer(offset)
                if queue_id is None or number is None or not group:
                    problems.append(f"{name}: no consumer offset: {key!r} {queue!r} {offset!r}"[:200])
                else:
                    offsets[group, topic, queue_id] = number
        for key, offset in document.table("lmqOffsetTable").items():
            topic, _, group = key.partition("@")
            if (number := _integer(offset)) is None or not group:
                problems.append(f"{name}: no consumer offset: {key!r} {offset!r}"[:200])
            else:
                offsets[group, topic, 0] = number
    found = sorted(ConsumerOffset(*key, offset) for key, offset in offsets.items())
    return found, tuple(problems[:MAX_PROBLEMS])


def _status(offset: int, queue: QueueSummary | None) -> str:
    if queue is None:
        return "no_queue"
    if offset < queue.min_offset:
        return "behind_min"
    return "beyond_max" if offset > queue.max_offset else "ok"


def _ends_of(store: Store, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], QueueSummary]:
    return {(queue.topic, queue.queue_id): queue for queue in queue_ends(store, wanted)}


def _group_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    offsets, _ = read_consumer_offsets(store)
    queues = _ends_of(store, {(entry.topic, entry.queue_id) for entry in offsets})
    with_times = request.columns is None or "oldest_unconsumed" in request.columns

    def rows() -> Iterator[tuple[Any, ...]]:
        with StoreTimes(store.segments) as times:
            for entry in offsets:
                queue = queues.get((entry.topic, entry.queue_id))
                yield (
                    entry.group,
                    entry.topic,
                    entry.queue_id,
                    entry.offset,
                    queue.min_offset if queue else None,
                    queue.max_offset if queue else None,
                    _integer(queue.max_offset - entry.offset) if queue else None,
                    _oldest_unconsumed(entry.offset, queue, times) if queue and with_times else None,
                    _status(entry.offset, queue),
                )

    yield from batches_of(GROUPS_SCHEMA, rows())


def _oldest_unconsumed(offset: int, queue: QueueSummary, times: StoreTimes) -> int | None:
    """Return the store time of the record that the group gets next: what is below the minimum is lost."""
    following = max(offset, queue.min_offset)
    unit = find_unit(queue.files, following) if following < queue.max_offset else None
    stored = times.at(*unit) if unit else None
    return None if stored is None else moment(stored)


# --- delay offsets ------------------------------------------------------------------------------


def read_delay_offsets(store: Store) -> ConfigDocument | None:
    """Return delayOffset.json, or a copy with entries where the newest is an empty table.

    A broker whose store refuses to load saves this file although it never read it (5.4.0): the
    empty table is a trace of a failed start, and the copy before it is the state that counts.
    """
    document = read_config(store, "delayOffset.json")
    if document is None or document.table("offsetTable"):
        return document
    for other in document.others:
        if other.table("offsetTable") and other.source:
            note = f"{document.name}: an empty table, a trace of a failed start; {other.source.name} is used"
            return replace(other, problems=(*document.problems, note))
    return document


def _delay_rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    document = read_delay_offsets(store)
    if document is None or document.source is None:
        return
    source = printable(document.source.name)
    table = document.table("offsetTable")
    numbers = ((_key_number(level), _integer(offset)) for level, offset in table.items())
    offsets = sorted((level, offset) for level, offset in numbers if level is not None and offset is not None)
    queues = _ends_of(store, {(SCHEDULE_TOPIC, level - 1) for level, _ in offsets})

    def rows() -> Iterator[tuple[Any, ...]]:
        for level, offset in offsets:
            queue = queues.get((SCHEDULE_TOPIC, level - 1))
            ends = (queue.min_offset, queue.max_offset) if queue else (None, None)
            pending = _integer(max(0, queue.max_offset - max(offset, queue.min_offset))) if queue else None
            yield level, _integer(level - 1, 32), offset, *ends, pending, source

    yield from batches_of(DELAY_OFFSETS_SCHEMA, rows())


TOPICS = Table("topics", TOPICS_SCHEMA, tuple(TOPICS_SCHEMA.names), _topic_rows)
SUBSCRIPTION_GROUPS = Table(
    "subscription_groups",
    SUBSCRIPTION_GROUPS_SCHEMA,
    ("group", "consume_enable", "consume_broadcast_enable", "retry_queues", "retry_max_times", "broker_id"),
    _subscription_rows,
)
GROUPS = Table("groups", GROUPS_SCHEMA, tuple(GROUPS_SCHEMA.names), _group_rows)
DELAY_OFFSETS = Table("delay_offsets", DELAY_OFFSETS_SCHEMA, tuple(DELAY_OFFSETS_SCHEMA.names), _delay_rows)

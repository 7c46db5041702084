"""The tables of the JSON files in `config/`: `topics`, `subscription_groups`, `delay_offsets`.

A store that keeps its configuration in RocksDB has none of these files; its tables have no rows.

Source: TopicConfigManager, SubscriptionGroupManager; RocketMQ 4.0.0 to 5.5.0.

The table `checkpoint`: the fields of the checkpoint file, as far as it is long enough.

The table `rocksdb_entries`: timer and half messages that a broker keeps in `rocksdbstore/`.

Source: TimerRocksDBRecord, TransRocksDBRecord; RocketMQ 5.4.0 and 5.5.0.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.config.json_files import (
    ConfigDocument,
    integer,
    key_number,
    read_checkpoint,
    read_config,
    read_delay_offsets,
)
from rmqinspect.consumequeue.bounds import queue_ends
from rmqinspect.rocksdb.databases import read_entries
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import (
    CONFIG_DATABASES,
    QUEUE_DATABASES,
    STORE_DATABASE,
    TIMESTAMP,
    Source,
    Table,
    batch_of,
    batches_of,
    column,
)
from rmqinspect.times import millis_to_micros
from rmqinspect.topics import SCHEDULE_TOPIC

# --- topics and subscription groups -------------------------------------------------------------


# Columns of topics and groups: name, type, meaning, and the members that lead to the value in the object of the file.
_OF_TOPIC = (
    ("read_queues", pa.int32(), "queues to read from: ids 0 to n-1", ("readQueueNums",)),
    ("write_queues", pa.int32(), "queues to write to", ("writeQueueNums",)),
    ("perm", pa.int32(), "bits: 4 read, 2 write, 1 inherit, 8 priority", ("perm",)),
    ("order", pa.bool_(), "ordered topic", ("order",)),
    (
        "type",
        pa.string(),
        "attribute message.type (NORMAL, FIFO, …), null if not set",
        ("attributes", "message.type"),
    ),
)
_OF_GROUP = (
    ("consume_enable", pa.bool_(), "may consume", ("consumeEnable",)),
    ("consume_from_min_enable", pa.bool_(), "may begin at the oldest message", ("consumeFromMinEnable",)),
    ("consume_broadcast_enable", pa.bool_(), "may consume in broadcast mode", ("consumeBroadcastEnable",)),
    ("consume_message_orderly", pa.bool_(), "consumes in order; null before 5.0.0", ("consumeMessageOrderly",)),
    ("retry_queues", pa.int32(), "queues of its retry topic", ("retryQueueNums",)),
    ("retry_max_times", pa.int32(), "deliveries again before the dead-letter topic", ("retryMaxTimes",)),
    ("retry_policy", pa.string(), "CUSTOMIZED or EXPONENTIAL; null before 5.0.0", ("groupRetryPolicy", "type")),
    (
        "consume_timeout_minutes",
        pa.int32(),
        "minutes a message may be held; null before 5.0.0",
        ("consumeTimeoutMinute",),
    ),
    ("broker_id", pa.int64(), "broker to consume from", ("brokerId",)),
)
_Columns = Sequence[tuple[str, pa.DataType, str, tuple[str, ...]]]

# What another value than one of the column's type is: null.
_READ: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.bool_(): lambda value: value if isinstance(value, bool) else None,
    pa.string(): lambda value: value if isinstance(value, str) else None,
    pa.int32(): lambda value: integer(value, 32),
    pa.int64(): integer,
}

TOPICS_SCHEMA = pa.schema([column("topic", pa.string(), "name of the topic"), *(column(*one[:3]) for one in _OF_TOPIC)])
SUBSCRIPTION_GROUPS_SCHEMA = pa.schema(
    [
        column("group", pa.string(), "consumer group"),
        *(column(*one[:3]) for one in _OF_GROUP),
        column("file", pa.string(), "file this was read from"),
    ]
)


def report_problems(problems: Iterable[str], request: Request, *, readable: bool) -> None:
    """Report what is wrong with the copies of a file: that none can be read, or that not the file itself was."""
    tell = request.on_remark if readable else request.on_unreadable
    if tell is not None:
        for problem in problems:
            tell(problem)


def _read(document: ConfigDocument | None, request: Request) -> tuple[ConfigDocument, str] | None:
    """Return a document and its file after what is wrong with it is reported; None if no copy can be read."""
    if document is None:
        return None
    report_problems(document.problems, request, readable=document.source is not None)
    return (document, document.source.name) if document.source is not None else None


def _entries(found: tuple[ConfigDocument, str] | None, table: str, columns: _Columns) -> Iterator[list[Any]]:
    """Yield name and columns of each entry, sorted by name; entries that are not objects are skipped."""
    for name, entry in sorted(found[0].table(table).items()) if found else ():
        if isinstance(entry, dict):
            yield [name, *(_READ[type_](_member(entry, members)) for _, type_, _, members in columns)]


def _member(value: Any, members: Sequence[str]) -> Any:
    for member in members:
        value = value.get(member) if isinstance(value, dict) else None
    return value


def _topic_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    found = _read(read_config(store, "topics.json"), request)
    yield from batches_of(TOPICS_SCHEMA, _entries(found, "topicConfigTable", _OF_TOPIC))


def _subscription_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    found = _read(read_config(store, "subscriptionGroup.json"), request)
    entries = _entries(found, "subscriptionGroupTable", _OF_GROUP)
    yield from batches_of(SUBSCRIPTION_GROUPS_SCHEMA, ([*entry, found[1]] for entry in entries if found))


# --- delay offsets ------------------------------------------------------------------------------

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


class LevelOffsets(NamedTuple):
    """What delayOffset.json, or its copy, says."""

    offsets: list[tuple[int, int]]  # (level, next queue offset to deliver), in the order of the file
    file: str


def level_offsets(store: Store, request: Request) -> LevelOffsets | None:
    """Return the offsets of the delay levels after what is wrong with them is reported; None if none can be read."""
    found = _read(read_delay_offsets(store), request)
    if found is None:
        return None
    document, file = found
    table = document.table("offsetTable")
    numbers = ((key_number(level), integer(offset)) for level, offset in table.items())
    known = [(level, offset) for level, offset in numbers if level is not None and offset is not None]
    return LevelOffsets(known, file)


def _delay_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    levels = level_offsets(store, request)
    if levels is None:
        return
    wanted = {(SCHEDULE_TOPIC, level - 1) for level, _ in levels.offsets}
    found = queue_ends(store, searches_minimum(store), wanted, request.on_unreadable)
    queues = {queue.queue_id: queue for queue in found}

    def rows() -> Iterator[tuple[Any, ...]]:
        for level, offset in sorted(levels.offsets):
            queue = queues.get(level - 1)
            ends = (queue.min_offset, queue.max_offset) if queue else (None, None)
            pending = integer(max(0, queue.max_offset - max(offset, queue.first_kept))) if queue else None
            yield level, integer(level - 1, 32), offset, *ends, pending, levels.file

    yield from batches_of(DELAY_OFFSETS_SCHEMA, rows())


TOPICS = Table(
    "topics",
    TOPICS_SCHEMA,
    tuple(TOPICS_SCHEMA.names),
    _topic_rows,
    scans=(Source.CONFIG,),
    databases=("config/topics", *CONFIG_DATABASES),
)
SUBSCRIPTION_GROUPS = Table(
    "subscription_groups",
    SUBSCRIPTION_GROUPS_SCHEMA,
    ("group", "consume_enable", "consume_broadcast_enable", "retry_queues", "retry_max_times", "broker_id"),
    _subscription_rows,
    scans=(Source.CONFIG,),
    databases=("config/subscriptionGroups", *CONFIG_DATABASES),
)
DELAY_OFFSETS = Table(
    "delay_offsets",
    DELAY_OFFSETS_SCHEMA,
    tuple(DELAY_OFFSETS_SCHEMA.names),
    _delay_rows,
    scans=(Source.CONFIG,),
    databases=QUEUE_DATABASES,
)


SCHEMA = pa.schema(
    [
        column("field", pa.string(), "field of the broker's StoreCheckpoint"),
        column("value", pa.int64(), "milliseconds or a physical offset, as stored; 0: never written"),
        column("timestamp", TIMESTAMP, "the value as a time; null for offsets, and for 0"),
    ]
)


def _rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    rows = [
        (name, value, millis_to_micros(value) if value and name in TIMESTAMP_FIELDS else None)
        for name, value in read_checkpoint(store).items()
    ]
    if rows:
        yield batch_of(SCHEMA, rows)


CHECKPOINT = Table("checkpoint", SCHEMA, tuple(SCHEMA.names), _rows, scans=(Source.CONFIG,))


ENTRY_SCHEMA = pa.schema(
    [
        column("kind", pa.string(), "timer, or half (of a transaction)"),
        column("state", pa.string(), "waiting; done: a timer message due before the timeline checkpoint of the broker"),
        column("physical_offset", pa.int64(), "of the record that waits"),
        column("size", pa.int32(), "of that record, bytes"),
        column("msg_id", pa.string(), "UNIQ_KEY; of a half message its transaction id, which is the same"),
        column("deliver_timestamp", TIMESTAMP, "when a timer message falls due (TIMER_OUT_MS)"),
        column("real_topic", pa.string(), "where a half message is bound for"),
        column("check_times", pa.int32(), "how often the producer of a half message was asked"),
    ]
)


def _entry_rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    dues = ((entry, entry.deliver_timestamp) for entry in read_entries(store))
    yield from batches_of(
        ENTRY_SCHEMA,
        (entry._replace(deliver_timestamp=None if due is None else millis_to_micros(due)) for entry, due in dues),
    )


ROCKSDB_ENTRIES = Table(
    "rocksdb_entries", ENTRY_SCHEMA, tuple(ENTRY_SCHEMA.names), _entry_rows, scans=(), databases=(STORE_DATABASE,)
)

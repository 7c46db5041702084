"""The tables of the JSON files in `config/`: `topics`, `subscription_groups`, `delay_offsets`.

A store that keeps its configuration in RocksDB has none of these files; its tables have no rows.

Source: TopicConfigManager, SubscriptionGroupManager; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from rmqinspect.config.json_files import (
    ConfigDocument,
    integer,
    key_number,
    read_config,
    read_delay_offsets,
)
from rmqinspect.consumequeue.units import queue_ends
from rmqinspect.store.model import Store
from rmqinspect.tables.arrow import batches_of
from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES, Request, Source, Table, column
from rmqinspect.topics import SCHEDULE_TOPIC

TOPICS_SCHEMA = pa.schema(
    [
        column("topic", pa.string(), "name of the topic"),
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


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def report_problems(problems: Iterable[str], request: Request, *, readable: bool) -> None:
    """Report what is wrong with the copies of a file: that none can be read, or that not the file itself was."""
    tell = request.on_remark if readable else request.on_unreadable
    if tell is not None:
        for problem in problems:
            tell(problem)


def _read(document: ConfigDocument | None, request: Request) -> ConfigDocument | None:
    """Return a document after what is wrong with it is reported; None if no copy can be read."""
    if document is None:
        return None
    report_problems(document.problems, request, readable=document.source is not None)
    return document if document.source is not None else None


def _objects(document: ConfigDocument | None, table: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, object) of a JSON table, sorted by name; entries that are not objects are skipped."""
    for name, entry in sorted(document.table(table).items()) if document else ():
        if isinstance(entry, dict):
            yield name, entry


# --- topics and subscription groups -------------------------------------------------------------


def _topic_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    document = _read(read_config(store, "topics.json"), request)
    rows = (
        (
            topic,
            integer(entry.get("readQueueNums"), 32),
            integer(entry.get("writeQueueNums"), 32),
            integer(entry.get("perm"), 32),
            _flag(entry.get("order")),
            _text(_member(entry, "attributes", "message.type")),
        )
        for topic, entry in _objects(document, "topicConfigTable")
    )
    yield from batches_of(TOPICS_SCHEMA, rows)


def _member(entry: Mapping[str, Any], name: str, inner: str) -> Any:
    value = entry.get(name)
    return value.get(inner) if isinstance(value, dict) else None


def _subscription_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    document = _read(read_config(store, "subscriptionGroup.json"), request)
    source = document.source.name if document and document.source else None
    rows = (
        (
            group,
            _flag(entry.get("consumeEnable")),
            _flag(entry.get("consumeFromMinEnable")),
            _flag(entry.get("consumeBroadcastEnable")),
            _flag(entry.get("consumeMessageOrderly")),
            integer(entry.get("retryQueueNums"), 32),
            integer(entry.get("retryMaxTimes"), 32),
            _text(_member(entry, "groupRetryPolicy", "type")),
            integer(entry.get("consumeTimeoutMinute"), 32),
            integer(entry.get("brokerId")),
            source,
        )
        for group, entry in _objects(document, "subscriptionGroupTable")
    )
    yield from batches_of(SUBSCRIPTION_GROUPS_SCHEMA, rows)


# --- delay offsets ------------------------------------------------------------------------------


def _delay_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    document = _read(read_delay_offsets(store), request)
    if document is None or document.source is None:
        return
    source = document.source.name
    table = document.table("offsetTable")
    numbers = ((key_number(level), integer(offset)) for level, offset in table.items())
    offsets = sorted((level, offset) for level, offset in numbers if level is not None and offset is not None)
    wanted = {(SCHEDULE_TOPIC, level - 1) for level, _ in offsets}
    queues = {(queue.topic, queue.queue_id): queue for queue in queue_ends(store, wanted, request.on_unreadable)}

    def rows() -> Iterator[tuple[Any, ...]]:
        for level, offset in offsets:
            queue = queues.get((SCHEDULE_TOPIC, level - 1))
            ends = (queue.min_offset, queue.max_offset) if queue else (None, None)
            pending = integer(max(0, queue.max_offset - max(offset, queue.min_offset))) if queue else None
            yield level, integer(level - 1, 32), offset, *ends, pending, source

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

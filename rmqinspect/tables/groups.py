"""The table `groups`: how far each consumer group is in each queue, and what of it is still there.

    queue    |  deleted   | a .. b | c d e f |          b last_consumed, c oldest_unconsumed, f newest
             0           min     offset     max         lag 4; with an offset below min the rest is lost

The offsets are those of consumerOffset.json and lmqConsumerOffset.json, or of their copies in RocksDB. Little is read
of a queue, and single records for the times that are asked for.

Source: ConsumerOffsetManager, LmqConsumerOffsetManager, ConsumerProgressSubCommand; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import pyarrow as pa

from rmqinspect.broker.groups import kind_of
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.store.model import Store
from rmqinspect.tables.config import report_problems
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.group_positions import Position, ends_of, positions, tell_missing_lag, times_of
from rmqinspect.tables.pops import pop_counts, pop_queues
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES, TIMESTAMP, Source, Table, batches_of, column

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
_OF_POP = ("in_flight", "awaiting_revive", "acked")
_AT_ONCE = 4096  # rows whose records are read in the order of the log


def _asks_for(position: Position, selection: Selection) -> bool:
    """Whether a selection leaves the row of a position, by what rows of `groups` are chosen by."""
    entry = position.entry
    texts = {"group": entry.group, "status": position.status or ""}
    return selection.wants_queue(entry.topic, entry.queue_id) and all(
        any(fnmatchcase(texts.get(name, ""), pattern) for pattern in patterns) for name, patterns in selection.cells
    )


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


GROUPS = Table(
    "groups",
    SCHEMA,
    tuple(SCHEMA.names[: SCHEMA.names.index("status") + 1]),
    _rows,
    scans=(Source.CONFIG,),
    looks_into=(Source.QUEUES, Source.LOG),
    databases=("config/consumerOffsets", "config/topics", *CONFIG_DATABASES, *QUEUE_DATABASES),
)

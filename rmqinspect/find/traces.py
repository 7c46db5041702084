"""The table `traces`: what clients wrote of each message that they sent and consumed, one row a trace context.

    topics            by their names, by what their first record holds, or as asked for
    -> messages       the records of these topics, by the units of their queues where that saves reading
    -> contexts       codec.traces

A trace is the only record of a store that says what a consumer made of a message: an offset of a group says what it has
passed. Damage is a row: a context that cannot be read has what can be read of it, and a status.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.decompress import decompress
from rmqinspect.codec.traces import COLUMNS, MALFORMED, OK, is_trace, read_contexts
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.consumequeue.bounds import Files, queue_end, queue_files_of
from rmqinspect.consumequeue.units import units_around
from rmqinspect.errors import BadRecord, Unreadable
from rmqinspect.find.plan import plan_look_up, planned_rows
from rmqinspect.find.ways import place_span
from rmqinspect.schemas.message import COMPRESSION_MASK, COMPRESSION_SHIFT, COMPRESSIONS
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import QUEUE_DATABASES, TIMESTAMP, Source, Table, batch_with, column, millis, text
from rmqinspect.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, TRACE_PREFIX, TRACE_TOPIC, is_system_topic

SCHEMA = pa.schema(
    [
        column("physical_offset", pa.int64(), "of the record that holds the trace", filled=True),
        column("number", pa.int32(), "of the context in that record, from 0", filled=True),
        column("type", pa.string(), "Pub, SubBefore, SubAfter, EndTransaction, Recall; another: as it is written"),
        column(
            "client_timestamp", TIMESTAMP, "client's clock when it began to send or consume; SubAfter: when it ended"
        ),
        column("group", pa.string(), "producer group or consumer group"),
        column("topic", pa.string(), "of the message; SubBefore and SubAfter do not name it"),
        column("msg_id", pa.string(), "of the message; of a batch all ids, with commas between"),
        column("success", pa.bool_(), "whether the broker or the listener took the message; null if the type has none"),
        column("cost_ms", pa.int32(), "how long that took; of messages consumed at once, their time by their number"),
        column("result", pa.string(), "of SubAfter: SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL, FAILED"),
        column("reconsume_times", pa.int32(), "of SubBefore: how often the consumer had sent it back"),
        column("request_id", pa.string(), "the same in SubBefore and SubAfter of one consumption"),
        column("tags", pa.string(), "of the message; null if none"),
        column("keys", pa.list_(pa.string()), "of the message, split at spaces; null if none"),
        column(
            "offset_msg_id", pa.string(), "of Pub: where the message is stored; of a batch all, with commas between"
        ),
        column("broker_address", pa.string(), "the broker that the producer sent it to"),
        column("body_size", pa.int32(), "bytes of the body as it was sent, compressed or not"),
        column("message_type", pa.string(), "Normal_Msg, Trans_Msg_Half, Trans_msg_Commit, Delay_Msg, Order_Msg"),
        column("transaction_id", pa.string(), "of EndTransaction"),
        column("transaction_state", pa.string(), "of EndTransaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW"),
        column("from_transaction_check", pa.bool_(), "of EndTransaction: whether the broker had asked"),
        column("region_id", pa.string(), "of the broker, DefaultRegion unless set"),
        column("client_host", pa.string(), "the client's own name, written by 4.8.0 alone"),
        column("born_host", pa.string(), "address of the client that wrote the trace"),
        column("born_port", pa.int32(), "its port, that of its producer of traces"),
        column("store_timestamp", TIMESTAMP, "broker's clock when the trace was stored"),
        column("trace_topic", pa.string(), "topic of the record"),
        column("trace_queue_id", pa.int32(), "its queue", filled=True),
        column("trace_queue_offset", pa.int64(), "its offset there", filled=True),
        column("status", pa.string(), "ok, unknown_type, malformed; else that of the record", filled=True),
    ]
)

_BRIEF = ("client_timestamp", "type", "group", "topic", "msg_id", "success", "cost_ms", "result", "status")

# Names in the codec -> here, where they differ.
_NAMES = {
    "time": "client_timestamp",
    "cost": "cost_ms",
    "store_host": "broker_address",
    "retry_times": "reconsume_times",
}
_NAMES |= {"from_check": "from_transaction_check"}
_OF_RECORD = {
    **{name: name for name in ("physical_offset", "born_host", "born_port", "store_timestamp")},
    **{f"trace_{name}": name for name in ("topic", "queue_id", "queue_offset")},
}
_READ = frozenset({*_OF_RECORD.values(), "body", "status"})
_UNREADABLE_BODY = pa.array(["body_undecodable", "body_too_large"])  # left compressed

MANY_TOPICS = 5000  # of so many the first record is looked at: each costs some small reads
_LONGEST_LOOK = 1 << 20  # bytes: clients write up to 128,000


def trace_topics(
    store: Store, asked: tuple[str, ...] = (), unread: list[str] | None = None, most: int = MANY_TOPICS
) -> tuple[str, ...]:
    """Return the topics of a store that hold traces: those asked for, those with a known name, and those found.

    A topic is found where the first record that a unit of its queue leads to begins as a trace; in a store of more than
    `most` topics, and without queues, only names tell. What cannot be read is added to `unread`.
    """
    if not store.queue_files:
        return tuple(dict.fromkeys((*asked, TRACE_TOPIC, f"{TRACE_PREFIX}*")))
    topics = dict.fromkeys(file.topic for file in store.queue_files)
    named = [topic for topic in topics if topic == TRACE_TOPIC or topic.startswith(TRACE_PREFIX)]
    others = frozenset(topic for topic in topics if topic not in named and not _is_other(topic))
    found = _found(store, others, [] if unread is None else unread) if len(others) <= most else ()
    return tuple(dict.fromkeys((*asked, *named, *found)))


def _is_other(topic: str) -> bool:
    """Whether a topic holds something else by its name."""
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX))


def _found(store: Store, topics: frozenset[str], unread: list[str]) -> Iterator[str]:
    """Yield those of some topics whose first record begins as a trace."""
    by_topic = groupby(queue_files_of(store), lambda files: files[0].topic)
    with RecordReader(store, unread.append) as log:
        for topic, queues in by_topic:
            if topic in topics and any(_begins_as_trace(store, files, log, unread) for files in queues):
                yield topic


def _begins_as_trace(store: Store, files: Files, log: RecordReader, unread: list[str]) -> bool:
    """Whether the first record that a queue leads to begins as a trace does."""
    try:
        ends = queue_end(files, store.log_start, lambda: True)
        places: Ints = units_around(files, ends.first_kept, ends.first_kept + 1)[1]
    except Unreadable as error:
        unread.append(str(error))
        return False
    record = log.fields_at(int(places[0])) if len(places) else None
    body = b"" if record is None else record.body or b""
    if record is not None and record.compressed:
        kind = (record.number("sys_flag") & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        try:
            body = decompress(body, COMPRESSIONS[min(kind, len(COMPRESSIONS) - 1)], _LONGEST_LOOK)
        except BadRecord:
            return False
    return is_trace(body)


def trace_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table, in the order of the log."""
    unread: list[str] = []
    topics = trace_topics(store, request.trace_topics, unread)
    for message in unread:
        request.tell_unread(Unreadable(message))
    if not topics:
        if request.on_remark is not None:
            request.on_remark("no queue is one of a trace topic: the log is not read for traces")
        return
    selection = Selection(topics=topics, offsets=request.offsets)
    inside = replace(request, records_of=(selection,), named=(), columns=_READ, raw_body=False)
    try:
        look_up = plan_look_up(store, selection)
    except Unreadable:
        look_up = None  # the scan meets it again, and reports it
    batches = message_rows(store, inside) if look_up is None else planned_rows(store, look_up.to_read, inside)
    for batch in batches:
        records = selection.select_rows(batch)
        if records.num_rows:
            yield contexts_of(records)


def contexts_at(store: Store, places: Iterable[int], log: RecordReader, note: Callable[[str], None]) -> pa.Table:
    """Return the rows of the records at some physical offsets; `note` gets what could not be read."""
    wanted = pa.array(sorted(places), pa.int64())
    spans = [place_span(store, place) for place in wanted.to_pylist()]
    request = Request(columns=_READ, max_body=_LONGEST_LOOK, on_unreadable=note)
    batches = [
        contexts_of(batch.filter(pc.is_in(batch.column("physical_offset"), wanted)))
        for batch in planned_rows(store, spans, request, log)
    ]
    return pa.Table.from_batches(batches, SCHEMA)


def contexts_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of some rows of `messages`: those of its columns that are in `_READ`.

    A record without a context, and one whose body is not what was sent, is one row.
    """
    bodies = pc.fill_null(records.column("body"), b"")
    readable = pc.invert(pc.is_in(records.column("status"), _UNREADABLE_BODY))
    texts, invalid = text(pc.if_else(readable, bodies, b"").cast(pa.binary()))
    of, columns = read_contexts(texts)
    # Records without contexts, behind the others; then all in the order of the records.
    without = np.setdiff1d(np.arange(records.num_rows), of)
    all_of = np.concatenate([of, without])
    order = np.argsort(all_of, kind="stable")
    rows = np.where(order < len(of), order, -1)
    places = pa.array(rows, mask=rows < 0)
    of_records = pa.array(all_of[order])
    found = {_NAMES.get(name, name): columns[name].take(places) for name in (*COLUMNS, "type", "status")}
    found["client_timestamp"] = _times(found["client_timestamp"])
    found |= {name: records.column(source).take(of_records) for name, source in _OF_RECORD.items()}
    found["number"] = pa.array(_numbered(all_of[order]).astype(np.int32))
    own = pc.fill_null(found["status"], MALFORMED)
    of_record = pc.if_else(pa.array(invalid), "invalid_utf8", OK)
    of_record = pc.if_else(pc.equal(records.column("status"), OK), of_record, records.column("status")).take(of_records)
    found["status"] = pc.if_else(pc.equal(of_record, OK), own, of_record)
    return batch_with(SCHEMA, found, len(all_of))


def _times(values: pa.Array) -> pa.Array:
    """Return ms as timestamps, null where there are none, and outside the years 1 to 9999."""
    times, outside = millis(pc.fill_null(values, 0).to_numpy())
    return pc.if_else(pc.or_(pc.is_null(values), pa.array(outside)), pa.scalar(None, TIMESTAMP), times)


def _numbered(of: Ints) -> Ints:
    """Return the number of each row among those of its record; `of` ascends."""
    first: Ints = np.searchsorted(of, of, "left")
    return np.arange(len(of)) - first


TRACES = Table(
    "traces",
    SCHEMA,
    _BRIEF,
    trace_rows,
    looks_into=(Source.QUEUES,),
    databases=QUEUE_DATABASES,
)

"""Messages of batches: keys and ids that no column shows and no index entry knows.

    inner batch       one record for all; keys and ids of its messages are in the body
    batch of 5.x      a record for each; behind its own UNIQ_KEY stands that of the batch, and the last one counts

A batch queue has one unit for an inner batch, and the index the id of the batch alone, so a broker finds its messages
by no query. Nor does it find the ids that SendResult names for a batch of 5.x. Here the bytes are searched.

Source: MessageDecoder#encodeMessage, DefaultMQProducer#batch, MessageExtEncoder#encode; RocketMQ 5.0.0 and later.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqinspect.codec.fields import walk_fields
from rmqinspect.find.spans import Log
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import spellings

ITEM_COLUMNS = frozenset({"sys_flag", "body"})
_BETWEEN_NAME_AND_VALUE, _BETWEEN = b"\x01", b"\x02"


def batch_topics(store: Store) -> tuple[str, ...]:
    """Return the topics with batch queues."""
    return tuple(sorted({file.topic for file in store.queue_files if file.kind == "batch_queue"}))


def select_items(rows: pa.RecordBatch, text: str, name: str) -> pa.RecordBatch:
    """Return the inner batches with a message whose property `name`, KEYS or UNIQ_KEY, has a text."""
    flags, bodies = rows.column("sys_flag").to_numpy(), rows.column("body")
    wanted = {one.encode("utf-8", "surrogatepass") for one in (spellings(text) if name == "UNIQ_KEY" else (text,))}
    passing = np.zeros(rows.num_rows, np.bool_)
    for row in np.flatnonzero(flags & SysFlag.INNER_BATCH).tolist():
        body = bodies[row].as_py() or b""
        values = (value for one in items_of(body) if (value := one.get(name.encode())) is not None)
        passing[row] = any(wanted & {value, *value.split(b" ")} for value in values)
    return rows.filter(pa.array(passing))


def select_replaced(rows: pa.RecordBatch, text: str, log: Log) -> pa.RecordBatch:
    """Return the rows that have an id as one of several UNIQ_KEY."""
    wanted = {b"UNIQ_KEY" + _BETWEEN_NAME_AND_VALUE + one.encode("utf-8", "surrogatepass") for one in spellings(text)}
    passing = []
    for place in rows.column("physical_offset").to_pylist():
        record = log.record_at(place)
        properties = record.fields.get("properties") if record is not None else None
        passing.append(properties is not None and not wanted.isdisjoint(bytes(properties.value).split(_BETWEEN)))
    return rows.filter(pa.array(passing, pa.bool_()))


def items_of(body: bytes) -> Iterator[dict[bytes, bytes]]:
    """Yield the properties of the messages of an inner batch, up to the first that cannot be parsed."""
    at = 0
    while at < len(body):
        item = walk_fields(message.BatchItem.subcons, body, start=at)
        if item.reason is not None or item.end <= at:
            return
        properties: Any = item.fields["properties"].value
        pairs = (pair.partition(_BETWEEN_NAME_AND_VALUE) for pair in bytes(properties).split(_BETWEEN))
        yield {name: value for name, sign, value in pairs if sign}
        at = item.end

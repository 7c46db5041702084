"""--schema kafka: messages with the columns of Spark's Kafka source, for pipelines built on it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.tables.table import TIMESTAMP, column

_LOG_APPEND_TIME = 1  # TimestampType of Kafka: the broker's clock

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

SCHEMA = pa.schema(
    [
        column("key", pa.binary(), "first of KEYS, null if none"),
        column("value", pa.binary(), "body, as a consumer receives it (decompressed)"),
        column("topic", pa.string(), "stored topic"),
        column("partition", pa.int32(), "queue id"),
        column("offset", pa.int64(), "queue offset"),
        column("timestamp", TIMESTAMP, "broker's clock"),
        column("timestampType", pa.int32(), "1: the broker's clock"),
        column("headers", pa.list_(_HEADER), "properties: names, and values as bytes"),
    ]
)


def as_kafka(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of the table `messages` to SCHEMA."""
    keys = batch.column("keys")
    lengths = pc.fill_null(pc.list_value_length(keys), 0)
    first = pc.if_else(pc.greater(lengths, 0), keys.offsets[:-1].cast(pa.int64()), pa.scalar(None, pa.int64()))
    columns = [
        keys.values.take(first).cast(pa.binary()),
        batch.column("body"),
        batch.column("topic"),
        batch.column("queue_id"),
        batch.column("queue_offset"),
        batch.column("store_timestamp"),
        pa.array(np.full(batch.num_rows, _LOG_APPEND_TIME, np.int32)),
        _headers(batch.column("properties")),
    ]
    return pa.record_batch(columns, SCHEMA)


def _headers(properties: pa.MapArray) -> pa.Array:
    values = [properties.keys, properties.items.cast(pa.binary())]
    entries = pa.StructArray.from_arrays(values, fields=list(_HEADER))
    mask = properties.is_null() if properties.null_count else None
    return pa.ListArray.from_arrays(properties.offsets, entries, mask=mask)

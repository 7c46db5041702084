"""The table `checkpoint`: the fields of the checkpoint file, as far as it is long enough."""

from collections.abc import Iterator

import pyarrow as pa

from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS
from rmqinspect.store.model import Store
from rmqinspect.tables.arrow import batch_of
from rmqinspect.tables.table import TIMESTAMP, Request, Source, Table, column
from rmqinspect.times import millis_to_micros

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

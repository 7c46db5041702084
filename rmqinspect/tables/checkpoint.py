"""The table `checkpoint`: the fields of the checkpoint file that the file is long enough to hold."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqinspect.layout import dtype_of
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS, Checkpoint
from rmqinspect.store import Store, open_file
from rmqinspect.tables.arrow import batch_of, moment
from rmqinspect.tables.table import TIMESTAMP, Request, Table, column

SCHEMA = pa.schema(
    [
        column("field", pa.string(), "field of the broker's StoreCheckpoint"),
        column("value", pa.int64(), "milliseconds or a physical offset, as stored; 0: never written"),
        column("timestamp", TIMESTAMP, "the value as a time; null for offsets, and for 0"),
    ]
)


def read_checkpoint(store: Store) -> dict[str, int]:
    """Return the stored values by field, in file order.

    Empty without a checkpoint file; a file cut short gives the fields it holds whole. Fields that
    the broker's version did not know yet read as 0.

    :raises Unreadable: the file is there and cannot be read.
    """
    if store.checkpoint is None:
        return {}
    layout = dtype_of(Checkpoint)
    with open_file(store.checkpoint) as reader:
        octets = reader.read(0, layout.itemsize)
    values = np.frombuffer(octets.ljust(layout.itemsize, b"\0"), layout)[0]
    names = layout.names or ()
    whole = len(octets) // (layout.itemsize // len(names))  # all fields are of one size
    return {name: int(values[name]) for name in names[:whole]}


def _rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    rows = [
        (name, value, moment(value) if value and name in TIMESTAMP_FIELDS else None)
        for name, value in read_checkpoint(store).items()
    ]
    if rows:
        yield batch_of(SCHEMA, rows)


CHECKPOINT = Table("checkpoint", SCHEMA, tuple(SCHEMA.names), _rows)

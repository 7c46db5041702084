"""Python values to Arrow: batches of rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

BATCH_ROWS = 122_880  # most rows in a batch: DuckDB's row group size


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Convert rows of Python values to one batch."""
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema
    )


def batches_of(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
    """Convert rows of Python values to batches of at most BATCH_ROWS; yields nothing without rows."""
    pending: list[Sequence[Any]] = []
    for row in rows:
        pending.append(row)
        if len(pending) == BATCH_ROWS:
            yield batch_of(schema, pending)
            pending = []
    if pending:
        yield batch_of(schema, pending)

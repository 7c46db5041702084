"""Rows of findings as record batches."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from rmqinspect.tables.table import column
from rmqinspect.verify.findings import FindingRow

SCHEMA = pa.schema(
    [
        column("code", pa.string(), "stable id; `rmqinspect verify --list-checks` has them all"),
        column("severity", pa.string(), "error, warning, info"),
        column("file", pa.string(), "relative to the store"),
        column("offset", pa.int64(), "position in that file"),
        column("length", pa.int64(), "bytes concerned"),
        column("physical_offset", pa.int64(), "commit-log offset where it applies"),
        column("topic", pa.string(), "topic of the record concerned"),
        column("queue_id", pa.int32(), "its queue"),
        column("queue_offset", pa.int64(), "its logical offset in the queue"),
        column("count", pa.int64(), "1, or how many alike were folded into this row"),
        column("expected", pa.string(), "what should be there, short"),
        column("found", pa.string(), "what is there, short"),
        column("message", pa.string(), "what it is and why it matters"),
        column("broker_effect", pa.string(), "what the next start does there, and what a client gets if it stays"),
        column("next", pa.string(), "the command to run next"),
        column("do", pa.string(), "what a person has to do, null if nothing"),
    ]
)


def row_batches(rows: Iterable[FindingRow]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table, from a run or from its report."""
    if columns := [row.columns() for row in rows]:
        yield pa.RecordBatch.from_pylist(columns, schema=SCHEMA)


# As wherever several stores are read at once, the first column is the store's name.
SCHEMA_OF_STORES = SCHEMA.insert(0, column("store", pa.string(), "which of the stores given"))


def row_batches_of_stores(found: Iterable[tuple[str, Sequence[FindingRow]]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several stores, with their names."""
    for store, rows in found:
        if columns := [{"store": store, **row.columns()} for row in rows]:
            yield pa.RecordBatch.from_pylist(columns, schema=SCHEMA_OF_STORES)

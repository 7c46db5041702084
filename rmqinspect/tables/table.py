"""The definition of a table: a fixed Arrow schema, and a function that streams record batches of it.

Python values to Arrow: batches of rows.

numpy columns to Arrow columns, without a Python object per value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import are_utf8, content_of
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import HOLDS, used_databases
from rmqinspect.statuses import SOUND
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.text import text_of
from rmqinspect.times import END_MILLI, FIRST_MILLI

TIMESTAMP = pa.timestamp("us", "UTC")


class Source(Enum):
    """A part of a store that tables are read from; the values are its folders, a prefix where they end in `*`."""

    LOG = ("commitlog", "dledger-*")
    QUEUES = ("consumequeue", "batchconsumequeue")
    INDEX = ("index",)
    CONFIG = ("config", "checkpoint")
    TIMER = ("timerlog", "timerwheel")


# RocksDB databases, by their folders.
QUEUE_DATABASES = ("consumequeue", "consumequeue_rocksdb")
CONFIG_DATABASES = ("config/metadata", "config/rdb")  # hold all documents of config/
STORE_DATABASE = "rocksdbstore"
ALL_DATABASES = tuple(map("/".join, HOLDS))


@dataclass(frozen=True)
class Table:
    """A named table. Every batch that `rows` yields has exactly `schema`."""

    name: str
    schema: pa.Schema
    brief: tuple[str, ...]  # default columns of the table view
    rows: Callable[[Store, Request], Iterator[pa.RecordBatch]]
    scans: tuple[Source, ...] = (Source.LOG,)  # read from end to end
    looks_into: tuple[Source, ...] = ()  # of which little is read
    databases: tuple[str, ...] = ()  # folders of the RocksDB databases that it may be read from
    ends_only: bool = False  # of queues in RocksDB, only where they begin and end
    sound: tuple[str, ...] = SOUND["status"]  # values of its column `status` that are no damage

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", partial(_rows, self.rows, self.databases))


def _rows(
    rows: Callable[[Store, Request], Iterator[pa.RecordBatch]],
    databases: Sequence[str],
    store: Store,
    request: Request,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table; tell first of databases that nobody has tried to read: no rows would look like none.

    :raises Unreadable: there are such databases, and there is no `request.on_unreadable`.
    """
    found = [one for one in used_databases(store) if one.name in databases] if databases else []
    told = {oddity.place for oddity in store.oddities} | store.unpacked if found else set()
    if names := [one.name for one in found if one.place not in told]:
        what = f"{store.name}: {', '.join(names)}"
        request.tell_unread(Unreadable(f"{what}: not read: RocksDB, which rmqinspect.unpacked(store) reads"))
    yield from rows(store, request)


def column(name: str, type_: pa.DataType, meaning: str, *, filled: bool = False) -> pa.Field:
    """Return a field with its documentation; `filled` columns are never null in rows that have them, in no damage."""
    return pa.field(name, type_, nullable=not filled, metadata={"doc": meaning})


# The first column where rows of several stores stand together.
STORE = column("store", pa.string(), "which of the stores, by its name", filled=True)


def with_store(schema: pa.Schema) -> pa.Schema:
    """Return a schema with `store` as its first column."""
    return schema.insert(0, STORE)


def batch_with(schema: pa.Schema, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    """Return a batch of so many rows; columns of the schema that are not given are null."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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


_ESCAPED = rb"\x"  # what `text_of` writes otherwise in valid UTF-8


def text(raw: pa.Array) -> tuple[pa.Array, Bools]:
    """Return a binary array as strings, escaped as by `text_of`, and which values were not valid UTF-8."""
    invalid = ~are_utf8(*content_of(raw))
    strings = as_strings(raw)
    if invalid.any():
        values = zip(raw.to_pylist(), invalid, strict=True)
        strings = pa.array([text_of(value) if odd else value.decode() for value, odd in values], pa.string())
    return strings, invalid


def name_column(raw: pa.Array) -> tuple[pa.Array, Bools]:
    """Return a binary array of names as strings, escaped as by `text_of`, and which were not valid UTF-8."""
    names, invalid = text(raw)
    content = raw.buffers()[2]
    if content is not None and _ESCAPED in content.to_pybytes():
        names = pa.array([text_of(value) for value in raw.to_pylist()], pa.string())
    return names, invalid


def as_strings(raw: pa.Array) -> pa.Array:
    """Return the values of a binary array, which are valid UTF-8, as strings."""
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def pick(names: Sequence[str], numbers: NDArray[Any]) -> pa.Array:
    """Return `names[number]` for each number; null for a negative one."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if 0 <= low == high:
        return repeat(names[low], len(numbers))
    indices = pa.array(numbers.astype(np.int32), mask=numbers < 0 if low < 0 else None)
    return pa.array(names, pa.string()).take(indices)


def repeat(word: str, count: int) -> pa.Array:
    """Return a column of one word `count` times, the common case for columns of few words."""
    content = word.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(content))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(content * count))


def millis(values: Ints) -> tuple[pa.Array, Bools]:
    """Return milliseconds as timestamps, null outside the years 1 to 9999, and which values are outside."""
    outside = (values < FIRST_MILLI) | (values >= END_MILLI)
    if not outside.any():
        return pa.array(values * 1000).view(TIMESTAMP), outside
    return pa.array(np.where(outside, 0, values) * 1000, mask=outside).view(TIMESTAMP), outside

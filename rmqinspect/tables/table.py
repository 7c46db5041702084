"""What a table is: a fixed Arrow schema, and a function that streams record batches of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from rmqinspect.commitlog.splits import ScanState
from rmqinspect.store.model import Store

TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Request:
    """What a table may use to read less; whoever asks filters the rows in any case."""

    offsets: tuple[int, int] | None = None  # physical offsets [start, end)
    entry: ScanState | None = None  # how the log stands where `offsets` begin, if they lie in one segment
    raw_body: bool = False  # bodies as stored, not decompressed
    max_body: int = 64 << 20  # bytes a body may have after decompression
    jobs: int = 1  # processes
    columns: frozenset[str] | None = None  # columns that will be looked at; others may stay null
    progress: Callable[[int], None] | None = None  # is told how many more bytes were read
    # Is told each range of the log without records (kind, start, end), perhaps in several parts.
    on_gap: Callable[[str, int, int], None] | None = None
    on_unreadable: Callable[[str], None] | None = None  # is told, in words, what could not be read


@dataclass(frozen=True)
class Table:
    """A named table. Every batch that `rows` yields has exactly `schema`."""

    name: str
    schema: pa.Schema
    brief: tuple[str, ...]  # the columns that the table view shows unless asked for others
    rows: Callable[[Store, Request], Iterator[pa.RecordBatch]]


def column(name: str, type_: pa.DataType, meaning: str) -> pa.Field:
    """Return a field that carries its own documentation."""
    return pa.field(name, type_, metadata={"doc": meaning})

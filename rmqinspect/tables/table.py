"""The definition of a table: a fixed Arrow schema, and a function that streams record batches of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from rmqinspect.commitlog.splits import ScanState
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection

TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Request:
    """What to read of a table. Filters are hints: a table may yield more rows, the caller applies its filters."""

    # The filters that the caller applies to all rows, of `messages` only: records that cannot pass are left out.
    records_of: tuple[Selection, ...] = ()
    with_damaged: bool = False  # those with a wrong body CRC are not left out
    offsets: tuple[int, int] | None = None  # physical offsets [start, end)
    entry: ScanState | None = None  # state of the scan at the start of `offsets`, if they lie in one segment
    raw_body: bool = False  # bodies as stored, not decompressed
    max_body: int = 64 << 20  # bodies larger than this after decompression stay compressed
    jobs: int = 1  # threads
    columns: frozenset[str] | None = None  # columns the caller uses; others may be null
    progress: Callable[[int], None] | None = None  # gets the bytes read since its last call
    # Gets the records read since its last call, rows or not: their number, and their earliest and latest store time in
    # ms, None if none of them is a time.
    on_records: Callable[[int, tuple[int, int] | None], None] | None = None
    # Gets each range of the log that lost its records (kind, start, end), possibly in several parts.
    on_gap: Callable[[str, int, int], None] | None = None
    on_unreadable: Callable[[str], None] | None = None  # gets a message for everything that could not be read
    on_remark: Callable[[str], None] | None = None  # gets what a reader of the rows should know of their source


class Source(Enum):
    """A part of a store that tables are read from; the values are its folders, a prefix where they end in `*`."""

    LOG = ("commitlog", "dledger-*")
    QUEUES = ("consumequeue", "batchconsumequeue")
    INDEX = ("index",)
    CONFIG = ("config", "checkpoint")
    TIMER = ("timerlog",)


# RocksDB databases, by their folders.
QUEUE_DATABASES = ("consumequeue", "consumequeue_rocksdb")
CONFIG_DATABASES = ("config/metadata", "config/rdb")  # hold all documents of config/
STORE_DATABASE = "rocksdbstore"


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


def column(name: str, type_: pa.DataType, meaning: str) -> pa.Field:
    """Return a field with its documentation."""
    return pa.field(name, type_, metadata={"doc": meaning})

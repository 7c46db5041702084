"""The tables `index_files` and `index_entries`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, read_index_files
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.arrow import BATCH_ROWS, batches_of
from rmqinspect.tables.columns import millis
from rmqinspect.tables.table import TIMESTAMP, Request, Source, Table, column
from rmqinspect.times import END_MILLI, millis_to_micros

FILES_SCHEMA = pa.schema(
    [
        column("file", pa.string(), "name of the index file"),
        column("file_size", pa.int64(), "bytes"),
        column("begin_timestamp", TIMESTAMP, "store time of the first entry; null if never set"),
        column("end_timestamp", TIMESTAMP, "store time of the newest entry; null if never set"),
        column("begin_physical_offset", pa.int64(), "record of the first entry; null without a whole header"),
        column("end_physical_offset", pa.int64(), "record of the newest entry; null without a whole header"),
        column("used_slots", pa.int32(), "as the header says; brokers up to 4.7.0 count entries here"),
        column("slots", pa.int32(), "hash slots the file was made for; null if not to be known"),
        column("entries", pa.int32(), "entries in use, as the header says"),
        column("capacity", pa.int32(), "entries the file can hold; null if not to be known"),
    ]
)

ENTRIES_SCHEMA = pa.schema(
    [
        column("file", pa.string(), "name of the index file"),
        column("entry", pa.int32(), "number of the entry, from 1"),
        column("slot", pa.int32(), "slot that the hash asks for; null for a negative hash"),
        column("key_hash", pa.int32(), "hash of topic#key, as stored"),
        column("physical_offset", pa.int64(), "record that has the key"),
        column("time_diff", pa.int32(), "seconds after the file's begin_timestamp, as stored"),
        column("store_timestamp", TIMESTAMP, "begin_timestamp and time_diff: one second precise"),
        column("previous", pa.int32(), "next older entry of the slot; 0 ends the chain"),
    ]
)


def _file_row(index: IndexFile) -> tuple[Any, ...]:
    header, geometry = index.header, index.geometry
    return (
        index.file.name,
        index.file.size,
        millis_to_micros(header.begin_timestamp) if header and header.begin_timestamp else None,
        millis_to_micros(header.end_timestamp) if header and header.end_timestamp else None,
        header.begin_physical_offset if header else None,
        header.end_physical_offset if header else None,
        header.hash_slot_count if header else None,
        geometry.slots if geometry else None,
        index.entries,
        geometry.entries - 1 if geometry else None,
    )


def _file_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    yield from batches_of(FILES_SCHEMA, map(_file_row, _index_files(store, request)))


def _index_files(store: Store, request: Request) -> list[IndexFile]:
    """Return the index files that can be read; report the others."""
    unread: list[tuple[str, str]] = []
    found = read_index_files(store, None if request.on_unreadable is None else unread)
    if request.on_unreadable is not None:
        for _, message in unread:
            request.on_unreadable(message)
    return found


def _entry_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the entries of every file with a known geometry, oldest first."""
    for index in _index_files(store, request):
        try:
            yield from read_entries(index, request)
        except Unreadable as error:
            if request.on_unreadable is None:
                raise
            request.on_unreadable(str(error))


def read_entries(index: IndexFile, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the entries of one file, BATCH_ROWS at a time; nothing without a geometry, or beyond the end of the file.

    :raises Unreadable: the system reports an I/O error.
    """
    if index.geometry is None or index.header is None:
        return
    layout = dtype_of(IndexEntry)
    name, begin = index.file.name, index.header.begin_timestamp
    with open_file(index.file) as reader:
        for first in range(1, index.readable_entries + 1, BATCH_ROWS):
            count = min(BATCH_ROWS, index.readable_entries + 1 - first)
            raw = reader.read(index.geometry.entry_position(first), count * layout.itemsize)
            entries = np.frombuffer(raw, layout, len(raw) // layout.itemsize)
            if request.progress:
                request.progress(len(raw))
            hashes = entries["key_hash"].astype(np.int32)
            diffs = entries["time_diff"].astype(np.int64)
            # A damaged begin timestamp would overflow the sum.
            times = diffs * 1000 + begin if millis_to_micros(begin) is not None else np.full_like(diffs, END_MILLI)
            yield pa.record_batch(
                [
                    pa.repeat(pa.scalar(name), len(entries)),
                    pa.array(np.arange(first, first + len(entries), dtype=np.int32)),
                    pa.array((hashes % np.int32(index.geometry.slots)), mask=hashes < 0),
                    pa.array(hashes),
                    pa.array(entries["physical_offset"].astype(np.int64)),
                    pa.array(entries["time_diff"].astype(np.int32)),
                    millis(times)[0],
                    pa.array(entries["previous"].astype(np.int32)),
                ],
                ENTRIES_SCHEMA,
            )


INDEX_FILES = Table("index_files", FILES_SCHEMA, tuple(FILES_SCHEMA.names), _file_rows, scans=(Source.INDEX,))
INDEX_ENTRIES = Table("index_entries", ENTRIES_SCHEMA, tuple(ENTRIES_SCHEMA.names), _entry_rows, scans=(Source.INDEX,))

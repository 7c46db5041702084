"""The sources of a table: which files of a store, how many bytes; and the time of the log's last record."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.store.model import Store
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.table import Request

# Tables that have no rows without segments.
OF_SEGMENTS = ("messages", "segments", "gaps")
# Tables that are not read from the commit log.
_QUEUE_TABLES = frozenset({"queue_units", "queues"})
_INDEX_TABLES = frozenset({"index_files", "index_entries"})
_SMALL_TABLES = frozenset({"topics", "subscription_groups", "checkpoint", "delay_offsets", "groups"})
_ROCKSDB_TABLES = frozenset({"rocksdb_entries"})  # read from nothing else

# Table -> folders of the RocksDB databases that it may be read from.
_QUEUE_DATABASES = ("consumequeue", "consumequeue_rocksdb")
_ALL_CONFIG = ("config/metadata", "config/rdb")
_DATABASES: dict[str, tuple[str, ...]] = {
    "queues": _QUEUE_DATABASES,
    "queue_units": _QUEUE_DATABASES,
    "topics": ("config/topics", *_ALL_CONFIG),
    "subscription_groups": ("config/subscriptionGroups", *_ALL_CONFIG),
    "groups": ("config/consumerOffsets", "config/topics", *_ALL_CONFIG, *_QUEUE_DATABASES),
    "delay_offsets": _QUEUE_DATABASES,
    "rocksdb_entries": ("rocksdbstore",),
}


def databases_of(table: str) -> tuple[str, ...]:
    """Return the folders of the RocksDB databases that a table may be read from."""
    return _DATABASES.get(table, ())


def is_read_for(table: str, place: tuple[str, ...]) -> bool:
    """Whether a table is read from files in this folder of a store; () is the store itself."""
    if not place or "/".join(place) in databases_of(table):
        return True
    if table in _ROCKSDB_TABLES:
        return False
    if table in _QUEUE_TABLES:
        return place[0] in ("consumequeue", "batchconsumequeue")
    if table in _INDEX_TABLES:
        return place[0] == "index"
    if table in _SMALL_TABLES:
        return place[0] in ("config", "checkpoint")
    return place[0] == "commitlog" or place[0].startswith("dledger-")


def unread_places(store: Store, tables: Iterable[str]) -> list[str]:
    """Return a line for everything that these tables need and that is not read, such as folders.

    Databases that are not read for one reason share a line.
    """
    names: dict[tuple[str, str], list[str]] = {}
    databases = (oddity for oddity in store.oddities if oddity.kind == "rocksdb")
    for oddity in (*store.unread_entries, *databases):
        if any(is_read_for(table, oddity.place) for table in tables):
            apart = "" if oddity.kind == "rocksdb" else oddity.name
            names.setdefault((apart, oddity.detail), []).append(oddity.name)
    return [f"{', '.join(places)}: not read: {detail}" for (_, detail), places in names.items()]


def bytes_to_read(store: Store, table: str, offsets: tuple[int, int] | None = None) -> int:
    """Return the bytes that a table is read from, holes included; `offsets` is a range of the log."""
    if table in _SMALL_TABLES | _ROCKSDB_TABLES:
        return 0
    if table in _QUEUE_TABLES:
        return sum(file.size for file in store.queue_files)
    if table in _INDEX_TABLES:
        return sum(file.size for file in store.index_files)
    start, end = offsets or (0, 1 << 63)
    overlaps = (min(end, file.base + file.size) - max(start, file.base) for file in store.segments)
    return sum(max(0, overlap) for overlap in overlaps)


def last_store_time(store: Store) -> int | None:
    """Return the store time of the last record in microseconds since 1970, or None without one.

    Reads whole segments, the last one first, until one has a record with a time.
    """
    for segment in reversed(store.segments):
        reach = (segment.base, segment.end)
        request = Request(offsets=reach, columns=frozenset({"physical_offset", "store_timestamp"}))
        times: list[int | None] = [
            pc.max(batch.column("store_timestamp").cast(pa.timestamp("us")).cast(pa.int64())).as_py()
            for batch in message_rows(store, request)
        ]
        known = [time for time in times if time is not None]
        if known:
            return max(known)
    return None

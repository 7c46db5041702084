"""The sources of a table: which files of a store, how many bytes; and the time of the log's last record."""

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.store.model import Store
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.table import Request

# Tables that are not read from the commit log.
_QUEUE_TABLES = frozenset({"queue_units", "queues"})
_INDEX_TABLES = frozenset({"index_files", "index_entries"})
_SMALL_TABLES = frozenset({"topics", "subscription_groups", "checkpoint", "delay_offsets", "groups"})


def is_read_for(table: str, place: tuple[str, ...]) -> bool:
    """Whether a table is read from files in this folder of a store; () is the store itself."""
    if not place:
        return True
    if table in _QUEUE_TABLES:
        return place[0] in ("consumequeue", "batchconsumequeue")
    if table in _INDEX_TABLES:
        return place[0] == "index"
    if table in _SMALL_TABLES:
        return place[0] in ("config", "checkpoint")
    return place[0] == "commitlog" or place[0].startswith("dledger-")


def bytes_to_read(store: Store, table: str, offsets: tuple[int, int] | None = None) -> int:
    """Return the bytes that a table is read from, holes included; `offsets` is a range of the log."""
    if table in _SMALL_TABLES:
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

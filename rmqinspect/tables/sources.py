"""The sources of a table: which files of a store, how many bytes; and the time of the log's last record."""

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from rmqinspect.consumequeue.bounds import queue_ends
from rmqinspect.errors import NotAStore
from rmqinspect.index.geometry import read_index_files
from rmqinspect.rocksdb.unpack import Unpacking
from rmqinspect.store.model import IMAGE, Store, StoreFile
from rmqinspect.store.without_rows import words_of_file, words_of_kind
from rmqinspect.system.uri import shown
from rmqinspect.tables import TABLES
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import Source, Table
from rmqinspect.text import count


def scans_log(table: str) -> bool:
    """Whether a table is made of the whole commit log: without segments it has no rows."""
    return table in TABLES and Source.LOG in TABLES[table].scans


def databases_of(table: str) -> tuple[str, ...]:
    """Return the folders of the RocksDB databases that a table may be read from."""
    return TABLES[table].databases if table in TABLES else ()


def unpacking_for(tables: Collection[str], how: Unpacking) -> Unpacking:
    """Return how databases are unpacked for these tables: queues only in part, if none of them needs more."""
    return replace(how, ends_only=how.ends_only or (bool(tables) and all(map(_needs_ends_only, tables))))


def _needs_ends_only(table: str) -> bool:
    return table in TABLES and TABLES[table].ends_only


def is_read_for(table: str, place: tuple[str, ...]) -> bool:
    """Whether a table is read from files in this folder of a store; () is the store itself.

    What is no table of a store, such as findings, is read from the log at least.
    """
    if not place or "/".join(place) in databases_of(table):
        return True
    sources = (*TABLES[table].scans, *TABLES[table].looks_into) if table in TABLES else (Source.LOG,)
    return any(fnmatchcase(place[0], folder) for source in sources for folder in source.value)


def unread_places(store: Store, tables: Iterable[str]) -> list[str]:
    """Return a line for everything that these tables need and that is not read, such as folders.

    Databases that are not read for one reason share a line. A log that is not there, and was, is a line for tables
    that are made of it.
    """
    gone = why_no_log(store) if any(map(scans_log, tables := tuple(tables))) else None
    names: dict[tuple[str, str], list[str]] = {}
    databases = (oddity for oddity in store.oddities if oddity.kind == "rocksdb")
    for oddity in (*store.unread_entries, *databases):
        if any(is_read_for(table, oddity.place) for table in tables):
            apart = "" if oddity.kind == "rocksdb" else oddity.name
            names.setdefault((apart, oddity.detail), []).append(oddity.name)
    lines = [f"{', '.join(places)}: not read: {detail}" for (_, detail), places in names.items()]
    return [*lines, f"{store.name}: {gone}"] if gone else lines


def why_no_log(store: Store) -> str | None:
    """Return that a store's log is not here, and what proves that it had one; None with a log, and for a new store."""
    if store.segments or store.given != "store" or store.hides_log:
        return None
    # What cannot be read proves nothing; whatever needs it says so.
    if any(queue.units for queue in queue_ends(store, lambda: True, on_unreadable=lambda _: None)):
        return "the log is not here: no segment, though queues have units"
    if any(file.header is not None and file.entries for file in read_index_files(store, unread=[])):
        return "the log is not here: no segment, though the index has entries"
    return None


def range_to_read(store: Store, offsets: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the range of the log that holds the records that begin in `offsets`, and maybe one before.

    A DLedger record begins behind its entry head.
    """
    if offsets is None:
        return None
    lead = max((segment.lead for segment in store.segments), default=0)
    return max(0, offsets[0] - lead), offsets[1]


# What a table that scans a part of a store reads. Configuration is small.
_FILES: dict[Source, Callable[[Store], Sequence[StoreFile]]] = {
    Source.QUEUES: lambda store: store.queue_files,
    Source.INDEX: lambda store: store.index_files,
}


def bytes_to_read(store: Store, table: Table, offsets: tuple[int, int] | None = None) -> int:
    """Return the bytes that a table is read from, holes included; `offsets` is a range of the log."""
    if store.given == IMAGE:
        return sum(file.size for file in store.files)
    files = [file for source in table.scans if source in _FILES for file in _FILES[source](store)]
    if Source.LOG not in table.scans:
        return sum(file.size for file in files)
    start, end = offsets or (0, 1 << 63)
    overlaps = (min(end, file.base + file.size) - max(start, file.base) for file in store.segments)
    return sum(file.size for file in files) + sum(max(0, overlap) for overlap in overlaps)


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


# Kind of the given path -> table; every other kind is read for its messages.
_TABLE_OF_PLACE = {
    "queue": "queue_units",
    "batch_queue": "queue_units",
    "index": "index_entries",
    "checkpoint": "checkpoint",
}
_TABLE_OF_CONFIG = {
    "topics.json": "topics",
    "consumerOffset.json": "groups",
    "subscriptionGroup.json": "subscription_groups",
    "delayOffset.json": "delay_offsets",
}


def table_of(store: Store) -> str:
    """Return the table to show of what was given.

    :raises NotAStore: no table shows it.
    """
    if store.given == "config":
        names = {name.removesuffix(".bak") for name in store.config_files}
        if len(names) != 1:
            return "topics"
        name = names.pop()
        if words := words_of_file(name):
            raise NotAStore(f"{name}: {words}")
        if name not in _TABLE_OF_CONFIG:
            known = ", ".join(_TABLE_OF_CONFIG)
            raise NotAStore(f"{name}: no table shows this configuration file; there are tables of {known}")
        return _TABLE_OF_CONFIG[name]
    if words := words_of_kind(store.given):
        files = f"{count(len(store.files), 'file')}, {count(sum(file.size for file in store.files), 'byte')}"
        raise NotAStore(f"{shown(store.paths[0])} ({files}): {words}")
    return _TABLE_OF_PLACE.get(store.given, "messages")

"""Timer and half messages that a broker keeps in `rocksdbstore/`, as they were unpacked.

What a database of queues says of where each of them begins and ends, as it was unpacked.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

from rmqinspect.rocksdb.databases import HOLDS, QUEUES
from rmqinspect.rocksdb.job import CHECKPOINTS, ENTRIES, INDEX_CHECKPOINT, QUEUE_OFFSETS, TIMER_UNITS
from rmqinspect.schemas.rocksdb import LAST_HALF, SCAN_CHECKPOINT, TIMELINE_CHECKPOINT
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.text import text_of

_FOLDER = "rocksdbstore"


class Entry(NamedTuple):
    """One entry: the record of a message that waits in the commit log."""

    kind: str  # timer, half
    state: str  # waiting, done
    physical_offset: int
    size: int  # of the record, bytes
    msg_id: str  # UNIQ_KEY; of a half message its transaction id
    deliver_timestamp: int | None = None  # ms; of a timer message
    real_topic: str | None = None  # of a half message
    check_times: int | None = None  # of a half message


def entries_file(store: Store) -> StoreFile | None:
    """Return the file with the entries of a store, None if none were unpacked."""
    return store.unpacked_config.get((_FOLDER, ENTRIES))


def timer_units_file(store: Store) -> StoreFile | None:
    """Return the entries of timer messages as units of a timer log, None if none were unpacked."""
    return store.unpacked_config.get((_FOLDER, TIMER_UNITS))


class TimerCheckpoints(NamedTuple):
    """How far the timer in RocksDB has come."""

    timeline: int  # ms; what is due before it was delivered
    scan: int  # next queue offset of the timer's topic to take; 0: it was never used


def read_timer_checkpoints(store: Store) -> TimerCheckpoints | None:
    """Return the checkpoints of the timer, None if none were unpacked."""
    numbers = _checkpoints(store)
    if numbers is None:
        return None
    return TimerCheckpoints(*(numbers.get(key.decode(), 0) for key in (TIMELINE_CHECKPOINT, SCAN_CHECKPOINT)))


def last_half(store: Store) -> int | None:
    """Return the highest physical offset of a half message that the broker has entered, None without one."""
    return (_checkpoints(store) or {}).get(LAST_HALF.decode())


def last_indexed(store: Store) -> int | None:
    """Return the highest physical offset that the broker has entered into its index in RocksDB, None without one."""
    return (_checkpoints(store) or {}).get(INDEX_CHECKPOINT)


def _checkpoints(store: Store) -> dict[str, int] | None:
    file = store.unpacked_config.get((_FOLDER, CHECKPOINTS))
    if file is None:
        return None
    with open(file.path, encoding="ascii") as content:
        numbers: dict[str, int] = json.load(content)
    return numbers


def read_entries(store: Store) -> Iterator[Entry]:
    """Yield the entries: timer messages by time, then half messages by physical offset."""
    file = entries_file(store)
    if file is not None:
        with open(file.path, encoding="ascii") as lines:
            for line in lines:
                yield Entry(*json.loads(line))


UNITS_NEEDED = "the units of the queues in RocksDB decide, and only their ends were read"

Queue = tuple[str, int]  # topic, queue id


class End(NamedTuple):
    """The first or last message of a queue."""

    physical_offset: int
    queue_offset: int


class QueueOffsets(NamedTuple):
    """The column family `offset`. Source: RocksDBConsumeQueueOffsetTable."""

    checkpoint: int  # MAX_PHYSICAL_OFFSET_CHECKPOINT: physical offset behind the newest dispatched record; 0: none
    maxima: dict[Queue, End]
    minima: dict[Queue, End]
    with_units: bool  # the units of the queues were unpacked, too
    folder: str  # of the database, relative to the store


def read_queue_offsets(store: Store) -> QueueOffsets | None:
    """Return what was unpacked of the database of queues, None if nothing was."""
    for place in (place for place, holds in HOLDS.items() if holds == QUEUES):
        file = store.unpacked_config.get((place[-1], QUEUE_OFFSETS))
        if file is not None:
            with open(file.path, encoding="ascii") as content:
                document = json.load(content)
            found: dict[str, dict[Queue, End]] = {"max": {}, "min": {}}
            for end in document["ends"]:
                queue = text_of(bytes.fromhex(end["topic"])), end["queue_id"]
                found[end["which"]][queue] = End(end["physical_offset"], end["queue_offset"])
            return QueueOffsets(
                document["checkpoint"], found["max"], found["min"], document["with_units"], "/".join(place)
            )
    return None

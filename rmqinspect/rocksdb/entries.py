"""Timer and half messages that a broker keeps in `rocksdbstore/`, as they were unpacked."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from rmqinspect.rocksdb.job import CHECKPOINTS, ENTRIES, INDEX_CHECKPOINT, TIMER_UNITS
from rmqinspect.schemas.rocksdb import LAST_HALF, SCAN_CHECKPOINT, TIMELINE_CHECKPOINT
from rmqinspect.store.model import Store, StoreFile

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

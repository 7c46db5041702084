"""Timer and half messages that a broker keeps in `rocksdbstore/`, as they were unpacked."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from rmqinspect.rocksdb.job import ENTRIES, LAST_HALF, TIMER_UNITS
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


def last_half(store: Store) -> int | None:
    """Return the highest physical offset of a half message that the broker has entered, None without one."""
    file = store.unpacked_config.get((_FOLDER, LAST_HALF))
    if file is None:
        return None
    with open(file.path, encoding="ascii") as text:
        return int(text.read())


def read_entries(store: Store) -> Iterator[Entry]:
    """Yield the entries: timer messages by time, then half messages by physical offset."""
    file = entries_file(store)
    if file is not None:
        with open(file.path, encoding="ascii") as lines:
            for line in lines:
                yield Entry(*json.loads(line))

"""Writes consume queues and index files for a generated log, as a broker's dispatch would.

The records are read in columns by the code that `verify` uses. The result is as correct as that code: fit to measure
it, not to prove it.

Source: ConsumeQueue#putMessagePositionInfo, IndexService#buildIndex, IndexFile#putKey.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.broker.dispatch import Dispatched, Dispatcher
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.index.geometry import Geometry
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.index import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC

Ints = NDArray[np.int64]

QUEUE_FILE_SIZE = 6_000_000  # MessageStoreConfig.mappedFileSizeConsumeQueue
INDEX_FILES = 4  # filled by the keys of a store if no geometry is given

DELAYS = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)
"""Seconds of each delay level. Source: MessageStoreConfig.messageDelayLevel."""

PIECE_SIZE = 64 << 20  # bytes of log whose columns are in memory at a time
_ENTRIES_PER_SLOT = DEFAULT_ENTRIES // DEFAULT_SLOTS
_KEY = np.dtype([("hash", np.int64), ("place", np.int64), ("time", np.int64)])


def write_pointers(store: str, queue_file_size: int, geometry: Geometry) -> int:
    """Add the folders consumequeue and index to a store that has a log; unused ends of files are sparse.

    `queue_file_size` is rounded up to whole units, as by the broker. Returns the store timestamp in ms of the newest
    record in a full index file, 0 without one: the checkpoint's index_msg_timestamp.
    """
    queue_file_size += -queue_file_size % QueueUnit.sizeof()
    index = _IndexWriter(os.path.join(store, "index"), geometry)
    for dispatched in _dispatch(store):
        _write_units(os.path.join(store, "consumequeue"), dispatched, queue_file_size)
        index.take(dispatched)
    return index.finish()


def geometry_for(keys: int) -> Geometry:
    """Return settings with which `keys` keys fill `INDEX_FILES` files, with the default entries per slot."""
    entries = -(-keys // INDEX_FILES) + 1  # entry 0 is never used
    return Geometry(-(-entries // _ENTRIES_PER_SLOT), entries)


def _dispatch(store: str) -> Iterator[Dispatched]:
    """Yield what a broker before 5.4.0, which does not index tags, dispatches for each piece of the log."""
    for split in plan_splits(open_store([store]).segments, PIECE_SIZE):
        queues, dispatcher = QueueOffsets(), Dispatcher(keys=True, rules=())
        for event in scan_split(split):
            if isinstance(event, RecordRun):
                records = event.records
                sound = np.ones(len(records), np.bool_)
                dispatcher.take(records, queues.number(records), queues.queues, sound)
        yield dispatcher.columns(queues.queues)


def _write_units(folder: str, dispatched: Dispatched, file_size: int) -> None:
    """Add the units of consecutive records to their queues."""
    order = np.argsort(dispatched.queue, kind="stable")
    units = np.empty(len(order), dtype_of(QueueUnit))
    units["physical_offset"] = dispatched.physical_offset[order]
    units["size"] = dispatched.size[order]
    units["tags_code"] = dispatched.tags_code[order]
    begins = np.searchsorted(dispatched.queue[order], np.arange(len(dispatched.queues) + 1))
    for (topic, queue_id), begin, end in zip(dispatched.queues, begins[:-1], begins[1:], strict=True):
        if topic == SCHEDULE_TOPIC.encode():  # when the message is due: ScheduleMessageService#computeDeliverTimestamp
            due = dispatched.store_timestamp[order[begin:end]] + DELAYS[queue_id] * 1000
            units["tags_code"][begin:end] = due
        home = os.path.join(folder, topic.decode(), str(queue_id))
        os.makedirs(home, exist_ok=True)
        first = int(dispatched.queue_offset[order[begin]])
        _write_queue(home, first * units.itemsize, units[begin:end].tobytes(), file_size)


def _write_queue(home: str, start: int, raw: bytes, file_size: int) -> None:
    """Write bytes at a position of a queue, across its files."""
    for base in range(start - start % file_size, start + len(raw), file_size):
        path = os.path.join(home, f"{base:020}")
        with open(path, "r+b" if os.path.exists(path) else "w+b") as file:
            file.truncate(file_size)
            file.seek(max(start - base, 0))
            file.write(raw[max(base - start, 0) : base + file_size - start])


class _IndexWriter:
    """Collects keys until they fill a file."""

    def __init__(self, folder: str, geometry: Geometry) -> None:
        self.folder, self.geometry = folder, geometry
        self.pending: NDArray[Any] = np.empty(0, _KEY)
        self.created = 0  # ms; names the newest file
        self.full_until = 0
        os.makedirs(folder)

    def take(self, dispatched: Dispatched) -> None:
        """Add the keys of records, in the order of insertion."""
        keys = np.empty(len(dispatched.key_record), _KEY)
        keys["hash"] = dispatched.key_hash
        keys["place"] = dispatched.physical_offset[dispatched.key_record]
        keys["time"] = dispatched.store_timestamp[dispatched.key_record]
        keys = np.concatenate((self.pending, keys))
        room = self.geometry.entries - 1
        whole = len(keys) - len(keys) % room
        for start in range(0, whole, room):
            self._write_file(keys[start : start + room])
            self.full_until = int(keys["time"][start + room - 1])
        self.pending = keys[whole:].copy()

    def finish(self) -> int:
        """Write the last file; return the end time of the newest full file."""
        if len(self.pending):
            self._write_file(self.pending)
        return self.full_until

    def _write_file(self, keys: NDArray[Any]) -> None:
        geometry, begin = self.geometry, int(keys["time"][0])
        entries = np.zeros(len(keys) + 1, dtype_of(IndexEntry))
        slots = keys["hash"] % geometry.slots
        heads, entries["previous"][1:] = _chain(slots, geometry.slots)
        entries["key_hash"][1:] = keys["hash"]
        entries["physical_offset"][1:] = keys["place"]
        # A broker counts the first entry's seconds from the end of the previous file: also 0, in a log without pauses.
        entries["time_diff"][1:] = (keys["time"] - begin) // 1000
        header: bytes = IndexHeader.build(
            {
                "begin_timestamp": begin,
                "end_timestamp": int(keys["time"][-1]),
                "begin_physical_offset": int(keys["place"][0]),
                "end_physical_offset": int(keys["place"][-1]),
                "hash_slot_count": int(np.count_nonzero(heads)),
                "index_count": len(keys) + 1,
            }
        )
        self.created = max(begin, self.created + 1)
        with open(os.path.join(self.folder, _name(self.created)), "xb") as file:
            file.write(header)
            file.write(heads.astype(dtype_of(IndexSlot)["entry"]).tobytes())
            file.write(entries.tobytes())
            file.truncate(geometry.size)


def _chain(slots: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the newest entry of each of `count` slots, and for each entry the previous one in its slot.

    `slots` are those of the entries, which are numbered from 1.
    """
    order = np.argsort(slots, kind="stable")  # the entries of a slot together, oldest first
    numbers, sorted_slots = order + 1, slots[order]
    continues = np.zeros(len(order), np.bool_)
    continues[1:] = sorted_slots[1:] == sorted_slots[:-1]
    previous: Ints = np.zeros(len(order), np.int64)
    previous[order] = np.where(continues, np.roll(numbers, 1), 0)
    heads: Ints = np.zeros(count, np.int64)
    newest = np.append(~continues[1:], True)
    heads[sorted_slots[newest]] = numbers[newest]
    return heads, previous


def _name(milliseconds: int) -> str:
    """Return the name of an index file: its creation time in UTC."""
    created = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    return f"{created:%Y%m%d%H%M%S}{milliseconds % 1000:03}"

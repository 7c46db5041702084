"""Consume queues in RocksDB, written as queue files of 20-byte units.

    column family default    one entry for each message        -> a file for each queue; holes are unused units
    column family offset     first and last message of a queue -> lines of the index

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable; RocketMQ 5.2.0 to 5.5.0.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.layout import dtype_of
from rmqinspect.rocksdb.databases import write_line
from rmqinspect.schemas import rocksdb
from rmqinspect.schemas.consumequeue import QueueUnit

# Queue offsets between two entries: a damaged key must not make a file of exabytes.
_LONGEST_HOLE = 1 << 24
_LAST_QUEUE_OFFSET = 2**58  # its file name is still a Java long

_HEAD, _TAIL, _VALUE = dtype_of(rocksdb.KeyHead), dtype_of(rocksdb.UnitKeyTail), dtype_of(rocksdb.UnitValue)
_END_TAIL, _END_VALUE = dtype_of(rocksdb.EndKeyTail), dtype_of(rocksdb.EndValue)
_CHECKPOINT = dtype_of(rocksdb.CheckpointValue)
_UNIT = dtype_of(QueueUnit)
_AFTER_QUEUE = _TAIL.itemsize - rocksdb.KeyHead.sizeof()  # separator and queue offset

_CHECKPOINT_KEY: bytes = (
    rocksdb.KeyHead.build({"topic_size": len(rocksdb.CHECKPOINT_TOPIC), "separator": rocksdb.SEPARATOR})
    + rocksdb.CHECKPOINT_TOPIC
    + rocksdb.EndKeyTail.build(
        {"separator": rocksdb.SEPARATOR, "which": b"max", "which_separator": rocksdb.SEPARATOR, "queue_id": 0}
    )
)

Columns = NDArray[Any]
Chunk = Sequence[tuple[bytes, bytes]]  # keys and values of consecutive items, at least one


def write_queues(chunks: Iterable[Chunk], folder: str, index: TextIO) -> dict[str, Any]:
    """Write the entries of column family `default`, in the order of their keys, as one file per queue.

    Return the totals: `entries` written, `malformed` ones skipped.
    """
    files = _QueueFiles(folder, index)
    for chunk in chunks:
        keys, values = zip(*chunk, strict=True)
        files.take(keys, values)
    files.close()
    return {"entries": files.entries, "malformed": files.malformed}


class _QueueFiles:
    """Writes the entries of column family `default`, which come sorted by queue and queue offset."""

    def __init__(self, folder: str, index: TextIO) -> None:
        self.folder = folder
        self.index = index
        self.entries = 0
        self.malformed = 0
        self._queue: bytes | None = None  # the part of the keys that names the queue being written
        self._file: BinaryIO | None = None
        self._line: dict[str, Any] = {}
        self._number = 0

    def take(self, keys: tuple[bytes, ...], values: tuple[bytes, ...]) -> None:
        """Take the next entries."""
        sizes = np.fromiter(map(len, keys), np.int64, len(keys))
        # Keys begin with the size of the topic: sorted, those of one size are together.
        borders = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(keys)]
        for start, end in pairwise(borders):
            self._take_same_size(keys[start:end], values[start:end])

    def _take_same_size(self, keys: tuple[bytes, ...], values: tuple[bytes, ...]) -> None:
        """Take entries whose keys have the same size."""
        topic_size = len(keys[0]) - _HEAD.itemsize - _TAIL.itemsize
        if topic_size <= 0:
            self.malformed += len(keys)
            return
        raw = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), len(keys[0]))
        heads, tails = _cut(raw, 0, _HEAD), _cut(raw, len(keys[0]) - _TAIL.itemsize, _TAIL)
        good = np.fromiter(map(len, values), np.int64, len(values)) == _VALUE.itemsize
        good &= (heads["topic_size"] == topic_size) & (heads["separator"] == rocksdb.SEPARATOR)
        good &= (tails["separator"] == rocksdb.SEPARATOR) & (tails["queue_separator"] == rocksdb.SEPARATOR)
        good &= (tails["queue_offset"] >= 0) & (tails["queue_offset"] < _LAST_QUEUE_OFFSET)
        self.malformed += int(np.count_nonzero(~good))
        which = np.flatnonzero(good)
        if not len(which):
            return
        raw, offsets = raw[which], tails["queue_offset"][which].astype(np.int64)
        kept = values if good.all() else [values[at] for at in which.tolist()]
        entries = np.frombuffer(b"".join(kept), _VALUE)
        units = np.empty(len(entries), _UNIT)
        for name in _UNIT.names or ():
            units[name] = entries[name]
        queues = raw[:, :-_AFTER_QUEUE]
        borders = np.flatnonzero((queues[1:] != queues[:-1]).any(axis=1)) + 1
        for start, end in pairwise([0, *borders.tolist(), len(which)]):
            self._add(queues[start].tobytes(), offsets[start:end], units[start:end])

    def _add(self, queue: bytes, offsets: Columns, units: Columns) -> None:
        """Write units of one queue; entries behind an impossibly long hole are malformed."""
        before = self._line["last"][1] if queue == self._queue else int(offsets[0]) - 1
        far = np.flatnonzero(np.diff(offsets, prepend=before) > _LONGEST_HOLE)
        if len(far):
            self.malformed += len(offsets) - int(far[0])
            offsets, units = offsets[: int(far[0])], units[: int(far[0])]
        if not len(offsets):
            return
        if queue != self._queue:
            self._begin(queue, offsets, units)
        assert self._file is not None
        self.entries += len(offsets)
        borders = np.flatnonzero(np.diff(offsets) != 1) + 1
        for start, end in pairwise([0, *borders.tolist(), len(offsets)]):
            self._file.seek((int(offsets[start]) - self._line["first"][1]) * _UNIT.itemsize)
            self._file.write(units[start:end].tobytes())
        self._line["last"] = int(units[-1]["physical_offset"]), int(offsets[-1])

    def _begin(self, queue: bytes, offsets: Columns, units: Columns) -> None:
        self.close()
        self._queue, self._number = queue, self._number + 1
        name = f"{self._number:08}"
        self._file = open(os.path.join(self.folder, name), "wb")  # noqa: SIM115 closed by close
        first = int(units[0]["physical_offset"]), int(offsets[0])
        queue_id = int.from_bytes(queue[-4:], "big", signed=True)
        topic = queue[_HEAD.itemsize : -5].hex()
        self._line = {"topic": topic, "queue_id": queue_id, "file": name, "first": first, "last": first}

    def close(self) -> None:
        """Close the file of the last queue and add it to the index."""
        if self._file is not None:
            self._file.close()
            write_line(self.index, self._line)
        self._file = self._queue = None


def _cut(raw: Columns, start: int, dtype: np.dtype[Any]) -> Columns:
    """Return the struct at one position of every row."""
    return np.ascontiguousarray(raw[:, start : start + dtype.itemsize]).view(dtype)[:, 0]


def read_end(key: bytes, value: bytes) -> dict[str, Any] | None:
    """Return what an item of column family `offset` says, None if it is malformed.

    The first or last message of a queue: topic in hex, queue_id, which, physical_offset, queue_offset.
    {} for the checkpoint, the physical offset up to which the queues are built.
    """
    topic_size = len(key) - _HEAD.itemsize - _END_TAIL.itemsize
    if topic_size <= 0:
        return None
    head = np.frombuffer(key, _HEAD, 1)[0]
    tail = np.frombuffer(key, _END_TAIL, 1, len(key) - _END_TAIL.itemsize)[0]
    which = tail["which"].tobytes()
    separators = head["separator"], tail["separator"], tail["which_separator"]
    if head["topic_size"] != topic_size or set(separators) != {rocksdb.SEPARATOR} or which not in (b"max", b"min"):
        return None
    topic = key[_HEAD.itemsize : _HEAD.itemsize + topic_size]
    if topic == rocksdb.CHECKPOINT_TOPIC and which == b"max" and len(value) == _CHECKPOINT.itemsize:
        return {}
    if len(value) != _END_VALUE.itemsize:
        return None
    end = np.frombuffer(value, _END_VALUE, 1)[0]
    return {
        "topic": topic.hex(),
        "queue_id": int(tail["queue_id"]),
        "which": which.decode(),
        "physical_offset": int(end["physical_offset"]),
        "queue_offset": int(end["queue_offset"]),
    }


def write_offsets(
    ends: Iterable[tuple[bytes, bytes]], get: Callable[[bytes], bytes | None], path: str, *, with_units: bool
) -> None:
    """Write what column family `offset` says as a JSON document, which `queue_offsets` reads.

    `get` returns a value of that family; `with_units`: the entries are unpacked, too.
    """
    checkpoint = get(_CHECKPOINT_KEY) or b""
    found = [end for key, value in ends if (end := read_end(key, value))]
    reached = int(np.frombuffer(checkpoint, _CHECKPOINT)[0][0]) if len(checkpoint) == _CHECKPOINT.itemsize else 0
    with open(path, "w", encoding="ascii") as document:
        json.dump({"checkpoint": reached, "with_units": with_units, "ends": found}, document)


# --- the ends alone -------------------------------------------------------------------------------


def find_ends(
    ends: Iterable[tuple[bytes, bytes]], get: Callable[[bytes], bytes | None], log_start: int
) -> Iterator[dict[str, Any]]:
    """Yield topic in hex, queue_id, min, max and last physical offset of each queue, from few of its entries.

    `ends` are the items of column family `offset`, sorted by topic; `get` returns an entry.
    Source: RocksDBConsumeQueueOffsetTable#getMinCqOffset, #getMaxCqOffset.
    """
    parsed = (end for key, value in ends if (end := read_end(key, value)))
    for topic, of_topic in groupby(parsed, lambda end: str(end["topic"])):
        yield from _ends_of_topic(topic, of_topic, get, log_start)


def _ends_of_topic(
    topic: str, ends: Iterable[dict[str, Any]], get: Callable[[bytes], bytes | None], log_start: int
) -> Iterator[dict[str, Any]]:
    noted: dict[int, dict[str, dict[str, Any]]] = {}
    for end in ends:
        noted.setdefault(end["queue_id"], {})[end["which"]] = end
    for queue_id, both in noted.items():
        if "max" not in both or both["max"]["queue_offset"] < 0:
            continue
        last = both["max"]["queue_offset"]
        first = _first_reached(bytes.fromhex(topic), queue_id, last, get, log_start)
        low = both.get("min")
        if low is not None and low["physical_offset"] >= log_start:
            first = low["queue_offset"]
        yield {
            "topic": topic,
            "queue_id": queue_id,
            "min": min(first, last + 1),
            "max": last + 1,
            "last_physical_offset": both["max"]["physical_offset"],
        }


def _first_reached(topic: bytes, queue_id: int, last: int, get: Callable[[bytes], bytes | None], log_start: int) -> int:
    """Return the first queue offset whose record lies in the log or behind it, else the one behind the last."""
    low, high = 0, last + 1
    while low < high:
        middle = (low + high) // 2
        value = get(_unit_key(topic, queue_id, middle))
        # Entries that a compaction has removed were those of expired records.
        if value is None or int(np.frombuffer(value, _VALUE, 1)["physical_offset"][0]) < log_start:
            low = middle + 1
        else:
            high = middle
    return low


def _unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    head = rocksdb.KeyHead.build({"topic_size": len(topic), "separator": rocksdb.SEPARATOR})
    tail = {
        "separator": rocksdb.SEPARATOR,
        "queue_id": queue_id,
        "queue_separator": rocksdb.SEPARATOR,
        "queue_offset": queue_offset,
    }
    key: bytes = head + topic + rocksdb.UnitKeyTail.build(tail)
    return key

"""Reads consume queues from RocksDB and writes them as queue files, in a process of its own.

RocksDB may end the process that opens a damaged database, or allocate without bound: both may cost this process
only. The parent reads the index that it leaves, or its error output.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable; RocketMQ 5.2.0 to 5.5.0.
"""

import json
import os
import resource
import signal
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas import rocksdb
from rmqinspect.schemas.consumequeue import QueueUnit

INDEX = "index.jsonl"  # one line per queue, one per end that RocksDB has noted, then the totals
PROCESS_OUTPUT = "output.txt"  # stdout and stderr: tracebacks, messages of the library

_CHUNK = 1 << 16  # entries per read
_OPEN_FILES = 64
_MAX_MEMORY = 4 << 30  # address space

# Queue offsets between two entries: a damaged key must not make a file of exabytes.
_LONGEST_HOLE = 1 << 24
_LAST_QUEUE_OFFSET = 2**58  # its file name is still a Java long

_HEAD, _TAIL, _VALUE = dtype_of(rocksdb.KeyHead), dtype_of(rocksdb.UnitKeyTail), dtype_of(rocksdb.UnitValue)
_END_TAIL, _END_VALUE = dtype_of(rocksdb.EndKeyTail), dtype_of(rocksdb.EndValue)
_CHECKPOINT = dtype_of(rocksdb.CheckpointValue)
_UNIT = dtype_of(QueueUnit)
_AFTER_QUEUE = _TAIL.itemsize - rocksdb.KeyHead.sizeof()  # separator and queue offset

Columns = NDArray[Any]
Chunk = Sequence[tuple[bytes, bytes]]  # keys and values of consecutive items, at least one


def unpack_database(copy: str, units: str) -> None:
    """Read the database in folder `copy`; write one file per queue, and the index, into `units`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _redirect_output(os.path.join(units, PROCESS_OUTPUT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    from rocksdict import AccessType, Options, Rdict

    # Not the options in the folder: they name paths of the broker's host.
    options = Options(raw_mode=True)
    options.set_max_open_files(_OPEN_FILES)
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(copy, options)}
    access = AccessType.read_only(error_if_log_file_exist=False)
    database = Rdict(copy, options=options, column_families=families, access_type=access)
    ends = _chunks(database.get_column_family("offset")) if "offset" in families else ()
    with open(os.path.join(units, INDEX), "w", encoding="ascii") as index:
        totals = write_queues(_chunks(database), units, index)
        for key, value in chain.from_iterable(ends):
            end = read_end(key, value)
            if end is None:
                totals["malformed"] += 1
            elif end:
                _write_line(index, end)
        _write_line(index, totals)


def _redirect_output(path: str) -> None:
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)


def _write_line(index: TextIO, line: dict[str, Any]) -> None:
    index.write(json.dumps(line) + "\n")


def _chunks(family: Any) -> Iterator[Chunk]:
    """Yield the items of a column family.

    At a block that RocksDB cannot read, rocksdict ends its items as if there were no more: only RocksDB's own
    iterator says whether anything follows.
    """
    items, last = iter(family.items()), None
    while chunk := tuple(islice(items, _CHUNK)):
        last = chunk[-1][0]
        yield chunk
    rest = family.iter()
    if last is None:
        rest.seek_to_first()
    else:
        rest.seek(last)
        rest.next()
    rest.status()  # raises RocksDB's error
    if rest.valid():
        raise EOFError("the entries end before the database does")


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
            _write_line(self.index, self._line)
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

"""Consume queues in RocksDB (5.2.0+), unpacked into queue files of 20-byte units.

    consumequeue/*.sst  -- copy -->  folder/database  -- another process -->  folder/queues/00000001 ...

The database is copied because RocksDB leaves a lock and a log even in a folder that it opens for reading. Another
process opens the copy because RocksDB may end the process that opens a damaged database. The result are queue
files, so every table and every check of queue files works on them.

Needs the library `rocksdict`, an extra. Source: RocksDBConsumeQueueTable,
RocksDBConsumeQueueOffsetTable; RocketMQ 5.2.0 to 5.5.0.
"""

import errno
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from rmqinspect.consumequeue.rocksdb_reader import INDEX, PROCESS_OUTPUT, unpack_database
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import QueueFile, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri
from rmqinspect.text import describe_size, escape, text_of

# Folders of the database: since 5.2.0, and since 5.5.0 with useSeparateStorePathForRocksdbCQ.
FOLDERS = ("consumequeue", "consumequeue_rocksdb")

# Follows the folder in the names of unpacked files.
UNPACKED = " (RocksDB)"

_UNIT_SIZE = QueueUnit.sizeof()
_COPY_WINDOW = 4 << 20
# The copy and the units: RocksDB keeps some 20 bytes of an entry after compression, a unit has 20.
_SPACE_PER_BYTE = 3
_SPACE_MARGIN = 16 << 20
_MAX_REASON = 300


class NoRocksdict(Unreadable):
    """The library that reads RocksDB is not installed."""


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """An end of a queue where the column family `offset` contradicts the entries."""

    topic: str
    queue_id: int
    which: str  # max: the last message; min: the first
    physical_offset: int  # as the column family says
    queue_offset: int
    found: tuple[int, int] | None  # (physical offset, queue offset) of that entry; None without entries


@dataclass(frozen=True, slots=True)
class RocksQueues:
    """What a database of consume queues holds."""

    files: tuple[QueueFile, ...]  # one per queue, by topic and queue id
    entries: int
    malformed: int  # keys or values that are no entry of a queue; skipped
    ends: tuple[QueueEnd, ...]  # those that contradict the entries


def has_rocksdict() -> bool:
    """Return whether the library that reads RocksDB is installed."""
    return find_spec("rocksdict") is not None


def database_files(store: Store) -> list[StoreFile]:
    """Return the files of the database that holds a store's consume queues, [] without one.

    :raises Unreadable: there are two databases: a setting of the broker decides, which is not in the store.
    """
    files = {folder: [file for file in store.of_kind("rocksdb") if _folder_of(file) == folder] for folder in FOLDERS}
    found = [folder for folder in FOLDERS if any(os.path.basename(file.name) == "CURRENT" for file in files[folder])]
    if len(found) > 1:
        raise Unreadable(
            f"{store.name}: queues in RocksDB in {found[0]}/ and in {found[1]}/: only a setting tells which"
        )
    return files[found[0]] if found else []


def _folder_of(file: StoreFile) -> str:
    # Names do not have a folder that was given by itself.
    return os.path.dirname(file.name) or uri.basename(uri.dirname(file.path))


def unpack_queues(store: Store, folder: str) -> RocksQueues:
    """Write a store's consume queues in RocksDB as queue files below `folder`.

    `folder` is an empty directory outside of the evidence, which the caller removes. Each queue is one file that
    begins with its first entry; missing entries in between are unused units.

    :raises NoRocksdict: the library is not installed.
    :raises Refused: too little space in `folder`.
    :raises Unreadable: there is no such database, or RocksDB cannot read it.
    """
    if not has_rocksdict():
        raise NoRocksdict("queues in RocksDB need the library rocksdict: pip install 'rmqinspect[rocksdb]'")
    files = database_files(store)
    if not files:
        raise Unreadable(f"{store.name}: no consume queue in RocksDB")
    _expect_space(store, folder, sum(file.size for file in files))
    copy, units = os.path.join(folder, "database"), os.path.join(folder, "queues")
    os.mkdir(copy)
    os.mkdir(units)
    try:
        _copy(files, copy)
        _read_apart(f"{store.name}/{_folder_of(files[0])}", copy, units)
    finally:
        shutil.rmtree(copy)
    return _collect(store.log_start, _folder_of(files[0]), units)


def _expect_space(store: Store, folder: str, size: int) -> None:
    needed, free = _SPACE_PER_BYTE * size + _SPACE_MARGIN, shutil.disk_usage(folder).free
    if free < needed:
        raise Refused(
            f"{store.name}: unpacking its RocksDB queues takes about {describe_size(needed)} in {folder}, "
            f"where {describe_size(free)} are free: TMPDIR names another place"
        )


def _copy(files: Iterable[StoreFile], folder: str) -> None:
    buffer = memoryview(bytearray(_COPY_WINDOW))
    for file in files:
        with open_file(file) as reader, open(os.path.join(folder, os.path.basename(file.name)), "wb") as target:
            position = 0
            while position < reader.size and (count := reader.read_into(buffer, position)):
                target.write(buffer[:count])
                position += count


def _read_apart(name: str, copy: str, units: str) -> None:
    """Let another process unpack the database.

    :raises Refused: no space left.
    :raises Unreadable: the process failed; the message is the library's.
    """
    process = multiprocessing.get_context("spawn").Process(target=unpack_database, args=(copy, units), daemon=True)
    process.start()
    try:
        process.join()
    finally:
        if process.is_alive():
            process.terminate()
            process.join()
    status = process.exitcode or 0
    if status < 0:
        raise Unreadable(f"{name}: RocksDB cannot read it: it ended its process with signal {-status}")
    if status > 0:
        reason = _error_of(os.path.join(units, PROCESS_OUTPUT))
        if os.strerror(errno.ENOSPC) in reason:
            raise Refused(f"{name}: no space left to unpack it in {units}: TMPDIR names another place")
        raise Unreadable(f"{name}: RocksDB cannot read it: {reason}")


def _error_of(path: str) -> str:
    """Return the message of the exception that ended the other process."""
    if not os.path.exists(path):
        return "no reason given"
    with open(path, encoding="utf-8", errors="replace") as output:
        lines = [line.strip() for line in output if line.strip()]
    return escape(lines[-1][:_MAX_REASON].removeprefix("Exception: ")) if lines else "no reason given"


def _collect(log_start: int, folder: str, units: str) -> RocksQueues:
    """Return what the other process wrote, and the ends that contradict the entries."""
    queues: dict[tuple[str, int], _Queue] = {}
    ends: list[QueueEnd] = []
    totals: dict[str, Any] = {}
    with open(os.path.join(units, INDEX), encoding="ascii") as lines:
        for line in map(json.loads, lines):
            if "file" in line:
                queue = _Queue(**line | {name: tuple(line[name]) for name in ("first", "last")})
                queues[queue.name] = queue
            elif "which" in line:
                topic = _topic_text(line.pop("topic"))
                ends.append(QueueEnd(topic, **line, found=None))
            else:
                totals = line
    found = [_queue_file(queue, folder, units) for queue in queues.values()]
    found.sort(key=lambda file: (file.topic, file.queue_id))
    wrong = (_judge(end, queues.get((end.topic, end.queue_id)), log_start) for end in ends)
    return RocksQueues(
        tuple(found),
        **totals,
        ends=tuple(end for end in wrong if end is not None),
    )


@dataclass(frozen=True, slots=True)
class _Queue:
    """One unpacked queue: a line of the index written by the other process."""

    topic: str  # hex
    queue_id: int
    file: str
    first: tuple[int, int]  # physical offset, queue offset
    last: tuple[int, int]

    @property
    def name(self) -> tuple[str, int]:
        return _topic_text(self.topic), self.queue_id


def _queue_file(queue: _Queue, folder: str, units: str) -> QueueFile:
    path = os.path.join(units, queue.file)
    topic, queue_id = queue.name
    name, base = f"{folder} (RocksDB)/{topic}/{queue_id}", queue.first[1] * _UNIT_SIZE
    return QueueFile(path, name, os.path.getsize(path), "queue", topic, queue_id, base)


def _topic_text(raw: str) -> str:
    # As the names of folders are decoded.
    return text_of(bytes.fromhex(raw))


def _judge(end: QueueEnd, queue: _Queue | None, log_start: int) -> QueueEnd | None:
    """Return an end if it contradicts the entries, with the entry that is there.

    `max` must be the last entry; without entries, its message must have expired. `min` must lie among the entries:
    it is written only when it is corrected, and a compaction may leave older entries.
    """
    if queue is None:
        never_used = end.which == "min" or end.queue_offset < 0
        return None if never_used or end.physical_offset < log_start else end
    if end.which == "max":
        return None if queue.last == (end.physical_offset, end.queue_offset) else replace(end, found=queue.last)
    inside = queue.first[1] <= end.queue_offset <= queue.last[1] + 1
    return None if inside else replace(end, found=queue.first)

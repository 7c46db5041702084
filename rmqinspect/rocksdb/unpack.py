"""Databases of a store, unpacked into files of the kinds that stores without RocksDB have.

    consumequeue/*.sst   -- linked --.
    consumequeue/*.log   -- copied --'-> private copy -- another process --> queue files, JSON files -> Store

RocksDB leaves a lock and a log even in a folder that it opens for reading, so it opens a private copy. What it never
changes, the tables (.sst), is linked by name there: opened for reading only. Another process opens the copy, because
RocksDB may end the process that opens a damaged database. The result are queue files of 20-byte units, timer log units
and JSON files, so every table and every check works on them.

Needs the library `rocksdict`, an extra. Sources: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable,
RocksDBConfigManager; RocketMQ 5.1.4 to 5.5.0.

Runs the process that opens databases, as often as it takes to get past those that end it.

jobs: A B C    process 1: A read, ended in B    process 2: C read    -> B failed, with RocksDB's own words
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.errors import NotInstalled, Unreadable
from rmqinspect.rocksdb.databases import ENTRIES, INDEX, PROCESS_OUTPUT, QUEUES, Database, Job, used_databases
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import NotedEnds, Oddity, QueueFile, Store, StoreFile
from rmqinspect.store.outside import refuse_inside
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri
from rmqinspect.text import count, describe_size, escape, text_of
from rmqinspect.topics import LMQ_PREFIX

_COMMAND = (sys.executable, "-m", "rmqinspect.rocksdb.readers")
_NO_REASON = "it gave no reason"
_RAISED = "Exception: "  # begins what rocksdict raises, at the end of a traceback


def read_apart(jobs: Sequence[Job], folder: str) -> dict[str, str]:
    """Read databases in another process; return why, by the folder of the job, for those that could not be read.

    `folder` is writable, for what the process is told and prints. A reason is as long as RocksDB made it, and not
    escaped.
    """
    failed: dict[str, str] = {}
    while jobs:
        ended = _run(jobs, folder)
        rest = [job for job in jobs if not os.path.exists(os.path.join(job.folder, INDEX))]
        if rest:
            failed[rest[0].folder] = ended
        jobs = rest[1:]
    return failed


def _run(jobs: Sequence[Job], folder: str) -> str:
    """Run the process; return how it ended."""
    import subprocess  # stores with a database are few

    told, printed = os.path.join(folder, "jobs.jsonl"), os.path.join(folder, PROCESS_OUTPUT)
    with open(told, "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(job)) + "\n" for job in jobs)
    # A Python that finds this package the way this process did, wherever that was started.
    places = os.pathsep.join(place or os.getcwd() for place in sys.path)
    with open(printed, "wb") as output:
        process = subprocess.Popen(
            [*_COMMAND, told],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": places},
        )
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if status < 0:
        return f"it ended its process with signal {-status} ({_signal_name(-status)})"
    return _reason(printed)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _reason(path: str) -> str:
    """Return the message of the exception that ended the process, in one line; RocksDB's may have several."""
    with open(path, encoding="utf-8", errors="replace") as output:
        lines = [line.strip() for line in output if line.strip()]
    raised = [number for number, line in enumerate(lines) if line.startswith(_RAISED)]
    message = " ".join(lines[raised[-1] if raised else -1 :]).removeprefix(_RAISED)
    return message or _NO_REASON


# Not by the package's name: it is in no index, and whoever takes it there would own the host of the reader.
INSTALL = "pip install '.[rocksdb]' in a clone of rmqinspect"

# Follows the folder in the names of unpacked files.
UNPACKED = " (RocksDB)"

_UNIT_SIZE = QueueUnit.sizeof()
_COPY_WINDOW = 4 << 20
# Tables hold some 20 bytes of an entry after compression, a unit has 20.
_SPACE_PER_BYTE = 2
_SPACE_MARGIN = 16 << 20
_MAX_REASON = 300  # characters of what RocksDB says
_MOST_REMOTE = 1 << 30  # bytes copied from a remote file system unless asked for


class Unpacking(Struct, frozen=True):
    """Whether and where databases are unpacked. Picklable."""

    wanted: bool | None = None  # None: if the library is installed
    folder: str | None = None  # None: the system's folder for temporary files
    ends_only: bool = False  # of queues, only where they begin and end: for a quick look


def has_rocksdict() -> bool:
    """Return whether the library that reads RocksDB is installed."""
    return find_spec("rocksdict") is not None


_BY_DEFAULT = Unpacking()


@contextmanager
def unpacked(store: Store, how: Unpacking = _BY_DEFAULT, only: Collection[str] | None = None) -> Iterator[Store]:
    """Give the store with what its databases hold as files, which exist until the block ends.

    `only`: folders of databases to read, as `config/topics`; None: all. Each database that cannot be read, or is not
    read, becomes an oddity.

    :raises NotInstalled: the library is missing, and reading was asked for.
    :raises Refused: `how.folder` lies inside the store.
    """
    found = _wanted(store, only)
    if not found:
        yield store
        return
    if how.wanted and not has_rocksdict():
        raise NotInstalled(f"{store.name}: RocksDB needs the library rocksdict: {INSTALL}")
    if _why_not(how):
        yield with_unread_databases(store, how, only)
        return
    import tempfile

    parent = how.folder or tempfile.gettempdir()
    refuse_inside(parent, store.paths)
    with tempfile.TemporaryDirectory(prefix="rmqinspect-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield _unpack(store, found, how, folder)


def still_unpacked(store: Store) -> bool:
    """Return whether the files that were unpacked of a store are here: on this machine, before the block ended."""
    files = (*(file for file in store.queue_files if file.noted is not None), *store.unpacked_config.values())
    return all(os.path.exists(file.path) for file in files[:1])


def with_unread_databases(store: Store, how: Unpacking, only: Collection[str] | None = None) -> Store:
    """Return the store with an oddity for each database that `unpacked` would not even try to read."""
    found = _wanted(store, only)
    reason = _why_not(how)
    return _with_oddities(store, "rocksdb", dict.fromkeys(found, reason)) if found and reason else store


def _wanted(store: Store, only: Collection[str] | None) -> list[Database]:
    if only is None:
        return used_databases(store)
    return [one for one in used_databases(store) if one.name in only] if only else []


def _why_not(how: Unpacking) -> str:
    if how.wanted is False:
        return "a RocksDB database, and --no-rocksdb was given"
    return "" if has_rocksdict() else f"a RocksDB database, which needs the library rocksdict: {INSTALL}"


def _with_oddities(store: Store, kind: str, reasons: dict[Database, str]) -> Store:
    added = [
        Oddity(kind, database.name, reason, uri.dirname(database.files[0].path), database.place)
        for database, reason in reasons.items()
    ]
    return replace(store, oddities=(*store.oddities, *added))


def _unpack(store: Store, found: Sequence[Database], how: Unpacking, folder: str) -> Store:
    failed = _ambiguous(found)
    jobs: dict[str, Database] = {}
    work: list[Job] = []
    for number, database in enumerate(one for one in found if one not in failed):
        copy, target = os.path.join(folder, f"copy{number}"), os.path.join(folder, f"{number}")
        os.mkdir(copy)
        os.mkdir(target)
        try:
            _expect_space(database, folder, how)
            _copy(database, copy)
        except (OSError, Unreadable) as error:
            failed[database] = _words(error)
            continue
        jobs[target] = database
        work.append(Job(_reads(database, how), copy, target, database.place[-1], store.log_start))
    ends = read_apart(work, folder)
    result = store
    for job in work:
        shutil.rmtree(job.copy)
        database = jobs[job.folder]
        if job.folder in ends:
            reason = ends[job.folder].replace(job.copy, database.name)
            failed[database] = f"RocksDB cannot read it: {escape(reason[:_MAX_REASON])}"
        else:
            result = _add(result, database, job.folder, failed)
    return _with_oddities(result, "unreadable", failed)


def _ambiguous(found: Sequence[Database]) -> dict[Database, str]:
    """Return the databases of queues if there are two: a broker of 5.5.0 does not start on them."""
    queues = [one for one in found if one.holds == QUEUES]
    names = " and in ".join(one.name + "/" for one in queues)
    return dict.fromkeys(queues, f"queues in RocksDB in {names}: only a setting tells which") if queues[1:] else {}


def _words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _reads(database: Database, how: Unpacking) -> str:
    if database.holds == QUEUES:
        return "ends" if how.ends_only else "queues"
    if database.holds == ENTRIES:
        return "entries"
    return "config_v2" if database.place[-1] == "rdb" else "config"


def _expect_space(database: Database, folder: str, how: Unpacking) -> None:
    """Check that the copy and what is unpacked fit.

    :raises Unreadable: they do not.
    """
    size = sum(file.size for file in (*database.tables, *database.state))
    remote = any(uri.is_remote(file.path) for file in database.files)
    if remote and size > _MOST_REMOTE and not how.wanted:
        raise Unreadable(f"a RocksDB database of {describe_size(size)} on a remote file system: --rocksdb copies it")
    needed, free = _SPACE_PER_BYTE * size + _SPACE_MARGIN, shutil.disk_usage(folder).free
    if free < needed:
        raise Unreadable(
            f"a RocksDB database: unpacking it takes about {describe_size(needed)} in {os.path.dirname(folder)}, "
            f"where {describe_size(free)} are free: --rocksdb-copy names another place"
        )


def _copy(database: Database, folder: str) -> None:
    """Make the private copy. Only links lead to the evidence, and only to files that RocksDB never writes to."""
    for file in database.tables:
        if uri.is_remote(file.path):
            _copy_file(file, folder)
        else:
            os.symlink(file.path, os.path.join(folder, uri.basename(file.path)))
    for file in database.state:
        _copy_file(file, folder)


def _copy_file(file: StoreFile, folder: str) -> None:
    buffer = memoryview(bytearray(min(_COPY_WINDOW, file.size + 1)))
    with open_file(file) as reader, open(os.path.join(folder, uri.basename(file.path)), "wb") as target:
        position = 0
        while position < reader.size and (size := reader.read_into(buffer, position)):
            target.write(buffer[:size])
            position += size


# --- what the other process wrote --------------------------------------------------------------------


def _add(store: Store, database: Database, folder: str, failed: dict[Database, str]) -> Store:
    """Return the store with what was unpacked of a database; what of it is malformed goes to `failed`."""
    found = _Unpacked(folder)
    with open(os.path.join(folder, INDEX), encoding="ascii") as lines:
        for line in map(json.loads, lines):
            found.take(line)
    if found.malformed:
        failed[database] = f"{count(found.malformed, 'pair')} of key and value in its RocksDB that no broker writes"
    store = replace(store, unpacked=store.unpacked | {database.place})
    documents = {
        (database.place[-1], name): StoreFile(path, database.name + UNPACKED, os.path.getsize(path), "config")
        for name, path in found.documents.items()
    }
    store = replace(store, unpacked_config={**store.unpacked_config, **documents})
    if database.holds == QUEUES:
        files = found.queue_files(database.place[-1] + UNPACKED, store.log_start)
        return _with_queues(store, files, found.reach)
    return store


def _with_queues(store: Store, files: Sequence[QueueFile], reach: int) -> Store:
    """Return the store with the queues that a broker reads, of those in files and those in RocksDB.

    With rocksdbCQDoubleWriteEnable both have the same units, and the files are read (CombineConsumeQueueStore,
    combineCQPreferCQType); queues in RocksDB alone are then those of light messages (combineCQUseRocksdbForLmq), or
    left over from deleted topics (5.3.3). Files that RocksDB has overtaken are older than a change to storeType
    defaultRocksDB.

    `reach`: the last physical offset of a queue in RocksDB other than those of light messages.
    """
    old = [file for file in store.queue_files if file.kind == "queue"]
    both = {(file.topic, file.queue_id) for file in old} & {(file.topic, file.queue_id) for file in files}
    kept, note = store.queue_files, ""
    if not files:
        note = "no queue is in RocksDB, as after a crash: the broker builds the queues again from the commit log"
    elif both and reach <= max(last_places(store, []), default=-1):
        note = "queues are in files and in RocksDB: the files count, as they do for a broker by default"
        light = (file for file in files if file.topic.startswith(LMQ_PREFIX))
        files = [file for file in light if (file.topic, file.queue_id) not in both]
    elif both:
        note = "queues are in files and in RocksDB: RocksDB counts, it goes further"
        kept = tuple(file for file in kept if file.kind != "queue" or (file.topic, file.queue_id) not in both)
    merged = sorted((*kept, *files), key=lambda file: (file.topic, file.queue_id, file.kind, file.base))
    return replace(store, queue_files=tuple(merged), remarks=(*store.remarks, note) if note else store.remarks)


class _Queue(Struct):
    """What is known of a queue."""

    file: str = ""  # "": its units were not read, or it has none
    first: tuple[int, int] | None = None  # physical offset, queue offset of the first unit
    last: tuple[int, int] | None = None
    max: tuple[int, int] | None = None  # as column family `offset` says
    min: tuple[int, int] | None = None
    ends: NotedEnds | None = None

    @property
    def last_physical_offset(self) -> int:
        """Of its last message, -1 if it never had one."""
        noted = self.ends.last_physical_offset if self.ends is not None else None
        return noted if noted is not None else (self.max or self.last or (-1, -1))[0]

    def noted(self, log_start: int) -> NotedEnds:
        """Return the ends as the broker computes them.

        Source: RocksDBConsumeQueueOffsetTable#getMaxCqOffset, #getMinCqOffset.
        """
        if self.ends is not None:
            return self.ends
        highest = self.max or self.last or (0, -1)
        behind = highest[1] + 1
        if self.min is not None and self.min[0] >= log_start:
            return NotedEnds(self.min[1], behind)
        return NotedEnds(behind if highest[0] < log_start else None, behind)


class _Unpacked(Struct):
    """The index that the other process wrote."""

    folder: str
    queues: dict[tuple[str, int], _Queue] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)  # name -> path
    malformed: int = 0

    def take(self, line: dict[str, Any]) -> None:
        """Take one line of the index."""
        self.malformed += line.get("malformed", 0)
        if "document" in line:
            self.documents[line["document"]] = os.path.join(self.folder, line["document"])
        if "topic" not in line:
            return
        # As the names of folders are decoded.
        topic = text_of(bytes.fromhex(line["topic"]))
        queue = self.queues.setdefault((topic, line["queue_id"]), _Queue())
        if "file" in line:
            queue.file, queue.first, queue.last = line["file"], tuple(line["first"]), tuple(line["last"])
        elif "which" in line:
            setattr(queue, line["which"], (line["physical_offset"], line["queue_offset"]))
        else:
            queue.ends = NotedEnds(line["min"], line["max"], line["last_physical_offset"])

    @property
    def reach(self) -> int:
        """The last physical offset of a queue other than those of light messages; -1 without one."""
        queues = (queue for (topic, _), queue in self.queues.items() if not topic.startswith(LMQ_PREFIX))
        return max((queue.last_physical_offset for queue in queues), default=-1)

    def queue_files(self, folder: str, log_start: int) -> list[QueueFile]:
        """Return one file for each queue that ever had a message."""
        empty = os.path.join(self.folder, "empty")
        open(empty, "wb").close()
        files = []
        for (topic, queue_id), queue in self.queues.items():
            noted = queue.noted(log_start)
            if noted.max_offset <= 0:
                continue
            path = os.path.join(self.folder, queue.file) if queue.file else empty
            first = noted.max_offset if queue.first is None else queue.first[1]
            name = f"{folder}/{topic}/{queue_id}"
            files.append(
                QueueFile(path, name, os.path.getsize(path), "queue", topic, queue_id, first * _UNIT_SIZE, noted)
            )
        return files

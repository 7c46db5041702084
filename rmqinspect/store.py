"""What a path is, which of its files is what, and the only place where evidence is opened.

A store is found by looking: at folder names, at file names, and, where a piece was given
without its folders, at the first bytes. Whatever does not fit is an `Oddity`, a fact for
`verify` to judge, and never a reason to stop. Files are opened for reading only; no link is
followed out of what was given; nothing is locked.
"""

import errno
import fcntl
import os
import stat
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Self

from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.sniff import archive_advice, own_base, sniff

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One regular file of the evidence."""

    path: str  # real path, where it is opened
    name: str  # for people: relative to what was given, with "/"
    size: int  # bytes, when the store was listed
    kind: str  # a kind of PLACES, or "other"


@dataclass(frozen=True, slots=True)
class Segment(StoreFile):
    """A commit-log file; of kind "dledger" when each record sits behind a DLedger entry head."""

    base: int  # physical offset of its first byte


@dataclass(frozen=True, slots=True)
class QueueFile(StoreFile):
    """A consume-queue, batch-queue or ext-queue file."""

    topic: str
    queue_id: int
    base: int  # byte offset in the queue, from the file name


@dataclass(frozen=True, slots=True)
class Oddity:
    """An entry that is not what its place asks for: name, what it is, where."""

    kind: str  # stray, directory, link, special, unreadable
    name: str
    detail: str
    path: str
    place: Place


@dataclass(frozen=True)
class Store:
    """The files of one store, or of the pieces of one."""

    name: str
    paths: tuple[str, ...]
    place: str  # what was given: "store", or the kind of piece
    files: tuple[StoreFile, ...]
    segments: tuple[Segment, ...]
    segment_size: int | None
    queue_files: tuple[QueueFile, ...]
    index_files: tuple[StoreFile, ...]
    checkpoint: StoreFile | None
    config_files: Mapping[str, StoreFile]
    oddities: tuple[Oddity, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what was inferred, for people
    neighbours: bool = True  # False for loose files: what is absent was not given, not lost

    def of_kind(self, kind: str) -> list[StoreFile]:
        """Return the files of one kind, in listing order."""
        return [file for file in self.files if file.kind == kind]

    @property
    def log_start(self) -> int:
        """Physical offset of the first byte of the log; 0 without segments."""
        return self.segments[0].base if self.segments else 0


# Which file is what, by its place below the store root. The first row that matches decides.
# Sources: StorePathConfigHelper, BrokerPathConfigHelper, DLedgerConfig#getDataStorePath.
PLACES: tuple[tuple[Place, str], ...] = (
    (("commitlog", "*"), "segment"),
    (("dledger-*", "data", "*"), "dledger"),
    (("dledger-*", "index", "*"), "dledger_index"),
    (("dledger-*", "*"), "dledger_state"),
    (("consumequeue", "*", "*", "*"), "queue"),
    (("consumequeue", "*"), "rocksdb"),
    (("consumequeue_rocksdb", "*"), "rocksdb"),
    (("batchconsumequeue", "*", "*", "*"), "batch_queue"),
    (("consumequeue_ext", "*", "*", "*"), "ext_queue"),
    (("index", "*"), "index"),
    (("config", "*"), "config"),
    (("config", "*", "*"), "rocksdb"),
    (("rocksdbstore", "*"), "rocksdb"),
    (("kvStore", "*"), "rocksdb"),
    (("timerlog", "*"), "timer_log"),
    (("timerwheel*",), "timer_wheel"),
    (("compaction", "compactionLog", "*", "*", "*"), "compaction_log"),
    (("compaction", "compactionCq", "*", "*", "*"), "compaction_queue"),
    (("checkpoint",), "checkpoint"),
    (("abort",), "abort"),
    (("lock",), "lock"),
)
_QUEUE_KINDS = ("queue", "batch_queue", "ext_queue")
_ROOT_MARKS = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_rocksdb")

# Deeper than any file of a store lies; keeps a wrong path (say "/") from being walked for hours.
_MAX_DEPTH = 6


class FileReader:
    """A read-only file of the evidence; reads by position and keeps no position of its own."""

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        try:
            # O_NONBLOCK: a FIFO put in a segment's place must not hang the tool.
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            raise Unreadable(f"{file.name}: {error.strerror}") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise Unreadable(f"{file.name}: not a regular file")
        self.size = status.st_size
        self.allocated = status.st_blocks * 512  # bytes on disk: holes take none

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; once is enough."""
        os.close(self._fd)

    def fileno(self) -> int:
        """Return the descriptor, for questions to the system (locks, holes)."""
        return self._fd

    def read_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on; return the bytes read, fewer only at the file's end.

        :raises Unreadable: the system reports an I/O error; the message has file and offset.
        """
        view, done = memoryview(buffer), 0
        try:
            while done < len(view):
                count = os.preadv(self._fd, [view[done:]], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            where = offset + done
            raise Unreadable(f"{self.file.name} at {where} ({where:#x}): {error.strerror}") from error
        return done

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; never asks for more than the file holds."""
        size = max(0, min(size, self.size - offset))
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.read_into(buffer, offset)])

    def next_allocated(self, offset: int) -> int:
        """Return where the next bytes that are not a hole begin; the file's size if none do.

        A hole reads as zeros, so a sparse preallocated segment need not be read to be known.
        """
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else offset


def open_file(file: StoreFile) -> FileReader:
    """Open one file of a store for reading.

    :raises Unreadable: it cannot be opened, or is no regular file (any more).
    """
    return FileReader(file)


def open_store(paths: Sequence[str], *, config: str | None = None, base: int | None = None) -> Store:
    """Find the one store that `paths` are, or are the pieces of.

    :raises NotAStore: nothing of a store is there, or more than one store.
    :raises Unreadable: a given path cannot be listed.
    """
    stores = open_stores(paths, config=config, base=base)
    if len(stores) > 1:
        raise NotAStore("these are several stores, give one: " + ", ".join(store.name for store in stores))
    return stores[0]


def open_stores(
    paths: Sequence[str], *, config: str | None = None, base: int | None = None
) -> list[Store]:
    """Find the stores that `paths` are: each full root is one; loose pieces join the only root.

    `config` names a broker.conf: its sizes are believed, and its paths are used where no path is
    given. `base` is the physical offset of a loose segment whose name does not say it.

    :raises NotAStore: a path does not exist or holds nothing of a store.
    :raises Unreadable: a given path cannot be listed.
    """
    settings = read_settings(config) if config else {}
    paths = list(paths) or _configured_paths(settings)
    if not paths:
        raise NotAStore("no store given, and no --config that names one")
    located = [(path, _locate(path)) for path in paths]
    if not any("commitlog" in os.listdir(real) for _, (real, place) in located if place == ()):
        # The root has no commit log of its own: the configuration may say where it is.
        logs = [path for path in _log_paths(settings) if os.path.isdir(path) and path not in paths]
        located += [(path, (os.path.realpath(path), ("commitlog",))) for path in logs]
    roots = [entry for entry in located if entry[1][1] == ()]
    pieces = [entry for entry in located if entry[1][1] != ()]
    if len(roots) > 1 and pieces:
        raise NotAStore("several stores and loose pieces together: which store the pieces belong to is unclear")
    groups = [[root, *pieces] for root in roots] or [pieces]
    return [_assemble(group, settings, base) for group in groups]


def read_settings(path: str) -> dict[str, str]:
    """Return the settings of a broker.conf (a Java properties file), the last of a name.

    :raises Unreadable: it cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            pairs = [line.partition("=") for line in lines if not line.lstrip().startswith(("#", "!"))]
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def setting_size(settings: Mapping[str, str], *names: str) -> int | None:
    """Return the first of the settings that is a positive number."""
    for name in names:
        value = settings.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return int(value)
    return None


def lock_holder(store: Store) -> int | None:
    """Return the pid of the process that holds the store's lock, or None.

    Asked with F_GETLK, which takes nothing: the broker would notice a lock that we took.
    Source: DefaultMessageStore#start (FileChannel#tryLock on byte 0 of `lock`).
    """
    locks = store.of_kind("lock")
    if not locks or not sys.platform.startswith("linux"):
        return None
    # struct flock of 64-bit Linux: type, whence, start, length, pid.
    question = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        with open_file(locks[0]) as reader:
            answer = fcntl.fcntl(reader.fileno(), fcntl.F_GETLK, question)
    except (OSError, Unreadable):
        return None
    kind, _, _, _, pid = struct.unpack("hhqqi", answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


# --- what a path is -----------------------------------------------------------------------------


def _locate(path: str, depth: int = 0) -> tuple[str, Place]:
    """Return (real path, its place below a store root); () is the place of a root itself."""
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except FileNotFoundError as error:
        link = " (a dangling link)" if os.path.islink(path) else ""
        raise NotAStore(f"{path}: no such file or directory{link}") from error
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    if stat.S_ISREG(status.st_mode):
        return real, _place_of_file(path, real, status.st_size)
    if not stat.S_ISDIR(status.st_mode):
        raise NotAStore(f"{path}: neither a directory nor a regular file")
    try:
        names = sorted(os.listdir(real))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    place = _place_of_folder(real, names)
    if place is not None:
        return real, place
    if not names:
        raise NotAStore(f"{path}: an empty directory, not a store")
    # An unpacked archive often has one more level: accept the only store below.
    inner = []
    for name in names if depth < 2 else ():
        child = os.path.join(real, name)
        if os.path.isdir(child) and not os.path.islink(child):
            try:
                inner.append(_locate(child, depth + 1))
            except (NotAStore, Unreadable):
                continue
    if len(inner) == 1:
        return inner[0]
    if inner:
        some = ", ".join(os.path.relpath(child, real) for child, _ in inner[:4])
        raise NotAStore(f"{path}: holds {len(inner)} stores ({some}{', …' if len(inner) > 4 else ''}); give one")
    raise NotAStore(f"{path}: not a store: no commitlog, consumequeue or dledger-* folder and no file of one")


def _place_of_folder(path: str, names: Sequence[str]) -> Place | None:
    own = os.path.basename(path)
    folders = [name for name in names if os.path.isdir(os.path.join(path, name))]
    if any(mark in folders for mark in _ROOT_MARKS) or any(fnmatchcase(name, "dledger-*") for name in folders):
        return ()
    if "config" in folders and "checkpoint" in names:
        return ()
    numbered = [name for name in names if name.isdecimal() and name not in folders]
    if own == "commitlog":
        return ("commitlog",)
    if own == "config" and any(name.endswith(".json") for name in names):
        return ("config",)
    for name in numbered:
        kind = sniff(os.path.join(path, name))
        if kind in ("segment", "dledger"):
            return ("commitlog",) if kind == "segment" else ("dledger-?", "data")
        if kind in ("queue", "batch_queue"):
            return (_folder_of(kind), *_queue_parts(path))
        if kind == "index" or own == "index":
            return ("index",)
    if numbered:  # nothing but zeros in all of them
        return ("consumequeue", *_queue_parts(path)) if own.isdecimal() else ("commitlog",)
    if own in ("consumequeue", "batchconsumequeue", "consumequeue_ext") and folders:
        return (own,)
    if own == "index":
        return None
    queues = [name for name in folders if name.isdecimal()]
    if queues and any(entry.isdecimal() for entry in os.listdir(os.path.join(path, queues[0]))):
        parent = os.path.basename(os.path.dirname(path))
        return (parent if parent in ("batchconsumequeue", "consumequeue_ext") else "consumequeue", own)
    return None


def _place_of_file(path: str, real: str, size: int) -> Place:
    name = os.path.basename(real)
    if advice := archive_advice(path, real):
        raise NotAStore(advice)
    kind = sniff(real)
    folder = os.path.dirname(real)
    if kind == "zeros" and name.isdecimal():
        kind = "queue" if os.path.basename(folder).isdecimal() else "segment"
    match kind:
        case "segment":
            return ("commitlog", name)
        case "dledger":
            return ("dledger-?", "data", name)
        case "queue" | "batch_queue":
            return (_folder_of(kind), *_queue_parts(folder), name)
        case "index":
            return ("index", name)
        case "checkpoint":
            return ("checkpoint",)
        case "config":
            return ("config", name)
    what = "named like a segment, but there is no commit-log record in it" if name.isdecimal() else "no file of a store"
    raise NotAStore(f"{path}: {what} ({size:,} bytes)".replace(",", " "))


def _folder_of(kind: str) -> str:
    return "batchconsumequeue" if kind == "batch_queue" else "consumequeue"


def _queue_parts(folder: str) -> Place:
    """Return (topic, queue id) as the folder names say, "?" and "0" where they do not."""
    queue = os.path.basename(folder)
    topic = os.path.basename(os.path.dirname(folder))
    return (topic, queue) if queue.isdecimal() and topic else ("?", "0")


# --- which file is what -------------------------------------------------------------------------


def _assemble(located: list[tuple[str, tuple[str, Place]]], settings: Mapping[str, str], base: int | None) -> Store:
    roots = tuple(real for _, (real, _) in located)
    files: dict[str, StoreFile] = {}
    oddities: list[Oddity] = []
    for _, (real, place) in located:
        prefix = os.path.dirname(real) if os.path.isfile(real) else real
        shown = "commitlog" if place == ("commitlog",) and len(located) > 1 else ""
        for path, where, size in _walk(real, place, roots, oddities):
            name = os.path.join(shown, os.path.relpath(path, prefix))
            target = os.path.realpath(path)
            file = _file_at(target, name, size, where, base, loose=os.path.isfile(real), oddities=oddities)
            files.setdefault(target, file)
    ordered = tuple(files.values())
    segments = tuple(sorted((f for f in ordered if isinstance(f, Segment)), key=lambda f: (f.base, f.path)))
    queues = sorted(
        (f for f in ordered if isinstance(f, QueueFile)), key=lambda f: (f.topic, f.queue_id, f.kind, f.base)
    )
    first_path, (first_real, first_place) = located[0]
    remarks: list[str] = []
    return Store(
        name=os.path.basename(os.path.normpath(os.path.abspath(first_path))),
        paths=tuple(path for path, _ in located),
        place=kind_of(first_place) if first_place else "store",
        files=ordered,
        segments=segments,
        segment_size=_segment_size(segments, settings, remarks),
        queue_files=tuple(queues),
        index_files=tuple(sorted((f for f in ordered if f.kind == "index"), key=lambda f: f.name)),
        checkpoint=next((f for f in ordered if f.kind == "checkpoint"), None),
        config_files={os.path.basename(f.name): f for f in ordered if f.kind == "config"},
        oddities=tuple(oddities),
        settings=settings,
        remarks=tuple(remarks),
        neighbours=not all(os.path.isfile(real) for _, (real, _) in located),
    )


def kind_of(place: Place) -> str:
    """Return the kind of file that lies at this place or, for a folder, below it."""
    padded = place + ("*",) * 3
    for pattern, kind in PLACES:
        if len(pattern) >= len(place) and all(map(fnmatchcase, padded, pattern)):
            return kind
    return "other"


def _file_at(
    path: str, name: str, size: int, place: Place, base: int | None, *, loose: bool, oddities: list[Oddity]
) -> StoreFile:
    kind = next((k for pattern, k in PLACES if len(pattern) == len(place) and all(map(fnmatchcase, place, pattern))), "other")
    last = place[-1]
    if kind in ("segment", "dledger"):
        if loose:
            own = base if base is not None else own_base(path, size)
            number = own if own is not None else (int(last) if last.isdecimal() else 0)
            return Segment(path, name, size, kind, number)
        if last.isdecimal() and last.isascii() and int(last) < 2**63:
            if len(last) != 20:
                oddities.append(Oddity("stray", name, "the name has not 20 digits", path, place))
            return Segment(path, name, size, kind, int(last))
        oddities.append(Oddity("stray", name, "the name is no number", path, place))
        return StoreFile(path, name, size, "other")
    if kind in _QUEUE_KINDS:
        topic, queue = place[-3], place[-2]
        if last.isdecimal() and queue.lstrip("-").isdecimal() and int(last) < 2**63 and abs(int(queue)) < 2**31:
            return QueueFile(path, name, size, kind, topic, int(queue), int(last))
        oddities.append(Oddity("stray", name, "no file of a consume queue", path, place))
        return StoreFile(path, name, size, "other")
    if kind == "index" and not (last.isdecimal() or loose):
        oddities.append(Oddity("stray", name, "the name is no number", path, place))
        return StoreFile(path, name, size, "other")
    return StoreFile(path, name, size, kind)


def _walk(
    path: str, place: Place, roots: tuple[str, ...], oddities: list[Oddity]
) -> Iterator[tuple[str, Place, int]]:
    """Yield (path, place, size) of every regular file below `path`, names sorted; note the rest."""
    if os.path.isfile(path):
        yield path, place, os.stat(path).st_size
        return
    try:
        with os.scandir(path) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        oddities.append(Oddity("unreadable", _relative(path, roots), str(error.strerror), path, place))
        return
    for entry in entries:
        where = (*place, entry.name)
        odd = _oddity_of(entry, where, roots)
        if odd is not None:
            oddities.append(odd)
        elif entry.is_dir():
            if place == ("commitlog",):
                oddities.append(
                    Oddity("directory", _relative(entry.path, roots), "a folder among the segments", entry.path, where)
                )
            if len(where) < _MAX_DEPTH:
                yield from _walk(entry.path, where, roots, oddities)
        else:
            yield entry.path, where, entry.stat().st_size


def _oddity_of(entry: os.DirEntry[str], place: Place, roots: tuple[str, ...]) -> Oddity | None:
    shown = _relative(entry.path, roots)
    if entry.is_symlink():
        target = os.path.realpath(entry.path)
        if not os.path.exists(target):
            return Oddity("link", shown, "a dangling link", entry.path, place)
        if not any(target == root or target.startswith(root + os.sep) for root in roots):
            return Oddity("link", shown, "a link that leads out of the store: not followed", entry.path, place)
    try:
        mode = entry.stat().st_mode
    except OSError as error:
        return Oddity("unreadable", shown, str(error.strerror), entry.path, place)
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return Oddity("special", shown, "neither a folder nor a regular file", entry.path, place)
    return None


def _relative(path: str, roots: tuple[str, ...]) -> str:
    root = next((root for root in roots if path.startswith(root + os.sep)), os.path.dirname(path))
    return os.path.relpath(path, root)


def _segment_size(segments: Sequence[Segment], settings: Mapping[str, str], remarks: list[str]) -> int | None:
    """Return the size all segments should have: configured, or from the bases, or from the lengths.

    Neighbouring bases are one size apart; a hole makes that a multiple, so the most common
    length counts where it divides every distance.
    """
    configured = setting_size(settings, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    if configured is not None or not segments:
        return configured
    bases = sorted({segment.base for segment in segments})
    steps = [after - before for before, after in zip(bases, bases[1:], strict=False)]
    length, _ = max(Counter(s.size for s in segments if s.size).items(), key=lambda item: item[::-1], default=(0, 0))
    if length and all(step % length == 0 for step in steps):
        remarks.append(f"segment size {length}: the length of the files")
        return length
    if steps:
        remarks.append(f"segment size {min(steps)}: the smallest distance of two bases")
        return min(steps)
    return length or None


# --- paths from a broker.conf -------------------------------------------------------------------


def _configured_paths(settings: Mapping[str, str]) -> list[str]:
    root = settings.get("storePathRootDir", "")
    if root and os.path.exists(root):
        return [root]
    return [path for path in _log_paths(settings) if os.path.exists(path)]


def _log_paths(settings: Mapping[str, str]) -> list[str]:
    # MixAll.MULTI_PATH_SPLITTER is "," unless a system property says otherwise.
    names = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
    paths = [path.strip() for name in names for path in settings.get(name, "").split(",")]
    return list(dict.fromkeys(path for path in paths if path))

"""What a path is, which of its files is what, and the only place where evidence is opened.

A store is found by looking: at folder names, at file names, and, where a piece was given
without its folders, at the first bytes. Whatever does not fit is an `Oddity`, a fact for
`verify` to judge, and never a reason to stop. Files are opened for reading only; no link is
followed out of what was given; nothing is locked.
"""

import errno
import fcntl
import mmap
import os
import stat
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from rmqinspect import filesystems
from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.places import Place, Row, find_place, kind_in, kind_of, rows_at, rows_below
from rmqinspect.read_rate import ReadRate, read_bound
from rmqinspect.sniff import own_base

if TYPE_CHECKING:
    from rmqinspect.filesystems import Entry


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One regular file of the evidence."""

    path: str  # real path or URI, where it is opened
    name: str  # for people: relative to what was given, with "/"
    size: int  # bytes, when the store was listed
    kind: str  # a kind of places.PLACES, or "other"


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

    @property
    def is_unread(self) -> bool:
        """Whether something may stand there that nobody could see."""
        return self.kind in ("unreadable", "link", "special")


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


_QUEUE_KINDS = ("queue", "batch_queue", "ext_queue")

# Deeper than any file of a store lies; keeps a wrong path (say "/") from being walked for hours.
_MAX_DEPTH = 6


# Under a bound a file is read in pieces of this size: what the page cache holds is known of a piece as a whole.
_PIECE = 128 << 10


class FileReader:
    """A read-only file of the evidence; reads by position and keeps no position of its own.

    Under `--read-rate` it keeps the rate, and the page cache as it was: what it brought in is dropped again.
    """

    octets_read: ClassVar[int] = 0  # by all readers of this process: what a command says that it read

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
        if read_bound() is not None and hasattr(os, "posix_fadvise"):
            # No reading ahead: pages that nobody asked for would neither be counted nor dropped.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

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
                count = self._read_some(view[done:], offset + done)
                if count == 0:
                    break
                done += count
            FileReader.octets_read += done
        except OSError as error:
            where = offset + done
            raise Unreadable(f"{self.file.name} at {where} ({where:#x}): {error.strerror}") from error
        return done

    def _read_some(self, view: memoryview, offset: int) -> int:
        """Read what one call to the system gives; 0 at the file's end."""
        bound = read_bound()
        if bound is None:
            return os.preadv(self._fd, [view], offset)
        return self._read_gently(view[: _PIECE - offset % _PIECE], offset, bound)

    def _read_gently(self, piece: memoryview, offset: int, bound: ReadRate) -> int:
        """Read a piece, drop from the page cache what was not there before, and keep the rate.

        The pages that a broker has mapped stay in any case: Linux drops no page in use.
        """
        done = self._read_cached(piece, offset)
        if done < len(piece):
            count = os.preadv(self._fd, [piece[done:]], offset + done)
            self._drop(offset + done, offset + done + count)
            done += count
        bound.pay(done)
        return done

    def _drop(self, start: int, end: int) -> None:
        """Let the page cache forget the pages of [start, end)."""
        if start < end and hasattr(os, "posix_fadvise"):
            first, behind = start // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)
            size = (behind - first) * mmap.PAGESIZE
            os.posix_fadvise(self._fd, first * mmap.PAGESIZE, size, os.POSIX_FADV_DONTNEED)

    def _read_cached(self, piece: memoryview, offset: int) -> int:
        """Read what the page cache holds of the beginning of a piece."""
        if not hasattr(os, "RWF_NOWAIT"):
            return 0
        try:
            return os.preadv(self._fd, [piece], offset, os.RWF_NOWAIT)
        except OSError:  # not in the cache, or a file system that cannot tell; a real error shows again
            return 0

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
            # No data behind `offset`: a hole, unless the file became shorter meanwhile.
            is_hole = error.errno == errno.ENXIO and os.fstat(self._fd).st_size >= self.size
            return self.size if is_hole else offset


class RemoteReader(FileReader):
    """A file of the evidence on a remote file system: the same, but for what only a local system knows."""

    def __init__(self, file: StoreFile) -> None:
        from rmqinspect.filesystems.ranges import Ranges

        self.file = file
        try:
            self._ranges = Ranges(file.path)
        except OSError as error:
            raise Unreadable(f"{file.name}: {error.strerror}") from error
        self.size = self.allocated = self._ranges.size

    def close(self) -> None:
        """Close the file."""
        self._ranges.close()

    def fileno(self) -> int:
        """Refuse, as streams without a descriptor do.

        :raises OSError: always.
        """
        raise OSError(errno.EBADF, "a remote file has no descriptor")

    def _read_some(self, view: memoryview, offset: int) -> int:
        count = self._ranges.read_into(view, offset)
        bound = read_bound()
        if bound is not None:
            bound.pay(count)
        return count

    def next_allocated(self, offset: int) -> int:
        """Return `offset`: object stores keep no holes."""
        return min(offset, self.size)


def open_file(file: StoreFile) -> FileReader:
    """Open one file of a store for reading.

    :raises Unreadable: it cannot be opened, or is no regular file (any more).
    :raises Unreachable: a remote file system does not answer.
    """
    return RemoteReader(file) if filesystems.is_remote(file.path) else FileReader(file)


def allocated_size(file: StoreFile) -> int:
    """Return how many bytes a file takes on disk; of a remote one, how many it has.

    :raises Unreadable: it cannot be opened.
    """
    if filesystems.is_remote(file.path):
        return file.size
    with open_file(file) as reader:
        return reader.allocated


def open_store(paths: Sequence[str], *, config: str | None = None, base: int | None = None) -> Store:
    """Find the one store that `paths` are, or are the pieces of.

    :raises NotAStore: nothing of a store is there, or more than one store.
    :raises Unreadable: a given path cannot be listed.
    """
    stores = open_stores(paths, config=config, base=base)
    if len(stores) > 1:
        raise NotAStore("these are several stores, give one: " + ", ".join(store.name for store in stores))
    return stores[0]


def open_stores(paths: Sequence[str], *, config: str | None = None, base: int | None = None) -> list[Store]:
    """Find the stores that `paths` are: each full root is one; loose pieces join the only root.

    `config` names a broker.conf: its sizes are believed, and its paths are used where no path is
    given. `base` is the physical offset of a loose segment whose name does not say it.

    :raises NotAStore: a path does not exist or holds nothing of a store.
    :raises Unreadable: a given path cannot be listed.
    """
    settings = read_settings(config) if config else {}
    paths = [filesystems.local_path(path) for path in paths] or _configured_paths(settings)
    if not paths:
        raise NotAStore("no store given, and no --config that names one")
    located = [(path, find_place(path)) for path in paths]
    if not any("commitlog" in filesystems.listdir(real) for _, (real, place) in located if place == ()):
        # The root has no commit log of its own: the configuration may say where it is.
        logs = [path for path in _log_paths(settings) if os.path.isdir(path) and path not in paths]
        located += [(path, (os.path.realpath(path), ("commitlog",))) for path in logs]
    roots = [entry for entry in located if entry[1][1] == ()]
    pieces = [entry for entry in located if entry[1][1] != ()]
    if len(roots) > 1 and pieces:
        raise NotAStore(
            "several stores and loose pieces together: which store the pieces belong to is unclear"
        )
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


# The settings that are numbers of bytes or of units; old versions spell "maped".
_SIZE_SETTINGS = (
    "mappedFileSizeCommitLog",
    "mapedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
)


def odd_settings(path: str) -> list[tuple[str, str]]:
    """Return (name, value) of the sizes in a broker.conf that are none, and so are not used.

    :raises Unreadable: it cannot be read.
    """
    settings = read_settings(path)
    return [(n, settings[n]) for n in _SIZE_SETTINGS if n in settings and setting_size(settings, n) is None]


def setting_size(settings: Mapping[str, str], *names: str) -> int | None:
    """Return the first of the settings that is a positive number."""
    for name in names:
        value = settings.get(name, "")
        if value.isdecimal() and len(value) < 20 and int(value) > 0:
            return int(value)
    return None


def sees_locks(store: Store) -> bool:
    """Tell whether `lock_holder` would see a process that holds the lock: not on a remote file system."""
    return sys.platform.startswith("linux") and not any(map(filesystems.is_remote, store.paths))


def lock_holder(store: Store) -> int | None:
    """Return the pid of the process that holds the store's lock, or None.

    Asked with F_GETLK, which takes nothing: the broker would notice a lock that we took.
    Source: DefaultMessageStore#start (FileChannel#tryLock on byte 0 of `lock`).
    """
    locks = store.of_kind("lock")
    if not locks or not sees_locks(store):
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


# --- which file is what -------------------------------------------------------------------------


def _assemble(
    located: list[tuple[str, tuple[str, Place]]], settings: Mapping[str, str], base: int | None
) -> Store:
    listing = _Listing(tuple(real for _, (real, _) in located), base)
    for _, (real, place) in located:
        shown = "commitlog/" if place == ("commitlog",) and len(located) > 1 else ""
        if filesystems.isfile(real):
            listing.add_loose(real, place)
        else:
            listing.add_folder(real, place, shown)
    listing.follow_links()
    ordered = tuple(listing.files.values())
    segments = tuple(sorted((f for f in ordered if isinstance(f, Segment)), key=lambda f: (f.base, f.path)))
    queues = sorted(
        (f for f in ordered if isinstance(f, QueueFile)), key=lambda f: (f.topic, f.queue_id, f.kind, f.base)
    )
    first_path, (_, first_place) = located[0]
    remarks: list[str] = []
    return Store(
        name=_name_of(first_path),
        paths=tuple(path for path, _ in located),
        place=kind_of(first_place) if first_place else "store",
        files=ordered,
        segments=segments,
        segment_size=_segment_size(segments, settings, remarks),
        queue_files=tuple(queues),
        index_files=tuple(sorted((f for f in ordered if f.kind == "index"), key=lambda f: f.name)),
        checkpoint=next((f for f in ordered if f.kind == "checkpoint"), None),
        config_files={os.path.basename(f.name): f for f in ordered if f.kind == "config"},
        oddities=tuple(listing.oddities),
        settings=settings,
        remarks=tuple(remarks),
        neighbours=not all(filesystems.isfile(real) for _, (real, _) in located),
    )


def _name_of(path: str) -> str:
    own = path if filesystems.is_remote(path) else os.path.normpath(os.path.abspath(path))
    return filesystems.basename(own)


class _Listing:
    """Walks folders, names sorted, and tells what each entry is.

    Made for stores of many thousand files: one call to the system for each folder and each file.
    """

    def __init__(self, roots: tuple[str, ...], base: int | None) -> None:
        self.roots = roots
        self.base = base
        self.files: dict[str, StoreFile] = {}  # by real path: two names of one file are one file
        self.oddities: list[Oddity] = []
        self._followed: set[str] = set()  # folders that links led to
        # Links wait until all real folders are listed: a file belongs where it lies.
        self._links: list[tuple[str, Place, str, tuple[Row, ...]]] = []
        self._scandir: Callable[[str], Sequence[Entry]] = filesystems.scandir

    def add_loose(self, path: str, place: Place) -> None:
        """Add a file that was given by itself."""
        size = filesystems.stat(path).st_size
        self._add(path, filesystems.basename(path), size, place, rows_at(place), loose=True)

    def add_folder(self, folder: str, place: Place, shown: str) -> None:
        """Add all below a folder that was given; `shown` begins their names."""
        try:
            self._scandir = filesystems.files_below(folder).scandir
        except OSError as error:
            self._note_unread(error, folder, place, shown)
            return
        self.enter(folder, place, shown, rows_at(place))

    def enter(self, folder: str, place: Place, shown: str, rows: tuple[Row, ...]) -> None:
        """Add all below a folder; `shown` begins their names, `rows` are those that match the place."""
        try:
            entries = self._scandir(folder)
        except OSError as error:
            self._note_unread(error, folder, place, shown)
            return
        for entry in entries:
            where, name = (*place, entry.name), shown + entry.name
            try:
                self._sort(entry, where, name, rows_below(rows, len(place), entry.name))
            except FileNotFoundError:
                continue  # a broker that runs deletes files while they are listed
            except OSError as error:
                self._note("unreadable", name, str(error.strerror), entry.path, where)

    def _note_unread(self, error: OSError, folder: str, place: Place, shown: str) -> None:
        name = shown.rstrip("/") or filesystems.basename(folder)
        self._note("unreadable", name, str(error.strerror), folder, place)

    def _sort(self, entry: "Entry", place: Place, name: str, rows: tuple[Row, ...]) -> None:
        if entry.is_dir(follow_symlinks=False):
            self._enter_below(entry.path, entry.path, place, name, rows)
        elif entry.is_file(follow_symlinks=False):
            self._add(entry.path, name, entry.stat(follow_symlinks=False).st_size, place, rows)
        elif entry.is_symlink():
            self._links.append((entry.path, place, name, rows))
        else:
            self._note("special", name, "neither a folder nor a regular file", entry.path, place)

    def follow_links(self) -> None:
        """Add what the links found so far lead to, and the links behind them."""
        self._scandir = filesystems.scandir  # only this machine has links
        while self._links:
            links, self._links = self._links, []
            for path, place, name, rows in links:
                self._follow(path, place, name, rows)

    def _enter_below(self, path: str, real: str, place: Place, name: str, rows: tuple[Row, ...]) -> None:
        if place[:-1] == ("commitlog",):
            self._note("directory", name, "a folder among the segments", path, place)
        if place[:-1] == ("index",) and place[-1].isdecimal():
            self._note("directory", name, "a folder among the index files", path, place)
        if len(place) < _MAX_DEPTH:
            self.enter(real, place, name + "/", rows)

    def _follow(self, path: str, place: Place, name: str, rows: tuple[Row, ...]) -> None:
        target = os.path.realpath(path)
        if not os.path.exists(target):
            self._note("link", name, "a dangling link", path, place)
        elif not any(target == root or target.startswith(root + os.sep) for root in self.roots):
            self._note("link", name, "a link that leads out of the store: not followed", path, place)
        elif os.path.isfile(target):
            self._add(target, name, os.stat(target).st_size, place, rows)
        elif not os.path.isdir(target):
            self._note("special", name, "a link to neither a folder nor a regular file", path, place)
        elif target in self._followed or path.startswith(target + os.sep):
            self._note("link", name, "a link back to a folder that is listed already", path, place)
        else:
            self._followed.add(target)
            self._enter_below(path, target, place, name, rows)

    def _add(
        self, path: str, name: str, size: int, place: Place, rows: tuple[Row, ...], *, loose: bool = False
    ) -> None:
        # A link may be what gives a folder its place: commitlog -> another name in the store.
        if path not in self.files or (self.files[path].kind == "other" and kind_in(rows, len(place)) != "other"):
            self.files[path] = self._file(path, name, size, place, rows, loose)

    def _file(
        self, path: str, name: str, size: int, place: Place, rows: tuple[Row, ...], loose: bool
    ) -> StoreFile:
        kind = kind_in(rows, len(place))
        number = _file_number(place[-1])
        stray = "the name is no number"
        if kind in _QUEUE_KINDS:
            queue_id = _queue_number(place[-2])
            if number is not None and queue_id is not None:
                return QueueFile(path, name, size, kind, place[-3], queue_id, number)
            stray = "no file of a consume queue"
        elif kind in ("segment", "dledger"):
            if loose:
                own = self.base if self.base is not None else own_base(path, size)
                return Segment(path, name, size, kind, own if own is not None else number or 0)
            if number is not None and place[-1].isascii():
                if len(place[-1]) != 20:
                    self._note("stray", name, "the name has not 20 digits", path, place)
                return Segment(path, name, size, kind, number)
        elif kind != "index" or number is not None or loose:
            return StoreFile(path, name, size, kind)
        self._note("stray", name, stray, path, place)
        return StoreFile(path, name, size, "other")

    def _note(self, kind: str, name: str, detail: str, path: str, place: Place) -> None:
        self.oddities.append(Oddity(kind, name, detail, path, place))


# A file name is a Java long; the file behind it must not reach past the last one.
_LAST_BASE = 2**63 - 2**40


def _file_number(name: str) -> int | None:
    """Return the offset that a file name is, None if it is no Java long."""
    return int(name) if name.isdecimal() and int(name) < _LAST_BASE else None


def _queue_number(name: str) -> int | None:
    digits = name.removeprefix("-")
    return int(name) if digits.isdecimal() and int(digits) < 2**31 else None


def _segment_size(segments: Sequence[Segment], settings: Mapping[str, str], remarks: list[str]) -> int | None:
    """Return the size all segments should have: configured, or from the bases, or from the lengths.

    Neighbouring bases are one size apart; a hole makes that a multiple, so the most common
    length counts where it divides every distance.
    """
    configured = setting_size(settings, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    if configured is not None or not segments:
        return configured
    bases = sorted({segment.base for segment in segments})
    steps = [after - before for before, after in pairwise(bases)]
    lengths = Counter(segment.size for segment in segments if segment.size)
    length, _ = max(lengths.items(), key=lambda item: item[::-1], default=(0, 0))
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

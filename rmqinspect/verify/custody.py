"""Chain of custody: the files of the evidence, whether they changed during the run, and since an earlier one.

    inventory before | checks       |
                     | digests      | inventory after      changed: differs between the two inventories
                       in threads

An inventory lists every file below the given paths, of the store or not. Checks and digests read the log in the
same order, so each byte comes from the disk once, as long as the page cache holds what lies between the two.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import NamedTuple, TypeVar

from rmqinspect.errors import Unreadable
from rmqinspect.store.directory import find_place
from rmqinspect.store.model import Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.system.filesystem import Files, files_below, isfile
from rmqinspect.system.uri import basename, is_remote, shown
from rmqinspect.text import group_digits, name_text
from rmqinspect.times import format_nanos

ALGORITHM = "sha256"

_CHUNK = 1 << 20  # bytes per read: hashing them takes much longer than switching threads
_ZEROS = memoryview(bytes(_CHUNK))
_PATIENCE = 0.2  # seconds between progress reports
_EMPTY = "an empty folder"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One file of the evidence, by its metadata."""

    file: StoreFile
    mtime_ns: int
    inode: tuple[int, int]  # with its device


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything below the given paths at one moment, by name, sorted."""

    exhibits: dict[str, Exhibit]
    others: dict[str, str]  # not regular files: links, empty folders, FIFOs
    unread: tuple[str, ...] = ()  # what could not be listed, one line each
    is_remote: bool = False  # an object store: it has no empty folders


class Difference(NamedTuple):
    """A file that differs."""

    name: str
    kind: str  # added, gone, changed
    what: str


@dataclass(frozen=True, slots=True)
class Custody:
    """What a run knows about the files it read."""

    inventory: Inventory  # before the first byte was read
    digests: Mapping[str, str] = field(default_factory=dict)  # hex by name, those that were finished
    algorithm: str | None = None  # None: neither digests nor changes were asked for
    changed: Sequence[Difference] = ()  # during the run
    unread: Sequence[str] = ()  # one line each

    @property
    def size(self) -> int:
        """The size of all files together."""
        return sum(exhibit.file.size for exhibit in self.inventory.exhibits.values())

    @property
    def undigested(self) -> int:
        """How many files have no digest though one was asked for."""
        return len(self.inventory.exhibits) - len(self.digests) if self.algorithm else 0


class Watch:
    """Watches the evidence of one run, from before its first read to after its last."""

    def __init__(self, store: Store) -> None:
        self._roots = _Roots(store)
        self._digests: Digests | None = None
        self.before = self._roots.take_inventory()

    def take_digests(self, names: Iterable[str], threads: int) -> "Digests":
        """Begin to take the digests of some files; `conclude` ends it."""
        self._digests = Digests(self._roots.in_reading_order(self.before, names), threads)
        return self._digests

    def conclude(self) -> Custody:
        """Stop the digests where they are, look at all files again and return what is known.

        Without digests nothing is looked at again.
        """
        if self._digests is None:
            return Custody(self.before, unread=self.before.unread)
        self._digests.stop()
        digests, unread = self._digests.results()
        after = self._roots.take_inventory()
        lines = dict.fromkeys((*unread, *self.before.unread, *after.unread))
        return Custody(self.before, digests, ALGORITHM, _changes(self.before, after), tuple(lines))


# --- which files ------------------------------------------------------------------------------------------


class _Roots:
    """The places whose files are the evidence of a run; resolved once, as the evidence may disappear meanwhile."""

    def __init__(self, store: Store) -> None:
        located = [find_place(path) for path in store.paths]
        self._files = {file.path: file for file in store.files}
        self._roots = [(real, _root_name(real, place, len(located))) for real, place in located]

    def take_inventory(self) -> Inventory:
        """List every file; no link is followed and nothing is opened."""
        found: dict[str, tuple[str, Exhibit]] = {}  # by real path: roots may lie in each other
        others: list[tuple[str, str]] = []
        unread: list[str] = []
        waiting: list[tuple[str, str, Files]] = []
        for path, name in self._roots:
            try:
                waiting.append((path, name, files_below(path)))
            except OSError as error:
                unread.append(f"{name or shown(path)}: {error.strerror}")
        while waiting:
            path, name, files = waiting.pop()
            try:
                status = files.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    exhibit = self._exhibit(path, name, status)
                    found.setdefault(path, (exhibit.file.name, exhibit))
                elif stat.S_ISDIR(status.st_mode):
                    entries = files.scandir(path)
                    prefix = f"{name}/" if name else ""
                    waiting += [(e.path, prefix + name_text(e.name), files) for e in entries]
                    others += [] if entries else [(f"{name}/", _EMPTY)]
                elif stat.S_ISLNK(status.st_mode):
                    others.append((name, f"a link to {name_text(os.readlink(path))}"))
                else:
                    others.append((name, "neither a folder nor a regular file"))
            except FileNotFoundError:
                continue  # a broker that runs deletes files while they are listed
            except OSError as error:
                unread.append(f"{name or shown(path)}: {error.strerror}")
        remote = any(is_remote(path) for path, _ in self._roots)
        return Inventory(_by_name(found.values()), _by_name(others), tuple(sorted(unread)), remote)

    def _exhibit(self, path: str, name: str, status: os.stat_result) -> Exhibit:
        known = self._files.get(path)
        file = StoreFile(path, known.name if known else name, status.st_size, known.kind if known else "other")
        return Exhibit(file, status.st_mtime_ns, (status.st_dev, status.st_ino))

    def in_reading_order(self, inventory: Inventory, names: Iterable[str]) -> list[tuple[str, StoreFile]]:
        """Return names and files in the order of the checks: the log by physical offset, then the rest."""

        def place(item: tuple[str, StoreFile]) -> tuple[bool, int]:
            file = self._files.get(item[1].path)
            return (False, file.base) if isinstance(file, Segment) else (True, 0)

        return sorted(((name, inventory.exhibits[name].file) for name in names), key=place)


def _root_name(path: str, place: tuple[str, ...], number: int) -> str:
    """Return the prefix that the store has before names below a root."""
    if isfile(path):
        return name_text(basename(path))
    return "commitlog" if place == ("commitlog",) and number > 1 else ""


def _by_name(items: Iterable[tuple[str, Item]]) -> dict[str, Item]:
    """Return items by name, sorted. Folders that were given together may hold equal names: they are numbered."""
    named: dict[str, Item] = {}
    for name, item in items:
        free, number = name, 1
        while free in named:
            number += 1
            free = f"{name} ({number})"
        named[free] = item
    return dict(sorted(named.items()))


# --- what is in them --------------------------------------------------------------------------------------


class Digests:
    """Takes the SHA-256 of files in threads: reading and hashing both release the interpreter's lock."""

    def __init__(self, files: Sequence[tuple[str, StoreFile]], threads: int) -> None:
        self._lock = Lock()
        self._hashed = 0  # hashed and not reported yet
        self._stopped = Event()
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="digest")
        self._futures: dict[str, Future[str | None]] = {
            name: self._pool.submit(self.digest_of, file) for name, file in files
        }

    def stop(self) -> None:
        """Stop the threads; finished digests stay."""
        self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def take_hashed(self) -> int:
        """Return how many bytes were hashed since the last call."""
        with self._lock:
            hashed, self._hashed = self._hashed, 0
        return hashed

    def wait(self, progress: Callable[[int], None]) -> None:
        """Wait for all files; `progress` gets how many more bytes were hashed."""
        pending = set(self._futures.values())
        while pending:
            _, pending = wait(pending, timeout=_PATIENCE)
            progress(self.take_hashed())

    def results(self) -> tuple[dict[str, str], list[str]]:
        """Return the finished digests by name, and one line for each file that could not be read."""
        digests: dict[str, str] = {}
        unread: list[str] = []
        for name, future in self._futures.items():
            if future.cancelled() or not future.done():
                continue
            try:
                digest = future.result()
            except Unreadable as error:
                unread.append(str(error))
            else:
                digests |= {} if digest is None else {name: digest}
        return digests, unread

    def digest_of(self, file: StoreFile) -> str | None:
        """Return the digest of a file in hex, None if the threads were stopped before its end."""
        digest = hashlib.sha256()
        with open_file(file) as reader:
            buffer = memoryview(bytearray(min(_CHUNK, reader.size)))
            at = 0
            while at < reader.size and not self._stopped.is_set():
                # A hole reads as zeros: hashed, not read.
                hole = min(reader.next_allocated(at) - at, _CHUNK)
                raw = _ZEROS[:hole] if hole else buffer[: reader.read_into(buffer[: reader.size - at], at)]
                if not raw:
                    break  # it became shorter; the next inventory shows it
                digest.update(raw)
                at += len(raw)
                with self._lock:
                    self._hashed += len(raw)
        return None if self._stopped.is_set() else digest.hexdigest()


# --- what is different ------------------------------------------------------------------------------------


def _changes(before: Inventory, after: Inventory) -> list[Difference]:
    """Return what differs between two inventories of one run."""
    found = _named_differently(before.exhibits, after.exhibits, before.others, after.others)
    for name in before.exhibits.keys() & after.exhibits.keys():
        was, now = before.exhibits[name], after.exhibits[name]
        if was.file.size != now.file.size:
            found.append(_resized(name, was.file.size, now.file.size))
        elif was.mtime_ns != now.mtime_ns:
            found.append(_rewritten(name, format_nanos(was.mtime_ns), format_nanos(now.mtime_ns)))
        elif was.inode != now.inode:
            found.append(Difference(name, "changed", "another file under the same name"))
    return sorted(found)


def _named_differently(
    files_before: Iterable[str], files_after: Iterable[str], before: Mapping[str, str], after: Mapping[str, str]
) -> list[Difference]:
    """Return which names came and went, of files and of everything else."""
    was, now = {*files_before, *before}, {*files_after, *after}
    came, went = sorted(now - was), sorted(was - now)
    # A folder that became empty, or is no longer empty, did not come or go: the files in it did.
    came = [name for name in came if not (after.get(name) == _EMPTY and _any_below(name, went))]
    went = [name for name in went if not (before.get(name) == _EMPTY and _any_below(name, came))]
    found = [Difference(name, "added", "was not there") for name in came]
    found += [Difference(name, "gone", "is not there any more") for name in went]
    for name in was & now:
        if before.get(name) != after.get(name):
            what = f"{after.get(name, 'a file')}, was {before.get(name, 'a file')}"
            found.append(Difference(name, "changed", what))
    return found


def _without_empty(others: Mapping[str, str]) -> dict[str, str]:
    return {name: what for name, what in others.items() if what != _EMPTY}


def _any_below(folder: str, names: Iterable[str]) -> bool:
    return any(name.startswith(folder) for name in names)


def _resized(name: str, was: int, now: int) -> Difference:
    return Difference(name, "changed", f"{group_digits(now)} bytes, was {group_digits(was)}")


def _rewritten(name: str, was: str, now: str) -> Difference:
    return Difference(name, "changed", f"written {now}, before that {was}")


# --- against what was recorded ----------------------------------------------------------------------------


class Recorded(NamedTuple):
    """A file in a report."""

    size: int
    mtime: str
    digest: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """The files of an earlier report; `report.read_record` reads it."""

    moment: str  # ISO 8601, when that run ended
    files: dict[str, Recorded]
    others: dict[str, str]

    @property
    def undigested(self) -> int:
        """How many files have no digest: their content cannot be compared."""
        return sum(file.digest is None for file in self.files.values())

    def comparable(self, inventory: Inventory) -> list[str]:
        """Return the names of the files that only a digest can distinguish from those of the record."""
        exhibits = inventory.exhibits
        both = [name for name in exhibits if name in self.files]
        return [n for n in both if self.files[n].digest and self.files[n].size == exhibits[n].file.size]

    def touched(self, inventory: Inventory) -> int:
        """Return how many files have another modification time than in the record."""
        both = self.files.keys() & inventory.exhibits.keys()
        return sum(self.files[name].mtime != format_nanos(inventory.exhibits[name].mtime_ns) for name in both)

    def differences(self, now: Custody) -> list[Difference]:
        """Return the differences in names, sizes and digests, and in times where there is no digest."""
        exhibits, others = now.inventory.exhibits, (self.others, now.inventory.others)
        if now.inventory.is_remote:
            others = _without_empty(self.others), _without_empty(now.inventory.others)
        found = _named_differently(self.files, exhibits, *others)
        for name in self.files.keys() & exhibits.keys():
            was, exhibit = self.files[name], exhibits[name]
            digest, mtime = now.digests.get(name), format_nanos(exhibit.mtime_ns)
            if was.size != exhibit.file.size:
                found.append(_resized(name, was.size, exhibit.file.size))
            elif was.digest is None and was.mtime != mtime:
                found.append(_rewritten(name, was.mtime, mtime))
            elif was.digest and digest and was.digest != digest:
                found.append(Difference(name, "changed", f"{ALGORITHM} {digest}, was {was.digest}"))
        return sorted(found)

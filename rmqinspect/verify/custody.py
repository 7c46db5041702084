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
from threading import Event, Lock
from typing import Annotated, TypeVar

from msgspec import Struct, field

from rmqinspect.choices import ALGORITHM
from rmqinspect.document import Part, means
from rmqinspect.errors import Unreadable
from rmqinspect.store.digest import content_of
from rmqinspect.store.directory import find_place
from rmqinspect.store.model import IMAGE, Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.system.filesystem import Files, files_below, isfile
from rmqinspect.system.output_file import sums_line
from rmqinspect.system.uri import basename, is_remote, shown
from rmqinspect.text import group_digits, name_text
from rmqinspect.times import format_nanos
from rmqinspect.verify.findings import moment

_PATIENCE = 0.2  # seconds between progress reports
_EMPTY = "an empty folder"

Item = TypeVar("Item")


class Exhibit(Struct, frozen=True):
    """One file of the evidence, by its metadata."""

    file: StoreFile
    mtime_ns: int
    inode: tuple[int, int]  # with its device


class Inventory(Struct, frozen=True):
    """Everything below the given paths at one moment, by name, sorted."""

    exhibits: dict[str, Exhibit]
    others: dict[str, str]  # not regular files: links, empty folders, FIFOs
    unread: tuple[str, ...] = ()  # what could not be listed, one line each
    is_remote: bool = False  # an object store: it has no empty folders


class CustodyFile(Part, frozen=True):
    """A file of the evidence."""

    file: Annotated[str, means("name relative to the store")]
    size: Annotated[int, means("bytes")]
    mtime: Annotated[str, means("modification time, ISO 8601 in UTC with nanoseconds")]
    sha256: Annotated[
        str | None,
        means(
            "SHA-256 of the content, 64 hex digits; null without `--hash`, or if the file could not be read to its end"
        ),
    ]


class CustodyOther(Part, frozen=True):
    """An entry of the evidence that is no regular file."""

    file: Annotated[str, means("name relative to the store; the name of a folder ends in `/`")]
    what: Annotated[str, means("`an empty folder`, `a link to …`, `neither a folder nor a regular file`")]


class CustodyChange(Part, frozen=True, order=True):
    """A file that differs."""

    file: Annotated[str, means("name relative to the store")]
    kind: Annotated[str, means("`added`, `gone` or `changed`")]
    what: Annotated[str, means("what differs: size, time, or a different file under the same name")]


class ReportedCustody(Part, frozen=True):
    """The files, and what changed during the run."""

    algorithm: Annotated[
        str | None, means("`sha256`; null without `--hash`: nothing was hashed, and changes were not detected")
    ]
    files: Annotated[list[CustodyFile], means("by name")]
    others: Annotated[list[CustodyOther], means("entries that are not regular files")]
    changed: Annotated[
        list[CustodyChange], means("files that changed during the run; if there are any, the report is incomplete")
    ]


class Custody(Struct, frozen=True):
    """What a run knows about the files it read."""

    inventory: Inventory  # before the first byte was read
    digests: Mapping[str, str] = field(default_factory=dict)  # hex by name, those that were finished
    algorithm: str | None = None  # None: neither digests nor changes were asked for
    changed: Sequence[CustodyChange] = ()  # during the run
    unread: Sequence[str] = ()  # one line each

    @property
    def size(self) -> int:
        """The size of all files together."""
        return sum(exhibit.file.size for exhibit in self.inventory.exhibits.values())

    @property
    def undigested(self) -> int:
        """How many files have no digest though one was asked for."""
        return len(self.inventory.exhibits) - len(self.digests) if self.algorithm else 0

    def document(self) -> ReportedCustody:
        """Return the object of the report."""
        return ReportedCustody(
            algorithm=self.algorithm,
            files=[
                CustodyFile(name, exhibit.file.size, format_nanos(exhibit.mtime_ns), self.digests.get(name))
                for name, exhibit in self.inventory.exhibits.items()
            ],
            others=[CustodyOther(name, what) for name, what in self.inventory.others.items()],
            changed=list(self.changed),
        )


def sums_of(custody: ReportedCustody, paths: Sequence[str]) -> bytes:
    """Return the digests of the files of a store as `sha256sum -c` takes them in the folder of the store.

    b"" without such a folder. Files of one name, and names that are not UTF-8, have no line: the report has them.
    """
    if len(paths) != 1 or is_remote(paths[0]):
        return b""
    root, _ = find_place(paths[0])
    root = os.path.dirname(root) if isfile(root) else root
    return b"".join(
        sums_line(file.sha256, file.file)
        for file in custody.files
        if file.sha256 is not None and os.path.isfile(os.path.join(root, file.file))
    )


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
        self._files = {file.path: file for file in store.files}
        folders = [(folder.real, folder.shown.rstrip("/")) for folder in store.folders]
        images = [(file.path, "") for file in store.of_kind(IMAGE)]  # their store has no folder
        self._roots = [(real, name_text(basename(real)) if isfile(real) else name) for real, name in folders or images]

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
            # A file that became shorter ends early; the next inventory shows it.
            for raw in content_of(reader):
                if self._stopped.is_set():
                    break
                digest.update(raw)
                with self._lock:
                    self._hashed += len(raw)
        return None if self._stopped.is_set() else digest.hexdigest()


# --- what is different ------------------------------------------------------------------------------------


def _changes(before: Inventory, after: Inventory) -> list[CustodyChange]:
    """Return what differs between two inventories of one run."""
    found = _named_differently(before.exhibits, after.exhibits, before.others, after.others)
    for name in before.exhibits.keys() & after.exhibits.keys():
        was, now = before.exhibits[name], after.exhibits[name]
        if was.file.size != now.file.size:
            found.append(_resized(name, was.file.size, now.file.size))
        elif was.mtime_ns != now.mtime_ns:
            found.append(_rewritten(name, format_nanos(was.mtime_ns), format_nanos(now.mtime_ns)))
        elif was.inode != now.inode:
            found.append(CustodyChange(name, "changed", "another file under the same name"))
    return sorted(found)


def _named_differently(
    files_before: Iterable[str], files_after: Iterable[str], before: Mapping[str, str], after: Mapping[str, str]
) -> list[CustodyChange]:
    """Return which names came and went, of files and of everything else."""
    was, now = {*files_before, *before}, {*files_after, *after}
    came, went = sorted(now - was), sorted(was - now)
    # A folder that became empty, or is no longer empty, did not come or go: the files in it did.
    came = [name for name in came if not (after.get(name) == _EMPTY and _any_below(name, went))]
    went = [name for name in went if not (before.get(name) == _EMPTY and _any_below(name, came))]
    found = [CustodyChange(name, "added", "was not there") for name in came]
    found += [CustodyChange(name, "gone", "is not there any more") for name in went]
    for name in was & now:
        if before.get(name) != after.get(name):
            what = f"{after.get(name, 'a file')}, was {before.get(name, 'a file')}"
            found.append(CustodyChange(name, "changed", what))
    return found


def _any_below(folder: str, names: Iterable[str]) -> bool:
    return any(name.startswith(folder) for name in names)


def _resized(name: str, was: int, now: int) -> CustodyChange:
    return CustodyChange(name, "changed", f"{group_digits(now)} bytes, was {group_digits(was)}")


def _rewritten(name: str, was: str, now: str) -> CustodyChange:
    return CustodyChange(name, "changed", f"written {now}, before that {was}")


class _FileList(Part, frozen=True):
    files: list[CustodyFile]
    others: list[CustodyOther]


class _End(Part, frozen=True):
    ended: str

    def __post_init__(self) -> None:
        moment(self.ended, "ended")


class Record(Part, frozen=True):
    """The part of a report that `--against` compares: reports without the fields of the screen have it, too."""

    custody: _FileList
    run: _End

    @property
    def files(self) -> dict[str, CustodyFile]:
        """The files by name."""
        return {file.file: file for file in self.custody.files}

    @property
    def undigested(self) -> int:
        """How many files have no digest: their content cannot be compared."""
        return sum(file.sha256 is None for file in self.custody.files)

    def comparable(self, inventory: Inventory) -> list[str]:
        """Return the names of the files that only a digest can distinguish from those of the record."""
        exhibits, files = inventory.exhibits, self.files
        both = [name for name in exhibits if name in files]
        return [name for name in both if files[name].sha256 and files[name].size == exhibits[name].file.size]

    def touched(self, inventory: Inventory) -> int:
        """Return how many files have another modification time than in the record."""
        files, exhibits = self.files, inventory.exhibits
        both = files.keys() & exhibits.keys()
        return sum(files[name].mtime != format_nanos(exhibits[name].mtime_ns) for name in both)

    def differences(self, now: Custody) -> list[CustodyChange]:
        """Return the differences in names, sizes and digests, and in times where there is no digest."""
        files, exhibits = self.files, now.inventory.exhibits
        others = [{other.file: other.what for other in self.custody.others}, now.inventory.others]
        if now.inventory.is_remote:
            others = [{name: what for name, what in some.items() if what != _EMPTY} for some in others]
        found = _named_differently(files, exhibits, *others)
        for name in files.keys() & exhibits.keys():
            was, exhibit = files[name], exhibits[name]
            digest, mtime = now.digests.get(name), format_nanos(exhibit.mtime_ns)
            if was.size != exhibit.file.size:
                found.append(_resized(name, was.size, exhibit.file.size))
            elif was.sha256 is None and was.mtime != mtime:
                found.append(_rewritten(name, was.mtime, mtime))
            elif was.sha256 and digest and was.sha256 != digest:
                found.append(CustodyChange(name, "changed", f"{ALGORITHM} {digest}, was {was.sha256}"))
        return sorted(found)

"""The place where a rescued store is written: a hidden folder beside it, until all is there and proven.

    beside NEW                            what it is
    .NEW.rmqinspect.part/                 of one run
        lock                              which that run holds as long as it lives
        store/                            the store under construction: `NewStore.folder`
        aside/                            what goes beside it: `NewStore.aside`; only if it was made
        receipt.json                      what was done
        committing                        a mark: the renames below have begun
    NEW.receipt.json, NEW.aside, NEW      where these appear, in this order, at the end

Invariants:
- Nothing of the evidence is changed: it is read through `store.reader`, and a hard link is made only where asked.
- One run at a time makes a NEW: who holds the lock of the hidden folder, under the name that it has now.
- NEW appears last, whole and synced, or not at all: a killed run leaves a hidden folder, which the next run for the
  same NEW empties; a receipt without its store, if the run was killed between the renames, is removed with it.
- Nothing else is ever replaced or deleted: an existing NEW, NEW.aside or NEW.receipt.json is refused.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self

from rmqinspect.errors import Refused
from rmqinspect.store.model import StoreFile
from rmqinspect.store.outside import refuse_inside
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system import uri
from rmqinspect.system import workers as stopping
from rmqinspect.system.output_file import as_refusal, signals_deferred
from rmqinspect.system.uri import shown
from rmqinspect.text import describe_size

LINKED, REFLINKED, COPIED, EDITED = "linked", "reflinked", "copied", "edited"
"""How a file came into the store: another name of the same file; a copy that shares its blocks until one of both is
written to; a copy, in which long runs of zeros are holes."""

_FICLONE = 0x40049409  # linux/fs.h: _IOW(0x94, 9, int)
_STEP = 4 << 20  # bytes per read of a copy
_HOLE = 64 << 10  # bytes of zeros that become a hole
_ZEROS = bytes(_HOLE)
_SPARE = 64 << 20  # bytes that stay free beside what is written

_STORE, _ASIDE, _RECEIPT, _COMMITTING, _LOCK = "store", "aside", "receipt.json", "committing", "lock"
_PROBE = "probe"
_OWN = frozenset((_STORE, _ASIDE, _RECEIPT, _COMMITTING, _LOCK, _PROBE))
_MOST_CLAIMS = 100  # times that another run takes its folder away in the moment in which it is claimed


def receipt_path(target: str) -> str:
    """Return where the receipt of a new store is written."""
    return f"{target}.receipt.json"


def aside_path(target: str) -> str:
    """Return the folder beside a new store for what has no place in it."""
    return f"{target}.aside"


class NewStore:
    """A store under construction; a context manager that removes what `commit` has not given its name."""

    def __init__(self, target: str | None, sources: Sequence[str], *, dry_run: bool = False) -> None:
        """Claim the path of a new store; `sources` are the paths of the evidence.

        With `dry_run` the path is checked, and nothing is made; then there need not be one.

        :raises Refused: it is remote, exists, lies inside of the evidence, or there is no folder for it; also where
            its receipt, or what lies aside, exists.
        """
        self._dry_run = dry_run
        self._lock = -1
        self._linked: set[str] = set()  # paths of files that are the evidence's own
        if target is None and dry_run:
            return
        path = uri.local_path(target or "")
        path = path.rstrip("/") or path
        if not path or uri.is_remote(path):
            raise Refused(f"{shown(path) or 'an empty path'}: a store is written to a local folder only")
        self.target, self._given = os.path.abspath(path), path
        self.parent, self._name = os.path.split(self.target)
        if not self._name:
            raise Refused(f"{shown(path)}: no name for a new store")
        if not os.path.isdir(self.parent):
            raise Refused(f"{shown(os.path.dirname(path) or self.parent)}: no such folder")
        refuse_inside(path, sources)
        self._work = os.path.join(self.parent, f".{self._name}.rmqinspect.part")
        self.folder = os.path.join(self._work, _STORE)
        """The root of the store under construction."""
        self._sources = [os.path.realpath(uri.local_path(one)) for one in sources if not uri.is_remote(one)]
        for source in self._sources:
            if uri.is_below(source, os.path.realpath(self._work)):
                raise Refused(f"{shown(source)}: left by a killed run, and taken away by the next one: move it first")
        self._refuse_taken()

    def __enter__(self) -> Self:
        if self._dry_run:
            return self
        try:
            # An interrupt comes when it is known that the folder is this run's.
            with signals_deferred():
                self._lock = self._claim()
            self._refuse_taken()
            with as_refusal(self._work, "made"):
                if self._is_cut_short:
                    with suppress(FileNotFoundError):
                        os.unlink(receipt_path(self.target))
                    with suppress(FileNotFoundError):
                        shutil.rmtree(aside_path(self.target))
                self._empty()
                os.mkdir(self.folder)
        except BaseException:
            if self._lock >= 0:
                self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._dry_run:
            self._leave()

    @property
    def _is_cut_short(self) -> bool:
        """Whether a run was killed between the renames: what lies beside has no store.

        Where the store itself was renamed, that run had come to its end, and what lies beside is its own.
        """
        return os.path.exists(os.path.join(self._work, _COMMITTING)) and os.path.isdir(self.folder)

    def _refuse_taken(self) -> None:
        """Check that no name is taken, but for those that a run had given when it was killed."""
        path = self._given
        beside = [receipt_path(path), aside_path(path)]
        is_source = any(uri.is_below(source, os.path.realpath(one)) for source in self._sources for one in beside)
        for taken in (path, *(beside if is_source or not self._is_cut_short else [])):
            if os.path.lexists(taken):
                raise Refused(f"{shown(taken)}: already exists; a new store needs a new place")

    def _claim(self) -> int:
        """Make the hidden folder, or take over that of a killed run; return its lock, which is held.

        :raises Refused: another run holds it; the folder is no run's; or it cannot be made.
        """
        with as_refusal(self._work, "made"):
            for _ in range(_MOST_CLAIMS):
                with suppress(FileExistsError):
                    os.mkdir(self._work, 0o777)
                try:
                    folder = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                except FileNotFoundError:  # of a run that has ended meanwhile
                    continue
                try:
                    if not _OWN.issuperset(os.listdir(folder)):
                        raise Refused(f"{shown(self._work)}: not of this program, and in its way")
                    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                    lock = os.open(_LOCK, flags, 0o666, dir_fd=folder)
                except FileNotFoundError:
                    continue
                finally:
                    os.close(folder)
                if self._holds(lock):
                    return lock
                os.close(lock)
        raise Refused(f"{shown(self._work)}: cannot be made: others make and remove it")

    def _holds(self, lock: int) -> bool:
        """Lock an open file; return whether it still has its name: a run that ends takes it away.

        :raises Refused: another run holds it.
        """
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                return os.path.samestat(os.stat(os.path.join(self._work, _LOCK)), os.fstat(lock))
            return False
        except BlockingIOError:
            os.close(lock)
            raise Refused(f"{shown(self._given)}: another run is making it; a new store needs a new place") from None

    def _empty(self) -> None:
        """Take away all in the hidden folder but its lock."""
        with os.scandir(self._work) as listed:
            entries = list(listed)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != _LOCK:
                os.unlink(entry.path)

    def _leave(self) -> None:
        """Take the hidden folder away, and let go of its lock."""
        with signals_deferred():
            with suppress(OSError):
                self._empty()
            for path, remove in ((os.path.join(self._work, _LOCK), os.unlink), (self._work, os.rmdir)):
                with suppress(OSError):
                    remove(path)
            os.close(self._lock)

    # --- room -----------------------------------------------------------------------------------

    def check_room(self, size: int) -> None:
        """Check that so many bytes can be written.

        :raises Refused: there is less room on the file system.
        """
        free = shutil.disk_usage(self.parent).free
        if size + _SPARE > free:
            raise Refused(
                f"{shown(self._given)}: {describe_size(size)} are to be written, {describe_size(free)} are free there"
            )

    def shares_blocks(self, files: Iterable[StoreFile]) -> bool:
        """Whether copies of local files can share their blocks: one is tried, and removed. Without files: no."""
        first = next((file for file in files if not uri.is_remote(file.path)), None)
        if first is None or self._dry_run:
            return False
        path = os.path.join(self._work, _PROBE)
        with open_file(first) as reader, open(path, "xb") as out:
            shares = _clone(reader, out)
        os.unlink(path)
        return shares

    def can_link(self, file: StoreFile) -> bool:
        """Whether a file of the evidence lies on the same file system, so that a hard link to it can be made."""
        if uri.is_remote(file.path):
            return False
        with suppress(OSError):
            return os.stat(file.path, follow_symlinks=False).st_dev == os.stat(self.parent).st_dev
        return False

    # --- writing --------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """Return the path of a file of the store, its folders made; `name` is relative, with "/" between folders.

        :raises Refused: it leads out of the store, or the folders cannot be made.
        """
        parts = name.split("/")
        if not name or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise Refused(f"{shown(name)}: no name of a file of a store")
        path = os.path.join(self.folder, *parts)
        with as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @contextmanager
    def create(self, name: str, size: int | None = None) -> Iterator[BinaryIO]:
        """Open a new file for writing, read-write; with `size` it has that length from the start, all of it a hole.

        :raises Refused: it exists, or cannot be written.
        """
        path = self.path_of(name)
        with as_refusal(path), open(path, "x+b") as out:
            if size is not None:
                out.truncate(size)
            yield out

    def write(self, name: str, raw: bytes) -> None:
        """Write a whole (small) file.

        :raises Refused: it exists, or cannot be written.
        """
        with self.create(name) as out:
            out.write(raw)

    def bring(
        self,
        file: StoreFile,
        name: str,
        *,
        link: bool = False,
        done: Callable[[int], None] = lambda size: None,
    ) -> str:
        """Bring a file of the evidence into the store, byte for byte; return LINKED, REFLINKED or COPIED.

        With `link` it is a hard link: only for what a broker never writes to again. `done` is called with bytes that
        were brought. The copy has as many bytes as the file has now.

        :raises Refused: the file exists in the store, or cannot be written; a link cannot be made.
        :raises Unreadable: the evidence cannot be read.
        :raises Unreachable: a remote file system does not answer.
        """
        if link:
            path = self.path_of(name)
            with as_refusal(path, "linked"):
                os.link(file.path, path, follow_symlinks=False)
            self._linked.add(path)
            done(file.size)
            return LINKED
        with open_file(file) as reader, self.create(name) as out:
            if not uri.is_remote(file.path) and file.length is None and _clone(reader, out):
                done(file.size)
                return REFLINKED
            _copy(reader, out, done)
            return COPIED

    def make_aside(self) -> str:
        """Return the path of a folder that becomes NEW.aside, made if it does not exist.

        :raises Refused: it cannot be made.
        """
        path = os.path.join(self._work, _ASIDE)
        with as_refusal(path, "made"):
            os.makedirs(path, exist_ok=True)
        return path

    # --- the end --------------------------------------------------------------------------------

    def commit(self, receipt: bytes) -> None:
        """Sync all that was written, and give the store, its receipt and what lies aside their names.

        :raises Refused: one of the names was taken meanwhile, or something cannot be written.
        """
        with as_refusal(self.target, "written"):
            with open(os.path.join(self._work, _RECEIPT), "xb") as out:
                out.write(receipt)
            self._sync_all()
            with open(os.path.join(self._work, _COMMITTING), "xb") as mark:
                os.fsync(mark.fileno())
            _sync_folder(self._work)
        moves = [(_RECEIPT, receipt_path(self.target)), (_ASIDE, aside_path(self.target)), (_STORE, self.target)]
        made: list[tuple[str, str]] = []
        with signals_deferred():
            try:
                for name, path in moves:
                    own = os.path.join(self._work, name)
                    if not os.path.exists(own):
                        continue
                    if os.path.lexists(path):
                        raise Refused(f"{shown(path)}: was made meanwhile; a new store needs a new place")
                    with as_refusal(path, "written"):
                        os.rename(own, path)
                    made.append((own, path))
            except Refused:
                for own, path in reversed(made):
                    with suppress(OSError):
                        os.rename(path, own)
                with suppress(OSError):
                    os.unlink(os.path.join(self._work, _COMMITTING))  # what is taken is another's
                raise
        with as_refusal(self.parent, "written"):
            _sync_folder(self.parent)

    def _sync_all(self) -> None:
        for folder, _, names in os.walk(self._work, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                if path not in self._linked:
                    stopping.check()
                    with open(path, "rb") as file:
                        os.fsync(file.fileno())
            _sync_folder(folder)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clone(reader: FileReader, out: BinaryIO) -> bool:
    """Make a new file share the blocks of an open one; return whether the file system can."""
    try:
        fcntl.ioctl(out.fileno(), _FICLONE, reader.fileno())
    except OSError:  # EOPNOTSUPP, EXDEV, EINVAL: another file system, or one without
        return False
    return True


def _copy(reader: FileReader, out: BinaryIO, done: Callable[[int], None]) -> None:
    """Copy a file; its holes, and long runs of zeros, become holes."""
    out.truncate(reader.size)
    at, buffer = 0, bytearray(min(_STEP, reader.size))
    while at < reader.size:
        begin = min(reader.next_allocated(at), reader.size)
        done(begin - at)
        at = begin
        view = memoryview(buffer)[: min(len(buffer), reader.size - at)]
        count = reader.read_into(view, at)
        for start in range(0, count, _HOLE):
            part = view[start : min(start + _HOLE, count)]
            if part.tobytes() != _ZEROS[: len(part)]:
                out.seek(at + start)
                out.write(part)
        done(count)
        if count < len(view):  # cut meanwhile: what is gone reads as zeros
            return
        at += count

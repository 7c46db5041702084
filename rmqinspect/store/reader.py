"""Positional reads of evidence files, local or remote. Nothing else opens evidence.

Files are opened read-only, without following links, and with O_NOATIME where that is allowed
(`filesystem.open_evidence`). Under `--read-rate` every read goes through `_read_gently`, which keeps
the rate and leaves the page cache as it was: it first takes what is cached (RWF_NOWAIT), reads the
rest, and drops the pages it brought in. For that to work the kernel must not read ahead
(POSIX_FADV_RANDOM).

Also which process holds the lock of a store, which only an open file tells.
"""

import errno
import fcntl
import mmap
import os
import stat
import struct
import sys
import threading
from bisect import bisect_right
from contextlib import suppress
from types import TracebackType
from typing import ClassVar, Self

from msgspec.structs import replace

from rmqinspect.errors import Unreadable
from rmqinspect.store.model import IMAGE, CarvedSegment, Store, StoreFile
from rmqinspect.system import filesystem, uri
from rmqinspect.system import workers as stopping
from rmqinspect.system.workers import ReadRate, read_bound

# Bytes per read under `--read-rate`.
_STEP = 128 << 10


class FileReader:
    """An open file of the evidence, read by position.

    :raises Unreadable: it cannot be opened, or is no regular file.
    """

    bytes_read: ClassVar[int] = 0  # by all readers of this process, for reporting
    _counting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        try:
            self._fd = filesystem.open_evidence(file.path)
        except OSError as error:
            raise Unreadable(f"{file.name}: {_why_not_opened(file.path, error)}", file.name) from error
        status = os.fstat(self._fd)
        if file.kind == IMAGE and stat.S_ISBLK(status.st_mode):
            self.size = self.allocated = os.lseek(self._fd, 0, os.SEEK_END)
        elif stat.S_ISREG(status.st_mode):
            self.size = status.st_size
            self.allocated = status.st_blocks * 512  # bytes on disk, without holes
        else:
            self.close()
            raise Unreadable(f"{file.name}: not a regular file", file.name)
        if read_bound() is not None and hasattr(os, "posix_fadvise"):
            # No read-ahead: pages not requested would be neither counted nor dropped.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def fileno(self) -> int:
        """Return the descriptor, for system calls about locks and holes."""
        return self._fd

    def read_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on; return the bytes read, fewer only at the file's end.

        :raises Unreadable: an I/O error; the message has file and offset.
        :raises Stopped: nobody waits for what this thread reads.
        """
        view, done = memoryview(buffer), 0
        try:
            while done < len(view):
                stopping.check()
                count = self._read_some(view[done:], offset + done)
                if count == 0:
                    break
                done += count
            with FileReader._counting:
                FileReader.bytes_read += done
        except OSError as error:
            where = offset + done
            what = f"{self.file.name} at {where} ({where:#x}): {error.strerror}"
            raise Unreadable(what, self.file.name, where) from error
        return done

    def _read_some(self, view: memoryview, offset: int) -> int:
        """Read with one system call; 0 at the file's end."""
        bound = read_bound()
        if bound is None:
            return os.preadv(self._fd, [view], offset)
        return self._read_gently(view[: _STEP - offset % _STEP], offset, bound)

    def _read_gently(self, part: memoryview, offset: int, bound: ReadRate) -> int:
        """Read at most _STEP bytes, drop the pages that were not cached before, and keep the rate.

        Pages mapped by a broker stay cached: Linux drops no page in use.
        """
        done = self._read_cached(part, offset)
        if done < len(part):
            count = os.preadv(self._fd, [part[done:]], offset + done)
            self._drop(offset + done, offset + done + count)
            done += count
        bound.pay(done)
        return done

    def _drop(self, start: int, end: int) -> None:
        """Drop the pages of [start, end) from the page cache."""
        if start < end and hasattr(os, "posix_fadvise"):
            first, behind = start // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)
            size = (behind - first) * mmap.PAGESIZE
            os.posix_fadvise(self._fd, first * mmap.PAGESIZE, size, os.POSIX_FADV_DONTNEED)

    def _read_cached(self, part: memoryview, offset: int) -> int:
        """Read the cached bytes at the start of a part."""
        if not hasattr(os, "RWF_NOWAIT"):
            return 0
        try:
            return os.preadv(self._fd, [part], offset, os.RWF_NOWAIT)
        except OSError:  # not cached, or unsupported; a real error occurs again in the normal read
            return 0

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; allocates no more than the file holds."""
        size = max(0, min(size, self.size - offset))
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.read_into(buffer, offset)])

    def next_allocated(self, offset: int) -> int:
        """Return the next position at or after `offset` that is not in a hole, else the file's size.

        Holes read as zeros: a sparse preallocated segment need not be read.
        """
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            # No data after `offset`: a hole, unless the file was truncated meanwhile.
            is_hole = error.errno == errno.ENXIO and os.fstat(self._fd).st_size >= self.size
            return self.size if is_hole else offset

    def next_hole(self, offset: int) -> int:
        """Return where the data at `offset` ends: at the next hole, else the file's size."""
        try:
            return min(os.lseek(self._fd, offset, os.SEEK_HOLE), self.size)
        except OSError:
            return self.size


def _why_not_opened(path: str, error: OSError) -> str:
    if error.errno != errno.ELOOP:
        return error.strerror or type(error).__name__
    target = uri.shown(os.path.realpath(path))
    if not os.path.exists(path):
        return f"a link to {target}, which does not exist"
    return f"a link to {target}: not followed; to read it there, give that path as well"


class RemoteReader(FileReader):
    """An open file of the evidence on a remote file system: no descriptor, no holes."""

    def __init__(self, file: StoreFile) -> None:
        from rmqinspect.system.read_ahead import ReadAhead

        self.file = file
        try:
            self._readahead = ReadAhead(file.path)
        except OSError as error:
            raise Unreadable(f"{file.name}: {error.strerror}", file.name) from error
        self.size = self.allocated = self._readahead.size

    def close(self) -> None:
        """Close the file."""
        self._readahead.close()

    def fileno(self) -> int:
        """Raise OSError, as streams without a descriptor do.

        :raises OSError: always.
        """
        raise OSError(errno.EBADF, "a remote file has no descriptor")

    def _read_some(self, view: memoryview, offset: int) -> int:
        count = self._readahead.read_into(view, offset)
        bound = read_bound()
        if bound is not None:
            bound.pay(count)
        return count

    def next_allocated(self, offset: int) -> int:
        """Return `offset`: object stores have no holes."""
        return min(offset, self.size)

    def next_hole(self, offset: int) -> int:
        """Return the file's size: object stores have no holes."""
        return self.size


class ResizedReader(FileReader):
    """An open file of the evidence as `truncate -s` would leave it: cut, or filled with zeros. Nothing is written."""

    def __init__(self, file: StoreFile, length: int) -> None:
        self.file = file
        self._whole = open_file(replace(file, length=None))
        self.size = length
        self.allocated = min(self._whole.allocated, length)

    def close(self) -> None:
        """Close the file."""
        self._whole.close()

    def fileno(self) -> int:
        """Return the descriptor of the file as it is."""
        return self._whole.fileno()

    def _read_some(self, view: memoryview, offset: int) -> int:
        view = view[: max(0, self.size - offset)]
        stored = view[: max(0, self._whole.size - offset)]
        if stored:
            return self._whole._read_some(stored, offset)
        view[:] = bytes(len(view))
        return len(view)

    def next_allocated(self, offset: int) -> int:
        """Return the next position at or after `offset` that is not in a hole, else the file's size."""
        found = self._whole.next_allocated(offset)
        return self.size if found >= self._whole.size else min(found, self.size)

    def next_hole(self, offset: int) -> int:
        """Return where the data at `offset` ends: at the next hole, else the file's size."""
        return min(self._whole.next_hole(offset), self.size)


class CarvedReader(FileReader):
    """A segment as its fragments make it: what no fragment holds reads as zeros, and is a hole."""

    def __init__(self, file: CarvedSegment) -> None:
        self.file = file
        self.size = file.size
        self.allocated = sum(fragment.size for fragment in file.fragments)
        self._ends = [fragment.start + fragment.size for fragment in file.fragments]
        self._fragments = file.fragments
        self._images: dict[str, FileReader] = {}

    def close(self) -> None:
        """Close the images."""
        for image in self._images.values():
            image.close()

    def fileno(self) -> int:
        """Raise OSError, as streams without a descriptor do.

        :raises OSError: always.
        """
        raise OSError(errno.EBADF, "a carved segment has no descriptor")

    def _read_some(self, view: memoryview, offset: int) -> int:
        view = view[: max(0, self.size - offset)]
        number = bisect_right(self._ends, offset)
        following = self._fragments[number] if number < len(self._fragments) else None
        if following is None or offset < following.start:
            view = view if following is None else view[: following.start - offset]
            view[:] = bytes(len(view))
            return len(view)
        view = view[: self._ends[number] - offset]
        if following.image.path not in self._images:
            self._images[following.image.path] = open_file(following.image)
        position = following.position + offset - following.start
        count = self._images[following.image.path]._read_some(view, position)
        if count == 0:  # the image became shorter
            view[:] = bytes(len(view))
        return count or len(view)

    def next_allocated(self, offset: int) -> int:
        """Return the next position at or after `offset` that a fragment holds, else the segment's size."""
        number = bisect_right(self._ends, offset)
        return max(offset, self._fragments[number].start) if number < len(self._fragments) else self.size

    def next_hole(self, offset: int) -> int:
        """Return the next position at or after `offset` that no fragment holds, else the segment's size."""
        for fragment in self._fragments[bisect_right(self._ends, offset) :]:
            if offset < fragment.start:
                break
            offset = fragment.start + fragment.size
        return min(offset, self.size)


class SetBackReader(FileReader):
    """An open file of the evidence with some bytes as they were before they were damaged. Nothing is written."""

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self._found = open_file(replace(file, set_back=()))
        self.size, self.allocated = self._found.size, self._found.allocated

    def close(self) -> None:
        """Close the file."""
        self._found.close()

    def fileno(self) -> int:
        """Return the descriptor of the file as it is."""
        return self._found.fileno()

    def _read_some(self, view: memoryview, offset: int) -> int:
        size = self._found._read_some(view, offset)
        for position, value in self.file.set_back:
            if offset <= position < offset + size:
                view[position - offset] = value
        return size

    def next_allocated(self, offset: int) -> int:
        """Return the next position at or after `offset` that is not in a hole, or is set back; else the file's size."""
        found = self._found.next_allocated(offset)
        return min([found, *(position for position, _ in self.file.set_back if offset <= position < self.size)])

    def next_hole(self, offset: int) -> int:
        """Return where the data at `offset` ends: at the next hole, else the file's size."""
        return self._found.next_hole(offset)


def open_file(file: StoreFile) -> FileReader:
    """Open a file of a store, or an image: of kind "image", which may be a block device.

    :raises Unreadable: it cannot be opened, or is no regular file.
    :raises Unreachable: a remote file system does not answer.
    """
    if file.set_back:
        return SetBackReader(file)
    if file.length is not None:
        return ResizedReader(file, file.length)
    if isinstance(file, CarvedSegment):
        return CarvedReader(file)
    if uri.is_remote(file.path):
        return RemoteReader(file)
    filesystem.evidence.add(os.path.dirname(file.path))
    return FileReader(file)


def allocated_size(file: StoreFile) -> int:
    """Return the bytes a file takes on disk; for a remote one, its size.

    :raises Unreadable: it cannot be opened.
    """
    if uri.is_remote(file.path):
        return file.size
    with open_file(file) as reader:
        return reader.allocated


def modified_at(file: StoreFile) -> int:
    """Return when a file was last changed, in ns since 1970; 0 if that is unknown, or the file is gone.

    :raises Unreachable: a remote file system does not answer.
    """
    try:
        return filesystem.stat(file.path).st_mtime_ns
    except OSError:
        return 0


# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi")


def sees_locks(store: Store) -> bool:
    """Whether `lock_holder` can find a lock: on Linux, and not on a remote file system."""
    return sys.platform.startswith("linux") and not any(map(uri.is_remote, store.paths))


def lock_holder(store: Store) -> int | None:
    """Return the pid of the process that holds the store's lock, None without one, or where that cannot be seen."""
    try:
        return _holder(store)
    except (OSError, Unreadable):
        return None


def running_broker(store: Store, unread: list[str]) -> int | None:
    """Return the pid of the broker that runs on a store: it holds the lock, or still loads and recovers.

    It opens `lock` first of all, and takes the lock when all is loaded, which may be minutes later.
    Source: DefaultMessageStore#<init>, #load, #start; 4.2.0 to 5.5.0. `unread` gets why it cannot be told.
    """
    try:
        holder = _holder(store)
        return _opener(store) if holder is None else holder
    except (OSError, Unreadable) as error:
        unread.append(f"{error}: whether a broker runs on this store is not known")
        return None


def _holder(store: Store) -> int | None:
    """Ask for the lock without taking it (F_GETLK): a broker would notice a lock taken by us.

    Source: DefaultMessageStore#start (FileChannel#tryLock on byte 0 of `lock`).
    """
    locks = store.of_kind("lock")
    if not locks or not sees_locks(store):
        return None
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    with open_file(locks[0]) as reader:
        answer = fcntl.fcntl(reader.fileno(), fcntl.F_GETLK, query)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _opener(store: Store) -> int | None:
    """Return the pid of a Java process that has the lock's file open, as far as its files can be seen."""
    locks = store.of_kind("lock")
    if not locks or not sees_locks(store):
        return None
    own = os.stat(locks[0].path)
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or is another user's
            with open(f"/proc/{process}/comm", "rb") as name:
                if name.read() != b"java\n":
                    continue
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):  # it is closed meanwhile
                    if os.path.samestat(os.stat(f"/proc/{process}/fd/{number}"), own):
                        return int(process)
    return None

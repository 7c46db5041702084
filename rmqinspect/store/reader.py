"""The only opener of evidence: files, read by position."""

import errno
import mmap
import os
import stat
from types import TracebackType
from typing import ClassVar, Self

from rmqinspect.errors import Unreadable
from rmqinspect.store.model import StoreFile
from rmqinspect.system import uri
from rmqinspect.system.throttle import ReadRate, read_bound

# Under a bound a file is read in pieces of this size: what the page cache holds is known of a piece as a whole.
_PIECE = 128 << 10


class FileReader:
    """A read-only file of the evidence; reads by position and keeps no position of its own.

    Under `--read-rate` it keeps the rate, and the page cache as it was: what it brought in is dropped again.
    """

    bytes_read: ClassVar[int] = 0  # by all readers of this process: what a command says that it read

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        try:
            # O_NONBLOCK: a FIFO put in a segment's place must not hang the tool.
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            raise Unreadable(f"{file.name}: {error.strerror}", file.name) from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise Unreadable(f"{file.name}: not a regular file", file.name)
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
            FileReader.bytes_read += done
        except OSError as error:
            where = offset + done
            what = f"{self.file.name} at {where} ({where:#x}): {error.strerror}"
            raise Unreadable(what, self.file.name, where) from error
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
        from rmqinspect.system.readahead import ReadAhead

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
        """Refuse, as streams without a descriptor do.

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
        """Return `offset`: object stores keep no holes."""
        return min(offset, self.size)


def open_file(file: StoreFile) -> FileReader:
    """Open one file of a store for reading.

    :raises Unreadable: it cannot be opened, or is no regular file (any more).
    :raises Unreachable: a remote file system does not answer.
    """
    return RemoteReader(file) if uri.is_remote(file.path) else FileReader(file)


def allocated_size(file: StoreFile) -> int:
    """Return how many bytes a file takes on disk; of a remote one, how many it has.

    :raises Unreadable: it cannot be opened.
    """
    if uri.is_remote(file.path):
        return file.size
    with open_file(file) as reader:
        return reader.allocated

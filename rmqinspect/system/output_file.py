"""Output to stdout or to one file, which appears complete or not at all.

A new file under construction, local or remote; errors of writing as refusals; signals that wait for the end of a
commit.
"""

import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self

from rmqinspect.errors import Refused
from rmqinspect.system import uri
from rmqinspect.system.uri import shown


@contextmanager
def as_refusal(path: str, verb: str = "written") -> Iterator[None]:
    """Turn an OSError in the block into `Refused`: "PATH: cannot be VERB: reason".

    :raises BrokenPipeError: as it is; the reader of a pipe has gone away.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(f"{shown(path)}: cannot be {verb}: {error.strerror}") from error


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer SIGINT, SIGHUP and SIGTERM to the end of the block: a commit takes moments and must not be cut in half.

    `pthread_sigmask` would not do: Python handles a signal delivered to another thread in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: received.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    for first in received[:1]:
        signal.raise_signal(first)


class NewFile:
    """A file being written; as a context manager it is abandoned on an exception.

    Has what Arrow's writers expect of a stream: `write`, `tell`, `flush`, `closed`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self.is_file = True
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, raw: bytes | memoryview) -> int:
        """Write all of `raw`; after `abandon`, silently discard it.

        :raises Refused: no space, no permission, or an I/O error.
        :raises Unreachable: the remote file system does not answer.
        """
        view = memoryview(raw).cast("B")
        if not self.closed:
            self._write(view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def flush(self) -> None:
        """Do nothing: a file is complete only when closed."""

    def close(self) -> None:
        """Complete the file; further calls do nothing.

        :raises Refused: no space, no permission, or an I/O error.
        :raises Unreachable: the remote file system does not answer.
        """
        if not self.closed:
            self.closed = True
            self._close()

    def abandon(self) -> None:
        """Remove the file."""
        if not self.closed:
            self.closed = True
            self._abandon()

    def _write(self, view: memoryview) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        raise NotImplementedError


class Destination:
    """A byte stream that knows its position: Parquet asks for it, and a pipe has none."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.closed = False  # expected by Arrow
        self.is_file = _is_new_file(stream)
        self._stream: BinaryIO | None = stream
        self._position = 0

    def write(self, raw: bytes | memoryview) -> int:
        """Write all of `raw`.

        :raises Refused: no space, or an I/O error.
        :raises BrokenPipeError: the reader has gone away.
        """
        if self._stream is None:
            return len(raw)
        with as_refusal(self.name):
            self._stream.write(raw)
        self._position += len(raw)
        return len(raw)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def flush(self) -> None:
        """Write out buffered bytes."""
        if self._stream is not None:
            with as_refusal(self.name):
                self._stream.flush()

    def abandon(self) -> None:
        """Detach the stream: further writes are silently discarded."""
        self._stream = None


def _is_new_file(stream: BinaryIO) -> bool:
    """Whether a stream writes a regular file from its start: also stdout, redirected to a file."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and stream.tell() == 0
    except OSError:  # stdout may be no descriptor, or one without a position
        return False


def local_file(path: str) -> str:
    """Return the local path of an output file, which may be given as a `file:` URI.

    :raises Refused: the URI is remote.
    """
    if uri.is_remote(path):
        raise Refused(f"{uri.shown(path)}: a single output is a local file; only export writes to object storage")
    return uri.local_path(path)


writes_sums = False
"""Whether a file that is written gets another beside it, FILE.sha256, for `sha256sum -c` (`--sums`)."""


SUMS = ".sha256"
"""What the name of such a file ends in."""


def sums_path(path: str) -> str:
    """Return the file beside `path` that is to have its digest; "" if none is, as beside a list of digests.

    :raises Refused: it exists.
    """
    if not writes_sums or path.endswith(SUMS):
        return ""
    beside = f"{path}{SUMS}"
    if os.path.lexists(beside):
        raise Refused(f"{beside}: exists already; nothing is overwritten")
    return beside


def sums_line(digest: str, name: str) -> bytes:
    r"""Return a line as `sha256sum` prints it: digest and name; a name with `\`, LF or CR is escaped and marked."""
    raw = os.fsencode(name)
    escaped = raw.replace(b"\\", rb"\\").replace(b"\n", rb"\n").replace(b"\r", rb"\r")
    return b"%s%s  %s\n" % (b"\\" if escaped != raw else b"", digest.encode(), escaped)


METRICS_HEAD = b"# HELP rmqinspect_"
"""How a file of metrics begins. The next run replaces it, as a collector expects; nothing else is ever replaced."""


@contextmanager
def open_output(path: str | None, *, replaces: bytes = b"") -> Iterator[Destination]:
    """Yield the stream to write to: stdout for None and `-`, else a new file.

    The file is written under a temporary name beside `path` and renamed at the end, or removed after
    an error. A FIFO or a device (/dev/null) is written to directly. A regular file that begins with `replaces`, if
    given, is replaced. A new file may get its digest beside it (`writes_sums`).

    :raises Refused: `path` exists or cannot be written.
    """
    if path is None or path == "-":
        sys.stdout.flush()
        out = Destination(sys.stdout.buffer, "stdout")
        yield out
        out.flush()
        return
    path = local_file(path)
    if may_replace(path, replaces):
        yield from _open_new(path, replaces)
    elif os.path.lexists(path):
        yield from _open_special(path)
    else:
        beside = sums_path(path)
        yield from _open_new(path)
        if beside:
            import hashlib

            with as_refusal(path, "read"), open(path, "rb") as written:
                digest = hashlib.file_digest(written, "sha256").hexdigest()
            with contextmanager(_open_new)(beside) as out:
                out.write(sums_line(digest, os.path.basename(path)))


def _write_to(path: str, descriptor: int) -> Iterator[Destination]:
    stream = os.fdopen(descriptor, "wb")
    try:
        out = Destination(stream, path)
        yield out
        out.flush()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with as_refusal(path):
                os.fsync(descriptor)
    finally:
        # Already flushed, or an error is propagating: a second one would hide it.
        with suppress(OSError):
            stream.close()


def _open_special(path: str) -> Iterator[Destination]:
    with as_refusal(path):
        mode = os.stat(path).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise Refused(f"{path}: exists already; nothing is overwritten")
    with as_refusal(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    yield from _write_to(path, descriptor)


def may_replace(path: str, replaces: bytes) -> bool:
    """Whether a regular file, and no link, begins with `replaces`."""
    if not replaces:
        return False
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(len(replaces)) == replaces
    except OSError:
        return False


def _open_new(path: str, replaces: bytes = b"") -> Iterator[Destination]:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part")
    with as_refusal(path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield from _write_to(path, descriptor)
        if os.path.lexists(path) and not may_replace(path, replaces):
            raise Refused(f"{path}: was created by another process meanwhile; nothing is overwritten")
        with as_refusal(path):
            os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise

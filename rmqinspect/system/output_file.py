"""Where output goes: stdout, or a file that appears whole or not at all."""

import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from rmqinspect.errors import Refused
from rmqinspect.system import filesystem, uri

# A folder with one of these is the root of a store, also where only a part of it was given.
_ROOT_MARKS = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_rocksdb")
_LEVELS = 4  # a consume-queue file lies this deep below its root


class Destination:
    """A stream of bytes that counts them, because a pipe cannot tell its position and Parquet asks."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.closed = False  # asked for by Arrow
        self._stream: BinaryIO | None = stream
        self._position = 0

    def write(self, raw: bytes | memoryview) -> int:
        """Write all of `octets`.

        :raises Refused: there is no room, or the medium fails.
        :raises BrokenPipeError: the reader has gone away.
        """
        if self._stream is None:
            return len(raw)
        with _as_refusal(self.name):
            self._stream.write(raw)
        self._position += len(raw)
        return len(raw)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def flush(self) -> None:
        """Pass on what is buffered."""
        if self._stream is not None:
            with _as_refusal(self.name):
                self._stream.flush()

    def abandon(self) -> None:
        """Let go of the stream: whatever is still written is lost without a word."""
        self._stream = None


@contextmanager
def _as_refusal(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(f"{name}: cannot be written: {error.strerror}") from error


def store_roots(paths: Sequence[str]) -> list[str]:
    """Return the real directories no output may lie in: those given, and the roots of given pieces."""
    roots: list[str] = []
    for path in map(uri.realpath, paths):
        if filesystem.isdir(path):
            roots.append(path)
        ancestor = path
        for _ in range(_LEVELS):
            ancestor = uri.dirname(ancestor)
            if any(filesystem.isdir(uri.join(ancestor, mark)) for mark in _ROOT_MARKS):
                roots.append(ancestor)
    return roots


def refuse_inside(path: str, evidence: Sequence[str]) -> None:
    """Make sure that `path` lies outside the evidence.

    :raises Refused: it does not; links are followed before they are compared.
    """
    path = uri.local_path(path)
    real = uri.realpath(path)
    # What is here is not there: the remote side is asked for nothing that cannot matter.
    near = [other for other in evidence if uri.is_remote(other) == uri.is_remote(path)]
    for root in store_roots(near):
        if uri.is_below(real, root):
            names = uri.shown(path), uri.shown(root)
            raise Refused("{}: lies inside the store {}; nothing is ever written there".format(*names))


def local_file(path: str) -> str:
    """Return the path of a file to be written, which may be given as a `file:` URI.

    :raises Refused: it is not on this machine.
    """
    if uri.is_remote(path):
        raise Refused(f"{uri.shown(path)}: a single file is written on this machine only; export goes further")
    return uri.local_path(path)


@contextmanager
def open_destination(path: str | None, evidence: Sequence[str] = ()) -> Iterator[Destination]:
    """Yield the stream to write to: stdout for None and `-`, else a new file.

    The file is written under another name beside `path` and renamed when the block ends; after an error
    it is removed. What is no ordinary file (a FIFO, /dev/null) is written to directly.

    :raises Refused: `path` exists, lies inside the evidence, or cannot be written.
    """
    if path in (None, "-"):
        sys.stdout.flush()
        out = Destination(sys.stdout.buffer, "stdout")
        yield out
        out.flush()
        return
    path = local_file(path)
    refuse_inside(path, evidence)
    if os.path.lexists(path):
        yield from _open_special(path)
    else:
        yield from _open_new(path)


def _write_to(path: str, descriptor: int) -> Iterator[Destination]:
    stream = os.fdopen(descriptor, "wb")
    try:
        out = Destination(stream, path)
        yield out
        out.flush()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with _as_refusal(path):
                os.fsync(descriptor)
    finally:
        # All was flushed, or an error is already on its way: a second one says nothing new.
        with suppress(OSError):
            stream.close()


def _open_special(path: str) -> Iterator[Destination]:
    with _as_refusal(path):
        mode = os.stat(path).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise Refused(f"{path}: exists already; nothing is overwritten")
    with _as_refusal(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    yield from _write_to(path, descriptor)


def _open_new(path: str) -> Iterator[Destination]:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
    with _as_refusal(path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield from _write_to(path, descriptor)
        if os.path.lexists(path):
            raise Refused(f"{path}: was made by someone else meanwhile; nothing is overwritten")
        with _as_refusal(path):
            os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise

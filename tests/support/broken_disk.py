"""A disk with bad sectors."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def broken_disk(
    monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[Path], bool], start: int, end: int
) -> Iterator[None]:
    """Make reads of the bytes [start, end) of every file that `is_broken` accepts fail with EIO.

    A read that begins before `start` returns the bytes up to there, as Linux does at a bad sector.
    """
    read = os.preadv

    def preadv(handle: int, buffers: list[memoryview], offset: int) -> int:
        if not is_broken(Path(os.readlink(f"/proc/self/fd/{handle}"))):
            return read(handle, buffers, offset)
        if start <= offset < end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        (buffer,) = buffers
        return read(handle, [buffer[: start - offset]] if offset < start else buffers, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", preadv)
        yield

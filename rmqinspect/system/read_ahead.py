"""Ranged reads of one remote file, with read-ahead for sequential access.

A request to an object store takes tens of milliseconds whatever its size, and one connection uses
only part of the bandwidth. Sequential reads are served from chunks requested in advance; scattered
small reads from a cache of blocks.

    reads   |--- a ---|--- b ---|                 each begins within or at the end of the one before
    chunks  [    n    ][   n+1   ][  n+2   ][  n+3   ]
                                  requested ahead

Memory per reader: AHEAD + 1 chunks, 16 MiB, and 2 MiB of blocks.

To open a file of an object store is a request, too. Small files are opened several times by a command: so what was
closed is kept for a while, with the blocks that were read of it, until its store is listed again.
"""

import time
from collections import OrderedDict
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any, NamedTuple

from rmqinspect.system.remote import listed, open_remote, result_of, start

CHUNK = 4 << 20
AHEAD = 3
# Bytes read in sequence before read-ahead begins.
_WALK = 1 << 20
# Smallest request: a header and the data next to it often share a block.
BLOCK = 64 << 10
_BLOCKS = 32
# Largest read that goes through blocks: a scan reads such windows where it begins, often again and again.
_LOOK = 512 << 10
# Seconds that closing waits for pending requests; a stalled server is left to the timeouts.
_CLOSING = 2.0


# What is kept of closed files, of all together.
_KEPT_FOR = 60.0  # seconds since it was opened
_MOST_FILES = 1024
_MOST_BLOCKS = 512  # 32 MiB
_STATELESS = ("s3", "gcs", "abfs")  # file systems whose open files hold nothing


class _Opened(NamedTuple):
    """An open file, and the blocks that were read of it."""

    file: Any  # pyarrow.NativeFile
    size: int
    since: float  # monotonic seconds
    blocks: OrderedDict[int, bytes]


_kept: OrderedDict[str, _Opened] = OrderedDict()  # closed by their readers, by URI
_keeping = Lock()


def forget(folder: str) -> None:
    """Forget what is kept of files below a folder, which is listed anew: they may be others by now."""
    location = folder.partition("?")[0].rstrip("/") + "/"
    with _keeping:
        for uri in [uri for uri in _kept if uri.startswith(location)]:
            del _kept[uri]


listed.append(forget)


def _take(uri: str) -> _Opened | None:
    """Return what is kept of a file, for one reader alone."""
    with _keeping:
        opened = _kept.pop(uri, None)
    return opened if opened is not None and time.monotonic() - opened.since < _KEPT_FOR else None


def _keep(uri: str, opened: _Opened) -> None:
    with _keeping:
        if uri in _kept:  # another reader had it open at the same time
            for number, block in [*_kept[uri].blocks.items()][: _BLOCKS - len(opened.blocks)]:
                opened.blocks.setdefault(number, block)
        _kept[uri] = opened
        blocks = sum(len(one.blocks) for one in _kept.values())
        while len(_kept) > _MOST_FILES or blocks > _MOST_BLOCKS:
            blocks -= len(_kept.popitem(last=False)[1].blocks)


class ReadAhead:
    """The bytes of a remote file. Not thread-safe.

    :raises OSError: no such file, or access denied.
    :raises Unreachable: the remote file system does not answer.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        opened = _take(uri)
        self._is_stateless = opened is not None
        if opened is None:
            filesystem, path = open_remote(uri)
            file = result_of(start(filesystem.open_input_file, path), uri)
            opened = _Opened(file, file.size(), time.monotonic(), OrderedDict())
            self._is_stateless = filesystem.type_name in _STATELESS
        self._opened, self._file, self._blocks = opened, opened.file, opened.blocks
        self.size: int = opened.size
        self._last = (0, 0)  # range of the previous read
        self._walked = 0  # bytes read in sequence
        self._chunks: dict[int, Future[bytes]] = {}  # by number; pending or complete
        self._dropped: set[Future[bytes]] = set()  # pending, no longer needed
        self._failure: OSError | None = None

    def close(self) -> None:
        """Close the file and drop pending requests."""
        pending = [*self._chunks.values(), *self._dropped]
        self._chunks.clear()
        self._dropped.clear()
        wait(pending, timeout=_CLOSING)
        if self._is_stateless and self._failure is None and all(future.done() for future in pending):
            _keep(self._uri, self._opened)
        else:
            self._file.close()

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer only at the file's end.

        :raises OSError: no such file any more, or access denied; also on every later call.
        :raises Unreachable: the remote file system does not answer; the message has the offset.
        """
        if self._failure is not None:
            raise self._failure
        end = min(offset + len(view), self.size)
        at = offset
        try:
            self._look_ahead(offset, end)
            while at < end:
                raw = self._part(at, end)
                if not raw:
                    break  # the file was truncated
                view[at - offset : at - offset + len(raw)] = raw
                at += len(raw)
        except OSError as error:
            self._failure = error
            raise
        return max(0, at - offset)

    def _look_ahead(self, offset: int, end: int) -> None:
        """Request the next chunks of a sequential reader, and drop those behind it."""
        began, ended = self._last
        # A scan window repeats the cut-off record at the end of the previous one.
        is_sequential = began < offset <= ended
        self._walked = self._walked + end - max(offset, ended) if is_sequential else end - offset
        self._last = (offset, end)
        first, last = offset // CHUNK, (end - 1) // CHUNK
        wanted = range(first, last + AHEAD + 1) if is_sequential and self._walked >= _WALK else range(0)
        for number in [number for number in self._chunks if number not in wanted]:
            self._dropped.add(self._chunks.pop(number))
        self._dropped = {future for future in self._dropped if not future.done()}
        for number in wanted:
            if number not in self._chunks and number * CHUNK < self.size:
                self._chunks[number] = start(self._file.read_at, min(CHUNK, self.size - number * CHUNK), number * CHUNK)

    def _part(self, at: int, end: int) -> bytes | memoryview:
        """Return bytes from `at` on, at most up to `end`."""
        number, inside = divmod(at, CHUNK)
        if number in self._chunks:
            chunk = result_of(self._chunks[number], self._uri, at)
            return memoryview(chunk)[inside : inside + end - at]
        if end - at > _LOOK:
            return self._fetch(at, end - at)
        number, inside = divmod(at, BLOCK)
        return memoryview(self._block(number, (end - 1) // BLOCK))[inside : inside + end - at]

    def _block(self, number: int, last: int) -> bytes:
        """Return a block; what is asked for next, up to the last of a read, comes with it."""
        if number not in self._blocks:
            # Who reads on gets as much again as was read so far.
            last = min(max(last, number + min(self._walked, _LOOK) // BLOCK), (self.size - 1) // BLOCK)
            behind = next((other for other in range(number, last + 1) if other in self._blocks), last + 1)
            raw = self._fetch(number * BLOCK, min(behind * BLOCK, self.size) - number * BLOCK)
            for other in range(number, behind):
                self._blocks[other] = raw[(other - number) * BLOCK :][:BLOCK]
                self._blocks.move_to_end(other)
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def _fetch(self, offset: int, size: int) -> bytes:
        raw: bytes = result_of(start(self._file.read_at, size, offset), self._uri, offset)
        return raw

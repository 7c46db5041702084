"""Ranged reads of one remote file, with read-ahead for sequential access.

A request to an object store takes tens of milliseconds whatever its size, and one connection uses
only part of the bandwidth. Sequential reads are served from chunks requested in advance; scattered
small reads from a cache of blocks.

    reads   |--- a ---|--- b ---|                 each begins within or at the end of the one before
    chunks  [    n    ][   n+1   ][  n+2   ][  n+3   ]
                                  requested ahead

Memory per reader: AHEAD + 1 chunks, 16 MiB.
"""

from collections import OrderedDict
from concurrent.futures import Future, wait

from rmqinspect.system.remote import open_remote, result_of, start

CHUNK = 4 << 20
AHEAD = 3
# Bytes read in sequence before read-ahead begins.
_WALK = 1 << 20
# Smallest request: a header and the data next to it often share a block.
BLOCK = 64 << 10
_BLOCKS = 16
# Seconds that closing waits for pending requests; a stalled server is left to the timeouts.
_PATIENCE = 2.0


class ReadAhead:
    """The bytes of a remote file. Not thread-safe.

    :raises OSError: no such file, or access denied.
    :raises Unreachable: the remote file system does not answer.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        filesystem, path = open_remote(uri)
        self._file = result_of(start(filesystem.open_input_file, path), uri)
        self.size: int = self._file.size()
        self._last = (0, 0)  # range of the previous read
        self._walked = 0  # bytes read in sequence
        self._chunks: dict[int, Future[bytes]] = {}  # by number; pending or complete
        self._dropped: set[Future[bytes]] = set()  # pending, no longer needed
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._failure: OSError | None = None

    def close(self) -> None:
        """Close the file and drop pending requests."""
        pending = [*self._chunks.values(), *self._dropped]
        self._chunks.clear()
        self._dropped.clear()
        self._blocks.clear()
        wait(pending, timeout=_PATIENCE)
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
        if end - at < BLOCK:
            number, inside = divmod(at, BLOCK)
            return memoryview(self._block(number))[inside : inside + end - at]
        return self._fetch(at, end - at)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            self._blocks[number] = self._fetch(number * BLOCK, min(BLOCK, self.size - number * BLOCK))
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def _fetch(self, offset: int, size: int) -> bytes:
        raw: bytes = result_of(start(self._file.read_at, size, offset), self._uri, offset)
        return raw

"""One remote file, read by ranges: ahead where it is read in order, little where it is looked at here and there.

A request to an object store takes tens of milliseconds whatever its size, and one connection gives less than
the network has. So who reads on from where the last read ended gets chunks that were asked for before.
"""

from collections import OrderedDict
from concurrent.futures import Future, wait

from rmqinspect.system.remote import open_remote, result_of, start

# With those ahead the memory of a reader that goes through a file: 16 MiB.
CHUNK = 4 << 20
AHEAD = 3
# A read that goes on from the one before is a walk through the file when it has come this far.
_WALK = 1 << 20
# The least that is asked for: a header and what it points to beside it are often one request.
BLOCK = 64 << 10
_BLOCKS = 16
# Seconds that closing waits for what is still under way; a server that stalls is left to the timeouts.
_PATIENCE = 2.0


class ReadAhead:
    """The bytes of a remote file. Not for several threads at a time.

    :raises OSError: it is not there, or not for us.
    :raises Unreachable: the remote side does not answer.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        filesystem, path = open_remote(uri)
        self._file = result_of(start(filesystem.open_input_file, path), uri)
        self.size: int = self._file.size()
        self._last = (0, 0)  # where the read before began and ended
        self._walked = 0  # bytes, in reads that go on from one another
        self._chunks: dict[int, Future[bytes]] = {}  # by number; these are under way or at hand
        self._dropped: set[Future[bytes]] = set()  # under way for nobody
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._failure: OSError | None = None

    def close(self) -> None:
        """Let go of the file and of what is under way."""
        pending = [*self._chunks.values(), *self._dropped]
        self._chunks.clear()
        self._dropped.clear()
        self._blocks.clear()
        wait(pending, timeout=_PATIENCE)
        self._file.close()

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer only at the file's end.

        :raises OSError: the file is gone or not for us; it is not asked for again.
        :raises Unreachable: the remote side does not answer; the message has the offset.
        """
        if self._failure is not None:
            raise self._failure
        end = min(offset + len(view), self.size)
        at = offset
        try:
            self._look_ahead(offset, end)
            while at < end:
                raw = self._piece(at, end)
                if not raw:
                    break  # it became shorter
                view[at - offset : at - offset + len(raw)] = raw
                at += len(raw)
        except OSError as error:
            self._failure = error
            raise
        return max(0, at - offset)

    def _look_ahead(self, offset: int, end: int) -> None:
        """Ask for the chunks that come next where the file is walked through; forget those behind."""
        began, ended = self._last
        # A window begins with the end of the one before it: with the record that was cut off there.
        goes_on = began < offset <= ended
        self._walked = self._walked + end - max(offset, ended) if goes_on else end - offset
        self._last = (offset, end)
        first, last = offset // CHUNK, (end - 1) // CHUNK
        wanted = range(first, last + AHEAD + 1) if goes_on and self._walked >= _WALK else range(0)
        for number in [number for number in self._chunks if number not in wanted]:
            self._dropped.add(self._chunks.pop(number))
        self._dropped = {future for future in self._dropped if not future.done()}
        for number in wanted:
            if number not in self._chunks and number * CHUNK < self.size:
                self._chunks[number] = start(self._file.read_at, min(CHUNK, self.size - number * CHUNK), number * CHUNK)

    def _piece(self, at: int, end: int) -> bytes | memoryview:
        """Return bytes from `at` on, no more than up to `end`."""
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

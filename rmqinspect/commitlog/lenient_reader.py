"""A segment on a failing disk: what cannot be read is taken as zeros, and noted.

A scan must account for every byte, also for those that the system refuses to read. Zeros never look
like a record, so they become a gap; `unread` says which gaps are zeros on the disk and which are not.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader

BLOCK = 4096  # bytes given up around a place that cannot be read: disks fail by sectors, systems read by blocks

_CHUNK = 1 << 20  # bytes of a chunk at most


class Unread(NamedTuple):
    """Bytes [start, end) of the log, physical offsets, that the system refused to read."""

    start: int
    end: int
    message: str


class LenientReader:
    """Reads one segment; positions are bytes from the segment's start."""

    def __init__(self, reader: FileReader, segment: Segment) -> None:
        self.segment = segment
        self.base = segment.base
        self.size = reader.size
        self.lead = segment.lead
        self.dark: list[tuple[int, int]] = []  # all that could not be read, in positions, ascending
        self._reader = reader
        self._unread: list[Unread] = []  # the same since the last `take_unread`

    def take_unread(self) -> list[Unread]:
        """Return what could not be read since the last call."""
        taken, self._unread = self._unread, []
        return taken

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from a position, fewer only at the file's end."""
        raw = bytearray(max(0, min(size, self.size - position)))
        self.fill(memoryview(raw), position)
        return bytes(raw)

    def fill(self, view: memoryview, position: int) -> None:
        """Fill `view` from a position on.

        A file that became shorter since it was opened reads as zeros from its new end on.
        """
        try:
            done = self._reader.read_into(view, position)
        except Unreadable:
            at = 0
            while at < len(view):
                size = min(BLOCK - (position + at) % BLOCK, len(view) - at)
                self._fill_block(view[at : at + size], position + at)
                at += size
            return
        if done < len(view):
            view[done:] = bytes(len(view) - done)
            message = f"{self.segment.name}: became shorter while it was read"
            self._note(position + done, position + len(view), message)

    def _fill_block(self, block: memoryview, position: int) -> None:
        try:
            done = self._reader.read_into(block, position)
        except Unreadable as error:
            done = 0
            self._note(position, position + len(block), str(error))
        block[done:] = bytes(len(block) - done)

    def _note(self, start: int, end: int, message: str) -> None:
        """Note a range once, though the walk, the search and the description of a gap all read it."""
        start = max(start, self.dark[-1][1]) if self.dark else start
        if start >= end:
            return
        self.dark.append((start, end))
        last = self._unread[-1] if self._unread else None
        if last is not None and last.end == self.base + start:
            self._unread[-1] = last._replace(end=self.base + end)
        else:
            self._unread.append(Unread(self.base + start, self.base + end, message))

    def chunks(
        self, position: int, limit: int, overlap: int = 0, first_size: int = _CHUNK
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, end, bytes) of the chunks of [position, limit), without holes and chunks of zeros.

        The bytes go on for `overlap` behind the end. Chunks grow from `first_size` to 1 MiB.
        """
        size = first_size
        # A record may begin in the last bytes of a hole: its size begins with zeros.
        while (position := max(position, self._reader.next_allocated(position) - overlap)) < limit:
            stop = min(position + size, limit)
            raw = self.read(position, stop - position + overlap)
            if not bytes(len(raw)).startswith(raw):  # compares eight times as fast as `count` counts
                yield position, stop, raw
            position, size = stop, min(4 * size, _CHUNK)

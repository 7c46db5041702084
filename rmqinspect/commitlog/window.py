"""A part of a segment in memory, and the records that the chain leads to in it.

    segment   |------------------------------------------------|  positions
                        start              start + filled
    window              |#####################|·····|              indexes 0 .. filled, then SLACK

The buffer is reused: whatever was made from one window is valid until the next `load`.

Invariants: `bytes[i]` is the byte at position `start + i` for 0 <= i < `filled`; behind `filled` there
are at least SLACK bytes of any value, so that a whole head can be read from any index; what could not
be read is zeros, and the reader has noted it.
"""

import numpy as np

from rmqinspect.commitlog.columns import COLUMNS, SLACK, follow
from rmqinspect.commitlog.lenient_reader import LenientReader
from rmqinspect.commitlog.records import Records

# Records of a batch at most: their rows take 200 bytes each.
BATCH_RECORDS = 16384
# Bytes read at first at a segment's start; each read is four times the last. It may be a hole behind its first records.
_FIRST_READ = 256 << 10
_GROWTH = 4
_BEHIND = 64 << 10  # bytes read behind the limit
_SMALLEST = 100  # bytes of a record, roughly: a small window needs few rows


class Window:
    """Reads a segment through one buffer. Positions are bytes from the segment's start, indexes from the window's."""

    def __init__(self, reader: LenientReader, size: int, limit: int) -> None:
        """Take up to `size` bytes at a time; behind position `limit` only a few, to finish the last record."""
        self.reader = reader
        self._limit = limit
        self._step = 0  # bytes to read next
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        self.capacity = size
        self.bytes = np.empty(size + SLACK, np.uint8)
        self.raw = self.bytes.data
        self.start = self.filled = 0

    @property
    def physical_offset(self) -> int:
        """Physical offset of the window's first byte."""
        return self.reader.base + self.start

    def load(self, position: int, least: int = _BEHIND) -> None:
        """Fill the window from a position on, with at least so many bytes if it and the file have them."""
        self.start = position
        first = _FIRST_READ if position < _FIRST_READ else self.capacity
        self._step = min(self._step * _GROWTH or first, self.capacity)
        wanted = max(min(self._step, self._limit - position), least)
        self.filled = max(0, min(self.capacity, self.reader.size - position, wanted))
        self.reader.fill(self.raw[: self.filled], position)

    def holds(self, position: int, size: int) -> bool:
        """Whether bytes [position, position + size) are in the window."""
        return self.start <= position and position + size <= self.start + self.filled

    def need(self, position: int, size: int) -> int:
        """Return the index of a position, having loaded `size` bytes from it, or all up to the file's end.

        A buffer that is too small is replaced.
        """
        if not self.holds(position, min(size, self.reader.size - position)):
            if size > self.capacity:
                self._allocate(size)
            self.load(position, size)
        return position - self.start

    def next_batch(self, position: int) -> Records:
        """Return records of the chain from a position on, at least one unless what stands there is not sound.

        They are proved by magic, size and lengths; of a DLedger file also by the sizes of their entries.
        """
        records = self._follow(position)
        if not len(records) and self.start != position:
            self.load(position)
            records = self._follow(position)
        return records

    def _follow(self, position: int) -> Records:
        left = max(0, self.start + self.filled - position) if position >= self.start else 0
        rows = np.empty((min(left // _SMALLEST + 1, BATCH_RECORDS), len(COLUMNS)), np.int64)
        found = follow(self.bytes, position - self.start, self.filled, self.reader.lead, rows) if left else 0
        return Records(self.raw, self.physical_offset, rows[:found])

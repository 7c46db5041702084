"""A part of a segment in memory, as bytes and as integers at any position.

    segment   |------------------------------------------------|  positions
                        start              start + filled
    window              |#####################|·····|              indexes 0 .. filled, then SLACK

The buffer is reused: whatever was made from one window is valid until the next `load`. Two megabytes
stay in the processor's caches, where 16 and 64 MiB do not.

Invariants: `buffer[i]` is the byte at position `start + i` for 0 <= i < `filled`; behind `filled` there
are at least SLACK bytes of any value, so that a whole head can be read from any index; what could not
be read is zeros, and the reader has noted it.
"""

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.lenient_reader import LenientReader
from rmqinspect.commitlog.records import SLACK, Records


class Window:
    """Reads a segment through one buffer. Positions are bytes from the segment's start, indexes from the window's."""

    def __init__(self, reader: LenientReader, size: int) -> None:
        self.reader = reader
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        self.capacity = size
        self.buffer = bytearray(size + SLACK)
        self.raw = memoryview(self.buffer)
        # One integer from each index on, unaligned.
        self.int32 = np.ndarray((size + SLACK - 3,), ">i4", self.buffer, 0, (1,))
        self.uint32 = self.int32.view(">u4")
        self.int64 = np.ndarray((size + SLACK - 7,), ">i8", self.buffer, 0, (1,))
        self.start = self.filled = 0

    @property
    def physical_offset(self) -> int:
        """Physical offset of the window's first byte."""
        return self.reader.base + self.start

    def load(self, position: int) -> None:
        """Fill the window from a position on."""
        self.start = position
        self.filled = max(0, min(self.capacity, self.reader.size - position))
        self.reader.fill(self.raw[: self.filled], position)

    def holds(self, position: int, size: int) -> bool:
        """Whether bytes [position, position + size) are in the window."""
        return self.start <= position and position + size <= self.start + self.filled

    def need(self, position: int, size: int, spare: int = 0) -> int:
        """Return the index of a position, having loaded `size` bytes from it, or all up to the file's end.

        A buffer that is too small is replaced by one that has `spare` bytes more than needed.
        """
        if not self.holds(position, min(size, self.reader.size - position)):
            if size > self.capacity:
                self._allocate(size + spare)
            self.load(position)
        return position - self.start

    def records(self, starts: Ints) -> Records:
        """Return what stands at some indexes, as columns of records."""
        return Records(self.raw, self.physical_offset, starts)

"""Index entries window by window, and the rules of one entry."""

from collections.abc import Iterator

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.codec.kernels import Bytes, inlined
from rmqinspect.codec.layout import dtype_of
from rmqinspect.index.geometry import IndexFile
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.store.reader import FileReader

MAX_INT = 2**31 - 1  # Java's
ENTRY_SIZE: int = IndexEntry.sizeof()
WINDOW_ROWS = (512 << 10) // ENTRY_SIZE  # entries per read: they stay in a processor's own cache


def entry_windows(
    index: IndexFile, first: int, count: int, reader: FileReader, rows: int = WINDOW_ROWS
) -> Iterator[tuple[int, Units]]:
    """Yield (number of the first one, entries) for `count` entries from number `first` on, fewer at the file's end.

    The next window overwrites the one before.

    :raises Unreadable: the system reports an I/O error.
    """
    behind = min(first + count, index.last_entry + 1)
    window = np.empty(max(0, min(rows, behind - first)), dtype_of(IndexEntry))
    for start in range(first, behind, rows):
        assert index.geometry is not None
        raw = window[: behind - start].view(np.uint8).data
        size = reader.read_into(raw, index.geometry.entry_position(start))
        if size >= ENTRY_SIZE:
            yield start, window[: size // ENTRY_SIZE]


@inlined
def is_written(raw: Bytes, at: int) -> bool:
    """Whether the entry at a position holds anything but zeros. Others were never written, or are lost."""
    held = 0
    for place in range(at, at + ENTRY_SIZE):
        held |= raw[place]
    return held != 0


def time_fits(time_diffs: Ints, begin_timestamp: int, store_timestamps: Ints, first_entries: Bools) -> Bools:
    """Return whether each entry's seconds are what a broker writes for its record, shape (n,).

    `store_timestamps` are those of the records, in ms. The first entry of a file counts its seconds from the end
    of the file before it, if it was created when that one was full: any number will do.

    Source: IndexFile#putKey.
    """
    # Java's division truncates; negative becomes 0, and so does all when the file has no begin.
    seconds = (store_timestamps - np.int64(begin_timestamp)) // 1000
    expected = np.clip(seconds, 0, MAX_INT) if begin_timestamp > 0 else np.zeros_like(seconds)
    fits: Bools = (time_diffs == expected) | (first_entries & (time_diffs >= 0))
    return fits

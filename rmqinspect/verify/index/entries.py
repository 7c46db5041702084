"""Index entries as columns, and the rules of one entry."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.index.geometry import IndexFile, read_entries
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.store.reader import FileReader

Entries = NDArray[Any]  # of the dtype of IndexEntry

MAX_INT = 2**31 - 1  # Java's


def entry_columns(index: IndexFile, first: int, count: int, reader: FileReader) -> Entries:
    """Return `count` entries from number `first` on, fewer at the file's end.

    :raises Unreadable: the system reports an I/O error.
    """
    if index.geometry is None:
        return np.empty(0, dtype_of(IndexEntry))
    return read_entries(reader, index.geometry, first, min(count, index.last_entry + 1 - first))


def written(entries: Entries) -> Bools:
    """Return which entries hold anything but zeros. Others were never written, or are lost."""
    zeros: Bools = entries["physical_offset"] == 0
    if zeros.any():
        for name in ("key_hash", "time_diff", "previous"):
            zeros = zeros & (entries[name] == 0)
    return ~zeros


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

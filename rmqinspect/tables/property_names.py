"""Property lookup by name, once per sequence of names instead of once per record.

Records of one producer have the same property names in the same order, so a batch has few distinct sequences. Names
are looked up in one example of each sequence, and the position found is applied to all its records:

    record    names                    sequence    example
    0         KEYS UNIQ_KEY WAIT       0           record 2
    1         UNIQ_KEY WAIT            1           record 1
    2         KEYS UNIQ_KEY WAIT       0

Invariant: records of a sequence are cut into names exactly as its example. Equal bytes are not enough ("ab" + "c" and
"a" + "bc"), so the lengths are compared; where they differ, every record is its own example.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints

_SMALL_GRID = 1 << 20  # cells: records times distinct names


class PropertyNames:
    """The names of the properties of n records."""

    def __init__(self, raw: pa.Array, names: pa.Array, firsts: Ints) -> None:
        """Index the names of all properties, as stored bytes and as text.

        `firsts` has shape (n + 1,): record i has the names `firsts[i]` to `firsts[i + 1]`.
        """
        self._firsts, self._counts = firsts, np.diff(firsts)
        self._lengths, self._sequence = _sequences(raw, firsts)
        example = np.zeros(int(self._sequence.max(initial=-1)) + 1, np.int64)
        example[self._sequence] = np.arange(len(self._counts))
        if not self._stand_for_all(example):
            self._sequence = example = np.arange(len(self._counts))
            self._arrange(example)
        coded = names.take(pa.array(self._places)).dictionary_encode()
        self._ids = coded.indices.to_numpy()
        self._known = {name: number for number, name in enumerate(coded.dictionary.to_pylist())}

    def _arrange(self, example: Ints) -> None:
        """Lay out the names of all examples one after another."""
        counts = self._counts[example]
        self._begins = np.concatenate(([0], np.cumsum(counts)))
        self._owner = np.repeat(np.arange(len(example)), counts)
        self._places = np.arange(len(self._owner)) + (self._firsts[example] - self._begins[:-1])[self._owner]

    def _stand_for_all(self, example: Ints) -> bool:
        """Whether all records of each sequence are cut into names as their example is."""
        self._arrange(example)
        if (self._counts[example][self._sequence] != self._counts).any():
            return False
        return bool((self._lengths[self._places][self._as_examples] == self._lengths).all())

    @property
    def _as_examples(self) -> Ints:
        """For each name of each record, its position among the names of the examples."""
        shifts = self._begins[self._sequence] - self._firsts[:-1]
        return np.arange(len(self._lengths)) + np.repeat(shifts, self._counts)

    def find(self, name: str) -> tuple[Ints, Bools | None] | None:
        """Return (index of the property in each record, mask of records without it); None if no record has it.

        The mask is None where all records have it. Of equal names the last one counts.
        """
        if name not in self._known:
            return None
        found = np.flatnonzero(self._ids == self._known[name])
        owner = self._owner[found]
        place = np.full(len(self._begins) - 1, -1, np.int64)
        place[owner] = found - self._begins[owner]  # of equal names the last one wins
        which = place[self._sequence]
        absent = which < 0 if place.min() < 0 else None
        return self._firsts[:-1] + which, absent

    @cached_property
    def last_of_each(self) -> Ints | None:
        """Indices of the properties that remain after duplicates are dropped, ascending; None without duplicates."""
        if self._last(self._owner, self._ids) is None:
            return None
        record = np.repeat(np.arange(len(self._counts)), self._counts)
        return self._last(record, self._ids[self._as_examples])

    def _last(self, record: Ints, ids: NDArray[np.int32]) -> Ints | None:
        if not len(record):
            return None
        key = record * len(self._known) + ids
        size = (int(record[-1]) + 1) * len(self._known)
        if size <= _SMALL_GRID:
            # One cell per (record, name): as many set cells as names means no duplicates.
            grid = np.zeros(size, np.bool_)
            grid[key] = True
            if np.count_nonzero(grid) == len(key):
                return None
        _, last = np.unique(key[::-1], return_index=True)
        return None if len(last) == len(key) else np.sort(len(key) - 1 - last)


def _sequences(raw: pa.Array, firsts: Ints) -> tuple[Ints, Ints]:
    """Return the length of each name, and for each record the number of its sequence of names."""
    count, total = len(firsts) - 1, len(raw)
    if not total:
        return np.zeros(0, np.int64), np.zeros(count, np.int64)
    offsets = np.frombuffer(raw.buffers()[1], np.int32)[: total + 1]
    borders = pa.py_buffer(np.ascontiguousarray(offsets[firsts]))
    together = pa.Array.from_buffers(pa.binary(), count, [None, borders, raw.buffers()[2]])
    return np.diff(offsets), together.dictionary_encode().indices.to_numpy()

"""The units that a walk has written, as far as it may ask for them later.

All newest units, up to a number; of older ones those whose record lies elsewhere than its PHYSICALOFFSET says. Of the
rest only number and border are known, and that they point before the end of the scan.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints

MOST = 1 << 20  # newest units that are kept: 40 MiB


class Part(NamedTuple):
    """Columns of units in the order in which they were written."""

    rows: Ints  # of the queue
    addresses: Ints
    first: Ints  # physical offsets, or queue offsets
    second: Ints  # sizes, or numbers of messages
    places: Ints  # where the records lie

    def chosen(self, which: Bools | Ints) -> "Part":
        """Return some units, in the same order."""
        return Part(*(column[which] for column in self))


class Written:
    """Units by queue and address."""

    def __init__(self) -> None:
        self._misplaced: list[Part] = []  # of what is not in `_newest` any more
        self._newest: deque[Part] = deque()
        self._count = 0  # units in `_newest`
        self._noted: list[Part] = []  # few units each
        self._by_row: Part | None = None  # `_newest`, by queue

    def add(self, rows: Ints, addresses: Ints, first: Ints, second: Ints, places: Ints) -> None:
        """Add units; those with a negative address were not written."""
        part = Part(rows, addresses, first, second, places).chosen(addresses >= 0)
        self._newest.append(part)
        self._count += len(part.rows)
        self._by_row = None
        while self._count > MOST and len(self._newest) > 1:
            old = self._newest.popleft()
            self._count -= len(old.rows)
            misplaced = old.first != old.places
            if misplaced.any():
                self._misplaced.append(old.chosen(misplaced))

    def note(self, row: int, addresses: Ints, first: Ints, second: Ints) -> None:
        """Add units of one queue that a cut has accepted; they are always kept."""
        self._noted.append(Part(np.full(len(addresses), row, np.int64), addresses, first, second, first))

    def lay_over(self, row: int, span: range, end: int, first: Ints, second: Ints) -> None:
        """Write the units of a queue over two columns of units with the addresses `span`, as far as before `end`."""
        for part in (*self._misplaced, self._of_row(row), *self._noted):
            here = (part.rows == row) & (part.addresses >= span.start) & (part.addresses < min(span.stop, end))
            at = (part.addresses[here] - span.start) // span.step
            first[at], second[at] = part.first[here], part.second[here]

    def _of_row(self, row: int) -> Part:
        """Return the newest units of a queue."""
        if self._by_row is None:
            none = np.empty(0, np.int64)
            parts = self._newest or (Part(none, none, none, none, none),)
            whole = Part(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            self._by_row = whole.chosen(np.argsort(whole.rows, kind="stable"))
        first, behind = np.searchsorted(self._by_row.rows, (row, row + 1)).tolist()
        return Part(*(column[first:behind] for column in self._by_row))

    def forget(self, ends: Ints) -> None:
        """Forget the units of each queue at its end and behind; `ends` by row."""
        self._misplaced, newest, self._noted = (
            [part.chosen(part.addresses < ends[part.rows]) for part in parts]
            for parts in (self._misplaced, self._newest, self._noted)
        )
        self._newest = deque(newest)
        self._count = sum(len(part.rows) for part in newest)
        self._by_row = None

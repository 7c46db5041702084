"""The units that a walk has written, as far as a later cut may ask for them.

All newest units, up to a number; of older ones those whose record lies elsewhere than its PHYSICALOFFSET says. Of the
rest only number and border are known, and that they point before the end of the scan.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints

MOST = 1 << 20  # newest units that are kept: 32 MiB


class Part(NamedTuple):
    """Columns of units in the order in which they were written."""

    rows: Ints  # of the queue
    addresses: Ints
    first: Ints  # physical offsets, or queue offsets
    second: Ints  # sizes, or numbers of messages


class Written:
    """Units by queue and address; of two at one address the later one holds."""

    def __init__(self) -> None:
        self._misplaced: list[Part] = []  # of what is not in `_newest` any more
        self._newest: deque[tuple[Part, Ints]] = deque()
        self._count = 0

    def add(self, rows: Ints, addresses: Ints, first: Ints, second: Ints, places: Ints) -> None:
        """Add units; those with a negative address were not written. Where `first` is no place, it is always kept."""
        which = addresses >= 0
        part = Part(rows[which], addresses[which], first[which], second[which])
        self._newest.append((part, places[which]))
        self._count += len(part.rows)
        while self._count > MOST and len(self._newest) > 1:
            old, lay = self._newest.popleft()
            self._count -= len(old.rows)
            misplaced = old.first != lay
            if misplaced.any():
                self._misplaced.append(_chosen(old, misplaced))

    def lay_over(self, row: int, span: range, end: int, first: Ints, second: Ints) -> None:
        """Write the units of a queue over two columns of units with the addresses `span`, as far as before `end`."""
        for part in (*self._misplaced, *(part for part, _ in self._newest)):
            here = part.rows == row
            here &= (part.addresses >= span.start) & (part.addresses < min(span.stop, end))
            at = (part.addresses[here] - span.start) // span.step
            first[at], second[at] = part.first[here], part.second[here]

    def forget(self, row: int, end: int) -> None:
        """Forget the units of a queue at `end` and behind."""
        self._misplaced = [_chosen(part, (part.rows != row) | (part.addresses < end)) for part in self._misplaced]
        for number, (part, places) in enumerate(self._newest):
            left = (part.rows != row) | (part.addresses < end)
            if not left.all():
                self._newest[number] = _chosen(part, left), places[left]
        self._count = sum(len(part.rows) for part, _ in self._newest)


def _chosen(part: Part, which: np.ndarray) -> Part:
    return Part(*(column[which] for column in part))

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
    offsets: Ints
    sizes: Ints


class Written:
    """Units by queue and address; of two at one address the later one holds."""

    def __init__(self) -> None:
        self._misplaced: list[Part] = []  # of what is not in `_newest` any more
        self._newest: deque[tuple[Part, Ints]] = deque()
        self._count = 0

    def add(self, rows: Ints, addresses: Ints, offsets: Ints, sizes: Ints, places: Ints) -> None:
        """Add units; those with a negative address were not written. `places`: where the records lie."""
        which = addresses >= 0
        part = Part(rows[which], addresses[which], offsets[which], sizes[which])
        self._newest.append((part, places[which]))
        self._count += len(part.rows)
        while self._count > MOST and len(self._newest) > 1:
            old, lay = self._newest.popleft()
            self._count -= len(old.rows)
            misplaced = old.offsets != lay
            if misplaced.any():
                self._misplaced.append(_chosen(old, misplaced))

    def lay_over(self, row: int, start: int, behind: int, end: int, offsets: Ints, sizes: Ints) -> None:
        """Write the units of a queue with addresses in [start, behind) and before `end` over those of a file."""
        for part in (*self._misplaced, *(part for part, _ in self._newest)):
            here = part.rows == row
            here &= (part.addresses >= start) & (part.addresses < min(behind, end))
            at = (part.addresses[here] - start) // len_of(offsets, start, behind)
            offsets[at], sizes[at] = part.offsets[here], part.sizes[here]

    def forget(self, row: int, end: int) -> None:
        """Forget the units of a queue at `end` and behind."""
        self._misplaced = [_chosen(part, (part.rows != row) | (part.addresses < end)) for part in self._misplaced]
        for number, (part, places) in enumerate(self._newest):
            left = (part.rows != row) | (part.addresses < end)
            if not left.all():
                self._newest[number] = _chosen(part, left), places[left]
        self._count = sum(len(part.rows) for part, _ in self._newest)


def len_of(units: Ints, start: int, behind: int) -> int:
    """Return the bytes of one unit."""
    return (behind - start) // len(units)


def _chosen(part: Part, which: np.ndarray) -> Part:
    return Part(*(column[which] for column in part))

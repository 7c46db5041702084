"""Which rows of a file point into which split of the log.

Queue units, index entries and timer units all point into the commit log, and nearly always in
ascending order. So the rows that concern one split are one run of a file, and a split is checked
against all that points into it by whoever reads the split, with no table of the whole log.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from rmqinspect.codec.arrays import Ints

Row = TypeVar("Row")

# Ascending offsets give as many runs as splits; where damage gives more, rows are told in bulk.
_RUNS = 64
_ROWS_PER_RUN = 16


class Run(NamedTuple):
    """Rows [first, first + rows) of a file, of which at least one points into a split."""

    first: int
    rows: int
    split: int  # its number in the plan; -1: before the log


def cut_runs(offsets: Ints, borders: Ints) -> list[Run]:
    """Return the runs of the physical offsets of consecutive rows, shape (n,).

    `borders`, shape (splits,), has the physical offset where each split begins, ascending; the last
    one has no end. Runs cover every row. They may overlap where offsets are in disorder, so a
    reader of a run looks at the offsets itself.
    """
    if not len(offsets):
        return []
    splits = np.searchsorted(borders, offsets, "right") - 1
    firsts = np.flatnonzero(np.concatenate(([True], splits[1:] != splits[:-1])))
    if len(firsts) > _RUNS + len(offsets) // _ROWS_PER_RUN:
        numbers, first = np.unique(splits, return_index=True)
        _, last = np.unique(splits[::-1], return_index=True)
        ends = len(splits) - last
        rows = zip(first.tolist(), (ends - first).tolist(), numbers.tolist(), strict=True)
        return [Run(*row) for row in rows]
    counts = np.diff(np.append(firsts, len(offsets)))
    return [Run(*row) for row in zip(firsts.tolist(), counts.tolist(), splits[firsts].tolist(), strict=True)]


class CappedList(Generic[Row]):
    """Rows up to a bound; of what comes then, rows of a class become one, so that sums stay exact.

    Only hostile files have so many rows.
    """

    def __init__(self, most: int, class_of: Callable[[Row], Hashable], merge: Callable[[Row, Row], Row]) -> None:
        self._most, self._class_of, self._merge = most, class_of, merge
        self._kept: list[Row] = []
        self._rest: dict[Hashable, Row] = {}

    def extend(self, rows: Iterable[Row]) -> None:
        """Add rows in their order."""
        for row in rows:
            if len(self._kept) < self._most:
                self._kept.append(row)
            else:
                key = self._class_of(row)
                self._rest[key] = self._merge(self._rest[key], row) if key in self._rest else row

    @property
    def rows(self) -> list[Row]:
        """All rows, merged ones last."""
        return [*self._kept, *self._rest.values()]

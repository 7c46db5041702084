"""Runs: consecutive rows of a file that point into one split of the log.

Queue units, index entries and timer units point into the commit log, nearly always in ascending order:

    rows of a file   | 0 1 2 3 4 | 5 6 7 | 8 9 ...
    split            |     0     |   1   |  2

So one run per file and split tells a worker which rows to read beside its split, without a table of the
whole log. Disorder only makes runs longer or overlap; it never loses a row.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import Int32s, TableOut, inlined, kernel

# Ascending offsets give one run per split. Where damage gives more than this, one run spans all rows of a split.
_RUNS = 64
_ROWS_PER_RUN = 16

_FIRST_OFFSET, _LAST_OFFSET = -(2**63), 2**63 - 1  # that a Java long holds


class Run(NamedTuple):
    """Rows [first, first + rows) of a file; at least one points into the split."""

    first: int
    rows: int
    split: int  # number in the plan; -1: before the log


def cut_runs(offsets: Ints, borders: Ints) -> list[Run]:
    """Return the runs of consecutive rows, given the physical offset each points at, shape (n,).

    `borders`, shape (splits,), ascending: the physical offset where each split begins; the last has no end.
    Runs cover every row and may overlap where offsets are in disorder: the reader of a run filters by offset.
    """
    runs = np.empty((most_runs(len(offsets)), 3), np.int64)
    count = _cut(offsets, borders, runs)
    runs = runs[:count] if count <= len(runs) else runs_by_split(np.arange(len(offsets)), offsets, borders)
    return [Run(first, last - first + 1, split) for split, first, last in runs.tolist()]


@kernel
def _cut(offsets: Ints, borders: Ints, runs: TableOut) -> int:
    """Fill `runs` with (split, first row, last row); return how many there are, also those without room."""
    count, low, high = 0, 0, -1  # offsets [low, high] are of the last run's split; at first there is none
    for row in range(len(offsets)):
        if not low <= offsets[row] <= high:
            split = split_of(borders, offsets[row])
            low = borders[split] if split >= 0 else _FIRST_OFFSET
            high = borders[split + 1] - 1 if split + 1 < len(borders) else _LAST_OFFSET
            if count < len(runs):
                runs[count, 0], runs[count, 1] = split, row
            count += 1
        if 0 < count <= len(runs):
            runs[count - 1, 2] = row
    return count


def most_runs(rows: int) -> int:
    """Return how many runs so many rows may have; more are replaced by those of `runs_by_split`."""
    return _RUNS + rows // _ROWS_PER_RUN


def runs_by_split(rows: Ints, offsets: Ints, borders: Ints) -> Ints:
    """Return one run for each split that rows point into, shape (n, 3): split, first row, last row.

    `rows` are ascending numbers; `offsets` and `borders` as `cut_runs` has them.
    """
    splits = np.searchsorted(borders, offsets, "right") - 1
    numbers, first = np.unique(splits, return_index=True)
    _, last = np.unique(splits[::-1], return_index=True)
    return np.column_stack((numbers, rows[first], rows[::-1][last]))


def joined_runs(parts: Iterable[Ints]) -> Ints:
    """Join runs that continue others, given and returned as `plan.Runs` has them, in the order of files and rows."""
    rows = np.concatenate([np.empty((0, 4), np.int64), *parts])
    if not len(rows):
        return rows
    before, after = rows[:-1], rows[1:]
    continues = (after[:, :2] == before[:, :2]).all(axis=1) & (after[:, 2] == before[:, 2] + before[:, 3])
    firsts = np.flatnonzero(np.concatenate(([True], ~continues)))
    joined = rows[firsts]
    joined[:, 3] = np.add.reduceat(rows[:, 3], firsts)
    return joined


@inlined
def split_of(borders: Ints | Int32s, place: int) -> int:
    """Return the number of the last border at or before a physical offset, -1 without one."""
    low, high = 0, len(borders)
    while low < high:
        middle = (low + high) // 2
        if borders[middle] <= place:
            low = middle + 1
        else:
            high = middle
    return low - 1


def joined(last: Run, run: Run) -> Run | None:
    """Return both as one run if `run` continues `last` in the same split, else None."""
    if last.split != run.split or last.first + last.rows != run.first:
        return None
    return last._replace(rows=last.rows + run.rows)


def append_run(runs: list[tuple[int, Run]], file: int, run: Run) -> None:
    """Append a run of file number `file`; one that continues the last run is joined to it."""
    whole = joined(runs[-1][1], run) if runs and runs[-1][0] == file else None
    if whole is None:
        runs.append((file, run))
    else:
        runs[-1] = file, whole

"""Runs: consecutive rows of a file that point into one split of the log.

Queue units, index entries and timer units point into the commit log, nearly always in ascending order:

    rows of a file   | 0 1 2 3 4 | 5 6 7 | 8 9 ...
    split            |     0     |   1   |  2

So one run per file and split tells a worker which rows to read beside its split, without a table of the
whole log. Disorder only makes runs longer or overlap; it never loses a row.
"""

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints

# Ascending offsets give one run per split. Where damage gives more than this, one run spans all rows of a split.
_RUNS = 64
_ROWS_PER_RUN = 16


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

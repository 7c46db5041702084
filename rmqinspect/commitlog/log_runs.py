"""The log as runs of bytes by what they are, from its first byte to its last: what a picture of it is drawn from.

    records | filler | records | damage | records | zeros
    0       65 512   65 536    97 187   98 040    217 698     262 144

A list of runs is bounded. Runs that lie inside one cell of a grid (2^n bytes) become one, of the worst kind among
them; n is the least with which the list is short enough. So a damaged byte never vanishes, damage grows to a cell at
most, and the result depends on the bytes alone: not on threads, nor on where the log was cut into splits.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple

KINDS = {
    "records": "messages, with their filler in a DLedger log",
    "zeros": "not yet written, or behind the last record of a segment",
    "filler": "the blank record that ends a full segment",
    "stale": "records of an earlier life of the file: space that is used again",
    "bridged": "a bridge: a salvage wrote it in the place of what could not be saved",
    "missing": "no file has these bytes",
    "unread": "not read: nothing is known of them",
    "damage": "damaged, or neither record, filler nor zeros",
}
"""What bytes of the log are, and what that means; the worst last, which holds where runs are folded."""

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
MOST_RUNS = 2000  # of a store, in its report
MOST_RANGES = 4096  # of damaged records, exact up to here


class Run(NamedTuple):
    """Bytes [start, end) of the log, in physical offsets."""

    start: int
    end: int
    kind: str  # of KINDS
    mixed: bool = False  # neighbours were folded into it: not all of its bytes are of this kind


Range = tuple[int, int, bool]
"""[start, end) of the log, and whether other bytes lie between the ranges that it stands for."""


class FoldedRanges:
    """Ranges [start, end) that are added in order; where they become too many, those of a cell are one.

    What is added in parts, each folded by itself, is the same as what is added at once.
    """

    def __init__(self, most: int = MOST_RANGES) -> None:
        self._most = most
        self.bits = 0  # a cell is of 2^bits bytes; a range belongs to that of its start
        self._cells: dict[int, Range] = {}

    def __iter__(self) -> Iterator[Range]:
        """Yield the ranges, in order."""
        return iter(self._cells.values())

    def add(self, start: int, end: int) -> None:
        """Add a range."""
        self._put(start, end, False)
        self._fold(self.bits)

    def extend(self, bits: int, ranges: Iterable[Range]) -> None:
        """Add the ranges of another one, with its `bits`."""
        self._fold(bits)
        for start, end, mixed in ranges:
            self._put(start, end, mixed)
            self._fold(self.bits)

    def _fold(self, bits: int) -> None:
        """Make the cells of at least 2^bits bytes, and so large that there are not too many."""
        while self.bits < bits or len(self._cells) > self._most:
            self.bits += 1
            ranges, self._cells = list(self._cells.values()), {}
            for one in ranges:
                self._put(*one)

    def _put(self, start: int, end: int, mixed: bool) -> None:
        cell = start >> self.bits
        if (before := self._cells.get(cell)) is not None:
            mixed |= before[2] or start > before[1]
            start, end = min(start, before[0]), max(end, before[1])
        self._cells[cell] = start, end, mixed


def painted(layers: Iterable[Iterable[Run]], start: int, end: int, beneath: str = "missing") -> list[Run]:
    """Return runs that cover [start, end) without gap or overlap: at each byte a run of the last layer that has one.

    In a layer the worst kind holds. Neighbours of one kind are one run. Bytes that no layer has are `beneath`.
    """
    ordered = sorted((run.start, -layer, -_strength(run), run) for layer, runs in enumerate(layers) for run in runs)
    found: list[Run] = []
    active: list[tuple[int, int, int, Run]] = []  # (-layer, -strength, end, run): the one that holds first
    at, number = start, 0
    while at < end:
        while number < len(ordered) and ordered[number][0] <= at:
            _, layer, strength, run = ordered[number]
            if run.end > at:
                heappush(active, (layer, strength, run.end, run))
            number += 1
        while active and active[0][2] <= at:
            heappop(active)
        ahead = min(end, ordered[number][0]) if number < len(ordered) else end
        top = active[0][3] if active else Run(at, ahead, beneath)
        # A run that begins inside of a stronger one changes nothing, but has to be taken in.
        stop = min(top.end, ahead)
        _append(found, Run(at, stop, top.kind, top.mixed))
        at = stop
    return found


def _strength(run: Run) -> int:
    """Return the rank of a run; of one kind, what is wholly of it is stronger."""
    return 2 * _RANK.get(run.kind, _RANK["unread"]) + (not run.mixed)


def _append(runs: list[Run], run: Run) -> None:
    last = runs[-1] if runs else None
    if last is not None and (last.end, last.kind, last.mixed) == (run.start, run.kind, run.mixed):
        runs[-1] = last._replace(end=run.end)
    else:
        runs.append(run)


def folded(runs: Sequence[Run], most: int = MOST_RUNS) -> list[Run]:
    """Return at most about `most` runs in the place of those that cover a log.

    First fillers go into the records before them: every segment has one. Then the grid is made as coarse as needed.
    """
    found = list(runs)
    if len(found) > most:
        found = []
        for run in runs:
            last = found[-1] if found else None
            if last is not None and last.kind == "records" and run.kind in ("records", "filler"):
                found[-1] = Run(last.start, run.end, "records", last.mixed or run.mixed or run.kind == "filler")
            else:
                found.append(run)
    if len(found) <= most:
        return found
    sizes = range(1, (found[-1].end - found[0].start).bit_length() + 1)
    # The coarser the grid, the fewer runs.
    fine_enough = bisect_left(sizes, -most, key=lambda bits: -len(_in_cells(found, bits)))
    return _in_cells(found, sizes[min(fine_enough, len(sizes) - 1)])


def _in_cells(runs: Sequence[Run], shift: int) -> list[Run]:
    """Return the runs with those as one that lie inside one cell of 2^shift bytes."""

    def cell(numbered: tuple[int, Run]) -> tuple[int, int]:
        number, run = numbered
        inside = run.start >> shift == (run.end - 1) >> shift
        return (run.start >> shift, -1) if inside else (0, number)

    found: list[Run] = []
    for _, group in groupby(enumerate(runs), key=cell):
        some = [run for _, run in group]
        worst = max(some, key=_strength)
        mixed = worst.mixed or any(run.kind != worst.kind for run in some)
        _append(found, Run(some[0].start, some[-1].end, worst.kind, mixed))
    return found

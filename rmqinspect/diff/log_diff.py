"""The differences of two logs: what each covers, where bytes differ, where each ends, records that one lacks."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.diff.coverage import Part, Range, extend
from rmqinspect.diff.records import OnlyIn

# Differing bytes at most this far apart are one run: the fields of a record.
JOIN = 64


class OneSided(NamedTuple):
    """Physical offsets [start, end) that only one log covers, before the end of the longer log."""

    start: int
    end: int
    side: int  # the log that has them
    why: str  # before, hole, behind: where they lie in the other log


class ByteRun(NamedTuple):
    """A range [start, end) of physical offsets with `differing` bytes that differ."""

    start: int
    end: int
    differing: int


class ByteRuns:
    """The runs of differing bytes: the first `limit` of them, and exact totals."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept: list[ByteRun] = []
        self.count = 0
        self.differing = 0
        self.first: int | None = None  # first byte that differs
        self._last = -JOIN - 1  # last byte that differs

    def add(self, offsets: Ints) -> None:
        """Add offsets of differing bytes, ascending, all behind those added before."""
        begins = np.flatnonzero(np.diff(offsets, prepend=self._last) > JOIN)
        borders = [*begins.tolist(), len(offsets)]
        if borders[0] and len(self.kept) == self.count:  # the last run goes on, and it was kept
            last, goes_on = self.kept.pop(), borders[0]
            self.kept.append(ByteRun(last.start, int(offsets[goes_on - 1]) + 1, last.differing + goes_on))
        for begin, end in list(pairwise(borders[: self.limit - len(self.kept) + 1])):
            self.kept.append(ByteRun(int(offsets[begin]), int(offsets[end - 1]) + 1, end - begin))
        self.count += len(begins)
        self.differing += len(offsets)
        self.first = int(offsets[0]) if self.first is None else self.first
        self._last = int(offsets[-1])


@dataclass(slots=True)
class LogDiff:
    """The result of comparing two logs. Pairs and lists of two are (A, B); offsets are physical."""

    covered: tuple[list[Part], list[Part]]
    runs: ByteRuns
    ends: list[int | None] = field(default_factory=lambda: [None, None])  # None: no record was found
    reach: list[int] = field(default_factory=lambda: [-1, -1])  # the same; without records, where the log starts
    tail: int | None = None  # end of the bytes that are no record, behind the end of the log that ends first
    one_sided: list[OneSided] = field(default_factory=list)
    compared: list[Range] = field(default_factory=list)  # ranges whose bytes were compared
    only: tuple[OnlyIn, OnlyIn] = field(default_factory=lambda: (OnlyIn(), OnlyIn()))
    unread: dict[str, None] = field(default_factory=dict)  # messages; an ordered set
    reached: int | None = None  # progress of the comparison
    interrupted: bool = False

    @property
    def first(self) -> int | None:
        """The first offset where both cover it and differ, or where one of them ends."""
        ended = min(self.reach) if self.reach[0] != self.reach[1] and min(self.reach) >= 0 else None
        return min((offset for offset in (self.runs.first, ended) if offset is not None), default=None)

    @property
    def compared_bytes(self) -> int:
        """Bytes of each log that were compared."""
        return sum(end - start for start, end in self.compared)

    def ranges(self, side: int) -> list[Range]:
        """Return the ranges that the segments of one log cover, merged where they touch."""
        merged: list[Range] = []
        for part in self.covered[side]:
            extend(merged, part.start, part.end)
        return merged

"""Dangling pointers, grouped by target.

The reader of a split knows only what stands at the target in this split. Whether the log ends before it is
decided by the judge of the whole log (loss.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.tables.capped_list import CappedList

INSIDE = "inside"  # a record or filler, but not at its start
GAP = "gap"  # bytes of the log that are no record
OUTSIDE = "outside"  # no segment holds this offset


class Dangling(NamedTuple):
    """Consecutive rows of one file that point where no record starts, all into the same gap."""

    kind: str  # unit, entry, timer
    file: str
    position: int  # of the first row, bytes
    row_size: int
    rows: int
    row: int  # of the first: queue offset of a unit, number of an entry
    topic: str | None
    queue_id: int | None
    low: int  # least and greatest physical offset that they point at
    high: int
    where: str
    messages: int  # units: messages; else different targets
    newest: int | None  # store time of the newest in ms, where the rows have one

    def merged(self, other: "Dangling") -> "Dangling":
        """Return both as one row, at the place of the first."""
        newest = max((time for time in (self.newest, other.newest) if time is not None), default=None)
        return self._replace(
            rows=self.rows + other.rows,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            messages=self.messages + other.messages,
            newest=newest,
        )


def capped_dangling(limit: int) -> CappedList[Dangling, tuple[str, str, str]]:
    """Return an empty list of up to `limit` rows; overflow becomes one row per file and kind of target."""
    return CappedList(limit, lambda row: (row.kind, row.file, row.where), merge=Dangling.merged)


@dataclass(frozen=True, slots=True)
class LogRanges:
    """The byte ranges of a split that are no record, ascending, for looking up many offsets at once."""

    starts: Ints
    ends: Ints
    filler: np.ndarray[tuple[int], np.dtype[np.bool_]]
    end: int  # of the split

    @classmethod
    def of(cls, gaps: list[Gap], stale: list[tuple[int, int, int]], end: int) -> "LogRanges":
        """Return the ranges of gaps, as the scan reports them, and of stale records."""
        parts = [(gap.start, gap.end, gap.kind == "filler") for gap in gaps]
        parts += [(start, stop, False) for start, stop, _ in stale]
        rows = np.array(sorted(parts), np.int64).reshape(-1, 3)
        return cls(rows[:, 0], rows[:, 1], rows[:, 2] != 0, end)

    def look_up(self, places: Ints) -> Ints:
        """Return the number of the range that holds each offset; -1 inside a record or filler, -2 outside the split."""
        numbers: Ints = np.full(len(places), -1, np.int64)
        if len(self.starts):
            at = np.searchsorted(self.starts, places, "right") - 1
            inside = (at >= 0) & (places < self.ends[at]) & ~self.filler[at]
            numbers[inside] = at[inside]
        numbers[places >= self.end] = -2
        return numbers


def find_starts(records: Ints, pointers: Ints) -> tuple[Ints, Bools]:
    """Return (number of the record at or behind each pointer, whether it points at that record's start).

    Records ascend. The search is fast where pointers ascend too; where each record has one pointer, in order, as
    nearly always, there is none.
    """
    if len(records) == len(pointers) and (records == pointers).all():
        return np.arange(len(records)), np.ones(len(records), np.bool_)
    at = np.searchsorted(records, pointers)
    if not len(records):
        return at, np.zeros(len(pointers), np.bool_)
    return at, records[np.minimum(at, len(records) - 1)] == pointers


def where_of(number: int) -> str:
    """Return the word for a number that `LogRanges.look_up` returned."""
    return GAP if number >= 0 else OUTSIDE if number == -2 else INSIDE

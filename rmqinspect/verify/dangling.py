"""Pointers that lead to no record, put together by where they lead.

What stands there is known to the reader of the split in part only: whether the log ends before it
is decided by the judge of the whole log.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.tables.capped_list import CappedList

INSIDE = "inside"  # a record, or filler: no record starts there
GAP = "gap"  # bytes of the log that are no record
OUTSIDE = "outside"  # no segment has this offset


class Dangling(NamedTuple):
    """Consecutive rows of one file that lead to no record, all into the same gap."""

    kind: str  # unit, entry, timer
    file: str
    position: int  # of the first row, bytes
    row_size: int
    rows: int
    row: int  # number of the first row: queue offset, entry
    topic: str | None
    queue_id: int | None
    low: int  # physical offsets that they point at, the least and the greatest
    high: int
    where: str
    messages: int  # different places
    newest: int | None  # store time of the newest in ms, where the rows say it

    def merged(self, other: "Dangling") -> "Dangling":
        """Return both as one row, which no longer says where exactly the other is."""
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
    """The parts of a split that are no record, ascending: for looking many offsets up at once."""

    starts: Ints
    ends: Ints
    filler: np.ndarray[tuple[int], np.dtype[np.bool_]]
    end: int  # of the split

    @classmethod
    def of(cls, gaps: list[Gap], stale: list[tuple[int, int, int]], end: int) -> "LogRanges":
        """Take gaps as the scan gave them, and the ranges of records of an earlier life."""
        parts = [(gap.start, gap.end, gap.kind == "filler") for gap in gaps]
        parts += [(start, stop, False) for start, stop, _ in stale]
        rows = np.array(sorted(parts), np.int64).reshape(-1, 3)
        return cls(rows[:, 0], rows[:, 1], rows[:, 2] != 0, end)

    def look_up(self, places: Ints) -> Ints:
        """Return the number of the range that each place is in; -1 inside a record or filler, -2 outside."""
        numbers: Ints = np.full(len(places), -1, np.int64)
        if len(self.starts):
            at = np.searchsorted(self.starts, places, "right") - 1
            inside = (at >= 0) & (places < self.ends[at]) & ~self.filler[at]
            numbers[inside] = at[inside]
        numbers[places >= self.end] = -2
        return numbers


def find_places(records: Ints, pointers: Ints) -> tuple[Ints, Bools]:
    """Return (number of the record at or behind each pointer, does it point at that record's start).

    Records ascend. A search is quick where pointers ascend too, and none is made where each record
    has one pointer, in order.
    """
    if len(records) == len(pointers) and (records == pointers).all():
        return np.arange(len(records)), np.ones(len(records), np.bool_)
    at = np.searchsorted(records, pointers)
    if not len(records):
        return at, np.zeros(len(pointers), np.bool_)
    return at, records[np.minimum(at, len(records) - 1)] == pointers


def where_of(number: int) -> str:
    """Return the word for a number that `Ranges.look_up` gave."""
    return GAP if number >= 0 else OUTSIDE if number == -2 else INSIDE

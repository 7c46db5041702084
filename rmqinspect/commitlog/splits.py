"""Splits: byte ranges of segments that are scanned on their own, and the state of the scan at their borders."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqinspect.store.model import Segment


@dataclass(frozen=True, slots=True)
class ScanState:
    """The state of the scan at a split's border, decided by the bytes before it."""

    position: int  # where the next element of the chain begins, at the border or behind it
    in_gap: bool = False  # none begins here: the bytes before the border belong to a gap
    stale: bool = False  # the chain is in records of an earlier life of the file
    closed: bool = False  # a blank record ended the segment: no record follows
    # Store times (ms) of the last few records of this life, as far as the scan saw them.
    last_times: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range [start, end) of a segment, in positions; its records are those that start in it.

    `entry` is the exit of the split before it, where that is known. Otherwise the scan looks back, which
    gives the same unless damage reaches further.
    """

    segment: Segment
    start: int
    end: int
    entry: ScanState | None = None

    def clipped(self, first: int, behind: int) -> "Split | None":
        """Return what of it lies in physical offsets [first, behind), entered from no known state; None without any."""
        base = self.segment.base
        start, end = max(self.start, first - base), min(self.end, behind - base)
        return Split(self.segment, start, end) if start < end else None


class Borders(NamedTuple):
    """The last event of a split: the state at its start, and at its end."""

    entry: ScanState
    exit: ScanState


SEGMENT_START = ScanState(0)


# Splits of one segment. No broker writes segments of 2 GiB or more; one that seems to have a terabyte is a hole.
_MOST_SPLITS = 256


def plan_splits(segments: Iterable[Segment], split_size: int) -> list[Split]:
    """Return the splits of segments, cut at multiples of `split_size` bytes; an empty segment has none.

    A segment of more than 256 times that is cut into 256 splits.
    """
    return [
        Split(segment, start, min(start + step, segment.size))
        for segment in segments
        for step in (max(split_size, -(-segment.size // _MOST_SPLITS)),)
        for start in range(0, segment.size, step)
    ]

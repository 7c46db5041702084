"""Byte ranges of the log that are scanned one by one, and how their borders meet."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqinspect.store.model import Segment


@dataclass(frozen=True, slots=True)
class ScanState:
    """Where the walk stands when it comes to a split's border: what lies before it decides."""

    position: int  # where the next element of the chain begins, at the border or behind it
    in_gap: bool = False  # none begins here: the bytes before the border belong to a gap
    stale: bool = False  # the chain is in records of an earlier life
    closed: bool = False  # a blank record ended the segment: nothing more is a record
    # Store times of the last few records of this life, where the walk came by them.
    last_times: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range [start, end) of a segment, in positions; its records are those that start there.

    `entry` is how the split before it ended, where that is known; otherwise the split finds out by
    looking back, which is right unless the damage before it reaches further.
    """

    segment: Segment
    start: int
    end: int
    entry: ScanState | None = None


class Borders(NamedTuple):
    """The last event of a split: how it began, and how it left the chain to the next one."""

    entry: ScanState
    exit: ScanState


SEGMENT_START = ScanState(0)


def plan_splits(segments: Iterable[Segment], split_size: int) -> list[Split]:
    """Cut segments at multiples of `split_size`; an empty segment gives no split."""
    return [
        Split(segment, start, min(start + split_size, segment.size))
        for segment in segments
        for start in range(0, segment.size, split_size)
    ]

"""Which file holds which range of the commit log.

    physical offset   0         file_size   2·file_size        end of the log
    segments          |------seg 0-----|------seg 1-----|------seg 2--:·······|
    parts             |----part----|----part-----|----part-----|-part-:-tail--|

The grid is absolute, at multiples of `file_size` in physical offsets, so borders stay where they are when
retention deletes the first segments. The end of the log is a border too: what lies behind it was not covered and is
exported again later. So is the end of an earlier export, and with --closed-only the start of the open segment.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from rmqinspect.commitlog.splits import Split
from rmqinspect.export.names import range_name
from rmqinspect.store.model import Segment, Store


@dataclass(frozen=True, slots=True)
class LogPart:
    """The records of one store that start in [start, end), physical offsets: one file, or one per partition."""

    store: str
    start: int
    end: int
    splits: tuple[Split, ...]
    is_tail: bool = False  # behind the log's end, where a live broker writes next: exported again by --incremental
    writes: bool = True  # its messages are exported; else it is only read for LOG_TABLES
    cold: bool = False  # starts inside a segment whose earlier bytes no part reads

    @property
    def name(self) -> str:
        """Name of the file."""
        return range_name(self.store, self.start, self.end)

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(split.end - split.start for split in self.splits)


@dataclass(frozen=True, slots=True)
class LogReach:
    """How far the log of a store goes. Offsets are physical."""

    start: int
    end: int  # behind the last record and the blank record that may follow it
    open_segment: Segment | None  # the one the broker writes to; None if the log ends with a full one
    pointed_at: int | None = None  # highest offset that a queue points at

    def is_closed(self, segment: Segment) -> bool:
        """Whether a segment lies completely before the log's end."""
        return segment.end <= self.end


def plan_log(
    store: Store, file_size: int, reach: LogReach, start: int = 0, *, closed_only: bool = False
) -> list[LogPart]:
    """Cut a log into parts, ascending. `start` is where an earlier export ended, 0 without one."""
    borders = {start, reach.end}
    if closed_only and reach.open_segment is not None:
        borders.add(reach.open_segment.base)
    splits: dict[tuple[int, int], list[Split]] = defaultdict(list)
    for segment in store.segments:
        for first, end in pairwise(_cuts(segment, file_size, borders)):
            key = first // file_size, sum(first >= border for border in borders)
            splits[key].append(Split(segment, first - segment.base, end - segment.base))
    return [_part(store.name, splits[key], reach) for key in sorted(splits)]


def _cuts(segment: Segment, file_size: int, borders: set[int]) -> list[int]:
    first, end = segment.base, segment.end
    grid = range((first // file_size + 1) * file_size, end, file_size)
    return sorted({first, end, *grid, *(border for border in borders if first < border < end)})


def _part(store: str, splits: list[Split], reach: LogReach) -> LogPart:
    start = min(split.segment.base + split.start for split in splits)
    end = max(split.segment.base + split.end for split in splits)
    return LogPart(store, start, end, tuple(splits), start >= reach.end)

"""Which file holds which part of the log."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from rmqinspect.commitlog.splits import Split
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.consumequeue.bounds import peek_queues
from rmqinspect.export.names import range_name
from rmqinspect.store.model import Segment, Store


@dataclass(frozen=True, slots=True)
class LogPart:
    """The records that start in [start, end), physical offsets, of one store: one file, or one a partition.

    `is_tail`: behind the log's end, where a broker that goes on writes next; an incremental export
    writes such a part again. `writes`: its messages are asked for. `cold`: it begins inside of a
    segment of which no part before it is read.
    """

    store: str
    start: int
    end: int
    splits: tuple[Split, ...]
    is_tail: bool = False
    writes: bool = True
    cold: bool = False

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
    end: int  # behind the last record, and the blank record that may follow it
    open_segment: Segment | None  # the one that is still written, None if the log ends with a full one
    pointed_at: int | None = None  # the last place in it that a queue points to

    def is_closed(self, segment: Segment) -> bool:
        """Tell whether a segment lies before the log's end as a whole."""
        return segment.base + segment.size <= self.end


def reach_of(store: Store) -> LogReach:
    """Return how far a log goes, from a few MiB of it; damage near its end makes it shorter, never longer."""
    hints = [queue.last_physical_offset for queue in peek_queues(store, []) if queue.last_physical_offset is not None]
    found = find_log_end(store, hints)
    end = found.end if found.last_record is not None and found.end is not None else store.log_start
    still_written = store.segment_at(end)
    return LogReach(store.log_start, end, still_written, max(hints, default=None))


def plan_log(
    store: Store, file_size: int, reach: LogReach, start: int = 0, *, closed_only: bool = False
) -> list[LogPart]:
    """Cut a log into parts, at multiples of `file_size` in physical offsets.

    The grid is absolute, so the first segments may expire without moving a border. The log's end is a
    border too: what stands behind it is no part of what was covered. So is `start`, where an earlier
    export ended, and, if the closed segments are to be written alone, where the open one begins.
    """
    more = {start, reach.end}
    if closed_only and reach.open_segment is not None:
        more.add(reach.open_segment.base)
    splits: dict[tuple[int, int], list[Split]] = defaultdict(list)
    for segment in store.segments:
        for first, end in pairwise(_borders(segment, file_size, more)):
            key = first // file_size, sum(first >= border for border in more)
            splits[key].append(Split(segment, first - segment.base, end - segment.base))
    return [_part(store.name, splits[key], reach) for key in sorted(splits)]


def _borders(segment: Segment, file_size: int, more: set[int]) -> list[int]:
    first, end = segment.base, segment.base + segment.size
    grid = range((first // file_size + 1) * file_size, end, file_size)
    return sorted({first, end, *grid, *(border for border in more if first < border < end)})


def _part(store: str, splits: list[Split], reach: LogReach) -> LogPart:
    start = min(split.segment.base + split.start for split in splits)
    end = max(split.segment.base + split.end for split in splits)
    return LogPart(store, start, end, tuple(splits), start >= reach.end)

"""Records of an earlier life of a file: whole, in their place, and behind the log's end.

A broker that starts after a crash cuts the log at the last record it trusts, but erases nothing. What
stood behind the cut stays there until new records reach it:

    |new|new|new|new|zeros or a torn record|old|old|old|...

Such records prove themselves like any other. Their store times give them away: older than those of the
records before the gap. Source: MappedFileQueue#truncateDirtyFiles.
"""

from collections.abc import Sequence

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.find_record import ChainFinder

# The median of a few times, and more than a clock is set back now and then: one damaged time, or a
# step of the clock, makes no earlier life.
_FEW_TIMES = 3
_OLDER_MS = 1000


class LastTimes:
    """The store times (ms) of the last records of this life, as the scan meets them."""

    def __init__(self, finder: ChainFinder) -> None:
        self._finder = finder
        self.last: tuple[int, ...] = ()

    def take(self, times: Ints, *, follows: bool) -> None:
        """Take the times of a run of records; `follows`: no gap lies before it."""
        self.last = (*(self.last if follows else ()), *times[-_FEW_TIMES:].tolist())[-_FEW_TIMES:]

    def is_stale(self, physical_offset: int) -> bool:
        """Whether the records from an offset on, found behind a gap, are older than those before the gap."""
        before = _median(self.last) if self.last else self._finder.timestamp_before(physical_offset)
        times = self._finder.timestamps_from(physical_offset, _FEW_TIMES)
        return bool(times) and before is not None and before - _median(times) > _OLDER_MS


def _median(times: Sequence[int]) -> int:
    return sorted(times)[len(times) // 2]

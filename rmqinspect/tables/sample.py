"""A sample of the log: windows of equal size, evenly spread, and how far sums from them may be off.

    log        |-------------------------------------------------------|
    windows       |--|          |--|          |--|          |--|

Each window counts the records that start in it. The windows are taken as if drawn at random, one cluster of records
each; a log that repeats itself in step with them would deceive it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.splits import Split
from rmqinspect.store.model import Segment

WINDOW = 1 << 20  # bytes

_TWO_SIDED_95 = 1.96  # standard deviations


@dataclass(frozen=True, slots=True)
class Sample:
    """Windows of the log."""

    splits: tuple[Split, ...]
    size: int  # bytes of them
    whole: int  # bytes of the log

    @property
    def scale(self) -> float:
        """What sums over the windows are multiplied by."""
        return self.whole / self.size if self.size else 1.0

    def errors(self, sums: Ints, squares: NDArray[np.float64]) -> Ints:
        """Return half the 95 % interval around each scaled sum; `squares`: the sum of squares of each window's."""
        count = len(self.splits)
        variance = (squares - sums.astype(np.float64) ** 2 / count) / max(count - 1, 1)
        unread = 1 - self.size / self.whole
        off = _TWO_SIDED_95 * self.scale * np.sqrt(np.maximum(variance, 0) * count * unread)
        return np.rint(off).astype(np.int64)


def plan_sample(segments: Sequence[Segment], size: int) -> Sample | None:
    """Return windows of together about `size` bytes; None where that is all of the log, or nearly."""
    whole = sum(segment.size for segment in segments)
    count = max(2, size // WINDOW)
    if count * WINDOW * 2 > whole:
        return None
    splits, begins, at = [], [whole * (2 * number + 1) // (2 * count) for number in range(count)], 0
    for segment in segments:
        for begin in (begin for begin in begins if at <= begin < at + segment.size):
            start = max(0, min(begin - at, segment.size - WINDOW))
            splits.append(Split(segment, start, min(start + WINDOW, segment.size)))
        at += segment.size
    return Sample(tuple(splits), sum(split.end - split.start for split in splits), whole)

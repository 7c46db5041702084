"""Where store timestamps run backwards, and which record is out of line there: CL-TIME.

    time     |        high                 . .     .                     . . high
             |   . .      low . .               low                              low . .
             |  alone too new              alone too old              the clock was set back
             |
             +-- log

The append lock makes one record follow the other, so only a clock that was set back makes times run backwards.
A time that was changed on disk leaves its neighbours in line.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.tables.capped_list import CappedList

# Clocks are often set back a little; from a second on, searches by time go wrong.
BACKWARDS_MS = 1000


class Stamp(NamedTuple):
    """The store timestamp of one record."""

    place: int  # physical offset
    time: int  # ms


@dataclass(frozen=True, slots=True)
class TimeStep:
    """Two neighbours whose times run backwards, and what stands before and behind them; None: unknown, or nothing."""

    before: int | None  # ms
    high: Stamp
    low: Stamp
    after: int | None  # ms

    @property
    def places(self) -> frozenset[int]:
        """The physical offsets of both."""
        return frozenset((self.high.place, self.low.place))

    @property
    def odd(self) -> Stamp | None:
        """The record that alone is out of line, while its neighbours are close to each other; None where none is."""
        close = max(BACKWARDS_MS, (self.high.time - self.low.time) // 100)
        high = self.before is not None and 0 <= self.low.time - self.before <= close
        low = self.after is not None and 0 <= self.after - self.high.time <= close
        return None if high == low else self.high if high else self.low


@dataclass(slots=True)
class SplitTimes:
    """What one split shows: its steps, and the records that the neighbouring splits compare with their own."""

    steps: list[TimeStep] = field(default_factory=list)
    first: list[Stamp] = field(default_factory=list)  # up to two, unless a gap precedes them
    last: list[Stamp] = field(default_factory=list)  # up to two, behind the last gap
    gap: bool = False  # a gap lies in the split


class TimeSteps:
    """Follows the store timestamps through the windows of one split."""

    def __init__(self, limit: int) -> None:
        """`limit` bounds the steps."""
        self._steps = CappedList[TimeStep, str](limit, lambda step: "CL-TIME")
        self.suppressed = self._steps.suppressed
        self._times = SplitTimes(self._steps.rows)

    def forget(self) -> None:
        """Forget the last records: a gap may have held any number."""
        self._times.last = []
        self._times.gap = True

    def follow(self, places: Ints, times: Ints, *, ascend: bool) -> None:
        """Take the records of the next window: physical offsets and times in ms.

        `ascend`: no time is before that of the record before it, also not the first one.
        """
        edge = self._times.last
        if len(self._times.first) < 2 and not self._times.gap:
            self._times.first += _stamps(places[:2], times[:2])[: 2 - len(self._times.first)]
        if edge:
            _see_after(self._steps.rows, edge[-1], int(times[0]))
        if ascend:
            self._times.last = (edge + _stamps(places[-2:], times[-2:]))[-2:]
            return
        if edge:
            places = np.concatenate(([stamp.place for stamp in edge], places))
            times = np.concatenate(([stamp.time for stamp in edge], times))
        back = np.flatnonzero(times[:-1] - times[1:] > BACKWARDS_MS)
        back = back[back >= len(edge) - 1]  # the others are known
        for at in self._steps.admit("CL-TIME", back.tolist()):
            high, low = _stamps(places[at : at + 2], times[at : at + 2])
            before = int(times[at - 1]) if at else None
            after = int(times[at + 2]) if at + 2 < len(times) else None
            self._steps.add(TimeStep(before, high, low, after))
        self._times.last = _stamps(places[-2:], times[-2:])

    def result(self) -> SplitTimes:
        """Return what was seen."""
        return self._times


class LogTimes:
    """The steps of the whole log, from the results of its splits in log order."""

    def __init__(self, limit: int) -> None:
        self._steps = CappedList[TimeStep, str](limit, lambda step: "CL-TIME")
        self.suppressed = self._steps.suppressed
        self.steps = self._steps.rows
        self._last: list[Stamp] = []

    def forget(self) -> None:
        """Forget the last records: what follows does not continue them."""
        self._last = []

    def take(self, split: SplitTimes) -> None:
        """Take the next split's times."""
        steps = split.steps
        if self._last and split.first:
            last, first = self._last[-1], split.first[0]
            _see_after(self.steps, last, first.time)
            steps = [replace(step, before=last.time) if step.high == first else step for step in steps]
            if last.time - first.time > BACKWARDS_MS:
                before = self._last[0].time if len(self._last) > 1 else None
                after = split.first[1].time if len(split.first) > 1 else None
                # Not capped: at most one per split.
                self.steps.append(TimeStep(before, last, first, after))
        self._steps.extend(steps)
        self._last = split.last if split.gap else (self._last + split.last)[-2:]


def _stamps(places: Ints, times: Ints) -> list[Stamp]:
    return [Stamp(int(place), int(time)) for place, time in zip(places, times, strict=True)]


def _see_after(steps: list[TimeStep], last: Stamp, time: int) -> None:
    """Complete the last step if it ended in `last`, the newest record so far: `time` follows it."""
    if steps and steps[-1].low == last and steps[-1].after is None:
        steps[-1] = replace(steps[-1], after=time)

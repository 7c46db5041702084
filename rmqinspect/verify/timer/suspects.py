"""Units that stand in a wrong chain, so that one damaged unit is one finding.

A unit with a damaged due time is put into the wrong chain. Two more links then look wrong: the next unit of the
wrong chain does not lead to it, and the next unit of its own chain does.

    own chain      A <- B <- C        B's time is damaged
    as replayed    A <------ C        C leads to B: suspect, not reported again
                   X <- B <- Y        B leads to A instead of X: reported
                                      Y leads to X instead of B: suspect, not reported again
"""

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.timer.wheel import NO_POSITION


class Suspects:
    """Positions of suspect units, ascending, each with the position that the unit behind it should lead to."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.position: Ints = np.empty(0, np.int64)
        self.before: Ints = np.empty(0, np.int64)

    def has(self, positions: Ints) -> Bools:
        """Return which positions are a suspect's."""
        return np.isin(positions, self.position)

    def judge(self, position: Ints, before: Ints, expected: Ints) -> Bools:
        """Return which of these units to report; `before` is where each leads, and is not `expected`.

        A link that is explained by a suspect is not reported. The damaged unit itself may show nothing.
        """
        self._add(position, expected)
        reported: Bools = ~self.has(before) | (before >= position)
        blamed = before[reported & (expected == NO_POSITION)]
        self._add(blamed, np.full(len(blamed), NO_POSITION))
        if len(self.position):
            at = np.minimum(np.searchsorted(self.position, expected), len(self.position) - 1)
            reported &= (self.position[at] != expected) | (self.before[at] != before)
        return reported

    def _add(self, position: Ints, before: Ints) -> None:
        room = max(0, self.limit - len(self.position))
        self.position = np.concatenate((self.position, position[:room]))
        order = np.argsort(self.position, kind="stable")
        self.before = np.concatenate((self.before, before[:room]))[order]
        self.position = self.position[order]

"""How many bytes came in when: the store times of a log, in as many steps as fit into a line."""

from dataclasses import dataclass

import numpy as np

from rmqinspect.tables.tally import BYTES
from rmqinspect.tables.usage_fold import Usage

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000  # ms
_STEPS = (
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 7, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True)
class Inflow:
    """Bytes of records by store time."""

    begin: int  # ms since 1970, a multiple of `step`
    step: int  # ms
    sizes: tuple[int, ...]  # bytes in each step

    @property
    def end(self) -> int:
        """The end of the last step, in ms."""
        return self.begin + self.step * len(self.sizes)


def inflow_of(usage: Usage, most: int) -> Inflow | None:
    """Return the bytes in at most so many steps; None without records, or where clocks were years apart."""
    times = usage.times.keys.integers
    if not len(times):
        return None
    for step in _STEPS:
        if step < usage.unit:
            continue
        numbers = times // (step // usage.unit)
        first = int(numbers.min())
        if int(numbers.max()) - first < most:
            sizes = np.zeros(int(numbers.max()) - first + 1, np.int64)
            np.add.at(sizes, numbers - first, usage.times.sums[:, BYTES])
            return Inflow(first * step, step, tuple(sizes.tolist()))
    return None

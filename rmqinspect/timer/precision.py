"""The precision of the timer wheel: ms per slot, which no file of the timer states.

Source: MessageStoreConfig.timerPrecisionMs, TimerMessageStore#formatTimeMs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.timer import DEFAULT_PRECISION, TimerUnit
from rmqinspect.store.broker_conf import setting_size
from rmqinspect.store.reader import open_file
from rmqinspect.timer.log import TimerLog, are_units, due_times, read_rows
from rmqinspect.timer.wheel import Slots

_JAVA_INT = 1 << 31  # the setting is one
_SAMPLED_SLOTS = 64
_CANDIDATES = (1000, 500, 200, 100, 50, 20, 10, 5, 2, 1)  # ms
# Share of enqueue times that are multiples of the precision; of a precision twice as large only half are.
_SHARE = 0.75


def find_precision(settings: Mapping[str, str], log: TimerLog, wheels: Iterable[Slots]) -> int:
    """Return the precision in ms: as configured, else as slots and their units show, else as enqueue times do.

    :raises Unreadable: the system reports an I/O error.
    """
    configured = setting_size(settings, "timerPrecisionMs")
    if configured and configured < _JAVA_INT:
        return configured
    if not log.files:
        return DEFAULT_PRECISION
    return next(filter(None, (_from_slots(log, slots) for slots in wheels)), None) or _from_units(log)


def _from_slots(log: TimerLog, slots: Slots) -> int | None:
    """Return the ratio of a unit's due time to its slot's time that most slots show."""
    sample = slots.select(np.flatnonzero((slots.time > 0) & (slots.last >= log.start))[:_SAMPLED_SLOTS])
    units, found = log.read_at(sample.last)
    votes = Counter((due_times(units)[found] // sample.time[found]).tolist())
    likely = max(votes, key=lambda vote: votes[vote], default=0)
    return likely if 0 < likely < _JAVA_INT else None


def _from_units(log: TimerLog) -> int:
    """Return the largest precision that most enqueue times are a multiple of: they are cut to it."""
    first = log.files[0]
    with open_file(first.file) as reader:
        for _, units in read_rows(reader, dtype_of(TimerUnit), first.rows):
            times = units["enqueue_timestamp"][are_units(units)]
            fits = (p for p in _CANDIDATES if len(times) and np.mean(times % p == 0) >= _SHARE)
            return next(fits, DEFAULT_PRECISION)
    return DEFAULT_PRECISION

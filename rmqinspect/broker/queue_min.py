"""Where a queue begins for its consumers, as a broker finds it at start and after retention.

    units       | place 0 | place 0 | 131,090 | 131,304 | ...         log begins at 131,072
    offsets     |    0         1         2         3
    minimum                              ^

Brokers of 4.x look at the units of the first file from its start, later ones by halves, which takes another unit
where places do not ascend. Where every record is gone, 4.x begins at 0, later ones behind the last unit.

Source: ConsumeQueue#correctMinOffset, BatchConsumeQueue#correctMinOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FirstFile:
    """The used units of a queue's first file, and the queue's end."""

    begin: int  # queue offset that the file begins with
    places: Sequence[int]  # physical offsets of its units
    end: int  # the queue's maximum
    last_place: int | None  # physical offset of the queue's last unit, if the last file has any


def walked_min(file: FirstFile, log_start: int) -> int:
    """Return the minimum as 4.x finds it."""
    return next((file.begin + row for row, place in enumerate(file.places) if place >= log_start), 0)


def bisected_min(file: FirstFile, log_start: int) -> int:
    """Return the minimum as 5.x finds it, for a queue that was just loaded."""
    if not file.end:
        return 0
    if file.last_place is not None and file.last_place < log_start:
        return file.end
    places = file.places
    if not len(places) or (not file.begin and places[0] >= log_start):
        return 0
    low, high = 0, len(places) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if places[middle] > log_start:
            high = middle
        elif places[middle] == log_start:
            low = high = middle
        else:
            low = middle
    return next((file.begin + row for row in range(low, high + 1) if places[row] >= log_start), 0)


def batch_min(units: Sequence[tuple[int, int, int]], log_start: int) -> int:
    """Return the minimum of a batch queue; -1 without units.

    `units` are (physical offset, first queue offset, messages) of the first file.
    """
    if not units:
        return -1
    lowest = units[0][1]
    for place, first, messages in units:
        if place >= log_start:
            break
        lowest = first + messages
    return lowest

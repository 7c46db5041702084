"""Decimal numbers separated by commas, in many byte ranges at once."""

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import Bytes, IntsOut, kernel

NOT_A_NUMBER = -1

_COMMA, _ZERO = ord(","), ord("0")
_LARGEST_TENTH = (2**63 - 1 - 9) // 10  # ten times this and a digit stay within 63 bits


def read_numbers(raw: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return (which range, its number) for each number in some ranges, as far as they are inside of the buffer.

    `12`, `1,0,` and `5,` are such lists; nothing between two commas is no number. What is no number, is negative or
    above 2^63 - 9 is NOT_A_NUMBER.
    """
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    room = (int(np.clip(ends - starts, 0, len(raw)).sum()) + len(starts)) // 2 + 1  # each takes a digit and a comma
    ranges, numbers = np.empty(room, np.int64), np.empty(room, np.int64)
    count = _read(raw, starts, ends, ranges, numbers)
    return ranges[:count].copy(), numbers[:count].copy()


@kernel
def _read(raw: Bytes, starts: Ints, ends: Ints, ranges: IntsOut, numbers: IntsOut) -> int:
    """Write the numbers; return how many there are."""
    count = 0
    for row in range(len(starts)):
        at, end = max(starts[row], 0), min(ends[row], len(raw))
        while at < end:
            first, number = at, 0
            while at < end and raw[at] != _COMMA:
                digit = raw[at] - _ZERO
                if number >= 0:
                    number = number * 10 + digit if 0 <= digit <= 9 and number <= _LARGEST_TENTH else NOT_A_NUMBER
                at += 1
            if first < at and count < len(numbers):
                ranges[count], numbers[count] = row, number
                count += 1
            at += 1
    return count

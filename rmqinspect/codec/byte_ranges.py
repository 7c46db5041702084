"""Byte ranges of a buffer as an Arrow array."""

from typing import Any

import numpy as np
import pyarrow as pa

from rmqinspect.codec.arrays import Ints


def take_ranges(raw: Any, starts: Ints, ends: Ints) -> pa.Array:
    """Return the byte ranges [starts, ends) of a buffer as a binary array; the bytes are copied.

    The ranges must ascend and not overlap. Then the buffer is itself a binary array that alternates
    between ranges and the bytes between them, and one `take` of every second element copies them.
    """
    count = len(starts)
    if not count or raw is None:
        return pa.array([b""] * count, pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])
    return both.take(pa.array(np.arange(0, 2 * count, 2)))

"""Byte ranges of a buffer, copied one behind the other: binary columns of Arrow.

raw         ...|abc|..|de|....|f|...
starts         ^      ^       ^         ends behind each
content     |abc|de|f|
offsets     0   3  5 6                  int32, one more than ranges
"""

from typing import Any

import numpy as np
import pyarrow as pa

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import Bytes, BytesOut, Int32s, Int32sOut, IntsOut, copy_bytes, kernel


def take_ranges(raw: Any, starts: Ints, ends: Ints) -> pa.Array:
    """Return the byte ranges [starts, ends) of a buffer as a binary array, together below 2^31 bytes.

    The bytes are copied. What is not inside of the buffer is left out.
    """
    content = np.frombuffer(raw if raw is not None else b"", np.uint8)
    begins, offsets = np.empty(len(starts), np.int64), np.empty(len(starts) + 1, np.int32)
    size = _lay_out(len(content), np.ascontiguousarray(starts), np.ascontiguousarray(ends), begins, offsets)
    return _column(pa.binary(), content, begins, offsets, size)


def take_values(values: pa.Array, which: Int32s) -> pa.Array:
    """Return the binary values or texts with some indices, null for a negative one; `values` has no nulls."""
    count = len(values)
    begins, offsets = np.empty(len(which), np.int64), np.empty(len(which) + 1, np.int32)
    borders = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: count + 1]
    content = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    size = _lay_out_values(len(content), borders, which, begins, offsets)
    absent = which < 0
    nulls = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return _column(values.type, content, begins, offsets, size, nulls)


def _column(
    type_: pa.DataType, content: Bytes, starts: Ints, offsets: Int32s, size: int, nulls: pa.Buffer | None = None
) -> pa.Array:
    copied = np.empty(size, np.uint8)
    _copy(content, starts, offsets, copied)
    buffers = [nulls, pa.py_buffer(offsets), pa.py_buffer(copied)]
    return pa.Array.from_buffers(type_, len(starts), buffers)


@kernel
def _lay_out(size: int, starts: Ints, ends: Ints, begins: IntsOut, offsets: Int32sOut) -> int:
    """Write where each range begins in a buffer of a size, and where its copy does; return the size of all copies."""
    offset = 0  # at most 2^31, as the caller promises
    for number in range(len(starts)):
        begin = min(max(starts[number], 0), size)
        begins[number] = begin
        offsets[number] = offset
        offset += max(min(ends[number], size) - begin, 0)
    offsets[len(starts)] = offset
    return offset


@kernel
def _lay_out_values(size: int, borders: Int32s, which: Int32s, begins: IntsOut, offsets: Int32sOut) -> int:
    """The same for some of the values of a column; value i is at [borders[i], borders[i + 1])."""
    offset = 0
    for number in range(len(which)):
        value = which[number]
        begins[number] = 0
        offsets[number] = offset
        if 0 <= value < len(borders) - 1:
            begins[number] = min(max(borders[value], 0), size)
            offset += max(min(borders[value + 1], size) - begins[number], 0)
    offsets[len(which)] = offset
    return offset


@kernel
def _copy(raw: Bytes, starts: Ints, offsets: Int32s, out: BytesOut) -> None:
    """Copy the ranges laid out."""
    for number in range(len(starts)):
        start, at = starts[number], offsets[number]
        size = offsets[number + 1] - at
        if start >= 0 and at >= 0 and size > 0 and size <= len(raw) - start and size <= len(out) - at:
            copy_bytes(raw, start, start + size, out, at)

"""numpy columns to Arrow columns, without a Python object per value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.tables.table import TIMESTAMP
from rmqinspect.text import is_utf8, text_of
from rmqinspect.times import END_MILLI, FIRST_MILLI

_ESCAPED = rb"\x"  # what `text_of` writes otherwise in valid UTF-8


def text(raw: pa.Array) -> tuple[pa.Array, Bools]:
    """Return a binary array as strings, escaped as by `text_of`, and which values were not valid UTF-8."""
    count = len(raw)
    invalid: Bools = np.zeros(count, np.bool_)
    strings = as_strings(raw)
    if not _is_ascii(raw) and not _is_text(strings):
        values = raw.to_pylist()
        invalid[:] = [not is_utf8(value) for value in values]
        decoded = (text_of(value) if odd else value.decode() for value, odd in zip(values, invalid, strict=True))
        strings = pa.array(decoded, pa.string())
    return strings, invalid


def name_column(raw: pa.Array) -> tuple[pa.Array, Bools]:
    """Return a binary array of names as strings, escaped as by `text_of`, and which were not valid UTF-8."""
    names, invalid = text(raw)
    content = raw.buffers()[2]
    if content is not None and _ESCAPED in content.to_pybytes():
        names = pa.array([text_of(value) for value in raw.to_pylist()], pa.string())
    return names, invalid


def as_strings(raw: pa.Array) -> pa.Array:
    """Return the values of a binary array, which are valid UTF-8, as strings."""
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _is_ascii(raw: pa.Array) -> bool:
    content = raw.buffers()[2]
    return content is None or int(np.frombuffer(content, np.uint8).max(initial=0)) < 0x80


def _is_text(strings: pa.Array) -> bool:
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def pick(names: Sequence[str], numbers: NDArray[Any]) -> pa.Array:
    """Return `names[number]` for each number; null for a negative one."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if 0 <= low == high:
        return repeat(names[low], len(numbers))
    indices = pa.array(numbers.astype(np.int32), mask=numbers < 0 if low < 0 else None)
    return pa.array(names, pa.string()).take(indices)


def repeat(word: str, count: int) -> pa.Array:
    """Return a column of one word `count` times, the common case for columns of few words."""
    content = word.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(content))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(content * count))


def millis(values: Ints) -> tuple[pa.Array, Bools]:
    """Return milliseconds as timestamps, null outside the years 1 to 9999, and which values are outside."""
    outside = (values < FIRST_MILLI) | (values >= END_MILLI)
    if not outside.any():
        return pa.array(values * 1000).view(TIMESTAMP), outside
    return pa.array(np.where(outside, 0, values) * 1000, mask=outside).view(TIMESTAMP), outside

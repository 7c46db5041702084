"""Numbers of distinct values, compared with a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.codec.byte_ranges import Key, Numbering
from rmqinspect.codec.kernels import compile_mode

INTEGERS = st.sampled_from((0, 1, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)))
KEYS = st.lists(st.tuples(st.binary(max_size=9) | st.sampled_from((b"x" * 40_000, b"a" * 8)), INTEGERS), max_size=40)


def numbered(numbering: Numbering, keys: list[Key]) -> list[int]:
    raw = b"..." + b"".join(text for text, _ in keys)
    sizes = np.array([len(text) for text, _ in keys], np.int64)
    ends = 3 + np.cumsum(sizes)
    starts = ends - sizes
    integers = np.array([integer for _, integer in keys], np.int64)
    found: list[int] = numbering.number(np.frombuffer(raw, np.uint8), starts, ends, integers).tolist()
    return found


@given(st.lists(KEYS, min_size=1, max_size=3))
def test_keys_are_numbered_as_they_appear(lists: list[list[Key]]) -> None:
    numbering, known = Numbering(), dict[Key, int]()
    for keys in lists:
        assert numbered(numbering, keys) == [known.setdefault(key, len(known)) for key in keys]
    assert numbering.keys_from(0) == list(known)
    other = Numbering()
    numbered(other, lists[-1][::-1])
    before = len(numbering)
    assert numbering.number_of(other).tolist() == [known[key] for key in other.keys_from(0)]
    assert len(numbering) == before


@pytest.mark.parametrize("mode", ["always", "never"])
def test_many_keys(mode: str) -> None:
    keys = [(f"topic-{number % 997}".encode(), number % 7) for number in range(8_000)]
    with compile_mode(mode):
        numbering = Numbering()
        numbered(numbering, keys[:5_000])
        assert numbered(numbering, keys) == [number % 6_979 for number in range(8_000)]
    assert len(numbering) == 997 * 7 == len(set(numbering.keys_from(0)))


def test_what_lies_outside_of_the_bytes_is_left_out() -> None:
    numbering = Numbering()
    columns = (np.array(column) for column in ((-5, 2, 9), (1, 99, 12), (0, 0, 0)))
    numbering.number(np.frombuffer(b"abcd", np.uint8), *columns)
    assert numbering.keys_from(0) == [(b"a", 0), (b"cd", 0), (b"", 0)]

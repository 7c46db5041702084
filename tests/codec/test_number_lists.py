"""Lists of numbers are split as Python would split them, compiled and uncompiled."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqinspect.codec.byte_ranges import NOT_A_NUMBER, read_numbers
from rmqinspect.codec.kernels import compile_mode


def plain(text: bytes) -> list[int]:
    """Return the numbers of one list."""
    parts = [part for part in text.split(b",") if part]
    return [int(part) if part.isdigit() and int(part) <= 2**63 - 9 else NOT_A_NUMBER for part in parts]


@pytest.mark.parametrize("mode", ["always", "never"])
@settings(deadline=None)  # the first example compiles
@given(texts=st.lists(st.lists(st.sampled_from(b"0179,,-x\xff"), max_size=24).map(bytes), max_size=5))
@example(texts=[b"1,0,", b"", b",", b"9223372036854775799", b"9223372036854775800,92233720368547758070", b"00012"])
def test_numbers_are_those_of_each_range(mode: str, texts: list[bytes]) -> None:
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = ends - np.array([len(text) for text in texts], np.int64)
    with compile_mode(mode):
        ranges, numbers = read_numbers(np.frombuffer(b"".join(texts), np.uint8), starts, ends)
    expected = [(row, number) for row, text in enumerate(texts) for number in plain(text)]
    assert list(zip(ranges.tolist(), numbers.tolist(), strict=True)) == expected


def test_a_range_outside_of_the_buffer_is_cut() -> None:
    raw = np.frombuffer(b"12,34", np.uint8)
    ranges, numbers = read_numbers(raw, np.array([-3, 3, 90], np.int64), np.array([2, 99, 99], np.int64))
    assert (ranges.tolist(), numbers.tolist()) == ([0, 1], [12, 34])

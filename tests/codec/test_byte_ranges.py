"""Ranges and values copied into columns are what slices of the bytes are, compiled or not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.byte_ranges import take_ranges, take_values
from rmqinspect.codec.kernels import compile_mode

PLACES = st.integers(-5, 300)
BOTH = pytest.mark.parametrize("mode", ["always", "never"])


@BOTH
@settings(deadline=None)
@given(raw=st.binary(max_size=260), places=st.lists(st.tuples(PLACES, PLACES), max_size=12))
def test_ranges_are_slices_as_far_as_they_are_inside(mode: str, raw: bytes, places: list[tuple[int, int]]) -> None:
    starts, ends = (np.array([place[side] for place in places], np.int64) for side in (0, 1))
    with compile_mode(mode):
        column = take_ranges(np.frombuffer(raw, np.uint8), starts, ends)
    column.validate(full=True)
    assert column.to_pylist() == [raw[max(start, 0) : max(end, 0)] for start, end in places]


@BOTH
@settings(deadline=None)
@given(texts=st.lists(st.text(max_size=40), max_size=8), which=st.lists(st.integers(-1, 9), max_size=20))
def test_values_are_those_with_the_indices(mode: str, texts: list[str], which: list[int]) -> None:
    indices = [index for index in which if index < len(texts)]
    with compile_mode(mode):
        column = take_values(pa.array(texts, pa.string()), np.array(indices, np.int32))
    column.validate(full=True)
    assert column.to_pylist() == [None if index < 0 else texts[index] for index in indices]


def test_values_of_a_slice_are_its_own() -> None:
    column = take_values(pa.array(["a", "bc", "d", ""]).slice(1, 2), np.array([1, 0, -1], np.int32))
    assert column.to_pylist() == ["d", "bc", None]

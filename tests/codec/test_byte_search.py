"""The search in byte ranges finds what `in` finds, compiled and uncompiled."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqinspect.codec.byte_ranges import containing
from rmqinspect.codec.kernels import BLOCK, compile_mode

_PLACES = st.lists(st.tuples(st.integers(-9, 300), st.integers(-9, 300)), max_size=5)


def bytes_of(letters: bytes, most: int) -> st.SearchStrategy[bytes]:
    """Few letters: texts that nearly agree are common."""
    return st.lists(st.sampled_from(letters), max_size=most).map(bytes)


@pytest.mark.parametrize("mode", ["always", "never"])
@settings(deadline=None)  # the first example compiles
@given(raw=bytes_of(b"ab\0\xff", 200), texts=st.lists(bytes_of(b"ab\0\xff", 70), max_size=3), places=_PLACES)
@example(raw=bytes(BLOCK) + b"ab", texts=[b"\0ab"], places=[(0, BLOCK + 2), (0, BLOCK + 1), (BLOCK, BLOCK + 2)])
@example(raw=b"a" * 4 * BLOCK, texts=[b"a" * BLOCK + b"b", b"a" * 2 * BLOCK], places=[(0, 99), (70, 3 * BLOCK)])
@example(raw=b"ab", texts=[b""], places=[(0, 0), (5, 9), (2, 1)])
def test_a_range_contains_what_it_contains(
    mode: str, raw: bytes, texts: list[bytes], places: list[tuple[int, int]]
) -> None:
    starts, ends = (np.array(column, np.int64) for column in (zip(*places, strict=True) if places else ((), ())))
    with compile_mode(mode):
        found = containing(np.frombuffer(raw, np.uint8), starts, ends, texts)
    inside = [raw[max(start, 0) : max(end, start, 0)] for start, end in places]
    assert found.tolist() == [any(text in part for text in texts) for part in inside]

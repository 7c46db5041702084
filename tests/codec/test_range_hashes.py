"""Hashes of ranges are equal where the bytes are, and nowhere else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.codec.byte_ranges import hash_ranges, join_hashes

# Few letters, and sizes around a word: texts that nearly agree are common.
_TEXTS = st.lists(st.lists(st.sampled_from(b"\0a\xff"), max_size=19).map(bytes), min_size=1, max_size=30)


@given(texts=_TEXTS)
def test_equal_bytes_have_equal_hashes_and_different_ones_do_not(texts: list[bytes]) -> None:
    ends = np.cumsum([len(text) for text in texts])
    starts = ends - [len(text) for text in texts]
    hashes = hash_ranges(np.frombuffer(b"".join(texts) + b"more...", np.uint8), starts, ends)
    assert len(set(zip(texts, hashes.tolist(), strict=True))) == len(set(texts)) == len(set(hashes.tolist()))
    assert [hashed == 0 for hashed in hashes.tolist()] == [not text for text in texts]


def test_the_order_of_joined_hashes_counts() -> None:
    one, two = (np.array([number], np.uint64) for number in (1, 2))
    joined = [join_hashes(*hashes).tolist() for hashes in ((one, two), (two, one), (one, one), (one,))]
    assert len({number for numbers in joined for number in numbers}) == len(joined)

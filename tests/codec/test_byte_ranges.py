"""Byte ranges, compiled or not: copies are slices, the search is `in`, numbers are those of Python and of a dictionary.

Hashes are equal where the bytes are, and nowhere else.
"""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqinspect.codec.byte_ranges import (
    Key,
    Numbering,
    are_utf8,
    containing,
    copy_ranges,
    hash_of,
    hash_ranges,
    hash_texts,
    join_hashes,
    mixed,
    read_numbers,
    take_ranges,
    take_values,
)
from rmqinspect.loops.text_rows import BLOCK, NOT_A_NUMBER
from tests.support.loop_ways import loop_way

PLACES = st.integers(-5, 300)
BOTH = pytest.mark.parametrize("mode", ["compiled", "uncompiled"])


@BOTH
@settings(deadline=None)
@given(raw=st.binary(max_size=260), places=st.lists(st.tuples(PLACES, PLACES), max_size=12))
def test_ranges_are_slices_as_far_as_they_are_inside(mode: str, raw: bytes, places: list[tuple[int, int]]) -> None:
    starts, ends = (np.array([place[side] for place in places], np.int64) for side in (0, 1))
    with loop_way(mode):
        column = take_ranges(np.frombuffer(raw, np.uint8), starts, ends)
    column.validate(full=True)
    assert column.to_pylist() == [raw[max(start, 0) : max(end, 0)] for start, end in places]


@BOTH
@settings(deadline=None)
@given(texts=st.lists(st.text(max_size=40), max_size=8), which=st.lists(st.integers(-1, 9), max_size=20))
def test_values_are_those_with_the_indices(mode: str, texts: list[str], which: list[int]) -> None:
    indices = [index for index in which if index < len(texts)]
    with loop_way(mode):
        column = take_values(pa.array(texts, pa.string()), np.array(indices, np.int32))
    column.validate(full=True)
    assert column.to_pylist() == [None if index < 0 else texts[index] for index in indices]


def test_values_of_a_slice_are_its_own() -> None:
    column = take_values(pa.array(["a", "bc", "d", ""]).slice(1, 2), np.array([1, 0, -1], np.int32))
    assert column.to_pylist() == ["d", "bc", None]


UTF8_PARTS = [
    [b"caf\xc3\xa9", b"", b"x", "\u20ac".encode()],
    [b"caf\xc3", b"\xa9"],  # one character in two texts: neither is UTF-8, both together are
    [b"", b"\xa9", b"\xc3\xa9"],
    [b"\xc3\xa9", b"\xed\xa0\x80", b"ok"],  # a lone surrogate
    [b"\xc3\xa9", b"\xc3"],
    [],
]


@pytest.mark.parametrize("texts", UTF8_PARTS)
def test_texts_are_utf8_each_by_itself(texts: list[bytes]) -> None:
    joined, ends = b"--".join([b"", *texts]), np.cumsum([len(text) + 2 for text in texts]).astype(np.int64)
    starts = ends - np.array([len(text) for text in texts], np.int64)
    found = are_utf8(*copy_ranges(joined, starts, ends))
    assert found.tolist() == [text.decode(errors="replace").encode() == text for text in texts]


_PLACES = st.lists(st.tuples(st.integers(-9, 300), st.integers(-9, 300)), max_size=5)


def bytes_of(letters: bytes, most: int) -> st.SearchStrategy[bytes]:
    """Few letters: texts that nearly agree are common."""
    return st.lists(st.sampled_from(letters), max_size=most).map(bytes)


@pytest.mark.parametrize("mode", ["compiled", "uncompiled"])
@settings(deadline=None)  # the first example compiles
@given(raw=bytes_of(b"ab\0\xff", 200), texts=st.lists(bytes_of(b"ab\0\xff", 70), max_size=3), places=_PLACES)
@example(raw=bytes(BLOCK) + b"ab", texts=[b"\0ab"], places=[(0, BLOCK + 2), (0, BLOCK + 1), (BLOCK, BLOCK + 2)])
@example(raw=b"a" * 4 * BLOCK, texts=[b"a" * BLOCK + b"b", b"a" * 2 * BLOCK], places=[(0, 99), (70, 3 * BLOCK)])
@example(raw=b"ab", texts=[b""], places=[(0, 0), (5, 9), (2, 1)])
def test_a_range_contains_what_it_contains(
    mode: str, raw: bytes, texts: list[bytes], places: list[tuple[int, int]]
) -> None:
    starts, ends = (np.array(column, np.int64) for column in (zip(*places, strict=True) if places else ((), ())))
    with loop_way(mode):
        found = containing(np.frombuffer(raw, np.uint8), starts, ends, texts)
    inside = [raw[max(start, 0) : max(end, start, 0)] for start, end in places]
    assert found.tolist() == [any(text in part for text in texts) for part in inside]


def plain(text: bytes) -> list[int]:
    """Return the numbers of one list."""
    parts = [part for part in text.split(b",") if part]
    return [int(part) if part.isdigit() and int(part) <= 2**63 - 9 else NOT_A_NUMBER for part in parts]


@pytest.mark.parametrize("mode", ["compiled", "uncompiled"])
@settings(deadline=None)  # the first example compiles
@given(texts=st.lists(st.lists(st.sampled_from(b"0179,,-x\xff"), max_size=24).map(bytes), max_size=5))
@example(texts=[b"1,0,", b"", b",", b"9223372036854775799", b"9223372036854775800,92233720368547758070", b"00012"])
def test_numbers_are_those_of_each_range(mode: str, texts: list[bytes]) -> None:
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = ends - np.array([len(text) for text in texts], np.int64)
    with loop_way(mode):
        ranges, numbers = read_numbers(np.frombuffer(b"".join(texts), np.uint8), starts, ends)
    expected = [(row, number) for row, text in enumerate(texts) for number in plain(text)]
    assert list(zip(ranges.tolist(), numbers.tolist(), strict=True)) == expected


def test_a_range_outside_of_the_buffer_is_cut() -> None:
    raw = np.frombuffer(b"12,34", np.uint8)
    ranges, numbers = read_numbers(raw, np.array([-3, 3, 90], np.int64), np.array([2, 99, 99], np.int64))
    assert (ranges.tolist(), numbers.tolist()) == ([0, 1], [12, 34])


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


@settings(deadline=None)  # the first example compiles
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


@pytest.mark.parametrize("mode", ["compiled", "uncompiled"])
def test_many_keys(mode: str) -> None:
    keys = [(f"topic-{number % 997}".encode(), number % 7) for number in range(8_000)]
    with loop_way(mode):
        numbering = Numbering()
        numbered(numbering, keys[:5_000])
        assert numbered(numbering, keys) == [number % 6_979 for number in range(8_000)]
    assert len(numbering) == 997 * 7 == len(set(numbering.keys_from(0)))


def test_what_lies_outside_of_the_bytes_is_left_out() -> None:
    numbering = Numbering()
    columns = (np.array(column) for column in ((-5, 2, 9), (1, 99, 12), (0, 0, 0)))
    numbering.number(np.frombuffer(b"abcd", np.uint8), *columns)
    assert numbering.keys_from(0) == [(b"a", 0), (b"cd", 0), (b"", 0)]


def test_a_hash_goes_on_from_the_text_before() -> None:
    assert hash_of(b"orders+7F00", 0) == hash_of(b"+7F00", hash_of(b"orders"))
    assert hash_of(b"") == 0
    assert hash_of(b"\0") != 0
    assert hash_of(b"ab") != hash_of(b"ba")


def test_columns_have_the_hashes_of_their_texts() -> None:
    raw = np.frombuffer(bytes(range(256)) * 2, np.uint8)
    starts, ends = np.array([0, 7, 100, 300]), np.array([0, 9, 400, 512])
    expected = [hash_of(raw[start:end].tobytes()) for start, end in zip(starts, ends, strict=True)]
    assert hash_texts(raw, starts, ends).tolist() == expected
    before = np.array([hash_of(b"x")] * 4)
    assert hash_texts(raw, starts, ends, before).tolist() == [
        hash_of(b"x" + raw[start:end].tobytes()) for start, end in zip(starts, ends, strict=True)
    ]
    assert before.tolist() == [hash_of(b"x")] * 4


def test_what_is_not_inside_is_left_out() -> None:
    raw = np.frombuffer(b"abc", np.uint8)
    assert hash_texts(raw, np.array([-5, 2, 9]), np.array([2, 99, 3])).tolist() == [hash_of(b"ab"), hash_of(b"c"), 0]


def test_ids_that_are_alike_have_different_hashes() -> None:
    seed = random.Random(7)
    ids = {f"7F000001354F5FFD2B27690A{seed.getrandbits(32):08X}".encode() for _ in range(20_000)}
    found = {hash_of(one) for one in ids}
    assert len(found) == len(ids)
    assert all(0 <= one < 1 << 62 for one in found)


def test_mixed_depends_on_order_and_every_part() -> None:
    one, two = np.array([1, 2, -3]), np.array([2, 1, 4])
    numbers = [*mixed(one, two).tolist(), *mixed(two, one).tolist(), *mixed(one).tolist()]
    assert len(set(numbers)) == 7  # (1, 2) and (2, 1) stand in both


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

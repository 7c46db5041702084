"""Hashes of many texts at once are those of one after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.codec import hash_columns
from rmqinspect.codec.arrays import Bytes, Ints
from rmqinspect.codec.hash_columns import (
    hash_texts,
    index_hashes,
    java_string_hashes,
    joined_hashes,
    powers_of_31,
)
from rmqinspect.codec.hashes import index_hash, index_key, java_string_hash

LONG = hash_columns._BLOCK + 3


def laid(texts: list[bytes]) -> tuple[Bytes, Ints, Ints]:
    """Return the texts one behind the other, and where each starts and ends."""
    sizes = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join(texts), np.uint8), ends - sizes, ends


def decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@given(st.lists(st.binary(max_size=12) | st.text(max_size=40).map(str.encode) | st.just(b"order-1"), max_size=40))
def test_hashes_and_lengths_are_those_of_the_decoded_texts(texts: list[bytes]) -> None:
    found = hash_texts(*laid(texts))
    assert found.hashes.tolist() == [java_string_hash(decoded(text)) for text in texts]
    assert found.lengths.tolist() == [utf16_length(decoded(text)) for text in texts]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("polygenelubricants", -(2**31)),
        ("\u4e2d\u6587", 646394),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_java_s(text: str, hashed: int) -> None:
    """The numbers are what a JVM answers."""
    assert java_string_hashes(*laid([text.encode()])).tolist() == [hashed]


@pytest.mark.parametrize("length", [1, 255, LONG, 2 * LONG])
def test_a_text_longer_than_a_block_is_hashed_in_pieces(length: int) -> None:
    texts = [bytes(33 + at % 90 for at in range(length)), b"key"]
    assert java_string_hashes(*laid(texts)).tolist() == [java_string_hash(text.decode()) for text in texts]


def test_more_texts_of_a_length_than_a_block_takes() -> None:
    texts = [f"{number:032}".encode() for number in range(20_000)]
    hashes = java_string_hashes(*laid(texts))
    assert hashes[::997].tolist() == [java_string_hash(text.decode()) for text in texts[::997]]


def test_spans_may_overlap_and_stand_in_any_order() -> None:
    raw = np.frombuffer(b"abcdef", np.uint8)
    hashes = java_string_hashes(raw, np.array([3, 0, 1]), np.array([6, 6, 1]))
    assert hashes.tolist() == [java_string_hash("def"), java_string_hash("abcdef"), 0]


@pytest.mark.parametrize("length", [0, 1, 2, 31, 32, 1000, 2**31 - 1])
def test_powers_wrap_as_java_ints_do(length: int) -> None:
    assert powers_of_31(np.array([length])).tolist() == [pow(31, length, 2**32)]


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=20))
def test_the_hash_of_a_key_text_is_joined_from_topic_and_keys(topic: str, keys: list[str]) -> None:
    texts = [key.encode("utf-8", "replace") for key in keys]
    found = hash_texts(*laid(texts))
    prefix = java_string_hash(index_key(topic, ""))
    wanted = [index_hash(index_key(topic, decoded(text))) for text in texts]
    for prefixes in (prefix, np.full(len(keys), prefix, np.int32)):
        joined = joined_hashes(prefixes, found.hashes, found.lengths)
        assert index_hashes(joined).tolist() == wanted


def test_the_smallest_hash_is_stored_as_0() -> None:
    """`abs` leaves it negative in Java; its neighbours are as any other."""
    hashes = np.array([-(2**31), -(2**31) + 1, 2**31 - 1, -1, 0], np.int32)
    assert index_hashes(hashes).tolist() == [0, 2**31 - 1, 2**31 - 1, 1, 0]


def test_no_texts_have_no_hashes() -> None:
    none = np.zeros(0, np.int64)
    assert len(java_string_hashes(np.zeros(0, np.uint8), none, none)) == 0
    assert len(joined_hashes(7, np.zeros(0, np.int32), none)) == 0

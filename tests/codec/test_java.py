"""Hashes of texts as they stand in a file are those of the decoded texts, and Java's; numbers are parsed as there."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqinspect.codec.java import index_hash, java_number, java_string_hash, wrapped_int, wrapped_long
from rmqinspect.loops.text import as_int, index_hash_of, java_hash

# Python replaces each of the three bytes of a surrogate, Java all together; a surrogate may also be cut.
SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decoded(text: bytes) -> str:
    """Return what Java's `new String(text, UTF_8)` does."""
    return SURROGATE.sub("\ufffd".encode(), text).decode("utf-8", "replace")


PIECES = st.sampled_from([b"a", b"\x80", b"\xc3", b"\xe0", b"\xa0", b"\xed", b"\xf0\x90", b"\xf4\x90", b"\xff"])


@given(st.lists(PIECES, max_size=8).map(b"".join) | st.text(max_size=40).map(str.encode), st.text(max_size=5))
@example(b"ORDER-0 USER-4540317", "Topic#")
@example("标签😀é".encode(), "")
def test_hashes_are_those_of_the_decoded_text(text: bytes, before: str) -> None:
    raw = b"\xe4" + text + b"\x80"
    first = np.frombuffer(before.encode(), np.uint8)
    hashed = java_hash(np.frombuffer(raw, np.uint8), 1, len(raw) - 1, java_hash(first, 0, len(first), 0))
    assert as_int(hashed) == java_string_hash(before + decoded(text))
    assert index_hash_of(hashed) == index_hash(before + decoded(text))


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        (b"", 0),
        (b"a", 97),
        (b"TagA", 2598919),
        (b"polygenelubricants", -(2**31)),
        ("\u4e2d\u6587".encode(), 646394),
        ("\U0001f600".encode(), 1772899),
        (b"\xed\xbf", 65533),
        (b"\xed\xbf\xe1\x80\xe1\xe4\xb8\xad\xed", -1887450995),
        (b"\xdf\xf0\xf4\xf5\xed\xbf\x00\xf7", -8055430),
        (b"\xf0\xc0\x90\xc2\xe0\xed\xa0\xc2", -6023907),
        (b"\xed\xa0\xf4\xc0\xf4\xdf\x80\xef", 1660401533),
    ],
)
def test_the_hash_is_java_s(text: bytes, hashed: int) -> None:
    """The numbers are what a JVM answers."""
    assert as_int(java_hash(np.frombuffer(text, np.uint8), 0, len(text), 0)) == hashed


def test_the_smallest_hash_is_stored_as_0() -> None:
    """`abs` leaves it negative in Java; its neighbours are as any other."""
    assert [index_hash_of(value) for value in (1 << 31, (1 << 31) + 1, (1 << 31) - 1, (1 << 32) - 1, 0)] == [
        0,
        2**31 - 1,
        2**31 - 1,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [
        ("0", 32, 0),
        ("+7", 32, 7),
        ("-2147483648", 32, -(2**31)),
        ("2147483648", 32, None),
        ("9223372036854775807", 64, 2**63 - 1),
        ("0" * 400 + "1", 16, 1),
        ("-32769", 16, None),
        ("٣", 32, 3),
        ("\N{MATHEMATICAL BOLD DIGIT ONE}", 32, None),
        ("1_0", 32, None),
        (" 1", 32, None),
        ("-", 32, None),
        ("", 32, None),
        ("9" * 5000, 64, None),
    ],
)
def test_numbers_as_java_parses_them(text: str, bits: int, number: int | None) -> None:
    assert java_number(text, bits) == number


def test_sums_wrap() -> None:
    assert wrapped_int(2**31) == -(2**31)
    assert wrapped_long(2**63 - 1 + 3) == -(2**63) + 2
    assert (wrapped_int(-5), wrapped_long(7)) == (-5, 7)

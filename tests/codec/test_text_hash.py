"""Hashes that stand for texts."""

import random

import numpy as np

from rmqinspect.codec.byte_ranges import hash_of, hash_texts, mixed


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

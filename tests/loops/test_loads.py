"""What is written in C gives what its twin in Python gives: numbers, searches, copies, comparisons, checksums."""

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.loops import records, text
from rmqinspect.loops.checksum import CRC32
from rmqinspect.loops.record_rows import BODY_END, BODY_START, COLUMNS, SLACK
from tests.support.loop_ways import WAYS, loop_way, sources

Bytes = np.ndarray


def array(content: bytes) -> Bytes:
    return np.frombuffer(content, np.uint8)


def both(name: str, *arguments: object) -> None:
    """Compare a loop of `text` or `records` with its source; what it writes, too."""
    short, _, function = name.partition(".")
    module = {"text": text, "records": records}[short]
    given = [[one.copy() if isinstance(one, np.ndarray) else one for one in arguments] for _ in range(2)]
    results = [
        getattr(module, function)(*given[0]),
        getattr(sources()[short], function)(*given[1]),
    ]
    assert results[0] == results[1]
    for one, other in zip(*given, strict=True):
        if isinstance(one, np.ndarray):
            assert one.tolist() == other.tolist()


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 120), min_size=1, max_size=4))
def test_heads_of_records_are_read_alike(content: bytes, starts: list[int]) -> None:
    rows = np.zeros((len(starts), len(COLUMNS)), np.int64)
    raw = array(content.ljust(120, b"\xda") + bytes(SLACK))
    both("records.read_records", raw, np.array(starts), rows)


@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(-3, 210), st.integers(-3, 210)), max_size=12))
def test_ranges_are_laid_out_and_copied_alike(content: bytes, ranges: list[tuple[int, int]]) -> None:
    starts, ends = (np.array([pair[side] for pair in ranges], np.int64) for side in (0, 1))
    begins, offsets = np.zeros(len(ranges), np.int64), np.zeros(len(ranges) + 1, np.int32)
    both("text.lay_out", len(content), starts, ends, begins, offsets)
    size = text.lay_out(len(content), starts, ends, begins, offsets)
    out = np.full(size + 4, 0xFF, np.uint8)
    both("text.copy_laid_out", array(content), begins, offsets, out)
    text.copy_laid_out(array(content), begins, offsets, out[:size])
    parts = [content[max(start, 0) : max(end, 0)] for start, end in ranges]
    assert out.tobytes() == b"".join(parts) + b"\xff" * 4


@settings(deadline=None)
@given(
    st.text("ab\x01\x02", max_size=150).map(str.encode),
    st.lists(st.text("ab\x01\x02", max_size=40).map(str.encode), min_size=1, max_size=4),
    st.integers(0, 60),
)
def test_texts_are_found_alike(content: bytes, texts: list[bytes], start: int) -> None:
    borders = np.cumsum([0, *map(len, texts)])
    starts, ends, found = np.array([start]), np.array([len(content)]), np.zeros(1, np.uint8)
    both("text.search_ranges", array(content), starts, ends, array(b"".join(texts)), borders, found)
    text.search_ranges(array(content), starts, ends, array(b"".join(texts)), borders, found)
    assert bool(found[0]) is any(one in content[start:] for one in texts)
    places = np.zeros(200, np.int64)
    both("text.find_places", array(content), min(start, len(content)), len(content), array(texts[0]), places)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=70), max_size=12), st.integers(0, 2**32 - 1))
def test_keys_are_numbered_alike(keys: list[bytes], seed: int) -> None:
    borders = np.cumsum([0, *map(len, keys)])
    integers, numbers = np.arange(len(keys)) % 2, np.zeros(len(keys), np.int64)
    slots, table, names = np.zeros(64, np.int64), np.zeros((32, 4), np.int64), np.zeros(2000, np.uint8)
    used = np.zeros(2, np.int64)
    tables = slots, table, names, used, numbers
    both("text.number_keys", seed, array(b"".join(keys)), borders[:-1], borders[1:], integers, 0, *tables)
    text.number_keys(seed, array(b"".join(keys)), borders[:-1], borders[1:], integers, 0, *tables)
    first: dict[tuple[bytes, int], int] = {}
    expected = [first.setdefault(key, len(first)) for key in zip(keys, integers.tolist(), strict=True)]
    assert numbers.tolist() == expected


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None)
@given(content=st.binary(max_size=300))
def test_checksums_are_right(way: str, content: bytes) -> None:
    rows, found = np.zeros((1, len(COLUMNS)), np.int64), np.zeros(1, np.int64)
    rows[0, BODY_START], rows[0, BODY_END] = 1, max(1, len(content) - 1)
    expected = zlib.crc32(content[1 : max(1, len(content) - 1)]) & 0x7FFFFFFF
    with loop_way(way):
        for address in (CRC32, 0):  # bit by bit where no library has the function
            records.body_crcs(address, array(content), rows, found)
            assert found[0] == expected


@pytest.mark.skipif(not records.COMPILED, reason="only C would read what is not there")
def test_an_array_of_another_kind_is_refused() -> None:
    rows = np.zeros((1, len(COLUMNS)), np.int64)
    others: list[Any] = [np.zeros(1, np.int32), np.zeros((1, 1), np.int64), np.zeros(4, np.int64)[::2]]
    for starts in others:
        with pytest.raises((ValueError, TypeError)):
            records.read_records(array(bytes(400)), starts, rows)
    sealed = rows.copy()
    sealed.flags.writeable = False
    with pytest.raises((ValueError, TypeError)):
        records.read_records(array(bytes(400)), np.zeros(1, np.int64), sealed)

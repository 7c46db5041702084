"""Marks in bytes: runs, pages and sectors, text, random bytes, and a changed byte under a CRC."""

import random
import zlib

import pytest

from rmqinspect.codec.java import find_changed_bytes
from rmqinspect.damage.patterns import border_near, format_of, is_random, is_text, long_runs, quote, unit_words
from rmqinspect.schemas.message import CRC_MASK

NOISE = random.Random(4).randbytes(70_000)


@pytest.mark.parametrize("length", [511, 512, 700, 5_000])
@pytest.mark.parametrize("start", [0, 1, 255, 256, 3_000])
def test_a_long_run_is_found_to_the_byte(start: int, length: int) -> None:
    raw = b"x" * start + b"\0" * length + b"y" * 3
    found = [run for run in long_runs(raw, 100) if run[2] == 0]
    assert found == [(100 + start, 100 + start + length, 0)]


def test_short_runs_and_none_are_no_runs() -> None:
    assert list(long_runs(b"")) == []
    assert list(long_runs(b"\0" * 255)) == []
    assert list(long_runs((b"a" * 200 + b"b" * 200) * 50)) == []


def test_runs_that_touch_are_told_apart() -> None:
    assert list(long_runs(b"\0" * 600 + b"\xff" * 600)) == [(0, 600, 0), (600, 1_200, 0xFF)]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ((4096, 8192, 0), "a page of zeros: 4 096 bytes at byte 4 096 (0x1000)"),
        ((4090, 8208, 0), "a page of zeros: 4 096 bytes at byte 4 096 (0x1000)"),
        ((4096, 16384, 0xFF), "3 pages of 0xff bytes: 12 288 bytes at byte 4 096 (0x1000)"),
        ((512, 1024, 0), "a sector of zeros: 512 bytes at byte 512 (0x200)"),
        ((4096, 8704, 0), "9 sectors of zeros: 4 608 bytes at byte 4 096 (0x1000)"),
        ((4090, 8192, 0xFF), None),
        ((4060, 8192, 0), None),
        ((4096, 8230, 0), None),
        ((100, 500, 0), None),
    ],
)
def test_a_run_is_pages_or_sectors_only_where_it_fills_them(run: tuple[int, int, int], words: str | None) -> None:
    assert unit_words(*run) == words


def test_written_bytes_may_fall_short_of_a_border_by_a_few_zeros() -> None:
    found = [border_near(position) for position in (4096, 4090, 4080, 4079, 1530, 1500)]
    assert found == ["page", "page", "page", None, "sector", None]


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"2024-05-20 ERROR something went wrong in the store service again\n", True),
        ("消息队列的存储目录被日志文件覆盖了一部分内容请检查磁盘".encode(), True),
        (b"too short for an answer", False),
        (b"\0" * 64, False),
        (NOISE[:64], False),
        (b"Hello RocketMQ" + bytes(50), False),
    ],
)
def test_text_is_told_from_other_bytes(raw: bytes, answer: bool) -> None:
    assert is_text(raw) is answer


def test_a_quote_is_short_and_escaped() -> None:
    assert quote(b"a\x1b[31mb") == "'a\\x1b[31mb'"
    assert quote(b"x" * 41) == "'" + "x" * 40 + "…'"


@pytest.mark.parametrize("size", [256, 300, 1_000, 65_536])
def test_random_bytes_are_told_whatever_their_number(size: int) -> None:
    for seed in range(200 if size < 5_000 else 3):
        assert is_random(random.Random(seed).randbytes(size))


@pytest.mark.parametrize(
    "raw",
    [
        NOISE[:255],
        b"{'order': 1234, 'state': 'paid'}" * 20,
        bytes(20) + NOISE[:1_000],
        NOISE[:1_000].hex().encode(),
        "消息队列的存储目录被日志文件覆盖了一部分内容".encode() * 20,
    ],
)
def test_what_has_an_order_is_not_random(raw: bytes) -> None:
    assert not is_random(raw)


def test_files_are_told_by_how_they_begin() -> None:
    assert format_of(b"\x1f\x8b\x08\0") == "gzip data"
    assert format_of(b"\x1f\x8b") is None


@pytest.mark.parametrize("change", [0x01, 0x80, 0x03, 0xFF])
@pytest.mark.parametrize("at", [0, 1, 299, 300])
def test_a_changed_byte_is_found_by_the_crc_alone(at: int, change: int) -> None:
    was = NOISE[:301]
    now = was[:at] + bytes([was[at] ^ change]) + was[at + 1 :]
    assert find_changed_bytes(301, zlib.crc32(was) & CRC_MASK, zlib.crc32(now) & CRC_MASK) == [(at, change)]


def test_two_changed_bytes_are_no_changed_byte() -> None:
    was, now = NOISE[:300], NOISE[:100] + b"!!" + NOISE[102:300]
    assert find_changed_bytes(300, zlib.crc32(was) & CRC_MASK, zlib.crc32(now) & CRC_MASK) == []
    assert find_changed_bytes(300, 7, 7) == []
    assert find_changed_bytes(0, 7, 8) == []

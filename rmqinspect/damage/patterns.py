"""Patterns that damage leaves in bytes: lost pages and sectors, text, random bytes, other programs' files.

Nothing here knows records. Positions are bytes from the beginning of a file, as its pages are.

Flipped bits in words. Memory and disks flip single bits; one that explains everything is named.
"""

import math
from collections.abc import Iterator

import numpy as np

from rmqinspect.text import describe_offset, escape, group_digits

PAGE, SECTOR = 4096, 512
UNITS = ((PAGE, "page"), (SECTOR, "sector"))

# Zeros beside a lost page that were there before: times and sizes begin with some.
_NATURAL_ZEROS = 16
_BLOCK = 256  # bytes; a run of twice as many holds a whole block

_TELLING_TEXT = 64  # bytes
_TEXT_SHARE = 0.9
_QUOTED = 40  # characters

# The 88 bytes of a record's head hold some twenty zeros, random bytes hardly one.
_TELLING_RANDOM = 256
_MOST_RANDOM_ZEROS = 6

_FORMATS = (
    (b"\x1f\x8b\x08", "gzip data"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x04\x22\x4d\x18", "lz4 data"),
    (b"\x7fELF", "an ELF program"),
    (b"\xca\xfe\xba\xbe", "a Java class"),
    (b"JAVA PROFILE", "a Java heap dump"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"%PDF-", "a PDF document"),
)


def long_runs(raw: bytes, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, value) of the runs of one byte value, in order; `raw` begins at `position`.

    Finds all runs of 511 bytes and more, and some of 256 and more.
    """
    whole = len(raw) // _BLOCK
    blocks = np.frombuffer(raw, np.uint8, whole * _BLOCK).reshape(whole, _BLOCK)
    same = np.flatnonzero((blocks == blocks[:, :1]).all(axis=1))
    values = blocks[same, 0] if whole else same
    breaks = np.flatnonzero((np.diff(same) != 1) | (values[1:] != values[:-1])) + 1
    for group in np.split(same, breaks) if len(same) else ():
        start, end, value = int(group[0]) * _BLOCK, (int(group[-1]) + 1) * _BLOCK, raw[int(group[0]) * _BLOCK]
        before, behind = raw[max(0, start - _BLOCK) : start], raw[end : end + _BLOCK]
        start -= len(before) - len(before.rstrip(bytes([value])))
        end += len(behind) - len(behind.lstrip(bytes([value])))
        yield position + start, position + end, value


def unit_words(start: int, end: int, value: int) -> str | None:
    """Return a clause on a run of whole pages or sectors: `a page of zeros: 4 096 bytes at …`; None for others."""
    slack = _NATURAL_ZEROS if value == 0 else 0
    for unit, name in UNITS:
        first, last = start + -start % unit, end - end % unit
        if first < last and first - start <= slack and end - last <= slack:
            number = (last - first) // unit
            units = f"a {name}" if number == 1 else f"{group_digits(number)} {name}s"
            place = f"{group_digits(last - first)} bytes at byte {describe_offset(first)}"
            return f"{units} of {value_words(value)}: {place}"
    return None


def border_near(position: int) -> str | None:
    """Return page or sector if a write that ended at its border may seem to end here; its last bytes may be zeros."""
    return next((name for unit, name in UNITS if -position % unit <= _NATURAL_ZEROS), None)


def value_words(value: int) -> str:
    """Return the bytes of a run in words: `zeros`, `0xff bytes`."""
    return "zeros" if value == 0 else f"{value:#04x} bytes"


def format_of(raw: bytes) -> str | None:
    """Return the format whose magic the bytes begin with, None if it is none of the list."""
    return next((name for magic, name in _FORMATS if raw.startswith(magic)), None)


def is_text(raw: bytes) -> bool:
    """Whether the bytes begin with UTF-8 text."""
    text = raw[:_TELLING_TEXT].decode("utf-8", "replace")
    good = sum((character.isprintable() and character != "\ufffd") or character in "\t\r\n" for character in text)
    return len(raw) >= _TELLING_TEXT and good >= _TEXT_SHARE * len(text)


def quote(raw: bytes) -> str:
    """Return the beginning of a text in quotes, escaped."""
    text = raw[: 4 * _QUOTED].decode("utf-8", "replace")
    return f"'{escape(text[:_QUOTED])}{'…' if len(text) > _QUOTED else ''}'"


def is_random(raw: bytes) -> bool:
    """Whether the byte values are about as frequent as among as many random bytes."""
    if len(raw) < _TELLING_RANDOM or raw[:_TELLING_RANDOM].count(0) > _MOST_RANDOM_ZEROS:
        return False
    counts = np.bincount(np.frombuffer(raw, np.uint8), minlength=256)
    shares = counts[counts > 0] / len(raw)
    entropy = -float((shares * np.log2(shares)).sum())
    # The entropy of n random bytes falls short of 8 bits by 255 / 2n / ln 2 (Miller and Madow); twice that is allowed.
    return entropy > 8 - 255 / (len(raw) * math.log(2))


def byte_words(value: int) -> str:
    """Return a byte in hex, and the character that it is: `0x48 'H'`."""
    return f"{value:#04x} {chr(value)!r}" if 0x20 <= value < 0x7F else f"{value:#04x}"


def place_words(at: int, position: int | None) -> str:
    """Return which byte is meant: `byte 31 794 (0x7c32)`, of the file, or `byte +143`, of the record.

    `at` counts from the record's first byte, which is byte `position` of the file; None if unknown.
    """
    return f"byte +{at}" if position is None else f"byte {describe_offset(position + at)}"


def flip_words(place: str, was: int, now: int) -> str:
    """Return which bit of a byte is flipped: `byte 31 794 (0x7c32) bit 5 is 0x48 'H', was 0x68 'h'`."""
    bit = (was ^ now).bit_length() - 1
    return f"{place} bit {bit} is {byte_words(now)}, was {byte_words(was)}"


def one_flip(found: bytes, expected: bytes) -> int | None:
    """Return the number of the byte in which two values of one field differ by one bit; None if they differ otherwise.

    :raises ValueError: their lengths differ.
    """
    changes = [(at, now ^ was) for at, (now, was) in enumerate(zip(found, expected, strict=True)) if now != was]
    return changes[0][0] if len(changes) == 1 and changes[0][1].bit_count() == 1 else None


def explain_difference(expected: int, found: int, width: int) -> str | None:
    """Return a clause on the one bit in which two integers of `width` bits differ; None if they differ otherwise."""
    change = (expected ^ found) & (1 << width) - 1
    if change.bit_count() != 1:
        return None
    bit = change.bit_length() - 1
    now = found >> bit & 1
    return f"one flipped bit explains it: bit {bit} of {width} is {now}, was {1 - now}"

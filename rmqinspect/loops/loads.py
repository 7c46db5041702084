"""Numbers in bytes, and what is done to many bytes at once: in Python, for loops that are not compiled.

`loads.h` and `loads.pxd` do the same in C. All indexes are inside: the loops compare them before.
"""

# mypy: disable-error-code="no-any-return"
# An item of an array is Any for the type checker.

from rmqinspect.loops.arrays import Bytes, BytesOut
from rmqinspect.loops.checksum import crc32
from rmqinspect.loops.text_rows import BLOCK


def byte_at(raw: Bytes, at: int) -> int:
    """Return a signed 8-bit integer."""
    return (raw[at] ^ 0x80) - 0x80


def int16_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 16-bit integer."""
    return (((raw[at] << 8) | raw[at + 1]) ^ 0x8000) - 0x8000


def uint32_at(raw: Bytes, at: int) -> int:
    """Return a big-endian unsigned 32-bit integer."""
    return (raw[at] << 24) | (raw[at + 1] << 16) | (raw[at + 2] << 8) | raw[at + 3]


def int32_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 32-bit integer."""
    return (uint32_at(raw, at) ^ 0x80000000) - 0x80000000


def int64_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 64-bit integer."""
    return (int32_at(raw, at) << 32) | uint32_at(raw, at + 4)


def same_bytes(one: Bytes, first: int, other: Bytes, second: int, size: int) -> bool:
    """Whether `size` bytes are the same in two places; of a negative size they are not."""
    return size >= 0 and bytes(one[first : first + size]) == bytes(other[second : second + size])


def places_of(raw: Bytes, at: int, first: int, count: int) -> int:
    """Return which of the 32 bytes from a position on, as far as the array goes, are one of `count` from `first` on.

    Bit 0 is the first byte. With 1 and 2, the separators of properties: b"ab\\x01c\\x02" gives 0b10100.
    """
    bits = 0
    for place in range(at, min(at + BLOCK, len(raw))):
        if first <= raw[place] < first + count:
            bits |= 1 << (place - at)
    return bits


def lowest_bit(bits: int) -> int:
    """Return the number of the lowest bit that is set; one is."""
    return (bits & -bits).bit_length() - 1


def find_bytes(raw: Bytes, start: int, end: int, texts: Bytes, first: int, beyond: int) -> int:
    """Return where `texts[first:beyond]` stands first in `raw[start:end]`, as an index of `raw`; -1 where nowhere.

    Both ranges are inside.
    """
    at = bytes(raw[start:end]).find(bytes(texts[first:beyond]))
    return start + at if at >= 0 else -1


def copy_bytes(raw: Bytes, start: int, end: int, out: BytesOut, at: int) -> None:
    """Copy `raw[start:end]` to `out[at:]`; both places are inside."""
    out[at : at + end - start] = raw[start:end]


def crc32_of(address: int, raw: Bytes, start: int, size: int) -> int:
    """Return the CRC-32 of `size` bytes from a position; `address` is `checksum.CRC32`, which C calls."""
    return crc32(raw[start : start + size])

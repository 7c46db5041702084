"""Numbers a broker derives from text and bytes, for one value at a time.

Java's string hash and the index hash made of it; the masked CRC-32 of records, and the search for
a single flipped bit that a differing CRC-32 allows.
"""

import math
import zlib

from rmqinspect.schemas.message import CRC_MASK

_CRC_POLYNOMIAL = 0xEDB88320  # CRC-32 as in zlib, least significant bit first


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode()`: signed, 32 bits, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def index_key(topic: str, key: str) -> str:
    """Return the text that an index file hashes for a key. Source: IndexService#buildKey."""
    return f"{topic}#{key}"


def index_hash(text: str) -> int:
    """Return the hash an index file stores for a key text; the slot is this modulo the slots.

    Source: IndexFile#indexKeyHashMethod.
    """
    value = abs(java_string_hash(text))
    # Java's Math.abs leaves the smallest int negative; the broker turns that into 0.
    return 0 if value == 1 << 31 else value


def masked_crc32(raw: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 as a record stores it, without its top bit. Source: UtilAll#crc32."""
    return zlib.crc32(raw) & CRC_MASK


def find_flipped_bits(size: int, stored: int, computed: int) -> list[tuple[int, int]]:
    """Return every (byte, bit) of `size` octets whose flip turns one masked CRC into the other.

    Bytes count from 0, bits from 0 for the least significant one. Nearly always at most one is
    found; two mean that the lost top bit of the CRC leaves a choice. Only the size of the octets
    matters: a CRC is linear, so a flipped bit changes it by an amount that depends on nothing but
    the bit's distance from the end. The search meets in the middle of that distance, in about
    sqrt(size) steps. Beyond some MiB an answer may be chance: one in 2**28 / size.
    """
    difference = (stored ^ computed) & CRC_MASK
    if size <= 0 or difference == 0:
        return []
    stride = math.isqrt(size - 1) + 1
    # What a flip changes when fewer than `stride` bytes follow it.
    near: dict[int, tuple[int, int]] = {}
    for bit in range(8):
        change = _CRC_TABLE[1 << bit]
        for distance in range(stride):
            near[change] = distance, bit
            change = change >> 8 ^ _CRC_TABLE[change & 0xFF]
    backwards = [_step_back(1 << bit, stride) for bit in range(32)]
    found = []
    for change in (difference, difference | ~CRC_MASK & 0xFFFFFFFF):
        for far in range(0, size, stride):
            distance, bit = near.get(change, (size, 0))
            if far + distance < size:
                found.append((size - 1 - far - distance, bit))
            change = _apply(backwards, change)
    return sorted(set(found))


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_CRC_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()
# The top byte of each table entry is unique, which makes a step of the CRC reversible.
_CRC_INDEX = {entry >> 24: index for index, entry in enumerate(_CRC_TABLE)}


def _step_back(change: int, steps: int) -> int:
    """Return the CRC change from which `change` arises when `steps` more bytes follow."""
    for _ in range(steps):
        index = _CRC_INDEX[change >> 24]
        change = (change ^ _CRC_TABLE[index]) << 8 & 0xFFFFFFFF | index
    return change


def _apply(columns: list[int], vector: int) -> int:
    result = 0
    for column in columns:
        if vector & 1:
            result ^= column
        vector >>= 1
    return result

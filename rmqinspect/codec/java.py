"""What Java and the broker compute from values: string hashes, index hashes, checksums, numbers.

Also finds the flipped bit or the changed byte that explains a wrong CRC-32.
"""

import math
import unicodedata
import zlib

from rmqinspect.schemas.message import CRC_MASK


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode()`: signed, 32 bits, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


# What stands between topic and key in the text that is hashed.
#
#     topic#key       UNIQ_KEY and each word of KEYS
#     topic#T#tags    TAGS, 5.4.0 to 5.5.0
#     topic#U#id      UNIQ_KEY as rocketmq-rust 1.0.0 writes it; its keys and tags are as above
#
# Java has the U, too (MessageConst.INDEX_UNIQUE_TYPE, 5.4.0), but in its RocksDB alone.
# Source: IndexService#buildIndex, #buildKey, 4.0.0 to 5.5.0; drive_index_build_keys, rocketmq-rust.
TAG_MARK, ID_MARK = "T#", "U#"
ID_MARKS = "", ID_MARK


def index_key(topic: str, key: str, mark: str = "") -> str:
    """Return the text whose hash an index file stores for a key."""
    return f"{topic}#{mark}{key}"


def index_hash(text: str) -> int:
    """Return the hash that an index file stores for a key's text; modulo the slots it is the slot.

    Source: IndexFile#indexKeyHashMethod.
    """
    value = abs(java_string_hash(text))
    # Java's Math.abs leaves the smallest int negative; the broker uses 0 instead.
    return 0 if value == 1 << 31 else value


def masked_crc32(raw: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 as stored in a record: without its top bit. Source: UtilAll#crc32."""
    return zlib.crc32(raw) & CRC_MASK


def find_flipped_bits(size: int, stored: int, computed: int) -> list[tuple[int, int]]:
    """Return every (byte, bit) whose flip in `size` bytes turns one masked CRC into the other.

    Bit 0 is the least significant. Usually at most one is found; two arise from the missing top bit
    of the CRC. The bytes themselves are not needed: a CRC is linear, so a flip changes it by an amount
    that depends only on the bit's distance from the end. The search is a meet-in-the-middle over
    that distance, about sqrt(size) steps. The chance of a false match is size / 2**28.
    """
    difference = (stored ^ computed) & CRC_MASK
    if size <= 0 or difference == 0:
        return []
    stride = math.isqrt(size - 1) + 1
    # CRC change of a flip, for flips followed by fewer than `stride` bytes.
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


def find_changed_bytes(size: int, stored: int, computed: int) -> list[tuple[int, int]]:
    """Return every (byte, change) of `size` bytes that turns one masked CRC-32 into the other.

    The byte XOR the change is what it was. Chance gives an answer in one of 2**31 / 255 / size cases.
    """
    difference = (stored ^ computed) & CRC_MASK
    found = []
    for change in (difference, difference | ~CRC_MASK & 0xFFFFFFFF) if difference else ():
        for at in reversed(range(size)):
            if change in _CRC_VALUES:
                found.append((at, _CRC_VALUES[change]))
            change = _step_back(change, 1)  # one byte less follows
    return sorted(found)


# What a change of the last byte does to a CRC. The top bytes are unique, so a step can be reversed.
_CRC_TABLE = [zlib.crc32(bytes([value])) ^ zlib.crc32(b"\0") for value in range(256)]
_CRC_VALUES = {entry: value for value, entry in enumerate(_CRC_TABLE)}
_CRC_INDEX = {entry >> 24: index for index, entry in enumerate(_CRC_TABLE)}


def _step_back(change: int, steps: int) -> int:
    """Return the CRC change that becomes `change` after `steps` more bytes."""
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


def java_number(text: str, bits: int) -> int | None:
    """Return a text as a signed integer of so many bits: a sign, then digits of any script; None where Java throws.

    Source: Long#parseLong, Integer#parseInt, Short#parseShort.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Character#digit of a char: digits outside of the Basic Multilingual Plane are two chars, and none.
    if not digits or any(unicodedata.decimal(char, None) is None or ord(char) > 0xFFFF for char in digits):
        return None
    negative = text[0] == "-"
    value, limit = 0, (1 << (bits - 1)) - (not negative)
    for char in digits:
        value = value * 10 + unicodedata.decimal(char)
        if value > limit:
            return None
    return -value if negative else value


def wrapped_int(value: int) -> int:
    """Return the low 32 bits of a number as an int."""
    return ((value + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31)


def wrapped_long(value: int) -> int:
    """Return the low 64 bits of a number as a long."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)

"""Why a whole record has not the checksum that it stores: flipped bits, lost pages, other bytes inside.

The chain of lengths is sound, so only the body (BODYCRC) or any byte (`__CRC32#`) is in question. A CRC
is linear: how one bit changes it depends only on how many bytes follow, so the one bit that explains a
difference is computed, not searched for (`codec.hashes.find_flipped_bits`).

`position` is the place of a record's first byte in its file; where it is None, bytes are named by their
place in the record, and nothing is said of pages.
"""

import re

from rmqinspect.codec.fields import walk_fields
from rmqinspect.codec.hashes import find_flipped_bits, masked_crc32
from rmqinspect.codec.layout import place_of
from rmqinspect.codec.record_proof import Head, read_head
from rmqinspect.damage.flips import byte_words, flip_words, one_flip, place_words
from rmqinspect.damage.misplaced import find_heads
from rmqinspect.damage.patterns import SECTOR, find_changed_bytes, long_runs, quote, unit_words
from rmqinspect.damage.surroundings import LOOK_AHEAD
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.text import describe_offset

_MOST_CHANGED_BYTE = 4096  # bytes; beyond, chance gives an answer too often (1 in 2**31 / 255 / size)
_TEXT_RUN = re.compile(rb"[\x20-\x7e\t\r\n]{64,}")
_CRC_AT = place_of(message.HEADS[False, False], "body_crc")


def explain_body_crc(raw: bytes | memoryview, position: int | None, physical_offset: int | None) -> str | None:
    """Return a clause on why the body of a whole record has not the CRC that is stored.

    `raw` holds the record, whose first byte is byte `position` of its file and has this physical offset.
    None where the CRC is right, or the bytes do not tell.
    """
    head = read_head(raw)
    if head is None or not head.body_start < head.body_end <= len(raw):
        return None
    body = bytes(raw[head.body_start : head.body_end])
    computed = masked_crc32(body)
    if computed == head.body_crc:
        return None
    return _flipped_bit(head, body, computed, position) or _other_bytes(head, body, computed, position, physical_offset)


def _flipped_bit(head: Head, body: bytes, computed: int, position: int | None) -> str | None:
    """The one bit, of the stored CRC or of the body, with which they agree; or that the CRC alone is wrong."""
    stored, right = (value.to_bytes(4, "big", signed=True) for value in (head.body_crc, computed))
    at = one_flip(stored, right)
    if at is not None:
        flip = flip_words(place_words(_CRC_AT + at, position), right[at], stored[at])
        return f"one flipped bit of the stored CRC explains it: {flip}"
    if head.body_crc < 0:
        return "a stored CRC is never negative"
    bits = find_flipped_bits(len(body), head.body_crc, computed)
    if len(bits) != 1:
        return None
    at, bit = bits[0]
    flip = flip_words(place_words(head.body_start + at, position), body[at] ^ 1 << bit, body[at])
    return f"one flipped bit explains it: {flip}"


def _other_bytes(
    head: Head, body: bytes, computed: int, position: int | None, physical_offset: int | None
) -> str | None:
    """Lost pages, a changed byte, another record, or text: what stands in a body of a usual size."""
    if head.body_end > LOOK_AHEAD:
        return None
    for start, end, value in long_runs(body, position + head.body_start) if position is not None else ():
        words = unit_words(start, end, value)
        if words is not None:
            return words
    return (
        _changed_byte(head, body, computed, position)
        or _records_inside(head, body, position, physical_offset)
        or _text_inside(head, body)
    )


def _changed_byte(head: Head, body: bytes, computed: int, position: int | None) -> str | None:
    """The one byte that, with another value, gives the stored CRC."""
    if len(body) > _MOST_CHANGED_BYTE:
        return None
    found = find_changed_bytes(len(body), head.body_crc, computed)
    if len(found) != 1:
        return None
    at, change = found[0]
    place = place_words(head.body_start + at, position)
    return f"one changed byte explains it: {place} is {byte_words(body[at])}, was {byte_words(body[at] ^ change)}"


def _records_inside(head: Head, body: bytes, position: int | None, physical_offset: int | None) -> str | None:
    """Another record's head: at its own place an older one, else, by whole sectors off, a misplaced one."""
    if physical_offset is None:
        return None
    first = physical_offset + head.body_start
    for at, own in find_heads(body):
        where = f"at {place_words(head.body_start + at, position)} another record begins"
        if own == first + at:
            return f"older bytes: {where}, at its own place, so the file held it before"
        if (own - first - at) % SECTOR == 0:
            return f"bytes of another place: {where} that belongs at physical offset {describe_offset(own)}"
    return None


def _text_inside(head: Head, body: bytes) -> str | None:
    """Text in a body that zlib compressed, which has none: its codes are not aligned to bytes."""
    kind = (head.sys_flag & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
    if not head.sys_flag & SysFlag.COMPRESSED or message.COMPRESSIONS[kind : kind + 1] != ("zlib",):
        return None
    run = _TEXT_RUN.search(body)
    return None if run is None else f"text stands in the compressed body: {quote(run.group())}"


def explain_record_crc(raw: bytes | memoryview, position: int | None) -> str | None:
    """Return a clause on the flipped bit that explains why the CRC of a whole record (`__CRC32#`) does not match.

    `raw` is the record, whose first byte is byte `position` of its file. None where no bit explains it.
    """
    covered, tail = bytes(raw[: -message.CRC32_RESERVED_SIZE]), bytes(raw[-message.CRC32_RESERVED_SIZE :])
    if not 0 < len(covered) <= LOOK_AHEAD:
        return None
    computed = masked_crc32(covered)
    digits_at = len(message.CRC32_NAME) + 1
    digits, right = tail[digits_at:-1], f"{computed:0{message.CRC32_DIGITS}}"[::-1].encode()
    if len(digits) != len(right):
        return None
    at = one_flip(digits, right)
    if at is not None:
        place = place_words(len(covered) + digits_at + at, position)
        return f"one flipped bit of the stored CRC explains it: {flip_words(place, right[at], digits[at])}"
    if not digits.isdigit() or int(digits[::-1]) > message.CRC_MASK:
        return None
    bits = find_flipped_bits(len(covered), int(digits[::-1]), computed)
    if len(bits) != 1:
        return None
    at, bit = bits[0]
    flip = flip_words(place_words(at, position), covered[at] ^ 1 << bit, covered[at])
    return f"one flipped bit of {_field_at(covered, at)} explains it: {flip}"


def _field_at(raw: bytes, at: int) -> str:
    parsed = walk_fields(message.Message.subcons, raw)
    return next((name for name, field in parsed.fields.items() if field.start <= at < field.end), "the properties")

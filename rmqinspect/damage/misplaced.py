"""Whole records that are wrong: in another place than their own, or without the checksum that they store.

A record knows its physical offset. Where whole records agree on another place than the one where they
lie, they were moved or copied; a single one may have lost its own offset.

Where a checksum is wrong, bits were flipped, pages lost, or other bytes stand inside. The chain of lengths is sound,
so only the body (BODYCRC) or any byte (`__CRC32#`) is in question. A CRC is linear: how one bit changes it depends
only on how many bytes follow, so the one bit that explains a difference is computed, not searched for
(`codec.java.find_flipped_bits`).

`position` is the place of a record's first byte in its file; where it is None, bytes are named by their
place in the record, and nothing is said of pages.
"""

import re
from collections.abc import Iterator
from itertools import islice

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.java import find_changed_bytes, find_flipped_bits, masked_crc32
from rmqinspect.codec.layout import walk_fields
from rmqinspect.codec.record_proof import Head, find_magics, read_head
from rmqinspect.damage.patterns import (
    PAGE,
    SECTOR,
    byte_words,
    flip_words,
    long_runs,
    one_flip,
    place_words,
    quote,
    unit_words,
)
from rmqinspect.damage.single_field import LOOK_AHEAD, Surroundings, look_around
from rmqinspect.errors import Unreadable
from rmqinspect.loops.record_rows import SLACK
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import count, describe_offset, group_digits

# Bounds against crafted bytes, which may be nothing but magics.
_MOST_MAGICS = 4096
_MOST_PLAUSIBLE = 256  # places that look like a record
_MOST_COPIES = 64  # misplaced records

_COMPARED = PAGE  # bytes of a record that are compared with a copy of it

_HEAD = message.HEADS[False, False]
_OWN_AT = place_of(_HEAD, "physical_offset")


def explain_misplaced_records(store: Store, around: Surroundings) -> str | None:
    """Return a clause on whole records in a gap whose own offsets are other places; None without any."""
    own, places = _own_and_place(around)
    if not len(own):
        return None
    first, place = int(own[0]), int(places[0])
    records = count(len(own), "whole record") if len(own) < _MOST_COPIES else f"{_MOST_COPIES} and more whole records"
    if len(set((places - own).tolist())) > 1:
        return f"data of several places: {records}, the first one belongs at physical offset {describe_offset(first)}"
    home = store.segment_at(first)
    if home is None:
        return f"data of a segment that is not here: {records} belonging at physical offset {describe_offset(first)}"
    raw = around.part(place - around.segment.base, around.high)
    there = ", and stand there too" if _stands_at(home, first, raw) else ", where they do not stand"
    if home.base != around.segment.base:
        words = f"another segment's data: {records} belonging at physical offset {describe_offset(first)}"
        return f"{words} ({home.name}){there}"
    distance = f"{group_digits(abs(place - first))} bytes {'behind' if place > first else 'before'} their place"
    return f"shifted copy: {records} {distance}, physical offset {describe_offset(first)}{there}"


def _own_and_place(around: Surroundings) -> tuple[Ints, Ints]:
    """Return the own offsets of misplaced records in a gap, and the physical offsets where they lie."""
    hits = islice(find_magics(around.part(around.start, min(around.end, around.high))), _MOST_MAGICS)
    found = [around.start + at for at in hits]
    records = around.records([place for place in found if place <= around.high - message.FIXED_SIZE])
    sound = np.flatnonzero(records.are_sound(len(records.raw) - SLACK))[:_MOST_PLAUSIBLE]
    chosen: list[int] = []
    reached = 0
    # A body may hold records too: of those that overlap only the outer ones count.
    for number in sound.tolist():
        apart = len(chosen) < _MOST_COPIES and int(records.starts[number]) >= reached
        if apart and records.select(slice(number, number + 1)).body_crc_ok[0]:
            chosen.append(number)
            reached = int(records.ends[number])
    records = records.select(np.array(chosen, np.int64))
    own, place = records.physical_offset, records.base + records.starts
    misplaced = (own != place) & (own >= 0) & (records.body_size > 0)
    if around.in_place is not None:  # what lies in its body may be what its sender put there
        body_start, body_end = around.in_place.body_starts[0], around.in_place.body_ends[0]
        misplaced &= (records.starts >= body_end) | (records.starts < body_start)
    return own[misplaced], place[misplaced]


def explain_misplaced_head(store: Store, around: Surroundings) -> str | None:
    """Return a clause on the beginning of a record that belongs whole sectors away: a part of a copy."""
    raw, base = around.part(around.start, min(around.end, around.high)), around.segment.base + around.start
    body_end = around.low + int(around.in_place.body_ends[0]) if around.in_place is not None else around.start
    for at, own in find_heads(raw):
        if own != base + at and (own - base - at) % SECTOR == 0 and body_end <= around.start + at:
            home = store.segment_at(own)
            where = "no segment that is here" if home is None else home.name
            place = describe_offset(around.start + at)
            return (
                f"bytes of another place: at byte {place} a record begins that belongs at physical offset "
                f"{describe_offset(own)} ({where})"
            )
    return None


def find_heads(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield (position, own offset) of what looks like the beginning of a record."""
    for at in islice(find_magics(raw), _MOST_PLAUSIBLE):
        front = walk_fields(message.FRONT, raw[at : at + _HEAD.sizeof()])
        own = front.number("physical_offset")
        if front.reason is None and front.number("total_size") >= message.FIXED_SIZE and own >= 0:
            yield at, own


def explain_own_offset(store: Store, segment: Segment, physical_offset: int) -> str | None:
    """Return a clause on why the record at an offset, whole otherwise, has another own offset.

    Reads this record, the head behind it, and the place that it names. None where the bytes do not tell.
    """
    position = physical_offset - segment.base
    around = look_around(segment, position, position + 1)
    if around is None or around.start + message.FIXED_SIZE > around.high:
        return None
    record = around.records([around.start])
    own, size = int(record.physical_offset[0]), int(record.total_size[0])
    home = store.segment_at(own)
    if home is not None and _stands_at(home, own, around.part(around.start, around.high)):
        return f"a copy: the same record stands at its own place, physical offset {describe_offset(own)} ({home.name})"
    following = _own_offset_at(segment, around.start + size + around.lead)
    # Segments are often a power of two long: what looks like a flipped bit may be a segment in a wrong place.
    if following == own + size + around.lead and own >= 0:
        what = "data of a segment that is not here" if home is None else f"another segment's data ({home.name})"
        if home is not None and home.base == segment.base:
            what = "shifted copy"
        return f"{what}: the record behind it is {group_digits(abs(physical_offset - own))} bytes off as well"
    found, expected = ((number & (1 << 64) - 1).to_bytes(8, "big") for number in (own, physical_offset))
    at = one_flip(found, expected)
    if at is not None:
        flip = flip_words(place_words(_OWN_AT + at, around.start), expected[at], found[at])
        return f"one flipped bit of PHYSICALOFFSET explains it: {flip}"
    if following == physical_offset + size + around.lead:
        return "only PHYSICALOFFSET was changed: the record behind it lies at its own place"
    return None


def _own_offset_at(segment: Segment, position: int) -> int | None:
    """Return the own offset of what looks like a record at a position of a file."""
    try:
        with open_file(segment) as reader:
            front = walk_fields(message.FRONT, reader.read(position, _HEAD.sizeof()))
    except Unreadable:
        return None
    return front.number("physical_offset") if front.number("magic") in message.RECORD_MAGICS else None


def _stands_at(segment: Segment, physical_offset: int, raw: bytes) -> bool:
    """Whether the record that begins `raw` stands at a physical offset of a segment as well."""
    size = min(int.from_bytes(raw[span_of(_HEAD, "total_size")], "big"), _COMPARED)
    try:
        with open_file(segment) as reader:
            return reader.read(physical_offset - segment.base, size) == raw[:size]
    except Unreadable:
        return False


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
    return _flipped_bit(head, body, position) or _other_bytes(head, body, computed, position, physical_offset)


def body_flip(head: Head, body: bytes) -> tuple[int, int] | None:
    """Return (byte of the record, its value before) of the one bit, of BODYCRC or the body, with which they agree."""
    computed = masked_crc32(body)
    stored, right = (value.to_bytes(4, "big", signed=True) for value in (head.body_crc, computed))
    at = one_flip(stored, right)
    if at is not None:
        return _CRC_AT + at, right[at]
    bits = find_flipped_bits(len(body), head.body_crc, computed) if head.body_crc >= 0 else []
    if len(bits) != 1:
        return None
    at, bit = bits[0]
    return head.body_start + at, body[at] ^ 1 << bit


def _flipped_bit(head: Head, body: bytes, position: int | None) -> str | None:
    """The one bit, of the stored CRC or of the body, with which they agree; or that the CRC alone is wrong."""
    flip = body_flip(head, body)
    if flip is None:
        return "a stored CRC is never negative" if head.body_crc < 0 else None
    at, was = flip
    of_crc = at < head.body_start
    now = head.body_crc.to_bytes(4, "big", signed=True)[at - _CRC_AT] if of_crc else body[at - head.body_start]
    of = " of the stored CRC" if of_crc else ""
    return f"one flipped bit{of} explains it: {flip_words(place_words(at, position), was, now)}"


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


def record_flip(raw: bytes | memoryview) -> tuple[int, int] | None:
    """Return (byte, its value before) of the one bit with which a record and its CRC (`__CRC32#`) agree."""
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
        return len(covered) + digits_at + at, right[at]
    if not digits.isdigit() or int(digits[::-1]) > message.CRC_MASK:
        return None
    bits = find_flipped_bits(len(covered), int(digits[::-1]), computed)
    if len(bits) != 1:
        return None
    at, bit = bits[0]
    return at, covered[at] ^ 1 << bit


def explain_record_crc(raw: bytes | memoryview, position: int | None) -> str | None:
    """Return a clause on the flipped bit that explains why the CRC of a whole record (`__CRC32#`) does not match.

    `raw` is the record, whose first byte is byte `position` of its file. None where no bit explains it.
    """
    found = record_flip(raw)
    if found is None:
        return None
    at, was = found
    flip = flip_words(place_words(at, position), was, raw[at])
    covered = bytes(raw[: -message.CRC32_RESERVED_SIZE])
    if at >= len(covered):
        return f"one flipped bit of the stored CRC explains it: {flip}"
    fields = walk_fields(message.Message.subcons, covered).fields
    name = next((name for name, field in fields.items() if field.start <= at < field.end), "the properties")
    return f"one flipped bit of {name} explains it: {flip}"

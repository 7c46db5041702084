"""What probably happened to damaged bytes: a short clause for people, told only with its proof.

Disks lose pages of 4096 and sectors of 512 bytes, memory flips bits, a copy lands in the wrong place,
a program writes over a file. Each leaves a mark of its own; where none is found nothing is said. All
is decided by a few MiB around the damage at most, however large it is.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.fields import walk_fields
from rmqinspect.codec.hashes import find_flipped_bits, masked_crc32
from rmqinspect.codec.layout import place_of
from rmqinspect.commitlog.records import SLACK, Records
from rmqinspect.damage.patterns import (
    PAGE,
    border_near,
    find_changed_bytes,
    format_of,
    is_random,
    is_text,
    long_runs,
    quote,
    unit_words,
    value_words,
)
from rmqinspect.damage.single_field import MOST_REPAIRED, Repair, find_repair, flipped_bits
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import count, describe_offset, escape, group_digits

# What is looked at of a gap: the largest record and a neighbour, and what lies before.
_LOOK_AHEAD = MOST_REPAIRED + (64 << 10)
_LOOK_BACK = 64 << 10

_MOST_MAGICS = 4096  # a crafted window is nothing but magics
_MOST_COPIES = 64  # misplaced records looked at
_MOST_PLAUSIBLE = 256  # places that look like a record; a crafted window may hold many
_MOST_CHANGED_BYTE = 4096  # bytes; beyond, chance gives an answer too often (1 in 2**31 / 255 / size)

_SAMPLE = 512  # bytes that are looked at for text and randomness
_LONGEST_MAGIC = 16
_SECTOR = 512
_TELLING_ZEROS = 512
_COMPARED = PAGE  # bytes of a record that are compared with a copy of it

_HEAD = message.HEADS[False, False]
_MAGIC_AT = place_of(_HEAD, "magic")
_OWN_AT = place_of(_HEAD, "physical_offset")
_LEAST_REST = 4  # bytes behind a body: two lengths and a topic of one byte
_MOST_REST = 1 << 16
_MAGIC = re.compile(re.escape(message.MAGIC_PREFIX) + rb"[\xa7\xab]")
_TEXT_RUN = re.compile(rb"[\x20-\x7e\t\r\n]{64,}")


# --- words --------------------------------------------------------------------------------------


def octet_words(value: int) -> str:
    """Return a byte in hex, and the character that it is: `0x48 'H'`."""
    return f"{value:#04x} {chr(value)!r}" if 0x20 <= value < 0x7F else f"{value:#04x}"


def flip_words(position: int, bit: int, now: int) -> str:
    """Return which bit of which byte is flipped: `byte 31 794 (0x7c32) bit 5 is 0x48 'H', was 0x68 'h'`."""
    was = now ^ 1 << bit
    return f"byte {describe_offset(position)} bit {bit} is {octet_words(now)}, was {octet_words(was)}"


def flipped_bit(expected: int, found: int, width: int) -> str | None:
    """Return words for the one bit in which two integers of `width` bits differ, None when it is not one."""
    change = (expected ^ found) & (1 << width) - 1
    if change.bit_count() != 1:
        return None
    bit = change.bit_length() - 1
    now = found >> bit & 1
    return f"one flipped bit explains it: bit {bit} of {width} is {now}, was {1 - now}"


def _repair_words(repair: Repair, position: int) -> str:
    position += repair.at
    if flipped_bits(repair) == 1:
        pairs = enumerate(zip(repair.found, repair.expected, strict=True))
        at, now, was = next((at, now, was) for at, (now, was) in pairs if now != was)
        flip = flip_words(position + at, (now ^ was).bit_length() - 1, now)
        words = f"one flipped bit of {repair.field} explains it: {flip}"
    else:
        found, expected = (_field_value(repair.field, raw) for raw in (repair.found, repair.expected))
        place = describe_offset(position)
        words = f"only {repair.field} at byte {place} was changed: {expected} would fit, not {found}"
    return words if repair.topic is None else f"{words}; the record: {_record_words(repair)}"


def _record_words(repair: Repair) -> str:
    return f"{escape(repair.topic or '')} queue {repair.queue_id} offset {repair.queue_offset}"


def _field_value(field: str, raw: bytes) -> str:
    as_hex = "magic" in field.lower() or field == "SYSFLAG"
    return f"0x{raw.hex()}" if as_hex else str(int.from_bytes(raw, "big", signed=True))


# --- gaps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    """The bytes around a gap. Positions are bytes from the beginning of the file, as pages are."""

    segment: Segment
    size: int  # of the file
    start: int  # of the gap
    end: int
    low: int  # of the first byte that was read
    raw: bytes

    @property
    def high(self) -> int:
        """Where what was read ends."""
        return self.low + len(self.raw)

    @property
    def lead(self) -> int:
        """Bytes of the DLedger entry head in front of each record."""
        return self.segment.lead

    def part(self, start: int, end: int) -> bytes:
        """Return bytes [start, end) as far as they were read."""
        return self.raw[max(0, start - self.low) : max(0, end - self.low)]

    def records(self, positions: list[int]) -> Records:
        """Return what stands at these positions as records; each must leave room for a head."""
        starts = np.array(positions, np.int64) - self.low
        return Records(self._with_slack, self.segment.base + self.low, starts)

    @cached_property
    def _with_slack(self) -> memoryview:
        return memoryview(self.raw + bytes(SLACK))

    @cached_property
    def known(self) -> Records | None:
        """The record that begins the gap, if it knows its place; any other field may be damaged."""
        if self.start + self.lead + message.FIXED_SIZE > self.high:
            return None
        record = self.records([self.start + self.lead])
        return record if int(record.physical_offset[0]) == record.base + int(record.starts[0]) else None

    @cached_property
    def head(self) -> Records | None:
        """The same, if its magic is right and its sizes are plausible."""
        if self.known is None or self.known.magic[0] not in message.RECORD_MAGICS or self.known.body_size[0] < 0:
            return None
        return self.known if _LEAST_REST <= int(self.known.ends[0] - self.known.body_ends[0]) < _MOST_REST else None

    @property
    def beginnings(self) -> list[int]:
        """Where records must begin: at the gap's start, and behind the record of which the head is sound."""
        following = [self.low + int(self.head.ends[0])] if self.head is not None else []
        return [place for place in (self.start, *following) if place < min(self.end, self.high)]

    @property
    def topics(self) -> list[int]:
        """Where a topic must begin, and so a byte that is not 0: behind the body of that record."""
        return [self.low + int(self.head.body_ends[0])] if self.head is not None else []


def explain_gap(store: Store, segment: Segment, start: int, end: int) -> str | None:
    """Return the likely cause of damage, a clause for people; None where the bytes do not tell.

    [start, end) are physical offsets of what is neither record nor filler; at `start` the chain of
    records broke, at `end` it goes on, or the segment ends. Reads at most some MiB.
    """
    look = _look_at(segment, start - segment.base, end - segment.base)
    if look is None:
        return None
    return next(filter(None, (explain(store, look) for explain in _GAP_CAUSES)), None)


def _look_at(segment: Segment, start: int, end: int) -> _Look | None:
    low = max(0, start - start % PAGE - _LOOK_BACK)
    try:
        with open_file(segment) as reader:
            raw = reader.read(low, min(end + PAGE, start + _LOOK_AHEAD) - low)
            return _Look(segment, reader.size, start, end, low, raw)
    except Unreadable:
        return None


def _repair(look: _Look) -> Repair | None:
    return find_repair(
        look.part(look.start, look.high),
        look.segment.base + look.start,
        look.size - look.start,
        wraps=bool(look.lead),
        end=look.end - look.start,
    )


def _changed_field(store: Store, look: _Look) -> str | None:
    repair = _repair(look)
    return None if repair is None else _repair_words(repair, look.start)


def _lost_pages(store: Store, look: _Look) -> str | None:
    """One byte value, mostly zero, from one border of pages or sectors to another."""
    lost = []
    for start, end, value in long_runs(look.raw, look.low):
        bounded = (start > look.low or start == 0) and end < look.high
        if bounded and start < look.end and look.start < end and (words := unit_words(start, end, value)):
            lost.append(words)
    more = f", and {group_digits(len(lost) - 1)} more such places" if len(lost) > 1 else ""
    return f"{lost[0]}{more}" if lost else None


def _torn_write(store: Store, look: _Look) -> str | None:
    """A record that begins soundly; from some byte on it was never written."""
    start = look.start + look.lead
    raw = look.part(start, look.high)
    front = walk_fields(message.FRONT, raw)
    size, magic = front.number("total_size"), front.number("magic")
    own = (look.segment.base + start).to_bytes(8, "big")
    written = len(raw[: max(0, size)].rstrip(b"\0"))
    if magic not in message.RECORD_MAGICS or not message.FIXED_SIZE <= size <= look.size - start:
        return None
    if not own.startswith(raw[_OWN_AT : min(written, _OWN_AT + len(own))]):
        return None
    nothing_else = not any(raw[written : look.end - start])
    # A whole record ends in two zeros at most: the PROPERTIESLEN of one without properties.
    if nothing_else and size - written > 2 and len(raw) - written >= min(size - written, _TELLING_ZEROS):
        there = f"the first {group_digits(written)} of the record's {group_digits(size)} bytes"
        border = border_near(start + written)
        behind = f"zeros follow from the border of a {border} on" if border else "zeros follow"
        return f"torn write: only {there} are there, {behind}"
    return _older_bytes(look, size)


def _older_bytes(look: _Look, size: int) -> str | None:
    """A record into which an older one, whole and at its own place, still reaches."""
    following = look.end + look.lead
    if look.head is None or look.end >= look.start + look.lead + size or following + message.FIXED_SIZE > look.high:
        return None
    record = look.records([following])
    if not _are_whole(record)[0] or int(record.physical_offset[0]) != look.segment.base + following:
        return None
    if not record.body_crc_ok[0] or record.field("store_timestamp")[0] >= look.head.field("store_timestamp")[0]:
        return None
    return (
        f"torn write: the record has {group_digits(size)} bytes, but {group_digits(look.end - look.start)} behind its "
        "first one an older record begins: what was there before was not written over"
    )


def _misplaced_records(store: Store, look: _Look) -> str | None:
    """Whole records that know another place than this one, all by the same distance."""
    own, places = _own_and_place(look)
    if not len(own):
        return None
    first, place = int(own[0]), int(places[0])
    records = count(len(own), "whole record") if len(own) < _MOST_COPIES else f"{_MOST_COPIES} and more whole records"
    if len(set((places - own).tolist())) > 1:
        return f"data of several places: {records}, the first one belongs at physical offset {describe_offset(first)}"
    home = store.segment_at(first)
    if home is None:
        return f"data of a segment that is not here: {records} belonging at physical offset {describe_offset(first)}"
    raw = look.part(place - look.segment.base, look.high)
    there = ", and stand there too" if _stands_at(home, first, raw) else ", where they do not stand"
    if home.base != look.segment.base:
        words = f"another segment's data: {records} belonging at physical offset {describe_offset(first)}"
        return f"{words} ({home.name}){there}"
    distance = f"{group_digits(abs(place - first))} bytes {'behind' if place > first else 'before'} their place"
    return f"shifted copy: {records} {distance}, physical offset {describe_offset(first)}{there}"


def _misplaced_head(store: Store, look: _Look) -> str | None:
    """The beginning of a record that knows a place which is whole sectors away: a part of a copy."""
    raw, base = look.part(look.start, min(look.end, look.high)), look.segment.base + look.start
    for at, own in _heads(raw):
        inside = look.known is not None and look.low + int(look.known.body_ends[0]) > look.start + at
        if own != base + at and (own - base - at) % _SECTOR == 0 and not inside:
            home = store.segment_at(own)
            where = "no segment that is here" if home is None else home.name
            place = describe_offset(look.start + at)
            return (
                f"bytes of another place: at byte {place} a record begins that belongs at physical offset "
                f"{describe_offset(own)} ({where})"
            )
    return None


def _own_and_place(look: _Look) -> tuple[Ints, Ints]:
    """Return the own offsets of misplaced records in a gap, and the physical offsets where they lie."""
    hits = islice(_MAGIC.finditer(look.part(look.start, min(look.end, look.high))), _MOST_MAGICS)
    found = [look.start + hit.start() - _MAGIC_AT for hit in hits]
    records = look.records([place for place in found if look.start <= place <= look.high - message.FIXED_SIZE])
    whole = np.flatnonzero(_are_whole(records))[:_MOST_PLAUSIBLE]
    chosen: list[int] = []
    reached = 0
    # A body may hold records too: of those that overlap only the outer ones count.
    for number in whole.tolist():
        apart = len(chosen) < _MOST_COPIES and int(records.starts[number]) >= reached
        if apart and records.select(slice(number, number + 1)).body_crc_ok[0]:
            chosen.append(number)
            reached = int(records.ends[number])
    records = records.select(np.array(chosen, np.int64))
    own, place = records.physical_offset, records.base + records.starts
    misplaced = (own != place) & (own >= 0) & (records.body_size > 0)
    if look.known is not None:  # what lies in its body may be what its sender put there
        misplaced &= (records.starts >= look.known.body_ends[0]) | (records.starts < look.known.body_starts[0])
    return own[misplaced], place[misplaced]


def _are_whole(records: Records) -> Bools:
    filled = len(records.raw) - SLACK
    known = (records.magic == message.RECORD_MAGICS[0]) | (records.magic == message.RECORD_MAGICS[1])
    sizes = (records.total_size >= message.FIXED_SIZE) & (records.ends <= filled)
    whole: Bools = known & sizes & records.lengths_agree
    return whole


def _stands_at(segment: Segment, physical_offset: int, raw: bytes) -> bool:
    """Whether the record that begins `octets` stands at its own place as well."""
    size = min(int.from_bytes(raw[:4], "big"), _COMPARED)
    try:
        with open_file(segment) as reader:
            return reader.read(physical_offset - segment.base, size) == raw[:size]
    except Unreadable:
        return False


def _fill(store: Store, look: _Look) -> str | None:
    """One byte value where a record cannot have it: at its beginning, its topic, its end."""
    for start, end, value in long_runs(look.raw, look.low):
        if any(start <= place < end for place in (*look.beginnings, *look.topics)):
            until = f" to {describe_offset(end)}" if end < look.high or end == look.size else " on"
            return f"{value_words(value)} from byte {describe_offset(max(start, look.start))}{until}"
    return None


def _foreign_bytes(store: Store, look: _Look) -> str | None:
    """What belongs to no log, where a record must begin or a page does."""
    stop = min(look.end, look.high)
    for place in (look.start, *range(look.start + -look.start % PAGE, stop, PAGE)):
        known = format_of(look.part(place, place + _LONGEST_MAGIC))
        if known is not None:
            return f"{known} was written over it, from byte {describe_offset(place)} on"
    for place in look.beginnings:
        raw = look.part(place, min(place + _SAMPLE, stop))
        if is_text(raw):
            if place == look.start:
                return f"text was written over it: it begins with {quote(raw)}"
            whose = "another program's, or a misplaced body's"
            return f"text, {whose}, stands where the next record must begin: {quote(raw)}"
        if is_random(raw):
            return "the bytes look random: encrypted or compressed data was written over it"
    return None


_GAP_CAUSES: tuple[Callable[[Store, _Look], str | None], ...] = (
    _changed_field,
    _lost_pages,
    _torn_write,
    _misplaced_records,
    _misplaced_head,
    _fill,
    _foreign_bytes,
)


# --- records ------------------------------------------------------------------------------------


def explain_record(raw: bytes | memoryview, position: int, physical_offset: int) -> str | None:
    """Return why a whole record's body has not the CRC that is stored, where no flipped bit explains it.

    `octets` are the record's, of which the first is byte `position` of the file and has this
    physical offset; only their beginning is looked at. None where the bytes do not tell.
    """
    looked = bytes(raw[:_LOOK_AHEAD])
    record = Records(memoryview(looked + bytes(SLACK)), physical_offset, np.zeros(1, np.int64))
    start, end = int(record.body_starts[0]), int(record.body_ends[0])
    if len(looked) < message.FIXED_SIZE or not start < end <= len(looked):
        return None
    body = looked[start:end]
    for run_start, run_end, value in long_runs(body, position + start):
        words = unit_words(run_start, run_end, value)
        if words is not None:
            return words
    return (
        _changed_byte(body, position + start, int(record.field("body_crc")[0]))
        or _records_inside(body, position + start, physical_offset + start)
        or _text_inside(body, int(record.sys_flag[0]))
    )


def explain_record_crc(raw: bytes | memoryview, position: int) -> str | None:
    """Return the flipped bit that explains why the CRC of a whole record (`__CRC32#`) does not match.

    `octets` are the record's, of which the first is byte `position` of the file.
    """
    covered, tail = raw[: -message.CRC32_RESERVED_SIZE], bytes(raw[-message.CRC32_RESERVED_SIZE :])
    if not 0 < len(covered) <= _LOOK_AHEAD:
        return None
    computed = masked_crc32(covered)
    at = len(message.CRC32_NAME) + 1
    digits, right = tail[at:-1], f"{computed:0{message.CRC32_DIGITS}}"[::-1].encode()
    flips = [(at, now ^ was) for at, (now, was) in enumerate(zip(digits, right, strict=False)) if now != was]
    if len(flips) == 1 and flips[0][1].bit_count() == 1:
        return "one flipped bit of the stored CRC explains it"
    if not digits.isdigit() or int(digits[::-1]) > message.CRC_MASK:
        return None
    bits = find_flipped_bits(len(covered), int(digits[::-1]), computed)
    if len(bits) != 1:
        return None
    byte, bit = bits[0]
    flip = flip_words(position + byte, bit, covered[byte])
    return f"one flipped bit of {_field_at(bytes(covered), byte)} explains it: {flip}"


def _field_at(raw: bytes, at: int) -> str:
    parsed = walk_fields(message.Message.subcons, raw)
    return next((name for name, field in parsed.fields.items() if field.start <= at < field.end), "the properties")


def _changed_byte(body: bytes, position: int, stored: int) -> str | None:
    """The one byte that, with another value, gives the stored CRC."""
    if len(body) > _MOST_CHANGED_BYTE or stored < 0:
        return None
    found = find_changed_bytes(len(body), stored, masked_crc32(body))
    if len(found) != 1:
        return None
    at, change = found[0]
    now, was = octet_words(body[at]), octet_words(body[at] ^ change)
    return f"one changed byte explains it: byte {describe_offset(position + at)} is {now}, was {was}"


def _records_inside(body: bytes, position: int, physical_offset: int) -> str | None:
    """Another record's head: at its own place an older one, else, by whole sectors off, a misplaced one."""
    for at, own in _heads(body):
        where = f"at byte {describe_offset(position + at)} another record begins"
        if own == physical_offset + at:
            return f"older bytes: {where}, at its own place, so the file held it before"
        if (own - physical_offset - at) % _SECTOR == 0:
            return f"bytes of another place: {where} that belongs at physical offset {describe_offset(own)}"
    return None


def _heads(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield (position, own offset) of what looks like the beginning of a record."""
    for hit in islice(_MAGIC.finditer(raw), _MOST_PLAUSIBLE):
        at = hit.start() - _MAGIC_AT
        front = walk_fields(message.FRONT, raw[max(0, at) : at + _HEAD.sizeof()])
        own = front.number("physical_offset")
        if at >= 0 and front.reason is None and front.number("total_size") >= message.FIXED_SIZE and own >= 0:
            yield at, own


def _text_inside(body: bytes, sys_flag: int) -> str | None:
    """Text in a body that zlib compressed, which has none: its codes are not aligned to bytes."""
    kind = (sys_flag & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
    if not sys_flag & SysFlag.COMPRESSED or message.COMPRESSIONS[kind : kind + 1] != ("zlib",):
        return None
    run = _TEXT_RUN.search(body)
    return None if run is None else f"text stands in the compressed body: {quote(run.group())}"


# --- own offsets --------------------------------------------------------------------------------


def explain_offset(store: Store, segment: Segment, physical_offset: int) -> str | None:
    """Return why the record at a physical offset, whole otherwise, says that it lies elsewhere.

    Reads this record, what follows it, and the place that it says.
    """
    look = _look_at(segment, physical_offset - segment.base, physical_offset - segment.base + 1)
    if look is None or look.start + message.FIXED_SIZE > look.high:
        return None
    record = look.records([look.start])
    own, size = int(record.physical_offset[0]), int(record.total_size[0])
    home = store.segment_at(own)
    if home is not None and _stands_at(home, own, look.part(look.start, look.high)):
        return f"a copy: the same record stands at its own place, physical offset {describe_offset(own)} ({home.name})"
    following = _own_offset_at(segment, look.start + size + look.lead)
    # Segments are often a power of two long: what looks like a flipped bit may be a segment in a wrong place.
    if following == own + size + look.lead and own >= 0:
        what = "data of a segment that is not here" if home is None else f"another segment's data ({home.name})"
        if home is not None and home.base == segment.base:
            what = "shifted copy"
        return f"{what}: the record behind it is {group_digits(abs(physical_offset - own))} bytes off as well"
    change = (own ^ physical_offset) & (1 << 64) - 1
    if change.bit_count() == 1:
        at, bit = _OWN_AT + 7 - (change.bit_length() - 1) // 8, (change.bit_length() - 1) % 8
        octet = look.part(look.start + at, look.start + at + 1)
        return f"one flipped bit of PHYSICALOFFSET explains it: {flip_words(look.start + at, bit, octet[0])}"
    if following == physical_offset + size + look.lead:
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

"""What lies at one physical offset: a few small reads, whatever the size of the store.

A record proves itself when its magic, its own physical offset and all its lengths agree with the
place where it lies. An offset inside of a record is found by searching backwards for such proof.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rmqinspect.codec.fields import walk_fields
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.text import describe_offset

# A record begins at most this far before any of its bytes: four times the default maxMessageSize.
_SEARCH = 16 << 20
# Most records are small: the first window nearly always suffices, the last reaches _SEARCH.
_WINDOWS = (64 << 10, 1 << 20, _SEARCH)
# A hostile body may be nothing but records that carry the right offset; each costs a few reads.
_MAX_CANDIDATES = 5000
_LONGEST_TOPIC = 255  # core limit of any version (%RETRY% topics, 5.1.0)

_NAMES = [field.name for field in message.Message.subcons]
_HEAD = message.Message.subcons[: _NAMES.index("body")]
_AFTER_BODY = message.Message.subcons[_NAMES.index("topic_size") : _NAMES.index("properties")]
_LONGEST_HEAD = max(head.sizeof() for head in message.HEADS.values())
_MAGIC_AT, _MAGIC_SIZE = message.FRONT[0].sizeof(), message.FRONT[1].sizeof()
_OWN_OFFSET_AT = sum(field.sizeof() for field in message.FRONT[: _NAMES.index("physical_offset")])
_OWN_OFFSET_SIZE = message.FRONT[_NAMES.index("physical_offset")].sizeof()
_MAGICS = (message.MAGIC_V1, message.MAGIC_V2)
_PAGE = 4096


# (kind, start, end) of what begins at an offset; `end` is None where it does not prove itself.
Beginning = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Frame:
    """A record that proves itself: physical offsets, half-open."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Spot:
    """What an offset lies in. `start` and `end` are physical offsets; `end` is None if unknown."""

    kind: str  # record, blank, entry (DLedger, without a record), zeros, unknown
    segment: Segment
    start: int
    end: int | None
    previous: Frame | None  # the record that ends where this begins, if one was seen
    entry: int | None = None  # where the DLedger entry head of the record lies


def find_segment(store: Store, offset: int) -> Segment:
    """Return the segment that holds the byte at a physical offset.

    :raises NothingFound: no segment does; the message names the range of the log.
    :raises Unreadable: none does that could be read.
    """
    if (segment := store.segment_at(offset)) is not None:
        return segment
    for oddity in store.oddities:
        if oddity.is_unread and oddity.place[:1] == ("commitlog",):
            raise Unreadable(f"{oddity.name}: not read: {oddity.detail}")
    if not store.segments:
        raise NothingFound(f"{store.name}: no commit log given, so nothing is at {describe_offset(offset)}")
    first, last = store.segments[0], store.segments[-1]
    end = last.end
    where = f"{store.name}: physical offset {describe_offset(offset)}"
    covered = f"{describe_offset(first.base)} to {describe_offset(end)}"
    if offset < first.base:
        raise NothingFound(f"{where} lies before the log, which covers {covered}: expired, or not given")
    if offset >= end:
        raise NothingFound(f"{where} lies beyond the log, which covers {covered}")
    raise NothingFound(f"{where} lies in no segment: one is missing or short in {covered}")


def locate(store: Store, offset: int) -> Spot:
    """Return what the byte at a physical offset belongs to.

    :raises NothingFound: the offset lies in no segment.
    :raises Unreadable: an I/O error.
    """
    segment = find_segment(store, offset)
    with open_file(segment) as reader:
        return _locate(reader, segment, offset)


def read_frame(reader: FileReader, base: int, offset: int) -> Frame | None:
    """Return the record that begins at a physical offset, None if what lies there does not prove it."""
    position = offset - base
    head = walk_fields(_HEAD, reader.read(position, _LONGEST_HEAD))
    if head.reason is not None or head.number("magic") not in _MAGICS:
        return None
    size, body_size = head.number("total_size"), max(0, head.number("body_size"))
    if head.number("physical_offset") != offset or head.end + body_size > size:
        return None
    behind = position + head.end + body_size
    raw = reader.read(behind, _LONGEST_TOPIC + 4)  # both lengths have at most 2 bytes
    tail = walk_fields(_AFTER_BODY, raw, known={"magic": head.number("magic")})
    end = behind + tail.end + max(0, tail.number("properties_size"))
    if tail.reason is not None or end - position != size or end > reader.size:
        return None
    return Frame(offset, offset + size)


def frames_before(reader: FileReader, base: int, offset: int) -> Iterator[Frame]:
    """Yield the records that begin before a physical offset, the nearest first.

    Looks back 16 MiB at most. A copy of a record inside of a body is yielded too if it carries
    the offset at which it lies.
    """
    stop, left = offset - base, _MAX_CANDIDATES
    for span in _WINDOWS:
        low = max(0, offset - base - span)
        for start in reversed(_self_addressed(reader, base, low, stop)[-left:]):
            left -= 1
            frame = read_frame(reader, base, start)
            if frame is not None:
                yield frame
        stop = low
        if low == 0 or left <= 0:
            return


def next_frame(reader: FileReader, base: int, offset: int) -> Frame | None:
    """Return the first record that begins at or behind a physical offset, within 16 MiB."""
    low = offset - base
    for start in _self_addressed(reader, base, low, low + _SEARCH)[:_MAX_CANDIDATES]:
        frame = read_frame(reader, base, start)
        if frame is not None:
            return frame
    return None


def _self_addressed(reader: FileReader, base: int, low: int, stop: int) -> list[int]:
    """Return the physical offsets in [low, stop) of the file where a magic and the own offset stand."""
    window = reader.read(low, max(0, stop - low) + _OWN_OFFSET_AT + _OWN_OFFSET_SIZE)
    # All but the last three bytes of the own offset are the same in 16 MiB: most of what is no
    # record is left out by the regular expression, which is fast.
    highest = range((base + low) >> 24, ((base + stop) >> 24) + 1)
    heads = b"|".join(re.escape(number.to_bytes(_OWN_OFFSET_SIZE - 3, "big")) for number in highest)
    magics = b"|".join(re.escape(magic.to_bytes(_MAGIC_SIZE, "big", signed=True)) for magic in _MAGICS)
    between = b".{%d}" % (_OWN_OFFSET_AT - _MAGIC_AT - _MAGIC_SIZE)
    found = []
    for match in re.finditer(b"(?:%s)(?=%s(?:%s))" % (magics, between, heads), window, re.DOTALL):
        start = match.start() - _MAGIC_AT
        own = window[start + _OWN_OFFSET_AT : start + _OWN_OFFSET_AT + _OWN_OFFSET_SIZE]
        offset = base + low + start
        if start >= 0 and low + start < stop and int.from_bytes(own, "big", signed=True) == offset:
            found.append(offset)
    return found


def entry_before(reader: FileReader, segment: Segment, record: int) -> int | None:
    """Return where the DLedger entry head in front of a record lies, None if none does."""
    head_size = dledger.EntryHead.sizeof()
    start = record - head_size
    if segment.kind != "dledger" or start < segment.base:
        return None
    return start if _is_entry(reader, segment.base, start) else None


def what_begins(reader: FileReader, segment: Segment, offset: int) -> Beginning | None:
    """Return what begins exactly at a physical offset, None if nothing known does.

    In a DLedger file the record behind an entry head begins with the head.
    """
    position = offset - segment.base
    raw = reader.read(position, _LONGEST_HEAD)
    front = walk_fields(message.Blank.subcons, raw)
    if front.number("magic") == message.MAGIC_BLANK:
        size = front.number("total_size")
        return "blank", offset, offset + size if front.end <= size <= reader.size - position else None
    if front.number("magic") in _MAGICS:
        frame = read_frame(reader, segment.base, offset)
        return "record", offset, frame.end if frame is not None else None
    if segment.kind == "dledger":
        return _what_begins_in_dledger(reader, segment, offset)
    return None


def _what_begins_in_dledger(reader: FileReader, segment: Segment, offset: int) -> Beginning | None:
    raw = reader.read(offset - segment.base, dledger.EntryHead.sizeof())
    blank = walk_fields(dledger.EntryBlank.subcons, raw)
    left = segment.base + reader.size - offset
    if blank.number("magic") == dledger.ENTRY_MAGIC_BLANK and blank.number("total_size") == left:
        return "blank", offset, offset + left
    if not _is_entry(reader, segment.base, offset):
        return None
    record = offset + len(raw)
    found = walk_fields(message.Blank.subcons, reader.read(record - segment.base, message.Blank.sizeof()))
    if found.number("magic") in _MAGICS:
        frame = read_frame(reader, segment.base, record)
        return "record", record, frame.end if frame is not None else None
    size = walk_fields(dledger.EntryHead.subcons, raw).number("size")
    return "entry", offset, offset + size if len(raw) <= size <= left else None


def _is_entry(reader: FileReader, base: int, offset: int) -> bool:
    head = walk_fields(dledger.EntryHead.subcons, reader.read(offset - base, dledger.EntryHead.sizeof()))
    known = head.number("magic") in dledger.ENTRY_MAGICS
    return head.reason is None and known and head.number("position") == offset


def _locate(reader: FileReader, segment: Segment, offset: int) -> Spot:
    begins = what_begins(reader, segment, offset)
    covering, previous = _around(reader, segment.base, offset)
    # What does not prove itself may be bytes inside of a record that does.
    proven = begins is not None and begins[2] is not None
    if covering is not None and not proven:
        return _spot(reader, segment, ("record", covering.start, covering.end))
    if begins is None:
        # Damaged or no record: it begins where the record before it ends.
        start = previous.end if previous is not None else segment.base
        near = previous is not None or offset - segment.base <= _SEARCH
        begins = what_begins(reader, segment, start) if near and start < offset else None
        if begins is None or offset >= _claimed_end(reader, segment, begins):
            if not any(reader.read(offset - segment.base, _PAGE)):
                return Spot("zeros", segment, offset, _zeros_end(reader, segment, offset), previous)
            begins = begins or ("unknown", start if near else offset, None)
    return _spot(reader, segment, begins)


def _claimed_end(reader: FileReader, segment: Segment, begins: Beginning) -> int:
    """Return where something ends by its own account, which may be wrong."""
    kind, start, end = begins
    if end is not None or kind == "entry":
        return end if end is not None else start
    front = walk_fields(message.Blank.subcons, reader.read(start - segment.base, message.Blank.sizeof()))
    return start + front.number("total_size")


def _spot(reader: FileReader, segment: Segment, begins: Beginning) -> Spot:
    kind, start, end = begins
    entry = entry_before(reader, segment, start) if kind == "record" else None
    if end is None:
        after = next_frame(reader, segment.base, start + 1)
        end = after.start if after is not None else None
        if end is not None and segment.kind == "dledger":
            end -= dledger.EntryHead.sizeof()
    border = start if entry is None else entry
    near = next(frames_before(reader, segment.base, border), None)
    return Spot(kind, segment, start, end, near if near is not None and near.end == border else None, entry)


def _around(reader: FileReader, base: int, offset: int) -> tuple[Frame | None, Frame | None]:
    """Return the outermost record around an offset, and the last one that ends before it."""
    covering = before = None
    for frame in frames_before(reader, base, offset):
        if frame.end > offset:
            # A record may lie in the body of another one; the outer one is the log's.
            covering = frame
        elif before is None:
            before = frame
        if (covering or before) and offset - frame.start > _WINDOWS[0]:
            break
        if before is not None and before.end == offset:
            break
    return covering, before


def _zeros_end(reader: FileReader, segment: Segment, offset: int) -> int | None:
    """Return where the zeros end; None when that is not seen in a few reads."""
    position = offset - segment.base
    for _ in range(_SEARCH // _WINDOWS[1]):
        position = reader.next_allocated(position)
        raw = reader.read(position, _WINDOWS[1])
        if not raw:
            return segment.base + reader.size
        if any(raw):
            return segment.base + position + len(raw) - len(raw.lstrip(b"\0"))
        position += len(raw)
    return None

"""The one field that broke a record: which value makes the record prove itself again.

A damaged record is mostly sound, and its sound fields determine the damaged one: the lengths add up to
TOTALSIZE, the body has a CRC, the own offset is the place. For each field that can break the chain, every
value with which the lengths may add up is tried:

    found      00 00 01 2b | da a3 21 a7 | ...      MAGICCODE is none
    tried                    da a3 20 a7            lengths, own offset, CRC, topic, properties: agree
                             da a3 20 ab            the lengths disagree: dropped

Invariants: a value is reported only when everything agrees with it and no other value, of this field or
another one, does as well; one flipped bit wins over a longer change; records larger than a broker writes
by default are not repaired, so the cost is bounded.

Source: CommitLog#checkMessageAndReturnSize for the proof, MessageExtEncoder#encode for the fields.

The bytes around damage: a few MiB at most, however large the damage is.

               low            start                   end         high
    segment ....|--- 64 KiB ---|========= gap =========|-- a page --|....

All positions are bytes from the beginning of the file, as its pages are.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from msgspec import Struct

from rmqinspect.codec.arrays import lazy
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.records import Records
from rmqinspect.damage.patterns import PAGE, one_flip
from rmqinspect.errors import Unreadable
from rmqinspect.loops.record_rows import SLACK
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file
from rmqinspect.topics import is_legal_topic

# Bytes: the broker's largest record by default (4 MiB and 64 KiB).
MOST_REPAIRED = (4 << 20) + (64 << 10)

# Values of one field tried at most. Lengths add up by chance in one of 65,536 places; more are crafted.
_MOST_VALUES = 64
_MOST_BEHIND_BODY = 2 + 255 + 2 + 0x7FFF  # bytes: %RETRY% topics have up to 255

_LIKELY_TIMES = range(1 << 40, 1 << 43)  # ms: 2004, before the first broker, to 2248

_INT8, _INT16 = np.dtype(">i1"), np.dtype(">i2")
_V6 = (SysFlag.BORNHOST_V6, SysFlag.STOREHOSTADDRESS_V6, SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6)
_HEAD = message.HEADS[False, False]
_BODY_SIZE_BEFORE_BODY = dtype_of(_HEAD).itemsize - place_of(_HEAD, "body_size")

# Where a value would go, how many bytes it takes, and the value.
Value = tuple[int, int, int]
Values = Callable[[Records, int], Iterator[Value]]


class Repair(Struct, frozen=True):
    """A field that alone keeps a record, a DLedger entry or a blank record from proving itself."""

    field: str  # RocketMQ's name
    at: int  # first byte of the field, from the beginning of the record, entry or blank
    found: bytes
    expected: bytes
    size: int  # bytes of the repaired record, entry or blank
    topic: str | None = None  # of the record; None: a blank record
    queue_id: int | None = None
    queue_offset: int | None = None


def find_repair(
    raw: bytes,
    place: int,
    left: int,
    *,
    wraps: bool,
    end: int,
    agrees: Callable[[Repair], bool] = lambda repair: True,
) -> Repair | None:
    """Return the only change of one field with which the record at the beginning of `raw` proves itself.

    `place` is the physical offset of the first byte; `left` bytes from there the file ends, `end` bytes
    from there the log is known to go on. `wraps`: a DLedger entry head stands in front of the record.
    `raw` should go on behind the record: what follows decides between two values. Changes that do not agree with what
    else is known of the record (`agrees`) are none.
    """
    blank = _repair_blank(raw, left, wraps=wraps)
    if blank is not None:
        return blank
    frame = _Frame(raw, place, dledger.EntryHead.sizeof() if wraps else 0, (end, left))
    if len(raw) < frame.lead + message.FIXED_SIZE:
        return None
    found = [repair for field, values in _FIELDS for repair in frame.repairs(field, values)]
    if wraps:
        found += [repair for field, values in _ENTRY_FIELDS for repair in frame.repairs(field, values)]
    found = list(filter(agrees, found))
    single = [repair for repair in found if one_flip(repair.found, repair.expected) is not None]
    # One flipped bit is likelier than a longer change that explains the same bytes.
    likely = single or found
    return likely[0] if len(likely) == 1 else None


class _Frame:
    """A damaged record at the beginning of some bytes, and the changes to it that are tried."""

    def __init__(self, raw: bytes, place: int, lead: int, borders: tuple[int, ...]) -> None:
        self.raw = raw
        self.place = place
        self.lead = lead
        self.borders = borders  # where a record may end: the log goes on there, or the file ends
        self.record = self._record(bytearray(raw))

    def _record(self, raw: bytearray) -> Records:
        return Records.at(memoryview(raw + bytes(SLACK)), self.place, np.array([self.lead], np.int64))

    def repairs(self, field: str, values: Values) -> Iterator[Repair]:
        """Yield a repair for each value of a field with which the record proves itself."""
        for at, size, value in values(self.record, len(self.raw)):
            if not 0 <= at <= len(self.raw) - size or not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
                continue
            found, expected = self.raw[at : at + size], value.to_bytes(size, "big", signed=True)
            if found == expected:
                continue
            changed = bytearray(self.raw)
            changed[at : at + size] = expected
            record = self._record(changed)
            if self._proves_itself(record, changed) and self._is_likely(field, record):
                yield Repair(
                    field,
                    at,
                    found,
                    expected,
                    int(record.ends[0]),
                    _topic(record).decode(),
                    int(record.field("queue_id")[0]),
                    int(record.field("queue_offset")[0]),
                )

    def _proves_itself(self, record: Records, raw: bytearray) -> bool:
        if not record.are_sound(len(raw))[0] or int(record.physical_offset[0]) != self.place + self.lead:
            return False
        if self.lead and not self._entry_agrees(raw, int(record.total_size[0])):
            return False
        if not is_legal_topic(_topic(record)) or not record.body_crc_ok[0]:
            return False
        return not record.properties.malformed[0]

    def _entry_agrees(self, raw: bytearray, size: int) -> bool:
        head = np.frombuffer(raw, dtype_of(dledger.EntryHead), 1)[0]
        sizes = (int(head["size"]), int(head["body_size"]), int(head["position"]))
        return sizes == (size + self.lead, size, self.place) and int(head["magic"]) in dledger.ENTRY_MAGICS

    def _is_likely(self, field: str, record: Records) -> bool:
        """Whether a change passes one more test, where several changes explain the same bytes."""
        if field in _NEED_AN_END:
            return self._goes_on(record)
        # Either IPv6 bit of SYSFLAG makes the head longer by the same.
        return field != "SYSFLAG" or _hosts_are_plausible(record)

    def _goes_on(self, record: Records) -> bool:
        """Whether the log goes on where the record ends: zeros, a known border, or a record in its place."""
        end = int(record.ends[0])
        if end in self.borders or (end < len(self.raw) and not any(self.raw[end:])):
            return True
        if end + self.lead > len(self.raw) - message.FIXED_SIZE:
            return False
        following = Records.at(record.raw, self.place, np.array([end + self.lead], np.int64))
        own = int(following.physical_offset[0])
        return following.magic[0] in message.RECORD_MAGICS and own == self.place + end + self.lead


def _topic(record: Records) -> bytes:
    return bytes(record.raw[int(record.topic_starts[0]) : int(record.topic_ends[0])])


def _hosts_are_plausible(record: Records) -> bool:
    """Whether the ports and the store time are plausible where SYSFLAG puts them."""
    ports = (int(record.field(port)[0]) for port in ("born_port", "store_port"))
    return all(0 <= port <= 0xFFFF for port in ports) and int(record.field("store_timestamp")[0]) in _LIKELY_TIMES


def _repair_blank(raw: bytes, left: int, *, wraps: bool) -> Repair | None:
    """Return the repair of a blank record's magic, known by its size: the bytes left in the file."""
    layout, magic = (dledger.EntryBlank, dledger.ENTRY_MAGIC_BLANK) if wraps else (message.Blank, message.MAGIC_BLANK)
    if len(raw) < layout.sizeof() or int.from_bytes(raw[span_of(layout, "total_size")], "big", signed=True) != left:
        return None
    at, found = place_of(layout, "magic"), raw[span_of(layout, "magic")]
    expected = magic.to_bytes(4, "big", signed=True)
    known = expected, *(value.to_bytes(4, "big", signed=True) for value in message.RECORD_MAGICS)
    return None if found in known else Repair("MAGICCODE of the blank record", at, found, expected, left)


# --- values to try ------------------------------------------------------------------------------
#
# Each generator takes the damaged record and the number of bytes there are, and yields the values of its
# field with which the lengths may add up. The other fields are taken to be sound.


def _head_values(name: str, values: Callable[[Records], Iterable[int]]) -> Values:
    """Return a generator for a field in front of the hosts, whose place is the same in every record."""
    return lambda record, filled: (
        (int(record.starts[0]) + place_of(_HEAD, name), 4, value) for value in values(record)
    )


def _body_sizes(record: Records, filled: int) -> Iterator[Value]:
    """Yield every end of the body from which topic and properties lead to the record's end."""
    start, end = int(record.body_starts[0]), int(record.ends[0])
    width = 2 if record.magic[0] == message.MAGIC_V2 else 1
    if end > filled:
        return
    # Behind the body stand two lengths and a topic of at least one byte.
    ends = np.arange(max(start, end - _MOST_BEHIND_BODY), end - width - 2)
    sizes = record.view(_INT16 if width == 2 else _INT8)[ends].astype(np.int64)
    topic_ends = ends + width + sizes
    inside = (sizes > 0) & (topic_ends + 2 <= end)
    ends, topic_ends = ends[inside], topic_ends[inside]
    fits = ends[topic_ends + 2 + np.maximum(record.view(_INT16)[topic_ends], 0) == end]
    for body_end in fits[:_MOST_VALUES].tolist() if len(fits) <= _MOST_VALUES else ():
        yield start - _BODY_SIZE_BEFORE_BODY, 4, body_end - start


def _topic_sizes(record: Records, filled: int) -> Iterator[Value]:
    width = 2 if record.magic[0] == message.MAGIC_V2 else 1
    at, end = int(record.body_ends[0]), int(record.ends[0])
    for size in range(1, 256):
        length_at = at + width + size
        if length_at + 2 > min(end, filled):
            return
        if length_at + 2 + max(0, int(record.view(_INT16)[length_at])) == end:
            yield at, width, size


def _properties_sizes(record: Records, filled: int) -> Iterator[Value]:
    yield int(record.topic_ends[0]), 2, int(record.ends[0] - record.topic_ends[0]) - 2


def _entry_values(name: str, value: Callable[[Records], int]) -> Values:
    return lambda record, filled: iter([(place_of(dledger.EntryHead, name), 4, value(record))])


_FIELDS: tuple[tuple[str, Values], ...] = (
    ("MAGICCODE", _head_values("magic", lambda record: message.RECORD_MAGICS)),
    ("TOTALSIZE", _head_values("total_size", lambda record: [int(record.properties_ends[0] - record.starts[0])])),
    ("SYSFLAG", _head_values("sys_flag", lambda record: [int(record.sys_flag[0]) ^ bits for bits in _V6])),
    ("BODYLEN", _body_sizes),
    ("the topic's length", _topic_sizes),
    ("PROPERTIESLEN", _properties_sizes),
)

_ENTRY_FIELDS: tuple[tuple[str, Values], ...] = (
    ("the entry's magic", _entry_values("magic", lambda record: dledger.ENTRY_MAGICS[0])),
    ("the entry's size", _entry_values("size", lambda record: int(record.total_size[0]) + dledger.EntryHead.sizeof())),
    ("the entry's body size", _entry_values("body_size", lambda record: int(record.total_size[0]))),
)

# TOTALSIZE and the last length depend on each other: only what follows the record tells which is wrong.
_NEED_AN_END = ("TOTALSIZE", "PROPERTIESLEN")


LOOK_AHEAD = MOST_REPAIRED + (64 << 10)  # bytes: the largest record, and a neighbour
_LOOK_BEHIND = 64 << 10

# What is neither head nor body of a record: two lengths, a topic of one byte at least.
_LEAST_TRAILER = 4
_MOST_TRAILER = 1 << 16


class Surroundings(Struct, frozen=True, dict=True):
    """The bytes around a gap [start, end)."""

    segment: Segment
    size: int  # of the file
    start: int
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
        """Return bytes [start, end), as far as they were read."""
        return self.raw[max(0, start - self.low) : max(0, end - self.low)]

    def records(self, positions: list[int]) -> Records:
        """Return what stands at some positions as records; each must leave room for a head."""
        starts = np.array(positions, np.int64) - self.low
        return Records.at(self._with_slack, self.segment.base + self.low, starts)

    @lazy
    def _with_slack(self) -> memoryview:
        return memoryview(self.raw + bytes(SLACK))

    @lazy
    def in_place(self) -> Records | None:
        """The record that begins the gap, if its own offset is right; any other field may be damaged."""
        if self.start + self.lead + message.FIXED_SIZE > self.high:
            return None
        record = self.records([self.start + self.lead])
        return record if int(record.physical_offset[0]) == record.base + int(record.starts[0]) else None

    @lazy
    def head(self) -> Records | None:
        """The same, if its magic is right too and its sizes are plausible."""
        record = self.in_place
        if record is None or record.magic[0] not in message.RECORD_MAGICS or record.body_size[0] < 0:
            return None
        return record if _LEAST_TRAILER <= int(record.ends[0] - record.body_ends[0]) < _MOST_TRAILER else None

    @property
    def beginnings(self) -> list[int]:
        """Where records must begin: at the gap's start, and behind the record whose head is sound."""
        following = [self.low + int(self.head.ends[0])] if self.head is not None else []
        return [place for place in (self.start, *following) if place < min(self.end, self.high)]

    @property
    def topics(self) -> list[int]:
        """Where a topic's length must stand, which is not 0: behind the body of that record."""
        return [self.low + int(self.head.body_ends[0])] if self.head is not None else []


def look_around(segment: Segment, start: int, end: int) -> Surroundings | None:
    """Return the bytes around a gap, by positions in the file; None if they cannot be read."""
    low = max(0, start - start % PAGE - _LOOK_BEHIND)
    try:
        with open_file(segment) as reader:
            raw = reader.read(low, min(end + PAGE, start + LOOK_AHEAD) - low)
            return Surroundings(segment, reader.size, start, end, low, raw)
    except Unreadable:
        return None

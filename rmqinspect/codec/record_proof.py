"""Does a record begin here? Tests on plain bytes, one place at a time.

Nothing in a commit log marks where records begin. A record proves itself by what it says about
itself, in steps of growing cost; damage or chance passes the first ones, nothing passes all:

    magic     4 bytes      `find_magics`       every candidate in a buffer
    head      88-112 bytes `read_head`         a plausible TOTALSIZE, and where the body ends
    place     8 bytes      `Head.own_offset`   PHYSICALOFFSET is where the record lies
    lengths   the trailer  `trailer_size`      body, topic and properties end exactly at TOTALSIZE
    checksum  the body     `Head.body_crc`     left to callers that read the body

A blank record, which ends a full segment, has a magic and the number of bytes left in the file
(`blank_size`). `commitlog.find_record` searches files with these tests.

`commitlog.records.Records` makes the same tests for many records at once; a test compares the two
on damaged records.

Source: CommitLog#checkMessageAndReturnSize.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of

LONGEST_HEAD = max(head.sizeof() for head in message.HEADS.values())
LONGEST_TRAILER = 2 * (2 + 0x7FFF)  # two 16-bit lengths, and a topic and properties as long as they allow

_FRONT = message.HEADS[False, False]
_SIZE_AT, _MAGIC_AT, _CRC_AT, _OFFSET_AT, _FLAG_AT = (
    place_of(_FRONT, name) for name in ("total_size", "magic", "body_crc", "physical_offset", "sys_flag")
)
_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in message.RECORD_MAGICS)
MAGIC = re.compile(b"|".join(re.escape(magic) for magic in _MAGICS))
# The fields whose place depends on the address families: head size, STORETIMESTAMP, BODYLEN.
_PLACES = {
    hosts: (head.sizeof(), place_of(head, "store_timestamp"), place_of(head, "body_size"))
    for hosts, head in message.HEADS.items()
}


# Magic, its place and that of the size, by whether it is a DLedger file, whose two fields stand the other way round.
BLANKS = {
    in_dledger: (magic.to_bytes(4, "big", signed=True), place_of(layout, "magic"), place_of(layout, "total_size"))
    for in_dledger, layout, magic in (
        (False, message.Blank, message.MAGIC_BLANK),
        (True, dledger.EntryBlank, dledger.ENTRY_MAGIC_BLANK),
    )
}

_BORN_V6, _STORE_V6 = int(SysFlag.BORNHOST_V6), int(SysFlag.STOREHOSTADDRESS_V6)  # faster than members of a Flag


class Head(NamedTuple):
    """The head of what looks like a record. Positions are bytes from the record's start."""

    size: int  # TOTALSIZE, at least `message.FIXED_SIZE`
    magic: int
    body_crc: int
    own_offset: int  # PHYSICALOFFSET
    sys_flag: int
    store_timestamp: int  # ms
    body_start: int
    body_end: int  # a negative BODYLEN counts as 0


def find_magics(raw: bytes, start: int = 0) -> Iterator[int]:
    """Yield, ascending, the positions from `start` on where a record begins if its magic is one."""
    for match in MAGIC.finditer(raw, start + _MAGIC_AT):
        yield match.start() - _MAGIC_AT


def read_head(raw: bytes | memoryview, at: int = 0) -> Head | None:
    """Return the head at a position; None without a record's magic, a plausible size, or enough bytes."""
    if bytes(raw[at + _MAGIC_AT : at + _MAGIC_AT + 4]) not in _MAGICS:
        return None
    size, flags = _int(raw, at + _SIZE_AT, 4), _int(raw, at + _FLAG_AT, 4)
    head_size, timestamp_at, body_size_at = _PLACES[bool(flags & _BORN_V6), bool(flags & _STORE_V6)]
    if size < message.FIXED_SIZE or len(raw) < at + head_size:
        return None
    return Head(
        size,
        _int(raw, at + _MAGIC_AT, 4),
        _int(raw, at + _CRC_AT, 4),
        _int(raw, at + _OFFSET_AT, 8),
        flags,
        _int(raw, at + timestamp_at, 8),
        head_size,
        head_size + max(0, _int(raw, at + body_size_at, 4)),
    )


def trailer_size(head: Head, raw: bytes) -> int | None:
    """Return the size of topic and properties with their lengths; `raw` begins behind the body.

    None where the topic's length is negative or `raw` ends too early to tell. A negative
    PROPERTIESLEN counts as 0, as the broker reads it.
    """
    width = 2 if head.magic == message.MAGIC_V2 else 1
    if len(raw) < width:
        return None
    topic_size = _int(raw, 0, width)
    at = width + topic_size
    if topic_size < 0 or len(raw) < at + 2:
        return None
    return at + 2 + max(0, _int(raw, at, 2))


def blank_size(raw: bytes, *, in_dledger: bool) -> int | None:
    """Return the size that a blank record at the beginning of `raw` claims; None without its magic, or its size."""
    magic, magic_at, size_at = BLANKS[in_dledger]
    if len(raw) < message.Blank.sizeof():
        return None
    return _int(raw, size_at, 4) if raw[magic_at : magic_at + 4] == magic else None


def _int(raw: bytes | memoryview, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "big", signed=True)

"""The one bit that keeps a record from proving itself, with its proof: what `verify` and `show` say in words.

BODYCRC does not match        the bit of the body, or of BODYCRC, with which they agree: no other does
PHYSICALOFFSET                one bit off its place, and the log goes on behind the record
__CRC32# does not match       the bit with which it does
lengths, magic, size          the only change of one field with which the record proves itself, if it is one bit
"""

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.record_proof import read_head
from rmqinspect.commitlog.find_record import SEARCH, ChainFinder, LenientReader
from rmqinspect.commitlog.records import Records
from rmqinspect.damage.misplaced import body_flip, record_flip
from rmqinspect.damage.patterns import one_flip
from rmqinspect.damage.single_field import LOOK_AHEAD, find_repair
from rmqinspect.errors import Unreadable
from rmqinspect.loops.record_rows import SLACK, WRONG_CRC
from rmqinspect.schemas import message
from rmqinspect.schemas.places import span_of
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

_HEAD = message.HEADS[False, False]
_OWN_OFFSET, _MAGIC = (span_of(_HEAD, name) for name in ("physical_offset", "magic"))


class Flip(NamedTuple):
    """A byte of a file, of which one bit was flipped."""

    position: int
    found: int
    was: int


def flipped_bit(segment: Segment, place: int) -> Flip | None:
    """Return the flipped bit of the record that begins at a physical offset; None where no single one is proven.

    Not in a DLedger file: the heads of its entries have a CRC of their own. None where it cannot be read.
    """
    start = place - segment.base
    if segment.lead or not 0 <= start < segment.size:
        return None
    try:
        with open_file(segment) as file:
            raw = file.read(start, LOOK_AHEAD)
            found = _in_record(raw, place)
            if found is None and not _is_sound(raw, place):
                finder = ChainFinder(LenientReader(file, segment))
                end = finder.find_next(place + 1, min(finder.end, place + SEARCH)) - place
                found = _in_field(raw, place, segment.size - start, end)
    except Unreadable:
        return None
    return None if found is None else Flip(start + found[0], raw[found[0]], found[1])


def _record(raw: bytes, place: int) -> Records | None:
    """Return what begins some bytes as a record, if its lengths add up."""
    if len(raw) < message.FIXED_SIZE:
        return None
    record = Records.at(memoryview(raw + bytes(SLACK)), place, np.zeros(1, np.int64))
    return record if record.are_sound(len(raw))[0] else None


def _is_sound(raw: bytes, place: int) -> bool:
    return _record(raw, place) is not None


def _in_record(raw: bytes, place: int) -> tuple[int, int] | None:
    """Return (byte, its value before) of a record whose lengths add up, and another proof fails."""
    record, head = _record(raw, place), read_head(raw)
    if record is None or head is None:
        return None
    size = int(record.total_size[0])
    if not record.body_crc_ok[0]:
        return body_flip(head, raw[head.body_start : head.body_end])
    if int(record.physical_offset[0]) != place:
        own, right = raw[_OWN_OFFSET], place.to_bytes(8, "big")
        at = one_flip(own, right)
        behind = raw[size:]
        goes_on = behind[_OWN_OFFSET] == (place + size).to_bytes(8, "big")
        ends = behind[_MAGIC] in (bytes(4), message.MAGIC_BLANK.to_bytes(4, "big", signed=True))
        return None if at is None or not (goes_on or ends) else (_OWN_OFFSET.start + at, right[at])
    return record_flip(raw[:size]) if record.record_crcs[0] == WRONG_CRC else None


def _in_field(raw: bytes, place: int, left: int, end: int) -> tuple[int, int] | None:
    """Return (byte, its value before) of the one field that keeps a record from proving itself."""
    repair = find_repair(raw, place, left, wraps=False, end=end)
    at = None if repair is None else one_flip(repair.found, repair.expected)
    return None if repair is None or at is None else (repair.at + at, repair.expected[at])

"""A record that the chain does not lead to, because its head or a length is damaged, though its place is known.

    log     ...|rec|da a3 21 a7 ...?...|rec|...      MAGICCODE is none: the walk finds the next record by search
                   ^ where the record before it ends, and the next one begins behind it
    unit             place, 242                      the broker has noted where it begins, and how long it is

Two proofs are taken. With that size and a magic of records the lengths add up, and the record says itself
that it lies there; or one other field, which `single_field` finds, is all that keeps it from proving itself.
"""

from rmqinspect.commitlog.records import Records
from rmqinspect.damage.single_field import MOST_REPAIRED, find_repair
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import message
from rmqinspect.schemas.places import span_of
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

_HEAD = message.HEADS[False, False]
_SIZE, _MAGIC, _OWN_OFFSET = (span_of(_HEAD, name) for name in ("total_size", "magic", "physical_offset"))


def named_record(segment: Segment, place: int, size: int, unread: list[str]) -> Records | None:
    """Return the record of this size at a physical offset as it was, the damaged field set right; None without one.

    What the system refuses to read is noted in `unread`.
    """
    try:
        with open_file(segment) as reader:
            head = reader.read(place - segment.base, message.FIXED_SIZE)
            if size < len(head) or head[_OWN_OFFSET] != place.to_bytes(8, "big"):
                return None
            raw = reader.read(place - segment.base, size)
    except Unreadable as error:
        unread.append(str(error))
        return None
    if len(raw) < size:
        return None
    sized = bytearray(raw)
    sized[_SIZE] = size.to_bytes(4, "big")
    for magic in message.RECORD_MAGICS:
        sized[_MAGIC] = magic.to_bytes(4, "big", signed=True)
        record = Records.of_one(bytes(sized), place)
        if record.are_sound(size)[0]:
            return record
    return _repaired(raw, place)


def size_at(segment: Segment, place: int) -> int:
    """Return the TOTALSIZE that stands at a physical offset, whatever it is; 0 where it cannot be read."""
    try:
        with open_file(segment) as reader:
            return int.from_bytes(reader.read(place - segment.base, 4), "big", signed=True)
    except Unreadable:
        return 0


def _repaired(raw: bytes, place: int) -> Records | None:
    """Return the record of exactly these bytes with its only damaged field set right; None where there are more."""
    if raw[_SIZE] != len(raw).to_bytes(4, "big") or len(raw) > MOST_REPAIRED:
        return None
    repair = find_repair(raw, place, len(raw), wraps=False, end=len(raw))
    if repair is None or repair.topic is None or repair.size != len(raw):
        return None
    right = raw[: repair.at] + repair.expected + raw[repair.at + len(repair.expected) :]
    return Records.of_one(right, place)

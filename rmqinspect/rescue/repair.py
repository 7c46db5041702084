"""Repairs with proof: a damaged record made what it was, where its own bytes or what points at it determine that.

    damaged                      what determines it
    a bit of the body            BODYCRC, or the CRC of the whole record
    a bit of BODYCRC             the body
    any bit but the last ones    the CRC of the whole record (`__CRC32#`)
    a size, magic, SYSFLAG's     the lengths add up, own offset, CRC, topic and properties agree, and what
      bits of the hosts            follows; among several values the queue unit decides
    PHYSICALOFFSET               the place, where the chain leads through it
    QUEUEID, QUEUEOFFSET, topic  the queue unit that leads here, where its neighbours agree with their records
    QUEUEID below 0              it is that of a queue but for its sign
    a port above 65535           but for one bit it is none
    QUEUEOFFSET without a unit   the records around it in its queue (`sequences`)
    SYSFLAG's type               the queue unit: prepared and rolled-back messages have none; and whether the record
                                 names a half message, as only commit records do
    STORETIMESTAMP               the times around it, the second in the index, the time of delivery, the batch unit:
                                   one flipped bit, else to within their distance
    a bit of TAGS, UNIQ_KEY,     the queue unit and the index entries (`texts`)
      KEYS, DELAY

Invariants: every answer proves itself in full (`_proves`): chain, place, both CRCs, a legal topic, and the unit
that leads to it; what several values would explain is not repaired; and a body with lost pages is not taken for one
with a flipped bit, whatever chance makes of its CRC.

Source: CommitLog#checkMessageAndReturnSize for the proof.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.java import find_flipped_bits, masked_crc32
from rmqinspect.commitlog.find_record import is_possible_time
from rmqinspect.commitlog.record_reader import OpenSegment, RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.damage.patterns import long_runs, one_flip, unit_words
from rmqinspect.damage.single_field import LOOK_AHEAD, find_repair
from rmqinspect.loops.record_rows import LAST_PLACE, LAST_PORT, RIGHT_CRC, WRONG_CRC
from rmqinspect.schemas import message
from rmqinspect.schemas.message import (
    CRC32_DIGITS,
    CRC32_NAME,
    CRC32_RESERVED_SIZE,
    CRC_MASK,
    TRANSACTION_MASK,
    SysFlag,
)
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.topics import is_legal_topic

_HEAD = message.HEADS[False, False]
_AROUND = 8  # records on each side of one whose store time is in question
_NEAR_MS = 60_000  # from one record to the next, where one flipped bit is looked for at an end of the log
MOST_QUEUES = 1024  # of a topic: more than any broker is given
_PORT = 4  # bytes
_SIGN = 1 << 31  # of a Java int
_SECOND = 1000  # ms
_TOPIC_CHANGED_BYTES = 1  # a topic of the same length with one other letter

_KNOWN_FLAGS = int(~SysFlag(0))  # of SYSFLAG
# Fields that no other bytes tell anything of.
_UNPROVEN = ("flag", "born_timestamp", "born_host", "store_host", "reconsume_times", "prepared_transaction_offset")

# Fields in front of the hosts, whose places are the same in every record.
_QUEUE_ID, _QUEUE_OFFSET, _OWN_OFFSET, _FLAGS, _BODY_CRC = (
    span_of(_HEAD, name) for name in ("queue_id", "queue_offset", "physical_offset", "sys_flag", "body_crc")
)


class Unit(NamedTuple):
    """A queue unit of a source, which points at the record in question."""

    topic: str
    queue_id: int
    queue_offset: int
    place: int
    size: int
    tags_code: int
    confirmed: bool = True  # the queue agrees: `log_plan.Units.confirmed`
    both: bool = True  # units on both sides of it do
    stored: int | None = None  # by a batch unit: the record's store time, ms


class Change(NamedTuple):
    """Bytes of one field, before and after; `at` counts from the record's first byte."""

    field: str
    at: int
    before: bytes
    after: bytes
    proof: str
    exact: bool = True  # False: the value lies between bounds that are proven

    @property
    def bit(self) -> tuple[int, int] | None:
        """The one bit that was flipped: (byte, from the record's first one; bit, 0 is the least); None: more."""
        at = one_flip(self.before, self.after)
        if at is None:
            return None
        return self.at + at, (self.before[at] ^ self.after[at]).bit_length() - 1


class Repaired(Struct, frozen=True):
    """A record that was damaged, as it was before, and what was changed."""

    place: int
    raw: bytes
    changes: tuple[Change, ...]
    lead: int = 0  # bytes in front of the record: the head of its DLedger entry


def repair_record(raw: bytes, place: int, left: int, end: int, unit: Unit | None = None) -> Repaired | None:
    """Return the record that stood at a physical offset, None where nothing proves what it was.

    `raw` begins there, and should go on behind the record. `left` bytes from there the segment ends, `end` bytes
    from there the log is known to go on. `unit` leads there, if one is known.
    """
    if len(raw) < message.FIXED_SIZE:
        return None
    found = Repaired(place, raw, ())
    record = Records.of_one(raw, place)
    if not record.are_sound(len(raw))[0]:
        repair = find_repair(
            raw[:LOOK_AHEAD],
            place,
            left,
            wraps=False,
            end=end,
            agrees=lambda one: one.topic is None or unit is None or one.size == unit.size,
        )
        if repair is None or repair.topic is None:
            return None
        what = "lengths, own offset, CRC, topic and properties agree with this value only"
        found = _changed(found, Change(repair.field, repair.at, repair.found, repair.expected, what))
        record = Records.of_one(found.raw, place)
    size = int(record.total_size[0])
    found = replace(found, raw=found.raw[:size])
    for step in (_by_record_crc, _by_place, _by_body_crc):
        change = step(found, size, end)
        if change is not None:
            found = _changed(found, change)
    for change in _by_sign(found.raw) if unit is None else head_changes(found.raw, place, unit):
        found = _changed(found, change)
    for change in _by_port(found.raw):
        found = _changed(found, change)
    if not found.changes or not proves(found.raw, place) or (unit is not None and not agrees(found.raw, place, unit)):
        return None
    if ends_in_zeros(found.raw) or any(may_reach_further(found.raw, change) for change in found.changes):
        return None
    return found


def ends_in_zeros(raw: bytes) -> bool:
    """Whether the last properties of a record were zeroed, which no length and no CRC of the body notices."""
    return raw.endswith(b"\0") and int(Records.of_one(raw, 0).properties_starts[0]) < len(raw)


def may_reach_further(raw: bytes, change: Change) -> bool:
    """Whether the damage that was undone may go on in bytes that nothing proves: more than a bit, up to their border.

    Without a CRC of the record such bytes would be served as they are.
    """
    record = Records.of_one(raw, 0)
    if change.bit is not None or int(record.record_crcs[0]) == RIGHT_CRC:
        return False
    pairs = zip(change.before, change.after, strict=True)
    differ = [change.at + at for at, (before, after) in enumerate(pairs) if before != after]
    head = message.HEADS[_hosts(raw)]
    unproven = [slice(int(record.properties_starts[0]), len(raw)), *(span_of(head, name) for name in _UNPROVEN)]
    return any(one.start <= at < one.stop for one in unproven for at in (differ[0] - 1, differ[-1] + 1))


def _hosts(raw: bytes) -> tuple[bool, bool]:
    """Return which layout a record's head has, as its SYSFLAG says: a key of `message.HEADS`."""
    flags = int.from_bytes(raw[_FLAGS], "big")
    return bool(flags & SysFlag.BORNHOST_V6), bool(flags & SysFlag.STOREHOSTADDRESS_V6)


def _changed(record: Repaired, change: Change) -> Repaired:
    raw = bytearray(record.raw)
    raw[change.at : change.at + len(change.after)] = change.after
    return replace(record, raw=bytes(raw), changes=(*record.changes, change))


# --- proof ----------------------------------------------------------------------------------------


def proves(raw: bytes, place: int) -> bool:
    """Whether a record proves itself in full at a physical offset."""
    record = Records.of_one(raw, place)
    if not record.are_sound(len(raw))[0] or int(record.physical_offset[0]) != place:
        return False
    if int(record.field("queue_id")[0]) < 0 or not 0 <= int(record.field("queue_offset")[0]) <= LAST_PLACE:
        return False
    if any(not 0 <= int(record.field(name)[0]) <= LAST_PORT for name in ("born_port", "store_port")):
        return False
    flags = int(record.sys_flag[0])
    kind = (flags & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
    if (
        record.not_utf8[0]
        or not is_legal_topic(topic_of(record))
        or flags & ~_KNOWN_FLAGS
        or kind >= len(message.COMPRESSIONS)
    ):
        return False
    return bool(record.body_crc_ok[0]) and int(record.record_crcs[0]) != WRONG_CRC


def topic_of(record: Records) -> bytes:
    """Return the topic of one record."""
    return bytes(record.raw[int(record.topic_starts[0]) : int(record.topic_ends[0])])


def agrees(raw: bytes, place: int, unit: Unit) -> bool:
    """Whether a record is the one that a unit stands for."""
    return int.from_bytes(raw[:4], "big") == unit.size and not list(_differences(raw, place, unit))


def _differences(raw: bytes, place: int, unit: Unit) -> Iterator[tuple[str, int, bytes, bytes]]:
    """Yield (field, place in the record, found, expected) where the head of a sound record is not the unit's."""
    record = Records.of_one(raw, place)
    topic, flags = unit.topic.encode(), int(record.sys_flag[0])
    if topic_of(record) != topic:
        yield "TOPIC", int(record.topic_starts[0]), topic_of(record), topic
    for field, span, value in (
        ("QUEUEID", _QUEUE_ID, unit.queue_id),
        ("QUEUEOFFSET", _QUEUE_OFFSET, unit.queue_offset),
    ):
        expected = value.to_bytes(span.stop - span.start, "big", signed=True)
        if raw[span] != expected:
            yield field, span.start, raw[span], expected
    if flags & TRANSACTION_MASK not in (0, int(SysFlag.TRANSACTION_COMMIT)):
        # Of the two types that get a unit, one is a single bit away; only a commit record names its half message.
        kept = flags & ~int(SysFlag.TRANSACTION_PREPARED)
        if bool(kept & TRANSACTION_MASK) is bool(int(record.field("prepared_transaction_offset")[0])):
            yield "SYSFLAG", _FLAGS.start, raw[_FLAGS], kept.to_bytes(4, "big", signed=True)
        else:
            yield "SYSFLAG", _FLAGS.start, raw[_FLAGS], b""  # no value is proven


def head_changes(raw: bytes, place: int, unit: Unit) -> list[Change]:
    """Return the change of the one field of the head in which a record differs from the unit that leads to it.

    None where the size differs, more than one field does, or the unit's neighbours do not confirm its place.
    """
    record = Records.of_one(raw, place)
    if not record.are_sound(len(raw))[0] or int(record.total_size[0]) != unit.size:
        return []
    found = list(_differences(raw, place, unit))
    if len(found) != 1:
        return []
    field, at, before, after = found[0]
    if len(before) != len(after):
        return []
    single = one_flip(before, after) is not None
    if field == "TOPIC" and sum(one != two for one, two in zip(before, after, strict=True)) > _TOPIC_CHANGED_BYTES:
        return []
    if field == "SYSFLAG" and not single:
        return []
    if not unit.confirmed or not (single or unit.both):
        return []
    where = f"the queue unit {unit.queue_offset} of {unit.topic}/{unit.queue_id} leads here, with this size"
    return [Change(field, at, before, after, where)]


def _by_sign(raw: bytes) -> list[Change]:
    """Return the change of a negative queue id that is that of a queue but for its sign."""
    value = int.from_bytes(raw[_QUEUE_ID], "big")
    positive = value & ~_SIGN
    if value == positive or positive >= MOST_QUEUES:
        return []
    after = positive.to_bytes(4, "big")
    return [Change("QUEUEID", _QUEUE_ID.start, raw[_QUEUE_ID], after, "no queue id is negative: its sign was flipped")]


def _by_port(raw: bytes) -> Iterator[Change]:
    """Yield the change of a port that is one but for a bit: it is an int, of which 16 bits are used."""
    for field in ("born_host", "store_host"):
        end = span_of(message.HEADS[_hosts(raw)], field).stop
        port = raw[end - _PORT : end]
        after = bytes(_PORT - 2) + port[-2:]
        if one_flip(port, after) is not None:
            name = field.upper().replace("_", "")
            yield Change(name, end - _PORT, port, after, "no port is above 65535: one bit was flipped")


# --- checksums ------------------------------------------------------------------------------------


def _by_record_crc(found: Repaired, size: int, end: int) -> Change | None:
    """The bit of the whole record that `__CRC32#` names, or that of its own name or digits."""
    raw, place = found.raw, found.place
    record = Records.of_one(raw, place)
    covered, tail = raw[:-CRC32_RESERVED_SIZE], raw[-CRC32_RESERVED_SIZE:]
    computed = masked_crc32(covered)
    digits_at = len(CRC32_NAME) + 1
    digits, right = tail[digits_at:-1], f"{computed:0{CRC32_DIGITS}}"[::-1].encode()
    name, proof = tail[: len(CRC32_NAME)], "the record's bytes have this CRC"
    if digits == right and one_flip(name, CRC32_NAME) is not None:
        return Change("__CRC32#", len(covered), name, CRC32_NAME, proof)
    if int(record.record_crcs[0]) != WRONG_CRC:
        return None
    if len(digits) == len(right) and one_flip(digits, right) is not None and proves_body(record):
        return Change("__CRC32#", len(covered) + digits_at, digits, right, proof)
    if not digits.isdigit() or int(digits[::-1]) > CRC_MASK:
        return None
    candidates = []
    for at, bit in find_flipped_bits(len(covered), int(digits[::-1]), computed):
        change = _flip(raw, at, bit, "the CRC of the whole record, __CRC32#, names this bit")
        if proves(_changed(found, change).raw, place):
            candidates.append(change)
    return candidates[0] if len(candidates) == 1 else None


def proves_body(record: Records) -> bool:
    """Whether the body of one record has the CRC that is stored."""
    return bool(record.body_crc_ok[0])


def _by_body_crc(found: Repaired, size: int, end: int) -> Change | None:
    """The bit of the body that BODYCRC names, or that of BODYCRC itself."""
    raw = found.raw
    record = Records.of_one(raw, found.place)
    if record.body_crc_ok[0]:
        return None
    start, stop = int(record.body_starts[0]), int(record.body_ends[0])
    body, computed = raw[start:stop], int(record.body_crcs[0])
    stored, right = raw[_BODY_CRC], computed.to_bytes(4, "big")
    if one_flip(stored, right) is not None:
        return Change("BODYCRC", _BODY_CRC.start, stored, right, "the body has this CRC")
    value = int.from_bytes(stored, "big", signed=True)
    if value < 0 or not body:
        return None
    if any(unit_words(first, last, one) for first, last, one in long_runs(body, start)):
        return None  # a lost page or sector: chance would name some bit in a large body
    bits = find_flipped_bits(len(body), value, computed)
    if len(bits) != 1:
        return None
    at, bit = bits[0]
    return _flip(raw, start + at, bit, "BODYCRC names this bit of the body")


def _flip(raw: bytes, at: int, bit: int, proof: str) -> Change:
    """Return the change of one bit, named by the field that it is in."""
    record = Records.of_one(raw, 0)
    field = _field_at(record, at)
    return Change(field, at, raw[at : at + 1], bytes([raw[at] ^ 1 << bit]), proof)


def _field_at(record: Records, at: int) -> str:
    if int(record.body_starts[0]) <= at < int(record.body_ends[0]):
        return "BODY"
    if int(record.topic_starts[0]) <= at < int(record.topic_ends[0]):
        return "TOPIC"
    if at >= int(record.body_ends[0]):
        return "PROPERTIES"
    return next(
        (
            name.upper().replace("_", "")
            for name in (field.name for field in reversed(_HEAD.subcons))
            if place_of(_HEAD, name) <= at
        ),
        "HEAD",
    )


# --- the place ------------------------------------------------------------------------------------


def _by_place(found: Repaired, size: int, end: int) -> Change | None:
    """PHYSICALOFFSET, where the chain leads through the record: one bit differs, or it ends where the log goes on."""
    stored, expected = found.raw[_OWN_OFFSET], found.place.to_bytes(8, "big")
    if stored == expected:
        return None
    if one_flip(stored, expected) is None and size != end:
        return None
    return Change("PHYSICALOFFSET", _OWN_OFFSET.start, stored, expected, "the record stands at this place of the log")


# --- the clock ------------------------------------------------------------------------------------


class Times(NamedTuple):
    """What other bytes say of the store time of a record, ms; None: nothing."""

    before: int | None  # of the record before it
    after: int | None  # of the one behind it
    indexed: tuple[int, int] | None = None  # by its index entries: not before, not later
    delivery: int | None = None  # of a delayed message: whole seconds behind the store time
    batch: int | None = None  # by its batch unit
    contradicted: bool = False  # the index entries are proven to be right

    def contradictions(self, stored: int) -> int:
        """Return how many of them a store time contradicts that lies between its neighbours."""
        found = self.indexed is not None and not self.indexed[0] <= stored <= self.indexed[1]
        return sum((found * (1 + self.contradicted), not self._is_delivered(stored), self.batch not in (None, stored)))

    def _is_delivered(self, stored: int) -> bool:
        return self.delivery is None or (self.delivery >= stored and (self.delivery - stored) % _SECOND == 0)

    def explains(self, stored: int, low: int, high: int) -> bool:
        """Whether nothing contradicts a store time."""
        return low <= stored <= high and self._is_delivered(stored) and self.batch in (None, stored)


def time_change(raw: bytes, place: int, times: Times) -> Change | None:
    """Return the change of STORETIMESTAMP with which all agrees that is known of it; None where nothing is wrong.

    One flipped bit is undone; where none or several would do, it gets the time before it, and the proof says how far
    off that is at most. A time between those of its neighbours is changed only if two others contradict it: one alone
    may be what is damaged.
    """
    before, after = times.before, times.after
    beside = None  # the only time that is known, at an end of the log
    if before is None:
        beside = after
        before = None if after is None else after - _NEAR_MS
    elif after is None:
        beside, after = before, before + _NEAR_MS
    if before is None or after is None or before > after:
        return None
    span = span_of(message.HEADS[_hosts(raw)], "store_timestamp")
    stored = int.from_bytes(raw[span], "big")
    low, high = before, after
    if times.indexed is not None:
        low, high = max(low, times.indexed[0]), min(high, times.indexed[1])
        if low > high:
            low, high = before, after
    in_line = before <= stored <= after
    if in_line and times.contradictions(stored) < 2:
        return None
    bits = [bit for bit in range(64) if times.explains(stored ^ 1 << bit, low, high)]
    if in_line and len(bits) != 1:
        return None
    value = low if beside is None else min(max(beside, low), high)
    proof = f"the records around it have the times {before} and {after}"
    if beside is not None:
        proof = f"the record beside it has the time {beside}"
    if (low, high) != (before, after):
        proof = f"{proof}, its index entries the second from {times.indexed[0]} on"  # type: ignore[index]
    if len(bits) == 1:
        value = stored ^ 1 << bits[0]
        proof += "" if times.delivery is None else f", its unit the time of delivery {times.delivery}"
    elif beside is not None and high - low > _SECOND:
        proof = f"{proof}; the true one is not known better"
    elif low < high:
        proof = f"{proof}: the true one lies at most {high - low} ms behind this one"
    exact = len(bits) == 1 or (beside is None and low == high)
    return Change("STORETIMESTAMP", span.start, raw[span], value.to_bytes(8, "big"), proof, exact)


def time_change_at(log: RecordReader, raw: bytes, place: int, times: Times) -> Change | None:
    """Return the change of a store time by the records around it, if need be those of the segments around.

    Of the nearest ones those count that are in line: one of them may be wrong, too. `times`: what else is known of it.
    """
    size = log.store.segment_size or 0
    begin, behind = place - place % (size or 1), place + len(raw)
    earlier = _first_of(log, -1, (place, begin), _times_before)
    later = _first_of(log, 0, (behind, begin + size), _times_from)
    around = [*earlier, *later]
    in_line = _longest_row(around)
    before = next((around[at] for at in reversed(in_line) if at < len(earlier)), None)
    after = next((around[at] for at in in_line if at >= len(earlier)), None)
    if (earlier and before is None) or (later and after is None):
        return None  # the clock was set back here
    return time_change(raw, place, times._replace(before=before, after=after))


def _first_of(
    log: RecordReader, step: int, places: Sequence[int], read: Callable[[OpenSegment, int], list[int]]
) -> list[int]:
    """Return what the first segment has that has anything; it is that of a place and `step`."""
    for place in places:
        segment = log.store.segment_at(place + step)
        found = [] if segment is None else read(log.opened(segment), place)
        if found:
            return found
    return []


def _times_before(segment: OpenSegment, place: int) -> list[int]:
    """Return the store times of the last records before a place, ascending places."""
    frames = islice(segment.frames_before(place), _AROUND)
    times = [frame.head.store_timestamp for frame in frames]
    return [time for time in reversed(times) if is_possible_time(time)]


def _times_from(segment: OpenSegment, place: int) -> list[int]:
    """Return the store times of the first records from a place on."""
    times: list[int] = []
    for _ in range(_AROUND):
        frame = segment.frame_at(place + segment.lead)
        if frame is None:
            frame = segment.next_frame(max(place, segment.next_allocated(place)), place + LOOK_AHEAD)
        if frame is None:
            break
        times.append(frame.head.store_timestamp)
        place = frame.end
    return [time for time in times if is_possible_time(time)]


def _longest_row(values: Sequence[int]) -> list[int]:
    """Return the positions of the longest row of values that do not descend."""
    tails: list[int] = []  # the position of the last value of a row of each length
    before: list[int] = []  # of each value, the position of that before it in its row
    for at, value in enumerate(values):
        length = bisect_right(tails, value, key=values.__getitem__)
        before.append(tails[length - 1] if length else -1)
        tails[length : length + 1] = [at]
    row, at = list[int](), tails[-1] if tails else -1
    while at >= 0:
        row.append(at)
        at = before[at]
    return row[::-1]

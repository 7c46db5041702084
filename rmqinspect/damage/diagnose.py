"""What probably happened to damaged bytes of a log: one clause, given only with its proof.

Disks lose pages of 4096 and sectors of 512 bytes, memory flips bits, a power cut tears a write, a copy
lands in the wrong place, a program writes over a file. Each leaves a mark of its own in the bytes:

    gap begins                                               looks for
    |00 00 01 2b da a3 21 a7 ...|rec|rec|    one field       a value with which the record proves itself
    |head|body..|0000000000|..body|rec|      lost pages      one byte value between borders of pages
    |head|body..|0000000000000000000000|     torn write      a sound head, then zeros or older records
    |rec|rec|rec|  own offset: elsewhere     misplaced       whole records that agree on another place
    |text, gzip, random bytes...|            foreign bytes   what belongs to no log, where a record must begin

The tests run in this order, the most telling first, and the first answer counts; where the bytes do not
tell, nothing is said. `verify` asks about the gaps and records that it found, `show` about the place that
it was given: both get the same answer, for both come here.

Invariants: all is decided by a few MiB around the damage, however large it is; a body is never taken for
the cause, for it may legitimately hold text, zeros or records; nothing here raises, whatever the bytes are.
"""

from collections.abc import Callable

from rmqinspect.codec.layout import walk_fields
from rmqinspect.commitlog.find_record import SEARCH, ChainFinder, LenientReader
from rmqinspect.damage.misplaced import explain_misplaced_head, explain_misplaced_records, explain_own_offset
from rmqinspect.damage.patterns import (
    PAGE,
    border_near,
    flip_words,
    format_of,
    is_random,
    is_text,
    long_runs,
    one_flip,
    place_words,
    quote,
    unit_words,
    value_words,
)
from rmqinspect.damage.single_field import Repair, Surroundings, find_repair, look_around
from rmqinspect.errors import Unreadable
from rmqinspect.loops.record_rows import SLACK
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import describe_offset, escape, group_digits

_SAMPLE = 512  # bytes looked at for text and randomness
_LONGEST_MAGIC = 16
_TELLING_ZEROS = 512
_OWN_AT = place_of(message.HEADS[False, False], "physical_offset")


def explain_damage(store: Store, segment: Segment, start: int) -> str | None:
    """Return a clause on why what begins at a physical offset does not prove itself; None where it does.

    `start` is where a record must begin, or in a DLedger file its entry. None also where the bytes do not
    tell, or cannot be read. Finds the gap's end as the scan would, within 16 MiB.
    """
    try:
        with open_file(segment) as file:
            finder = ChainFinder(LenientReader(file, segment))
            record = finder.frame_at(start + segment.lead, anywhere=True)
            if record is not None and _entry_is_sound(finder, start, record.head.size):
                if record.head.own_offset == record.start:
                    return None
                return explain_own_offset(store, segment, record.start)
            end = finder.find_next(start + 1, min(finder.end, start + SEARCH))
    except Unreadable:
        return None
    return explain_gap(store, segment, start, end)


def _entry_is_sound(finder: ChainFinder, start: int, record_size: int) -> bool:
    """Whether the DLedger entry head in front of a record agrees with it; True where there is none."""
    if not finder.lead:
        return True
    head = walk_fields(dledger.EntryHead.subcons, finder.read(start - finder.base, finder.lead))
    sizes = head.number("body_size"), head.number("size")
    return head.number("magic") in dledger.ENTRY_MAGICS and sizes == (record_size, record_size + finder.lead)


def explain_gap(store: Store, segment: Segment, start: int, end: int) -> str | None:
    """Return a clause on the likely cause of a gap; None where the bytes do not tell.

    [start, end) are physical offsets of what is neither record nor filler; at `start` the chain of
    records broke, at `end` it goes on, or the segment ends.
    """
    around = look_around(segment, start - segment.base, end - segment.base)
    if around is None:
        return None
    return next(filter(None, (explain(store, around) for explain in _CAUSES)), None)


# --- one field ----------------------------------------------------------------------------------


def _changed_field(store: Store, around: Surroundings) -> str | None:
    repair = find_repair(
        around.part(around.start, around.high),
        around.segment.base + around.start,
        around.size - around.start,
        wraps=bool(around.lead),
        end=around.end - around.start,
    )
    return None if repair is None else _repair_words(repair, around.start)


def _repair_words(repair: Repair, position: int) -> str:
    at = one_flip(repair.found, repair.expected)
    if at is not None:
        flip = flip_words(place_words(repair.at + at, position), repair.expected[at], repair.found[at])
        words = f"one flipped bit of {repair.field} explains it: {flip}"
    else:
        as_hex = "magic" in repair.field.lower() or repair.field == "SYSFLAG"
        found, expected = (
            f"0x{raw.hex()}" if as_hex else str(int.from_bytes(raw, "big", signed=True))
            for raw in (repair.found, repair.expected)
        )
        place = place_words(repair.at, position)
        words = f"only {repair.field} at {place} was changed: {expected} would fit, not {found}"
    if repair.topic is None:
        return words
    return f"{words}; the record: {escape(repair.topic)} queue {repair.queue_id} offset {repair.queue_offset}"


# --- what was never written, or was lost --------------------------------------------------------


def _lost_pages(store: Store, around: Surroundings) -> str | None:
    """One byte value, mostly zero, from one border of pages or sectors to another."""
    lost = []
    for start, end, value in long_runs(around.raw, around.low):
        bounded = (start > around.low or start == 0) and end < around.high
        if bounded and start < around.end and around.start < end and (words := unit_words(start, end, value)):
            lost.append(words)
    more = f", and {group_digits(len(lost) - 1)} more such places" if len(lost) > 1 else ""
    return f"{lost[0]}{more}" if lost else None


def _torn_write(store: Store, around: Surroundings) -> str | None:
    """A record that begins soundly; from some byte on it was never written."""
    start = around.start + around.lead
    raw = around.part(start, around.high)
    front = walk_fields(message.FRONT, raw)
    size, magic = front.number("total_size"), front.number("magic")
    own = (around.segment.base + start).to_bytes(8, "big")
    written = len(raw[: max(0, size)].rstrip(b"\0"))
    if magic not in message.RECORD_MAGICS or not message.FIXED_SIZE <= size <= around.size - start:
        return None
    if not own.startswith(raw[_OWN_AT : min(written, _OWN_AT + len(own))]):
        return None
    nothing_else = not any(raw[written : around.end - start])
    # A whole record ends in two zeros at most: the PROPERTIESLEN of one without properties.
    if nothing_else and size - written > 2 and len(raw) - written >= min(size - written, _TELLING_ZEROS):
        there = f"the first {group_digits(written)} of the record's {group_digits(size)} bytes"
        border = border_near(start + written)
        behind = f"zeros follow from the border of a {border} on" if border else "zeros follow"
        return f"torn write: only {there} are there, {behind}"
    return _older_bytes(around, size)


def _older_bytes(around: Surroundings, size: int) -> str | None:
    """A record into which an older one, whole and at its own place, still reaches."""
    following, end = around.end + around.lead, around.start + around.lead + size
    if around.head is None or around.end >= end or following + message.FIXED_SIZE > around.high:
        return None
    record = around.records([following])
    if not record.are_sound(len(record.raw) - SLACK)[0]:
        return None
    if int(record.physical_offset[0]) != around.segment.base + following or not record.body_crc_ok[0]:
        return None
    if record.field("store_timestamp")[0] >= around.head.field("store_timestamp")[0]:
        return None
    return (
        f"torn write: the record has {group_digits(size)} bytes, but {group_digits(around.end - around.start)} behind "
        "its first one an older record begins: what was there before was not written over"
    )


# --- what was written over it -------------------------------------------------------------------


def _fill(store: Store, around: Surroundings) -> str | None:
    """One byte value where a record cannot have it: at its beginning, its topic, its end."""
    for start, end, value in long_runs(around.raw, around.low):
        if any(start <= place < end for place in (*around.beginnings, *around.topics)):
            until = f" to {describe_offset(end)}" if end < around.high or end == around.size else " on"
            return f"{value_words(value)} from byte {describe_offset(max(start, around.start))}{until}"
    return None


def _foreign_bytes(store: Store, around: Surroundings) -> str | None:
    """What belongs to no log, where a record must begin or a page does."""
    stop = min(around.end, around.high)
    for place in (around.start, *range(around.start + -around.start % PAGE, stop, PAGE)):
        known = format_of(around.part(place, place + _LONGEST_MAGIC))
        if known is not None:
            return f"{known} was written over it, from byte {describe_offset(place)} on"
    for place in around.beginnings:
        raw = around.part(place, min(place + _SAMPLE, stop))
        if is_text(raw):
            if place == around.start:
                return f"text was written over it: it begins with {quote(raw)}"
            whose = "another program's, or a misplaced body's"
            return f"text, {whose}, stands where the next record must begin: {quote(raw)}"
        if is_random(raw):
            return "the bytes look random: encrypted or compressed data was written over it"
    return None


_CAUSES: tuple[Callable[[Store, Surroundings], str | None], ...] = (
    _changed_field,
    _lost_pages,
    _torn_write,
    explain_misplaced_records,
    explain_misplaced_head,
    _fill,
    _foreign_bytes,
)

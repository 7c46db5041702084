"""The flipped bit of a topic or of the properties that the queue unit and the index entries determine.

No checksum covers the texts of a record without `__CRC32#`, but hashes of them stand elsewhere:

    unit      the hash of TAGS; in the schedule topic the time of delivery, which a record without DELAY has not
    entries   the hash of topic, `#` and UNIQ_KEY, of topic, `#` and each word of KEYS; from 5.4.0 on of TAGS, too

Each bit of the texts is set back in turn, and the broker's own dispatch computes what it would have written:

    TAGS 01 TagE 02    unit: 0x27e16c    one of all these records has that hash: TAGS 01 TagA 02

Invariants: before, one of them contradicts the record; after, all agree, and each key has its entry. One bit only
does that. What one flipped bit of the unit or of the entry would explain as well is not repaired, unless the entry is
proven by its chain or a second one contradicts the record, too.

Source: CommitLogDispatcherBuildConsumeQueue, IndexService#buildIndex, MessageExtBrokerInner#tagsString2tagsCode.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from rmqinspect.broker.dispatch import DIFFERENCES, MARKED_IDS, Dispatched, Dispatcher
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.record_rows import KEY, MARKED_ID, SLACK, UNIQUE
from rmqinspect.rescue.entries import Entry
from rmqinspect.rescue.repair import Change, Unit, agrees, topic_of
from rmqinspect.schemas import message
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.schemas.places import span_of
from rmqinspect.topics import SCHEDULE_TOPIC, is_legal_topic

_HEAD = message.HEADS[False, False]
_SIZE = span_of(_HEAD, "total_size")
_MOST_BITS = 8 * 4096  # of topic and properties: each of them is tried
_LEAST_WORK = 256 << 10  # bytes: one record takes as long as so many, however short it is
_AT_ONCE = 4 << 20  # bytes of records that are judged together
_SECOND = 1000  # ms
_INT, _LONG = (1 << 32) - 1, (1 << 64) - 1  # the bits of Java's


class TextRepairs:
    """Looks for flipped bits of texts, as long as the work is bounded: crafted bytes may ask for it without end."""

    def __init__(self, budget: int = 2 << 30) -> None:
        """`budget`: bytes of records that are judged in all, which is up to 8,192 records and a minute.

        A queue whose units were all written over contradicts each of its records.
        """
        self._left = budget

    def find(self, raw: bytes, place: int, unit: Unit | None, entries: Sequence[Entry]) -> Change | None:
        """Return the flipped bit of the texts of a record, set back; None where none or several are possible.

        `raw` is a record whose lengths agree, at physical offset `place`. `unit` and `entries` lead to it.
        """
        record = Records.of_one(raw, place)
        if not record.are_sound(len(raw))[0] or (unit is not None and not agrees(raw, place, unit)):
            return None
        if unit is not None and unit.tags_code <= EXT_ADDRESS_MAX:
            unit = None  # the address of an ext unit
        bare = _without_body(record)
        bits = _bits_of_texts(bare)
        size = max(len(bits) * len(bare), _LEAST_WORK)
        if len(bits) > _MOST_BITS or size > self._left or (unit is None and not entries):
            return None
        wanted = _Wanted(unit, entries)
        columns = _dispatched(Records.of_one(bare, 0))
        wrong_unit, wrong_entries = wanted.contradicting(columns)
        if (wrong_unit is None and not wrong_entries) or wanted.may_be_damaged(columns, wrong_unit, wrong_entries):
            return None
        self._left -= size
        found = list(islice(_flips(bare, bits, wanted), 2))
        if len(found) != 1:
            return None
        at, bit = found[0]
        field = "TOPIC" if at < int(Records.of_one(bare, 0).topic_ends[0]) else "PROPERTIES"
        at += len(raw) - len(bare)
        proof = f"{_words(wrong_unit, wrong_entries)}: with this bit alone all agree"
        return Change(field, at, raw[at : at + 1], bytes([raw[at] ^ 1 << bit]), proof)


def _words(unit: Unit | None, entries: Sequence[Entry]) -> str:
    """Return what determines a bit."""
    parts = []
    if unit is not None:
        parts.append(f"the tags code of the queue unit {unit.queue_offset} of {unit.topic}/{unit.queue_id}")
    if entries:
        parts.append("the key hash of the index entry that leads here" if len(entries) == 1 else "index entries")
    return " and ".join(parts)


def _without_body(record: Records) -> bytes:
    """Return one record with an empty body: nothing that is dispatched depends on it."""
    start, end = int(record.body_starts[0]), int(record.body_ends[0])
    raw = bytes(record.raw[: int(record.total_size[0])])
    bare = bytearray(raw[:start] + raw[end:])
    bare[_SIZE] = len(bare).to_bytes(4, "big")
    bare[start - 4 : start] = bytes(4)  # BODYLEN stands in front of the body
    return bytes(bare)


def _bits_of_texts(bare: bytes) -> list[tuple[int, int]]:
    """Return (byte, bit) of the topic and the properties, without their lengths."""
    record = Records.of_one(bare, 0)
    topic = range(int(record.topic_starts[0]), int(record.topic_ends[0]))
    properties = range(int(record.properties_starts[0]), len(bare))
    return [(at, bit) for part in (topic, properties) for at in part for bit in range(8)]


def _flips(bare: bytes, bits: Sequence[tuple[int, int]], wanted: "_Wanted") -> Iterator[tuple[int, int]]:
    """Yield those of some bits with which all agree, when they are set back."""
    rows = max(1, _AT_ONCE // len(bare))
    for first in range(0, len(bits), rows):
        some = bits[first : first + rows]
        changed = np.tile(np.frombuffer(bare, np.uint8), (len(some), 1))
        at, bit = np.array(some, np.int64).T
        changed[np.arange(len(some)), at] ^= (1 << bit).astype(np.uint8)
        good = wanted.met_by(changed.tobytes(), len(bare))
        yield from (some[row] for row in np.flatnonzero(good).tolist())


class _Wanted:
    """What unit and entries say about a record."""

    def __init__(self, unit: Unit | None, entries: Sequence[Entry]) -> None:
        self._unit, self._entries = unit, entries
        self._scheduled = unit is not None and unit.topic == SCHEDULE_TOPIC

    def contradicting(self, columns: Dispatched) -> tuple[Unit | None, list[Entry]]:
        """Return the unit, if it contradicts one record, and those of the entries that do."""
        keys = set(columns.key_hash.tolist())
        unit = None if self._tags_agree(columns)[0] else self._unit
        return unit, [entry for entry in self._entries if entry.key_hash not in keys]

    def may_be_damaged(self, columns: Dispatched, unit: Unit | None, entries: Sequence[Entry]) -> bool:
        """Whether what contradicts one record is one value alone, and one flipped bit of that would explain it."""
        if (unit is not None) + len(entries) != 1:
            return False
        if unit is None:
            keys = columns.key_hash.tolist()
            near = any(((entries[0].key_hash ^ key) & _INT).bit_count() == 1 for key in keys)
            return near and not entries[0].is_chained
        if self._scheduled and columns.delayed[0]:
            stored = int(columns.store_timestamp[0])
            return any(((unit.tags_code ^ 1 << bit) - stored) % _SECOND == 0 for bit in range(63))
        return ((unit.tags_code ^ int(columns.tags_code[0])) & _LONG).bit_count() == 1

    def met_by(self, raw: bytes, size: int) -> Bools:
        """Return which of the records of one size in `raw` agree with unit and entries."""
        starts = np.arange(0, len(raw), size, dtype=np.int64)
        records = Records.at(memoryview(raw + bytes(SLACK)), 0, starts)
        columns = _dispatched(records)
        good: Bools = self._tags_agree(columns) & ~records.properties.malformed
        for entry in self._entries:
            has = np.zeros(len(records), np.bool_)
            has[columns.key_record[columns.key_hash == entry.key_hash]] = True
            good &= has
        for row in np.flatnonzero(good).tolist():
            one = records.select(slice(row, row + 1))
            topic = topic_of(one)
            good[row] = is_legal_topic(topic) and (self._unit is None or topic == self._unit.topic.encode())
            good[row] = good[row] and (not self._entries or self._has_all_entries(columns, row))
        return good

    def _tags_agree(self, columns: Dispatched) -> Bools:
        if self._unit is None:
            return np.ones(len(columns), np.bool_)
        agree: Bools = columns.tags_code == self._unit.tags_code
        if self._scheduled:
            delay: Ints = self._unit.tags_code - columns.store_timestamp
            # Recovery writes the plain tags code before it knows the delays (up to 4.9.8).
            agree |= columns.delayed & (delay >= 0) & (delay % _SECOND == 0)
        return agree

    def _has_all_entries(self, columns: Dispatched, row: int) -> bool:
        """Whether each key of a record has an entry: of the two forms of an id one, of TAGS none is asked for."""
        known = {entry.key_hash for entry in self._entries}
        keys = np.flatnonzero(columns.key_record == row).tolist()
        kinds = {
            kind: [int(columns.key_hash[key]) for key in keys if columns.key_kind[key] == kind]
            for kind in (UNIQUE, MARKED_ID, KEY)
        }
        ids = {*kinds[UNIQUE], *kinds[MARKED_ID]}
        return known.issuperset(kinds[KEY]) and (not ids or not known.isdisjoint(ids))


def _dispatched(records: Records) -> Dispatched:
    """Return what a broker would dispatch for some records, each of a queue by its own topic."""
    queues: list[tuple[bytes, int]] = []
    numbers: dict[bytes, int] = {}
    which = np.empty(len(records), np.int64)
    for row, (start, end) in enumerate(zip(records.topic_starts.tolist(), records.topic_ends.tolist(), strict=True)):
        topic = bytes(records.raw[start:end])
        if topic not in numbers:
            numbers[topic] = len(queues)
            queues.append((topic, 0))
        which[row] = numbers[topic]
    dispatcher = Dispatcher(keys=True, rules=DIFFERENCES | {MARKED_IDS})
    dispatcher.take(records, which, queues, np.ones(len(records), np.bool_))
    return dispatcher.columns(queues)

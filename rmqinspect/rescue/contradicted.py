"""Records that prove themselves, and that a queue unit, index entries or the times around them contradict.

Verify names them. Which field was changed is found in this order; of a head also the texts and the time behind it are
asked, as of a record whose lengths or CRC were repaired:

    head     queue, queue offset, topic or type: the unit leads here, and its neighbours agree      repair.py
    texts    a bit of TAGS, UNIQ_KEY, KEYS, DELAY: the unit's tags code, the hashes of the entries  texts.py
    order    queue offset or type, of a record without a unit: the records around it in its queue   sequences.py
    time     STORETIMESTAMP: its neighbours, the index, the time of delivery, the batch unit        repair.py

Where none answers, the record is kept as it is: what contradicts it may be what was damaged.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rmqinspect.codec.arrays import lazy
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.rescue.entries import Entries, Entry, indexed_time
from rmqinspect.rescue.repair import (
    Change,
    Repaired,
    Times,
    Unit,
    head_changes,
    may_reach_further,
    proves,
    time_change_at,
)
from rmqinspect.rescue.sources import Source
from rmqinspect.rescue.texts import TextRepairs
from rmqinspect.rescue.units import Units
from rmqinspect.topics import SCHEDULE_TOPIC

OF_TEXTS = ("CQ-TAG", "IX-KEY")
"""Findings about the texts of a record."""
# About its store time, or about what is counted from it.
_OF_TIME = ("CL-TIME", "IX-TIME", "CQ-TAG", "CQ-MISMATCH")
_FIRST_TIME = 1 << 40  # ms: 2004; a tags code below is a hash
_CLOCK_STEP = 3_600_000  # ms: so far back a broker's clock may have been set


class Contradicted:
    """Repairs the suspects of sources."""

    def __init__(self, sources: Sequence[Source], units: Units) -> None:
        self._sources, self._units = sources, units
        self._texts = TextRepairs()

    @lazy
    def _entries(self) -> Entries:
        """The index entries that lead to records in doubt."""
        places = [place for source in self._sources for place in source.suspects]
        places += [one.start for source in self._sources for one in source.damaged if one.kind in ("record", "gap")]
        misdated = [place for source in self._sources for place, code in source.suspects.items() if code == "CL-TIME"]
        return Entries(self._sources, places, misdated)

    def repair(self, source: Source, place: int) -> Repaired | None:
        """Return a suspect of a source as it was, None where nothing proves that."""
        code = source.suspects[place]
        with RecordReader(source.store) as log:
            raw = log.content_at(place)
            if raw is None or (not proves(raw, place) and code != "CQ-MISMATCH"):
                return None
            changes: list[Change] = []
            unit, entries = self._units.at(place), self._entries.at(place)
            if unit is not None:
                record = Records.of_one(raw, place)
                said, queue_id = (int(record.field(name)[0]) for name in ("queue_offset", "queue_id"))
                changes = head_changes(raw, place, self._units.confirmed(unit, said, queue_id))
            changes += filter(None, [self._texts.find(_changed(raw, changes), place, unit, entries)])
            times = _times(unit, entries, code)
            if changes:
                changes += self._misdated(log, _changed(raw, changes), place, times)
            elif code in _OF_TIME:
                changes += filter(None, [time_change_at(log, raw, place, times)])
        if not changes and unit is None and place in source.proven:
            changes += [one for one in (source.proven[place],) if not may_reach_further(raw, one)]
        return _proven(raw, place, changes) if changes else None

    def with_rest(self, found: Repaired, source: Source, unit: Unit | None) -> Repaired:
        """Return a repaired record also with its texts and its store time as they were, where something tells."""
        entries = self._entries.at(found.place)
        changes = list(filter(None, [self._texts.find(found.raw, found.place, unit, entries)]))
        with RecordReader(source.store) as log:
            times = _times(unit, entries, "")
            changes += self._misdated(log, _changed(found.raw, changes), found.place, times)
        whole = _proven(found.raw, found.place, changes)
        return found if whole is None else replace(whole, changes=(*found.changes, *changes), lead=found.lead)

    def _misdated(self, log: RecordReader, raw: bytes, place: int, times: Times) -> Iterator[Change]:
        """Yield the change of a store time that verify has not named, if it is certain.

        The index does not know the time as it is, and it is further out of line than by a clock that was set. Others
        that are wrong show in the new store, and their records are not taken over.
        """
        change = time_change_at(log, raw, place, times)
        if change is None or not change.exact:
            return
        stored, right = int.from_bytes(change.before), int.from_bytes(change.after)
        is_indexed = times.indexed is not None and times.indexed[0] <= stored <= times.indexed[1]
        if not is_indexed and abs(right - stored) > _CLOCK_STEP:
            yield change

    def repair_text(self, raw: bytes, place: int, unit: Unit | None) -> Repaired | None:
        """Return a record with impossible texts as it was, by unit and index entries; None where they do not tell."""
        change = self._texts.find(raw, place, unit, self._entries.at(place))
        return None if change is None else _proven(raw, place, [change])


def _changed(raw: bytes, changes: Sequence[Change]) -> bytes:
    changed = bytearray(raw)
    for one in changes:
        changed[one.at : one.at + len(one.after)] = one.after
    return bytes(changed)


def _proven(raw: bytes, place: int, changes: Sequence[Change]) -> Repaired | None:
    changed = _changed(raw, changes)
    return Repaired(place, changed, tuple(changes)) if proves(changed, place) else None


def _times(unit: Unit | None, entries: Sequence[Entry], code: str) -> Times:
    """Return what unit and entries say of the store time of the record that they lead to."""
    delivery = unit.tags_code if unit is not None and unit.topic == SCHEDULE_TOPIC else None
    if delivery is not None and delivery < _FIRST_TIME:
        delivery = None  # a recovery wrote the hash of its tags
    batch = None if unit is None else unit.stored
    return Times(None, None, indexed_time(entries), delivery, batch, contradicted=code == "CL-TIME")

"""Records and queue units compared by checksums: the columns `records`, `shift` and `witnesses`.

The question: do all units of a queue stand at a constant distance (`shift`) from the queue offsets in their records?
A join of records and units would answer it, and would need both sorted. Two sums per queue answer it in one pass over
each, in any order, so parts of the log can be summed by themselves and added up.

For the records of a queue at physical offsets p, with a mixing function h, modulo 2^64:

    places  = sum of h(p)               the same for records and units <=> the same set of records
    offsets = sum of h(p) * offset      offset: of the record its queue offset, of the unit its number

If both sets are the same and every unit number is the queue offset plus a constant c, then

    offsets(units) = offsets(records) + c * places

c is read off one pair, the first record in the log, and the equation proves it for all. Different sets of records
agree by chance once in 2^64.
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.broker.dispatch import TRANSACTIONS_WITH_UNITS
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.consumequeue.units import LAYOUTS, messages_in
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store

Queue = tuple[str, int]  # topic and queue id, as in the tables
Words = NDArray[np.uint64]

_SUMMED = ["topic", "queue_id", "physical_offset", "queue_offset"]

_MASK = (1 << 64) - 1
_32_BITS = (1 << 32) - 1
# Steele, Lea, Flood: the finalizer of SplitMix64.
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_LAST_STEP = np.uint64(31)


class Sums(Struct):
    """The checksums of one queue's records, or of its units. Modulo 2^64."""

    count: int = 0
    places: int = 0  # sum of h(p)
    offsets: int = 0  # sum of h(p)·offset
    first: tuple[int, int] | None = None  # (physical offset, offset) of the one that is first in the log

    def add(self, places: Words, offsets: Words, first: tuple[int, int]) -> None:
        """Add records or units: their h(p), their offsets, and the first of them."""
        self._join(len(places), int(places.sum()), int((places * offsets).sum()), first)

    def join(self, other: "Sums") -> None:
        """Add the sums of another part."""
        if other.first is not None:
            self._join(other.count, other.places, other.offsets, other.first)

    def _join(self, count: int, places: int, offsets: int, first: tuple[int, int]) -> None:
        self.count += count
        self.places = (self.places + places) & _MASK
        self.offsets = (self.offsets + offsets) & _MASK
        self.first = first if self.first is None else min(self.first, first)


class QueueSums(Struct):
    """The checksums of the records that are entitled to a unit, by queue."""

    queues: dict[Queue, Sums] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the table `messages`; prepared and rolled back ones get no unit, older lives are gone."""
        kinds = batch.column("transaction")
        entitled = reduce(pc.or_, (pc.equal(kinds, name) for name in TRANSACTIONS_WITH_UNITS))
        in_log = pc.invert(pc.is_in(batch.column("status"), pa.array(["stale", "bad_head"])))
        counted = pc.and_(entitled, in_log)
        rows = batch.select(_SUMMED)  # not the bodies: a filter copies what it keeps
        if not pc.all(counted).as_py():
            rows = rows.filter(counted)
        if not rows.num_rows:
            return
        topics = rows.column("topic").dictionary_encode()
        queue_ids = rows.column("queue_id").to_numpy()
        names = topics.dictionary.to_pylist()
        groups = topics.indices.to_numpy().astype(np.int64) << 32 | queue_ids.astype(np.uint32)
        order = np.argsort(groups, kind="stable")  # the rows of a queue stay in the order of the log
        groups = groups[order]
        begins = np.concatenate(([0], np.flatnonzero(np.diff(groups)) + 1))
        places = rows.column("physical_offset").to_numpy()[order]
        offsets = rows.column("queue_offset").to_numpy()[order]
        mixed = _mixed(places)
        columns = (
            groups[begins],
            np.diff(begins, append=len(groups)),
            np.add.reduceat(mixed, begins),
            np.add.reduceat(mixed * offsets.astype(np.uint64), begins),
            places[begins],
            offsets[begins],
        )
        for group, count, of_places, of_offsets, *first in zip(*(one.tolist() for one in columns), strict=True):
            queue = names[group >> 32], int(np.int32(np.uint32(group & _32_BITS)))
            self.queues.setdefault(queue, Sums()).join(Sums(count, of_places, of_offsets, (first[0], first[1])))

    def join(self, other: "QueueSums") -> None:
        """Add the sums of another part."""
        for queue, sums in other.queues.items():
            self.queues.setdefault(queue, Sums()).join(sums)


class UnitFacts(Struct):
    """The results of comparing all units with the log."""

    shifts: dict[Queue, int] = field(default_factory=dict)  # of the queues where it is constant
    witnesses: list[int] = field(default_factory=list)  # per gap: units that point into it
    unread: list[str] = field(default_factory=list)


def compare_units(store: Store, records: QueueSums, gaps: Sequence[Gap]) -> UnitFacts:
    """Read all units once; return the shift of each queue and the units that point into each gap.

    `gaps` ascend by offset.
    """
    facts = UnitFacts(witnesses=[0] * len(gaps))
    starts = np.array([gap.start for gap in gaps], np.int64)
    ends = np.array([gap.end for gap in gaps], np.int64)
    counted = np.zeros(len(gaps), np.int64)
    sums: dict[Queue, Sums] = {}
    for queue, places, numbers in _units(store, facts.unread):
        if len(gaps):
            number = np.searchsorted(starts, places, "right") - 1
            inside = number[(number >= 0) & (places < ends[number])]
            counted += np.bincount(inside, minlength=len(gaps))
        known = records.queues.get(queue)
        if known is not None and known.first is not None:
            held = places >= known.first[0]  # records before the log's first one have expired
            if held.any():
                some, offsets = places[held], numbers[held]
                first = int(np.argmin(some))
                of_queue = sums.setdefault(queue, Sums())
                of_queue.add(_mixed(some), offsets.astype(np.uint64), (int(some[first]), int(offsets[first])))
    facts.witnesses = counted.tolist()
    for queue, of_units in sums.items():
        shift = _shift(records.queues[queue], of_units)
        if shift is not None:
            facts.shifts[queue] = shift
    return facts


def _units(store: Store, unread: list[str]) -> Iterator[tuple[Queue, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (queue, physical offsets, unit numbers) of the units of messages."""
    for file in store.queue_files:
        if file.kind not in LAYOUTS:
            continue
        queue = file.topic, file.queue_id
        try:
            for numbers, units in messages_in(file):
                if len(units):
                    yield queue, units["physical_offset"].astype(np.int64), numbers
        except Unreadable as error:
            unread.append(str(error))


def _shift(records: Sums, units: Sums) -> int | None:
    """Return unit number minus queue offset if it is the same for all records, else None."""
    if records.first is None or units.first is None or (records.count, records.places) != (units.count, units.places):
        return None
    shift = units.first[1] - records.first[1]
    return shift if (records.offsets + shift * records.places - units.offsets) & _MASK == 0 else None


def _mixed(values: NDArray[np.int64]) -> Words:
    word: Words = values.astype(np.uint64) + _INCREMENT
    for shift, factor in _STEPS:
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return word ^ (word >> _LAST_STEP)

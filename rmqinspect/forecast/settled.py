"""The records of a queue: those that are kept, and those of which its units say where they are.

    log           kept        9             rows of columns
                  settled     5, 6, 8       sums, see `forecast.record_fold`
    units of the files   |5|6|7|8|          but for 7, which is wrong, those of settled records

The files are read again only where the sums do not answer a question. They are those of the store that was compared,
whatever a remedy or a start does to its queues.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.former_topics import NO_END, Life, lives_of
from rmqinspect.codec.arrays import Bools, Ints, is_among
from rmqinspect.consumequeue.units import LAYOUTS, message_mask, read_units, unit_numbers
from rmqinspect.forecast.record_fold import MOST, NO_RECORDS, SOUND, Queue, QueueRecords, RecordFold, Settled, digest_of
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file

Ranges = Sequence[tuple[int, int]] | None
"""Physical offsets [start, end) of segments; None: all."""

_NO_OFFSETS = np.empty(0, np.int64)
_NO_UNITS = np.empty((2, 0), np.int64)
_NOTHING = Settled()


class OtherUnits(Exception):
    """The units of a queue are not those that were compared with the log, or too many."""


class Comparison(Struct, frozen=True):
    """What a comparison of a log with its queues has found, by queue."""

    settled: Mapping[Queue, Settled] = field(default_factory=dict)
    wrong: Mapping[Queue, Ints] = field(default_factory=dict)  # queue offsets of units
    kept: Mapping[Queue, QueueRecords] = field(default_factory=dict)  # the other records
    files: Mapping[Queue, Sequence[QueueFile]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, fold: RecordFold, kept: Mapping[Queue, QueueRecords]) -> "Comparison":
        """Return what the fold of a store was told."""
        wrong = {queue: np.concatenate(parts) for queue, parts in fold.wrong.items()}
        return cls(fold.settled(), wrong, kept, plain_queues(store.queue_files))


NOT_COMPARED = Comparison()


def plain_queues(files: Iterable[QueueFile]) -> dict[Queue, list[QueueFile]]:
    """Return the files of the queues that have plain ones alone, none of batches and none unpacked of RocksDB."""
    found: dict[Queue, list[QueueFile]] = {}
    others = set()
    for file in files:
        name = file.topic, file.queue_id
        if file.kind == "queue" and file.noted is None:
            found.setdefault(name, []).append(file)
        elif file.kind in LAYOUTS:
            others.add(name)
    return {name: own for name, own in found.items() if name not in others}


class QueueLog:
    """The records of one queue in a log that consists of some segments."""

    def __init__(self, kept: QueueRecords, comparison: Comparison, queue: Queue, ranges: Ranges) -> None:
        """Take those that are kept; the others lie in `ranges`."""
        self.kept = kept
        self._ranges = ranges
        self._whole = comparison.settled.get(queue, _NOTHING)
        self._wrong = comparison.wrong.get(queue, _NO_OFFSETS)
        self._others = comparison.kept.get(queue, NO_RECORDS).places
        self._files = comparison.files.get(queue, ())

    def settled(self, log: range) -> Settled:
        """Return the sums of the settled records in a part of the log.

        :raises Unreadable: the units cannot be read.
        :raises OtherUnits: they are others than before.
        """
        whole = self._whole
        if self._ranges is None and log.start <= whole.first and whole.last < log.stop:
            return whole
        found = _NOTHING
        for numbers, places in self._units(log) if whole.records else ():
            if len(numbers):
                digest = int(digest_of(places, numbers).sum().view(np.int64))
                found = found._replace(
                    records=found.records + len(numbers),
                    digest=wrapped(found.digest + digest),
                    next_offset=max(found.next_offset, int(numbers.max()) + 1),
                )
        return found

    def are_settled(self, numbers: Ints, places: Ints) -> Bools:
        """Return which units, by queue offset and physical offset, can be those of settled records."""
        if not self._whole.records:
            return np.zeros(len(numbers), np.bool_)
        found = np.ones(len(numbers), np.bool_)
        if len(self._wrong):
            found &= ~is_among(numbers, self._wrong)
        if len(self._others):
            found &= ~is_among(places, self._others)
        return found

    def all(self, log: range) -> QueueRecords:
        """Return all records in a part of the log.

        :raises Unreadable: the units cannot be read.
        :raises OtherUnits: they are others than before, or too many.
        """
        kept = self.kept.between(log.start, log.stop)
        if not self._whole.records:
            return kept
        if self._whole.records > MOST:
            raise OtherUnits
        numbers, places = np.concatenate([_NO_UNITS, *self._units(log)], axis=1)
        settled = QueueRecords(places, numbers, np.ones_like(places), np.full(len(places), SOUND, np.uint8))
        both = QueueRecords.joined([kept, settled])
        return both.chosen(np.argsort(both.places, kind="stable"))

    def sound_messages(self, log: range) -> int:
        """Return the number of messages of sound records in a part of the log.

        :raises Unreadable: the units cannot be read.
        :raises OtherUnits: they are others than before.
        """
        kept = self.kept.between(log.start, log.stop)
        return int(kept.messages[kept.sound].sum()) + self.settled(log).records

    def restart(self) -> int | None:
        """Return the physical offset from which on the queue counts from 0 again; None where it does not."""
        kept, whole = self.kept.chosen(self.kept.in_place), self._whole
        if whole.records and len(kept.places):
            begins = whole.first_offset == 0 and whole.first > kept.places[0]
            if begins or (kept.offsets == 0).any():
                # No other unit can stand before or behind such a record and have the offset 0.
                numbers, places = next((part[:, :2] for part in self._parts()), _NO_UNITS)
                first = QueueRecords(places, numbers, np.ones_like(places), np.full(len(places), SOUND, np.uint8))
                kept = QueueRecords.joined([kept, first])
                kept = kept.chosen(np.argsort(kept.places, kind="stable"))
        again = np.flatnonzero((kept.offsets[1:] == 0) & (kept.offsets[:-1] > 0)) + 1
        return int(kept.places[again[-1]]) if len(again) else None

    def lives(self, queue: Queue) -> Iterator[Life]:
        """Yield the lives of the queue as far as is known here; what has units is there still."""
        kept = self.kept.chosen(self.kept.in_place)
        yield from lives_of(queue, kept.places, kept.offsets)
        if self._whole.records:
            yield Life(queue, self._whole.first, NO_END)

    def last_before(self, place: int) -> int:
        """Return the physical offset of a late record before a place, -1 without one."""
        kept = self.kept.places[self.kept.in_place & (self.kept.places < place)]
        settled = self._whole.first if self._whole.records and self._whole.first < place else -1
        return max(settled, int(kept[-1]) if len(kept) else -1)

    def _units(self, log: range) -> Iterator[Ints]:
        """Yield tables of the units of settled records in a part of the log: queue offsets, physical offsets."""
        records = digest = 0
        for numbers, places in self._parts():
            records += len(numbers)
            digest = wrapped(digest + int(digest_of(places, numbers).sum().view(np.int64)))
            inside = (places >= log.start) & (places < log.stop)
            if self._ranges is not None:
                inside &= np.logical_or.reduce([(places >= start) & (places < end) for start, end in self._ranges])
            yield np.stack((numbers[inside], places[inside]))
        if (records, digest) != self._whole[:2]:
            raise OtherUnits

    def _parts(self) -> Iterator[Ints]:
        """Yield tables of the units of all settled records."""
        for file in self._files:
            with open_file(file) as reader:
                for row, units in read_units(reader, file.kind):
                    numbers, places = unit_numbers(file, row, units)[0], units["physical_offset"].astype(np.int64)
                    # Units that point before the log lead nowhere, as nobody has read there.
                    which = message_mask(units) & (places >= self._whole.first) & (places <= self._whole.last)
                    which &= self.are_settled(numbers, places)
                    if which.any():
                        yield np.stack((numbers[which], places[which])).astype(np.int64)


def wrapped(number: int) -> int:
    """Return a number modulo 2^64, as int64 has it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)

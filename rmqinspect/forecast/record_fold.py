"""The records of a log by queue: what consumers could get at all, whatever leads there.

    log        |rec a/0 5|rec b/0 1|rec a/0 6|???|rec a/0 7|
    a/0        places 0, 2, 4    queue offsets 5, 6, 7         columns, one for each queue
    b/0        place  1          queue offset  1

Only records that get queue units are kept: 25 bytes of memory each. Left out are records of an earlier life of a file,
and copies of records that stand in their place.

Whoever compares the log with the queues beside, as `verify` does, says which records have their unit already. Of these
no more is kept than sums for each queue, however long the log is: its units say where they are.

    units      |5|6|7|8|            settled: 5, 6, 8    number, digest of places and queue offsets, first, last
    log        5 6 ??? 8 9          kept: 9             wrong units: 7
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Bytes, Ints, is_among
from rmqinspect.codec.byte_ranges import Numbering
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.records import are_copies
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.forecast.batch import has_unit
from rmqinspect.store.model import Store
from rmqinspect.tables.read_log import Collected
from rmqinspect.text import text_of

_KIND = "records"
_COLUMNS = {"place": np.int64, "offset": np.int64, "queue": np.int32, "messages": np.int32, "state": np.uint8}

MOST = 8_000_000
"""Records and wrong units that are kept at most, some 200 MB."""

SOUND, MOVED = 1, 2  # bits: BODYCRC is right; it lies elsewhere than PHYSICALOFFSET says

Queue = tuple[str, int]  # topic, queue id
Digests = NDArray[np.uint64]


class QueueRecords(NamedTuple):
    """Records of one queue, in the order of the log."""

    places: Ints  # physical offsets
    offsets: Ints  # QUEUEOFFSET
    messages: Ints  # more than one in a batch
    state: Bytes  # SOUND, MOVED; the head of any of them is plausible

    @property
    def sound(self) -> Bools:
        """Which have a body of the right CRC."""
        sound: Bools = self.state & SOUND != 0
        return sound

    @property
    def in_place(self) -> Bools:
        """Which lie where PHYSICALOFFSET says."""
        in_place: Bools = self.state & MOVED == 0
        return in_place

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> "QueueRecords":
        """Return those of all parts, one behind the other."""
        if len(parts) < 2:
            return parts[0] if parts else NO_RECORDS
        return QueueRecords(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def chosen(self, which: Bools | Ints | slice) -> "QueueRecords":
        """Return some of them."""
        return QueueRecords(self.places[which], self.offsets[which], self.messages[which], self.state[which])

    def between(self, start: int, end: int) -> "QueueRecords":
        """Return those that begin at physical offsets from `start` to before `end`."""
        return self.chosen(slice(*np.searchsorted(self.places, (start, end)).tolist()))


class Settled(NamedTuple):
    """The records of one queue that have their unit in a file of it, and are sound."""

    records: int = 0
    digest: int = 0  # of their places and queue offsets, see `digest_of`
    first: int = 0  # physical offset of the first one
    last: int = -1  # of the last one
    first_offset: int = 0  # QUEUEOFFSET of the first one
    next_offset: int = 0  # behind the highest


_MULTIPLIERS = [
    np.uint64(int.from_bytes(os.urandom(8), "big") | 1) for _ in range(3)
]  # nobody can write a store to fit them
_HALF = np.uint64(32)


def digest_of(places: Ints, offsets: Ints) -> Digests:
    """Return a digest of each record; those of several are summed up modulo 2^64."""
    a, b, c = _MULTIPLIERS
    mixed = places.astype(np.uint64) * a + offsets.astype(np.uint64) * b
    mixed ^= mixed >> _HALF
    mixed *= c
    found: Digests = mixed ^ (mixed >> _HALF)
    return found


_NONE = np.empty(0, np.int64)
NO_RECORDS = QueueRecords(_NONE, _NONE, _NONE, np.empty(0, np.uint8))


class RecordFold(Struct):
    """The records of a part of the log that get queue units."""

    store: Store  # where originals of copies are looked for
    keys: Numbering = field(default_factory=Numbering)  # topic, queue id
    kept: Collected = field(default_factory=lambda: Collected({_KIND: _COLUMNS}))
    damaged: int = 0  # records with a wrong BODYCRC, also those without a unit
    unread: list[str] = field(default_factory=list)
    wrong: dict[Queue, list[Ints]] = field(default_factory=dict)  # queue offsets of units that lead to no such record
    is_too_large: bool = False  # more than `MOST` would be kept: nothing is
    _wrong: int = 0  # how many
    _settled: Ints = field(default_factory=lambda: np.zeros((0, len(Settled._fields)), np.int64))  # by number of `keys`

    def take(self, run: RecordRun) -> None:
        """Keep what is needed of a run of records."""
        records = run.records
        if run.stale or not len(records):
            return
        self.damaged += int(np.count_nonzero(~records.body_crc_ok))
        chosen = has_unit(records.sys_flag)
        if (records.physical_offset != records.places).any():
            chosen &= ~are_copies(self.store, records, self.unread)
        if not chosen.all():
            records = records.select(chosen)
        if not len(records):
            return
        topics = records.topic_starts, records.topic_ends
        numbers = self.keys.number(records.bytes, *topics, records.field("queue_id"))
        steps = offsets_taken(records)
        self.kept.add(
            _KIND,
            records.places,
            records.field("queue_offset"),
            numbers,
            steps if len(steps) else np.ones(len(records), np.int64),
            records.body_crc_ok * SOUND + (records.physical_offset != records.places) * MOVED,
        )

    def settle(self, places: Ints, wrong: Mapping[Queue, Ints]) -> None:
        """Sum up the records at some physical offsets, ascending: their queues have units of them.

        `wrong`: the queue offsets of units that lead to anything else.
        """
        for queue, offsets in wrong.items():
            self.wrong.setdefault(queue, []).append(offsets)
        columns = self.kept[_KIND]
        is_settled = (columns["state"] == SOUND) & (columns["messages"] == 1) & is_among(columns["place"], places)
        if not is_settled.any():
            return
        self.kept = Collected({_KIND: _COLUMNS})
        self.kept.add(_KIND, *(column[~is_settled] for column in columns.values()))
        place, offset, queue = (columns[name][is_settled] for name in ("place", "offset", "queue"))
        short = queue.astype(np.int16) if len(self.keys) < 1 << 15 else queue  # sorted by their digits
        order = np.argsort(short, kind="stable")
        place, offset, queue = place[order], offset[order], queue[order]
        starts = np.flatnonzero(np.concatenate(([True], queue[1:] != queue[:-1])))
        digests = np.add.reduceat(digest_of(place, offset), starts).view(np.int64)
        rows = (
            np.diff(starts, append=len(queue)),
            digests,
            place[starts],
            np.maximum.reduceat(place, starts),
            offset[starts],
            np.maximum.reduceat(offset, starts) + 1,
        )
        self._add_settled(queue[starts], np.stack(rows, axis=1))

    def _add_settled(self, queues: Ints, rows: Ints) -> None:
        """Add the sums of some queues, each once."""
        if len(self.keys) > len(self._settled):
            more = np.zeros((len(self.keys) - len(self._settled), len(Settled._fields)), np.int64)
            self._settled = np.concatenate((self._settled, more))
        known = self._settled[queues]
        is_new = known[:, :1] == 0
        joined = np.stack(
            (
                known[:, 0] + rows[:, 0],
                known[:, 1] + rows[:, 1],
                known[:, 2],
                np.maximum(known[:, 3], rows[:, 3]),
                known[:, 4],
                np.maximum(known[:, 5], rows[:, 5]),
            ),
            axis=1,
        )
        self._settled[queues] = np.where(is_new, rows, joined)

    def join(self, following: Self) -> None:
        """Add those of the part that follows."""
        columns = following.kept[_KIND]
        if len(following.keys):
            numbers = self.keys.number_of(following.keys)
            met = np.flatnonzero(following._settled[:, 0])
            self._add_settled(numbers[met], following._settled[met])
            if len(columns["place"]) and not self.is_too_large:
                columns["queue"] = numbers[columns["queue"]]
                self.kept.add(_KIND, *columns.values())
        for queue, offsets in following.wrong.items() if not self.is_too_large else ():
            self.wrong.setdefault(queue, []).extend(offsets)
            self._wrong += sum(map(len, offsets))
        if len(self.kept[_KIND]["place"]) + self._wrong > MOST:
            self.is_too_large, self.wrong, self.kept = True, {}, Collected({_KIND: _COLUMNS})
        self.damaged += following.damaged
        self.unread += following.unread

    def settled(self) -> dict[Queue, Settled]:
        """Return the sums of each queue that has any."""
        names = self.keys.keys_from(0)
        return {
            (text_of(names[number][0]), names[number][1]): Settled(*self._settled[number].tolist())
            for number in np.flatnonzero(self._settled[:, 0]).tolist()
        }

    def by_queue(self) -> dict[Queue, QueueRecords]:
        """Return the records that are kept of each queue."""
        columns = self.kept[_KIND]
        queues, found = columns["queue"], {}
        order = np.argsort(queues, kind="stable")
        borders = np.searchsorted(queues[order], np.arange(len(self.keys) + 1))
        for number, (topic, queue_id) in enumerate(self.keys.keys_from(0)):
            rows = order[borders[number] : borders[number + 1]]
            found[text_of(topic), queue_id] = QueueRecords(
                columns["place"][rows],
                columns["offset"][rows],
                columns["messages"][rows].astype(np.int64),
                columns["state"][rows],
            )
        return found

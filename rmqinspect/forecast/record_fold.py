"""The records of a log by queue: what consumers could get at all, whatever leads there.

    log        |rec a/0 5|rec b/0 1|rec a/0 6|???|rec a/0 7|
    a/0        places 0, 2, 4    queue offsets 5, 6, 7         columns, one for each queue
    b/0        place  1          queue offset  1

Only records that get queue units are kept: 25 bytes of memory each. Left out are records of an earlier life of a file,
and copies of records that stand in their place.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from rmqinspect.codec.arrays import Bools, Bytes, Ints
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

SOUND, MOVED = 1, 2  # bits: BODYCRC is right; it lies elsewhere than PHYSICALOFFSET says

Queue = tuple[str, int]  # topic, queue id


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

    def chosen(self, which: Bools | slice) -> "QueueRecords":
        """Return some of them."""
        return QueueRecords(self.places[which], self.offsets[which], self.messages[which], self.state[which])

    def between(self, start: int, end: int) -> "QueueRecords":
        """Return those that begin at physical offsets from `start` to before `end`."""
        return self.chosen(slice(*np.searchsorted(self.places, (start, end)).tolist()))


_NONE = np.empty(0, np.int64)
NO_RECORDS = QueueRecords(_NONE, _NONE, _NONE, np.empty(0, np.uint8))


@dataclass(slots=True)
class RecordFold:
    """The records of a part of the log that get queue units."""

    store: Store  # where originals of copies are looked for
    keys: Numbering = field(default_factory=Numbering)  # topic, queue id
    kept: Collected = field(default_factory=lambda: Collected({_KIND: _COLUMNS}))
    damaged: int = 0  # records with a wrong BODYCRC, also those without a unit
    unread: list[str] = field(default_factory=list)

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

    def join(self, following: Self) -> None:
        """Add those of the part that follows."""
        columns = following.kept[_KIND]
        if len(columns["place"]):
            columns["queue"] = self.keys.number_of(following.keys)[columns["queue"]]
            self.kept.add(_KIND, *columns.values())
        self.damaged += following.damaged
        self.unread += following.unread

    def by_queue(self) -> dict[Queue, QueueRecords]:
        """Return the records of each queue."""
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

"""The records of a log by queue: what consumers could get at all, whatever leads there.

    log        |rec a/0 5|rec b/0 1|rec a/0 6|???|rec a/0 7|
    a/0        places 0, 2, 4    queue offsets 5, 6, 7         columns, one for each queue
    b/0        place  1          queue offset  1

A log is read once for all releases and all other choices of a store: each segment has columns of its own, so that a
store without one of them, or with one more, needs no other read. Only records that get queue units are kept: 25 bytes
of memory each. So a log is read whole only up to `JUDGED` bytes; of a longer one nothing is kept.

Left out are records of an earlier life of a file, and copies of records that stand in their place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from rmqinspect.codec.arrays import Bools, Bytes, Ints
from rmqinspect.codec.byte_ranges import Numbering
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.records import are_copies
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.forecast.batch import has_unit
from rmqinspect.forecast.outcome import note_unread
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables.read_log import Collected, fold_log
from rmqinspect.tables.table import Request
from rmqinspect.text import text_of

JUDGED = 1 << 30
"""The longest log, in bytes, that is always read whole."""

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


def log_size(store: Store, end: int | None = None) -> int:
    """Return the bytes of the segments of a store, as far as the log reaches; `end`: None where that is not known.

    Behind its end lie zeros: a broker makes the next segment before it needs it.
    """
    return sum(
        segment.size if end is None else max(0, min(segment.size, end - segment.base)) for segment in store.segments
    )


class LogView:
    """The records of a log that consists of some segments."""

    def __init__(self, parts: Sequence[Mapping[Queue, QueueRecords]]) -> None:
        """Take those of each segment, in the order of the log."""
        self._parts = parts
        self.queues = sorted({queue for part in parts for queue in part})

    def of(self, queue: Queue) -> QueueRecords:
        """Return the records of a queue."""
        found = [part[queue] for part in self._parts if queue in part]
        if len(found) < 2:
            return found[0] if found else NO_RECORDS
        places, offsets, messages, state = zip(*found, strict=True)
        joined = np.concatenate(places), np.concatenate(offsets), np.concatenate(messages)
        return QueueRecords(*joined, np.concatenate(state))


@dataclass
class LogRecords:
    """The records of all segments that one store and its other choices have, each segment read once."""

    jobs: int = 1
    progress: Callable[[int], None] | None = None
    announce: Callable[[int, str], None] | None = None
    unread: list[str] = field(default_factory=list)  # what the system refused to read
    is_sound: bool = False  # the store that was read first: no record of it is damaged, and no byte between is lost
    _first: Sequence[Segment] = ()  # its segments
    _records: Mapping[Queue, QueueRecords] = field(default_factory=dict)  # of them
    _alone: dict[Segment, Mapping[Queue, QueueRecords]] = field(default_factory=dict)  # of other segments

    def of(self, store: Store) -> LogView:
        """Return the records of a store, of all its segments."""
        if not self._first:
            self._read_first(store)
        if store.segments == self._first:
            return LogView([self._records])
        return LogView([self._part(store, segment) for segment in store.segments])

    def know(self, store: Store, fold: RecordFold, *, is_sound: bool) -> None:
        """Keep what another reader of the log has found in all segments of a store."""
        self._first, self._records, self.is_sound = store.segments, fold.by_queue(), is_sound

    def _read_first(self, store: Store) -> None:
        if self.announce is not None:
            self.announce(log_size(store), "the log is read, for what consumers get of it after the start")
        gaps: list[tuple[str, int, int]] = []
        fold = self._fold(store, store, lambda *gap: gaps.append(gap))
        self.know(store, fold, is_sound=not (gaps or fold.damaged or self.unread))

    def _part(self, store: Store, segment: Segment) -> Mapping[Queue, QueueRecords]:
        """Return the records of one segment."""
        if segment in self._first and [one.base for one in self._first].count(segment.base) == 1:
            inside = {queue: some.between(segment.base, segment.end) for queue, some in self._records.items()}
            return {queue: some for queue, some in inside.items() if len(some.places)}
        if segment not in self._alone:
            fold = self._fold(replace(store, segments=(segment,)), store)
            self._alone[segment] = fold.by_queue()
        return self._alone[segment]

    def _fold(self, read: Store, whole: Store, on_gap: Callable[[str, int, int], None] | None = None) -> RecordFold:
        request = Request(jobs=self.jobs, progress=self.progress, on_unreadable=self.unread.append, on_gap=on_gap)
        fold = fold_log(read, request, lambda: RecordFold(whole))
        note_unread(self.unread, *fold.unread)
        return fold

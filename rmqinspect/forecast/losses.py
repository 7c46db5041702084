"""What a start gives up: the records at or behind the new end of the log, each counted once.

    log      |----kept----|rejected|rec|rec|rec|stale|zeros|
                          ^ new end
    lost                   x        x   x   x

A record that the scan refuses counts too, if it is one at all: where its head or a length is damaged, if a unit that
is cut off names it, and nothing else is wrong with it (`damage.named_record`). Half a record does not count: it was
lost before. Records of an earlier life of the file (`RecordRun.stale`) were lost at an earlier start: they do not count
again. Copies of records that stand in their place (`are_copies`) are no messages of their own.

Which records these are is kept as the places where that changes (`Losses.turns`), and as the places that only units
name: a few numbers, however many are lost. `lost_records` makes a filter of it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.arrays import Bools, Ints, distinct, is_among
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.records import Records, are_copies
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.consumequeue.units import LAYOUTS, message_mask, read_units
from rmqinspect.damage.named_record import named_record, size_at
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.outcome import Losses, Outcome, QueueOutcome, note_unread
from rmqinspect.forecast.shelf import BATCH, SIMPLE, UNITS
from rmqinspect.loops.record_rows import PHYSICAL_OFFSET, SUM_BYTES, SUM_FIRST, SUM_RECORDS
from rmqinspect.schemas.message import TRANSACTION_MASK, SysFlag
from rmqinspect.store.file_type import own_base
from rmqinspect.store.model import QueueFile, Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.tables.read_log import fold_log
from rmqinspect.tables.request import Request
from rmqinspect.tables.tally import Tally
from rmqinspect.text import text_of

_BEHIND_ALL = 1 << 63
_LOOKED_AT = 1 << 20  # bytes behind an end, and of each segment behind it, in which a record shows that there are more
_LARGEST = 64 << 20  # bytes of a record that only a unit names
_ALL_ONE = np.empty(0, np.int64)
_FOLDERS = {"consumequeue/": SIMPLE, "batchconsumequeue/": BATCH}  # kinds of files
_COUNTED = (0, int(SysFlag.TRANSACTION_COMMIT))


class LossFold(Struct):
    """Sums of the records of a part of the log."""

    queues: Tally = field(default_factory=Tally)  # topic, queue id
    intact: int = 0
    end: int | None = None  # physical offset behind the last record
    first_timestamp: int | None = None  # ms
    last_timestamp: int | None = None
    next_offsets: dict[tuple[bytes, int], int] = field(default_factory=dict)  # behind the highest of each queue
    store: Store | None = None  # where originals of copies are looked for
    copies: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)  # [start, end), physical offsets of damaged bytes
    # Where records begin that are lost, or are not: (place, lost), of the first one of each row of alike records.
    turns: list[tuple[int, bool]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # why it is not known whether a record is a copy
    _keys: list[tuple[bytes, int]] = field(default_factory=list)  # of `queues`, as far as they were asked for

    def take(self, run: RecordRun) -> None:
        """Count a run of records; those of an earlier life do not count, copies are counted apart."""
        records = run.records
        if not len(records):
            return
        if run.stale:
            self._turn(int(records.places[0]), lost=False)
            return
        self.end = records.base + int(records.ends[-1])
        if self.store is not None and (copies := are_copies(self.store, records, self.unread)).any():
            self.copies += int(np.count_nonzero(copies))
            for at in (0, *(np.flatnonzero(np.diff(copies)) + 1).tolist()):
                self._turn(int(records.places[at]), lost=not copies[at])
            records = records.select(~copies)
            if not len(records):
                return
        else:
            self._turn(int(records.places[0]), lost=True)
        topics = records.topic_starts, records.topic_ends
        self.queues.take(records.bytes, *topics, records.field("queue_id"), records.rows, _ALL_ONE)
        in_place = records.rows[:, PHYSICAL_OFFSET] == records.base + records.starts
        intact = in_place & records.body_crc_ok
        self.intact += int(np.count_nonzero(intact))
        times = records.field("store_timestamp")
        if self.first_timestamp is None:
            self.first_timestamp = int(times[0])
        self.last_timestamp = int(times[-1])
        self._note_offsets(records, intact)

    def _turn(self, place: int, *, lost: bool) -> None:
        if not self.turns or self.turns[-1][1] is not lost:
            self.turns.append((place, lost))

    def join(self, following: Self) -> None:
        """Add the sums of the part that follows."""
        self.queues.join(following.queues)
        for place, lost in following.turns:
            self._turn(place, lost=lost)
        self.intact += following.intact
        self.copies += following.copies
        self.gaps += following.gaps
        self.unread += following.unread
        if self.first_timestamp is None:
            self.first_timestamp = following.first_timestamp
        if following.last_timestamp is not None:
            self.last_timestamp = following.last_timestamp
        if following.end is not None:
            self.end = following.end
        for queue, offset in following.next_offsets.items():
            self.next_offsets[queue] = max(offset, self.next_offsets.get(queue, 0))

    def losses(self) -> Losses:
        """Return the sums as part of an outcome."""
        found = Losses(end=self.end, intact=self.intact, copies=self.copies, turns=list(self.turns))
        found.first_timestamp, found.last_timestamp = self.first_timestamp, self.last_timestamp
        for (topic, _), sums in zip(self.queues.keys.keys_from(0), self.queues.sums.tolist(), strict=True):
            name = text_of(topic)
            found.messages += sums[SUM_RECORDS]
            found.bytes += sums[SUM_BYTES]
            found.by_topic[name] = found.by_topic.get(name, 0) + sums[SUM_RECORDS]
            found.bytes_by_topic[name] = found.bytes_by_topic.get(name, 0) + sums[SUM_BYTES]
            found.first_by_topic[name] = min(sums[SUM_FIRST], found.first_by_topic.get(name, sums[SUM_FIRST]))
        found.messages += int(self.queues.others[SUM_RECORDS])
        found.bytes += int(self.queues.others[SUM_BYTES])
        return found

    def _note_offsets(self, records: Records, intact: Bools) -> None:
        """Keep the next queue offset of each queue, as its whole records say it."""
        numbers = self.queues.keys.number(
            records.bytes, records.topic_starts, records.topic_ends, records.field("queue_id")
        )
        transactions = records.sys_flag & TRANSACTION_MASK
        with_offset = np.flatnonzero(intact & is_among(transactions, _COUNTED))
        if not len(with_offset):
            return
        steps = offsets_taken(records)
        behind = records.field("queue_offset") + (steps if len(steps) else 1)
        met, which = np.unique(numbers[with_offset], return_inverse=True)
        highest = np.full(len(met), -1, np.int64)
        np.maximum.at(highest, which, behind[with_offset])
        self._keys += self.queues.keys.keys_from(len(self._keys))
        for number, offset in zip(met.tolist(), highest.tolist(), strict=True):
            if offset >= 0:
                queue = self._keys[number]
                self.next_offsets[queue] = max(offset, self.next_offsets.get(queue, 0))


def count_losses(
    store: Store, start: int, stop: int, jobs: int, progress: Callable[[int], None] | None, unread: list[str]
) -> LossFold:
    """Return the sums of all records that start at physical offsets from `start` to before `stop`.

    What the system refuses to read is noted in `unread`.
    """
    gaps: list[tuple[int, int]] = []

    def note(kind: str, first: int, behind: int) -> None:
        if kind == "unknown":
            gaps.append((first, behind))

    request = Request(offsets=(start, stop), jobs=jobs, progress=progress, on_unreadable=unread.append, on_gap=note)
    fold = fold_log(store, request, lambda: LossFold(store=store))
    fold.gaps = gaps
    note_unread(unread, *fold.unread)
    return fold


class LossCounter(Struct):
    """Counts what lies behind several ends of one log; no byte of it is read twice."""

    store: Store
    jobs: int
    progress: Callable[[int], None] | None
    unread: list[str]  # what the system refused to read
    _known: dict[int, LossFold] = field(default_factory=dict)  # by the end behind which it counts

    def behind(self, end: int) -> LossFold:
        """Return the sums of all records at or behind an end."""
        if end not in self._known:
            stop = min((known for known in self._known if known > end), default=_BEHIND_ALL)
            fold = count_losses(self.store, end, stop, self.jobs, self.progress, self.unread)
            if stop in self._known:
                fold.join(self._known[stop])
            self._known[end] = fold
        return self._known[end]

    def of_segment(self, segment: Segment, first: int) -> LossFold:
        """Return the sums of a segment that is not in the store, from a physical offset on."""
        alone = replace(self.store, segments=(segment,))
        return count_losses(alone, first, _BEHIND_ALL, self.jobs, self.progress, self.unread)

    def beginnings_behind(self, end: int) -> Iterator[LossFold]:
        """Yield the sums of what lies at or behind an end; of each segment only the beginning is read."""
        starts = (end, *(segment.base for segment in self.store.segments if segment.base > end))
        for start in starts:
            yield count_losses(self.store, start, start + _LOOKED_AT, self.jobs, self.progress, self.unread)


# --- records that no walk meets ----------------------------------------------------------------


def count_named(
    store: Store, queues: Iterable[QueueOutcome], gaps: Sequence[tuple[int, int]], losses: Losses, unread: list[str]
) -> None:
    """Add the records in some gaps of the log that no walk meets, because a head or a length is damaged.

    They begin where a gap does, or where a unit says that is cut off. What the system refuses to read is noted in
    `unread`.
    """
    if not gaps:
        return
    counted: set[int] = set()

    def count(place: int, size: int) -> bool:
        """Count the record of this size at a place, unless it was counted; return whether one is there."""
        segment = store.segment_at(place)
        if place not in counted and segment is not None and 0 < size <= _LARGEST:
            refused: list[str] = []
            if (record := named_record(segment, place, size, refused)) is not None:
                counted.add(place)
                _add(losses, record, size)
            note_unread(unread, *refused)
        return place in counted

    stays = {(queue.topic, queue.queue_id): queue.stays for queue in queues if queue.cut}
    for file in store.queue_files:
        first = stays.get((file.topic, file.queue_id)) if file.kind in LAYOUTS else None
        # A unit of a batch queue may hold many offsets: it does not say which one lies where.
        if first is not None and (file.kind != SIMPLE or file.base + file.size > first * UNITS[SIMPLE]):
            for place, size in _units_into(file, gaps, unread):
                count(place, size)
    for start, behind in gaps:
        before = [lost for place, lost in losses.turns if place <= start]
        if not before or before[-1]:  # else it lies among records of an earlier life
            _count_from(store, start, behind, count)


def _count_from(store: Store, start: int, behind: int, count: Callable[[int, int], bool]) -> None:
    """Count the records that stand in a gap one behind the other, from its beginning on.

    Each is as long as it says, or reaches to the end of the gap.
    """
    while start < behind and (segment := store.segment_at(start)) is not None:
        place = start + segment.lead
        room = behind - place
        for size in (size_at(segment, place), room):
            if 0 < size <= room and count(place, size):
                start = place + size
                break
        else:
            return


def _units_into(file: QueueFile, gaps: Sequence[tuple[int, int]], unread: list[str]) -> Iterator[tuple[int, int]]:
    """Yield physical offset and size of the units of a file that point into gaps."""
    try:
        with open_file(file) as reader:
            for _, units in read_units(reader, file.kind):
                offsets = units["physical_offset"]
                inside = np.zeros(len(offsets), np.bool_)
                for start, end in gaps:
                    inside |= (offsets >= start) & (offsets < end)
                chosen = units[inside & (units["size"] > 0) & (units["size"] <= _LARGEST)]
                yield from zip(chosen["physical_offset"].tolist(), chosen["size"].tolist(), strict=True)
    except Unreadable as error:
        note_unread(unread, str(error))


def _add(losses: Losses, record: Records, size: int) -> None:
    """Add a record that is not intact."""
    place, time = int(record.places[0]), int(record.field("store_timestamp")[0])
    topic = text_of(bytes(record.raw[int(record.topic_starts[0]) : int(record.topic_ends[0])]))
    end = place + size
    losses.named.append((place, size))
    losses.messages += 1
    losses.bytes += size
    losses.end = max(end, losses.end or 0)
    for counts, number in ((losses.by_topic, 1), (losses.bytes_by_topic, size)):
        counts[topic] = counts.get(topic, 0) + number
    losses.first_by_topic[topic] = min(time, losses.first_by_topic.get(topic, time))
    losses.first_timestamp = min(time, time if losses.first_timestamp is None else losses.first_timestamp)
    losses.last_timestamp = max(time, losses.last_timestamp or 0)


# --- what a remedy takes out of a store ---------------------------------------------------------


def given_up(store: Store, left: Store, unread: list[str]) -> Iterator[tuple[Segment, int]]:
    """Yield each segment of a store that is not, or not whole, in what is left; and from which physical offset on.

    Not those whose place in the log another file has. What the system refuses to read is noted in `unread`.
    """
    stay = {file.path: file.size for file in left.files}
    bases = {segment.base for segment in left.segments}
    changed = [file.name for file in store.files if stay.get(file.path, 0) < file.size]
    for segment in segments_of(store, changed, unread):
        first = segment.base + stay.get(segment.path, 0)
        if first not in bases:
            yield segment, first


def segments_of(store: Store, names: Collection[str], unread: list[str]) -> Iterator[Segment]:
    """Yield the segments that files among those of the commit log are, by their names or by what their records say."""
    for file in store.files:
        if file.name not in names or not store.lies_in_log(file):
            continue
        try:
            base = file.base if isinstance(file, Segment) else own_base(file)
        except Unreadable as error:
            note_unread(unread, str(error))
            continue
        if base is not None:
            yield Segment(file.path, file.name, file.size, "segment", base)


def units_given_up(store: Store, left: Store, outcome: Outcome, unread: list[str]) -> int:
    """Return how many messages of the log have no unit any more, because their queue's files are not left.

    What the system refuses to read is noted in `unread`.
    """
    kept, gone = (defaultdict[str, list[StoreFile]](list) for _ in range(2))
    paths = {file.path for file in left.files}
    for file in store.files:
        if file.name.startswith(tuple(_FOLDERS)) and file.name.count("/") == 3:  # FOLDER/TOPIC/QUEUE/FILE
            (kept if file.path in paths else gone)[file.name.rpartition("/")[0]].append(file)
    added = {(queue.topic, queue.queue_id): queue.added for queue in outcome.queues}
    total = 0
    for folder, files in gone.items():
        there = _messages_in(files, outcome, unread)
        there = there[~is_among(there, _messages_in(kept[folder], outcome, unread))]
        _, topic, queue_id = folder.split("/")
        total += max(0, len(there) - added.get((topic, int(queue_id) if queue_id.isdecimal() else 0), 0))
    return total


def _messages_in(files: Iterable[StoreFile], outcome: Outcome, unread: list[str]) -> Ints:
    """Return where the messages lie in the log of an outcome that the units of some files point at."""
    found = [np.empty(0, np.int64)]
    for file in files:
        try:
            with open_file(file) as reader:
                for _, units in read_units(reader, _FOLDERS[file.name.partition("/")[0] + "/"]):
                    offsets = units["physical_offset"][message_mask(units)].astype(np.int64)
                    found.append(offsets[(offsets >= outcome.min_offset) & (offsets < outcome.end_offset)])
        except Unreadable as error:
            note_unread(unread, str(error))
    return distinct(np.concatenate(found))

"""Queues all of whose messages are lost: which offsets they had, and where the units of these lead.

A queue without files begins at 0 again: the offsets of its groups lie behind its end, and new messages get numbers that
were used. So it keeps its offsets, as far as something tells them:

    units of its queue files      those that lead into the new log, or behind it; else the last one before it
    heads of damaged records      queue and queue offset, where the lengths of the record add up
    consumer and delay offsets    of topics that exist; the last resort, as a group may not have read to the end

A queue of which records are left reaches to these offsets as well, as far as that many messages can be lost:
what is sent to it later would lie before them, and no consumer of these groups would get it. In a log that begins at 0
it begins at 0: filler before its first record would lead to the log's first byte, which is a message that was removed.

There is no neighbour whose unit could stand for them, and a unit of another queue would bring its message. They lead
over the end of a segment, where no broker reads a message: a pull answers MESSAGE_WAS_REMOVING, and goes on behind.

    segment                  |  segment             | log ends
    .........................|......................|
                           [ place: the last byte of a segment, 2 bytes ]

The log has to go on behind each unit, or a broker would take up its work behind the log's end: a log of one segment is
ended there by a blank record, and a bridge begins the next segment.

A queue whose messages have all expired, or lay in segments before the first one that is left, keeps its last unit as it
is: that is what a broker has of it.

Source: DefaultMessageStore#getMessage, MappedFile#selectMappedBuffer, ConsumeQueue#recover, #correctMinOffset,
CommitLog#getMaxOffset; RocketMQ 4.0.0 to 5.5.0. What real store classes make of such units: docs/salvage.md.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.dispatch import Dispatcher
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.java import java_number
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.config.json_files import (
    integer,
    key_number,
    read_config,
    read_consumer_offsets,
    read_delay_offsets,
)
from rmqinspect.consumequeue.units import messages_in
from rmqinspect.errors import Unreadable
from rmqinspect.rescue.bridge import SMALLEST_AT_END, USUAL
from rmqinspect.rescue.log_plan import Kept, LogPlan, Lost
from rmqinspect.rescue.queue_files import LAST_OFFSET, LostQueues, Queue, Vacant
from rmqinspect.rescue.sources import Source
from rmqinspect.rescue.units import are_likely, middle_of
from rmqinspect.schemas.consumequeue import NOWHERE_SIZE
from rmqinspect.schemas.message import FIXED_SIZE
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.topics import LMQ_PREFIX, SCHEDULE_TOPIC, is_system_topic

_SPLIT_SIZE = 16 << 20
_MOST_ASKED = 4  # records of a window of units that are asked whose they are
_MOST_IN_BATCH = 2**15 - 1


class _Told(Struct):
    """What is told of one queue without a record in the new log."""

    offsets: list[tuple[int, int]] = field(default_factory=list)  # lost, [first, end)
    expired: tuple[int, int, int, int] | None = None  # the last unit before the log: offset behind it, and its fields
    has_record: bool = False
    end: int = 0  # of a batch queue
    guessed: bool = False  # a consumer offset is among the offsets


def find_lost_queues(
    log: LogPlan,
    sources: Sequence[Source],
    lost: Mapping[Queue, Sequence[int]],
    whole: Store,
) -> LostQueues:
    """Return what the sources tell of queues without a record; `log` gets a further segment if their units need one.

    `sources`: with what they keep in RocksDB. `lost`: queue offsets of lost messages that are known. `whole`: the store
    whose configuration counts.
    """
    told: dict[Queue, _Told] = defaultdict(_Told)
    kept = _Places([(one.start, one.end) for one in log.pieces if not one.bridge])
    for source in sources:
        for queue, files in _queues_of(source.store):
            _ask_units(told[queue], queue, files, source, log, kept)
    for queue, offsets in lost.items():
        told[queue].offsets += [(offset, offset + 1) for offset in offsets]
    for gone in log.lost:
        _ask_batch(told, gone)
    batch_ends = {queue: one.end for queue, one in told.items() if one.end}
    is_damaged = bool(log.lost) or any(source.result.damage for source in sources)
    reached = dict(consumed(whole)) if is_damaged else {}
    for queue, offset in reached.items() if log.lost else ():
        one = told[queue]
        if not one.has_record and one.expired is None and offset > max((end for _, end in one.offsets), default=0):
            one.guessed = True
            one.offsets.append((offset - 1, offset))
    empty = {queue: one for queue, one in told.items() if not one.has_record and (one.offsets or one.expired)}
    lost_ones = {queue: one for queue, one in empty.items() if one.offsets}
    vacant = {
        queue: Vacant(one.expired[0] - 1, *one.expired)
        for queue, one in empty.items()
        if one.expired is not None and queue not in lost_ones
    }
    place = _segment_end(log) if lost_ones else None
    if lost_ones and place is None:
        # Looked at only here: of a log of several segments the rebuild knows it for nothing.
        there, time = kept_messages(log, sources)
        lost_ones = {queue: one for queue, one in lost_ones.items() if queue not in there}
        place = _add_segment(log, time) if lost_ones else None
    if place is not None:
        time = next((one.timestamp for one in reversed(log.pieces) if one.bridge), 0)
        for queue, one in lost_ones.items():
            first, end = min(first for first, _ in one.offsets), max(end for _, end in one.offsets)
            if one.expired is not None:
                first = min(first, max(0, one.expired[0] - 1))
            vacant[queue] = Vacant(first, end, place - 1, NOWHERE_SIZE, 0, time, one.guessed)
    for queue in batch_ends.keys() & reached.keys():
        batch_ends[queue] = max(batch_ends[queue], reached[queue])
    beginnings = find_lost_beginnings(log, sources, lost, whole)
    return beginnings._replace(vacant=vacant, batch_ends=batch_ends, reached=reached)


def find_lost_beginnings(
    log: LogPlan, sources: Sequence[Source], _lost: Mapping[Queue, Sequence[int]], _whole: Store
) -> LostQueues:
    """Return only where queues of which records are left have lost their beginning."""
    begins = not log.pieces[0].start  # with the first message of each of its queues
    first_lost = next((one.start for one in log.pieces if one.bridge), None) if begins else None
    return LostQueues(first_lost=first_lost, most_lost=_lost_bytes(log, sources) // FIXED_SIZE)


def _lost_bytes(log: LogPlan, sources: Sequence[Source]) -> int:
    """Return how many bytes of the log can have held messages that are lost: bridges, and what lies behind its end."""
    ends = [segment.end for source in sources for segment in source.store.segments]
    bridged = sum(piece.end - piece.start for piece in log.pieces if piece.bridge)
    return bridged + max(0, max(ends, default=0) - log.end) + log.size


# --- units ----------------------------------------------------------------------------------------


class _Places:
    """Ranges of the log that hold what was kept."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self._starts, self._ends = (np.array([one[at] for one in ordered], np.int64) for at in (0, 1))

    def hold(self, places: Ints) -> Bools:
        """Return which places lie in one of them."""
        if not len(self._starts):
            return np.zeros(len(places), np.bool_)
        at = np.searchsorted(self._starts, places, "right") - 1
        inside: Bools = (at >= 0) & (places < self._ends[at])
        return inside


def _queues_of(store: Store) -> Iterator[tuple[Queue, list[QueueFile]]]:
    """Yield the queues of a store, and the files of each, in order."""
    found: dict[Queue, list[QueueFile]] = {}
    for file in store.queue_files:
        if file.kind != "ext_queue":
            found.setdefault((file.topic, file.queue_id), []).append(file)
    for queue, files in found.items():
        yield queue, sorted(files, key=lambda file: file.base)


def _ask_units(
    told: _Told, queue: Queue, files: Sequence[QueueFile], source: Source, log: LogPlan, kept: _Places
) -> None:
    """Add what the units of a queue tell."""
    begin, size = log.pieces[0].start, log.size
    limit = log.end - log.end % size + 2 * size  # behind it a unit is damaged
    if source.taken_until is not None:
        limit = min(limit, source.taken_until)
    is_batch = files[0].kind == "batch_queue"
    if told.has_record and not is_batch:
        return
    middle = -1.0
    with RecordReader(source.store) as records:
        for file in files:
            try:
                for offsets, units in messages_in(file):
                    places = units["physical_offset"].astype(np.int64)
                    if not told.has_record:
                        told.has_record = _lead_to_records(places[kept.hold(places)], queue, records)
                    if told.has_record and not is_batch:
                        return
                    counts = units["message_count"].astype(np.int64) if is_batch else np.ones(len(units), np.int64)
                    good = (units["size"] > FIXED_SIZE) & (offsets <= LAST_OFFSET) & (places < limit)
                    good &= are_likely(offsets, units, size, middle)
                    middle = max(middle, middle_of(units))
                    inside, before = np.flatnonzero(good & (places >= begin)), np.flatnonzero(good & (places < begin))
                    if len(inside):
                        first, end = int(offsets[inside].min()), int((offsets + counts)[inside].max())
                        told.offsets.append((first, end))
                        told.end = max(told.end, end) if is_batch else 0
                    if len(before):
                        at = int(before[-1])
                        unit = (int(places[at]), int(units["size"][at]), int(units["tags_code"][at]))
                        told.expired = max(told.expired or (0, 0, 0, 0), (int(offsets[at] + counts[at]), *unit))
            except Unreadable:
                continue


def _lead_to_records(places: Ints, queue: Queue, records: RecordReader) -> bool:
    """Whether one of some places has a record of a queue; a light queue has records of other topics."""
    for place in places[:_MOST_ASKED].tolist():
        identity = records.identity_at(place)
        if identity is not None and (queue[0].startswith(LMQ_PREFIX) or (identity.topic, identity.queue_id) == queue):
            return True
    return False


def _ask_batch(told: dict[Queue, _Told], lost: Lost) -> None:
    """Add where the messages end of a lost batch whose head is known."""
    if lost.fields is None or not lost.certain or lost.topic is None or lost.queue_id is None:
        return
    queue = lost.topic, lost.queue_id
    properties = dict(lost.fields.properties)
    first, number = (java_number(properties.get(name, ""), 64) for name in ("INNER_BASE", "INNER_NUM"))
    if first is not None and number is not None and 0 <= first <= LAST_OFFSET and 0 < number <= _MOST_IN_BATCH:
        told[queue].end = max(told[queue].end, first + number)
        told[queue].offsets.append((first, first + number))


def consumed(store: Store) -> Iterator[tuple[Queue, int]]:
    """Yield the queues of topics that exist, and the highest offset that a group or a delay level has reached."""
    document = read_config(store, "topics.json")
    topics = None if document is None else document.table("topicConfigTable")
    reached: dict[Queue, int] = {}
    positions = [((one.topic, one.queue_id), one.offset) for one in read_consumer_offsets(store)[0]]
    for (topic, queue_id), offset in (*positions, *_delivered(store)):
        # Of its own topics a broker saves some only.
        is_known = topics is None or topic in topics or topic.startswith(LMQ_PREFIX) or is_system_topic(topic)
        if is_known and queue_id >= 0 and 0 < offset <= LAST_OFFSET:
            reached[topic, queue_id] = max(reached.get((topic, queue_id), 0), offset)
    yield from sorted(reached.items())


def _delivered(store: Store) -> Iterator[tuple[Queue, int]]:
    """Yield the queue of each delay level, and the offset at which it goes on."""
    document = read_delay_offsets(store)
    for level, value in () if document is None else document.table("offsetTable").items():
        number, offset = key_number(level), integer(value)
        if number is not None and offset is not None:
            yield (SCHEDULE_TOPIC, number - 1), offset


# --- where units lead that have no record ---------------------------------------------------------


def _segment_end(log: LogPlan) -> int | None:
    """Return the last end of a segment behind which the log goes on; None where it has one segment only."""
    place = (log.end - 1) // log.size * log.size
    return place if place > log.pieces[0].start else None


def _add_segment(log: LogPlan, timestamp: int) -> int | None:
    """End the last segment, and begin a further one with a bridge; return where. None without room for its end."""
    end, place = log.end, -(-log.end // log.size) * log.size
    if 0 < place - end < SMALLEST_AT_END:
        return None
    if end < place:
        log.pieces.append(Kept(end, place, bridge=True, timestamp=timestamp))
    log.pieces.append(Kept(place, place + USUAL, bridge=True, timestamp=timestamp))
    return place


def end_with_bridge(log: LogPlan, sources: Sequence[Source]) -> None:
    """Add a bridge behind the log's last record: by it verify and forecast know the units of lost messages."""
    time, end = kept_messages(log, sources)[1], log.end
    if -end % log.size >= USUAL + SMALLEST_AT_END:
        log.pieces.append(Kept(end, end + USUAL, bridge=True, timestamp=time))
    else:
        _add_segment(log, time)


def kept_messages(log: LogPlan, sources: Sequence[Source]) -> tuple[Counter[Queue], int]:
    """Return how many messages each queue has in the planned log, and the store time of its last record, ms."""
    queues, found, time = QueueOffsets(), Counter[Queue](), 0
    for records in planned_records(log, sources):
        dispatcher = Dispatcher(keys=False)
        dispatcher.take(records, queues.number(records), queues.queues, np.ones(len(records), np.bool_))
        columns = dispatcher.columns(queues.queues)
        numbers = np.bincount(columns.queue[columns.entitled], columns.messages[columns.entitled]).astype(np.int64)
        for number in np.flatnonzero(numbers).tolist():
            topic, queue_id = columns.queues[number]
            found[topic.decode(errors="replace"), queue_id] += int(numbers[number])
        found.update((extra.topic, extra.queue_id) for extra in columns.extras if columns.entitled[extra.record])
        time = int(records.field("store_timestamp")[-1])
    return found, time


def planned_records(log: LogPlan, sources: Sequence[Source]) -> Iterator[Records]:
    """Yield the records of a planned log, in order, without bridges."""
    for piece in log.pieces:
        if piece.raw is not None and len(piece.raw) >= FIXED_SIZE:
            yield Records.of_one(piece.raw, piece.start)
        elif piece.raw is None and piece.source is not None:
            for split in plan_splits(sources[piece.source].store.segments, _SPLIT_SIZE):
                part = split.clipped(piece.start, piece.end)
                for event in () if part is None else scan_split(part):
                    if isinstance(event, RecordRun) and not event.stale:
                        yield event.records

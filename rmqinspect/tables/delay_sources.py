"""Where delayed messages wait, and how far the broker has come with them.

    delayOffset.json                  -> next queue offset of each delay level
    timercheck, timer log, wheel      -> next slot to read, units that wait, next queue offset of the timer's topic
    rocksdbstore                      -> the same of the timer in RocksDB (5.4.0)
    the log's last record, timercheck -> the last time at which the broker did anything: "now" of an evidence

Source: ScheduleMessageService#load, TimerMessageStore#recover, TimerMessageRocksDBStore#start.

Units of the queues in which delayed messages wait.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.records import records_at
from rmqinspect.commitlog.tail import Sample, find_log_end
from rmqinspect.config.json_files import integer, key_number, read_delay_offsets
from rmqinspect.consumequeue.units import messages_in, read_ext_tags
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import TimerCheckpoints, read_timer_checkpoints, timer_units_file
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.schemas.timer import DEFAULT_PRECISION, TimerUnit
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.pointers import stored_slots
from rmqinspect.tables.record_columns import CHUNK_ROWS
from rmqinspect.tables.table import Request
from rmqinspect.timer.log import (
    PendingUnits,
    TimerLog,
    WheelReach,
    find_precision,
    no_timercheck,
    read_pending,
    read_rows,
    read_timercheck,
    timer_log_files,
)
from rmqinspect.times import END_MILLI


@dataclass(frozen=True, slots=True)
class Entries:
    """The timer in RocksDB: its entries by physical offset, and its checkpoints."""

    place: Ints  # physical offset of the record
    size: Ints
    due: Ints  # ms
    checkpoints: TimerCheckpoints

    @property
    def waits(self) -> Bools:
        """Which entries were not delivered."""
        waiting: Bools = self.due >= self.checkpoints.timeline
        return waiting


@dataclass(frozen=True, slots=True)
class DelaySources:
    """What a store says of delayed messages, but for their queues and records."""

    level_offsets: dict[int, int] | None  # next to deliver, by level; None: no copy of delayOffset.json can be read
    units: PendingUnits
    entries: Entries | None  # None: the timer in RocksDB was never used
    timer_offset: int | None  # next queue offset of the timer's topic to take; None: not known
    read_time: int  # ms; slots of the wheel before it have fired; 0: not known
    precision: int  # ms of a slot
    now: int  # ms; 0: nothing tells
    last_records: Sample  # of the log


def read_delay_sources(store: Store, request: Request) -> DelaySources:
    """Read them; what is wrong is told through the request."""
    check = no_timercheck()
    try:
        check = read_timercheck(store.config_files.get("timercheck"))
    except Unreadable as error:
        request.tell_unread(error)
    read_time = int(check.last_read_timestamp)
    end = find_log_end(store, [])
    now = max(end.last_timestamp or 0, read_time if read_time < END_MILLI else 0)
    log = TimerLog(timer_log_files(store.files))
    flushed = int(check.last_timer_log_flush_pos)
    try:
        slots = stored_slots(store, request)
        reach = WheelReach(log, slots, find_precision(store.settings, log, [slots] if slots is not None else ()))
        # 0 is the trace of a failed start (5.4.0): what is due later than all else has not fired.
        read = read_pending(log, reach, read_time or now, flushed)
    except Unreadable as error:
        request.tell_unread(error)
        reach = WheelReach(TimerLog(()), None, DEFAULT_PRECISION)
        read = read_pending(TimerLog(()), reach, 0, 0)
    entries = _read_entries(store)
    taken = int(check.last_timer_queue_offset)
    if flushed > read.end:
        # The timer log lost its end: startup takes the topic again from behind the last unit that is left.
        taken = _behind(store, read.last, taken)
    if entries is not None:
        taken = max(taken, entries.checkpoints.scan)
    known = "timercheck" in store.config_files or entries is not None
    return DelaySources(
        _level_offsets(store, request),
        read.pending,
        entries,
        taken if known else None,
        read_time,
        reach.precision,
        now,
        end.sample,
    )


def _level_offsets(store: Store, request: Request) -> dict[int, int] | None:
    document = read_delay_offsets(store)
    if document is None:
        return None
    tell = request.on_remark if document.source is not None else request.on_unreadable
    if tell is not None:
        for problem in document.problems:
            tell(problem)
    if document.source is None:
        return None
    numbers = ((key_number(level), integer(offset)) for level, offset in document.table("offsetTable").items())
    return {level: offset for level, offset in numbers if level is not None and offset is not None}


def _behind(store: Store, last: tuple[int, int] | None, taken: int) -> int:
    """Return the queue offset behind the record of a unit. Source: TimerMessageStore#reviseQueueOffset."""
    if last is None:
        return taken
    place, size = last
    for _, records in records_at(store, np.array([place]), np.array([size])):
        return min(taken, int(records.field("queue_offset")[0]) + 1)
    return taken


def _read_entries(store: Store) -> Entries | None:
    file, checkpoints = timer_units_file(store), read_timer_checkpoints(store)
    if file is None or checkpoints is None:
        return None
    columns: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in range(3)]
    layout = dtype_of(TimerUnit)
    with open_file(file) as reader:
        for _, units in read_rows(reader, layout, reader.size // layout.itemsize):
            for column, name in zip(columns, ("physical_offset", "record_size", "enqueue_timestamp"), strict=True):
                column.append(units[name].astype(np.int64))
    place, size, due = (np.concatenate(column) for column in columns)
    if not len(place) and not checkpoints.scan:
        return None
    order = np.argsort(place, kind="stable")
    return Entries(place[order], size[order], due[order], checkpoints)


NO_OFFSET = -1


@dataclass(slots=True)
class DelayUnits:
    """Some messages of one queue: columns of one length."""

    queue_id: int
    offsets: Ints  # queue offsets; NO_OFFSET where no unit of the queue leads to the record
    places: Ints  # physical offsets of the records
    sizes: Ints  # of the records
    due: Ints  # ms; 0 where only the record tells

    def select(self, which: Bools | slice) -> "DelayUnits":
        """Return some of them."""
        return DelayUnits(self.queue_id, self.offsets[which], self.places[which], self.sizes[which], self.due[which])

    def chunks(self) -> Iterator["DelayUnits"]:
        """Yield a few at a time: their records are read together."""
        for first in range(0, len(self.places), CHUNK_ROWS):
            yield self.select(slice(first, first + CHUNK_ROWS))


def units_of_topic(store: Store, topic: str, request: Request) -> Iterator[DelayUnits]:
    """Yield the message units of a topic, by queue and queue offset; `due` is the tags code.

    0 is the tags code of an ext unit that cannot be read.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    files = sorted((file for file in store.queue_files if file.topic == topic), key=_queue_id)
    for queue_id, group in groupby(files, _queue_id):
        of_queue = list(group)
        exts = [file for file in of_queue if file.kind == "ext_queue"]
        for file in of_queue:
            try:
                if file.kind == "queue":
                    yield from _units_in(file, queue_id, exts)
            except Unreadable as error:
                request.tell_unread(error)


def _queue_id(file: QueueFile) -> int:
    return file.queue_id


def _units_in(file: QueueFile, queue_id: int, exts: Sequence[QueueFile]) -> Iterator[DelayUnits]:
    for offsets, units in messages_in(file):
        places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        yield DelayUnits(queue_id, offsets, places, sizes, _tags_codes(units, exts))


def _tags_codes(units: Units, exts: Sequence[QueueFile]) -> Ints:
    tags: Ints = units["tags_code"].astype(np.int64)
    in_ext = tags <= EXT_ADDRESS_MAX
    if not in_ext.any():
        return tags
    found, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), np.bool_)
    read_ext_tags(exts, tags, found, known)
    return np.where(in_ext, np.where(known, found, 0), tags)

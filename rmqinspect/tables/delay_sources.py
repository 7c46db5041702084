"""Where delayed messages wait, and how far the broker has come with them.

    delayOffset.json                  -> next queue offset of each delay level
    timercheck, timer log, wheel      -> next slot to read, units that wait, next queue offset of the timer's topic
    rocksdbstore                      -> the same of the timer in RocksDB (5.4.0)
    the log's last record, timercheck -> the last time at which the broker did anything: "now" of an evidence

Source: ScheduleMessageService#load, TimerMessageStore#recover, TimerMessageRocksDBStore#start.
"""

from dataclasses import dataclass

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.records_at import records_at
from rmqinspect.commitlog.sample import Sample
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.config.json_files import integer, key_number, read_delay_offsets
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.entries import TimerCheckpoints, read_timer_checkpoints, timer_units_file
from rmqinspect.schemas.timer import DEFAULT_PRECISION, TimerUnit
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.table import Request
from rmqinspect.tables.timer_units import stored_slots
from rmqinspect.timer.log import TimerLog, read_rows, timer_log_files
from rmqinspect.timer.pending import PendingUnits, read_pending
from rmqinspect.timer.precision import find_precision
from rmqinspect.timer.reach import WheelReach
from rmqinspect.timer.timercheck import no_timercheck, read_timercheck
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
        _tell(request, error)
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
        _tell(request, error)
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


def _tell(request: Request, error: Unreadable) -> None:
    if request.on_unreadable is None:
        raise error
    request.on_unreadable(str(error))


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

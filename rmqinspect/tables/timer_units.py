"""The table `timer_units`: the timer log as stored.

Source: TimerLog, TimerWheel, TimerMessageStore#doEnqueue; RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.timer import UNIT_MAGICS, UNIT_SIZE
from rmqinspect.store.model import Store
from rmqinspect.tables.columns import millis, pick, repeat
from rmqinspect.tables.record_columns import CHUNK_ROWS, columns_at, property_values
from rmqinspect.tables.table import TIMESTAMP, Request, Source, Table, column
from rmqinspect.timer.log import TimerLog, TimerLogFile, due_times, timer_log_files
from rmqinspect.timer.precision import find_precision
from rmqinspect.timer.reach import WheelReach, current_wheel, units_of
from rmqinspect.timer.wheel import Slots, read_slots

SCHEMA = pa.schema(
    [
        column("file", pa.string(), "file of the timer log"),
        column("position", pa.int64(), "of the unit in its file"),
        column("timer_log_offset", pa.int64(), "of the unit: the file's name plus the position"),
        column("previous", pa.int64(), "timer log offset of the unit before it in its slot; -1: none"),
        column("magic", pa.string(), "normal; with roll: stored again when it fires; with delete: deletes another"),
        column("enqueue_timestamp", TIMESTAMP, "when the unit was written, cut to the precision of the wheel"),
        column("fire_timestamp", TIMESTAMP, "when its slot is due; with roll this is before the message is"),
        column("physical_offset", pa.int64(), "of the record, topic rmq_sys_wheel_timer"),
        column("size", pa.int32(), "of the record, bytes"),
        column("real_topic_hash", pa.int32(), "String.hashCode of the record's real topic"),
        column("in_wheel", pa.bool_(), "whether its slot of the stored wheel leads to it"),
        column("real_topic", pa.string(), "REAL_TOPIC of the record; null if it cannot be read"),
        column("msg_id", pa.string(), "UNIQ_KEY of the record; null if it cannot be read"),
    ]
)

_BRIEF = ("timer_log_offset", "magic", "fire_timestamp", "physical_offset", "size", "in_wheel", "real_topic", "msg_id")

# The words of a unit's magic, by its bits. Source: TimerMessageStore.MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE.
_BITS = ("normal", "roll", "delete", "8")
_MAGICS = tuple("|".join(word for bit, word in enumerate(_BITS) if magic >> bit & 1) or "0" for magic in UNIT_MAGICS)

_OF_RECORD = (("real_topic", pa.string()), ("msg_id", pa.string()))


def _rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    log = TimerLog(timer_log_files(store.files))
    if not log.files:
        return
    slots = stored_slots(store, request)
    reach = WheelReach(log, slots, find_precision(store.settings, log, [slots] if slots is not None else ()))
    for part in log.files:
        try:
            for rows, units in units_of(part):
                for first in range(0, len(rows), CHUNK_ROWS):
                    some = slice(first, first + CHUNK_ROWS)
                    yield _batch(store, part, rows[some], units[some], reach, request)
        except Unreadable as error:
            if request.on_unreadable is None:
                raise
            request.on_unreadable(str(error))


def stored_slots(store: Store, request: Request) -> Slots | None:
    """Return the slots of the wheel that a starting broker reads; None without one that can be read."""
    wheel = current_wheel(store.files)
    try:
        return None if wheel is None else read_slots(wheel)
    except Unreadable as error:
        if request.on_unreadable is None:
            raise
        request.on_unreadable(str(error))
        return None


def _batch(
    store: Store, part: TimerLogFile, rows: Ints, units: Units, reach: WheelReach, request: Request
) -> pa.RecordBatch:
    positions, due = rows * UNIT_SIZE, due_times(units)
    places, sizes = units["physical_offset"].astype(np.int64), units["record_size"].astype(np.int64)
    led: Bools = reach.leads_to(due // reach.precision, part.base + positions)
    wanted = request.columns is None or not request.columns.isdisjoint(name for name, _ in _OF_RECORD)
    # Without one asked for no record is read: none begins before the log.
    records = columns_at(store, places if wanted else np.full_like(places, -1), sizes, _texts, _OF_RECORD)
    columns = [
        repeat(part.file.name, len(rows)),
        pa.array(positions),
        pa.array(part.base + positions),
        pa.array(units["previous"].astype(np.int64)),
        pick(_MAGICS, units["magic"].astype(np.int32)),
        millis(units["enqueue_timestamp"].astype(np.int64))[0],
        millis(due)[0],
        pa.array(places),
        pa.array(sizes.astype(np.int32)),
        pa.array(units["real_topic_hash"].astype(np.int32)),
        pa.array(led),
        *(records.column(name).combine_chunks() for name, _ in _OF_RECORD),
    ]
    return pa.record_batch(columns, SCHEMA)


def _texts(records: Records) -> dict[str, pa.Array]:
    return {
        "real_topic": property_values(records, b"REAL_TOPIC"),
        "msg_id": property_values(records, b"UNIQ_KEY"),
    }


TIMER_UNITS = Table("timer_units", SCHEMA, _BRIEF, _rows, scans=(Source.TIMER,), looks_into=(Source.LOG,))

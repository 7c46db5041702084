"""The tables `queue_units` and `queues`.

Source: ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt; RocketMQ 4.0.0 to 5.5.0.

The tables `index_files` and `index_entries`.

The table `timer_units`: the timer log as stored.

Source: TimerLog, TimerWheel, TimerMessageStore#doEnqueue; RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.codec.arrays import Bools, Ints, Units, used_units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.consumequeue.bounds import QueueSummary, survey_queues
from rmqinspect.consumequeue.missing import missing_units
from rmqinspect.consumequeue.units import LAYOUTS, filler_units, read_ext_tags, read_units, unit_numbers
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, read_index_files
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.schemas.timer import UNIT_MAGICS, UNIT_SIZE
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.record_columns import CHUNK_ROWS, columns_at, property_values
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import (
    BATCH_ROWS,
    QUEUE_DATABASES,
    TIMESTAMP,
    Source,
    Table,
    batches_of,
    column,
    millis,
    pick,
    repeat,
)
from rmqinspect.timer.log import (
    Slots,
    TimerLog,
    TimerLogFile,
    WheelReach,
    current_wheel,
    due_times,
    find_precision,
    read_slots,
    timer_log_files,
    units_of,
)
from rmqinspect.times import END_MILLI, millis_to_micros

QUEUE_UNITS_SCHEMA = pa.schema(
    [
        column("topic", pa.string(), "topic, from the folder"),
        column("queue_id", pa.int32(), "queue, from the folder", filled=True),
        column("queue_offset", pa.int64(), "number of the unit; batch queue: of its first message", filled=True),
        column("message_count", pa.int32(), "messages the unit stands for: 1; batch queue: as stored", filled=True),
        column("physical_offset", pa.int64(), "where the record starts in the commit log", filled=True),
        column("size", pa.int32(), "bytes of the record", filled=True),
        column("tags_code", pa.int64(), "as stored: tags hash, deliver time, or ext address", filled=True),
        column("ext_tags_code", pa.int64(), "what the ext unit holds; null without a readable ext unit"),
        column("kind", pa.string(), "message, or pre_blank: filler before a queue's first message"),
        column("file", pa.string(), "file of the unit"),
    ]
)

QUEUES_SCHEMA = pa.schema(
    [
        column("topic", pa.string(), "topic, from the folder"),
        column("queue_id", pa.int32(), "queue, from the folder"),
        column("kind", pa.string(), "file, batch, or rocksdb"),
        column("min_offset", pa.int64(), "first offset that its broker serves; all records gone: 0 up to 4.9.8"),
        column("max_offset", pa.int64(), "behind the last unit that its broker accepts; in RocksDB as noted there"),
        column("units", pa.int64(), "units of messages, filler not counted"),
        column("bytes_on_disk", pa.int64(), "bytes that the queue's files take, holes not counted; null in RocksDB"),
        column("first_physical_offset", pa.int64(), "record of the first message unit; null if none"),
        column("last_physical_offset", pa.int64(), "record of the last message unit; null if none"),
        column("last_store_timestamp", TIMESTAMP, "store time in that record; null if it cannot be read"),
        column("records", pa.int64(), "records of the log entitled to a unit; null without a full scan"),
        column("shift", pa.int64(), "unit number minus QUEUEOFFSET where constant; null without a full scan"),
    ]
)


class _Run(Struct, frozen=True):
    """Consecutive used units of one file."""

    file: QueueFile
    units: Units
    queue_offset: Units
    message_count: Units
    ext_files: Sequence[QueueFile]


def units_in(files: Sequence[QueueFile], request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `queue_units` from some queue files, with those of the ext files among them.

    `files`: in the order of a store's, the ext files of a queue together.
    """
    runs: list[_Run] = []
    rows = 0
    for run in _runs(files, request):
        if rows + len(run.units) > BATCH_ROWS:
            yield _unit_batch(runs, request)
            runs, rows = [], 0
        runs.append(run)
        rows += len(run.units)
    if runs:
        yield _unit_batch(runs, request)


def _runs(files: Sequence[QueueFile], request: Request) -> Iterator[_Run]:
    ext_files = {
        key: list(group)
        for key, group in groupby((file for file in files if file.kind == "ext_queue"), lambda f: (f.topic, f.queue_id))
    }
    for file in files:
        if file.kind not in LAYOUTS:
            continue
        try:
            yield from _runs_in(file, ext_files.get((file.topic, file.queue_id), ()), request)
        except Unreadable as error:
            request.tell_unread(error)


def _runs_in(file: QueueFile, ext_files: Sequence[QueueFile], request: Request) -> Iterator[_Run]:
    with open_file(file) as reader:
        for row, units in read_units(reader, file.kind, request.progress):
            numbers, counts = unit_numbers(file, row, units)
            used = np.flatnonzero(used_units(units))
            for start in range(0, len(used), BATCH_ROWS):
                some = used[start : start + BATCH_ROWS]
                yield _Run(file, units[some], numbers[some], counts[some], ext_files)


def _unit_batch(runs: Sequence[_Run], request: Request) -> pa.RecordBatch:
    lengths = [len(run.units) for run in runs]
    which = np.repeat(np.arange(len(runs), dtype=np.int32), lengths)

    def gather(name: str, type_: Any) -> pa.Array:
        return pa.array(np.concatenate([run.units[name].astype(type_) for run in runs]))

    tags = np.concatenate([run.units["tags_code"].astype(np.int64) for run in runs])
    ext_tags, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), bool)
    if request.columns is None or "ext_tags_code" in request.columns:
        start = 0
        for run in runs:
            part = slice(start, start + len(run.units))
            read_ext_tags(run.ext_files, tags[part], ext_tags[part], known[part])
            start = part.stop
    kinds = pick(("message", "pre_blank"), np.concatenate([filler_units(run.units) for run in runs]).astype(np.int32))
    columns = [
        pick([run.file.topic for run in runs], which),
        pa.array(np.repeat(np.array([run.file.queue_id for run in runs], np.int32), lengths)),
        pa.array(np.concatenate([run.queue_offset for run in runs])),
        pa.array(np.concatenate([run.message_count for run in runs])),
        gather("physical_offset", np.int64),
        gather("size", np.int32),
        pa.array(tags),
        pa.array(ext_tags, mask=~known),
        kinds,
        pick([run.file.name for run in runs], which),
    ]
    return pa.record_batch(columns, QUEUE_UNITS_SCHEMA)


def _unit_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    request.tell_missing(missing_units(store))
    yield from units_in(store.queue_files, request)


def _queue_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    request.tell_missing(missing_units(store))

    def rows() -> Iterator[tuple[Any, ...]]:
        with RecordReader(store, request.on_unreadable) as times:
            searches = searches_minimum(store)
            for queue in survey_queues(store, searches, request.progress, request.on_unreadable):
                stored = None
                if queue.last_physical_offset is not None and queue.last_size is not None:
                    stored = times.timestamp_of(queue.last_physical_offset, queue.last_size)
                yield (
                    queue.topic,
                    queue.queue_id,
                    queue.kind,
                    queue.min_offset,
                    queue.max_offset,
                    queue.units,
                    _bytes_on_disk(queue, request),
                    queue.first_physical_offset,
                    queue.last_physical_offset,
                    None if stored is None else millis_to_micros(stored),
                    None,
                    None,
                )

    yield from batches_of(QUEUES_SCHEMA, rows())


def _bytes_on_disk(queue: QueueSummary, request: Request) -> int | None:
    try:
        return queue.bytes_on_disk()
    except Unreadable as error:  # vanished since its units were read
        request.tell_unread(error)
        return None


QUEUE_UNITS = Table(
    "queue_units",
    QUEUE_UNITS_SCHEMA,
    ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code", "kind"),
    _unit_rows,
    scans=(Source.QUEUES,),
    databases=QUEUE_DATABASES,
)
QUEUES = Table(
    "queues",
    QUEUES_SCHEMA,
    ("topic", "queue_id", "kind", "min_offset", "max_offset", "units", "last_store_timestamp"),
    _queue_rows,
    scans=(Source.QUEUES,),
    looks_into=(Source.LOG,),
    databases=QUEUE_DATABASES,
)


FILES_SCHEMA = pa.schema(
    [
        column("file", pa.string(), "name of the index file"),
        column("file_size", pa.int64(), "bytes"),
        column("begin_timestamp", TIMESTAMP, "store time of the first entry; null if never set"),
        column("end_timestamp", TIMESTAMP, "store time of the newest entry; null if never set"),
        column("begin_physical_offset", pa.int64(), "record of the first entry; null without a whole header"),
        column("end_physical_offset", pa.int64(), "record of the newest entry; null without a whole header"),
        column("used_slots", pa.int32(), "as the header says; brokers up to 4.7.0 count entries here"),
        column("slots", pa.int32(), "hash slots the file was made for; null if not to be known"),
        column("entries", pa.int32(), "entries in use, as the header says"),
        column("capacity", pa.int32(), "entries the file can hold; null if not to be known"),
    ]
)

ENTRIES_SCHEMA = pa.schema(
    [
        column("file", pa.string(), "name of the index file"),
        column("entry", pa.int32(), "number of the entry, from 1", filled=True),
        column("slot", pa.int32(), "slot that the hash asks for; null for a negative hash"),
        column("key_hash", pa.int32(), "hash of topic#key, as stored", filled=True),
        column("physical_offset", pa.int64(), "record that has the key", filled=True),
        column("time_diff", pa.int32(), "seconds after the file's begin_timestamp, as stored", filled=True),
        column("store_timestamp", TIMESTAMP, "begin_timestamp and time_diff: one second precise"),
        column("previous", pa.int32(), "next older entry of the slot; 0 ends the chain", filled=True),
    ]
)


def _file_row(index: IndexFile) -> tuple[Any, ...]:
    header, geometry = index.header, index.geometry
    return (
        index.file.name,
        index.file.size,
        millis_to_micros(header.begin_timestamp) if header and header.begin_timestamp else None,
        millis_to_micros(header.end_timestamp) if header and header.end_timestamp else None,
        header.begin_physical_offset if header else None,
        header.end_physical_offset if header else None,
        header.hash_slot_count if header else None,
        geometry.slots if geometry else None,
        index.entries,
        geometry.entries - 1 if geometry else None,
    )


def _index_files(store: Store, request: Request) -> list[IndexFile]:
    """Return the index files that can be read; report the others."""
    unread: list[tuple[str, str]] = []
    found = read_index_files(store, None if request.on_unreadable is None else unread)
    if request.on_unreadable is not None:
        for _, message in unread:
            request.on_unreadable(message)
    return found


def _entry_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the entries of every file with a known geometry, oldest first."""
    for index in _index_files(store, request):
        try:
            yield from read_entries(index, request)
        except Unreadable as error:
            request.tell_unread(error)


def read_entries(index: IndexFile, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the entries of one file, BATCH_ROWS at a time; nothing without a geometry, or beyond the end of the file.

    :raises Unreadable: the system reports an I/O error.
    """
    if index.geometry is None or index.header is None:
        return
    layout = dtype_of(IndexEntry)
    name, begin = index.file.name, index.header.begin_timestamp
    with open_file(index.file) as reader:
        for first in range(1, index.readable_entries + 1, BATCH_ROWS):
            count = min(BATCH_ROWS, index.readable_entries + 1 - first)
            raw = reader.read(index.geometry.entry_position(first), count * layout.itemsize)
            entries = np.frombuffer(raw, layout, len(raw) // layout.itemsize)
            if request.progress:
                request.progress(len(raw))
            hashes = entries["key_hash"].astype(np.int32)
            diffs = entries["time_diff"].astype(np.int64)
            # A damaged begin timestamp would overflow the sum.
            times = diffs * 1000 + begin if millis_to_micros(begin) is not None else np.full_like(diffs, END_MILLI)
            yield pa.record_batch(
                [
                    pa.repeat(pa.scalar(name), len(entries)),
                    pa.array(np.arange(first, first + len(entries), dtype=np.int32)),
                    pa.array((hashes % np.int32(index.geometry.slots)), mask=hashes < 0),
                    pa.array(hashes),
                    pa.array(entries["physical_offset"].astype(np.int64)),
                    pa.array(entries["time_diff"].astype(np.int32)),
                    millis(times)[0],
                    pa.array(entries["previous"].astype(np.int32)),
                ],
                ENTRIES_SCHEMA,
            )


INDEX_FILES = Table(
    "index_files",
    FILES_SCHEMA,
    tuple(FILES_SCHEMA.names),
    lambda store, request: batches_of(FILES_SCHEMA, map(_file_row, _index_files(store, request))),
    scans=(Source.INDEX,),
)
INDEX_ENTRIES = Table("index_entries", ENTRIES_SCHEMA, tuple(ENTRIES_SCHEMA.names), _entry_rows, scans=(Source.INDEX,))


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
            request.tell_unread(error)


def stored_slots(store: Store, request: Request) -> Slots | None:
    """Return the slots of the wheel that a starting broker reads; None without one that can be read."""
    wheel = current_wheel(store.files)
    try:
        return None if wheel is None else read_slots(wheel)
    except Unreadable as error:
        request.tell_unread(error)
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
        *records.values(),
    ]
    return pa.record_batch(columns, SCHEMA)


def _texts(records: Records) -> dict[str, pa.Array]:
    return {
        "real_topic": property_values(records, b"REAL_TOPIC"),
        "msg_id": property_values(records, b"UNIQ_KEY"),
    }


TIMER_UNITS = Table("timer_units", SCHEMA, _BRIEF, _rows, scans=(Source.TIMER,), looks_into=(Source.LOG,))

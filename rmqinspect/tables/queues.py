"""The tables `queue_units` and `queues`.

Source: ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from rmqinspect.codec.arrays import Units, used_units
from rmqinspect.commitlog.store_timestamps import StoreTimes
from rmqinspect.consumequeue.units import LAYOUTS, QueueSummary, read_ext_tags, read_units, survey_queues, unit_numbers
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.arrow import BATCH_ROWS, batches_of
from rmqinspect.tables.columns import pick
from rmqinspect.tables.table import QUEUE_DATABASES, TIMESTAMP, Request, Source, Table, column
from rmqinspect.times import millis_to_micros

QUEUE_UNITS_SCHEMA = pa.schema(
    [
        column("topic", pa.string(), "topic, from the folder"),
        column("queue_id", pa.int32(), "queue, from the folder"),
        column("queue_offset", pa.int64(), "number of the unit; batch queue: of its first message"),
        column("message_count", pa.int32(), "messages the unit stands for: 1; batch queue: as stored"),
        column("physical_offset", pa.int64(), "where the record starts in the commit log"),
        column("size", pa.int32(), "bytes of the record"),
        column("tags_code", pa.int64(), "as stored: tags hash, deliver time, or ext address"),
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
        column("min_offset", pa.int64(), "first message the log still holds, else max_offset"),
        column("max_offset", pa.int64(), "next queue offset after the last valid unit; in RocksDB as noted there"),
        column("units", pa.int64(), "units of messages, filler not counted"),
        column("bytes_on_disk", pa.int64(), "bytes that the queue's files take, holes not counted; null in RocksDB"),
        column("first_physical_offset", pa.int64(), "record of the first message unit; null if none"),
        column("last_physical_offset", pa.int64(), "record of the last message unit; null if none"),
        column("last_store_timestamp", TIMESTAMP, "store time in that record; null if it cannot be read"),
        column("records", pa.int64(), "records of the log entitled to a unit; null without a full scan"),
        column("shift", pa.int64(), "unit number minus QUEUEOFFSET where constant; null without a full scan"),
    ]
)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive used units of one file."""

    file: QueueFile
    units: Units
    queue_offset: Units
    message_count: Units
    ext_files: Sequence[QueueFile]


def _unit_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    return units_in(store.queue_files, request)


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
            if request.on_unreadable is None:
                raise
            request.on_unreadable(str(error))


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

    size = np.concatenate([run.units["size"] for run in runs])
    tags = np.concatenate([run.units["tags_code"].astype(np.int64) for run in runs])
    ext_tags, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), bool)
    if request.columns is None or "ext_tags_code" in request.columns:
        start = 0
        for run in runs:
            part = slice(start, start + len(run.units))
            read_ext_tags(run.ext_files, tags[part], ext_tags[part], known[part])
            start = part.stop
    kinds = pick(("message", "pre_blank"), (size == PRE_BLANK_SIZE).astype(np.int32))
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


def _queue_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    def rows() -> Iterator[tuple[Any, ...]]:
        with StoreTimes(store) as times:
            for queue in survey_queues(store, request.progress, request.on_unreadable):
                stored = None
                if queue.last_physical_offset is not None and queue.last_size is not None:
                    stored = times.at(queue.last_physical_offset, queue.last_size)
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
        if request.on_unreadable is None:
            raise
        request.on_unreadable(str(error))
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
    databases=QUEUE_DATABASES,
)

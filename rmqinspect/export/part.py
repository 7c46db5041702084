"""One part of an export: rows in, Parquet files out. Runs in any thread or process of an engine.

    splits of the log -> rows of `messages` -> selection -> PartWriter --+-- topic=a/broker-000….parquet
                              |                                          +-- topic=b/broker-000….parquet
                              `-> sums per queue (for `queues`)          `-- …

Invariants:
- A part knows nothing of its siblings: it needs its own description and the spec, opens files and target itself, and
  returns a small picklable result.
- The same part may run twice, even at the same time (Spark repeats and speculates). Temporary names carry a token of
  the attempt, so attempts never share a file; on object storage both write the same bytes under the final name.
- A file is created with its first byte, so a partition without rows has no file. Unless `finish` is reached, nothing
  stays.
- Rows keep the order of the log within each file. Memory is bounded: one batch, and at most `MOST_WAITING` bytes of
  rows that wait for their row group, over all partitions.

--schema kafka: messages with the columns of Spark's Kafka source, for pipelines built on it.
"""

import dataclasses
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.commitlog.scan import walk_to
from rmqinspect.errors import Unreadable
from rmqinspect.export.queue_checksums import QueueSums
from rmqinspect.export.request import FINDINGS, MESSAGES, ExportRequest, LogPart, partition_folder
from rmqinspect.output import View
from rmqinspect.output.columnar import ParquetFile
from rmqinspect.system.output_file import NewFile
from rmqinspect.system.output_folder import open_folder
from rmqinspect.system.workers import keep_freed_memory, open_many_files
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import MessageRows
from rmqinspect.tables.read_log import LogSplitRead, Reading, read_split
from rmqinspect.tables.record_columns import as_text_bodies, with_text_bodies
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import TableSplit, split_rows
from rmqinspect.tables.table import TIMESTAMP, column, with_store
from rmqinspect.tables.usage import UsageFold
from rmqinspect.verify.finding_rows import SCHEMA as FINDINGS_SCHEMA

_LOG_APPEND_TIME = 1  # TimestampType of Kafka: the broker's clock

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

KAFKA = pa.schema(
    [
        column("key", pa.binary(), "first of KEYS, null if none"),
        column("value", pa.binary(), "body, as a consumer receives it (decompressed)"),
        column("topic", pa.string(), "stored topic"),
        column("partition", pa.int32(), "queue id"),
        column("offset", pa.int64(), "queue offset"),
        column("timestamp", TIMESTAMP, "broker's clock"),
        column("timestampType", pa.int32(), "1: the broker's clock"),
        column("headers", pa.list_(_HEADER), "properties: names, and values as bytes"),
    ]
)


def as_kafka(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of the table `messages` to KAFKA."""
    keys = batch.column("keys")
    lengths = pc.fill_null(pc.list_value_length(keys), 0)
    first = pc.if_else(pc.greater(lengths, 0), keys.offsets[:-1].cast(pa.int64()), pa.scalar(None, pa.int64()))
    columns = [
        keys.values.take(first).cast(pa.binary()),
        batch.column("body"),
        batch.column("topic"),
        batch.column("queue_id"),
        batch.column("queue_offset"),
        batch.column("store_timestamp"),
        pa.array(np.full(batch.num_rows, _LOG_APPEND_TIME, np.int32)),
        _headers(batch.column("properties")),
    ]
    return pa.record_batch(columns, KAFKA)


def _headers(properties: pa.MapArray) -> pa.Array:
    values = [properties.keys, properties.items.cast(pa.binary())]
    entries = pa.StructArray.from_arrays(values, fields=list(_HEADER))
    mask = properties.is_null() if properties.null_count else None
    return pa.ListArray.from_arrays(properties.offsets, entries, mask=mask)


# Bytes of rows waiting for their row group, over all partitions; above that the fullest groups are written.
MOST_WAITING = 128 << 20

# Columns for the sums per queue, where no messages are written.
_SUMMED = frozenset({"topic", "queue_id", "queue_offset", "physical_offset", "transaction"})


class ExportSpec(Struct, frozen=True):
    """Everything the parts of one export share. Small and picklable: texts and numbers only."""

    target: str  # folder or URI
    run: str  # token of this export, part of its temporary file names
    request: ExportRequest
    notes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by store: metadata for its files
    selections: Mapping[str, Selection] = field(default_factory=dict)  # by store, where the times differ: `last-5m`
    records: bool = False  # whether parts leave a record for a later run (export/resume)
    resumes: bool = False  # whether records of an earlier run count

    def selection(self, store: str) -> Selection:
        """Return the filters for a store."""
        return self.selections.get(store, self.request.selection)


class PartFile(NamedTuple):
    """A file written by a part. Names are relative to the target, separated by "/"."""

    name: str
    written_as: str  # temporary name; on object storage the final one, nothing is renamed there
    rows: int
    size: int  # bytes


class LogPartRead(Struct):
    """The result of a part of the log."""

    part: LogPart
    files: list[PartFile]
    reads: list[LogSplitRead]  # their work is the `UsageFold`, if usage is wanted
    rows: int = 0  # that passed the filters
    statuses: Counter[str] = field(default_factory=Counter)  # of those rows
    first_bad: dict[str, int] = field(default_factory=dict)  # status → physical offset of its first row
    topics: set[str] = field(default_factory=set)  # seen by a topic filter
    sums: QueueSums = field(default_factory=QueueSums)


class SidePart(Struct, frozen=True):
    """Some rows of a table other than `messages`."""

    store: str
    table: str
    name: str  # of the file
    split: TableSplit


Part = LogPart | SidePart


class SidePartRead(Struct):
    """The result of a side part."""

    part: SidePart
    files: list[PartFile]
    unread: list[str]
    topics: set[str] = field(default_factory=set)  # seen by a topic filter


PartRead = LogPartRead | SidePartRead


def schema_of(table: str, request: ExportRequest) -> pa.Schema:
    """Return the schema of the files of a table."""
    if table == FINDINGS:
        return with_store(FINDINGS_SCHEMA)
    if table == MESSAGES and request.schema == "kafka":
        return with_store(KAFKA)
    whole = with_store(TABLES[table].schema)
    return with_text_bodies(whole) if request.text_bodies else whole


def write_part(part: Part, spec: ExportSpec) -> PartRead:
    """Read a part and write its files.

    :raises Refused: a file cannot be written.
    """
    keep_freed_memory()
    if spec.request.partition_by:
        open_many_files()
    return write_log_part(part, spec) if isinstance(part, LogPart) else write_side_part(part, spec)


def _selection(part: Part, spec: ExportSpec) -> Selection:
    """Return the filters for a part, which note by themselves what topics they see: other threads use theirs."""
    return dataclasses.replace(spec.selection(part.store), topics_seen=set())


def write_log_part(part: LogPart, spec: ExportSpec) -> LogPartRead:
    """Read the records of a part; write those that pass the filters, if it writes messages."""
    request, selection = spec.request, _selection(part, spec)
    result = LogPartRead(part, [], [])
    columns = None if part.writes else _SUMMED
    sums = result.sums if "queues" in request.tables else None
    table_request = Request(
        records_of=(selection,) if sums is None else (),  # the queues of all records are summed
        named=selection.named,
        raw_body=request.raw_body,
        max_body=request.max_body,
        columns=columns,
        on_unreadable=lambda _: None,  # each part's result has it
    )
    with PartWriter(spec, MESSAGES, part.store, part.name) as writer:
        take = partial(_take_rows, result, selection, sums, writer if part.writes else None)
        for split in part.splits:
            if part.cold and split.start and split.entry is None:
                with suppress(Unreadable):  # reported by the read below
                    split = replace(split, entry=walk_to(split.segment, 0, split.start))
            wanted = part.writes or sums is not None
            fold = UsageFold() if "usage" in request.tables else None
            reading = Reading(split, read_split(split, partial(MessageRows, table_request, wanted, fold)))
            for batch in reading.rows(table_request):
                take(batch)
            result.reads.append(replace(reading.end(), work=fold))
        complete = not any(read.unread for read in result.reads)
        result.files = writer.finish({"offsets": f"{part.start}..{part.end}"}, complete=complete)
    result.topics = set(selection.topics_seen)
    return result


def _take_rows(
    result: LogPartRead,
    selection: Selection,
    sums: QueueSums | None,
    writer: "PartWriter | None",
    batch: pa.RecordBatch,
) -> None:
    if sums is not None:
        sums.add(batch)
    if writer is None:
        return
    rows = selection.select_rows(batch)
    if not rows.num_rows:
        return
    result.rows += rows.num_rows
    status = rows.column("status")
    for counted in pc.value_counts(status).to_pylist():
        result.statuses[counted["values"]] += counted["counts"]
        if counted["values"] != "ok" and counted["values"] not in result.first_bad:
            at = pc.index(status, counted["values"]).as_py()
            result.first_bad[counted["values"]] = rows.column("physical_offset")[at].as_py()
    writer.write(rows)


def write_side_part(part: SidePart, spec: ExportSpec) -> SidePartRead:
    """Read and write the rows of a part of any other table."""
    unread: list[str] = []
    table_request = Request(
        on_missing=lambda _, __, message: unread.append(message), on_unreadable=unread.append, start=spec.request.start
    )
    selection = _selection(part, spec)
    with PartWriter(spec, part.table, part.store, part.name) as writer:
        for batch in split_rows(part.split, table_request):
            writer.write(selection.select_rows(batch))
        return SidePartRead(part, writer.finish({}, complete=not unread), unread, set(selection.topics_seen))


def write_rows(
    spec: ExportSpec, table: str, store: str, name: str, batches: Iterator[pa.RecordBatch]
) -> list[PartFile]:
    """Write rows made by the caller as one file, also when there are none."""
    selection = spec.selection(store)
    with PartWriter(spec, table, store, name) as writer:
        for batch in batches:
            writer.write(selection.select_rows(batch))
        return writer.finish({}, complete=True, even_empty=True)


class PartWriter:
    """Writes the rows of one part to one file, or to one file per partition."""

    def __init__(self, spec: ExportSpec, table: str, store: str, name: str) -> None:
        self._spec, self._table, self._store, self._name = spec, table, store, name
        self._folder = open_folder(spec.target)
        self._attempt = secrets.token_hex(4)  # the same part may be written twice at the same time
        self._open: dict[str, _OpenFile] = {}  # by folder of the partition
        self._schema = schema_of(table, spec.request)
        self._partition_by = spec.request.partition_by if table == MESSAGES else ()

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for file in self._open.values():
                file.abandon()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows in the schema of the table."""
        for folder, rows in _partitions(batch, self._partition_by, self._store):
            self._file(folder).write(self._shaped(rows))
        if len(self._open) > 1:
            self._make_room()

    def finish(self, notes: Mapping[str, str], *, complete: bool, even_empty: bool = False) -> list[PartFile]:
        """Finish all files, with `notes` in their metadata, and return them."""
        if even_empty and not self._open:
            self._file("")
        metadata = {**self._spec.notes.get(self._store, {}), "store": self._store, **notes}
        return [file.finish(metadata, complete=complete) for _, file in sorted(self._open.items())]

    def _make_room(self) -> None:
        """Write the fullest row groups until the rest fits into the bound."""
        waiting = sum(file.waiting for file in self._open.values())
        if waiting > MOST_WAITING:
            for file in sorted(self._open.values(), key=lambda file: file.waiting, reverse=True):
                waiting -= file.waiting
                file.end_group()
                if waiting <= MOST_WAITING:
                    break

    def _shaped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        request = self._spec.request
        if request.redaction is not None:
            rows = request.redaction.mask(rows)
        if self._table == MESSAGES and request.schema == "kafka":
            rows = as_kafka(rows)
        if request.text_bodies:
            rows = as_text_bodies(rows)
        store = pa.repeat(pa.scalar(self._store), rows.num_rows)
        return pa.RecordBatch.from_arrays([store, *rows.columns], schema=self._schema)

    def _file(self, folder: str) -> "_OpenFile":
        if folder not in self._open:
            parent = "/".join(filter(None, (self._table, folder)))
            temporary = f".{self._name}.{self._spec.run}.{self._attempt}.part"
            redacted = self._spec.request.redaction.words if self._spec.request.redaction else ()
            self._open[folder] = _OpenFile(
                self._folder, f"{parent}/{self._name}", f"{parent}/{temporary}", self._schema, View(redacted=redacted)
            )
        return self._open[folder]


class _LazyFile(NewFile):
    """A file created with its first byte. Thousands of partitions are written one after another, not all at once."""

    def __init__(self, name: str, create: Callable[[str], NewFile]) -> None:
        super().__init__(name)
        self._create = create
        self._file: NewFile | None = None

    def _write(self, view: memoryview) -> None:
        if self._file is None:
            self._file = self._create(self.name)
        self._file.write(view)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()


class _OpenFile:
    """A Parquet file under construction."""

    def __init__(self, folder: Any, name: str, temporary: str, schema: pa.Schema, view: View) -> None:
        self._name = name
        self._written_as = name if folder.is_remote else temporary
        self._out = _LazyFile(self._written_as, folder.create)
        self._file = ParquetFile(schema, self._out, view)
        self._rows = 0

    @property
    def waiting(self) -> int:
        """Bytes of rows waiting for their row group."""
        return self._file.waiting

    def write(self, rows: pa.RecordBatch) -> None:
        self._file.write(rows)
        self._rows += rows.num_rows

    def end_group(self) -> None:
        self._file.end_group()

    def finish(self, notes: Mapping[str, str], *, complete: bool) -> PartFile:
        self._file.complete = complete
        self._file.notes.update(notes)
        self._file.finish()
        size = self._out.tell()
        self._out.close()
        return PartFile(self._name, self._written_as, self._rows, size)

    def abandon(self) -> None:
        self._out.abandon()


def _partitions(batch: pa.RecordBatch, columns: Sequence[str], store: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (folder, rows) per combination of values, by folder; rows keep their order."""
    if not columns:
        yield "", batch
        return
    keys = [_partition_folders(batch, column, store) for column in columns]
    folders = pc.binary_join_element_wise(*keys, "/").dictionary_encode()
    names = folders.dictionary.to_pylist()
    numbers = folders.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    rows = batch.take(pa.array(order))
    starts = np.searchsorted(numbers[order], np.arange(len(names) + 1))
    for number in sorted(range(len(names)), key=names.__getitem__):
        yield names[number], rows.slice(starts[number], starts[number + 1] - starts[number])


def _partition_folders(batch: pa.RecordBatch, column: str, store: str) -> pa.Array:
    """Return the folder of each row for one partition column."""
    if column == "store":
        return pa.repeat(pa.scalar(partition_folder(column, store)), batch.num_rows)
    values = batch.column("store_timestamp").cast(pa.date32()) if column == "day" else batch.column(column)
    coded = values.dictionary_encode(null_encoding="encode")
    folders = [partition_folder(column, value) for value in coded.dictionary.to_pylist()]
    return pa.array(folders, pa.string()).take(coded.indices)

"""Record batches as Parquet, and as an Arrow IPC file or stream.

A full row group is encoded in a thread while the next one fills: one thread and one group at a time per process, for
all its open files, so memory is bounded by two groups. Parquet takes four times the bytes of a large value: one that
exceeds a group by itself is encoded while nothing else is done.
"""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from threading import BoundedSemaphore

import pyarrow as pa
import pyarrow.parquet as pq

from rmqinspect.output.writer import SCHEMA_VERSION, Out, View, Writer, split_batch
from rmqinspect.version import tool_name

GROUP_ROWS = 122_880
GROUP_SIZE = 48 << 20  # bytes in memory, before encoding; keeps two writers below 600 MB

# Columns with mostly unique values: Parquet would fill a dictionary, give it up, and write a larger file. The same
# holds for bodies and values of properties.
_UNIQUE = frozenset({"physical_offset", "queue_offset", "offset", "msg_id", "offset_msg_id", "keys", "key"})

# Text columns with min/max statistics, by which readers skip row groups. Numbers and times always have them.
_SKIPPED_BY = frozenset({"store", "topic", "status"})


def _with_version(schema: pa.Schema, view: View) -> pa.Schema:
    notes = {**(schema.metadata or {}), "schema_version": str(SCHEMA_VERSION), "tool": tool_name()}
    if view.redacted:
        notes["redacted"] = json.dumps(view.redacted)
    return schema.with_metadata(notes)


class ArrowBatches(Writer):
    """The Arrow IPC file format in a file, which most readers expect there; the stream format in a pipe.

    A stream has no footer, and that of a file no room for `complete`: only the exit status says it.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self._schema = _with_version(schema, view)
        begin = pa.ipc.new_file if out.is_file else pa.ipc.new_stream
        self._batches = begin(pa.PythonFile(out, mode="w"), self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch, in slices of at most one row group's size."""
        for piece in split_batch(batch, GROUP_ROWS, GROUP_SIZE):
            self._batches.write_batch(piece.replace_schema_metadata(self._schema.metadata))

    def finish(self) -> None:
        """Write the end-of-stream marker, and in a file the footer."""
        self._batches.close()


def _leaves(path: str, type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the Parquet paths and types of the leaf columns of one column."""
    if pa.types.is_map(type_):
        entry = f"{path}.key_value"
        return _leaves(f"{entry}.key", type_.key_type) + _leaves(f"{entry}.value", type_.item_type)
    if pa.types.is_list(type_):
        return _leaves(f"{path}.list.element", type_.value_type)
    if pa.types.is_struct(type_):
        return [leaf for field in type_ for leaf in _leaves(f"{path}.{field.name}", field.type)]
    return [(path, type_)]


def _repeats(path: str, type_: pa.DataType) -> bool:
    """Whether a leaf column gets a dictionary."""
    return path.partition(".")[0] not in _UNIQUE and not path.endswith(".value") and not pa.types.is_binary(type_)


def _is_skipped_by(path: str, type_: pa.DataType) -> bool:
    """Whether a leaf column gets min/max statistics."""
    return path in _SKIPPED_BY or not ("." in path or pa.types.is_string(type_) or pa.types.is_binary(type_))


_encoder = ThreadPoolExecutor(1, thread_name_prefix="parquet")  # starts with the first full row group
_one_group = BoundedSemaphore()


def _in_thread(encode: Callable[[], None]) -> Future[None]:
    """Run `encode` in the encoder thread; waits until the previous group is done."""
    _one_group.acquire()
    try:
        encoding = _encoder.submit(encode)
    except BaseException:
        _one_group.release()
        raise
    encoding.add_done_callback(lambda _: _one_group.release())
    return encoding


class ParquetFile(Writer):
    """A Parquet file: zstd level 1, row groups of at most 122,880 rows or 48 MiB.

    Dictionaries and statistics are limited to columns where they help; on all columns they would cost up to a quarter
    of the time to write.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self._encoding: Future[None] | None = None  # the previous row group
        self.notes: dict[str, str] = {}  # metadata added at the end of the file
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._size = 0

    @cached_property
    def _file(self) -> pq.ParquetWriter:
        """The file, opened with its first row group."""
        leaves = [leaf for field in self.schema for leaf in _leaves(field.name, field.type)]
        return pq.ParquetWriter(
            pa.PythonFile(self.out, mode="w"),
            _with_version(self.schema, self.view),
            compression="zstd",
            compression_level=1,
            use_dictionary=[path for path, type_ in leaves if _repeats(path, type_)],
            write_statistics=[path for path, type_ in leaves if _is_skipped_by(path, type_)],
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer the rows until they fill a row group."""
        while batch.num_rows:
            # The first slice fills the open row group, the others are whole groups of their own.
            fitting = batch.slice(0, GROUP_ROWS - self._rows)
            batch = batch.slice(fitting.num_rows)
            for piece in split_batch(fitting, GROUP_ROWS, GROUP_SIZE):
                size = piece.nbytes  # sums over all columns, so read it once
                if self._size + size > GROUP_SIZE:
                    self.end_group()
                self._waiting.append(piece)
                self._rows += piece.num_rows
                self._size += size
                if self._size > GROUP_SIZE:
                    self.end_group()
                    self._wait()
            if self._rows >= GROUP_ROWS:
                self.end_group()

    @property
    def waiting(self) -> int:
        """Bytes of buffered rows."""
        return self._size

    def end_group(self) -> None:
        """Start writing the buffered rows as a row group; the next call raises its errors."""
        rows = self._take_waiting()
        self._wait()
        self._encoding = _in_thread(partial(self._encode, rows))

    def give_up(self) -> None:
        """Wait for the encoder before the file is discarded; ignore its errors."""
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            encoding.exception()  # waits, and raises nothing

    def _take_waiting(self) -> list[pa.RecordBatch]:
        rows = self._waiting
        self._waiting, self._rows, self._size = [], 0, 0
        return rows

    def _wait(self) -> None:
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            encoding.result()

    def _encode(self, rows: list[pa.RecordBatch]) -> None:
        if rows:
            table = pa.Table.from_batches(rows, self.schema)
            self._file.write_table(table.replace_schema_metadata(self._file.schema.metadata), GROUP_ROWS)

    def finish(self) -> None:
        """Write the last row group and the footer, with `complete` in its metadata."""
        self._wait()
        self._encode(self._take_waiting())
        self._file.add_key_value_metadata({"complete": "true" if self.complete else "false", **self.notes})
        self._file.close()

"""Record batches as Parquet, and as an Arrow IPC stream."""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from threading import BoundedSemaphore

import pyarrow as pa
import pyarrow.parquet as pq

from rmqinspect.output.writer import SCHEMA_VERSION, Out, View, Writer, split_batch
from rmqinspect.version import tool_name

GROUP_ROWS = 122_880
GROUP_SIZE = 48 << 20  # bytes in memory, before encoding: two writers together stay below 600 MB

# Columns whose values hardly repeat: a dictionary would be filled, given up, and make the file larger. Bodies
# and the values of properties are such columns, too.
_UNIQUE = frozenset({"physical_offset", "queue_offset", "offset", "msg_id", "offset_msg_id", "keys", "key"})

# Texts whose least and greatest of a row group let readers skip it. Numbers and times all have them.
_SKIPPED_BY = frozenset({"store", "topic", "status"})


def _with_version(schema: pa.Schema, view: View) -> pa.Schema:
    notes = {**(schema.metadata or {}), "schema_version": str(SCHEMA_VERSION), "tool": tool_name()}
    if view.redacted:
        notes["redacted"] = json.dumps(view.redacted)
    return schema.with_metadata(notes)


class ArrowStream(Writer):
    """An Arrow IPC stream; a stream has no end to write `complete` into, the exit status has it."""

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self._schema = _with_version(schema, view)
        self._stream = pa.ipc.new_stream(pa.PythonFile(out, mode="w"), self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch, in slices of at most one row group's size."""
        for piece in split_batch(batch, GROUP_ROWS, GROUP_SIZE):
            self._stream.write_batch(piece.replace_schema_metadata(self._schema.metadata))

    def finish(self) -> None:
        """Write the end mark."""
        self._stream.close()


def _leaves(path: str, type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the Parquet paths and types of the plain columns that make up one column."""
    if pa.types.is_map(type_):
        entry = f"{path}.key_value"
        return _leaves(f"{entry}.key", type_.key_type) + _leaves(f"{entry}.value", type_.item_type)
    if pa.types.is_list(type_):
        return _leaves(f"{path}.list.element", type_.value_type)
    if pa.types.is_struct(type_):
        return [leaf for field in type_ for leaf in _leaves(f"{path}.{field.name}", field.type)]
    return [(path, type_)]


def _repeats(path: str, type_: pa.DataType) -> bool:
    """Whether a plain column is worth a dictionary."""
    return path.partition(".")[0] not in _UNIQUE and not path.endswith(".value") and not pa.types.is_binary(type_)


def _is_skipped_by(path: str, type_: pa.DataType) -> bool:
    """Whether a plain column is worth its least and greatest value."""
    return path in _SKIPPED_BY or not ("." in path or pa.types.is_string(type_) or pa.types.is_binary(type_))


_encoder = ThreadPoolExecutor(1, thread_name_prefix="parquet")  # begins with the first row group that is full
_one_group = BoundedSemaphore()


def _in_thread(encode: Callable[[], None]) -> Future[None]:
    """Call `encode` in the thread, as soon as what is encoded there is done."""
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

    Dictionaries and statistics are made where they are of use: elsewhere they cost up to a quarter of the writing.
    A full row group is encoded in a thread while the rows of the next one are made, one group at a time for all
    files of a process.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self._encoding: Future[None] | None = None  # the row group before
        self.notes: dict[str, str] = {}  # more metadata, known when the file ends
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._raw = 0

    @cached_property
    def _file(self) -> pq.ParquetWriter:
        """The file itself; nothing is written before the first row group is full."""
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
        """Keep the rows until they fill a row group."""
        while batch.num_rows:
            # The first slice fills the open row group, the others are whole groups of their own.
            fitting = batch.slice(0, GROUP_ROWS - self._rows)
            batch = batch.slice(fitting.num_rows)
            for piece in split_batch(fitting, GROUP_ROWS, GROUP_SIZE):
                raw = piece.nbytes  # adds up over all columns: not for nothing
                if self._raw + raw > GROUP_SIZE:
                    self.end_group()
                self._waiting.append(piece)
                self._rows += piece.num_rows
                self._raw += raw
            if self._rows >= GROUP_ROWS:
                self.end_group()

    @property
    def waiting(self) -> int:
        """Bytes of rows that wait for their row group."""
        return self._raw

    def end_group(self) -> None:
        """Begin to write the rows that wait as a row group; what goes wrong is raised by the next call."""
        rows = self._take_waiting()
        self._wait()
        self._encoding = _in_thread(partial(self._encode, rows))

    def give_up(self) -> None:
        """Wait until nothing is written any more, for whoever takes the file away."""
        with suppress(Exception):
            self._wait()

    def _take_waiting(self) -> list[pa.RecordBatch]:
        rows = self._waiting
        self._waiting, self._rows, self._raw = [], 0, 0
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
        """Write the last row group and the footer, which says whether the file is complete."""
        self._wait()
        self._encode(self._take_waiting())
        self._file.add_key_value_metadata({"complete": "true" if self.complete else "false", **self.notes})
        self._file.close()

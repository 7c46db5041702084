"""Record batches as Parquet, and as an Arrow IPC file or stream.

A full row group is encoded where it was filled: what writes several files has a thread for each.
"""

import json
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from rmqinspect.output import spark_schema
from rmqinspect.output.writer import SCHEMA_VERSION, Out, View, Writer, split_batch
from rmqinspect.version import tool_name

GROUP_ROWS = 122_880
GROUP_SIZE = 48 << 20  # bytes in memory, before encoding; keeps two writers below 600 MB

_BUFFER = 1 << 20  # bytes of small writes of Arrow that become one

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
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(_LargeWrites(out), mode="w"), _BUFFER)
        self._batches = begin(self._buffer, self._schema)
        self._buffer.flush()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch, in slices of at most one row group's size."""
        for piece in split_batch(batch, GROUP_ROWS, GROUP_SIZE):
            self._batches.write_batch(piece.replace_schema_metadata(self._schema.metadata))
        self._buffer.flush()

    def finish(self) -> None:
        """Write the end-of-stream marker, and in a file the footer."""
        self._batches.close()
        self._buffer.flush()


class _LargeWrites:
    """The stream behind Arrow's buffer: a batch is a hundred pieces, each with padding, but few writes.

    Arrow writes what is left in its buffer when it is deleted, also after an error, and closes the stream.
    """

    closed = False

    def __init__(self, out: Out) -> None:
        self._out = out
        self._failed = False

    def write(self, content: bytes | memoryview) -> int:
        if self._failed:
            return len(content)
        try:
            return self._out.write(content)
        except BaseException:
            self._failed = True
            raise

    def tell(self) -> int:
        return self._out.tell()

    def flush(self) -> None:
        self._out.flush()

    def close(self) -> None:
        """Do nothing: whoever opened the stream closes it."""


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


class ParquetFile(Writer):
    """A Parquet file: zstd level 1, row groups of at most 122,880 rows or 48 MiB.

    Dictionaries and statistics are limited to columns where they help; on all columns they would cost up to a quarter
    of the time to write.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self.notes: dict[str, str] = {}  # metadata added at the end of the file
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._size = 0

    @cached_property
    def _file(self) -> pq.ParquetWriter:
        """The file, opened with its first row group."""
        leaves = [leaf for field in self.schema for leaf in _leaves(field.name, field.type)]
        schema = _with_version(self.schema, self.view)
        return pq.ParquetWriter(
            pa.PythonFile(self.out, mode="w"),
            schema.with_metadata({**schema.metadata, spark_schema.KEY: spark_schema.spark_schema(self.schema)}),
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
            if self._rows >= GROUP_ROWS:
                self.end_group()

    @property
    def waiting(self) -> int:
        """Bytes of buffered rows."""
        return self._size

    def end_group(self) -> None:
        """Write the buffered rows as a row group."""
        rows, self._waiting, self._rows, self._size = self._waiting, [], 0, 0
        if rows:
            table = pa.Table.from_batches(rows, self.schema)
            rows.clear()
            self._file.write_table(table.replace_schema_metadata(self._file.schema.metadata), GROUP_ROWS)

    def finish(self) -> None:
        """Write the last row group and the footer, with `complete` in its metadata."""
        self.end_group()
        self._file.add_key_value_metadata({"complete": "true" if self.complete else "false", **self.notes})
        self._file.close()

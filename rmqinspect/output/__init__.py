"""Record batches as a text table, JSON lines, a JSON document, CSV, Parquet, or Arrow.

Each format is one Writer, and independent of the table it writes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

import pyarrow as pa

from rmqinspect.errors import Refused, RmqinspectError
from rmqinspect.output.writer import PREVIEW_SIZE, SCHEMA_VERSION, View, Writer, cut_bodies
from rmqinspect.store.outside import refuse_inside
from rmqinspect.system.output_file import METRICS_HEAD, Destination, local_file, open_output

__all__ = [
    "FORMATS",
    "PREVIEW_SIZE",
    "SCHEMA_VERSION",
    "View",
    "Writer",
    "cut_bodies",
    "open_destination",
    "open_writer",
    "writer_of",
]

# Format -> module and class: what a format needs is imported when it is asked for, pyarrow.parquet takes long.
FORMATS = {
    "table": ("screen", "ScreenTable"),
    "jsonl": ("rows", "JsonLines"),
    "json": ("rows", "JsonDocument"),
    "csv": ("rows", "CsvRows"),
    "parquet": ("columnar", "ParquetFile"),
    "arrow": ("columnar", "ArrowBatches"),
    "openmetrics": ("openmetrics", "OpenMetricsRows"),
}


def writer_of(format_: str) -> type[Writer]:
    """Return the class that writes a format."""
    module, name = FORMATS[format_]
    writer: type[Writer] = getattr(import_module(f"rmqinspect.output.{module}"), name)
    return writer


@contextmanager
def open_destination(path: str | None, evidence: Sequence[str] = (), *, replaces: bytes = b"") -> Iterator[Destination]:
    """Yield the stream to write to: stdout for None and `-`, else a new file, which appears when the block ends.

    A file that begins with `replaces` is replaced then.

    :raises Refused: `path` exists, lies inside the evidence, or cannot be written.
    """
    if path is not None and path != "-":
        refuse_inside(local_file(path), evidence)
    with open_output(path, replaces=replaces) as out:
        yield out


@contextmanager
def open_writer(
    format_: str,
    schema: pa.Schema,
    path: str | None = None,
    *,
    view: View | None = None,
    evidence: Sequence[str] = (),
) -> Iterator[Writer]:
    """Yield a writer of batches with `schema` to the file `path`, or to stdout.

    The file appears under its name when the block ends without an error. On stdout, an interrupted JSON document or
    Parquet file still gets a proper end, with `complete` false. `evidence` are the paths of the stores that are read;
    no output may lie inside them.

    :raises Refused: the output exists, lies inside the evidence, or cannot be written.
    """
    with open_destination(path, evidence, replaces=METRICS_HEAD if format_ == "openmetrics" else b"") as out:
        writer = writer_of(format_)(schema, out, view or View())
        try:
            yield writer
            writer.finish()
        except BaseException as error:
            if path in (None, "-") and _stopped_reading(error):
                writer.complete = False
                writer.finish()
            # Discard later writes: the destructor of a half-written Parquet file appends a footer.
            out.abandon()
            raise


def _stopped_reading(error: BaseException) -> bool:
    """Whether the error is about reading, so the output itself is intact."""
    return isinstance(error, (KeyboardInterrupt, RmqinspectError)) and not isinstance(error, Refused)

"""What all formats have in common: how rows are to be seen, and how a writer is fed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.text import cut_utf8

SCHEMA_VERSION = 1
"""Version of the tables: a minor one would add columns at the end, a major one renames."""

PREVIEW_SIZE = 60
"""Bytes of a body that `--body preview` shows: they fit into a line of a terminal."""


@dataclass(frozen=True)
class View:
    """How rows are to be shown."""

    zone: tzinfo = UTC
    colour: bool = False
    width: int | None = None  # of the terminal in cells; None: no terminal, nothing is cut
    preview: int | None = None  # bytes of a binary value in the table; None: all
    redacted: tuple[str, ...] = ()  # what was taken out, for those who read the document


class Out(Protocol):
    """A stream of bytes that knows its position, because Parquet asks: a pipe, a file here or on object storage."""

    closed: bool

    def write(self, raw: bytes | memoryview) -> int:
        """Write all of `octets`."""

    def tell(self) -> int:
        """Return how many bytes were written."""

    def flush(self) -> None:
        """Hand on what is written, where anybody waits for it."""


class Writer(ABC):
    """Writes batches of one schema; `finish` is called once, after the last."""

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        self.schema = schema
        self.out = out
        self.view = view
        self.complete = True  # False: something asked for could not be read
        self.more = False  # True: a limit cut rows off

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of one batch; an empty one is fine."""

    @abstractmethod
    def finish(self) -> None:
        """Write what ends the output."""


def split_batch(batch: pa.RecordBatch, rows: int, raw: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most `rows` rows and `octets` bytes; a larger row stays whole."""
    for start in range(0, batch.num_rows, rows):
        stack = [batch.slice(start, rows)]
        while stack:
            piece = stack.pop()
            if piece.num_rows > 1 and piece.nbytes > raw:
                middle = piece.num_rows // 2
                stack += [piece.slice(middle), piece.slice(0, middle)]
            else:
                yield piece


def cut_bodies(batch: pa.RecordBatch, size: int = PREVIEW_SIZE) -> pa.RecordBatch:
    """Return the batch with every binary value cut to `size` bytes, at the border of a UTF-8 character."""
    for position, field in enumerate(batch.schema):
        if pa.types.is_binary(field.type):
            heads = pc.binary_slice(batch.column(position), 0, size + 1).to_pylist()
            cut = [None if head is None else cut_utf8(head, size) for head in heads]
            batch = batch.set_column(position, field, pa.array(cut, field.type))
    return batch

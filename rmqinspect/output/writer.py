"""The interface of all formats: the View of the rows, and the Writer that takes batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rmqinspect.statuses import SOUND
from rmqinspect.text import cut_utf8

SCHEMA_VERSION = 1
"""Version of the tables: a minor change adds columns at the end, a major one renames."""

PREVIEW_SIZE = 60
"""Bytes of a body that `--body preview` shows: about one line of a terminal."""


class View(Struct, frozen=True):
    """How to show rows."""

    zone: tzinfo = UTC
    colour: bool = False
    width: int | None = None  # of the terminal, in cells; None: not a terminal, nothing is cut
    preview: int | None = None  # bytes of a binary value in the table; None: all
    chosen: bool = False  # the user named the columns: none is left out for lack of width
    redacted: tuple[str, ...] = ()  # words of --redact, for the metadata
    sound: tuple[str, ...] = SOUND["status"]  # values of `status` that are not highlighted
    stores: tuple[str, ...] = ()  # names of all stores, also those without a row


class Out(Protocol):
    """A stream of bytes with a position, which Parquet needs: a pipe, a local file, or an object."""

    closed: bool
    is_file: bool  # a reader can seek in it, once it is complete

    def write(self, content: bytes | memoryview) -> int:
        """Write all bytes; return their number."""

    def tell(self) -> int:
        """Return the bytes written so far."""

    def flush(self) -> None:
        """Pass buffered bytes on to a waiting reader."""


class Writer(ABC):
    """Writes batches of one schema; `finish` is called once, after the last."""

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        self.schema = schema
        self.out = out
        self.view = view
        self.complete = True  # False: something could not be read
        self.more = False  # True: --limit cut rows off
        self.left_out: list[str] = []  # columns for which the terminal is too narrow

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of one batch, which may be empty."""

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the output."""


def split_batch(batch: pa.RecordBatch, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most `rows` rows and `size` bytes; a row larger than that is a slice."""
    for start in range(0, batch.num_rows, rows):
        stack = [batch.slice(start, rows)]
        while stack:
            piece = stack.pop()
            if piece.num_rows > 1 and piece.nbytes > size:
                middle = piece.num_rows // 2
                stack += [piece.slice(middle), piece.slice(0, middle)]
            else:
                yield piece


def cut_bodies(batch: pa.RecordBatch, size: int = PREVIEW_SIZE) -> pa.RecordBatch:
    """Return the batch with every binary value cut to `size` bytes, between UTF-8 characters."""
    for position, field in enumerate(batch.schema):
        if pa.types.is_binary(field.type):
            heads = pc.binary_slice(batch.column(position), 0, size + 1).to_pylist()
            cut = [None if head is None else cut_utf8(head, size) for head in heads]
            batch = batch.set_column(position, field, pa.array(cut, field.type))
    return batch

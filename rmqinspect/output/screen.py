"""Record batches as a text table, streamed."""

from collections.abc import Callable
from datetime import tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.output.rows import timestamp_texts
from rmqinspect.output.writer import Out, View, Writer
from rmqinspect.statuses import SOUND
from rmqinspect.text import cell_width, escape, escape_bytes

# Rows that set the column widths. On a terminal fewer do: see `ScreenTable.write`.
_FIRST_ROWS = 200

# Widest padding: one long value must not push the other columns out of sight.
_WIDEST = 60
_NARROWEST = 12  # of a column that is narrowed to fit the terminal

_ABSENT = "-"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def _clip(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + "…"


def _text_of(type_: pa.DataType, preview: int | None) -> Callable[[Any], str]:
    """Return the formatter for values of a type; it never gets None."""
    if pa.types.is_binary(type_):
        return lambda raw: escape_bytes(raw, preview)
    if pa.types.is_map(type_):
        item = _text_of(type_.item_type, preview)
        return lambda pairs: (
            " ".join(f"{escape(name)}={_ABSENT if value is None else item(value)}" for name, value in pairs) or _ABSENT
        )
    if pa.types.is_list(type_):
        item = _text_of(type_.value_type, preview)
        return lambda values: " ".join(_ABSENT if one is None else item(one) for one in values) or _ABSENT
    return lambda value: escape(str(value))


def _plain_texts(array: pa.Array) -> list[str]:
    """Return numbers and booleans as Arrow formats them; null is `-`."""
    texts: list[str] = pc.fill_null(array.cast(pa.string()), _ABSENT).to_pylist()
    return texts


def cells(array: pa.Array, zone: tzinfo, preview: int | None) -> list[str]:
    """Return one escaped text per value; null is `-`."""
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return _plain_texts(array)
    if pa.types.is_timestamp(array.type):
        array = timestamp_texts(array, zone)
    elif pa.types.is_binary(array.type) and preview is not None:
        array = pc.binary_slice(array, 0, preview + 1)  # one more byte, so that the cut is marked
    show = _text_of(array.type, preview)
    return [_ABSENT if value is None else show(value) for value in array.to_pylist()]


class ScreenTable(Writer):
    """A header and one line per row, columns two spaces apart, numbers right-aligned.

    The first rows set the widths; a longer value later shifts the rest of its line. On a terminal, columns are narrowed
    until a line fits; a cut value ends in `…`.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self._right = [pa.types.is_integer(field.type) for field in schema]
        self._waiting: list[tuple[str, ...]] = []
        self._widths: list[int] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows, once there are enough to set the widths.

        On a terminal the first batch with rows sets them, for prompt output. Elsewhere a fixed number of rows does, so
        the output does not depend on the sizes of batches.
        """
        columns = [cells(array, self.view.zone, self.view.preview) for array in batch.columns]
        self._waiting += zip(*columns, strict=True)
        if self._widths or len(self._waiting) >= _FIRST_ROWS or (self.view.width and self._waiting):
            self._flush()

    def finish(self) -> None:
        """Write the buffered rows; a table without rows is its header."""
        self._flush()

    def _flush(self) -> None:
        lines = []
        if self._widths is None:
            self._widths = self._fit(self._waiting[:_FIRST_ROWS])
            header = self._line(self.schema.names)
            lines.append(f"{_BOLD}{header}{_PLAIN}" if self.view.colour else header)
        lines += [self._coloured(row) for row in self._waiting]
        self._waiting = []
        self.out.write("".join(f"{line}\n" for line in lines).encode())
        self.out.flush()

    def _fit(self, rows: list[tuple[str, ...]]) -> list[int]:
        names = self.schema.names
        widths = [max([len(name), *(cell_width(row[i]) for row in rows)]) for i, name in enumerate(names)]
        widths = [w if right else min(w, _WIDEST) for w, right in zip(widths, self._right, strict=True)]
        if self.view.width is None:
            return widths
        floors = [
            w if right or pa.types.is_timestamp(field.type) else max(len(field.name), min(w, _NARROWEST))
            for w, right, field in zip(widths, self._right, self.schema, strict=True)
        ]
        room = self.view.width - 2 * (len(widths) - 1)
        while sum(widths) > room:
            spare = [width - floor for width, floor in zip(widths, floors, strict=True)]
            if max(spare) <= 0:
                break
            widths[spare.index(max(spare))] -= 1
        return widths

    def _pad(self, row: tuple[str, ...] | list[str]) -> list[str]:
        assert self._widths is not None
        padded = []
        for text, width, right in zip(row, self._widths, self._right, strict=True):
            if self.view.width is not None and not right:
                text = _clip(text, width)
            blank = " " * (width - cell_width(text))
            padded.append(blank + text if right else text + blank)
        return padded

    def _line(self, row: tuple[str, ...] | list[str]) -> str:
        return "  ".join(self._pad(row)).rstrip(" ")

    def _coloured(self, row: tuple[str, ...]) -> str:
        if not self.view.colour:
            return self._line(row)
        padded = self._pad(row)
        for i, name in enumerate(self.schema.names):
            if row[i] not in (*SOUND.get(name, (row[i],)), _ABSENT):
                padded[i] = f"{_RED}{padded[i]}{_PLAIN}"
        return "  ".join(padded).rstrip(" ")

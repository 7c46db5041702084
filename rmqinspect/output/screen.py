"""Record batches as a text table, streamed."""

import textwrap
from collections.abc import Callable, Iterator
from datetime import tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.output.rows import timestamp_texts
from rmqinspect.output.writer import Out, View, Writer
from rmqinspect.statuses import SOUND
from rmqinspect.text import cell_width, cut_cells, escape, escape_bytes

# Rows that set the column widths. On a terminal fewer do: see `ScreenTable.write`.
_FIRST_ROWS = 200

# Widest padding: one long value must not push the other columns out of sight.
_WIDEST = 60
_NARROWEST = 12  # of a column that is narrowed to fit the terminal

# Columns that are never left out, but for a status that is sound in all rows.
_STAY = ("status", "severity", "kind")
_FIRST_OUT = ("size", "status")  # of a narrow terminal: what tells least
_LAST_OUT = ("topic", "keys", "store_timestamp")  # by these a person knows a message

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

    The first rows set the widths; a longer value later shifts the rest of its line. On a terminal a line has to fit:
    texts are narrowed first, a cut value ends in `…`; then columns are left out: those of `_FIRST_OUT`, the widest, the
    last of equals, and those of `_LAST_OUT`; the first column and `_STAY` are kept. A line whose status is not sound
    ends in it where the column is left out.
    Where that would leave less than half of them, or the user chose the columns, each value has a line of its own.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        self._right = [pa.types.is_integer(field.type) or pa.types.is_decimal(field.type) for field in schema]
        self._waiting: list[tuple[str, ...]] = []
        self._widths: dict[int, int] | None = None  # of the columns that are shown; empty: a line for each value
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows, once there are enough to set the widths.

        On a terminal the first batch with rows sets them, for prompt output. Elsewhere a fixed number of rows does, so
        the output does not depend on the sizes of batches.
        """
        columns = [cells(array, self.view.zone, self.view.preview) for array in batch.columns]
        self._waiting += zip(*columns, strict=True)
        if self._widths is not None or len(self._waiting) >= _FIRST_ROWS or (self.view.width and self._waiting):
            self._flush()

    def finish(self) -> None:
        """Write the buffered rows; a table without rows is its header."""
        self._flush()

    def _flush(self) -> None:
        lines = []
        if self._widths is None:
            self._widths = self._lay_out(self._waiting[:_FIRST_ROWS])
            if self._widths:
                header = "  ".join(self._pad(self.schema.names)).rstrip(" ")
                lines.append(self._bold(header))
            elif not self._waiting:
                lines += textwrap.wrap("  ".join(self.schema.names), self.view.width or _WIDEST)
        for row in self._waiting:
            lines += self._line(row) if self._widths else self._value_lines(row)
        self._waiting = []
        self.out.write("".join(f"{line}\n" for line in lines).encode())
        self.out.flush()

    def _bold(self, text: str) -> str:
        return f"{_BOLD}{text}{_PLAIN}" if self.view.colour else text

    # --- columns --------------------------------------------------------------------------------

    def _lay_out(self, rows: list[tuple[str, ...]]) -> dict[int, int]:
        """Return the width of each column that is shown, none of which is in `left_out`; {} for a line per value."""
        names = self.schema.names
        shown = list(range(len(names)))
        widths = self._fit(rows, shown)
        if self.view.width is None or _length(widths) <= self.view.width:
            return widths
        while not self.view.chosen and _length(widths) > self.view.width:
            droppable = [column for column in shown[1:] if self._may_go(column, rows)]
            if not droppable:
                break
            shown.remove(max(droppable, key=lambda column: (_rank(names[column]), widths[column], column)))
            widths = self._fit(rows, shown)
        if _length(widths) > self.view.width or 2 * len(shown) < len(names):
            return {}
        self.left_out = [name for column, name in enumerate(names) if column not in shown]
        return widths

    def _may_go(self, column: int, rows: list[tuple[str, ...]]) -> bool:
        name = self.schema.names[column]
        return name not in _STAY or (name == "status" and all(self._is_sound(column, row[column]) for row in rows))

    def _fit(self, rows: list[tuple[str, ...]], shown: list[int]) -> dict[int, int]:
        """Return the widths of the columns `shown`, narrowed as far as they can be if a line is too wide."""
        names = self.schema.names
        widths = {i: max([len(names[i]), *(cell_width(row[i]) for row in rows)]) for i in shown}
        widths = {i: width if self._right[i] else min(width, _WIDEST) for i, width in widths.items()}
        if self.view.width is None:
            return widths
        floors = {
            i: width
            if self._right[i] or pa.types.is_timestamp(self.schema.field(i).type)
            else max(len(names[i]), min(width, _NARROWEST))
            for i, width in widths.items()
        }
        while _length(widths) > self.view.width:
            spare = {i: width - floors[i] for i, width in widths.items()}
            widest = max(spare, key=lambda i: spare[i])
            if spare[widest] <= 0:
                break
            widths[widest] -= 1
        return widths

    # --- lines ----------------------------------------------------------------------------------

    def _pad(self, row: tuple[str, ...] | list[str]) -> list[str]:
        assert self._widths is not None
        padded = []
        for i, width in self._widths.items():
            text = row[i]
            if self.view.width is not None and not self._right[i]:
                text = _clip(text, width)
            blank = " " * (width - cell_width(text))
            padded.append(blank + text if self._right[i] else text + blank)
        return padded

    def _line(self, row: tuple[str, ...]) -> list[str]:
        assert self._widths is not None
        padded = self._pad(row)
        for position, i in enumerate(self._widths):
            padded[position] = self._coloured(i, row[i], padded[position])
        line = "  ".join(padded).rstrip(" ")
        if "status" in self.left_out:
            column = self.schema.names.index("status")
            if not self._is_sound(column, row[column]):
                line += f"  {self._coloured(column, row[column], row[column])}"
        return [line]

    def _value_lines(self, row: tuple[str, ...]) -> list[str]:
        """Return a line for each value, more for one that is wider than the terminal, after a blank one."""
        label = max(map(len, self.schema.names)) + 2
        room = max((self.view.width or _WIDEST) - label, 1)
        lines = [""] if self._rows else []
        self._rows += 1
        for i, (name, text) in enumerate(zip(self.schema.names, row, strict=True)):
            head = self._bold(name) + " " * (label - len(name))
            for part in _parts(text, room):
                lines.append(f"{head}{self._coloured(i, text, part)}")
                head = " " * label
        return lines

    def _coloured(self, column: int, value: str, shown: str) -> str:
        return shown if not self.view.colour or self._is_sound(column, value) else f"{_RED}{shown}{_PLAIN}"

    def _is_sound(self, column: int, value: str) -> bool:
        name = self.schema.names[column]
        good = self.view.sound if name == "status" else SOUND.get(name)
        return good is None or value in (*good, _ABSENT)


def _rank(name: str) -> int:
    """Return how soon a column is left out: the highest first."""
    if name in _FIRST_OUT:
        return len(_FIRST_OUT) - _FIRST_OUT.index(name)
    return -1 - _LAST_OUT.index(name) if name in _LAST_OUT else 0


def _length(widths: dict[int, int]) -> int:
    """Return the cells of a line."""
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _parts(text: str, room: int) -> Iterator[str]:
    """Yield a text in parts of at most `room` cells, at least one."""
    while True:
        head = cut_cells(text, room)
        yield head
        text = text[len(head) :]
        if not text:
            return

"""Construct layouts as numpy dtypes and field offsets, and parsing of one struct.

The only module that uses construct and numpy together. Dtypes and offsets are computed from the
layouts in schemas/, so each layout is declared once.

Field-by-field parsing of bytes that may be damaged or truncated.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from construct import Bytes as ConstructBytes
from construct import Construct, ConstructError, FormatField, Renamed, Struct

from rmqinspect.errors import BadRecord
from rmqinspect.schemas.message import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, SysFlag
from rmqinspect.text import text_of

if TYPE_CHECKING:
    import numpy as np

# construct's Container: field values as attributes. construct has no type hints.
Container: TypeAlias = Any

# construct's ">l" has 4 bytes, numpy's "l" has 8: dtypes are spelled with the size.
_NUMPY_KINDS = {"b": "i", "h": "i", "l": "i", "q": "i"}


@cache
def dtype_of(layout: Construct) -> "np.dtype[Any]":
    """Return the numpy dtype with the same fields, sizes and byte order as `layout`.

    Structs become structured dtypes without padding, also nested ones; `Bytes(n)` becomes
    a sub-array of n unsigned bytes.

    :raises TypeError: `layout` has a field whose size depends on another field.
    """
    import numpy as np

    match layout:
        case Renamed():
            return dtype_of(layout.subcon)
        case Struct():
            fields: list[tuple[str, Any]] = [(field.name, dtype_of(field)) for field in layout.subcons]
            return np.dtype(fields)
        case FormatField() if layout.fmtstr[1:] in _NUMPY_KINDS:
            kind = _NUMPY_KINDS[layout.fmtstr[1]]
            return np.dtype(f"{layout.fmtstr[0]}{kind}{layout.sizeof()}")
        case ConstructBytes() if isinstance(layout.length, int):
            return np.dtype((np.uint8, (layout.length,)))
        case _:
            raise TypeError(f"{layout!r} has no fixed size")


def parse(layout: Construct, raw: bytes | memoryview, describe: Callable[[], str]) -> Container:
    """Parse one struct from the start of `raw`; further bytes are ignored.

    :raises BadRecord: `raw` is too short; the message begins with `describe()`.
    """
    try:
        return layout.parse(bytes(raw))
    except ConstructError as error:
        raise BadRecord(f"{describe()}: only {len(raw)} bytes are there") from error


class FieldRow(msgspec.Struct, frozen=True):
    """One row of a record's display. Rows of depth 0 tile the record; deeper rows tile their parent."""

    name: str  # of the layout's field, or of the property
    offset: int  # from the start of the record
    raw: bytes
    value: str  # for display, escaped
    note: str = ""  # meaning of the value, escaped
    problem: bool = False  # the note describes damage
    depth: int = 0
    hidden: bool = False  # --redact: the bytes are not shown

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.raw)


class Field(msgspec.Struct, frozen=True):
    """One parsed field: its byte range [start, end), and its value."""

    name: str
    start: int
    end: int
    value: Any


class ParsedFields(msgspec.Struct, frozen=True):
    """The fields of a layout up to the first that cannot be parsed, and their bytes."""

    raw: bytes
    physical_offset: int | None  # of the first byte, if known
    fields: Mapping[str, Field]
    reason: str | None  # why parsing stopped; None if all fields were parsed

    def number(self, name: str) -> int:
        """Return the value of an integer field, 0 if it was not parsed."""
        field = self.fields.get(name)
        return int(field.value) if field is not None else 0

    @property
    def end(self) -> int:
        """End of the last parsed field."""
        return max((field.end for field in self.fields.values()), default=0)

    @property
    def compressed(self) -> bool:
        """Whether a record's body is compressed."""
        return bool(self.number("sys_flag") & SysFlag.COMPRESSED)

    @property
    def topic(self) -> str:
        """A record's topic as text, "" if it was not parsed."""
        field = self.fields.get("topic")
        return "" if field is None else text_of(field.value)

    @property
    def properties(self) -> dict[str, str]:
        """A record's well-formed properties; of a name that stands twice, the last.

        Source: MessageDecoder#string2messageProperties.
        """
        field = self.fields.get("properties")
        items = bytes(field.value).split(bytes([PROPERTY_SEPARATOR])) if field is not None else []
        pairs = (item.partition(bytes([NAME_VALUE_SEPARATOR])) for item in items)
        return {text_of(name): value.decode(errors="replace") for name, _, value in pairs if name and value}

    @property
    def body(self) -> bytes | None:
        """A record's body as stored, None if it was not parsed."""
        field = self.fields.get("body")
        return None if field is None else bytes(field.value)


def walk_fields(
    fields: Iterable[Construct],
    content: bytes,
    physical_offset: int | None = None,
    start: int = 0,
    known: Mapping[str, Any] | None = None,
) -> ParsedFields:
    """Parse consecutive fields from `start` on, up to the first that cannot be parsed; never raises.

    `known` has the values of earlier fields that these depend on.
    """
    stream, values = io.BytesIO(content), dict(known or {})
    stream.seek(start)
    found: dict[str, Field] = {}
    for field in fields:
        begin = stream.tell()
        try:
            value = field.parse_stream(stream, **values)
        except ConstructError:
            size, left = field.sizeof(**values), len(content) - begin
            words = f"only {left} of its {size} bytes are there" if size >= 0 else f"its length is {size}"
            return ParsedFields(content, physical_offset, found, f"{field.name}: {words}")
        values[field.name] = value
        found[field.name] = Field(field.name, begin, stream.tell(), value)
    return ParsedFields(content, physical_offset, found, None)

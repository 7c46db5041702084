"""Construct layouts as numpy dtypes and field offsets, and parsing of one struct.

The only module that uses construct and numpy together. Dtypes and offsets are computed from the
layouts in schemas/, so each layout is declared once.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from construct import Bytes as ConstructBytes
from construct import Construct, ConstructError, FormatField, Renamed, Struct

from rmqinspect.errors import BadRecord

if TYPE_CHECKING:
    import numpy as np  # slow to import, and `parse` and `place_of` do without

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


@cache
def place_of(layout: Construct, name: str) -> int:
    """Return the position of a field in a layout of fixed size, bytes from its start.

    :raises KeyError: `layout` has no field of that name.
    """
    position = 0
    for field in layout.subcons:
        if field.name == name:
            return position
        position += field.sizeof()
    raise KeyError(name)


@cache
def span_of(layout: Construct, name: str) -> slice:
    """Return which bytes of a struct of fixed size are a field's.

    :raises KeyError: `layout` has no field of that name.
    """
    start = place_of(layout, name)
    return slice(start, start + next(field.sizeof() for field in layout.subcons if field.name == name))


def parse(layout: Construct, raw: bytes | memoryview, describe: Callable[[], str]) -> Container:
    """Parse one struct from the start of `raw`; further bytes are ignored.

    :raises BadRecord: `raw` is too short; the message begins with `describe()`.
    """
    try:
        return layout.parse(bytes(raw))
    except ConstructError as error:
        raise BadRecord(f"{describe()}: only {len(raw)} bytes are there") from error

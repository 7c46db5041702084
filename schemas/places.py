"""Where the fields of a layout of fixed size are: positions in bytes."""

from functools import cache

from construct import Construct


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

"""JSON documents, compared with the pages in docs/ that describe them."""

from collections.abc import Collection, Iterator
from typing import Any


def fields(value: Any, free: Collection[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every field of a document, paths written as in docs/: `stores[].paths[]`.

    The names of the fields of an object whose path is in `free` are data; their paths end in `.*`.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            below = f"{path}.{'*' if path in free else name}" if path else name
            yield below, part
            yield from fields(part, free, below)
    elif isinstance(value, list):
        for part in value:
            yield from fields(part, free, f"{path}[]")

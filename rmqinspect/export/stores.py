"""The stores of an export, each under a name of its own."""

from collections.abc import Sequence
from dataclasses import replace

from rmqinspect.store.discover import open_stores
from rmqinspect.store.model import Store
from rmqinspect.tables.splits import split_name
from rmqinspect.text import name_text


def open_named_stores(paths: Sequence[str], *, config: str | None = None, base: int | None = None) -> list[Store]:
    """Open `STORE` and `NAME=STORE`, in their order; paths without a name are opened together, as one command line.

    :raises NotAStore: nothing of a store is there.
    :raises Unreadable: a path cannot be listed.
    """
    named = [split_name(path) for path in paths]
    plain = [path for name, path in named if name is None]
    stores = open_stores(plain, config=config, base=base) if plain or not paths else []
    for place, (name, path) in enumerate(named):
        if name is not None:
            stores.insert(place, replace(open_stores([path], config=config, base=base)[0], name=name_text(name)))
    return stores

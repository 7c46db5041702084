"""The stores of an export, each under a name of its own."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rmqinspect.store.discover import open_stores
from rmqinspect.store.model import MAX_CONFIG_SIZE, Store
from rmqinspect.tables.splits import split_name
from rmqinspect.text import name_text


def open_named_stores(
    paths: Sequence[str], *, config: str | None = None, base: int | None = None, max_config: int = MAX_CONFIG_SIZE
) -> list[Store]:
    """Open `STORE` and `NAME=STORE`, in their order; paths without a name are opened together, as one command line.

    :raises NotAStore: nothing of a store is there.
    :raises Unreadable: a path cannot be listed.
    """
    opened = partial(open_stores, config=config, base=base, max_config=max_config)
    named = [split_name(path) for path in paths]
    plain = [path for name, path in named if name is None]
    stores = opened(plain) if plain or not paths else []
    for place, (name, path) in enumerate(named):
        if name is not None:
            stores.insert(place, replace(opened([path])[0], name=name_text(name)))
    return stores

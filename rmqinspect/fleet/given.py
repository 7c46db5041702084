"""The stores that a command line names: which of its words are one store together, and a name for each.

    STORE  STORE/commitlog 0000…      one store: loose files and folders join the only root
    /mnt/a/store  /mnt/b/store        two stores, a/store and b/store: as much of each path as tells them apart
    a=/mnt/a/store  s3://bucket/b     two stores, a and b

Nothing is opened. What a local path is, is looked up only where several are given; whether a URI answers is found out
by who reads it.
"""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from msgspec.structs import replace

from rmqinspect.errors import BadOption, RmqinspectError
from rmqinspect.schemas import ROOT_FOLDERS
from rmqinspect.store.directory import find_place
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import MAX_CONFIG_SIZE, Store
from rmqinspect.store.names import split_name
from rmqinspect.system import uri
from rmqinspect.text import name_text

MOST_LISTED = 64 << 20
"""Bytes of a list of stores: what is larger is something else, such as a segment."""


_LOOKS = 8  # at a time
_PATIENCE = 5.0  # seconds for the next answer


class Given(NamedTuple):
    """One store, as it was given."""

    paths: tuple[str, ...]  # none: those of a broker.conf
    name: str | None = None  # None: that of the store itself; of several stores, each has one
    is_named: bool = False  # NAME=STORE

    @property
    def words(self) -> tuple[str, ...]:
        """Return what a command line names the store by."""
        shown = tuple(map(uri.shown, self.paths))
        return (f"{self.name}={shown[0]}", *shown[1:]) if self.is_named and shown else shown

    def open(self, *, config: str | None = None, base: int | None = None, max_config: int = MAX_CONFIG_SIZE) -> Store:
        """Open the store; the keywords are those of `open_store`, which says what this raises."""
        store = open_store(self.paths, config=config, base=base, max_config=max_config)
        return store if self.name is None else replace(store, name=self.name)


def listed_stores(content: bytes) -> list[str]:
    """Return the lines of a list of stores: STORE or NAME=STORE, without blank lines and those that begin with `#`.

    :raises ValueError: it is no such list.
    """
    if b"\0" in content:
        raise ValueError("not a list of stores: a byte 0 in it")
    lines = [line.strip() for line in content.decode("utf-8", "surrogateescape").split("\n")]
    stores = [line for line in lines if line and not line.startswith("#")]
    if not stores:
        raise ValueError("no store in it")
    return stores


def stores_of(words: Sequence[str]) -> list[Given]:
    """Return the stores that words name, in their order; with several each under a name that no other has.

    :raises BadOption: two have one name, or are the same path.
    """
    split = [split_name(word) for word in words]
    plain = tuple(path for name, path in split if name is None)
    named = {name_text(name) for name, _ in split if name is not None}
    together = len(plain) > 1 and _is_one(plain, alone=not named)
    given: list[Given] = []
    for name, path in split:
        if name is not None:
            given.append(Given((path,), name_text(name), is_named=True))
        elif not together:
            given.append(Given((path,)))
        elif path == plain[0]:
            given.append(Given(plain))
    if len(given) <= 1:
        return given or [Given(())]
    given = _tell_apart(given, named)
    for name, number in Counter(one.name for one in given).items():
        if number > 1:
            raise BadOption(f"two stores are called {name}: no answer could say which is meant. Give NAME=STORE")
    return given


def _is_one(paths: Sequence[str], *, alone: bool) -> bool:
    """Return whether paths are parts of one store; what is no part of a store is a store that fails."""
    loose = sum(_are_loose(paths))
    # Several roots and loose files: whoever opens them says that this cannot be told apart.
    return loose > 0 and (alone or len(paths) - loose <= 1)


def _are_loose(paths: Sequence[str]) -> list[bool]:
    """Return which paths are parts of a store. One that does not answer, of a disk that hangs, counts as a store."""
    loose = [False] * len(paths)
    waiting = deque(enumerate(paths))
    answered: Queue[None] = Queue()

    def look() -> None:
        with suppress(IndexError):  # none is left
            while True:
                number, path = waiting.popleft()
                with suppress(RmqinspectError, OSError):
                    loose[number] = _names_a_part(path) if uri.is_remote(path) else find_place(path)[1] != ()
                answered.put(None)

    for _ in range(min(_LOOKS, len(paths))):
        Thread(target=look, daemon=True).start()
    with suppress(Empty):
        for _ in paths:
            answered.get(timeout=_PATIENCE)
    return list(loose)


def _names_a_part(path: str) -> bool:
    """Return whether a URI leads to a part of a store, by the names of its last two components."""
    names = uri.basename(path), uri.basename(uri.dirname(path))
    return names[0].isdecimal() or any(name in (*ROOT_FOLDERS, "index", "config") for name in names)


def _tell_apart(given: Sequence[Given], taken: Collection[str]) -> list[Given]:
    """Return stores with names: of the first path the last parts, as many as make it differ from all others."""
    parts = [tuple(filter(None, _whole(one.paths[0]).split("/"))) or ("/",) for one in given]
    names = [one.name or of_path[-1] for one, of_path in zip(given, parts, strict=True)]
    for length in range(2, max(map(len, parts)) + 1):
        many = {name for name, number in Counter(names).items() if number > 1 or name in taken}
        names = [
            "/".join(of_path[-length:]) if one.name is None and name in many else name
            for one, of_path, name in zip(given, parts, names, strict=True)
        ]
    return [one._replace(name=name) for one, name in zip(given, names, strict=True)]


def _whole(path: str) -> str:
    return uri.shown(path) if uri.is_remote(path) else name_text(uri.abspath(path))

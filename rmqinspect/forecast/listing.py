"""The folders of mapped files of a store, entry by entry: read once, and loaded by the rules of each release."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from rmqinspect.codec.java_numbers import java_number
from rmqinspect.forecast.config_files import topic_types
from rmqinspect.forecast.mapped_files import Entry, entry_of, odd_entry
from rmqinspect.store.model import Place, QueueFile, Store

KINDS = {"consumequeue": "queue", "batchconsumequeue": "batch_queue", "consumequeue_ext": "ext_queue"}
"""The kind of the files in each folder of queues."""


class QueueFolder(NamedTuple):
    """The folder of a queue."""

    entries: Sequence[Entry]
    alike: tuple[QueueFile, ...] | None  # all its entries in their order, where they are files of one length

    def has_only(self, size: int) -> bool:
        """Whether all its entries are files of a length: every release loads all of them."""
        return self.alike is not None and (not self.alike or self.alike[0].size == size)


class Listing:
    """What the load phase lists; `unread` says what could not be listed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.unread: list[str] = []

    @cached_property
    def log(self) -> list[Entry]:
        """The entries of the commit log."""
        return list(_log_entries(self._store))

    @cached_property
    def topic_types(self) -> Mapping[str, str]:
        """The type of the queues of each topic that has one."""
        return topic_types(self._store)

    @cached_property
    def queues(self) -> Mapping[str, Mapping[tuple[str, int], QueueFolder]]:
        """The queues of each folder of `KINDS`, sorted, each with the folder that its number names."""
        folders = {place: _folder(entries) for place, entries in self._folders().items()}
        found: dict[str, dict[tuple[str, int], QueueFolder]] = {root: {} for root in KINDS}
        for root, topic, name in sorted(folders):
            queue_id = java_number(name, 32)
            if queue_id is not None:
                own = folders.get((root, topic, str(queue_id)), QueueFolder((), ()))
                found[root][topic, queue_id] = own
        return found

    def _folders(self) -> dict[Place, list[Entry]]:
        store = self._store
        found: dict[Place, list[Entry]] = {place: [] for place in store.queue_folders}
        roots = {kind: root for root, kind in KINDS.items()}
        unopened = store.unopened
        for file in store.queue_files:
            if file.noted is None:
                # A folder of another name with the same number is another folder: 01 beside 1.
                above = file.name.rsplit("/", 2)[-2:-1]
                place = (roots[file.kind], file.topic, *(above if len(above) == 1 else [str(file.queue_id)]))
                found.setdefault(place, []).append(entry_of(file, unopened))
        self._add_oddities(found)
        return found

    def _add_oddities(self, found: dict[Place, list[Entry]]) -> None:
        store = self._store
        odd = [oddity for oddity in store.oddities if oddity.place and oddity.place[0] in KINDS]
        known = {file.path for file in store.queue_files} if odd else set()
        files = {file.path: file for file in store.files} if odd else {}
        for oddity in odd:
            root, *below = oddity.place
            if len(below) == 3 and oddity.path not in known:
                entry = odd_entry(oddity, files.get(oddity.path))
                found.setdefault((root, below[0], below[1]), []).append(entry)
            elif len(below) == 2 and oddity.kind == "stray":
                found.setdefault((root, below[0], below[1]), [])  # a file: a queue without files
            elif len(below) < 3 and oddity.is_unread:
                self.unread.append(f"{oddity.name}: {oddity.detail}")


def _folder(entries: Sequence[Entry]) -> QueueFolder:
    entries = sorted(entries, key=lambda entry: entry.name)
    files = tuple(entry.file for entry in entries if isinstance(entry.file, QueueFile) and not entry.unread)
    is_alike = len(files) == len(entries) and len({file.size for file in files}) <= 1
    return QueueFolder(entries, files if is_alike and all(entry.name.isascii() for entry in entries) else None)


def _log_entries(store: Store) -> Iterator[Entry]:
    segments = [file for file in store.segments if file.kind == "segment"]
    for file in segments:
        yield entry_of(file, store.unopened)
    known = {file.path for file in segments}
    sizes = {file.path: file for file in store.files} if store.oddities else {}
    for oddity in store.oddities:
        if len(oddity.place) == 2 and oddity.place[0] == "commitlog" and oddity.path not in known:
            yield odd_entry(oddity, sizes.get(oddity.path))

"""The place of a path in a store: from names, or from first bytes where names do not tell.

A user may give a store's root, a folder or a file of it, or a folder around it. The answer is a
`Place`: the components that such a file or folder has below a store's root.

    /data/store                          ()
    /data/store/commitlog                ("commitlog",)
    /tmp/00000000000000000000            ("commitlog", "00000000000000000000"), from its records
    /tmp/TopicA, with folders 0 and 1    ("consumequeue", "TopicA")

`PLACES` then says what kind of file lies where.
"""

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.schemas import ROOT_FOLDERS
from rmqinspect.store.file_type import archive_advice, file_type
from rmqinspect.store.model import Place, StoreFile
from rmqinspect.store.without_rows import words_of_file, words_of_folder
from rmqinspect.system import filesystem, uri
from rmqinspect.system.uri import shown
from rmqinspect.text import count

if TYPE_CHECKING:
    from rmqinspect.system.filesystem import Entry

Row = tuple[Place, str]

# The kind of a file by its place; the first matching row counts.
# Sources: StorePathConfigHelper, BrokerPathConfigHelper, DLedgerConfig#getDataStorePath.
PLACES: tuple[Row, ...] = (
    (("commitlog", "*"), "segment"),
    (("dledger-*", "data", "*"), "dledger"),
    (("dledger-*", "index", "*"), "dledger_index"),
    (("dledger-*", "*"), "dledger_state"),
    (("consumequeue", "*", "*", "*"), "queue"),
    (("consumequeue", "*"), "rocksdb"),
    (("consumequeue_rocksdb", "*"), "rocksdb"),
    (("batchconsumequeue", "*", "*", "*"), "batch_queue"),
    (("consumequeue_ext", "*", "*", "*"), "ext_queue"),
    (("index", "*"), "index"),
    (("config", "*"), "config"),
    (("config", "*", "*"), "rocksdb"),
    (("rocksdbstore", "*"), "rocksdb"),
    (("kvStore", "*"), "rocksdb"),
    (("timerlog", "*"), "timer_log"),
    (("timerwheel",), "timer_wheel"),
    (("timerwheel.[0-9]*",), "timer_wheel"),
    (("compaction", "compactionLog", "*", "*", "*"), "compaction_log"),
    (("compaction", "compactionCq", "*", "*", "*"), "compaction_queue"),
    (("checkpoint",), "checkpoint"),
    (("abort",), "abort"),
    (("lock",), "lock"),
)


def rows_below(rows: Iterable[Row], depth: int, name: str) -> tuple[Row, ...]:
    """Return the rows whose component `depth` matches `name`.

    A listing narrows the rows folder by folder, so each file name is compared with few of them.
    """
    return tuple(
        (pattern, kind)
        for pattern, kind in rows
        if len(pattern) > depth and (pattern[depth] == "*" or fnmatchcase(name, pattern[depth]))
    )


def rows_in(rows: tuple[Row, ...], depth: int, names: Iterable[str]) -> tuple[Row, ...]:
    """Return the rows that hold in a folder `depth` components below the root with these entries.

    A folder is a RocksDB where it has a manifest, or the file that names the one in use. Other files do not make it
    one: a desktop leaves its own in every folder.
    """
    if not any(kind == "rocksdb" and len(pattern) == depth + 1 for pattern, kind in rows):
        return rows
    if any(name == "CURRENT" or name.startswith("MANIFEST-") for name in names):
        return rows
    return tuple((pattern, kind) for pattern, kind in rows if kind != "rocksdb" or len(pattern) != depth + 1)


def rows_at(place: Place) -> tuple[Row, ...]:
    """Return the rows of PLACES for a file at `place` or below it."""
    rows = PLACES
    for depth, name in enumerate(place):
        rows = rows_below(rows, depth, name)
    return rows


def kind_in(rows: Iterable[Row], depth: int) -> str:
    """Return the kind of a file `depth` components below the root, of which `rows` match all."""
    return next((kind for pattern, kind in rows if len(pattern) == depth), "other")


def kind_of(place: Place) -> str:
    """Return the kind of the file at a place or, for a folder, of the files below it."""
    return next((kind for pattern, kind in rows_at(place) if len(pattern) >= len(place)), "other")


def find_place(path: str, depth: int = 0) -> tuple[str, Place]:
    """Return (real path or URI, its place below a store's root); () is the place of a root.

    A folder around exactly one store stands for that store.

    :raises NotAStore: no store, nor any part of one, is there.
    :raises Unreadable: the path cannot be listed, or a file whose type is needed cannot be read.
    :raises Unreachable: a remote file system does not answer.
    """
    path = uri.local_path(path)
    if not path:
        raise NotAStore("an empty path is given as the store")
    real = uri.realpath(path)
    try:
        status = filesystem.stat(real)
    except FileNotFoundError as error:
        link = " (a dangling link)" if os.path.islink(path) else ""
        raise NotAStore(f"{shown(path)}: no such file or directory{link}") from error
    except OSError as error:
        raise Unreadable(f"{shown(path)}: {error.strerror}") from error
    if stat.S_ISREG(status.st_mode):
        return real, _place_of_file(StoreFile(real, shown(path), status.st_size, "other"))
    if not stat.S_ISDIR(status.st_mode):
        raise NotAStore(f"{path}: neither a directory nor a regular file")
    try:
        entries = filesystem.scandir(real)
    except OSError as error:
        raise Unreadable(f"{shown(path)}: {error.strerror}") from error
    place = _place_of_folder(_Folder.of(real, entries))
    if place is not None:
        return real, place
    if not entries:
        raise NotAStore(f"{shown(path)}: an empty directory, not a store")
    if words := words_of_folder(frozenset(entry.name for entry in entries)):
        raise NotAStore(f"{shown(path)}: {words}")
    return _only_store_below(path, real, entries, depth)


def _only_store_below(path: str, real: str, entries: "Sequence[Entry]", depth: int) -> tuple[str, Place]:
    """Return the only store in a folder: unpacking an archive often adds a level."""
    inner = []
    for entry in entries if depth < 2 else ():
        if entry.is_dir(follow_symlinks=False):
            try:
                inner.append(find_place(entry.path, depth + 1))
            except (NotAStore, Unreadable):
                continue
    if len(inner) == 1:
        return inner[0]
    if inner:
        some = ", ".join(uri.relpath(child, real) for child, _ in inner[:4])
        more = ", …" if len(inner) > 4 else ""
        raise NotAStore(f"{shown(path)}: holds {len(inner)} stores ({some}{more}); give one")
    raise NotAStore(
        f"{shown(path)}: not a store: no commitlog, consumequeue or dledger-* folder in it, and not a file of a store"
    )


# --- a folder's place ---------------------------------------------------------------------------

# Folders that only a store's root has; a DLedger log's folder is named after its group: dledger-GROUP.
# Folders whose name is enough.
_NAMED_FOLDERS = ("commitlog", "timerlog", "compaction")
QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")

# The folder that files of a type lie in, or the root; queue files lie two levels deeper.
_FOLDER_OF_TYPE: dict[str, Place] = {
    "segment": ("commitlog",),
    "dledger": ("dledger-?", "data"),
    "queue": ("consumequeue",),
    "batch_queue": ("batchconsumequeue",),
    "index": ("index",),
    "timer_log": ("timerlog",),
    "timer_wheel": (),
    "config": ("config",),
}
_QUEUE_TYPES = ("queue", "batch_queue")
# One numbered file of such a type tells the type of its whole folder.
_TYPES_OF_NUMBERED = ("segment", "dledger", "queue", "batch_queue", "index")


class _Folder(Struct, frozen=True):
    """A listed folder."""

    path: str
    names: frozenset[str]
    folders: Sequence[str]  # links to folders included
    numbered: Sequence["Entry"]  # regular files only: a link may lead out, and a FIFO may block

    @classmethod
    def of(cls, path: str, entries: "Sequence[Entry]") -> "_Folder":
        return cls(
            path,
            frozenset(entry.name for entry in entries),
            [entry.name for entry in entries if _is_folder(entry)],
            [entry for entry in entries if entry.name.isdecimal() and entry.is_file(follow_symlinks=False)],
        )

    @property
    def own_name(self) -> str:
        return uri.basename(self.path)


def _is_folder(entry: "Entry") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circle of links
        return False


def _root(folder: _Folder) -> Place | None:
    has_folder = any(name in ROOT_FOLDERS or name.startswith("dledger-") for name in folder.folders)
    has_config = "config" in folder.folders and "checkpoint" in folder.names
    return () if has_folder or has_config else None


def _named(folder: _Folder) -> Place | None:
    if folder.own_name in _NAMED_FOLDERS:
        return (folder.own_name,)
    if folder.own_name.startswith("dledger-") and "data" in folder.folders:
        return (folder.own_name,)
    is_config = folder.own_name == "config" and any(name.endswith(".json") for name in folder.names)
    return ("config",) if is_config else None


def _with_typed_files(folder: _Folder) -> Place | None:
    for entry in folder.numbered:
        path = uri.join(folder.path, entry.name)
        kind = file_type(StoreFile(path, shown(path), entry.stat(follow_symlinks=False).st_size, "other"))
        if kind in _TYPES_OF_NUMBERED:
            return _folder_of_type(kind, folder.path)
        if folder.own_name == "index":
            above = uri.basename(uri.dirname(folder.path))
            return (above, "index") if above.startswith("dledger-") else ("index",)
    return None


def _with_zero_files(folder: _Folder) -> Place | None:
    if not folder.numbered:
        return None
    return ("consumequeue", *_queue_of(folder.path)) if folder.own_name.isdecimal() else ("commitlog",)


def _all_queues(folder: _Folder) -> Place | None:
    return (folder.own_name,) if folder.own_name in QUEUE_FOLDERS and folder.folders else None


def _one_topic(folder: _Folder) -> Place | None:
    queues = [name for name in folder.folders if name.isdecimal()]
    if folder.own_name == "index" or not queues or not _holds_numbers(uri.join(folder.path, queues[0])):
        return None
    above = uri.basename(uri.dirname(folder.path))
    return (above if above in QUEUE_FOLDERS else "consumequeue", folder.own_name)


# The first rule with an answer counts: names are more reliable than bytes, and files more than folders.
_FOLDER_RULES: tuple[Callable[[_Folder], Place | None], ...] = (
    _root,
    _named,
    _with_typed_files,
    _with_zero_files,
    _all_queues,
    _one_topic,
)


def _place_of_folder(folder: _Folder) -> Place | None:
    places = (rule(folder) for rule in _FOLDER_RULES)
    return next((place for place in places if place is not None), None)


def _holds_numbers(folder: str) -> bool:
    try:
        return any(name.isdecimal() for name in filesystem.listdir(folder))
    except OSError:
        return False


# --- a file's place -----------------------------------------------------------------------------


def _place_of_file(file: StoreFile) -> Place:
    name, folder = uri.basename(file.path), uri.dirname(file.path)
    if advice := archive_advice(file):
        raise NotAStore(advice)
    kind = file_type(file)
    if kind == "zeros" and name.isdecimal():
        kind = "queue" if uri.basename(folder).isdecimal() else "segment"
    if kind == "checkpoint" and (above := uri.basename(folder)).startswith("dledger-"):
        return (above, name)
    if kind == "checkpoint":
        return ("checkpoint",)  # also for checkpoint.bak
    if kind in _FOLDER_OF_TYPE:
        return (*_folder_of_type(kind, folder), name)
    if words := words_of_file(name):
        raise NotAStore(f"{file.name} ({count(file.size, 'byte')}): {words}")
    reason = "not a file of a store"
    if name.isdecimal():
        reason = "named like a segment, but without a commit-log record"
    raise NotAStore(f"{file.name}: {reason} ({count(file.size, 'byte')})")


def _folder_of_type(kind: str, folder: str) -> Place:
    place = _FOLDER_OF_TYPE[kind]
    return (*place, *_queue_of(folder)) if kind in _QUEUE_TYPES else place


def _queue_of(folder: str) -> Place:
    """Return (topic, queue id) from the names of a queue's folder, "?" and "0" if it does not lie like one."""
    queue = uri.basename(folder)
    topic = uri.basename(uri.dirname(folder))
    return (topic, queue) if queue.isdecimal() and topic else ("?", "0")

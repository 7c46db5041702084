"""What a path is: where below a store root it lies, told by names and, for loose pieces, by bytes."""

import os
import stat
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.store.file_type import archive_advice, sniff
from rmqinspect.system import filesystem, uri
from rmqinspect.system.uri import shown
from rmqinspect.text import count

if TYPE_CHECKING:
    from rmqinspect.system.filesystem import Entry

Place = tuple[str, ...]
Row = tuple[Place, str]

# Which file is what, by its place below the store root. The first row that matches decides.
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
    (("timerwheel*",), "timer_wheel"),
    (("compaction", "compactionLog", "*", "*", "*"), "compaction_log"),
    (("compaction", "compactionCq", "*", "*", "*"), "compaction_queue"),
    (("checkpoint",), "checkpoint"),
    (("abort",), "abort"),
    (("lock",), "lock"),
)
_ROOT_MARKS = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_rocksdb")
# Folders that their names tell, whatever is in them.
_NAMED_FOLDERS = ("commitlog", "timerlog")
_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


def rows_below(rows: Iterable[Row], depth: int, name: str) -> tuple[Row, ...]:
    """Return those of `rows` that can still match when the component `depth` of a place is `name`.

    Followed from the root down, a listing compares each name with the few rows of its folder.
    """
    return tuple(
        (pattern, kind)
        for pattern, kind in rows
        if len(pattern) > depth and (pattern[depth] == "*" or fnmatchcase(name, pattern[depth]))
    )


def rows_at(place: Place) -> tuple[Row, ...]:
    """Return the rows of PLACES for what lies at `place` or below it."""
    rows = PLACES
    for depth, name in enumerate(place):
        rows = rows_below(rows, depth, name)
    return rows


def kind_in(rows: Iterable[Row], depth: int) -> str:
    """Return the kind of a file whose place has `depth` components, all of them matched by `rows`."""
    return next((kind for pattern, kind in rows if len(pattern) == depth), "other")


def kind_of(place: Place) -> str:
    """Return the kind of file that lies at this place or, for a folder, below it."""
    return next((kind for pattern, kind in rows_at(place) if len(pattern) >= len(place)), "other")


def find_place(path: str, depth: int = 0) -> tuple[str, Place]:
    """Return (real path or URI, its place below a store root); () is the place of a root itself.

    A folder that is none of a store, but holds exactly one, stands for that one.

    :raises NotAStore: nothing of a store is there.
    :raises Unreadable: the path cannot be listed.
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
        return real, _place_of_file(path, real, status.st_size)
    if not stat.S_ISDIR(status.st_mode):
        raise NotAStore(f"{path}: neither a directory nor a regular file")
    try:
        entries = filesystem.scandir(real)
    except OSError as error:
        raise Unreadable(f"{shown(path)}: {error.strerror}") from error
    place = _place_of_folder(real, entries)
    if place is not None:
        return real, place
    if not entries:
        raise NotAStore(f"{shown(path)}: an empty directory, not a store")
    return _only_store_below(path, real, entries, depth)


def _only_store_below(path: str, real: str, entries: "Sequence[Entry]", depth: int) -> tuple[str, Place]:
    """Return the one store in a folder: an unpacked archive often has one more level."""
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
    raise NotAStore(f"{shown(path)}: not a store: no commitlog, consumequeue or dledger-* folder and no file of one")


def _is_folder(entry: "Entry") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _place_of_folder(path: str, entries: "Sequence[Entry]") -> Place | None:
    own = uri.basename(path)
    names = {entry.name for entry in entries}
    folders = [entry.name for entry in entries if _is_folder(entry)]
    if any(name in _ROOT_MARKS or name.startswith("dledger-") for name in folders):
        return ()
    if "config" in folders and "checkpoint" in names:
        return ()
    if own in _NAMED_FOLDERS:
        return (own,)
    if own == "config" and any(name.endswith(".json") for name in names):
        return ("config",)
    # Only regular files are looked into: a link may lead out, and a FIFO may never answer.
    numbered = [entry.name for entry in entries if entry.name.isdecimal() and entry.is_file(follow_symlinks=False)]
    for name in numbered:
        kind = sniff(uri.join(path, name))
        if kind in ("segment", "dledger"):
            return ("commitlog",) if kind == "segment" else ("dledger-?", "data")
        if kind in ("queue", "batch_queue"):
            return (_folder_of(kind), *_queue_parts(path))
        if kind == "index" or own == "index":
            return ("index",)
    if numbered:  # nothing but zeros in all of them
        return ("consumequeue", *_queue_parts(path)) if own.isdecimal() else ("commitlog",)
    if own in _QUEUE_FOLDERS and folders:
        return (own,)
    if own == "index":
        return None
    queues = [name for name in folders if name.isdecimal()]
    if queues and _holds_numbers(uri.join(path, queues[0])):
        parent = uri.basename(uri.dirname(path))
        return (parent if parent in _QUEUE_FOLDERS else "consumequeue", own)
    return None


def _holds_numbers(folder: str) -> bool:
    try:
        return any(name.isdecimal() for name in filesystem.listdir(folder))
    except OSError:
        return False


def _place_of_file(path: str, real: str, size: int) -> Place:
    name = uri.basename(real)
    if advice := archive_advice(shown(path), real):
        raise NotAStore(advice)
    kind = sniff(real)
    folder = uri.dirname(real)
    if kind == "zeros" and name.isdecimal():
        kind = "queue" if uri.basename(folder).isdecimal() else "segment"
    match kind:
        case "segment":
            return ("commitlog", name)
        case "dledger":
            return ("dledger-?", "data", name)
        case "queue" | "batch_queue":
            return (_folder_of(kind), *_queue_parts(folder), name)
        case "index":
            return ("index", name)
        case "checkpoint":
            return ("checkpoint",)
        case "timer_log":
            return ("timerlog", name)
        case "timer_wheel":
            return (name,)
        case "config":
            return ("config", name)
    what = "no file of a store"
    if name.isdecimal():
        what = "named like a segment, but there is no commit-log record in it"
    raise NotAStore(f"{shown(path)}: {what} ({count(size, 'byte')})")


def _folder_of(kind: str) -> str:
    return "batchconsumequeue" if kind == "batch_queue" else "consumequeue"


def _queue_parts(folder: str) -> Place:
    """Return (topic, queue id) as the folder names say, "?" and "0" where they do not."""
    queue = uri.basename(folder)
    topic = uri.basename(uri.dirname(folder))
    return (topic, queue) if queue.isdecimal() and topic else ("?", "0")

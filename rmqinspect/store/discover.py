"""Paths in, `Store`s out: lists what was given and names each file's kind.

    paths, --config  ->  find_place      each path's place below a store's root
                     ->  one group       per root; loose files and folders join the only root
                     ->  _Listing        walks each path, with the rows of `PLACES` that still match
                     ->  Store           files by kind, segments and queue files sorted

Invariants:

- An entry that does not fit its place is an `Oddity` for `verify` to report, and never an error.
- No link is followed out of the given paths; two names of one file are one file.
- Nothing is written or locked.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from rmqinspect.errors import NotAStore
from rmqinspect.store.broker_conf import read_settings, setting_size
from rmqinspect.store.directory import QUEUE_FOLDERS, Row, find_place, kind_in, kind_of, rows_at, rows_below, rows_in
from rmqinspect.store.file_type import fullness, own_base
from rmqinspect.store.log_paths import (
    LOG,
    LogPaths,
    NamedFolder,
    configured_paths,
    locate_log,
    no_store_given,
    not_read,
    paths_in,
    shown_folder,
    taken,
    why_absent,
)
from rmqinspect.store.model import (
    LAST_BASE,
    MAX_CONFIG_SIZE,
    Folder,
    Oddity,
    Place,
    QueueFile,
    Segment,
    Store,
    StoreFile,
)
from rmqinspect.system import filesystem, uri
from rmqinspect.text import count, name_text

if TYPE_CHECKING:
    from rmqinspect.system.filesystem import Entry

_QUEUE_KINDS = ("queue", "batch_queue", "ext_queue")
_LOG_KINDS = ("segment", "dledger")
_SINGLE_FILES = ("abort", "lock", "checkpoint", "timer_wheel")
_PAGE = 4096
_SEGMENT_SIZE = 1 << 30  # MessageStoreConfig: mappedFileSizeCommitLog


class Located(NamedTuple):
    """A path that is read."""

    path: str  # as given
    real: str  # path or URI, links resolved
    place: Place  # below a store's root


class Group(NamedTuple):
    """What makes one store, its root first if it has one."""

    located: list[Located]
    paths: LogPaths | None = None  # None without a root


_Entry = tuple[str, Place, str, tuple[Row, ...]]  # path, place, name, matching rows of PLACES

# No file of a store lies deeper. Keeps a wrong path ("/") from being walked for hours.
_MAX_DEPTH = 6


def open_store(
    paths: Sequence[str],
    *,
    config: str | None = None,
    base: int | None = None,
    max_config: int = MAX_CONFIG_SIZE,
    below_root: bool = False,
) -> Store:
    """Return the one store at `paths`, or made of the files and folders at `paths`.

    `below_root`: all of it is below its root, wherever `config` has the parts of another store.

    :raises NotAStore: there is no store, or more than one.
    :raises Unreadable: a given path cannot be listed or read.
    :raises BadOption: `config` is malformed.
    """
    stores = open_stores(paths, config=config, base=base, max_config=max_config, below_root=below_root)
    if len(stores) > 1:
        raise NotAStore(
            "several stores given, give one: " + ", ".join(uri.shown(path) for store in stores for path in store.paths)
        )
    return stores[0]


def open_stores(
    paths: Sequence[str],
    *,
    config: str | None = None,
    base: int | None = None,
    max_config: int = MAX_CONFIG_SIZE,
    below_root: bool = False,
) -> list[Store]:
    """Return the stores at `paths`: one per root; loose files and folders join the only root.

    `config` names a broker.conf: its sizes override inferred ones, and its paths are used where none
    is given. `base` is the physical offset of a loose segment whose name is no offset. `max_config`: bytes of the
    largest JSON file to read.

    :raises NotAStore: a path does not exist, or is not part of a store.
    :raises Unreadable: a given path cannot be listed or read.
    :raises BadOption: `config` is malformed.
    """
    settings = read_settings(config) if config else {}
    if below_root:
        elsewhere = paths_in(settings)
        settings = {name: value for name, value in settings.items() if name not in elsewhere}
    given = [uri.local_path(path) for path in paths]
    paths = given or configured_paths(settings)
    if not paths:
        raise NotAStore(no_store_given(config, settings))
    # Below the root lies no part that the paths of `config` name: a command with it would read the others.
    words = option_words(config=None if below_root else config, base=base, max_config=max_config)
    with filesystem.asking_once(paths):
        stores = _open(paths, settings, base)
    return [
        replace(
            store,
            max_config=max_config,
            has_conf=config is not None,
            words=(*(uri.shown(path) for path in store.paths if path in given), *words),
        )
        for store in stores
    ]


def option_words(*, config: str | None, base: int | None, max_config: int) -> list[str]:
    """Return the options of `open_store` that are not by default, as words of a command line."""
    given: dict[str, str | int | None] = {
        "--config": config,
        "--base": base,
        "--max-config": None if max_config == MAX_CONFIG_SIZE else max_config,
    }
    return [word for name, value in given.items() if value is not None for word in (name, uri.shown(str(value)))]


def _open(paths: Sequence[str], settings: Mapping[str, str], base: int | None) -> list[Store]:
    located = [Located(path, *_find_place(path)) for path in paths]
    roots = [one for one in located if one.place == ()]
    loose = [one for one in located if one.place != ()]
    if len(roots) > 1 and loose:
        raise NotAStore("several stores and loose files or folders: unclear which store these belong to")
    groups = [_with_log([root, *loose], settings) for root in roots] or [Group(loose)]
    filesystem.evidence.update(one.real for group in groups for one in group.located)
    return [_assemble(group, settings, base) for group in groups]


def _find_place(path: str) -> tuple[str, Place]:
    real, place = find_place(path)
    return real, tuple(map(name_text, place))


def _with_log(located: list[Located], settings: Mapping[str, str]) -> Group:
    """Return a store's root, the first one, and what was given besides, with the folders of the log that it names."""
    root, *others = located
    given = [one.real for one in others if one.place[:1] == (LOG,)]
    paths = locate_log(root.real, settings, given)
    known = {one.real for one in others}
    own = uri.realpath(uri.join(root.real, LOG))
    known |= {own} if uri.is_below(own, root.real) else set()  # a link that leads out is not followed
    named = [
        Located(folder.real, folder.real, folder.named.place)
        for folder in paths.folders
        if folder.real is not None and folder.real not in known
    ]
    return Group([root, *others, *named], paths)


# --- files of a store ---------------------------------------------------------------------------


def _assemble(group: Group, settings: Mapping[str, str], base: int | None) -> Store:
    located, paths = group
    folders = list(_folders(located))
    avoided = {} if paths is None else not_read(located[0].real, paths, settings)
    listing = _Listing(tuple(one.real for one in located), base, avoided)
    for folder in folders:
        if filesystem.isfile(folder.real):
            listing.add_loose(folder.real, folder.place)
        else:
            listing.add_folder(folder.real, folder.place, folder.shown)
    listing.follow_links()
    listing.note_not_read()
    for named in paths.absent() if paths else ():
        listing.note_absent(named)
    listing.add_unopened()
    ordered = tuple(listing.files.values())
    segments = _in_log_order(f for f in ordered if isinstance(f, Segment))
    queues = sorted(
        (f for f in ordered if isinstance(f, QueueFile)), key=lambda f: (f.topic, f.queue_id, f.kind, f.base)
    )
    first = located[0]
    remarks = [] if paths is None else list(taken(paths, {folder.real: folder.shown for folder in folders}))
    return Store(
        name=name_of(first.path),
        paths=tuple(one.path for one in located),
        given=kind_of(first.place) if first.place else "store",
        files=ordered,
        segments=segments,
        segment_size=infer_segment_size(segments, settings, remarks),
        queue_files=tuple(queues),
        index_files=tuple(sorted((f for f in ordered if f.kind == "index"), key=lambda f: f.name)),
        checkpoint=next((f for f in ordered if f.kind == "checkpoint"), None),
        config_files={os.path.basename(f.name): f for f in ordered if f.kind == "config"},
        oddities=tuple(listing.oddities),
        queue_folders=frozenset(listing.queue_folders),
        settings=settings,
        remarks=tuple(remarks),
        neighbours=not all(filesystem.isfile(one.real) for one in located),
        folders=tuple(folders),
    )


def _in_log_order(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return segments by base; of several with one base, those with most in them first.

    Which of them a broker reads is not defined: its list is in the order of a HashSet of paths. The log is that of the
    fullest, and what the others hold besides `unread_doubles` tells.
    """
    by_place = sorted(segments, key=lambda one: (one.base, one.path))
    bases = Counter(one.base for one in by_place)
    return tuple(sorted(by_place, key=lambda one: (one.base, -fullness(one) if bases[one.base] > 1 else 0)))


def name_of(path: str) -> str:
    """Return the name of the store at a path: that of its folder."""
    own = path if uri.is_remote(path) else os.path.normpath(os.path.abspath(path))
    return name_text(uri.basename(own))


def _folders(located: Sequence[Located]) -> Iterator[Folder]:
    """Yield what is listed, with the prefixes of names: where a log has several folders, each name says its own."""
    root = next((one.real for one in located if one.place == ()), None)
    logs = [one.real for one in located if one.place == (LOG,)]
    own = None if root is None else uri.realpath(uri.join(root, LOG))
    several = len(logs) > 1 or (own not in logs and root is not None and LOG in filesystem.listdir(root))
    for one in located:
        is_log = one.place == (LOG,) or one.place[1:] == ("data",)
        if one.place == () or len(located) == 1 or not is_log:
            name = ""
        elif one.place == (LOG,) and (not several or one.real == own):
            name = f"{LOG}/"
        else:
            name = f"{shown_folder(one.real, logs or [one.real], root)}/"
        yield Folder(one.real, one.place, name)


class _Listing:
    """Walks folders in name order and classifies each entry.

    Stores have many thousand files: one system call per folder and per file.
    """

    def __init__(self, roots: tuple[str, ...], base: int | None, avoided: Mapping[str, str] | None = None) -> None:
        self.roots = roots
        self.base = base
        self._avoided = avoided or {}  # folders that a broker does not read, and why
        self._met: dict[str, Oddity] = {}  # those of them that are there
        self.files: dict[str, StoreFile] = {}  # by real path: two names of one file are one file
        self.oddities: list[Oddity] = []
        self.queue_folders: list[Place] = []
        self._followed: set[str] = set()  # real paths of folders reached through links
        # Followed after all real folders are listed, so that a file is listed where it lies.
        self._links: list[_Entry] = []
        self._unopened: list[_Entry] = []
        self._follows = False
        self._places: dict[str, Place] = {}  # of `files`
        self._scandir: Callable[[str], Sequence[Entry]] = filesystem.scandir

    def add_loose(self, path: str, place: Place) -> None:
        """Add a file given by itself."""
        size = filesystem.stat(path).st_size
        self._add(path, name_text(uri.basename(path)), size, place, rows_at(place), loose=True)

    def add_folder(self, folder: str, place: Place, shown: str) -> None:
        """Add all files below a given folder; `shown` is the prefix of their names."""
        try:
            self._scandir = filesystem.files_below(folder).scandir
        except OSError as error:
            self._note_unread(error, folder, place, shown)
            return
        self.enter(folder, place, shown, rows_at(place))

    def enter(self, folder: str, place: Place, shown: str, rows: tuple[Row, ...]) -> None:
        """Add all files below a folder; `shown` prefixes their names, `rows` match its place."""
        try:
            entries = self._scandir(folder)
        except OSError as error:
            self._note_unread(error, folder, place, shown)
            return
        if len(place) == 3 and place[0] in QUEUE_FOLDERS:
            self.queue_folders.append(place)
        rows = rows_in(rows, len(place), (entry.name for entry in entries))
        for entry in entries:
            own = name_text(entry.name)
            where, name = (*place, own), shown + own
            try:
                self._sort(entry, where, name, rows_below(rows, len(place), own))
            except FileNotFoundError:
                continue  # a running broker deletes files
            except OSError as error:
                below = rows_below(rows, len(place), own)
                self._note_unopened("unreadable", str(error.strerror), entry.path, where, name, below)

    def _note_unread(self, error: OSError, folder: str, place: Place, shown: str) -> None:
        name = shown.rstrip("/") or name_text(uri.basename(folder))
        self._note("unreadable", name, str(error.strerror), folder, place)

    def _sort(self, entry: "Entry", place: Place, name: str, rows: tuple[Row, ...]) -> None:
        if self._avoided and self._avoid(entry.path, place, name):
            return
        if entry.is_dir(follow_symlinks=False):
            self._enter_below(entry.path, entry.path, place, name, rows)
        elif entry.is_file(follow_symlinks=False):
            self._add(entry.path, name, entry.stat(follow_symlinks=False).st_size, place, rows)
        elif entry.is_symlink():
            self._links.append((entry.path, place, name, rows))
        else:
            self._note_unopened("special", "neither a folder nor a regular file", entry.path, place, name, rows)

    def follow_links(self) -> None:
        """Add the targets of the links found so far, and of links found there."""
        self._follows = True
        self._scandir = filesystem.scandir  # only local file systems have links
        while self._links:
            links, self._links = self._links, []
            for path, place, name, rows in links:
                self._follow(path, place, name, rows)

    def _avoid(self, path: str, place: Place, name: str) -> bool:
        """List a folder that a broker does not read, its files as such of no kind; return whether it is one."""
        if path not in self._avoided:
            return False
        self._met[path] = Oddity("not_read", name, self._avoided[path], path, place)
        if filesystem.isdir(path) and uri.is_below(uri.realpath(path), self.roots[0]):
            self.enter(path, ("", *place), name + "/", ())
        return True

    def note_not_read(self) -> None:
        """Note the folders that a broker does not read and that hold files."""
        for path, met in self._met.items():
            own = [
                file for file in self.files.values() if file.kind == "other" and file.name.startswith(f"{met.name}/")
            ]
            if own or not uri.is_below(uri.realpath(path), self.roots[0]):
                some = f"{count(len(own), 'file')} that a broker does not read" if own else "not read by a broker"
                self._note(met.kind, met.name, f"{some}: {met.detail}", path, met.place)

    def note_absent(self, named: NamedFolder) -> None:
        """Note a folder of the log that broker.conf names, and that is nowhere."""
        self._note("absent", name_text(named.path), why_absent(named), named.path, named.place)

    def _enter_below(self, path: str, real: str, place: Place, name: str, rows: tuple[Row, ...]) -> None:
        if stray := _stray_folder(place, kind_in(rows, len(place))):
            self._note("directory", name, stray, path, place)
        if len(place) < _MAX_DEPTH:
            self.enter(real, place, name + "/", rows)

    def _follow(self, path: str, place: Place, name: str, rows: tuple[Row, ...]) -> None:
        target = os.path.realpath(path)
        if not os.path.exists(target):
            self._note_unopened("link", "a dangling link", path, place, name, rows)
        elif not any(target == root or target.startswith(root + os.sep) for root in self.roots):
            what = f"a link that leads out of the store: not followed; give {name_text(target)} as a second path"
            self._note_unopened("link", what, path, place, name, rows)
        elif os.path.isfile(target) and self._is_listed_elsewhere(target, place, rows):
            what = f"a link to {self.files[target].name}, which is read there"
            self._note_unopened("link", what, path, place, name, rows)
        elif os.path.isfile(target):
            self._add(target, name, os.stat(target).st_size, place, rows)
        elif not os.path.isdir(target):
            self._note_unopened("special", "a link to neither a folder nor a regular file", path, place, name, rows)
        elif target in self._followed or path.startswith(target + os.sep):
            self._note("link", name, "a link back to a folder that is listed already", path, place)
        else:
            self._followed.add(target)
            self._enter_below(path, target, place, name, rows)

    def _add(
        self, path: str, name: str, size: int, place: Place, rows: tuple[Row, ...], *, loose: bool = False
    ) -> None:
        # A link may give files their place: commitlog -> another folder in the store.
        if path not in self.files or (self.files[path].kind == "other" and kind_in(rows, len(place)) != "other"):
            self.files[path] = self._file(path, name, size, place, rows, loose)
            self._places[path] = place
        elif self._is_listed_elsewhere(path, place, rows):
            # Reached through the link of a folder; the name stands for the path, which is that of the other one.
            self._note("link", name, f"{self.files[path].name} by another name, read there", name, place)

    def _is_listed_elsewhere(self, path: str, place: Place, rows: tuple[Row, ...]) -> bool:
        """Whether a link leads to a file that has another place in the store already: two queues, two segments."""
        other = path not in self.files or "other" in (self.files[path].kind, kind_in(rows, len(place)))
        return self._follows and not other and self._places[path] != place

    def _file(self, path: str, name: str, size: int, place: Place, rows: tuple[Row, ...], loose: bool) -> StoreFile:
        kind = kind_in(rows, len(place))
        number = _file_number(place[-1])
        stray = "the name is not a number"
        if kind in _QUEUE_KINDS:
            queue_id = _queue_number(place[-2])
            if number is not None and queue_id is not None:
                return QueueFile(path, name, size, kind, place[-3], queue_id, number)
            if queue_id is None:
                return StoreFile(path, name, size, "other")  # of a folder that is no queue
        elif kind in _LOG_KINDS:
            if loose:
                own = self.base if self.base is not None else own_base(StoreFile(path, uri.shown(path), size, kind))
                return Segment(path, name, size, kind, own if own is not None else number or 0)
            if number is not None and place[-1].isascii():
                if len(place[-1]) != 20:
                    self._note("stray", name, "the name does not have 20 digits", path, place)
                return Segment(path, name, size, kind, number)
        elif kind == "other" and place[0] in QUEUE_FOLDERS and len(place) in (2, 3):
            stray = "a file in the place of a topic" if len(place) == 2 else "a file in the place of a queue"
        elif kind != "index" or number is not None or loose:
            return StoreFile(path, name, size, kind)
        self._note("stray", name, stray, path, place)
        return StoreFile(path, name, size, "other")

    def _note_unopened(self, kind: str, detail: str, path: str, place: Place, name: str, rows: tuple[Row, ...]) -> None:
        self._note(kind, name, detail, path, place)
        self._unopened.append((path, place, name, rows))

    def add_unopened(self) -> None:
        """Add entries that are files by their names and cannot be opened: nothing about what they hold is judged.

        Their size is taken from the other files of their kind, of a segment also from the distance to the next one.
        """
        sizes: dict[str, int] = {}
        for file in self.files.values():
            sizes[file.kind] = max(file.size, sizes.get(file.kind, 0))
        bases = sorted(file.base for file in self.files.values() if isinstance(file, Segment))
        for path, place, name, rows in self._unopened:
            kind = kind_in(rows, len(place))
            size = sizes.get(kind, 0)
            if kind not in (*_QUEUE_KINDS, *_LOG_KINDS, "index") or (base := _file_number(place[-1])) is None:
                continue
            if path in self.files:
                continue  # reached through the link of a folder, too
            if kind in _LOG_KINDS:
                if base in bases:
                    continue
                following = next((other for other in bases if other > base), None)
                size = size or _SEGMENT_SIZE
                size = size if following is None else min(size, following - base)
            self._add(path, name, size, place, rows)

    def _note(self, kind: str, name: str, detail: str, path: str, place: Place) -> None:
        self.oddities.append(Oddity(kind, name, detail, path, place))


def _file_number(name: str) -> int | None:
    """Return a file name as an offset, None if it cannot be one."""
    return int(name) if name.isdecimal() and int(name) <= LAST_BASE else None


def _queue_number(name: str) -> int | None:
    digits = name.removeprefix("-")
    return int(name) if digits.isdecimal() and int(digits) < 2**31 else None


def _stray_folder(place: Place, kind: str) -> str:
    """Return what is odd about a folder at a place of files of a kind; nothing about one that belongs there."""
    root, depth = place[0], len(place)
    if kind in _SINGLE_FILES or (kind == "config" and ("." in place[-1] or place[-1] == "timercheck")):
        return "a folder in the place of a file"
    if (root, depth) == ("commitlog", 2) or (root.startswith("dledger-") and place[1:-1] == ("data",)):
        return "a folder among the segments"
    if (root, depth) == ("index", 2):
        return "a folder among the index files"
    if root in QUEUE_FOLDERS and depth == 4:
        return "a folder among the files of a queue"
    if root in QUEUE_FOLDERS and depth == 3 and _queue_number(place[-1]) is None:
        return "a folder whose name is no queue's number"
    return ""


def infer_segment_size(segments: Sequence[Segment], settings: Mapping[str, str], remarks: list[str]) -> int | None:
    """Return the size that all segments should have: configured, else inferred with a remark.

    Bases are one size apart, or a multiple of it where a segment is missing: so the most common
    length counts if it divides all distances, else the smallest distance.
    """
    configured = setting_size(settings, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    if configured is not None or not segments:
        return configured
    bases = sorted({segment.base for segment in segments})
    steps = [after - before for before, after in pairwise(bases)]
    lengths = Counter(segment.size for segment in segments if segment.size)
    length, _ = max(lengths.items(), key=lambda item: item[::-1], default=(0, 0))
    if length and all(step % length == 0 for step in steps):
        whose = "of the files" if steps or length % _PAGE == 0 else "of the only file, which may have been cut"
        remarks.append(f"segment size {length}: the length {whose}")
        return length
    if steps:
        remarks.append(f"segment size {min(steps)}: the smallest distance of two bases")
        return min(steps)
    return length or None

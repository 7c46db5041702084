"""Where a broker reads its log: the folders that broker.conf names, and where they are on this machine.

    storePathCommitLog          readOnlyCommitLogStorePaths    the broker reads
    (none)                      not looked at                  commitlog in storePathRootDir
    /a/commitlog                not looked at                  /a/commitlog
    /a/commitlog,/b/commitlog   (none)                         both
    /a/commitlog,/b/commitlog   /c/commitlog                   all three

The folder `commitlog` of the root is read only if it is one of them. A blank beside a comma belongs to the name. Up to
4.9.1 the whole text is the name of one folder: rule `log_paths` of `broker.start_rules`.

With enableDLegerCommitLog the entries lie in storePathDLedgerCommitLog, else in dledger-SELFID/data; `commitlog` is
read besides, for what was written before.

A store that is looked at is often a copy: what broker.conf names lies beside it then, by the same folder names.

    broker.conf       storePathRootDir=/data/store  storePathCommitLog=/data/store/commitlog,/disk2/commitlog
    the copy given    /tmp/copy/store
    read              /tmp/copy/store/commitlog, /tmp/copy/disk2/commitlog

Source: CommitLog#CommitLog, MessageStoreConfig#getStorePathCommitLog, MultiPathMappedFileQueue#getPaths,
#getReadonlyPaths, #load, DLedgerCommitLog#DLedgerCommitLog; RocketMQ 4.9.2 to 5.5.0. DLedgerConfig#getDataStorePath,
MultiPathMmapFileList#load; DLedger 0.2.3 to 0.3.2.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqinspect.store.model import Place
from rmqinspect.system import filesystem, uri
from rmqinspect.text import name_text

ROOT_SETTING = "storePathRootDir"
_PATHS = ("storePath", "readOnlyCommitLogStorePaths")  # how their names begin
SPLITTER = ","  # MixAll.MULTI_PATH_SPLITTER, unless a system property says otherwise
LOG = "commitlog"
_UP = 2  # folders above the store in which others of the copy are looked for


class NamedFolder(NamedTuple):
    """A folder of the log that broker.conf names."""

    setting: str
    path: str  # as broker.conf has it
    place: Place  # of the folder, below a store's root


class FoundFolder(NamedTuple):
    """Where a named folder is."""

    named: NamedFolder
    real: str | None  # None: nowhere
    is_copy: bool = False  # not at the path that broker.conf names


class LogPaths(NamedTuple):
    """The folders of one store's log."""

    folders: Sequence[FoundFolder]
    reads_own: bool  # whether a broker reads the folder `commitlog` of the root

    def absent(self) -> list[NamedFolder]:
        """Return the named folders that are nowhere."""
        return [folder.named for folder in self.folders if folder.real is None]


def paths_in(settings: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that name files or folders of a store, but for its root's."""
    return sorted(name for name in settings if name.startswith(_PATHS) and name != ROOT_SETTING)


def named_folders(settings: Mapping[str, str]) -> list[NamedFolder]:
    """Return the folders of the plain log that broker.conf names, in its order; none where it names none."""
    text = settings.get("storePathCommitLog", "")
    if not text:
        return []
    lists = [("storePathCommitLog", text)]
    if SPLITTER in text:
        lists.append(("readOnlyCommitLogStorePaths", settings.get("readOnlyCommitLogStorePaths", "")))
    found = {path: NamedFolder(name, path, (LOG,)) for name, listed in lists for path in _split(listed)}
    return list(found.values())


def named_ledgers(settings: Mapping[str, str]) -> list[NamedFolder]:
    """Return the folders of the DLedger log that broker.conf names; none where it has none, or names none."""
    name, own = "storePathDLedgerCommitLog", ledger_folder(settings)
    paths = _split(settings.get(name, "")) if own else []
    return [NamedFolder(name, path, (own or "", "data")) for path in dict.fromkeys(paths)]


def ledger_folder(settings: Mapping[str, str]) -> str | None:
    """Return the folder of a broker's DLedger log in its root; None where broker.conf does not say which.

    Source: DLedgerConfig#getDefaultPath.
    """
    own = settings.get("dLegerSelfId", "")
    return f"dledger-{own}" if own and settings.get("enableDLegerCommitLog", "").lower() == "true" else None


def _split(text: str) -> list[str]:
    """Return the parts of a list as Java's String#split makes them, without empty ones, which name no folder."""
    return [part for part in text.split(SPLITTER) if part]


def locate_log(root: str, settings: Mapping[str, str], given: Sequence[str]) -> LogPaths:
    """Return where the log of the store at a root is; `given` are folders of a log that were given besides.

    All are real paths.
    """
    folders = named_folders(settings)
    search = _Search(root, settings, given)
    found = [search.find(folder) for folder in (*folders, *named_ledgers(settings))]
    own = uri.join(root, LOG)
    reads_own = not folders or any(folder.real == uri.realpath(own) for folder in found)
    if not reads_own and not search.is_in_place and filesystem.isdir(own):
        # A copy whose log was put where a log usually is.
        for number, folder in enumerate(found):
            if folder.real is None and folder.named.place == (LOG,):
                found[number] = FoundFolder(folder.named, uri.realpath(own), is_copy=True)
                reads_own = True
                break
    return LogPaths(found, reads_own)


class _Search:
    """Looks for the folders that broker.conf names, for the store at one root."""

    def __init__(self, root: str, settings: Mapping[str, str], given: Sequence[str]) -> None:
        self._root = root
        self._conf_root = settings.get(ROOT_SETTING, "")
        self._given = list(given)
        self._taken: set[str] = set()
        there = bool(self._conf_root) and os.path.isdir(self._conf_root)
        self.is_in_place = there and os.path.realpath(self._conf_root) == root
        # Else the folders that it names on this machine are those of another store: the original of a copy.
        self._is_original = self.is_in_place or not there

    def find(self, folder: NamedFolder) -> FoundFolder:
        """Return where a folder is."""
        path = folder.path
        for real, is_copy in self._candidates(path):
            if real not in self._taken and filesystem.isdir(real):
                self._taken.add(real)
                return FoundFolder(folder, real, is_copy)
        return FoundFolder(folder, None)

    def _candidates(self, path: str) -> Iterator[tuple[str, bool]]:
        """Yield where a named folder may be, the likeliest place first, and whether that is another one."""
        if self._conf_root and uri.is_below(os.path.normpath(path), os.path.normpath(self._conf_root)):
            below = os.path.relpath(path, self._conf_root)
            yield uri.realpath(uri.join(self._root, below)), not self.is_in_place
        if os.path.isabs(path) and self._is_original:
            yield os.path.realpath(path), False
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for first in range(len(parts)):
            ending = os.sep + os.sep.join(parts[first:])
            yield from ((real, True) for real in self._given if real.endswith(ending))
        if not self.is_in_place and not uri.is_remote(self._root):
            original = None if self._is_original else os.path.realpath(path)
            yield from ((real, True) for real in self._beside(parts) if real != original)

    def _beside(self, parts: Sequence[str]) -> Iterator[str]:
        """Yield folders near the store whose path ends as a named one does, that with most names first."""
        for first in range(len(parts)):
            above = self._root
            for _ in range(_UP if len(parts) - first > 1 else 1):
                above = os.path.dirname(above)
                real = os.path.realpath(os.path.join(above, *parts[first:]))
                if not uri.is_below(real, self._root):
                    yield real


# --- what is said of them -------------------------------------------------------------------------------


def not_read(root: str, paths: LogPaths, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the folders in a root that look like a log and that a broker does not read: path -> why."""
    found: dict[str, str] = {}
    plain = [folder.named for folder in paths.folders if folder.named.place == (LOG,)]
    if not paths.reads_own:
        found[uri.join(root, LOG)] = f"{plain[0].setting} names {_listed(plain)}"
    if (own := ledger_folder(settings)) is None:
        return found
    for name in filesystem.listdir(root):
        if name.startswith("dledger-") and name != own:
            found[uri.join(root, name)] = f"dLegerSelfId makes the broker read {own}"
    entries = [folder for folder in paths.folders if folder.named.place == (own, "data")]
    data = uri.join(uri.join(root, own), "data")
    if entries and not any(folder.real == uri.realpath(data) for folder in entries):
        named = [folder.named for folder in entries]
        found[data] = f"{named[0].setting} names {_listed(named)}"
    return found


def why_absent(named: NamedFolder) -> str:
    """Return what to say of a folder that broker.conf names and that is nowhere."""
    path = named.path
    if path != path.strip() and os.path.isdir(path.strip()):
        return f"{named.setting} has a blank beside this name, so that a broker looks for another folder"
    return (
        f"{named.setting} names this folder, and it is not here: what it holds of the log is not read. "
        "Give it as a further path, or mount its disk"
    )


def taken(paths: LogPaths, shown: Mapping[str, str]) -> Iterator[str]:
    """Yield which folders were taken for those that broker.conf names, where the paths are others.

    `shown` has the names of the folders by their real paths.
    """
    for folder in paths.folders:
        if folder.is_copy and folder.real is not None:
            name = shown.get(folder.real, LOG).rstrip("/")
            yield f"{folder.named.setting}={folder.named.path}: {name} beside this store was taken for it"


def shown_folder(real: str, beside: Sequence[str], root: str | None) -> str:
    """Return the name of a folder of the log that is not the root's own, one of several that lie `beside`.

    Relative to the root where it is near; without a root, to the folder around all of them.
    """
    if any(map(uri.is_remote, (real, root or ""))):
        return uri.shown(real)
    around = os.path.commonpath(beside) if root is None else os.path.dirname(root)
    near = uri.is_below(real, around) and around != os.sep
    return name_text(os.path.relpath(real, root or around) if near else real)


def _listed(folders: Sequence[NamedFolder]) -> str:
    return ", ".join(name_text(folder.path) for folder in folders)


# --- broker.conf alone ----------------------------------------------------------------------------------


def configured_paths(settings: Mapping[str, str]) -> list[str]:
    """Return the paths of the store that broker.conf names, where none is given."""
    root = settings.get(ROOT_SETTING, "")
    if root and os.path.exists(root):
        return [root]
    return [folder.path for folder in named_folders(settings) if os.path.exists(folder.path)]


def no_store_given(config: str | None, settings: Mapping[str, str]) -> str:
    """Return why neither the command line nor `config` leads to a store."""
    if not config:
        return "no store given, and no --config"
    logs = [folder.path for folder in named_folders(settings)]
    if paths := [path for path in (settings.get(ROOT_SETTING, ""), *logs) if path]:
        return f"{config}: the store it names does not exist: {', '.join(paths)}"
    return f"{config}: names no store ({ROOT_SETTING}): give its path"

"""`os` and `os.path` functions for local paths and for URIs.

Local paths go straight to `os`, without importing Arrow. URIs go to `remote`, which returns the same
types and raises the same errors as `os`, except that a failing network is `errors.Unreachable`.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rmqinspect.system.uri import is_remote

if TYPE_CHECKING:
    from rmqinspect.system.remote import Entry as RemoteEntry

    Entry: TypeAlias = os.DirEntry[str] | RemoteEntry

evidence: set[str] = set()
"""Folders of this machine that evidence was read from, and paths that were given as such; links resolved."""

opened: set[str] = set()
"""How files of the evidence were opened in this run: `_KEPT`, `_TOUCHED`."""

_KEPT, _TOUCHED = "kept", "may have changed"
_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW  # opening a FIFO must not block
_NO_ATIME = getattr(os, "O_NOATIME", 0)  # of Linux

_FILE, _FOLDER = 0o100000, 0o040000  # bits of st_mode: S_IFREG, S_IFDIR


def asking_once(paths: Sequence[str]) -> AbstractContextManager[None]:
    """Until the block ends, ask once about a folder that the thread looks at several times, if one is remote."""
    if not any(map(is_remote, paths)):
        return nullcontext()
    from rmqinspect.system import remote

    return remote.asking_once()


def open_evidence(path: str) -> int:
    """Open a local file for reading only, without following a link; return its descriptor.

    Its access time stays as it is, where that is allowed: to the owner of the file, and with CAP_FOWNER. To others
    open(2) answers EPERM; they open it as usual, and `access_times` tells. Network file systems may ignore the wish.

    :raises OSError: as `os.open`.
    """
    if _NO_ATIME:
        try:
            descriptor = os.open(path, _READ_ONLY | _NO_ATIME)
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
        else:
            opened.add(_KEPT)
            return descriptor
    descriptor = os.open(path, _READ_ONLY)
    opened.add(_TOUCHED)
    return descriptor


def access_times() -> str | None:
    """Return whether the files that were opened have kept their access times; None if none was opened."""
    return max(opened, default=None)  # one that may have changed counts


def stat(path: str) -> os.stat_result:
    """Return the status of a path or URI.

    :raises OSError: as `os.stat`.
    :raises Unreachable: the remote file system does not answer.
    """
    if not is_remote(path):
        return os.stat(path)
    from rmqinspect.system import remote

    return remote.stat(path)


def isfile(path: str) -> bool:
    """Whether a path or URI is a regular file."""
    return _has_type(path, _FILE) if is_remote(path) else os.path.isfile(path)


def isdir(path: str) -> bool:
    """Whether a path or URI is a folder."""
    return _has_type(path, _FOLDER) if is_remote(path) else os.path.isdir(path)


def exists(path: str) -> bool:
    """Whether a path or URI exists."""
    return _has_type(path, _FILE | _FOLDER) if is_remote(path) else os.path.exists(path)


def _has_type(uri: str, types: int) -> bool:
    try:
        return bool(stat(uri).st_mode & types)
    except OSError:
        return False


def listdir(folder: str) -> list[str]:
    """Return the names of a folder's entries, in any order.

    :raises OSError: as `os.listdir`.
    :raises Unreachable: the remote file system does not answer.
    """
    return [entry.name for entry in scandir(folder)] if is_remote(folder) else os.listdir(folder)


def scandir(folder: str) -> "list[Entry]":
    """Return a folder's entries, sorted by name.

    :raises OSError: as `os.scandir`.
    :raises Unreachable: the remote file system does not answer.
    """
    if is_remote(folder):
        from rmqinspect.system import remote

        return [*remote.scandir(folder)]
    with os.scandir(folder) as listing:
        return sorted(listing, key=lambda entry: entry.name)


class Files(Protocol):
    """The tree below a folder."""

    def scandir(self, folder: str) -> "Sequence[Entry]":
        """Return a folder's entries, sorted by name."""

    def lstat(self, path: str) -> os.stat_result:
        """Return the status of a path; links are not followed."""


class LocalFiles:
    """Local files: each call asks the system."""

    scandir = staticmethod(scandir)
    lstat = staticmethod(os.lstat)


def files_below(root: str) -> Files:
    """Return the tree below a folder, or of a single file.

    A remote tree is listed now, as a whole: one request per folder of a store would take minutes.

    :raises OSError: it cannot be listed.
    :raises Unreachable: the remote file system does not answer.
    """
    if not is_remote(root):
        return LocalFiles()
    from rmqinspect.system import remote

    return remote.Tree(root)

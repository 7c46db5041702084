"""Where files lie: on this machine, or behind a URI that Arrow's file systems understand.

The functions are those of `os` and `os.path` for either kind. A path of this machine goes straight to the
system, and Arrow is not imported for it; `remote` answers for the others as the system would: the same
`os.stat_result`, the same errors. What only the network can do to a command is `errors.Unreachable`.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rmqinspect.system.uri import is_remote

if TYPE_CHECKING:
    from rmqinspect.system.remote import Entry as RemoteEntry

    Entry: TypeAlias = os.DirEntry[str] | RemoteEntry


# --- what is there ----------------------------------------------------------------------------------


def stat(path: str) -> os.stat_result:
    """Return what lies at a path or URI, as `os.stat` says it.

    :raises OSError: as `os.stat`.
    :raises Unreachable: the remote side does not answer.
    """
    if not is_remote(path):
        return os.stat(path)
    from rmqinspect.system import remote

    return remote.stat(path)


def isfile(path: str) -> bool:
    """Whether a regular file lies there."""
    return _is(path, 0o100000) if is_remote(path) else os.path.isfile(path)


def isdir(path: str) -> bool:
    """Whether a folder lies there."""
    return _is(path, 0o040000) if is_remote(path) else os.path.isdir(path)


def exists(path: str) -> bool:
    """Whether anything lies there."""
    return _is(path, 0o140000) if is_remote(path) else os.path.exists(path)


def _is(uri: str, kinds: int) -> bool:
    try:
        return bool(stat(uri).st_mode & kinds)
    except OSError:
        return False


def listdir(folder: str) -> list[str]:
    """Return the names of what lies in a folder, in any order.

    :raises OSError: as `os.listdir`.
    :raises Unreachable: the remote side does not answer.
    """
    return [entry.name for entry in scandir(folder)] if is_remote(folder) else os.listdir(folder)


def scandir(folder: str) -> "list[Entry]":
    """Return what lies in a folder, by name.

    :raises OSError: as `os.scandir`.
    :raises Unreachable: the remote side does not answer.
    """
    if is_remote(folder):
        from rmqinspect.system import remote

        return [*remote.scandir(folder)]
    with os.scandir(folder) as listing:
        return sorted(listing, key=lambda entry: entry.name)


class Files(Protocol):
    """The files below a folder, to be walked."""

    def scandir(self, folder: str) -> "Sequence[Entry]":
        """Return what lies in a folder, by name."""

    def lstat(self, path: str) -> os.stat_result:
        """Return what lies at a path; a link is a link."""


class LocalFiles:
    """The files of this machine, as they are at the moment of each question."""

    scandir = staticmethod(scandir)
    lstat = staticmethod(os.lstat)


def files_below(root: str) -> Files:
    """Return what walks the files below a folder, or knows the one file that was given.

    A remote folder is listed at once with all that is below it: a request for each folder of a store would
    take minutes. So its files are what they were at this moment.

    :raises OSError: it cannot be listed.
    :raises Unreachable: the remote side does not answer.
    """
    if not is_remote(root):
        return LocalFiles()
    from rmqinspect.system import remote

    return remote.Tree(root)

"""Where files lie: on this machine, or behind a URI that Arrow's file systems understand.

The functions are those of `os` and `os.path` for either kind. A path of this machine goes straight to the
system, and Arrow is not imported for it; `remote` answers for the others as the system would: the same
`os.stat_result`, the same errors. What only the network can do to a command is `errors.Unreachable`.
"""

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import unquote

if TYPE_CHECKING:
    from rmqinspect.filesystems.remote import Entry as RemoteEntry

    Entry: TypeAlias = os.DirEntry[str] | RemoteEntry

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Java writes a local URI with one slash (java.io.File#toURI), the standard with three.
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/[^/]))", re.IGNORECASE)


# A secret key may hold a slash that nobody has encoded; a number before one is a port.
_PASSWORD = re.compile(r"(://[^/@:]*):(?:[^/@]*|(?!\d{1,5}/).*)@", re.DOTALL)


def local_path(path: str) -> str:
    """Return what a `file:` URI means on this machine; every other path and URI as it is."""
    local = _LOCAL.match(path)
    return unquote(path[local.end() :]) if local else path


def is_remote(path: str) -> bool:
    """Whether a path is a URI that is none of this machine."""
    return _URI.match(path) is not None and not _LOCAL.match(path)


# --- names ----------------------------------------------------------------------------------------


def _halves(path: str) -> tuple[str, str]:
    """Split a URI before its options (`?region=…`), which begin at the last question mark; a path has none."""
    if not is_remote(path) or "?" not in path:
        return path.rstrip("/") if is_remote(path) else path, ""
    location, mark, options = path.rpartition("?")
    return location.rstrip("/"), mark + options


def join(folder: str, name: str) -> str:
    """Return the path or URI of what is called `name` (or `folder/name`) in a folder."""
    if not is_remote(folder):
        return os.path.join(folder, name)
    location, options = _halves(folder)
    # A key may hold a question mark: then there are options, if only none.
    return f"{location}/{name}{options or ('?' if '?' in name else '')}"


def basename(path: str) -> str:
    """Return the last component: of a URI without a path, its bucket or host."""
    location, _ = _halves(path)
    return os.path.basename(location)


def dirname(path: str) -> str:
    """Return the folder of a path or URI; of what has none above it, itself."""
    if not is_remote(path):
        return os.path.dirname(path)
    location, options = _halves(path)
    above = location.rpartition("/")[0]
    return location + options if above.endswith("/") else above + options


def abspath(path: str) -> str:
    """Return a path that means the same whatever the working directory is; a URI does already."""
    path = local_path(path)
    return path if is_remote(path) else os.path.abspath(path)


def realpath(path: str) -> str:
    """Return a path with all links followed; a URI has none, and loses a slash at its end."""
    return "".join(_halves(path)) if is_remote(path) else os.path.realpath(path)


def relpath(path: str, folder: str) -> str:
    """Return the way from a folder to what lies below it."""
    if not is_remote(folder):
        return os.path.relpath(path, folder)
    return _halves(path)[0].removeprefix(_halves(folder)[0]).lstrip("/")


def is_below(path: str, folder: str) -> bool:
    """Whether a real path is a folder or lies in it; in doubt (one name at two services) it does."""
    inner, outer = _identity(path), _identity(folder)
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)


def _identity(path: str) -> str:
    """Return a path or URI without what says only how to come there."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"://[^/@]*:…@", "://", shown(path)))


def shown(path: str) -> str:
    """Return a path or URI for people: without its options, and without a password."""
    location, _ = _halves(path)
    return _PASSWORD.sub(r"\1:…@", location) if is_remote(path) else path


def without_secrets(text: str) -> str:
    """Return an argument of the command line with the URI in it as `shown` has it: `--option=URI`, `NAME=URI`."""
    before, equals, path = text.partition("=")
    if equals and "://" not in before and is_remote(path):
        return f"{before}={shown(path)}"
    return shown(text)


# --- what is there ----------------------------------------------------------------------------------


def stat(path: str) -> os.stat_result:
    """Return what lies at a path or URI, as `os.stat` says it.

    :raises OSError: as `os.stat`.
    :raises Unreachable: the remote side does not answer.
    """
    if not is_remote(path):
        return os.stat(path)
    from rmqinspect.filesystems import remote

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
        from rmqinspect.filesystems import remote

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
    from rmqinspect.filesystems import remote

    return remote.Tree(root)


def read_remote(path: str, size: int, offset: int = 0) -> bytes:
    """Return up to `size` bytes of a remote file from `offset` on.

    :raises OSError: it cannot be opened or read.
    :raises Unreachable: the remote side does not answer.
    """
    from rmqinspect.filesystems import remote

    return remote.read(path, size, offset)

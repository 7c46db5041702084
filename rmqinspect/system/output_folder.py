"""A folder for many output files: a local one, or a prefix of an object store.

Names are relative, with "/" between folders (`messages/topic=a/x.parquet`); folders are made as
needed. The two kinds differ in how a file appears whole. A local file is written under a temporary
name and renamed. An object store has no rename: an object appears when its upload is completed,
and never if the upload is abandoned or the process ends before.
"""

import os
import secrets
from contextlib import suppress
from typing import BinaryIO, Protocol

from rmqinspect.errors import Refused
from rmqinspect.system.output_file import NewFile, as_refusal
from rmqinspect.system.uri import is_remote, local_path


class Folder(Protocol):
    """Where output files are written and read back; see `open_folder`.

    Every method raises Refused on errors of the file system (no space, no permission, no such file),
    and Unreachable when a remote file system does not answer.
    """

    path: str  # a path, or a URI with its options
    is_remote: bool  # no rename; an object appears when it is closed

    def exists(self) -> bool:
        """Whether it exists; a remote folder does if any object lies in it."""

    def names(self) -> list[str]:
        """Return the names of all files in and below it, sorted; none if it does not exist."""

    def read(self, name: str) -> bytes:
        """Return a whole (small) file."""

    def write(self, name: str, raw: bytes) -> None:
        """Write or replace a (small) file, whole or not at all."""

    def create(self, name: str) -> NewFile:
        """Begin a new file. A local one must not exist, and is visible while it grows: use a temporary name."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing one; not for remote folders."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""


def open_folder(path: str) -> Folder:
    """Return the folder at a path or URI, whether it exists or not.

    :raises NotAStore: Arrow has no file system for the URI.
    :raises Unreachable: the remote file system does not answer.
    """
    path = local_path(path)
    if not is_remote(path):
        return LocalFolder(path)
    from rmqinspect.system.remote_folder import RemoteFolder  # imports Arrow

    return RemoteFolder(path)


class LocalFolder:
    """A local folder."""

    is_remote = False

    def __init__(self, path: str) -> None:
        self.path = path

    def exists(self) -> bool:
        """Whether the path exists."""
        return os.path.lexists(self.path)

    def names(self) -> list[str]:
        """Return the names of all files below, sorted; links to folders count as files and are not followed."""
        found: list[str] = []
        with as_refusal(self.path, "listed"):
            for folder, folders, names in os.walk(self.path, onerror=_raise_unless_gone):
                links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
                found += (os.path.relpath(os.path.join(folder, name), self.path) for name in [*names, *links])
        return sorted(name.replace(os.sep, "/") for name in found)

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        path = self._path(name)
        with as_refusal(path, "read"), open(path, "rb") as file:
            return file.read()

    def write(self, name: str, raw: bytes) -> None:
        """Write a file under a temporary name, sync it, rename it."""
        folder, _, last = name.rpartition("/")
        hidden = f".{last}.{secrets.token_hex(4)}.part"
        temporary = f"{folder}/{hidden}" if folder else hidden
        with self.create(temporary) as file:
            file.write(raw)
        try:
            self.rename(temporary, name)
        except Refused:
            self.delete(temporary)
            raise

    def create(self, name: str) -> NewFile:
        """Begin a file that does not exist yet."""
        path = self._path(name)
        with as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            return _LocalFile(path, os.fdopen(descriptor, "wb"))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        path = self._path(new)
        with as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(self._path(old), path)

    def delete(self, name: str) -> None:
        """Delete a file."""
        path = self._path(name)
        with as_refusal(path, "deleted"), suppress(FileNotFoundError):
            os.unlink(path)

    def _path(self, name: str) -> str:
        return os.path.join(self.path, *name.split("/"))


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class _LocalFile(NewFile):
    def __init__(self, path: str, stream: BinaryIO) -> None:
        super().__init__(path)
        self._stream = stream

    def _write(self, view: memoryview) -> None:
        with as_refusal(self.name, "written"):
            self._stream.write(view)

    def _close(self) -> None:
        try:
            with as_refusal(self.name, "written"):
                self._stream.flush()
                os.fsync(self._stream.fileno())
                self._stream.close()
        except Refused:
            self._abandon()
            raise

    def _abandon(self) -> None:
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            os.unlink(self.name)

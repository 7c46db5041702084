"""A folder for many output files: a local one, or a prefix of an object store.

Names are relative, with "/" between folders (`messages/topic=a/x.parquet`); folders are made as
needed. The two kinds differ in how a file appears whole. A local file is written under a temporary
name and renamed. An object store has no rename: an object appears when its upload is completed,
and never if the upload is abandoned or the process ends before.

Remote ones are written through pyarrow.fs.
"""

import ctypes
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from rmqinspect.errors import Refused
from rmqinspect.system import workers as stopping
from rmqinspect.system.filesystem import exists, files_below
from rmqinspect.system.output_file import NewFile, as_refusal
from rmqinspect.system.remote import Location, open_remote, read, result_of, start
from rmqinspect.system.uri import is_remote, join, local_path, shown


class LocalFolder:
    """A local folder.

    Every method, here and of `RemoteFolder`, raises Refused on errors of the file system (no space, no permission, no
    such file), and Unreachable when a remote file system does not answer.
    """

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
        """Return a whole (small) file."""
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
        """Begin a file that does not exist yet; it is visible while it grows: use a temporary name."""
        path = self._path(name)
        with as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            return _LocalFile(path, os.fdopen(descriptor, "wb"))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing one."""
        path = self._path(new)
        with as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(self._path(old), path)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
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


_BUFFER = 4 << 20  # bytes per write: Parquet writes many small blocks


class RemoteFolder:
    """A prefix of an object store, or a folder of a remote file system."""

    is_remote = True

    def __init__(self, path: str) -> None:
        self.path = path
        open_remote(path)  # fails early for a malformed URI

    def exists(self) -> bool:
        """Whether there is any object at or below the prefix."""
        return exists(self.path)

    def names(self) -> list[str]:
        """Return the names of all objects below, sorted."""
        if not self.exists():
            return []
        with as_refusal(self.path, "listed"):
            tree = files_below(self.path)
            folders, found = [("", self.path)], []
            while folders:
                shown_as, folder = folders.pop()
                for entry in tree.scandir(folder):
                    if entry.is_dir():
                        folders.append((f"{shown_as}{entry.name}/", entry.path))
                    else:
                        found.append(shown_as + entry.name)
        return sorted(found)

    def read(self, name: str) -> bytes:
        """Return a whole object."""
        path = join(self.path, name)
        with as_refusal(path, "read"):
            return read(path)

    def write(self, name: str, raw: bytes) -> None:
        """Write an object; it replaces an existing one when complete."""
        with self.create(name) as file:
            file.write(raw)

    def create(self, name: str) -> NewFile:
        """Begin an object; an existing one stays until this one is closed."""
        path = join(self.path, name)
        with as_refusal(path, "written"):
            return _RemoteFile(path, open_remote(path))

    def rename(self, old: str, new: str) -> None:
        """Refuse: object stores can only copy and delete, which is not atomic.

        :raises Refused: always.
        """
        raise Refused(f"{shown(self.path)}: {old} cannot be renamed: an object store has no rename")

    def delete(self, name: str) -> None:
        """Delete an object."""
        path = join(self.path, name)
        filesystem, inner = open_remote(path)
        with as_refusal(path, "deleted"), suppress(FileNotFoundError):
            result_of(start(filesystem.delete_file, inner), path)


# File systems with real folders: folders must be made, and a growing file is visible, so it is renamed at the end.
WITH_FOLDERS = ("hdfs",)


class _RemoteFile(NewFile):
    """An upload in progress.

    Arrow's stream completes the upload when it is destroyed (ObjectOutputStream's destructor) and
    cannot abort it. To abandon an upload, the stream must therefore outlive the process: it holds
    one extra reference. The parts already uploaded stay invisible until the bucket's lifecycle rule
    for incomplete uploads removes them.
    """

    def __init__(self, uri: str, location: Location) -> None:
        super().__init__(shown(uri))
        self._uri = uri
        self._filesystem, self._path = location
        self._temporary = self._path
        if self._filesystem.type_name in WITH_FOLDERS:
            folder, _, last = self._path.rpartition("/")
            self._temporary = f"{folder}/.{last}.{secrets.token_hex(4)}.part"
            self._ask(self._filesystem.create_dir, folder)
        self._stream: Any = self._ask(_open_immortal, self._filesystem, self._temporary)
        self._buffer = bytearray()

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # No timeout: closing waits for all parts that Arrow still uploads in the background.
        return result_of(start(function, *arguments), self._uri, self._position, None)

    def _write(self, view: memoryview) -> None:
        self._buffer += view
        if len(self._buffer) >= _BUFFER:
            self._flush_buffer()

    def _flush_buffer(self) -> None:
        raw, self._buffer = self._buffer, bytearray()
        with as_refusal(self.name, "written"):
            self._ask(self._stream.write, raw)

    def _close(self) -> None:
        if self._buffer:
            self._flush_buffer()
        with as_refusal(self.name, "written"):
            self._ask(self._stream.close)
            if self._temporary != self._path:
                self._ask(self._filesystem.move, self._temporary, self._path)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._stream))

    def _abandon(self) -> None:
        self._buffer.clear()
        if self._temporary != self._path:
            with stopping.stopped_by(None), suppress(OSError):
                self._ask(self._stream.close)
                self._ask(self._filesystem.delete_file, self._temporary)


def _open_immortal(filesystem: Any, path: str) -> Any:
    stream = filesystem.open_output_stream(path)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
    return stream


Folder = LocalFolder | RemoteFolder


def open_folder(path: str) -> Folder:
    """Return the folder at a path or URI, whether it exists or not.

    :raises NotAStore: Arrow has no file system for the URI.
    :raises Unreachable: the remote file system does not answer.
    """
    path = local_path(path)
    return RemoteFolder(path) if is_remote(path) else LocalFolder(path)

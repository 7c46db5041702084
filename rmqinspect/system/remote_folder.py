"""A folder for output files on a remote file system, through pyarrow.fs."""

import ctypes
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rmqinspect.errors import Refused
from rmqinspect.system import throttle as stopping
from rmqinspect.system.filesystem import exists, files_below
from rmqinspect.system.output_file import NewFile, as_refusal
from rmqinspect.system.remote import Location, open_remote, read, result_of, start
from rmqinspect.system.uri import join, shown

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

"""A folder to write many files into: on this machine, or a prefix of an object store.

Names are relative, with "/" between folders (`messages/topic=a/x.parquet`); folders come into being with
their files. What differs is how a file becomes visible whole. Locally it is written under another name,
which `rename` changes at the end. An object store has no rename: an object appears when it is closed, and
not at all when it is abandoned or its process ends before.
"""

import ctypes
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self

from rmqinspect.errors import Refused
from rmqinspect.system.filesystem import exists, files_below
from rmqinspect.system.uri import is_remote, join, local_path, shown

if TYPE_CHECKING:
    from rmqinspect.system.remote import Location

_BUFFER = 4 << 20  # bytes handed on at a time: Parquet writes many small pieces


class NewFile:
    """A new file that is being written; a block that ends in an exception abandons it.

    What Arrow's writers ask of a stream is there: `write`, `tell`, `flush`, `closed`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, raw: bytes | memoryview) -> int:
        """Write all of `octets`; what comes after `abandon` is lost without a word.

        :raises Refused: there is no room or no permission, or the medium fails.
        :raises Unreachable: the remote side does not answer.
        """
        view = memoryview(raw).cast("B")
        if not self.closed:
            self._write(view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def flush(self) -> None:
        """Do nothing: what is written counts when the file is closed."""

    def close(self) -> None:
        """Make the file whole; once is enough.

        :raises Refused: there is no room or no permission, or the medium fails.
        :raises Unreachable: the remote side does not answer.
        """
        if not self.closed:
            self.closed = True
            self._close()

    def abandon(self) -> None:
        """Leave nothing of the file."""
        if not self.closed:
            self.closed = True
            self._abandon()

    def _write(self, view: memoryview) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        raise NotImplementedError


class Folder(Protocol):
    """Where files are written to and read back from; `open_folder` gives one.

    Every method raises Refused where there is no room, no permission or no such file, and Unreachable where
    the remote side does not answer.
    """

    path: str  # for joining: a path, or a URI with its options
    is_remote: bool  # no rename; an object appears when it is closed

    def exists(self) -> bool:
        """Whether it is there: a remote folder is, as soon as there is an object in it."""

    def names(self) -> list[str]:
        """Return the names of all files in it and below it, sorted; none if there is no such folder."""

    def read(self, name: str) -> bytes:
        """Return a whole (small) file."""

    def write(self, name: str, raw: bytes) -> None:
        """Write or replace a (small) file, whole or not at all."""

    def create(self, name: str) -> NewFile:
        """Begin a new file. Locally it must not be there yet, and is seen while it grows: give it another name."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, in place of another one if there is one; not for remote folders."""

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone is as good."""


def open_folder(path: str) -> Folder:
    """Return the folder at a path or URI, whether it is there or not.

    :raises NotAStore: a URI of no file system that Arrow has.
    :raises Unreachable: the remote side does not answer.
    """
    path = local_path(path)
    return RemoteFolder(path) if is_remote(path) else LocalFolder(path)


@contextmanager
def _as_refusal(path: str, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(f"{shown(path)}: cannot be {verb}: {error.strerror}") from error


# --- on this machine --------------------------------------------------------------------------------


class LocalFolder:
    """A folder of this machine."""

    is_remote = False

    def __init__(self, path: str) -> None:
        self.path = path

    def exists(self) -> bool:
        """Whether anything has its name."""
        return os.path.lexists(self.path)

    def names(self) -> list[str]:
        """Return the names of all files below, sorted; a link to a folder is one, and not followed."""
        found: list[str] = []
        with _as_refusal(self.path, "listed"):
            for folder, folders, names in os.walk(self.path, onerror=_raise_unless_gone):
                links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
                found += (os.path.relpath(os.path.join(folder, name), self.path) for name in [*names, *links])
        return sorted(name.replace(os.sep, "/") for name in found)

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        path = self._path(name)
        with _as_refusal(path, "read"), open(path, "rb") as file:
            return file.read()

    def write(self, name: str, raw: bytes) -> None:
        """Write a file under another name, make it last, rename it."""
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
        """Begin a file that is not there yet."""
        path = self._path(name)
        with _as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            return _LocalFile(path, os.fdopen(descriptor, "wb"))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        path = self._path(new)
        with _as_refusal(path, "written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(self._path(old), path)

    def delete(self, name: str) -> None:
        """Delete a file."""
        path = self._path(name)
        with _as_refusal(path, "deleted"), suppress(FileNotFoundError):
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
        with _as_refusal(self.name, "written"):
            self._stream.write(view)

    def _close(self) -> None:
        try:
            with _as_refusal(self.name, "written"):
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


# --- elsewhere ------------------------------------------------------------------------------------


class RemoteFolder:
    """A prefix of an object store, or a folder of a remote file system."""

    is_remote = True

    def __init__(self, path: str) -> None:
        from rmqinspect.system.remote import open_remote

        self.path = path
        open_remote(path)  # a wrong URI is told at once

    def exists(self) -> bool:
        """Whether any object lies there or below."""
        return exists(self.path)

    def names(self) -> list[str]:
        """Return the names of all objects below, sorted."""
        if not self.exists():
            return []
        with _as_refusal(self.path, "listed"):
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
        from rmqinspect.system.remote import read

        path = join(self.path, name)
        with _as_refusal(path, "read"):
            return read(path)

    def write(self, name: str, raw: bytes) -> None:
        """Write an object, which replaces another one when it is whole."""
        with self.create(name) as file:
            file.write(raw)

    def create(self, name: str) -> NewFile:
        """Begin an object; one of the same name stays until this one is closed."""
        from rmqinspect.system.remote import open_remote

        path = join(self.path, name)
        with _as_refusal(path, "written"):
            return _RemoteFile(path, open_remote(path))

    def rename(self, old: str, new: str) -> None:
        """Refuse: object stores copy and delete instead, and nobody would see that as one step.

        :raises Refused: always.
        """
        raise Refused(f"{shown(self.path)}: {old} cannot be renamed: an object store has no rename")

    def delete(self, name: str) -> None:
        """Delete an object."""
        from rmqinspect.system.remote import open_remote, result_of, start

        path = join(self.path, name)
        filesystem, inner = open_remote(path)
        with _as_refusal(path, "deleted"), suppress(FileNotFoundError):
            result_of(start(filesystem.delete_file, inner), path)


# Folders of these are real: they must be made, and a file is seen while it grows. It gets its name at the end.
WITH_FOLDERS = ("hdfs",)


class _RemoteFile(NewFile):
    """An object under way.

    Arrow's stream completes the upload when nothing refers to it any more (ObjectOutputStream's destructor),
    and has no way to abort it. So a stream that is not to be completed must never be destroyed: it is given
    one reference too many. What was uploaded of it is invisible, and goes with the bucket's rule for uploads
    that were not completed.
    """

    def __init__(self, uri: str, location: "Location") -> None:
        super().__init__(shown(uri))
        self._uri = uri
        self._filesystem, self._path = location
        self._growing = self._path
        if self._filesystem.type_name in WITH_FOLDERS:
            folder, _, last = self._path.rpartition("/")
            self._growing = f"{folder}/.{last}.{secrets.token_hex(4)}.part"
            self._ask(self._filesystem.create_dir, folder)
        self._stream: Any = self._ask(_open_for_ever, self._filesystem, self._growing)
        self._waiting = bytearray()

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from rmqinspect.system.remote import result_of, start

        # An upload goes on behind the scenes: its last part may have to wait for all the others.
        return result_of(start(function, *arguments), self._uri, self._position, None)

    def _write(self, view: memoryview) -> None:
        self._waiting += view
        if len(self._waiting) >= _BUFFER:
            self._hand_on()

    def _hand_on(self) -> None:
        raw, self._waiting = self._waiting, bytearray()
        with _as_refusal(self.name, "written"):
            self._ask(self._stream.write, raw)

    def _close(self) -> None:
        if self._waiting:
            self._hand_on()
        with _as_refusal(self.name, "written"):
            self._ask(self._stream.close)
            if self._growing != self._path:
                self._ask(self._filesystem.move, self._growing, self._path)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._stream))

    def _abandon(self) -> None:
        self._waiting.clear()
        if self._growing != self._path:
            with suppress(OSError):
                self._ask(self._stream.close)
                self._ask(self._filesystem.delete_file, self._growing)


def _open_for_ever(filesystem: Any, path: str) -> Any:
    stream = filesystem.open_output_stream(path)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
    return stream

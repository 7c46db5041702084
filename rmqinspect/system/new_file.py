"""A new file under construction, local or remote, and errors of writing as refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rmqinspect.errors import Refused
from rmqinspect.system.uri import shown


@contextmanager
def as_refusal(path: str, verb: str = "written") -> Iterator[None]:
    """Turn an OSError in the block into `Refused`: "PATH: cannot be VERB: reason".

    :raises BrokenPipeError: as it is; the reader of a pipe has gone away.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(f"{shown(path)}: cannot be {verb}: {error.strerror}") from error


class NewFile:
    """A file being written; as a context manager it is abandoned on an exception.

    Has what Arrow's writers expect of a stream: `write`, `tell`, `flush`, `closed`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self.is_file = True
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
        """Write all of `raw`; after `abandon`, silently discard it.

        :raises Refused: no space, no permission, or an I/O error.
        :raises Unreachable: the remote file system does not answer.
        """
        view = memoryview(raw).cast("B")
        if not self.closed:
            self._write(view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def flush(self) -> None:
        """Do nothing: a file is complete only when closed."""

    def close(self) -> None:
        """Complete the file; further calls do nothing.

        :raises Refused: no space, no permission, or an I/O error.
        :raises Unreachable: the remote file system does not answer.
        """
        if not self.closed:
            self.closed = True
            self._close()

    def abandon(self) -> None:
        """Remove the file."""
        if not self.closed:
            self.closed = True
            self._abandon()

    def _write(self, view: memoryview) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        raise NotImplementedError

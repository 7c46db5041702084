"""Store timestamps of single records, for tables that show a few of them."""

from types import TracebackType
from typing import Self

from rmqinspect.codec.record_proof import LONGEST_HEAD, read_head
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file


class StoreTimes:
    """Reads the store timestamp of single records; keeps a few segments open."""

    _OPEN = 32  # segments: a group's offsets lie in few, and 1,024 open files are a common limit

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: dict[Segment, FileReader] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def at(self, physical_offset: int, size: int) -> int | None:
        """Return the store timestamp (ms) of the record of this size at an offset.

        None where no such record begins, or where it cannot be read.
        """
        segment = self._store.segment_at(physical_offset)
        if segment is None:
            return None
        try:
            if segment not in self._readers:
                if len(self._readers) >= self._OPEN:
                    self._close()
                self._readers[segment] = open_file(segment)
            head = read_head(self._readers[segment].read(physical_offset - segment.base, LONGEST_HEAD))
        except Unreadable:
            return None
        return head.store_timestamp if head is not None and head.size == size else None

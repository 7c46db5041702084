"""When a record was stored, read from the record itself: for the few that a table asks about."""

from types import TracebackType
from typing import Self

from rmqinspect.codec.layout import parse
from rmqinspect.errors import BadRecord, Unreadable
from rmqinspect.schemas.message import HEADS, MAGIC_V1, MAGIC_V2, SysFlag
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file


class StoreTimes:
    """Reads the store timestamp out of single records; keeps a few segments open."""

    _OPEN = 32  # a group's offsets lie in few segments; the limit of open files is often 1024

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
        """Return the store timestamp (ms) of the record there.

        None when no record with this size begins there, or when it cannot be read.
        """
        segment = self._store.segment_at(physical_offset)
        if segment is None:
            return None
        try:
            if segment not in self._readers:
                if len(self._readers) >= self._OPEN:
                    self._close()
                self._readers[segment] = open_file(segment)
            longest = HEADS[True, True].sizeof()
            raw = self._readers[segment].read(physical_offset - segment.base, longest)
            head = parse(HEADS[False, False], raw, lambda: f"record at {physical_offset}")
            if head.magic not in (MAGIC_V1, MAGIC_V2) or head.total_size != size:
                return None
            flags = SysFlag.BORNHOST_V6, SysFlag.STOREHOSTADDRESS_V6
            born_v6, store_v6 = (bool(head.sys_flag & flag) for flag in flags)
            head = parse(HEADS[born_v6, store_v6], raw, lambda: f"record at {physical_offset}")
        except (BadRecord, Unreadable):
            return None
        return int(head.store_timestamp)

"""Spans of the log, and small looks into it: what the record at a place says, where it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rmqinspect.codec.fields import ParsedFields, walk_fields
from rmqinspect.codec.record_proof import LONGEST_HEAD, blank_size, read_head
from rmqinspect.commitlog.find_record import Identity, RecordFinder
from rmqinspect.errors import Unreadable
from rmqinspect.index.lookup import Span
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

# Spans nearer than this are read as one: entering a span costs as much.
NEAR = 512 << 10
_PAGE = 2048
_BLANK_SIZE = message.Blank.sizeof()


@dataclass(frozen=True, slots=True)
class Way:
    """How one filter finds its records: the spans of the log that may hold them, and what to say of it."""

    name: str
    spans: list[Span]
    searched: str
    beside: Sequence[Span] = ()  # to be read as well, for records that should not be there
    told: str = ""  # the way in more words: how many pointers there are, and what no pointer could be trusted for


def whole_log(store: Store) -> Span:
    """Return the span from the first byte of the log to its last; (0, 0) without segments."""
    ends = [segment.end for segment in store.segments]
    return store.log_start, max(ends, default=0)


def place_span(store: Store, place: int) -> Span:
    """Return the span to read for the record at a place: a DLedger record begins with its entry head."""
    segment = store.segment_at(place)
    return place - (segment.lead if segment is not None else 0), place + 1


class Log:
    """Looks at single records of a store's log; keeps the segment of the last look open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._reader: FileReader | None = None
        self._finder: RecordFinder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._finder = None

    def identity_at(self, offset: int) -> Identity | None:
        """Return what the record at an offset says about its queue; None where no record proves itself."""
        try:
            finder = self._finder_at(offset)
            return finder.identity_at(offset) if finder is not None else None
        except Unreadable:
            return None

    def record_at(self, offset: int) -> ParsedFields | None:
        """Return the fields of the record at an offset; None where no record proves itself."""
        try:
            finder = self._finder_at(offset)
            frame = None if finder is None else finder.frame_at(offset)
            if finder is None or frame is None:
                return None
            content = finder.read(offset - finder.base, frame.end - frame.start)
        except Unreadable:
            return None
        return walk_fields(message.Message.subcons, content, offset)

    def body_at(self, offset: int) -> tuple[int, int] | None:
        """Return (size, stored CRC) of the body of the record at an offset; None where no record proves itself."""
        try:
            finder = self._finder_at(offset)
            frame = None if finder is None else finder.frame_at(offset)
        except Unreadable:
            return None
        return None if frame is None else (frame.head.body_end - frame.head.body_start, frame.head.body_crc)

    def follows(self, offset: int, after: int) -> bool:
        """Whether the record at an offset, as long as it says, ends where that at `after` begins.

        Between the last record of a segment and the next segment is a blank record.
        """
        try:
            finder = self._finder_at(offset)
            head = None if finder is None else read_head(finder.read(offset - finder.base, LONGEST_HEAD))
            if head is None or finder is None or head.own_offset != offset:
                return False
            end = offset + head.size
            if finder.end + finder.lead == after:
                blank = blank_size(finder.read(end - finder.base, _BLANK_SIZE), in_dledger=bool(finder.lead))
                return blank == finder.end - end or end == finder.end
        except Unreadable:
            return False
        return end + finder.lead == after

    def next_record(self, offset: int, limit: int) -> Span | None:
        """Return (place, store time in ms) of the first record at or behind an offset, before `limit`; None without.

        Looks into one segment only, and not far.
        """
        try:
            finder = self._finder_at(offset)
            if finder is None:
                return None
            frame = finder.frame_at(offset + finder.lead)
            if frame is None:
                frame = finder.next_frame(max(offset, self.next_data(offset)), limit)
        except Unreadable:
            return None
        if frame is None or frame.start >= limit:
            return None
        return frame.start - finder.lead, frame.head.store_timestamp

    def next_data(self, offset: int) -> int:
        """Return the first offset from one on that is not in a hole of its file, else the end of the segment.

        :raises Unreadable: the segment cannot be opened.
        """
        finder = self._finder_at(offset)
        if finder is None or self._reader is None:
            return offset
        return finder.base + self._reader.next_allocated(offset - finder.base)

    def _finder_at(self, offset: int) -> RecordFinder | None:
        segment = self.store.segment_at(offset)
        if segment is None:
            return None
        if self._finder is None or self._finder.segment is not segment:
            self._finder = self._open(segment)
        return self._finder

    def _open(self, segment: Segment) -> RecordFinder:
        self._close()
        self._reader = open_file(segment)
        return RecordFinder(segment, self._reader.size, _paged(self._reader))


def _paged(reader: FileReader) -> Callable[[int, int], bytes]:
    """Return a way to read a file that keeps the last page: the fields of one record lie close together."""
    start, page = 0, b""

    def read(position: int, size: int) -> bytes:
        nonlocal start, page
        if size > _PAGE:
            return reader.read(position, size)
        if not start <= position <= position + size <= start + len(page):
            start, page = position, reader.read(position, _PAGE)
        return page[position - start : position - start + size]

    return read

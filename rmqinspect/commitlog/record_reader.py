"""Single records of a store's log, at offsets that something names: an id, a unit, an index entry, a finding.

What is known of a record is read in steps of growing cost, and each proves itself (`codec.record_proof`):

    head       sizes, own place, body CRC, store time           `body_at`, `timestamp_of`, `follows`
    identity   which message of which queue it says it is       `identity_at`
    fields     all of it, field by field                        `fields_at`; undivided, `content_at`
    spot       what an offset belongs to, a record or not       `locate`

`RecordReader` keeps segments open, and of each the last page: the fields of one record lie close together, so who asks
for its head and then for its fields reads it once. What every record of a range says is the scan's (`scan`), what many
known places say is `records_at`'s.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from msgspec import Struct

from rmqinspect.codec.layout import ParsedFields, walk_fields
from rmqinspect.codec.record_proof import LONGEST_HEAD, blank_size, read_head
from rmqinspect.commitlog.find_record import SEARCH, WINDOWS, Frame, Identity, RecordFinder
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.errors import NothingFound, RecordLost, Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import describe_offset, describe_span

_OPEN = 32  # segments: what is asked for together lies in few, and 1,024 open files are a common limit
_PAGE = 2048  # bytes: the head of a record, and nearly always what stands behind its body
_BLANK_SIZE = message.Blank.sizeof()
_FRONT_SIZE = sum(field.sizeof() for field in message.FRONT)
_ZERO_PAGE = 4096  # bytes that are zeros where the log ends, or a gap begins

_Answer = TypeVar("_Answer")

# (kind, start, end) of what begins at an offset; `end` is None where it does not prove itself.
Beginning = tuple[str, int, int | None]


class Spot(Struct, frozen=True):
    """What an offset lies in. `start` and `end` are physical offsets; `end` is None if unknown."""

    kind: str  # record, blank, entry (DLedger, without a record), zeros, unknown
    segment: Segment
    start: int
    end: int | None
    previous: Frame | None  # the record that ends where this begins, if one was seen
    entry: int | None = None  # where the DLedger entry head of the record lies


def find_segment(store: Store, offset: int) -> Segment:
    """Return the segment that holds the byte at a physical offset.

    :raises NothingFound: no segment does; the message names the range of the log.
    :raises RecordLost: one is missing, or cut off.
    :raises Unreadable: none does that could be read.
    """
    if (segment := store.segment_at(offset)) is not None:
        return segment
    for oddity in store.oddities:
        if oddity.is_unread and oddity.place[:1] == ("commitlog",):
            raise Unreadable(f"{oddity.name}: not read: {oddity.detail}")
    if not store.segments:
        raise NothingFound(f"{store.name}: no commit log given, so nothing is at {describe_offset(offset)}")
    first, last = store.segments[0], store.segments[-1]
    where = f"{store.name}: physical offset {describe_offset(offset)}"
    covered = f"{describe_offset(first.base)} to {describe_offset(last.end)}"
    if offset < first.base:
        raise NothingFound(f"{where} lies before the log, which covers {covered}: gone, or not given")
    if (gap := next((one for one in missing_in(store) if one.start <= offset < one.end), None)) is not None:
        what = "a segment is missing" if gap.reason is None else "a segment is cut off"
        raise RecordLost(f"{where} lies where {what}: {describe_span(gap.start, gap.end)}")
    if offset >= last.end:
        raise NothingFound(f"{where} lies beyond the log, which covers {covered}")
    raise RecordLost(f"{where} lies in no segment: one is missing or short in {covered}")


class RecordReader:
    """Reads single records of one store. Offsets are physical.

    Of a record in a file that cannot be read nothing is known, as of one that is not there: both are None.
    """

    def __init__(self, store: Store, on_unreadable: Callable[[str], None] | None = None) -> None:
        """`on_unreadable` gets a message for each segment that could not be read."""
        self.store = store
        self._on_unreadable = on_unreadable
        self._unread: set[str] = set()  # paths of segments
        self._opened: dict[str, OpenSegment] = {}  # by path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for opened in self._opened.values():
            opened.file.close()
        self._opened.clear()

    def opened(self, segment: Segment) -> "OpenSegment":
        """Return a segment, opened; it is closed with the reader, or when too many others were opened.

        :raises Unreadable: it cannot be opened.
        """
        if segment.path not in self._opened:
            if len(self._opened) >= _OPEN:
                self._close()
            self._opened[segment.path] = OpenSegment(segment)
        return self._opened[segment.path]

    def _ask(self, offset: int, ask: "Callable[[OpenSegment], _Answer | None]") -> _Answer | None:
        """Return what the segment that holds an offset answers; None without one, or where it cannot be read."""
        segment = self.store.segment_at(offset)
        if segment is None:
            return None
        try:
            return ask(self.opened(segment))
        except Unreadable as error:
            if segment.path not in self._unread and self._on_unreadable is not None:
                self._on_unreadable(str(error))
            self._unread.add(segment.path)
            return None

    # --- a record that begins at an offset --------------------------------------------------------

    def timestamp_of(self, offset: int, size: int) -> int | None:
        """Return the store time (ms) of the record of this size at an offset; None where no such record begins."""
        head = self._ask(offset, lambda segment: read_head(segment.read_at(offset, LONGEST_HEAD)))
        return head.store_timestamp if head is not None and head.size == size else None

    def body_at(self, offset: int) -> tuple[int, int] | None:
        """Return (size, stored CRC) of the body of the record at an offset; None where no record proves itself."""
        frame = self._ask(offset, lambda segment: segment.frame_at(offset))
        return None if frame is None else (frame.head.body_end - frame.head.body_start, frame.head.body_crc)

    def identity_at(self, offset: int) -> Identity | None:
        """Return what the record at an offset says about its queue; None where no record proves itself."""
        return self._ask(offset, lambda segment: segment.identity_at(offset))

    def content_at(self, offset: int, *, anywhere: bool = False) -> bytes | None:
        """Return the bytes of the record at an offset; None where no record proves itself.

        `anywhere`: also one whose own offset is another place.
        """

        def read(segment: OpenSegment) -> bytes | None:
            frame = segment.frame_at(offset, anywhere=anywhere)
            return None if frame is None else segment.read_at(offset, frame.head.size)

        return self._ask(offset, read)

    def fields_at(self, offset: int) -> ParsedFields | None:
        """Return the fields of the record at an offset; None where no record proves itself."""
        content = self.content_at(offset)
        return None if content is None else walk_fields(message.Message.subcons, content, offset)

    # --- what lies around an offset ---------------------------------------------------------------

    def follows(self, offset: int, after: int) -> bool:
        """Whether the record at an offset, as long as it says, ends where that at `after` begins.

        Between the last record of a segment and the next segment is a blank record.
        """

        def leads(segment: OpenSegment) -> bool:
            head = read_head(segment.read_at(offset, LONGEST_HEAD))
            if head is None or head.own_offset != offset:
                return False
            end = offset + head.size
            if segment.end + segment.lead != after:
                return end + segment.lead == after
            blank = blank_size(segment.read_at(end, _BLANK_SIZE), in_dledger=bool(segment.lead))
            return blank == segment.end - end or end == segment.end

        return self._ask(offset, leads) or False

    def next_record(self, offset: int, limit: int) -> tuple[int, int] | None:
        """Return (place, store time in ms) of the first record at or behind an offset, before `limit`; None without.

        In a DLedger file the place is that of the entry head. Looks into one segment only, and not far.
        """

        def find(segment: OpenSegment) -> tuple[int, int] | None:
            frame = segment.frame_at(offset + segment.lead)
            if frame is None:
                frame = segment.next_frame(max(offset, segment.next_allocated(offset)), limit)
            if frame is None or frame.start >= limit:
                return None
            return frame.start - segment.lead, frame.head.store_timestamp

        return self._ask(offset, find)

    def next_data(self, offset: int) -> int:
        """Return the first offset from one on that is not in a hole of its file, else the end of the segment.

        :raises Unreadable: the segment cannot be opened.
        """
        segment = self.store.segment_at(offset)
        return offset if segment is None else self.opened(segment).next_allocated(offset)

    def locate(self, offset: int) -> Spot:
        """Return what the byte at a physical offset belongs to.

        A record that begins there proves itself. An offset inside of a record is found by looking back for one that
        reaches over it; damaged bytes begin where the record before them ends.

        :raises NothingFound: the offset lies in no segment.
        :raises Unreadable: an I/O error.
        """
        return self.opened(find_segment(self.store, offset)).locate(offset)


class OpenSegment(RecordFinder):
    """One segment, open, and its last page."""

    def __init__(self, segment: Segment) -> None:
        self.file = open_file(segment)
        self._start, self._page = 0, b""
        super().__init__(segment, self.file.size, self._read)

    def _read(self, position: int, size: int) -> bytes:
        if size > _PAGE:
            return self.file.read(position, size)
        if not self._start <= position <= position + size <= self._start + len(self._page):
            try:
                self._start, self._page = position, self.file.read(position, _PAGE)
            except Unreadable:  # what was asked for may lie before the bad sector
                return self.file.read(position, size)
        return self._page[position - self._start : position - self._start + size]

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset."""
        return self.read(offset - self.base, size)

    def next_allocated(self, offset: int) -> int:
        """Return the first offset from one on that is not in a hole of the file."""
        return self.base + self.file.next_allocated(offset - self.base)

    def is_zero_at(self, offset: int) -> bool:
        """Whether a page of zeros begins at an offset."""
        return not any(self.read_at(offset, _ZERO_PAGE))

    # --- what begins at an offset ---------------------------------------------------------------

    def what_begins(self, offset: int) -> Beginning | None:
        """Return what begins exactly at a physical offset, None if nothing known does.

        In a DLedger file the record behind an entry head begins with the head.
        """
        front = self.read_at(offset, _BLANK_SIZE)
        size = blank_size(front, in_dledger=False)
        if size is not None:
            head = walk_fields(message.FRONT, self.read_at(offset, _FRONT_SIZE))
            has_own_place = head.reason is None and head.number("physical_offset") == offset
            if size != self.end - offset and has_own_place:
                return "unknown", offset, None  # a record with the magic of a blank one
            return "blank", offset, offset + size if _BLANK_SIZE <= size <= self.end - offset else None
        if _is_record_magic(front):
            return self._record(offset)
        return self._entry(offset) if self.lead else None

    def _record(self, offset: int) -> Beginning:
        frame = self.frame_at(offset)
        return "record", offset, frame.end if frame is not None else None

    def _entry(self, offset: int) -> Beginning | None:
        left = self.end - offset
        if blank_size(self.read_at(offset, _BLANK_SIZE), in_dledger=True) == left:
            return "blank", offset, self.end
        size = self._entry_size(offset)
        if size is None:
            return None
        record = offset + self.lead
        if _is_record_magic(self.read_at(record, _BLANK_SIZE)):
            return self._record(record)
        return "entry", offset, offset + size if self.lead <= size <= left else None

    def _entry_size(self, offset: int) -> int | None:
        """Return the size of the DLedger entry whose head stands at its own place at an offset."""
        head = walk_fields(dledger.EntryHead.subcons, self.read_at(offset, dledger.EntryHead.sizeof()))
        is_entry = head.reason is None and head.number("magic") in dledger.ENTRY_MAGICS
        return head.number("size") if is_entry and head.number("position") == offset else None

    # --- what an offset lies in -----------------------------------------------------------------

    def locate(self, offset: int) -> Spot:
        """Return what the byte at an offset of this segment belongs to."""
        begins = self.what_begins(offset)
        covering, previous = self._around(offset)
        # What does not prove itself may be bytes inside of a record that does.
        if covering is not None and (begins is None or begins[2] is None):
            return self._spot(("record", covering.start, covering.end))
        return self._spot(begins) if begins is not None else self._damaged_or_zeros(offset, previous)

    def _damaged_or_zeros(self, offset: int, previous: Frame | None) -> Spot:
        """Return what no record reaches over: damage begins where the record before it ends."""
        start = previous.end if previous is not None else self.base
        near = previous is not None or offset - self.base <= SEARCH
        begins = self.what_begins(start) if near and start < offset else None
        if begins is None or offset >= self._claimed_end(begins):
            if self.is_zero_at(offset):
                return Spot("zeros", self.segment, offset, self._zeros_end(offset), previous)
            begins = begins or ("unknown", start if near else offset, None)
        return self._spot(begins)

    def _around(self, offset: int) -> tuple[Frame | None, Frame | None]:
        """Return the outermost record around an offset, and the last one that ends before it."""
        covering = before = None
        for frame in self.frames_before(offset):
            if frame.end > offset:
                # A record may lie in the body of another one; the outer one is the log's.
                covering = frame
            elif before is None:
                before = frame
            if (covering or before) and offset - frame.start > WINDOWS[0]:
                break
            if before is not None and before.end == offset:
                break
        return covering, before

    def _claimed_end(self, begins: Beginning) -> int:
        """Return where something ends by its own size, which may be wrong."""
        kind, start, end = begins
        if end is not None or kind == "entry":
            return end if end is not None else start
        front = walk_fields(message.Blank.subcons, self.read_at(start, _BLANK_SIZE))
        return start + front.number("total_size")

    def _zeros_end(self, offset: int) -> int | None:
        """Return where the zeros end; None when that is not seen in a few reads."""
        chunk = WINDOWS[1]
        for _ in range(SEARCH // chunk):
            offset = self.next_allocated(offset)
            raw = self.read_at(offset, chunk)
            if not raw:
                return self.end
            if any(raw):
                return offset + len(raw) - len(raw.lstrip(b"\0"))
            offset += len(raw)
        return None

    def _spot(self, begins: Beginning) -> Spot:
        kind, start, end = begins
        entry = None
        if kind == "record" and self.lead and start - self.lead >= self.base:
            entry = start - self.lead if self._entry_size(start - self.lead) is not None else None
        if end is None:
            after = self.next_frame(start + 1)
            end = after.start - self.lead if after is not None else None
        border = start if entry is None else entry
        near = next(self.frames_before(border), None)
        return Spot(kind, self.segment, start, end, near if near is not None and near.end == border else None, entry)


def _is_record_magic(front: bytes) -> bool:
    return walk_fields(message.Blank.subcons, front).number("magic") in message.RECORD_MAGICS

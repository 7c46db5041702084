"""What lies at one physical offset: a few small reads, whatever the size of the store.

A record that begins at the offset proves itself. An offset inside of a record is found by looking back
for one that reaches over it; damaged bytes begin where the record before them ends.
"""

from dataclasses import dataclass

from rmqinspect.codec.fields import walk_fields
from rmqinspect.codec.record_proof import blank_size
from rmqinspect.commitlog.find_record import SEARCH, WINDOWS, Frame, RecordFinder
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.text import describe_offset

_BLANK_SIZE = message.Blank.sizeof()
_PAGE = 4096

# (kind, start, end) of what begins at an offset; `end` is None where it does not prove itself.
Beginning = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Spot:
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
        raise NothingFound(f"{where} lies before the log, which covers {covered}: expired, or not given")
    if offset >= last.end:
        raise NothingFound(f"{where} lies beyond the log, which covers {covered}")
    raise NothingFound(f"{where} lies in no segment: one is missing or short in {covered}")


def locate(store: Store, offset: int) -> Spot:
    """Return what the byte at a physical offset belongs to.

    :raises NothingFound: the offset lies in no segment.
    :raises Unreadable: an I/O error.
    """
    segment = find_segment(store, offset)
    with open_file(segment) as reader:
        return _Locator(reader, segment).locate(offset)


def what_begins(reader: FileReader, segment: Segment, offset: int) -> Beginning | None:
    """Return what begins exactly at a physical offset, None if nothing known does.

    In a DLedger file the record behind an entry head begins with the head.

    :raises Unreadable: an I/O error.
    """
    return _Locator(reader, segment).what_begins(offset)


class _Locator:
    """Looks around in one segment. Offsets are physical."""

    def __init__(self, reader: FileReader, segment: Segment) -> None:
        self.reader = reader
        self.segment = segment
        self.base, self.end = segment.base, segment.base + reader.size
        self.finder = RecordFinder(segment, reader.size, reader.read)

    def read(self, offset: int, size: int) -> bytes:
        return self.reader.read(offset - self.base, size)

    # --- what begins at an offset ---------------------------------------------------------------

    def what_begins(self, offset: int) -> Beginning | None:
        front = self.read(offset, _BLANK_SIZE)
        size = blank_size(front, in_dledger=False)
        if size is not None:
            return "blank", offset, offset + size if _BLANK_SIZE <= size <= self.end - offset else None
        if self._is_record_magic(front):
            return self._record(offset)
        return self._entry(offset) if self.segment.lead else None

    def _record(self, offset: int) -> Beginning:
        frame = self.finder.frame_at(offset)
        return "record", offset, frame.end if frame is not None else None

    def _entry(self, offset: int) -> Beginning | None:
        left = self.end - offset
        if blank_size(self.read(offset, _BLANK_SIZE), in_dledger=True) == left:
            return "blank", offset, self.end
        size = self._entry_size(offset)
        if size is None:
            return None
        record = offset + self.segment.lead
        if self._is_record_magic(self.read(record, _BLANK_SIZE)):
            return self._record(record)
        return "entry", offset, offset + size if self.segment.lead <= size <= left else None

    def _is_record_magic(self, front: bytes) -> bool:
        return walk_fields(message.Blank.subcons, front).number("magic") in message.RECORD_MAGICS

    def _entry_size(self, offset: int) -> int | None:
        """Return the size of the DLedger entry whose head stands at its own place at an offset."""
        head = walk_fields(dledger.EntryHead.subcons, self.read(offset, dledger.EntryHead.sizeof()))
        is_entry = head.reason is None and head.number("magic") in dledger.ENTRY_MAGICS
        return head.number("size") if is_entry and head.number("position") == offset else None

    # --- what an offset lies in -----------------------------------------------------------------

    def locate(self, offset: int) -> Spot:
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
            if not any(self.read(offset, _PAGE)):
                return Spot("zeros", self.segment, offset, self._zeros_end(offset), previous)
            begins = begins or ("unknown", start if near else offset, None)
        return self._spot(begins)

    def _around(self, offset: int) -> tuple[Frame | None, Frame | None]:
        """Return the outermost record around an offset, and the last one that ends before it."""
        covering = before = None
        for frame in self.finder.frames_before(offset):
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
        front = walk_fields(message.Blank.subcons, self.read(start, _BLANK_SIZE))
        return start + front.number("total_size")

    def _zeros_end(self, offset: int) -> int | None:
        """Return where the zeros end; None when that is not seen in a few reads."""
        position, chunk = offset - self.base, WINDOWS[1]
        for _ in range(SEARCH // chunk):
            position = self.reader.next_allocated(position)
            raw = self.reader.read(position, chunk)
            if not raw:
                return self.end
            if any(raw):
                return self.base + position + len(raw) - len(raw.lstrip(b"\0"))
            position += len(raw)
        return None

    def _spot(self, begins: Beginning) -> Spot:
        kind, start, end = begins
        entry = self._entry_before(start) if kind == "record" else None
        if end is None:
            after = self.finder.next_frame(start + 1)
            end = after.start - self.segment.lead if after is not None else None
        border = start if entry is None else entry
        near = next(self.finder.frames_before(border), None)
        return Spot(kind, self.segment, start, end, near if near is not None and near.end == border else None, entry)

    def _entry_before(self, record: int) -> int | None:
        """Return where the DLedger entry head in front of a record lies, None if none does."""
        start = record - self.segment.lead
        is_entry = start != record and start >= self.base and self._entry_size(start) is not None
        return start if is_entry else None

"""Finding records without the chain: around an offset, and behind damage.

The chain of records (`scan`) is followed by sizes, so it ends at the first wrong byte. Here a record
is found anywhere, by what it says about itself (`codec.record_proof`):

    ...garbage....|magic·····own offset····|···body···|topic, properties|magic...
                  ^ candidate: the own offset is the place where the magic stands
                  '-- frame:   plausible sizes, and the lengths add up -----'
                  '-- element: a frame whose body has its CRC, or a blank record of the right size

`RecordFinder` finds frames in a few small reads, for commands that ask about one offset.
`ChainFinder` finds elements of the chain, for the scan: where the log goes on behind a gap.

Invariants: the answer for an offset depends on the bytes of the segment alone, not on where a reader
came from, so all splits find the same; what is read before a record has proved itself is bounded, also
for crafted bytes. 64 bits of own offset make an accident impossible; a copy of a record in a body has
another offset, unless somebody crafted it.

A segment on a failing disk: what cannot be read is taken as zeros, and noted.

A scan must account for every byte, also for those that the system refuses to read. Zeros never look
like a record, so they become a gap; `unread` says which gaps are zeros on the disk and which are not.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqinspect.codec.record_proof import (
    BLANKS,
    LONGEST_HEAD,
    LONGEST_TRAILER,
    MAGIC,
    Head,
    blank_size,
    read_head,
    trailer_size,
)
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import message
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader
from rmqinspect.times import END_MILLI

BLOCK = 4096  # bytes given up around a place that cannot be read: disks fail by sectors, systems read by blocks

_CHUNK = 1 << 20  # bytes of a chunk at most


class Unread(NamedTuple):
    """Bytes [start, end) of the log, physical offsets, that the system refused to read."""

    start: int
    end: int
    message: str


class LenientReader:
    """Reads one segment; positions are bytes from the segment's start."""

    def __init__(self, reader: FileReader, segment: Segment) -> None:
        self.segment = segment
        self.base = segment.base
        self.size = reader.size
        self.lead = segment.lead
        self.dark: list[tuple[int, int]] = []  # all that could not be read, in positions, ascending
        self._reader = reader
        self._unread: list[Unread] = []  # the same since the last `take_unread`

    def take_unread(self) -> list[Unread]:
        """Return what could not be read since the last call."""
        taken, self._unread = self._unread, []
        return taken

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from a position, fewer only at the file's end."""
        raw = bytearray(max(0, min(size, self.size - position)))
        self.fill(memoryview(raw), position)
        return bytes(raw)

    def fill(self, view: memoryview, position: int) -> None:
        """Fill `view` from a position on.

        A file that became shorter since it was opened reads as zeros from its new end on.
        """
        try:
            done = self._reader.read_into(view, position)
        except Unreadable:
            at = 0
            while at < len(view):
                size = min(BLOCK - (position + at) % BLOCK, len(view) - at)
                self._fill_block(view[at : at + size], position + at)
                at += size
            return
        if done < len(view):
            view[done:] = bytes(len(view) - done)
            message = f"{self.segment.name}: became shorter while it was read"
            self._note(position + done, position + len(view), message)

    def _fill_block(self, block: memoryview, position: int) -> None:
        try:
            done = self._reader.read_into(block, position)
        except Unreadable as error:
            done = 0
            self._note(position, position + len(block), str(error))
        block[done:] = bytes(len(block) - done)

    def _note(self, start: int, end: int, message: str) -> None:
        """Note a range once, though the walk, the search and the description of a gap all read it."""
        start = max(start, self.dark[-1][1]) if self.dark else start
        if start >= end:
            return
        self.dark.append((start, end))
        last = self._unread[-1] if self._unread else None
        if last is not None and last.end == self.base + start:
            self._unread[-1] = last._replace(end=self.base + end)
        else:
            self._unread.append(Unread(self.base + start, self.base + end, message))

    def chunks(
        self, position: int, limit: int, overlap: int = 0, first_size: int = _CHUNK
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, end, bytes) of the chunks of [position, limit), without holes and chunks of zeros.

        The bytes go on for `overlap` behind the end. Chunks grow from `first_size` to 1 MiB.
        """
        size = first_size
        # A record may begin in the last bytes of a hole: its size begins with zeros.
        while (position := max(position, self._reader.next_allocated(position) - overlap)) < limit:
            stop = min(position + size, limit)
            raw = self.read(position, stop - position + overlap)
            if not bytes(len(raw)).startswith(raw):  # compares eight times as fast as `count` counts
                yield position, stop, raw
            position, size = stop, min(4 * size, _CHUNK)


# A record begins at most this far before any of its bytes: four times the default maxMessageSize.
SEARCH = 16 << 20
# Most records are small: the first window nearly always suffices, the last reaches SEARCH.
WINDOWS = (64 << 10, 1 << 20, SEARCH)
# A crafted body may be nothing but heads with the right offset; each costs a few reads.
_MOST_CANDIDATES = 5000
_MOST_TIMES = 8  # elements that are asked for a time, which may be none in all of them

# Lengths and topic, of the 255 bytes that TopicValidator allows at most (%RETRY% topics, 5.1.0).
_USUAL_TRAILER = 2 + 255 + 2
_FIRST_CHUNK = 16 << 10  # the log nearly always goes on near
_READ = 1 << 20  # bytes at once

_HEAD = message.HEADS[False, False]
_MAGIC_AT, _OFFSET_AT = place_of(_HEAD, "magic"), place_of(_HEAD, "physical_offset")
_BEHIND_MAGIC, _BEHIND_OFFSET = (
    place_of(_HEAD, name) + getattr(_HEAD, name).sizeof() for name in ("magic", "physical_offset")
)

_FRONT_SIZE = _HEAD.sizeof()
_QUEUE_SPANS = tuple(span_of(_HEAD, name) for name in ("queue_id", "queue_offset"))


class Frame(NamedTuple):
    """A record that proves itself: physical offsets, half-open."""

    start: int
    end: int
    head: Head


class Identity(NamedTuple):
    """What a record says about its place: it is message `queue_offset` of a queue."""

    size: int  # bytes
    topic: str
    queue_id: int
    queue_offset: int


class RecordFinder:
    """Finds the records of one segment by their own offsets. Offsets are physical."""

    def __init__(self, segment: Segment, size: int, read: Callable[[int, int], bytes]) -> None:
        """Take a file's size, and `read(position, size)`, which returns fewer bytes only at the file's end."""
        self.segment = segment
        self.base = segment.base
        self.end = segment.base + size
        self.lead = segment.lead
        self.read = read

    def frame_at(self, offset: int, *, anywhere: bool = False) -> Frame | None:
        """Return the record that begins at an offset, None if what stands there does not prove itself.

        `anywhere`: also one whose own offset is another place. Reads the head and what is behind the body.
        """
        position = offset - self.base
        head = read_head(self.read(position, LONGEST_HEAD))
        if head is None or offset + head.size > self.end or (head.own_offset != offset and not anywhere):
            return None
        rest = head.size - head.body_end
        if not 0 < rest <= LONGEST_TRAILER:
            return None
        size = trailer_size(head, self.read(position + head.body_end, min(rest, _USUAL_TRAILER)))
        if size is None and rest > _USUAL_TRAILER:
            size = trailer_size(head, self.read(position + head.body_end, rest))
        return Frame(offset, offset + head.size, head) if size == rest else None

    def identity_at(self, offset: int) -> Identity | None:
        """Return what the record at an offset says about its queue; None if it does not prove itself."""
        frame = self.frame_at(offset)
        if frame is None:
            return None
        fields = self.read(offset - self.base, _FRONT_SIZE)
        trailer = self.read(offset + frame.head.body_end - self.base, _USUAL_TRAILER)
        width = 2 if frame.head.magic == message.MAGIC_V2 else 1
        topic = trailer[width : width + int.from_bytes(trailer[:width], "big")]
        queue_id, queue_offset = (int.from_bytes(fields[span], "big", signed=True) for span in _QUEUE_SPANS)
        return Identity(frame.head.size, topic.decode(errors="replace"), queue_id, queue_offset)

    def frames_before(self, offset: int) -> Iterator[Frame]:
        """Yield the records that begin before an offset, the nearest first.

        Looks back 16 MiB at most. A copy of a record inside of a body is yielded too if it carries
        the offset at which it lies.
        """
        stop, left = offset, _MOST_CANDIDATES
        for span in WINDOWS:
            low = max(self.base, offset - span)
            for start in reversed(self._candidates(low, stop)[-left:]):
                left -= 1
                frame = self.frame_at(start)
                if frame is not None:
                    yield frame
            stop = low
            if low == self.base or left <= 0:
                return

    def next_frame(self, offset: int, limit: int | None = None) -> Frame | None:
        """Return the first record that begins at or behind an offset, before `limit`, within 16 MiB."""
        end = min(offset + SEARCH, self.end if limit is None else limit)
        start, left = offset, _MOST_CANDIDATES
        for span in WINDOWS:
            stop = min(offset + span, end)
            for candidate in self._candidates(start, stop)[:left]:
                left -= 1
                frame = self.frame_at(candidate)
                if frame is not None:
                    return frame
            start = stop
            if stop == end or left <= 0:
                break
        return None

    def _candidates(self, low: int, stop: int) -> list[int]:
        """Return the offsets in [low, stop) where a magic stands with its own offset."""
        raw = self.read(low - self.base, max(0, stop - low) + _BEHIND_OFFSET)
        return [low + at for at in find_in_place(raw, low) if low + at < stop]


class ChainFinder(RecordFinder):
    """Finds where a chain goes on, and tells what wrote it by its time. Offsets are physical."""

    def __init__(self, reader: LenientReader) -> None:
        super().__init__(reader.segment, reader.size, reader.read)
        self._reader = reader

    def find_next(self, start: int, limit: int) -> int:
        """Return where in [start, limit) the next element that proves itself begins; `limit` if none does.

        An element is a record with the DLedger entry head in front of it, if any, or a blank record.
        """
        return next(filter(self._proves_itself, self._elements(start, limit)), limit)

    def _elements(self, start: int, limit: int) -> Iterator[int]:
        """Yield, ascending, the offsets in [start, limit) where an element may begin."""
        chunks = self._reader.chunks(start - self.base, limit - self.base, self.lead + _BEHIND_OFFSET, _FIRST_CHUNK)
        for position, stop, raw in chunks:
            first = self.base + position
            found = [first + at - self.lead for at in find_in_place(raw, first)]
            found += [first + at for at in find_blanks(raw, in_dledger=bool(self.lead))]
            yield from (offset for offset in sorted(found) if first <= offset < self.base + stop)

    def _proves_itself(self, offset: int) -> bool:
        raw = self.read(offset - self.base, message.Blank.sizeof())
        blank = blank_size(raw, in_dledger=bool(self.lead))
        if blank is not None:
            return blank == self.end - offset
        frame = self.frame_at(offset + self.lead)
        return frame is not None and self._body_is_sound(frame)

    def _body_is_sound(self, frame: Frame) -> bool:
        # In parts: before it has proved itself, a record may claim a body as large as the segment.
        first, end = (frame.start - self.base + place for place in (frame.head.body_start, frame.head.body_end))
        crc = 0
        for start in range(first, end, _READ):
            crc = zlib.crc32(self.read(start, min(_READ, end - start)), crc)
        return crc & message.CRC_MASK == frame.head.body_crc

    def timestamps_before(self, offset: int, most: int) -> list[int]:
        """Return the store times (ms) of the last records before an offset that prove themselves, ascending places.

        Of up to `most`, from up to 16 MiB before it; gaps between them are passed over.
        """
        times: list[int] = []
        low, left = max(self.base, offset - SEARCH), _MOST_TIMES
        for stop in range(offset, low, -_READ) if most > 0 else ():
            for start in reversed(list(self._elements(max(low, stop - _READ), stop))):
                if len(times) == most or not left:
                    return times[::-1]
                left -= 1
                frame = self.frame_at(start + self.lead)
                if frame is not None and is_possible_time(frame.head.store_timestamp) and self._body_is_sound(frame):
                    times.append(frame.head.store_timestamp)
        return times[::-1]

    def timestamps_from(self, offset: int, most: int) -> list[int]:
        """Return the store times (ms) of records from an offset on, of up to `most`, as far as 16 MiB behind it.

        They follow each other, or prove themselves behind a gap.
        """
        times: list[int] = []
        limit = min(offset + SEARCH, self.end)
        for _ in range(_MOST_TIMES):
            if len(times) == most or offset >= limit:
                break
            frame = self.frame_at(offset + self.lead, anywhere=True)
            if frame is None:
                offset = self.find_next(offset + 1, limit)
                continue
            if is_possible_time(frame.head.store_timestamp):
                times.append(frame.head.store_timestamp)
            offset = frame.end
        return times


def is_possible_time(store_timestamp: int) -> bool:
    """Whether a time in ms lies between 1970 and the year 9999: one that does not says nothing of the order."""
    return 0 < store_timestamp < END_MILLI


def find_in_place(raw: bytes, physical_offset: int) -> Iterator[int]:
    """Yield, ascending, the positions where a record's magic stands and PHYSICALOFFSET is right.

    `physical_offset` is that of the first byte of `raw`.
    """
    # A regular expression drops most of what is no record: all but the last three bytes of the own
    # offset are the same within 16 MiB. It goes over random bytes at 3 GB/s, faster than a compiled loop
    # over all bytes would, and at once.
    tops = range(physical_offset >> 24, (physical_offset + len(raw) >> 24) + 1)
    offsets = b"|".join(re.escape(top.to_bytes(5, "big")) for top in tops)
    between = b".{%d}" % (_OFFSET_AT - _BEHIND_MAGIC)
    for match in re.finditer(b"(?:%s)(?=%s(?:%s))" % (MAGIC.pattern, between, offsets), raw, re.DOTALL):
        at = match.start() - _MAGIC_AT
        own = raw[at + _OFFSET_AT : at + _BEHIND_OFFSET]
        if at >= 0 and int.from_bytes(own, "big", signed=True) == physical_offset + at:
            yield at


def find_blanks(raw: bytes, *, in_dledger: bool) -> Iterator[int]:
    """Yield, ascending, the positions where a blank record's magic stands in its place."""
    magic, magic_at, _ = BLANKS[in_dledger]
    at = raw.find(magic, magic_at)
    while at != -1:
        yield at - magic_at
        at = raw.find(magic, at + 1)

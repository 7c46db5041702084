"""Behind damage: where the chain goes on, and what lies between.

The search reads with buffers of its own and knows nothing of the chain's window. What proves a
record is the same for a reader of any split: magic, plausible lengths, its own physical offset, a
good body CRC.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqinspect.commitlog.gaps import ZERO_RUN, Gap
from rmqinspect.commitlog.records import SLACK, Records
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader

RECORD_MAGICS = (message.MAGIC_V1, message.MAGIC_V2)
ENTRY_HEAD = dledger.EntryHead.sizeof()
BLANK_SIZE = message.Blank.sizeof()

_CHUNK = 1 << 20  # bytes searched at a time
_FIRST_CHUNK = 16 << 10  # and at first
BLOCK = 4096  # what is given up around bytes that cannot be read


class Unread(NamedTuple):
    """Bytes [start, end) of the log that the system refused to read; the scan took them as zeros."""

    start: int
    end: int
    message: str


class Search:
    """Searches one segment. Positions are bytes from the segment's start.

    `unread` collects what the system refused to read; whoever asks takes it from there.
    """

    def __init__(self, reader: FileReader, segment: Segment) -> None:
        self.reader = reader
        self.base = segment.base
        self.size = reader.size
        # A DLedger segment wraps each record in an entry: the chain runs over the entries.
        self.lead = ENTRY_HEAD if segment.kind == "dledger" else 0
        self.name = segment.name
        self.unread: list[Unread] = []
        self.dark: list[tuple[int, int]] = []  # the same in positions, ascending, never taken

    def find_next(self, position: int, limit: int) -> int:
        """Return where in [position, limit) the next record or blank that proves itself begins.

        `limit` if none does. Source of the test: the physical offset alone is 64 bits of evidence.
        """
        return next(filter(self._proves_itself, self._candidates(position, limit)), limit)

    def _candidates(self, position: int, limit: int) -> Iterator[int]:
        """Yield, ascending, where in [position, limit) a magic says that something could begin."""
        blank = _int32(dledger.ENTRY_MAGIC_BLANK if self.lead else message.MAGIC_BLANK)
        needles = ((message.MAGIC_PREFIX, self.lead + 4), (blank, 0 if self.lead else 4))
        # The next record is nearly always near: of many gaps, each would list all that stands in a chunk.
        for start, stop, raw in self._chunks(position, limit, self.lead + BLANK_SIZE, _FIRST_CHUNK):
            hits = [[start + at - ahead for at in _find_all(raw, needle)] for needle, ahead in needles]
            yield from (place for place in sorted(hits[0] + hits[1]) if start <= place < stop)

    def _chunks(
        self, position: int, limit: int, overlap: int = 0, size: int = _CHUNK
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, end, bytes) of the chunks of [position, limit), holes and zeros left out.

        The bytes go on for `overlap` behind the end. Chunks grow from `size` on. What cannot be read is
        taken as zeros.
        """
        # A record may begin in the last bytes of a hole: its size begins with zeros.
        while (position := max(position, self.reader.next_allocated(position) - overlap)) < limit:
            stop = min(position + size, limit)
            raw = self._read(position, stop - position + overlap)
            if raw.count(0) < len(raw):
                yield position, stop, raw
            position, size = stop, min(4 * size, _CHUNK)

    def _read(self, position: int, size: int) -> bytes:
        raw = bytearray(max(0, min(size, self.size - position)))
        self.fill(memoryview(raw), position)
        return bytes(raw)

    def fill(self, view: memoryview, position: int) -> None:
        """Fill `view` from `position` on; what cannot be read is taken as zeros, and noted.

        A disk fails by sectors and reads by blocks: so little is given up around a bad place. A file
        that became shorter since it was opened ends in such a place.
        """
        try:
            done = self.reader.read_into(view, position)
        except Unreadable:
            at = 0
            while at < len(view):
                size = min(BLOCK - (position + at) % BLOCK, len(view) - at)
                self._fill_block(view[at : at + size], position + at)
                at += size
            return
        if done < len(view):
            view[done:] = bytes(len(view) - done)
            self._note(position + done, position + len(view), f"{self.name}: became shorter while it was read")

    def _fill_block(self, block: memoryview, position: int) -> None:
        try:
            done = self.reader.read_into(block, position)
        except Unreadable as error:
            done = 0
            self._note(position, position + len(block), str(error))
        block[done:] = bytes(len(block) - done)

    def _note(self, start: int, end: int, message: str) -> None:
        """Note a range once, though the walk, the search and the description all come by."""
        start = max(start, self.dark[-1][1]) if self.dark else start
        if start >= end:
            return
        self.dark.append((start, end))
        last = self.unread[-1] if self.unread else None
        if last is not None and last.end == self.base + start:
            self.unread[-1] = last._replace(end=self.base + end)
        else:
            self.unread.append(Unread(self.base + start, self.base + end, message))

    def _proves_itself(self, position: int) -> bool:
        left = self.size - position
        raw = self._read(position, self.lead + BLANK_SIZE)
        if raw[: len(_int32(0))] == _int32(dledger.ENTRY_MAGIC_BLANK) and self.lead:
            return _int32(left) == raw[4:8]
        if raw[4:8] == _int32(message.MAGIC_BLANK) and not self.lead:
            return _int32(left) == raw[:4]
        record = self.read_record(position + self.lead, at_own_place=True)
        return record is not None and bool(record.body_crc_ok[0])

    def read_record(self, position: int, *, at_own_place: bool = False) -> Records | None:
        """Return the whole record (not its entry) at `position` if magic, sizes and lengths are plausible.

        `at_own_place`: its own physical offset must be that place. Asked before the record is read:
        crafted heads cannot make the search read much.
        """
        left = self.size - position
        if left < message.FIXED_SIZE:
            return None
        head = Records(_with_slack(self._read(position, SLACK)), self.base + position, np.zeros(1, np.int64))
        size = int(head.total_size[0])
        # What is neither head nor body has 16-bit lengths: no field of damage sizes a read.
        rest = size - int(head.body_ends[0])
        if head.magic[0] not in RECORD_MAGICS or not message.FIXED_SIZE <= size <= left or not 0 < rest < 1 << 17:
            return None
        if at_own_place and int(head.physical_offset[0]) != head.base:
            return None
        raw = _with_slack(self._read(position, size))
        record = Records(raw, self.base + position, np.zeros(1, np.int64))
        return record if record.lengths_agree[0] else None

    def timestamp_before(self, position: int) -> int | None:
        """Return the store time of the last record before `position` that proves itself."""
        for start in range(max(0, position - _CHUNK), -_CHUNK, -_CHUNK):
            for place in reversed(list(self._candidates(max(0, start), min(start + _CHUNK, position)))):
                record = self.read_record(place + self.lead)
                if record is not None and self._proves_itself(place):
                    return int(record.field("store_timestamp")[0])
        return None

    def describe(self, start: int, end: int, reason: str | None) -> Iterator[Gap]:
        """Yield the gap [start, end) as runs of zeros, of what could not be read, and of the rest."""
        position = start
        for run_start, run_end in self._zero_runs(start, end):
            if position < run_start:
                yield Gap(self.base + position, self.base + run_start, "unknown", reason)
            yield from self._without_dark(run_start, run_end)
            position = run_end
        if position < end:
            yield Gap(self.base + position, self.base + end, "unknown", reason)

    def _without_dark(self, start: int, end: int) -> Iterator[Gap]:
        """Yield a run of zeros, except where the zeros only stand for what could not be read."""
        for dark_start, dark_end in self.dark:
            first, last = max(start, dark_start), min(end, dark_end)
            if first >= last:
                continue
            if start < first:
                yield Gap(self.base + start, self.base + first, "zeros", None)
            yield Gap(self.base + first, self.base + last, "unknown", "unreadable")
            start = last
        if start < end:
            yield Gap(self.base + start, self.base + end, "zeros", None)

    def _zero_runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of zeros in [start, end) that are long, or touch one of its ends."""
        zeros_from = start
        for chunk_start, _, raw in self._chunks(start, end):
            used = np.flatnonzero(np.frombuffer(raw, np.uint8)) + chunk_start
            before = np.concatenate(([zeros_from], used[:-1] + 1))
            if zeros_from == start < used[0]:
                yield start, int(used[0])
            for number in np.flatnonzero(used - before >= ZERO_RUN):
                if before[number] > start:
                    yield int(before[number]), int(used[number])
            zeros_from = int(used[-1]) + 1
        if zeros_from < end:
            yield zeros_from, end


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _with_slack(raw: bytes) -> memoryview:
    return memoryview(raw + bytes(SLACK))


def _find_all(raw: bytes, needle: bytes) -> Iterator[int]:
    at = raw.find(needle)
    while at != -1:
        yield at
        at = raw.find(needle, at + 1)

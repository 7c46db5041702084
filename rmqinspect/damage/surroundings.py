"""The bytes around damage: a few MiB at most, however large the damage is.

               low            start                   end         high
    segment ....|--- 64 KiB ---|========= gap =========|-- a page --|....

All positions are bytes from the beginning of the file, as its pages are.
"""

from dataclasses import dataclass

import numpy as np

from rmqinspect.codec.lazy import lazy
from rmqinspect.commitlog.columns import SLACK
from rmqinspect.commitlog.records import Records
from rmqinspect.damage.patterns import PAGE
from rmqinspect.damage.single_field import MOST_REPAIRED
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

LOOK_AHEAD = MOST_REPAIRED + (64 << 10)  # bytes: the largest record, and a neighbour
_LOOK_BEHIND = 64 << 10

# What is neither head nor body of a record: two lengths, a topic of one byte at least.
_LEAST_TRAILER = 4
_MOST_TRAILER = 1 << 16


@dataclass(frozen=True)
class Surroundings:
    """The bytes around a gap [start, end)."""

    segment: Segment
    size: int  # of the file
    start: int
    end: int
    low: int  # of the first byte that was read
    raw: bytes

    @property
    def high(self) -> int:
        """Where what was read ends."""
        return self.low + len(self.raw)

    @property
    def lead(self) -> int:
        """Bytes of the DLedger entry head in front of each record."""
        return self.segment.lead

    def part(self, start: int, end: int) -> bytes:
        """Return bytes [start, end), as far as they were read."""
        return self.raw[max(0, start - self.low) : max(0, end - self.low)]

    def records(self, positions: list[int]) -> Records:
        """Return what stands at some positions as records; each must leave room for a head."""
        starts = np.array(positions, np.int64) - self.low
        return Records.at(self._with_slack, self.segment.base + self.low, starts)

    @lazy
    def _with_slack(self) -> memoryview:
        return memoryview(self.raw + bytes(SLACK))

    @lazy
    def in_place(self) -> Records | None:
        """The record that begins the gap, if its own offset is right; any other field may be damaged."""
        if self.start + self.lead + message.FIXED_SIZE > self.high:
            return None
        record = self.records([self.start + self.lead])
        return record if int(record.physical_offset[0]) == record.base + int(record.starts[0]) else None

    @lazy
    def head(self) -> Records | None:
        """The same, if its magic is right too and its sizes are plausible."""
        record = self.in_place
        if record is None or record.magic[0] not in message.RECORD_MAGICS or record.body_size[0] < 0:
            return None
        return record if _LEAST_TRAILER <= int(record.ends[0] - record.body_ends[0]) < _MOST_TRAILER else None

    @property
    def beginnings(self) -> list[int]:
        """Where records must begin: at the gap's start, and behind the record whose head is sound."""
        following = [self.low + int(self.head.ends[0])] if self.head is not None else []
        return [place for place in (self.start, *following) if place < min(self.end, self.high)]

    @property
    def topics(self) -> list[int]:
        """Where a topic's length must stand, which is not 0: behind the body of that record."""
        return [self.low + int(self.head.body_ends[0])] if self.head is not None else []


def look_around(segment: Segment, start: int, end: int) -> Surroundings | None:
    """Return the bytes around a gap, by positions in the file; None if they cannot be read."""
    low = max(0, start - start % PAGE - _LOOK_BEHIND)
    try:
        with open_file(segment) as reader:
            raw = reader.read(low, min(end + PAGE, start + LOOK_AHEAD) - low)
            return Surroundings(segment, reader.size, start, end, low, raw)
    except Unreadable:
        return None

"""The scan of a start, fed by another reader of the log: `verify` has read each record already, and reads on.

    verify     split 1          split 2          split 3     judged in any thread, taken in log order
               |rec|rec|rec|    |rec|rec|rec|    |rec|blank|
    scan           take(columns)    take(columns)    take(columns), finish()

It holds for what every release takes: records one behind the other, each sound, from the beginning of the scan to where
the log ends. At the first that is not, what was fed is of no use: the scan is made as if there were no other reader.

Source: CommitLog#recoverNormally, #recoverAbnormally, as `forecast.scan`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.batch import Batch, Columns
from rmqinspect.forecast.scan import Asked, LogScanner, Scan
from rmqinspect.forecast.segment_run import DEPENDS, Run, judge
from rmqinspect.loops.record_rows import Doubt
from rmqinspect.store.model import Segment

_PLAIN = int(Doubt.V2 | Doubt.IPV6)  # by which records are judged for all of a release alike


def doubts_of(records: Records) -> int:
    """Return the doubts of records whose bodies were compared with BODYCRC already, put together."""
    return int(np.bitwise_or.reduce(judge(records, body_crc=False)))


class FedPart(NamedTuple):
    """What a scan must know of the records of a part of the log, besides what it takes of each."""

    begin: int  # physical offset of the first
    last: int  # of the last
    end: int  # behind it
    records: int
    doubts: int
    sound: bool  # each of them is, and begins where the one before it ends

    @classmethod
    def of(cls, found: Dispatched, doubts: int) -> "FedPart":
        """Return that of some records, with their doubts."""
        if not len(found):
            return cls(0, 0, 0, 0, doubts, sound=True)
        begins, ends = found.physical_offset, found.physical_offset + found.size
        sound = bool((begins[1:] == ends[:-1]).all()) and bool(found.sound.all())
        return cls(int(begins[0]), int(begins[-1]), int(ends[-1]), len(found), doubts, sound)


class FedScan(Struct):
    """A scan that several walks wait for, and what it was fed so far."""

    asked: Sequence[Asked]
    _index: int = 0  # of the segment that is read
    _at: int = 0  # position in it, behind the last record
    _last: int = -1  # position of the last record
    _in_segment: int = 0  # records of it
    _records: int = 0
    _met: int = 0  # doubts
    _holds: bool = True
    took: bool = False  # anything

    def __post_init__(self) -> None:
        self._index = self.asked[0].first

    @property
    def begin(self) -> int:
        """Physical offset from which records are wanted."""
        return self._scanner.segments[self.asked[0].first].base

    @property
    def _scanner(self) -> LogScanner:
        return self.asked[0].scanner

    def take(self, segment: Segment, found: Dispatched, doubts: int) -> None:
        """Take the records of the part of the log that follows, in a segment, with their doubts."""
        if not self._follow(segment, FedPart.of(found, doubts)):
            return
        queues = [(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in found.queues]
        segment = self._scanner.segments[self._index]
        batch = Batch(Columns(found), found.queue.astype(np.int64), queues, segment)
        try:
            for asked in self.asked:
                if asked.take is not None:
                    asked.take(batch)
        except Unreadable:  # a queue file: told by the walk of the files, and no reason to end the other reader
            self._holds = False

    def needs_records(self, part: FedPart) -> bool:
        """Whether a walk takes something of the records of a part, so that `take_known` is not enough."""
        return any(asked.take is not None and part.last > asked.takes_behind for asked in self.asked)

    def take_known(self, segment: Segment, part: FedPart) -> None:
        """Take the part of the log that follows, none of whose records a walk needs."""
        self._follow(segment, part)

    def _follow(self, segment: Segment, part: FedPart) -> bool:
        """Go on to the end of a part; return whether it continues what was fed, and is sound."""
        if not self._holds or not part.records or segment.base < self.begin:
            return False
        self.took = True
        segments = self._scanner.segments
        if segment.path != segments[self._index].path:
            self._end_segment()
            self._index, self._at, self._last, self._in_segment = self._index + 1, 0, -1, 0
            self._holds &= self._index < len(segments) and segment.path == segments[self._index].path
            if not self._holds:
                return False
        base = segments[self._index].base
        self._holds = part.begin == base + self._at and part.sound and not part.doubts & ~_PLAIN
        if not self._holds:
            return False
        self._met |= part.doubts
        self._at, self._last = part.end - base, part.last - base
        self._in_segment += part.records
        return True

    def finish(self) -> list[Scan | None]:
        """Return the scans; None for one that has to be made on its own."""
        found: list[Scan | None] = [None for _ in self.asked]
        if self._holds:
            self._end_segment()
        if not self._holds:
            return found
        held = [number for number, asked in enumerate(self.asked) if self._took_all(asked)]
        if held:
            # Each `take` has all records; what is left to find is where and why the scan ends.
            scans = self._scanner.scan_together([self.asked[number]._replace(take=None) for number in held])
            for number, scan in zip(held, scans, strict=True):
                found[number] = scan if scan is not None and scan.records == self._records else None
        return found

    def _took_all(self, asked: Asked) -> bool:
        """Whether the rules of a walk take what was met."""
        return all(
            getattr(asked.rules, name)
            for doubt in (Doubt.V2, Doubt.IPV6)
            if self._met & doubt
            for name in DEPENDS[doubt]
        )

    def _end_segment(self) -> None:
        """Let the scanner know the run of a segment that was read to its end."""
        lead, self._records = self.asked[0], self._records + self._in_segment
        names = (name for doubt in (Doubt.V2, Doubt.IPV6) if self._met & doubt for name in DEPENDS[doubt])
        decided_by: dict[str, object] = dict.fromkeys(names, True)
        found = Run(self._at, decided_by=decided_by, records=self._in_segment, last=self._last)
        self._holds &= self._scanner.know(lead, self._index, found)


def can_be_fed(asked: Asked) -> bool:
    """Whether a scan takes all sound records from the beginning of a segment on, and asks for no property of them."""
    segments, tests = asked.scanner.segments[asked.first :], asked.tests
    odd_tests = tests.property_crc or tests.duplication or tests.offset
    in_order = all(one.base < other.base for one, other in pairwise(segments))
    return (
        asked.position == asked.counted == 0
        and not odd_tests
        and not asked.asks_properties
        and in_order
        and not any(segment.lead for segment in segments)
    )

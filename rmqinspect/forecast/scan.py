"""The scan of the commit log that a start makes: from a position in one segment to the first byte that is no record.

    segment 1        |··|rec|rec|rec|blank··|
    segment 2, 3                            |rec|rec|rec|?????|···|   |rec···|
                        ^ position                      ^ end
    dispatched          |rec|rec|rec|       |rec|rec|rec|                 the segments behind it are deleted

Segments are taken one after the other as the broker has loaded them, whatever their names say. What was found in one
(`forecast.segment_run`) is kept, and most often holds for the rules of other releases, too: the walks of several
releases scan together (`LogScanner.scan_together`), and each byte is read once for all of them.

Source: CommitLog#recoverNormally, #recoverAbnormally; RocketMQ 4.0.0 to 5.5.0.

Dispatch from where the queues end, before the broker serves: it does not trust what it reads, and skips.

    segment   |rec|rec|rec|?????|rec|rec|blank|     the rest of the readable part is skipped, its records get no unit
              ^ begin     ^ no record

The check is that of the scan without the body's CRC. Where the lengths of a record do not add up, the parser goes on
where it stopped, while the counter goes on by TOTALSIZE: from then on both differ, and the skip that ends the segment
overshoots into the next one.

Source: DefaultMessageStore.ReputMessageService#doReput, MappedFileQueue#findMappedFileByOffset, CommitLog#rollNextFile;
RocketMQ 4.5.0 to 5.5.0.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.byte_ranges import Numbering
from rmqinspect.codec.record_proof import blank_size
from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.batch import Batch, Queue
from rmqinspect.forecast.check import HEAD_SIZE, Check, check_record, record_head
from rmqinspect.forecast.outcome import Rejected
from rmqinspect.forecast.segment_run import Run, RunWalk, Tests, check_next
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system.workers import run_ordered

_LOOKED_AT = 64 << 20  # bytes behind the end that are looked at for data, without holes
_PAGE = 4096
_BLANK_SIZE: int = message.Blank.sizeof()


class Scan(NamedTuple):
    """Where a scan ended."""

    end: int  # P: where the broker goes on to write
    segment: int  # index of the segment where it ended
    position: int  # in that segment; `end`, but for wrong sizes that were counted (`unclean_mismatch`)
    check: Check  # of what stands there
    rejected: Rejected | None  # None: nothing but zeros follows, as far as was looked
    killed: Rejected | None  # a Java Error: the start ends here
    unreadable: str | None  # what the system refused to read, and the end depends on
    records: int  # that are valid
    last_record: int | None  # physical offset of the last valid one, by its place
    misplaced: int = 0  # of the valid ones, those whose PHYSICALOFFSET is another place


class Asked(NamedTuple):
    """A scan that one walk asks for."""

    scanner: "LogScanner"
    rules: Rules
    first: int  # index of the segment where it begins
    position: int  # in that segment
    clean: bool
    take: Callable[[Batch], None] | None  # gets all valid records, in log order
    counted: int  # what the broker believes the position to be
    asks_properties: bool = True  # `take` does, of some records
    takes_behind: int = -1  # `take` leaves out records up to this physical offset

    @property
    def tests(self) -> Tests:
        """The tests that the scan makes."""
        return Tests.of(self.rules, self.scanner.settings, clean=self.clean)

    @property
    def place(self) -> tuple[object, ...]:
        """What scans have in common that can be made together."""
        return self.scanner, self.first, self.position, self.counted, self.tests


class FirstRecord(NamedTuple):
    """The first record of a segment, as the tests for the start segment see it."""

    check: Check  # CRC on, as in the scan
    magic: int
    store_timestamp: int  # where the release looks for it, whatever stands there
    physical_offset: int  # PHYSICALOFFSET
    unreadable: str | None


class LogScanner:
    """Scans the segments of one store, for the rules of any release."""

    def __init__(
        self,
        store: Store,
        segments: Sequence[Segment],
        settings: Settings,
        jobs: int = 1,
        progress: Callable[[int], None] | None = None,
        *,
        read_body: bool = True,
    ) -> None:
        """Take the segments that the broker has loaded, in its order.

        `jobs`: threads, for scans that hand on no records. `progress` gets the bytes of the log that were scanned, from
        any of them. Without `read_body` bodies are skipped, as dispatch while running does.
        """
        self.store = store
        self.segments = tuple(segments)
        self.settings = settings
        self._jobs = jobs
        self._progress = progress
        self._read_body = read_body
        self._runs: dict[tuple[int, int, Tests], list[Run]] = {}

    def scan(
        self,
        rules: Rules,
        first: int,
        position: int,
        *,
        clean: bool,
        take: Callable[[Batch], None] | None,
        counted: int | None = None,
    ) -> Scan:
        """Scan from a position in a segment on; `take` gets all valid records, in log order.

        `counted`: what the broker believes its position to be, where that differs.

        Reads what cannot be read as zeros, and says so.
        """
        asked = Asked(self, rules, first, position, clean, take, position if counted is None else counted)
        (found,) = self.scan_together([asked])
        assert found is not None
        return found

    def scan_together(self, asked: Sequence[Asked]) -> list[Scan | None]:
        """Make scans of one place for the rules of several releases, and read the log once.

        The first one leads. None for a scan whose rules would have taken other records: what its `take` got does not
        hold then, and it has to be made on its own.
        """
        _, rules, first, position, clean, _, counted, *_ = asked[0]
        tests = Tests.of(rules, self.settings, clean=clean, read_body=self._read_body)
        takes_mismatches = _takes_mismatches(asked[0])
        takes = [one.take for one in asked if one.take is not None]
        sorter = _Sorter(takes) if takes else None
        if sorter is None and self._jobs > 1:
            self._run_ahead(rules, tests, first, position)
        following = list(asked[1:])
        index, shift = first, counted - position
        records, last, misplaced = 0, None, 0
        while True:
            segment = self.segments[index]
            run, following = self._run(rules, tests, index, position, sorter, following)
            if run.unreadable is not None and len(asked) > 1:
                return [None for _ in asked]  # whether the log or what a `take` looked at is not known
            if run.check.is_mismatch:
                following = [one for one in following if _takes_mismatches(one) == takes_mismatches]
            records += run.records
            misplaced += run.misplaced
            last = segment.base + run.last if run.records else last
            if run.unreadable is not None:
                break
            if run.check.is_mismatch and takes_mismatches:
                if sorter is not None:
                    sorter.take_mismatch(segment, run.check.size)
                position = run.end + run.check.parsed
                shift += run.check.size - run.check.parsed
            elif run.check.is_blank and index + 1 < len(self.segments):
                index, position, shift = index + 1, 0, 0
            else:
                break
        rejected = killed = None
        if not run.check.success and run.unreadable is None:
            stopped = Rejected(segment.base + run.end, run.check.reason or "", segment.name, run.end)
            killed = stopped if run.check.kills else None
            rejected = stopped if self._data_follows(index, run.end) else None
        elif run.check.is_blank and self._hides_data(index, run.end):
            rejected = Rejected(segment.base + run.end, "blank_size", segment.name, run.end)
        # Of a DLedger file the broker counts the records without the heads of their entries.
        end = segment.base + run.end + shift - run.records * segment.lead
        found = Scan(end, index, run.end, run.check, rejected, killed, run.unreadable, records, last, misplaced)
        return [found if one is asked[0] or any(one is held for held in following) else None for one in asked]

    def first_record(self, rules: Rules, index: int) -> FirstRecord:
        """Return what HEAD-TEST and RECORD-TEST ask of a segment."""
        segment = self.segments[index]
        try:
            with open_file(segment) as file:
                reader = LenientReader(file, segment)
                head = record_head(reader.read(0, HEAD_SIZE), ipv6_hosts=rules.ipv6_hosts)
                check = check_record(
                    reader.read, 0, reader.size, rules, self.settings, crc=self.settings.check_crc_on_recover
                )
                unreadable = "; ".join(unread.message for unread in reader.take_unread()) or None
        except Unreadable as error:
            return FirstRecord(Check(-1, False, "short"), 0, 0, 0, str(error))
        return FirstRecord(check, *head, unreadable)

    # --- one segment ----------------------------------------------------------------------------

    def know(self, asked: Asked, index: int, found: Run) -> bool:
        """Keep a run from the beginning of a segment on that another reader has found; return whether that can be.

        What stands at its end is judged by the rules of a scan that was asked for.
        """
        segment, tests = self.segments[index], asked.tests
        try:
            with open_file(segment) as file:
                reader = LenientReader(file, segment)
                found.check = check_next(reader, found.end, asked.rules, self.settings, tests)
                # Else the scan goes on, or takes what is no record: the other reader passed over something.
                ends = found.check.is_blank or not (found.check.success or found.check.is_mismatch)
                holds = ends and not reader.take_unread()
                if holds:
                    self._runs.setdefault((index, 0, tests), []).append(found)
                return holds
        except Unreadable:
            return False

    def _run(
        self,
        rules: Rules,
        tests: Tests,
        index: int,
        position: int,
        sorter: "_Sorter | None",
        following: Sequence[Asked] = (),
    ) -> tuple[Run, list[Asked]]:
        """Return the run from a position on, one that is known where it holds; the sorter gets its records.

        And those of other scans whose rules find the same.
        """

        def holding(run: Run) -> list[Asked]:
            return [one for one in following if run.holds_for(one.rules, self.settings, tests, reader)]

        segment = self.segments[index]
        runs = self._runs.setdefault((index, position, tests), [])
        try:
            with open_file(segment) as file:
                reader = LenientReader(file, segment)
                known = next((run for run in runs if run.holds_for(rules, self.settings, tests, reader)), None)
                if known is not None and sorter is None:
                    return known, holding(known)
                walk = RunWalk(reader, position, rules, self.settings, tests)
                for records in walk.records() if known is None else walk.records_again(known):
                    if sorter is not None:
                        sorter.take(segment, records)
                    if self._progress is not None:
                        self._progress(int(records.ends[-1] - records.starts[0]))
                found = known or walk.found
                if known is None:
                    runs.append(found)
                return found, holding(found)
        except Unreadable as error:
            return Run(position, unreadable=str(error)), []

    def _run_ahead(self, rules: Rules, tests: Tests, first: int, position: int) -> None:
        """Find the runs of several segments at a time, up to the one where the log ends; they are kept."""

        def run(index: int) -> Run:
            return self._run(rules, tests, index, position if index == first else 0, None)[0]

        with closing(run_ordered(run, range(first, len(self.segments)), self._jobs)) as runs:
            for found in runs:
                if not found.check.is_blank:
                    break

    # --- what follows ---------------------------------------------------------------------------

    def _hides_data(self, index: int, position: int) -> bool:
        """Whether the blank record that ends the last segment is none: of another size, and data lies behind it."""
        try:
            with open_file(self.segments[index]) as file:
                head, left = file.read(position, _BLANK_SIZE), file.size - position
        except Unreadable:
            return False
        size = blank_size(head, in_dledger=bool(self.segments[index].lead))
        return size != left and self._data_follows(index, position + _BLANK_SIZE)

    def _data_follows(self, index: int, position: int) -> bool:
        """Whether anything but zeros follows a position, as far as is looked."""
        try:
            with open_file(self.segments[index]) as file:
                if _holds_data(file, position, _LOOKED_AT):
                    return True
            for segment in self.segments[index + 1 :]:
                with open_file(segment) as file:
                    if _holds_data(file, 0, _PAGE):
                        return True
        except Unreadable:
            return True
        return False


def _takes_mismatches(asked: Asked) -> bool:
    return asked.rules.unclean_mismatch == "data" and not asked.clean


class _Sorter:
    """Numbers the queues of records, and hands them on."""

    def __init__(self, takes: Sequence[Callable[[Batch], None]]) -> None:
        self._takes = takes
        self._numbering = Numbering()
        self._queues: list[Queue] = []

    def take(self, segment: Segment, records: Records) -> None:
        topics = records.topic_starts, records.topic_ends
        numbers = self._numbering.number(records.bytes, *topics, records.field("queue_id"))
        keys = self._numbering.keys_from(len(self._queues))
        self._queues += [(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in keys]
        batch = Batch(records, numbers, self._queues, segment)
        for take in self._takes:
            take(batch)

    def take_mismatch(self, segment: Segment, size: int) -> None:
        none = Records.of_one(b"", 0).select(slice(0))
        batch = Batch(none, np.empty(0, np.int64), self._queues, segment, (size,))
        for take in self._takes:
            take(batch)


def _holds_data(file: FileReader, position: int, most: int) -> bool:
    """Whether anything but zeros follows within so many bytes that are not in a hole."""
    while most > 0 and (position := file.next_allocated(position)) < file.size:
        raw = file.read(position, min(1 << 20, most))
        if any(raw):
            return True
        position, most = position + len(raw), most - len(raw)
        if not raw:
            break
    return False


def reput(
    store: Store,
    segments: Sequence[Segment],
    rules: Rules,
    settings: Settings,
    begin: int,
    end: int,
    take: Callable[[Batch], None],
) -> int | None:
    """Dispatch the records from `begin` to the end of the log; return where that gets stuck, None at the end.

    `segments` are those that are left, `take` gets the records.
    """
    settings = replace(settings, check_crc_on_recover=False, duplication_enable=False)
    size, offset = settings.mapped_file_size_commit_log, begin
    while offset < end:
        segment = next((s for s in segments if s.base <= offset < s.base + size), None)
        if segment is None:
            return offset
        readable = end if segment is segments[-1] else segment.base + size
        scanner = LogScanner(store, [segment], settings, read_body=False)
        following = _through(scanner, rules, settings, offset, readable, take)
        if following is None or following <= offset:
            return offset
        offset = following
    return None


def _through(
    scanner: LogScanner,
    rules: Rules,
    settings: Settings,
    offset: int,
    readable: int,
    take: Callable[[Batch], None],
) -> int | None:
    """Dispatch what a segment has from an offset on; return where dispatch goes on, None if it never does."""
    segment, size = scanner.segments[0], settings.mapped_file_size_commit_log
    first = parser = offset % size
    limit = readable - segment.base
    if first >= limit:
        return None  # nothing is readable there
    offset = segment.base + first  # another one where the segment's name is no multiple of its size

    def take_readable(batch: Batch) -> None:
        inside = batch.whole.base + batch.whole.ends <= readable
        take(
            batch
            if inside.all()
            else dataclasses.replace(batch, records=batch.records.select(inside), numbers=batch.numbers[inside])
        )

    counted = 0
    while counted < limit - first:
        run = scanner.scan(rules, 0, parser, clean=True, take=take_readable)
        dispatched = min(run.position, limit) - parser
        offset, counted = offset + dispatched, counted + dispatched
        if run.position >= limit:
            break
        if run.check.is_blank:
            return offset + size - offset % size
        if run.check.is_mismatch and run.position + run.check.parsed <= limit:
            offset, parser = offset + run.check.size, run.position + run.check.parsed
        elif settings.is_slave and not segment.lead:
            return None
        else:
            return offset + limit - first - counted
    return offset

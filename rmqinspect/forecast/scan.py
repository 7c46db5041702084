"""The scan of the commit log that a start makes: from a position in one segment to the first byte that is no record.

    segment 1        |··|rec|rec|rec|blank··|
    segment 2, 3                            |rec|rec|rec|?????|···|   |rec···|
                        ^ position                      ^ end
    dispatched          |rec|rec|rec|       |rec|rec|rec|                 the segments behind it are deleted

Segments are taken one after the other as the broker has loaded them, whatever their names say. Records are judged a
window at a time (`forecast.judge`); what that cannot vouch for is checked one by one (`forecast.check`).

What a segment's scan found is kept. It holds for the rules of another release, too, if no record of it is judged by a
rule that differs; where it stopped is asked again.

Source: CommitLog#recoverNormally, #recoverAbnormally; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import place_of
from rmqinspect.codec.numbering import Numbering
from rmqinspect.commitlog.lenient_reader import LenientReader
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.window import Window
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.check import Check, check_record
from rmqinspect.forecast.judge import DEPENDS, Doubt, doubt_property_crc, doubts_that_count, judge
from rmqinspect.forecast.outcome import Rejected
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

Queue = tuple[str, int]  # topic, queue id

_WINDOW = 4 << 20  # bytes
_LOOKED_AT = 64 << 20  # bytes behind the end that are looked at for data, without holes
_PAGE = 4096
_NO_DOUBT = Doubt(0)
_SIZE: int = message.Blank.sizeof()  # bytes that every check reads
_HEAD_TEST_SIZE = message.HEADS[True, True].sizeof()
_MAGIC, _FLAGS, _OFFSET, _TIME_V4, _TIME_V6 = (
    place_of(message.HEADS[head], name)
    for head, name in (
        ((False, False), "magic"),
        ((False, False), "sys_flag"),
        ((False, False), "physical_offset"),
        ((False, False), "store_timestamp"),
        ((True, False), "store_timestamp"),
    )
)


@dataclass(slots=True)
class Batch:
    """Valid records of one window in log order, as they are dispatched; good until `take` returns."""

    records: Records  # PHYSICALOFFSET, the field, is what the broker dispatches
    numbers: Ints  # of each record: index in `queues`
    queues: list[Queue]  # the same list in all batches of a scan; grows. Bytes that are not UTF-8 may share a name
    segment: Segment
    mismatched: tuple[int, ...] = ()
    # Up to 4.3.1 after an unclean exit: the sizes of what is dispatched to topic "", queue 0, with physical offset 0;
    # a batch of these has no records.


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


class FirstRecord(NamedTuple):
    """The first record of a segment, as the tests for the start segment see it."""

    check: Check  # CRC on, as in the scan
    magic: int
    store_timestamp: int  # where the release looks for it, whatever stands there
    physical_offset: int  # PHYSICALOFFSET
    unreadable: str | None


@dataclass(slots=True)
class _Run:
    """The valid records of one segment from a position on."""

    start: int
    end: int  # position of what is no valid record
    check: Check  # of that
    doubts: Doubt  # that were met, and decided by `holds_for`
    holds_for: dict[str, object]  # rules that decided them, by name
    records: int = 0
    last: int = -1  # position of the last record
    unreadable: str | None = None


@dataclass(slots=True)
class _Progress:
    """What the scans of a run's windows add up to."""

    doubts: Doubt = _NO_DOUBT
    records: int = 0
    last: int = -1
    end: int = 0
    check: Check = field(default_factory=lambda: Check(-1, False))


class LogScanner:
    """Scans the segments of one store, for the rules of any release."""

    def __init__(self, store: Store, segments: Sequence[Segment], settings: Settings) -> None:
        """Take the segments that the broker has loaded, in its order."""
        self.store = store
        self.segments = tuple(segments)
        self.settings = settings
        self._runs: dict[tuple[int, int, bool, bool], list[_Run]] = {}

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
        settings = self.settings
        checks_offsets = rules.offset_check and settings.check_commit_log_offset_on_recover and not clean
        takes_mismatches = rules.unclean_mismatch == "data" and not clean
        sorter = _Sorter(take) if take is not None else None
        index, shift = first, 0 if counted is None else counted - position
        records, last = 0, None
        while True:
            segment = self.segments[index]
            run = self._run(rules, index, position, checks_offsets, sorter)
            records += run.records
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
        end = segment.base + run.end + shift
        return Scan(end, index, run.end, run.check, rejected, killed, run.unreadable, records, last)

    def first_record(self, rules: Rules, index: int) -> FirstRecord:
        """Return what HEAD-TEST and RECORD-TEST ask of a segment."""
        segment = self.segments[index]
        try:
            with open_file(segment) as file:
                reader = LenientReader(file, segment)
                head = reader.read(0, _HEAD_TEST_SIZE).ljust(_HEAD_TEST_SIZE, b"\0")
                check = check_record(reader.read, 0, reader.size, rules, self.settings, crc=self._crc)
                unreadable = "; ".join(unread.message for unread in reader.take_unread()) or None
        except Unreadable as error:
            return FirstRecord(Check(-1, False, "short"), 0, 0, 0, str(error))
        flags = _int(head, _FLAGS, 4)
        wide = rules.ipv6_hosts and flags & message.SysFlag.BORNHOST_V6
        time = _int(head, _TIME_V6 if wide else _TIME_V4, 8)
        return FirstRecord(check, _int(head, _MAGIC, 4), time, _int(head, _OFFSET, 8), unreadable)

    @property
    def _crc(self) -> bool:
        return self.settings.check_crc_on_recover

    # --- one segment ----------------------------------------------------------------------------

    def _run(self, rules: Rules, index: int, position: int, checks_offsets: bool, sorter: "_Sorter | None") -> _Run:
        """Return the run of valid records from a position on, one that is known where that holds."""
        segment = self.segments[index]
        whole_record = self._crc and self.settings.force_verify_prop_crc and rules.property_crc != "none"
        key = (index, position, checks_offsets, whole_record)
        known = self._known(key, rules)
        if known is not None and sorter is None:
            return known
        try:
            with open_file(segment) as file:
                reader = LenientReader(file, segment)
                walk = _Walk(reader, rules, self.settings, checks_offsets, whole_record, known)
                for records in walk.run(position):
                    if sorter is not None:
                        sorter.take(segment, records)
        except Unreadable as error:
            return _Run(position, position, Check(-1, False, "short"), Doubt(0), {}, unreadable=str(error))
        run = walk.result(position)
        if known is None:
            self._runs.setdefault(key, []).append(run)
        return run

    def _known(self, key: tuple[int, int, bool, bool], rules: Rules) -> _Run | None:
        """Return a run that holds for some rules, too."""
        for run in self._runs.get(key, ()):
            if any(getattr(rules, name) != value for name, value in run.holds_for.items()):
                continue
            if run.unreadable is not None or self._check_again(key[0], run, rules) == run.check:
                return run
        return None

    def _check_again(self, index: int, run: _Run, rules: Rules) -> Check | None:
        """Check by other rules what stands where a run ended."""
        if run.check.reason == "offset":
            return run.check
        segment = self.segments[index]
        try:
            with open_file(segment) as file:
                reader = LenientReader(file, segment)
                return check_record(reader.read, run.end, reader.size - run.end, rules, self.settings, crc=self._crc)
        except Unreadable:
            return None

    # --- what follows ---------------------------------------------------------------------------

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


class _Sorter:
    """Numbers the queues of records, and hands them on."""

    def __init__(self, take: Callable[[Batch], None]) -> None:
        self._take = take
        self._numbering = Numbering()
        self._queues: list[Queue] = []

    def take(self, segment: Segment, records: Records) -> None:
        topics = records.topic_starts, records.topic_ends
        numbers = self._numbering.number(records.bytes, *topics, records.field("queue_id"))
        keys = self._numbering.keys_from(len(self._queues))
        self._queues += [(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in keys]
        self._take(Batch(records, numbers, self._queues, segment))

    def take_mismatch(self, segment: Segment, size: int) -> None:
        none = Records.of_one(b"", 0).select(slice(0))
        self._take(Batch(none, np.empty(0, np.int64), self._queues, segment, (size,)))


class _Walk:
    """The walk over the valid records of one segment. Positions are bytes from its start."""

    def __init__(
        self,
        reader: LenientReader,
        rules: Rules,
        settings: Settings,
        checks_offsets: bool,
        whole_record: bool,
        known: _Run | None,
    ) -> None:
        """Take the rules; of a run that is known, only the records are wanted."""
        self._reader = reader
        self._rules, self._settings = rules, settings
        self._checks_offsets, self._whole_record = checks_offsets, whole_record
        self._known = known
        self._body_crc = settings.check_crc_on_recover and not whole_record and known is None
        self._counts = doubts_that_count(rules)
        self._window = Window(reader, min(_WINDOW, max(reader.size, 1)), reader.size)
        self._progress = _Progress()
        self._dark: list[tuple[int, str]] = []  # where what could not be read begins, and why

    def run(self, position: int) -> Iterator[Records]:
        """Yield the valid records from a position on."""
        progress = self._progress
        progress.end = position
        self._window.load(position)
        while self._known is None or progress.end < self._known.end:
            records = self._window.next_batch(progress.end)
            if not len(records):
                records = self._one_more()
                if not len(records):
                    return
                valid, shift = 1, progress.end
            else:
                valid, shift = self._count_valid(records), self._window.start
            if valid:
                taken = records if valid == len(records) else records.select(slice(valid))
                progress.records += valid
                progress.last = shift + int(taken.starts[-1])
                progress.end = shift + int(taken.ends[-1])
                yield taken
            if valid < len(records):
                return

    def result(self, start: int) -> _Run:
        """Return what the walk has found."""
        progress = self._progress
        if self._known is not None:
            return self._known
        reach = progress.end + max(progress.check.parsed, _SIZE)
        dark = [unread.message for unread in self._reader.take_unread() if unread.start < self._reader.base + reach]
        names = {name for doubt in Doubt if doubt & progress.doubts for name in DEPENDS.get(doubt, ())}
        return _Run(
            start,
            progress.end,
            progress.check,
            progress.doubts,
            {name: getattr(self._rules, name) for name in names},
            progress.records,
            progress.last,
            dark[0] if dark else None,
        )

    def _one_more(self) -> Records:
        """Return the record at the position, if it is valid: larger than a window, or sound only by some rules."""
        end = self._progress.end
        none = Records.of_one(b"", 0).select(slice(0))
        check = self._check(end)
        if not check.success or check.size == 0:
            self._progress.check = check
            return none
        self._progress.doubts |= _DECIDED_BY_RULES
        raw = bytearray(self._reader.read(end, check.size))
        if not self._rules.ipv6_hosts:
            raw[_FLAGS + 3] &= ~_IPV6  # the release does not know them, and no column may follow them
        one = Records.of_one(bytes(raw), self._reader.base + end)
        if self._checks_offsets and self._is_outside(one.physical_offset)[0]:
            self._progress.check = _OUTSIDE
            return none
        return one

    def _count_valid(self, records: Records) -> int:
        """Return how many records of a batch are valid, up to the first one that is not."""
        if self._known is not None:
            return int(np.searchsorted(records.ends, self._known.end - self._window.start, side="right"))
        doubts = judge(records, body_crc=self._body_crc)
        if self._whole_record:
            doubt_property_crc(records, doubts)
        if self._checks_offsets:
            doubts[self._is_outside(records.physical_offset)] |= int(Doubt.OFFSET)
        if self._rules.duplication_info and self._settings.duplication_enable:
            doubts |= int(Doubt.DUPLICATION)
        valid = len(records)
        for row in np.flatnonzero(doubts & int(self._counts)).tolist():
            position = self._window.start + int(records.starts[row])
            check = self._check(position)
            if check.success and doubts[row] & Doubt.OFFSET:
                check = _OUTSIDE
            if not check.success:
                self._progress.check = check
                valid = row
                break
        met = int(np.bitwise_or.reduce(doubts[: valid + 1]))
        self._progress.doubts |= Doubt(met)
        return valid

    def _is_outside(self, offsets: Ints) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Whether PHYSICALOFFSET lies outside of the segment. One at its end is inside."""
        base = self._reader.base
        outside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (offsets < base) | (offsets > base + self._reader.size)
        return outside

    def _check(self, position: int) -> Check:
        left = self._reader.size - position
        crc = self._settings.check_crc_on_recover
        return check_record(self._reader.read, position, left, self._rules, self._settings, crc=crc)


_IPV6 = int(message.SysFlag.BORNHOST_V6 | message.SysFlag.STOREHOSTADDRESS_V6)
_DECIDED_BY_RULES = Doubt.V2 | Doubt.IPV6 | Doubt.DELAY | Doubt.INNER | Doubt.PROPERTY_CRC
_OUTSIDE = Check(-1, False, "offset")


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


def _int(raw: bytes, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "big", signed=True)

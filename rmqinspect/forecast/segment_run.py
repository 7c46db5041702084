"""The valid records of one segment, from a position on to the first that is none: a run.

    |rec|rec|rec|rec|rec|?????|
     ^ start             ^ end: `check` says why

A window of records at a time is judged (`judge`); what that cannot vouch for is checked one by one.

A run holds for other rules, too, if no record of it is judged by a rule that differs, and if what stands at its end is
no valid record by them, either, for the same reason.

What a start would judge record by record, for a whole window at once: which records need the exact check.

A record whose magic code, size and lengths are sound (`loops.records.follow`) is valid for every release, but for
what is noted here as bits. Without a bit, it is valid; with one, `forecast.check` decides by the rules.

Source: CommitLog#checkMessageAndReturnSize.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import Window
from rmqinspect.forecast.check import Check, check_record
from rmqinspect.forecast.settings import Settings
from rmqinspect.loops.checksum import CRC32
from rmqinspect.loops.record_rows import DOUBT_TEXTS, RIGHT_CRC, Doubt
from rmqinspect.loops.records import doubt_records
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of

# mypy: disable-error-code="no-any-return"


DEPENDS: dict[Doubt, tuple[str, ...]] = {
    Doubt.V2: ("v2_records",),
    Doubt.IPV6: ("ipv6_hosts",),
    Doubt.DELAY: ("property_items",),
    Doubt.INNER: ("inner_batches", "property_items"),
    Doubt.PROPERTY_CRC: ("property_crc", "property_items"),
}
"""The rules by which a doubt is decided; the others are decided alike in all releases that have them."""


def doubts_that_count(rules: Rules) -> Doubt:
    """Return the doubts that can reject a record by some rules."""
    every = Doubt.BODY_CRC | Doubt.DELAY | Doubt.PROPERTY_CRC | Doubt.DUPLICATION | Doubt.OFFSET
    v2 = Doubt(0) if rules.v2_records else Doubt.V2
    ipv6 = Doubt(0) if rules.ipv6_hosts else Doubt.IPV6
    return every | v2 | ipv6 | (Doubt.INNER if rules.inner_batches else Doubt(0))


_TEXTS = np.frombuffer(DOUBT_TEXTS, np.uint8)
_ZERO = ord("0")
_END_OF_ITEM = message.PROPERTY_SEPARATOR


def judge(records: Records, *, body_crc: bool) -> Ints:
    """Return the doubts of each of some sound records; with `body_crc`, bodies are compared with BODYCRC."""
    doubts = np.empty(len(records), np.int64)
    doubt_records(CRC32, records.bytes, records.rows, _TEXTS, int(body_crc), doubts)
    return doubts


def doubt_property_crc(records: Records, doubts: Ints) -> None:
    """Note the records whose property `__CRC32#` is not the last one, as it is written, with the right value above 0.

    What is written in its place by a batch that ends without a separator is not found by the broker.
    """
    ends, sizes = records.ends, records.properties_ends - records.properties_starts
    right = records.record_crcs == RIGHT_CRC
    reserved = message.CRC32_RESERVED_SIZE
    right &= (sizes == reserved) | (records.bytes[ends - reserved - 1] == _END_OF_ITEM)
    digits = records.bytes[ends[:, None] - reserved + len(message.CRC32_NAME) + 1 + np.arange(message.CRC32_DIGITS)]
    right &= (digits != _ZERO).any(axis=1)
    doubts[~right] |= int(Doubt.PROPERTY_CRC)


_WINDOW = 4 << 20  # bytes
_BLANK_SIZE: int = message.Blank.sizeof()  # bytes that every check reads
_LOW_FLAGS = place_of(message.HEADS[False, False], "sys_flag") + 3  # the byte of SYSFLAG with the bits of the hosts
_IPV6 = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6)
_NO_DOUBT = Doubt(0)
_ENTRY_BLANK = dledger.ENTRY_MAGIC_BLANK.to_bytes(4, "big", signed=True)
_NONE, _OUTSIDE = Check(-1, False), Check(-1, False, "offset")


class Tests(NamedTuple):
    """Which of the tests that depend on settings a scan makes."""

    read_body: bool  # else it is skipped, as dispatch while running does
    crc: bool  # any checksum
    property_crc: bool  # `__CRC32#` in place of BODYCRC
    duplication: bool  # DUP_INFO
    offset: bool  # PHYSICALOFFSET

    @classmethod
    def of(cls, rules: Rules, settings: Settings, *, clean: bool, read_body: bool = True) -> "Tests":
        """Return the tests of a start by some rules, after a clean exit or not."""
        crc = settings.check_crc_on_recover
        return cls(
            read_body,
            crc,
            crc and settings.force_verify_prop_crc and rules.property_crc != "none",
            rules.duplication_info and settings.duplication_enable,
            rules.offset_check and settings.check_commit_log_offset_on_recover and not clean,
        )


class Run(Struct):
    """The valid records of one segment from a position on, as a scan with some tests finds them."""

    end: int  # position of what is no valid record
    check: Check = _NONE  # of that
    decided_by: dict[str, object] = field(default_factory=dict)  # values of the rules by which records were judged
    records: int = 0
    last: int = -1  # position of the last record
    unreadable: str | None = None  # what the system refused to read, and the end depends on
    misplaced: int = 0  # records whose PHYSICALOFFSET is another place

    def holds_for(self, rules: Rules, settings: Settings, tests: Tests, reader: LenientReader) -> bool:
        """Whether a scan with the same tests finds the same by other rules."""
        if any(getattr(rules, name) != value for name, value in self.decided_by.items()):
            return False
        return self.check == _OUTSIDE or check_next(reader, self.end, rules, settings, tests) == self.check


def _check_at(reader: LenientReader, position: int, rules: Rules, settings: Settings, tests: Tests) -> Check:
    """Return what a broker makes of the bytes at a position of a segment."""
    left = reader.size - position
    return check_record(reader.read, position, left, rules, settings, crc=tests.crc, read_body=tests.read_body)


def check_next(reader: LenientReader, position: int, rules: Rules, settings: Settings, tests: Tests) -> Check:
    """Check what a chain leads to: of a DLedger file the record in the entry. Source: DLedgerCommitLog."""
    if reader.lead and reader.read(position, len(_ENTRY_BLANK)) == _ENTRY_BLANK:
        return Check(0, True)
    return _check_at(reader, position + reader.lead, rules, settings, tests)


class RunWalk:
    """The walk over the records of one run. Positions are bytes from the segment's start."""

    def __init__(self, reader: LenientReader, position: int, rules: Rules, settings: Settings, tests: Tests) -> None:
        self.found = Run(position)
        self._reader = reader
        self._rules, self._settings, self._tests = rules, settings, tests
        self._counts = int(doubts_that_count(rules))
        self._met = _NO_DOUBT
        self._window = Window(reader, min(_WINDOW, max(reader.size, 1)), reader.size)
        self._window.load(position)

    def records(self) -> Iterator[Records]:
        """Yield the valid records window by window; then `found` is complete."""
        while True:
            records = self._window.next_batch(self.found.end)
            if len(records):
                first, valid = self._window.start, self._count_valid(records)
            else:
                records, first = self._one_more(), self.found.end + self._reader.lead
                valid = len(records)
            if valid:
                yield self._take(records if valid == len(records) else records.select(slice(valid)), first)
            if valid < len(records) or not valid:
                break
        names = {name for doubt in Doubt if doubt & self._met for name in DEPENDS.get(doubt, ())}
        self.found.decided_by = {name: getattr(self._rules, name) for name in names}
        reach = self._reader.base + self.found.end + max(self.found.check.parsed, _BLANK_SIZE)
        self.found.unreadable = next((dark.message for dark in self._reader.take_unread() if dark.start < reach), None)

    def records_again(self, known: Run) -> Iterator[Records]:
        """Yield the records of a run that is known: nothing is judged."""
        while self.found.end < known.end:
            records = self._window.next_batch(self.found.end)
            first = self._window.start
            if len(records):
                inside = int(np.searchsorted(records.ends, known.end - first, side="right"))
                records = records.select(slice(inside))
            else:
                records, first = self._one_more(), self.found.end + self._reader.lead
            if not len(records):  # the file has changed meanwhile
                return
            yield self._take(records, first)

    def _take(self, records: Records, first: int) -> Records:
        """Count records whose window begins at the position `first`."""
        self.found.records += len(records)
        places = records.base + records.starts
        self.found.misplaced += int(np.count_nonzero(records.physical_offset != places))
        self.found.last = first + int(records.starts[-1])
        self.found.end = first + int(records.ends[-1])
        return records

    def _one_more(self) -> Records:
        """Return the record at the end, none if it is not valid: larger than a window, or sound by the rules only."""
        position, reader = self.found.end, self._reader
        check = check_next(reader, position, self._rules, self._settings, self._tests)
        self.found.check = check
        if not check.success or check.is_blank:
            return Records.of_one(b"", 0).select(slice(0))
        self._met |= _ANY_RULE
        position += reader.lead
        raw = bytearray(reader.read(position, check.size))
        if not self._rules.ipv6_hosts:
            raw[_LOW_FLAGS] &= ~_IPV6  # the release does not know them: no column may follow them
        one = Records.of_one(bytes(raw), reader.base + position)
        if self._tests.offset and self._is_outside(one.physical_offset)[0]:
            self.found.check = _OUTSIDE
            return one.select(slice(0))
        return one

    def _count_valid(self, records: Records) -> int:
        """Return how many records of a batch are valid, up to the first one that is not."""
        tests = self._tests
        doubts = judge(records, body_crc=tests.crc and not tests.property_crc)
        if tests.property_crc:
            doubt_property_crc(records, doubts)
        if tests.offset:
            doubts[self._is_outside(records.physical_offset)] |= int(Doubt.OFFSET)
        if tests.duplication:
            doubts |= int(Doubt.DUPLICATION)
        valid = len(records)
        for row in np.flatnonzero(doubts & self._counts).tolist():
            position = self._window.start + int(records.starts[row])
            check = _check_at(self._reader, position, self._rules, self._settings, self._tests)
            check = _OUTSIDE if check.success and doubts[row] & int(Doubt.OFFSET) else check
            if not check.success:
                self.found.check = check
                valid = row
                break
        self._met |= Doubt(int(np.bitwise_or.reduce(doubts[: valid + 1])))
        return valid

    def _is_outside(self, offsets: Ints) -> Bools:
        """Whether PHYSICALOFFSET lies outside of the segment. One at its end is inside."""
        outside: Bools = (offsets < self._reader.base) | (offsets > self._reader.base + self._reader.size)
        return outside


_ANY_RULE = Doubt.V2 | Doubt.IPV6 | Doubt.DELAY | Doubt.INNER | Doubt.PROPERTY_CRC

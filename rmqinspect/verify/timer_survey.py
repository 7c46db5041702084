"""The timer files by themselves, and the units of the timer log against the records of a split: TM-CHAIN, TM-BEYOND.

Of the timer wheel, normal and not reported: slots are never cleared, so those of deleted units point before the log;
the wheel is written once a second, so it may lag behind the log; startup puts the units of the last files in again.

A unit has the offset and size of the record that waits in the timer topic, and the hash of the topic it is bound
for. Each unit gets one verdict at most, in this order:

    no record starts at place     dangling; normal before the log: retention took the record
    another record size           TM-CHAIN
    another REAL_TOPIC            TM-CHAIN; of a unit unpacked from RocksDB the topic is not known

Where the commit log was cut, the timer log is not: TimerMessageStore#recover looks at the timer log only
(apache/rocketmq issue 10668).

Source: TimerMessageStore#recover, #dequeue, #getMessageByCommitOffset, #hashTopicForMetrics, TimerWheel;
RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from msgspec import field

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools, Ints, is_among
from rmqinspect.codec.layout import Container, dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import timer_units_file
from rmqinspect.schemas.timer import DEFAULT_PRECISION, UNIT_SIZE, WHEEL_SLOTS, TimerUnit
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.timer.log import (
    NO_POSITION,
    SLOT_SIZE,
    WHEEL_SIZE,
    Slots,
    TimerLog,
    are_units,
    due_times,
    find_precision,
    no_timercheck,
    read_rows,
    read_slots,
    read_timercheck,
    timer_log_files,
    wheel_files,
)
from rmqinspect.verify.findings import Finding, Found, capped_findings, unread_finding
from rmqinspect.verify.plan import NO_RUNS, CrossPlan, cut_runs, joined_runs
from rmqinspect.verify.pointers import (
    DANGLING,
    Evidence,
    Joined,
    Kind,
    Location,
    LogRanges,
    PointerReport,
    Pointers,
    Verdict,
    read_runs,
)
from rmqinspect.verify.timer_chains import LogCheck, check_lengths

_CODE = "TM-CHAIN"


class Fault(NamedTuple):
    """What is wrong with a slot, in the words of its finding."""

    what: str
    found: str
    expected: str = "time {time}"


WRONG_SLOT = Fault("the slot's time belongs in another slot", "time {time}", "slot {own}")
LAST = Fault("slot chain is broken: no unit with the slot's due time is at its last position", "last {last}")
FIRST = Fault("slot chain is broken: no unit with the slot's due time is at its first position", "first {first}")
ORDER = Fault("slot chain is broken: the slot's first unit lies behind its last", "first {first}, last {last}")


class WheelCheck:
    """Judges stored wheels against the log that was read and the wheel that was replayed from it."""

    def __init__(self, log: LogCheck, timercheck: Container, *, whole: bool) -> None:
        """`whole`: a store root was given, so files that are absent are lost."""
        self.checked, self.log, self.kept, self.whole = log, log.log, log.kept, whole
        self.precision, self.replay, self.suspects = log.precision, log.replay, log.suspects
        self.flushed = int(timercheck.last_timer_log_flush_pos)
        self.due = int(timercheck.last_read_timestamp)
        self.end = log.position

    def check_flushed(self) -> None:
        """Report a timer log that ends before the offset up to which it was flushed."""
        known = not self.checked.torn and not self.checked.unread and (self.log.files or self.whole)
        if self.flushed > self.end and known:
            part = self.log.file_at(self.end)
            self.kept.add(
                Finding(
                    _CODE,
                    "the timer log ends before the offset that timercheck says was flushed: units are lost",
                    file=part.file.name if part else "timerlog",
                    offset=self.end - part.base if part else None,
                    expected=f"units up to {self.flushed}",
                    found=f"up to {self.end}",
                )
            )

    def check_slots(self, file: StoreFile, slots: Slots) -> None:
        """Judge the slots of one wheel."""
        misplaced = slots.time % WHEEL_SLOTS != slots.number
        wrong = slots.select(misplaced)
        for at in self.kept.admit(_CODE, list(range(len(wrong.number)))):
            self._report(file, wrong, at, WRONG_SLOT)
        # Slots whose units were deleted are left as they were.
        slots = slots.select(~misplaced & ~((slots.last >= 0) & (slots.last < self.log.start)))
        if not self.log.files and (not self.whole or self.flushed > 0):
            return  # the timer log was not given, or `check_flushed` reports that it is gone
        beyond = (slots.last >= self.end) | (slots.first >= self.end)
        self._report_beyond(file, slots.select(beyond))
        slots = slots.select(~beyond)
        try:
            last = self._have_unit(slots.last, slots.time)
            first = (slots.first >= 0) & (slots.first < self.log.start) | self._have_unit(slots.first, slots.time)
        except Unreadable as error:
            self.checked.unread.append(unread_finding(error))
            return
        for at in self.kept.admit(_CODE, np.flatnonzero(~last | ~first | (slots.first > slots.last)).tolist()):
            fault = LAST if not last[at] else FIRST if not first[at] else ORDER
            self._report(file, slots, at, fault)

    def _have_unit(self, positions: Ints, times: Ints) -> Bools:
        """Return which positions have a unit of that time, or one that is lost or already reported.

        :raises Unreadable: the system reports an I/O error.
        """
        slot = times % WHEEL_SLOTS
        good: Bools = (positions == self.replay.last[slot]) | (positions == self.replay.first[slot])
        good &= self.replay.time[slot] == times
        good |= self.log.in_gap(positions) | self.suspects.has(positions)
        rest = np.flatnonzero(~good)
        units, found = self.log.read_at(positions[rest])
        good[rest] = found & (due_times(units) // self.precision == times[rest])
        return good

    def check_pending(self, wheels: Sequence[tuple[StoreFile, Slots]]) -> None:
        """Report pending units that no slot leads to and that startup does not put in again.

        Startup reads the log from one file's size before the flushed offset on. Source: TimerMessageStore#recover.
        """
        if not self.whole or not self.log.files or self.flushed <= 0 or self.due <= 0 or len(wheels) > 1:
            return  # which of a wheel and its snapshots startup takes is not known
        part = self.log.file_at(max(0, self.flushed - self.log.files[-1].file.size))
        time, last = np.full((2, WHEEL_SLOTS), NO_POSITION, np.int64)
        for _, slots in wheels:
            time[slots.number], last[slots.number] = slots.time, slots.last
        replay = self.replay
        lost = (replay.time >= self.due // self.precision) & (replay.last < (part.base if part else 0))
        lost &= (time < replay.time) | ((time == replay.time) & (last < replay.last))
        lost &= ~self.suspects.has(replay.last)
        which = np.flatnonzero(lost)
        if not len(which):
            return
        slot = which[0]
        self.kept.add(
            Finding(
                _CODE,
                f"{len(which)} pending due times have units that no slot leads to: startup does not repair that",
                file=wheels[0][0].name if wheels else "timerwheel",
                offset=int(slot) * SLOT_SIZE,
                length=SLOT_SIZE,
                count=len(which),
                counted=True,
                expected=f"last {replay.last[slot]}",
                found=f"last {last[slot]}" if time[slot] == replay.time[slot] else "another time",
            )
        )

    def _report_beyond(self, file: StoreFile, slots: Slots) -> None:
        """Report slots that know of units which the timer log does not hold."""
        if not len(slots.number) or self.flushed > self.end:
            return  # the latter is `check_flushed`'s
        what = f"{len(slots.number)} slots point behind the end of the timer log: their units are lost"
        if self.checked.unclean:
            what += "; the next start reads their messages again from the timer queue"
        self.kept.add(
            Finding(
                _CODE,
                what,
                "info" if self.checked.unclean else "",
                file=file.name,
                offset=int(slots.number[0]) * SLOT_SIZE,
                length=SLOT_SIZE,
                count=len(slots.number),
                counted=True,
                expected=f"before {self.end}",
                found=str(max(slots.first.max(), slots.last.max())),
            )
        )

    def _report(self, file: StoreFile, slots: Slots, at: int, fault: Fault) -> None:
        """Report a slot. One that has fired is history: it costs no message any more."""
        time, first, last = int(slots.time[at]), int(slots.first[at]), int(slots.last[at])
        fired = self.due > 0 and time < self.due // self.precision
        values = {"time": time, "first": first, "last": last, "own": time % WHEEL_SLOTS}
        self.kept.add(
            Finding(
                _CODE,
                fault.what + ("; it has fired already" if fired else ""),
                "warning" if fired else "",
                file=file.name,
                offset=int(slots.number[at]) * SLOT_SIZE,
                length=SLOT_SIZE,
                expected=fault.expected.format(**values),
                found=fault.found.format(**values),
            )
        )


class TimerSurvey(Found):
    """Result of reading the timer files, with where the units point."""

    files: tuple[StoreFile, ...] = ()  # the timer log, ascending; then what was unpacked from RocksDB
    runs: Ints = field(default_factory=lambda: NO_RUNS.rows)  # none before the log
    units: int = 0
    end: int = 0  # timer log offset behind the last unit


def survey_timer(store: Store, borders: Ints, limit: int) -> TimerSurvey:
    """Read timer log, wheel and its snapshots, and timercheck of a store; keep at most `limit` findings.

    `borders`: physical offsets where the splits of the commit log begin, ascending (`cut_runs`).
    """
    kept, unread = capped_findings(limit), list[Finding]()
    log = TimerLog(timer_log_files(store.files))
    timercheck = _read_timercheck(store.config_files.get("timercheck"), unread)
    wheels = _read_wheels(wheel_files(store.files), kept, unread)
    kept.extend(check_lengths(log, store.settings))
    precision = DEFAULT_PRECISION
    with suppress(Unreadable):  # reported when the units are read
        precision = find_precision(store.settings, log, [slots for _, slots in wheels])
    chains = LogCheck(log, timercheck, precision, borders, kept, unread, unclean=bool(store.of_kind("abort")))
    chains.read()
    wheel = WheelCheck(chains, timercheck, whole=store.given == "store" and store.neighbours)
    wheel.check_flushed()
    for file, slots in wheels:
        wheel.check_slots(file, slots)
    wheel.check_pending(wheels)
    parts, runs = [part.file for part in log.files], chains.runs
    # Units unpacked from there are in the order of their times.
    in_rocksdb = timer_units_file(store)
    if in_rocksdb is not None:
        runs.append(_runs_in_rocksdb(in_rocksdb, len(parts), borders))
        parts.append(in_rocksdb)
    return TimerSurvey(
        tuple(parts),
        joined_runs(runs),
        chains.units,
        chains.position,
        findings=kept.rows,
        suppressed=kept.suppressed,
        unread=unread,
    )


def _runs_in_rocksdb(file: StoreFile, number: int, borders: Ints) -> Ints:
    """Return where the units that were unpacked from RocksDB point; they have no chains to judge."""
    layout = dtype_of(TimerUnit)
    with open_file(file) as reader:
        windows = read_rows(reader, layout, reader.size // layout.itemsize)
        parts = [cut_runs(number, row, units["physical_offset"].astype(np.int64), borders) for row, units in windows]
    runs = joined_runs(parts)
    return runs[runs[:, 0] >= 0]


def _read_timercheck(file: StoreFile | None, unread: list[Finding]) -> Container:
    try:
        return read_timercheck(file)
    except Unreadable as error:
        unread.append(unread_finding(error))
        return no_timercheck()


def _read_wheels(
    files: Iterable[StoreFile], kept: CappedList[Finding, str], unread: list[Finding]
) -> list[tuple[StoreFile, Slots]]:
    """Return the wheels that can be read, with their used slots."""
    wheels = []
    for file in files:
        if file.size not in (0, WHEEL_SIZE):  # an empty one is new
            what = "the timer wheel has the wrong length: the broker does not start"
            kept.add(Finding(_CODE, what, file=file.name, expected=str(WHEEL_SIZE), found=str(file.size)))
        try:
            wheels.append((file, read_slots(file)))
        except Unreadable as error:
            unread.append(unread_finding(error))
    return wheels


_WRONG_SIZE, _WRONG_TOPIC = DANGLING << 1, DANGLING << 2

TIMERS = Kind(
    "timer",
    "the timer unit",
    "TM-CHAIN",
    "TM-BEYOND",
    {
        _WRONG_SIZE: Verdict(
            "TM-CHAIN",
            "the timer unit points to a record of another size",
            "{record[size]} bytes",
            "{row[record_size]} bytes at {row[physical_offset]}",
        ),
        _WRONG_TOPIC: Verdict(
            "TM-CHAIN",
            "the timer unit points to a record for another topic",
            "topic hash {record[real_topic]}",
            "topic hash {row[real_topic_hash]}",
        ),
    },
    joins_rows=True,
)
_VALUES = ("physical_offset", "record_size", "real_topic_hash")


def join_timer(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> Joined:
    """Check the timer units that point into split `number`; `limit` bounds the findings."""
    kept = capped_findings(limit)
    result = Joined(findings=kept.rows, suppressed=kept.suppressed)
    low, high = plan.range_of(number)

    def read(which: int, first: int, count: int) -> Pointers:
        file = plan.timer_files[which]
        with open_file(file) as reader:
            raw = reader.read(first * UNIT_SIZE, count * UNIT_SIZE)
        units = np.frombuffer(raw, dtype_of(TimerUnit), len(raw) // UNIT_SIZE)
        inside = are_units(units) & (units["physical_offset"] >= low) & (units["physical_offset"] < high)
        rows = np.flatnonzero(inside)
        values = {name: units[name][rows].astype(np.int64) for name in _VALUES}
        units_of_file = Pointers(np.full_like(rows, which), first + rows, *_judge(values, records), values)
        if file.kind != "timer_log":
            units_of_file.verdict &= ~_WRONG_TOPIC
        return units_of_file

    parts = [found for _, found in read_runs(plan.runs_of(TIMERS.name, number), read, result.unread) if found]
    units = Pointers.joined(parts, _VALUES)

    def locate(at: int) -> Location:
        return Location(plan.timer_files[units.file[at]].name, int(units.row[at]) * UNIT_SIZE, UNIT_SIZE)

    report = PointerReport(TIMERS, units, records, locate, kept)
    result.dangling = report.dangling(ranges, lambda at: Evidence(int(units.row[at[0]]), len(at)))
    report.add_findings()
    return result


def _judge(units: dict[str, Ints], records: Dispatched) -> tuple[Ints, Ints]:
    """Return the record that each unit points at, -1 without, and its verdict."""
    places = units["physical_offset"]
    hit = is_among(places, records.physical_offset)
    record = np.where(hit, np.searchsorted(records.physical_offset, places), -1)
    verdict = np.where(hit, 0, DANGLING)
    at = record[hit]
    wrong_topic = units["real_topic_hash"][hit] != records.real_topic[at]
    wrong_size = units["record_size"][hit] != records.size[at]
    verdict[hit] = np.where(wrong_size, _WRONG_SIZE, np.where(wrong_topic, _WRONG_TOPIC, 0))
    return record, verdict

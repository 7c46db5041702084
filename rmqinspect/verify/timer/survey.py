"""The timer files by themselves: TM-CHAIN, and which units point into which split of the commit log.

Whether a unit leads to its message is judged where the records are read (`verify.timer.join`).

The timer wheel against the timer log: TM-CHAIN of slots.

Normal, and not reported: slots are never cleared, so those of deleted units point before the log; the wheel is
written once a second, so it may lag behind the log; startup puts the units of the last files in again.

Source: TimerMessageStore#recover, #dequeue, TimerWheel; RocketMQ 5.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.layout import Container, dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import timer_units_file
from rmqinspect.schemas.timer import DEFAULT_PRECISION, WHEEL_SLOTS, TimerUnit
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.timer.log import (
    NO_POSITION,
    SLOT_SIZE,
    WHEEL_SIZE,
    Slots,
    TimerLog,
    TimerLogFile,
    due_times,
    find_precision,
    no_timercheck,
    read_rows,
    read_slots,
    read_timercheck,
    timer_log_files,
    wheel_files,
)
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.pointers import Run, append_run, cut_runs
from rmqinspect.verify.timer.chains import LogCheck, check_lengths

_CODE = "TM-CHAIN"


class SlotFault(Enum):
    """What is wrong with a slot, in the words of its finding."""

    WRONG_SLOT = "the slot's time belongs in another slot"
    LAST = "slot chain is broken: no unit with the slot's due time is at its last position"
    FIRST = "slot chain is broken: no unit with the slot's due time is at its first position"
    ORDER = "slot chain is broken: the slot's first unit lies behind its last"


def check_length(file: StoreFile, kept: CappedList[Finding, str]) -> None:
    """Report a wheel of the wrong length; an empty one is new."""
    if file.size not in (0, WHEEL_SIZE):
        kept.add(
            Finding(
                _CODE,
                "the timer wheel has the wrong length: the broker does not start",
                file=file.name,
                expected=str(WHEEL_SIZE),
                found=str(file.size),
            )
        )


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
            self._report(file, wrong, at, SlotFault.WRONG_SLOT)
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
            fault = SlotFault.LAST if not last[at] else SlotFault.FIRST if not first[at] else SlotFault.ORDER
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

    def _report(self, file: StoreFile, slots: Slots, at: int, fault: SlotFault) -> None:
        """Report a slot. One that has fired is history: it costs no message any more."""
        time, first, last = int(slots.time[at]), int(slots.first[at]), int(slots.last[at])
        fired = self.due > 0 and time < self.due // self.precision
        found = {
            SlotFault.WRONG_SLOT: f"time {time}",
            SlotFault.LAST: f"last {last}",
            SlotFault.FIRST: f"first {first}",
            SlotFault.ORDER: f"first {first}, last {last}",
        }
        self.kept.add(
            Finding(
                _CODE,
                fault.value + ("; it has fired already" if fired else ""),
                "warning" if fired else "",
                file=file.name,
                offset=int(slots.number[at]) * SLOT_SIZE,
                length=SLOT_SIZE,
                expected=f"slot {time % WHEEL_SLOTS}" if fault is SlotFault.WRONG_SLOT else f"time {time}",
                found=found[fault],
            )
        )


@dataclass(frozen=True, slots=True)
class TimerFiles:
    """The timer's files, and what else of the store decides how they are judged."""

    log: tuple[TimerLogFile, ...]  # ascending
    wheels: tuple[StoreFile, ...]  # the wheel and its snapshots
    timercheck: StoreFile | None
    in_rocksdb: StoreFile | None  # units unpacked from there, in the order of their times
    settings: Mapping[str, str]
    unclean: bool  # the abort file exists: the broker was not stopped properly
    whole: bool  # a store root was given, so files that are absent are lost

    @classmethod
    def of(cls, store: Store) -> "TimerFiles":
        """Return those of a store."""
        return cls(
            tuple(timer_log_files(store.files)),
            tuple(wheel_files(store.files)),
            store.config_files.get("timercheck"),
            timer_units_file(store),
            store.settings,
            unclean=bool(store.of_kind("abort")),
            whole=store.given == "store" and store.neighbours,
        )


@dataclass(slots=True)
class TimerSurvey:
    """Result of reading the timer files, with where the units point."""

    files: tuple[StoreFile, ...] = ()  # the timer log, ascending; then what was unpacked from RocksDB
    runs: list[tuple[int, Run]] = field(default_factory=list)  # (number of the file, rows); none before the log
    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)  # findings over the limit, by code
    unread: list[Finding] = field(default_factory=list)  # ST-IO
    units: int = 0
    end: int = 0  # timer log offset behind the last unit


def survey_timer(files: TimerFiles, borders: Ints, limit: int) -> TimerSurvey:
    """Read timer log, wheel and timercheck; keep at most `limit` findings.

    `borders`: physical offsets where the splits of the commit log begin, ascending (`cut_runs`).
    """
    kept, unread = capped_findings(limit), list[Finding]()
    log = TimerLog(files.log)
    timercheck = _read_timercheck(files.timercheck, unread)
    wheels = _read_wheels(files.wheels, kept, unread)
    kept.extend(check_lengths(log, files.settings))
    precision = DEFAULT_PRECISION
    with suppress(Unreadable):  # reported when the units are read
        precision = find_precision(files.settings, log, [slots for _, slots in wheels])
    chains = LogCheck(log, timercheck, precision, borders, kept, unread, unclean=files.unclean)
    chains.read()
    wheel = WheelCheck(chains, timercheck, whole=files.whole)
    wheel.check_flushed()
    for file, slots in wheels:
        wheel.check_slots(file, slots)
    wheel.check_pending(wheels)
    parts, runs = [part.file for part in log.files], chains.runs
    if files.in_rocksdb is not None:
        runs += _runs_in_rocksdb(files.in_rocksdb, len(parts), borders)
        parts.append(files.in_rocksdb)
    return TimerSurvey(
        tuple(parts),
        runs,
        kept.rows,
        kept.suppressed,
        unread,
        chains.units,
        chains.position,
    )


def _runs_in_rocksdb(file: StoreFile, number: int, borders: Ints) -> list[tuple[int, Run]]:
    """Return where the units that were unpacked from RocksDB point; they have no chains to judge."""
    runs: list[tuple[int, Run]] = []
    layout = dtype_of(TimerUnit)
    with open_file(file) as reader:
        for row, units in read_rows(reader, layout, reader.size // layout.itemsize):
            for run in cut_runs(units["physical_offset"].astype(np.int64), borders):
                if run.split >= 0:  # before the log: retention took those records
                    append_run(runs, number, run._replace(first=row + run.first))
    return runs


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
        check_length(file, kept)
        try:
            wheels.append((file, read_slots(file)))
        except Unreadable as error:
            unread.append(unread_finding(error))
    return wheels

"""The timer log and its wheel: TM-CHAIN, TM-BEYOND.

The units of one slot are a chain: each has the position of the one before it, and the slot those of
the oldest and the newest. `survey_timer` reads the timer log once and turns a wheel of its own with
it, as a starting broker does; what the units and the real wheel say must agree with that. Where a
unit leads in the commit log is judged where the records are read, by `judge_timer_units`.

Normal, and silent: slots are never cleared, so those of deleted units lead nowhere; the wheel is
written once a second, so it may lag behind the timer log; a start mends what the last files hold.

Source: TimerMessageStore#doEnqueue, #recoverAndRevise, #dequeue, TimerWheel, TimerLog#append;
RocketMQ 5.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units, groups, used_units
from rmqinspect.codec.layout import Container, dtype_of, parse
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.timer import (
    BLANK_MAGIC,
    DEFAULT_PRECISION,
    NO_UNIT,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerBlank,
    TimerCheck,
    TimerUnit,
    WheelSlot,
)
from rmqinspect.store.broker_conf import setting_size
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.timer.log import (
    BLANK_SIZE,
    LogPart,
    SlotRun,
    TimerLog,
    are_units,
    due_times,
    parts_of,
    read_rows,
    wheels_of,
)
from rmqinspect.timer.wheel import NO_POSITION, SLOT_SIZE, WHEEL_SIZE, WheelReplay
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.runs import Run, append_run, cut_runs

_JAVA_INT = 1 << 31  # the setting is one
_TRIED = 64  # slots that the precision is learned from
_PRECISIONS = (1000, 500, 200, 100, 50, 20, 10, 5, 2, 1)  # ms
_ENOUGH = 0.75  # of the times must be a multiple of a precision; one twice as large has half of them


@dataclass(slots=True)
class TimerSurvey:
    """What the timer files say by themselves, and where the units point. It travels between processes."""

    files: tuple[StoreFile, ...] = ()  # the timer log, ascending
    runs: list[tuple[int, Run]] = field(default_factory=list)  # (number of the file, rows); none before the log
    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)  # more findings of a code, not kept
    unread: list[Finding] = field(default_factory=list)  # ST-IO
    units: int = 0
    end: int = 0  # timer log offset behind the last unit


def survey_timer(store: Store, borders: Ints, limit: int) -> TimerSurvey:
    """Read timer log, wheel and timercheck; `limit` bounds the findings.

    `borders` has the physical offsets where the splits of the commit log begin, as `cut_runs` wants them.
    """
    survey = _Survey(store, borders, limit)
    wheels = [(file, slots) for file in wheels_of(store) if (slots := survey.read_wheel(file)) is not None]
    survey.read_log([slots for _, slots in wheels])
    survey.judge_check()
    for file, slots in wheels:
        survey.judge_slots(file, slots)
    survey.judge_pending(wheels)
    return survey.result


# --- where the units lead -----------------------------------------------------------------------


class UnitVerdict(NamedTuple):
    """What n timer units lead to. At most one mask, shape (n,), marks a unit; none marks a good one."""

    record: Ints  # index of the record that starts there, -1 without
    beyond: Bools  # at or behind the end of the commit log
    lost: Bools  # inside the log, where no record starts
    resized: Bools  # the record has another size
    retargeted: Bools  # the record is bound for another topic, or for none


# By mask of the verdict: code and message. Where the commit log was cut, the timer log is not:
# TimerMessageStore#recover looks at the timer log only (issue 10668).
_FAULTS = {
    "beyond": ("TM-BEYOND", "the timer unit points behind the commit log's end: its message is gone"),
    "lost": ("TM-CHAIN", "the timer unit leads to no record: its message is not delivered when its time comes"),
    "resized": ("TM-CHAIN", "the timer unit leads to no record of its own: the one there has another size"),
    "retargeted": (
        "TM-CHAIN",
        "the timer unit leads to no record of its own: the one there is not bound for the same topic",
    ),
}


def judge_timer_units(
    units: Units, starts: Ints, sizes: Ints, real_topic_hashes: Ints, log_start: int, log_end: int
) -> UnitVerdict:
    """Say what each timer unit leads to, given all records of the part of the log that they point into.

    `starts`, ascending, are physical offsets; a real topic hash is `java_string_hash` of REAL_TOPIC, 0
    for a record without. Units before `log_start` are normal: retention took their records.
    Source: TimerMessageStore#getMessageByCommitOffset, #hashTopicForMetrics.
    """
    place = units["physical_offset"].astype(np.int64)
    at = np.minimum(np.searchsorted(starts, place), len(starts) - 1)
    hit = starts[at] == place if len(starts) else np.zeros(len(units), np.bool_)
    record = np.where(hit, at, -1)
    resized, retargeted = np.zeros((2, len(units)), np.bool_)
    resized[hit] = units["record_size"][hit] != sizes[at[hit]]
    retargeted[hit] = units["real_topic_hash"][hit] != real_topic_hashes[at[hit]]
    beyond = ~hit & (place >= log_end)
    lost = ~hit & (place >= log_start) & ~beyond
    return UnitVerdict(record, beyond, lost, resized, retargeted & ~resized)


def tell_timer_units(
    file: StoreFile,
    rows: Ints,
    units: Units,
    verdict: UnitVerdict,
    sizes: Ints,
    real_topic_hashes: Ints,
    limit: int = 1000,
) -> Iterator[Finding]:
    """Yield what a verdict says of the units at `rows` of a file; consecutive rows alike are one finding.

    `sizes` and `real_topic_hashes` are those that the verdict was made with. Behind `limit` findings
    the rest of a kind is one more, with its count.
    """
    fault = np.zeros(len(units), np.int64)
    for number, name in enumerate(_FAULTS, 1):
        fault[getattr(verdict, name)] = number
    bad = np.flatnonzero(fault)
    runs = groups(fault[bad], rows[bad] - np.arange(len(bad)))
    some = [bad[first:behind] for first, behind in runs[:limit]]
    rest = bad[runs[limit][0] :] if len(runs) > limit else bad[:0]
    some += [rest[fault[rest] == number] for number in np.unique(fault[rest])]
    for which in some:
        at = int(which[0])
        name = list(_FAULTS)[fault[at] - 1]
        code, message = _FAULTS[name]
        expected, found = None, f"{units['record_size'][at]} bytes at {units['physical_offset'][at]}"
        if name == "resized":
            expected = f"{sizes[verdict.record[at]]} bytes"
        elif name == "retargeted":
            expected = f"topic hash {real_topic_hashes[verdict.record[at]]}"
            found = f"topic hash {units['real_topic_hash'][at]}"
        first, last = int(rows[at]), int(rows[which[-1]])
        yield Finding(
            code,
            message,
            file=file.name,
            offset=first * UNIT_SIZE,
            length=(last + 1 - first) * UNIT_SIZE,
            physical_offset=int(units["physical_offset"][at]),
            count=len(which),
            expected=expected,
            found=found,
        )


def read_timer_units(file: StoreFile, run: Run, low: int, high: int) -> tuple[Ints, Units]:
    """Return (rows, units) of a run that point at physical offsets [low, high).

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(file) as reader:
        raw = reader.read(run.first * UNIT_SIZE, run.rows * UNIT_SIZE)
    units = np.frombuffer(raw, dtype_of(TimerUnit), len(raw) // UNIT_SIZE)
    inside = np.flatnonzero(are_units(units) & (units["physical_offset"] >= low) & (units["physical_offset"] < high))
    return run.first + inside, units[inside]


class _Suspects:
    """Units that stand in a wrong chain, so that what follows from that is not told, too."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.position: Ints = np.empty(0, np.int64)  # ascending
        self.before: Ints = np.empty(0, np.int64)  # what the unit behind it in that chain leads to

    def has(self, positions: Ints) -> Bools:
        """Return which positions are a suspect's."""
        return np.isin(positions, self.position)

    def judge(self, position: Ints, before: Ints, expected: Ints) -> Bools:
        """Return which of these units, whose `before` is not the one `expected`, are to be told.

        A unit with a damaged time stands in the wrong chain, whose next unit leads past it, and the
        next unit of the right chain leads to it. It may be only these that show the damage.
        """
        self._add(position, expected)
        reported: Bools = ~self.has(before) | (before >= position)
        blamed = before[reported & (expected == NO_POSITION)]
        self._add(blamed, np.full(len(blamed), NO_POSITION))
        if len(self.position):
            at = np.minimum(np.searchsorted(self.position, expected), len(self.position) - 1)
            reported &= (self.position[at] != expected) | (self.before[at] != before)
        return reported

    def _add(self, position: Ints, before: Ints) -> None:
        room = max(0, self.limit - len(self.position))
        self.position = np.concatenate((self.position, position[:room]))
        order = np.argsort(self.position, kind="stable")
        self.before = np.concatenate((self.before, before[:room]))[order]
        self.position = self.position[order]


# --- the rules ----------------------------------------------------------------------------------


class _Survey:
    def __init__(self, store: Store, borders: Ints, limit: int) -> None:
        self.store, self.borders = store, borders
        self.log = TimerLog(parts_of(store))
        self.kept = capped_findings(limit)
        files = tuple(part.file for part in self.log.parts)
        self.result = TimerSurvey(files, findings=self.kept.rows, suppressed=self.kept.suppressed)
        self.whole = store.place == "store" and store.neighbours
        self.unclean = bool(store.of_kind("abort"))
        self.replay = WheelReplay()
        self.suspects = _Suspects(limit)
        self.precision = DEFAULT_PRECISION
        self.position = self.log.start  # where the next unit must begin
        self.ended = False  # what follows `position` is no part of the log
        self.torn = False  # and is no whole unit
        self.check = self._read_check()

    def _read_check(self) -> Container:
        """Return the fields of timercheck; what is missing is 0, as in the file that a broker maps."""
        raw = b""
        file = self.store.config_files.get("timercheck")
        if file is not None:
            try:
                with open_file(file) as reader:
                    raw = reader.read(0, TimerCheck.sizeof())
            except Unreadable as error:
                self.result.unread.append(unread_finding(error))
        return parse(TimerCheck, raw.ljust(TimerCheck.sizeof(), b"\0"), lambda: "timercheck")

    # --- the timer log --------------------------------------------------------------------------

    def read_log(self, wheels: Sequence[SlotRun]) -> None:
        """Read all units of the timer log and judge the chains that they make."""
        self._judge_lengths()
        with suppress(Unreadable):  # told when the units are read
            self.precision = self._find_precision(wheels)
        for number, part in enumerate(self.log.parts):
            if self.ended:
                break
            try:
                self._read_part(number, part)
            except Unreadable as error:
                self.result.unread.append(unread_finding(error))
                if self.position < part.end:
                    self.log.add_gaps(np.array([self.position]), np.array([part.end]))
                self.position = max(self.position, part.end)
        self.result.end = self.position
        self._judge_tail()

    def _judge_lengths(self) -> None:
        """Tell files of another length than the others. Source: MappedFileQueue#load."""
        sizes = Counter(part.file.size for part in self.log.parts)
        steps = set(np.diff(self.log.bases).tolist())
        usual = setting_size(self.store.settings, "mappedFileSizeTimerLog") or max(
            sizes, key=lambda size: (sizes[size], size in steps, size), default=0
        )
        for part in self.log.parts:
            if part.file.size != usual:
                self._report(
                    "the file has not the length of the timer log's files: the broker does not start",
                    part.file.name,
                    None,
                    None,
                    expected=str(usual),
                    found=str(part.file.size),
                )

    def _find_precision(self, wheels: Sequence[SlotRun]) -> int:
        """Return the wheel's precision in ms: configured, or as slots and their units say, or as times do.

        :raises Unreadable: the system reports an I/O error.
        """
        configured = setting_size(self.store.settings, "timerPrecisionMs")
        if configured and configured < _JAVA_INT:
            return configured
        if not self.log.parts:
            return DEFAULT_PRECISION
        for slots in wheels:
            reported = slots.select(np.flatnonzero((slots.time > 0) & (slots.last >= self.log.start))[:_TRIED])
            units, found = self.log.read_at(reported.last)
            votes = Counter((due_times(units)[found] // reported.time[found]).tolist())
            likely = max(votes, key=lambda vote: votes[vote], default=0)
            if 0 < likely < _JAVA_INT:
                return likely
        with open_file(self.log.parts[0].file) as reader:
            for _, units in read_rows(reader, dtype_of(TimerUnit), self.log.parts[0].rows):
                # Enqueue times are cut to the precision. Source: TimerMessageStore#formatTimeMs.
                times = units["enqueue_timestamp"][are_units(units)]
                fits = (p for p in _PRECISIONS if len(times) and np.mean(times % p == 0) >= _ENOUGH)
                return next(fits, DEFAULT_PRECISION)
        return DEFAULT_PRECISION

    def _read_part(self, number: int, part: LogPart) -> None:
        with open_file(part.file) as reader:
            for row, units in read_rows(reader, dtype_of(TimerUnit), part.rows):
                blanks = np.flatnonzero(units["magic"] == BLANK_MAGIC)
                end = int(blanks[0]) if len(blanks) else len(units)
                self._take(number, part, row, units[:end])
                if self.ended:
                    return
                if len(blanks):
                    self.position = part.end
                    return
            if self.position == part.base + part.rows * UNIT_SIZE:
                raw = reader.read(self.position - part.base, BLANK_SIZE)
                blank = np.frombuffer(raw, dtype_of(TimerBlank), len(raw) // BLANK_SIZE)
                if len(blank) and blank["magic"][0] == BLANK_MAGIC:
                    self.position = part.end

    def _take(self, number: int, part: LogPart, first: int, units: Units) -> None:
        """Take a window of rows; what is no unit is a gap if units follow."""
        rows = np.flatnonzero(are_units(units))
        position = part.base + (first + rows) * UNIT_SIZE
        if not len(rows):
            return
        behind = np.concatenate(([self.position], position[:-1] + UNIT_SIZE))
        gaps = np.flatnonzero(position > behind)
        # What an unclean start cut off stays in the file, behind the place up to which it was flushed.
        flushed = self.check.last_timer_log_flush_pos
        if len(gaps) and not self.unclean and 0 < flushed <= behind[gaps[-1]]:
            cut = int(gaps[np.argmax(behind[gaps] >= flushed)])
            self._report_gap(int(behind[cut]), int(position[cut]), stale=True)
            self.ended = True
            gaps, rows, position = gaps[gaps < cut], rows[:cut], position[:cut]
        self.log.add_gaps(behind[gaps], position[gaps])
        for gap in self._some(gaps):
            self._report_gap(int(behind[gap]), int(position[gap]), stale=False)
        if len(rows):
            self.position = int(position[-1]) + UNIT_SIZE
            self._judge_units(number, part, first + rows, position, units[rows])

    def _judge_units(self, number: int, part: LogPart, rows: Ints, position: Ints, units: Units) -> None:
        self.result.units += len(units)
        places = units["physical_offset"].astype(np.int64)
        for run in cut_runs(places, self.borders):
            first, last = int(rows[run.first]), int(rows[run.first + run.rows - 1])
            if run.split >= 0:  # else their records are gone, with the segments that held them
                append_run(self.result.runs, number, Run(first, last - first + 1, run.split))
        expected = self.replay.put(due_times(units) // self.precision, position)
        previous = units["previous"].astype(np.int64)
        # Timer log files are deleted from the oldest on: what a unit says of them is believed.
        gone = (previous == NO_UNIT) | ((previous >= 0) & (previous < self.log.start))
        before = np.where(gone, NO_POSITION, previous)
        wrong = np.flatnonzero(before != expected)
        wrong = wrong[~self.log.in_gap(previous[wrong])]
        for at in self._some(wrong[self.suspects.judge(position[wrong], before[wrong], expected[wrong])]):
            want, has = int(expected[at]), int(previous[at])
            self._report(
                "the chain of a slot is broken: " + self._explain_previous(want, has, int(position[at])),
                part.file.name,
                int(rows[at]) * UNIT_SIZE,
                UNIT_SIZE,
                int(places[at]),
                expected=str(NO_UNIT if want == NO_POSITION else want),
                found=str(has),
            )
        impossible = np.flatnonzero((places < 0) | (units["record_size"] <= 0))
        for at in self._some(impossible):
            self._report(
                "the timer unit leads to no record: a physical offset below 0, or a size not above 0",
                part.file.name,
                int(rows[at]) * UNIT_SIZE,
                UNIT_SIZE,
                found=f"{units['record_size'][at]} bytes at {places[at]}",
            )

    def _explain_previous(self, expected: int, previous: int, own: int) -> str:
        if previous == NO_UNIT:
            return "the unit says that none is before it, but an earlier one has the same time"
        if previous >= own:
            return "the previous position is the unit's own, or lies behind it: reading the slot may not end"
        part = self.log.part_at(previous)
        if previous < NO_UNIT or part is None or (previous - part.base) % UNIT_SIZE:
            return "no unit begins at the previous position"
        if expected == NO_POSITION:
            return "the unit at the previous position has another time"
        return "the previous position is not that of the last unit with the same time"

    def _judge_tail(self) -> None:
        """Tell a log that ends in something else than zeros."""
        part = self.log.part_at(self.position)
        if part is None or self.ended:
            return
        try:
            with open_file(part.file) as reader:
                raw = reader.read(self.position - part.base, UNIT_SIZE)
        except Unreadable:
            return  # told when the units were read
        self.torn = any(raw)
        if self.torn:
            self._report(
                "the timer log ends in bytes that are no whole unit: a start cuts it here and takes the messages "
                "behind from their queue again",
                part.file.name,
                self.position - part.base,
                len(raw),
                expected="a unit, a blank or zeros",
                found=f"bytes {raw[:BLANK_SIZE].hex(' ')}",
            )

    def judge_check(self) -> None:
        """Tell a timer log that ends before the place up to which it was flushed."""
        flushed, end = self.check.last_timer_log_flush_pos, self.result.end
        if flushed > end and not self.torn and not self.result.unread and (self.log.parts or self.whole):
            part = self.log.part_at(end)
            self._report(
                "the timer log ends before the place that timercheck says was flushed: units are lost",
                part.file.name if part else "timerlog",
                end - part.base if part else None,
                None,
                expected=f"units up to {flushed}",
                found=f"up to {end}",
            )

    # --- the wheel ------------------------------------------------------------------------------

    def read_wheel(self, file: StoreFile) -> SlotRun | None:
        """Return the used slots of a wheel, None if it cannot be read."""
        if file.size not in (0, WHEEL_SIZE):  # an empty one is new
            self._report(
                "the timer wheel has not its length: the broker does not start",
                file.name,
                None,
                None,
                expected=str(WHEEL_SIZE),
                found=str(file.size),
            )
        columns: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in SlotRun._fields]
        try:
            with open_file(file) as reader:
                for row, slots in read_rows(reader, dtype_of(WheelSlot), min(reader.size // SLOT_SIZE, WHEEL_SLOTS)):
                    used = np.flatnonzero(used_units(slots))
                    for column, values in zip(
                        columns, (row + used, *(slots[name][used] for name in SlotRun._fields[1:])), strict=True
                    ):
                        column.append(values.astype(np.int64))
        except Unreadable as error:
            self.result.unread.append(unread_finding(error))
            return None
        return SlotRun(*(np.concatenate(column) for column in columns))

    def judge_slots(self, file: StoreFile, slots: SlotRun) -> None:
        """Judge the slots of a wheel against the timer log."""
        misplaced = slots.time % WHEEL_SLOTS != slots.number
        wrong = slots.select(misplaced)
        for at in self._some(np.arange(len(wrong.number))):
            self._report_slot(file, wrong, at, "the slot's time belongs into another slot", f"time {wrong.time[at]}")
        # Slots are never cleared: this is what is left of those whose units were deleted.
        slots = slots.select(~misplaced & ~((slots.last >= 0) & (slots.last < self.log.start)))
        if not self.log.parts and (not self.whole or self.check.last_timer_log_flush_pos > 0):
            return  # the timer log was not given, or it was told that there is none
        beyond = (slots.last >= self.result.end) | (slots.first >= self.result.end)
        self._judge_lead(file, slots.select(beyond))
        slots = slots.select(~beyond)
        try:
            last = self._lead(slots.last, slots.time)
            first = (slots.first >= 0) & (slots.first < self.log.start) | self._lead(slots.first, slots.time)
        except Unreadable as error:
            self.result.unread.append(unread_finding(error))
            return
        for at in self._some(np.flatnonzero(~last | ~first | (slots.first > slots.last))):
            if not last[at]:
                what, found = "its last unit is not one of its time", f"last {slots.last[at]}"
            elif not first[at]:
                what, found = "its first unit is not one of its time", f"first {slots.first[at]}"
            else:
                what, found = "its first unit is behind its last", f"first {slots.first[at]}, last {slots.last[at]}"
            self._report_slot(file, slots, at, "the chain of the slot is broken: " + what, found)

    def _lead(self, positions: Ints, times: Ints) -> Bools:
        """Return which positions lead to a unit of that time, or to one that is lost or told already.

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

    def _judge_lead(self, file: StoreFile, slots: SlotRun) -> None:
        """Tell slots that know units which the timer log does not hold."""
        if not len(slots.number) or self.check.last_timer_log_flush_pos > self.result.end:
            return  # `judge_check` has told it
        what = f"{len(slots.number)} slots lead behind the timer log's end: it lost units that they had"
        if self.unclean:
            what += "; the next start takes their messages from the queue again"
        self._report(
            what,
            file.name,
            int(slots.number[0]) * SLOT_SIZE,
            SLOT_SIZE,
            count=len(slots.number),
            severity="info" if self.unclean else "",
            expected=f"before {self.result.end}",
            found=str(max(slots.first.max(), slots.last.max())),
        )

    def judge_pending(self, wheels: Sequence[tuple[StoreFile, SlotRun]]) -> None:
        """Tell pending units that no slot leads to, where a start does not mend that.

        A start puts the units of the last files into their slots again, from one file's size before
        the flushed place on. Source: TimerMessageStore#recover.
        """
        flushed, due = self.check.last_timer_log_flush_pos, self.check.last_read_timestamp
        if not self.whole or not self.log.parts or flushed <= 0 or due <= 0 or len(wheels) > 1:
            return  # of a wheel and its snapshots it is not known which one a start takes
        part = self.log.part_at(max(0, flushed - self.log.parts[-1].file.size))
        time, last = np.full((2, WHEEL_SLOTS), NO_POSITION, np.int64)
        for _, slots in wheels:
            time[slots.number], last[slots.number] = slots.time, slots.last
        replay = self.replay
        lost = (replay.time >= due // self.precision) & (replay.last < (part.base if part else 0))
        lost &= (time < replay.time) | ((time == replay.time) & (last < replay.last))
        lost &= ~self.suspects.has(replay.last)
        which = np.flatnonzero(lost)
        if len(which):
            self._report(
                f"{len(which)} pending times have units that the wheel does not lead to: a start does not mend it",
                wheels[0][0].name if wheels else "timerwheel",
                int(which[0]) * SLOT_SIZE,
                SLOT_SIZE,
                count=len(which),
                expected=f"last {replay.last[which[0]]}",
                found=f"last {last[which[0]]}" if time[which[0]] == replay.time[which[0]] else "another time",
            )

    # --- reporting ------------------------------------------------------------------------------

    def _some(self, which: Ints) -> list[int]:
        """Return as many as may be told; the rest is counted."""
        return list(self.kept.admit("TM-CHAIN", which.tolist()))

    def _report_gap(self, start: int, end: int, *, stale: bool) -> None:
        part = self.log.part_at(start)
        what = "no unit begins here, but units follow: a start cuts the timer log here"
        if stale:
            what = "units behind the timer log's end, from before it was cut"
        elif part is None:
            what = "a file of the timer log is missing"
        self._report(
            what,
            part.file.name if part else f"timerlog/{start:020}",
            start - part.base if part else None,
            end - start,
            severity="warning" if stale else "",
            count=1 if stale else max(1, (end - start) // UNIT_SIZE),
            expected="zeros to the end" if stale else "units",
            found=f"units at {end}" if stale else None,
        )

    def _report_slot(self, file: StoreFile, slots: SlotRun, at: int, what: str, found: str) -> None:
        """Tell of a slot; one that has fired is history, and no message is lost by it any more."""
        due = self.check.last_read_timestamp
        fired = due > 0 and int(slots.time[at]) < due // self.precision
        self._report(
            what + ("; it has fired already" if fired else ""),
            file.name,
            int(slots.number[at]) * SLOT_SIZE,
            SLOT_SIZE,
            severity="warning" if fired else "",
            found=found,
            expected=f"slot {slots.time[at] % WHEEL_SLOTS}" if "another slot" in what else f"time {slots.time[at]}",
        )

    def _report(
        self,
        what: str,
        file: str,
        offset: int | None,
        length: int | None,
        physical_offset: int | None = None,
        *,
        severity: str = "",
        count: int = 1,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        self.kept.add(
            Finding(
                "TM-CHAIN",
                what,
                severity,
                file=file,
                offset=offset,
                length=length,
                physical_offset=physical_offset,
                count=count,
                expected=expected,
                found=found,
            )
        )

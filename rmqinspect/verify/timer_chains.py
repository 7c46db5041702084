r"""The timer log against itself: TM-CHAIN of units, gaps and the log's end.

Idea: read the log once, in order, and put every unit into a replayed wheel. The replay knows which unit stood
last in that unit's slot; the unit's `previous` must be its position.

    replayed slot    last = P          unit read next, same slot, at position Q
                            \_______ previous must be P; the slot's last becomes Q

Invariants:
  - `position` is where the next unit must begin; everything before it was read or is a recorded gap;
  - positions in a gap are unknown: no link into one is reported, because the gap was;
  - what points before the log's first file is believed: files are deleted oldest first;
  - one damaged unit is one finding (`Suspects`).

Source: TimerMessageStore#doEnqueue, #recoverAndRevise, TimerLog#append; RocketMQ 5.0.0 to 5.5.0.

Units that stand in a wrong chain, so that one damaged unit is one finding.

A unit with a damaged due time is put into the wrong chain. Two more links then look wrong: the next unit of the
wrong chain does not lead to it, and the next unit of its own chain does.

    own chain      A <- B <- C        B's time is damaged
    as replayed    A <------ C        C leads to B: suspect, not reported again
                   X <- B <- Y        B leads to A instead of X: reported
                                      Y leads to X instead of B: suspect, not reported again
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units, is_among
from rmqinspect.codec.layout import Container, dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.timer import BLANK_MAGIC, NO_UNIT, UNIT_SIZE, TimerUnit
from rmqinspect.store.broker_conf import setting_size
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.timer.log import (
    BLANK_SIZE,
    NO_POSITION,
    TimerLog,
    TimerLogFile,
    WheelReplay,
    are_units,
    due_times,
    is_blank_at,
    read_rows,
)
from rmqinspect.verify.findings import Finding, unread_finding
from rmqinspect.verify.plan import cut_runs


class Suspects:
    """Positions of suspect units, ascending, each with the position that the unit behind it should lead to."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.position: Ints = np.empty(0, np.int64)
        self.before: Ints = np.empty(0, np.int64)

    def has(self, positions: Ints) -> Bools:
        """Return which positions are a suspect's."""
        return is_among(positions, self.position)

    def judge(self, position: Ints, before: Ints, expected: Ints) -> Bools:
        """Return which of these units to report; `before` is where each leads, and is not `expected`.

        A link that is explained by a suspect is not reported. The damaged unit itself may show nothing.
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


_CODE = "TM-CHAIN"


def check_lengths(log: TimerLog, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield files whose length differs from the configured one, or from that of most files.

    Source: MappedFileQueue#load.
    """
    sizes = Counter(part.file.size for part in log.files)
    steps = set(np.diff(log.bases).tolist())
    usual = setting_size(settings, "mappedFileSizeTimerLog") or max(
        sizes, key=lambda size: (sizes[size], size in steps, size), default=0
    )
    for part in log.files:
        if part.file.size != usual:
            yield Finding(
                _CODE,
                "the timer log file has the wrong length: the broker does not start",
                file=part.file.name,
                expected=str(usual),
                found=str(part.file.size),
            )


class LogCheck:
    """Reads all units of the timer log, judges their links, and replays the wheel from them."""

    def __init__(
        self,
        log: TimerLog,
        timercheck: Container,
        precision: int,
        borders: Ints,
        kept: CappedList[Finding, str],
        unread: list[Finding],
        *,
        unclean: bool,
    ) -> None:
        """Findings go to `kept`, I/O errors to `unread`; `unclean`: the broker was not stopped properly."""
        self.log, self.precision, self.borders, self.unclean = log, precision, borders, unclean
        self.kept, self.unread = kept, unread
        self.flushed = int(timercheck.last_timer_log_flush_pos)
        self.replay, self.suspects = WheelReplay(), Suspects(kept.limit)
        self.runs: list[Ints] = []  # as `plan.Runs` has them, none before the log: retention took those records
        self.units = 0
        self.position = log.start  # where the next unit must begin, in the end the log's end
        self.ended = False  # what follows `position` is left over from before the log was truncated
        self.torn = False  # what follows `position` is part of a unit

    def read(self) -> None:
        """Read the log from its first unit to its last."""
        for number, part in enumerate(self.log.files):
            if self.ended:
                break
            try:
                self._read_file(number, part)
            except Unreadable as error:
                self.unread.append(unread_finding(error))
                if self.position < part.end:
                    self.log.add_gaps(np.array([self.position]), np.array([part.end]))
                self.position = max(self.position, part.end)
        self._check_tail()

    def _read_file(self, number: int, part: TimerLogFile) -> None:
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
            behind_last_row = part.rows * UNIT_SIZE
            if self.position == part.base + behind_last_row and is_blank_at(reader, behind_last_row):
                self.position = part.end

    def _take(self, number: int, part: TimerLogFile, first: int, units: Units) -> None:
        """Take a window of rows. Rows that are no units are a gap if units follow."""
        rows = np.flatnonzero(are_units(units))
        position = part.base + (first + rows) * UNIT_SIZE
        if not len(rows):
            return
        behind = np.concatenate(([self.position], position[:-1] + UNIT_SIZE))
        gaps = np.flatnonzero(position > behind)
        # A recovery truncates the log but leaves the bytes: after a clean stop, units behind what was flushed are old.
        if len(gaps) and not self.unclean and 0 < self.flushed <= behind[gaps[-1]]:
            cut = int(gaps[np.argmax(behind[gaps] >= self.flushed)])
            self._report_stale(int(behind[cut]), int(position[cut]))
            self.ended = True
            gaps, rows, position = gaps[gaps < cut], rows[:cut], position[:cut]
        self.log.add_gaps(behind[gaps], position[gaps])
        for gap in self.kept.admit(_CODE, gaps.tolist()):
            self._report_gap(int(behind[gap]), int(position[gap]))
        if len(rows):
            self.position = int(position[-1]) + UNIT_SIZE
            self._judge_units(number, part, first + rows, position, units[rows])

    def _judge_units(self, number: int, part: TimerLogFile, rows: Ints, position: Ints, units: Units) -> None:
        self.units += len(units)
        places = units["physical_offset"].astype(np.int64)
        runs = cut_runs(number, 0, places, self.borders)
        # Between units there may be rows that are none.
        last = rows[runs[:, 2] + runs[:, 3] - 1]
        runs[:, 2] = rows[runs[:, 2]]
        runs[:, 3] = last - runs[:, 2] + 1
        self.runs.append(runs[runs[:, 0] >= 0])
        expected = self.replay.put(due_times(units) // self.precision, position)
        self._judge_links(part, rows, position, units, expected)
        impossible = np.flatnonzero((places < 0) | (units["record_size"] <= 0))
        for at in self.kept.admit(_CODE, impossible.tolist()):
            self.kept.add(
                Finding(
                    _CODE,
                    "the timer unit points to no record: its physical offset is negative or its size is not positive",
                    file=part.file.name,
                    offset=int(rows[at]) * UNIT_SIZE,
                    length=UNIT_SIZE,
                    found=f"{units['record_size'][at]} bytes at {places[at]}",
                )
            )

    def _judge_links(self, part: TimerLogFile, rows: Ints, position: Ints, units: Units, expected: Ints) -> None:
        previous = units["previous"].astype(np.int64)
        gone = (previous == NO_UNIT) | ((previous >= 0) & (previous < self.log.start))
        before = np.where(gone, NO_POSITION, previous)
        wrong = np.flatnonzero(before != expected)
        wrong = wrong[~self.log.in_gap(previous[wrong])]
        wrong = wrong[self.suspects.judge(position[wrong], before[wrong], expected[wrong])]
        for at in self.kept.admit(_CODE, wrong.tolist()):
            want, has = int(expected[at]), int(previous[at])
            self.kept.add(
                Finding(
                    _CODE,
                    f"slot chain is broken: {self._explain_link(want, has, int(position[at]))}",
                    file=part.file.name,
                    offset=int(rows[at]) * UNIT_SIZE,
                    length=UNIT_SIZE,
                    physical_offset=int(units["physical_offset"][at]),
                    expected=str(NO_UNIT if want == NO_POSITION else want),
                    found=str(has),
                )
            )

    def _explain_link(self, expected: int, previous: int, own: int) -> str:
        if previous == NO_UNIT:
            return "the unit says it is the first of its slot, but an earlier unit has the same due time"
        if previous >= own:
            return "the previous position is the unit's own or a later one: reading the slot may never end"
        part = self.log.file_at(previous)
        if previous < NO_UNIT or part is None or (previous - part.base) % UNIT_SIZE:
            return "no unit begins at the previous position"
        if expected == NO_POSITION:
            return "the unit at the previous position has another due time"
        return "the previous position is not that of the last unit with the same due time"

    def _check_tail(self) -> None:
        """Report a log that ends in something other than zeros."""
        part = self.log.file_at(self.position)
        if part is None or self.ended:
            return
        try:
            with open_file(part.file) as reader:
                raw = reader.read(self.position - part.base, UNIT_SIZE)
        except Unreadable:
            return  # reported when the units were read
        self.torn = any(raw)
        if self.torn:
            self.kept.add(
                Finding(
                    _CODE,
                    "the timer log ends in a torn unit: startup truncates it here and reads the messages behind "
                    "again from the timer queue",
                    file=part.file.name,
                    offset=self.position - part.base,
                    length=len(raw),
                    expected="a unit, a blank or zeros",
                    found=f"bytes {raw[:BLANK_SIZE].hex(' ')}",
                )
            )

    def _report_stale(self, start: int, end: int) -> None:
        self.kept.add(
            Finding(
                _CODE,
                "stale units behind the end of the timer log, left over from before it was truncated",
                "warning",
                **self._place_of(start),
                length=end - start,
                expected="zeros to the end",
                found=f"units at {end}",
            )
        )

    def _report_gap(self, start: int, end: int) -> None:
        what = "no timer unit here, but units follow: startup truncates the timer log here"
        if self.log.file_at(start) is None:
            what = "a timer log file is missing"
        self.kept.add(
            Finding(
                _CODE,
                what,
                **self._place_of(start),
                length=end - start,
                count=max(1, (end - start) // UNIT_SIZE),
                expected="units",
            )
        )

    def _place_of(self, position: int) -> Any:
        part = self.log.file_at(position)
        if part is None:
            return {"file": f"timerlog/{position:020}"}
        return {"file": part.file.name, "offset": position - part.base}

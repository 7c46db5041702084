"""The timer files by themselves: TM-CHAIN, and which units point into which split of the commit log.

Whether a unit leads to its message is judged where the records are read (`verify.timer.join`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import Container, dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.entries import timer_units_file
from rmqinspect.schemas.timer import DEFAULT_PRECISION, TimerUnit
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.timer.log import TimerLog, TimerLogFile, read_rows, timer_log_files
from rmqinspect.timer.precision import find_precision
from rmqinspect.timer.timercheck import no_timercheck, read_timercheck
from rmqinspect.timer.wheel import Slots, read_slots, wheel_files
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.runs import Run, append_run, cut_runs
from rmqinspect.verify.timer.chains import LogCheck, check_lengths
from rmqinspect.verify.timer.wheel import WheelCheck, check_length


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

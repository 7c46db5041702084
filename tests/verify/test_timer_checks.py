"""The timer log and its wheel: each rule with a store that shows it and one, nearly the same, that is silent."""

import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.java import java_string_hash
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.schemas.places import place_of
from rmqinspect.schemas.timer import (
    NO_UNIT,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerCheck,
    TimerUnit,
    WheelSlot,
)
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.timer.log import WHEEL_SIZE
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.plan import CrossPlan, LogMap, Runs
from rmqinspect.verify.pointers import Joined, LogRanges
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from rmqinspect.verify.survey import survey_tasks
from rmqinspect.verify.timer_survey import TimerSurvey, join_timer, survey_timer
from tests.support import oracle
from tests.support.side_tables import BROKERS, broker, units_of, write
from tests.support.timers import FILE_SIZE, NOW, ROOM, Timer, some

BORDERS = np.array([0], np.int64)
TIMERS = tuple(name for name in BROKERS if broker(name).of_kind("timer_wheel"))


def survey(store: Store, limit: int = 1000) -> TimerSurvey:
    found = survey_timer(store, BORDERS, limit)
    assert pickle.loads(pickle.dumps(found)).findings == found.findings
    assert all(finding.code == "TM-CHAIN" for finding in found.findings)
    assert not found.unread
    return found


def reported(store: Store) -> list[Finding]:
    found = survey(store)
    assert not found.suppressed
    return found.findings


def only(store: Store) -> Finding:
    (finding,) = reported(store)
    return finding


def place(number: int) -> tuple[str, int]:
    """Return (file, offset) of the unit with this number."""
    return f"timerlog/{number // ROOM * FILE_SIZE:020}", number % ROOM * UNIT_SIZE


# --- silent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TIMERS)
def test_real_stores_are_silent(name: str) -> None:
    store = broker(name)
    found = survey_timer(store, np.array([segment.base for segment in store.segments], np.int64), 100)
    assert (found.findings, found.suppressed, found.unread) == ([], {}, [])
    assert found.units > 2
    assert found.end == found.units * UNIT_SIZE
    if not store.of_kind("abort"):
        check = (oracle.store("broker", name) / "config" / "timercheck").read_bytes()
        assert TimerCheck.parse(check).last_timer_log_flush_pos == found.end


def test_a_timer_of_three_files_is_silent(tmp_path: Path) -> None:
    found = survey(some().write(tmp_path))
    assert found.findings == []
    assert found.units == 45
    assert found.end == 2 * FILE_SIZE + 7 * UNIT_SIZE
    assert [file.name[-4:] for file in found.files] == ["0000", "1040", "2080"]


def test_slots_and_units_of_deleted_files_are_silent(tmp_path: Path) -> None:
    timer = some().add(NOW + 500)
    timer.base = FILE_SIZE
    timer.slots[7] = {"time": 7, "first": 0, "last": 52, "message_count": 2, "magic": 0}
    assert reported(timer.write(tmp_path)) == []


def test_a_slot_is_taken_over_after_two_weeks(tmp_path: Path) -> None:
    weeks = NOW + 10 + WHEEL_SLOTS
    timer = Timer().add(NOW + 10, NOW + 11, NOW + 10).add(weeks, weeks, enqueued=weeks - 60)
    assert len(timer.slots) == 2
    assert reported(timer.write(tmp_path)) == []


def test_a_wheel_that_lags_behind_is_silent(tmp_path: Path) -> None:
    timer = some().add(NOW + 900)
    del timer.slots[(NOW + 900) % WHEEL_SLOTS]
    timer.slot(NOW + 11, last=sorted(timer.units)[33])  # 41 is the newest
    timer.slot(NOW + 12, message_count=-3)
    assert reported(timer.write(tmp_path)) == []


@pytest.mark.parametrize(("name", "slots"), [("timerwheel.tmp", {1: 2}), ("timerwheel", {})])
def test_a_wheel_that_is_half_written_or_new_is_silent(tmp_path: Path, name: str, slots: dict[int, int]) -> None:
    timer = some()
    timer.wheel = None
    (tmp_path / name).write_bytes(bytes(slots))
    assert reported(timer.write(tmp_path)) == []


def test_another_precision_is_learned_from_the_wheel(tmp_path: Path) -> None:
    timer = Timer(precision=100).add(NOW + 10.1, NOW + 10.2, NOW + 10.1, NOW + 10.2, NOW + 10.1)
    assert reported(timer.write(tmp_path)) == []


def test_another_precision_is_learned_from_the_times(tmp_path: Path) -> None:
    timer = Timer(precision=100, wheel=None)
    for number in range(10):
        timer.add(NOW + 10.1, NOW + 10.2, enqueued=NOW + number / 10)
    assert reported(timer.write(tmp_path)) == []


def test_times_within_one_slot_are_one_chain(tmp_path: Path) -> None:
    assert reported(Timer().add(NOW + 10, NOW + 10.5, NOW + 10.2, NOW + 11).write(tmp_path)) == []


def test_a_timer_log_alone_is_read(tmp_path: Path) -> None:
    some().change(5, magic=16).write(tmp_path)
    finding = only(open_store([str(tmp_path / "timerlog")]))
    assert (finding.file, finding.offset) == ("00000000000000000000", 5 * UNIT_SIZE)


def test_a_timer_file_given_alone_is_known_by_its_bytes(tmp_path: Path) -> None:
    some().write(tmp_path)
    for name, kind in ((place(19)[0], "timer_log"), ("timerwheel", "timer_wheel")):
        store = open_store([str(tmp_path / name)])
        assert [file.kind for file in store.files] == [kind]
        assert reported(store) == []


def test_a_queue_whose_offsets_begin_like_a_timer_log_is_a_queue(tmp_path: Path) -> None:
    start = UNIT_SIZE << 32
    raw = units_of((start, 200, 2598919), (start + 200, 200, 2598919), (start + 400, 200, 2598919))
    path = write(tmp_path, "consumequeue/orders/0/00000000000000000000", raw)
    assert open_store([str(path)]).files[0].kind == "queue"


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("previous", "words"),
    [
        (3 * UNIT_SIZE + 1, "no unit begins"),
        (-2, "no unit begins"),
        (ROOM * UNIT_SIZE + 4, "no unit begins"),  # in the blank
        (10**6, "unit's own or a later one"),
        (FILE_SIZE + 4 * UNIT_SIZE, "unit's own or a later one"),
        (FILE_SIZE + 3 * UNIT_SIZE, "not that of the last"),
        (NO_UNIT, "says it is the first"),
        (13 * UNIT_SIZE, "not that of the last"),
        (7 * UNIT_SIZE, "not that of the last"),  # an older one of the same time would lose those between
    ],
)
def test_a_previous_position_that_is_none_is_told(tmp_path: Path, previous: int, words: str) -> None:
    finding = only(some().change(23, previous=previous).write(tmp_path))
    assert (finding.file, finding.offset, finding.length) == (*place(23), UNIT_SIZE)
    assert words in finding.message
    assert (finding.severity, finding.expected, finding.found) == ("error", str(15 * UNIT_SIZE), str(previous))
    assert finding.physical_offset == 10_000 + 10 * (FILE_SIZE + 4 * UNIT_SIZE)


@pytest.mark.parametrize(("previous", "is_told"), [(0, False), (FILE_SIZE - 52, False), (FILE_SIZE, True), (-5, True)])
def test_a_previous_position_in_a_deleted_file_is_believed(tmp_path: Path, previous: int, is_told: bool) -> None:
    timer = some().change(19, previous=previous)
    timer.base = FILE_SIZE
    assert len(reported(timer.write(tmp_path))) == is_told


def test_a_first_unit_that_names_another_is_told(tmp_path: Path) -> None:
    finding = only(some().change(3, previous=UNIT_SIZE).write(tmp_path))
    assert (finding.offset, finding.expected) == (3 * UNIT_SIZE, "-1")
    assert "has another due time" in finding.message


@pytest.mark.parametrize("number", [0, 3, 8, 23, 40, 44])
@pytest.mark.parametrize("delay", [1, 71_000_000, 72_000, 74_000])
def test_a_damaged_time_is_told_once(tmp_path: Path, number: int, delay: int) -> None:
    timer = some()
    was = timer.units[sorted(timer.units)[number]]["delay"]
    findings = reported(timer.change(number, delay=delay).write(tmp_path))
    assert len(findings) == (delay != was)
    assert all("is broken" in finding.message for finding in findings)


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [
        ({"magic": 16}, True),
        ({"magic": -1}, True),
        ({"size": 51}, True),
        ({"magic": 0}, False),
        ({"magic": 15}, False),
        ({"message": 1}, False),
    ],
)
def test_a_unit_that_is_none_is_told(tmp_path: Path, fields: dict[str, int], is_told: bool) -> None:
    findings = reported(some().change(23, **fields).write(tmp_path))
    assert [(f.file, f.offset, f.length, f.count) for f in findings] == [(*place(23), UNIT_SIZE, 1)] * is_told


def test_a_lost_page_is_one_finding(tmp_path: Path) -> None:
    timer = some()
    for number in range(3, 12):
        timer.change(number, **dict.fromkeys(timer.units[0], 0))
    finding = only(timer.write(tmp_path))
    assert (finding.offset, finding.length, finding.count) == (3 * UNIT_SIZE, 9 * UNIT_SIZE, 9)
    assert "units follow" in finding.message


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    some().write(tmp_path)
    (tmp_path / place(19)[0]).unlink()
    finding = only(open_store([str(tmp_path)]))
    assert (finding.file, finding.length, finding.message) == (
        place(19)[0],
        FILE_SIZE,
        "a timer log file is missing",
    )


def overwrite(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def test_a_file_that_does_not_end_in_a_blank_is_told(tmp_path: Path) -> None:
    store = some().write(tmp_path)
    overwrite(tmp_path / place(0)[0], ROOM * UNIT_SIZE, bytes(16))
    finding = only(store)
    assert (finding.file, finding.offset) == (place(0)[0], ROOM * UNIT_SIZE)


def test_a_full_last_file_has_no_blank_yet(tmp_path: Path) -> None:
    assert reported(Timer().add(*range(NOW, NOW + ROOM)).write(tmp_path)) == []


def test_bytes_behind_a_blank_are_silent(tmp_path: Path) -> None:
    store = some().write(tmp_path)
    overwrite(tmp_path / place(0)[0], ROOM * UNIT_SIZE + 16, b"junk")
    assert reported(store) == []


@pytest.mark.parametrize("abort", [False, True])
def test_a_log_that_ends_in_half_a_unit_is_told(tmp_path: Path, abort: bool) -> None:
    timer = some()
    timer.abort = abort
    store = timer.write(tmp_path)
    overwrite(tmp_path / place(45)[0], 7 * UNIT_SIZE, b"\0\0\0\x34" + 8 * b"\xff" + b"\0\0\0\x77")
    finding = only(store)
    assert (finding.file, finding.offset, finding.severity) == (*place(45), "error")


@pytest.mark.parametrize("fields", [{"size": 51}, {"magic": 17}])
def test_a_last_unit_that_is_none_is_told_once(tmp_path: Path, fields: dict[str, int]) -> None:
    finding = only(some().change(44, **fields).write(tmp_path))
    assert (finding.file, finding.offset) == place(44)


@pytest.mark.parametrize(("abort", "severity", "units"), [(False, "warning", 45), (True, "error", 46)])
def test_units_behind_the_flushed_end_are_stale_after_a_clean_stop(
    tmp_path: Path, abort: bool, severity: str, units: int
) -> None:
    timer = some()
    timer.abort, timer.flushed = abort, timer.end
    timer.units[timer.end + UNIT_SIZE] = timer.units[0]  # a unit that was cut off, one place further
    found = survey(timer.write(tmp_path))
    assert found.findings[0].severity == severity
    assert (found.findings[0].offset, len(found.findings)) == (7 * UNIT_SIZE, 1 if not abort else 2)
    assert found.units == units


def test_files_of_different_lengths_are_told(tmp_path: Path) -> None:
    store = some().write(tmp_path)
    with (tmp_path / place(45)[0]).open("ab") as file:
        file.write(bytes(52))
    finding = only(open_store([str(tmp_path)]))
    assert store.files
    assert (finding.file, finding.expected, finding.found) == (place(45)[0], str(FILE_SIZE), str(FILE_SIZE + 52))


@pytest.mark.parametrize(("more", "is_told"), [(UNIT_SIZE, True), (0, False), (-UNIT_SIZE, False), (-(10**9), False)])
def test_a_log_that_ends_before_its_flushed_place_is_told(tmp_path: Path, more: int, is_told: bool) -> None:
    timer = some()
    timer.flushed = timer.end + more
    findings = reported(timer.write(tmp_path))
    assert [(f.file, f.offset, f.found) for f in findings] == [
        (place(45)[0], 7 * UNIT_SIZE, f"up to {timer.end}")
    ] * is_told


def test_a_timer_log_that_is_gone_is_told_once(tmp_path: Path) -> None:
    some().write(tmp_path)
    for file in (tmp_path / "timerlog").iterdir():
        file.unlink()
    assert only(open_store([str(tmp_path)])).file == "timerlog"


@pytest.mark.parametrize("fields", [{"physical_offset": -1}, {"record_size": 0}])
def test_a_unit_that_can_lead_nowhere_is_told(tmp_path: Path, fields: dict[str, int]) -> None:
    assert "points to no record" in only(some().change(4, **fields).write(tmp_path)).message


def test_what_is_told_is_bounded_and_all_is_counted(tmp_path: Path) -> None:
    timer = some()
    for number in range(8, 28):
        timer.change(number, previous=1)
    found = survey(timer.write(tmp_path), limit=3)
    assert (len(found.findings), found.suppressed) == (3, {"TM-CHAIN": 17})


# --- the wheel ------------------------------------------------------------------------------------


def slot_place(second: int) -> int:
    return second % WHEEL_SLOTS * int(WheelSlot.sizeof())


@pytest.mark.parametrize(
    ("fields", "words", "found"),
    [
        ({"last": 5}, "last position", "last 5"),
        ({"last": UNIT_SIZE * 3}, "last position", f"last {UNIT_SIZE * 3}"),
        ({"last": -1}, "last position", "last -1"),
        ({"last": ROOM * UNIT_SIZE}, "last position", f"last {ROOM * UNIT_SIZE}"),  # the blank
        ({"first": 5}, "first position", "first 5"),
        ({"first": UNIT_SIZE * 3}, "first position", f"first {UNIT_SIZE * 3}"),
        ({"first": -1}, "first position", "first -1"),
        ({"last": 0, "first": 8 * UNIT_SIZE}, "lies behind its last", f"first {8 * UNIT_SIZE}, last 0"),
    ],
)
def test_a_slot_that_leads_to_no_unit_of_its_time_is_told(
    tmp_path: Path, fields: dict[str, int], words: str, found: str
) -> None:
    finding = only(some().slot(NOW + 10, **fields).write(tmp_path))
    assert (finding.file, finding.offset, finding.length) == ("timerwheel", slot_place(NOW + 10), 32)
    assert words in finding.message
    assert (finding.severity, finding.found) == ("error", found)


@pytest.mark.parametrize("time", [NOW + 11, 0, -1, NOW + 10 + (1 << 40)])
def test_a_slot_of_another_time_is_told(tmp_path: Path, time: int) -> None:
    finding = only(some().slot(NOW + 10, time=time).write(tmp_path))
    assert (finding.offset, finding.found) == (slot_place(NOW + 10), f"time {time}")
    assert "belongs in another slot" in finding.message


def test_a_slot_two_weeks_off_is_told(tmp_path: Path) -> None:
    finding = only(some().slot(NOW + 10, time=NOW + 10 - WHEEL_SLOTS).write(tmp_path))
    assert "no unit with the slot's due time is at its last position" in finding.message


def test_a_broken_slot_that_has_fired_is_a_warning(tmp_path: Path) -> None:
    timer = some().slot(NOW + 10, last=5)
    timer.read = NOW + 11
    finding = only(timer.write(tmp_path))
    assert finding.severity == "warning"
    assert "has fired already" in finding.message


@pytest.mark.parametrize(("abort", "severity"), [(False, "error"), (True, "info")])
def test_slots_that_lead_behind_the_timer_log(tmp_path: Path, abort: bool, severity: str) -> None:
    timer = some()
    timer.abort = abort
    timer.slot(NOW + 10, last=timer.end).slot(NOW + 11, last=timer.end + UNIT_SIZE)
    finding = only(timer.write(tmp_path))
    assert (finding.count, finding.severity) == (2, severity)
    assert "behind the end of the timer log" in finding.message


@pytest.mark.parametrize(("abort", "severity"), [(False, "error"), (True, "info")])
def test_the_task_of_the_timer_knows_of_the_abort_file(tmp_path: Path, abort: bool, severity: str) -> None:
    timer = some()
    timer.abort = abort
    store = timer.slot(NOW + 10, last=timer.end).write(tmp_path)
    (task,) = survey_tasks(store, (), timer=True)
    (found,) = task(BORDERS, 10)
    assert [finding.severity for finding in found.findings] == [severity]


def test_slots_that_lead_into_a_lost_page_are_silent(tmp_path: Path) -> None:
    timer = Timer().add(NOW + 5, *range(NOW + 10, NOW + 20), NOW + 5)
    for number in range(1, 11):
        timer.change(number, size=0)
    assert only(timer.write(tmp_path)).count == 10


def test_a_snapshot_is_judged_like_the_wheel(tmp_path: Path) -> None:
    timer = some().slot(NOW + 10, last=5)
    timer.wheel = "timerwheel.2340"
    assert only(timer.write(tmp_path)).file == "timerwheel.2340"


def test_a_wheel_of_another_length_is_told(tmp_path: Path) -> None:
    store = some().write(tmp_path)
    with (tmp_path / "timerwheel").open("ab") as file:
        file.write(b"1")
    finding = only(open_store([str(tmp_path)]))
    assert store.files
    assert (finding.file, finding.expected, finding.found) == ("timerwheel", str(WHEEL_SIZE), str(WHEEL_SIZE + 1))


@pytest.mark.parametrize(
    ("numbers", "read", "is_told"),
    [
        (range(3), NOW, True),  # in the first file, and a start reads from the second on
        (range(3), NOW + 5000, False),  # all of them have fired
        (range(23, 26), NOW, False),  # in the second file: a start puts them in again
    ],
)
def test_pending_units_that_no_slot_leads_to(tmp_path: Path, numbers: range, read: int, is_told: bool) -> None:
    timer = Timer(read=read).add(*range(NOW + 10, NOW + 55))
    for number in numbers:
        del timer.slots[(NOW + 10 + number) % WHEEL_SLOTS]
    findings = reported(timer.write(tmp_path))
    expected = [("timerwheel", slot_place(NOW + 10), 3, "error")] * is_told
    assert [(f.file, f.offset, f.count, f.severity) for f in findings] == expected


# --- where units lead -----------------------------------------------------------------------------


def test_runs_say_which_units_point_into_which_split(tmp_path: Path) -> None:
    timer = some().change(22, physical_offset=5)
    store = timer.write(tmp_path)
    places = [unit["physical_offset"] for unit in timer.units.values()]
    borders = np.array([100, places[10], places[30]], np.int64)
    found = survey_timer(store, borders, 10)
    assert found.runs.tolist() == [
        [0, 0, 0, 10],
        [1, 0, 10, 9],
        [1, 1, 0, 3],
        [1, 1, 4, 7],
        [2, 1, 11, 8],
        [2, 2, 0, 7],
    ]


STARTS, SIZES, HASHES, LOG_START, LOG_END = (100, 400, 900), (300, 400, 91), (7, 8, 0), 100, 991


def dispatched(starts: Any, sizes: Any, hashes: Any) -> Dispatched:
    """Return records of which only what the timer looks at is known."""
    none, nothing = np.zeros(len(starts), np.int64), np.empty(0, np.int32)
    small, flags = none.astype(np.int32), none != 0
    return Dispatched(
        np.array(starts, np.int64),
        none,
        none,
        np.array(sizes, np.int32),
        *(small, small, small),
        np.array(hashes, np.int32),
        small,
        *(flags, flags, flags, flags),
        nothing,
        nothing,
        np.empty(0, np.int8),
        extras=[],
        queues=[(b"rmq_sys_wheel_timer", 0)],
    )


def join(
    folder: Path,
    units: Sequence[tuple[int, int, int]],
    *,
    rows: Sequence[int] | None = None,
    limit: int = 1000,
    records: Dispatched | None = None,
    kind: str = "timer_log",
) -> Joined:
    """Join units, (physical offset, size, hash of the topic) at some rows of a file, with the records of a log."""
    places = range(len(units)) if rows is None else rows
    columns = np.zeros(max(places, default=0) + 1, dtype_of(TimerUnit))
    columns["size"], columns["physical_offset"] = UNIT_SIZE, -1
    for row, unit in zip(places, units, strict=True):
        for name, value in zip(("physical_offset", "record_size", "real_topic_hash"), unit, strict=True):
            columns[name][row] = value
    path = folder / "00000000000000000000"
    path.write_bytes(columns.tobytes())
    file = StoreFile(str(path), f"timerlog/{path.name}", len(columns) * UNIT_SIZE, kind)
    runs = {"timer": Runs(np.array([[1, 0, 0, len(columns)]]))}
    plan = CrossPlan(LogMap((0, LOG_START, 1 << 62)), timer_files=(file,), runs=runs)
    known = dispatched(STARTS, SIZES, HASHES) if records is None else records
    return join_timer(known, plan, 1, LogRanges.of([], [], LOG_END), limit)


@pytest.mark.parametrize(
    ("unit", "outcome"),
    [
        ((100, 300, 7), None),
        ((900, 91, 0), None),
        ((99, 300, 7), None),  # before the log: retention took its record
        ((991, 91, 0), "outside"),
        ((990, 91, 0), "inside"),
        ((101, 300, 7), "inside"),
        ((400, 401, 8), ("400 bytes", "401 bytes at 400")),
        ((400, 401, 9), ("400 bytes", "401 bytes at 400")),
        ((400, 400, 9), ("topic hash 8", "topic hash 9")),
    ],
)
def test_a_unit_is_judged_by_the_record_it_leads_to(
    unit: tuple[int, int, int], outcome: str | tuple[str, str] | None, tmp_path: Path
) -> None:
    found = join(tmp_path, [unit], rows=[4])
    dangling = [(row.where, row.position, row.rows) for row in found.dangling]
    assert dangling == [(outcome, 4 * UNIT_SIZE, 1)] * isinstance(outcome, str)
    rows = [(f.code, (f.expected, f.found), f.offset, f.length, f.count) for f in found.findings]
    assert rows == [("TM-CHAIN", outcome, 4 * UNIT_SIZE, UNIT_SIZE, 1)] * isinstance(outcome, tuple)


def test_the_topic_of_a_unit_that_was_unpacked_from_rocksdb_is_not_known(tmp_path: Path) -> None:
    assert join(tmp_path, [(400, 400, 9)]).findings
    assert not join(tmp_path, [(400, 400, 9)], kind="timer_units").findings


def test_units_alike_are_one_finding(tmp_path: Path) -> None:
    units = [(100, 300, 7), (400, 1, 1), (400, 1, 1), (400, 1, 1), (900, 1, 1), (100, 300, 1)]
    found = join(tmp_path, units, rows=[3, 4, 5, 6, 8, 9])
    assert [(f.offset, f.length, f.count) for f in found.findings] == [
        (4 * UNIT_SIZE, 3 * UNIT_SIZE, 3),
        (8 * UNIT_SIZE, UNIT_SIZE, 1),
        (9 * UNIT_SIZE, UNIT_SIZE, 1),
    ]


def test_what_is_told_of_units_is_bounded_and_all_is_counted(tmp_path: Path) -> None:
    found = join(tmp_path, [(400, 1, 1), (100, 300, 1)] * 10, limit=3)
    assert [f.count for f in found.findings] == [1, 1, 1]
    assert found.suppressed == {"TM-CHAIN": 17}


def test_without_records_all_units_are_dangling(tmp_path: Path) -> None:
    found = join(tmp_path, [(500, 1, 1), (991, 1, 1)], records=dispatched((), (), ()))
    assert [(row.where, row.rows) for row in found.dangling] == [("inside", 1), ("outside", 1)]
    assert not found.findings


@pytest.mark.parametrize("name", TIMERS)
def test_units_of_real_stores_lead_to_their_records(name: str) -> None:
    store = broker(name)
    records = dispatched(*records_of(store))
    found = survey_timer(store, BORDERS, 10)
    end = int(records.physical_offset[-1] + records.size[-1])
    runs = {"timer": Runs(np.add(found.runs, (1, 0, 0, 0)))}
    plan = CrossPlan(LogMap((0, store.log_start)), timer_files=found.files, runs=runs)
    outcome = join_timer(records, plan, 1, LogRanges.of([], [], end), 10)
    assert (outcome.findings, outcome.dangling, outcome.unread) == ([], [], [])
    # Only retention leaves units without their record.
    parts = [
        np.fromfile(found.files[number].path, dtype_of(TimerUnit), rows, offset=first * UNIT_SIZE)
        for _, number, first, rows in found.runs.tolist()
    ]
    places = np.concatenate([units["physical_offset"] for units in parts])
    assert np.isin(places, records.physical_offset).all() or name.startswith("retention")
    assert found.units > 2


def test_units_that_point_behind_the_log_are_one_row_for_the_file(tmp_path: Path) -> None:
    root = oracle.copy("broker", TIMERS[0], tmp_path)
    path = sorted((root / "timerlog").iterdir())[0]
    raw = bytearray(path.read_bytes())
    for row in (1, 2):
        at = row * UNIT_SIZE + place_of(TimerUnit, "physical_offset")
        raw[at : at + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(raw)
    rows = verify(open_store([str(root)]), VerifyOptions("deep")).findings.rows
    beyond = [(row.file, row.offset, row.count) for row in rows if row.code == "TM-BEYOND"]
    assert beyond == [(f"timerlog/{path.name}", UNIT_SIZE, 2)]


def records_of(store: Store) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return start, size and hash of REAL_TOPIC of all records."""
    found: list[tuple[int, int, int]] = []
    for split in plan_splits(store.segments, 1 << 40):
        for event in scan_split(split):
            if isinstance(event, RecordRun):
                records = event.records
                for at in range(len(records)):
                    real = records.properties.value_of(b"REAL_TOPIC", at)
                    start = records.base + int(records.starts[at])
                    hashed = 0 if real is None else java_string_hash(real.decode())
                    found.append((start, int(records.total_size[at]), hashed))
    starts, sizes, hashes = np.array(found, np.int64).T
    return starts, sizes, hashes


# --- any bytes ------------------------------------------------------------------------------------


def zero(raw: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(raw))
    raw[at : at + 4096] = bytes(len(raw[at : at + 4096]))


def flip(raw: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 20)):
        raw[chance.randrange(min(len(raw), chance.choice((200, 1 << 30))))] ^= 1 << chance.randrange(8)


def cut(raw: bytearray, chance: random.Random) -> None:
    del raw[chance.randrange(len(raw)) :]


def scatter(raw: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(raw))
    raw[at : at + 400] = chance.choice((chance.randbytes(400), b"\xff" * 400, b"\x7f" * 400))


@pytest.mark.parametrize("damage", [zero, flip, cut, scatter])
def test_any_bytes_are_survived(tmp_path: Path, damage: Callable[[bytearray, random.Random], None]) -> None:
    some().write(tmp_path)
    files = [*(tmp_path / "timerlog").iterdir(), tmp_path / "config" / "timercheck"]
    sound = {path: path.read_bytes() for path in files}
    slots = slot_place(NOW + 10), slot_place(NOW + 18)
    with (tmp_path / "timerwheel").open("rb") as file:
        file.seek(slots[0])
        wheel = file.read(slots[1] - slots[0])
    for seed in range(60):
        chance = random.Random(f"{damage.__name__} {seed}")
        for path in chance.sample(files, chance.randrange(3)):
            raw = bytearray(sound[path])
            damage(raw, chance)
            path.write_bytes(raw)
        part = bytearray(wheel)
        damage(part, chance)
        overwrite(tmp_path / "timerwheel", slots[0], bytes(part).ljust(len(wheel), b"\0"))
        found = survey_timer(open_store([str(tmp_path)]), BORDERS, 5)
        assert len(found.findings) <= 5
        assert not found.unread
        assert found.units <= 3 * ROOM
        for path, octets_before in sound.items():
            path.write_bytes(octets_before)

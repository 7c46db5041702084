"""ST-DELAY-OFFSET, ST-DELAY-LOST and ST-CLOCK, and what looks like them and is healthy."""

import json
import re
import struct
from pathlib import Path

import pytest

from rmqinspect.broker.clock import DAY, last_activity, runs_ahead
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.delay_offsets import check_clock, check_levels
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.group_offsets import Ends
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store
from tests.support.side_tables import broker, store_of, write

ENDS: Ends = {(SCHEDULE_TOPIC, 1): (2, 4)}
LEVELS = "config/delayOffset.json"
LAST = 1_795_250_987_202  # store time of the last record of timer-clock

run = runner()


def found(root: Path, ends: Ends | None = ENDS) -> list[Finding]:
    return list(check_levels(store_of(root), ends))


def levels(root: Path, **offsets: int) -> None:
    """Write delayOffset.json with offsets by level: `_9=500`."""
    table = ",".join(f"{level.strip('_')}:{offset}" for level, offset in offsets.items())
    write(root, LEVELS, b'{"offsetTable":{%s}}' % table.encode())


def codes(root: Path, *wanted: str) -> list[Finding]:
    result = verify(open_store([str(root)]), VerifyOptions())
    return [finding for finding in result.findings if finding.code in wanted]


# --- the offset of a level, and its queue -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2:4", []),
        ("2:5", ["ST-DELAY-OFFSET"]),
        ("2:1", ["ST-DELAY-LOST"]),
        ("5:0", []),
        ("5:3", ["ST-DELAY-OFFSET"]),  # its queue has no files
        ("0:9,-1:9,-2147483648:9", []),  # no levels
        ('2:"x"', []),
    ],
)
def test_a_delay_level_is_judged_by_its_queue(tmp_path: Path, text: str, expected: list[str]) -> None:
    write(tmp_path, LEVELS, b'{"offsetTable":{%s}}' % text.encode())
    findings = found(tmp_path)
    assert [row.code for row in findings] == expected
    for row in findings:
        level = int(text.partition(":")[0])
        assert (row.topic, row.queue_id, row.file) == (SCHEDULE_TOPIC, level - 1, LEVELS)
        assert f"delay level {level} goes on at" in row.message
        assert "group" not in row.message


def test_a_delay_level_counts_what_the_next_start_adds(tmp_path: Path) -> None:
    levels(tmp_path, _2=6)
    assert len(found(tmp_path)) == 1
    assert list(check_levels(store_of(tmp_path), ENDS, {(SCHEDULE_TOPIC, 1): 2})) == []


def test_a_delay_queue_before_the_log_or_in_rocksdb_is_not_missed(tmp_path: Path) -> None:
    levels(tmp_path, _5=3)
    write(tmp_path, "consumequeue/CURRENT", b"MANIFEST-000004\n")
    assert found(tmp_path) == []


@pytest.mark.parametrize("ends", [None, {}])
def test_without_any_queue_there_is_nothing_to_compare_with(tmp_path: Path, ends: Ends | None) -> None:
    levels(tmp_path, _2=9)
    assert found(tmp_path, ends) == []


@pytest.mark.parametrize("text", ["", "[]", '{"offsetTable":[]}', '{"offsetTable":{"2":{},"x":9}}'])
def test_any_file_raises_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, LEVELS, text.encode())
    assert found(tmp_path) == []


@pytest.mark.parametrize("name", ["main-4.9.7", "main-5.5.0", "retention-4.9.7"])
def test_no_broker_store_has_a_level_that_is_ahead(name: str) -> None:
    store = broker(name)
    result = verify(store, VerifyOptions())
    ahead = {"ST-DELAY-OFFSET", "ST-CLOCK"}
    assert not ahead & {finding.code for finding in result.findings}


# --- a file of another time: what 4.9.7 did with it is in data/outcome/README.md ----------------------


def test_levels_beyond_their_queues_are_told_in_their_own_words() -> None:
    store = open_store([str(outcome_store("delay-offset-beyond"))])
    result = verify(store, VerifyOptions())
    rows = [row for row in result.findings.as_rows(["S"], "S") if row.code == "ST-DELAY-OFFSET"]
    by_level = {row.queue_id + 1: row for row in rows if row.queue_id is not None}
    assert set(by_level) == {1, 2, 9, 10, 16}
    # Level 10 lies within its queue, but behind a message that is due six minutes after the last record.
    waiting = {level: "message that was not due" in row.message for level, row in by_level.items()}
    assert waiting == {1: False, 2: False, 9: True, 10: True, 16: False}
    assert by_level[9].expected == "at most 0"
    assert all("--table delay_offsets" in (row.next or "") for row in rows)


def test_the_line_of_the_broker_is_that_of_each_release(run: Run) -> None:
    root = str(outcome_store("delay-offset-beyond"))
    for release, words in (
        ("4.9.1", "has grown to 500"),
        ("4.9.2", "this start sets the level to 1, the end of its queue"),
        ("5.3.3", "this start sets the level to 1, the end of its queue"),
    ):
        _, out, _ = run("verify", root, "--broker-version", release, "--check", "ST-DELAY-OFFSET", "-v")
        text = " ".join(out.split())
        assert words in text, release
        assert "a group that is ahead" not in text


def test_a_level_set_back_to_its_first_undelivered_message_is_silent(run: Run, tmp_path: Path) -> None:
    root = copy_of_case("delay-offset-beyond", tmp_path / "case")
    levels(root, _1=5, _2=3, _3=2, _9=0, _10=0)
    assert codes(root, "ST-DELAY-OFFSET", "ST-DELAY-LOST", "ST-GROUP-OFFSET") == []
    _, out, _ = run("delays", str(root), "-f", "jsonl")
    states = [json.loads(line)["state"] for line in out.splitlines()]
    assert "stuck" not in states
    assert "lost" not in states


def test_a_level_one_beyond_its_end_is_told_and_waits_for_its_message(tmp_path: Path) -> None:
    root = copy_of_case("delay-offset-beyond", tmp_path / "case")
    levels(root, _1=5, _2=3, _3=2, _9=2, _10=0)
    [finding] = codes(root, "ST-DELAY-OFFSET")
    assert "goes on at 2, but its queue ends at 1, with 1 message that was not due" in finding.message
    assert "set 9 in config/delayOffset.json to 0" in finding.do


def test_delays_calls_what_a_level_has_jumped_over_stuck(run: Run) -> None:
    _, out, _ = run("delays", str(outcome_store("delay-offset-beyond")), "-f", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    stuck = {row["level"]: row["reason"] for row in rows if row["state"] == "stuck"}
    assert set(stuck) == {9, 10}
    assert all("delayOffset.json" in reason for reason in stuck.values())
    assert "lost" not in {row["state"] for row in rows}


# --- the clock ------------------------------------------------------------------------------------


def set_timercheck(root: Path, fired: int) -> None:
    path = root / "config/timercheck"
    path.write_bytes(struct.pack(">q", fired) + path.read_bytes()[8:])


def test_a_timer_that_ran_ahead_is_told_with_its_cure() -> None:
    [finding] = codes(outcome_store("timer-clock"), "ST-CLOCK")
    assert (finding.severity, finding.file) == ("warning", "config/timercheck")
    assert "3 timer messages wait" in finding.message
    assert f"{LAST} ms" in finding.do
    octal = re.search(r"printf '([^']+)'", finding.do)
    assert octal is not None
    raw = bytes(int(part, 8) for part in octal[1].split("\\")[1:])
    assert struct.unpack(">q", raw) == (LAST,)


def test_what_waits_for_a_timer_that_ran_ahead_is_stuck_and_now_is_the_last_record(run: Run) -> None:
    _, out, _ = run("delays", str(outcome_store("timer-clock")), "--no-system-topics", "-f", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    states = [row["state"] for row in rows]
    assert {state: states.count(state) for state in ("pending", "stuck", "overdue", "lost")} == {
        "pending": 4,
        "stuck": 3,
        "overdue": 0,
        "lost": 0,
    }
    _, screen, _ = run("delays", str(outcome_store("timer-clock")))
    assert "overdue if due before 2026-11-21T08:49:47.202Z" in screen
    assert "conv=notrunc" in screen


@pytest.mark.parametrize(
    ("fired", "told", "state"),
    [
        (LAST, False, "pending"),
        (LAST + DAY, False, None),
        (LAST + DAY + 1, True, "stuck"),
        (1 << 62, True, "stuck"),
    ],
)
def test_a_day_is_the_border(run: Run, tmp_path: Path, fired: int, told: bool, state: str | None) -> None:
    root = copy_of_case("timer-clock", tmp_path / "case")
    set_timercheck(root, fired)
    assert bool(codes(root, "ST-CLOCK")) == told
    _, out, _ = run("delays", str(root), "-t", "VoucherTimer", "-f", "jsonl")
    waiting = [row for row in map(json.loads, out.splitlines()) if row["state"] in ("pending", "stuck")]
    if state is not None:
        assert waiting[0]["state"] == state


def test_records_from_ahead_of_the_last_one_are_told_once(tmp_path: Path) -> None:
    store = store_of(tmp_path)

    def told(last: int, newest: int, *, is_step: bool = True) -> list[str]:
        return [row.message for row in check_clock(store, last, newest, is_step=is_step)]

    assert "the broker's clock was ahead" in told(LAST, LAST + DAY + 1)[0]
    assert told(LAST, LAST + DAY) == []
    assert told(LAST, LAST + DAY + 1, is_step=False) == []  # one record is out of line: CL-TIME


@pytest.mark.parametrize(
    ("last", "fired", "now"),
    [(None, 7, 7), (0, 0, 0), (100, 50, 100), (100, 100 + DAY, 100 + DAY), (100, 101 + DAY, 100)],
)
def test_the_last_activity(last: int | None, fired: int, now: int) -> None:
    assert last_activity(last, fired) == now
    assert runs_ahead(last, fired) == (fired > (last or fired) + DAY)

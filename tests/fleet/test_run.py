"""Functions over many tasks in processes: each failure is an event, none ends the run."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.errors import NotAStore, RmqinspectError, Unreadable
from rmqinspect.fleet.run import Failed, Finished, Read, Told, side_by_side
from rmqinspect.store.discover import open_store
from rmqinspect.store.reader import open_file
from rmqinspect.system.workers import ReadRate, bound_reads, read_bound
from tests.support.samples import sample


def outcomes(function: Callable[[Any], Any], tasks: list[Any], jobs: int = 2) -> dict[int, Finished | Failed]:
    """Return how each task ended."""
    ended: dict[int, Finished | Failed] = {}
    for event in side_by_side(function, tasks, jobs):
        if isinstance(event, (Finished, Failed)):
            assert event.number not in ended
            ended[event.number] = event
    return ended


def _fails(task: str) -> str:
    if task == "no store":
        raise NotAStore("not there")
    if task == "bug":
        return str(1 // 0)
    if task == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "exits":
        os._exit(7)
    if task == "memory":
        raise MemoryError
    if task == "unpicklable":
        return lambda: task  # type: ignore[return-value]
    return task.upper()


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_a_failure_is_that_of_one_task(jobs: int) -> None:
    tasks = ["a", "no store", "bug", "killed", "b", "exits", "memory", "unpicklable", "c"]
    ended = outcomes(_fails, tasks, jobs)
    assert sorted(ended) == list(range(len(tasks)))
    assert sorted(one.result for one in ended.values() if isinstance(one, Finished)) == ["A", "B", "C"]
    failed = {tasks[one.number]: one for one in ended.values() if isinstance(one, Failed)}
    causes: dict[str, type[RmqinspectError] | None] = {name: one.cause for name, one in failed.items()}
    assert causes == {
        "no store": NotAStore,
        "bug": None,
        "killed": Unreadable,
        "exits": None,
        "memory": None,
        "unpicklable": None,
    }
    assert failed["no store"].text == "not there"
    assert failed["bug"].text.startswith("this is a bug: ZeroDivisionError")
    assert "out of memory?" in failed["killed"].text
    assert "status 7" in failed["exits"].text


def test_no_task_needs_no_process() -> None:
    assert outcomes(_fails, []) == {}


def _process(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_processes_are_forked_once_and_not_more_than_jobs() -> None:
    ended = outcomes(_process, list(range(12)), jobs=2)
    processes = {one.result for one in ended.values() if isinstance(one, Finished)}
    assert len(processes) == 2
    assert os.getpid() not in processes


def _speaks(task: str) -> None:
    print(f"of {task}", file=sys.stderr, flush=True)
    print("begun", end="", file=sys.stderr)
    print(" and ended", file=sys.stderr)


def test_what_a_task_says_is_told_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    told = [event for event in side_by_side(_speaks, ["a", "b"], 2) if isinstance(event, Told)]
    assert sorted(told) == [(0, "begun and ended"), (0, "of a"), (1, "begun and ended"), (1, "of b")]
    assert capsys.readouterr() == ("", "")


def test_a_bug_has_its_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQINSPECT_DEBUG", "1")
    told = [event.line for event in side_by_side(_fails, ["bug"], 1) if isinstance(event, Told)]
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1].startswith("ZeroDivisionError")


def _reads(path: str) -> int:
    file = open_store([path]).segments[0]
    with open_file(file) as reader:
        return len(reader.read(0, 1000))


def test_bytes_read_are_told() -> None:
    events = list(side_by_side(_reads, [str(sample("killed-4.9.7"))] * 3, 1))
    assert sum(event.size for event in events if isinstance(event, Read)) >= 3000
    assert [event.result for event in events if isinstance(event, Finished)] == [1000] * 3


def _rate(_: int) -> int | None:
    bound = read_bound()
    return None if bound is None else bound.rate


def test_processes_share_the_read_rate() -> None:
    bound_reads(ReadRate(8_000_000))
    try:
        ended = outcomes(_rate, [0, 1, 2], jobs=2)
    finally:
        bound_reads(None)
    assert {one.result for one in ended.values() if isinstance(one, Finished)} == {4_000_000}


def _waits(folder: str) -> None:
    mark = Path(folder, f"{os.getpid()}")
    mark.touch()
    try:
        print("at work", file=sys.stderr)
        for _ in range(6000):
            time.sleep(0.01)  # a signal that comes just before one long sleep is handled only after it
    finally:
        mark.unlink()  # as a private copy of a database is removed


def test_closing_ends_the_processes_and_they_clean_up(tmp_path: Path) -> None:
    begun = time.monotonic()
    events = side_by_side(_waits, [str(tmp_path)] * 4, 3)
    assert {next(events) for _ in range(3)} == {Told(number, "at work") for number in range(3)}
    assert len(list(tmp_path.iterdir())) == 3
    events.close()
    assert not list(tmp_path.iterdir())
    assert time.monotonic() - begun < 30


def test_ctrl_c_of_the_terminal_does_not_reach_them() -> None:
    ended = outcomes(_interrupts_itself, [1, 2])
    assert {one.result for one in ended.values() if isinstance(one, Finished)} == {1, 2}


def _interrupts_itself(task: int) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return task

"""A run that is killed, interrupted, out of room, or not alone: nothing looks finished, and running again works."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.samples import ROOT, sample
from tests.support.sampling import rare

_WORDS = {
    "salvage": ("salvage", str(sample("zeroed-page-4.7.1"))),
    "rebuild": ("rebuild", str(sample("healthy-5.5.0"))),
}
_MADE = {"salvage": ["new", "new.aside", "new.receipt.json"], "rebuild": ["new", "new.receipt.json"]}
_STATUS = {"salvage": 3, "rebuild": 0}


def played(how: str, points: int, command: str, folder: Path) -> list[dict[str, Any]]:
    words = [sys.executable, "-m", "tests.rescue.faults", how, str(points), str(folder), *_WORDS[command]]
    words += ["-o", str(folder / "new"), "-q", "-j", "1"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def assert_made(last: dict[str, Any], command: str) -> None:
    assert last["ended"] == [[_STATUS[command], ""]]
    assert last["names"] == _MADE[command]


@pytest.mark.parametrize(("command", "points"), [("salvage", 8), *map(rare, [("salvage", 200), ("rebuild", 200)])])
def test_a_run_that_is_killed_at_any_moment(command: str, points: int, folder: Path) -> None:
    *runs, last = played("kill", points, command, folder)
    assert runs
    for run in runs:
        ((status, _),) = run["ended"]
        assert status == -signal.SIGKILL
        # Killed behind the last rename, all is there; before it, NEW is not.
        assert "new" not in run["names"] or set(_MADE[command]) <= set(run["names"])
    assert_made(last, command)


@pytest.mark.parametrize(("how", "status"), [("interrupt", 130), rare(("terminate", 143))])
def test_an_interrupted_run_leaves_nothing(how: str, status: int, folder: Path) -> None:
    *runs, last = played(how, 6, "salvage", folder)
    for run in runs:
        ((ended, said),) = run["ended"]
        assert run["names"] in ([], _MADE["salvage"])
        assert ended == status
        assert len(said.splitlines()) <= 1
    assert_made(last, "salvage")


@pytest.mark.parametrize(
    ("how", "command"),
    [("limit", "rebuild"), *map(rare, [("full", "salvage"), ("full", "rebuild"), ("limit", "salvage")])],
)
def test_a_full_disk_is_told_in_one_line_and_nothing_is_left(how: str, command: str, folder: Path) -> None:
    *runs, last = played(how, 6, command, folder)
    assert len(runs) >= 4
    for run in runs:
        ((status, said),) = run["ended"]
        assert (status, len(said.splitlines())) == (6, 1), said
        assert ("No space left" if how == "full" else "File too large") in said
        assert run["names"] == []
    assert_made(last, command)


def test_of_several_runs_at_once_one_makes_it(folder: Path) -> None:
    *runs, last = played("race", 2, "rebuild", folder)
    for run in [*runs, last]:
        assert sorted(status for status, _ in run["ended"]) == [0, 6, 6, 6]
        assert all(len(said.splitlines()) == (status == 6) for status, said in run["ended"])
        assert run["names"] == _MADE["rebuild"]

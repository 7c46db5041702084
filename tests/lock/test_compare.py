"""The lock itself: a build compared with itself, and what a difference looks like."""

import shutil
import sys
from pathlib import Path

import click
import pytest

from tests.lock.compare import Build, Differences, Remembered, commands, compare
from tests.support.samples import sample

ROW = {
    "physical_offset": 31_651,
    "topic": "TopicA",
    "queue_id": 0,
    "queue_offset": 3,
    "store_timestamp": "2026-11-21T08:48:41Z",
    "msg_id": "7F000001000055970000000000000902",
    "keys": ["K95"],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in ("home", "a", "b"):
        (tmp_path / folder).mkdir()
    return tmp_path


def test_a_build_is_equal_to_itself(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [(words, screen) for words, screen in commands([ROW], "x") if words[0] in ("info", "show", "groups")]
    assert len(few) == 8
    monkeypatch.setattr("tests.lock.compare.commands", lambda *_: few)
    store, found = sample("flipped-bit-5.3.3"), Differences(place)
    builds = (Build(sys.executable, place / "home"), Build(sys.executable, place / "home"))
    try:
        (place / "room").mkdir()
        compare("x", store, store, builds, found, place / "room")
    finally:
        for build in builds:
            build.end()
    assert found.compared == sum(2 if screen else 1 for _, screen in few)
    assert not found.counts


def test_a_screen_is_as_wide_as_its_terminal_and_a_difference_is_written_down(place: Path) -> None:
    build, found = Build(sys.executable, place / "home"), Differences(place)
    shutil.copytree(sample("healthy-5.5.0"), place / "a" / "store")
    (place / "b" / "store").mkdir()
    try:
        wide, narrow = (build.run(["info", "store"], place / "a", columns) for columns in (120, 80))
        old, new = (build.run(["info", "store", "-f", "json"], place / side, None) for side in "ab")
    finally:
        build.end()
    widths = [max(len(click.unstyle(line)) for line in one["stdout"].splitlines()) for one in (narrow, wide)]
    assert widths[0] <= 80 < widths[1] <= 120
    assert (old["status"], new["status"]) == (0, 4)
    found.add("x", ["info", "store", "-f", "json"], None, old, new)
    assert found.counts == {"info": 1}
    assert "status 0 4" in (place / "info.diff").read_text()


def test_answers_of_the_old_build_are_kept(place: Path) -> None:
    store, build = sample("healthy-5.5.0"), Remembered(sys.executable, place / "home", place / "answers")
    (place / "a" / "store").symlink_to(store)
    build.store = "x"
    try:
        first = build.run(["info", "store"], place / "a", 80)
    finally:
        build.end()
    assert build.run(["info", "store"], place / "a", 80) == first  # the process has ended

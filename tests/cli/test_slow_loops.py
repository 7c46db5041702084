"""What a user sees of loops that are not compiled: one line on stderr where much is read, and the same answers."""

import io
import json
import sys

import pytest

from rmqinspect import loops
from rmqinspect.cli.terminal import Progress, slow_loops_reported
from rmqinspect.loops import LARGE
from tests.support.command import Run, runner
from tests.support.loop_ways import MODULES, WAYS, loop_way
from tests.support.samples import sample

STORE = str(sample("healthy-4.9.7"))

run = runner()


@pytest.mark.parametrize("words", [("verify",), ("decode", "-f", "jsonl"), ("forecast",)])
def test_answers_are_the_same_uncompiled(words: tuple[str, ...], run: Run) -> None:
    compiled = run(*words, STORE)
    with loop_way("uncompiled"):
        assert run(*words, STORE) == compiled


@pytest.mark.parametrize("quiet", [False, True])
def test_nothing_is_said_where_loops_are_compiled_or_little_is_read(
    quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("rmqinspect.cli.terminal._say_between", said.append)
    for module in MODULES:
        monkeypatch.setattr(module, "COMPILED", True)
    with slow_loops_reported(quiet=quiet):
        loops.expect(LARGE)
    with loop_way("uncompiled"), slow_loops_reported(quiet=quiet):
        loops.expect(LARGE - 1)
    assert said == []
    with loop_way("uncompiled"), slow_loops_reported(quiet=quiet):
        loops.expect(LARGE)
        loops.expect(LARGE)
    assert len(said) == (0 if quiet else 1)


@pytest.mark.parametrize("way", WAYS)
def test_info_v_and_documents_say_how_loops_run(way: str, run: Run) -> None:
    with loop_way(way):
        really = loops.way()
        assert way == really or not MODULES[0].COMPILED
        assert f"the loops over bytes are {really}\n" in run("info", STORE, "-v")[2]
        assert "the loops over bytes" not in run("info", STORE)[2]
        assert json.loads(run("verify", STORE, "-f", "json")[1])["run"]["loops"] == really


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_line_takes_the_place_of_the_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "400")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with loop_way("uncompiled"), slow_loops_reported(quiet=False):
        for size in (LARGE - 1, LARGE, LARGE):
            loops.expect(size)
    assert terminal.getvalue().startswith("\r\x1b[Kthe loops over bytes are not compiled: ")
    assert terminal.getvalue().count("\n") == 1


def test_remarks_fold_at_words_on_a_terminal_and_are_one_line_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    words = "config/topics: not read: a RocksDB database\x1b"
    for stream, printed in (
        (Terminal(), "config/topics: not read: a\nRocksDB database\\x1b\n"),
        (io.StringIO(), "config/topics: not read: a RocksDB database\\x1b\n"),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        Progress(0).complain(words)
        assert stream.getvalue() == printed

"""The command line, run in the process of the test."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.cli import main

Run = Callable[..., tuple[int, str, str]]
"""Runs a command with these words and returns its exit status, stdout and stderr."""


def runner(*before: str, after: Sequence[str] = ()) -> Any:
    """Return a fixture that runs commands: `run = runner("verify")` makes `run(STORE)` run `verify STORE`.

    `before` and `after` stand around the words of each call. `sys.argv` holds the whole command while it
    runs, because reports and manifests quote it, and `sys.excepthook`, which `main` replaces, is restored.
    """

    @pytest.fixture
    def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)

        def run_main(*words: str | Path) -> tuple[int, str, str]:
            arguments = [*before, *map(str, words), *after]
            monkeypatch.setattr(sys, "argv", ["rmqinspect", *arguments])
            capsys.readouterr()
            status = main(arguments)
            printed = capsys.readouterr()
            assert "Traceback" not in printed.err
            assert "this is a bug" not in printed.err
            return int(status), printed.out, printed.err

        return run_main

    return run

"""The log as one row: on a terminal, of its width, in characters that it has; nothing in a pipe or a file."""

import re
import sys
from pathlib import Path

import pytest

from rmqinspect.text import cell_width
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()
ROW = re.compile(r"^(?:log)? +(0 [█▒░✗│·ends here]+ 217 698)$", re.MULTILINE)
IN_ASCII = re.compile(r"^(?:log)? +(0 [#:X|.\-ends here]+ 217 698)$", re.MULTILINE)
COMMANDS = ("verify", "forecast", "info")


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_row_is_on_a_terminal_only(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    root = sample("flipped-bit-5.3.3")
    piped = run(command, root)
    assert not ROW.search(piped[1])
    on_terminal(monkeypatch)
    out = run(command, root, "--color", "never")[1]
    (row,) = ROW.findall(out)
    assert re.fullmatch(r"0 [█▒]+│ends here│" + ("░+" if command == "info" else "✗░+") + " 217 698", row)
    (line,) = [line for line in out.splitlines() if line.endswith(row)]
    assert cell_width(line) == 80
    assert re.sub(r"\x1b\[\d+m", "", run(command, root, "--color", "always")[1]).count(row) == 1
    if command != "verify":  # whose output is the table of findings
        run(command, root, "-o", tmp_path / "out.txt")
        assert not ROW.search((tmp_path / "out.txt").read_text())


@pytest.mark.parametrize(
    ("variables", "is_ascii"),
    [
        ({"LC_ALL": "C"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "zh_CN.UTF-8"}, True),  # where a block may take two cells
        ({"TERM": "dumb"}, True),
        ({"LC_ALL": "C.UTF-8"}, False),
        ({"LC_ALL": "en_GB.utf8", "LANG": "C"}, False),
        ({}, False),
    ],
)
def test_a_terminal_that_asks_for_ascii_gets_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_ascii: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    on_terminal(monkeypatch, 60)
    out = run("info", sample("flipped-bit-5.3.3"), "--color", "never")[1]
    assert len((IN_ASCII if is_ascii else ROW).findall(out)) == 1
    assert not (ROW if is_ascii else IN_ASCII).search(out)


def test_info_reads_nothing_for_the_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    root = sample("healthy-5.5.0")
    read = run("info", root)[2]
    on_terminal(monkeypatch)
    assert run("info", root)[2] == read


def test_a_report_prints_the_row_of_its_run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    on_terminal(monkeypatch, 100)
    out = run("verify", sample("zeroed-page-4.7.1"), "--report", report)[1]
    assert "✗" in out
    assert run("verify", "--from", report)[1] == out


def test_a_store_without_a_log_has_no_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    queue = next((sample("healthy-5.5.0") / "consumequeue").iterdir())
    assert "\nlog " not in run("verify", queue)[1]

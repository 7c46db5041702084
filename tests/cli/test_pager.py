"""What is longer than the terminal goes to a pager; nothing else changes by it, and the last line is the answer."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rmqinspect.cli import ExitStatus
from tests.support.samples import sample
from tests.support.terminals import Terminal

STORE = str(sample("flipped-bit-5.3.3"))
MARKED = {"PAGER": "sed s/^/PAGED:/"}
VERIFY = ("verify", STORE, "-j", "1", "--no-progress")
LONG = ("explain", "CL-CRC-BODY")  # some twenty lines, from no store


def shown(*words: str, settings: dict[str, str], lines: int = 10, columns: int = 80) -> tuple[int, str]:
    """Return the exit status of a command on a terminal, and what stands on it then."""
    with Terminal(words, lines, columns, settings) as terminal:
        return terminal.status(), terminal.text


def test_what_fits_has_no_pager() -> None:
    status, text = shown(*LONG, lines=60, settings=MARKED)
    assert (status, "PAGED" in text, "CL-CRC-BODY" in text) == (0, False, True)


def test_a_line_that_the_terminal_breaks_counts_as_often() -> None:
    """`sql` is one long line of JSON."""
    words = ("id", "7F000001000055970000000000038270", "-f", "json")
    assert "PAGED" not in shown(*words, lines=8, columns=400, settings=MARKED)[1]
    assert "PAGED" in shown(*words, lines=8, columns=40, settings=MARKED)[1]


def test_what_is_longer_goes_through_the_pager_whole_and_the_answer_is_last() -> None:
    status, text = shown(*VERIFY, lines=24, settings=MARKED)
    assert status == ExitStatus.DAMAGE
    before, *screen = text.split("PAGED:")
    assert "351.6 kB in 5 segments" in before  # it was said before there was a pager
    assert "CL-CRC-BODY" in screen[0]
    assert "\x1b[31merror" in screen[0]
    verdict = "VERDICT      DAMAGED at level deep: 1 error, 0 warnings in 263 records; all\n"
    assert click.unstyle(screen[-2]) == verdict
    assert click.unstyle(screen[-1]) == f"             bytes read\n{verdict}             bytes read\n"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"PAGER": ""}, ()),
        ({"PAGER": "cat"}, ()),
        ({**MARKED, "RMQINSPECT_PAGER": ""}, ()),
        ({**MARKED, "TERM": "dumb"}, ()),
        (MARKED, ("--no-pager",)),
    ],
)
def test_there_is_none_where_none_is_wanted(settings: dict[str, str], words: tuple[str, ...]) -> None:
    status, text = shown(*LONG, *words, settings=settings)
    assert (status, "PAGED" in text, text.count("means")) == (0, False, 1)


def test_the_option_may_stand_before_the_command() -> None:
    status, text = shown("--no-pager", *LONG, settings=MARKED)
    assert (status, "PAGED" in text, text.count("means")) == (0, False, 1)


def test_a_pager_of_its_own_comes_first() -> None:
    text = shown(*LONG, settings={"RMQINSPECT_PAGER": "sed s/^/OWN:/", **MARKED})[1]
    assert "OWN:" in text and "PAGED" not in text


def test_help_is_paged() -> None:
    assert "PAGED:  --list-checks" in shown("verify", "--help", lines=24, settings=MARKED)[1]


def test_a_pipe_and_a_file_have_none(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rmqinspect", *LONG]
    settings = {**os.environ, **MARKED, "COLUMNS": "80", "LINES": "5"}
    assert b"PAGED" not in subprocess.run(command, env=settings, stdout=subprocess.PIPE, check=True).stdout
    file = tmp_path / "explained.txt"
    assert shown(*LONG, "-o", str(file), settings=MARKED) == (0, "")
    assert "PAGED" not in file.read_text()


def test_a_pager_that_ends_early_is_quiet_and_the_status_is_that_of_the_command() -> None:
    status, text = shown(*VERIFY, lines=24, settings={"PAGER": "head -n 1"})
    assert status == ExitStatus.DAMAGE
    first, last, rest = click.unstyle(text).splitlines()[-3:]
    assert "CL-CRC-BODY" in first
    assert (last[:20], rest.strip()) == ("VERDICT      DAMAGED", "bytes read")


ENDLESS = """
import sys
from rmqinspect.cli.pager import paged
try:
    with paged():
        while True:
            print("more")
except BrokenPipeError:
    sys.exit(7)
"""


def test_what_has_no_end_is_ended_with_its_pager() -> None:
    with Terminal((), settings={"PAGER": "head -n 1"}, program=("-c", ENDLESS)) as terminal:
        assert (terminal.status(), terminal.text.strip()) == (7, "\x1b[Kmore")


def test_a_pager_that_does_not_exist_costs_nothing_but_a_remark() -> None:
    status, text = shown(*LONG, settings={"PAGER": "no-such-pager -x"})
    assert (status, text.count("means")) == (0, 1)
    assert text.endswith("no pager: no-such-pager -x: No such file or directory\n")
    status, text = shown(*LONG, settings={"PAGER": "no-such-pager <&0"})  # asked for in a shell
    assert (status, text.count("means")) == (0, 1)


def test_a_pager_may_be_a_line_for_a_shell() -> None:
    assert "paged 1" in shown(*LONG, settings={"PAGER": "grep -c means | sed 's/^/paged /'"})[1]


SLOW = """
import sys
from rmqinspect.cli.pager import paged
with paged():
    print("first")
    sys.stdin.readline()
    for number in range(30):
        print("row", number)
"""


def test_what_comes_slowly_is_shown_as_it_comes() -> None:
    with Terminal((), settings=MARKED, program=("-c", SLOW)) as terminal:
        assert "PAGED" not in terminal.until("first")
        terminal.press("\n")
        assert terminal.status() == 0
    assert terminal.text.index("PAGED:first") < terminal.text.index("PAGED:row 29")


def test_remarks_are_printed_behind_the_pager_and_progress_never() -> None:
    status, text = shown("decode", STORE, "-n", "60", "-j", "1", "--progress", settings=MARKED)
    lines = text.splitlines()
    assert status == 0
    assert "PAGED" not in text[text.index("shown 60, more exist") :]
    assert all(line.startswith("PAGED:") for line in lines if "TopicA" in line)
    assert "ETA" not in text


def test_ctrl_c_in_less_is_for_less_when_all_is_written(tmp_path: Path) -> None:
    pager = f"cat > {tmp_path}/screen; exec less {tmp_path}/screen"  # less starts when all is written
    with Terminal(VERIFY, settings={"PAGER": pager}) as terminal:
        terminal.until("\x1b[7m")  # its prompt
        terminal.press("\x03")
        assert terminal.status(pressing="q") == ExitStatus.DAMAGE
    last = terminal.text[terminal.text.rindex("VERDICT") :]
    assert "DAMAGED" in last and "interrupted" not in terminal.text
    assert "\x1b[?1049h" not in terminal.text  # -X: what was read stays on the terminal


STUBBORN = "trap '' INT; echo ready; sleep 1; cat > /dev/null; echo done"


def test_ctrl_c_ends_a_command_that_still_writes_but_not_before_its_pager() -> None:
    words = ["decode", STORE, "-f", "jsonl", "-j", "1"]
    with Terminal(words, settings={"PAGER": STUBBORN}) as terminal:
        terminal.until("ready")
        terminal.press("\x03")
        assert terminal.status() == ExitStatus.INTERRUPTED
    assert terminal.text.index("done") < terminal.text.index("interrupted")

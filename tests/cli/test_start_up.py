"""What `--help` and TAB import: they cost what click costs, whatever the command would read."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from docs.build.floors import GROUND, LEAVES
from rmqinspect.cli import VERBS
from tests.support.samples import sample

# Each of these words goes to one process after the other, which then says what it has imported since it began.
_PROGRAM = """
import io, json, os, sys
from contextlib import redirect_stdout
from rmqinspect.__main__ import main

for words, tab in json.loads(sys.argv[1]):
    if tab:
        os.environ |= {
            "_RMQINSPECT_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["rmqinspect", *words]),
            "COMP_CWORD": str(len(words)),
        }
    sys.argv[1:] = words
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        assert main() == 0
print(json.dumps(sorted(sys.modules)))
"""


@cache
def imported(*asked: tuple[str, bool]) -> frozenset[str]:
    """Return the modules that are loaded when a process has answered all these, one after the other."""
    words = json.dumps([(text.split(" "), tab) for text, tab in asked])
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: list[Any] = json.loads(ended.stdout)
    return frozenset(found)


BARE = ("--help", False)
HELP_PAGES = tuple((f"{verb} --help", False) for verb in VERBS)
TABS = (
    ("", True),
    ("v", True),
    ("verify --", True),
    ("verify S --level d", True),
    ("forecast --broker-version 5", True),
    ("export --table q", True),
    ("transactions --state p", True),
    ("delays --state p", True),
    ("groups --status b", True),
)


@pytest.mark.parametrize("asked", [HELP_PAGES, TABS], ids=["help", "tab"])
def test_no_reader_of_evidence_is_imported(asked: tuple[tuple[str, bool], ...]) -> None:
    allowed = (LEAVES | GROUND.keys() | {"cli", "__main__"}) - {"schemas"}
    own = {name for name in imported(*asked) if name.startswith("rmqinspect.")}
    assert {name for name in own if name.split(".")[1] not in allowed | {"tables"}} == set()
    # The names of tables are in the folder's own module, which imports none of them.
    assert {name for name in own if name.startswith("rmqinspect.tables")} <= {"rmqinspect.tables"}


@pytest.mark.parametrize("asked", [HELP_PAGES, TABS], ids=["help", "tab"])
def test_all_together_import_hardly_more_than_the_list_of_commands(asked: tuple[tuple[str, bool], ...]) -> None:
    before, after = imported(BARE), imported(*asked)
    new = {name.split(".")[0] for name in after - before} - sys.stdlib_module_names - {"rmqinspect"}
    assert {name for name in new if not name.startswith("_sysconfigdata")} == set()  # of zoneinfo, named by platform
    assert len(after) < 1.4 * len(before)


def test_the_topics_of_a_store_are_completed_without_a_reader_of_records() -> None:
    before, after = imported(BARE), imported((f"decode {sample('killed-4.9.7')} -t P", True))
    assert "rmqinspect.config.json_files" in after  # they were read
    assert after.isdisjoint(("numpy", "pyarrow", "rmqinspect.tables", "rmqinspect.store.discover"))
    assert len(after) < 2 * len(before)


def test_a_command_that_runs_imports_what_it_reads_with() -> None:
    """The near miss: the same process sees a reader of evidence."""
    assert "rmqinspect.verify.codes" in imported(("verify --list-checks", False))

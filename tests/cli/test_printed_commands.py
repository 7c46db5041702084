"""The commands that screens and documents print are run as they stand: on the same store, with the same options.

Each store lies at a path with a space. What is printed is cut out of screens as a person copies it, and given to the
command line, whose commands note what they were asked for instead of doing it.
"""

import html
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmqinspect.cli.verbs
from rmqinspect.cli import VERBS, main
from tests.support import oracle
from tests.support.outcome_stores import copy_of_case, outcome_conf, outcome_store

_COMMAND = re.compile(rf"(?<![\w`'])rmqinspect (?:{'|'.join(VERBS)}) .*")
_BEHIND = re.compile(r": it |; |  # |</|$")  # what follows a command in a line of prose, of a screen and of a page


def _printed(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a text, as a shell reads them."""
    joined = re.sub(r" \\\n +", " ", text)  # a terminal's line that goes on
    joined = re.sub(r"\n {11,}(?=[^\s#])(?!rmqinspect)", " ", joined) if "<html" not in text else html.unescape(joined)
    for found in _COMMAND.finditer(joined):
        line = _BEHIND.split(found[0], maxsplit=1)[0]
        yield shlex.split(line)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what commands are asked for from now on."""
    noted: list[Any] = []

    def note(arguments: Any) -> int:
        noted.append(arguments)
        return 0

    module = SimpleNamespace(run=note)

    monkeypatch.setattr(rmqinspect.cli.verbs, "import_module", lambda name: module)
    return noted


def _lay(case: str, folder: Path) -> tuple[Path, Path | None]:
    """Lay a case, or a recorded store of a broker, below a folder; return its store, and its broker.conf."""
    if not (oracle.DATA / "outcome" / f"{case}.tar.xz").exists():
        return Path(shutil.copytree(oracle.store("broker", case), folder / case)), None
    has_conf = (outcome_store(case).parent / "broker.conf").exists()
    store = copy_of_case(case, folder / case)
    return store, store.parent / outcome_conf(case).name if has_conf else None


# What is asked of a case, and how many commands it prints at least.
_ASKED = [
    ("multipath", "info", 4),
    ("multipath", "usage", 1),
    ("multipath", "transactions", 1),
    ("multipath-dup", "verify -v -j 1", 1),
    ("delay-offset-beyond", "delays", 1),
    ("delay-offset-beyond", "groups", 1),
    ("topics-gone", "report -o - -j 1", 5),
]


@pytest.mark.parametrize(("case", "words", "least"), _ASKED, ids=lambda value: str(value).split()[0])
def test_printed_commands_are_about_the_same_store(
    case: str, words: str, least: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[Any]
) -> None:
    store, conf = _lay(case, tmp_path / "sp ace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rmqinspect.cli.verbs, "import_module", import_module)
        verb, *rest = words.split()
        options = ["--config", str(conf)] if conf is not None else []
        main([verb, str(store), *rest, *options, *(["--max-config", "20M"] if verb == "verify" else [])])
        said = capsys.readouterr()
    commands = list(_printed(said.out + "\n" + said.err))
    assert len(commands) >= least, said.out
    for _, *command in commands:
        asked.clear()
        assert main(command) == 0, (command, capsys.readouterr().err)
        if (arguments := asked[0]) and str(store) in command:
            expected = (None if conf is None else str(conf), (20_000_000 if verb == "verify" else None))
            assert (arguments.config, arguments.max_config if expected[1] else None) == expected, command
        assert str(store) in command or "explain" in command, command


def test_documents_have_the_same_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    store, conf = _lay("multipath-dup", tmp_path / "sp ace")
    report = tmp_path / "report.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rmqinspect.cli.verbs, "import_module", import_module)
        options = ("--level", "quick", "-j", "1", "-f", "json", "--report", str(report))
        main(["verify", str(store), "--config", str(conf), *options])
    document = json.loads(report.read_text())
    assert document["run"]["words"] == [str(store), "--config", str(conf)]
    commands = [row["next"] for row in document["findings"] if (row["next"] or "").startswith("rmqinspect")]
    assert commands == [row["next"] for row in json.loads(capsys.readouterr().out)["rows"] if row["next"] in commands]
    for command in commands:
        asked.clear()
        assert main(shlex.split(command)[1:]) == 0
        assert asked[0].config == str(conf)


def test_a_store_that_its_broker_conf_names_needs_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folders of the log that a broker.conf names are not in the command: the broker.conf is."""
    store, conf = _lay("multipath", tmp_path / "sp ace")
    main(["find", "--config", str(conf), "-t", "nothing"])
    main(["info", "--config", str(conf)])
    said = capsys.readouterr().out
    assert f"rmqinspect verify --config {shlex.quote(str(conf))}" in said
    assert str(store / "commitlog") not in said

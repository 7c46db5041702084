"""One option means the same wherever it is: which command has which, and that each works there."""

import json
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import click
import pytest

from rmqinspect.cli import VERBS
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()
STORE = str(sample("flipped-bit-5.3.3"))

# The options that several commands share, and the commands that have them.
SHARED = {
    "--format": "info decode find transactions groups forecast verify show diff id explain delays usage",
    "--output": "info decode find transactions groups forecast verify export show diff id explain delays usage",
    "--tz": "info decode find transactions groups forecast verify export show diff id delays usage",
    "--color": "info decode find transactions groups forecast verify export show diff id explain delays usage",
    "--quiet": "info decode find transactions groups forecast verify export show diff delays usage",
    "--verbose": "info decode find transactions groups forecast verify export show diff delays usage",
    "--progress": "decode find transactions groups forecast verify export diff delays usage",
    "--jobs": "info decode find transactions groups forecast verify export delays usage",
    "--config": "info decode find transactions groups forecast verify export show diff delays usage",
    "--base": "info decode find transactions groups forecast verify export show diff delays usage",
    "--read-rate": "info decode find transactions groups forecast verify export show diff delays usage",
    "--max-config": "info decode find transactions groups forecast verify export show diff delays usage",
    "--fail-on": "decode find transactions groups verify export show diff delays usage",
    "--redact": "decode find transactions groups verify export show diff delays usage",
    "--max-body": "decode find groups export show",
    "--raw-body": "decode find groups export show",
    "--topic": "decode find transactions groups export show delays usage",
    "--since": "decode find transactions export delays usage",
    "--unconsumed": "decode groups export",
}

# Options of one name that differ, because they take or do another thing.
VARIANTS = {
    "--format": 4,  # rows in any format; a screen or a document; verify, diff: a screen, a document or rows
    "--quiet": 2,  # verify: no screen either
    "--verbose": 2,  # verify: each finding
    "--output": 2,  # a file; the folder of an export
    "--table": 2,  # one; several
    "--limit": 4,  # rows; rows of each kind of difference; of each kind on the screen of delays; values of a dimension
    "--body": 2,  # of rows; of one record
    "--topic": 3,  # patterns, repeatable; of real topics; the topic of one record
    "--since": 2,  # of messages; when delayed ones fall due
    "--until": 2,
    "--system-topics": 2,  # shown by default; not on the screen of delays
    "--state": 2,  # of a transaction; of a delayed message
    "--at": 2,  # a record; when delayed messages count as overdue
    "--id": 2,  # repeatable; of one record
    "--key": 2,  # repeatable; of one record
    "--queue-offset": 2,  # numbers and ranges; of one record
}


def options() -> dict[str, dict[str, click.Option]]:
    """Return every option by its long name and command."""
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for verb in VERBS:
        for param in import_module(f"rmqinspect.cli.{verb}").command.params:
            if isinstance(param, click.Option):
                found[max(param.opts, key=len)][verb] = param
    return found


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_option_is_where_it_means_something(name: str) -> None:
    assert sorted(options()[name]) == sorted(SHARED[name].split())


@pytest.mark.parametrize("name", sorted(options()))
def test_an_option_has_one_help_type_and_default(name: str) -> None:
    said = {
        (one.help, repr(one.type), repr(one.default), one.metavar, one.multiple, tuple(one.opts))
        for one in options()[name].values()
    }
    assert len(said) <= VARIANTS.get(name, 1), said


SCREENS = (
    ("info", STORE),
    ("show", STORE, "--at", "97187"),
    ("id", "C0A8010A00002A9F0000000000017BA3"),
    ("explain", "CL-CRC-BODY"),
    ("diff", STORE, STORE),
    ("verify", STORE, "-j", "1"),
    ("forecast", STORE, "-j", "1"),
)


@pytest.mark.parametrize("words", SCREENS, ids=lambda words: words[0])
def test_every_screen_is_coloured_on_demand_and_written_to_a_file(
    words: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    status, plain, _ = run(*words, "--color", "never")
    assert "\x1b" not in plain
    if words[0] not in ("diff",):  # a whole store has nothing to colour
        assert "\x1b[" in run(*words, "--color", "always")[1]
    file = tmp_path / "out.json"
    assert run(*words, "-o", file)[0] == status
    assert "complete" in json.loads(file.read_text())
    assert run(*words, "-o", file)[0] == 6  # nothing is overwritten
    if words[0] not in ("diff", "verify"):  # whose tables go to files, not their screens
        assert run(*words, "-o", tmp_path / "out.txt")[:2] == (status, "")
        assert (tmp_path / "out.txt").read_text() == plain


@pytest.mark.parametrize("words", [("info", STORE), ("show", STORE, "--at", "97187")], ids=lambda words: words[0])
def test_no_screen_is_written_into_a_store(words: tuple[str, ...], run: Run) -> None:
    assert run(*words, "-o", f"{STORE}/out.json")[0] == 6


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("show", STORE, "--at", "97187"), 3),
        (("diff", STORE, str(sample("healthy-5.5.0"))), 3),
        (("verify", STORE, "-j", "1"), 3),
        (("decode", STORE, "-j", "1"), 3),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_reading_options_do_what_they_say(words: tuple[str, ...], status: int, run: Run, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=65536\n")
    plain = run(*words, "-q")
    assert plain[0] == status
    assert plain[2] == ""
    assert run(*words, "-q", "--fail-on", "never")[0] == 0
    assert run(*words, "-q", "--config", tmp_path / "broker.conf", "--read-rate", "10G", "-v") == plain

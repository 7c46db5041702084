"""Options are fields of a dataclass, which click's parameters come from; one option means the same wherever it is."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rmqinspect.cli import VERBS, ExitStatus, main
from rmqinspect.cli.parameters import argument, option, takes
from tests.support.command import Run, runner
from tests.support.samples import sample


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Options of two commands."""

    loud: bool = option("-l", "--loud", is_flag=True)
    limit: int = option("--limit", type=int, default=3, help="inherited")


@dataclass(frozen=True, kw_only=True)
class Arguments(Shared):
    """Options of one command, of which one replaces an inherited one."""

    words: tuple[str, ...] = argument("WORD...")
    limit: int = option("--limit", type=int, default=5, help="own")


def command_of(seen: Callable[[Arguments], None]) -> click.Command:
    @click.command("test")
    @takes(Arguments)
    def command(arguments: Arguments) -> None:
        seen(arguments)

    return command


def test_the_command_gets_one_frozen_object() -> None:
    seen: list[Arguments] = []
    assert CliRunner().invoke(command_of(seen.append), ["a", "-l", "b"]).exit_code == 0
    assert seen == [Arguments(words=("a", "b"), loud=True, limit=5)]
    with pytest.raises(FrozenInstanceError):
        seen[0].loud = False  # type: ignore[misc]


def test_own_options_come_first_and_replace_inherited_ones() -> None:
    command = command_of(lambda arguments: None)
    assert [param.name for param in command.params] == ["words", "limit", "loud"]
    text = CliRunner().invoke(command, ["--help"]).output
    assert "own" in text
    assert "inherited" not in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_declares_its_options_in_a_dataclass(verb: str) -> None:
    module = import_module(f"rmqinspect.cli.verbs.{verb}")
    (arguments,) = [
        value for name, value in vars(module).items() if name == f"{verb.capitalize()}Arguments" and is_dataclass(value)
    ]
    params = {param.name for param in module.command.params} - {"help"}
    assert params == {field.name for field in fields(arguments)}


# --- what is shared ------------------------------------------------------------------------------

run = runner()
STORE = str(sample("flipped-bit-5.3.3"))

# The options that several commands share, and the commands that have them.
SHARED = {
    "--format": "info decode find transactions groups forecast verify show diff id explain delays usage sql",
    "--output": "info decode find transactions groups forecast report verify export"
    " show diff id explain delays usage rebuild salvage sql",
    "--sums": "info decode find transactions groups forecast report verify show diff id explain delays usage sql",
    "--case": "info decode find transactions groups forecast report verify export"
    " show diff id explain delays usage rebuild salvage sql",
    "--examiner": "info decode find transactions groups forecast report verify export"
    " show diff id explain delays usage rebuild salvage sql",
    "--tz": "info decode find transactions groups forecast report verify"
    " export show diff id delays usage rebuild salvage sql",
    "--color": "info decode find transactions groups forecast verify export"
    " show diff id explain delays usage rebuild salvage sql",
    "--no-pager": "info decode find transactions groups forecast verify export"
    " show diff id explain delays usage rebuild salvage sql",
    "--quiet": "info decode find transactions groups forecast report verify"
    " export show diff delays usage rebuild salvage sql",
    "--verbose": "info decode find transactions groups forecast report verify"
    " export show diff delays usage rebuild salvage sql",
    "--progress": "info decode find transactions groups forecast report verify"
    " export diff delays usage rebuild salvage sql",
    "--jobs": "info decode find transactions groups forecast report verify export delays usage rebuild salvage sql",
    "--config": "info decode find transactions groups forecast report verify"
    " export show diff delays usage rebuild salvage sql",
    "--stores-from": "info decode find transactions groups forecast report verify export delays usage salvage sql",
    "--base": "info decode find transactions groups forecast report verify"
    " export show diff delays usage rebuild salvage sql",
    "--read-rate": "info decode find transactions groups forecast report verify"
    " export show diff delays usage rebuild salvage sql",
    "--max-config": "info decode find transactions groups forecast report verify"
    " export show diff delays usage rebuild salvage sql",
    "--fail-on": "decode find transactions groups report verify export show diff delays usage sql",
    "--redact": "decode find transactions groups report verify export show diff delays usage rebuild salvage sql",
    "--max-body": "decode find groups export show sql",
    "--raw-body": "decode find groups export show sql",
    "--topic": "decode find transactions groups export show delays usage",
    "--since": "decode find transactions verify export delays usage",
    "--unconsumed": "decode groups export",
}

# Options of one name that differ, because they take or do another thing.
VARIANTS = {
    # Rows in any format; these or metrics; a screen or a document; one of each store; that or metrics; verify; diff.
    "--format": 7,
    "--quiet": 2,  # verify: no screen either
    "--group": 2,  # some; the one that pulls
    "--verbose": 2,  # verify: each finding
    "--output": 4,  # a file; the folder of an export; that of a new store, which a dry run goes without
    "--hash": 3,  # of all files, into the report; onto the page; of those that are brought, into the receipt
    "--from": 2,  # the screen of a report; its page
    "--table": 2,  # one; several
    "--limit": 4,  # rows; rows of each kind of difference; of each kind on the screen of delays; values of a dimension
    "--body": 3,  # of rows; of one record; the type of the column
    "--topic": 3,  # patterns, repeatable; of real topics; the topic of one record
    "--since": 3,  # of messages; when delayed ones fall due; verify: the report of an earlier run
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
        for param in import_module(f"rmqinspect.cli.verbs.{verb}").command.params:
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


# --- texts and names ------------------------------------------------------------------------------

TEXTS = [
    (verb, one.opts[-1]) for shared in options().values() for verb, one in shared.items() if one.type.name == "text"
]


@pytest.mark.parametrize(("verb", "name"), TEXTS)
def test_a_text_that_is_not_utf_8_is_wrong_usage(verb: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "S", name, "\udcff"]) == ExitStatus.USAGE
    assert r"'\xff' is not UTF-8" in capsys.readouterr().err


def test_texts_are_most_options() -> None:
    assert len(TEXTS) > 40


@pytest.mark.parametrize("size", [2**63 - 1, 10**20])
def test_no_limit_of_a_body_is_too_large(size: int) -> None:
    assert main(["decode", str(sample("healthy-5.5.0")), "-j", "1", "-q", "--max-body", str(size)]) == ExitStatus.DONE


@pytest.mark.parametrize("command", ["find -k K1", "groups", "transactions", "delays", "usage", "sql FROM/**/usage"])
def test_stores_of_one_folder_name_are_told_apart(capsys: pytest.CaptureFixture[str], command: str) -> None:
    first, second = (str(sample(name)) for name in ("healthy-4.9.7", "killed-4.9.7"))
    words = [*command.split(), "-f", "csv", "-j", "1"]
    by_path = {"healthy-4.9.7/store", "killed-4.9.7/store"}
    for stores, names in (((first, second), by_path), ((f"east={first}", f"west={second}"), {"east", "west"})):
        main([*words, *stores])
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("store,") and {line.split(",")[0] for line in lines[1:]} <= names
    assert main([*words, first, first]) == ExitStatus.USAGE
    assert "Give NAME=STORE" in capsys.readouterr().err

"""Options are fields of a frozen dataclass, and click's parameters come from them."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from rmqinspect.cli import VERBS, ExitStatus, main
from rmqinspect.cli.parameters import argument, option, takes
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
    module = import_module(f"rmqinspect.cli.{verb}")
    (arguments,) = [
        value for name, value in vars(module).items() if name == f"{verb.capitalize()}Arguments" and is_dataclass(value)
    ]
    params = {param.name for param in module.command.params} - {"help"}
    assert params == {field.name for field in fields(arguments)}


def options_of(verb: str) -> list[click.Option]:
    command = import_module(f"rmqinspect.cli.{verb}").command
    return [param for param in command.params if isinstance(param, click.Option)]


TEXTS = [(verb, one.opts[-1]) for verb in VERBS for one in options_of(verb) if one.type.name == "text"]


@pytest.mark.parametrize(("verb", "name"), TEXTS)
def test_a_text_that_is_not_utf_8_is_wrong_usage(verb: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "S", name, "\udcff"]) == ExitStatus.USAGE
    assert r"'\xff' is not UTF-8" in capsys.readouterr().err


def test_texts_are_most_options() -> None:
    assert len(TEXTS) > 40


@pytest.mark.parametrize("size", [2**63 - 1, 10**20])
def test_no_limit_of_a_body_is_too_large(size: int) -> None:
    assert main(["decode", str(sample("healthy-5.5.0")), "-j", "1", "-q", "--max-body", str(size)]) == ExitStatus.DONE


@pytest.mark.parametrize("command", ["find -k K1", "groups", "transactions", "delays", "usage"])
def test_stores_of_one_folder_name_are_named(capsys: pytest.CaptureFixture[str], command: str) -> None:
    first, second = (str(sample(name)) for name in ("healthy-4.9.7", "killed-4.9.7"))
    words = [*command.split(), "-f", "csv", "-j", "1"]
    assert main([*words, first, second]) == 2
    assert "Give NAME=STORE" in capsys.readouterr().err
    main([*words, f"east={first}", f"west={second}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("store,") and {line.split(",")[0] for line in lines[1:]} <= {"east", "west"}

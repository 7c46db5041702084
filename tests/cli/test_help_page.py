"""A help page lists every option of its command once, below the heading that GROUPS gives it."""

from collections import Counter
from importlib import import_module

import click
import pytest

from rmqinspect.cli import VERBS, main
from rmqinspect.cli.help_page import GROUPS, Command, long_name, option_groups

LISTED = [name for names in GROUPS.values() for name in names.split()]


def command_of(verb: str) -> click.Command:
    command = import_module(f"rmqinspect.cli.verbs.{verb}").command
    assert isinstance(command, click.Command)
    return command


def own_options(verb: str) -> set[str]:
    return {long_name(param) for param in command_of(verb).params if isinstance(param, click.Option)} | {"--help"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_in_one_group(verb: str) -> None:
    command = command_of(verb)
    assert isinstance(command, Command), "give it cls=Command of rmqinspect.cli.help_page"
    groups = option_groups(command)
    assert [long_name(one) for one in groups.get("Other", ())] == [], "add the option to GROUPS of help_page"
    assert Counter(long_name(one) for options in groups.values() for one in options) == Counter(own_options(verb))
    assert list(groups) == [heading for heading in GROUPS if heading in groups]


def test_every_name_is_listed_once_and_is_an_option() -> None:
    assert [name for name, number in Counter(LISTED).items() if number > 1] == []
    everywhere = {name for verb in VERBS for name in own_options(verb)}
    of_one = [name.partition(":") for name in LISTED if ":" in name]
    assert {name for name in LISTED if ":" not in name} == everywhere
    assert [(verb, name) for verb, _, name in of_one if name not in own_options(verb)] == []


def test_an_option_that_means_another_thing_stands_apart() -> None:
    def heading(verb: str, name: str) -> str:
        groups = option_groups(command_of(verb))
        return next(key for key, options in groups.items() if name in map(long_name, options))

    assert (heading("verify", "--since"), heading("decode", "--since")) == ("Evidence", "Time")
    assert (heading("show", "--at"), heading("delays", "--at")) == ("Selection", "Time")


def test_an_option_of_no_group_is_still_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    command = Command("some", params=[click.Option(["--new"], help="not listed")])
    with click.Context(command) as context:
        page = command.get_help(context)
    assert page.index("General:") < page.index("Other:") < page.index("--new")


def test_the_texts_of_all_groups_begin_in_one_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["decode", "--help"])
    page = capsys.readouterr().out
    assert "Options:" not in page
    lines = page[page.index("Selection:") :].splitlines()
    assert [line for line in lines if line.startswith("   ") and line[:34].strip()] == []
    assert {line.index(text) for line in lines for text in ("Tag; repeatable", "Threads.") if text in line} == {34}

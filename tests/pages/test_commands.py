"""The commands as pages are written from them: every command and option, in the words of `--help`."""

import re

from docs.build.commands import commands, program
from rmqinspect.cli import VERBS
from tests.support.command import Run, runner

run = runner()

# A name at the beginning of a line of options, or behind another one there.
NAMES = re.compile(r"^  (-\w|--[\w-]+)(?:(?:, | / )(--[\w-]+))?", re.MULTILINE)


def bare(text: str) -> str:
    """Return a text without spaces: lines are folded at them, and behind hyphens."""
    return "".join(text.split())


def test_every_command_stands_there_with_the_words_of_its_help(run: Run) -> None:
    found = commands()
    assert [(one.name, one.purpose) for one in found] == list(VERBS.items())
    for one in (program(), *found):
        status, words, _ = run(*one.name.split(), "--help")
        assert status == 0 and bare(words).startswith(bare(f"Usage: {one.usage}"))
        assert [part.text for part in one.paragraphs if bare(part.text) not in bare(words)] == []
        assert [option for option in one.options if bare(option.means) not in bare(words)] == []
        named = {name for line in NAMES.findall(words) for name in line if name}
        assert {name for option in one.options for name in option.names} == named


def test_a_value_a_flag_a_switch_and_examples_are_told_apart() -> None:
    (decode,) = [one for one in commands() if one.name == "decode"]
    options = {option.names: option for option in decode.options}
    assert options["-t", "--topic"].synopsis == "-t, --topic GLOB"
    assert options["--scan",].synopsis == "--scan"
    assert options["--rocksdb", "--no-rocksdb"].takes == ""
    assert options["--fail-on",].takes == "[error|warning|never]"
    assert decode.usage == "rmqinspect decode [OPTIONS] [NAME=]PATH..."
    assert [part.as_is for part in decode.paragraphs] == [False, False, True]
    assert decode.paragraphs[-1].lines[0] == "Examples:"

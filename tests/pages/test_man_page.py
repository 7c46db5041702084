"""The man page: what click says today, valid roff, and on a screen the words of `--help`."""

import shutil
import subprocess

import pytest

from docs.build import man
from docs.build.commands import commands
from rmqinspect.cli import MEANINGS
from tests.support.samples import ROOT

PAGE = ROOT / "docs" / "rmqinspect.1"


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="ascii") == man.page(), "run: python -m docs.build.man > docs/rmqinspect.1"


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        (".conf", r"\&.conf"),
        ("'quoted' at `the` start", r"\(aqquoted\(aq at \(gathe\(ga start"),
        (r"a \n b", r"a \en b"),
        ("--id, …", r"\-\-id, \[u2026]"),
    ],
)
def test_no_text_is_a_request_or_an_escape(text: str, roff: str) -> None:
    assert man._roff(text) == roff


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_it_is_valid_and_shows_every_command_option_and_exit_status() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-b", "-P-cbou", "-rLL=200n"]
    ended = subprocess.run([*command, PAGE], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    printed = "".join(ended.stdout.split())
    for one in commands():
        parts = [one.usage, one.purpose, *(part.text for part in one.paragraphs)]
        parts += [text for option in one.options for text in (option.synopsis, option.means)]
        assert [part for part in parts if "".join(part.split()) not in printed] == []
    meanings = [meaning.replace("`", "") for meaning in MEANINGS.values()]
    assert [meaning for meaning in meanings if "".join(meaning.split()) not in printed] == []

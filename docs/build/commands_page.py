"""`python -m docs.build.commands_page > docs/commands.md` writes the reference of all commands, from their --help.

click writes a help page into a formatter; here the formatter keeps the parts. So the page has the groups, the defaults
and the order of `--help`, whatever they are.
"""

import inspect
import re
from collections.abc import Iterable, Iterator

import click

from rmqinspect.cli import VERBS, group

_HEAD = """\
# Commands

Written by `python -m docs.build.commands_page > docs/commands.md` from what `rmqinspect COMMAND --help` prints.

What each command answers, and what its exit status means, is in the [README](../README.md#commands). All of them only
read stores; what they write is a new file or folder elsewhere. Some options say the kind of text or number behind the
help, as `[x>=1]` does; what an option is without being given stands behind `default`.
"""


class _Parts(click.HelpFormatter):
    """Keeps the lists of a help page with their headings, instead of laying them out."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[tuple[str, list[tuple[str, str]]]] = []
        self._heading = ""

    def write_heading(self, heading: str) -> None:
        self._heading = heading

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        self.lists.append((self._heading, [(names.strip(), text) for names, text in rows]))


def page() -> str:
    """Return the page in Markdown."""
    overview = " · ".join(f"[{verb}](#{verb})" for verb in VERBS)
    sections = ("\n".join(_section(verb)) for verb in VERBS)
    return "\n\n".join([_HEAD.rstrip(), overview, *sections]) + "\n"


def _section(verb: str) -> Iterator[str]:
    above = group.make_context("rmqinspect", [], resilient_parsing=True)
    command = group.get_command(above, verb)
    assert command is not None
    context = click.Context(command, above, verb)
    parts = _Parts()
    command.format_options(context, parts)
    words, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    yield f"## {verb}\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield "\n\n".join(_text(" ".join(paragraph.split())) for paragraph in words.split("\n\n")).strip() + "\n"
    yield f"```sh\n{inspect.cleandoc(examples)}\n```"
    for heading, rows in parts.lists:
        yield f"\n### {verb}: {heading.lower()}\n"
        yield from (f"- `{names}`: {_text(text)}" for names, text in rows)


def _text(help_text: str) -> str:
    """Return a text of click as Markdown that reads the same."""
    return re.sub(r" {2,}", " ", help_text).replace("*", r"\*").replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")

"""The commands and their options as click has them, for the pages and the man page that are written from them.

    for command in commands():
        command.name, command.purpose           "find", "Messages by id, key, …"
        command.usage                           "rmqinspect find [OPTIONS] [NAME=]STORE..."
        for option in command.options:
            option.names, option.takes          ("-t", "--topic"), "GLOB"

Everything is in the words of `--help`, which a reader compares it with.
"""

from collections.abc import Iterator
from inspect import cleandoc
from typing import NamedTuple

import click

from rmqinspect.cli import VERBS, group

PROGRAM = "rmqinspect"


class Paragraph(NamedTuple):
    """Part of what a command says of itself."""

    lines: tuple[str, ...]
    as_is: bool  # examples: each line is one; else the lines may be folded at other words

    @property
    def text(self) -> str:
        """The paragraph in one line, or its lines as they are."""
        return ("\n" if self.as_is else " ").join(self.lines)


class Option(NamedTuple):
    """An option of a command, with its words in `--help`."""

    names: tuple[str, ...]  # the short one first; of a switch, both sides
    takes: str  # what stands for its value; "" where it has none
    means: str  # with its range and its default

    @property
    def synopsis(self) -> str:
        """How it is written: `-t, --topic GLOB`."""
        return f"{', '.join(self.names)} {self.takes}".rstrip()


class Command(NamedTuple):
    """One command, or the program itself, whose name is ""."""

    name: str
    purpose: str  # one line
    usage: str
    paragraphs: tuple[Paragraph, ...]
    options: tuple[Option, ...]  # in the order of `--help`


def program() -> Command:
    """Return what `rmqinspect --help` says, without its list of commands."""
    with _context() as context:
        return _read("", "Inspect the store of an Apache RocketMQ broker, offline and read-only.", group, context)


def commands() -> list[Command]:
    """Return all commands in the order of `rmqinspect --help`."""
    found = []
    with _context() as above:
        for name, purpose in VERBS.items():
            command = group.get_command(above, name)
            assert command is not None
            with command.make_context(name, [], parent=above, resilient_parsing=True) as context:
                found.append(_read(name, purpose, command, context))
    return found


def _context() -> click.Context:
    return group.make_context(PROGRAM, [], resilient_parsing=True)


def _read(name: str, purpose: str, command: click.Command, context: click.Context) -> Command:
    return Command(
        name,
        purpose,
        f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}",
        tuple(_paragraphs(command.help or "")),
        tuple(_options(command, context)),
    )


def _paragraphs(text: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a docstring; click keeps the lines of one that begins with a backspace."""
    for block in cleandoc(text).split("\n\n"):
        lines = tuple(block.strip("\n").splitlines())
        as_is = lines[0].strip() == "\b"
        yield Paragraph(lines[1:] if as_is else tuple(line.strip() for line in lines), as_is)


def _options(command: click.Command, context: click.Context) -> Iterator[Option]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue  # an argument, which the line of usage has, or a hidden option
        names, _ = click.formatting.join_options(parameter.opts)
        takes = "" if parameter.secondary_opts else record[0].removeprefix(names).strip()
        yield Option((*names.split(", "), *parameter.secondary_opts), takes, record[1])

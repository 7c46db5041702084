"""Options and arguments of a command as fields of a frozen dataclass, each declared once.

A field made with `option` or `argument` is both a click parameter and a typed attribute:

    @option_group
    class DecodeArguments(OutputOptions, SelectionOptions):     parts shared with other commands
        table: str | None = option("--table", help=...)         click: --table -> table

    @click.command("decode", cls=Command)
    @takes(DecodeArguments)
    def command(arguments: DecodeArguments) -> int: ...

`takes` adds the click parameters of the class and its bases (own fields first, then the bases from left to
right) and passes the command one object. A field declared again in a subclass replaces the inherited one.

Texts are parsed by click callbacks: the `ValueError` of a parser becomes a usage error.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, field, fields
from functools import wraps
from importlib import import_module
from inspect import get_annotations
from typing import Any, TypeVar, dataclass_transform

import click
from click.shell_completion import CompletionItem

from rmqinspect.choices import RELEASES
from rmqinspect.cli.pager import go_without
from rmqinspect.cli.terminal import slow_loops_reported
from rmqinspect.text import escape, parse_size

Options = TypeVar("Options")
Returned = TypeVar("Returned")


class _Text(click.types.StringParamType):
    """A text that is compared or parsed. Bytes that are not UTF-8 arrive from the shell as surrogates."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text.

        :raises click.BadParameter: it is not UTF-8; nothing in Arrow could be compared with it.
        """
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"'{escape(text)}' is not UTF-8", param, ctx)
        return text


TEXT = _Text()
"""A text that is UTF-8, for options of several values."""


def option(*names: str, **settings: Any) -> Any:
    """Return a dataclass field that is a click option; `settings` are click's. Without a type it is a text."""
    if not {"type", "is_flag", "count", "default"} & settings.keys() or isinstance(settings.get("default"), str):
        settings.setdefault("type", _Text())
    return field(metadata={"add": lambda name: click.option(*names, name, **settings)})


def argument(metavar: str, nargs: int = -1, **settings: Any) -> Any:
    """Return a dataclass field that is a click argument, by default with any number of values."""
    return field(metadata={"add": lambda name: click.argument(name, metavar=metavar, nargs=nargs, **settings)})


@dataclass_transform(frozen_default=True, kw_only_default=True)
def option_group(kind: type[Options]) -> type[Options]:
    """Make a class of options a frozen dataclass that takes keywords.

    What `dataclass` would write and compile for each class, and so at each `--help`, all of them share instead.
    """
    made = dataclass(init=False, repr=False, eq=False)(kind)
    made.__init__ = _take  # type: ignore[method-assign]
    made.__setattr__ = _refuse  # type: ignore[method-assign]
    return made


def _take(self: Any, **values: Any) -> None:
    for one in fields(self):
        object.__setattr__(self, one.name, values[one.name])
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _refuse(self: object, name: str, _: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


@option_group
class RemarkOptions:
    """What is said on stderr."""

    quiet: bool = option(
        "-q", "--quiet", is_flag=True, help="No remarks on stderr, only errors; diff, forecast: no screen either."
    )
    verbose: int = option("-v", "--verbose", count=True, help="More remarks; -vv adds a traceback to a bug.")


def takes(options: type[Options]) -> Callable[[Callable[[Options], Returned]], Callable[..., Returned]]:
    """Return a decorator: add the click parameters of `options`, call the command with one such object."""

    def decorate(command: Callable[[Options], Returned]) -> Callable[..., Returned]:
        @wraps(command)
        def run(**values: Any) -> Returned:
            arguments = options(**values)
            note_run(arguments)
            if getattr(arguments, "output", None) not in (None, "-"):
                go_without()  # what is printed beside a file is short, or goes on for long
            if not isinstance(arguments, RemarkOptions):  # it reads no store
                return command(arguments)
            with slow_loops_reported(quiet=arguments.quiet):
                return command(arguments)

        decorated: Callable[..., Returned] = run
        for name, add in reversed(list(_parameters(options))):
            decorated = add(name)(decorated)
        return decorated

    return decorate


# The fields that name what is read, and those that name a file that is written.
_READ, _WRITTEN = ("paths", "a", "b", "config", "replica"), ("output", "report", "evidence")


def note_run(arguments: object) -> None:
    """Note for `run`, with which every document ends, what a command reads and writes, and whose case it is."""
    from rmqinspect.system import output_file
    from rmqinspect.system.run import begin

    output_file.writes_sums = bool(getattr(arguments, "sums", False))
    given = [value for name in _READ if (value := getattr(arguments, name, None))]
    written = [value for name in _WRITTEN if (value := getattr(arguments, name, None))]
    paths = [path for value in given for path in ((value,) if isinstance(value, str) else value)]
    begin(
        [_without_name(path) for path in paths],
        [path for path in written if path != "-"],
        case=getattr(arguments, "case", None),
        examiner=getattr(arguments, "examiner", None),
        redacted=getattr(arguments, "redact", None) is not None,
    )


def _parameters(options: type) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Yield (field, its click decorator), own fields before inherited ones."""
    declared = {one.name: one.metadata["add"] for one in fields(options)}
    names = (name for part in options.__mro__ for name in get_annotations(part))
    for name in dict.fromkeys(names):
        yield name, declared[name]


def parsed_by(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that parses a text, or each of several, with `parse`."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(map(parse, value))
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(escape(str(error)), ctx, param) from error

    return read


def table_parser(module: str, name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback around a parser of a module of `tables`, which is imported with the first value."""

    def parse(text: str) -> object:
        return getattr(import_module(f"rmqinspect.tables.{module}"), name)(text)

    return parsed_by(parse)


# All else means something to a shell, or to a terminal. `?` matches any character, both here and in `-t GLOB`.
_UNSAFE = re.compile(r"[^\w%+.,:@=-]")


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the topics of the stores given on the line so far that begin with what is typed."""
    from rmqinspect.config.json_files import topic_names

    # click parses no arguments of a line that ends with an option without its value: they are left in ctx.args.
    given = [*(ctx.params.get("paths") or ()), *ctx.args]
    names = {_UNSAFE.sub("?", topic) for path in given for topic in topic_names(_without_name(path))}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_tables(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of tables that begin with what is typed."""
    from rmqinspect.tables import TABLES

    return [CompletionItem(name) for name in TABLES if name.startswith(incomplete)]


def _without_name(path: str) -> str:
    """Return the path of `NAME=STORE`, as export takes it."""
    name, separator, store = path.partition("=")
    return store if separator and not os.path.exists(path) and "/" not in name else path


def size_option(name: str, default: str, words: str) -> Any:
    """Return the field for a limit in bytes, given as `64MiB` or `200M`."""
    return option(name, metavar="SIZE", callback=parsed_by(parse_size), default=default, show_default=True, help=words)


def release_option() -> Any:
    """Return the field for the broker version whose rules apply."""
    return option(
        "--broker-version",
        type=click.Choice(RELEASES),
        metavar="VERSION",
        help="Broker version whose rules apply. Default: estimated from the content of the store.",
    )

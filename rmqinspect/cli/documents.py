"""What commands with a screen or one JSON document share: `-o`, the format, and emphasis."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.options import DocumentOptions
from rmqinspect.errors import Refused
from rmqinspect.text import escape_json
from rmqinspect.version import tool_name

if TYPE_CHECKING:
    from rmqinspect.output.writer import Out

# A label in the left column of a screen.
_LABEL = re.compile(r"\S.{0,12}?(?=  )")
_ALARMING = ("DAMAGED",)


def document_format(options: DocumentOptions) -> str:
    """Return table or json: -f, else the suffix of the -o file."""
    is_json = os.path.splitext(options.output or "")[1].lower() == ".json"
    return options.format or ("json" if is_json else "table")


def refuse_early(path: str | None, evidence: Sequence[str]) -> None:
    """Refuse at once what `open_destination` would refuse after hours of reading.

    :raises Refused: the file exists, or lies inside the evidence.
    """
    from rmqinspect.store.reader import refuse_inside
    from rmqinspect.system.output_file import local_file

    if path not in (None, "-"):
        path = local_file(path)
        refuse_inside(path, evidence)
        if os.path.isfile(path):
            raise Refused(f"{path}: exists already; nothing is overwritten")


@contextmanager
def printed_to(path: str | None, evidence: Sequence[str] = ()) -> Iterator[None]:
    """Write what the block prints to a new file, which appears when it ends without an error; None: to stdout.

    :raises Refused: the file exists, lies inside the evidence, or cannot be written.
    """
    if path in (None, "-"):
        yield
        return
    from rmqinspect.output import open_destination

    with open_destination(path, evidence) as out:
        with redirect_stdout(StringIO()) as printed:
            yield
        out.write(printed.getvalue().encode("utf-8", "backslashreplace"))


def json_line(document: Mapping[str, Any]) -> str:
    """Return a JSON document as one line, with what could harm a terminal escaped."""
    return escape_json(json.dumps(document, ensure_ascii=False))


def print_document(*, complete: bool = True, **parts: Any) -> None:
    """Print one JSON document in a line: its head, then `parts`."""
    click.echo(json_line({"schema_version": 1, "tool": tool_name(), "complete": complete, **parts}))


def write_lines(out: "Out", *lines: str) -> None:
    """Write the lines of a screen between tables, which go to `out` as bytes."""
    out.write("".join(f"{line}\n" for line in lines).encode())


def print_line(line: str, *, colour: bool) -> None:
    """Print a line of a screen, its label in bold if it is coloured."""
    if colour and (label := _LABEL.match(line)):
        head = click.style(label[0], bold=True, fg="red" if label[0] in _ALARMING else None)
        line = head + line[label.end() :]
    click.echo(line, color=colour)

"""What commands with a screen or one JSON document share: `-o`, the format, and emphasis."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO

import click

from rmqinspect.cli.options import DocumentOptions

# A label in the left column of a screen.
_LABEL = re.compile(r"\S.{0,12}?(?=  )")
_ALARMING = ("DAMAGED",)


def document_format(options: DocumentOptions) -> str:
    """Return table or json: -f, else the suffix of the -o file."""
    is_json = os.path.splitext(options.output or "")[1].lower() == ".json"
    return options.format or ("json" if is_json else "table")


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


def print_line(line: str, *, colour: bool) -> None:
    """Print a line of a screen, its label in bold if it is coloured."""
    if colour and (label := _LABEL.match(line)):
        head = click.style(label[0], bold=True, fg="red" if label[0] in _ALARMING else None)
        line = head + line[label.end() :]
    click.echo(line, color=colour)

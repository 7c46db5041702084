"""The log as one row of a terminal: where it is shown, in which characters, in which colours.

Only a terminal gets it: what a pipe or a file gets stays text that scripts read. ASCII is for a terminal that says it
has no more (`TERM=dumb`), for a locale that names another character set than UTF-8 (`LC_ALL=C`), and for Chinese,
Japanese and Korean: there a terminal may take two cells for a block or a line, as Unicode leaves that open.
"""

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.terminal import Screen, line_width

if TYPE_CHECKING:
    from rmqinspect.picture.model import Picture

_COLOURS = {"damage": "red", "missing": "red", "given_up": "yellow", "mark": "yellow", "stale": "magenta"}


def bar_lines(picture: "Picture | None", screen: Screen, label: str, *, colour: bool) -> Iterator[str]:
    """Yield the row of a picture under a label of a screen; nothing where stdout is no terminal."""
    if picture is None or not sys.stdout.isatty():
        return
    from rmqinspect.picture.bar import bar

    room = line_width() - screen.lead - screen.indent
    text = bar(picture, room, ascii_only=wants_ascii(), style=partial(_styled, colour=colour))
    if text:
        # The row has the width that is left, and may have colours: it is neither folded nor escaped.
        yield screen.line(label, "") + text


def wants_ascii() -> bool:
    """Whether the terminal asks for ASCII."""
    named = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    charset = named.upper().replace("-", "")
    is_wide = named.partition("_")[0] in ("zh", "ja", "ko")
    return os.environ.get("TERM") == "dumb" or is_wide or (bool(named) and "UTF8" not in charset)


def _styled(text: str, kind: str, *, colour: bool) -> str:
    shade = _COLOURS.get(kind)
    return click.style(text, fg=shade, bold=kind in ("damage", "mark")) if colour and shade else text

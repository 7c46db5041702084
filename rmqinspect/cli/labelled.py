"""Screens of labels with folded text."""

import textwrap
from collections.abc import Iterator

from rmqinspect.text import escape

_WIDTH = 100


INDENT = 13


def label(label: str, text: str) -> Iterator[str]:
    if text:
        yield from textwrap.wrap(
            escape(text),
            _WIDTH,
            initial_indent=f"{label:{INDENT}}",
            subsequent_indent=" " * INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )


def wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - INDENT, initial_indent=label, subsequent_indent=" " * len(label))

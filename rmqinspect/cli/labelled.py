"""The printer of labelled screens: a label in the left column, folded text in the right one.

    store         S: classic commit log, file queues; 31 files, 355 705 bytes
    checkpoint    log 08:48:40.000Z, queues 08:48:46.708Z, index 08:48:45.095Z: none newer than the
                  log
    |-- indent --|------------------------- up to the width of the terminal -----------------------|

Widths are cells of a terminal, not characters: a Chinese or Japanese character takes two, a combining one
none. Texts may come from the evidence and are escaped here. A line folds at spaces, never inside a number with
grouped digits (`97 187`); a word wider than a line, such as a path, stays whole unless `cut` is set. What is
copied is not folded like that: `Screen.command` continues a command with backslashes, `Screen.line` prints one line.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

from rmqinspect.text import cell_width, clip, cut_cells, escape

WIDTH, HEIGHT = 100, 50
"""Cells of a line and lines of a screen where there is no terminal."""

_NARROWEST = 40  # cells; on a narrower terminal lines run over

_TOKENS = re.compile(r" +|(?:[^ ]|(?<=\d) (?=\d{3}\b))+")


# A word of a command, as a shell separates them: spaces in quotes belong to it.
_WORD = re.compile(r"""(?:\$'(?:[^'\\]|\\.)*'|[^ '"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")


def line_width() -> int:
    """Return the cells of a line: those of the terminal."""
    return max(get_terminal_size((WIDTH, HEIGHT)).columns, _NARROWEST) if sys.stdout.isatty() else WIDTH


def screen_height() -> int:
    """Return the lines of a screen: those of the terminal."""
    return get_terminal_size((WIDTH, HEIGHT)).lines if sys.stdout.isatty() else HEIGHT


@dataclass(frozen=True, slots=True)
class Screen:
    """One screen: all its rows have their text in the same column."""

    indent: int  # cells of the label column
    lead: int = 0  # blank cells before the labels
    phrases: bool = False  # fold behind a comma or semicolon where possible
    cut: bool = False  # cut words wider than a line

    def rows(self, label: str, text: str) -> Iterator[str]:
        """Yield the lines of one label and its text; none if the text is empty."""
        if not text:
            return
        head, width = self._head(label), line_width()
        first, *rest = fold(
            escape(text), width - self.lead - self.indent, width - cell_width(head), phrases=self.phrases, cut=self.cut
        )
        yield f"{head}{first}".rstrip()
        yield from (f"{'':{self.lead + self.indent}}{line}" for line in rest)

    def several(self, label: str, texts: Iterable[str]) -> Iterator[str]:
        """Yield the lines of several texts under one label."""
        for number, text in enumerate(texts):
            yield from self.rows("" if number else label, text)

    def command(self, label: str, text: str) -> Iterator[str]:
        """Yield a label and a command, none if it is empty: in one line, or on a terminal continued with backslashes.

        It can be copied either way: it is broken between its words only.
        """
        if not text:
            return
        head, blank = self._head(label), " " * (self.lead + self.indent)
        room = line_width() - cell_width(blank)
        line = ""
        for word in _WORD.findall(escape(text)) if sys.stdout.isatty() and cell_width(text) > room else (escape(text),):
            if line and cell_width(line) + cell_width(word) + len("  \\") > room:
                yield f"{head}{line} \\"
                head, line = blank, f"  {word}"
            else:
                line = f"{line} {word}" if line else word
        yield f"{head}{line}"

    def fitted(self, label: str, text: str) -> Iterator[str]:
        """Yield a label and its text, such as a verdict: in one line, which scripts read, but folded on a terminal."""
        yield from self.rows(label, text) if sys.stdout.isatty() else (self.line(label, text),)

    def line(self, label: str, text: str) -> str:
        """Return a label and its text in one line, however long."""
        return f"{self._head(label)}{escape(text)}"

    def _head(self, label: str) -> str:
        text = escape(label)
        return " " * self.lead + pad(text, max(self.indent, cell_width(text) + 1) if text else self.indent)


def pad(text: str, width: int, side: str = "<") -> str:
    """Return an escaped text filled with spaces to `width` cells: behind it, or with `>` before it."""
    blank = " " * (width - cell_width(text))
    return f"{blank}{text}" if side == ">" else f"{text}{blank}"


def columns(
    rows: Sequence[Sequence[str]], sides: str, *, gap: int = 2, narrow: int = 0, least: int = 12
) -> Iterator[str]:
    """Yield rows of escaped texts in columns, `gap` cells apart; `sides` has `<` or `>` for each column.

    Where a line would be wider than the screen, the first `narrow` columns give way, the widest of them first, but keep
    `least` cells; a text that is cut ends in `…`.

        group           topic      queues     lag
        order-service   orders          8  10 240
    """
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    while narrow and sum(widths) + gap * (len(widths) - 1) > line_width() and max(widths[:narrow]) > least:
        widths[widths.index(max(widths[:narrow]))] -= 1
    for row in rows:
        cells = [pad(clip(text, width), width, side) for text, width, side in zip(row, widths, sides, strict=True)]
        yield (" " * gap).join(cells).rstrip()


def fold(text: str, width: int, first: int | None = None, *, phrases: bool = False, cut: bool = False) -> list[str]:
    """Return the lines of an escaped text, at least one, of at most `width` cells.

    `first` is the width of the first line, if another. With `phrases` a line ends behind its last comma or
    semicolon, if that leaves it more than half full. A word wider than a line stays whole, so that it can be copied,
    or with `cut` is cut.
    """
    lines, line = [], ""
    room = width if first is None else first
    for token in _TOKENS.findall(text):
        while line.strip() and cell_width(line) + cell_width(token) > room:
            head, line = _split(line, room) if phrases else (line, "")
            lines.append(head.rstrip())
            room = width
        if lines and not line and token.isspace():
            continue
        line += token
        while cut and cell_width(line) > room:
            head = cut_cells(line, room)
            lines.append(head)
            line, room = line[len(head) :], width
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _split(line: str, room: int) -> tuple[str, str]:
    """Split a line behind its last comma or semicolon, or at its end if that would leave it half empty."""
    end = max(line.rfind(", "), line.rfind("; ")) + 1
    return (line[:end], line[end:].lstrip()) if cell_width(line[:end]) > room // 2 else (line, "")

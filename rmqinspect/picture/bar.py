"""The log in one row of a terminal: `0 ████████✗░░░░│ends here│░░░░ 217 698`.

A cell stands for a share of the bytes from the first byte of the log to the end of its last record, which the two
numbers are. It shows the worst that is in its bytes, so one damaged byte of a terabyte is seen; of records, filler and
zeros what is most. Where the next start cuts the log, a mark is put between two cells: it hides none.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from rmqinspect.picture.model import Picture
from rmqinspect.text import group_digits

GLYPHS = {
    "records": "█#",
    "filler": "█#",
    "given_up": "░:",
    "zeros": "·.",
    "stale": "≈~",
    "bridged": "==",
    "unread": "▒-",
    "missing": "  ",
    "damage": "✗X",
}
"""A cell of each kind, and the same in ASCII."""

_WORST_FIRST = ("damage", "missing", "unread", "bridged", "stale")
_MARK, _SHORT_MARK = "│ends here│", "│"
_FEWEST = 10  # cells of the log beside a mark in words, or beside numbers


Style = Callable[[str, str], str]


def _plain(text: str, kind: str) -> str:
    return text


def bar(picture: Picture, width: int, *, ascii_only: bool = False, style: Style = _plain) -> str:
    """Return the row in at most `width` cells, "" for a store without a log.

    `style(text, kind)` colours cells of a kind of `GLYPHS`, and the mark, of kind `mark`.
    """
    start, end = picture.start, _shown_end(picture)
    if start >= end:
        return ""
    left, right = f"{group_digits(start)} ", f" {group_digits(end)}"
    if width - len(left) - len(right) < _FEWEST:
        left = right = ""
    room = width - len(left) - len(right)
    cut = picture.gives_up_from
    mark = "" if cut is None or not start <= cut < end else _MARK if room - len(_MARK) >= _FEWEST else _SHORT_MARK
    cells = _cells(picture, start, end, room - len(mark))
    at = len(cells)
    if mark and cut is not None:
        at = min((cut - start) * len(cells) // (end - start), len(cells))
        cells[at:] = ["given_up" if kind in ("records", "filler", "unread") else kind for kind in cells[at:]]
    look = 1 if ascii_only else 0
    if ascii_only:
        mark = mark.replace("│", "|")
    parts = [_drawn(cells[:at], look, style), style(mark, "mark") if mark else "", _drawn(cells[at:], look, style)]
    return f"{left}{''.join(parts)}{right}"


def _drawn(cells: Sequence[str], look: int, style: Style) -> str:
    return "".join(style(GLYPHS[kind][look] * len(list(some)), kind) for kind, some in groupby(cells))


def _shown_end(picture: Picture) -> int:
    """Return where the log's last record ends, or something else that is no zeros; of an empty log, of its files."""
    written = max((run.end for run in picture.runs if run.kind != "zeros"), default=picture.start)
    return max(written, min(picture.log_end or 0, picture.end)) if written > picture.start else picture.end


def _cells(picture: Picture, start: int, end: int, number: int) -> list[str]:
    """Return the kind of each of so many cells."""
    number, size = max(1, number), end - start
    shares: list[dict[str, int]] = [{} for _ in range(number)]  # of each kind in a cell, in bytes times `number`
    for run in picture.runs:
        low, high = (max(run.start, start) - start) * number, (min(run.end, end) - start) * number
        for cell in range(low // size, -(-high // size)):
            share = min(high, (cell + 1) * size) - max(low, cell * size)
            shares[cell][run.kind] = shares[cell].get(run.kind, 0) + share
    return [_kind(found) for found in shares]


def _kind(shares: dict[str, int]) -> str:
    """Return the kind that a cell shows."""
    worst = next((kind for kind in _WORST_FIRST if kind in shares), None)
    return worst or max(shares, key=lambda kind: shares[kind], default="missing")

"""Results as a notebook shows them: small tables without colours of their own, readable in dark and light.

Names, keys and messages come from evidence: each text is escaped as on a screen, and then for HTML. Nothing else is
written into a page than what is built here, and no text of it is used as markup, link or attribute.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from rmqinspect.text import count, escape, group_digits

MOST_ROWS = 50
_MOST_CHARACTERS = 1000
_CELL = "text-align: left; vertical-align: top"


def as_html(value: object) -> str:
    """Return a value as the text of a cell: numbers grouped, None empty, a long text cut with `…`."""
    if value is None:
        return ""
    from html import escape as escape_html  # in a notebook only

    words = group_digits(value) if type(value) is int else escape(str(value))
    return escape_html(words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…")


def heading(text: str) -> str:
    """Return the line above a table."""
    return f"<p><strong>{as_html(text)}</strong></p>"


def labelled(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a table of labels and values; what has no value is left out."""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL}">{as_html(label)}</th><td style="{_CELL}">{as_html(value)}</td></tr>'
        for label, value in pairs
        if value is not None and value != ""
    )
    return f"<table>{rows}</table>" if rows else ""


def table(names: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> str:
    """Return a table of the first MOST_ROWS of `total` rows, and how many are left out."""
    head = "".join(f'<th scope="col" style="{_CELL}">{as_html(name)}</th>' for name in names)
    cells = ("".join(f'<td style="{_CELL}">{as_html(value)}</td>' for value in row) for row in islice(rows, MOST_ROWS))
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    rest = f"<p>… and {count(total - MOST_ROWS, 'more row')}</p>" if total > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"

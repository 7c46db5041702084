"""The page as text: one file with its style and its script inside, and a policy that lets it load nothing else.

    documents of each store -> view.store_view -> page.html.j2 -> text

Whatever comes from a store is text: jinja2 escapes it for HTML, and before that every expression goes through
`text.escape`, so that no control character, NUL or mark of reading direction reaches the page. Nothing of a store ever
stands in the script or the style. The policy names the script by its digest: any other does not run.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from rmqinspect.page.view import room_for, store_view
from rmqinspect.page.words import amount, grouped, moment, share, short, sized
from rmqinspect.picture.drawing import script, style
from rmqinspect.text import escape
from rmqinspect.version import tool_name

_LONGEST_TEXT = 4000  # characters of any one text of a store


def render(
    stores: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    zone: tzinfo,
    made: datetime,
    redacted: Sequence[str] = (),
) -> str:
    """Return the page.

    `stores` are the documents of each store that was read (`page.documents`), in their order on the page; `rows` those
    of the overview, one for each store given, the worst first: none where one store was given.
    """
    room = room_for(len(stores))
    views = [store_view(documents, number, room, zone) for number, documents in enumerate(stores, 1)]
    ids = {view.name: view.id for view in views}
    pictured = any(view.picture for view in views)
    code = f"\n{script()}" if pictured else ""
    environment = _environment(zone)
    first = short(str(stores[0]["store"])) if len(stores) == 1 and not rows else amount(len(rows), "store")
    return environment.from_string(_part("page.html.j2")).render(
        title=f"RocketMQ store report: {first}",
        policy=policy(code),
        css=_part("page.css") + (style() if pictured else ""),
        script=code,
        made=moment(made.isoformat(), zone),
        tool=tool_name(),
        zone="UTC" if zone is UTC else str(zone),
        redacted=redacted,
        rows=[(row, ids.get(short(str(row["store"])))) for row in rows],
        together=_together(rows),
        stores=views,
        failed=[(row["store"], row["error"]) for row in rows if row["error"] is not None],
    )


def policy(code: str) -> str:
    """Return the Content-Security-Policy of a page with a script: nothing is loaded, and nothing else runs."""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if code else "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


def _environment(zone: tzinfo) -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_printable, keep_trailing_newline=True, auto_reload=False
    )
    environment.filters |= {
        "number": lambda value: "" if value is None else grouped(value),
        "size": lambda value: "" if value is None else sized(value),
        "share": share,
        "amount": amount,
        "short": short,
        "when": lambda value: moment(value, zone),
    }
    return environment


def _printable(value: Any) -> Any:
    """Return what an expression prints: text without what a reader cannot see, and not longer than anyone reads."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return escape(value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…")


def _part(name: str) -> str:
    return files("rmqinspect.page").joinpath(name).read_text("utf-8")


def _together(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many stores there are, and what is wrong with how many."""
    size = sum(row["size_bytes"] or 0 for row in rows)
    failed = sum(row["error"] is not None for row in rows)
    damaged = sum("DAMAGED" in (row["verdict"] or "") for row in rows)
    lost = sum(row["gone"] or 0 for row in rows)
    words = f"{amount(len(rows), 'store')}, {sized(size)}. Damaged: {grouped(damaged)}. Not read: {grouped(failed)}."
    return f"{words} The next starts lose {amount(lost, 'message')}."

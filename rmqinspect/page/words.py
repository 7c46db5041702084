"""Numbers, sizes and times as a page prints them: as all screens, and every time with its zone."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from rmqinspect.text import clip, describe_size, escape, group_digits

NO_BREAK = "\N{NO-BREAK SPACE}"

LONGEST = 260
"""Cells of a name on the page: the topic of a group, `%RETRY%` and 255 characters, fits; a log may hold any."""


def grouped(number: int) -> str:
    """Return a number with its digits grouped, in one piece: a line never ends in it."""
    return group_digits(number).replace(" ", NO_BREAK)


def amount(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 message`, `12 345 messages`."""
    return f"{grouped(number)} {noun if number == 1 else plural or noun + 's'}"


def sized(size: float) -> str:
    """Return a size in decimal units."""
    return describe_size(size)


def share(part: float) -> str:
    """Return a share from 0 to 1 as per cent."""
    return f"{100 * part:.1f} %"


def short(text: str) -> str:
    """Return a name, escaped and cut where it is longer than anyone reads."""
    return clip(escape(text), LONGEST)


def list_some(texts: Sequence[str], most: int) -> str:
    """Return some texts with commas, and how many follow."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {grouped(more)} more" if more > 0 else "")


def moment(time: str | int | None, zone: tzinfo = UTC) -> str:
    """Return a time, ISO 8601 with its zone or ms since 1970, to the second: `2026-11-21 08:48:41 UTC`."""
    if time is None:
        return "not known"
    try:
        found = datetime.fromtimestamp(time / 1000, UTC) if isinstance(time, int) else datetime.fromisoformat(time)
        there = found.astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return f"{time} ms since 1970" if isinstance(time, int) else short(time)
    text = there.isoformat(" ", "seconds")
    return f"{text[:19]} {'UTC' if zone is UTC else text[19:]}"

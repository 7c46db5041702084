"""Lines of a broker's logs and what they mean. The texts are in log_lines.toml, whose head describes the columns."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmqinspect.explain.entry import Describe
from rmqinspect.explain.flags import RUNNING_FLAGS
from rmqinspect.explain.values import DESCRIBE
from rmqinspect.prose import load_prose
from rmqinspect.text import count
from rmqinspect.verify.codes import Eras

HARMLESS = "harmless"
DEPENDS = "harmless or not, see below"
SERIOUS = "something is lost, wrong or stopped"
_ALARMS = {"harmless": HARMLESS, "depends": DEPENDS, "serious": SERIOUS}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a line: `name` as in the line, with a pattern if the line does not name it."""

    name: str
    meaning: str = ""
    describe: Describe | None = None
    pattern: str = ""  # one group; by default the name, then = or : and a number
    fills: str = ""  # `at`, `topic` or `queue` of the commands


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of log_lines.toml."""

    template: str  # the text in the sources, with {} for its values
    source: str  # class and method that log it
    seen: str  # releases
    alarm: str
    meaning: str
    phrases: tuple[str, ...] = ()  # any of them identifies the line; by default the template up to its first value
    pattern: str = ""  # identifies the line where no phrase does; searched for only if no other line has a phrase in it
    values: tuple[Value, ...] = ()
    quirks: Eras = ()  # what is different or misleading, by version
    next: tuple[str, ...] = ("rmqinspect verify {store}",)  # {store}, {at}, {topic} and {queue} are filled in
    see: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, int]], str] | None = None  # compares the line's numbers, given by name
    tells: str = ""  # what it tells of a start of the broker, see starts.py


def offset_requested(numbers: Mapping[str, int]) -> str:
    """Say where the requested offset lies relative to the files."""
    requested, first, last = (numbers.get(name) for name in ("Request offset", "firstOffset", "lastOffset"))
    if requested is None or first is None or last is None:
        index = numbers.get("index")
        return "" if index is None else "before the first file" if index < 0 else "behind the last file"
    if requested == last:
        return "exactly at the end of the last file: harmless"
    return (
        "before the first file: expired" if requested < first else "behind the last file: the end was lost or truncated"
    )


def units_cut(numbers: Mapping[str, int]) -> str:
    """Say how much of the queues startup cut off."""
    units, end = numbers.get("maxPhyOffsetOfConsumeQueue"), numbers.get("processOffset")
    if units is None or end is None:
        return ""
    return (
        f"units for {count(units - end, 'byte')} of log were cut off" if units > end else "equal: nothing was cut off"
    )


def redirected(numbers: Mapping[str, int]) -> str:
    """Say how far a group was moved."""
    requested, new = numbers.get("requestOffset"), numbers.get("newOffset")
    if requested is None or new is None:
        return ""
    if new > requested:
        return f"{count(new - requested, 'message')} of the queue skipped: they expired before the group read them"
    return (
        f"back by {requested - new}: the queue was longer when the group committed its offset, or the offset was reset"
    )


def expired(numbers: Mapping[str, int]) -> str:
    """Say how many messages expired before a group asked for them."""
    requested, first = numbers.get("requestOffset"), numbers.get("brokerMinOffset")
    return "" if requested is None or first is None else f"{count(first - requested, 'message')} missed by this group"


_JUDGES = {judge.__name__: judge for judge in (expired, offset_requested, units_cut, redirected)}
_DESCRIBE = {**DESCRIBE, "running_flags": RUNNING_FLAGS.describe}


def _load() -> Iterator[LogLine]:
    """Yield the rows; unknown and missing columns are a TypeError, unknown names of functions a KeyError."""
    for row in load_prose("rmqinspect.explain", "log_lines.toml")["line"]:
        made: dict[str, Any] = {
            "alarm": _ALARMS[row["alarm"]],
            "values": tuple(map(_value, row.get("values", ()))),
            "judge": _JUDGES[row["judge"]] if "judge" in row else None,
        }
        yield LogLine(**row | made)


def _value(row: Mapping[str, Any]) -> Value:
    return Value(**dict(row) | {"describe": _DESCRIBE[row["describe"]] if "describe" in row else None})


LOG_LINES = tuple(_load())

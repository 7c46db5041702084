"""Lines of a broker's logs and what they mean. The texts are in log_lines.toml, whose head describes the columns.

Recognises lines of a broker's logs, whatever surrounds them, and reads their values.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from rmqinspect.commands import fill_command
from rmqinspect.explain.entry import DESCRIBE, Describe, Explanation
from rmqinspect.explain.names import RUNNING_FLAGS
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
    return "before the first file: gone" if requested < first else "behind the last file: the end was lost or truncated"


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
        return f"{count(new - requested, 'message')} of the queue skipped: they were gone before the group read them"
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


_LONGEST = 2000  # characters of a line that are searched for values
_WORDS = re.compile(r"\w+")
_PATTERNS = tuple(line for line in LOG_LINES if line.pattern)


def plain(text: str) -> str:
    """Return the words of a text in lower case, separated by one space, without punctuation."""
    return " ".join(_WORDS.findall(text.lower()))


def recognise(row: str) -> list[LogLine]:
    """Return the lines whose phrase is in `row`; of overlapping phrases, the line with the longest."""
    words = _WORDS.findall(row.lower())
    candidates = [pair for word in _anchors().keys() & words for pair in _anchors()[word]]
    text = " ".join(words) if candidates else ""
    spans = [(start, start + len(phrase), line) for phrase, line in candidates if (start := text.find(phrase)) >= 0]
    if not spans:
        return [line for line in _PATTERNS if re.search(line.pattern, row[:_LONGEST], re.IGNORECASE)][:1]
    return list(
        dict.fromkeys(
            line
            for start, end, line in sorted(spans, key=lambda span: span[0])
            if not any(a <= start and end <= b and end - start < b - a for a, b, _ in spans)
        )
    )


def explain_line(line: LogLine, row: str) -> Explanation:
    """Return the explanation of a kind of line, with the values that `row` has."""
    found = list(read_values(line, row))
    # A value that begins with a hyphen would be parsed as an option.
    fitting = {value.fills: text for value, text in found if value.fills and text[0] != "-"}
    values = [(f"{value.name} {text}", _meaning(value, text)) for value, text in found]
    if line.judge is not None:
        numbers = {value.name: int(text) for value, text in found if re.fullmatch(r"-?\d{1,19}", text, re.ASCII)}
        values += [("together", text) for text in (line.judge(numbers),) if text]
    return Explanation(
        kind="log line",
        name=line.template,
        where=f"{line.alarm}; {line.source}, seen in {line.seen}",
        meaning=line.meaning,
        values=tuple(values),
        eras=line.quirks,
        next=tuple(fill_command(command, **fitting) for command in line.next),
        see=line.see,
    )


def read_values(line: LogLine, row: str) -> Iterator[tuple[Value, str]]:
    """Yield the values of a kind of line that `row` has, with their text."""
    for value in line.values:
        pattern = value.pattern or rf"(?<!\w){re.escape(value.name)}\s*[:=]\s*(-?\d+)"
        match = re.search(pattern, row[:_LONGEST], re.IGNORECASE)
        if match is not None:
            yield value, match[1]


def _meaning(value: Value, text: str) -> str:
    parts = [value.meaning]
    if value.describe is not None:
        try:
            parts.append(value.describe(text))
        except ValueError as error:  # a number too large for Java
            parts.append(str(error))
    return "; ".join(filter(None, parts))


@cache
def _anchors() -> Mapping[str, tuple[tuple[str, LogLine], ...]]:
    """Return all phrases by one of their words, so that few have to be searched for in a line.

    The word is the rarest; the first and the last of a phrase can be part of a longer word in a log.
    """
    phrases = [
        (plain(phrase), line)
        for line in LOG_LINES
        if not line.pattern
        for phrase in line.phrases or (line.template.split("{}")[0],)
    ]
    uses = Counter(word for phrase, _ in phrases for word in set(phrase.split()))
    by_word = defaultdict(list)
    for phrase, line in phrases:
        words = phrase.split()
        by_word[min(words[1:-1] or words[:1], key=lambda word: uses[word])].append((phrase, line))
    return {word: tuple(pairs) for word, pairs in by_word.items()}

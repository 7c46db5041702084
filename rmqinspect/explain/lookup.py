"""Looks up a finding's code, field, bit, topic, number or broker log line in the tables of texts.

The codes are those of `verify.codes`; everything else is in the .toml files of this folder. The lines of a broker's
logs are in log_lines.toml, whose head describes the columns; they are recognised whatever surrounds them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.commands import DECODE_TOPIC, fill_command
from rmqinspect.explain.log_values import LOG_DESCRIBE
from rmqinspect.explain.names import (
    DESCRIBE,
    FILES,
    NUMBERS,
    PREFIX,
    PROPERTIES,
    RUNNING_FLAGS,
    TOPICS,
    WORDS,
    Describe,
    Explanation,
    Named,
    bits,
    layout_fields,
    number,
    physical_offset,
)
from rmqinspect.prose import load_prose
from rmqinspect.store.directory import kind_in, rows_at
from rmqinspect.text import count, group_digits
from rmqinspect.verify.codes import CODES, Code, Eras, fill_do, fill_mend

HARMLESS = "harmless"
DEPENDS = "harmless or not, see below"
SERIOUS = "something is lost, wrong or stopped"
_ALARMS = {"harmless": HARMLESS, "depends": DEPENDS, "serious": SERIOUS}


class Value(Struct, frozen=True):
    """One value of a line: `name` as in the line, with a pattern if the line does not name it."""

    name: str
    meaning: str = ""
    describe: Describe | None = None
    pattern: str = ""  # one group; by default the name, then = or : and a number
    fills: str = ""  # `at`, `topic` or `queue` of the commands


class LogLine(Struct, frozen=True):
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
    tells: str = ""  # what it tells of a start of the broker, see `log.TELLS`


def offset_requested(numbers: Mapping[str, int]) -> str:
    """Say where the requested offset lies relative to the files."""
    requested, first, last = (numbers.get(name) for name in ("Request offset", "firstOffset", "lastOffset"))
    if requested is None or first is None or last is None:
        index = numbers.get("index")
        return "" if index is None else "before the first file" if index < 0 else "behind the last file"
    words = _unit_requested(requested, numbers.get("mappedFileSize"))
    if requested == last:
        return f"exactly at the end of the last file: harmless{words}"
    place = (
        "before the first file: gone" if requested < first else "behind the last file: the end was lost or truncated"
    )
    return place + words


# MessageStoreConfig#getMappedFileSizeConsumeQueue: the default, which no segment of a log has.
_QUEUE_FILE = 6_000_000
_UNIT = 20


def _unit_requested(position: int, file_size: int | None) -> str:
    """Return the queue offset of a position in a queue; "" in a log, or in files of another size."""
    return f"; files of a queue: queue offset {group_digits(position // _UNIT)}" if file_size == _QUEUE_FILE else ""


def beyond_end(numbers: Mapping[str, int]) -> str:
    """Say how far beyond the end of its queue a group is."""
    requested, end = numbers.get("request offset"), numbers.get("broker max offset")
    return "" if requested is None or end is None else f"{group_digits(requested - end)} beyond the end of the queue"


def delay_offset(numbers: Mapping[str, int]) -> str:
    """Say on which side of its queue the offset of a delay level lies."""
    offset, first, end = (numbers.get(name) for name in ("offset", "cqMinOffset", "cqMaxOffset"))
    if offset is not None and first is not None and offset < first:
        return f"{count(first - offset, 'delayed message')} gone before they were delivered"
    if offset is not None and end is not None and offset > end:
        return f"{group_digits(offset - end)} beyond the end of the queue"
    return ""


def unconfirmed(numbers: Mapping[str, int]) -> str:
    """Say how many entries of a DLedger member no majority has confirmed."""
    end, committed = numbers.get("ledgerEnd"), numbers.get("committed")
    if end is None or committed is None or end <= committed:
        return ""
    return f"entries that no majority has confirmed: {group_digits(end - committed)}"


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
    if new == 0:
        return "to 0: everything that the queue still has is delivered again"
    if new > requested:
        return f"{count(new - requested, 'message')} of the queue skipped: they were gone before the group read them"
    return (
        f"back by {requested - new}: the queue was longer when the group committed its offset, or the offset was reset"
    )


def expired(numbers: Mapping[str, int]) -> str:
    """Say how many messages expired before a group asked for them."""
    requested, first = numbers.get("requestOffset"), numbers.get("brokerMinOffset")
    return "" if requested is None or first is None else f"{count(first - requested, 'message')} missed by this group"


_JUDGES = {
    judge.__name__: judge
    for judge in (beyond_end, delay_offset, expired, offset_requested, redirected, unconfirmed, units_cut)
}
_DESCRIBE = {**DESCRIBE, **LOG_DESCRIBE, "running_flags": RUNNING_FLAGS.describe}


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


_MOST_NEAR = 6
_KIND_OF_FILE = "kind of a file"  # in names.toml
_OFFSET_DIGITS = 20  # of a file that is named with where it begins
_KINDS_OF_DIGITS = {_OFFSET_DIGITS: ("segment", "queue"), len("yyyyMMddHHmmssSSS"): ("index",)}


def explain(text: str) -> list[Explanation]:
    """Return the explanations of `text`: a name, a name and a value, or pasted log lines; empty if unknown.

    A name can have several, as physicalOffset does, a field of four layouts.

    :raises ValueError: the name is known, but the value is not of its kind.
    """
    text = text.strip()
    return (
        _by_name(text)
        or _log_lines(text)
        or _with_value(text)
        or _by_prefix(text)
        or _by_path(text)
        or _parts_of_log_lines(text)
    )


def is_exact_name(text: str) -> bool:
    """Return whether `text` is the name of something, spelled as in the tables."""
    return any(text in (one.name, *one.also) for one in _named()) or any(text == code.code for code in CODES)


def near(text: str) -> list[str]:
    """Return names similar to `text`, the most similar first."""
    wanted, words = _key(text), set(plain(text).split())
    names = {_key(one.name): one.name for one in everything()}
    inside = [name for key, name in names.items() if len(wanted) > 1 and wanted in key]
    close = [names[key] for key in get_close_matches(wanted, names, n=_MOST_NEAR, cutoff=0.6)]
    alike = sorted(
        (line.template for line in LOG_LINES if len(words & set(plain(line.template).split())) > 2),
        key=lambda template: -len(words & set(plain(template).split())),
    )
    return list(dict.fromkeys(inside or (*close, *alike)))[:_MOST_NEAR]


def everything() -> Iterator[Explanation]:
    """Yield all explanations, in the order of the tables."""
    for code in CODES:
        yield _of_code(code)
    for named in _named():
        yield _of_named(named)
    for line in LOG_LINES:
        yield explain_line(line, "")


@cache
def _named() -> tuple[Named, ...]:
    return (*layout_fields(), *PROPERTIES, *bits(), *NUMBERS, *TOPICS, *FILES, *WORDS)


# --- by name ------------------------------------------------------------------------------------


def _key(name: str) -> str:
    """Return a name without its case and punctuation, which people vary; a number as decimal."""
    try:
        return str(int(name, 0))
    except ValueError:
        return re.sub(r"[\W_]+", "", name).lower()


def _by_name(text: str) -> list[Explanation]:
    key = _key(text)
    codes = [_of_code(code) for code in CODES if _key(code.code) == key]
    return codes + [_of_named(named) for named in _find(key)]


def _find(key: str) -> list[Named]:
    return [named for named in _named() if key and key in map(_key, (named.name, *named.also))]


def _with_value(text: str) -> list[Explanation]:
    """Explain `sysFlag 0x1c`, `sysFlag=28`."""
    parts = re.fullmatch(r"([^\s=:]+)(?:\s*[=:]\s*|\s+)(\S+)", text)
    if parts is None:
        return []
    found = _find(_key(parts[1]))
    # Fields that describe a value alike: the first is enough.
    distinct = {named.describe: named for named in reversed(found) if named.describe}
    return [_of_named(named, parts[2]) for named in list(reversed(distinct.values())) or found]


def _by_prefix(text: str) -> list[Explanation]:
    """Explain a topic by the longest known prefix of its name."""
    fitting = [named for named in TOPICS if named.where == PREFIX and text.startswith(named.name)]
    if not fitting or " " in text:
        return []
    longest = max(fitting, key=lambda named: len(named.name))
    return [replace(_of_named(longest), next=(fill_command(DECODE_TOPIC, topic=text),))]


def _by_path(text: str) -> list[Explanation]:
    """Explain a file of a store by its path, or by a name of 20 or 17 digits without its folder."""
    *folders, name = text.split("/")
    if not folders:
        alone = _KINDS_OF_DIGITS.get(len(name), ()) if name.isdecimal() else ()
        return [explanation for kind in alone for explanation in _of_kind(kind, name)]
    if not name.isdecimal():
        return _by_name(name) if " " not in text else []
    places = ((*folders[start:], name) for start in range(len(folders)))
    kinds = (kind_in(rows_at(place), len(place)) for place in places)
    return next((_of_kind(kind, name) for kind in kinds if kind != "other"), [])


def _of_kind(kind: str, name: str) -> list[Explanation]:
    value = ((name, f"the file begins at byte {group_digits(int(name))} of its log or queue"),)
    return [
        replace(_of_named(named), values=value if len(name) == _OFFSET_DIGITS else ())
        for named in _find(_key(kind))
        if named.where == _KIND_OF_FILE
    ]


def _of_code(code: Code) -> Explanation:
    return Explanation(
        kind="code",
        name=code.code,
        where=f"{code.severity}, level {code.level}",
        meaning=code.rule,
        effect=code.broker_effect,
        cause=code.cause,
        eras=code.eras,
        logged=tuple(line.template for line in LOG_LINES if code.code in line.see and line.alarm != HARMLESS),
        next=(fill_command(code.next),),
        do="; ".join(filter(None, (fill_do(code.do), fill_mend(code.mend)))),
    )


def _of_named(named: Named, value: str = "") -> Explanation:
    values: tuple[tuple[str, str], ...] = ()
    commands = named.next
    if value and named.describe is not None:
        values = ((value, named.describe(value)),)
        if named.describe is physical_offset:
            commands = tuple(command.replace("OFFSET", str(number(value))) for command in commands)
    return Explanation(
        named.kind, named.name, named.where, named.meaning, values, eras=named.eras, next=commands, see=named.see
    )


# --- lines of a log -----------------------------------------------------------------------------


def _log_lines(text: str) -> list[Explanation]:
    """Explain every known line of `text`, each kind once, even if a terminal wrapped it."""
    found: dict[LogLine, str] = {}
    for row in (*text.splitlines(), " ".join(text.split())):
        for line in recognise(row):
            found.setdefault(line, row)
    return [explain_line(line, row) for line, row in found.items()]


def _parts_of_log_lines(text: str) -> list[Explanation]:
    """Explain the lines that contain `text`; a single word is not enough."""
    part = plain(text)
    return [explain_line(line, text) for line in LOG_LINES if " " in part and part in plain(line.template)]


__all__ = ["Explanation", "everything", "explain", "is_exact_name", "near"]

"""What a finding's code, a field, a bit, a topic, a number or a line of a broker's log means.

The texts are tables: of codes beside their rule (`checks.codes`), of everything else here. `explain`
is the one walk over them.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cache

from rmqinspect.explain.entry import Explanation, Named
from rmqinspect.explain.fields import layout_fields
from rmqinspect.explain.flags import WORDS, bits
from rmqinspect.explain.log_lines import HARMLESS, LOG_LINES, LogLine, Value
from rmqinspect.explain.names import NUMBERS, PREFIX, PROPERTIES, TOPICS
from rmqinspect.explain.values import number, physical_offset
from rmqinspect.verify.codes import CODES, Code

_MOST_NEAR = 6
_LONGEST = 2000  # characters of a pasted line in which values are looked for
# What stands in a command where nothing better is known.
_PLACEHOLDERS = {"store": "STORE", "at": "OFFSET", "topic": "TOPIC", "queue": "N"}


def explain(text: str) -> list[Explanation]:
    """Return what `text` means: a name, a name and a value, or pasted lines of a log; empty if unknown.

    A name can mean several things, as physicalOffset does, which four layouts have.

    :raises ValueError: the name is known, the value is none of its kind.
    """
    text = text.strip()
    return _by_name(text) or _log_lines(text) or _with_value(text) or _by_prefix(text) or _parts_of_log_lines(text)


def near(text: str) -> list[str]:
    """Return names that look like `text`, the most likely first."""
    wanted, words = _key(text), set(_plain(text).split())
    names = {_key(one.name): one.name for one in everything()}
    inside = [name for key, name in names.items() if len(wanted) > 1 and wanted in key]
    close = [names[key] for key in get_close_matches(wanted, names, n=_MOST_NEAR, cutoff=0.6)]
    alike = sorted(
        (line.template for line in LOG_LINES if len(words & set(_plain(line.template).split())) > 2),
        key=lambda template: -len(words & set(_plain(template).split())),
    )
    return list(dict.fromkeys(inside or (*close, *alike)))[:_MOST_NEAR]


def everything() -> Iterator[Explanation]:
    """Yield all that can be explained, in the order of the tables."""
    for code in CODES:
        yield _of_code(code)
    for named in _named():
        yield _of_named(named)
    for line in LOG_LINES:
        yield _of_log_line(line, "")


@cache
def _named() -> tuple[Named, ...]:
    return (*layout_fields(), *PROPERTIES, *bits(), *NUMBERS, *TOPICS, *WORDS)


# --- by name ------------------------------------------------------------------------------------


def _key(name: str) -> str:
    """Return a name without what people write differently: case, `_`, `-`, `%`; a number as decimal."""
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
    # Of fields that read a value alike, one says it all.
    reading = {named.words: named for named in reversed(found) if named.words}
    return [_of_named(named, parts[2]) for named in list(reversed(reading.values())) or found]


def _by_prefix(text: str) -> list[Explanation]:
    """Explain a topic by what its name begins with."""
    fitting = [named for named in TOPICS if named.where == PREFIX and text.startswith(named.name)]
    if not fitting or " " in text:
        return []
    longest = max(fitting, key=lambda named: len(named.name))
    return [replace(_of_named(longest), next=(f"rmqinspect decode STORE -t {shlex.quote(text)}",))]


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
        next=(code.next.format(**_PLACEHOLDERS),),
    )


def _of_named(named: Named, value: str = "") -> Explanation:
    values: tuple[tuple[str, str], ...] = ()
    commands = named.next
    if value and named.words is not None:
        values = ((value, named.words(value)),)
        if named.words is physical_offset:
            commands = tuple(command.replace("OFFSET", str(number(value))) for command in commands)
    return Explanation(
        named.kind, named.name, named.where, named.meaning, values, eras=named.eras, next=commands, see=named.see
    )


# --- lines of a log -----------------------------------------------------------------------------


def _plain(text: str) -> str:
    """Return the words of a text in lower case, one space between, without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


@cache
def _phrases() -> tuple[tuple[str, LogLine], ...]:
    return tuple(
        (_plain(phrase), line) for line in LOG_LINES for phrase in line.phrases or (line.template.split("{}")[0],)
    )


def _log_lines(text: str) -> list[Explanation]:
    """Explain every line of `text` that is known, each kind once, wherever `text` was wrapped."""
    found: dict[LogLine, str] = {}
    for row in (*text.splitlines(), " ".join(text.split())):
        for line in _recognise(row):
            found.setdefault(line, row)
    return [_of_log_line(line, row) for line, row in found.items()]


def _parts_of_log_lines(text: str) -> list[Explanation]:
    """Explain the lines that `text` is a part of; one word is too little."""
    part = _plain(text)
    return [_of_log_line(line, text) for line in LOG_LINES if " " in part and part in _plain(line.template)]


def _recognise(row: str) -> list[LogLine]:
    """Return the lines whose phrase stands in `row`; of two that overlap, the one with the longer phrase."""
    plain = _plain(row)
    spans = [(start, start + len(phrase), line) for phrase, line in _phrases() if (start := plain.find(phrase)) >= 0]
    return [
        line
        for start, end, line in sorted(spans, key=lambda span: span[0])
        if not any(a <= start and end <= b and end - start < b - a for a, b, _ in spans)
    ]


def _of_log_line(line: LogLine, row: str) -> Explanation:
    found = [(value, text) for value in line.values if (text := _read(value, row[:_LONGEST])) is not None]
    # What begins with a hyphen would be read as an option.
    fitting = {value.fills: shlex.quote(text) for value, text in found if value.fills and text[0] != "-"}
    values = [(f"{value.name} {text}", _meaning(value, text)) for value, text in found]
    if line.judge is not None:
        numbers = {value.name: int(text) for value, text in found if re.fullmatch(r"-?\d{1,19}", text, re.ASCII)}
        values += [("together", words) for words in (line.judge(numbers),) if words]
    return Explanation(
        kind="log line",
        name=line.template,
        where=f"{line.alarm}; {line.source}, seen in {line.seen}",
        meaning=line.meaning,
        values=tuple(values),
        eras=line.quirks,
        next=tuple(command.format(**_PLACEHOLDERS | fitting) for command in line.next),
        see=line.see,
    )


def _read(value: Value, row: str) -> str | None:
    pattern = value.pattern or rf"(?<!\w){re.escape(value.name)}\s*[:=]\s*(-?\d+)"
    match = re.search(pattern, row, re.IGNORECASE)
    return None if match is None else match[1]


def _meaning(value: Value, text: str) -> str:
    parts = [value.meaning]
    if value.words is not None:
        try:
            parts.append(value.words(text))
        except ValueError as error:  # more digits than Java has
            parts.append(str(error))
    return "; ".join(filter(None, parts))


__all__ = ["Explanation", "everything", "explain", "near"]

"""Looks up a finding's code, field, bit, topic, number or broker log line in the tables of texts.

The codes are those of `verify.codes`; everything else is in the .toml files of this folder.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cache

from rmqinspect.commands import DECODE_TOPIC, fill_command
from rmqinspect.explain.entry import Explanation, Named
from rmqinspect.explain.fields import layout_fields
from rmqinspect.explain.flags import bits
from rmqinspect.explain.log_lines import HARMLESS, LOG_LINES, LogLine, Value
from rmqinspect.explain.names import NUMBERS, PREFIX, PROPERTIES, TOPICS, WORDS
from rmqinspect.explain.values import number, physical_offset
from rmqinspect.verify.codes import CODES, Code, fill_do

_MOST_NEAR = 6
_LONGEST = 2000  # characters of a pasted line that are searched for values


def explain(text: str) -> list[Explanation]:
    """Return the explanations of `text`: a name, a name and a value, or pasted log lines; empty if unknown.

    A name can have several, as physicalOffset does, a field of four layouts.

    :raises ValueError: the name is known, but the value is not of its kind.
    """
    text = text.strip()
    return _by_name(text) or _log_lines(text) or _with_value(text) or _by_prefix(text) or _parts_of_log_lines(text)


def near(text: str) -> list[str]:
    """Return names similar to `text`, the most similar first."""
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
    """Yield all explanations, in the order of the tables."""
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
        do=fill_do(code.do),
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


def _plain(text: str) -> str:
    """Return the words of a text in lower case, separated by one space, without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


@cache
def _phrases() -> tuple[tuple[str, LogLine], ...]:
    return tuple(
        (_plain(phrase), line) for line in LOG_LINES for phrase in line.phrases or (line.template.split("{}")[0],)
    )


def _log_lines(text: str) -> list[Explanation]:
    """Explain every known line of `text`, each kind once, even if a terminal wrapped it."""
    found: dict[LogLine, str] = {}
    for row in (*text.splitlines(), " ".join(text.split())):
        for line in _recognise(row):
            found.setdefault(line, row)
    return [_of_log_line(line, row) for line, row in found.items()]


def _parts_of_log_lines(text: str) -> list[Explanation]:
    """Explain the lines that contain `text`; a single word is not enough."""
    part = _plain(text)
    return [_of_log_line(line, text) for line in LOG_LINES if " " in part and part in _plain(line.template)]


def _recognise(row: str) -> list[LogLine]:
    """Return the lines whose phrase is in `row`; of overlapping phrases, the line with the longest."""
    plain = _plain(row)
    spans = [(start, start + len(phrase), line) for phrase, line in _phrases() if (start := plain.find(phrase)) >= 0]
    return [
        line
        for start, end, line in sorted(spans, key=lambda span: span[0])
        if not any(a <= start and end <= b and end - start < b - a for a, b, _ in spans)
    ]


def _of_log_line(line: LogLine, row: str) -> Explanation:
    found = [(value, text) for value in line.values if (text := _read(value, row[:_LONGEST])) is not None]
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


def _read(value: Value, row: str) -> str | None:
    pattern = value.pattern or rf"(?<!\w){re.escape(value.name)}\s*[:=]\s*(-?\d+)"
    match = re.search(pattern, row, re.IGNORECASE)
    return None if match is None else match[1]


def _meaning(value: Value, text: str) -> str:
    parts = [value.meaning]
    if value.describe is not None:
        try:
            parts.append(value.describe(text))
        except ValueError as error:  # a number too large for Java
            parts.append(str(error))
    return "; ".join(filter(None, parts))


__all__ = ["Explanation", "everything", "explain", "near"]

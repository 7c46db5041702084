"""Looks up a finding's code, field, bit, topic, number or broker log line in the tables of texts.

The codes are those of `verify.codes`; everything else is in the .toml files of this folder.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cache

from rmqinspect.commands import DECODE_TOPIC, fill_command
from rmqinspect.explain.entry import Explanation, Named, number, physical_offset
from rmqinspect.explain.log_lines import HARMLESS, LOG_LINES, LogLine, explain_line, plain, recognise
from rmqinspect.explain.names import FILES, NUMBERS, PREFIX, PROPERTIES, TOPICS, WORDS, bits, layout_fields
from rmqinspect.store.directory import kind_in, rows_at
from rmqinspect.text import group_digits
from rmqinspect.verify.codes import CODES, Code, fill_do

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


def is_name(text: str) -> bool:
    """Return whether `text` is the name of something, in any spelling."""
    return bool(_by_name(text.strip()))


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


__all__ = ["Explanation", "everything", "explain", "is_name", "near"]

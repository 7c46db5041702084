"""`rmqinspect explain`: what a finding, a field, a flag or a line of a broker's log means; needs no store."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click

from rmqinspect.cli.options import use_colour
from rmqinspect.errors import NothingFound
from rmqinspect.explain.lookup import Explanation, everything, explain, near
from rmqinspect.text import escape, escape_json
from rmqinspect.verify.codes import ALL, CODES
from rmqinspect.version import tool_name

_WIDTH = 100
_LABEL = 13
_CODES = 2 + max(len(code.code) for code in CODES) + 2
_ASKED = 200  # characters of an unknown text that an error repeats
_HEADINGS = {
    "code": "codes of findings",
    "field": "fields",
    "property": "message properties",
    "bit": "bits",
    "number": "numbers",
    "topic": "topics",
    "word": "words of this tool",
    "log line": "log lines (a part of one is enough; in quotes)",
}


# Values may be negative, and a pasted line may hold anything: what looks like an option is looked at below.
@click.command("explain", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[WHAT]...", nargs=-1)
@click.option("-f", "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(words: tuple[str, ...], form: str) -> None:
    """Say what a code, field, flag or log line means, how it comes about, what a broker does, what to run next.

    WHAT is a code of a finding; a field, property, bit, topic or number, with a value if you have one;
    or a line of a broker's log in quotes, whole or a part. Without WHAT: all that is known.

    \b
    Examples:
      rmqinspect explain CL-CRC-BODY
      rmqinspect explain sysFlag 0x1c
      rmqinspect explain magicCode -626843481
      rmqinspect explain TAGS TagA
      rmqinspect explain "found a illegal magic code 0x66666"
      rmqinspect explain "$(tail -n 50 store.log)"
    """
    if len(words) < 4 and (wrong := [word for word in words if re.fullmatch(r"--?[A-Za-z][\w-]*", word)]):
        raise click.UsageError(f"No such option: {escape(wrong[0])}")
    text = " ".join(words)
    try:
        found = explain(text) if words else list(everything())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if form == "json":
        click.echo(escape_json(json.dumps(_document(found, text), ensure_ascii=False)))
    if not found:
        raise NothingFound(_unknown(text))
    if form == "table":
        colour = use_colour("auto")
        for line in _screen(found, colour) if words else _contents(found, colour):
            click.echo(line, color=colour)


def _document(found: list[Explanation], text: str) -> dict[str, Any]:
    rows = []
    for explanation in found:
        row = asdict(explanation)
        row["values"] = [{"value": value, "meaning": meaning} for value, meaning in explanation.values]
        row["eras"] = [{"versions": versions, "effect": effect} for versions, effect in explanation.eras]
        rows.append(row)
    document = {"schema_version": 1, "tool": tool_name(), "complete": True, "rows": rows}
    return document if found else document | {"near": near(text)}


def _unknown(text: str) -> str:
    names = near(text)
    hint = f"; near: {', '.join(names)}" if names else "; rmqinspect explain lists what is known"
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", text):
        hint = "; name the field too: rmqinspect explain sysFlag 0x1c"
    return f"nothing is known about '{text[:_ASKED]}{'…' if len(text) > _ASKED else ''}'{hint}"


# --- the screen ---------------------------------------------------------------------------------


def _screen(found: list[Explanation], colour: bool) -> Iterator[str]:
    for number, explanation in enumerate(found):
        if number:
            yield ""
        for line in wrap(explanation.name, "", 0):
            yield click.style(line, bold=True) if colour else line
        for label, text in _lines(explanation):
            yield from wrap(text, label, _LABEL)


def _lines(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield (label, text); the label stands before the first of several texts."""
    yield explanation.kind, explanation.where
    yield "means", explanation.meaning
    yield from _several("here", (_joined(value, meaning) for value, meaning in explanation.values))
    if explanation.cause:
        yield "cause", explanation.cause
    if explanation.effect:
        yield "broker", explanation.effect
    label = "note" if explanation.kind == "log line" else "versions"
    yield from _several(
        label, (effect if versions == ALL else f"{versions}: {effect}" for versions, effect in explanation.eras)
    )
    yield from _several("logged as", explanation.logged)
    yield from _several("next", explanation.next)
    if explanation.see:
        yield "explain too", ", ".join(explanation.see)


def _joined(value: str, meaning: str) -> str:
    if not meaning or meaning.startswith(value):
        return meaning or value
    return f"{value}: {meaning}"


def _several(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(texts):
        yield "" if number else label, text


def wrap(text: str, label: str, indent: int) -> list[str]:
    return textwrap.wrap(
        escape(text),
        _WIDTH,
        initial_indent=f"{label:{indent}}" if indent else "",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def _contents(found: list[Explanation], colour: bool) -> Iterator[str]:
    """Yield all names: codes with their rule, log lines one by one, all others in rows."""
    for number, (kind, heading) in enumerate(_HEADINGS.items()):
        if number:
            yield ""
        yield click.style(heading, bold=True) if colour else heading
        group = [explanation for explanation in found if explanation.kind == kind]
        for label, text in _rows(kind, group):
            yield from wrap(text, f"  {label}", _CODES if label else 2)


def _rows(kind: str, group: list[Explanation]) -> Iterator[tuple[str, str]]:
    match kind:
        case "code":
            yield from ((explanation.name, explanation.meaning) for explanation in group)
        case "log line":
            yield from (("", explanation.name) for explanation in group)
        case "field":
            for place, fields in groupby(group, key=lambda field: field.where.split(",")[0]):
                yield "", f"{place}: {', '.join(field.name for field in fields)}"
        case _:
            yield "", ", ".join(explanation.name for explanation in group)

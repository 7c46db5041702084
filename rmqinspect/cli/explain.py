"""`rmqinspect explain`: the meaning of a finding, a field, a flag or a broker log line. Needs no store."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import click

from rmqinspect.cli.documents import document_format, printed_to
from rmqinspect.cli.explain_log import are_logs, explain_logs
from rmqinspect.cli.explain_screen import explanation_lines, explanation_row, name_lines
from rmqinspect.cli.labelled import Screen
from rmqinspect.cli.options import ColorOptions, DocumentOptions, use_colour
from rmqinspect.cli.parameters import argument, takes
from rmqinspect.cli.status import ExitStatus
from rmqinspect.errors import NothingFound
from rmqinspect.explain.lookup import Explanation, everything, explain, near
from rmqinspect.text import escape, escape_json
from rmqinspect.verify.codes import CODES
from rmqinspect.version import tool_name

# The list of everything: codes beside their rules, other names in running lines.
_CODES = Screen(indent=max(len(code.code) for code in CODES) + 2, lead=2)
_LIST = Screen(indent=0, lead=2)
_ASKED = 200  # characters of an unknown text that the error repeats
_HEADINGS = {
    "code": "finding codes",
    "field": "fields",
    "property": "message properties",
    "bit": "bits",
    "number": "numbers",
    "topic": "topics",
    "file": "files and folders of a store",
    "word": "terms of this tool",
    "log line": "log lines (in quotes; a part is enough)",
}


@dataclass(frozen=True, kw_only=True)
class ExplainArguments(DocumentOptions, ColorOptions):
    """What `explain` is asked for."""

    words: tuple[str, ...] = argument("[WHAT]...")


# Values may be negative and a pasted line may contain anything: what looks like an option is checked below.
@click.command("explain", context_settings={"ignore_unknown_options": True})
@takes(ExplainArguments)
def command(arguments: ExplainArguments) -> ExitStatus:
    """Explain a code, field, flag or log line: meaning, cause, what a broker does, what to run next.

    WHAT is the code of a finding; a field, property, bit, topic or number, with its value if you have
    one; a status or another word of rmqinspect's output, or the name of a file of a store; a line of a
    broker's log in quotes, whole or in part; or one or several log files, or - for a log from stdin:
    what each start of the broker cut and deleted, or why it was refused, and every kind of line with
    its number. Files may be gzipped. Without WHAT: a list of everything.

    Exit status of a log: 0 read, 5 no known line in it, 4 not readable to its end, 130 interrupted.

    \b
    Examples:
      rmqinspect explain CL-CRC-BODY
      rmqinspect explain sysFlag 0x1c
      rmqinspect explain magicCode -626843481
      rmqinspect explain TAGS TagA
      rmqinspect explain "found a illegal magic code 0x66666"
      rmqinspect explain store.log
      rmqinspect explain store.1.log.gz store.log
      kubectl logs broker-0 | rmqinspect explain -
    """
    with printed_to(arguments.output):
        return _print(arguments)


def _print(arguments: ExplainArguments) -> ExitStatus:
    words, format_ = arguments.words, document_format(arguments)
    if are_logs(words):
        return explain_logs(words, format_, arguments.color)
    if len(words) < 4 and (wrong := [word for word in words if re.fullmatch(r"--?[A-Za-z][\w-]*", word)]):
        raise click.UsageError(f"No such option: {escape(wrong[0])}")
    text = " ".join(words)
    try:
        found = explain(text) if words else list(everything())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if format_ == "json":
        click.echo(escape_json(json.dumps(_document(found, text), ensure_ascii=False)))
    if not found:
        raise NothingFound(_unknown(text))
    if format_ == "table":
        colour = use_colour(arguments.color, arguments.output)
        for line in _screen(found, colour) if words else _contents(found, colour):
            click.echo(line, color=colour)
    return ExitStatus.DONE


def _document(found: list[Explanation], text: str) -> dict[str, Any]:
    rows = [explanation_row(explanation) for explanation in found]
    document = {"schema_version": 1, "tool": tool_name(), "complete": True, "rows": rows}
    return document if found else document | {"near": near(text)}


def _unknown(text: str) -> str:
    names = near(text)
    hint = f"; near: {', '.join(names)}" if names else "; rmqinspect explain lists everything"
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", text):
        hint = "; name the field too: rmqinspect explain sysFlag 0x1c"
    return f"no explanation of '{text[:_ASKED]}{'…' if len(text) > _ASKED else ''}'{hint}"


# --- the screen ---------------------------------------------------------------------------------


def _screen(found: list[Explanation], colour: bool) -> Iterator[str]:
    for number, explanation in enumerate(found):
        if number:
            yield ""
        yield from name_lines(explanation.name, colour)
        yield from explanation_lines(explanation)


def _contents(found: list[Explanation], colour: bool) -> Iterator[str]:
    """Yield all names: codes with their rule, log lines one by one, all others in running lines."""
    for number, (kind, heading) in enumerate(_HEADINGS.items()):
        if number:
            yield ""
        yield click.style(heading, bold=True) if colour else heading
        group = [explanation for explanation in found if explanation.kind == kind]
        for label, text in _rows(kind, group):
            yield from (_CODES if label else _LIST).rows(label, text)


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

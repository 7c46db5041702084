"""`rmqinspect explain`: the meaning of a finding, a field, a flag or a broker log line. Needs no store.

What `rmqinspect explain` prints of one explanation, on a screen and in JSON.

`rmqinspect explain LOG`: what happened to the broker, by its own logs.
"""

import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedReader
from itertools import groupby
from typing import Any, cast

import click
from msgspec.structs import asdict, replace

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import use_colour
from rmqinspect.cli.pager import print_answered
from rmqinspect.cli.session import document_format, print_document, printed_to
from rmqinspect.cli.terminal import Screen
from rmqinspect.cli.verbs.explain import ExplainArguments
from rmqinspect.errors import NothingFound
from rmqinspect.explain.log import GZIP, Log, Seen, Start, is_log_row, read_log
from rmqinspect.explain.lookup import HARMLESS, SERIOUS, everything, explain, explain_line, is_exact_name, near
from rmqinspect.explain.names import Explanation
from rmqinspect.explain.start_words import commands, details, headline
from rmqinspect.system.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.text import count, escape, group_digits
from rmqinspect.verify.codes import ALL, CODES

SCREEN = Screen(indent=13)
LIST = Screen(indent=0, lead=2)
_NAMES = Screen(indent=0)


def explanation_row(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as a JSON object."""
    row = asdict(explanation)
    row["values"] = [{"value": value, "meaning": meaning} for value, meaning in explanation.values]
    row["eras"] = [{"versions": versions, "effect": effect} for versions, effect in explanation.eras]
    return row


def name_lines(name: str, colour: bool) -> Iterator[str]:
    """Yield the name of what is explained, folded, as a heading."""
    for line in _NAMES.rows("", name):
        yield click.style(line, bold=True) if colour else line


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield everything but the name, each part under its label."""
    yield from SCREEN.rows(explanation.kind, explanation.where)
    yield from SCREEN.rows("means", explanation.meaning)
    values = (
        (meaning or value) if not meaning or meaning.startswith(value) else f"{value}: {meaning}"
        for value, meaning in explanation.values
    )
    yield from SCREEN.several("here", values)
    yield from SCREEN.rows("cause", explanation.cause)
    yield from SCREEN.rows("broker", explanation.effect)
    effects = (effect if versions == ALL else f"{versions}: {effect}" for versions, effect in explanation.eras)
    yield from SCREEN.several("note" if explanation.kind == "log line" else "versions", effects)
    yield from SCREEN.several("logged as", explanation.logged)
    yield from SCREEN.rows("do", explanation.do)
    for number, command in enumerate(explanation.next):
        yield from SCREEN.command("" if number else "next", command)
    yield from SCREEN.rows("explain too", ", ".join(explanation.see))


_STDIN = "-"
_MOST_UNKNOWN = 5  # kinds of unknown warnings that the screen shows
_MOST_STARTS = 30  # groups of like starts that the screen shows


def are_logs(words: Sequence[str]) -> bool:
    """Return whether the words are logs: `-`, or existing files, whatever their names.

    A file of a store is no log: its name is a name, and so is that of a binary file in any folder. `abort` in the
    folder of a store is a name, `./abort` is a file, and so is a log that somebody has called `abort`.
    """
    if tuple(words) == (_STDIN,):
        return True
    return bool(words) and all(map(os.path.isfile, words)) and not any(map(_is_of_a_store, words))


_MOST_SEARCHED = 64 << 10  # bytes of a file that are searched for lines of a log


def _is_of_a_store(path: str) -> bool:
    """Return whether a file is named as one of a store and is none of a broker's logs."""
    if not explain(path):
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(_MOST_SEARCHED)
    except OSError:
        return False
    if b"\0" in start[:4096] and not start.startswith(GZIP):
        return True
    return is_exact_name(path) and not start.startswith(GZIP) and not any(map(is_log_row, start.splitlines()))


def explain_logs(names: Sequence[str], format_: str, color: str) -> ExitStatus:
    """Read logs, in the given order as if they were one, and print what they say."""
    log = Log()
    with interrupted_once():
        try:
            status = _read(names, log)
        except KeyboardInterrupt:
            status = ExitStatus.INTERRUPTED
        interrupt_no_more()
        log.complete = status == ExitStatus.DONE
        if format_ == "json":
            print_document(complete=log.complete, **_document(log, names))
        else:
            colour = use_colour(color)
            print_answered(_log_lines(log, names, colour), colour=colour)
    return ExitStatus.NOTHING_FOUND if status == ExitStatus.DONE and not log.known else status


def _read(names: Sequence[str], log: Log) -> ExitStatus:
    """Read the logs; one that cannot be read is named on stderr."""
    status = ExitStatus.DONE
    for name in names:
        try:
            if name == _STDIN:
                read_log(cast(BufferedReader, sys.stdin.buffer), log)
            else:
                with open(name, "rb") as file:
                    read_log(file, log)
        except (OSError, EOFError, zlib.error) as error:
            click.echo(f"{escape(name)}: {escape(str(error))}", err=True)
            status = ExitStatus.UNREADABLE
    return status


# --- the screen -----------------------------------------------------------------------------------


def _log_lines(log: Log, names: Sequence[str], colour: bool) -> Iterator[str]:
    """Yield the lines by kind, and last, where a terminal ends, what the log comes to: the starts."""
    kinds = log.by_alarm()
    told = [seen for seen in kinds if seen.line.alarm != HARMLESS]
    for seen in told:
        yield from name_lines(seen.line.template, colour)
        yield from _lines(seen)
        yield ""
    if told:
        yield from SCREEN.rows("more", "rmqinspect explain 'PART OF A LINE': what differs by version, related findings")
        yield ""
    harmless = [f"{_times(seen.count)} {seen.line.template}" for seen in kinds if seen.line.alarm == HARMLESS]
    alarms = [f"{_times(number)} {text}" for text, number in log.unknown_alarms.most_common(_MOST_UNKNOWN)]
    for heading, rows in (
        ("harmless", harmless),
        (f"{count(log.unknown, 'line')} not known", [] if alarms or not log.unknown else ["no warning or error"]),
        (f"{count(log.unknown, 'line')} not known; the most frequent of their warnings and errors", alarms),
    ):
        if rows:
            yield click.style(heading, bold=True) if colour else heading
            for row in rows:
                yield from LIST.rows("", row)
            yield ""
    name = "stdin" if tuple(names) == (_STDIN,) else ", ".join(names)
    span = f", {log.first} to {log.last}" if log.first else ""
    rest = "" if log.complete else "; not read to its end"
    yield from SCREEN.rows("log", f"{name}: {count(log.lines, 'line')}{span}{rest}")
    serious = (f"{_times(seen.count)} {seen.line.template}" for seen in kinds if seen.line.alarm == SERIOUS)
    yield from SCREEN.several("serious", list(serious) or ["no line"])
    yield from _starts(log.starts.found)


def _starts(starts: Sequence[Start]) -> Iterator[str]:
    """Yield what each start did, those that did the same one after the other in one group."""
    groups = [list(group) for _, group in groupby(starts, key=lambda start: (headline(start), *details(start)))]
    if len(groups) > _MOST_STARTS:
        yield from SCREEN.rows("starts", f"{count(len(starts), 'start')}; only the last are shown")
    for group in groups[-_MOST_STARTS:]:
        first, last = group[0], group[-1]
        numbers = f"starts {first.number}-{last.number}" if len(group) > 1 else f"start {first.number}"
        when = " to ".join(filter(None, dict.fromkeys((first.time, last.time))))
        yield from SCREEN.rows(numbers, ": ".join(filter(None, (when, headline(last)))))
        for label, text in details(last):
            yield from SCREEN.rows(f"  {label}", text)
        for command in commands(last):
            yield SCREEN.line("  next", command)


def _lines(seen: Seen) -> Iterator[str]:
    when = f", {seen.first} to {seen.last}" if seen.first != seen.last else f", {seen.first}" if seen.first else ""
    yield from SCREEN.rows("seen", f"{_times(seen.count)}{when}")
    yield from SCREEN.rows("first" if seen.count > 1 else "line", seen.first_row)
    yield from SCREEN.rows("last", seen.last_row if seen.count > 1 else "")
    exceptions = seen.exceptions.most_common()
    yield from SCREEN.several("with", (f"{_times(number)} {text}" for text, number in exceptions))
    # The rest is in `explain` of one line: versions, names that can be explained, too.
    yield from explanation_lines(replace(explain_line(seen.line, seen.first_row), eras=(), see=()))


def _times(number: int) -> str:
    return f"\N{MULTIPLICATION SIGN}{group_digits(number)}"


# --- JSON -----------------------------------------------------------------------------------------


def _document(log: Log, names: Sequence[str]) -> dict[str, Any]:
    """Return the rows of `explain`, one for each kind of line, with their numbers; and the starts."""
    return {
        "log": {
            "files": list(names),
            "lines": log.lines,
            "known": log.known,
            "stack_traces": log.traces,
            "unknown": log.unknown,
            "first": log.first or None,
            "last": log.last or None,
        },
        "starts": [_start_row(start) for start in log.starts.found],
        "rows": [_kind_row(seen) for seen in log.by_alarm()],
        "unknown": [{"line": text, "count": number} for text, number in log.unknown_alarms.most_common()],
    }


def _start_row(start: Start) -> dict[str, Any]:
    return {
        "number": start.number,
        "time": start.time or None,
        "did": headline(start),
        "last_exit": start.last_exit or None,
        "loaded": start.loaded,
        "bytes_cut": start.cut,
        "end_before": max(filter(None, (start.reached, start.units_reached)), default=None),
        "end": start.end,
        "cause": start.cause or None,
        "scanned_from": start.scanned_from or None,
        "scan_ended_in": start.scan_ended_in or None,
        "files_loaded": dict(start.files_loaded),
        "deleted": dict(start.deleted),
        "files": start.files,
        "refused_by": start.refused_by,
        "failures": start.failures,
        "ended": start.ended or None,
    }


def _kind_row(seen: Seen) -> dict[str, Any]:
    return explanation_row(explain_line(seen.line, seen.first_row)) | {
        "count": seen.count,
        "first": seen.first or None,
        "last": seen.last or None,
        "first_line": seen.first_row,
        "last_line": seen.last_row,
        "exceptions": [{"exception": text, "count": number} for text, number in seen.exceptions.most_common()],
    }


# The list of everything: codes beside their rules, other names in running lines.
_CODES = Screen(indent=max(len(code.code) for code in CODES) + 2, lead=2)
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


def run(arguments: ExplainArguments) -> ExitStatus:
    """Do what `explain` is asked for, and return the exit status."""
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
        parts: dict[str, Any] = {"rows": [explanation_row(explanation) for explanation in found]}
        print_document(**parts if found else parts | {"near": near(text)})
    if not found:
        raise NothingFound(_unknown(text))
    if format_ == "table":
        colour = use_colour(arguments.color, arguments.output)
        if not words:
            for line in _contents(found, colour):
                click.echo(line, color=colour)
            return ExitStatus.DONE
        for number, explanation in enumerate(found):
            if number:
                click.echo()
            for line in (*name_lines(explanation.name, colour), *explanation_lines(explanation)):
                click.echo(line, color=colour)
    return ExitStatus.DONE


def _unknown(text: str) -> str:
    names = near(text)
    hint = f"; near: {', '.join(names)}" if names else "; rmqinspect explain lists everything"
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", text):
        hint = "; name the field too: rmqinspect explain sysFlag 0x1c"
    return f"no explanation of '{text[:_ASKED]}{'…' if len(text) > _ASKED else ''}'{hint}"


# --- the screen ---------------------------------------------------------------------------------


def _contents(found: list[Explanation], colour: bool) -> Iterator[str]:
    """Yield all names: codes with their rule, log lines one by one, all others in running lines."""
    for number, (kind, heading) in enumerate(_HEADINGS.items()):
        if number:
            yield ""
        yield click.style(heading, bold=True) if colour else heading
        group = [explanation for explanation in found if explanation.kind == kind]
        for label, text in _rows(kind, group):
            yield from (_CODES if label else LIST).rows(label, text)


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

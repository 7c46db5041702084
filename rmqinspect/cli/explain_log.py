"""`rmqinspect explain LOG`: what happened to the broker, by its own logs."""

import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BufferedReader
from itertools import groupby
from typing import Any, cast

import click

from rmqinspect.cli.explain_screen import SCREEN, explanation_lines, explanation_row, name_lines
from rmqinspect.cli.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.cli.labelled import Screen
from rmqinspect.cli.options import use_colour
from rmqinspect.cli.status import ExitStatus
from rmqinspect.explain.log import Log, Seen, read_log
from rmqinspect.explain.log_lines import HARMLESS, SERIOUS
from rmqinspect.explain.lookup import explain, is_name
from rmqinspect.explain.recognition import explain_line
from rmqinspect.explain.starts import Start, commands, details, headline
from rmqinspect.text import count, escape, escape_json, group_digits
from rmqinspect.version import tool_name

_STDIN = "-"
_MOST_UNKNOWN = 5  # kinds of unknown warnings that the screen shows
_MOST_STARTS = 30  # groups of like starts that the screen shows
_LIST = Screen(indent=0, lead=2)


def are_logs(words: Sequence[str]) -> bool:
    """Return whether the words are logs: `-`, or existing files. `abort` is a name, `./abort` is a file.

    A binary file under the name of a file of a store is a name, whatever its path.
    """
    if tuple(words) == (_STDIN,):
        return True
    named = is_name(" ".join(words)) and not any(os.sep in word for word in words)
    return bool(words) and not named and all(map(os.path.isfile, words)) and not any(map(_is_of_a_store, words))


def _is_of_a_store(path: str) -> bool:
    """Return whether a file is named as one of a store and holds zero bytes, which no log does."""
    try:
        with open(path, "rb") as file:
            return b"\0" in file.read(4096) and bool(explain(path))
    except OSError:
        return False


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
            click.echo(escape_json(json.dumps(_document(log, names), ensure_ascii=False)))
        else:
            colour = use_colour(color)
            for line in _screen(log, names, colour):
                click.echo(line, color=colour)
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


def _screen(log: Log, names: Sequence[str], colour: bool) -> Iterator[str]:
    kinds = log.by_alarm()
    yield from _starts(log.starts.found)
    serious = (f"{_times(seen.count)} {seen.line.template}" for seen in kinds if seen.line.alarm == SERIOUS)
    yield from SCREEN.several("serious", list(serious) or ["no line"])
    yield from SCREEN.rows("log", _extent(log, names))
    for seen in kinds:
        if seen.line.alarm != HARMLESS:
            yield ""
            yield from name_lines(seen.line.template, colour)
            yield from _lines(seen)
    harmless = [f"{_times(seen.count)} {seen.line.template}" for seen in kinds if seen.line.alarm == HARMLESS]
    alarms = [f"{_times(number)} {text}" for text, number in log.unknown_alarms.most_common(_MOST_UNKNOWN)]
    if len(kinds) > len(harmless):
        yield ""
        yield from SCREEN.rows("more", "rmqinspect explain 'PART OF A LINE': what differs by version, related findings")
    for heading, rows in (
        ("harmless", harmless),
        (f"{count(log.unknown, 'line')} not known", [] if alarms or not log.unknown else ["no warning or error"]),
        (f"{count(log.unknown, 'line')} not known; the most frequent of their warnings and errors", alarms),
    ):
        if rows:
            yield ""
            yield click.style(heading, bold=True) if colour else heading
        for row in rows:
            yield from _LIST.rows("", row)


def _starts(starts: Sequence[Start]) -> Iterator[str]:
    """Yield what each start did, those that did the same one after the other in one group."""
    groups = [list(group) for _, group in groupby(starts, key=_alike)]
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
    if starts:
        yield ""


def _alike(start: Start) -> tuple[object, ...]:
    return headline(start), *details(start)


def _extent(log: Log, names: Sequence[str]) -> str:
    name = "stdin" if tuple(names) == (_STDIN,) else ", ".join(names)
    parts = [f"{name}: {count(log.lines, 'line')}", f"{log.first} to {log.last}" if log.first else ""]
    return ", ".join(filter(None, parts)) + ("" if log.complete else "; not read to its end")


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
        "schema_version": 1,
        "tool": tool_name(),
        "complete": log.complete,
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

"""Reads whole logs of a broker, of any length, and keeps what is needed to explain them.

Memory does not grow with the log: lines are counted by kind, with the first and the last of each.
"""

import gzip
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from io import BufferedReader
from typing import IO

from rmqinspect.explain.log_lines import DEPENDS, HARMLESS, LOG_LINES, SERIOUS, LogLine, recognise
from rmqinspect.explain.starts import Starts

_LONGEST = 16 << 10  # bytes of a line that are read; a line of RocketMQ with a message in it can have megabytes
_KEPT = 500  # characters of a row that is kept
_MOST_SHAPES = 2000  # different unknown warnings that are counted one by one
_MOST_EXCEPTIONS = 5  # different exceptions of one kind of line
_GZIP = b"\x1f\x8b"  # logback compresses the logs that it rolls

# Logback of RocketMQ: `2023-01-01 12:00:00 INFO main - text`, since 5.0.0 with milliseconds. A container or a
# collector may add something before it.
_TIME = re.compile(r".{0,80}?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)")
_LEVEL = re.compile(r"\b(ERROR|WARN)\b")
# Throwable#printStackTrace.
_FRAME = re.compile(r"\s+at [\w.$/<>]+\(|\s*\.\.\. \d+ (?:more|common frames)")
_EXCEPTION = re.compile(
    r"\s*(?:Caused by: |Suppressed: |Exception in thread \S+ )?((?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b.*)"
)


@dataclass(slots=True)
class Seen:
    """The lines of one kind."""

    line: LogLine
    count: int = 0
    first: str = ""  # times, as in the log; "" without
    last: str = ""
    first_row: str = ""
    last_row: str = ""
    exceptions: Counter[str] = field(default_factory=Counter)  # class and message


@dataclass(slots=True)
class Log:
    """What was read of one or several logs."""

    lines: int = 0
    first: str = ""
    last: str = ""
    known: int = 0  # lines of a known kind
    traces: int = 0  # lines of stack traces, and others that belong to the line before
    unknown: int = 0
    unknown_alarms: Counter[str] = field(default_factory=Counter)  # unknown warnings and errors, digits as #
    kinds: dict[LogLine, Seen] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)
    complete: bool = True
    _entry: tuple[Seen, ...] = ()  # the kinds of the line to which a stack trace belongs

    def add(self, row: str) -> None:
        """Take one line."""
        self.lines += 1
        found = None if _FRAME.match(row) else recognise(row)
        match = _TIME.match(row)
        time = match[1].replace("T", " ") if match else ""
        if time:
            self.first, self.last = min(self.first or time, time), max(self.last, time)
        exception = None if time else _EXCEPTION.match(row)
        if exception:
            self._name_exception(exception[1])
        if found:
            self.known += 1
            seen = tuple(self._see(line, row, time or self._time_before()) for line in found)
            text = row[match.end() :].lstrip(",.0123456789 ") if match else row
            for line in found:
                self.starts.add(line, text[:_KEPT], time or self._time_before())
            if not exception:
                self._entry = seen
        elif not row or row.isspace():
            return
        elif found is None or exception or (not time and self.first):
            self.traces += 1
        else:
            self._entry = ()
            self._miss(row)

    def _time_before(self) -> str:
        return self._entry[0].last if self._entry else ""

    def _see(self, line: LogLine, row: str, time: str) -> Seen:
        seen = self.kinds.get(line)
        if seen is None:
            seen = self.kinds[line] = Seen(line, first=time, first_row=row[:_KEPT])
        seen.count += 1
        seen.last_row = row[:_KEPT]
        if time:  # several logs may be out of order
            seen.first, seen.last = min(seen.first or time, time), max(seen.last, time)
        return seen

    def _name_exception(self, text: str) -> None:
        for seen in self._entry:
            name = text[:_KEPT].strip()
            if name in seen.exceptions or len(seen.exceptions) < _MOST_EXCEPTIONS:
                seen.exceptions[name] += 1

    def _miss(self, row: str) -> None:
        self.unknown += 1
        match = _LEVEL.search(row[:_KEPT])
        if match:
            shape = re.sub(r"\d+", "#", row[match.start() : _KEPT])
            if shape in self.unknown_alarms or len(self.unknown_alarms) < _MOST_SHAPES:
                self.unknown_alarms[shape] += 1

    def by_alarm(self) -> list[Seen]:
        """Return the kinds of lines, the serious first, those of one alarm as in log_lines.toml.

        A kind that is harmless or not is serious where it tells what a start of this log cut, deleted or refused.
        """
        harmful = set().union(*(start.harmful for start in self.starts.found))
        found = [self.kinds[line] for line in LOG_LINES if line in self.kinds]
        told = [
            replace(seen, line=replace(seen.line, alarm=SERIOUS)) if seen.line in harmful else seen for seen in found
        ]
        return sorted(told, key=lambda seen: (SERIOUS, DEPENDS, HARMLESS).index(seen.line.alarm))


def read_log(stream: BufferedReader, log: Log) -> None:
    """Add the lines of `stream`, a log or a gzip file of one, to `log`.

    :raises OSError, EOFError, zlib.error: it cannot be read to its end; `log` holds what was read.
    """
    if stream.peek(2)[:2] == _GZIP:
        with gzip.open(stream) as unpacked:
            _read_rows(unpacked, log)
    else:
        _read_rows(stream, log)


def _read_rows(stream: IO[bytes] | gzip.GzipFile, log: Log) -> None:
    """Add every line, of a very long one its beginning. Bytes that are not UTF-8 become U+FFFD."""
    while raw := stream.readline(_LONGEST):
        rest = raw
        while not rest.endswith(b"\n") and (rest := stream.readline(_LONGEST)):
            pass
        log.add(raw.decode(errors="replace").rstrip("\r\n"))

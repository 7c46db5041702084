"""Reads whole logs of a broker, of any length, and keeps what is needed to explain them.

Memory does not grow with the log: lines are counted by kind, with the first and the last of each. The starts that a
log tells of are kept one by one: what each loaded, cut, deleted and refused, and how its life ended. Which line tells
what of a start is in log_lines.toml, column `tells`.
"""

import gzip
import re
from collections import Counter
from collections.abc import Callable, Mapping
from io import BufferedReader
from typing import IO

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.explain.lookup import DEPENDS, HARMLESS, LOG_LINES, SERIOUS, LogLine, read_values, recognise

_MOST_ROWS = 5  # rows of one kind that a start keeps
_MOST_SEGMENTS = 10_000  # deleted ones
_MOST_STARTS = 10_000  # of one log; a broker that a supervisor restarts every second makes 86 400 a day
_END_OF_LOG = 0  # the magic of the unused end of a segment

# CommitLog#checkMessageAndReturnSize logs nothing if a total size or a length is negative or too large.
_SILENT = "no line says why: as a rule a record with an impossible size"

# DefaultMessageStore#load: since 5.1.0, whose first line has these words, a failing index refuses the start.
_INDEX_REFUSES = "store path root dir"


class Start(Struct):
    """One start of a broker and what is logged until the next one."""

    number: int
    time: str = ""  # as in the log; "" if its lines have no time, or the log begins later
    last_exit: str = ""  # normally or abnormally; "" if the log begins later
    scanned_from: str = ""  # segment
    scan_ended_in: str = ""  # segment
    cause: str = ""  # the row that says why the scan ended at something else than the unused end of a segment
    met_end: bool = False  # the scan met the unused end of a segment
    reached: int | None = None  # where the log ended before, at least
    units_reached: int | None = None  # the record of the newest queue unit ended here
    end: int | None = None  # where the log ends after the start
    loaded: bool = False
    emptied: bool = False  # no segment was found, and all queues were deleted
    files_loaded: Counter[str] = field(default_factory=Counter)  # kind of file -> number
    deleted: Counter[str] = field(default_factory=Counter)  # kind of file -> number
    deleted_segments: list[range] = field(default_factory=list)  # physical offsets, of segments
    files: list[str] = field(default_factory=list)  # rows about files that were ignored, refused or deleted
    refused_by: list[str] = field(default_factory=list)  # rows
    refused_elsewhere: bool = False  # the store refused, and only its own log, store.log, says why
    failures: list[str] = field(default_factory=list)  # rows: out of memory and the like
    ended: str = ""
    index_refuses: bool = False
    cause_line: LogLine | None = None  # the kind of `cause`
    told: dict[str, set[LogLine]] = field(default_factory=dict)  # what lines tell -> their kinds, up to the end of load

    @property
    def harmful(self) -> set[LogLine]:
        """The kinds of lines that tell what this start cut, deleted or refused: harmless in a start that did not."""
        kinds = set() if self.cause_line is None or self.end is None else {self.cause_line}
        is_cut = bool(self.cut or self.units_cut or (self.cause and self.end is not None))
        for tells, did in (
            ("refusal", bool(self.refused_by)),
            ("service_stopped", bool(self.refused_by)),
            ("failure", bool(self.failures)),
            ("emptied", self.emptied),
            ("units", self.units_cut > 0),
            ("deleted", is_cut and any(kind != "index file" for kind in self.deleted)),
            ("scan_end", self.cause == _SILENT),
            # Only the numbers of two starts tell that the log became shorter.
            ("end", self.cut > 0 and not self.cause and not self.units_cut),
        ):
            kinds |= self.told.get(tells, set()) if did else set()
        return kinds

    @property
    def cut(self) -> int:
        """How many bytes of the log the start cut, at least; 0 if none, or if the log does not say."""
        if self.end is None or self.refused_by:
            return 0
        before = self.reached or 0
        if self.units_reached and (self.cause or self._lay_in_deleted(self.units_reached)):
            before = max(before, self.units_reached)
        return max(0, before - self.end)

    @property
    def units_cut(self) -> int:
        """How many bytes of log the queue units reached that were cut off, because no record lies there."""
        if self.units_reached is None or self.end is None:
            return 0
        return max(0, self.units_reached - self.end)

    def _lay_in_deleted(self, end: int) -> bool:
        """Return whether a record that ended at `end` lay in a deleted segment: a wrong unit points anywhere."""
        return any(end - 1 in segment for segment in self.deleted_segments)


class Starts:
    """Collects the starts from the known lines of a log, in their order."""

    def __init__(self) -> None:
        self.found: list[Start] = []
        self._unmapped = False  # a file of the index folder could not be mapped
        self._config_time: str | None = None  # when topics.json was loaded, by a start that is not initialized yet
        self._store_is_told = False  # the load of the store that followed is in these lines

    def add(self, line: LogLine, row: str, time: str) -> None:
        """Take the facts from a row that is of the kind `line`."""
        if line.tells:
            values = {value.name: text for value, text in read_values(line, row)}
            was_loaded = bool(self.found) and self.found[-1].loaded
            TELLS[line.tells](self, values, row, time)
            if self.found and not was_loaded:
                start = self.found[-1]
                start.told.setdefault(line.tells, set()).add(line)
                if line.tells == "cause" or not start.cause:
                    start.cause_line = line if start.cause else None

    # --- what a line tells -----------------------------------------------------------------------

    def _tells_begin(self, values: Mapping[str, str], row: str, time: str) -> None:
        last_exit = values.get("exit", "").lower()
        before = self.found[-1] if self.found else None
        if before is not None and not before.ended and last_exit == "abnormally":
            before.ended = "not in order: killed, crashed, or power was lost"
        if len(self.found) == _MOST_STARTS:
            self.found.pop(1)  # the first and the newest are kept
        number = 1 if before is None else before.number + 1
        start = Start(number, time, last_exit, index_refuses=_INDEX_REFUSES in row)
        if before is not None:
            # A refused start logs an end, too, that of the files it had looked at.
            start.reached = before.end if before.loaded and not before.refused_by else before.reached
        self.found.append(start)
        self._unmapped = False
        self._store_is_told = True

    # BrokerController#initialize loads the files of config, topics.json first in every release, and then the store. A
    # load that returns false stops AllocateMappedFileService, which runs from the making of the store on, before
    # anything else: DefaultMessageStore#load. An orderly shutdown stops it, too, but only after the start was done.

    def _tells_config_loaded(self, values: Mapping[str, str], _row: str, time: str) -> None:
        if re.search(r"[/\\]topics\.json$", values.get("file", "")):
            self._config_time, self._store_is_told = time, False

    def _tells_initialized(self, _values: Mapping[str, str], _row: str, _time: str) -> None:
        self._config_time = None

    def _tells_service_stopped(self, values: Mapping[str, str], row: str, _time: str) -> None:
        if self._config_time is None or not values.get("service", "").endswith("AllocateMappedFileService"):
            return
        if not self._store_is_told:
            self.found.append(Start(self.found[-1].number + 1 if self.found else 1, self._config_time))
            self.found[-1].refused_elsewhere = True
        if not self.found[-1].refused_by:
            _keep(self.found[-1].refused_by, row)
        self._config_time = None

    def _current(self) -> Start:
        """Return the newest start; a log that begins in the middle of one has a start without a beginning."""
        if not self.found:
            self.found.append(Start(1))
        return self.found[-1]

    def _tells_scan_from(self, values: Mapping[str, str], _row: str, _time: str) -> None:
        start = self._current()
        # What was logged before this is about the search for the segment, not about the scan.
        start.scanned_from, start.cause, start.met_end = values.get("file", ""), "", False

    def _tells_scan_next(self, _values: Mapping[str, str], _row: str, _time: str) -> None:
        start = self._current()
        start.cause, start.met_end = "", False

    def _tells_scan_end(self, values: Mapping[str, str], _row: str, _time: str) -> None:
        start = self._current()
        start.scan_ended_in = values.get("file", "")
        if not (start.cause or start.met_end):
            start.cause = _SILENT

    def _tells_cause(self, values: Mapping[str, str], row: str, _time: str) -> None:
        start = self._current()
        if start.loaded or start.scan_ended_in:
            return
        magic = values.get("magic")
        start.met_end = magic is not None and int(magic, 16) == _END_OF_LOG
        start.cause = "" if start.met_end else row

    def _tells_units(self, values: Mapping[str, str], _row: str, _time: str) -> None:
        start = self._current()
        if (units := _number(values, "maxPhyOffsetOfConsumeQueue")) is not None:
            start.units_reached = units
        start.end = _number(values, "processOffset")

    def _tells_emptied(self, _values: Mapping[str, str], _row: str, _time: str) -> None:
        self._current().emptied = True

    def _tells_deleted(self, values: Mapping[str, str], _row: str, _time: str) -> None:
        if not self.found or self.found[-1].loaded:  # after the loading it is retention
            return
        start, path = self.found[-1], values.get("file", "")
        kind = _kind_of_file(path)
        start.deleted[kind] += 1
        base, size = re.search(r"\d{20}$", path), _number(values, "W")
        if kind == "segment" and base and size and len(start.deleted_segments) < _MOST_SEGMENTS:
            start.deleted_segments.append(range(int(base[0]), int(base[0]) + size))

    def _tells_end(self, values: Mapping[str, str], row: str, _time: str) -> None:
        start = self._current()
        start.end = _number(values, "max phy offset")
        if "load over" in row.lower():
            start.loaded = True

    def _tells_file(self, _values: Mapping[str, str], row: str, _time: str) -> None:
        _keep(self._current().files, row)

    def _tells_file_loaded(self, values: Mapping[str, str], _row: str, _time: str) -> None:
        if self.found and not self.found[-1].loaded:
            self.found[-1].files_loaded[_kind_of_file(values.get("file", ""))] += 1

    def _tells_refusal(self, values: Mapping[str, str], row: str, _time: str) -> None:
        start = self._current()
        if values.get("result", "").upper() == "OK":
            return
        if _kind_of_file(values.get("file", "")) == "index file":
            # IndexService#load skips a file whose name is not a number, and returns false if mapping fails.
            refuses, self._unmapped = self._unmapped and start.index_refuses, True
            if not refuses:
                return
        _keep(start.refused_by, row)

    def _tells_failure(self, _values: Mapping[str, str], row: str, _time: str) -> None:
        _keep(self._current().failures, row)

    def _tells_stopped(self, _values: Mapping[str, str], _row: str, time: str) -> None:
        if self.found:
            self.found[-1].ended = _at("an orderly shutdown", time)

    def _tells_kept(self, _values: Mapping[str, str], _row: str, time: str) -> None:
        if self.found:
            self.found[-1].ended = _at("an orderly shutdown that kept the abort file", time)

    def _tells_undispatched(self, values: Mapping[str, str], _row: str, _time: str) -> None:
        if self.found and (end := _number(values, "max offset")) is not None:
            self.found[-1].end = end


TELLS: Mapping[str, Callable[[Starts, Mapping[str, str], str, str], None]] = {
    name.removeprefix("_tells_"): method for name, method in vars(Starts).items() if name.startswith("_tells_")
}
"""What a line can tell of a start, by the names that log_lines.toml uses."""


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "")
    return int(text) if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) else None


def _keep(rows: list[str], row: str) -> None:
    row = " ".join(row.split())
    if len(rows) < _MOST_ROWS and row not in rows:
        rows.append(row)


def _kind_of_file(path: str) -> str:
    folders = re.split(r"[/\\]", path)
    for folder, kind in (("consumequeue", "queue file"), ("commitlog", "segment"), ("index", "index file")):
        if folder in folders:
            return kind
    return "other file"


def _at(words: str, time: str) -> str:
    return f"{words}, {time}" if time else words


def is_log_row(raw: bytes) -> bool:
    """Return whether a line is one of a log: it begins with a time, or its kind is known."""
    row = raw.decode(errors="replace")
    return bool(_TIME.match(row) or recognise(row))


_LONGEST = 16 << 10  # bytes of a line that are read; a line of RocketMQ with a message in it can have megabytes
_KEPT = 500  # characters of a row that is kept
_MOST_SHAPES = 2000  # different unknown warnings that are counted one by one
_MOST_EXCEPTIONS = 5  # different exceptions of one kind of line
GZIP = b"\x1f\x8b"  # logback compresses the logs that it rolls

# Logback of RocketMQ: `2023-01-01 12:00:00 INFO main - text`, since 5.0.0 with milliseconds. A container or a
# collector may add something before it.
_TIME = re.compile(r".{0,80}?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)")
_LEVEL = re.compile(r"\b(ERROR|WARN)\b")
# Throwable#printStackTrace.
_FRAME = re.compile(r"\s+at [\w.$/<>]+\(|\s*\.\.\. \d+ (?:more|common frames)")
# The frame that tells one NullPointerException from all others: Java 8 to 13 print no more of it.
_TELLING_FRAME = "ScheduleMessageService.configFilePath("
_EXCEPTION = re.compile(
    r"\s*(?:Caused by: |Suppressed: |Exception in thread \S+ )?((?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b.*)"
)


class Seen(Struct):
    """The lines of one kind."""

    line: LogLine
    count: int = 0
    first: str = ""  # times, as in the log; "" without
    last: str = ""
    first_row: str = ""
    last_row: str = ""
    exceptions: Counter[str] = field(default_factory=Counter)  # class and message


class Log(Struct):
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
        found = recognise(row) if not _FRAME.match(row) or _TELLING_FRAME in row else None
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
    if stream.peek(2)[:2] == GZIP:
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

"""The screen of `usage`: sums with bars, the inflow as a sparkline, and what a retention would free.

topic         orders         1.2 GB  61.0 %  ████████████▏         1 020 304
              payments       0.6 GB  30.1 %  ██████▏                 503 120
              13 others      0.2 GB   8.9 %                          102 000
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from rmqinspect.broker.retention import reserved_hours
from rmqinspect.cli.documents import print_line
from rmqinspect.cli.labelled import Screen, line_width, pad
from rmqinspect.cli.usage_options import UsageArguments
from rmqinspect.commands import USAGE_BY, fill_command
from rmqinspect.errors import Unreadable
from rmqinspect.system.uri import shown
from rmqinspect.text import cell_width, count, cut_cells, describe_size, escape, group_digits
from rmqinspect.times import format_millis

if TYPE_CHECKING:
    from rmqinspect.find.retention import Retention, Waiting
    from rmqinspect.store.model import Store
    from rmqinspect.tables.table import Request
    from rmqinspect.tables.usage_fold import Usage

_SCREEN = Screen(indent=14, phrases=True)
_LISTED = 5  # kinds, topics, tags and hosts, unless -n says otherwise
_SHOWN = ("content", "kind", "topic", "tag", "host", "hour")  # what fits a screen, unless --by says otherwise
_GROUPS = 5  # groups that would lose messages
_BAR = 20  # cells; less on a narrow terminal
_PARTS = " ▏▎▍▌▋▊▉"  # eighths of a cell
_LEVELS = "▁▂▃▄▅▆▇█"
_NARROWEST, _WIDEST = 12, 40  # cells of a value
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))  # ms


def print_usage(store: "Store", usage: "Usage", request: "Request", *, arguments: UsageArguments, colour: bool) -> None:
    """Print the screen of one store.

    Values are escaped here, and redacted as the rows are; groups and topics of the retention are names.
    """
    for line in _lines(store, usage, request, arguments):
        print_line(line, colour=colour)


def _lines(store: "Store", usage: "Usage", request: "Request", arguments: UsageArguments) -> Iterator[str]:
    listed = _LISTED if arguments.limit is None else arguments.limit
    yield from _SCREEN.rows("store", f"{store.name}: {_extent(store)}")
    if usage.sample is not None:
        read = f"{count(len(usage.sample.splits), 'window')}, {describe_size(usage.sample.size)}"
        part = f"{100 * usage.sample.size / usage.sample.whole:.1f} %"
        yield from _SCREEN.rows(
            "sample", f"{read}, {part} of the log: all sums are estimates; ± is half of the 95 % interval"
        )
    for batch in arguments.shown_rows(usage, listed, _SHOWN):
        rows = batch.to_pylist()
        if rows[0]["dimension"] == "hour":
            yield from _inflow(usage, arguments.zone)
        elif rows[0]["dimension"] == "segment":
            yield from _SCREEN.rows("segments", _segments(rows))
        else:
            yield from _bars(rows, usage)
    yield from _retention(store, usage, request, arguments)
    if arguments.by is None and len(arguments.paths) == 1 and store.segments:
        yield from _SCREEN.command("next", fill_command(USAGE_BY, stores=[shown(path) for path in arguments.paths]))


def _extent(store: "Store") -> str:
    size = sum(segment.size for segment in store.segments)
    return f"{count(len(store.segments), 'segment')} of the commit log, {count(size, 'byte')}"


# --- bars -----------------------------------------------------------------------------------------


def _bars(rows: "list[dict[str, Any]]", usage: "Usage") -> Iterator[str]:
    """Yield a line for each value with records or bytes; the longest bar is that of the largest one."""
    dimension = rows[0]["dimension"]
    others = len(usage.dimensions[dimension].keys) - sum(row["covers"] != "others" for row in rows)
    rows = [row for row in rows if row["bytes"]]
    sizes = [f"{_size(row)}  {100 * row['share']:5.1f} %" for row in rows]
    told = [count(row["messages"], "message") if row["records"] else "" for row in rows]
    size_width, told_width = (max(map(len, texts), default=0) for texts in (sizes, told))
    room = line_width() - _SCREEN.indent - size_width - told_width - 3 * len("  ")
    cells = max(0, min(_BAR, room - _NARROWEST))
    room -= cells
    names = [_name(row, others, max(_NARROWEST, min(_WIDEST, room))) for row in rows]
    width = max(map(cell_width, names), default=0)
    highest = max((row["share"] for row in rows if row["covers"] != "others"), default=0)
    for number, (row, name, size, messages) in enumerate(zip(rows, names, sizes, told, strict=True)):
        bar = _bar(row["share"] / highest if highest and row["covers"] != "others" else 0, cells)
        label = "" if number else dimension
        yield f"{label:{_SCREEN.indent}}{pad(name, width)}  {size:>{size_width}}  {bar}  {messages}".rstrip()


def _name(row: "dict[str, Any]", others: int, most: int) -> str:
    """Return the name of a row in at most `most` cells."""
    if row["covers"] == "others":
        return "others" if others < 1 else count(others, "other")
    value = "(none)" if row["covers"] == "none" else "(hidden)" if row["value"] is None else row["value"]
    if row["dimension"] == "size":
        value = f"up to {group_digits(int(value))} bytes"
    queue = "" if row["queue_id"] is None else f" {row['queue_id']}"
    return _cut(value, most - len(queue)) + queue


def _cut(text: str, most: int) -> str:
    text = escape(text)
    return text if cell_width(text) <= most else f"{cut_cells(text, most - 1)}…"


def _size(row: "dict[str, Any]") -> str:
    error = "" if row["bytes_error"] is None else f" ± {describe_size(row['bytes_error'])}"
    return f"{describe_size(row['bytes'])}{error}"


def _bar(part: float, cells: int) -> str:
    """Return a bar of eighths of cells, filled with blanks."""
    whole, eighths = divmod(round(max(0.0, min(part, 1.0)) * cells * 8), 8)
    return f"{'█' * whole}{_PARTS[eighths] if eighths else ''}".ljust(cells)


def _segments(rows: "list[dict[str, Any]]") -> str:
    numbers = sorted(row["records"] for row in rows)
    span = " to ".join(dict.fromkeys(map(group_digits, (numbers[0], numbers[-1]))))
    return f"records in {count(len(rows), 'file')}, {span} in each; --by segment -f csv lists them"


# --- inflow ---------------------------------------------------------------------------------------


def _inflow(usage: "Usage", zone: tzinfo) -> Iterator[str]:
    """Yield a sparkline of the bytes by store time: the lowest sign stands for anything, a blank for nothing."""
    from rmqinspect.tables.inflow import inflow_of

    found = inflow_of(usage, line_width() - _SCREEN.indent)
    if found is None:
        yield from _SCREEN.rows("inflow", "store times are too far apart for a line; --by hour -f csv has them")
        return
    highest = max(*found.sizes, 1)
    line = "".join(_LEVELS[min(7, 8 * size // highest)] if size else " " for size in found.sizes)
    scale = usage.sample.scale if usage.sample is not None else 1
    ends = f"{_moment(found.begin, zone)} to {_moment(found.end, zone)}"
    yield f"{'inflow':{_SCREEN.indent}}{line}".rstrip()
    yield from _SCREEN.rows(
        "", f"{ends}; a column is {_span(found.step)}, the highest {describe_size(highest * scale)}"
    )


def _span(millis: int) -> str:
    for name, size in _UNITS:
        if millis % size == 0:
            return count(millis // size, name)
    return f"{millis} ms"


def _moment(millis: int, zone: tzinfo) -> str:
    """Return a time without its milliseconds."""
    text = format_millis(millis, zone)
    return f"{millis} ms" if text is None else re.sub(r"\.\d+", "", text)


# --- retention ------------------------------------------------------------------------------------


def _retention(store: "Store", usage: "Usage", request: "Request", arguments: UsageArguments) -> Iterator[str]:
    from rmqinspect.find.retention import last_times, read_waiting, retained

    if not store.segments:
        return
    times = last_times(store, usage, request)
    now = max((time for time in times if time is not None), default=None)
    waiting = read_waiting(store, request)
    if now is not None:
        text = f"counted back from the last record, {_moment(now, arguments.zone)}"
        yield from _SCREEN.rows("retention", f"{text}; a file is as old as its last record, and the newest file stays")
    for hours in arguments.retention or (reserved_hours(store.settings),):
        try:
            yield from _freed(retained(store, times, waiting, hours, now), len(store.segments), arguments.zone)
        except Unreadable as error:
            if request.on_unreadable is not None:
                request.on_unreadable(str(error))
    yield from _SCREEN.rows("unconsumed", _oldest(store, waiting))


def _freed(found: "Retention", segments: int, zone: tzinfo) -> Iterator[str]:
    head = f"{found.hours:g} h"
    if not found.segments:
        yield from _SCREEN.rows("", f"{head}: frees nothing")
        return
    upto = "" if found.last is None else f", up to {_moment(found.last, zone)}"
    size = describe_size(found.size)
    yield from _SCREEN.rows("", f"{head}: frees {size}, {len(found.segments)} of {count(segments, 'segment')}{upto}")
    if found.losses is not None:
        yield from _SCREEN.rows("", f"{' ' * len(head)}  lost to {_losses(found.losses)}")


def _losses(losses: "Mapping[str, int]") -> str:
    found = list(losses.items())
    told = [f"{_cut(group, _WIDEST)} {count(messages, 'message')}" for group, messages in found[:_GROUPS]]
    if len(found) > _GROUPS:
        told.append(count(len(found) - _GROUPS, "more group"))
    return ", ".join(told) or "no consumer group"


def _oldest(store: "Store", waiting: "Sequence[Waiting] | None") -> str:
    if waiting is None:
        return "not known: no consumer offsets of queues that are here"
    if not waiting:
        return "no consumer group waits for a message of the log"
    one = waiting[0]
    entry = one.position.entry
    queue = f"{_cut(entry.topic, _WIDEST)} queue {entry.queue_id}"
    place = f"{_cut(entry.group, _WIDEST)}: {queue} offset {group_digits(one.queue_offset)}"
    segment = store.segment_at(one.physical_offset)
    where = "in no segment" if segment is None else f"in {segment.name}"
    before = 0 if segment is None else store.segments.index(segment)
    free = f"; {count(before, 'older segment')} may go" if before else ""
    return f"the oldest message that a group waits for lies {where} ({place}){free}"

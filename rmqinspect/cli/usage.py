"""`rmqinspect usage`: what takes the bytes of the log, and what a retention would free.

The screen has sums with bars, the inflow as a sparkline, and what a retention would free.

    topic         orders         1.2 GB  61.0 %  ████████████▏         1 020 304
                  payments       0.6 GB  30.1 %  ██████▏                 503 120
                  13 others      0.2 GB   8.9 %                          102 000
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from rmqinspect.cli.options import (
    choose_format,
    open_named,
    use_colour,
)
from rmqinspect.cli.selection import with_times
from rmqinspect.cli.session import Session, print_screen, printed_to, tell_unmatched
from rmqinspect.cli.terminal import Screen, columns, line_width
from rmqinspect.cli.verbs.usage import UsageArguments
from rmqinspect.commands import USAGE_BY, fill_command
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.text import clip, count, describe_size, escape, group_digits
from rmqinspect.times import format_seconds

if TYPE_CHECKING:
    from rmqinspect.find.summaries import Retention, Waiting
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.request import Request
    from rmqinspect.tables.usage import Usage

_SCREEN = Screen(indent=14, phrases=True)
_LISTED = 5  # kinds, topics, tags and hosts, unless -n says otherwise
_SHOWN = ("content", "kind", "topic", "tag", "host", "hour")  # what fits a screen, unless --by says otherwise
_GROUPS = 5  # groups that would lose messages
_BAR = 20  # cells; less on a narrow terminal
_PARTS = " ▏▎▍▌▋▊▉"  # eighths of a cell
_LEVELS = "▁▂▃▄▅▆▇█"
_NARROWEST, _WIDEST = 12, 40  # cells of a value
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))  # ms


def run(arguments: UsageArguments) -> int:
    """Do what `usage` is asked for, and return the exit status."""
    format_ = choose_format(arguments)
    if format_ == "openmetrics" and (arguments.limit is not None or "topic" not in (arguments.by or ("topic",))):
        raise click.UsageError("openmetrics has the bytes of all topics: without -n, and with topic in --by.")
    from rmqinspect.tables.filters import Selection

    stores = open_named(arguments)
    selection = Selection(topics=arguments.topics, queue_id=arguments.queue_id, system_topics=arguments.system_topics)
    with_times(selection, arguments, lambda: 0)  # checks the times; each store resolves `last` by itself
    sizes = (sum(segment.size for segment in store.segments) for store in stores)
    size = sum(sizes if arguments.sample is None else (min(whole, arguments.sample) for whole in sizes))
    with Session(arguments, stores, size) as session:
        cheaper = "" if arguments.sample is not None else ". Cheaper: --sample estimates from a part of it"
        session.announce(f": exact sums need all of it{cheaper}")
        with _sink(format_, session, arguments) as show:
            records = _read(session, arguments, selection, show)
        session.tell_gaps("log", " (--table gaps)")
        unmatched = tell_unmatched(selection, session.progress)
    return session.status(damaged=any(session.gaps.values()) and (records or not unmatched), missed=unmatched)


Show = Callable[["Store", "Usage", "Request"], None]


@contextmanager
def _sink(format_: str, session: Session, arguments: UsageArguments) -> Iterator[Show]:
    """Yield what shows the sums of a store: as a screen, or as rows."""
    if format_ == "table":
        with printed_to(arguments.output, session.evidence):
            colour = use_colour(arguments.color, arguments.output)
            yield lambda *found: print_screen(_lines(*found, arguments=arguments), colour=colour)
        return

    import pyarrow as pa

    from rmqinspect.output import View, open_writer
    from rmqinspect.tables.table import with_store
    from rmqinspect.tables.usage import SCHEMA

    names = tuple(store.name for store in session.given)
    view = View(zone=arguments.zone, redacted=arguments.redact.words if arguments.redact else (), stores=names)
    several = len(session.given) > 1 or format_ == "openmetrics"
    schema = with_store(SCHEMA) if several else SCHEMA
    with open_writer(format_, schema, arguments.output, view=view, evidence=session.evidence) as writer:

        def write(store: "Store", usage: "Usage", _: "Request") -> None:
            for batch in arguments.shown_rows(usage, arguments.limit):
                names = pa.repeat(store.name, batch.num_rows)
                writer.write(batch.add_column(0, schema.field(0), names) if several else batch)

        yield write
        writer.complete = session.complete


def _read(session: Session, arguments: UsageArguments, selection: "Selection", show: Show) -> int:
    """Read and show the stores; return the number of records in all."""
    from rmqinspect.tables.sources import last_store_time
    from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES
    from rmqinspect.tables.usage import DIMENSIONS, choice_of, plan_sample, read_usage

    remark, records = session.progress.remark, 0
    needed = ("config/consumerOffsets", "config/topics", *CONFIG_DATABASES, *QUEUE_DATABASES)
    for store in session.stores(needed, "usage"):
        if not store.segments:
            remark(f"{store.name}: no commit log segments: nothing to count")
        timed = selection
        with session.unreadable_told():
            timed = with_times(selection, arguments, cache(partial(last_store_time, store)), datetime.now(UTC))
        sample = None if arguments.sample is None else plan_sample(store.log_files, arguments.sample)
        if arguments.sample is not None and sample is None and store.segments:
            remark(f"{store.name}: the log is so small that all of it is read: exact")
        request = session.request(store)
        usage = read_usage(store, request, choice_of(timed), arguments.by or DIMENSIONS, sample)
        records += usage.records
        session.progress.clear()  # stdout and stderr may be the same terminal
        show(store, usage, replace(request, progress=None))
    return records


# --- the screen -------------------------------------------------------------------------------------------


def _lines(store: "Store", usage: "Usage", request: "Request", *, arguments: UsageArguments) -> Iterator[str]:
    """Yield the screen of one store.

    Values are escaped here, and redacted as the rows are; groups and topics of the retention are names.
    """
    listed = _LISTED if arguments.limit is None else arguments.limit
    size = count(sum(segment.size for segment in store.segments), "byte")
    yield from _SCREEN.rows("store", f"{store.name}: {count(len(store.segments), 'segment')} of the commit log, {size}")
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
            numbers = sorted(row["records"] for row in rows)
            span = " to ".join(dict.fromkeys(map(group_digits, (numbers[0], numbers[-1]))))
            yield from _SCREEN.rows(
                "segments",
                f"records in {count(len(rows), 'file')}, {span} in each; --by segment -f csv lists them",
            )
        else:
            yield from _bars(rows, usage)
    yield from _retention(store, usage, request, arguments)
    if arguments.by is None and len(arguments.paths) == 1 and store.segments:
        yield from _SCREEN.command("next", fill_command(USAGE_BY, store.words))
    yield from _SCREEN.rows("total", _sums(usage))


def _sums(usage: "Usage") -> str:
    from rmqinspect.loops.record_rows import SUM_BYTES, SUM_MESSAGES

    scale = 1 if usage.sample is None else usage.sample.scale
    messages, size = (round(usage.dimensions["kind"].total()[which] * scale) for which in (SUM_MESSAGES, SUM_BYTES))
    return f"{'' if usage.sample is None else 'about '}{count(messages, 'message')}, {describe_size(size)} of records"


# --- bars -----------------------------------------------------------------------------------------


def _bars(rows: "list[dict[str, Any]]", usage: "Usage") -> Iterator[str]:
    """Yield a line for each value with records or bytes; the longest bar is that of the largest one."""
    dimension = rows[0]["dimension"]
    others = len(usage.dimensions[dimension].keys) - sum(row["covers"] != "others" for row in rows)
    rows = [row for row in rows if row["bytes"]]
    errors = ["" if row["bytes_error"] is None else f" ± {describe_size(row['bytes_error'])}" for row in rows]
    sizes = [
        f"{describe_size(row['bytes'])}{error}  {100 * row['share']:5.1f} %"
        for row, error in zip(rows, errors, strict=True)
    ]
    told = [count(row["messages"], "message") if row["records"] else "" for row in rows]
    size_width, told_width = (max(map(len, texts), default=0) for texts in (sizes, told))
    room = line_width() - _SCREEN.indent - size_width - told_width - 3 * len("  ")
    cells = max(0, min(_BAR, room - _NARROWEST))
    room -= cells
    names = [_name(row, others, max(_NARROWEST, min(_WIDEST, room))) for row in rows]
    shares = [0 if row["covers"] == "others" else row["share"] for row in rows]
    bars = []
    for share in shares:
        whole, eighths = divmod(round(min(share / max(shares) if share else 0.0, 1.0) * cells * 8), 8)
        bars.append(f"{'█' * whole}{_PARTS[eighths] if eighths else ''}".ljust(cells))
    for number, line in enumerate(columns(list(zip(names, sizes, bars, told, strict=True)), "<><<")):
        label = "" if number else dimension
        yield f"{label:{_SCREEN.indent}}{line}"


def _name(row: "dict[str, Any]", others: int, most: int) -> str:
    """Return the name of a row in at most `most` cells."""
    if row["covers"] == "others":
        return "others" if others < 1 else count(others, "other")
    value = "(none)" if row["covers"] == "none" else "(hidden)" if row["value"] is None else row["value"]
    if row["dimension"] == "size":
        value = f"up to {group_digits(int(value))} bytes"
    queue = "" if row["queue_id"] is None else f" {row['queue_id']}"
    return clip(escape(value), most - len(queue)) + queue


# --- inflow ---------------------------------------------------------------------------------------


def _inflow(usage: "Usage", zone: tzinfo) -> Iterator[str]:
    """Yield a sparkline of the bytes by store time: the lowest sign stands for anything, a blank for nothing."""
    from rmqinspect.tables.usage import inflow_of

    found = inflow_of(usage, line_width() - _SCREEN.indent)
    if found is None:
        yield from _SCREEN.rows("inflow", "store times are too far apart for a line; --by hour -f csv has them")
        return
    highest = max(*found.sizes, 1)
    line = "".join(_LEVELS[min(7, 8 * size // highest)] if size else " " for size in found.sizes)
    scale = usage.sample.scale if usage.sample is not None else 1
    ends = f"{_moment(found.begin, zone)} to {_moment(found.end, zone)}"
    spans = (count(found.step // size, name) for name, size in _UNITS if found.step % size == 0)
    span = next(spans, f"{found.step} ms")
    yield f"{'inflow':{_SCREEN.indent}}{line}".rstrip()
    yield from _SCREEN.rows("", f"{ends}; a column is {span}, the highest {describe_size(highest * scale)}")


def _moment(millis: int, zone: tzinfo) -> str:
    """Return a time without its milliseconds."""
    return format_seconds(millis, zone) or f"{millis} ms"


# --- retention ------------------------------------------------------------------------------------


def _retention(store: "Store", usage: "Usage", request: "Request", arguments: UsageArguments) -> Iterator[str]:
    from rmqinspect.broker.gone import reserved_hours
    from rmqinspect.find.summaries import last_times, read_waiting, retained

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
        losses = [f"{clip(escape(group), _WIDEST)} {count(lost, 'message')}" for group, lost in found.losses.items()]
        if (left := len(losses) - _GROUPS) > 0:
            losses[_GROUPS:] = [count(left, "more group")]
        yield from _SCREEN.rows("", f"{' ' * len(head)}  lost to {', '.join(losses) or 'no consumer group'}")


def _oldest(store: "Store", waiting: "Sequence[Waiting] | None") -> str:
    if waiting is None:
        why = why_unknown(store, "consumer offsets") or why_unknown(store, "queues")
        return f"not known: {why or 'no consumer offsets of queues that are here'}"
    if not waiting:
        return "no consumer group waits for a message of the log"
    one = waiting[0]
    entry = one.position.entry
    queue = f"{clip(escape(entry.topic), _WIDEST)} queue {entry.queue_id}"
    place = f"{clip(escape(entry.group), _WIDEST)}: {queue} offset {group_digits(one.queue_offset)}"
    segment = store.segment_at(one.physical_offset)
    where = "in no segment" if segment is None else f"in {segment.name}"
    before = 0 if segment is None else store.segments.index(segment)
    free = f"; {count(before, 'older segment')} may go" if before else ""
    return f"the oldest message that a group waits for lies {where} ({place}){free}"

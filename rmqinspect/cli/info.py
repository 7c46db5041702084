"""`rmqinspect info`: one screen about a store, without a full scan."""

import gc
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.options import look_options, source_options
from rmqinspect.cli.status import ExitStatus
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_size, escape, escape_json, group_digits

if TYPE_CHECKING:
    from datetime import tzinfo

    from rmqinspect.commitlog.tail import LogEnd
    from rmqinspect.show.overview import Overview

_WIDTH = 100
_LABEL = 14
_LISTED = 4  # of each kind of oddity; the rest is counted

# Fields of the checkpoint, as the screen calls them.
_TIMES = (("physic_msg_timestamp", "log"), ("logics_msg_timestamp", "queues"), ("index_msg_timestamp", "index"))
_OFFSETS = (
    ("master_flushed_offset", "master flushed"),
    ("confirm_phy_offset", "confirmed"),
    ("logics_physical_offset", "queues reach"),
)
_FIELD_NAMES = dict((*_TIMES, *_OFFSETS))


@click.command("info")
@click.argument("paths", metavar="STORE...", nargs=-1)
@click.option("-f", "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="No remarks on stderr, only errors.")
@look_options
@source_options
def command(
    paths: tuple[str, ...],
    form: str,
    quiet: bool,
    zone: "tzinfo",
    config: str | None,
    base: int | None,
    **_: object,
) -> int:
    """Show one screen about a store: layout, how it stopped, log, queues, index, groups; no full scan.

    Example: rmqinspect info STORE
    """
    from rmqinspect.show.overview import overview
    from rmqinspect.store.discover import open_store

    if not paths and not config:
        raise click.UsageError("Missing argument 'STORE...'.")
    # Ten thousand files make many objects, all of which live until the end: no collection finds anything.
    gc.disable()
    try:
        facts = overview(open_store(paths, config=config, base=base))
    finally:
        gc.enable()
    if not quiet:
        print(f"read {facts.bytes_read / 1e6:.1f} MB", file=sys.stderr)
        for remark in facts.remarks:
            print(escape(remark), file=sys.stderr)
    if form == "json":
        click.echo(escape_json(json.dumps(_document(facts), ensure_ascii=False)))
    else:
        for label, text in _rows(facts, tuple(map(shown, paths)) or (facts.name,), zone):
            for number, line in enumerate(_fold(escape(text), _WIDTH - _LABEL)):
                click.echo(f"{'' if number else label:<{_LABEL}}{line}".rstrip())
    for problem in facts.unread:
        print(f"not read: {escape(problem)}", file=sys.stderr)
    return ExitStatus.UNREADABLE if facts.unread else ExitStatus.DONE


def _fold(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text that is folded at spaces behind a comma or a semicolon, if there are any."""
    while len(text) > width:
        near = max(text.rfind(", ", 0, width), text.rfind("; ", 0, width)) + 1
        stop = near if near > width // 2 else text.rfind(" ", 1, width)
        stop = stop if stop > 0 else width
        yield text[:stop].rstrip()
        text = text[stop:].lstrip(" ")
    yield text


# --- the screen ---------------------------------------------------------------------------------


def _rows(facts: "Overview", paths: tuple[str, ...], zone: "tzinfo") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the screen; texts may be hostile."""
    parts = ", ".join(facts.layout) or f"no log, queues or index ({facts.place.replace('_', ' ')})"
    yield "store", f"{facts.name}: {parts}; {count(facts.files, 'file')}, {count(facts.total_bytes, 'byte')}"
    if facts.features:
        yield "layout", ", ".join(facts.features)
    root = facts.place == "store"
    if root:
        yield "stopped", _stopped(facts)
    if facts.log.segments:
        yield "last record", _last_record(facts.log.end, zone)
    if facts.writer.clues:
        yield "writer", f"{facts.writer}, from content: {', '.join(facts.writer.clues)}"
    elif root:
        yield "writer", f"{facts.writer}: nothing tells"
    absent = []
    for label, given, texts in (
        ("commit log", facts.log.segments > 0, _log(facts)),
        ("checkpoint", facts.checkpoint is not None, iter((_checkpoint(facts, zone),))),
        ("queues", facts.queues.queues > 0, iter((_queues(facts),))),
        ("index", facts.index.files > 0, iter((_index(facts, zone),))),
        ("groups", facts.groups.source is not None, iter((_groups(facts),))),
    ):
        if given or root:
            yield from ((label if not number else "", text) for number, text in enumerate(texts))
        else:
            absent.append(label)
    if absent:
        yield "not given", ", ".join(absent)
    yield from _oddities(facts)
    yield from _next(facts, paths)


def _stopped(facts: "Overview") -> str:
    stop = facts.stop
    if stop.state == "running":
        holder = f"process {stop.lock_holder}" if (stop.lock_holder or 0) > 0 else "a process of another machine"
        return f"not yet: {holder} holds the lock; the files may change while they are read"
    holder = "no process holds the lock" if stop.lock_seen else "who holds the lock is not seen from here"
    lock = holder if stop.lock else "there is no lock file"
    if stop.state == "unclean":
        pid = f" (pid {stop.abort_pid})" if stop.abort_pid is not None else ""
        return f"unclean: abort is there{pid}, {lock}"
    return (
        f"clean: there is no abort, {lock}"
        if stop.state == "clean"
        else "not known: no checkpoint, no lock and no abort are there"
    )


def _last_record(end: "LogEnd", zone: "tzinfo") -> str:
    if end.last_record is None or end.end is None:
        far = "" if end.looked_to is None else f" up to {group_digits(end.looked_to)}"
        return f"none was found{far}"
    text = f"{_moment(end.last_timestamp, zone)}, physical offset {group_digits(end.last_record)}"
    return f"{text}; log ends at {group_digits(end.end)}{_rest(end)}"


def _rest(end: "LogEnd") -> str:
    """Return what follows the end, where that is not what a healthy log has."""
    if end.goes_on:
        return ", but it goes on: not looked further"
    kinds = {gap.kind for gap in end.rest}
    if "stale" in kinds:
        return ", behind it records of an earlier life of the file"
    return ", behind it bytes that are neither record nor zeros" if "unknown" in kinds else ""


def _log(facts: "Overview") -> Iterator[str]:
    log = facts.log
    if not log.segments:
        yield "none: no segment is there"
        return
    size = f" of {group_digits(log.segment_size)}" if log.segment_size else ""
    bases = group_digits(log.first_base)
    if log.segments > 1:
        bases += f" to {group_digits(log.last_base)}"
    missing = "none missing" if log.segments > 1 and not log.holes else ""
    if log.holes:
        ranges = [f"{group_digits(hole.start)} to {group_digits(hole.end)}" for hole in log.holes]
        missing = "missing: " + _some(ranges)
    text = f"{count(log.segments, 'segment')}{size}: {bases}" + (f", {missing}" if missing else "")
    if log.empty:
        preallocated = len(log.empty) == 1 and log.segments > 1
        text += "; the last is preallocated (zeros)" if preallocated else f"; begin with zeros: {_some(log.empty)}"
    yield text
    if log.odd_lengths:
        yield "other length: " + _some([f"{name} ({count(size, 'byte')})" for name, size in log.odd_lengths])
    if log.duplicates:
        yield "a second file of the same base: " + _some(log.duplicates)
    if log.end.damaged:
        yield "damage near its end: verify tells where"


def _checkpoint(facts: "Overview", zone: "tzinfo") -> str:
    values = facts.checkpoint
    if values is None:
        return "none: there is no such file"
    if not values:
        return "could not be read, or is empty"
    times = [f"{word} {_clock(values.get(name), facts, zone)}" for name, word in _TIMES if name in values]
    offsets = [f"{word} {group_digits(values[name])}" for name, word in _OFFSETS if values.get(name)]
    if facts.log.end.last_timestamp is None:
        judged = "no record to compare with"
    elif facts.newer:
        judged = ", ".join(_FIELD_NAMES[name] for name in facts.newer) + " newer than the log"
    else:
        judged = "none newer than the log"
    return f"{', '.join((*times, *offsets))}: {judged}"


def _clock(value: int | None, facts: "Overview", zone: "tzinfo") -> str:
    """Return a time of the checkpoint; without the date where that is the last record's."""
    if not value:
        return "never"
    text, last = _moment(value, zone), _moment(facts.log.end.last_timestamp, zone)
    return text[11:] if "T" in text and text[:11] == last[:11] else text


def _queues(facts: "Overview") -> str:
    queues = facts.queues
    if not queues.queues:
        rocks = "RocksDB queues" in facts.features
        return "in RocksDB, not read" if rocks else "none: there is no queue file"
    topics = count(queues.topics, "topic")
    text = f"{group_digits(queues.queues)} in {topics}, {count(queues.units, 'unit')}"
    deep = queues.deepest
    if deep is not None and deep.max_offset > deep.min_offset:
        span = f"{group_digits(deep.min_offset)} to {group_digits(deep.max_offset)}"
        text += f"; deepest {deep.topic} queue {deep.queue_id}: {span}"
    if queues.beyond:
        text += f"; {count(queues.beyond, 'queue')} reach behind the log's end"
    return text


def _index(facts: "Overview", zone: "tzinfo") -> str:
    index = facts.index
    if not index.files:
        return "none: there is no index file"
    entries = f"{group_digits(index.entries)} {'entry' if index.entries == 1 else 'entries'}"
    newest = "" if index.newest is None else f", newest {_moment(index.newest, zone)}"
    return f"{count(index.files, 'file')}, {entries}{newest}"


def _groups(facts: "Overview") -> str:
    groups = facts.groups
    if groups.problems:
        return f"{groups.source or 'consumer offsets'}: {_some(groups.problems)}"
    if groups.source is None:
        rocks = any(feature.startswith("RocksDB config") for feature in facts.features)
        return "in RocksDB, not read" if rocks else "none: no consumer offsets are there"
    return f"{count(groups.groups, 'group')}, {count(groups.subscriptions, 'subscription')}, in {groups.source}"


def _oddities(facts: "Overview") -> Iterator[tuple[str, str]]:
    for number, (name, detail) in enumerate(facts.oddities[:_LISTED]):
        yield "" if number else "odd", f"{name}: {detail}"
    if len(facts.oddities) > _LISTED:
        yield "", f"and {count(len(facts.oddities) - _LISTED, 'more entry').replace('entrys', 'entries')}"


def _next(facts: "Overview", paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    from rmqinspect.cli import VERBS

    given = " ".join(map(shlex.quote, paths))
    steps = {
        "forecast": "before any start: reads what the broker would read",
        "verify": f"reads everything: {describe_size(facts.total_bytes)}",
        "decode": "shows its rows",
    }
    chosen = ("forecast", "verify") if facts.place == "store" else ("verify", "decode")
    for number, verb in enumerate(verb for verb in chosen if verb in VERBS):
        line, label = f"rmqinspect {verb} {given}", "" if number else "next"
        if len(line) + len(steps[verb]) + 2 <= _WIDTH - _LABEL:
            yield label, f"{line:<26}  {steps[verb]}"
        else:
            yield label, line
            yield "", f"  {steps[verb]}"


def _some(texts: "list[str] | tuple[str, ...]") -> str:
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def _moment(milliseconds: int | None, zone: "tzinfo") -> str:
    from rmqinspect.times import format_millis

    if milliseconds is None:
        return "not known"
    text = format_millis(milliseconds, zone) if milliseconds >= 0 else None
    return f"{milliseconds} ms, which is no time" if text is None else text


# --- for programs -------------------------------------------------------------------------------


def _document(facts: "Overview") -> dict[str, Any]:
    from rmqinspect.version import tool_name

    plain = asdict(facts)
    log, end = plain.pop("log"), facts.log.end
    for part in ("end", "holes"):
        log.pop(part)
    deepest = plain["queues"].pop("deepest")
    if deepest is not None:
        deepest.pop("files")
    return {
        "schema_version": 1,
        "tool": tool_name(),
        "complete": not facts.unread,
        **plain,
        "writer": {"low": facts.writer.low, "high": facts.writer.high, "clues": facts.writer.clues},
        "queues": {**plain["queues"], "deepest": deepest},
        "log": {
            **log,
            "holes": [{"start": hole.start, "end": hole.end} for hole in facts.log.holes],
            "last_record": end.last_record,
            "last_timestamp": end.last_timestamp,
            "end": end.end,
            "looked_to": end.looked_to,
            "rest": [{"start": gap.start, "end": gap.end, "kind": gap.kind} for gap in end.rest],
            "goes_on": end.goes_on,
            "damaged": end.damaged,
        },
    }

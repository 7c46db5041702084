"""`rmqinspect info`: one screen about a store, without a full scan."""

import gc
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import given_stores, use_colour
from rmqinspect.cli.session import document_format, document_of, print_document, print_lines, printed_to, refuse_early
from rmqinspect.cli.terminal import Screen, line_width, print_remark
from rmqinspect.cli.verbs.info import InfoArguments
from rmqinspect.commands import DECODE, FORECAST, GROUPS, USAGE, VERIFY, fill_command
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_duration, describe_size, group_digits

if TYPE_CHECKING:
    from datetime import tzinfo

    from rmqinspect.cli.fleet import Answer
    from rmqinspect.commitlog.tail import LogEnd
    from rmqinspect.fleet.given import Given
    from rmqinspect.forecast.outcome import Forecast
    from rmqinspect.show.overview import Overview
    from rmqinspect.store.model import Store

_SCREEN = Screen(indent=14, phrases=True)
_LISTED = 4  # oddities, names and ranges listed; the others are counted

# Checkpoint fields -> their names on the screen.
_TIMES = (("physic_msg_timestamp", "log"), ("logics_msg_timestamp", "queues"), ("index_msg_timestamp", "index"))
_OFFSETS = (
    ("master_flushed_offset", "master flushed"),
    ("confirm_phy_offset", "confirmed"),
    ("logics_physical_offset", "queues reach"),
)
_LONGEST_AGE_MS = 120_000  # a broker saves the times of its last records every minute
_FIELD_NAMES = dict((*_TIMES, *_OFFSETS))


def run(arguments: InfoArguments) -> int:
    """Do what `info` is asked for, and return the exit status."""
    given = given_stores(arguments)
    if len(given) > 1:
        return _tell_several(arguments, given)
    facts, start, store, strips = _read(arguments, given[0])
    if not arguments.quiet:
        print(f"read {facts.bytes_read / 1e6:.1f} MB", file=sys.stderr)
        _tell_loops(arguments)
        for remark in facts.remarks:
            print_remark(remark)
    colour = use_colour(arguments.color, arguments.output)
    with printed_to(arguments.output, store.paths):
        if document_format(arguments) != "table":
            print_document(complete=not facts.unread, **_document(facts, start, store))
        else:
            bar = list(_bar_lines(facts, start, strips, colour=colour))
            print_lines(_lines(facts, start, arguments, bar), colour=colour)
    for problem in facts.unread:
        print_remark(f"not read: {problem}")
    return _status(facts)


def _tell_loops(arguments: InfoArguments) -> None:
    """Say with -v how the loops over bytes run: without it a store that is read slowly says so."""
    if arguments.verbose:
        from rmqinspect import loops

        print_remark(f"the loops over bytes are {loops.way()}")


def _status(facts: "Overview") -> ExitStatus:
    return ExitStatus.UNREADABLE if facts.unread else ExitStatus.DONE


Strips = list[tuple[str, int, int]]  # segments: (name, start, end)


def _read(arguments: InfoArguments, given: "Given") -> "tuple[Overview, Forecast | None, Store, Strips]":
    """Return the summary of a store, its next start, the store itself, and its segments."""
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.show.overview import overview
    from rmqinspect.show.short_start import short_start
    from rmqinspect.store.reader import FileReader

    # Ten thousand files make many objects, all of which live to the end: a collection would free nothing.
    gc.disable()
    try:
        store = given.open(**arguments.opening)
        with unpacked(store, replace(arguments.unpacking, ends_only=True)) as whole:
            facts = overview(whole)
            before = FileReader.bytes_read
            start = short_start(whole, facts)
        strips = [(segment.name, segment.base, segment.end) for segment in whole.segments]
        read = replace(facts, bytes_read=facts.bytes_read + FileReader.bytes_read - before)
        return read, start, store, strips
    finally:
        gc.enable()


def _tell_several(arguments: InfoArguments, given: "list[Given]") -> int:
    import rmqinspect.rocksdb.unpack
    import rmqinspect.show.overview
    import rmqinspect.verify.next_start  # noqa: F401  once, before processes are forked
    from rmqinspect.cli.fleet import ask_each, command_about, evidence_of, print_answers, status_of_all

    refuse_early(arguments.output, evidence := evidence_of(given))
    format_ = document_format(arguments)
    if not arguments.quiet:
        _tell_loops(arguments)
    answers = ask_each(arguments, given, partial(_ask, format_ != "table"))
    screen_of, colour = command_about("info", arguments, given), use_colour(arguments.color, arguments.output)
    print_answers(answers, screen_of, format_, arguments.output, evidence, colour=colour)
    return status_of_all(answers)


def _ask(wants_document: bool, arguments: InfoArguments, given: "Given") -> "Answer":
    """Return what is told of one of several stores."""
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.fleet.summary import row_of_info

    facts, start, store, _ = _read(arguments, given)
    for remark in facts.remarks if arguments.verbose else ():
        print_remark(remark)
    for problem in facts.unread:
        print_remark(f"not read: {problem}")
    document = document_of(complete=not facts.unread, **_document(facts, start, store))
    return Answer(row_of_info(facts.name, facts, document), _status(facts), document if wants_document else None)


# --- the screen ---------------------------------------------------------------------------------


def _lines(
    facts: "Overview", start: "Forecast | None", arguments: InfoArguments, bar: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines of the screen; those of the log's bar follow what is said of the log."""
    told = ""
    for label, text in (*_rows(facts, arguments.zone), *_start_rows(facts, start, arguments)):
        if told == "commit log" and label:
            yield from bar
        told = label or told
        yield from _SCREEN.rows(label, text)
    yield from _next(facts, arguments)


def _bar_lines(facts: "Overview", start: "Forecast | None", strips: Strips, *, colour: bool) -> Iterator[str]:
    """Yield the log as one row, on a terminal: what was not read is drawn as that."""
    if sys.stdout.isatty():
        from rmqinspect.cli.log_bar import bar_lines
        from rmqinspect.commitlog.log_runs import Run
        from rmqinspect.picture.model import Strip
        from rmqinspect.picture.starts import picture_of_ends

        end = facts.log.end
        kinds = {"unknown": "damage"}
        rest = [Run(gap.start, gap.end, kinds.get(gap.kind, gap.kind)) for gap in end.rest]
        picture = picture_of_ends(facts.name, [Strip(*strip) for strip in strips], end.end, rest, start)
        yield from bar_lines(picture, _SCREEN, "", colour=colour)


def _rows(facts: "Overview", zone: "tzinfo") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the screen; the texts are not escaped yet."""
    parts = ", ".join(facts.layout) or f"no log, queues or index ({facts.place.replace('_', ' ')})"
    yield "store", f"{facts.name}: {parts}; {count(facts.files, 'file')}, {count(facts.total_bytes, 'byte')}"
    if facts.features:
        yield "layout", ", ".join(facts.features)
    root = facts.place == "store"
    if root:
        yield "stopped", _stopped(facts)
    if facts.log.segments:
        yield "last record", _last_record(facts.log.end, zone)
    if facts.versions.other is not None:
        yield "writer", f"{facts.versions.other}, from content: {', '.join(facts.versions.other.clues)}"
        yield "", f"formats of {facts.versions}: {', '.join(facts.versions.clues)}"
    elif facts.versions.clues:
        yield "writer", f"{facts.versions}, from content: {', '.join(facts.versions.clues)}"
    elif root:
        yield "writer", f"{facts.versions}: no evidence in the content"
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
    if facts.waiting.source is not None:
        waiting = f"{count(facts.waiting.timers, 'timer message')}, {count(facts.waiting.halves, 'half message')}"
        yield "waiting", f"{waiting}, in {facts.waiting.source}"
    if absent:
        yield "not given", ", ".join(absent)
    for number, (name, detail) in enumerate(facts.oddities[:_LISTED]):
        yield "" if number else "odd", f"{name}: {detail}"
    if (left := len(facts.oddities) - _LISTED) > 0:
        yield "", f"and {group_digits(left)} more {'entry' if left == 1 else 'entries'}"


def _start_rows(facts: "Overview", start: "Forecast | None", arguments: InfoArguments) -> Iterator[tuple[str, str]]:
    from rmqinspect.verify.next_start import start_lines

    if start is None and facts.place == "store" and facts.log.segments:
        command = _command(FORECAST, facts, arguments)
        yield "next start", f"not read here, about {describe_size(facts.start_bytes)}: {command}"
    words = arguments.words_for(map(shown, arguments.paths))
    for number, text in enumerate(start_lines(start, facts.log.end.end, stores=words) if start else ()):
        yield "" if number else "next start", text


def _stopped(facts: "Overview") -> str:
    stop = facts.stop
    if stop.state == "running":
        holder = f"process {stop.lock_holder}" if (stop.lock_holder or 0) > 0 else "a process of another machine"
        return f"no: {holder} holds the lock; the files may change while they are read"
    holder = "no process holds the lock" if stop.lock_seen else "a lock holder would not be visible from here"
    lock = holder if stop.lock else "no lock file"
    if stop.state == "unclean":
        pid = f" (pid {stop.abort_pid})" if stop.abort_pid is not None else ""
        return f"unclean: abort exists{pid}, {lock}"
    return f"clean: no abort file, {lock}" if stop.state == "clean" else "unknown: no checkpoint, lock or abort file"


def _last_record(end: "LogEnd", zone: "tzinfo") -> str:
    if end.last_record is None or end.end is None:
        searched = "" if end.looked_to is None else f" up to {group_digits(end.looked_to)}"
        return f"none found{searched}"
    text = f"{_moment(end.last_timestamp, zone)}, physical offset {group_digits(end.last_record)}"
    text += f"; log ends at {group_digits(end.end)}"
    kinds = {gap.kind for gap in end.rest}  # nothing is said of what follows it in a healthy log
    if end.goes_on:
        return f"{text}, more follows: not searched further"
    if "stale" in kinds:
        return f"{text}, followed by records of an earlier use of the file"
    return f"{text}, followed by bytes that are neither a record nor zeros" if "unknown" in kinds else text


def _log(facts: "Overview") -> Iterator[str]:
    log = facts.log
    if not log.segments:
        yield "none: no segment"
        return
    size = f" of {group_digits(log.segment_size)}" if log.segment_size else ""
    bases = group_digits(log.first_base)
    if log.segments > 1:
        bases += f" to {group_digits(log.last_base)}"
    missing = "none missing" if log.segments > 1 and not log.holes else ""
    if log.lacks_before:
        missing = f"{'without a hole; ' * bool(missing)}what was before {group_digits(log.first_base)} is gone"
    if log.holes:
        ranges = [f"{group_digits(hole.start)} to {group_digits(hole.end)}" for hole in log.holes]
        missing = "; ".join(filter(None, ("missing: " + _some(ranges), missing)))
    text = f"{count(log.segments, 'segment')}{size}: {bases}" + (f", {missing}" if missing else "")
    if log.empty:
        preallocated = len(log.empty) == 1 and log.segments > 1
        text += "; the last is preallocated (zeros)" if preallocated else f"; begin with zeros: {_some(log.empty)}"
    yield text
    if log.odd_lengths:
        yield "other length: " + _some([f"{name} ({count(size, 'byte')})" for name, size in log.odd_lengths])
    if log.duplicates:
        yield "another file with the same base: " + _some(log.duplicates)
    if log.end.damaged:
        yield "damage near its end: verify locates it"


def _checkpoint(facts: "Overview", zone: "tzinfo") -> str:
    values = facts.checkpoint
    if values is None:
        return "none: no such file"
    if not values:
        return "unreadable or empty"
    times = [
        f"{word} {_moment(values[name], zone) if values[name] else 'none saved'}"
        for name, word in _TIMES
        if name in values
    ]
    offsets = [f"{word} {group_digits(values[name])}" for name, word in _OFFSETS if values.get(name)]
    if facts.log.end.last_timestamp is None:
        judged = "no record to compare with"
    elif facts.newer:
        judged = ", ".join(_FIELD_NAMES[name] for name in facts.newer) + " newer than the log"
    else:
        judged = "none newer than the log" + _age(values, facts)
    return f"{', '.join((*times, *offsets))}: {judged}"


def _age(values: "dict[str, int]", facts: "Overview") -> str:
    """Return how much older than the last record a checkpoint is, where its saves do not explain it."""
    last = facts.log.end.last_timestamp
    newest = max((values.get(name, 0) for name, _ in _TIMES), default=0)
    if last is None or not 0 < newest < last - _LONGEST_AGE_MS:
        return ""
    older = f", the newest {describe_duration((last - newest) / 1000)} older than its last record"
    return f"{older}: of another time or store? (verify)" if facts.stop.state == "clean" else older


def _queues(facts: "Overview") -> str:
    queues = facts.queues
    if not queues.queues:
        rocks = "RocksDB queues" in facts.features
        return "in RocksDB, not read" if rocks else "none: no queue file"
    topics = count(queues.topics, "topic")
    text = f"{group_digits(queues.queues)} in {topics}, {count(queues.units, 'unit')}"
    deep = queues.deepest
    if deep is not None and deep.max_offset > deep.min_offset:
        span = f"{group_digits(deep.min_offset)} to {group_digits(deep.max_offset)}"
        text += f"; deepest {deep.topic} queue {deep.queue_id}: {span}"
    if queues.beyond:
        text += f"; {count(queues.beyond, 'queue')} {'points' if queues.beyond == 1 else 'point'} beyond the log's end"
    return text


def _index(facts: "Overview", zone: "tzinfo") -> str:
    index = facts.index
    if not index.files:
        return "none: no index file"
    entries = f"{group_digits(index.entries)} {'entry' if index.entries == 1 else 'entries'}"
    newest = "" if index.newest is None else f", newest {_moment(index.newest, zone)}"
    return f"{count(index.files, 'file')}, {entries}{newest}"


def _groups(facts: "Overview") -> str:
    groups = facts.groups
    if groups.problems:
        return _some(groups.problems)
    if groups.source is None:
        rocks = any(feature.startswith("RocksDB config") for feature in facts.features)
        return "in RocksDB, not read" if rocks else "none: no consumer offsets"
    return f"{count(groups.groups, 'group')}, {count(groups.subscriptions, 'subscription')}, in {groups.source}"


def _command(template: str, facts: "Overview", arguments: InfoArguments) -> str:
    """Return a command about the same store, read with the same broker.conf: without it the answers may differ."""
    return fill_command(template, arguments.words_for(map(shown, arguments.paths)))


def _next(facts: "Overview", arguments: InfoArguments) -> Iterator[str]:
    """Yield the lines of the commands to run next; the reason follows in the line if there is room."""
    steps = [(FORECAST, "before any start: reads what the broker would read")] if facts.place == "store" else []
    steps.append((VERIFY, f"reads everything: {describe_size(facts.total_bytes)}"))
    if facts.place != "store":
        steps.append((DECODE, "prints its rows"))
    if facts.groups.groups:
        steps.append((GROUPS, "who is behind; reads little"))
    if facts.log.segments:
        steps.append((USAGE, "what takes the space"))
    for number, (template, reason) in enumerate(steps):
        line, label = _command(template, facts, arguments), "" if number else "next"
        # A line is copied as it stands: a shell takes what is behind # for a comment.
        if max(len(line), 26) + 4 + len(reason) <= line_width() - _SCREEN.indent:
            yield _SCREEN.line(label, f"{line:<26}  # {reason}")
        else:
            yield from _SCREEN.command(label, line)
            yield _SCREEN.line("", f"  # {reason}")


def _some(texts: "list[str] | tuple[str, ...]") -> str:
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def _moment(milliseconds: int | None, zone: "tzinfo") -> str:
    from rmqinspect.times import format_millis

    if milliseconds is None:
        return "unknown"
    text = format_millis(milliseconds, zone) if milliseconds >= 0 else None
    return f"{milliseconds} ms, not a valid time" if text is None else text


# --- the JSON document -------------------------------------------------------------------------------


def _document(facts: "Overview", start: "Forecast | None", store: "Store") -> dict[str, Any]:
    from rmqinspect.document import as_object
    from rmqinspect.verify.next_start import start_document

    next_start = start_document(start, facts.log.end.end, stores=store.words)
    plain = as_object(facts)
    log, end = plain.pop("log"), facts.log.end
    plain.pop("start_bytes")
    versions = plain.pop("versions")
    for part in ("end", "holes", "lacks_before"):
        log.pop(part)
    deepest = plain["queues"].pop("deepest")
    if deepest is not None:
        deepest.pop("files")
    return {
        **plain,
        "writer": {name: versions[name] for name in ("low", "high", "clues")},
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
        "next_start": next_start and as_object(next_start),
    }

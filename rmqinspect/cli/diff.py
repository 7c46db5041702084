"""`rmqinspect diff`: two stores compared, one verdict, an exit status."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import tzinfo
from functools import partial

import click

from rmqinspect.cli import ExitStatus, exit_status
from rmqinspect.cli.options import (
    choose_format,
    use_colour,
)
from rmqinspect.cli.pager import print_answered
from rmqinspect.cli.session import printed_to, tell_broker, write_table
from rmqinspect.cli.terminal import LONG_READ, Progress, Screen
from rmqinspect.cli.verbs.diff import DiffArguments
from rmqinspect.commands import SHOW, fill_command
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.diff.log_diff import LogDiff
from rmqinspect.diff.result import (
    SCHEMA,
    SIDES,
    Difference,
    DiffResult,
    diff_document,
    difference_batches,
    not_compared,
    redact_result,
)
from rmqinspect.diff.stores import compare_stores
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.system.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.system.run import with_run
from rmqinspect.system.uri import shown
from rmqinspect.tables.groups import GROUPS
from rmqinspect.text import count, describe_offset, describe_size, escape_json, group_digits
from rmqinspect.times import format_millis

_SCREEN = Screen(indent=13, cut=True)
_RANGES = 3  # of physical offsets, on the screen
_TOPICS = 5  # on the screen; the document lists all


def run(arguments: DiffArguments) -> int:
    """Do what `diff` is asked for, and return the exit status."""
    names = (shown(arguments.a), shown(arguments.b))
    format_ = choose_format(arguments)
    a, b = (open_store([path], **arguments.opening) for path in (arguments.a, arguments.b))
    with interrupted_once(), ExitStack() as copies:
        unpack = partial(unpacked, how=arguments.unpacking, only=GROUPS.databases)
        outcome = _compare((copies.enter_context(unpack(a)), copies.enter_context(unpack(b))), arguments)
        interrupt_no_more()
        if arguments.redact is not None:
            redact_result(outcome, arguments.redact)
        _print(outcome, names, format_, arguments)
    if outcome.interrupted is not None:
        return ExitStatus.INTERRUPTED
    return exit_status(arguments.fail_on, damaged=any(outcome.differences.counts.values()), unread=outcome.unread)


def _print(outcome: DiffResult, names: Sequence[str], format_: str, arguments: DiffArguments) -> None:
    evidence = tuple(path for store in outcome.stores for path in store.paths)
    if format_ == "json":
        document = json.dumps(with_run(diff_document(outcome, names)), ensure_ascii=False, indent=1)
        with printed_to(arguments.output, evidence):
            click.echo("\n".join(map(escape_json, document.split("\n"))))
    elif format_ != "table" or arguments.output:
        write_table(
            format_,
            SCHEMA,
            difference_batches(outcome.differences.rows),
            arguments.output,
            arguments,
            complete=outcome.complete,
            evidence=evidence,
        )
    elif not arguments.quiet:
        lines = _screen(outcome, names, arguments.verbose, arguments.zone)
        print_answered(lines, colour=use_colour(arguments.color))
    if (format_ != "table" or arguments.output) and not arguments.quiet:
        click.echo(_SCREEN.line("VERDICT", _verdict(outcome)), err=True)


def _compare(stores: tuple[Store, Store], arguments: DiffArguments) -> DiffResult:
    sizes = [sum(file.size for file in (*store.segments, *store.queue_files)) for store in stores]
    with Progress(sum(sizes), arguments.progress, quiet=arguments.quiet) as progress:
        for side, store in zip(SIDES, stores, strict=True):
            tell_broker(store, progress.remark, side)
            for remark in store.remarks if arguments.verbose else ():
                progress.remark(f"{side}: {remark}")
        if sum(sizes) > LONG_READ:
            progress.remark(
                f"{describe_size(sizes[0])} in A and {describe_size(sizes[1])} in B: every range that both have is "
                "read. Cheaper: give one segment of each by its path"
            )
        return compare_stores(stores, arguments.limit, progress, arguments.zone)


# --- the screen -----------------------------------------------------------------------------------


def _screen(outcome: DiffResult, names: Sequence[str], verbose: int, zone: tzinfo) -> Iterator[str]:
    log = outcome.log
    for side, (name, store) in enumerate(zip(names, outcome.stores, strict=True)):
        yield from _SCREEN.rows(SIDES[side], f"{name}: {_store_words(store, log, side)}")
    if log is not None:
        yield from _segment_lines(outcome)
        yield from _log_lines(outcome, log, names)
        yield from _record_lines(outcome, log)
    yield from _other_lines(outcome)
    yield from _SCREEN.several("noted", outcome.notes)
    yield from _SCREEN.rows("not compared", "; ".join(not_compared(outcome)))
    if verbose:
        yield from _checkpoint_lines(outcome, zone)
    yield from _SCREEN.several("not read", outcome.unread)
    yield from _SCREEN.fitted("VERDICT", _verdict(outcome))


def _store_words(store: Store, log: LogDiff | None, side: int) -> str:
    if not store.segments:
        return "no commit log" if store.given == "store" else store.given.replace("_", " ")
    words = count(len(store.segments), "segment")
    if log is not None:
        covered = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in log.ranges(side))
        end = log.ends[side]
        words += f", {covered or 'no range that the other has'}; "
        words += "no record" if end is None else f"the log ends at {group_digits(end)}"
    return words


def _segment_lines(outcome: DiffResult) -> Iterator[str]:
    counts, name = outcome.differences.counts, "segments"
    for row in outcome.differences.of("segment_only", "segment_length"):
        base = group_digits(row.physical_offset or 0)
        if row.only_in:
            yield from _SCREEN.rows(name, f"base {base} only in {row.only_in}, {count(row.length or 0, 'byte')}")
        else:
            yield from _SCREEN.rows(name, f"base {base}: {_digits(row.a)} bytes in A, {_digits(row.b)} in B")
        name = ""
    yield from _more(outcome, "segment_only", "segment_length")
    if not counts["segment_only"] + counts["segment_length"]:
        # One of zeros only, or a loose one, may lack its like without a difference.
        a, b = ({segment.base for segment in store.segments} for store in outcome.stores)
        some = f"{count(len(a & b), 'segment')} in both, of the same lengths"
        yield from _SCREEN.rows("segments", "the same bases and lengths" if a == b else some)


def _log_lines(outcome: DiffResult, log: LogDiff, names: Sequence[str]) -> Iterator[str]:
    name = "log"
    for kind in ("range_only", "range_neither"):
        for row in outcome.differences.of(kind):
            start, size = row.physical_offset or 0, row.length or 0
            held = f" only in {row.only_in}" if row.only_in else f", {count(size, 'byte')}, in neither"
            where = f"{group_digits(start)} to {group_digits(start + size)}{held}"
            yield from _SCREEN.rows(name, f"{where}: {row.message}")
            name = ""
        yield from _more(outcome, kind)
    if log.first is None:
        yield from _SCREEN.rows(name, f"{_compared(log)}: the same" if log.compared else "no range that both have")
        return
    yield from _SCREEN.rows(name, f"the first difference is at {describe_offset(log.first)}")
    yield from _first_difference_lines(outcome, log, log.first)
    words_of = [store.words for store in outcome.stores]
    for number, (words, stand) in enumerate(zip(words_of, outcome.at_first or (), strict=True)):
        at = log.first if stand.start is None else stand.start
        if stand.kind != "nothing":
            yield from _SCREEN.command("" if number else "next", fill_command(SHOW, words, at=at))


def _first_difference_lines(outcome: DiffResult, log: LogDiff, first: int) -> Iterator[str]:
    """Yield what either side has at the first difference, the ranges that differ, and which log is shorter."""
    for side, stand in enumerate(outcome.at_first or ()):
        end = log.ends[side]
        ended = "the log ends before it; " if end is not None and first >= end else ""
        yield from _SCREEN.rows(f"  {SIDES[side]}", ended + stand.text)
    if log.runs.count:
        ranges = [
            (row.physical_offset or 0, (row.physical_offset or 0) + (row.length or 0))
            for row in outcome.differences.of("bytes")[:_RANGES]
        ]
        shown = "; ".join(
            group_digits(start) if end - start == 1 else f"{group_digits(start)} to {group_digits(end)}"
            for start, end in ranges
        )
        more = ", …" if log.runs.count > _RANGES else ""
        differ = "differs" if log.runs.differing == 1 else "differ"
        sizes = f"{count(log.runs.differing, 'byte')} {differ} in {count(log.runs.count, 'range')}"
        yield from _SCREEN.rows("", f"{_compared(log)}; {sizes}: {shown}{more}")
    for row in outcome.differences.of("log_end"):
        tail = "" if log.tail is None else f", followed up to {group_digits(log.tail)} by bytes of no record"
        shorter = SIDES[1 - SIDES.index(row.only_in or "A")]
        end_words = f"{shorter} ends at {group_digits(row.physical_offset or 0)}{tail}"
        yield from _SCREEN.rows("", f"{end_words}; {row.only_in} continues for {count(row.length or 0, 'byte')}")


def _compared(log: LogDiff) -> str:
    words = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in log.compared[:_RANGES])
    more = ", …" if log.compared[_RANGES:] else ""
    return f"{words}{more} compared" if words else "nothing compared"


def _record_lines(outcome: DiffResult, log: LogDiff) -> Iterator[str]:
    for side, only in enumerate(log.only):
        if not only.count:
            continue
        topics = [f"{topic} {group_digits(number)}" for topic, number in only.by_topic.items()]
        shown = ", ".join(topics[:_TOPICS]) + (f" and {len(topics) - _TOPICS} more topics" if topics[_TOPICS:] else "")
        yield from _SCREEN.rows("records", f"{group_digits(only.count)} only in {SIDES[side]}: {shown}")
        if only.elsewhere:
            about = "" if only.elsewhere_exact else "about "
            yield from _SCREEN.rows(
                "",
                f"{about}{group_digits(only.elsewhere)} of them are in {SIDES[1 - side]} at another offset, with "
                "the same queue offset, time and body",
            )
        rows = [row for row in outcome.differences.of("record_only") if row.only_in == SIDES[side]]
        for row in rows:
            yield from _SCREEN.rows(
                "",
                f"{group_digits(row.physical_offset or 0)}: {row.topic} queue {row.queue_id} offset "
                f"{row.queue_offset}, {row.a or row.b}; {row.message}",
            )
        if only.count > len(rows):
            yield from _SCREEN.rows("", f"and {group_digits(only.count - len(rows))} more: --limit shows them")
    if not any(only.count for only in log.only):
        yield from _SCREEN.rows("records", "each is in both logs, as far as bytes were compared")


def _other_lines(outcome: DiffResult) -> Iterator[str]:
    """Yield the lines about queues, groups and topics."""
    queues = [kind for kind in outcome.differences.counts if kind.startswith("queue_")]
    parts = (
        ("queues", f"{group_digits(outcome.queues)} in both, {group_digits(outcome.same_queues)} the same", queues),
        ("groups", f"{count(outcome.group_offsets, 'offset')} in both", ["group_offset"]),
        ("topics", f"{group_digits(outcome.topics)} in both", ["topic_only"]),
    )
    for part, words, kinds in parts:
        if outcome.compared[part]:
            continue
        yield from _SCREEN.rows(part, words)
        for row in outcome.differences.of(*kinds):
            yield from _SCREEN.rows("", _row_words(row))
        yield from _more(outcome, *kinds)


def _row_words(row: Difference) -> str:
    queue = f"{row.topic} queue {row.queue_id}"
    match row.what:
        case "queue_only":
            return f"{queue} only in {row.only_in}: {row.a or row.b}, {count(row.count, 'unit')}"
        case "queue_min":
            return f"{queue} begins at {_digits(row.a)} in A, {_digits(row.b)} in B"
        case "queue_max":
            return f"{queue} ends at {_digits(row.a)} in A, {_digits(row.b)} in B"
        case "queue_units":
            offset = group_digits(row.queue_offset or 0)
            units = f"{count(row.count, 'unit')} {'differs' if row.count == 1 else 'differ'}"
            return f"{queue}: {units}, first {offset}: A {row.a}; B {row.b}"
        case "group_offset":
            return f"{row.group} at {queue}: {_digits(row.a)} in A, {_digits(row.b)} in B"
    return f"{row.topic} only in {row.only_in}"


def _digits(text: str | None) -> str:
    return "none" if text is None else group_digits(int(text))


def _more(outcome: DiffResult, *kinds: str) -> Iterator[str]:
    left = sum(outcome.differences.counts[kind] for kind in kinds) - len(outcome.differences.of(*kinds))
    if left:
        yield from _SCREEN.rows("", f"and {group_digits(left)} more: --limit shows them")


def _checkpoint_lines(outcome: DiffResult, zone: tzinfo) -> Iterator[str]:
    try:
        a, b = (read_checkpoint(store) for store in outcome.stores)
    except Unreadable as error:
        yield from _SCREEN.rows("checkpoint", str(error))
        return
    for number, name in enumerate(dict.fromkeys((*a, *b))):
        texts = []
        for value in (a.get(name), b.get(name)):
            time = format_millis(value, zone) if value and name.endswith("_timestamp") else None
            texts.append("none" if value is None else time or str(value))
        yield from _SCREEN.rows("" if number else "checkpoint", f"{name}: {' in A, '.join(texts)} in B")


def _verdict(outcome: DiffResult) -> str:
    words = outcome.verdict
    if outcome.differences.parts:
        words += f": {', '.join(outcome.differences.parts)}"
    if outcome.interrupted is not None:
        words += f"; interrupted, {outcome.interrupted}"
    elif outcome.unread:
        words += f"; {count(len(outcome.unread), 'place')} could not be read"
    return words

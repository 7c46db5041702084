"""`rmqinspect diff`: two stores side by side, one verdict, an exit status."""

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

from rmqinspect.cli.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.cli.options import FORMAT_NAMES, choose_format, look_options, talk_options, use_colour
from rmqinspect.cli.progress import LONG_READ, Progress
from rmqinspect.cli.status import ExitStatus
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.diff.log import SIDES, LogDiff
from rmqinspect.diff.stores import Difference, DiffResult, compare_stores, diff_document, not_compared
from rmqinspect.errors import Unreadable
from rmqinspect.store.discover import open_store
from rmqinspect.store.lock import lock_holder
from rmqinspect.store.model import Store
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_offset, describe_size, escape, escape_json, group_digits

_WIDTH = 100
INDENT = 13
_GROUPS, _NO_BREAK = re.compile(r"(?<=\d) (?=\d{3}\b)"), "\u00a0"  # no line ends inside of a number
_RANGES = 3  # of physical offsets, named on the screen
_TOPICS = 5  # named on the screen; the document has them all


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Rows of each kind of difference; the counts stay exact.",
)
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(FORMAT_NAMES),
    help="Default: the screen. json: one document; other formats: the table of differences.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A new file; it appears when it is whole.")
@look_options
@talk_options
def command(a: str, b: str, **options: Any) -> int:
    """Two stores: replica against master, before against after, a copy against its original.

    Compared are segments, the bytes of the log where both have it, records, consume queues,
    consumer offsets and topics; not index files and checkpoints, which differ by nature. Reads only.

    \b
    Exit status: 0 the same, 3 different, 4 not everything could be read, 130 interrupted.

    \b
    Examples:
      rmqinspect diff MASTER REPLICA
      rmqinspect diff BEFORE AFTER -f json
      rmqinspect diff A/commitlog/00000000001073741824 B/commitlog/00000000001073741824
    """
    names = (shown(a), shown(b))
    format_ = choose_format(options)
    stores = open_store([a]), open_store([b])
    with interrupted_once():
        outcome = _compare(stores, options)
        interrupt_no_more()
        _tell(outcome, names, format_, options)
    return _status(outcome)


def _tell(outcome: DiffResult, names: Sequence[str], format_: str, options: dict[str, Any]) -> None:
    if format_ == "json":
        _write_document(outcome, names, options["output"])
    elif format_ != "table" or options["output"]:
        _write_table(outcome, format_, options)
    elif not options["quiet"]:
        colour = use_colour(options["color"])
        for line in _screen(outcome, names, options["verbose"]):
            click.echo(line, color=colour)
    if (format_ != "table" or options["output"]) and not options["quiet"]:
        click.echo(_verdict_line(outcome), err=True)


def _compare(stores: tuple[Store, Store], options: dict[str, Any]) -> DiffResult:
    sizes = [_size(store) for store in stores]
    with Progress(sum(sizes), options["progress"], quiet=options["quiet"]) as progress:
        for side, store in zip(SIDES, stores, strict=True):
            if (holder := lock_holder(store)) is not None:
                text = f"{side}: a broker runs on this store (pid {holder} holds the lock): the files may change"
                progress.remark(text + " while they are read")
            for remark in store.remarks if options["verbose"] else ():
                progress.remark(f"{side}: {remark}")
        if sum(sizes) > LONG_READ:
            progress.remark(
                f"{describe_size(sizes[0])} of A and {describe_size(sizes[1])} of B: what both have is read and "
                "compared; one segment of each, given by its path, is compared alone"
            )
        return compare_stores(stores, options["limit"], progress, options["zone"])


def _size(store: Store) -> int:
    return sum(file.size for file in (*store.segments, *store.queue_files))


def _status(outcome: DiffResult) -> ExitStatus:
    if outcome.interrupted is not None:
        return ExitStatus.INTERRUPTED
    if any(outcome.differences.counts.values()):
        return ExitStatus.DAMAGE
    return ExitStatus.UNREADABLE if outcome.unread else ExitStatus.DONE


def _write_document(outcome: DiffResult, names: Sequence[str], path: str | None) -> None:
    from rmqinspect.output import open_destination

    document = json.dumps(diff_document(outcome, names), ensure_ascii=False, indent=1)
    with open_destination(path, _evidence(outcome)) as out:
        lines = "\n".join(map(escape_json, document.split("\n")))
        out.write(f"{lines}\n".encode("utf-8", "backslashreplace"))


def _write_table(outcome: DiffResult, format_: str, options: dict[str, Any]) -> None:
    from rmqinspect.diff.stores import SCHEMA, difference_batches
    from rmqinspect.output import View, open_writer

    view = View(zone=options["zone"], colour=use_colour(options["color"], options["output"]))
    with open_writer(format_, SCHEMA, options["output"], view=view, evidence=_evidence(outcome)) as writer:
        writer.complete = outcome.complete
        for batch in difference_batches(outcome):
            writer.write(batch)


def _evidence(outcome: DiffResult) -> tuple[str, ...]:
    return tuple(path for store in outcome.stores for path in store.paths)


# --- the screen -----------------------------------------------------------------------------------


def _screen(outcome: DiffResult, names: Sequence[str], verbose: int) -> Iterator[str]:
    log = outcome.log
    for side, (name, store) in enumerate(zip(names, outcome.stores, strict=True)):
        yield from label(SIDES[side], f"{name}: {_store_words(store, log, side)}")
    if log is not None:
        yield from _segment_lines(outcome)
        yield from _log_lines(outcome, log, names)
        yield from _record_lines(outcome, log)
    yield from _other_lines(outcome)
    for number, note in enumerate(outcome.notes):
        yield from label("" if number else "noted", note)
    yield from label("not compared", "; ".join(not_compared(outcome)))
    if verbose:
        yield from _checkpoint_lines(outcome)
    for number, message in enumerate(outcome.unread):
        yield from label("" if number else "not read", message)
    yield _verdict_line(outcome)


def label(name: str, text: str) -> Iterator[str]:
    if text:
        lines = textwrap.wrap(
            _GROUPS.sub(_NO_BREAK, escape(text)),
            _WIDTH,
            initial_indent=f"{name:{INDENT}}",
            subsequent_indent=" " * INDENT,
            break_on_hyphens=False,
        )
        yield from (line.replace(_NO_BREAK, " ") for line in lines)


def _store_words(store: Store, log: LogDiff | None, side: int) -> str:
    if not store.segments:
        return "no commit log" if store.place == "store" else store.place.replace("_", " ")
    words = count(len(store.segments), "segment")
    if log is not None:
        covered = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in log.ranges(side))
        end = log.ends[side]
        words += f", {covered or 'nothing that the other has'}; "
        words += "no record" if end is None else f"the log ends at {group_digits(end)}"
    return words


def _segment_lines(outcome: DiffResult) -> Iterator[str]:
    counts, name = outcome.differences.counts, "segments"
    for row in outcome.differences.of("segment_only", "segment_length"):
        base = group_digits(row.physical_offset or 0)
        if row.only_in:
            yield from label(name, f"base {base} only in {row.only_in}, {count(row.length or 0, 'byte')}")
        else:
            yield from label(name, f"base {base}: {_digits(row.a)} bytes in A, {_digits(row.b)} in B")
        name = ""
    yield from _more(outcome, "segment_only", "segment_length")
    if not counts["segment_only"] + counts["segment_length"]:
        yield from label("segments", "the same bases and lengths")


def _log_lines(outcome: DiffResult, log: LogDiff, names: Sequence[str]) -> Iterator[str]:
    name = "log"
    for row in outcome.differences.of("range_only"):
        start = row.physical_offset or 0
        where = f"{group_digits(start)} to {group_digits(start + (row.length or 0))}"
        yield from label(name, f"{where} only in {row.only_in}: {row.message}")
        name = ""
    yield from _more(outcome, "range_only")
    if log.first is None:
        yield from label(name, f"{_compared(log)}: the same" if log.compared else "there is no range that both have")
        return
    yield from label(name, f"the first difference is at {describe_offset(log.first)}")
    for side, stand in enumerate(outcome.stands or ()):
        end = log.ends[side]
        ended = "the log ended before; " if end is not None and log.first >= end else ""
        yield from label(f"  {SIDES[side]}", ended + stand.text)
    shown = "; ".join(_run(row) for row in outcome.differences.of("bytes")[:_RANGES])
    if log.runs.count:
        more = ", …" if log.runs.count > _RANGES else ""
        yield from label(
            "",
            f"{_compared(log)}; not the same: {count(log.runs.differing, 'byte')} in "
            f"{count(log.runs.count, 'range')}: {shown}{more}",
        )
    for row in outcome.differences.of("log_end"):
        tail = "" if log.tail is None else f", behind which, to {group_digits(log.tail)}, stand bytes of no record"
        shorter = SIDES[1 - SIDES.index(row.only_in or "A")]
        yield from label(
            "",
            f"{shorter} ends at {group_digits(row.physical_offset or 0)}{tail}; {row.only_in} "
            f"goes on for {count(row.length or 0, 'byte')}",
        )
    for number, (name, stand) in enumerate(zip(names, outcome.stands or (), strict=True)):
        at = log.first if stand.start is None else stand.start
        if stand.kind != "nothing":
            command_next = f"rmqinspect show {shlex.quote(name)} --at {at}"
            yield escape(f"{'' if number else 'next':{INDENT}}{command_next}")  # in one line: it is to be copied


def _compared(log: LogDiff) -> str:
    words = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in log.compared[:_RANGES])
    more = ", …" if log.compared[_RANGES:] else ""
    return f"{words}{more} compared" if words else "nothing compared"


def _run(row: Difference) -> str:
    start, length = row.physical_offset or 0, row.length or 0
    if length == 1:
        return group_digits(start)
    return f"{group_digits(start)} to {group_digits(start + length)}"


def _record_lines(outcome: DiffResult, log: LogDiff) -> Iterator[str]:
    for side, only in enumerate(log.only):
        if not only.count:
            continue
        topics = [f"{topic} {group_digits(number)}" for topic, number in only.by_topic.items()]
        shown = ", ".join(topics[:_TOPICS]) + (f" and {len(topics) - _TOPICS} more topics" if topics[_TOPICS:] else "")
        yield from label("records", f"{group_digits(only.count)} only in {SIDES[side]}: {shown}")
        if only.elsewhere:
            about = "" if only.elsewhere_exact else "about "
            yield from label(
                "",
                f"{about}{group_digits(only.elsewhere)} of them {SIDES[1 - side]} has at another "
                "offset: same queue offset, time and body",
            )
        rows = [row for row in outcome.differences.of("record_only") if row.only_in == SIDES[side]]
        for row in rows:
            yield from label(
                "",
                f"{group_digits(row.physical_offset or 0)}: {row.topic} queue {row.queue_id} offset "
                f"{row.queue_offset}, {row.a or row.b}; {row.message}",
            )
        if only.count > len(rows):
            yield from label("", f"and {group_digits(only.count - len(rows))} more: --limit shows them")
    if not any(only.count for only in log.only):
        yield from label("records", "none that only one of the two has, where bytes were compared")


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
        yield from label(part, words)
        for row in outcome.differences.of(*kinds):
            yield from label("", _row_words(row))
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
            return f"{queue}: {count(row.count, 'unit')} differ, first {offset}: A {row.a}; B {row.b}"
        case "group_offset":
            return f"{row.group} at {queue}: {_digits(row.a)} in A, {_digits(row.b)} in B"
    return f"{row.topic} only in {row.only_in}"


def _digits(text: str | None) -> str:
    return "none" if text is None else group_digits(int(text))


def _more(outcome: DiffResult, *kinds: str) -> Iterator[str]:
    left = sum(outcome.differences.counts[kind] for kind in kinds) - len(outcome.differences.of(*kinds))
    if left:
        yield from label("", f"and {group_digits(left)} more: --limit shows them")


def _checkpoint_lines(outcome: DiffResult) -> Iterator[str]:
    try:
        a, b = (read_checkpoint(store) for store in outcome.stores)
    except Unreadable as error:
        yield from label("checkpoint", str(error))
        return
    for number, name in enumerate(dict.fromkeys((*a, *b))):
        values = (str(found.get(name, "none")) for found in (a, b))
        yield from label("" if number else "checkpoint", f"{name}: {' in A, '.join(values)} in B")


def _verdict_line(outcome: DiffResult) -> str:
    words = outcome.verdict
    if outcome.differences.parts:
        words += f": {', '.join(outcome.differences.parts)}"
    if outcome.interrupted is not None:
        words += f"; interrupted, {outcome.interrupted}"
    elif outcome.unread:
        words += f"; {count(len(outcome.unread), 'place')} could not be read"
    return f"{'VERDICT':{INDENT}}{words}"

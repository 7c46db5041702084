"""What `find` prints: hits as rows, what became of them, and why there are no others; or one JSON document.

The lives of the messages that `find` has found: which hits are traced, once for each message.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rmqinspect.cli.decode import RowsPlan, read_view
from rmqinspect.cli.life_screen import life_document, life_lines
from rmqinspect.cli.pager import as_answer
from rmqinspect.cli.session import json_line, write_lines
from rmqinspect.cli.terminal import Progress, Screen
from rmqinspect.codec.arrays import Span
from rmqinspect.commands import SHOW, fill_command
from rmqinspect.errors import NothingFound, RmqinspectError, Unreadable
from rmqinspect.find.finding import Finding, Searched, answers
from rmqinspect.find.life import Life, LifeTracer
from rmqinspect.find.misses import Miss
from rmqinspect.find.places import Found, out_of_reach
from rmqinspect.find.search import Scope
from rmqinspect.output import SCHEMA_VERSION, View, Writer, open_destination, open_writer
from rmqinspect.output.rows import json_objects
from rmqinspect.output.screen import ScreenTable
from rmqinspect.statuses import status_words
from rmqinspect.store.model import Store
from rmqinspect.system.run import with_run
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.sources import unread_places
from rmqinspect.text import count, describe_spans, group_digits
from rmqinspect.times import format_micros
from rmqinspect.version import tool_name

if TYPE_CHECKING:
    from rmqinspect.output.writer import Out

MOST_LIVES = 5  # that are traced unless all are asked for
_MOST_HITS = 50  # of which some are traced: more are an overview


_AT_ONCE = 64  # hits whose copies are searched together


class Traced(NamedTuple):
    """The life of a message in one store."""

    store: "Store"
    life: Life


class Lives:
    """Takes hits, and traces their lives. Copies of one message have one life."""

    def __init__(
        self,
        life: bool | None,
        *,
        scan: bool,
        jobs: int,
        unread: dict[str, None],
        trace_topics: tuple[str, ...] = (),
    ) -> None:
        """Trace all hits, none, or a few of few (None); `scan`: by reading the whole log, in so many threads.

        `unread` gets a line for everything that the lives need and that could not be read. `trace_topics` hold message
        traces, besides those that are found.
        """
        self._trace_topics = trace_topics
        self.unread = unread
        self._all = life is True
        self._wanted = life is not False
        self._scan, self._jobs = scan, jobs
        self._hits: list[tuple[Store, int]] = []
        self._left = self._traces = 0
        self._problems: list[str] = []

    def take(self, store: "Store", rows: "pa.RecordBatch") -> None:
        """Take some hits."""
        if self._wanted and (self._all or len(self._hits) <= _MOST_HITS):
            self._hits += ((store, place) for place in rows.column("physical_offset").to_pylist())

    def traced(self) -> Iterator[Traced]:
        """Yield the lives, in the order of the hits."""
        if not self._all and len(self._hits) > _MOST_HITS:
            return
        shown, met = 0, set[tuple[str, int]]()
        tracers: dict[str, LifeTracer] = {}
        with ExitStack() as stack:
            for number, (store, place) in enumerate(self._hits):
                if (store.name, place) in met:
                    continue
                if store.name not in tracers:
                    tracers[store.name] = stack.enter_context(LifeTracer(store, self._trace_topics))
                if not self._all and tracers[store.name].holds_traces(place):
                    self._traces += 1
                    continue
                if shown == MOST_LIVES and not self._all:
                    self._left += 1
                    continue
                if self._all and not tracers[store.name].is_prepared(place):
                    following = self._hits[number : number + _AT_ONCE]
                    with suppress(Unreadable):  # then each is traced for itself, and says so
                        tracers[store.name].prepare(
                            at for one, at in following if one is store and (one.name, at) not in met
                        )
                life = self._trace(tracers[store.name], place)
                if life is not None:
                    shown += 1
                    met |= {(store.name, step.physical_offset) for step in life.steps}
                    tracer = tracers[store.name]
                    why = tracer.consumers.unread
                    groups = [] if why is None else [f"groups not known: {why}"]
                    lines = unread_places(tracer.store, (GROUPS.name,)) or groups
                    self.unread.update(dict.fromkeys([*lines, *tracer.unread]))
                    yield Traced(store, life)

    def _trace(self, tracer: LifeTracer, place: int) -> Life | None:
        try:
            return tracer.trace(place, everything=self._scan, jobs=self._jobs)
        except (NothingFound, Unreadable) as error:  # the files may change while they are read
            self._problems.append(str(error))
            return None

    def remarks(self) -> Iterator[str]:
        """Yield what was not traced, after `traced`."""
        yield from self._problems
        if self._wanted and not self._all and len(self._hits) > _MOST_HITS:
            yield "--life shows what became of each message"
        if self._traces:
            yield f"{count(self._traces, 'hit')} of message traces, whose keys name it: --life shows their lives, too"
        if self._left:
            yield f"the lives of {group_digits(MOST_LIVES)} messages are shown; --life shows those of all hits"


_SCREEN = Screen(indent=16)
_LISTED = 3  # of what could not be read


@contextmanager
def open_sink(
    format_: str, plan: RowsPlan, evidence: Sequence[str], progress: Progress
) -> "Iterator[_Rows | _ScreenSink | _Document]":
    """Yield where hits and misses go in a format.

    :raises Refused: the output exists, lies inside the evidence, or cannot be written.
    """
    arguments, view = plan.arguments, read_view(plan.arguments, plan.body)
    if format_ == "table":
        with open_destination(arguments.output, evidence) as out:
            yield _ScreenSink(plan, out, view)
        return
    if format_ == "json":
        with open_destination(arguments.output, evidence) as out:
            document = _Document(plan, out, view)
            try:
                yield document
            except (KeyboardInterrupt, RmqinspectError):
                if arguments.output in (None, "-"):
                    document.break_off()
                raise
        return
    with open_writer(format_, plan.shown_schema, arguments.output, view=view, evidence=evidence) as writer:
        yield _Rows(plan, writer, progress)


class _Rows:
    """Rows to a writer; misses to stderr."""

    def __init__(self, plan: RowsPlan, writer: Writer, progress: Progress) -> None:
        self._plan, self._writer, self._progress = plan, writer, progress

    def take(self, store: Store, rows: pa.RecordBatch) -> None:
        """Write some hits."""
        self._writer.write(self._plan.shape(rows, store))

    def conclude(self, finding: Finding, misses: Sequence[Miss], lives: Iterator[Traced]) -> None:
        """Write what became of the hits, and why there are no others."""
        self._writer.complete = finding.complete
        self._writer.more = bool(finding.more)
        for line in miss_lines(finding, misses):
            self._progress.complain(line)


class _ScreenSink:
    """A table of hits, then the misses."""

    def __init__(self, plan: RowsPlan, out: "Out", view: View) -> None:
        self._plan, self._out = plan, out
        self._view = view
        self._table: ScreenTable | None = None

    def take(self, store: Store, rows: pa.RecordBatch) -> None:
        """Write some hits."""
        if self._table is None:
            self._table = ScreenTable(self._plan.shown_schema, self._out, self._view)
        self._table.write(self._plan.shape(rows, store))

    def conclude(self, finding: Finding, misses: Sequence[Miss], lives: Iterator[Traced]) -> None:
        if self._table is not None:
            self._table.finish()
        for traced in lives:
            write_lines(self._out, "", *self._life_lines(traced, finding))
        lines = list(miss_lines(finding, misses))
        if lines and self._table is not None:
            lines.insert(0, "")
        with as_answer():
            write_lines(self._out, *lines)

    def _life_lines(self, traced: Traced, finding: Finding) -> Iterator[str]:
        arguments = self._plan.arguments
        if (found := out_of_reach(traced.store, traced.life)) is not None:
            yield from _SCREEN.rows(found.reason, found.text)
        named = f"{traced.store.name}: " if len(finding.searched) > 1 else ""
        yield from life_lines(
            traced.life,
            arguments.zone,
            arguments.redact,
            record=named if finding.total > 1 else None,
            everything=arguments.verbose > 0,
        )


# --- misses as lines ------------------------------------------------------------------------------


def miss_lines(finding: Finding, misses: Sequence[Miss]) -> Iterator[str]:
    """Yield the lines that explain misses, store by store."""
    searched = {one.store.name: one for one in finding.searched}
    for name in dict.fromkeys(miss.store for miss in misses):
        yield from _store_lines(searched[name], [miss for miss in misses if miss.store == name], finding)


def _store_lines(searched: Searched, misses: Sequence[Miss], finding: Finding) -> Iterator[str]:
    several = len(finding.searched) > 1
    if several:
        yield _SCREEN.line("store", searched.store.name)
    for asked in dict.fromkeys(miss.asked for miss in misses):
        readings = [miss for miss in misses if miss.asked == asked]
        yield from _question_lines(readings, searched.store, named=len(finding.questions) > 1)
    yield from _SCREEN.several("acknowledged", dict.fromkeys(miss.acknowledged for miss in misses if miss.acknowledged))
    scopes = {id(miss.scope): miss.scope for miss in misses if miss.scope is not None}
    for scope in scopes.values():
        yield from _SCREEN.rows("searched", describe_scope(scope))
        yield from _SCREEN.several("unread", scope.unread[:_LISTED])
    yield from _SCREEN.rows("not searched", _describe_rest(searched, list(scopes.values()), several=several))


def _question_lines(readings: Sequence[Miss], store: Store, *, named: bool) -> Iterator[str]:
    """Yield the answer to one question, then why it is that one, for each way to read what was asked."""
    asked = f"{readings[0].asked}: " if named else ""
    for answering in answers(readings):
        yield from _SCREEN.rows("answer", f"{asked}{answering.answer}")
    for miss in readings:
        reading = "" if miss.reading is None else f"as {miss.reading}: "
        yield from _SCREEN.rows(miss.reason, f"{asked}{reading}{miss.text}")
        if miss.place is not None:
            yield from _SCREEN.command("next", fill_command(SHOW, store.words, at=miss.place))
        yield from _SCREEN.rows("near", ", ".join(miss.near))
        yield from _SCREEN.several("instead", miss.instead)


def describe_scope(scope: Scope) -> str:
    """Return what was searched: which bytes, of which times, and what is wrong with them."""
    if scope.whole[0] == scope.whole[1]:
        return ""
    spans = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in scope.spans[:_LISTED])
    if len(scope.spans) > _LISTED:
        spans += f" and {count(len(scope.spans) - _LISTED, 'more range')}"
    parts = [f"physical {spans}" if spans else "nothing of the log", count(scope.records, "record")]
    if scope.first_time is not None and scope.last_time is not None:
        parts.append(f"{format_micros(scope.first_time)} to {format_micros(scope.last_time)}")
    gaps = describe_gaps(scope.gaps) if scope.gaps else "no gap"
    unread = count(len(scope.unread), "problem") + " with reading" if scope.unread else "no unreadable byte"
    state = "complete" if scope.complete else "incomplete"
    bad = "".join(
        f"; {count(number, 'record')} with status {status_words(name)}"
        for name, number in sorted(scope.statuses.items())
    )
    return f"{', '.join(parts)}; {state}: {gaps}, {unread}{bad}"


def describe_gaps(gaps: Sequence[Span]) -> str:
    """Return how many gaps there are, of how many bytes, and where the first ones are."""
    size = sum(end - start for start, end in gaps)
    return f"{count(len(gaps), 'gap')} of {count(size, 'byte')}, {describe_spans(gaps, _LISTED)}"


def _describe_rest(searched: Searched, scopes: Sequence[Scope], *, several: bool) -> str:
    rest = [] if several else ["other brokers of the cluster"]
    start = searched.store.log_start
    if start:
        rest.append(f"anything before physical offset {group_digits(start)}")
    if scopes and all(scope.pointed and scope.whole[0] < scope.whole[1] for scope in scopes):
        rest.append("the rest of the log: --scan reads it")
    return ", ".join(rest)


# --- the JSON document ------------------------------------------------------------------------------


class _Document:
    """One JSON object: hits as `rows`, then the stores, and why there are no others."""

    def __init__(self, plan: RowsPlan, out: "Out", view: View) -> None:
        self._plan, self._out, self._view = plan, out, view
        head: dict[str, object] = {"schema_version": SCHEMA_VERSION, "tool": tool_name()}
        if view.redacted:
            head["redacted"] = list(view.redacted)
        out.write(json.dumps(head)[:-1].encode() + b', "rows": [')
        self._empty = True

    def take(self, store: Store, rows: pa.RecordBatch) -> None:
        """Write some hits."""
        for row in range(rows.num_rows):
            text = json_objects(self._plan.shape(rows.slice(row, 1), store), self._view.zone)[0].as_py()
            self._out.write(f"{'' if self._empty else ','}\n{text}".encode())
            self._empty = False

    def conclude(self, finding: Finding, misses: Sequence[Miss], lives: Iterator[Traced]) -> None:
        redaction = self._plan.arguments.redact
        tail = {
            "lives": [
                {
                    "store": one.store.name,
                    "reach": _reach_document(out_of_reach(one.store, one.life)),
                    **life_document(one.life, self._view.zone, redaction),
                }
                for one in lives
            ],
            "stores": [
                {"name": one.store.name, "hits": one.hits, **scope_document(one.scope)} for one in finding.searched
            ],
            "misses": [_miss_document(miss) for miss in misses],
            "complete": finding.complete,
            "more": bool(finding.more),
        }
        self._end(tail)

    def break_off(self) -> None:
        """Write the end of a document that was interrupted, with `complete` false."""
        self._end({"complete": False, "more": False})

    def _end(self, tail: dict[str, Any]) -> None:
        write_lines(self._out, f"{'' if self._empty else chr(10)}], {json_line(with_run(tail))[1:]}")


def scope_document(scope: Scope) -> dict[str, Any]:
    """Return what was searched as JSON."""
    return {
        "way": scope.way,
        "told": scope.told,
        "searched": [{"start": start, "end": end} for start, end in scope.spans],
        "log": {"start": scope.whole[0], "end": scope.whole[1]},
        "whole": scope.is_whole,
        "complete": scope.complete,
        "records": scope.records,
        "first_store_timestamp": _time(scope.first_time),
        "last_store_timestamp": _time(scope.last_time),
        "gaps": [{"start": start, "end": end} for start, end in scope.gaps],
        "statuses": dict(sorted(scope.statuses.items())),
        "unread": scope.unread,
    }


def _time(micros: int | None) -> str | None:
    return None if micros is None else format_micros(micros)


def _reach_document(found: Found | None) -> dict[str, str] | None:
    return None if found is None else {"reason": found.reason, "text": found.text}


def _miss_document(miss: Miss) -> dict[str, Any]:
    return {
        "store": miss.store,
        "asked": miss.asked,
        "reading": miss.reading,
        "answer": miss.answer,
        "reason": miss.reason,
        "text": miss.text,
        "acknowledged": miss.acknowledged or None,
        "searched": None if miss.scope is None else scope_document(miss.scope),
        "near": miss.near,
        "instead": miss.instead,
    }

"""`rmqinspect find`: messages of one or several stores, and why there are none.

`rmqinspect find --pull` and `--offset-by-time`: what the broker of a store would answer a consumer.

options -> ask -> Told: the answers of one store -> a screen, or the rows of one JSON document
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqinspect.cli import exit_status
from rmqinspect.cli.decode import RowsPlan, make_plan, read_view
from rmqinspect.cli.options import choose_format, count_jobs, open_named
from rmqinspect.cli.selection import read_selection, read_time
from rmqinspect.cli.session import Session, json_line, refuse_early, with_offsets, write_document, write_lines
from rmqinspect.cli.terminal import Screen
from rmqinspect.cli.verbs.find import FindArguments, QuestionOptions
from rmqinspect.codec.message_id import split_batch
from rmqinspect.document import as_object
from rmqinspect.statuses import SOUND
from rmqinspect.system.run import with_run
from rmqinspect.text import count, group_digits
from rmqinspect.times import format_millis
from rmqinspect.version import tool_name

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.find.finding import Finding, Target
    from rmqinspect.find.pull_answers import Agreed, AskedQueue
    from rmqinspect.find.search import Scope
    from rmqinspect.output import View
    from rmqinspect.output.writer import Out
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection

_SCREEN = Screen(indent=14)
_USUAL_COUNT = 32  # messages: `pullBatchSize` of a push consumer
_OF_PULL = ("status", "next_offset", "min_offset", "max_offset", "filtered")  # of `broker.pull.Answer`


def refuse_unfit(arguments: QuestionOptions, format_: str) -> None:
    """Refuse options that do not fit a question to a broker, or belong to one only.

    :raises click.UsageError: there are some.
    """
    from rmqinspect.tables.filters import Selection

    if not arguments.asks_broker:
        if arguments.boundary or (arguments.broker_version and not arguments.lost_at_start):
            raise click.UsageError("--boundary and --broker-version belong to --pull and --offset-by-time.")
        arguments.refuse_unused()
        return
    if arguments.exit is not None:
        raise click.UsageError("--exit belongs to --lost-at-start.")
    if arguments.pull is not None and arguments.offset_by_time is not None:
        raise click.UsageError("Give --pull or --offset-by-time, not both.")
    if arguments.pull is not None and arguments.boundary is not None:
        raise click.UsageError("--boundary belongs to --offset-by-time.")
    selection = read_selection(arguments)
    allowed = replace(selection, tags=()) if arguments.pull is not None else selection
    if allowed != Selection() or arguments.since is not None or arguments.until is not None:
        raise click.UsageError("--pull and --offset-by-time name their queue; of the filters only --pull takes --tag.")
    if format_ not in ("table", "json"):
        raise click.UsageError("--pull and --offset-by-time print -f table or json.")


def answer(arguments: QuestionOptions, stores: "Sequence[Store]", format_: str) -> int:
    """Print what the brokers of stores answer, and return the exit status.

    :raises click.UsageError: a tag, number or time does not fit.
    """
    from rmqinspect.output import open_destination
    from rmqinspect.tables.table import QUEUE_DATABASES

    ask = _ask_pull(arguments) if arguments.pull is not None else _ask_time(arguments)
    view = read_view(arguments, "none")
    told: list[_Told] = []
    with Session(arguments, stores) as session, open_destination(arguments.output, session.evidence) as out:
        for store in session.stores(QUEUE_DATABASES, "messages", "queues"):
            told.append(ask(store))
            if format_ != "json":
                _print_screen(told, out, view, several=len(stores) > 1)
        if format_ == "json":
            document = _document(told, view, complete=not session.unread)
            write_lines(out, json_line(document))
    found = any(one.queue_exists for one in told)
    return session.status(damaged=any(one.damaged for one in told), missed=not found)


# --- asking -------------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What some releases answer alike."""

    spans: str  # the releases, in words
    row: dict[str, Any]  # of the document
    messages: "pa.RecordBatch | None" = None  # those of a pull


@dataclass(frozen=True, slots=True)
class _Told:
    """All that one store answers."""

    store: str
    queue_exists: bool
    queue: str  # the queue and its ends
    asked: str  # the question in words
    question: dict[str, Any]  # the same in the document
    answers: Sequence[_Answer]
    notes: Sequence[str]
    unknown: str | None  # why the queue cannot be asked
    damaged: bool = False  # whether a message that is given is no sound record


def _ask_pull(arguments: QuestionOptions) -> "Callable[[Store], _Told]":
    """Return what asks one store to be pulled from."""
    from rmqinspect.broker.pull import Limits, Pull, Subscription
    from rmqinspect.find.pull_answers import asked_queue, consequence, why

    assert arguments.pull is not None
    topic, queue_id, offset = arguments.pull
    try:
        subscription = Subscription.parse(" || ".join(arguments.tags) or None)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--tag") from error
    number = _USUAL_COUNT if arguments.limit is None else arguments.limit
    if not number:
        raise click.BadParameter("a consumer asks for one message at least", param_hint="-n")
    tags = f", tag {' || '.join(arguments.tags)}" if arguments.tags else ""
    words = f"offset {group_digits(offset)}, {count(number, 'message')}{tags}"
    question = {"offset": offset, "count": number, "tags": sorted(subscription.tags)}

    def ask(store: "Store") -> _Told:
        pull = Pull(offset, number, subscription, Limits.from_settings(store.settings))
        answers = []
        damaged = False
        with asked_queue(store, topic, queue_id, arguments.broker_version) as asked:
            for one in asked.pull(pull):
                found = one.answer
                row = {name: getattr(found, name) for name in _OF_PULL}
                messages = asked.messages(pull, found.units)
                damaged |= any(status not in SOUND["status"] for status in messages.column("status").to_pylist())
                dropped = messages.column("client").to_pylist().count("drops")
                # Passed over are units whose record is not in the log; `then` is what the consumer does.
                row |= {"passed_over": found.unreadable, "why": why(pull, found)}
                row["then"] = consequence(pull, found, dropped)
                shown = arguments.redact.mask(messages) if arguments.redact else messages
                answers.append(_Answer(one.spans, _head(asked, one) | row, shown))
            return replace(_told(asked, words, question, answers, asked.refusals()), damaged=damaged)

    return ask


def _ask_time(arguments: QuestionOptions) -> "Callable[[Store], _Told]":
    """Return what asks one store for an offset."""
    from rmqinspect.find.pull_answers import asked_queue
    from rmqinspect.tables.sources import last_store_time

    assert arguments.offset_by_time is not None
    topic, queue_id, text = arguments.offset_by_time
    now, boundary = datetime.now(UTC), arguments.boundary

    def iso(millis: int) -> str:
        return format_millis(millis, arguments.zone) or str(millis)

    def ask(store: "Store") -> _Told:
        moment = (read_time("offset-by-time", text, arguments.zone, partial(last_store_time, store), now) or 0) // 1000
        answers = []
        with asked_queue(store, topic, queue_id, arguments.broker_version) as asked:
            for one in asked.by_time(moment, boundary):
                stored = asked.store_time(one.answer)
                time = None if stored is None else iso(stored)
                row = {"offset": one.answer, "store_timestamp": time}
                answers.append(_Answer(one.spans, _head(asked, one) | row))
            words = f"time {iso(moment)}" + (f", boundary {boundary}" if boundary else "")
            question = {"time": iso(moment), "boundary": boundary}
            return _told(asked, words, question, answers, (*asked.time_notes(boundary), *asked.refusals()))

    return ask


def _head(asked: "AskedQueue", agreed: "Agreed[Any]") -> dict[str, Any]:
    return {"store": asked.store.name, "queue_exists": asked.queue is not None, "releases": agreed.releases}


def _told(
    asked: "AskedQueue", words: str, question: dict[str, Any], answers: Sequence[_Answer], notes: Iterable[str]
) -> _Told:
    # The ends are those in the eyes of the first release.
    ends = None if asked.queue is None else asked.queue.ends(asked.releases[0])
    if ends is not None:
        extent = f"minimum {group_digits(ends[0])}, maximum {group_digits(ends[1])}"
    else:
        extent = f"not known: {asked.unknown}" if asked.unknown else "no such queue in the store"
    return _Told(
        asked.store.name,
        asked.queue is not None,
        f"{asked.topic} {asked.queue_id}: {extent}",
        words,
        {"topic": asked.topic, "queue_id": asked.queue_id, **question},
        answers,
        tuple(notes),
        asked.unknown,
    )


# --- what is printed ----------------------------------------------------------------------------------


def _print_screen(told: Sequence[_Told], out: "Out", view: "View", *, several: bool) -> None:
    """Print the screen of the last store; `several`: with its name."""
    from rmqinspect.output.screen import ScreenTable

    one = told[-1]
    lines = [""] if len(told) > 1 else []
    lines += _SCREEN.rows("store", one.store if several else "")
    lines += _SCREEN.rows("queue", one.queue)
    lines += _SCREEN.rows("asked", one.asked)
    for answer in one.answers:
        row = answer.row
        if answer.messages is None:
            time = row["store_timestamp"]
            stored = "no message there" if time is None else f"a message of {time}"
            lines += _SCREEN.rows("offset", f"{group_digits(row['offset'])}: {stored}  ({answer.spans})")
            continue
        words = f"{row['status']}, next offset {group_digits(row['next_offset'])}  ({answer.spans})"
        lines += ["", *_SCREEN.rows("answer", words)]
        lines += _SCREEN.rows("why", row["why"])
        lines += _SCREEN.rows("then", row["then"])
        if answer.messages.num_rows:
            write_lines(out, *lines, "")
            lines = []
            table = ScreenTable(answer.messages.schema, out, view)
            table.write(answer.messages)
            table.finish()
    for note in one.notes:
        lines += _SCREEN.rows("note", note)
    write_lines(out, *lines)


def _document(told: Sequence[_Told], view: "View", *, complete: bool) -> dict[str, Any]:
    """Return one JSON object: a row for each answer of each store."""
    from rmqinspect.output.rows import json_objects

    document: dict[str, Any] = {"schema_version": 1, "tool": tool_name(), "complete": complete}
    if view.redacted:
        document["redacted"] = list(view.redacted)
    notes, rows = [], []
    for one in told:
        texts = [f"not known: {one.unknown}", *one.notes] if one.unknown else one.notes
        notes += [{"store": one.store, "text": text} for text in texts]
        for answer in one.answers:
            rows.append(answer.row)
            if (messages := answer.messages) is not None:
                texts = json_objects(messages, view.zone).to_pylist() if messages.num_rows else []
                answer.row["messages"] = [json.loads(text) for text in texts]
    return with_run(document | {"asked": told[-1].question, "rows": rows, "notes": notes})


# --- messages -----------------------------------------------------------------------------------------


def run(arguments: FindArguments) -> int:
    """Do what `find` is asked for, and return the exit status."""
    format_ = choose_format(arguments)
    refuse_unfit(arguments, format_)

    if arguments.evidence and (arguments.asks_broker or arguments.redact is not None):
        raise click.UsageError("--evidence is about records, and has their bytes: not with --pull or --redact.")
    selection = read_selection(arguments)
    ids = tuple(dict.fromkeys(one for text in selection.ids for one in split_batch(text) or [text]))
    selection = replace(selection, ids=ids, keys_name_ids=True)
    stores = open_named(arguments)
    if arguments.asks_broker:
        return answer(arguments, stores, format_)
    with ExitStack() as copies:
        if arguments.lost_at_start:
            stores = list(copies.enter_context(with_offsets(stores, arguments, arguments.unpacking)))
        return _find(arguments, stores, selection, format_)


def _find(arguments: FindArguments, stores: "Sequence[Store]", selection: "Selection", format_: str) -> int:
    """Print the messages of stores that a selection chooses, and why there are none; return the exit status."""
    from rmqinspect.cli.find_screen import Lives, open_sink
    from rmqinspect.export.request import filters
    from rmqinspect.find.evidence import Hits, evidence_of
    from rmqinspect.find.finding import Finding
    from rmqinspect.tables.log import MESSAGES_TABLE

    plan = make_plan(stores, MESSAGES_TABLE, arguments, selection, format_)
    with (
        Session(arguments, stores, plan.size) as session,
        open_sink(format_, plan, session.evidence, session.progress) as sink,
    ):
        progress = session.progress
        refuse_early(arguments.evidence, session.evidence)
        proof = Hits()
        ways = ", ".join(dict.fromkeys("by a scan" if one.look_up is None else one.look_up.way for one in plan.reads))
        session.announce(f": {ways}. Cheaper: --id, -k, --queue-offset with -t and --queue, or --since and --until")
        # What is lost is another question in each store: only the targets have it.
        asked = replace(selection, lost_at_start=None)
        targets = list(_targets(plan, session))
        for target in targets if arguments.evidence else ():
            proof.watch(target.store)
        finding = Finding(targets, asked, arguments.limit, arguments.redact)
        life = arguments.life if format_ in ("table", "json") else False
        lives = Lives(
            life,
            scan=arguments.scan,
            jobs=count_jobs(arguments),
            unread=finding.beside,
            trace_topics=arguments.trace_topics,
        )
        with closing(finding.hits()) as hits:
            for store, rows in hits:
                progress.clear()  # stdout and stderr may be the same terminal
                sink.take(store, rows)
                lives.take(store, rows)
                if arguments.evidence:
                    proof.take(store, rows)
        misses = list(finding.misses())
        for line in _remarks(finding, plan):
            progress.remark(line)
        progress.clear()
        sink.conclude(finding, misses, lives.traced())
        for line in lives.remarks():
            progress.remark(line)
        for line in lives.unread:
            progress.complain(line)
        unread = finding.unread
        if arguments.evidence:
            written = evidence_of(finding, misses, proof, filters(asked))
            unread = unread or ([] if written.complete else ["changed, or could not be read again"])
            digest = write_document(with_run(as_object(written)), arguments.evidence, session.evidence)
            progress.remark(f"{arguments.evidence}  sha256 {digest}")
    return exit_status(arguments.fail_on, damaged=finding.bad_hits, unread=unread, missed=finding.unanswered)


def _targets(plan: RowsPlan, session: Session) -> "Iterator[Target]":
    """Yield what is searched; what is unpacked from RocksDB exists until the session ends."""
    from rmqinspect.find.evidence import COLUMNS
    from rmqinspect.find.finding import Target
    from rmqinspect.find.life import LIFE_DATABASES
    from rmqinspect.tables.sources import range_to_read
    from rmqinspect.tables.table import QUEUE_DATABASES

    arguments = plan.arguments
    assert isinstance(arguments, FindArguments)
    databases = QUEUE_DATABASES if arguments.life is False else LIFE_DATABASES
    for read in plan.reads:
        told = len(session.unread)
        store = session.enter(session.opened(read.store, databases, plan.table.name))
        request = session.request(
            store,
            offsets=range_to_read(store, read.selection.offsets),
            named=read.selection.named,
            raw_body=arguments.raw_body,
            max_body=arguments.max_body,
            columns=plan.wanted | {"physical_offset"} | (COLUMNS if arguments.evidence else frozenset()),
        )
        look_up = None if plan.scan else read.look_up
        yield Target(store, read.selection, look_up, request, (*session.unread[told:], *read.unread))


def _remarks(finding: "Finding", plan: RowsPlan) -> Iterator[str]:
    """Yield the way taken in each store, and what a reader of the hits should know."""
    several = len(plan.reads) > 1
    for read in plan.reads:
        yield from (f"{read.store.name}: {remark}" if several else remark for remark in read.remarks)
    for one in finding.searched:
        head = f"{one.store.name}: " if several else ""
        yield f"{head}{_describe_way(one.scope)}"
        for question, second in one.second.items():
            yield f"{head}{question.shown} as msg id: {_describe_way(second)}"
    for question, reading in finding.readings.items():
        yield f"{question.shown}: found as {reading}"
    if finding.more:
        yield f"shown {group_digits(finding.total)}, {finding.more} (-n {plan.arguments.limit})"


def _describe_way(scope: "Scope") -> str:
    told = f": {scope.told}" if scope.told else ""
    return f"{scope.way}{told}; {count(scope.records, 'record')} read"

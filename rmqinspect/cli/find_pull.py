"""`rmqinspect find --pull` and `--offset-by-time`: what the broker of a store would answer a consumer.

options -> ask -> Told: the answers of one store -> a screen, or the rows of one JSON document
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.cli.decode import read_view
from rmqinspect.cli.selection import read_selection, read_time
from rmqinspect.cli.session import Session, json_line, write_lines
from rmqinspect.cli.terminal import Screen
from rmqinspect.cli.verbs.find import QuestionOptions
from rmqinspect.statuses import SOUND
from rmqinspect.system.run import with_run
from rmqinspect.text import count, group_digits
from rmqinspect.times import format_millis
from rmqinspect.version import tool_name

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.broker.pull import Pull
    from rmqinspect.find.pull_answers import Agreed, AskedQueue, Given, Refused
    from rmqinspect.output import View
    from rmqinspect.output.writer import Out
    from rmqinspect.store.model import Store

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
        if arguments.group:
            raise click.UsageError("--group belongs to --pull.")
        arguments.refuse_unused()
        return
    if arguments.exit is not None:
        raise click.UsageError("--exit belongs to --lost-at-start.")
    if arguments.pull is not None and arguments.offset_by_time is not None:
        raise click.UsageError("Give --pull or --offset-by-time, not both.")
    if arguments.pull is None and arguments.group:
        raise click.UsageError("--group belongs to --pull.")
    if arguments.pull is not None and arguments.boundary is not None:
        raise click.UsageError("--boundary belongs to --offset-by-time.")
    selection = read_selection(arguments)
    allowed = dataclasses.replace(selection, tags=()) if arguments.pull is not None else selection
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
    found = any(one.queue_exists and not one.refused for one in told)
    return session.status(damaged=any(one.damaged for one in told), missed=not found)


# --- asking -------------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What some releases answer alike."""

    spans: str  # the releases, in words
    row: dict[str, Any]  # of the document
    messages: "pa.RecordBatch | None" = None  # those of a pull


class _Told(Struct, frozen=True):
    """All that one store answers."""

    store: str
    queue_exists: bool
    queue: str  # the queue and its ends
    asked: str  # the question in words
    question: dict[str, Any]  # the same in the document
    answers: Sequence[_Answer]
    notes: Sequence[str]
    unknown: str | None  # why the queue cannot be asked
    damaged: bool = False  # whether a message that is given is no sound record, or a sound one never comes
    refused: bool = False  # whether the brokers of all releases refuse


def _ask_pull(arguments: QuestionOptions) -> "Callable[[Store], _Told]":
    """Return what asks one store to be pulled from."""
    from rmqinspect.broker.pull import Limits, Pull, Subscription
    from rmqinspect.find.pull_answers import Refused, asked_queue
    from rmqinspect.find.pull_words import consequence

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
            answered = asked.pull(pull, arguments.group)
            for one in answered:
                if isinstance(one.answer, Refused):
                    answers.append(_Answer(one.spans, _head(asked, one) | _refused_row(pull, one.answer)))
                    continue
                messages = asked.messages(pull, one.answer)
                damaged |= _is_damaged(one.answer, messages)
                dropped = messages.column("client").to_pylist().count("drops")
                shown = arguments.redact.mask(messages) if arguments.redact else messages
                row = _given_row(pull, one.answer) | {"then": consequence(pull, one.answer, dropped)}
                answers.append(_Answer(one.spans, _head(asked, one) | row, shown))
            refused = bool(answered) and all(isinstance(one.answer, Refused) for one in answered)
            told = _told(asked, words, question, answers, asked.notes())
            return replace(told, damaged=damaged, refused=refused)

    return ask


def _given_row(asked: "Pull", given: "Given") -> dict[str, Any]:
    """Return what the document says of a pull that is answered."""
    from rmqinspect.find.pull_words import why

    found = given.answer
    row = {name: getattr(found, name) for name in _OF_PULL}
    # Passed over are units whose record is not in the log; missed are offsets of sound messages.
    row |= {"passed_over": len(found.passed), "wrong": len(given.wrong)}
    row["missed"] = [unit.queue_offset + more for unit in given.missed for more in range(unit.messages)]
    return row | {"code": None, "cure": None, "why": why(asked, found)}


def _refused_row(asked: "Pull", refused: "Refused") -> dict[str, Any]:
    """Return what the document says of a pull that is refused."""
    from rmqinspect.find.pull_words import REFUSED, after_refusal, why_refused

    row = {"status": REFUSED, "next_offset": asked.offset}
    row |= {"min_offset": refused.min_offset, "max_offset": refused.max_offset}
    row |= {"filtered": 0, "passed_over": 0, "wrong": 0, "missed": []}
    row |= {"code": refused.refusal.code, "cure": refused.refusal.cure}
    return row | {"why": why_refused(refused), "then": after_refusal(refused)}


def _is_damaged(given: "Given", messages: "pa.RecordBatch") -> bool:
    bad = any(status not in SOUND["status"] for status in messages.column("status").to_pylist())
    return bad or bool(given.wrong or given.missed or given.answer.failing)


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
            return _told(asked, words, question, answers, (*asked.time_notes(boundary), *asked.notes()))

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
        if "status" not in row:
            time = row["store_timestamp"]
            stored = "no message there" if time is None else f"a message of {time}"
            lines += _SCREEN.rows("offset", f"{group_digits(row['offset'])}: {stored}  ({answer.spans})")
            continue
        code = row["code"] or f"next offset {group_digits(row['next_offset'])}"
        words = f"{row['status']}, {code}  ({answer.spans})"
        lines += ["", *_SCREEN.rows("answer", words)]
        lines += _SCREEN.rows("why", row["why"])
        lines += _SCREEN.rows("then", row["then"])
        if answer.messages is not None and answer.messages.num_rows:
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
            if "status" in answer.row:
                answer.row["messages"] = []
            if (messages := answer.messages) is not None:
                texts = json_objects(messages, view.zone).to_pylist() if messages.num_rows else []
                answer.row["messages"] = [json.loads(text) for text in texts]
    return with_run(document | {"asked": told[-1].question, "rows": rows, "notes": notes})

"""`rmqinspect find --pull` and `--offset-by-time`: what the broker of a store would answer a consumer."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.labelled import Screen
from rmqinspect.cli.parameters import TEXT, option
from rmqinspect.cli.release import release_option
from rmqinspect.cli.rows_plan import MessageOptions, RowsOptions
from rmqinspect.cli.selection import SelectionOptions, read_selection
from rmqinspect.cli.status import ExitStatus
from rmqinspect.statuses import SOUND
from rmqinspect.text import count, escape, escape_json, group_digits
from rmqinspect.times import format_millis, parse_time
from rmqinspect.version import tool_name

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.broker.pull import Answer, Pull
    from rmqinspect.find.pull_answers import Agreed, AskedQueue
    from rmqinspect.output import View
    from rmqinspect.output.writer import Out
    from rmqinspect.store.model import Store

_SCREEN = Screen(indent=14)
_QUEUE_ID = click.IntRange(0, 2**31 - 1)
_OFFSET = click.IntRange(-(2**63), 2**63 - 1)
_USUAL_COUNT = 32  # messages: `pullBatchSize` of a push consumer
_BOUNDARIES = ("lower", "upper")  # of `broker.offset_by_time`, which is imported later


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """What a consumer asks."""

    pull: tuple[str, int, int] | None = option(
        "--pull",
        type=(TEXT, _QUEUE_ID, _OFFSET),
        metavar="TOPIC QUEUE OFFSET",
        help="What a consumer gets that pulls there: status, next offset, -n messages (32); --tag may be 'A || B'.",
    )
    offset_by_time: tuple[str, int, str] | None = option(
        "--offset-by-time",
        type=(TEXT, _QUEUE_ID, TEXT),
        metavar="TOPIC QUEUE TIME",
        help="The queue offset that the broker names for a time: where a consumer begins that is set back to it.",
    )
    boundary: str | None = option(
        "--boundary",
        type=click.Choice(_BOUNDARIES),
        help="Of --offset-by-time: the first or the last of several messages that fit. Default: lower.",
    )
    broker_version: str | None = release_option()

    @property
    def asks_broker(self) -> bool:
        """Whether a broker's answer is asked for, and not messages."""
        return self.pull is not None or self.offset_by_time is not None


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(ConsumerOptions, RowsOptions, MessageOptions, SelectionOptions):
    """All that `find` may be asked with."""


def refuse_unfit(arguments: QuestionOptions, format_: str) -> None:
    """Refuse options that do not fit a question to a broker, or belong to one only.

    :raises click.UsageError: there are some.
    """
    from rmqinspect.tables.filters import Selection

    if not arguments.asks_broker:
        if arguments.boundary or arguments.broker_version:
            raise click.UsageError("--boundary and --broker-version belong to --pull and --offset-by-time.")
        return
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
    from rmqinspect.cli.table_rows import read_view
    from rmqinspect.output import open_destination
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.tables.sources import unread_places
    from rmqinspect.tables.table import QUEUE_DATABASES

    evidence = [path for store in stores for path in store.paths]
    ask = _ask_pull(arguments) if arguments.pull is not None else _ask_time(arguments)
    unread, found = False, False
    with open_destination(arguments.output, evidence) as out:
        kind = _Document if format_ == "json" else Sheet
        sheet = kind(out, read_view(arguments, "none"), arguments, several=len(stores) > 1)
        for store in stores:
            with unpacked(store, arguments.unpacking, QUEUE_DATABASES) as opened:
                for message in unread_places(opened, ("messages", "consumequeue")):
                    unread = True
                    click.echo(escape(message), err=True)
                found |= ask(opened, sheet)
        sheet.conclude(complete=not unread)
    if sheet.damaged and arguments.fail_on != "never":
        return ExitStatus.DAMAGE
    if unread:
        return ExitStatus.UNREADABLE
    return ExitStatus.DONE if found else ExitStatus.NOTHING_FOUND


# --- asking -------------------------------------------------------------------------------------------


def _ask_pull(arguments: QuestionOptions) -> "Callable[[Store, Sheet], bool]":
    """Return what asks one store to be pulled from, and returns whether it has the queue."""
    from rmqinspect.broker.pull import Limits, Pull, Subscription
    from rmqinspect.find.pull_answers import asked_queue

    assert arguments.pull is not None
    topic, queue_id, offset = arguments.pull
    try:
        subscription = Subscription.parse(" || ".join(arguments.tags) or None)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--tag") from error
    number = _USUAL_COUNT if arguments.limit is None else arguments.limit
    if not number:
        raise click.BadParameter("a consumer asks for one message at least", param_hint="-n")

    def ask(store: "Store", sheet: Sheet) -> bool:
        pull = Pull(offset, number, subscription, Limits.from_settings(store.settings))
        with asked_queue(store, topic, queue_id, arguments.broker_version) as asked:
            sheet.pulled(asked, pull, asked.pull(pull))
            return asked.queue is not None

    return ask


def _ask_time(arguments: QuestionOptions) -> "Callable[[Store, Sheet], bool]":
    """Return what asks one store for an offset, and returns whether it has the queue."""
    from rmqinspect.find.pull_answers import asked_queue
    from rmqinspect.tables.sources import last_store_time

    assert arguments.offset_by_time is not None
    topic, queue_id, text = arguments.offset_by_time
    now = datetime.now(UTC)

    def ask(store: "Store", sheet: Sheet) -> bool:
        try:
            moment = parse_time(text, arguments.zone, lambda: now, partial(last_store_time, store)) // 1000
        except ValueError as error:
            raise click.BadParameter(escape(str(error)), param_hint="--offset-by-time") from error
        with asked_queue(store, topic, queue_id, arguments.broker_version) as asked:
            sheet.timed(asked, moment, asked.by_time(moment, arguments.boundary))
            return asked.queue is not None

    return ask


def _ends(asked: "AskedQueue", releases: Sequence[str]) -> tuple[int, int] | None:
    """Return minimum and maximum of the queue in the eyes of the first release."""
    from rmqinspect.broker.pull import min_is_bisected

    return None if asked.queue is None else asked.queue.ends(bisected=min_is_bisected(releases[0]))


# --- the screen ---------------------------------------------------------------------------------------


class Sheet:
    """Answers as a screen."""

    def __init__(self, out: "Out", view: "View", arguments: QuestionOptions, *, several: bool) -> None:
        self._out, self._view = out, view
        self._arguments = arguments
        self._several = several
        self._begun = False
        self.damaged = False  # whether a message that is given is no sound record

    def pulled(self, asked: "AskedQueue", pull: "Pull", answers: "Sequence[Agreed[Answer]]") -> None:
        """Print the answers of one store to a pull."""
        from rmqinspect.find.pull_words import consequence, why

        tags = f", tag {' || '.join(self._arguments.tags)}" if self._arguments.tags else ""
        self._head(asked, f"offset {group_digits(pull.offset)}, {count(pull.count, 'message')}{tags}")
        for one in answers:
            messages = self._take_messages(asked, pull, one.answer)
            dropped = messages.column("client").to_pylist().count("drops")
            next_offset = f"next offset {group_digits(one.answer.next_offset)}"
            self._print("")
            self._rows("answer", f"{one.answer.status}, {next_offset}  ({one.spans})")
            self._rows("why", why(pull, one.answer))
            self._rows("then", consequence(pull, one.answer, dropped))
            if messages.num_rows:
                self._table(messages)
        self._notes(asked.refusals())

    def timed(self, asked: "AskedQueue", moment: int, answers: "Sequence[Agreed[int]]") -> None:
        """Print the answers of one store to a time."""
        boundary = f", boundary {self._arguments.boundary}" if self._arguments.boundary else ""
        self._head(asked, f"time {self._time(moment)}{boundary}")
        for one in answers:
            stored = asked.store_time(one.answer)
            shown = "no message there" if stored is None else f"a message of {self._time(stored)}"
            self._rows("offset", f"{group_digits(one.answer)}: {shown}  ({one.spans})")
        self._notes([*asked.time_notes(self._arguments.boundary), *asked.refusals()])

    def conclude(self, *, complete: bool) -> None:
        """End the answers."""
        del complete

    def _head(self, asked: "AskedQueue", question: str) -> None:
        if self._begun:
            self._print("")
        self._begun = True
        if self._several:
            self._rows("store", asked.store.name)
        ends = _ends(asked, asked.releases)
        extent = "no such queue in the store"
        if ends is not None:
            extent = f"minimum {group_digits(ends[0])}, maximum {group_digits(ends[1])}"
        self._rows("queue", f"{asked.topic} {asked.queue_id}: {extent}")
        self._rows("asked", question)

    def _notes(self, notes: "Sequence[str] | Iterator[str]") -> None:
        for note in notes:
            self._rows("note", note)

    def _time(self, millis: int) -> str:
        return format_millis(millis, self._arguments.zone) or str(millis)

    def _table(self, messages: "pa.RecordBatch") -> None:
        from rmqinspect.output.screen import ScreenTable

        self._print("")
        table = ScreenTable(messages.schema, self._out, self._view)
        table.write(messages)
        table.finish()

    def _take_messages(self, asked: "AskedQueue", pull: "Pull", answer: "Answer") -> "pa.RecordBatch":
        """Return the messages of an answer as they are shown, and note whether all are sound."""
        messages = asked.messages(pull, answer.units)
        self.damaged |= any(status not in SOUND["status"] for status in messages.column("status").to_pylist())
        return self._arguments.redact.mask(messages) if self._arguments.redact else messages

    def _rows(self, label: str, text: str) -> None:
        for line in _SCREEN.rows(label, text):
            self._print(line)

    def _print(self, line: str) -> None:
        self._out.write(f"{line}\n".encode())


# --- the document -------------------------------------------------------------------------------------


class _Document(Sheet):
    """Answers as one JSON object: a row for each answer of each store."""

    def __init__(self, out: "Out", view: "View", arguments: QuestionOptions, *, several: bool) -> None:
        super().__init__(out, view, arguments, several=several)
        self._answers: list[dict[str, Any]] = []
        self._question: dict[str, Any] = {}
        self._told: list[dict[str, str]] = []

    def pulled(self, asked: "AskedQueue", pull: "Pull", answers: "Sequence[Agreed[Answer]]") -> None:
        """Take the answers of one store to a pull."""
        from rmqinspect.find.pull_words import consequence, why
        from rmqinspect.output.rows import json_objects

        self._question = {
            "topic": asked.topic,
            "queue_id": asked.queue_id,
            "offset": pull.offset,
            "count": pull.count,
            "tags": sorted(pull.subscription.tags),
        }
        for one in answers:
            messages = self._take_messages(asked, pull, one.answer)
            dropped = messages.column("client").to_pylist().count("drops")
            rows = json_objects(messages, self._arguments.zone).to_pylist() if messages.num_rows else []
            self._answers.append(
                {
                    **self._answered(asked, one.releases),
                    "status": one.answer.status,
                    "next_offset": one.answer.next_offset,
                    "min_offset": one.answer.min_offset,
                    "max_offset": one.answer.max_offset,
                    "filtered": one.answer.filtered,
                    "passed_over": one.answer.unreadable,
                    "why": why(pull, one.answer),
                    "then": consequence(pull, one.answer, dropped),
                    "messages": [json.loads(row) for row in rows],
                }
            )
        self._note(asked, asked.refusals())

    def timed(self, asked: "AskedQueue", moment: int, answers: "Sequence[Agreed[int]]") -> None:
        """Take the answers of one store to a time."""
        self._question = {
            "topic": asked.topic,
            "queue_id": asked.queue_id,
            "time": self._time(moment),
            "boundary": self._arguments.boundary,
        }
        for one in answers:
            stored = asked.store_time(one.answer)
            found = {"offset": one.answer, "store_timestamp": None if stored is None else self._time(stored)}
            self._answers.append({**self._answered(asked, one.releases), **found})
        self._note(asked, [*asked.time_notes(self._arguments.boundary), *asked.refusals()])

    def conclude(self, *, complete: bool) -> None:
        """Write the document."""
        from rmqinspect.output import SCHEMA_VERSION

        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tool": tool_name(), "complete": complete}
        if self._view.redacted:
            document["redacted"] = list(self._view.redacted)
        document |= {"asked": self._question, "rows": self._answers, "notes": self._told}
        self._print(escape_json(json.dumps(document, ensure_ascii=False)))

    def _answered(self, asked: "AskedQueue", releases: Sequence[str]) -> dict[str, Any]:
        return {"store": asked.store.name, "queue_exists": asked.queue is not None, "releases": list(releases)}

    def _note(self, asked: "AskedQueue", notes: "Sequence[str] | Iterator[str]") -> None:
        self._told += [{"store": asked.store.name, "text": note} for note in notes]

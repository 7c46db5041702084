"""What a store answers a consumer, by every release that may have written it; and the messages of an answer.

Queue, log and units are read once. Releases that answer alike are told together.

The answer to a pull in words: why a broker gives it, and what the consumer does with it.

Source: PullMessageProcessor#composeResponseHeader for the response code of a status,
DefaultMQPushConsumerImpl#pullMessage for what a push consumer makes of it.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from rmqinspect.broker import pull as statuses
from rmqinspect.broker.pull import Answer, Pull, Unit, goes_by_change, knows_boundary, offset_by_time, pull
from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.commitlog.tail import LogEnd, find_log_end
from rmqinspect.config.json_files import integer, read_config
from rmqinspect.errors import NothingFound
from rmqinspect.find.consumer_queue import ConsumerLog, ConsumerQueue, open_queue
from rmqinspect.find.queue_units import COMPACTION, compacted_topics
from rmqinspect.find.read import rows_at
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import Store
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.table import Request
from rmqinspect.text import count, group_digits
from rmqinspect.topics import LMQ_PREFIX

Answered = TypeVar("Answered", bound=Hashable)

_OF_RECORD = ("store_timestamp", "tags", "keys", "status")
_PERM_READ = 4  # PermName.PERM_READ

MESSAGES = pa.schema(
    [
        pa.field("queue_offset", pa.int64()),
        pa.field("physical_offset", pa.int64()),
        pa.field("size", pa.int32()),
        *(pa.field(name, SCHEMA.field(name).type) for name in _OF_RECORD),
        pa.field("client", pa.string()),  # keeps, drops; null where no record proves itself
    ]
)
"""The messages of an answer. The queue offset is that of the unit, which in a light queue is not the record's."""


@dataclass(frozen=True, slots=True)
class Agreed(Generic[Answered]):
    """What some releases answer alike."""

    releases: tuple[str, ...]
    answer: Answered

    @property
    def spans(self) -> str:
        """The releases as text: `4.2.0 to 4.9.3, 5.5.0`."""
        runs: list[list[str]] = []
        for release in self.releases:
            follows = runs and RELEASES.index(runs[-1][-1]) + 1 == RELEASES.index(release)
            runs = [*runs[:-1], [*runs[-1], release]] if follows else [*runs, [release]]
        return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class AskedQueue:
    """A queue of a store that is asked, None if the store has no such queue."""

    store: Store
    topic: str
    queue_id: int
    queue: ConsumerQueue | None
    log_end: LogEnd
    releases: tuple[str, ...]  # that may have written the store, or the one that is named

    @property
    def unknown(self) -> str | None:
        """Why the queue cannot be asked, though the store may have it; None if it can."""
        return why_unknown(self.store, "queues", self.topic, str(self.queue_id)) if self.queue is None else None

    def pull(self, asked: Pull) -> list[Agreed[Answer]]:
        """Return what a consumer gets; nothing where that is not known.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.unknown:
            return []
        log = ConsumerLog(self.store, self.log_end.end or 0)
        return _together(self.releases, lambda release: pull(self.queue, log, asked, release))

    def by_time(self, moment: int, boundary: str | None) -> list[Agreed[int]]:
        """Return the queue offset for a time in ms; nothing where that is not known.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.unknown:
            return []
        return _together(
            self.releases, lambda release: offset_by_time(self.queue, moment, boundary or "lower", release)
        )

    def messages(self, asked: Pull, units: Sequence[Unit]) -> pa.RecordBatch:
        """Return the rows of MESSAGES for the units of an answer.

        :raises Unreadable: the log cannot be read.
        """
        columns = frozenset({"physical_offset", *_OF_RECORD})
        places = {unit.physical_offset for unit in units}
        records = {row["physical_offset"]: row for row in rows_at(self.store, places, Request(columns=columns))}
        rows = []
        for unit in units:
            row = {"queue_offset": unit.queue_offset, "physical_offset": unit.physical_offset, "size": unit.size}
            record = records.get(unit.physical_offset)
            if record is not None:
                kept = asked.subscription.keeps(record["tags"])
                row |= {name: record[name] for name in _OF_RECORD} | {"client": "keeps" if kept else "drops"}
            rows.append(row)
        return pa.RecordBatch.from_pylist(rows, MESSAGES)

    def store_time(self, queue_offset: int) -> int | None:
        """Return the store time in ms of the message at a queue offset; None without one.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.queue is None:
            return None
        unit = next(self.queue.units_from(queue_offset) or iter(()), None)
        return None if unit is None else self.queue.record_time(unit)

    def refusals(self) -> Iterator[str]:
        """Yield why a broker would answer something else before it looks into the queue."""
        if not self.store.queue_files and not self.unknown:
            yield "no consume queue was given: a broker that starts on this log makes them first, and answers by those"
        config = read_config(self.store, "topics.json")
        topics = {} if config is None else config.table("topicConfigTable")
        if not topics or self.topic.startswith(LMQ_PREFIX):
            return
        entry = topics.get(self.topic)
        if not isinstance(entry, dict):
            yield "topics.json does not have the topic: unless it is made anew, the broker refuses with TOPIC_NOT_EXIST"
            return
        perm, queues = integer(entry.get("perm")), integer(entry.get("readQueueNums"))
        if perm is not None and not perm & _PERM_READ:
            yield f"topics.json gives the topic perm {perm}, without reading: the broker refuses with NO_PERMISSION"
        if queues is not None and self.queue_id >= queues:
            yield f"topics.json gives the topic {queues} queues to read: the broker refuses this one with SYSTEM_ERROR"
        if self.topic in compacted_topics(self.store):
            yield f"the topic has {COMPACTION}; this is the answer of the queue itself"

    def time_notes(self, boundary: str | None) -> Iterator[str]:
        """Yield what to know of an offset for a time."""
        if any(map(goes_by_change, self.releases)) and self.queue is not None and len(self.queue.timed_files()) > 1:
            yield (
                "up to 5.1.0 the queue file is chosen by the time of its last change, and a copy may have other times: "
                "then so has the answer"
            )
        if boundary is not None and not all(map(knows_boundary, self.releases)):
            yield "a boundary is known from 5.1.4 on; earlier releases answer without it"


@contextmanager
def asked_queue(store: Store, topic: str, queue_id: int, release: str | None) -> Iterator[AskedQueue]:
    """Open a queue to be asked; `release`: the only one that answers.

    :raises NothingFound: there is no log, so that nothing can be said.
    :raises Unreadable: a file cannot be read.
    """
    if not store.segments:
        raise NothingFound(f"{store.name}: no commit log given: what a broker answers depends on it")
    queue = open_queue(store, topic, queue_id)
    last = None if queue is None else queue.summary.last_physical_offset
    log_end = find_log_end(store, [] if last is None else [last])
    releases = estimate_store(store, log_end.sample).releases if release is None else (release,)
    asked = AskedQueue(store, topic, queue_id, queue, log_end, releases)
    if queue is None:
        yield asked
        return
    with queue:
        yield asked


def _together(releases: Sequence[str], ask: Callable[[str], Answered]) -> list[Agreed[Answered]]:
    found: dict[Answered, list[str]] = {}
    for release in releases:
        found.setdefault(ask(release), []).append(release)
    return [Agreed(tuple(alike), answer) for answer, alike in found.items()]


_AGAIN = "the consumer gets {messages}, and asks again from offset {next}"
_AT_ONCE = "the consumer asks again at once, from offset {next}"
_WAITS = (
    "the broker holds the request up to 15 s until a message arrives; then the consumer asks again from offset {next}"
)
_CORRECTS = "the consumer drops what it has of the queue, and begins it again at offset {next}"


def why(asked: Pull, answer: Answer) -> str:
    """Return why a broker gives this answer."""
    low, high = group_digits(answer.min_offset), group_digits(answer.max_offset)
    scanned = count(max(answer.next_offset - asked.offset, 0), "offset")
    reasons = {
        statuses.FOUND: f"{scanned} scanned",
        statuses.NO_MATCHED_MESSAGE: f"{scanned} scanned, and none has a tags code that is asked for",
        statuses.MESSAGE_WAS_REMOVING: f"{scanned} scanned, and no record of them is in the log",
        statuses.NO_MESSAGE_IN_QUEUE: "the queue is empty, or is made now, as it is asked for",
        statuses.OFFSET_TOO_SMALL: f"the queue begins at {low}",
        statuses.OFFSET_OVERFLOW_ONE: f"the queue ends before {high}: there is no newer message",
        statuses.OFFSET_OVERFLOW_BADLY: f"the queue ends before {high}, "
        f"{count(asked.offset - answer.max_offset, 'offset')} before the one asked for",
        statuses.OFFSET_FOUND_NULL: f"the queue goes from {low} to {high}, but no file or entry holds the unit",
    }
    more = [
        f"{count(answer.filtered, 'unit')} left out by tag" if answer.filtered else "",
        f"{count(answer.unreadable, 'unit')} passed over: not in the log, or in the same segment behind one that is not"
        if answer.unreadable
        else "",
    ]
    return "; ".join(filter(None, (reasons[answer.status], *more)))


def consequence(asked: Pull, answer: Answer, dropped: int = 0) -> str:
    """Return what the consumer does next; `dropped`: messages that are given, but not of a tag it asked for."""
    then = {
        statuses.FOUND: _AGAIN,
        statuses.NO_MATCHED_MESSAGE: _AT_ONCE,
        statuses.MESSAGE_WAS_REMOVING: _AT_ONCE,
        statuses.NO_MESSAGE_IN_QUEUE: _CORRECTS if asked.offset else _WAITS,
        statuses.OFFSET_TOO_SMALL: _CORRECTS,
        statuses.OFFSET_OVERFLOW_ONE: _WAITS,
        statuses.OFFSET_OVERFLOW_BADLY: _CORRECTS,
        statuses.OFFSET_FOUND_NULL: _WAITS,
    }[answer.status].format(
        next=group_digits(answer.next_offset), messages=count(sum(unit.messages for unit in answer.units), "message")
    )
    lost = answer.min_offset - max(asked.offset, 0)
    again = answer.max_offset - answer.next_offset
    skipped = answer.next_offset - asked.offset
    if answer.status == statuses.FOUND and dropped:
        return f"{then}; it drops {dropped} of them: another tag with the same hash"
    if answer.status == statuses.OFFSET_TOO_SMALL:
        return f"{then}; {count(lost, 'offset')} below it cannot be consumed any more"
    if answer.status == statuses.OFFSET_OVERFLOW_BADLY and again:
        return f"{then}; it consumes {count(again, 'message')} there again"
    if answer.status == statuses.OFFSET_FOUND_NULL and skipped > 0:
        return f"{then}; {count(skipped, 'offset')} are skipped"
    return then

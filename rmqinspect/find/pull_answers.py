"""What a store answers a consumer, by every release that may have written it; and the messages of an answer.

Queue, log and units are read once. Releases that answer alike are told together.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from rmqinspect.broker.offset_by_time import goes_by_change, knows_boundary, offset_by_time
from rmqinspect.broker.pull import Answer, Pull, Unit, pull
from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.commitlog.tail import LogEnd, find_log_end
from rmqinspect.config.json_files import integer, read_config
from rmqinspect.errors import NothingFound
from rmqinspect.find.consumer_queue import ConsumerLog, ConsumerQueue, open_queue
from rmqinspect.find.read import planned_rows
from rmqinspect.find.spans import place_span
from rmqinspect.store.model import Store
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.table import Request
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

    def pull(self, asked: Pull) -> list[Agreed[Answer]]:
        """Return what a consumer gets.

        :raises Unreadable: a file of the queue cannot be read.
        """
        log = ConsumerLog(self.store, self.log_end.end or 0)
        return _together(self.releases, lambda release: pull(self.queue, log, asked, release))

    def by_time(self, moment: int, boundary: str | None) -> list[Agreed[int]]:
        """Return the queue offset for a time in ms.

        :raises Unreadable: a file of the queue cannot be read.
        """
        return _together(
            self.releases, lambda release: offset_by_time(self.queue, moment, boundary or "lower", release)
        )

    def messages(self, asked: Pull, units: Sequence[Unit]) -> pa.RecordBatch:
        """Return the rows of MESSAGES for the units of an answer.

        :raises Unreadable: the log cannot be read.
        """
        records = _records(self.store, [unit.physical_offset for unit in units])
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
        if not self.store.queue_files:
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
        attributes = entry.get("attributes")
        if isinstance(attributes, dict) and attributes.get("cleanup.policy") == "COMPACTION":
            yield (
                "the topic has cleanup policy COMPACTION: from 5.1.0 on a broker serves it from its compaction log, "
                "which is not read here; this is the answer of the queue itself"
            )

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


def _records(store: Store, places: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return columns of the records at some places, by place."""
    wanted = set(places)
    columns = frozenset({"physical_offset", *_OF_RECORD})
    found: dict[int, dict[str, Any]] = {}
    if not wanted:
        return found
    spans = [place_span(store, place) for place in sorted(wanted)]
    for batch in planned_rows(store, spans, Request(columns=columns)):
        rows = batch.select(sorted(columns)).to_pylist() if batch.num_rows else []
        found.update((row["physical_offset"], row) for row in rows if row["physical_offset"] in wanted)
    return found

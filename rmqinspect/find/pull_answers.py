"""What a store answers a consumer, by every release that may have written it; and the messages of an answer.

Nothing is read but the queue's ends, the units that are asked for, and their records. What a start would change is not
foreseen. Releases that answer alike are told together.

A pull is refused before the queue is looked at (`broker.refusals`); what is given, the client may read otherwise than
it was meant (`broker.client`).
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from msgspec import Struct

from rmqinspect.broker import client
from rmqinspect.broker.client import Received, received
from rmqinspect.broker.consumer_queue import ConsumerLog, ConsumerQueue, open_queue
from rmqinspect.broker.offset_by_time import goes_by_change, knows_boundary, offset_by_time
from rmqinspect.broker.pull import Answer, Pull, Unit, pull
from rmqinspect.broker.refusals import Access, Refusal, access_of
from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.commitlog.tail import LogEnd, find_log_end
from rmqinspect.errors import NothingFound
from rmqinspect.find.plan import rows_at
from rmqinspect.find.queue_units import COMPACTION, compacted_topics
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.statuses import SOUND
from rmqinspect.store.model import Store
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.request import Request
from rmqinspect.topics import LMQ_PREFIX

Answered = TypeVar("Answered", bound=Hashable)

_OF_RECORD = ("store_timestamp", "tags", "keys", "status")
_IDENTITY = ("physical_offset", "size", "topic", "queue_id", "queue_offset")

MESSAGES = pa.schema(
    [
        pa.field("queue_offset", pa.int64()),
        pa.field("physical_offset", pa.int64()),
        pa.field("size", pa.int32()),
        *(pa.field(name, SCHEMA.field(name).type) for name in _OF_RECORD),
        pa.field("client", pa.string()),  # keeps, drops, misses; what else it gets: of `broker.client.WRONG`
    ]
)
"""The messages of an answer. The queue offset is that of the unit, which in a light queue is not the record's."""


class Agreed(Struct, Generic[Answered], frozen=True):
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


class Given(NamedTuple):
    """What a consumer gets for a pull that is answered."""

    answer: Answer
    received: tuple[Received, ...]  # by the number of a unit in `answer.units`
    sound: tuple[bool, ...]  # whether each of these units leads to the record of its place
    passed: tuple[Unit, ...]  # of `answer.passed`, those that do

    @property
    def wrong(self) -> tuple[Received, ...]:
        """The messages that are not those of their place."""
        return tuple(one for one in self.received if one.kind != client.RIGHT)

    @property
    def missed(self) -> tuple[Unit, ...]:
        """The units of sound messages that the consumer never gets."""
        right = {one.unit for one in self.received if one.kind == client.RIGHT}
        units = enumerate(self.answer.units)
        undecoded = (unit for number, unit in units if self.sound[number] and number not in right)
        return tuple(sorted((*undecoded, *self.passed)))

    @property
    def messages(self) -> int:
        """How many messages the consumer gets."""
        units = self.answer.units
        return sum(units[one.unit].messages if one.kind == client.RIGHT else 1 for one in self.received)


class Refused(NamedTuple):
    """A pull that is refused."""

    refusal: Refusal
    min_offset: int
    max_offset: int


class AskedQueue(Struct, frozen=True):
    """A queue of a store that is asked, None if the store has no such queue."""

    store: Store
    topic: str
    queue_id: int
    queue: ConsumerQueue | None
    log_end: LogEnd
    releases: tuple[str, ...]  # that may have written the store, or the one that is named
    access: Access

    @property
    def unknown(self) -> str | None:
        """Why the queue cannot be asked, though the store may have it; None if it can."""
        return why_unknown(self.store, "queues", self.topic, str(self.queue_id)) if self.queue is None else None

    def pull(self, asked: Pull, group: str | None = None) -> "list[Agreed[Given | Refused]]":
        """Return what a consumer gets, of a group if it is named; nothing where that is not known.

        :raises Unreadable: a file of the queue, or of the log, cannot be read.
        """
        if self.unknown:
            return []
        log = ConsumerLog(self.store, self.log_end.end or 0)
        refused = {release: self.access.refusal(self.topic, self.queue_id, release, group) for release in self.releases}
        answered = [release for release in self.releases if refused[release] is None]
        answers = _together(answered, lambda release: pull(self.queue, log, asked, release))
        sound = self._sound({unit for one in answers for unit in (*one.answer.units, *one.answer.passed)})
        by_release = {release: one.answer for one in answers for release in one.releases}
        with log.opened() as readable:

            def ask(release: str) -> Given | Refused:
                refusal = refused[release]
                if refusal is not None:
                    return Refused(refusal, *((0, 0) if self.queue is None else self.queue.ends(release)))
                answer = by_release[release]
                are_sound = tuple(unit in sound for unit in answer.units)
                got = received(answer.units, are_sound, (self.topic, self.queue_id), readable, release)
                got = [one for one in got if one.kind == client.RIGHT or asked.subscription.keeps(one.tags)]
                return Given(answer, tuple(got), are_sound, tuple(unit for unit in answer.passed if unit in sound))

            return _together(self.releases, ask)

    def _sound(self, units: Collection[Unit]) -> set[Unit]:
        """Return the units that lead to a record which proves itself, and is the one of their place."""
        if self.queue is None or not units:
            return set()
        columns = frozenset({*_IDENTITY, "status"})
        rows = rows_at(self.store, {unit.physical_offset for unit in units}, Request(columns=columns))
        records = {row["physical_offset"]: row for row in rows}
        return {unit for unit in units if self._leads_to(unit, records.get(unit.physical_offset))}

    def _leads_to(self, unit: Unit, record: dict[str, Any] | None) -> bool:
        if record is None or record["status"] not in SOUND["status"] or record["size"] != unit.size:
            return False
        if self.topic.startswith(LMQ_PREFIX):  # its records are of other topics
            return True
        own = (record["topic"], record["queue_id"]) == (self.topic, self.queue_id)
        assert self.queue is not None
        return own and (self.queue.kind == "batch_queue" or record["queue_offset"] == unit.queue_offset)

    def by_time(self, moment: int, boundary: str | None) -> list[Agreed[int]]:
        """Return the queue offset for a time in ms; nothing where that is not known.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.unknown:
            return []
        return _together(
            self.releases, lambda release: offset_by_time(self.queue, moment, boundary or "lower", release)
        )

    def messages(self, asked: Pull, given: Given) -> pa.RecordBatch:
        """Return the rows of MESSAGES for the units of an answer.

        :raises Unreadable: the log cannot be read.
        """
        units = given.answer.units
        columns = frozenset({"physical_offset", *_OF_RECORD})
        places = {unit.physical_offset for unit in units}
        records = {row["physical_offset"]: row for row in rows_at(self.store, places, Request(columns=columns))}
        got = {one.unit: one.kind for one in reversed(given.received)}
        rows: list[dict[str, Any]] = []
        for number, unit in enumerate(units):
            row: dict[str, Any] = {
                "queue_offset": unit.queue_offset,
                "physical_offset": unit.physical_offset,
                "size": unit.size,
            }
            record = records.get(unit.physical_offset, {})
            row |= {name: record.get(name) for name in _OF_RECORD}
            kept = "keeps" if asked.subscription.keeps(record.get("tags")) else "drops"
            kind = got.get(number, "misses")
            row["client"] = kept if kind == client.RIGHT else kind
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

    def notes(self) -> Iterator[str]:
        """Yield what else to know of an answer."""
        if not self.store.queue_files and not self.unknown:
            yield "no consume queue was given: a broker that starts on this log makes them first, and answers by those"
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
    asked = AskedQueue(store, topic, queue_id, queue, log_end, releases, access_of(store))
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

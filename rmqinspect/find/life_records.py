"""The records of one message's life, and how they are found.

    by the index     UNIQ_KEY in the topics that copies go to: retry topics and dead letter queues, the broker's own
                     topics, and those that a record found names (REAL_TOPIC, RETRY_TOPIC)
    by their place   what a record names: ORIGIN_MESSAGE_ID, PREPAREDTRANSACTIONOFFSET
    by reading       what of the log the index does not cover, up to a bound; all of it on request

What is found so has the same UNIQ_KEY. That is not always one message: records of one client batch may share it
(4.8.0 to 5.3.3), and so may those of other clients. `family` leaves out what is another message.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow.compute as pc
from msgspec import Struct

from rmqinspect.broker.copies import Copy, Links, Stored, copy_of, links_of
from rmqinspect.broker.groups import Ack, Checkpoint, PopStates, dlq_topic, is_retry_of, own_name, read_body
from rmqinspect.broker.version_evidence import names_in, other_writer
from rmqinspect.codec.arrays import Ints, Span, merge, uncovered
from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.java import ID_MARK, ID_MARKS, index_hash, index_key
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.consumequeue.bounds import QueueSummary, queue_end, queue_files_of
from rmqinspect.consumequeue.units import find_unit, messages_in, units_around
from rmqinspect.find.consumers import Consumers
from rmqinspect.find.plan import known_topics, planned_rows, rows_at, topics_met
from rmqinspect.find.ways import whole_log
from rmqinspect.index.geometry import IndexFile
from rmqinspect.index.lookup import look_up, usable_files
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.times import to_micros
from rmqinspect.topics import (
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

MOST_NOTES = 2000  # checkpoints and acks of a topic that are searched behind a message
_MOST_NOTES_KEPT = 1 << 17  # for the next lives
_LONGEST_NOTE = 1 << 16  # bytes
MOST_READ = 64 << 20  # bytes of the log read for what the index does not cover, unless all is asked for
_MOST_KEPT = 2 * MOST_READ  # bytes of the log whose ids are kept for the next lives
_FEW_UNITS = 1 << 18  # of a queue: read at once
_MOST_COPIES = 1000  # of one UNIQ_KEY
_MANY_TOPICS = 200  # of groups: so many are searched for each message; each costs some reads in each index file
_MOST_ROUNDS = 8  # records found name further topics

_AS_STORED = (
    "physical_offset",
    "size",
    "topic",
    "queue_id",
    "queue_offset",
    "msg_id",
    "offset_msg_id",
    "sys_flag",
    "reconsume_times",
    "status",
)
_COLUMNS = frozenset(
    {*_AS_STORED, "keys", "store_timestamp", "born_timestamp", "prepared_transaction_offset", "properties"}
)
_OF_GROUPS = (RETRY_PREFIX, DLQ_PREFIX)
_WHERE_COPIES_GO = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC, GIVEN_UP_TOPIC)


class Step(Struct, frozen=True):
    """One record of a message's life. Times are ms since 1970, None outside the years 1 to 9999."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int | None
    born_timestamp: int | None
    msg_id: str | None
    offset_msg_id: str
    keys: tuple[str, ...]
    sys_flag: int
    reconsume_times: int
    status: str  # of the table `messages`
    properties: dict[str, str]
    copy: Copy
    links: Links
    body: tuple[int, int] | None  # size and stored CRC of the body; None where the record does not prove itself

    @property
    def end(self) -> int:
        """Physical offset behind the record."""
        return self.physical_offset + self.size

    @property
    def named(self) -> frozenset[int]:
        """Places of the records that it says it comes from."""
        half = () if self.links.half is None else (self.links.half,)
        return frozenset((*self.links.origins, *half))


class Searched(Struct, frozen=True):
    """How the copies of a message were searched."""

    index_files: int  # that were asked
    read: tuple[Span, ...]  # spans of the log that were read
    not_read: tuple[Span, ...]  # spans that neither the index nor a reading covers
    remarks: tuple[str, ...] = ()


class MessagePop(Struct, frozen=True):
    """The last pop of a message by a group. Times are ms."""

    group: str
    physical_offset: int  # of the record that was popped
    pop_time: int
    visible_again: int  # unless it is acknowledged before
    acknowledged: bool
    pops: int  # how often, as far as it was searched


class LifeRecords:
    """The records of one store as steps of lives; keeps what several lives need."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.log = RecordReader(store)
        self.spans_of: dict[str, list[Span]] = {}  # for what each index file speaks, by its name
        self._prepared: dict[int, _Copies] = {}  # by place
        self._read: list[Span] = []  # of the log, for the records in `_ids`
        self._ids: defaultdict[str | None, list[int]] = defaultdict(list)  # places by UNIQ_KEY
        self._ends: dict[str, list[QueueSummary]] = {}  # by topic
        self._places: dict[str, Ints] = {}  # of a topic's records, ascending
        self._notes: dict[int, Checkpoint | Ack | None] = {}  # what records say about pops, by place
        self.unread_index: list[str] = []  # index files that could not be read, once `index_files` were asked for
        self.unread: list[str] = []  # what the lives need and could not be read

    @cached_property
    def consumers(self) -> Consumers:
        """The consumer offsets of the store."""
        return Consumers(self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.log.__exit__(kind, error, trace)

    @cached_property
    def index_files(self) -> list[IndexFile]:
        """The index files that can be used."""
        return usable_files(self.store, self.unread_index)

    @cached_property
    def topics(self) -> frozenset[str]:
        """All topics that the store's files name, and those of some records that the index leads to."""
        return frozenset(known_topics(self.store) | topics_met(self.index_files, self.log))

    @cached_property
    def end(self) -> int:
        """Physical offset behind the last record: what is preallocated behind it holds none."""
        whole = whole_log(self.store)
        last = [index.header.end_physical_offset for index in self.index_files if index.header is not None]
        found = find_log_end(self.store, last)
        zeros = not found.damaged and all(gap.kind == "zeros" for gap in found.rest)
        return found.end if found.end is not None and zeros and not found.goes_on else whole[1]

    def steps_at(self, places: Iterable[int]) -> list[Step]:
        """Return the records at some physical offsets, ascending; places without one are left out.

        :raises Unreadable: an I/O error.
        """
        found: dict[int, Step] = {}
        for row in rows_at(self.store, set(places), Request(columns=_COLUMNS), self.log):
            found.setdefault(row["physical_offset"], self._step(row))
        return [found[place] for place in sorted(found)]

    def prepare(self, places: Iterable[int]) -> None:
        """Search the copies of the records at some places by the index, all at once: `search` goes on from there.

        :raises Unreadable: an I/O error.
        """
        self._prepared = self._searched_by_index(self.steps_at(places))

    def is_prepared(self, place: int) -> bool:
        """Whether `prepare` has found the record at a physical offset, and `search` has not asked for it."""
        return place in self._prepared

    def record_of(self, place: int) -> Step | None:
        """Return the record at a physical offset, None without one.

        :raises Unreadable: an I/O error.
        """
        prepared = self._prepared.get(place)
        return next(iter(self.steps_at([place])), None) if prepared is None else prepared.steps[place]

    def search(self, start: Step, *, everything: bool = False, jobs: int = 1) -> tuple[list[Step], Searched]:
        """Return the records that share the UNIQ_KEY of one, or are named by one of them, ascending; and how.

        `everything`: the whole log is read.

        :raises Unreadable: an I/O error.
        """
        place = start.physical_offset
        found = self._prepared.pop(place, None) or self._searched_by_index([start])[place]
        whole = whole_log(self.store)
        spans = [whole] if everything else uncovered(found.covered, (whole[0], self.end))
        read, not_read = (spans, []) if everything else _within(spans, place, MOST_READ)
        new = found.new(self._places_in(read, start, jobs))
        found.take(self.steps_at(new) if new else ())
        remarks = [f"more than {_MOST_COPIES} records share the id"] if len(found.steps) >= _MOST_COPIES else []
        ordered = [found.steps[place] for place in sorted(found.steps)]
        return ordered, Searched(found.files, tuple(merge(read)), tuple(merge(not_read)), tuple(remarks))

    def _searched_by_index(self, starts: Iterable[Step]) -> dict[int, "_Copies"]:
        """Return what the index, and the records it leads to, name as copies of some records, by their places."""
        found = {start.physical_offset: _Copies(start) for start in starts}
        rest = list(found.values())
        marked = self._marked_ids(rest)
        for _ in range(_MOST_ROUNDS):
            alike: dict[frozenset[str], list[_Copies]] = {}
            for copies in rest:
                topics = frozenset(_WHERE_COPIES_GO).union(*(step.links.topics for step in copies.steps.values()))
                topics = (topics | self._group_topics(topics)) - copies.asked
                copies.asked |= topics
                copies.named = {place for step in copies.steps.values() for place in step.named}
                if copies.key is not None and topics:
                    alike.setdefault(topics, []).append(copies)
            for topics, some in alike.items():
                hashes = {
                    one.key: [
                        index_hash(index_key(topic, one.key, mark))
                        for topic in topics
                        for mark in (ID_MARKS if one.key in marked else ("",))
                    ]
                    for one in some
                    if one.key
                }
                looked_up = look_up(self.index_files, hashes, self.log.follows, self.spans_of)
                for one in some:
                    one.covered, one.files = looked_up.covered, looked_up.files
                    one.named |= looked_up.places[one.key or ""]
            wanted = {place for copies in rest for place in copies.new(copies.named)}
            steps = {step.physical_offset: step for step in (self.steps_at(wanted) if wanted else ())}
            rest = [
                copies for copies in rest if copies.take(steps[at] for at in copies.new(copies.named) if at in steps)
            ]
            if not rest:
                break
        return found

    def _marked_ids(self, copies: Sequence["_Copies"]) -> set[str]:
        """Return the ids that the index may hold as another writer spells them, too."""
        keys = {one.key: step for one in copies for step in one.steps.values() if one.key is not None}
        if other_writer(names_in(self.store)) is not None:
            return set(keys)
        asked = {key: [index_hash(index_key(step.topic, key, ID_MARK))] for key, step in keys.items()}
        places = look_up(self.index_files, asked, self.log.follows, self.spans_of).places
        return {key for key, step in keys.items() if step.physical_offset in places[key]}

    def _group_topics(self, topics: Collection[str]) -> set[str]:
        """Return the retry topics and dead letter queues that the messages of some topics may go to.

        Where a store has many, those of the groups with an offset in one of the topics.
        """
        found = {topic for topic in self.topics if topic.startswith(_OF_GROUPS)}
        if len(found) <= _MANY_TOPICS:
            return found
        groups = {own_name(group) for topic in topics for group in self.consumers.groups_of.get(topic, ())}
        return {topic for topic in found if any(is_retry_of(topic, group) for group in groups)} | {
            dlq_topic(group) for group in groups
        }

    def _places_in(self, spans: Sequence[Span], start: Step, jobs: int) -> list[int]:
        """Return the places of the records in some spans that share the UNIQ_KEY; without one, that name the record."""
        key = start.properties.get("UNIQ_KEY")
        if key is not None and sum(end - start for start, end in spans) <= MOST_READ:
            return self._with_id(spans, key, jobs)
        names = {"msg_id"} if key is not None else {"msg_id", "properties", "prepared_transaction_offset"}
        places: list[int] = []
        request = Request(columns=frozenset({"physical_offset", *names}), jobs=jobs)
        for batch in planned_rows(self.store, spans, request) if spans else ():
            if key is not None:
                mask = pc.equal(batch["msg_id"], key)
            else:
                origin = start.properties.get("ORIGIN_MESSAGE_ID", start.offset_msg_id)
                origins = pc.map_lookup(batch["properties"], "ORIGIN_MESSAGE_ID", "last")
                half = pc.equal(batch["prepared_transaction_offset"], start.physical_offset)
                named = pc.or_(pc.fill_null(pc.equal(origins, origin), False), half)
                mask = pc.and_(named, pc.is_null(batch["msg_id"]))
            places += batch["physical_offset"].filter(pc.fill_null(mask, False)).to_pylist()
        return places

    def _with_id(self, spans: Sequence[Span], key: str, jobs: int) -> list[int]:
        """Return the places of the records in some spans with a UNIQ_KEY; what was read once is not read again."""
        missing = [part for span in spans for part in uncovered(self._read, span)]
        if sum(end - start for start, end in (*self._read, *missing)) > _MOST_KEPT:
            self._read, self._ids, missing = [], defaultdict(list), list(spans)
        request = Request(columns=frozenset({"physical_offset", "msg_id"}), jobs=jobs)
        for batch in planned_rows(self.store, missing, request) if missing else ():
            pairs = zip(batch["msg_id"].to_pylist(), batch["physical_offset"].to_pylist(), strict=True)
            for msg_id, place in pairs:
                self._ids[msg_id].append(place)
        self._read = merge([*self._read, *missing])
        return [place for place in self._ids.get(key, ()) if any(start <= place < end for start, end in spans)]

    def behind(self, topic: str, place: int, most: int) -> tuple[Iterator[ParsedFields], bool]:
        """Return the records of a topic that lie behind a place, up to `most`, ascending; and whether these are all.

        They are found by the units of the topic's queues; without any, in the next bytes of the log.

        :raises Unreadable: an I/O error.
        """
        places, complete = self.places_behind(topic, place, most)
        records = (self.log.fields_at(at) for at in places)
        return (record for record in records if record is not None), complete

    def places_behind(self, topic: str, place: int, most: int) -> tuple[list[int], bool]:
        """Return the places of the records that `behind` returns; and whether these are all.

        :raises Unreadable: an I/O error.
        """
        queues = self._queues_of(topic)
        if not queues:
            span, columns = (place, min(self.end, place + MOST_READ)), frozenset({"physical_offset", "topic"})
            places: list[int] = []
            for batch in planned_rows(self.store, [span], Request(columns=columns)):
                places += batch["physical_offset"].filter(pc.equal(batch["topic"], topic)).to_pylist()
            return places[:most], span[1] == self.end and len(places) <= most
        if all(ends.max_offset - ends.first_kept <= _FEW_UNITS for ends in queues):
            known = self._places.get(topic)
            if known is None:
                units = [
                    units["physical_offset"] for ends in queues for file in ends.files for _, units in messages_in(file)
                ]
                known = self._places[topic] = np.sort(np.concatenate([np.empty(0, np.int64), *units]))
            first = int(np.searchsorted(known, place, "right"))
            return known[first : first + most].tolist(), len(known) - first <= most
        found = [_places_behind(ends, place, most) for ends in queues]
        places = sorted(chain(*found))
        return places[:most], all(len(some) < most for some in found) and len(places) <= most

    def pops_of(self, steps: Sequence[Step]) -> tuple[list[MessagePop], bool]:
        """Return the pops of some records; and whether all checkpoints and acks behind the first were searched.

        They lie on the timer wheel first, and in the revive topic when they are due. Those behind the message are read:
        a group pops a message after it was stored.

        :raises Unreadable: an I/O error.
        """
        topics = {file.topic for file in self.store.queue_files if file.topic.startswith(REVIVE_PREFIX)}
        # The first revive queue is made when the first checkpoint falls due.
        on_timer = any(file.topic == TIMER_TOPIC for file in self.store.queue_files)
        if not steps or not (topics or on_timer):
            return [], True
        states, complete = PopStates(), True
        queues = {(step.topic, step.queue_id) for step in steps}
        first = min(step.physical_offset for step in steps)
        for topic in (TIMER_TOPIC, *sorted(topics)):
            places, all_of_them = self.places_behind(topic, first, MOST_NOTES)
            complete = complete and all_of_them
            for place in places:
                note = self._note_at(place)
                if note is not None and (note.pop.topic, note.pop.queue_id) in queues:
                    states.add(note)
        return [
            MessagePop(
                group,
                step.physical_offset,
                pop_time=popped.checkpoint.pop.pop_time,
                visible_again=popped.checkpoint.revive_time,
                acknowledged=popped.acked,
                pops=popped.pops,
            )
            for step in steps
            for group, popped in states.of_message(step.topic, step.queue_id, step.queue_offset).items()
        ], complete

    def _note_at(self, place: int) -> Checkpoint | Ack | None:
        """Return what the record at a place says about a pop; None where it says nothing."""
        if place not in self._notes:
            if len(self._notes) >= _MOST_NOTES_KEPT:
                self._notes.clear()
            record, self._notes[place] = self.log.fields_at(place), None
            body = None if record is None else record.body
            if record is None or body is None or len(body) > _LONGEST_NOTE:
                return None
            stored = Stored(record.topic, record.number("queue_id"), 0, 0, record.properties)
            if copy_of(stored).kind in ("checkpoint", "ack"):
                with suppress(NotJson):
                    parsed = parse_json(body).value
                    self._notes[place] = read_body(parsed) if isinstance(parsed, dict) else None
        return self._notes[place]

    def _queues_of(self, topic: str) -> list[QueueSummary]:
        if topic not in self._ends:
            queues = (files for files in queue_files_of(self.store) if files[0].topic == topic)
            ends = (
                queue_end(files, self.store.log_start, lambda: True) for files in queues if files[0].kind == "queue"
            )
            self._ends[topic] = list(ends)
        return self._ends[topic]

    def _step(self, row: dict[str, Any]) -> Step:
        properties = dict(row["properties"] or ())
        stored = Stored(row["topic"], row["queue_id"], row["sys_flag"], row["prepared_transaction_offset"], properties)
        return Step(
            body=self.log.body_at(row["physical_offset"]),
            store_timestamp=_millis(row["store_timestamp"]),
            born_timestamp=_millis(row["born_timestamp"]),
            keys=tuple(row["keys"]),
            properties=properties,
            copy=copy_of(stored, self.topics),
            links=links_of(stored, self.topics),
            **{name: row[name] for name in _AS_STORED},
        )


class _Copies:
    """The records that are related to one, as far as they were found."""

    def __init__(self, start: Step) -> None:
        self.key = start.properties.get("UNIQ_KEY")
        self.steps = {start.physical_offset: start}
        self.asked: frozenset[str] = frozenset()  # topics that were looked up
        self.named: set[int] = set()  # places that the steps name, and the index
        self.covered: list[Span] = []
        self.files = 0

    def new(self, places: Iterable[int]) -> list[int]:
        """Return those of some places that are not known, as many as are kept."""
        return sorted(place for place in places if place not in self.steps)[: _MOST_COPIES - len(self.steps)]

    def take(self, some: Iterable[Step]) -> bool:
        """Add those of some records that are related to what is there; return whether any is."""
        found = [step for step in some if _is_related(step, self.steps, self.key)]
        self.steps.update((step.physical_offset, step) for step in found)
        return bool(found)


def _is_related(step: Step, steps: Mapping[int, Step], key: str | None) -> bool:
    """Whether a record shares the UNIQ_KEY; without one, whether it and another name each other, or the same."""
    if key is not None or "UNIQ_KEY" in step.properties:
        return step.properties.get("UNIQ_KEY") == key
    named = frozenset[int]().union(*(one.named for one in steps.values()))
    return step.physical_offset in named or not step.named.isdisjoint(named | steps.keys())


def _millis(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time) // 1000


def _within(spans: Sequence[Span], place: int, most: int) -> tuple[list[Span], list[Span]]:
    """Return (what to read, what not) of some spans: up to `most` bytes, first those behind a place, then before it."""
    ordered = [(max(start, place), end) for start, end in spans if end > place]
    ordered += [(start, min(end, place)) for start, end in spans if start < place]
    read: list[Span] = []
    left: list[Span] = []
    for start, end in ordered:
        border = min(end, start + most)
        most -= border - start
        read.append((start, border))
        left.append((border, end))
    return [span for span in read if span[0] < span[1]], [span for span in left if span[0] < span[1]]


def _places_behind(ends: QueueSummary, place: int, most: int) -> list[int]:
    """Return the places of the first units of a queue that point behind a place: units ascend."""

    def is_behind(queue_offset: int) -> bool:
        unit = find_unit(ends.files, queue_offset)
        return unit is None or unit[0] > place

    first = ends.first_kept + bisect_left(range(ends.first_kept, ends.max_offset), True, key=is_behind)
    found: list[int] = units_around(ends.files, first, first + most)[1].tolist()
    return found

"""The life of a message: where it is stored, what leads to it, and what became of it.

    record        its queue unit, those of light queues, the index entries of its keys
    copies        what a delay, a timer, a transaction, retries and dead letters made of it, in the order of the log
    groups        whether each has passed it, and the retries and the dead letter it caused

`trace_life` needs a few reads. What it did not search is said.

The index entries that lead to a record: in which files, and why there is none.

What became of a message that groups have popped: acknowledged, or not yet.

Checkpoints and acks lie on the timer wheel first, and in the revive topic when they are due. Those behind the message
are read, up to a bound: a group pops a message after it was stored.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from rmqinspect.broker.copies import Stored, copy_of
from rmqinspect.broker.dispatch import has_index_keys
from rmqinspect.broker.groups import Ack, Checkpoint, PopStates, read_body
from rmqinspect.broker.transactions import Surroundings
from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.java import ID_MARKS, index_hash, index_key
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.consumequeue.units import find_unit_with_tags
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.consumers import Passed
from rmqinspect.find.life_family import Transaction, family, stored_twice, transaction_of, with_deliveries
from rmqinspect.find.life_records import LifeRecords, Searched, Step
from rmqinspect.find.queue_units import COMPACTION, Unit, compacted_topics, files_of_queue, units_of
from rmqinspect.index.geometry import IndexFile
from rmqinspect.index.lookup import look_up
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import Store
from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES, Request
from rmqinspect.tables.transactions import read_surroundings
from rmqinspect.text import describe_offset
from rmqinspect.topics import LMQ_PREFIX, REVIVE_PREFIX, TIMER_TOPIC


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key of a record, and the index files with an entry that leads from it to the record."""

    kind: str  # msg_id or key
    key: str
    files: tuple[str, ...]
    detail: str = ""  # why there is no file


def entries_of(records: LifeRecords, step: Step) -> list[KeyEntry]:
    """Return the keys of a record with the index files that lead from each to the record.

    An entry holds a hash: another key may have the same. Source: IndexService#buildIndex.

    :raises Unreadable: an I/O error.
    """
    if not has_index_keys(step.sys_flag):
        return []
    keys = [("msg_id", step.properties.get("UNIQ_KEY")), *(("key", key) for key in dict.fromkeys(step.keys))]
    wanted = {
        key: [index_hash(index_key(step.topic, key, mark)) for mark in (ID_MARKS if kind == "msg_id" else ("",))]
        for kind, key in reversed(keys)
        if key
    }
    if not wanted:
        return []
    place, found = step.physical_offset, dict[str, list[str]]()
    for index in _files_around(records.index_files, place):
        for key, places in look_up([index], wanted, records.log.follows, records.spans_of).places.items():
            if place in places:
                found.setdefault(key, []).append(index.file.name)
    why = "" if len(found) == len(wanted) else _why_none(records, place)
    return [KeyEntry(kind, key, tuple(found.get(key, ())), "" if key in found else why) for kind, key in keys if key]


def _borders(index: IndexFile) -> tuple[int, int]:
    """Return the lowest and the highest place that a file's header names."""
    assert index.header is not None
    return int(index.header.begin_physical_offset), int(index.header.end_physical_offset)


def _files_around(files: Sequence[IndexFile], place: int) -> list[IndexFile]:
    """Return the files whose borders a place lies between."""
    return [index for index in files if _borders(index)[0] <= place <= _borders(index)[1]]


def _why_none(records: LifeRecords, place: int) -> str:
    """Return why no entry leads to a record."""
    files = records.index_files
    if records.store.hides("index") or records.unread_index:
        records.unread.append("not all index files could be read")
        return "not known: not all index files could be read"
    if not files:
        return "no index file can be used" if records.store.index_files else "no index files given"
    first, last = _borders(files[0])[0], max(_borders(index)[1] for index in files)
    if place < first:
        return f"the index begins at {describe_offset(first)}"
    if place > last:
        return f"the index ends at {describe_offset(last)}"
    around = _files_around(files, place)
    if around and not look_up(around, {}, records.log.follows, records.spans_of).files:
        return f"{around[0].file.name} contradicts itself"
    between = [(low, high) for low, high in pairwise(files) if _borders(low)[1] < place < _borders(high)[0]]
    if between:
        return f"{between[0][0].file.name} ends before it, {between[0][1].file.name} begins behind it"
    return "the entry is missing"


MOST_NOTES = 2000  # records of a topic that are searched behind the message
_MOST_KEPT = 1 << 17  # notes, for the next lives
_LONGEST = 1 << 16  # bytes of a checkpoint or ack


@dataclass(frozen=True, slots=True)
class MessagePop:
    """The last pop of a message by a group. Times are ms."""

    group: str
    physical_offset: int  # of the record that was popped
    pop_time: int
    visible_again: int  # unless it is acknowledged before
    acknowledged: bool
    pops: int  # how often, as far as it was searched


def pops_of(records: LifeRecords, steps: Sequence[Step]) -> tuple[list[MessagePop], bool]:
    """Return the pops of some records; and whether all checkpoints and acks behind the first record were searched.

    :raises Unreadable: an I/O error.
    """
    topics = {file.topic for file in records.store.queue_files if file.topic.startswith(REVIVE_PREFIX)}
    if not topics or not steps:
        return [], True
    states, complete = PopStates(), True
    queues = {(step.topic, step.queue_id) for step in steps}
    first = min(step.physical_offset for step in steps)
    for topic in (TIMER_TOPIC, *sorted(topics)):
        places, all_of_them = records.places_behind(topic, first, MOST_NOTES)
        complete = complete and all_of_them
        for place in places:
            if place not in records.notes:
                if len(records.notes) >= _MOST_KEPT:
                    records.notes.clear()
                records.notes[place] = _note_of(records.log.fields_at(place))
            note = records.notes[place]
            if note is not None and (note.pop.topic, note.pop.queue_id) in queues:
                states.add(note)
    return [
        MessagePop(
            group,
            step.physical_offset,
            popped.checkpoint.pop.pop_time,
            popped.checkpoint.revive_time,
            popped.acked,
            popped.pops,
        )
        for step in steps
        for group, popped in states.of_message(step.topic, step.queue_id, step.queue_offset).items()
    ], complete


def _note_of(record: ParsedFields | None) -> Checkpoint | Ack | None:
    if record is None:
        return None
    stored = Stored(record.topic, record.number("queue_id"), 0, 0, record.properties)
    body = record.body
    if copy_of(stored).kind not in ("checkpoint", "ack") or body is None or len(body) > _LONGEST:
        return None
    try:
        parsed = parse_json(body).value
    except NotJson:
        return None
    return read_body(parsed) if isinstance(parsed, dict) else None


LIFE_DATABASES = ("config/consumerOffsets", "config/topics", *CONFIG_DATABASES, *QUEUE_DATABASES)
"""Folders of the RocksDB databases that a life may be read from."""

_MOST_TIMERS = 2000  # records of the timer topic that are searched for one that cancels a message
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Passing:
    """How a group stands to one place of a message in a queue."""

    topic: str
    queue_id: int
    queue_offset: int
    messages: int  # of an inner batch; else 1
    passed: Passed


@dataclass(frozen=True, slots=True)
class GroupLife:
    """What a message's life holds of one consumer group."""

    group: str
    passings: tuple[Passing, ...]  # where the group has an offset in a queue of the message
    steps: tuple[Step, ...]  # scheduled retries, retries and the dead letter of the group
    pops: tuple[MessagePop, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """The life of one message. Places are physical offsets."""

    record: Step  # the one that was asked for
    units: tuple[Unit, ...]
    entries: tuple[KeyEntry, ...]
    steps: tuple[Step, ...]  # all records of the message, ascending; the one asked for is among them
    stored_twice: tuple[int, ...]  # those that a producer stored again
    cancelled_by: int | None  # the record that took the message off the timer wheel
    others: tuple[int, ...]  # records of other messages with the same id
    transaction: Transaction | None
    groups: tuple[GroupLife, ...]
    searched: Searched
    remarks: tuple[str, ...]  # what is not known, and why
    groups_unknown: str | None = None  # why not all groups are known, None if they are


def trace_life(store: Store, place: int, *, everything: bool = False, jobs: int = 1) -> Life:
    """Return the life of the message whose record lies at a physical offset; `everything`: read the whole log for it.

    :raises NothingFound: no record lies there.
    :raises Unreadable: an I/O error where the record lies.
    """
    with LifeTracer(store) as tracer:
        return tracer.trace(place, everything=everything, jobs=jobs)


class LifeTracer(LifeRecords):
    """Traces lives in one store; keeps what several of them need."""

    @cached_property
    def surroundings(self) -> Surroundings:
        """What the files beside the log say about transactions."""
        return read_surroundings(self.store, Request())

    @cached_property
    def compacted(self) -> frozenset[str]:
        """The topics with a compaction log."""
        return compacted_topics(self.store)

    def trace(self, place: int, *, everything: bool = False, jobs: int = 1) -> Life:
        """Return one life, as `trace_life` does."""
        record = self.record_of(place)
        if record is None:
            raise NothingFound(f"{self.store.name}: no record begins at physical offset {describe_offset(place)}")
        remarks: list[str] = []
        found, searched = self._or(
            remarks, lambda: self.search(record, everything=everything, jobs=jobs), ([record], Searched(0, (), ()))
        )
        copies, others = family(record, found)
        steps = with_deliveries([self._with_group(self._with_due(step), copies) for step in copies])
        twice = stored_twice(steps)
        compacted = self.compacted & {step.topic for step in steps if step.copy.is_consumed}
        remarks += (f"whether it is still served: {topic} has {COMPACTION}" for topic in sorted(compacted))
        transaction = self._or(remarks, lambda: transaction_of(self, self.surroundings, steps), None)
        return Life(
            record=next(step for step in steps if step.physical_offset == place),
            units=tuple(self._or(remarks, lambda: self._units(place), [])),
            entries=tuple(self._or(remarks, lambda: entries_of(self, record), [])),
            steps=tuple(steps),
            stored_twice=tuple(step.physical_offset for step in twice),
            cancelled_by=self._or(remarks, lambda: self._cancel(steps), None),
            others=tuple(step.physical_offset for step in others),
            transaction=transaction,
            groups=tuple(self._groups(steps, remarks)),
            searched=searched,
            remarks=(*dict.fromkeys([*searched.remarks, *remarks, *self.consumers.problems[:1]]),),
            groups_unknown=self.consumers.unread or (None if self.consumers.given else "no consumer offsets given"),
        )

    def _or(self, remarks: list[str], ask: Callable[[], _Found], otherwise: _Found) -> _Found:
        """Return an answer; where a file cannot be read, note that."""
        try:
            return ask()
        except Unreadable as error:
            remarks.append(str(error))
            self.unread.append(str(error))
            return otherwise

    def _units(self, place: int) -> list[Unit]:
        record = self.log.fields_at(place)
        return [] if record is None else units_of(self.store, record)

    def _with_due(self, step: Step) -> Step:
        """Return a scheduled record with the time it is due: the tags code of its unit.

        Source: CommitLog#checkMessageAndReturnSize, ScheduleMessageService#computeDeliverTimestamp.
        """
        if step.copy.kind != "scheduled":
            return step
        files = [file for file in files_of_queue(self.store, step.topic, step.queue_id) if file.kind == "queue"]
        try:
            unit = find_unit_with_tags(files, step.queue_offset) if files else None
        except Unreadable:
            return step
        if unit is None or unit[0] != step.physical_offset or unit[2] <= EXT_ADDRESS_MAX:
            return step
        return replace(step, copy=replace(step.copy, due=unit[2]))

    def _with_group(self, step: Step, copies: Sequence[Step]) -> Step:
        """Return a pop retry whose group ends where the message's own topic begins."""
        topics = {copy.topic for copy in copies if copy.copy.is_consumed and copy.copy.group is None}
        if step.copy.kind != "pop_retry" or not any(step.topic.endswith(f"_{topic}") for topic in topics):
            return step
        stored = Stored(step.topic, step.queue_id, step.sys_flag, 0, step.properties)
        return replace(step, copy=replace(step.copy, group=copy_of(stored, topics).group))

    def _cancel(self, steps: Sequence[Step]) -> int | None:
        """Return the place of the record that cancels a timer message which was not delivered."""
        timers = [step for step in steps if step.copy.kind == "timer"]
        if not timers or any(step.copy.kind == "delivered" for step in steps):
            return None
        known = next((step.physical_offset for step in steps if step.copy.kind == "timer_cancel"), None)
        key = timers[0].properties.get("UNIQ_KEY")
        if known is not None or key is None:
            return known
        for record in self.behind(TIMER_TOPIC, timers[0].physical_offset, _MOST_TIMERS)[0]:
            named = record.properties.get("TIMER_DEL_UNIQKEY")
            if named is not None and key in (named, named.partition("+")[2]):
                return record.physical_offset
        return None

    def _groups(self, steps: Sequence[Step], remarks: list[str]) -> Iterator[GroupLife]:
        consumed = [step for step in steps if step.copy.is_consumed]
        passings = [passing for step in consumed for passing in self._passings(step)]
        nothing: tuple[list[MessagePop], bool] = ([], True)
        pops, complete = self._or(remarks, lambda: pops_of(self, consumed), nothing)
        if not complete:
            remarks.append("not all checkpoints and acks of pops were searched")
        groups = {passing.passed.group for passing in passings} | {pop.group for pop in pops}
        groups |= {step.copy.group for step in steps if step.copy.group is not None}
        for group in sorted(groups):
            yield GroupLife(
                group,
                tuple(passing for passing in passings if passing.passed.group == group),
                tuple(step for step in steps if step.copy.group == group),
                tuple(pop for pop in pops if pop.group == group),
            )

    def _passings(self, step: Step) -> Iterator[Passing]:
        queue = step.topic, step.queue_id, step.queue_offset
        for passed in self.consumers.of(*queue):
            yield Passing(*queue, step.copy.messages, passed)
        if "INNER_MULTI_DISPATCH" not in step.properties:
            return
        no_units: list[Unit] = []
        for unit in self._or([], lambda: self._units(step.physical_offset), no_units):
            if unit.topic.startswith(LMQ_PREFIX):
                queue = unit.topic, unit.queue_id, unit.queue_offset
                yield from (Passing(*queue, 1, passed) for passed in self.consumers.of(*queue))

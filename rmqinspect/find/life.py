"""The life of a message: where it is stored, what leads to it, and what became of it.

    record        its queue unit, those of light queues, the index entries of its keys
    copies        what a delay, a timer, a transaction, retries and dead letters made of it, in the order of the log
    groups        whether each has passed it, and the retries and the dead letter it caused
    traces        what clients say of sending and consuming it

`trace_life` needs a few reads. What it did not search is said.

Not all records with one UNIQ_KEY are copies of one message:

    its origin is a copy         ORIGIN_MESSAGE_ID, PREPAREDTRANSACTIONOFFSET
    the same body                and no origin that says otherwise
    another body                 a copy only where all records with the id can be of one message

Records of one client batch may share the id of the batch (4.8.0 to 5.3.3): they lie side by side, with the same store
time, and are different messages even if their bodies are the same.

What became of a half message is judged by the rules for all transactions of a store. The commit record, and the copy
in TRANS_CHECK_MAX_TIME_TOPIC, are records of the life. An op record has no UNIQ_KEY: it is searched behind the half
message.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.copies import NO_COPIES, Stored, copy_of
from rmqinspect.broker.transactions import (
    IN_HALF_TOPIC,
    IN_REAL_TOPIC,
    IN_ROCKSDB,
    REASONS,
    STATES,
    Decisions,
    Halves,
    Surroundings,
    judge,
)
from rmqinspect.codec.arrays import ABSENT, Ints
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.consumequeue.units import find_unit_with_tags
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.consumers import Passed
from rmqinspect.find.life_index import KeyEntry, entries_of
from rmqinspect.find.life_records import LifeRecords, MessagePop, Searched, Step
from rmqinspect.find.life_traces import Traced, TraceRecords
from rmqinspect.find.queue_units import COMPACTION, Unit, compacted_topics, files_of_queue, units_of
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES
from rmqinspect.tables.transactions import read_surroundings
from rmqinspect.text import describe_offset
from rmqinspect.topics import HALF_TOPIC, LMQ_PREFIX, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, TIMER_TOPIC


def family(start: Step, steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Return (copies of the message of `start`, other messages with its id), each ascending as `steps` are."""
    by_place = {step.physical_offset: step for step in steps}
    mates = _batch_mates(steps)
    one_message = len({step.body for step in steps if step.copy.kind in ("sent", "half")}) <= 1  # a producer's
    members = {start.physical_offset: start}
    while True:
        rest = [step for step in steps if step.physical_offset not in members]
        joining = next((step for step in rest if _is_linked(step, members)), None) or next(
            (step for step in rest if _is_alike(step, members, by_place, mates, one_message=one_message)), None
        )
        if joining is None:
            break
        members[joining.physical_offset] = joining
    copies = [step for step in steps if step.physical_offset in members]
    return copies, [step for step in steps if step.physical_offset not in members]


def with_deliveries(copies: Sequence[Step]) -> list[Step]:
    """Return the records of a message with those that were delivered: as other writers store them, they do not say so.

    Such a record lies behind one that waits for its topic, and was sent at the same time.
    """
    told: list[Step] = []
    for step in copies:
        waits = (one for one in told if one.copy.bound_for and one.copy.kind in ("scheduled", "timer"))
        origin = next((one for one in waits if one.copy.bound_for == (step.topic, step.queue_id)), None)
        if step.copy.kind == "sent" and origin is not None and origin.born_timestamp == step.born_timestamp:
            step = replace(
                step, copy=replace(step.copy, kind="delivered", level=origin.copy.level, due=origin.copy.due)
            )
        told.append(step)
    return told


def stored_twice(copies: Sequence[Step]) -> list[Step]:
    """Return the records of a message that a producer stored again, as after a timeout: all but the first."""
    return [step for step in copies if step.copy.kind == "sent"][1:]


def _is_linked(step: Step, members: dict[int, Step]) -> bool:
    """Whether a record names one of the others, or one of them names it."""
    if step.copy.kind == "timer_cancel":
        return any(_cancels(step.properties, member) for member in members.values())
    return any(step.physical_offset in member.named or place in step.named for place, member in members.items())


def _is_alike(
    step: Step, members: dict[int, Step], by_place: dict[int, Step], mates: list[set[int]], *, one_message: bool
) -> bool:
    """Whether a record that names none of the others is a copy all the same."""
    if step.copy.kind in NO_COPIES or step.copy.kind == "timer_cancel":
        return False
    if not step.named.isdisjoint(by_place):  # a copy of another
        return False
    if any(step.physical_offset in group and not group.isdisjoint(members) for group in mates):
        return False
    return one_message or any(step.body == member.body for member in members.values())


def _cancels(properties: Mapping[str, str], timer: Step) -> bool:
    """Whether a record takes a message off the timer wheel: it names the UNIQ_KEY, in 5.3.2 behind `topic+`.

    Source: TimerMessageStore#doPut, TimerMessageStore#buildDeleteKey.
    """
    named, key = properties.get("TIMER_DEL_UNIQKEY"), timer.properties.get("UNIQ_KEY")
    if timer.copy.kind != "timer" or named is None or key is None:
        return False
    return key in (named, named.partition("+")[2])


def _batch_mates(steps: Sequence[Step]) -> list[set[int]]:
    """Return the places of records that were stored side by side, at the same time, in one queue."""
    groups: list[set[int]] = []
    for before, step in pairwise(steps):
        alike = {(one.copy.kind, one.topic, one.queue_id, one.store_timestamp) for one in (before, step)}
        side_by_side = 0 <= step.physical_offset - before.end <= EntryHead.sizeof()
        if side_by_side and len(alike) == 1 and step.copy.kind == "sent":
            if not groups or before.physical_offset not in groups[-1]:
                groups.append({before.physical_offset})
            groups[-1].add(step.physical_offset)
    return groups


_MOST_OPS = 5000  # op records that are searched behind the first copy of a half message, and behind the last
_KEPT_IN = {HALF_TOPIC: IN_HALF_TOPIC, ROCKSDB_HALF_TOPIC: IN_ROCKSDB}
_OP_TOPICS = {HALF_TOPIC: OP_TOPIC, ROCKSDB_HALF_TOPIC: ROCKSDB_OP_TOPIC}
_NOT_ALL_SEARCHED = f"among {_MOST_OPS} op records behind it none is about it; later ones were not searched"


class Transaction(Struct, frozen=True):
    """The transaction of a message. Places are physical offsets."""

    state: str  # as in the table `transactions`
    why: str | None  # what makes the state uncertain, or odd
    halves: tuple[int, ...]  # the half message, and the copies made when it was checked
    checks: int
    commit: int | None
    op: int | None  # of the op record


def transaction_of(records: LifeRecords, around: Surroundings, steps: Sequence[Step]) -> Transaction | None:
    """Return the transaction of a message by the records of its life, None if it has none.

    :raises Unreadable: an I/O error.
    """
    of_kinds = ([step for step in steps if step.copy.kind == kind] for kind in ("half", "given_up", "rollback"))
    halves, given_up, ends = of_kinds
    # A delayed message is committed into the topic of its delay.
    commits = [step for step in steps if step.copy.kind == "commit" or step.links.half is not None]
    commits = [step for step in commits if step not in ends]
    if not halves:
        record = next(iter((*commits, *given_up)), None)
        if record is None:
            return None
        state, commit = ("committed", record.physical_offset) if commits else ("given_up", None)
        return Transaction(state, "the half message is not in the log", (), record.copy.checks, commit, None)
    decided, op, complete = _op_of(records, halves)
    # Op records in RocksDB, and rollback records up to 4.2, name the half message by its place.
    by_place = [(end.links.half, end.physical_offset) for end in ends if end.links.half is not None]
    by_offset: list[tuple[int, int]] = []
    if decided is not None and decided.topic == HALF_TOPIC:
        by_offset = [(decided.queue_offset, op)]
    elif decided is not None:
        by_place.insert(0, (decided.physical_offset, op))
    judged = judge(
        Halves(
            _ints(step.physical_offset for step in halves),
            _ints(step.queue_offset for step in halves),
            np.ones(len(halves), np.uint64),  # of one message
            np.array([_KEPT_IN.get(step.topic, IN_REAL_TOPIC) for step in halves], np.int8),
        ),
        Decisions(
            commit_of=_ints(step.links.half or 0 for step in commits),
            commit_offset=_ints(step.physical_offset for step in commits),
            commit_key=np.ones(len(commits), np.uint64),
            op_of=_ints(queue_offset for queue_offset, _ in by_offset),
            op_offset=_ints(at for _, at in by_offset),
            end_of=_ints(place for place, _ in by_place),
            end_offset=_ints(at for _, at in by_place),
            discard_key=np.ones(len(given_up), np.uint64),
            discard_offset=_ints(step.physical_offset for step in given_up),
        ),
        around,
    )
    commit, op_offset = (
        None if offsets[0] == ABSENT else int(offsets[0]) for offsets in (judged.commit_offset, judged.op_offset)
    )
    state, why = STATES[judged.state[0]], None if judged.reason[0] == ABSENT else REASONS[judged.reason[0]]
    if decided is None and not complete:
        why = _NOT_ALL_SEARCHED if state not in ("committed", "given_up") else None
    return Transaction(
        state,
        why,
        tuple(step.physical_offset for step in halves),
        max(step.copy.checks for step in (*halves, *given_up)),
        commit,
        op_offset,
    )


def _ints(numbers: Iterable[int]) -> Ints:
    return np.array(list(numbers), np.int64)


def _op_of(records: LifeRecords, halves: Sequence[Step]) -> tuple[Step | None, int, bool]:
    """Return (half message, place of the op record about it, whether all that may be it were searched)."""
    topic, complete = _OP_TOPICS.get(halves[-1].topic), True
    if topic is None:
        return None, 0, True  # up to 4.2 a rollback is a record of its own, in the real topic
    # Most are decided at once, or after the last check.
    for half in (halves[0], halves[-1]):
        ops, complete = records.behind(topic, half.physical_offset, _MOST_OPS)
        for op in ops:
            for copy in reversed(halves):
                if _names(op, copy):
                    return copy, op.physical_offset or 0, True
        if complete:
            break
    return None, 0, complete


def _names(op: ParsedFields, half: Step) -> bool:
    """Whether an op record names a half message: its queue offset in the body, or its place.

    Source: TransactionalMessageBridge#putOpMessage, TransactionalMessageRocksDBService (5.4.0).
    """
    properties = op.properties
    if properties.get("TAGS") != "d":
        return False
    if "TRANS_OFFSET" in properties:
        return properties["TRANS_OFFSET"] == str(half.physical_offset)
    return op.number("queue_id") == half.queue_id and str(half.queue_offset).encode() in (op.body or b"").split(b",")


LIFE_DATABASES = ("config/consumerOffsets", "config/topics", *CONFIG_DATABASES, *QUEUE_DATABASES)
"""Folders of the RocksDB databases that a life may be read from."""

_MOST_TIMERS = 2000  # records of the timer topic that are searched for one that cancels a message
_Found = TypeVar("_Found")


class Passing(Struct, frozen=True):
    """How a group stands to one place of a message in a queue."""

    topic: str
    queue_id: int
    queue_offset: int
    messages: int  # of an inner batch; else 1
    passed: Passed


class GroupLife(Struct, frozen=True):
    """What a message's life holds of one consumer group."""

    group: str
    passings: tuple[Passing, ...]  # where the group has an offset in a queue of the message
    steps: tuple[Step, ...]  # scheduled retries, retries and the dead letter of the group
    pops: tuple[MessagePop, ...]


class Life(Struct, frozen=True):
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
    traces: tuple[Traced, ...] = ()  # what clients traced of it, by time
    trace_topics: tuple[str, ...] = ()  # where that was searched


def trace_life(store: Store, place: int, *, everything: bool = False, jobs: int = 1) -> Life:
    """Return the life of the message whose record lies at a physical offset; `everything`: read the whole log for it.

    :raises NothingFound: no record lies there.
    :raises Unreadable: an I/O error where the record lies.
    """
    with LifeTracer(store) as tracer:
        return tracer.trace(place, everything=everything, jobs=jobs)


class LifeTracer(LifeRecords):
    """Traces lives in one store; keeps what several of them need."""

    def __init__(self, store: Store, trace_topics: tuple[str, ...] = ()) -> None:
        """Take the topics that hold message traces, besides those that are found."""
        super().__init__(store)
        self._trace_topics = trace_topics

    @cached_property
    def traces(self) -> TraceRecords:
        """What clients traced."""
        return TraceRecords(self, self._trace_topics)

    def holds_traces(self, place: int) -> bool:
        """Whether the record at a physical offset is one of message traces."""
        identity = self.log.identity_at(place)
        return identity is not None and identity.topic in self.traces.topics

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
        compacted = self.compacted & {step.topic for step in steps if step.copy.is_consumed}
        remarks += (f"whether it is still served: {topic} has {COMPACTION}" for topic in sorted(compacted))
        transaction = self._or(remarks, lambda: transaction_of(self, self.surroundings, steps), None)
        untraced: tuple[list[Traced], list[str]] = ([], [])
        traces, unknown = self._or(remarks, lambda: self.traces.of(steps, others), untraced)
        remarks += unknown
        return Life(
            record=next(step for step in steps if step.physical_offset == place),
            units=tuple(self._or(remarks, lambda: self._units(place), [])),
            entries=tuple(self._or(remarks, lambda: entries_of(self, record), [])),
            steps=tuple(steps),
            stored_twice=tuple(step.physical_offset for step in stored_twice(steps)),
            cancelled_by=self._or(remarks, lambda: self._cancel(steps), None),
            others=tuple(step.physical_offset for step in others),
            transaction=transaction,
            groups=tuple(self._groups(steps, remarks)),
            searched=searched,
            remarks=(*dict.fromkeys([*searched.remarks, *remarks, *self.consumers.problems[:1]]),),
            traces=tuple(traces),
            trace_topics=() if record.topic in self.traces.topics else self.traces.topics,
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
        for step in steps:
            if step.copy.kind == "timer_cancel":
                return step.physical_offset
        if "UNIQ_KEY" not in timers[0].properties:
            return None
        behind, _ = self.behind(TIMER_TOPIC, timers[0].physical_offset, _MOST_TIMERS)
        return next((one.physical_offset for one in behind if _cancels(one.properties, timers[0])), None)

    def _groups(self, steps: Sequence[Step], remarks: list[str]) -> Iterator[GroupLife]:
        consumed = [step for step in steps if step.copy.is_consumed]
        passings = [passing for step in consumed for passing in self._passings(step)]
        nothing: tuple[list[MessagePop], bool] = ([], True)
        pops, complete = self._or(remarks, lambda: self.pops_of(consumed), nothing)
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
        for passed in self.consumers.of(*queue, step.store_timestamp):
            yield Passing(*queue, step.copy.messages, passed)
        if "INNER_MULTI_DISPATCH" not in step.properties:
            return
        no_units: list[Unit] = []
        for unit in self._or([], lambda: self._units(step.physical_offset), no_units):
            if unit.topic.startswith(LMQ_PREFIX):
                queue = unit.topic, unit.queue_id, unit.queue_offset
                yield from (Passing(*queue, 1, passed) for passed in self.consumers.of(*queue, step.store_timestamp))

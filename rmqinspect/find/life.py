"""The life of a message: where it is stored, what leads to it, and what became of it.

    record        its queue unit, those of light queues, the index entries of its keys
    copies        what a delay, a timer, a transaction, retries and dead letters made of it, in the order of the log
    groups        whether each has passed it, and the retries and the dead letter it caused

`trace_life` needs a few reads. What it did not search is said.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from rmqinspect.broker.copies import Stored, copy_of
from rmqinspect.broker.transactions import Surroundings
from rmqinspect.consumequeue.units import find_unit_with_tags
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.consumers import Passed
from rmqinspect.find.life_family import family, stored_twice
from rmqinspect.find.life_index import KeyEntry, entries_of
from rmqinspect.find.life_pop import MessagePop, pops_of
from rmqinspect.find.life_queues import Unit, units_of
from rmqinspect.find.life_records import LifeRecords, Searched, Step
from rmqinspect.find.life_transaction import Transaction, transaction_of
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import Store
from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES, Request
from rmqinspect.tables.transactions import read_surroundings
from rmqinspect.text import describe_offset
from rmqinspect.topics import LMQ_PREFIX, TIMER_TOPIC

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

    def trace(self, place: int, *, everything: bool = False, jobs: int = 1) -> Life:
        """Return one life, as `trace_life` does."""
        record = next(iter(self.steps_at([place])), None)
        if record is None:
            raise NothingFound(f"{self.store.name}: no record begins at physical offset {describe_offset(place)}")
        remarks: list[str] = []
        found, searched = self._or(
            remarks, lambda: self.search(record, everything=everything, jobs=jobs), ([record], Searched(0, (), ()))
        )
        copies, others = family(record, found)
        steps = [self._with_group(self._with_due(step), copies) for step in copies]
        twice = stored_twice(steps)
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
        )

    def _or(self, remarks: list[str], ask: Callable[[], _Found], otherwise: _Found) -> _Found:
        """Return an answer; where a file cannot be read, note that."""
        try:
            return ask()
        except Unreadable as error:
            remarks.append(str(error))
            return otherwise

    def _units(self, place: int) -> list[Unit]:
        record = self.log.record_at(place)
        return [] if record is None else units_of(self.store, record)

    def _with_due(self, step: Step) -> Step:
        """Return a scheduled record with the time it is due: the tags code of its unit.

        Source: CommitLog#checkMessageAndReturnSize, ScheduleMessageService#computeDeliverTimestamp.
        """
        if step.copy.kind != "scheduled":
            return step
        files = [
            file
            for file in self.store.queue_files
            if (file.kind, file.topic, file.queue_id) == ("queue", step.topic, step.queue_id)
        ]
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

"""What consumers get after a start: the records of the log against the units of the queues as the start leaves them.

    log      |rec 5|rec 6|rec 7|          records of one queue, by QUEUEOFFSET
    units      5     6                    of that queue, between its minimum and its maximum
    7 leads from nowhere: unreachable

A sound record that stays is unreachable if no unit of its queue leads to it, and the units could: another record of the
queue has not taken its queue offset, it is of no former life of the topic, and the broker knows the queue. `rebuild`
makes units of all that are counted here.

A queue is known that has units, that topics.json has, or that is of the broker's own topics. Where topics.json and the
queue are gone, a group's offset proves the queue in releases that delete the offsets of a deleted topic (5.0.0 on).
Records in no queue, which nothing proves, are counted by topic: the topic was deleted, or lost with its metadata.

A topic that was made again begins at 0: what lies before that in all its queues is of its former life
(`broker.former_topics`).

Source: ConsumeQueue#putMessagePositionInfoWrapper, DefaultMessageStore#getMessage, TopicConfigManager,
AdminBrokerProcessor#deleteTopic, ConsumerOffsetManager#cleanOffsetByTopic (5.0.0); RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.former_topics import may_be_made_again
from rmqinspect.codec.arrays import Bools, Ints, distinct, is_among
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.log_records import LogView
from rmqinspect.forecast.queues import Led
from rmqinspect.forecast.record_fold import Queue, QueueRecords, digest_of
from rmqinspect.forecast.settled import OtherUnits, QueueLog, wrapped

_NO_UNITS = np.empty((2, 0), np.int64)  # queue offsets, physical offsets
_WHOLE_LOG = 1 << 63
_MOST = 10_000  # units of a queue that are named


class QueueReach(NamedTuple):
    """What consumers do not get of a queue."""

    unreachable: int = 0  # messages of sound records that no unit leads to
    next_offset: int = 0  # behind the highest queue offset of its records: where the queue would end after `rebuild`
    strangers: tuple[int, ...] = ()  # physical offsets that units lead to, in the log, and no record of the queue has
    doubtful: tuple[int, ...] = ()  # the queue offsets of these units, and of those whose record is damaged


class Reach(Struct):
    """What consumers do not get after a start."""

    queues: dict[Queue, QueueReach] = field(default_factory=dict)  # those of which they do not get something
    next_offsets: dict[Queue, int] = field(default_factory=dict)
    in_no_queue: Counter[str] = field(default_factory=Counter)  # records by topic that nothing proves a queue of

    @property
    def unreachable(self) -> Counter[str]:
        """Messages by topic that no unit leads to."""
        found: Counter[str] = Counter()
        for (topic, _), one in self.queues.items():
            if one.unreachable:
                found[topic] += one.unreachable
        return found


class Judge:
    """Compares the records of one log with the queues of several starts; what is equal is compared once."""

    def __init__(self, view: LogView) -> None:
        """Take the records.

        :raises Unreadable: units cannot be read.
        """
        self._view = view
        self._restarts = _restarts(view)
        self._known: dict[tuple[object, ...], QueueReach] = {}

    def reach(self, led: Mapping[Queue, Led], log: range, is_known: Callable[[str, int], bool]) -> Reach:
        """Return what consumers do not get of records whose physical offsets are in `log`.

        `is_known`: whether the broker has, or had, a queue without units.

        :raises Unreadable: units of the files cannot be read.
        :raises OtherUnits: they are not those that were compared with the log.
        """
        found = Reach()
        for queue in self._view.queues:
            units = led.get(queue)
            if units is not None and units.ends[0] >= units.ends[1]:
                units = None
            records = self._view.of(queue)
            # But for those of a former life of the topic.
            part = range(max(log.start, self._restarts.get(queue[0], 0)), log.stop)
            if units is None and not is_known(*queue):
                if number := records.sound_messages(part):
                    found.in_no_queue[queue[0]] += number
                continue
            key = queue, part, None if units is None else units.state
            if key not in self._known:
                self._known[key] = _compare(records, units, part)
            one = self._known[key]
            found.next_offsets[queue] = one.next_offset
            if one.unreachable or one.doubtful:
                found.queues[queue] = one
        return found

    @property
    def has_records(self) -> bool:
        """Whether the log has a record that gets a queue unit."""
        return bool(self._view.queues)

    def is_steady(self, batch_topics: Collection[str]) -> bool:
        """Return whether each queue has each offset once, from its first one on: else no rebuilt queue would be right.

        `batch_topics`: those whose queues have units that hold several offsets.

        Of a queue whose units cannot be read that is taken for granted.
        """
        for queue in self._view.queues:
            if self._is_whole(queue):
                continue
            with suppress(Unreadable, OtherUnits):
                records = self._view.of(queue).all(self._present(queue))
                records = records.chosen(records.in_place)
                steps = np.diff(records.offsets)
                odd = steps < records.messages[:-1] if queue[0] in batch_topics else steps != 1
                if odd.any():
                    return False
        return True

    def _is_whole(self, queue: Queue) -> bool:
        """Return whether all records of a queue have their units, one behind the other, and no others were there."""
        return bool(self._without_hole(queue))

    def _without_hole(self, queue: Queue) -> range:
        """Return the queue offsets of all records of a queue if none lacks its unit; else none."""
        log = self._view.of(queue)
        with suppress(Unreadable, OtherUnits):
            whole = log.settled(self._present(queue))
            if not len(log.kept.places) and whole.next_offset - whole.first_offset == whole.records:
                return range(whole.first_offset, whole.next_offset)
        return range(0)

    def without_record(self, queue: Queue, first: int, end: int) -> int:
        """Return how many of the queue offsets in [first, end) no sound record of a queue has; 0: not known."""
        known = self._without_hole(queue)
        if known.start <= first and end <= known.stop:
            return 0
        try:
            records = self._view.of(queue).all(self._present(queue))
        except (Unreadable, OtherUnits):
            return 0
        records = records.chosen(records.sound & records.in_place)
        records = records.chosen((records.offsets < end) & (records.offsets + records.messages > first))
        covered = np.zeros(end - first + 1, np.int64)
        for edge, step in ((records.offsets, 1), (records.offsets + records.messages, -1)):
            np.add.at(covered, np.clip(edge, first, end) - first, step)
        return int((np.cumsum(covered[:-1]) <= 0).sum())

    def _present(self, queue: Queue) -> range:
        """Return the part of the log that is of the present life of a queue's topic."""
        return range(self._restarts.get(queue[0], 0), _WHOLE_LOG)


def _restarts(view: LogView) -> dict[str, int]:
    """Return from which physical offset on the records of a topic are of its present life, where it had another."""
    found: dict[str, int] = {}
    for topic, queues in groupby(view.queues, key=itemgetter(0)):
        logs = {queue: view.of(queue) for queue in queues}
        places = {queue: place for queue, log in logs.items() if (place := log.restart()) is not None}
        lives = [life for queue, log in logs.items() for life in log.lives(queue)] if places else []
        for queue, place in places.items():
            if may_be_made_again(queue, logs[queue].last_before(place), place, lives):
                found[topic] = max(place, found.get(topic, 0))
    return found


def _compare(queue: QueueLog, led: Led | None, log: range) -> QueueReach:
    """Compare the records of a queue with its units.

    :raises Unreadable: the units of its files cannot be read.
    :raises OtherUnits: they are not those that were compared with the log.
    """
    try:
        return _by_units(queue, () if led is None else led.tables(), log) or _by_all(queue, led, log)
    except Unreadable:
        # Of queues in RocksDB often only the ends were unpacked: a unit has the place that its record says.
        records, ends = queue.all(log), (0, 0) if led is None else led.ends
        return _of_reached(records, (records.offsets >= ends[0]) & (records.offsets < ends[1]))


def _by_units(queue: QueueLog, tables: Iterable[Ints], log: range) -> QueueReach | None:
    """Compare the records that are kept with the units; None where units of others are gone."""
    records, wanted = queue.kept.between(log.start, log.stop), queue.settled(log)
    taken = np.zeros(len(records.places), np.bool_)
    rest, met, digest = [_NO_UNITS], 0, 0
    for numbers, places in tables:
        is_settled = queue.are_settled(numbers, places) & (places >= log.start) & (places < log.stop)
        numbers_of_settled = numbers[is_settled]
        met += len(numbers_of_settled)
        digest = wrapped(digest + int(digest_of(places[is_settled], numbers_of_settled).sum().view(np.int64)))
        if len(records.offsets):
            taken |= is_among(records.offsets, numbers_of_settled)
        if len(numbers_of_settled) < len(numbers):
            rest.append(np.stack((numbers[~is_settled], places[~is_settled])))
    if (met, digest) != wanted[:2]:
        return None
    if not len(records.offsets) and len(rest) == 1:  # of most queues
        return QueueReach(next_offset=wanted.next_offset)
    found = _of_units(records, np.concatenate(rest, axis=1), log, taken)
    return found._replace(next_offset=max(found.next_offset, wanted.next_offset))


def _by_all(queue: QueueLog, led: Led | None, log: range) -> QueueReach:
    """Compare all records with the units."""
    tables = [_NO_UNITS, *(() if led is None else led.tables())]
    return _of_units(queue.all(log), np.concatenate(tables, axis=1), log)


def _of_units(records: QueueRecords, units: Ints, log: range, taken: Bools | None = None) -> QueueReach:
    """Return what consumers do not get of records by units; `taken`: others have their queue offsets."""
    numbers, places = units
    found = _of_reached(records, is_among(records.places, places), taken)
    strange = ~is_among(places, records.places[records.sound]) & (places >= log.start) & (places < log.stop)
    strangers = tuple(distinct(places[strange]).tolist()[:_MOST])
    return found._replace(strangers=strangers, doubtful=tuple(numbers[strange].tolist()[:_MOST]))


def _of_reached(records: QueueRecords, reached: Bools, taken: Bools | None = None) -> QueueReach:
    """Return what consumers do not get of records, by which of them are reached."""
    left = records.sound & ~reached & ~is_among(records.offsets, records.offsets[reached])
    if taken is not None:
        left &= ~taken
    # Of records with one queue offset a unit can lead to one.
    _, first = np.unique(records.offsets[left], return_index=True)
    behind = records.offsets + records.messages
    return QueueReach(int(records.messages[left][first].sum()), int(behind.max()) if len(behind) else 0)

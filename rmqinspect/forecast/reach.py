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

A topic that was made again begins at 0: what lies before that in all its queues is of its former life.

Source: ConsumeQueue#putMessagePositionInfoWrapper, DefaultMessageStore#getMessage, TopicConfigManager,
AdminBrokerProcessor#deleteTopic, ConsumerOffsetManager#cleanOffsetByTopic (5.0.0); RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.log_records import LogView
from rmqinspect.forecast.queues import Led
from rmqinspect.forecast.record_fold import MOVED, Queue, QueueRecords

_NO_PLACES = np.empty(0, np.int64)
_MOST = 10_000  # units of a queue that are named


class QueueReach(NamedTuple):
    """What consumers do not get of a queue."""

    unreachable: int = 0  # messages of sound records that no unit leads to
    next_offset: int = 0  # behind the highest queue offset of its records: where the queue would end after `rebuild`
    strangers: tuple[int, ...] = ()  # physical offsets that units lead to, in the log, and no record of the queue has
    doubtful: tuple[int, ...] = ()  # the queue offsets of these units, and of those whose record is damaged


@dataclass(slots=True)
class Reach:
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
        """Take the records."""
        self._view = view
        self._restarts = _restarts(view)
        self._known: dict[tuple[object, ...], QueueReach] = {}

    def reach(self, led: Mapping[Queue, Led], log: range, is_known: Callable[[str, int], bool]) -> Reach:
        """Return what consumers do not get of records whose physical offsets are in `log`.

        `is_known`: whether the broker has, or had, a queue without units.

        """
        found = Reach()
        for queue in self._view.queues:
            units = led.get(queue)
            if units is not None and units.ends[0] >= units.ends[1]:
                units = None
            if units is None and not is_known(*queue):
                records = self._of(queue, log)
                if number := int(records.messages[records.sound].sum()):
                    found.in_no_queue[queue[0]] += number
                continue
            key = queue, log, None if units is None else units.state
            if key not in self._known:
                records = self._of(queue, log)
                try:
                    self._known[key] = _compare(records, units, log)
                except Unreadable:
                    # Of queues in RocksDB often only the ends were unpacked: a unit has the place that its record says.
                    self._known[key] = _by_ends(records, units.ends if units is not None else (0, 0))
            one = self._known[key]
            found.next_offsets[queue] = one.next_offset
            if one.unreachable or one.doubtful:
                found.queues[queue] = one
        return found

    def _of(self, queue: Queue, log: range) -> QueueRecords:
        """Return the records of a queue in a part of the log, but for those of a former life of the topic."""
        return self._view.of(queue).between(max(log.start, self._restarts.get(queue[0], 0)), log.stop)


def _restarts(view: LogView) -> dict[str, int]:
    """Return from which physical offset on the records of a topic are of its present life, where it had another."""
    found: dict[str, int] = {}
    for queue in view.queues:
        records = view.of(queue)
        records = records.chosen(records.state & MOVED == 0)
        again = np.flatnonzero((records.offsets[1:] == 0) & (records.offsets[:-1] > 0)) + 1
        if len(again):
            found[queue[0]] = max(int(records.places[again[-1]]), found.get(queue[0], 0))
    return found


def _compare(records: QueueRecords, led: Led | None, log: range) -> QueueReach:
    """Compare the records of a queue with its units.

    :raises Unreadable: the units cannot be read.
    """
    parts = [] if led is None else list(led.tables())
    numbers, places = np.concatenate(parts, axis=1) if parts else (_NO_PLACES, _NO_PLACES)
    found = _of_reached(records, np.isin(records.places, places))
    strange = ~np.isin(places, records.places[records.sound]) & (places >= log.start) & (places < log.stop)
    strangers = tuple(np.unique(places[strange]).tolist()[:_MOST])
    return found._replace(strangers=strangers, doubtful=tuple(numbers[strange].tolist()[:_MOST]))


def _by_ends(records: QueueRecords, ends: tuple[int, int]) -> QueueReach:
    """Return what is known of a queue by its minimum and maximum."""
    return _of_reached(records, (records.offsets >= ends[0]) & (records.offsets < ends[1]))


def _of_reached(records: QueueRecords, reached: Bools) -> QueueReach:
    """Return what consumers do not get of records, by which of them are reached."""
    left = records.chosen(records.sound & ~reached)
    left = left.chosen(~np.isin(left.offsets, records.offsets[reached]))
    # Of records with one queue offset a unit can lead to one.
    _, first = np.unique(left.offsets, return_index=True)
    behind = records.offsets + records.messages
    return QueueReach(int(left.messages[first].sum()), int(behind.max()) if len(behind) else 0)

"""How far a broker is with its delay levels: delayOffset.json against the queues of SCHEDULE_TOPIC_XXXX.

    queue of a level   | 0 | 1 | 2 | 3 | 4 |        tags code: when the message is due; due in the order of the queue
    offset 2                   ^                    2 is delivered next
    newest record              09:00                what is due before was delivered, or will be at once

A delivered message is a record of the log, stored when it was due. So one that was due later than the newest record
was not delivered, whatever delayOffset.json says.

Source: ScheduleMessageService#load, .DeliverDelayedMessageTimerTask#executeOnTimeUp; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.config.json_files import ConfigDocument, integer, key_number
from rmqinspect.consumequeue.units import find_units, message_units
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.topics import SCHEDULE_TOPIC

DELAY_OFFSETS = "delayOffset.json"
ALL = range(1 << 63)
_AT_ONCE = 1 << 16  # units


class Waiting(NamedTuple):
    """Messages of a level that were not due when the log's newest record was stored."""

    first: int  # queue offset
    messages: int  # before the offset of the level


def offsets_in(document: ConfigDocument | None) -> dict[int, int]:
    """Return the next queue offset of each level, from 1, in a copy of delayOffset.json; ascending."""
    if document is None or document.source is None:
        return {}
    numbers = ((key_number(level), integer(offset)) for level, offset in document.table("offsetTable").items())
    return dict(sorted((level, offset) for level, offset in numbers if level and level > 0 and offset is not None))


class DelayLevels(Struct):
    """The queues of the levels, judged at the store time of the log's newest record; each part is read once."""

    store: Store
    newest: int | None  # ms; None: not known, nothing is told
    _waiting: dict[tuple[int, int, int, range], Waiting | None] = field(default_factory=dict)
    _due: dict[tuple[int, int, int, range], int] = field(default_factory=dict)

    def waiting(self, level: int, first: int, end: int, log: range = ALL) -> Waiting | None:
        """Return the messages of [first, end) of a level's queue that were not due; None without any.

        `log`: where a record begins that counts.

        :raises Unreadable: the system reports an I/O error.
        """
        key = level, first, end, log
        if key not in self._waiting:
            self._waiting[key] = self._find_waiting(*key)
        return self._waiting[key]

    def due(self, level: int, first: int, end: int, log: range = ALL) -> int:
        """Return how many messages at the beginning of [first, end) of a level's queue were due.

        :raises Unreadable: the system reports an I/O error.
        """
        key = level, first, end, log
        if key not in self._due:
            self._due[key] = sum(self._find_due(*key))
        return self._due[key]

    def _find_waiting(self, level: int, first: int, end: int, log: range) -> Waiting | None:
        """Look from the end on: those of a level fall due in the order of its queue, so the last one tells of all."""
        files = self._files(level)
        if self.newest is None or not files or end <= first:
            return None
        (last,) = find_units(files, [end - 1])
        if last is None or last[2] <= self.newest:
            return None
        found: list[Ints] = []
        while end > first:
            low, late = max(first, end - _AT_ONCE), 0
            for offsets, units in message_units(files, low, end):
                not_due = units["tags_code"] > self.newest
                late += int(np.count_nonzero(not_due))
                found.append(offsets[not_due & _in_log(units, log)])
            end = low if late else first
        waiting = np.concatenate(found) if found else np.empty(0, np.int64)
        return Waiting(int(waiting.min()), len(waiting)) if len(waiting) else None

    def _find_due(self, level: int, first: int, end: int, log: range) -> Iterator[int]:
        files = self._files(level)
        for low in range(first, end if self.newest is not None and files else first, _AT_ONCE):
            due = [
                _in_log(units, log)[units["tags_code"] <= self.newest]
                for _, units in message_units(files, low, min(low + _AT_ONCE, end))
            ]
            yield sum(int(np.count_nonzero(some)) for some in due)
            if not any(map(len, due)):
                return

    def _files(self, level: int) -> list[QueueFile]:
        wanted = SCHEDULE_TOPIC, level - 1, "queue"
        return [file for file in self.store.queue_files if (file.topic, file.queue_id, file.kind) == wanted]


def _in_log(units: Units, log: range) -> Bools:
    places = units["physical_offset"]
    inside: Bools = (places >= log.start) & (places < log.stop)
    return inside

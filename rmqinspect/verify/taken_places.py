"""Records without a queue unit whose place in the queue has the unit of another record.

A consumer gets one message at a queue offset. Where a queue offset was given out twice, one of the two records has the
unit, and the other has none:

    record 165 212   %LMQ%fleet-1 queue 0 offset 21   <- the unit at 21
    record 166 022   %LMQ%fleet-1 queue 0 offset 21      no unit

It comes about where a start cut a queue shorter than the log, so that the broker goes on with offsets that records have
already; and, of light queues, where two records of different ordinary queues are stored at once.

Source: CommitLog#asyncPutMessage, LmqDispatch#wrapLmqDispatch: since 5.0.0 the offsets of a light queue are given out
under the lock of the ordinary queue, so that two threads may read the same one.
"""

from typing import NamedTuple

from rmqinspect.broker.dispatch import further_units
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.consumequeue.bounds import queue_files_of
from rmqinspect.consumequeue.units import find_units
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.verify.plan import QueueName

_MOST_LOOKED_AT = 10_000  # runs of records; each costs a few small reads


class Taken(NamedTuple):
    """The unit of another record in the place of a record that has none."""

    record: int | None  # the physical offset that the unit leads to; None: to no record
    twice: bool  # the record there has this queue offset, too: it was given out twice
    offsets: int  # how many of the queue offsets asked for have a unit, from the first one on


class TakenPlaces:
    """Looks up which units stand where records have none."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: dict[QueueName, tuple[QueueFile, ...]] | None = None
        self._left = _MOST_LOOKED_AT

    def find(self, queue: QueueName, queue_offset: int, messages: int) -> Taken | None:
        """Return what stands at a queue offset; None for nothing, or what cannot be read.

        `messages`: so many queue offsets from this one on are asked for.
        """
        if self._files is None:
            files = (files for files in queue_files_of(self._store) if files[0].kind == "queue")
            self._files = {(some[0].topic, some[0].queue_id): tuple(some) for some in files}
        files_of = self._files.get(queue)
        if files_of is None or self._left <= 0 or queue_offset < 0:
            return None
        self._left -= 1
        try:
            first = find_units(files_of, (queue_offset,))[0]
            if first is None:
                return None
            with RecordReader(self._store) as reader:
                fields = reader.fields_at(first[0])
            if fields is None:
                return Taken(None, twice=False, offsets=1)
            return Taken(
                first[0], queue_offset in _offsets_of(fields, queue), self._count(files_of, queue_offset, messages)
            )
        except Unreadable:
            return None

    @staticmethod
    def _count(files: tuple[QueueFile, ...], queue_offset: int, messages: int) -> int:
        """Return how many queue offsets from the first on have a unit; units of a queue have no gap before its end."""
        low, high = 1, messages
        while low < high:
            middle = (low + high + 1) // 2
            if find_units(files, (queue_offset + middle - 1,))[0] is None:
                high = middle - 1
            else:
                low = middle
        return low


def _offsets_of(fields: ParsedFields, queue: QueueName) -> list[int]:
    """Return the queue offsets that a record has in a queue: its own, and those of multi-dispatch."""
    own = fields.topic, fields.number("queue_id")
    offsets = [fields.number("queue_offset")] if own == queue else []
    properties = fields.properties
    names, numbers = (properties.get(name, "") for name in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"))
    further = further_units(fields.topic.encode(), own[1], names.encode(), numbers.encode())
    return offsets + [offset for name, queue_id, offset in further if (name, queue_id) == queue]

"""The consume queues of a store as they are before a start, read once for all walks.

A broker reads the last three files of each queue unit by unit up to the first one that it does not accept; so does
`QueueEnds`. Of every other file nothing is read before a walk asks for it.

Source: ConsumeQueue#recover, MappedFileQueue#truncateDirtyFiles; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.consumequeue.bounds import peek_queues
from rmqinspect.errors import Unreadable
from rmqinspect.forecast import queue_units
from rmqinspect.forecast.queue_units import COLUMNS, UNIT, Prefix, read_prefix
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file

Queue = tuple[str, int]  # topic, queue id
RECOVERED_FILES = 3  # ConsumeQueue#recover begins in the third last file
_EMPTY = Prefix(0, -1, -1, -1, 0)


@dataclass(frozen=True, slots=True)
class Before:
    """A queue as its files say; the numbers of the table `queues`."""

    min_offset: int
    max_offset: int
    units: int  # of messages


@dataclass(slots=True)
class Recovered:
    """All queues after ConsumeQueue#recover: one row of `state` for each, and the files that are left."""

    state: Ints  # shape (queues, COLUMNS)
    last_sizes: Ints  # size of the newest unit, -1: none
    tops: Ints  # largest offset of the accepted units in the last file, -1: none
    accepted: Ints  # bytes accepted in the last file by `recover`
    files: list[tuple[QueueFile, ...]]  # loaded ones; the first KEPT are left
    deleted: list[QueueFile] = field(default_factory=list)


class QueueEnds:
    """All consume queues of a store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Take a store; `read` also reads it."""
        self.store = store
        self.settings = settings
        self.file_size = max(UNIT, -(-settings.mapped_file_size_consume_queue // UNIT) * UNIT)  # of whole units
        self.queues: list[Queue] = []
        self.files: list[tuple[QueueFile, ...]] = []
        self.before: list[Before] = []
        self.problems: list[str] = []  # what could not be read, for people
        self._prefixes: dict[str, Prefix] = {}  # by path
        self._all: Recovered | None = None

    @classmethod
    def read(cls, store: Store, settings: Settings) -> Self:
        """Read the ends of all queues; what cannot be read is in `problems`."""
        table = cls(store, settings)
        found: dict[Queue, list[QueueFile]] = {}
        for file in store.queue_files:
            if file.kind == "queue" and file.noted is None:
                found.setdefault((file.topic, file.queue_id), []).append(file)
        ends = {
            (ends.topic, ends.queue_id): Before(ends.min_offset, ends.max_offset, ends.units)
            for ends in peek_queues(store, table.problems)
            if ends.kind == "file"
        }
        for queue, files in sorted(found.items()):
            table.queues.append(queue)
            table.files.append(tuple(files))
            table.before.append(ends.get(queue, Before(0, 0, 0)))
        table.recovered(frozenset())
        return table

    def recovered(self, absent: Collection[str]) -> Recovered:
        """Return all queues after `recover`, where files with the names in `absent` were not loaded."""
        if not absent and self._all is not None:
            return self._all
        loaded = [tuple(file for file in files if file.name not in absent) for files in self.files]
        state = np.zeros((len(loaded), COLUMNS), np.int64)
        sizes, tops, accepted = (np.full(len(loaded), -1, np.int64) for _ in range(3))
        result = Recovered(state, sizes, tops, accepted, loaded)
        for row, files in enumerate(loaded):
            self._recover(row, files, result)
        if not absent:
            self._all = result
        return result

    def _recover(self, row: int, files: Sequence[QueueFile], result: Recovered) -> None:
        """Fill the row of one queue as ConsumeQueue#recover does; MAX_PHYSIC is left to the walk."""
        state, size = result.state[row], self.file_size
        state[queue_units.FILE_SIZE] = size
        for column in (queue_units.MAX_PHYSIC, queue_units.LAST, queue_units.APPENDED, queue_units.TOP):
            state[column] = -1
        if not files:
            return
        at = max(0, len(files) - RECOVERED_FILES)
        last = prefix = self.prefix(files[at])
        while prefix.end == size and at + 1 < len(files):
            at += 1
            prefix = self.prefix(files[at])
            last = prefix if prefix.units else last
        end = files[at].base + prefix.end
        kept = [file for file in files if file.base + size <= end or end >= file.base]
        result.deleted += [file for file in files if not (file.base + size <= end or end >= file.base)]
        newest = kept[-1]
        state[queue_units.KEPT] = len(kept)
        state[queue_units.FIRST] = kept[0].base
        state[queue_units.BASE] = newest.base
        state[queue_units.POSITION] = size if newest.base + size <= end else end - newest.base
        state[queue_units.LAST] = last.last_offset
        result.last_sizes[row] = last.last_size
        result.tops[row] = prefix.top
        result.accepted[row] = prefix.end

    def prefix(self, file: QueueFile) -> Prefix:
        """Return the accepted units at the start of a file; none where it cannot be read."""
        known = self._prefixes.get(file.path)
        if known is None:
            try:
                with open_file(file) as reader:
                    known = read_prefix(reader, self.file_size)
            except Unreadable as error:
                self.problems.append(str(error))
                known = _EMPTY
            self._prefixes[file.path] = known
        return known

    def units_of(self, file: QueueFile) -> Units:
        """Return all units of a file, as many as a file has; zeros where it is shorter or cannot be read."""
        raw = bytearray(self.file_size)
        try:
            with open_file(file) as reader:
                reader.read_into(memoryview(raw)[: min(len(raw), reader.size)], 0)
        except Unreadable as error:
            self.problems.append(str(error))
        return np.frombuffer(raw, queue_units.LAYOUT)


def max_physic_of(rules: Rules, offsets: Ints, sizes: Ints) -> Ints:
    """Return maxPhysicOffset for newest units; -1 where there is none (size -1)."""
    reach = offsets + sizes if rules.queue_end == "end" else offsets
    return np.where(sizes < 0, -1, reach)

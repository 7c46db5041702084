"""The consume queues of a store as they are before a start, read once for all walks.

A broker reads the last three files of each queue unit by unit up to the first one that it does not accept; so does
`QueueEnds`. Of every other file nothing is read before a walk asks for it.

Source: ConsumeQueue#recover, BatchConsumeQueue#recover, MappedFileQueue#truncateDirtyFiles; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.java_numbers import wrapped_long
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import peek_queues
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.config_files import topic_types
from rmqinspect.forecast.queue_units import (
    BASE,
    BATCH_MAX,
    FILE_SIZE,
    FIRST,
    KEPT,
    LAST,
    MIN,
    POSITION,
    UNIT_SIZE,
    WITHOUT_FILES,
    Prefix,
    read_units,
)
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file

Queue = tuple[str, int]  # topic, queue id
QueueName = tuple[str, str, int]  # kind of its files, topic, queue id
SIMPLE, BATCH = LAYOUTS  # kinds of files
_FOLDERS = {"consumequeue": SIMPLE, "batchconsumequeue": BATCH}
_RECOVERED_FILES = 3  # ConsumeQueue#recover begins in the third last file


@dataclass(frozen=True, slots=True)
class Before:
    """A queue as its files say; the numbers of the table `queues`."""

    min_offset: int
    max_offset: int


NO_QUEUE = Before(0, 0)


@dataclass(slots=True)
class Recovered:
    """All loaded queues after `recover`: a row of `state` for each, and what else was read of it."""

    names: list[QueueName]
    files: list[tuple[QueueFile, ...]]  # loaded ones; the first KEPT are left
    state: Ints  # shape (queues, COLUMNS); MAX_PHYSIC is left to the walk
    last_sizes: Ints  # size of the newest unit; -1: none
    accepted: Ints  # units accepted at the start of the last file
    tops: Ints  # largest offset of them; -1: none
    first_offsets: Ints  # offset of unit 0 of the first file
    deleted: list[QueueFile] = field(default_factory=list)


class QueueEnds:
    """All consume queues of a store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Take a store; `read` also reads it."""
        self.store = store
        self.settings = settings
        sizes = (settings.mapped_file_size_consume_queue, settings.mapper_file_size_batch_consume_queue)
        self.layouts = {kind: dtype_of(layout) for kind, layout in LAYOUTS.items()}
        # ConsumeQueue rounds its setting up to whole units.
        self.file_sizes = {
            kind: max(1, -(-size // layout.itemsize)) * layout.itemsize
            for (kind, layout), size in zip(self.layouts.items(), sizes, strict=True)
        }
        self.before: dict[QueueName, Before] = {}
        self.batch_topics: frozenset[str] = frozenset()  # whose queues are batch queues, from 5.0.0 on
        self.problems: list[str] = []  # what could not be read, for people
        self.last_offsets: list[int] = []  # physical offsets of the newest units, one of each queue that has one
        self._queues: dict[QueueName, tuple[QueueFile, ...]] = {}
        self._prefixes: dict[str, Prefix] = {}  # by path
        self._recovered: list[tuple[Mapping[QueueName, tuple[QueueFile, ...]], Recovered]] = []

    @classmethod
    def read(cls, store: Store, settings: Settings) -> Self:
        """Read the ends of all queues; what cannot be read is in `problems`."""
        table = cls(store, settings)
        kinds = {"file": SIMPLE, "batch": BATCH}
        for ends in peek_queues(store, table.problems):
            if ends.kind in kinds:
                name = kinds[ends.kind], ends.topic, ends.queue_id
                table.before[name] = Before(ends.min_offset, ends.max_offset)
                if ends.last_physical_offset is not None:
                    table.last_offsets.append(ends.last_physical_offset)
        table.batch_topics = frozenset(topic for topic, own in topic_types(store).items() if own == "BatchCQ")
        found: dict[QueueName, list[QueueFile]] = {}
        for folder, topic, queue_id in store.queue_folders:
            if folder in _FOLDERS and queue_id.isdecimal():
                found[_FOLDERS[folder], topic, int(queue_id)] = []
        for file in store.queue_files:
            if file.kind in LAYOUTS and file.noted is None:
                found.setdefault((file.kind, file.topic, file.queue_id), []).append(file)
        table._queues = {name: tuple(files) for name, files in sorted(found.items())}
        return table

    def recovered(self, rules: Rules, loaded: Mapping[QueueName, tuple[QueueFile, ...]] | None) -> Recovered:
        """Return all loaded queues after `recover`; without `loaded` all files of the release's kinds are."""
        if loaded is None:
            kinds = (SIMPLE, BATCH) if rules.queue_types == "compared" else (SIMPLE,)
            loaded = {name: files for name, files in self._queues.items() if name[0] in kinds}
        for known, result in self._recovered:
            if known == loaded:
                return result
        count = len(loaded)
        sizes, accepted, tops, first_offsets = np.full((4, count), -1, np.int64)
        state = np.tile(WITHOUT_FILES, (count, 1))
        result = Recovered(list(loaded), list(loaded.values()), state, sizes, accepted, tops, first_offsets)
        for row in range(count):
            self._recover(row, result)
        self._recovered.append((loaded, result))
        return result

    def _recover(self, row: int, result: Recovered) -> None:
        """Fill the row of one queue as ConsumeQueue#recover does."""
        state, files, kind = result.state[row], result.files[row], result.names[row][0]
        size, unit = self.file_sizes[kind], self.layouts[kind].itemsize
        state[UNIT_SIZE], state[FILE_SIZE] = unit, size
        if kind == BATCH:
            state[MIN] = -1
        if not files:
            return
        at = max(0, len(files) - _RECOVERED_FILES)
        last = prefix = self._prefix(files[at], size, unit)
        while prefix.row * unit == size and at + 1 < len(files):
            at += 1
            prefix = self._prefix(files[at], size, unit)
            last = prefix if prefix.row else last
        end = files[at].base + prefix.row * unit
        kept = [file for file in files if end >= file.base]
        if len(kept) < len(files):
            result.deleted += [file for file in files if end < file.base]
        newest = kept[-1]
        state[KEPT] = len(kept)
        state[FIRST], state[BASE] = kept[0].base, newest.base
        state[POSITION] = size if newest.base + size <= end else end % size
        state[LAST] = last.offset
        state[BATCH_MAX] = wrapped_long(last.base + last.messages) if last.row and kind == BATCH else 0
        result.last_sizes[row] = last.size
        result.accepted[row] = prefix.row
        result.tops[row] = prefix.top
        first = files[0].path
        if first in self._prefixes:
            offset, base = self._prefixes[first].first_offset, self._prefixes[first].first_base
        else:
            units = self.units(files[0], 0, 1)
            offset, base = int(units["physical_offset"][0]), int(units["queue_offset"][0]) if kind == BATCH else 0
        result.first_offsets[row] = offset
        if kind == BATCH and (len(kept) > 1 or state[POSITION]):
            state[MIN] = base

    def _prefix(self, file: QueueFile, size: int, unit: int) -> Prefix:
        """Return the accepted units at the start of a file; none where it cannot be read."""
        known = self._prefixes.get(file.path)
        if known is None:
            try:
                with open_file(file) as reader:
                    known = read_units(reader, unit, size // unit)
            except Unreadable as error:
                self.problems.append(str(error))
                known = Prefix(0)
            self._prefixes[file.path] = known
        return known

    def units(self, file: QueueFile, row: int, count: int) -> Units:
        """Return units of a file from a row on; zeros where it is shorter or cannot be read."""
        layout = self.layouts[file.kind]
        raw = bytearray(count * layout.itemsize)
        try:
            with open_file(file) as reader:
                reader.read_into(raw, row * layout.itemsize)
        except Unreadable as error:
            self.problems.append(str(error))
        return np.frombuffer(raw, layout)


def max_physic_of(rules: Rules, recovered: Recovered) -> Ints:
    """Return maxPhysicOffset of each queue after `recover`; -1 where there is no unit."""
    offsets, sizes = recovered.state[:, LAST], recovered.last_sizes
    is_batch = recovered.state[:, UNIT_SIZE] != LAYOUTS[SIMPLE].sizeof()
    reach = offsets if rules.queue_end == "start" else np.where(is_batch, offsets, offsets + sizes)
    found: Ints = np.where(sizes < 0, -1, reach)
    return found

"""The consume queues of a store as they are before a start, read once for all walks.

A broker reads the last three files of each queue unit by unit up to the first one that it does not accept; so does
`QueueEnds`. Of every other file nothing is read before a walk asks for it.

Source: ConsumeQueue#recover, BatchConsumeQueue#recover, MappedFileQueue#truncateDirtyFiles; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from rmqinspect.broker.eras import Rules, searches_minimum
from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.consumequeue.units import LAYOUTS, read_units, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.config_files import topic_types
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.model import Place, QueueFile, Store
from rmqinspect.store.reader import open_file

QueueName = tuple[str, str, int]  # kind of its files, topic, queue id
SIMPLE, BATCH = LAYOUTS  # kinds of files
SIMPLE_FOLDER = "consumequeue"
UNITS = {kind: layout.sizeof() for kind, layout in LAYOUTS.items()}  # bytes
_FOLDERS = {SIMPLE_FOLDER: SIMPLE, "batchconsumequeue": BATCH}
_COLUMNS = {
    SIMPLE: ("physical_offset", "size"),
    BATCH: ("physical_offset", "size", "queue_offset", "message_count"),
}


@dataclass(frozen=True, slots=True)
class Before:
    """A queue as its files say; the numbers of the table `queues`."""

    min_offset: int
    max_offset: int
    last_physical_offset: int | None = None  # of the newest unit


NO_QUEUE = Before(0, 0)


class Prefix(NamedTuple):
    """The units at the start of a file that a broker accepts."""

    rows: int
    offset: int = -1  # physical offset of the last one; -1: none
    size: int = -1
    top: int = -1  # largest physical offset


class QueueEnds:
    """All consume queues of a store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Take a store; `read` also reads it."""
        self.store = store
        self.settings = settings
        sizes = (settings.mapped_file_size_consume_queue, settings.mapper_file_size_batch_consume_queue)
        self._layouts = {kind: dtype_of(layout) for kind, layout in LAYOUTS.items()}
        # ConsumeQueue rounds its setting up to whole units.
        self.file_sizes = {
            kind: max(1, -(-size // layout.itemsize)) * layout.itemsize
            for (kind, layout), size in zip(self._layouts.items(), sizes, strict=True)
        }
        self.before: dict[QueueName, Before] = {}
        self.summaries: list[QueueSummary] = []  # of all kinds
        self.batch_topics: frozenset[str] = frozenset()  # whose queues are batch queues, from 5.0.0 on
        self.problems: list[str] = []  # what could not be read, for people
        self._queues: dict[QueueName, tuple[QueueFile, ...]] = {}
        self._prefixes: dict[str, Prefix] = {}  # by path
        self.files_for_folders: frozenset[Place] = frozenset()  # that lie where folders of queues have to be
        self._single: dict[tuple[str, int], Ints] = {}  # units that were asked for alone, by path and row

    @classmethod
    def read(cls, store: Store, settings: Settings) -> Self:
        """Read the ends of all queues; what cannot be read is in `problems`."""
        table = cls(store, settings)
        kinds = {"file": SIMPLE, "batch": BATCH}
        for ends in queue_ends(store, searches_minimum(store), on_unreadable=table.problems.append):
            table.summaries.append(ends)
            if ends.kind in kinds:
                name = kinds[ends.kind], ends.topic, ends.queue_id
                table.before[name] = Before(ends.min_offset, ends.max_offset, ends.last_physical_offset)
        table.batch_topics = frozenset(topic for topic, own in topic_types(store).items() if own == "BatchCQ")
        found: dict[QueueName, list[QueueFile]] = {}
        for folder, topic, queue_id in store.queue_folders:
            if folder in _FOLDERS and queue_id.isdecimal():
                found[_FOLDERS[folder], topic, int(queue_id)] = []
        for file in store.queue_files:
            if file.kind in LAYOUTS and file.noted is None:
                found.setdefault((file.kind, file.topic, file.queue_id), []).append(file)
        root = {(SIMPLE_FOLDER,)} if store.has_file(SIMPLE_FOLDER) else set()
        strays = (oddity.place for oddity in store.oddities if oddity.kind == "stray" and len(oddity.place) in (2, 3))
        table.files_for_folders = frozenset(root.union(place for place in strays if place[0] == SIMPLE_FOLDER))
        table._queues = {name: tuple(files) for name, files in sorted(found.items())}
        return table

    @property
    def last_offsets(self) -> list[int]:
        """Physical offsets of the newest units, one of each queue that has one."""
        offsets = (queue.last_physical_offset for queue in self.before.values())
        return [offset for offset in offsets if offset is not None]

    def last_of(self, topic: str, queue_id: int) -> int | None:
        """Return the physical offset of the newest unit of a queue."""
        known = (self.before.get((kind, topic, queue_id), NO_QUEUE) for kind in (SIMPLE, BATCH))
        return max(
            (queue.last_physical_offset for queue in known if queue.last_physical_offset is not None), default=None
        )

    def file_above(self, topic: str, queue_id: int) -> str | None:
        """Return the name of the file that lies where a broker would make the folder of a queue; None: it can."""
        place = SIMPLE_FOLDER, topic, str(queue_id)
        found = (place[:depth] for depth in (1, 2, 3) if place[:depth] in self.files_for_folders)
        return next(("/".join(above) for above in found), None)

    def loaded(self, rules: Rules) -> Mapping[QueueName, tuple[QueueFile, ...]]:
        """Return all queues of the kinds that a release has, and their files."""
        kinds = (SIMPLE, BATCH) if rules.queue_types == "compared" else (SIMPLE,)
        return {name: files for name, files in self._queues.items() if name[0] in kinds}

    def prefix(self, file: QueueFile) -> Prefix:
        """Return the accepted units at the start of a file, read once; none where it cannot be read."""
        known = self._prefixes.get(file.path)
        if known is None:
            try:
                known = _prefix(file)
            except Unreadable as error:
                self.problems.append(str(error))
                known = Prefix(0)
            self._prefixes[file.path] = known
        return known

    def table(self, file: QueueFile, first: int, count: int) -> Ints:
        """Return units of a file from a row on, a column for each: physical offset, size; base and messages of a batch.

        Single ones are read once: minima are asked for the same unit by every walk.
        """
        key = file.path, first
        if count == 1 and key in self._single:
            return self._single[key].copy()
        units = self.units(file, first, count)
        found = np.array([units[name] for name in _COLUMNS[file.kind]], np.int64)
        if count == 1:
            self._single[key] = found.copy()
        return found

    def units(self, file: QueueFile, row: int, count: int) -> Units:
        """Return units of a file from a row on; zeros where it is shorter or cannot be read."""
        layout = self._layouts[file.kind]
        raw = bytearray(count * layout.itemsize)
        try:
            with open_file(file) as reader:
                reader.read_into(raw, row * layout.itemsize)
        except Unreadable as error:
            self.problems.append(str(error))
        return np.frombuffer(raw, layout)


def _prefix(file: QueueFile) -> Prefix:
    """Read the units at the start of a file, as ConsumeQueue#recover accepts them.

    :raises Unreadable: the system reports an I/O error.
    """
    rows, offset, size, top = 0, -1, -1, -1
    with open_file(file) as reader:
        for row, units in read_units(reader, file.kind):
            if row > rows:
                break  # a hole of zeros lies before it
            refused = ~valid_units(units)
            count = int(refused.argmax()) if refused.any() else len(units)
            if count:
                offsets = units["physical_offset"][:count]
                offset, size, top = int(offsets[-1]), int(units["size"][count - 1]), max(top, int(offsets.max()))
            rows += count
            if count < len(units):
                break
    return Prefix(rows, offset, size, top)

"""Which consumer groups have passed a message of a queue, by their offsets: whether they took it, no file says.

    queue    |  deleted  | 5  6  7  8  9 |           consumer offset 8: 7 and before are passed, 8 comes next
             0           min            max          consumer offset 2: 2 to 4 are lost to the group

Source: ConsumerOffsetManager; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from rmqinspect.config.json_files import ConsumerOffset, read_consumer_offsets
from rmqinspect.consumequeue.units import LAYOUTS, queue_end
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Store


@dataclass(frozen=True, slots=True)
class Passed:
    """How a consumer group stands to one message."""

    group: str  # with a second @ a proxy's broadcast consumer
    consumer_offset: int  # the next queue offset it consumes; of a group that pops: the next one it pops
    passed: bool  # it is before that offset
    lost: bool  # not passed, and below the queue's minimum: the group will not get it


class Consumers:
    """The consumer offsets of a store, read once. `problems` says what is wrong with their files.

    The store has what its RocksDB databases hold (`rocksdb.unpack.unpacked`), if offsets lie there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offsets: dict[tuple[str, int], list[ConsumerOffset]] = defaultdict(list)
        entries, self.problems = read_consumer_offsets(store)
        for entry in entries:
            self._offsets[entry.topic, entry.queue_id].append(entry)
        self._minima: dict[tuple[str, int], int | None] = {}

    def of(self, topic: str, queue_id: int, queue_offset: int) -> list[Passed]:
        """Return every group with an offset in a queue, by name, and how it stands to a message of it.

        The queue is the one whose unit leads to the message: of a light message `%LMQ%…`, queue 0, as well as the
        record's own.
        """
        found = []
        for entry in self._offsets.get((topic, queue_id), ()):
            passed = queue_offset < entry.offset
            lost = not passed and queue_offset < (self._min_offset(topic, queue_id) or 0)
            found.append(Passed(entry.group, entry.offset, passed, lost))
        return found

    def groups_of(self, topic: str) -> frozenset[str]:
        """Return the groups with an offset in a queue of a topic."""
        return self._groups.get(topic, frozenset())

    @cached_property
    def _groups(self) -> dict[str, frozenset[str]]:
        groups: dict[str, set[str]] = defaultdict(set)
        for (topic, _), entries in self._offsets.items():
            groups[topic].update(entry.group for entry in entries)
        return {topic: frozenset(names) for topic, names in groups.items()}

    def _min_offset(self, topic: str, queue_id: int) -> int | None:
        """Return a queue's minimum, None without its files."""
        queue = topic, queue_id
        if queue not in self._minima:
            files = self._files.get(queue)
            try:
                self._minima[queue] = queue_end(tuple(files), self._store.log_start).min_offset if files else None
            except Unreadable:  # what needs the queue itself says so
                self._minima[queue] = None
        return self._minima[queue]

    @cached_property
    def _files(self) -> dict[tuple[str, int], list[QueueFile]]:
        files: dict[tuple[str, int], list[QueueFile]] = defaultdict(list)
        for file in self._store.queue_files:
            if file.kind in LAYOUTS:
                files[file.topic, file.queue_id].append(file)
        return files

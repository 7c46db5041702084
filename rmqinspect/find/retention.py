"""What a retention would delete, and which messages consumer groups would lose by it.

    segments     |---- 0 ----|---- 1 ----|---- 2 ----|
    queue           5  6  7     8  9 10     11 12          a group at 7 would lose 7, if 0 goes: 8 is then the minimum

Times are those of the records, not of the files: a copy of a store has other file times than the broker saw.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmqinspect.broker.group_topics import is_system_group
from rmqinspect.broker.retention import expired_segments
from rmqinspect.commitlog.splits import Split
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.consumequeue.units import find_units, first_offset_in
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.tables.config import report_problems
from rmqinspect.tables.fold import OnlyBytes, folds_apart
from rmqinspect.tables.groups import Position, ends_of, positions
from rmqinspect.tables.sample import WINDOW
from rmqinspect.tables.table import Request
from rmqinspect.tables.usage_fold import Usage


@dataclass(frozen=True, slots=True)
class Waiting:
    """The oldest message of a queue that a group has not consumed."""

    position: Position
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class Retention:
    """What a retention of some hours deletes; `hours` are counted back from the last record."""

    hours: float
    segments: tuple[Segment, ...]  # the oldest ones
    last: int | None  # store time (ms) of their last record
    losses: Mapping[str, int] | None  # group -> messages, most first; None: not known

    @property
    def size(self) -> int:
        """The bytes of the segments."""
        return sum(segment.size for segment in self.segments)


def last_times(store: Store, usage: Usage, request: Request) -> list[int | None]:
    """Return the store time (ms) of the last record of each segment, None where it is not known.

    Of a sampled store, the last window of each segment is read.
    """
    if usage.sample is None:
        known = {path: account.last_timestamp for path, account in usage.accounts.items()}
    else:
        ends = [Split(one, max(0, one.size - WINDOW), one.size) for one in store.segments if one.size]
        parts = folds_apart(ends, request, OnlyBytes)
        known = {part.account.segment.path: part.account.last_timestamp for part in parts}
    return [known.get(segment.path) for segment in store.segments]


def read_waiting(store: Store, request: Request) -> list[Waiting] | None:
    """Return what each group waits for, the broker's own groups left out, by physical offset.

    None without any consumer offset of a queue that was read: then nothing is known.

    A group waits for the message at its offset, or for the first one that is still there. The store has what its
    RocksDB databases hold.
    """
    entries, problems = read_consumer_offsets(store)
    report_problems(problems, request, readable=bool(entries))
    entries = [entry for entry in entries if not is_system_group(entry.group)]
    queues = ends_of(store, request, {(entry.topic, entry.queue_id) for entry in entries})
    if not any((entry.topic, entry.queue_id) in queues for entry in entries):
        return None
    by_queue: dict[tuple[QueueFile, ...], list[Position]] = defaultdict(list)
    for position in positions(entries, queues, store):
        if position.queue is not None and position.next_offset is not None:
            by_queue[position.queue.files].append(position)
    found: list[Waiting] = []
    for files, some in by_queue.items():
        offsets = [position.next_offset or 0 for position in some]
        try:
            units = find_units(files, offsets)
        except Unreadable as error:
            if request.on_unreadable is None:
                raise
            request.on_unreadable(str(error))
            continue
        for position, offset, unit in zip(some, offsets, units, strict=True):
            if unit is not None:
                found.append(Waiting(position, offset, unit[0]))
    return sorted(found, key=lambda one: (one.physical_offset, one.position.entry))


def retained(
    store: Store, times: Sequence[int | None], waiting: Sequence[Waiting] | None, hours: float, now: int | None
) -> Retention:
    """Return what a retention deletes at `now` (ms); `times` are the last writes of the segments.

    :raises Unreadable: a queue cannot be read.
    """
    count = 0 if now is None else expired_segments(times, now, hours)
    segments = store.segments[:count]
    losses: dict[str, int] = defaultdict(int)
    if segments:
        start = store.segments[count].base
        minima: dict[tuple[QueueFile, ...], int | None] = {}
        for one in waiting or ():
            queue = one.position.queue
            if queue is None or one.physical_offset >= start:
                continue
            if queue.files not in minima:
                minima[queue.files] = first_offset_in(queue.files, start)
            minimum = minima[queue.files]
            lost = (queue.max_offset if minimum is None else minimum) - one.queue_offset
            if lost > 0:  # places of damaged units need not ascend: the minimum may be before the group
                losses[one.position.entry.group] += lost
    ordered = dict(sorted(losses.items(), key=lambda item: (-item[1], item[0])))
    return Retention(hours, segments, times[count - 1] if count else None, None if waiting is None else ordered)

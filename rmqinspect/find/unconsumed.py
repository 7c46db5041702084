"""The messages that a consumer group has not consumed: what its lag counts, and what waits in its retry topics.

    queue    |  deleted   | a  b  c | d  e  f |         consumer offset at d: d to f
             0           min                 max         consumer offset below min: a to f

A retry topic that the group has no offset in is read from its beginning, as a consumer does. Offsets of other queues
that the group never committed are not known: these count as nothing, as they do for the lag.

Source: ConsumerOffsetManager, RebalancePushImpl#computePullFromWhere; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from rmqinspect.broker.group_topics import own_name, owner_of
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.consumequeue.bounds import peek_queues
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.queue_ranges import QueueRange
from rmqinspect.tables.sources import unread_places
from rmqinspect.topics import DLQ_PREFIX


@dataclass(frozen=True, slots=True)
class Unconsumed:
    """What a group has not consumed in one store."""

    known: bool  # whether the store has an offset, or a retry topic, of the group
    ranges: tuple[QueueRange, ...]
    remarks: tuple[str, ...]  # what is wrong with the files of the offsets, and another copy was read
    unread: tuple[str, ...]  # what could not be read: the ranges are not all


def unconsumed(store: Store, group: str) -> Unconsumed:
    """Return what a group has not consumed; of a proxy's broadcast consumer if its whole name is given.

    The store has what its RocksDB databases hold, if offsets or queues lie there.
    """
    entries, problems = read_consumer_offsets(store)
    offsets = {(entry.topic, entry.queue_id): entry.offset for entry in entries if entry.group == group}
    groups = {own_name(entry.group) for entry in entries} | {group}
    topics = {file.topic for file in store.queue_files}
    own = {topic for topic in topics if not topic.startswith(DLQ_PREFIX) and owner_of(topic, groups, topics) == group}
    retries = {(file.topic, file.queue_id) for file in store.queue_files if file.topic in own}
    unread: list[str] = []
    ranges = []
    for queue in peek_queues(store, unread, offsets.keys() | retries):
        first = max(offsets.get((queue.topic, queue.queue_id), 0), queue.min_offset)
        if first < queue.max_offset:
            ranges.append(QueueRange(queue.topic, queue.queue_id, first, queue.max_offset))
    remarks, missed = (problems, ()) if entries else ((), problems)
    unread += [*unread_places(store, ("groups",)), *missed]
    return Unconsumed(bool(offsets or retries), tuple(ranges), remarks, tuple(unread))


def with_unconsumed(store: Store, selection: Selection) -> tuple[Selection, Unconsumed | None]:
    """Return the selection with the ranges of this store, and what they are made of; None if it asks for no group."""
    if selection.unconsumed is None:
        return selection, None
    found = unconsumed(store, selection.unconsumed)
    return replace(selection, unconsumed_in=found.ranges), found


def expect_group(stores: Sequence[Store], group: str) -> None:
    """Make sure that a store has an offset, or a retry topic, of a group.

    :raises NothingFound: none has; the message names groups that are like it.
    :raises Unreadable: none has, and the consumer offsets of a store cannot be read.
    """
    if any(unconsumed(store, group).known for store in stores):
        return
    read = [read_consumer_offsets(store) for store in stores]
    groups = {entry.group for entries, _ in read for entry in entries}
    for entries, problems in read:
        if problems and not entries:
            raise Unreadable(problems[0])
    if not groups:
        raise NothingFound(f"no consumer offset of a group {group}: no consumer offsets were given")
    near = ", ".join(get_close_matches(group, sorted(groups), n=3, cutoff=0.5))
    raise NothingFound(f"no consumer offset of a group {group}" + (f"; near: {near}" if near else ""))

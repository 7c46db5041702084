"""Offsets of consumer groups and delay levels against the ends of their queues.

    queue            |first .......... end| not dispatched yet |
    ST-GROUP-LOST  ^                                             ^  ST-GROUP-OFFSET

A queue ends where it will after the next startup: messages in the log without a unit yet belong to it.

Source: ConsumerOffsetManager, ScheduleMessageService#correctDelayOffset, DefaultMessageStore#getMessage,
DefaultMessageStore#getMaxOffsetInQueue.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from rmqinspect.config.json_files import integer, key_number, read_consumer_offsets, read_delay_offsets
from rmqinspect.store.model import Store
from rmqinspect.tables.expected_queues import ExpectedQueues
from rmqinspect.text import count, group_digits
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.findings import Finding

Ends = Mapping[tuple[str, int], tuple[int, int]]  # (topic, queue id) → (first offset, offset behind the last)

# Groups of the broker itself (MixAll#CID_RMQ_SYS_PREFIX): retention in its own topics loses nothing for them.
_BROKER_GROUPS = "CID_RMQ_SYS_"


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a group or a delay level resumes in a queue."""

    who: str
    topic: str
    queue_id: int
    offset: int
    file: str
    is_served: bool  # messages that retention deleted are missed


def check_groups(
    store: Store, ends: Ends | None, pending: Mapping[tuple[str, int], int] | None = None
) -> Iterator[Finding]:
    """Yield ST-GROUP-OFFSET and ST-GROUP-LOST, by group, topic and queue, delay levels last.

    `ends` has every queue whose files were read. `pending`: messages of a queue in the log without a unit, which
    the next startup adds.
    """
    if not ends:
        return
    expected = ExpectedQueues(store)
    for position in chain(_groups(store, ends), _levels(store)):
        name = position.topic, position.queue_id
        first, behind = ends.get(name, (0, 0))
        behind += (pending or {}).get(name, 0)
        if position.offset > behind:
            if name in ends or expected.had_files(*name):
                yield _beyond(position, behind, has_files=name in ends)
        elif position.offset < first and position.is_served:
            yield _lost(position, first)


def _groups(store: Store, ends: Ends) -> Iterator[_Position]:
    """Yield the positions of groups that are not within their queue; nearly all are."""
    offsets, _ = read_consumer_offsets(store)
    for entry in offsets:
        first, behind = ends.get((entry.topic, entry.queue_id), (0, 0))
        if first <= entry.offset <= behind:
            continue
        served = not entry.group.startswith(_BROKER_GROUPS)
        yield _Position(f"group {entry.group}", entry.topic, entry.queue_id, entry.offset, entry.file, served)


def _levels(store: Store) -> Iterator[_Position]:
    """Yield the position of each delay level, in queue level - 1 of the schedule topic."""
    document = read_delay_offsets(store)
    if document is None or document.source is None:
        return
    found = ((key_number(level), integer(offset)) for level, offset in document.table("offsetTable").items())
    for level, offset in sorted((level, offset) for level, offset in found if level and offset is not None):
        if level > 0:
            yield _Position(f"delay level {level}", SCHEDULE_TOPIC, level - 1, offset, document.source.name, True)


def _beyond(position: _Position, behind: int, *, has_files: bool) -> Finding:
    end = f"its queue ends at {group_digits(behind)}" if has_files else "its queue has no files"
    return Finding(
        "ST-GROUP-OFFSET",
        f"{position.who} resumes at {group_digits(position.offset)}, but {end}: "
        "the queue lost its end, or the offset is from another time or another broker",
        file=position.file,
        topic=position.topic,
        queue_id=position.queue_id,
        queue_offset=position.offset,
        expected=f"at most {behind}",
        found=str(position.offset),
    )


def _lost(position: _Position, first: int) -> Finding:
    missed = count(first - max(position.offset, 0), "message")
    return Finding(
        "ST-GROUP-LOST",
        f"{position.who} resumes at {group_digits(position.offset)}, but its queue begins at "
        f"{group_digits(first)}: {missed} deleted before delivery",
        file=position.file,
        topic=position.topic,
        queue_id=position.queue_id,
        queue_offset=position.offset,
        expected=f"at least {first}",
        found=str(position.offset),
    )

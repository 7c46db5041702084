"""ST-GROUP-OFFSET, ST-GROUP-LOST, ST-GROUP-OLD, ST-NOT-READ: consumer offsets against queues, messages and topics.

    queue            |first .......... end| not dispatched yet |
    ST-GROUP-LOST  ^                                             ^  ST-GROUP-OFFSET

A queue ends where it will after the next startup: messages in the log without a unit yet belong to it.

Source: ConsumerOffsetManager, DefaultMessageStore#getMessage, #getMaxOffsetInQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping, Sequence

from rmqinspect.broker.offset_age import offset_age, written_at
from rmqinspect.broker.refusals import access_of
from rmqinspect.config.json_files import ConsumerOffset, read_consumer_offsets
from rmqinspect.consumequeue.bounds import queue_ends
from rmqinspect.store.model import Store
from rmqinspect.tables.group_positions import ExpectedQueues, Refused, ends_of, positions, refused_messages
from rmqinspect.tables.request import Request
from rmqinspect.text import count, describe_duration, group_digits
from rmqinspect.times import time_words
from rmqinspect.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqinspect.verify.findings import Finding

Ends = Mapping[tuple[str, int], tuple[int, int]]  # (topic, queue id) → (first offset, offset behind the last)
Pending = Mapping[tuple[str, int], int]  # messages of a queue in the log without a unit, which the next startup adds

# Groups of the broker itself (MixAll#CID_RMQ_SYS_PREFIX): retention in its own topics loses nothing for them.
_BROKER_GROUPS = "CID_RMQ_SYS_"

_MOST_NAMED = 6  # queues


def check_groups(store: Store, ends: Ends | None, pending: Pending | None = None) -> Iterator[Finding]:
    """Yield ST-GROUP-OFFSET and ST-GROUP-LOST, by group, topic and queue; `ends` has every queue that was read."""
    if not ends:
        return
    expected = ExpectedQueues(store)
    offsets, _ = read_consumer_offsets(store)
    for entry in offsets:
        name = entry.topic, entry.queue_id
        first, behind = ends.get(name, (0, 0))
        behind += (pending or {}).get(name, 0)
        if first <= entry.offset <= behind:
            continue  # as nearly all are
        if entry.offset > behind:
            if name in ends or expected.had_files(*name):
                yield _beyond(entry, behind, has_files=name in ends)
        elif not entry.group.startswith(_BROKER_GROUPS):
            yield _lost(entry, first)


def check_refused(store: Store) -> Iterator[Finding]:
    """Yield ST-NOT-READ for each topic with messages that wait where no consumer can read."""
    access = access_of(store)
    offsets, _ = read_consumer_offsets(store)
    some = []
    for entry in offsets:
        readable = access.read_queues(entry.topic)
        if readable is not None and entry.queue_id >= readable:
            some.append(entry)
    queues = ends_of(
        store,
        Request(on_unreadable=lambda message: None),
        {(entry.topic, entry.queue_id) for entry in some},
    )
    for one in refused_messages(store, positions(some, queues, store)):
        yield Finding(
            "ST-NOT-READ",
            f"no consumer can read {_queues_of(one)}: {one.why}; {count(one.messages, 'message')} wait there for "
            f"{count(len(one.groups), 'group')}",
            file="config/topics.json",
            topic=one.topic,
            queue_id=one.queue_ids[0],
            expected="queues that consumers can read",
            found=one.why,
            do=f"{one.cure}, unless it is meant so" if one.cure else "",
        )


def _queues_of_age(store: Store, offsets: Sequence[ConsumerOffset], newest: int | None) -> set[tuple[str, int]]:
    """Return the queues whose ends are needed: those of retries and dead letters, and all of a file that seems old."""
    returned = (RETRY_PREFIX, DLQ_PREFIX)
    wanted = {(file.topic, file.queue_id) for file in store.queue_files if file.topic.startswith(returned)}
    written = written_at(store, offsets[0].file) if offsets else None
    if written is not None and newest is not None and written < newest:
        wanted |= {(entry.topic, entry.queue_id) for entry in offsets}
    return wanted


def _queues_of(refused: Refused) -> str:
    ids = refused.queue_ids
    some = ", ".join(map(str, ids[:_MOST_NAMED])) + (f" and {len(ids) - _MOST_NAMED} more" * (len(ids) > _MOST_NAMED))
    return f"{refused.topic} queue{'s' if len(ids) > 1 else ''} {some}"


def check_age(store: Store, newest: int | None) -> Iterator[Finding]:
    """Yield ST-GROUP-OLD where the offsets are older than what the groups consumed.

    `newest`: store time in ms of the newest record.
    """
    offsets, _ = read_consumer_offsets(store)
    queues = queue_ends(store, lambda: True, _queues_of_age(store, offsets, newest), lambda message: None)
    found = offset_age(store, offsets, {(queue.topic, queue.queue_id): queue for queue in queues}, newest)
    if found is None:
        return
    if found.is_old and found.written is not None and found.newest is not None:
        span = describe_duration((found.newest - found.written) / 1000)
        yield Finding(
            "ST-GROUP-OLD",
            f"the consumer offsets are {span} older than the newest message: what groups consumed since is not known, "
            "and is delivered again",
            file=found.file,
            expected=f"offsets of {time_words(found.newest)}",
            found=f"of {time_words(found.written)}",
        )
    for one in found.contradictions:
        yield Finding(
            "ST-GROUP-OLD",
            f"group {one.group} resumes at {group_digits(one.offset)}, but {one.topic_of_proof} has offset "
            f"{group_digits(one.consumed)} that it gave back: at least {count(one.again, 'message')} come again",
            file=found.file,
            topic=one.topic,
            queue_id=one.queue_id,
            queue_offset=one.offset,
            expected=f"at least {one.consumed + 1}",
            found=str(one.offset),
        )


def _beyond(entry: ConsumerOffset, behind: int, *, has_files: bool) -> Finding:
    end = f"its queue ends at {group_digits(behind)}" if has_files else "its queue has no files"
    what = f"{end}: the queue lost its end, or the offset is from another time or another broker"
    return _of_group(entry, "ST-GROUP-OFFSET", what, f"at most {behind}")


def _lost(entry: ConsumerOffset, first: int) -> Finding:
    missed = count(first - max(entry.offset, 0), "message")
    what = f"its queue begins at {group_digits(first)}: {missed} gone before delivery"
    return _of_group(entry, "ST-GROUP-LOST", what, f"at least {first}")


def _of_group(entry: ConsumerOffset, code: str, what: str, expected: str) -> Finding:
    return Finding(
        code,
        f"group {entry.group} resumes at {group_digits(entry.offset)}, but {what}",
        file=entry.file,
        topic=entry.topic,
        queue_id=entry.queue_id,
        queue_offset=entry.offset,
        expected=expected,
        found=str(entry.offset),
    )

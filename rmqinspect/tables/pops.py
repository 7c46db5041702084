"""The checkpoints and acks of popped messages, by the units of their topics: how much each group has in flight.

    rmq_sys_wheel_timer          each checkpoint and ack when it is written, until it is due
    rmq_sys_REVIVE_LOG_cluster   the same when it is due; handled up to the offset of CID_RMQ_SYS_REVIVE_GROUP

Read are the newest units, and of these the records whose tag is that of a checkpoint or an ack: an ack follows its
checkpoint, so none of those that are read misses one. Not seen: what a broker keeps in memory (enablePopBufferMerge)
or in RocksDB (popConsumerKVServiceInit), and ordered pops.

Source: PopMessageProcessor, AckMessageProcessor, PopReviveService; RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rmqinspect.broker.groups import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    REVIVE_GROUP,
    PopCount,
    PopStates,
    read_body,
)
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.java import java_string_hash
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records, records_at
from rmqinspect.config.json_files import ConsumerOffset
from rmqinspect.consumequeue.bounds import QueueSummary
from rmqinspect.consumequeue.units import message_units
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.text import group_digits
from rmqinspect.topics import REVIVE_PREFIX, TIMER_TOPIC

MOST_UNITS = 1 << 18  # of each queue: 5 MB
MOST_UNITS_BEFORE = 1 << 16  # while there is no revive queue: most such stores have timer messages, and no pop
MOST_RECORDS = 1 << 14  # checkpoints and acks; reading so many takes a second
_TAGS = np.array([java_string_hash(tag) for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)], np.int64)
_LONGEST = 1 << 16  # bytes of a body
Queue = tuple[str, int]


def pop_queues(store: Store) -> set[Queue]:
    """Return the queues that may hold checkpoints and acks.

    The first revive queue is made when the first checkpoint falls due, so the timer's topic alone may hold some.
    """
    queues = {(file.topic, file.queue_id) for file in store.queue_files if file.kind == "queue"}
    return {queue for queue in queues if queue[0].startswith(REVIVE_PREFIX) or queue[0] == TIMER_TOPIC}


def _units(queues: Mapping[Queue, QueueSummary], handled: Mapping[Queue, int]) -> Ints:
    """Return (physical offset, size, whether the broker has handled it) of units that may be checkpoints or acks."""
    found = [np.empty((0, 3), np.int64)]
    most = MOST_UNITS if any(topic.startswith(REVIVE_PREFIX) for topic, _ in queues) else MOST_UNITS_BEFORE
    for queue, ends in queues.items():
        reached = handled.get(queue, -1)
        for numbers, units in message_units(ends.files, max(0, ends.max_offset - most), ends.max_offset):
            tags = units["tags_code"].astype(np.int64)
            # A tag in an ext file, which is not looked at, may be one of them.
            some = np.isin(tags, _TAGS) | (tags <= EXT_ADDRESS_MAX)
            columns = units["physical_offset"][some], units["size"][some], numbers[some] <= reached
            found.append(np.stack([column.astype(np.int64) for column in columns], axis=1))
    return np.concatenate(found)


def _bodies(records: Records) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield (row, parsed body) of the records that are in a revive topic, or on their way to it."""
    prefix = REVIVE_PREFIX.encode()
    spans = zip(records.topic_starts.tolist(), records.body_starts.tolist(), records.body_ends.tolist(), strict=True)
    for row, (topic, start, end) in enumerate(spans):
        bound_for = records.raw[topic : topic + len(prefix)], records.properties.value_of(b"REAL_TOPIC", row) or b""
        if not any(bytes(name).startswith(prefix) for name in bound_for) or end - start > _LONGEST:
            continue
        try:
            value = parse_json(bytes(records.raw[start:end])).value
        except NotJson:
            continue
        if isinstance(value, dict):
            yield row, value


def pop_counts(
    store: Store,
    entries: Sequence[ConsumerOffset],
    notes: Mapping[tuple[str, int], QueueSummary],
    request: Request,
    most: int | None = None,
) -> Mapping[tuple[str, str, int], PopCount]:
    """Return what became of popped messages by (group, topic, queue id); `notes` are the ends of `pop_queues`.

    What is in flight is judged at the store time of their last record. Of more than `most` checkpoints and acks the
    newest are read, and a remark says so.
    """
    most = MOST_RECORDS if most is None else most
    handled = {(one.topic, one.queue_id): one.offset for one in entries if one.group == REVIVE_GROUP}
    lasts = [(ends.last_physical_offset, ends.last_size) for ends in notes.values()]
    newest = max(((place, size) for place, size in lasts if place is not None and size is not None), default=None)
    if newest is None:
        return {}
    with RecordReader(store, request.on_unreadable) as reader:
        now = reader.timestamp_of(*newest)
    try:
        units = _units(notes, handled)
    except Unreadable as error:
        request.tell_unread(error)
        return {}
    states, latest = PopStates(), units[np.argsort(units[:, 0], kind="stable")[-most:]]
    for which, records in records_at(store, latest[:, 0].copy(), latest[:, 1].copy()):
        for row, body in _bodies(records):
            if (found := read_body(body)) is not None:
                states.add(found, handled=bool(latest[which[row], 2]))
    if len(units) > most and request.on_remark is not None:
        request.on_remark(
            f"{store.name}: popped messages are counted by the newest {group_digits(most)} checkpoints and acks"
        )
    return states.count(now or 0)

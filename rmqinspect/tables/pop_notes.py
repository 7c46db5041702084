"""The checkpoints and acks of popped messages, by the units of their topics: how much each group has in flight.

    rmq_sys_wheel_timer          each checkpoint and ack when it is written, until it is due
    rmq_sys_REVIVE_LOG_cluster   the same when it is due; handled up to the offset of CID_RMQ_SYS_REVIVE_GROUP

Read are the newest units, and of these the records whose tag is that of a checkpoint or an ack: an ack follows its
checkpoint, so none of those that are read misses one. Not seen: what a broker keeps in memory (enablePopBufferMerge)
or in RocksDB (popConsumerKVServiceInit), and ordered pops.

Source: PopMessageProcessor, AckMessageProcessor, PopReviveService; RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from rmqinspect.broker.pop_state import ACK_TAG, BATCH_ACK_TAG, CHECKPOINT_TAG, PopCount, PopStates, read_body
from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.hashes import java_string_hash
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.records_at import records_at
from rmqinspect.consumequeue.around import message_units
from rmqinspect.consumequeue.units import QueueSummary
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import Store
from rmqinspect.topics import REVIVE_PREFIX, TIMER_TOPIC

MOST_UNITS = 1 << 18  # of each queue: 5 MB
MOST_RECORDS = 1 << 14  # checkpoints and acks; reading so many takes a second

_TAGS = np.array([java_string_hash(tag) for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)], np.int64)
_LONGEST = 1 << 16  # bytes of a body

Queue = tuple[str, int]


def pop_queues(store: Store) -> set[Queue]:
    """Return the queues that hold checkpoints and acks; none if the broker has no revive topic."""
    queues = {(file.topic, file.queue_id) for file in store.queue_files if file.kind == "queue"}
    revive = {queue for queue in queues if queue[0].startswith(REVIVE_PREFIX)}
    return revive | {queue for queue in queues if revive and queue[0] == TIMER_TOPIC}


class PopNotes:
    """What the checkpoints and acks of a store say."""

    def __init__(
        self, store: Store, queues: Mapping[Queue, QueueSummary], handled: Mapping[Queue, int], now: int
    ) -> None:
        """Read them; `queues` has the ends of `pop_queues`.

        `handled`: the offset of the revive group in each queue. `now`: the time of the last activity, in ms.

        :raises Unreadable: a queue file cannot be read.
        """
        states = PopStates()
        units = _units(queues, handled)
        self.cut = len(units) > MOST_RECORDS  # older ones were not read
        newest = units[np.argsort(units[:, 0], kind="stable")[-MOST_RECORDS:]]
        for which, records in records_at(store, newest[:, 0].copy(), newest[:, 1].copy()):
            for row, body in _bodies(records):
                found = read_body(body)
                if found is not None:
                    states.add(found, handled=bool(newest[which[row], 2]))
        self.counts: dict[tuple[str, str, int], PopCount] = states.count(now)  # by group, topic, queue id


def _units(queues: Mapping[Queue, QueueSummary], handled: Mapping[Queue, int]) -> Ints:
    """Return (physical offset, size, whether the broker has handled it) of units that may be checkpoints or acks."""
    found = [np.empty((0, 3), np.int64)]
    for queue, ends in queues.items():
        reached = handled.get(queue, -1)
        for numbers, units in message_units(ends.files, max(0, ends.max_offset - MOST_UNITS), ends.max_offset):
            some = _may_be_notes(units)
            columns = units["physical_offset"][some], units["size"][some], numbers[some] <= reached
            found.append(np.stack([column.astype(np.int64) for column in columns], axis=1))
    return np.concatenate(found)


def _may_be_notes(units: Units) -> Bools:
    """Return which units have the tag of a checkpoint or ack, or their tag in an ext file, which is not looked at."""
    tags = units["tags_code"].astype(np.int64)
    return np.isin(tags, _TAGS) | (tags <= EXT_ADDRESS_MAX)


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

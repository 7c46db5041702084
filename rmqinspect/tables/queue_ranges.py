"""Ranges of queues as a filter: which records are messages of some queues with some queue offsets.

A record that has no unit is in no queue: a prepared or a rollback record, and one from an earlier use of a file. An
inner batch is several messages of its queue. A light message is in the queues that its properties name, too.

Source: CommitLogDispatcherBuildConsumeQueue, MultiDispatchUtils, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Bools
from rmqinspect.topics import LMQ_PREFIX

COLUMNS = ("topic", "queue_id", "queue_offset", "transaction", "status", "properties")


class QueueRange(NamedTuple):
    """Messages of one queue, by queue offset: [first, behind)."""

    topic: str
    queue_id: int
    first: int
    behind: int


def in_ranges(ranges: Sequence[QueueRange], batch: pa.RecordBatch) -> pa.Array:
    """Return which rows of `messages` are in one of some ranges; each queue has one at most."""
    wanted = {(one.topic, one.queue_id): one for one in ranges}
    found = _in_own_queue(wanted, batch)
    if any(one.topic.startswith(LMQ_PREFIX) for one in ranges):
        found |= _in_light_queues(wanted, batch)
    entitled = pc.is_in(batch.column("transaction"), pa.array(["none", "commit"]))
    in_log = pc.not_equal(batch.column("status"), "stale")
    return pc.and_(pc.and_(pc.fill_null(entitled, False), pc.fill_null(in_log, False)), pa.array(found))


def _in_own_queue(wanted: Mapping[tuple[str, int], QueueRange], batch: pa.RecordBatch) -> Bools:
    topics = batch.column("topic").dictionary_encode()
    names: list[str | None] = topics.dictionary.to_pylist()
    numbers = pc.fill_null(topics.indices, len(names)).to_numpy(zero_copy_only=False).astype(np.int64)
    keys = numbers << 32 | batch.column("queue_id").to_numpy(zero_copy_only=False).astype(np.int64) & 0xFFFFFFFF
    distinct, which = np.unique(keys, return_inverse=True)
    firsts, behinds = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    names.append(None)
    for number, key in enumerate(distinct.tolist()):
        one = wanted.get((names[key >> 32] or "", key & 0xFFFFFFFF))
        if one is not None:
            firsts[number], behinds[number] = one.first, one.behind
    offsets = batch.column("queue_offset").to_numpy(zero_copy_only=False)
    # Ranges begin at 0 or behind it: this side cannot overflow, whatever a damaged record takes its offset to be.
    found: Bools = (offsets < behinds[which]) & (offsets > firsts[which] - _messages(batch))
    return found


def _messages(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the messages of each record: 1, or those of an inner batch."""
    inner = pc.map_lookup(batch.column("properties"), pa.scalar("INNER_NUM"), "first")
    if inner.null_count == len(inner):
        return np.ones(batch.num_rows, np.int64)
    return np.array([_number(text) or 1 for text in inner.to_pylist()], np.int64)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _in_light_queues(wanted: Mapping[tuple[str, int], QueueRange], batch: pa.RecordBatch) -> Bools:
    """Return the records that a light queue in `wanted` leads to; it is queue 0. Source: MultiDispatch."""
    properties = batch.column("properties")
    names, offsets = (
        pc.map_lookup(properties, pa.scalar(name), "first")
        for name in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
    )
    found = np.zeros(batch.num_rows, np.bool_)
    for row in np.flatnonzero(names.is_valid().to_numpy(zero_copy_only=False)).tolist():
        queues, numbers = names[row].as_py().split(","), (offsets[row].as_py() or "").split(",")
        if len(queues) != len(numbers):
            continue  # nothing is dispatched
        for name, text in zip(queues, numbers, strict=True):
            one, number = wanted.get((name, 0)), int(text) if text.isdecimal() and len(text) < 19 else -1
            if one is not None and one.first <= number < one.behind:
                found[row] = True
    return found

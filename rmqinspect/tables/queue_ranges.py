"""Ranges of queues as a filter: which records are messages of some queues with some queue offsets.

A record that has no unit is in no queue: a prepared or a rollback record, and one from an earlier use of a file. An
inner batch is several messages of its queue. A light message is in the queues that its properties name, too.

Source: CommitLogDispatcherBuildConsumeQueue, MultiDispatchUtils, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.

What the bytes of a record contain if its row passes a filter: other records need no columns.

    filter                          part         contains
    --tag urgent                    properties   urgent
    --property color=red            properties   color 01 red
    --id, a producer's              properties   the id as given, or with the other hex digits
    --host 10.0.0.1                 born_host    0A 00 00 01
    --body-contains café            body         63 61 66 C3 A9

A record that contains it may still fail: the tag may stand in a key. One that does not may pass for the reasons in
`Needles`, and if its body is compressed.
"""

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rmqinspect.broker.dispatch import further_units
from rmqinspect.codec.arrays import Bools, Ints
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
        nothing = QueueRange("", 0, 0, 0)
        found |= in_further_queues(
            batch,
            lambda name, queue_id, offset: offset in range(*wanted.get((name, queue_id), nothing)[2:]),
        )
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


def _messages(batch: pa.RecordBatch) -> Ints:
    """Return the messages of each record: 1, or those of an inner batch."""
    inner = pc.map_lookup(batch.column("properties"), pa.scalar("INNER_NUM"), "first")
    if inner.null_count == len(inner):
        return np.ones(batch.num_rows, np.int64)
    numbers = (int(text) if text and text.isdecimal() and len(text) < 10 else 1 for text in inner.to_pylist())
    return np.array([number or 1 for number in numbers], np.int64)


def in_further_queues(batch: pa.RecordBatch, wants: Callable[[str, int, int], bool]) -> Bools:
    """Return the records with a unit in another queue than their own, as light messages have, that is wanted.

    `wants` gets that queue's name and id, and the queue offset there. Source: MultiDispatch.
    """
    properties, topics = batch.column("properties"), batch.column("topic")
    names, offsets = (
        pc.map_lookup(properties, pa.scalar(name), "first")
        for name in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
    )
    some = pc.and_(names.is_valid(), pc.is_in(batch.column("transaction"), pa.array(["none", "commit"])))
    found = np.zeros(batch.num_rows, np.bool_)
    for row in pc.indices_nonzero(some).to_pylist():
        topic, listed, numbers = ((column[row].as_py() or "").encode() for column in (topics, names, offsets))
        further = further_units(topic, batch.column("queue_id")[row].as_py(), listed, numbers)
        found[row] = any(wants(*unit) for unit in further)
    return found


_ESCAPED = r"\x"  # may stand for a byte that is not UTF-8: `text_of`


class Needles(Struct, frozen=True):
    """Texts of which the records that pass a filter contain at least one, and what passes without."""

    part: Literal["born_host", "properties", "body"]  # of the record
    texts: tuple[bytes, ...]
    places: tuple[int, ...] = ()  # physical offsets of records that may pass without


def of_values(values: Iterable[str], before: str = "", places: tuple[int, ...] = ()) -> tuple[Needles, ...]:
    """Return what properties contain that have one of some values, as tables print them; `before` precedes each.

    Nothing for a value with an escape: it may be printed so, or stand for a byte.
    """
    texts = tuple(before + value for value in values)
    if any(_ESCAPED in text for text in texts):
        return ()
    # Not UTF-8 itself: no record has it.
    return (Needles("properties", tuple(text.encode("utf-8", "surrogatepass") for text in texts), places),)


def of_body(content: bytes) -> tuple[Needles, ...]:
    """Return what a record contains whose body contains some bytes."""
    return (Needles("body", (content,)),)


def of_host(address: str) -> tuple[Needles, ...]:
    """Return what a record contains that comes from an address, as tables print it."""
    return (Needles("born_host", (ipaddress.ip_address(address).packed,)),)

"""What became of a half message: committed, rolled back, given up, or none of these yet.

    a record with PREPAREDTRANSACTIONOFFSET of a copy, or the commit flag        committed
    a copy in TRANS_CHECK_MAX_TIME_TOPIC                                         given up
    an op record that names the queue offset of a copy (RocksDB: its place)      rolled back
    none, and the broker has still to look at the newest copy                    pending

Source: TransactionalMessageServiceImpl#check, TransactionalMessageBridge, EndTransactionProcessor; 4.3.0 to 5.5.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmqinspect.codec.fields import ParsedFields
from rmqinspect.find.consumers import Consumers
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC

STATES = {
    "committed": "a record was stored in the real topic",
    "rolled_back": "an op record names the half message, and no record commits it",
    "given_up": "checked too often, or too old",
    "pending": "neither committed nor rolled back: the broker will ask the producer",
    "unknown": "no commit or op record was found where they were searched",
}
"""States of a transaction, with their meaning."""

_MOST_OPS = 5000  # op records that are searched behind the first copy of a half message, and behind the last
_OP_TOPICS = {HALF_TOPIC: OP_TOPIC, ROCKSDB_HALF_TOPIC: ROCKSDB_OP_TOPIC}
_CHECKER = "CID_RMQ_SYS_TRANS"  # TransactionalMessageUtil#buildConsumerGroup


@dataclass(frozen=True, slots=True)
class Transaction:
    """The transaction of a message. Places are physical offsets."""

    state: str  # one of STATES
    halves: tuple[int, ...]  # the half message, and the copies made when it was checked
    checks: int
    commit: int | None
    op: int | None  # of the op record of a transaction that was rolled back


def transaction_of(records: LifeRecords, consumers: Consumers, steps: Sequence[Step]) -> Transaction | None:
    """Return the transaction of a message by the records of its life, None if it has none.

    :raises Unreadable: an I/O error.
    """
    halves = [step for step in steps if step.copy.kind == "half"]
    commits = [step for step in steps if step.copy.kind == "commit" or step.links.half is not None]
    given_up = [step for step in steps if step.copy.kind == "given_up"]
    if not halves and not commits and not given_up:
        return None
    checks = max((step.copy.checks for step in (*halves, *given_up)), default=0)
    places = tuple(step.physical_offset for step in halves)
    if commits:
        return Transaction("committed", places, checks, commits[0].physical_offset, None)
    if given_up:
        return Transaction("given_up", places, checks, None, None)
    op, complete = _op_of(records, halves)
    if op is not None:
        return Transaction("rolled_back", places, checks, None, op)
    newest = halves[-1]
    asked = {passed.group: passed.passed for passed in consumers.of(newest.topic, 0, newest.queue_offset)}
    # RocksDB keeps no offset: a half message that is not decided stays in its table.
    waits = not asked.get(_CHECKER, False) and newest.topic in _OP_TOPICS
    return Transaction("pending" if complete and waits else "unknown", places, checks, None, None)


def _op_of(records: LifeRecords, halves: Sequence[Step]) -> tuple[int | None, bool]:
    """Return the place of the op record of a half message, and whether all that may be it were searched."""
    topic, complete = _OP_TOPICS.get(halves[-1].topic), False
    if topic is None:
        return None, False  # up to 4.2 a rollback is a record of its own, in the real topic
    # Most are decided at once, or after the last check.
    for half in (halves[0], halves[-1]):
        ops, complete = records.behind(topic, half.physical_offset, _MOST_OPS)
        for op in ops:
            if any(_names(op, copy) for copy in halves):
                return op.physical_offset, True
        if complete:
            break
    return None, complete


def _names(op: ParsedFields, half: Step) -> bool:
    """Whether an op record names a half message: its queue offset in the body, or its place.

    Source: TransactionalMessageBridge#putOpMessage, TransactionalMessageRocksDBService (5.4.0).
    """
    properties = op.properties
    if properties.get("TAGS") != "d":
        return False
    if "TRANS_OFFSET" in properties:
        return properties["TRANS_OFFSET"] == str(half.physical_offset)
    return op.number("queue_id") == half.queue_id and str(half.queue_offset).encode() in (op.body or b"").split(b",")

"""What became of the half message of one life, by the rules for all transactions of a store.

The commit record, and the copy in TRANS_CHECK_MAX_TIME_TOPIC, are records of the life. An op record has no UNIQ_KEY: it
is searched behind the half message.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rmqinspect.broker.transactions import (
    ABSENT,
    IN_HALF_TOPIC,
    IN_REAL_TOPIC,
    IN_ROCKSDB,
    REASONS,
    STATES,
    Decisions,
    Halves,
    Surroundings,
    judge,
)
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.fields import ParsedFields
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC

_MOST_OPS = 5000  # op records that are searched behind the first copy of a half message, and behind the last
_KEPT_IN = {HALF_TOPIC: IN_HALF_TOPIC, ROCKSDB_HALF_TOPIC: IN_ROCKSDB}
_OP_TOPICS = {HALF_TOPIC: OP_TOPIC, ROCKSDB_HALF_TOPIC: ROCKSDB_OP_TOPIC}
_KINDS = ("half", "given_up", "rollback")
_NOT_ALL_SEARCHED = f"among {_MOST_OPS} op records behind it none is about it; later ones were not searched"


@dataclass(frozen=True, slots=True)
class Transaction:
    """The transaction of a message. Places are physical offsets."""

    state: str  # as in the table `transactions`
    why: str | None  # what makes the state uncertain, or odd
    halves: tuple[int, ...]  # the half message, and the copies made when it was checked
    checks: int
    commit: int | None
    op: int | None  # of the op record


def transaction_of(records: LifeRecords, around: Surroundings, steps: Sequence[Step]) -> Transaction | None:
    """Return the transaction of a message by the records of its life, None if it has none.

    :raises Unreadable: an I/O error.
    """
    halves, given_up, ends = ([step for step in steps if step.copy.kind == kind] for kind in _KINDS)
    # A delayed message is committed into the topic of its delay.
    commits = [step for step in steps if step.copy.kind == "commit" or step.links.half is not None]
    commits = [step for step in commits if step not in ends]
    if not halves:
        decided = (*(("committed", step) for step in commits), *(("given_up", step) for step in given_up))
        state, record = next(iter(decided), (None, None))
        if state is None or record is None:
            return None
        commit = record.physical_offset if state == "committed" else None
        return Transaction(state, "the half message is not in the log", (), record.copy.checks, commit, None)
    op, complete = _op_of(records, halves)
    judged = judge(_halves(halves), _decisions(halves, commits, given_up, ends, op), around)
    state, why = STATES[judged.state[0]], None if judged.reason[0] == ABSENT else REASONS[judged.reason[0]]
    if op is None and not complete:
        why = _NOT_ALL_SEARCHED if state not in ("committed", "given_up") else None
    return Transaction(
        state,
        why,
        tuple(step.physical_offset for step in halves),
        max(step.copy.checks for step in (*halves, *given_up)),
        _place(judged.commit_offset),
        _place(judged.op_offset),
    )


def _place(offsets: Ints) -> int | None:
    return None if offsets[0] == ABSENT else int(offsets[0])


def _halves(halves: Sequence[Step]) -> Halves:
    kept_in = [_KEPT_IN.get(step.topic, IN_REAL_TOPIC) for step in halves]
    return Halves(
        _ints(step.physical_offset for step in halves),
        _ints(step.queue_offset for step in halves),
        np.ones(len(halves), np.uint64),  # copies of one message
        np.array(kept_in, np.int8),
    )


def _decisions(
    halves: Sequence[Step],
    commits: Sequence[Step],
    given_up: Sequence[Step],
    ends: Sequence[Step],
    op: ParsedFields | None,
) -> Decisions:
    decided = [half for half in halves if op is not None and _names(op, half)][-1:]
    ops = [op.physical_offset or 0] if op is not None and decided else []
    by_offset = bool(decided) and _KEPT_IN.get(decided[0].topic) == IN_HALF_TOPIC
    # Those that name the half message by its place: op records in RocksDB, and rollback records up to 4.2.
    by_place = [] if by_offset else [(half.physical_offset, at) for half, at in zip(decided, ops, strict=True)]
    by_place += [(end.links.half, end.physical_offset) for end in ends if end.links.half is not None]
    return Decisions(
        commit_of=_ints(step.links.half or 0 for step in commits),
        commit_offset=_ints(step.physical_offset for step in commits),
        commit_key=np.ones(len(commits), np.uint64),
        op_of=_ints(half.queue_offset for half in decided if by_offset),
        op_offset=_ints(ops if by_offset else ()),
        end_of=_ints(place for place, _ in by_place),
        end_offset=_ints(at for _, at in by_place),
        discard_key=np.ones(len(given_up), np.uint64),
        discard_offset=_ints(step.physical_offset for step in given_up),
    )


def _ints(numbers: Iterable[int]) -> Ints:
    return np.array(list(numbers), np.int64)


def _op_of(records: LifeRecords, halves: Sequence[Step]) -> tuple[ParsedFields | None, bool]:
    """Return the op record of a half message, and whether all that may be it were searched."""
    topic, complete = _OP_TOPICS.get(halves[-1].topic), True
    if topic is None:
        return None, True  # up to 4.2 a rollback is a record of its own, in the real topic
    # Most are decided at once, or after the last check.
    for half in (halves[0], halves[-1]):
        ops, complete = records.behind(topic, half.physical_offset, _MOST_OPS)
        for op in ops:
            if any(_names(op, copy) for copy in halves):
                return op, True
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

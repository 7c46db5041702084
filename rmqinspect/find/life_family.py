"""Which of the records with one UNIQ_KEY are copies of one message.

    its origin is a copy         ORIGIN_MESSAGE_ID, PREPAREDTRANSACTIONOFFSET
    the same body                and no origin that says otherwise
    another body                 a copy only where all records with the id can be of one message

Records of one client batch may share the id of the batch (4.8.0 to 5.3.3): they lie side by side, with the same store
time, and are different messages even if their bodies are the same.

What became of the half message of one life, by the rules for all transactions of a store.

The commit record, and the copy in TRANS_CHECK_MAX_TIME_TOPIC, are records of the life. An op record has no UNIQ_KEY: it
is searched behind the half message.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rmqinspect.broker.copies import NO_COPIES
from rmqinspect.broker.transactions import (
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
from rmqinspect.codec.arrays import ABSENT, Ints
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC

_FIRST = frozenset({"sent", "half"})  # what a producer stores


def family(start: Step, steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Return (copies of the message of `start`, other messages with its id), each ascending as `steps` are."""
    by_place = {step.physical_offset: step for step in steps}
    mates = _batch_mates(steps)
    one_message = len({step.body for step in steps if step.copy.kind in _FIRST}) <= 1
    members = {start.physical_offset: start}
    while True:
        rest = [step for step in steps if step.physical_offset not in members]
        joining = next((step for step in rest if _is_linked(step, members)), None) or next(
            (step for step in rest if _is_alike(step, members, by_place, mates, one_message=one_message)), None
        )
        if joining is None:
            break
        members[joining.physical_offset] = joining
    copies = [step for step in steps if step.physical_offset in members]
    return copies, [step for step in steps if step.physical_offset not in members]


def with_deliveries(copies: Sequence[Step]) -> list[Step]:
    """Return the records of a message with those that were delivered: as other writers store them, they do not say so.

    Such a record lies behind one that waits for its topic, and was sent at the same time.
    """
    told: list[Step] = []
    for step in copies:
        waits = (one for one in told if one.copy.bound_for and one.copy.kind in ("scheduled", "timer"))
        origin = next((one for one in waits if one.copy.bound_for == (step.topic, step.queue_id)), None)
        if step.copy.kind == "sent" and origin is not None and origin.born_timestamp == step.born_timestamp:
            step = replace(
                step, copy=replace(step.copy, kind="delivered", level=origin.copy.level, due=origin.copy.due)
            )
        told.append(step)
    return told


def stored_twice(copies: Sequence[Step]) -> list[Step]:
    """Return the records of a message that a producer stored again, as after a timeout: all but the first."""
    return [step for step in copies if step.copy.kind == "sent"][1:]


def _is_linked(step: Step, members: dict[int, Step]) -> bool:
    """Whether a record names one of the others, or one of them names it."""
    if step.copy.kind == "timer_cancel":
        return any(cancels(step, member) for member in members.values())
    named = any(step.physical_offset in member.named for member in members.values())
    return named or not step.named.isdisjoint(members)


def _is_alike(
    step: Step, members: dict[int, Step], by_place: dict[int, Step], mates: list[set[int]], *, one_message: bool
) -> bool:
    """Whether a record that names none of the others is a copy all the same."""
    if step.copy.kind in NO_COPIES or step.copy.kind == "timer_cancel":
        return False
    if not step.named.isdisjoint(by_place):  # a copy of another
        return False
    if any(step.physical_offset in group and not group.isdisjoint(members) for group in mates):
        return False
    return one_message or any(step.body == member.body for member in members.values())


def cancels(step: Step, member: Step) -> bool:
    """Whether a record takes another off the timer wheel: it names the UNIQ_KEY, in 5.3.2 behind `topic+`.

    Source: TimerMessageStore#doPut, TimerMessageStore#buildDeleteKey.
    """
    named = step.properties.get("TIMER_DEL_UNIQKEY", "")
    key = member.properties.get("UNIQ_KEY")
    return member.copy.kind == "timer" and key is not None and key in (named, named.partition("+")[2])


def _batch_mates(steps: Sequence[Step]) -> list[set[int]]:
    """Return the places of records that were stored side by side, at the same time, in one queue."""
    groups: list[set[int]] = []
    for before, step in pairwise(steps):
        side_by_side = 0 <= step.physical_offset - before.end <= EntryHead.sizeof()
        same = all((one.copy.kind, *_of_batch(one)) == ("sent", *_of_batch(before)) for one in (before, step))
        if side_by_side and same:
            if not groups or before.physical_offset not in groups[-1]:
                groups.append({before.physical_offset})
            groups[-1].add(step.physical_offset)
    return groups


def _of_batch(step: Step) -> tuple[object, ...]:
    """Return what the records of one batch have in common."""
    return step.topic, step.queue_id, step.store_timestamp


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
    kept_in = [_KEPT_IN.get(step.topic, IN_REAL_TOPIC) for step in halves]
    copies = Halves(
        _ints(step.physical_offset for step in halves),
        _ints(step.queue_offset for step in halves),
        np.ones(len(halves), np.uint64),  # of one message
        np.array(kept_in, np.int8),
    )
    judged = judge(copies, _decisions(halves, commits, given_up, ends, op), around)
    commit, op_offset = (
        None if offsets[0] == ABSENT else int(offsets[0]) for offsets in (judged.commit_offset, judged.op_offset)
    )
    state, why = STATES[judged.state[0]], None if judged.reason[0] == ABSENT else REASONS[judged.reason[0]]
    if op is None and not complete:
        why = _NOT_ALL_SEARCHED if state not in ("committed", "given_up") else None
    return Transaction(
        state,
        why,
        tuple(step.physical_offset for step in halves),
        max(step.copy.checks for step in (*halves, *given_up)),
        commit,
        op_offset,
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

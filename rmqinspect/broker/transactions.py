"""What became of half messages: their copies, the op records, and what was committed, joined.

    half copy   a producer's half message; each check of the broker stores it again, with the same UNIQ_KEY
    commit      the message as consumers see it; its field PREPAREDTRANSACTIONOFFSET names the half copy
    op          says that half copies are decided, committed or rolled back; written behind the commit record
    discard     a half message that was checked too often, or is too old: moved to TRANS_CHECK_MAX_TIME_TOPIC

A transaction is all copies of one half message. Where half messages are kept tells how they are joined:

    half_topic    4.3.0 and later: ops hold queue offsets of half copies; the check goes on at the consumer offset of
                  the group CID_RMQ_SYS_TRANS, and stores the half message again while it is not decided
    rocksdb       5.4.0 and later, by setting: ops hold physical offsets; what is not decided has an entry in RocksDB
    real_topic    4.2.0 and before: no ops; a commit or rollback record names the prepared record; no check

A log is read from its begin to its end, so a commit record stands between the half copy and the op: where the op is
found and nothing between is lost, an absent commit record was never written.

Source: TransactionalMessageServiceImpl#check, #fillOpRemoveMap and #deletePrepareMessage, EndTransactionProcessor,
TransactionalMessageRocksDBService, TransMessageRocksDBStore; RocketMQ 4.2.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints

# TransactionalMessageUtil, MixAll.CID_SYS_RMQ_TRANS: the group whose consumer offset says how far the check has come.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
CHECK_MAX = 15  # BrokerConfig#transactionCheckMax

KEPT_IN = ("half_topic", "rocksdb", "real_topic")
IN_HALF_TOPIC, IN_ROCKSDB, IN_REAL_TOPIC = range(len(KEPT_IN))

STATES = ("pending", "committed", "rolled_back", "given_up", "evidence_gone")
PENDING, COMMITTED, ROLLED_BACK, GIVEN_UP, EVIDENCE_GONE = range(len(STATES))

# Why a state is less certain than it looks, or what is odd about it.
REASONS = (
    "more than one commit record: consumers see the message more than once",
    "committed, op missing: will be checked again, and may be committed twice",
    "committed, op missing: the check has gone past it",
    "op present, commit not found: rolled back, or the commit record is lost with the records between",
    "given up before, then put back to be checked",
    "records behind it are lost: it may have been decided",
    "no consumer offset of CID_RMQ_SYS_TRANS given: it may have been decided earlier",
    "the check has gone past it, and neither an op nor a newer copy is found: decided earlier, or lost",
    "no entry in RocksDB and no op: given up after the last check, which writes no record",
    "not in RocksDB yet: brokers enter it when they start",
    "RocksDB was not read: it may have been given up",
    "4.2.0 or before: no commit or rollback record; no broker checks it",
)
(
    _COMMITTED_TWICE,
    _OP_MISSING,
    _OP_MISSING_PASSED,
    _COMMIT_LOST,
    _RESUMED,
    _MAY_BE_LOST,
    _NO_CHECK_OFFSET,
    _PASSED,
    _NO_ENTRY,
    _NOT_ENTERED,
    _ROCKSDB_UNREAD,
    _OLD,
) = range(len(REASONS))

ABSENT = -1
"""In place of an offset: there is none."""

_LAST = np.iinfo(np.int64).max
Hashes = NDArray[np.uint64]
Indexes = NDArray[np.int32]


def _none() -> Ints:
    return np.zeros(0, np.int64)


def _no_keys() -> Hashes:
    return np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Halves:
    """Half copies in log order, shape (n,) each."""

    physical_offset: Ints
    queue_offset: Ints
    key: Hashes  # hash of UNIQ_KEY; 0: it has none, or is not joined by it
    kept_in: NDArray[np.int8]


@dataclass
class Decisions:
    """What the log says about half messages, in log order; columns of one kind of record have one shape.

    `judge` takes the columns out that it needs no more: there are millions of them.
    """

    commit_of: Ints = field(default_factory=_none)  # PREPAREDTRANSACTIONOFFSET; 0 in a copy of a delayed commit
    commit_offset: Ints = field(default_factory=_none)  # where the commit record stands
    commit_key: Hashes = field(default_factory=_no_keys)
    op_of: Ints = field(default_factory=_none)  # queue offset of the half copy that an op is about
    op_offset: Ints = field(default_factory=_none)
    end_of: Ints = field(default_factory=_none)  # physical offset of a half: RocksDB op, old rollback record
    end_offset: Ints = field(default_factory=_none)
    discard_key: Hashes = field(default_factory=_no_keys)
    discard_offset: Ints = field(default_factory=_none)

    def drop(self, *names: str) -> None:
        """Let go of columns: they are empty afterwards."""
        for name in names:
            setattr(self, name, getattr(self, name)[:0].copy())


@dataclass(frozen=True)
class Surroundings:
    """What the files beside the log say, and what of the log is lost."""

    check_offset: int | None  # consumer offset of CHECK_GROUP in the half topic; None: not known
    entries: Ints | None = None  # physical offsets of half messages in RocksDB, ascending; None: not read
    entered_to: int = ABSENT  # the highest physical offset ever entered there
    lost: Sequence[tuple[int, int]] = ()  # ranges of the log without their records, ascending and apart


@dataclass(frozen=True)
class Transactions:
    """One row per transaction, in the order of their newest copies, shape (n,) each. Offsets may be ABSENT."""

    newest: Indexes  # in Halves
    first: Indexes  # in Halves
    copies: Indexes
    state: NDArray[np.int8]  # index in STATES
    reason: NDArray[np.int8]  # index in REASONS, or ABSENT
    commits: Indexes  # commit records that name a copy
    commit_offset: Ints
    op_offset: Ints
    discard_offset: Ints
    stray_ops: int  # half copies that ops name, and that the log does not hold
    stray_commits: int  # the same of commit records


def judge(halves: Halves, decisions: Decisions, around: Surroundings) -> Transactions:
    """Return the state of each transaction. Of `decisions` only the offsets of commits and discards are left.

    Source: TransactionalMessageServiceImpl#check decides about the newest copy alone; the others are replaced.
    """
    order = np.argsort(halves.key, kind="stable").astype(np.int32)  # equal keys stay in log order
    firsts = _group_starts(halves.key, order)

    op_offset, stray_ops = _ops_of(halves, decisions)
    decisions.drop("op_of", "op_offset", "end_of", "end_offset")
    op_offset = _least(op_offset, order, firsts)
    commit_offset, commits, stray_commits = _commits_of(halves.physical_offset, decisions)
    decisions.drop("commit_of")
    commits = _reduced(np.add, commits, order, firsts)
    commit_offset = _least(commit_offset, order, firsts)
    copies = np.diff(firsts, append=np.int32(len(order)))
    first, newest = order[firsts], order[firsts + copies - 1]
    del order, firsts
    # A delayed commit is stored once more when it is due, without the offset of the half copy.
    rows = np.flatnonzero(commit_offset == ABSENT)
    key = halves.key[newest[rows]]
    asked = _among(decisions.commit_key, key)
    commit_offset[rows] = _lookup(decisions.commit_key[asked], decisions.commit_offset[asked], key, "first")
    decisions.drop("commit_key")
    del rows, key, asked
    discard_offset = _lookup(decisions.discard_key, decisions.discard_offset, halves.key[newest], "last")
    decisions.drop("discard_key")

    state, reason = (np.empty(len(newest), np.int8) for _ in range(2))
    for some in _slices(len(newest)):
        found = _Found(
            halves.physical_offset[first[some]],
            halves.physical_offset[newest[some]],
            halves.queue_offset[newest[some]],
            halves.kept_in[newest[some]],
            commits[some],
            commit_offset[some],
            op_offset[some],
            discard_offset[some],
        )
        state[some], reason[some] = _states(found, around)
    # By their newest copies, as the check meets them: half copies are in log order.
    row = np.full(len(halves.key), ABSENT, np.int32)
    row[newest] = np.arange(len(newest), dtype=np.int32)
    rank = row[row != ABSENT]
    del row
    columns = (newest, first, copies, state, reason, commits, commit_offset, op_offset, discard_offset)
    for values in columns:
        values[:] = values[rank]
    return Transactions(
        newest,
        first,
        copies,
        state,
        reason,
        commits,
        commit_offset,
        op_offset,
        discard_offset,
        stray_ops,
        stray_commits,
    )


@dataclass(frozen=True)
class _Found:
    """What is known of each transaction: physical offsets of its copies, and of what decided it."""

    first: Ints
    newest: Ints
    newest_queue_offset: Ints
    kept_in: NDArray[np.int8]
    commits: Indexes
    commit: Ints
    op: Ints
    discard: Ints


def _states(found: _Found, around: Surroundings) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return the state of each transaction, and the reason to doubt it: the first rule that fits."""
    has_commit, has_op = found.commit != ABSENT, found.op != ABSENT
    has_discard = found.discard != ABSENT
    in_topic, in_rocksdb = found.kept_in == IN_HALF_TOPIC, found.kept_in == IN_ROCKSDB
    old = found.kept_in == IN_REAL_TOPIC
    no_offset = around.check_offset is None
    passed = in_topic & (found.newest_queue_offset < (around.check_offset or 0))
    lost_before_op = _is_lost(around.lost, found.first, found.op)
    lost_after = _is_lost(around.lost, found.newest, np.full_like(found.newest, _LAST))
    unread = around.entries is None
    entered = np.isin(found.newest, around.entries) if around.entries is not None else np.zeros_like(in_topic)
    everywhere = np.ones_like(in_topic)

    rules: tuple[tuple[Bools, int, int], ...] = (
        (has_commit & (found.commits > 1), COMMITTED, _COMMITTED_TWICE),
        (has_commit & in_topic & ~has_op & passed, COMMITTED, _OP_MISSING_PASSED),
        (has_commit & ~old & ~has_op, COMMITTED, _OP_MISSING),
        (has_commit, COMMITTED, ABSENT),
        (has_op & ~old & lost_before_op, ROLLED_BACK, _COMMIT_LOST),
        (has_op, ROLLED_BACK, ABSENT),
        # An administrator may have put it back: AdminBrokerProcessor#resumeCheckHalfMessage.
        (has_discard & (found.discard < found.newest) & ~passed, PENDING, _RESUMED),
        (has_discard, GIVEN_UP, ABSENT),
        (in_topic & passed, EVIDENCE_GONE, _PASSED),
        (in_rocksdb & entered & lost_after, PENDING, _MAY_BE_LOST),
        (in_rocksdb & entered, PENDING, ABSENT),
        (in_rocksdb & unread, PENDING, _ROCKSDB_UNREAD),
        (in_rocksdb & (found.newest > around.entered_to), PENDING, _NOT_ENTERED),
        (in_rocksdb, GIVEN_UP, _NO_ENTRY),
        (old, PENDING, _OLD),
        (lost_after, PENDING, _MAY_BE_LOST),
        (everywhere & no_offset, PENDING, _NO_CHECK_OFFSET),
        (everywhere, PENDING, ABSENT),
    )
    chosen = np.argmax([which for which, _, _ in rules], axis=0)
    states, reasons = (np.array([rule[part] for rule in rules], np.int8) for part in (1, 2))
    return states[chosen], reasons[chosen]


# --- joins ----------------------------------------------------------------------------------------


_SLICE = 1 << 16  # rows that are looked at together, where that takes many columns


def _slices(count: int) -> Iterator[slice]:
    return (slice(start, start + _SLICE) for start in range(0, count, _SLICE))


def _group_starts(keys: Hashes, order: Indexes) -> Indexes:
    """Return where, in the order of keys, each group of equal ones begins; what has no key is a group of its own."""
    new: Bools = np.ones(len(order), np.bool_)
    for some in _slices(len(order) - 1):
        before, after = (keys[order[some.start + by : some.stop + by]] for by in (0, 1))
        new[some.start + 1 : some.stop + 1] = (after != before[: len(after)]) | (after == 0)
    return np.flatnonzero(new).astype(np.int32)


def _least(offsets: Ints, order: Indexes, firsts: Indexes) -> Ints:
    """Return the lowest offset of each group that is not ABSENT."""
    # As unsigned numbers ABSENT is the highest.
    return _reduced(np.minimum, offsets.view(np.uint64), order, firsts).view(np.int64)


def _reduced(function: np.ufunc, values: NDArray[Any], order: Indexes, firsts: Indexes) -> NDArray[Any]:
    """Return the sum, or the least, of the values of each group."""
    reduced = np.empty(len(firsts), values.dtype)
    for some in _slices(len(firsts)):
        starts = firsts[some]
        end = firsts[some.stop] if some.stop < len(firsts) else len(order)
        reduced[some] = function.reduceat(values[order[starts[0] : end]], starts - starts[0], dtype=values.dtype)
    return reduced


def _commits_of(places: Ints, decisions: Decisions) -> tuple[Ints, Indexes, int]:
    """Return the first commit record that names each half copy, how many do, and how many name none.

    0 is not the name of a first record: it stands in what was stored again, by a delay or a retry.
    """
    named, offsets = _sorted(decisions.commit_of, decisions.commit_offset)
    start = np.searchsorted(named, 0, "right")
    named, offsets = named[start:], offsets[start:]
    found, counts = np.empty(len(places), np.int64), np.empty(len(places), np.int32)
    for some in _slices(len(places)):
        left, right = (np.searchsorted(named, places[some], side) for side in ("left", "right"))
        counts[some] = right - left
        found[some] = _take(offsets, left, right > left)
    return found, counts, len(named) - int(counts.sum())


def _ops_of(halves: Halves, decisions: Decisions) -> tuple[Ints, int]:
    """Return the op, or the old rollback record, about each half copy; and how many ops are about none."""
    in_topic = halves.kept_in == IN_HALF_TOPIC
    some: Bools | slice = slice(None) if in_topic.all() else in_topic  # a slice copies nothing
    ops, strays = _next_ops(
        halves.queue_offset[some], halves.physical_offset[some], decisions.op_of, decisions.op_offset
    )
    if len(ops) == len(in_topic):
        return ops, strays
    others = np.flatnonzero(~in_topic)
    found = np.empty(len(in_topic), np.int64)
    found[in_topic] = ops
    found[others] = _match(halves.physical_offset[others], *_sorted(decisions.end_of, decisions.end_offset))
    return found, strays


def _next_ops(half_of: Ints, half_offset: Ints, op_of: Ints, op_offset: Ints) -> tuple[Ints, int]:
    """Return the first op behind each half copy, and before the next one, with its queue offset.

    Where queue offsets repeat this takes more memory: `_next_repeated`.
    """
    of, offset = _sorted(op_of, op_offset)
    ascending = bool((half_of[1:] > half_of[:-1]).all())
    if not ascending or bool((of[1:] == of[:-1]).any()):
        return _next_repeated(half_of, half_offset, op_of, op_offset)
    found = _match(half_of, of, offset)
    found[found < half_offset] = ABSENT
    return found, len(of) - int(np.count_nonzero(found != ABSENT))


def _next_repeated(half_of: Ints, half_offset: Ints, op_of: Ints, op_offset: Ints) -> tuple[Ints, int]:
    """The same where a queue offset is there twice.

    A topic that was deleted and made again gives its queue offsets a second time.
    """
    count = len(half_of)
    of, offset = np.concatenate((half_of, op_of)), np.concatenate((half_offset, op_offset))
    order = np.lexsort((offset, of))
    is_half, of = order < count, of[order]
    found = np.full(count, ABSENT, np.int64)
    here = np.flatnonzero(is_half[:-1] & ~is_half[1:] & (of[:-1] == of[1:]))
    found[order[here]] = offset[order[here + 1]]
    last_half = np.maximum.accumulate(np.where(is_half, np.arange(len(order)), ABSENT))
    # Index ABSENT is the last of all: it is compared with itself only if there is no half at all.
    stray = ~is_half & ((last_half == ABSENT) | (of[last_half] != of))
    return found, int(np.count_nonzero(stray))


def _sorted(keys: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Return keys in ascending order, with their offsets; those of equal keys stay in log order."""
    if bool((keys[1:] >= keys[:-1]).all()):
        return keys, offsets
    order = np.argsort(keys, kind="stable")
    return keys[order], offsets[order]


def _match(wanted: Ints, keys: Ints, offsets: Ints) -> Ints:
    """Return the offset of the first of the ascending keys that equals each one wanted, ABSENT without."""
    found = np.full(len(wanted), ABSENT, np.int64)
    for some in _slices(len(wanted)) if len(keys) else ():
        at = np.minimum(np.searchsorted(keys, wanted[some]), len(keys) - 1)
        found[some] = np.where(keys[at] == wanted[some], offsets[at], ABSENT)
    return found


def _among(keys: Hashes, wanted: Hashes) -> Bools:
    """Return which keys are wanted."""
    wanted = np.unique(wanted)
    found = np.zeros(len(keys), np.bool_)
    for some in _slices(len(keys)) if len(wanted) else ():
        at = np.minimum(np.searchsorted(wanted, keys[some]), len(wanted) - 1)
        found[some] = wanted[at] == keys[some]
    return found


def _lookup(keys: Hashes, offsets: Ints, wanted: Hashes, which: Literal["first", "last"]) -> Ints:
    """Return the first or the last of the ascending offsets with each key wanted, ABSENT without, and for no key."""
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order], offsets[order]
    del order
    found = np.empty(len(wanted), np.int64)
    for some in _slices(len(wanted)):
        left, right = (np.searchsorted(keys, wanted[some], side) for side in ("left", "right"))
        there = (right > left) & (wanted[some] != 0)
        found[some] = _take(offsets, left if which == "first" else right - 1, there)
    return found


def _take(values: Ints, at: Ints, there: Bools) -> Ints:
    """Return `values[at]`, ABSENT where nothing is there."""
    if not len(values):
        return np.full(len(at), ABSENT, np.int64)
    return np.where(there, values[np.clip(at, 0, len(values) - 1)], ABSENT)


def _is_lost(lost: Sequence[tuple[int, int]], starts: Ints, ends: Ints) -> Bools:
    """Return whether a lost range reaches into each range of offsets."""
    if not lost:
        return np.zeros(len(starts), np.bool_)
    borders: NDArray[Any] = np.array(lost, np.int64)
    following = np.searchsorted(borders[:, 1], starts, "right")  # the first one that ends behind the start
    begins = np.append(borders[:, 0], _LAST)[following]
    inside: Bools = begins < ends
    return inside

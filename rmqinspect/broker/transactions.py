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

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.choices import TRANSACTION_STATES
from rmqinspect.codec.arrays import ABSENT, Bools, Groups, Indexes, Ints, Keyed, find, first_rule

# TransactionalMessageUtil, MixAll.CID_SYS_RMQ_TRANS: the group whose consumer offset says how far the check has come.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
CHECK_MAX = 15  # BrokerConfig#transactionCheckMax

KEPT_IN = ("half_topic", "rocksdb", "real_topic")
IN_HALF_TOPIC, IN_ROCKSDB, IN_REAL_TOPIC = range(len(KEPT_IN))

STATES = TRANSACTION_STATES
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

_LAST = np.iinfo(np.int64).max
Hashes = NDArray[np.uint64]


def _none() -> Ints:
    return np.zeros(0, np.int64)


def _no_keys() -> Hashes:
    return np.zeros(0, np.uint64)


class Halves(Struct, frozen=True):
    """Half copies in log order, shape (n,) each."""

    physical_offset: Ints
    queue_offset: Ints
    key: Hashes  # hash of UNIQ_KEY; 0: it has none, or is not joined by it
    kept_in: NDArray[np.int8]


class Decisions(Struct, frozen=True):
    """What the log says about half messages, in log order; columns of one kind of record have one shape."""

    commit_of: Ints = field(default_factory=_none)  # PREPAREDTRANSACTIONOFFSET; 0 in a copy of a delayed commit
    commit_offset: Ints = field(default_factory=_none)  # where the commit record stands
    commit_key: Hashes = field(default_factory=_no_keys)
    op_of: Ints = field(default_factory=_none)  # queue offset of the half copy that an op is about
    op_offset: Ints = field(default_factory=_none)
    end_of: Ints = field(default_factory=_none)  # physical offset of a half: RocksDB op, old rollback record
    end_offset: Ints = field(default_factory=_none)
    discard_key: Hashes = field(default_factory=_no_keys)
    discard_offset: Ints = field(default_factory=_none)


class Surroundings(Struct, frozen=True):
    """What the files beside the log say, and what of the log is lost."""

    check_offset: int | None  # consumer offset of CHECK_GROUP in the half topic; None: not known
    entries: Ints | None = None  # physical offsets of half messages in RocksDB, ascending; None: not read
    entered_to: int = ABSENT  # the highest physical offset ever entered there
    lost: Sequence[tuple[int, int]] = ()  # ranges of the log without their records, ascending and apart


class Transactions(Struct, frozen=True):
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
    """Return the state of each transaction.

    Source: TransactionalMessageServiceImpl#check decides about the newest copy alone; the others are replaced.
    """
    group = Groups(halves.key)
    newest, first = group.last, group.first
    key = halves.key[newest]
    commit, commits, stray_commits = _commits_of(halves, decisions)
    commit, commits = group.least(commit), group.sum(commits)
    # A delayed commit is stored once more when it is due, without the offset of the half copy.
    rows = np.flatnonzero((commit == ABSENT) & (key != 0))
    asked = find(key[rows], decisions.commit_key) != ABSENT  # keys of groups ascend
    commit[rows] = Keyed(decisions.commit_key[asked], decisions.commit_offset[asked]).first(key[rows])
    op, stray_ops = _ops_of(halves, decisions)
    op = group.least(op)
    discard = np.where(key != 0, Keyed(decisions.discard_key, decisions.discard_offset).last(key), ABSENT)
    state, reason = _states(halves, newest, first, (commits, commit, op, discard), around)
    # As the check meets them, by their newest copies: half copies are in log order.
    columns = (newest, first, group.size, state, reason, commits, commit, op, discard)
    order = np.argsort(newest)
    for column in columns:
        column[:] = column[order]
    return Transactions(*columns, stray_ops, stray_commits)


def _states(
    halves: Halves, newest: Indexes, first: Indexes, found: tuple[Indexes, Ints, Ints, Ints], around: Surroundings
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return the state of each transaction, and the reason to doubt it: the first rule that fits.

    `found`: how many commit records it has, and where the first one, its op and its discard stand.
    """
    commits, commit, op, discard = found
    place = halves.physical_offset[newest]
    no_offset = around.check_offset is None
    kept_in = halves.kept_in[newest]
    in_topic, in_rocksdb, old = (kept_in == number for number in (IN_HALF_TOPIC, IN_ROCKSDB, IN_REAL_TOPIC))
    has_commit, has_op, has_discard = commit != ABSENT, op != ABSENT, discard != ABSENT
    passed = in_topic & (halves.queue_offset[newest] < (around.check_offset or 0))
    lost_before_op = _is_lost(around.lost, halves.physical_offset[first], op)
    lost_after = _is_lost(around.lost, place, np.full(len(place), _LAST))
    entered = np.isin(place, () if around.entries is None else around.entries)
    everywhere = np.ones(len(place), np.bool_)

    rules: tuple[tuple[Bools, int, int], ...] = (
        (has_commit & (commits > 1), COMMITTED, _COMMITTED_TWICE),
        (has_commit & in_topic & ~has_op & passed, COMMITTED, _OP_MISSING_PASSED),
        (has_commit & ~old & ~has_op, COMMITTED, _OP_MISSING),
        (has_commit, COMMITTED, ABSENT),
        (has_op & ~old & lost_before_op, ROLLED_BACK, _COMMIT_LOST),
        (has_op, ROLLED_BACK, ABSENT),
        # An administrator may have put it back: AdminBrokerProcessor#resumeCheckHalfMessage.
        (has_discard & (discard < place) & ~passed, PENDING, _RESUMED),
        (has_discard, GIVEN_UP, ABSENT),
        (in_topic & passed, EVIDENCE_GONE, _PASSED),
        (in_rocksdb & entered & lost_after, PENDING, _MAY_BE_LOST),
        (in_rocksdb & entered, PENDING, ABSENT),
        (in_rocksdb & (around.entries is None), PENDING, _ROCKSDB_UNREAD),
        (in_rocksdb & (place > around.entered_to), PENDING, _NOT_ENTERED),
        (in_rocksdb, GIVEN_UP, _NO_ENTRY),
        (old, PENDING, _OLD),
        (lost_after, PENDING, _MAY_BE_LOST),
        (everywhere & no_offset, PENDING, _NO_CHECK_OFFSET),
        (everywhere, PENDING, ABSENT),
    )
    applies = first_rule([condition for condition, _, _ in rules])
    states, reasons = (np.array([rule[part] for rule in rules], np.int8) for part in (1, 2))
    return states[applies], reasons[applies]


def _commits_of(halves: Halves, decisions: Decisions) -> tuple[Ints, Indexes, int]:
    """Return the first commit record that names each half copy, how many do, and how many name none."""
    named = decisions.commit_of > 0  # 0 stands in what was stored again, by a delay or a retry: it names no record
    commits = Keyed(decisions.commit_of[named], decisions.commit_offset[named])
    count = commits.count(halves.physical_offset).astype(np.int32)
    return commits.first(halves.physical_offset), count, len(commits.keys) - int(count.sum())


def _ops_of(halves: Halves, decisions: Decisions) -> tuple[Ints, int]:
    """Return the op, or the old rollback record, about each half copy; and how many ops are about none.

    A topic that was deleted and made again gives its queue offsets a second time: an op is about the last half copy
    before it.
    """
    found = Keyed(decisions.end_of, decisions.end_offset).first(halves.physical_offset)
    half_topic = halves.kept_in == IN_HALF_TOPIC
    in_topic: Bools | slice = slice(None) if half_topic.all() else half_topic  # a slice copies nothing
    number, place = halves.queue_offset[in_topic], halves.physical_offset[in_topic]
    copies = Keyed(number, place)
    op, _ = Keyed(decisions.op_of, decisions.op_offset).behind(number, place)
    following, _ = copies.behind(number, place)
    op[(following != ABSENT) & (following < op)] = ABSENT
    found[in_topic] = op
    oldest = copies.first(decisions.op_of)
    return found, int(np.count_nonzero((oldest == ABSENT) | (oldest > decisions.op_offset)))


def _is_lost(lost: Sequence[tuple[int, int]], starts: Ints, ends: Ints) -> Bools:
    """Return whether a lost range reaches into each range of offsets."""
    borders: Ints = np.array([*lost, (_LAST, _LAST)], np.int64)
    following = np.searchsorted(borders[:, 1], starts, "right")  # the first one that ends behind the start
    inside: Bools = borders[following, 0] < ends
    return inside

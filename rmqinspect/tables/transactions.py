"""The table `transactions`: one row per half message with all its copies, and what became of it.

    log            ->  TransactionRecords    numbers of half copies, ops, commits       one pass
    config, RocksDB    how far the check has come, what is not decided
    both           ->  broker.transactions   one state per transaction
    rows shown     ->  record_columns        ids, times, where the commit went          read again

Memory: 35 bytes per half copy, 28 per commit, 16 per op, and some more while they are joined: 205 bytes for a
transaction of one each. Names repeat, so of each half copy only the number of its origin is kept: producer group, real
topic, real queue.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rmqinspect.broker.transactions import (
    CHECK_GROUP,
    IN_HALF_TOPIC,
    IN_REAL_TOPIC,
    IN_ROCKSDB,
    KEPT_IN,
    REASONS,
    STATES,
    Decisions,
    Halves,
    Surroundings,
    Transactions,
    judge,
)
from rmqinspect.codec.arrays import ABSENT, Bools, Ints, find, merge, take
from rmqinspect.codec.byte_ranges import hash_ranges, join_hashes, read_numbers, take_ranges
from rmqinspect.codec.properties import Items
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.loops.text_rows import NOT_A_NUMBER
from rmqinspect.rocksdb.databases import ENTRIES, databases, entries_file, last_half, read_entries
from rmqinspect.schemas.message import TRANSACTION_MASK, TRANSACTION_SHIFT
from rmqinspect.schemas.message import TRANSACTIONS as KINDS
from rmqinspect.store.model import Store
from rmqinspect.tables.config import report_problems
from rmqinspect.tables.read_log import Collected, fold_log
from rmqinspect.tables.record_columns import CHUNK_ROWS, columns_at, property_values
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import (
    CONFIG_DATABASES,
    STORE_DATABASE,
    TIMESTAMP,
    Source,
    Table,
    batch_with,
    column,
    millis,
    name_column,
    pick,
)
from rmqinspect.text import count, text_of
from rmqinspect.topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC

SCHEMA = pa.schema(
    [
        column("physical_offset", pa.int64(), "of the newest copy of the half message"),
        column("queue_offset", pa.int64(), "of the newest copy in its topic; null up to 4.2.0"),
        column("real_topic", pa.string(), "where consumers get the message, once it is committed"),
        column("real_queue_id", pa.int32(), "queue of the real topic"),
        column("msg_id", pa.string(), "UNIQ_KEY, which is also the transaction id"),
        column("state", pa.string(), "pending, committed, rolled_back, given_up, outcome_unknown"),
        column("check_times", pa.int32(), "checks so far, as the newest copy or RocksDB says"),
        column("commit_physical_offset", pa.int64(), "of the commit record; null if none is found"),
        column("op_physical_offset", pa.int64(), "of the record that ended it: op, or rollback up to 4.2.0"),
        column("producer_group", pa.string(), "the group that is asked (PGROUP)"),
        column("copies", pa.int32(), "how often the half message is in the log: once, and once per check"),
        column("first_physical_offset", pa.int64(), "of the oldest copy"),
        column("first_queue_offset", pa.int64(), "of the oldest copy, as the producer was told"),
        column("born_timestamp", TIMESTAMP, "producer's clock; the same in all copies"),
        column("store_timestamp", TIMESTAMP, "broker's clock at the newest copy"),
        column("commits", pa.int32(), "commit records that name a copy: more than one is a message seen twice"),
        column("commit_topic", pa.string(), "topic of the commit record: the real one, or that of a delay"),
        column("commit_queue_id", pa.int32(), "queue of the commit record"),
        column("commit_queue_offset", pa.int64(), "offset of the commit record in that queue"),
        column("given_up_physical_offset", pa.int64(), "of its copy in TRANS_CHECK_MAX_TIME_TOPIC"),
        column("kept_in", pa.string(), "half_topic; rocksdb (5.4.0, by setting); real_topic (4.2.0 and before)"),
        column("why", pa.string(), "what makes the state uncertain, or odd; null if nothing does"),
    ]
)
_OF_HALF = ("msg_id", "born_timestamp", "store_timestamp")
_OF_COMMIT = ("commit_topic", "commit_queue_id", "commit_queue_offset")


# --- the records of a log -------------------------------------------------------------------------

_TOPICS = tuple(name.encode() for name in (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, GIVEN_UP_TOPIC))
_HALF, _OP, _ROCKSDB_HALF, _ROCKSDB_OP, _CHECK_MAX = range(len(_TOPICS))
_OTHER = -1  # any other topic

_LONGEST = max(map(len, _TOPICS))
_SIZES = np.zeros(_LONGEST + 2, np.bool_)  # by the size of a topic's name: whether one of _TOPICS has it
_SIZES[[len(name) for name in _TOPICS]] = True

_NONE, _PREPARED, _COMMIT, _ROLLBACK = range(len(KINDS))
_MOST_CHECKS = np.iinfo(np.int16).max

_COLLECTED: dict[str, dict[str, type]] = {
    "half": {
        "physical_offset": np.int64,
        "size": np.int32,
        "queue_offset": np.int64,
        "key": np.uint64,
        "origin": np.int32,
        "check_times": np.int16,
        "kept_in": np.int8,
    },
    "commit": {"of": np.int64, "offset": np.int64, "size": np.int32, "key": np.uint64},
    "op": {"of": np.int64, "offset": np.int64},
    "end": {"of": np.int64, "offset": np.int64},
    "discard": {"key": np.uint64, "offset": np.int64},
}

Origin = tuple[str | None, str | None, int | None]
"""Producer group, real topic, real queue id."""


class TransactionRecords:
    """The records of transactions in a part of the log: a fold."""

    def __init__(self) -> None:
        self.found = Collected(_COLLECTED)
        self.origins: list[Origin] = []
        self._origin_numbers: dict[int, int] = {}  # by hash
        self.damaged_ops = 0  # op records whose body is not what was written, or no list of offsets
        self.last_store_timestamp: int | None = None  # ms, the highest

    def take(self, run: RecordRun) -> None:
        """Collect what a run of records says; nothing of an earlier life of the file."""
        if run.stale:
            return
        records = run.records
        self._note_time(int(records.field("store_timestamp").max()))
        flags = records.sys_flag & TRANSACTION_MASK
        sizes = np.minimum(records.topic_ends - records.topic_starts, _LONGEST + 1)
        which = np.flatnonzero((flags != 0) | _SIZES[sizes])
        if not len(which):
            return
        some = records.select(which)
        topics, flags = _topics_of(some), flags[which] >> TRANSACTION_SHIFT
        other = topics == _OTHER
        kinds: tuple[tuple[Bools, Callable[[Records], None]], ...] = (
            (topics == _HALF, partial(self._take_halves, kept_in=IN_HALF_TOPIC)),
            (topics == _ROCKSDB_HALF, partial(self._take_halves, kept_in=IN_ROCKSDB)),
            (other & (flags == _PREPARED), partial(self._take_halves, kept_in=IN_REAL_TOPIC)),
            (other & (flags == _COMMIT), self._take_commits),
            (topics == _OP, self._take_ops),
            (topics == _ROCKSDB_OP, self._take_rocksdb_ops),
            (
                other & (flags == _ROLLBACK),
                lambda ends: self.found.add("end", ends.field("prepared_transaction_offset"), ends.places),
            ),
            (topics == _CHECK_MAX, lambda ends: self.found.add("discard", _keys(ends.properties), ends.places)),
        )
        for rows, take_some in kinds:
            if rows.any():
                take_some(some.select(rows))

    def join(self, following: "TransactionRecords") -> None:
        """Add what the part that follows holds."""
        numbers = np.array(
            [self._number_of(hashed, following.origins[at]) for hashed, at in following._origin_numbers.items()],
            np.int32,
        )
        origins = following.found["half"]["origin"]
        origins[:] = numbers[origins]
        self.found.join(following.found)
        self.damaged_ops += following.damaged_ops
        if following.last_store_timestamp is not None:
            self._note_time(following.last_store_timestamp)

    # --- each kind of record --------------------------------------------------------------------

    def _take_halves(self, records: Records, kept_in: int) -> None:
        items = records.properties
        # A prepared record of 4.2.0 and before is never stored again.
        keys = _keys(items) if kept_in != IN_REAL_TOPIC else np.zeros(len(records), np.uint64)
        checks = np.clip(_first_numbers(items, b"TRANSACTION_CHECK_TIMES"), 0, _MOST_CHECKS)
        origins = self._origins_of(records, in_real_topic=kept_in == IN_REAL_TOPIC)
        head = records.places, records.total_size, records.field("queue_offset")
        self.found.add("half", *head, keys, origins, checks, kept_in)

    def _take_commits(self, records: Records) -> None:
        of = records.field("prepared_transaction_offset")
        self.found.add("commit", of, records.places, records.total_size, _keys(records.properties))

    def _take_ops(self, records: Records) -> None:
        """Take op records: queue offsets as text. Source: TransactionalMessageServiceImpl#fillOpRemoveMap."""
        sound = records.select(records.body_crc_ok)
        rows, numbers = read_numbers(sound.bytes, sound.body_starts, sound.body_ends)
        good = numbers != NOT_A_NUMBER
        damaged = np.setdiff1d(np.arange(len(sound)), rows[good])
        self.damaged_ops += len(records) - len(sound) + len(np.union1d(damaged, rows[~good]))
        self.found.add("op", numbers[good], sound.places[rows[good]])

    def _take_rocksdb_ops(self, records: Records) -> None:
        """Take op records that name a half message by its physical offset."""
        of = _first_numbers(records.properties, b"TRANS_OFFSET")
        good = of != NOT_A_NUMBER
        self.damaged_ops += int(np.count_nonzero(~good))
        self.found.add("end", of[good], records.places[good])

    # --- origins --------------------------------------------------------------------------------

    def _origins_of(self, records: Records, *, in_real_topic: bool) -> NDArray[np.int32]:
        """Return the number of each record's producer group, real topic and queue."""
        items = records.properties
        group, topic, queue = (items.find(name) for name in (b"PGROUP", b"REAL_TOPIC", b"REAL_QID"))
        hashes = [_hash_values(items, which) for which in (group, topic, queue)]
        if in_real_topic:
            hashes[1:] = [
                hash_ranges(records.bytes, records.topic_starts, records.topic_ends),
                records.field("queue_id").astype(np.uint64),
            ]
        distinct, samples, of = np.unique(join_hashes(*hashes), return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.int32)
        for row, (hashed, sample) in enumerate(zip(distinct.tolist(), samples.tolist(), strict=True)):
            names = _text_at(items, int(group[sample])), _text_at(items, int(topic[sample]))
            queue_id = _queue_id(_text_at(items, int(queue[sample])))
            if in_real_topic:
                start, end = int(records.topic_starts[sample]), int(records.topic_ends[sample])
                names = names[0], text_of(records.bytes[start:end].tobytes())
                queue_id = int(records.field("queue_id")[sample])
            numbers[row] = self._number_of(hashed, (*names, queue_id))
        return numbers[of]

    def _number_of(self, hashed: int, origin: Origin) -> int:
        number = self._origin_numbers.setdefault(hashed, len(self.origins))
        if number == len(self.origins):
            self.origins.append(origin)
        return number

    def _note_time(self, timestamp: int) -> None:
        if self.last_store_timestamp is None or timestamp > self.last_store_timestamp:
            self.last_store_timestamp = timestamp


def _topics_of(records: Records) -> NDArray[np.int8]:
    """Return which of _TOPICS each record has, _OTHER for any other."""
    found = np.full(len(records), _OTHER, np.int8)
    sizes = records.topic_ends - records.topic_starts
    for number, name in enumerate(_TOPICS):
        same = np.flatnonzero(sizes == len(name))
        if len(same):
            names = records.gather(np.dtype(f"S{len(name)}"), records.topic_starts[same])
            found[same[names == name]] = number
    return found


def _keys(items: Items) -> NDArray[np.uint64]:
    """Return the hash of each record's UNIQ_KEY, else of its transaction id, which is the same; 0 without either."""
    which = items.of(b"UNIQ_KEY")
    if (which < 0).any():
        which = np.where(which < 0, items.find(b"__transactionId__"), which)
    return _hash_values(items, which)


def _hash_values(items: Items, which: NDArray[np.int32]) -> NDArray[np.uint64]:
    if not len(items.value_ends):
        return np.zeros(len(which), np.uint64)
    absent = which < 0
    at = np.where(absent, 0, which)
    starts = items.value_starts[at]
    return hash_ranges(items.raw, starts, np.where(absent, starts, items.value_ends[at]))


def _first_numbers(items: Items, name: bytes) -> Ints:
    """Return the number that is the value of a property of each record, NOT_A_NUMBER where there is none."""
    which = items.find(name)
    found = np.full(len(which), NOT_A_NUMBER, np.int64)
    there = np.flatnonzero(which >= 0)
    rows, numbers = read_numbers(items.raw, items.value_starts[which[there]], items.value_ends[which[there]])
    found[there[rows[::-1]]] = numbers[::-1]
    return found


def _text_at(items: Items, item: int) -> str | None:
    return text_of(items.raw[items.value_starts[item] : items.value_ends[item]].tobytes()) if item >= 0 else None


def _queue_id(text: str | None) -> int | None:
    """Return a queue id written as text, None if it is none."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 10:
        return None
    number = int(text)
    return number if number < 1 << 31 else None


# --- the transactions of a store ------------------------------------------------------------------


class StoreTransactions(Struct, frozen=True):
    """All transactions of a store, as numbers."""

    store: Store
    halves: Halves
    half_size: NDArray[np.int32]  # bytes of each half copy
    origin: NDArray[np.int32]  # of each half copy: index in `origins`
    check_times: NDArray[np.int32]  # of each transaction
    origins: Sequence[Origin]
    judged: Transactions
    commit_size: NDArray[np.int32]  # bytes of each transaction's commit record, 0 without
    damaged_ops: int
    last_store_timestamp: int | None  # ms, the highest of the log
    check_offset: int | None  # how far the check has come in the half topic; None: not known

    def remarks(self) -> Iterator[str]:
        """Yield what a reader of the rows should know."""
        if self.damaged_ops:
            yield f"{count(self.damaged_ops, 'op record')} damaged: what they decided looks undecided"
        for number, noun in ((self.judged.stray_ops, "op"), (self.judged.stray_commits, "commit record")):
            if number:
                yield f"{count(number, noun)} about half messages that are not in the log"


def read_transactions(store: Store, request: Request) -> StoreTransactions:
    """Read the log, and return the state of each transaction.

    :raises Unreadable: as `fold_log`.
    """
    lost: list[tuple[int, int]] = []

    def note_gap(kind: str, start: int, end: int) -> None:
        lost.append((start, end))
        if request.on_gap is not None:
            request.on_gap(kind, start, end)

    records = fold_log(store, replace(request, offsets=None, on_gap=note_gap), TransactionRecords)
    return transactions_of(store, request, records, lost)


def transactions_of(
    store: Store, request: Request, records: TransactionRecords, lost: Sequence[tuple[int, int]]
) -> StoreTransactions:
    """Return the state of each transaction from the records of the whole log, which are taken out of `records`.

    `lost` are the ranges of the log that lost their records, as physical offsets.
    """
    # What is not needed any more goes before the joins take their memory.
    half = records.found.pop("half")
    halves = Halves(*(half.pop(name) for name in ("physical_offset", "queue_offset", "key", "kept_in")))
    columns: dict[str, NDArray[Any]] = {}
    for kind in ("commit", "op", "end", "discard"):
        columns |= {f"{kind}_{name}": values for name, values in records.found.pop(kind).items()}
    commit_size = columns.pop("commit_size")
    decisions = Decisions(**columns)
    entries = _entries_of(store)
    around = replace(_surroundings(store, request, entries), lost=merge(lost))
    judged = judge(halves, decisions, around)
    check_times = half["check_times"][judged.newest].astype(np.int32)
    if entries is not None and len(entries[0]):
        at = find(entries[0], halves.physical_offset[judged.newest])
        entered = (at != ABSENT) & (halves.kept_in[judged.newest] == IN_ROCKSDB)
        check_times[entered] = np.minimum(entries[1][at[entered]], np.iinfo(np.int32).max)
    return StoreTransactions(
        store,
        halves,
        half["size"],
        half["origin"],
        check_times,
        records.origins,
        judged,
        take(commit_size, find(decisions.commit_offset, judged.commit_offset), 0),
        records.damaged_ops,
        records.last_store_timestamp,
        around.check_offset,
    )


def read_surroundings(store: Store, request: Request) -> Surroundings:
    """Return what the files beside the log say about all transactions of a store."""
    return _surroundings(store, request, _entries_of(store))


def _surroundings(store: Store, request: Request, entries: tuple[Ints, Ints] | None) -> Surroundings:
    entered_to = last_half(store)
    return Surroundings(
        _check_offset(store, request),
        None if entries is None else entries[0],
        ABSENT if entered_to is None else entered_to,
    )


def _check_offset(store: Store, request: Request) -> int | None:
    """Return the consumer offset of the check; 0 before the first one; None without the file of consumer offsets."""
    offsets, problems = read_consumer_offsets(store)
    report_problems(problems, request, readable=bool(offsets))
    own = [one.offset for one in offsets if (one.group, one.topic, one.queue_id) == (CHECK_GROUP, HALF_TOPIC, 0)]
    return own[0] if own else 0 if offsets else None


def _entries_of(store: Store) -> tuple[Ints, Ints] | None:
    """Return (physical offset, check times) of the half messages in RocksDB, ascending; None if it was not read.

    RocksDB writes late: after a kill nothing may be in it, and the broker enters it all again.
    """
    empty = any(one.holds == ENTRIES and one.is_unused for one in databases(store))
    if entries_file(store) is None and not empty:
        return None
    found = sorted((one.physical_offset, one.check_times or 0) for one in read_entries(store) if one.kind == "half")
    pairs = np.array(found, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


# --- rows -----------------------------------------------------------------------------------------


def transaction_rows(store: Store, request: Request, states: Sequence[str] = STATES) -> Iterator[pa.RecordBatch]:
    """Yield the table; `states`: only transactions in one of them."""
    found = read_transactions(store, request)
    if request.on_remark is not None:
        for remark in found.remarks():
            request.on_remark(remark)
    wanted = [STATES.index(state) for state in states]
    yield from batches_of(found, np.flatnonzero(np.isin(found.judged.state, wanted)), request.columns)


def batches_of(found: StoreTransactions, rows: Ints, columns: frozenset[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield some transactions as rows of the table, in the order of their newest copies."""
    for start in range(0, len(rows), CHUNK_ROWS):
        yield _batch(found, rows[start : start + CHUNK_ROWS], columns)


def _batch(found: StoreTransactions, rows: Ints, wanted: frozenset[str] | None) -> pa.RecordBatch:
    judged, halves = found.judged, found.halves
    newest, first = judged.newest[rows], judged.first[rows]
    in_queue = halves.kept_in[newest] != IN_REAL_TOPIC  # prepared records have queue offset 0, and no unit
    origin = found.origin[newest]
    groups, topics, queues = zip(*found.origins, strict=True) if found.origins else ((), (), ())
    columns: dict[str, pa.Array] = {
        "physical_offset": pa.array(halves.physical_offset[newest]),
        "queue_offset": pa.array(halves.queue_offset[newest], mask=~in_queue),
        "real_topic": pa.array(topics, pa.string()).take(pa.array(origin)),
        "real_queue_id": pa.array(queues, pa.int32()).take(pa.array(origin)),
        "state": pick(STATES, judged.state[rows]),
        "check_times": pa.array(found.check_times[rows]),
        "commit_physical_offset": _offsets(judged.commit_offset[rows]),
        "op_physical_offset": _offsets(judged.op_offset[rows]),
        "producer_group": pa.array(groups, pa.string()).take(pa.array(origin)),
        "copies": pa.array(judged.copies[rows].astype(np.int32)),
        "first_physical_offset": pa.array(halves.physical_offset[first]),
        "first_queue_offset": pa.array(halves.queue_offset[first], mask=~in_queue),
        "commits": pa.array(judged.commits[rows].astype(np.int32)),
        "given_up_physical_offset": _offsets(judged.discard_offset[rows]),
        "kept_in": pick(KEPT_IN, halves.kept_in[newest]),
        "why": pick(REASONS, judged.reason[rows]),
    }
    for names, places, sizes, columns_of in (
        (_OF_HALF, halves.physical_offset[newest], found.half_size[newest].astype(np.int64), _of_halves),
        (_OF_COMMIT, judged.commit_offset[rows], found.commit_size[rows].astype(np.int64), _of_commits),
    ):
        if wanted is None or not wanted.isdisjoint(names):
            schema = [(name, SCHEMA.field(name).type) for name in names]
            columns |= columns_at(found.store, places, sizes, columns_of, schema)
    return batch_with(SCHEMA, columns, len(rows))


def _offsets(offsets: Ints) -> pa.Array:
    return pa.array(offsets, mask=offsets == ABSENT)


def _of_halves(records: Records) -> dict[str, pa.Array]:
    times = {name: millis(records.field(name))[0] for name in ("born_timestamp", "store_timestamp")}
    names = (b"UNIQ_KEY", b"__transactionId__")
    return times | {"msg_id": pc.coalesce(*(property_values(records, name) for name in names))}


def _of_commits(records: Records) -> dict[str, pa.Array]:
    return {
        "commit_topic": name_column(take_ranges(records.bytes, records.topic_starts, records.topic_ends))[0],
        "commit_queue_id": pa.array(records.field("queue_id").astype(np.int32)),
        "commit_queue_offset": pa.array(records.field("queue_offset")),
    }


TRANSACTIONS = Table(
    "transactions",
    SCHEMA,
    ("physical_offset", "real_topic", "msg_id", "state", "check_times", "producer_group", "born_timestamp", "why"),
    transaction_rows,
    looks_into=(Source.CONFIG,),
    databases=("config/consumerOffsets", *CONFIG_DATABASES, STORE_DATABASE),
)

"""The table `transactions`: one row per half message with all its copies, and what became of it.

    log            ->  transaction_records   numbers of half copies, ops, commits       one pass
    config, RocksDB    how far the check has come, what is not decided
    both           ->  broker.transactions   one state per transaction
    rows shown     ->  record_columns        ids, times, where the commit went          read again

Memory: 35 bytes per half copy, 28 per commit, 16 per op, and some more while they are joined: 205 bytes for a
transaction of one each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqinspect.broker.transactions import (
    CHECK_GROUP,
    IN_REAL_TOPIC,
    IN_ROCKSDB,
    KEPT_IN,
    REASONS,
    STATES,
    Halves,
    Surroundings,
    Transactions,
    judge,
)
from rmqinspect.codec.arrays import ABSENT, Ints, find, merge, take
from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.commitlog.records import Records
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.rocksdb.databases import ENTRIES, databases, entries_file, last_half, read_entries
from rmqinspect.store.model import Store
from rmqinspect.tables.config import report_problems
from rmqinspect.tables.read_log import fold_log
from rmqinspect.tables.record_columns import CHUNK_ROWS, columns_at, property_values
from rmqinspect.tables.table import (
    CONFIG_DATABASES,
    STORE_DATABASE,
    TIMESTAMP,
    Request,
    Source,
    Table,
    column,
    millis,
    name_column,
    pick,
)
from rmqinspect.tables.transaction_records import Origin, TransactionRecords
from rmqinspect.text import count
from rmqinspect.topics import HALF_TOPIC

SCHEMA = pa.schema(
    [
        column("physical_offset", pa.int64(), "of the newest copy of the half message"),
        column("queue_offset", pa.int64(), "of the newest copy in its topic; null up to 4.2.0"),
        column("real_topic", pa.string(), "where consumers get the message, once it is committed"),
        column("real_queue_id", pa.int32(), "queue of the real topic"),
        column("msg_id", pa.string(), "UNIQ_KEY, which is also the transaction id"),
        column("state", pa.string(), "pending, committed, rolled_back, given_up, evidence_gone"),
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


@dataclass(frozen=True)
class StoreTransactions:
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
    tell = request.on_gap

    def note_gap(kind: str, start: int, end: int) -> None:
        lost.append((start, end))
        if tell is not None:
            tell(kind, start, end)

    records = fold_log(store, replace(request, offsets=None, on_gap=note_gap), TransactionRecords)
    halves, more = records.halves()
    decisions, sizes = records.decisions()
    entries = _entries_of(store)
    around = replace(_surroundings(store, request, entries), lost=merge(lost))
    judged = judge(halves, decisions, around)
    check_times = more["check_times"][judged.newest].astype(np.int32)
    if entries is not None and len(entries[0]):
        at = find(entries[0], halves.physical_offset[judged.newest])
        entered = (at != ABSENT) & (halves.kept_in[judged.newest] == IN_ROCKSDB)
        check_times[entered] = np.minimum(entries[1][at[entered]], np.iinfo(np.int32).max)
    return StoreTransactions(
        store,
        halves,
        more["size"],
        more["origin"],
        check_times,
        records.origins,
        judged,
        take(sizes, find(decisions.commit_offset, judged.commit_offset), 0),
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
            again = columns_at(found.store, places, sizes, columns_of, schema)
            columns |= {name: again.column(name).combine_chunks() for name in names}
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


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

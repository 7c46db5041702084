"""Which of the records that a start gives up another store has: the replica, a backup.

    lost, ours    at their place in the other log       elsewhere in it
    -----------   ------------------------------------   -------------------------------------------
    a b c d e     a, b, c: the same bytes                e: same topic and UNIQ_KEY, whole
                  d, damaged here: whole there

A slave's log is a copy: a record is there if the same bytes stand at the same physical offset, as `diff` compares.
One that is damaged here is there if a whole record of the same queue, queue offset and store time stands there. Where
the other log went its own way, a message is there if a whole record of the same topic has its unique id.

What cannot be compared, or read, counts as not there: rather too much is saved than too little.
"""

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.records import Records, records_at
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.outcome import InReplica
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.lost_records import AskedStart, LostRecords
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import range_to_read
from rmqinspect.text import text_of

_MOST_IDS = 1 << 20  # that are looked for elsewhere: some 100 MB
_COLUMNS = frozenset(
    ("physical_offset", "size", "topic", "queue_id", "queue_offset", "store_timestamp", "msg_id", "status")
)
_WHOLE = pa.array(["ok", "carved"])


def compare_lost(
    store: Store,
    lost: LostRecords,
    replica: Store,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> tuple[InReplica, LostRecords]:
    """Return what another store has of the lost records of one, and which it has not."""
    found = InReplica(replica.name)
    for segment in replica.segments:
        if segment.end > lost.end:
            try:
                open_file(segment).close()
            except Unreadable as error:
                found.unread.append(str(error))
    selection = Selection(lost_at_start=AskedStart(), lost=lost, offsets=(lost.end, 1 << 63))
    request = Request(
        records_of=(selection,),
        offsets=range_to_read(store, selection.offsets),
        named=lost.named,
        jobs=jobs,
        columns=_COLUMNS,
        progress=progress,
        on_unreadable=found.unread.append,
    )
    turns: list[tuple[int, bool]] = []
    others: list[pa.RecordBatch] = []  # not at their place: topics, ids and places
    kept = 0
    for batch in TABLES["messages"].rows(store, request):
        rows = selection.select_rows(batch)
        if not rows.num_rows:
            continue
        there = _at_their_place(store, replica, rows)
        places = rows.column("physical_offset")
        for at in (0, *(np.flatnonzero(np.diff(there)) + 1).tolist()):
            if not turns or turns[-1][1] != bool(there[at]):
                turns.append((places[at].as_py(), bool(there[at])))
        found.by_topic.update(rows.column("topic").filter(pa.array(there)).to_pylist())
        rest = rows.filter(pa.array(~there)).select(["topic", "msg_id", "physical_offset"])
        found.missing_by_topic.update(rest.column("topic").to_pylist())
        if kept < _MOST_IDS:
            others.append(rest)
            kept += rest.num_rows
        else:
            found.not_looked_for += rest.num_rows
    places = _by_id(replica, others, found, jobs, progress)
    return found, replace(lost, there=tuple(turns), elsewhere=places)


def _at_their_place(store: Store, replica: Store, rows: pa.RecordBatch) -> Bools:
    """Return which of some rows of `messages` the other log has at the same physical offset."""
    places, sizes = (rows.column(name).to_numpy().astype(np.int64) for name in ("physical_offset", "size"))
    there = np.zeros(len(places), np.bool_)
    mine, theirs = np.full(len(places), -1, np.int64), np.full(len(places), -2, np.int64)
    for which, records in records_at(store, places, sizes):
        mine[which] = _checksums(records)
    names = rows.column("topic").to_pylist()
    damaged = pc.invert(pc.is_in(rows.column("status"), _WHOLE)).to_numpy(zero_copy_only=False)
    times = rows.column("store_timestamp").cast(pa.int64())
    own = [pc.fill_null(column, -1).to_numpy() for column in (rows.column("queue_id"), rows.column("queue_offset"))]
    own.append(pc.fill_null(times, -1).to_numpy() // 1000)
    for which, records in records_at(replica, places, sizes):
        theirs[which] = np.where(records.body_crc_ok, _checksums(records), -2)
        fields = (records.field(name) for name in ("queue_id", "queue_offset", "store_timestamp"))
        same = records.body_crc_ok & np.logical_and.reduce(
            [field == mine_too[which] for field, mine_too in zip(fields, own, strict=True)]
        )
        for at in np.flatnonzero(same & damaged[which]).tolist():
            topic = records.raw[int(records.topic_starts[at]) : int(records.topic_ends[at])]
            there[which[at]] = text_of(bytes(topic)) == names[which[at]]
    there |= mine == theirs
    return there


def _checksums(records: Records) -> Ints:
    spans = zip(records.starts.tolist(), records.ends.tolist(), strict=True)
    return np.array([zlib.crc32(records.raw[start:end]) for start, end in spans], np.int64)


def _by_id(
    replica: Store,
    others: list[pa.RecordBatch],
    found: InReplica,
    jobs: int,
    progress: Callable[[int], None] | None,
) -> Ints:
    """Note which of some records stand elsewhere in the other log; return their places here, ascending."""
    if not any(batch.num_rows for batch in others) or not replica.segments:
        return np.empty(0, np.int64)
    asked = pa.Table.from_batches(others)
    names = _names(asked.column("topic"), asked.column("msg_id"))
    wanted = names.drop_null().unique()
    request = Request(
        jobs=jobs,
        columns=_COLUMNS | {"body_crc_ok"},
        progress=progress,
        on_unreadable=found.unread.append,
    )
    met = pa.array([], pa.string())
    for batch in TABLES["messages"].rows(replica, request):
        theirs = _names(batch.column("topic"), batch.column("msg_id"))
        whole = pc.is_in(batch.column("status"), _WHOLE)
        hits = theirs.filter(pc.and_(pc.is_in(theirs, wanted), whole))
        if len(hits):
            met = pa.concat_arrays([met, hits.drop_null()]).unique()
    there = pc.and_(names.is_valid(), pc.is_in(names, met))
    for topic, number in Counter(asked.column("topic").filter(there).to_pylist()).items():
        found.by_topic[topic] += number
        found.missing_by_topic[topic] -= number
        found.by_id += number
    found.missing_by_topic += Counter()  # without those of 0
    return np.sort(asked.column("physical_offset").filter(there).to_numpy())


def _names(topics: "pa.Array | pa.ChunkedArray", ids: "pa.Array | pa.ChunkedArray") -> pa.Array:
    """Return topic and unique id as one text; null without an id."""
    names = pc.binary_join_element_wise(topics, ids, "\n")
    return names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names

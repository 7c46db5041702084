"""All derived files of a store from its log alone: queues, index, checkpoint, as a broker writes them.

    log    split by split, in threads          -> what is dispatched for the records   broker/dispatch.py
           then, in the order of the log       -> units by queue                       queue_files.py, rocksdb_queues.py
                                               -> entries, slots, headers              index_files.py
    end                                        -> checkpoint, a DLedger log's own index

Memory is bounded by the split, the slots of one index file, and one unit for each queue.

Source: DefaultMessageStore.ReputMessageService#doReput and the dispatchers it calls, CommitLog
#checkMessageAndReturnSize (DispatchRequest), StoreCheckpoint; RocketMQ 4.0.0 to 5.5.0.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache, partial

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.dispatch import Dispatched, Dispatcher, holding
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.codec.arrays import Ints, Units, groups
from rmqinspect.codec.java import java_number
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.bridges import records_in
from rmqinspect.commitlog.gaps import BRIDGED, Gap, plan_splits
from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.errors import Refused
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, Geometry, read_index_files
from rmqinspect.rescue.index_files import CountedIndexFiles, IndexFiles
from rmqinspect.rescue.queue_files import (
    BATCH_UNIT,
    NOTHING_LOST,
    UNIT,
    BatchQueueFiles,
    CountedBatchQueues,
    CountedQueues,
    LostQueues,
    Queue,
    QueueFiles,
    QueueWritten,
    may_be_folder,
    put_bytes,
)
from rmqinspect.schemas.checkpoint import CHECKPOINT_SIZE, Checkpoint
from rmqinspect.schemas.dledger import EntryHead, EntryIndexUnit
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment, Store
from rmqinspect.system.output_file import as_refusal
from rmqinspect.system.uri import shown
from rmqinspect.tables.read_log import folds_of
from rmqinspect.tables.request import Request
from rmqinspect.text import count, escape, group_digits
from rmqinspect.topics import SCHEDULE_TOPIC

QUEUES, INDEX = "queues", "index"

DERIVED = {
    QUEUES: ("consumequeue", "batchconsumequeue", "consumequeue_ext", "consumequeue_rocksdb"),
    INDEX: ("index",),
}
"""Folders that are written anew."""

# Bytes. What is dispatched for a split waits until those before it are written: with small records half of its size.
_SPLIT_SIZE = 16 << 20

_UNKNOWN_LEVEL = 1000  # ms of a delay level that is not configured: ScheduleMessageService#computeDeliverTimestamp
_SCHEDULE = SCHEDULE_TOPIC.encode()
_ENTRY, _ENTRY_INDEX = dtype_of(EntryHead), dtype_of(EntryIndexUnit)
_LEDGER_INDEX_FILE = 5 * 1024 * 1024 * _ENTRY_INDEX.itemsize  # bytes: DLedgerConfig#mappedFileSizeForEntryIndex
_NO_LEDGER = 1 << 63
_CONFIRMS, _TELLS_PLACE = "5.1.1", "5.5.0"  # fields of the checkpoint: confirmPhyOffset, logicsPhysicalOffset


class Plan(Struct, frozen=True):
    """What is written, and how: what a store does not say is the broker's default."""

    release: str  # of RELEASES: the broker that is to serve the store
    what: frozenset[str] = frozenset((QUEUES, INDEX))  # the checkpoint is always written
    queue_file: int = 6_000_000  # bytes, of 20 each unit: mappedFileSizeConsumeQueue
    batch_file: int = 13_800_000  # bytes, of 46 each unit: mapperFileSizeBatchConsumeQueue
    ext_file: int | None = None  # bytes: mappedFileSizeConsumeQueueExt; None: no ext files
    index: Geometry = DEFAULT_GEOMETRY  # maxHashSlotNum, maxIndexNum
    batch_topics: frozenset[str] = frozenset()  # of type BatchCQ
    delays: tuple[int, ...] = ()  # ms of each delay level, from level 1 on: messageDelayLevel
    ledger_index_file: int = _LEDGER_INDEX_FILE  # bytes, of 32 each entry
    in_rocksdb: str | None = None  # the folder of the database that holds the queues; None: files


class Rebuilt(Struct):
    """What was written."""

    queues: dict[Queue, QueueWritten] = field(default_factory=dict)
    records: int = 0
    units: int = 0
    index_files: int = 0
    entries: int = 0
    ledger_units: int = 0  # of a DLedger log's own index
    checkpoint: dict[str, int] = field(default_factory=dict)
    batched: set[str] = field(default_factory=set)  # topics with batches, that were not said to have batch queues
    notes: list[str] = field(default_factory=list)  # what is not as a broker would have written it, for people


def rebuild_derived(
    folder: str,
    plan: Plan,
    *,
    lost: Mapping[Queue, Ints] = {},
    queues: LostQueues = NOTHING_LOST,
    jobs: int = 1,
    progress: Callable[[int], None] = lambda size: None,
) -> Rebuilt:
    """Write consumequeue/, batchconsumequeue/, consumequeue_ext/, index/, checkpoint into a store under construction.

    `folder` is the root of that store (`NewStore.folder`): its log and its config are in place, sound and whole,
    where records are lost with fillers that no reader takes for messages; none of what is written exists yet.

    `lost` are queue offsets, int64, ascending, that a queue has to have although no record of the log has them. Each
    gets a copy of the unit of the next record in its queue, else of the one before; so do holes inside of a queue,
    without being named. A unit of zeros, or filler, never stands between units: a pull that meets it ends there, or
    passes over the messages that follow. A batch queue gets copies at its end only, as `queues` says: its units
    are found by the offsets that they hold. A queue of which no record is left gets no files, unless `queues` has it.

    `progress` gets bytes of log that were read.

    :raises Refused: a file exists, cannot be written, or the log has a hole of a size that no queue can have.
    :raises NotInstalled: the queues are to be in RocksDB, and the library is not installed.
    :raises Unreadable: the log cannot be read.
    """
    store = open_store([folder])
    for name in (one for what in plan.what for one in DERIVED[what]):
        if os.path.lexists(os.path.join(folder, name)):
            raise Refused(
                f"{shown(os.path.join(folder, name))}: exists already; it is written anew only where it is not"
            )
    writer = _Writer(folder, plan, lost, queues, store)
    request = Request(jobs=jobs, progress=progress)
    for part in _parts(store, plan, request):
        writer.take(part)
    return writer.finish()


def count_derived(
    log: Store | Iterable[Records],
    plan: Plan,
    *,
    lost: Mapping[Queue, Ints] = {},
    queues: LostQueues = NOTHING_LOST,
    jobs: int = 1,
    progress: Callable[[int], None] = lambda size: None,
) -> Rebuilt:
    """Return what `rebuild_derived` would write for a log, and write nothing.

    `log`: a store whose log is sound, or all records of a log that is not written yet. The index of a DLedger log is
    not counted.

    :raises Refused: as `rebuild_derived`.
    :raises Unreadable: the log cannot be read.
    """
    writer = _Counter(None, plan, lost, queues, None)
    if isinstance(log, Store):
        parts = _parts(log, plan, Request(jobs=jobs, progress=progress), with_ledger=False)
    else:
        parts = (_part_of(records, plan) for records in log)
    for part in parts:
        writer.take(part)
    return writer.finish()


def _parts(store: Store, plan: Plan, request: Request, *, with_ledger: bool = True) -> Iterator["_Part"]:
    """Yield what is dispatched for each split of a store's log, in order."""
    ledger_from = next((one.base for one in store.segments if one.kind == "dledger" and with_ledger), _NO_LEDGER)
    new = partial(_Part, plan, ledger_from)
    with closing(folds_of(plan_splits(store.segments, _SPLIT_SIZE), request, new)) as parts:
        for part, _ in parts:
            yield part


def _part_of(records: Records, plan: Plan) -> "_Part":
    part = _Part(plan, _NO_LEDGER)
    part.take_records(records)
    return part


class _Part:
    """What is dispatched for the records of one split."""

    def __init__(self, plan: Plan, ledger_from: int) -> None:
        """`ledger_from`: physical offset from which on each record is in a DLedger entry."""
        self._delays, self._ledger_from = plan.delays, ledger_from
        self.ledger: list[Units] = []  # units of the DLedger log's own index
        self._queues = QueueOffsets()
        rules = holding([plan.release], RELEASES)
        self._dispatcher = Dispatcher(keys=INDEX in plan.what, rules=rules)
        self._due: list[tuple[int, int]] = []  # (record, deliver time in ms)
        self._records = 0
        self.last: tuple[int, int] | None = None  # place and store time of the last record

    def take(self, run: RecordRun) -> None:
        """Take the next records of the chain."""
        if not run.stale:
            self.take_records(run.records)

    def take_records(self, records: Records) -> None:
        """Take some records of the log, each in its place."""
        numbers = self._queues.number(records)
        queues = self._queues.queues
        self._dispatcher.take(records, numbers, queues, np.ones(len(records), np.bool_))
        for number in (at for at, (topic, _) in enumerate(queues) if topic == _SCHEDULE):
            rows = np.flatnonzero((numbers == number) & (records.properties.of(b"DELAY") >= 0))
            times = records.field("store_timestamp")
            for at in rows.tolist():
                delay = _delay_of(records.properties.value_of(b"DELAY", at) or b"", self._delays)
                if delay is not None:
                    self._due.append((self._records + at, int(times[at]) + delay))
        if records.base >= self._ledger_from:
            self._index_entries(records)
        self._records += len(records)
        self.last = int(records.places[-1]), int(records.field("store_timestamp")[-1])

    def take_gap(self, segment: Segment, gap: Gap) -> tuple[()]:
        """Take what lies between records: bridges of a DLedger log are entries, and have units in its index."""
        if segment.lead and gap.reason == BRIDGED:
            for records in records_in(segment, gap.start, gap.end):
                self._index_entries(records)
        return ()

    def _index_entries(self, records: Records) -> None:
        heads = records.gather(_ENTRY, records.starts - _ENTRY.itemsize)
        units = np.empty(len(heads), _ENTRY_INDEX)
        for name in _ENTRY_INDEX.names or ():
            units[name] = heads[name]
        self.ledger.append(units)

    def join(self, following: "_Part") -> None:
        """Add nothing: each part is taken by itself."""

    def dispatched(self) -> tuple[Dispatched, Ints]:
        """Return the columns of all records, and the tags code of the unit of each."""
        columns = self._dispatcher.columns(self._queues.queues)
        tags = columns.tags_code.astype(np.int64)
        if self._due:
            rows, times = np.array(self._due, np.int64).T
            tags[rows] = times
        return columns, tags


@lru_cache(maxsize=1024)
def _delay_of(text: bytes, delays: Sequence[int]) -> int | None:
    """Return the delay of a record of the schedule topic by its property DELAY, ms; None: its tags count.

    Source: CommitLog#checkMessageAndReturnSize, ScheduleMessageService#computeDeliverTimestamp.
    """
    level = java_number(text.decode("utf-8", "replace"), 32)
    if level is None or level <= 0:
        return None
    return delays[min(level, len(delays)) - 1] if delays else _UNKNOWN_LEVEL


class _Writer:
    """Takes what is dispatched, in the order of the log, and writes it."""

    def __init__(
        self, folder: str | None, plan: Plan, lost: Mapping[Queue, Ints], queues: LostQueues, store: Store | None
    ) -> None:
        self.plan, self._folder, self._store = plan, folder or "", store
        self._queues = self._queue_writer(lost)
        self._batches = self._batch_writer(queues.batch_ends)
        self._vacant, self._reached = queues.vacant, queues.reached
        self._queues.first_lost, self._queues.most_lost = queues.first_lost, queues.most_lost
        self._index = self._index_writer()
        self._rebuilt = Rebuilt()
        self._last: tuple[int, int] | None = None
        self._last_unit: tuple[int, int] | None = None  # place and store time of the newest record with a unit
        self._no_folders: set[str] = set()

    def _queue_writer(self, lost: Mapping[Queue, Ints]) -> QueueFiles:
        size = _whole(self.plan.queue_file, UNIT)
        if self.plan.in_rocksdb is not None and QUEUES in self.plan.what:
            from rmqinspect.rescue.rocksdb_queues import RocksdbQueues

            return RocksdbQueues(os.path.join(self._folder, self.plan.in_rocksdb), lost)
        return QueueFiles(os.path.join(self._folder, "consumequeue"), size, lost, ext_size=self.plan.ext_file)

    def _batch_writer(self, ends: Mapping[Queue, int]) -> BatchQueueFiles:
        folder, size = os.path.join(self._folder, "batchconsumequeue"), _whole(self.plan.batch_file, BATCH_UNIT)
        return BatchQueueFiles(folder, size, ends)

    def _index_writer(self) -> IndexFiles:
        return IndexFiles(os.path.join(self._folder, "index"), self.plan.index, self.plan.release)

    def take(self, part: _Part) -> None:
        """Write the units and entries of a part."""
        columns, tags = part.dispatched()
        self._rebuilt.records += len(columns)
        self._last = part.last or self._last
        with_units = np.flatnonzero(columns.entitled)
        if len(with_units):
            newest = int(with_units[-1])
            self._last_unit = int(columns.physical_offset[newest]), int(columns.store_timestamp[newest])
        for units in part.ledger:
            self._add_ledger(units)
        if QUEUES in self.plan.what:
            for queue, rows in _by_queue(columns, with_units):
                self._add(queue, columns, tags, rows, columns.queue_offset[rows], own=True)
            self._add_further(columns, tags)
        if INDEX in self.plan.what:
            self._index.add(columns)

    def _add(self, queue: Queue, columns: Dispatched, tags: Ints, rows: Ints, offsets: Ints, *, own: bool) -> None:
        """Write units of one queue; `own`: not those of multi-dispatch."""
        if not may_be_folder(queue[0]):
            self._no_folders.add(queue[0])
            return
        is_batch = own and queue[0] in self.plan.batch_topics
        files = self._batches if is_batch else self._queues
        if own and not is_batch and bool((columns.messages[rows] > 1).any()):
            self._rebuilt.batched.add(queue[0])
        units: Units = np.zeros(len(rows), files.unit)
        units["physical_offset"], units["size"] = columns.physical_offset[rows], columns.size[rows]
        units["tags_code"] = tags[rows]
        if "store_timestamp" in (units.dtype.names or ()):
            units["store_timestamp"] = columns.store_timestamp[rows]
        if is_batch:
            units["queue_offset"] = offsets
            units["message_count"], units["compacted_offset"] = columns.messages[rows], -1
        files.add(queue, offsets, units, columns.store_timestamp[rows], with_ext=own)
        self._rebuilt.units += len(rows)

    def _add_further(self, columns: Dispatched, tags: Ints) -> None:
        by_queue: dict[Queue, list[tuple[int, int]]] = {}
        for extra in columns.extras:
            if columns.entitled[extra.record]:
                by_queue.setdefault((extra.topic, extra.queue_id), []).append((extra.record, extra.queue_offset))
        for queue, found in by_queue.items():
            rows, offsets = np.array(found, np.int64).T
            self._add(queue, columns, tags, rows, np.ascontiguousarray(offsets), own=False)

    def _add_ledger(self, units: Units) -> None:
        """Write the index of a DLedger log: the unit of entry i stands at 32 i. Source: DLedgerMmapFileStore."""
        assert self._store is not None, "without files no units of a DLedger log are taken"
        data = next(one for one in self._store.segments if one.kind == "dledger")
        folder = os.path.join(os.path.dirname(os.path.dirname(data.path)), "index")
        index = units["index"].astype(np.int64)
        for first, behind in groups(index - np.arange(len(index))):
            position = int(index[first]) * _ENTRY_INDEX.itemsize
            put_bytes(folder, position, units[first:behind].tobytes(), self.plan.ledger_index_file)
        self._rebuilt.ledger_units += len(units)

    def finish(self) -> Rebuilt:
        """Write what is known at the end of the log only, and return what was written."""
        rebuilt = self._rebuilt
        self._queues.drop_former()
        for queue, one in self._vacant.items() if QUEUES in self.plan.what else ():
            if queue not in self._queues.written and queue not in self._batches.written and may_be_folder(queue[0]):
                files = self._batches if queue[0] in self.plan.batch_topics else self._queues
                files.add_vacant(queue, one)
        self._queues.reach(self._reached)
        self._queues.finish()
        self._batches.finish()
        self._index.finish()
        rebuilt.queues = {**self._queues.written, **self._batches.written}
        rebuilt.index_files, rebuilt.entries = self._index.files, self._index.entries
        rebuilt.checkpoint = self._checkpoint()
        self._write_file("checkpoint", Checkpoint.build(rebuilt.checkpoint).ljust(CHECKPOINT_SIZE, b"\0"))
        rebuilt.notes += self._notes()
        return rebuilt

    def _checkpoint(self) -> dict[str, int]:
        """Return the fields as a broker that has flushed all leaves them: nothing is later than the log.

        The time of the index is that of its newest file, which a broker names only once the file is full: after an
        unclean exit a broker deletes what is newer, and indexes only records near the end of the log again.
        """
        place, time = self._last or (0, 0)
        unit_place, unit_time = self._last_unit or (0, 0)
        known = RELEASES.index(self.plan.release)
        return {
            "physic_msg_timestamp": max(0, time),
            "logics_msg_timestamp": max(0, unit_time),
            "index_msg_timestamp": self._index.until if INDEX in self.plan.what else self._kept_index(),
            "master_flushed_offset": 0,
            "confirm_phy_offset": place if known >= RELEASES.index(_CONFIRMS) else 0,
            "logics_physical_offset": unit_place if known >= RELEASES.index(_TELLS_PLACE) else 0,
        }

    def _kept_index(self) -> int:
        """Return the end time of the newest full index file that was brought as it was, ms."""
        files = [] if self._store is None else read_index_files(self._store, [])
        known = [one for one in files if one.header and one.geometry]
        full = [one.header for one in known[:-1] if one.header and one.entries >= one.last_entry]
        return max(0, int(full[-1].end_timestamp)) if full else 0

    def _notes(self) -> Iterator[str]:
        for topic in sorted(self._no_folders):
            yield f"a queue of {escape(topic)!r} gets no units: no folder has such a name"
        for (topic, queue_id), gone in sorted(self._queues.former.items()):
            what = f"{count(gone, 'record')} of before its topic was made again"
            yield f"{escape(topic)} queue {queue_id}: {what}, and none since: the queue is gone, as brokers leave it"
        for (topic, queue_id), written in sorted(self._rebuilt.queues.items()):
            name = f"{escape(topic)} queue {queue_id}"
            if written.restarts:
                yield f"{name}: its offsets begin anew at 0 in the log; the queue has those behind the last beginning"
            if written.left_out and not written.restarts:
                number = count(written.left_out, "record")
                yield f"{name}: {number} with a queue offset that an earlier one has: no unit leads there"
            if written.vacant is not None:
                yield (
                    f"{name}: no message is left; its queue offsets {group_digits(written.first)} to "
                    f"{group_digits(written.end - 1)} lead to none, so that it goes on at {group_digits(written.end)}"
                    f"{'; only consumer offsets say so' if written.vacant.guessed else ''}"
                )
            elif written.copies:
                number = count(written.copies, "queue offset")
                yield f"{name}: {number} without a record: a neighbour's unit stands there, whose message comes again"

    def _write_file(self, name: str, raw: bytes) -> None:
        path = os.path.join(self._folder, name)
        with as_refusal(path), open(path, "xb") as out:
            out.write(raw)


class _Counter(_Writer):
    """The same, but nothing is written."""

    def _queue_writer(self, lost: Mapping[Queue, Ints]) -> QueueFiles:
        return CountedQueues("", _whole(self.plan.queue_file, UNIT), lost, ext_size=self.plan.ext_file)

    def _batch_writer(self, ends: Mapping[Queue, int]) -> BatchQueueFiles:
        return CountedBatchQueues("", _whole(self.plan.batch_file, BATCH_UNIT), ends)

    def _index_writer(self) -> IndexFiles:
        return CountedIndexFiles("", self.plan.index, self.plan.release)

    def _write_file(self, name: str, raw: bytes) -> None:
        """Write nothing."""


def _whole(size: int, unit: "np.dtype[np.void]") -> int:
    """Return the length of a file for a setting: whole units. Source: MessageStoreConfig."""
    return max(1, -(-size // unit.itemsize)) * unit.itemsize


def _by_queue(columns: Dispatched, rows: Ints) -> Iterator[tuple[Queue, Ints]]:
    """Yield each queue, and its records among `rows`, in the order of the log."""
    order = rows[np.argsort(columns.queue[rows], kind="stable")]
    numbers = columns.queue[order].astype(np.int64)
    for first, behind in groups(numbers):
        topic, queue_id = columns.queues[int(numbers[first])]
        yield (topic.decode(errors="replace"), queue_id), order[first:behind]

"""What a start does to consume queues in RocksDB: nothing is recovered; dispatch, cut, minimum.

    column family default    topic, queue id, queue offset -> unit    written by dispatch, never removed by a start
    column family offset     topic, queue id -> last message          what is cut; the units behind it stay
                             MAX_PHYSICAL_OFFSET_CHECKPOINT           how far all queues reach

It has the methods of `queues.Queues`. A unit is put under the QUEUEOFFSET of its record, so that nothing can shift; the
last message of a queue is that of the last record dispatched, even if it was farther before.

Source: RocksDBConsumeQueueStore, RocksDBConsumeQueueOffsetTable, RocksDBConsumeQueueTable; RocketMQ 5.2.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from msgspec import Struct

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.batch import Batch, has_unit
from rmqinspect.forecast.outcome import QueueOutcome, Refusal
from rmqinspect.forecast.queues import Led
from rmqinspect.forecast.settings import Settings
from rmqinspect.rocksdb.databases import UNITS_NEEDED, End, Queue, QueueOffsets, read_queue_offsets
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file

_NOTHING = End(-1, -1)
_UNIT = dtype_of(QueueUnit)
_WINDOW = 1 << 16  # units read at a time


class RocksdbTable(Struct):
    """The queues in RocksDB as they are, read once for all walks."""

    offsets: QueueOffsets
    files: Mapping[Queue, QueueFile]  # what was unpacked
    log_start: int  # minima in `files` are those of a log that begins here
    settings: Settings
    places: tuple[str, ...]  # files of the database, relative to the store
    writes: Mapping[str, int]  # writeQueueNums of each topic

    @classmethod
    def read(cls, store: Store, settings: Settings, writes: Mapping[str, int]) -> "RocksdbTable":
        """Return what was unpacked; no queue where there is no database."""
        offsets = read_queue_offsets(store) or QueueOffsets(0, {}, {}, with_units=True, folder="consumequeue")
        files = {(file.topic, file.queue_id): file for file in store.queue_files if file.noted is not None}
        places = tuple(file.name for file in store.of_kind("rocksdb") if file.name.startswith(offsets.folder + "/"))
        return cls(offsets, files, store.log_start, settings, places, writes)

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """Return units of a queue from a queue offset on; size 0 where there is none.

        :raises Unreadable: they were not unpacked.
        """
        if not self.offsets.with_units:
            raise Unreadable(UNITS_NEEDED)
        found = np.zeros(count, _UNIT)
        file = self.files.get(queue)
        if file is None:
            return found
        base = file.base // _UNIT.itemsize
        low, high = max(first, base), min(first + count, base + file.size // _UNIT.itemsize)
        if low < high:
            with open_file(file) as reader:
                raw = reader.read((low - base) * _UNIT.itemsize, (high - low) * _UNIT.itemsize)
            found[low - first : high - first] = np.frombuffer(raw, _UNIT)
        return found


class RocksdbQueues:
    """The queues in one walk."""

    def __init__(self, table: RocksdbTable, rules: Rules, log_min: int) -> None:
        """Take the queues as they are; `log_min`: where the log that is loaded begins."""
        self._table = table
        self._rules = rules
        self._log_min = log_min
        self._checkpoint = table.offsets.checkpoint
        self._maxima = dict(table.offsets.maxima)
        self._minima = dict(table.offsets.minima)
        # Units that the start puts into a queue, in the order of the log: queue offsets and PHYSICALOFFSETs, in runs.
        self._dispatched: dict[Queue, list[tuple[Ints, Ints]]] = {}
        self._is_dirty: set[Queue] = set()  # their minimum is not the one that was noted
        self._kept: dict[Queue, int] = {}  # maxima that stay in memory when the database is deleted
        self._destroyed: set[Queue] = set()
        self.deleted_files: list[str] = []
        self.refusal: Refusal | None = None
        self.failed_at: tuple[str, int] | None = None  # never: these queues have no folders
        self.dropped = 0
        self.asks_properties = True  # of records, in dispatch

    @property
    def max_physic_offset(self) -> int:
        """Physical offset behind the newest dispatched record; 0: none."""
        return self._checkpoint

    # --- what the start does --------------------------------------------------------------------

    def dispatch(self, batch: Batch) -> None:
        """Put the units of records."""
        records = batch.whole
        if batch.mismatched:
            raise Unreadable("a record whose lengths do not add up is dispatched into RocksDB, which is not worked out")
        chosen = np.flatnonzero(has_unit(records.sys_flag))
        if not len(chosen):
            return
        settings = self._table.settings
        if settings.enable_lmq and (records.properties.of(b"INNER_MULTI_QUEUE_OFFSET")[chosen] >= 0).any():
            raise Unreadable("multi-dispatch into queues in RocksDB is not worked out")
        numbers = batch.numbers[chosen]
        queue_offsets = records.field("queue_offset")[chosen]
        places = records.physical_offset[chosen]
        order = np.argsort(numbers, kind="stable")
        for run in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            queue = batch.queues[int(numbers[run[0]])]
            self._dispatched.setdefault(queue, []).append((queue_offsets[run], places[run]))
            if self._maxima.get(queue) != (last := End(int(places[run[-1]]), int(queue_offsets[run[-1]]))):
                self._maxima[queue] = last
                self._is_dirty.add(queue)
        self._checkpoint = int(places[-1] + records.total_size[chosen[-1]])

    def truncate(self, end: int) -> None:
        """Cut the queues at the end of the log, if they reach behind it.

        Source: RocksDBConsumeQueueStore#truncateDirty, RocksDBConsumeQueueOffsetTable#truncateDirty.
        """
        if end >= self._checkpoint:
            return
        self._checkpoint = end
        for queue, last in sorted(self._maxima.items()):
            if last.physical_offset >= end and self._is_cut(queue):
                self._cut(queue, last, end)

    def destroy(self) -> None:
        """Delete all queues: the log has no segment; 5.3.2 and later still know where they ended."""
        if self._rules.rocksdb_queues == "entries":
            self._kept = {queue: end.queue_offset + 1 for queue, end in self._maxima.items()}
        self._destroyed = set(self._maxima)
        self._is_dirty.update(self._maxima)
        self._maxima, self._minima, self._checkpoint = {}, {}, 0
        self.deleted_files = sorted(self._table.places)

    def correct_minimum(self, log_min: int) -> Refusal | None:
        """Let the minimum of each queue follow that of the log, as the broker does when it is asked for it."""
        self._log_min = max(0, log_min)
        return self.refusal

    def outcomes(self, log: range) -> list[QueueOutcome]:
        """Return every queue before and after, by topic and queue id; `log`: physical offsets that are left."""
        found = []
        for queue in sorted({*self._table.offsets.maxima, *self._maxima}):
            before = self._ends_before(queue)
            after = self._ends(queue)
            outcome = QueueOutcome(*queue, *before, *after, stays=min(before[1], after[1]))
            outcome.added = max(0, after[1] - before[1])
            if queue in self._destroyed:
                outcome.stays = before[0]
            if outcome.stays < before[1]:
                self._note_gone(outcome, queue, log)
            found.append(outcome)
        return found

    def led(self) -> Mapping[Queue, Led]:
        """Return the units of each queue after the start; where they were not unpacked, where each queue ends."""
        found: dict[Queue, Led] = {}
        for queue in {*self._table.offsets.maxima, *self._maxima}:
            ends = self._ends(queue)
            runs = tuple((len(numbers), int(numbers[0])) for numbers, _ in self._dispatched.get(queue, ()))
            found[queue] = Led((ends, runs), ends, partial(self._leads, queue, ends))
        return found

    def _leads(self, queue: Queue, ends: tuple[int, int]) -> Iterator[Ints]:
        """Yield tables of the units between minimum and maximum: queue offsets, physical offsets.

        :raises Unreadable: they were not unpacked.
        """
        for first in range(*ends, _WINDOW):
            units = self._table.units(queue, first, min(_WINDOW, ends[1] - first))
            numbers = first + np.arange(len(units))
            there = units["size"] > 0
            yield np.stack((numbers[there], units["physical_offset"][there].astype(np.int64)))
        for numbers, places in self._dispatched.get(queue, ()):
            inside = (numbers >= ends[0]) & (numbers < ends[1])
            yield np.stack((numbers[inside], places[inside]))

    # --- where a queue begins and ends ----------------------------------------------------------

    def _ends_before(self, queue: Queue) -> tuple[int, int]:
        """Return minimum and maximum as they were."""
        last, file = self._table.offsets.maxima.get(queue), self._table.files.get(queue)
        if last is None:
            return 0, 0
        if file is not None and file.noted is not None and file.noted.min_offset is not None:
            return file.noted.min_offset, file.noted.max_offset
        untouched = RocksdbQueues(self._table, self._rules, self._table.log_start)
        return untouched._minimum(queue), last.queue_offset + 1

    def _ends(self, queue: Queue) -> tuple[int, int]:
        """Return minimum and maximum as they are now."""
        if queue in self._kept:
            return 0, self._kept[queue]
        last = self._maxima.get(queue)
        if queue not in self._is_dirty and self._log_min == self._table.log_start:
            return self._ends_before(queue)
        return self._minimum(queue), last.queue_offset + 1 if last else 0

    def _minimum(self, queue: Queue) -> int:
        """Return the minimum of a queue, and note it. Source: RocksDBConsumeQueueOffsetTable#getMinCqOffset."""
        first, last = self._minima.get(queue), self._maxima.get(queue)
        if first is not None and first.physical_offset >= self._log_min:
            return first.queue_offset
        known = first.queue_offset if first is not None else 0
        if last is None:
            self._minima[queue] = End(self._log_min, 0)
        elif last.physical_offset < self._log_min:
            self._minima[queue] = End(self._log_min, last.queue_offset + 1)
        else:
            found = self._search(queue, known, last.queue_offset, self._log_min, first=True)
            if found is _NOTHING:
                if known != last.queue_offset:
                    self._minima[queue] = last
                return known
            self._minima[queue] = found
        return self._minima[queue].queue_offset

    def _search(self, queue: Queue, low: int, high: int, target: int, *, first: bool) -> End:
        """Return the first unit at or behind a physical offset, or the last one before it, as the broker finds it.

        A unit that is not there counts as too low; one exactly there ends the search.

        Source: RocksDBConsumeQueueTable#binarySearchInCQ.
        """
        found = _NOTHING
        while high >= low:
            middle = low + (high - low) // 2
            place = self._place(queue, middle)
            if place is None:
                low = middle + 1
            elif place == target:
                return End(place, middle) if first else found
            elif place > target:
                high = middle - 1
                found = End(place, middle) if first else found
            else:
                low = middle + 1
                found = found if first else End(place, middle)
        return found

    def _place(self, queue: Queue, number: int) -> int | None:
        """Return the PHYSICALOFFSET of a unit, None without it."""
        for numbers, places in reversed(self._dispatched.get(queue, ())):
            if len(at := np.flatnonzero(numbers == number)):
                return int(places[at[-1]])  # the last one that was put counts
        if queue not in self._table.offsets.maxima:
            return None
        unit = self._table.units(queue, number, 1)[0]
        return int(unit["physical_offset"]) if unit["size"] else None

    # --- the cut --------------------------------------------------------------------------------

    def _is_cut(self, queue: Queue) -> bool:
        topic, queue_id = queue
        return self._rules.rocksdb_queues == "entries" or 0 <= queue_id < self._table.writes.get(topic, 0)

    def _cut(self, queue: Queue, last: End, end: int) -> None:
        """Cut one queue. Source: RocksDBConsumeQueueOffsetTable#correctMaxCqOffset."""
        low = self._minimum(queue)
        first = self._minima.get(queue)
        if first is None or first.queue_offset != low or first.physical_offset > end:
            # The broker takes a queue that lies behind the end altogether for an error of its own.
            if self._rules.rocksdb_queues == "topics" and self.refusal is None:
                self.refusal = _no_cut(self._table.offsets.folder, queue, end)
            return
        found = self._search(queue, low, last.queue_offset, end, first=False)
        if found is _NOTHING and last.queue_offset == low:
            return
        self._maxima[queue] = first if found is _NOTHING else found
        self._is_dirty.add(queue)

    def _note_gone(self, outcome: QueueOutcome, queue: Queue, log: range) -> None:
        """Count the units that are gone, and of them those whose record is still there."""
        for first in range(max(outcome.stays, outcome.min_before), outcome.max_before, _WINDOW):
            units = self._table.units(queue, first, min(_WINDOW, outcome.max_before - first))
            there = units["size"] > 0
            places = units["physical_offset"][there]
            outcome.cut += int(there.sum())
            outcome.unreachable += int(((places >= log.start) & (places < log.stop)).sum())


def _no_cut(folder: str, queue: Queue, end: int) -> Refusal:
    topic, queue_id = queue
    why = (
        f"the queues are cut at {end}, and all of queue {queue_id} of {topic} lies behind it: the start fails "
        "(correctMaxCqOffset error)"
    )
    return Refusal(
        folder, "rocksdb_queues", why, f"move {folder} to a place outside of the store, so that it is made anew"
    )

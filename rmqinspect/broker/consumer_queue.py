"""A queue and the log as a broker sees them that answers a consumer: for the rules of `broker.pull` and others.

Nothing is read but the queue's ends, the units that are asked for, and the heads of single records. What a start would
change is not foreseen.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.offset_by_time import TimedFile
from rmqinspect.broker.pull import Unit
from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.consumequeue.bounds import QueueSummary, queue_end
from rmqinspect.consumequeue.units import QueueRows, read_ext_tags, read_units, unit_numbers, valid_units
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.store.reader import modified_at, open_file

_READ = 256  # units at once


class ConsumerLog:
    """The log that units point into. Source: CommitLog#getMessage, #rollNextFile."""

    def __init__(self, store: Store, end: int) -> None:
        """Take the physical offset behind the last record."""
        self._store = store
        self._end = end

    def is_readable(self, physical_offset: int, size: int) -> bool:
        """Whether so many bytes lie in one segment, before the end of the log."""
        segment, start = self._where(physical_offset)
        return segment is not None and size >= 0 and start + size <= min(segment.end, self._end)

    def place_in_segment(self, physical_offset: int) -> int | None:
        """Return the distance from the begin of the segment that an offset lies in; None without one."""
        segment, start = self._where(physical_offset)
        return None if segment is None else start - segment.base

    def behind_segment(self, physical_offset: int) -> int:
        """Return where the next segment begins."""
        size = self._store.segment_size or 1
        # Java's remainder has the sign of the offset.
        rest = physical_offset % size if physical_offset >= 0 else -(-physical_offset % size)
        return physical_offset + size - rest

    @contextmanager
    def opened(self) -> "Iterator[ReadableLog]":
        """Open it for reading."""
        with RecordReader(self._store) as reader:
            yield ReadableLog(self._where, reader)

    def _where(self, physical_offset: int) -> tuple[Segment | None, int]:
        """Return the segment that an offset lies in for a broker, and the offset that it reads at there."""
        segments = self._store.segments
        segment = self._store.segment_at(physical_offset)
        if segment is None and physical_offset == 0 and segments:
            # Brokers of all versions take the first file for offset 0.
            return segments[0], segments[0].base
        return segment, physical_offset


class ReadableLog(NamedTuple):
    """Its bytes."""

    where: Callable[[int], tuple[Segment | None, int]]
    reader: RecordReader

    def read(self, physical_offset: int, size: int) -> bytes:
        """Return the bytes at an offset, up to the end of its segment.

        :raises Unreadable: the segment cannot be read.
        """
        segment, start = self.where(physical_offset)
        return b"" if segment is None else self.reader.opened(segment).read_at(start, size)


class ConsumerQueue:
    """One queue. Its rows are queue offsets; those of a batch queue are counted from its first file on.

    Methods raise Unreadable where the system reports an I/O error.
    """

    def __init__(self, store: Store, files: Sequence[QueueFile], ext_files: Sequence[QueueFile] = ()) -> None:
        self._files = tuple(files)
        self._ext_files = ext_files
        self._opened = ExitStack()
        self._rows = self._opened.enter_context(QueueRows(self._files))
        self._log = self._opened.enter_context(RecordReader(store))
        self.log_start = store.log_start
        self.topic, self.queue_id = files[0].topic, files[0].queue_id
        self.kind = "rocksdb" if files[0].noted is not None else files[0].kind

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    # --- its ends -------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> QueueSummary:
        """Where it begins and ends; the minimum is that of 5.x."""
        return queue_end(self._files, self.log_start, lambda: True)

    @cached_property
    def _scanned(self) -> QueueSummary:
        """The same with the minimum of 4.x."""
        return queue_end(self._files, self.log_start, lambda: False)

    def ends(self, release: str) -> tuple[int, int]:
        """Return (minimum, maximum) in queue offsets as a release finds them."""
        found = self.summary if rules_of_start(release).minimum == "search" else self._scanned
        return found.min_offset, found.max_offset

    def _count_used(self, which: int) -> int:
        """Return how many units a file has before the first that a broker does not accept.

        Source: ConsumeQueue#recover.
        """
        used = 0
        with open_file(self._files[which]) as reader:
            for row, units in read_units(reader, self._files[which].kind):
                if row > used:  # a hole of the file
                    break
                bad = np.flatnonzero(valid_units(units) == 0)
                used += int(bad[0]) if len(bad) else len(units)
                if len(bad):
                    break
        return used

    # --- its units ------------------------------------------------------------------------------------

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """Return the units from one that holds an offset to the end of its file; None where there is none."""
        row = self._row_of(queue_offset)
        if row is None:
            return None
        units = self._units(row)
        if self.kind != "rocksdb":
            return units
        # What RocksDB lacks ends what is read of it.
        first = next(units, None)
        return None if first is None else chain((first,), units)

    def sizes_from(self, queue_offset: int, most: int) -> Ints:
        """Return the sizes of up to so many units, from one on, of the same file; of a queue that has no batches."""
        row = self._row_of(queue_offset)
        if row is None:
            return np.zeros(0, np.int64)
        rows = min(most, self._end_row(self._rows.file_of(row)) - row)
        return np.frombuffer(self._rows.raw(row, rows), self._rows.layout)["size"].astype(np.int64)

    def behind_file(self, queue_offset: int) -> int:
        """Return where a broker goes on that cannot read the file with an offset. Source: #rollNextFile."""
        if self.kind != "queue":
            return 0
        units = max(self._files[0].size // self._rows.layout.itemsize, 1)
        return queue_offset + units - queue_offset % units

    def _row_of(self, queue_offset: int) -> int | None:
        """Return the row of `QueueRows` of the unit with an offset."""
        if self.kind == "batch_queue":
            return self._batch_row(queue_offset)
        for file, start, end in zip(self._files, self._rows.starts, self._rows.starts[1:], strict=False):
            row = start + queue_offset - file.base // self._rows.layout.itemsize
            if start <= row < end and queue_offset < self.summary.max_offset:
                return row
        return None

    def _batch_row(self, queue_offset: int) -> int | None:
        """Return the row of the last batch of a file that begins at or before an offset.

        Source: BatchConsumeQueue#getBatchMsgIndexBuffer, #binarySearch.
        """
        for file in reversed(self.timed_files()):
            if file.begin == file.end or self.offset_of(file.begin) > queue_offset:
                continue
            low, high = file.begin, file.end
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self.offset_of(middle) <= queue_offset else (low, middle)
            return low
        return None

    def _units(self, row: int) -> Iterator[Unit]:
        which = self._rows.file_of(row)
        file, begin = self._files[which], self._rows.starts[which]
        end = self._end_row(which)
        while row < end:
            raw = self._rows.raw(row, min(_READ, end - row))
            units = np.frombuffer(raw, self._rows.layout)
            offsets, messages = unit_numbers(file, row - begin, units)
            # The tags code of an address that leads to no ext unit is not known.
            codes = units["tags_code"].astype(np.int64)
            tags, known = codes.copy(), codes > EXT_ADDRESS_MAX
            read_ext_tags(self._ext_files, codes, tags, known)
            places, sizes = units["physical_offset"].tolist(), units["size"].tolist()
            rows = zip(offsets.tolist(), messages.tolist(), places, sizes, tags.tolist(), strict=True)
            for at, unit in enumerate(rows):
                if self.kind == "rocksdb" and not unit[3]:
                    return
                yield Unit(*unit) if known[at] else Unit(*unit[:-1], None)
            row += len(units)

    # --- its times ------------------------------------------------------------------------------------

    def timed_files(self) -> Sequence[TimedFile]:
        """Return the files, in order."""
        return self._timed_files

    @cached_property
    def _timed_files(self) -> list[TimedFile]:
        found = []
        for which, file in enumerate(self._files):
            begin, end = self._rows.starts[which], self._end_row(which)
            if self.kind == "queue":
                first = file.base // self._rows.layout.itemsize
                begin, end = first, first + end - begin
            modified = modified_at(file) // 1_000_000 or None
            if modified is not None and modified % 1000 == 0:
                modified += 999  # archives keep whole seconds: the last ms of such a one is meant
            found.append(TimedFile(begin, end, modified))
        return found

    def _end_row(self, which: int) -> int:
        """Return the row of `QueueRows` behind the used units of a file: all but the last are full."""
        begin, end = self._rows.starts[which], self._rows.starts[which + 1]
        if which < len(self._files) - 1:
            return end
        if self.kind == "batch_queue":
            return begin + self._count_used(which)
        used = self.summary.max_offset - self._files[which].base // self._rows.layout.itemsize
        return begin + min(max(used, 0), end - begin)

    def place(self, row: int) -> int | None:
        """Return a physical offset; None without a unit."""
        unit = self._unit(row)
        return None if unit is None else int(unit["physical_offset"][0])

    def time(self, row: int) -> int:
        """Return a store time in ms; -1 where there is no record.

        Batch units have their own. So have those of RocksDB, but here their records are asked.
        """
        unit = self._unit(row)
        if unit is None:
            return -1
        if self.kind == "batch_queue":
            return int(unit["store_timestamp"][0])
        found = self._log.timestamp_of(int(unit["physical_offset"][0]), int(unit["size"][0]))
        return -1 if found is None else found

    def record_time(self, unit: Unit) -> int | None:
        """Return the store time in ms of the record that a unit points at; None where there is none."""
        return self._log.timestamp_of(unit.physical_offset, unit.size)

    def offset_of(self, row: int) -> int:
        """Return the first queue offset of a unit of a batch queue."""
        return int(self._rows.unit(row)["queue_offset"][0])

    def _unit(self, row: int) -> Units | None:
        at = row if self.kind == "batch_queue" else self._row_of(row)
        if at is None:
            return None
        unit = self._rows.unit(at)
        return None if self.kind == "rocksdb" and not unit["size"][0] else unit


def open_queue(store: Store, topic: str, queue_id: int) -> ConsumerQueue | None:
    """Open a queue, None if the store has no such queue. Of one that is in files and in RocksDB, the files.

    Source: CombineConsumeQueueStore: `combineCQPreferCQType` says which is read, by default the files.
    """
    of_queue = [file for file in store.queue_files if (file.topic, file.queue_id) == (topic, queue_id)]
    ext_files = [file for file in of_queue if file.kind == "ext_queue"]
    kinds = (
        [file for file in of_queue if file.kind == "batch_queue"],
        [file for file in of_queue if file.kind == "queue" and file.noted is None],
        [file for file in of_queue if file.kind == "queue" and file.noted is not None],
    )
    files = next(filter(None, kinds), None)
    return None if files is None else ConsumerQueue(store, files, ext_files)

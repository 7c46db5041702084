"""The units of consume queues, and where each queue begins and ends.

`survey_queues` reads every unit, so it also sees units behind a hole of zeros. `queue_ends` reads the first page
and the end of each queue and assumes that the units between ascend without a hole, as a broker writes them; where
what it reads contradicts that, it reads the whole queue.

Source: ConsumeQueue, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Self

import numpy as np

from rmqinspect.codec.arrays import Bools, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import (
    EXT_ADDRESS_BASE,
    EXT_ADDRESS_MAX,
    PRE_BLANK_SIZE,
    BatchUnit,
    ExtHead,
    QueueUnit,
)
from rmqinspect.store.model import NotedEnds, QueueFile, Store
from rmqinspect.store.reader import FileReader, allocated_size, open_file

LAYOUTS = {"queue": QueueUnit, "batch_queue": BatchUnit}  # by kind of file
_KIND_NAMES = {"queue": "file", "batch_queue": "batch"}
_IN_ROCKSDB = "rocksdb"

# Windows grow: most files of a store with many queues hold few units in megabytes of preallocated zeros, and a
# long file still takes few calls.
FIRST_WINDOW = 16 << 10
LAST_WINDOW = 4 << 20
PAGE = 4096  # bytes per read of a quick look: 204 units
SHORT_FILE = 64 << 10  # bytes on disk: reading so few whole costs no more than searching them
_EXT_WINDOW = 4 << 20  # bytes per read of an ext file
_LAST_OFFSET = 2**63 - 1  # a damaged batch unit must not push a sum out of int64


def read_units(reader: FileReader, kind: str, done: Callable[[int], None] | None = None) -> Iterator[tuple[int, Units]]:
    """Yield (row of the first unit, units) for the windows of a file that may hold units.

    Units have the layout's dtype. Holes of a sparse file are skipped: they are zeros. Bytes behind the last whole
    unit are not read. `done` is called with the bytes of each window.

    :raises Unreadable: the system reports an I/O error.
    """
    layout = dtype_of(LAYOUTS[kind])
    rows = reader.size // layout.itemsize
    # What is allocated of a sparse file is used: it is read at once.
    row, window = 0, min(reader.allocated, LAST_WINDOW) if reader.allocated < reader.size else FIRST_WINDOW
    while row < rows:
        row = max(row, reader.next_allocated(row * layout.itemsize) // layout.itemsize)
        buffer = bytearray(min(window // layout.itemsize, max(0, rows - row)) * layout.itemsize)
        count = reader.read_into(buffer, row * layout.itemsize) // layout.itemsize
        if count == 0:
            return
        if done:
            done(count * layout.itemsize)
        yield row, np.frombuffer(buffer, layout, count)
        row += count
        window = min(window * 4, LAST_WINDOW)


def valid_units(units: Units) -> Units:
    """Return which units a broker accepts; filler is among them. Source: ConsumeQueue#recover."""
    good = (units["physical_offset"] >= 0) & (units["size"] > 0)
    if "message_count" in (units.dtype.names or ()):
        good &= (units["queue_offset"] >= 0) & (units["message_count"] > 0)
    return good


def filler_units(units: Units) -> Bools:
    """Return which units are pre-blank filler. Source: ConsumeQueue#fillPreBlank."""
    filler: Bools = units["size"] == PRE_BLANK_SIZE
    if filler.any():
        filler &= (units["physical_offset"] == 0) & (units["tags_code"] == 0)
    return filler


def unit_times(units: Units) -> Units | None:
    """Return the store times of batch units, ms; None for units that have none."""
    has_times = "store_timestamp" in (units.dtype.names or ())
    return units["store_timestamp"].astype(np.int64) if has_times else None


def unit_numbers(file: QueueFile, row: int, units: Units) -> tuple[Units, Units]:
    """Return (first queue offset, messages) of units that begin at `row` of a file."""
    if file.kind == "batch_queue":
        return units["queue_offset"].astype(np.int64), units["message_count"].astype(np.int32)
    first = file.base // units.dtype.itemsize + row
    return np.arange(first, first + len(units), dtype=np.int64), np.ones(len(units), np.int32)


def _behind(queue_offset: np.int64, message_count: np.int32) -> int:
    return min(int(queue_offset) + int(message_count), _LAST_OFFSET)


def read_ext_tags(files: Sequence[QueueFile], tags: Units, found: Units, known: Units) -> None:
    """Look up the ext units whose addresses are in `tags`: tags codes go into `found`, successes into `known`.

    An ext unit counts when its size is that of its head and bitmap: a damaged address points anywhere.
    Source: ConsumeQueueExt#get.

    :raises Unreadable: the system reports an I/O error.
    """
    rows = np.flatnonzero(tags <= EXT_ADDRESS_MAX)
    if not len(rows) or not files:
        return
    layout = dtype_of(ExtHead)
    positions = tags[rows] ^ np.int64(EXT_ADDRESS_BASE)  # flips the sign bit, which adds 2^63
    for file in files:
        local = positions - file.base
        inside = np.flatnonzero((local >= 0) & (local <= file.size - layout.itemsize))
        inside = inside[np.argsort(local[inside], kind="stable")]
        if not len(inside):
            continue
        with open_file(file) as reader:
            # One read per window, from its first address to its last.
            windows = local[inside] // _EXT_WINDOW
            for group in np.split(inside, np.flatnonzero(np.diff(windows)) + 1):
                first, last = int(local[group[0]]), int(local[group[-1]])
                raw = reader.read(first, last - first + layout.itemsize)
                if len(raw) < last - first + layout.itemsize:
                    continue  # truncated since it was listed
                heads: Units = np.ndarray((last - first + 1,), layout, raw, 0, (1,))[local[group] - first]
                good = heads["size"] == layout.itemsize + heads["bitmap_size"].astype(np.int32)
                good &= heads["bitmap_size"] >= 0
                found[rows[group[good]]] = heads["tags_code"][good]
                known[rows[group[good]]] = True


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """Where a queue begins and ends. Offsets are queue offsets unless called physical."""

    topic: str
    queue_id: int
    kind: str  # file, batch, rocksdb
    files: tuple[QueueFile, ...]
    min_offset: int  # first message whose record lies in the log or behind it, else max_offset
    max_offset: int  # behind the last valid unit; without one, where the first file begins; RocksDB: as noted there
    units: int  # of messages, without filler
    first_physical_offset: int | None
    last_physical_offset: int | None
    last_size: int | None  # bytes of the record of the last message unit

    def bytes_on_disk(self) -> int | None:
        """Return the bytes that the files take on disk; holes take none. None for a queue in RocksDB.

        :raises Unreadable: a file cannot be opened.
        """
        if self.kind == _IN_ROCKSDB:
            return None
        return sum(map(allocated_size, self.files))


def queue_files_of(store: Store) -> Iterator[tuple[QueueFile, ...]]:
    """Yield the files of each queue, by topic, queue and kind; ext files are not included."""
    files = (file for file in store.queue_files if file.kind in LAYOUTS)
    for _, group in groupby(files, lambda file: (file.topic, file.queue_id, file.kind)):
        yield tuple(group)


Note = Callable[[str], None] | None  # gets a message for each file that cannot be read


def survey_queues(
    store: Store, done: Callable[[int], None] | None = None, on_unreadable: Note = None
) -> Iterator[QueueSummary]:
    """Yield the summary of every queue from all of its units.

    With `on_unreadable`, a queue of which a file cannot be read has none, and one that a file vanishes from, as
    retention removes the oldest, has that of its other files.

    :raises Unreadable: the system reports an I/O error, if there is no `on_unreadable`.
    """
    for files in queue_files_of(store):
        summary = of_readable(files, lambda files: _survey(files, store.log_start, done), on_unreadable)
        if summary is not None:
            yield summary


def queue_ends(
    store: Store, only: Collection[tuple[str, int]] | None = None, on_unreadable: Note = None
) -> Iterator[QueueSummary]:
    """Yield the summary of every queue, or of those in `only`, reading little of each.

    A queue of one file that takes up to 64 KiB on disk is read whole: its summary is exact. Of any other, the
    first and last units are read, and those between are assumed to ascend without a hole; `verify` checks that.
    `on_unreadable` is used as by `survey_queues`.

    :raises Unreadable: the system reports an I/O error, if there is no `on_unreadable`.
    """
    for files in queue_files_of(store):
        if only is None or (files[0].topic, files[0].queue_id) in only:
            summary = of_readable(files, lambda files: queue_end(files, store.log_start), on_unreadable)
            if summary is not None:
                yield summary


def of_readable(
    files: tuple[QueueFile, ...], read: Callable[[tuple[QueueFile, ...]], QueueSummary], note: Note
) -> QueueSummary | None:
    """Read a queue again without the files that vanish meanwhile; None if it cannot be read."""
    while files:
        try:
            return read(files)
        except Unreadable as error:
            if note is None:
                raise
            note(str(error))
            if not isinstance(error.__cause__, FileNotFoundError):
                return None
            files = tuple(file for file in files if file.name != error.file)
    return None


def queue_end(files: tuple[QueueFile, ...], log_start: int) -> QueueSummary:
    """Return the summary of one queue as `queue_ends` does.

    :raises Unreadable: an I/O error.
    """
    short = len(files) == 1 and allocated_size(files[0]) <= SHORT_FILE
    return (None if short else _look(files, log_start)) or _survey(files, log_start)


def _survey(files: tuple[QueueFile, ...], log_start: int, done: Callable[[int], None] | None = None) -> QueueSummary:
    count, min_offset, max_offset = 0, None, None
    first: Units | None = None
    last: Units | None = None
    for file in files:
        with open_file(file) as reader:
            for row, units in read_units(reader, file.kind, done):
                valid = np.flatnonzero(valid_units(units))
                if not len(valid):
                    continue
                numbers, counts = unit_numbers(file, row, units)
                max_offset = _behind(numbers[valid[-1]], counts[valid[-1]])
                messages = valid[units["size"][valid] != PRE_BLANK_SIZE]
                if not len(messages):
                    continue
                count += len(messages)
                last = units[messages[-1]]
                first = units[messages[0]] if first is None else first
                if min_offset is None:
                    reached = messages[units["physical_offset"][messages] >= log_start]
                    min_offset = int(numbers[reached[0]]) if len(reached) else None
    return _summary(files, min_offset, max_offset, count, first, last)


def _summary(
    files: tuple[QueueFile, ...],
    min_offset: int | None,
    max_offset: int | None,
    count: int,
    first: Units | None,
    last: Units | None,
) -> QueueSummary:
    file = files[0]
    if file.noted is not None:
        return _noted_summary(files, file.noted, min_offset, count, first, last)
    if max_offset is None:
        # The file names of a batch queue say nothing about its queue offsets.
        max_offset = file.base // dtype_of(QueueUnit).itemsize if file.kind == "queue" else 0
    return QueueSummary(
        file.topic,
        file.queue_id,
        _KIND_NAMES[file.kind],
        files,
        max_offset if min_offset is None else min_offset,
        max_offset,
        count,
        None if first is None else int(first["physical_offset"]),
        None if last is None else int(last["physical_offset"]),
        None if last is None else int(last["size"]),
    )


def _noted_summary(
    files: tuple[QueueFile, ...],
    noted: NotedEnds,
    min_offset: int | None,
    count: int,
    first: Units | None,
    last: Units | None,
) -> QueueSummary:
    """Return the summary of a queue in RocksDB: its ends are noted there, also where its units were not read."""
    behind = noted.max_offset
    begin = noted.min_offset if noted.min_offset is not None else behind if min_offset is None else min_offset
    unread = noted.last_physical_offset is not None
    return QueueSummary(
        files[0].topic,
        files[0].queue_id,
        _IN_ROCKSDB,
        files,
        begin,
        behind,
        behind - begin if unread else count,
        None if first is None else int(first["physical_offset"]),
        noted.last_physical_offset if unread else None if last is None else int(last["physical_offset"]),
        None if last is None else int(last["size"]),
    )


class QueueRows:
    """The units of a queue's files under one numbering of rows; keeps the file of the last read open."""

    def __init__(self, files: Sequence[QueueFile]) -> None:
        self.files = files
        self.layout = dtype_of(LAYOUTS[files[0].kind])
        self.starts = [0]
        for file in files:
            self.starts.append(self.starts[-1] + file.size // self.layout.itemsize)
        self._reader: FileReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.close()

    def raw(self, row: int, count: int) -> bytes:
        """Return the bytes of up to `count` units from `row` on, at most to the end of that row's file.

        :raises Unreadable: an I/O error, or the file became shorter since it was listed.
        """
        which = self.file_of(row)
        file = self.files[which]
        if self._reader is None or self._reader.file is not file:
            if self._reader is not None:
                self._reader.close()
            self._reader = None
            self._reader = open_file(file)
        size = min(count, self.starts[which + 1] - row) * self.layout.itemsize
        raw = self._reader.read((row - self.starts[which]) * self.layout.itemsize, size)
        if len(raw) < size:
            raise Unreadable(f"{file.name}: became shorter than the {file.size} bytes it was listed with", file.name)
        return raw

    def file_of(self, row: int) -> int:
        """Return which file holds a row of the queue."""
        return bisect_right(self.starts, row, hi=len(self.files)) - 1

    def numbers(self, row: int, unit: Units) -> tuple[int, int]:
        """Return (queue offset, queue offset behind) of the one unit at `row`."""
        which = self.file_of(row)
        offsets, counts = unit_numbers(self.files[which], row - self.starts[which], unit)
        return int(offsets[0]), _behind(offsets[0], counts[0])

    def unit(self, row: int) -> Units:
        """Return the unit at `row`, shape (1,)."""
        return np.frombuffer(self.raw(row, 1), self.layout)


def _is_message(unit: Units) -> bool:
    return bool(valid_units(unit)[0]) and unit["size"][0] != PRE_BLANK_SIZE


def _look(files: tuple[QueueFile, ...], log_start: int) -> QueueSummary | None:
    """Return a summary from the first page and the end; None where that needs the whole queue."""
    with QueueRows(files) as rows:
        page = PAGE // rows.layout.itemsize
        if rows.starts[-1] == 0:
            return None
        head = np.frombuffer(rows.raw(0, page), rows.layout)
        messages = np.flatnonzero(valid_units(head) & (head["size"] != PRE_BLANK_SIZE))
        end = _find_end(rows, page)
        if not len(messages) or end is None:
            return None
        first_row = int(messages[0])
        first, last = head[first_row : first_row + 1], rows.unit(end - 1)
        if not _is_message(last):
            return None
        min_offset = None
        reached = _first_reached(rows, first_row, end, log_start)
        if reached < end:
            min_offset, _ = rows.numbers(reached, rows.unit(reached))
        _, max_offset = rows.numbers(end - 1, last)
        return _summary(files, min_offset, max_offset, end - first_row, first[0], last[0])


def _find_end(rows: QueueRows, page: int) -> int | None:
    """Return the row behind the last used unit, None if there is none in the last two files."""
    for which in range(len(rows.files) - 1, max(-1, len(rows.files) - 3), -1):
        start, stop = rows.starts[which], rows.starts[which + 1]
        if start == stop or not any(rows.raw(start, 1)):
            continue
        # Page `low` begins with a used unit; page `high` does not, or is the file's end. Most files are used at
        # their beginning only, so the search first goes up in growing steps.
        low, high, step = 0, -(-(stop - start) // page), 1
        while high - low > 1:
            middle = min(low + step, (low + high) // 2)
            if any(rows.raw(start + middle * page, 1)):
                low, step = middle, step * 2
            else:
                high = middle
        raw = rows.raw(start + low * page, page).rstrip(b"\0")
        return start + low * page - (-len(raw) // rows.layout.itemsize)
    return None


def _first_reached(rows: QueueRows, low: int, high: int, log_start: int) -> int:
    """Return the first row of [low, high) that points into the log or behind it, else `high`."""
    if rows.unit(low)["physical_offset"][0] >= log_start:
        return low
    while low < high:
        middle = (low + high) // 2
        if rows.unit(middle)["physical_offset"][0] < log_start:
            low = middle + 1
        else:
            high = middle
    return low


def first_offset_in(files: Sequence[QueueFile], log_start: int) -> int | None:
    """Return the queue offset of the first message whose record lies at a physical offset or behind it.

    That is the minimum of a queue whose log begins there. None without such a message.

    :raises Unreadable: the system reports an I/O error.
    """
    with QueueRows(files) as rows:
        end = _find_end(rows, PAGE // rows.layout.itemsize) if rows.starts[-1] else None
        reached = None if end is None else _first_reached(rows, 0, end, log_start)
        return None if reached in (None, end) else rows.numbers(reached, rows.unit(reached))[0]


def find_unit(files: Sequence[QueueFile], queue_offset: int) -> tuple[int, int] | None:
    """Return (physical offset, record size) of the message unit that holds a queue offset.

    None where no file has the unit, or it is filler, unused or damaged.

    :raises Unreadable: the system reports an I/O error.
    """
    found = find_unit_with_tags(files, queue_offset)
    return None if found is None else found[:2]


def find_unit_with_tags(files: Sequence[QueueFile], queue_offset: int) -> tuple[int, int, int] | None:
    """Return (physical offset, record size, tags code) of a message unit as `find_unit` does.

    :raises Unreadable: the system reports an I/O error.
    """
    return find_units(files, (queue_offset,))[0]


def find_units(files: Sequence[QueueFile], queue_offsets: Sequence[int]) -> list[tuple[int, int, int] | None]:
    """Return for each queue offset what `find_unit_with_tags` does; each file is opened once.

    :raises Unreadable: the system reports an I/O error.
    """
    search = _row_in_batch_queue if files[0].kind == "batch_queue" else _row_in_queue
    with QueueRows(files) as rows:
        return [_unit_at(rows, search(rows, queue_offset)) for queue_offset in queue_offsets]


def _unit_at(rows: QueueRows, row: int | None) -> tuple[int, int, int] | None:
    unit = None if row is None else rows.unit(row)
    if unit is None or not _is_message(unit):
        return None
    return int(unit["physical_offset"][0]), int(unit["size"][0]), int(unit["tags_code"][0])


def _row_in_queue(rows: QueueRows, queue_offset: int) -> int | None:
    """Return the row by file names and positions; files may be missing in between."""
    for which, file in enumerate(rows.files):
        row = rows.starts[which] + queue_offset - file.base // rows.layout.itemsize
        if rows.starts[which] <= row < rows.starts[which + 1]:
            return row
    return None


def _row_in_batch_queue(rows: QueueRows, queue_offset: int) -> int | None:
    """Return the row of the unit that holds the offset, by binary search: units ascend."""
    low, high = 0, rows.starts[-1]
    while low < high:
        middle = (low + high) // 2
        unit = rows.unit(middle)
        first, behind = rows.numbers(middle, unit)
        if not _is_message(unit) or queue_offset < first:
            high = middle
        elif queue_offset >= behind:
            low = middle + 1
        else:
            return middle
    return None

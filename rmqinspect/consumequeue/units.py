"""The units of consume queues: read window by window, by queue offset, or around one; what is a filler.

A batch unit begins with the fields of a queue unit, so loops find those of both at the same places.

Source: ConsumeQueue, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units
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
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import FileReader, open_file

LAYOUTS = {"queue": QueueUnit, "batch_queue": BatchUnit}  # by kind of file

# Windows grow: most files of a store with many queues hold few units in megabytes of preallocated zeros, and a
# long file still takes few calls.
FIRST_WINDOW = 16 << 10
LAST_WINDOW = 4 << 20
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
    # What is allocated of a sparse file is used: it is read at once, and nothing behind it.
    sparse = reader.allocated < reader.size
    row, window = 0, LAST_WINDOW if sparse else FIRST_WINDOW
    while row < rows:
        row = max(row, reader.next_allocated(row * layout.itemsize) // layout.itemsize)
        end = -(-reader.next_hole(row * layout.itemsize) // layout.itemsize) if sparse else rows
        buffer = bytearray(max(0, min(window // layout.itemsize, min(max(end, row + 1), rows) - row)) * layout.itemsize)
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
    """Return which units are pre-blank filler. See `loops.pointers.is_filler`."""
    filler: Bools = units["size"] == PRE_BLANK_SIZE  # of most queues none: the other fields are not looked at
    if filler.any():
        filler &= (units["physical_offset"] == 0) & (units["tags_code"] == 0)
    return filler


def message_mask(units: Units) -> Bools:
    """Return which units are of messages: those that a broker accepts, without filler."""
    messages: Bools = valid_units(units) & ~filler_units(units)
    return messages


def messages_in(file: QueueFile, done: Callable[[int], None] | None = None) -> Iterator[tuple[Units, Units]]:
    """Yield (queue offsets, units) of the messages in a file, window by window.

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(file) as reader:
        for row, units in read_units(reader, file.kind, done):
            messages = message_mask(units)
            yield unit_numbers(file, row, units)[0][messages], units[messages]


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
        return int(offsets[0]), min(int(offsets[0]) + int(counts[0]), _LAST_OFFSET)

    def unit(self, row: int) -> Units:
        """Return the unit at `row`, shape (1,)."""
        return np.frombuffer(self.raw(row, 1), self.layout)


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
    """Return (physical offset, record size, tags code) of the units at queue offsets, as `find_unit` does.

    Each file is opened once.

    :raises Unreadable: the system reports an I/O error.
    """
    search = _row_in_batch_queue if files[0].kind == "batch_queue" else _row_in_queue
    found: list[tuple[int, int, int] | None] = []
    with QueueRows(files) as rows:
        for row in (search(rows, queue_offset) for queue_offset in queue_offsets):
            unit = None if row is None else rows.unit(row)
            if unit is None or not message_mask(unit)[0]:
                found.append(None)
            else:
                found.append((int(unit["physical_offset"][0]), int(unit["size"][0]), int(unit["tags_code"][0])))
    return found


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
        if not message_mask(unit)[0] or queue_offset < first:
            high = middle
        elif queue_offset >= behind:
            low = middle + 1
        else:
            return middle
    return None


def units_around(files: Sequence[QueueFile], low: int, high: int) -> tuple[Ints, Ints]:
    """Return (queue offsets, physical offsets) of the message units in [low, high) of one queue, by queue offset.

    Batch units do not stand at their queue offset: all of a batch queue are returned.

    :raises Unreadable: an I/O error.
    """
    offsets: list[Ints] = [np.empty(0, np.int64)]
    places: list[Ints] = [np.empty(0, np.int64)]
    for numbers, units in message_units(files, low, high):
        offsets.append(numbers)
        places.append(units["physical_offset"].astype(np.int64))
    found = np.concatenate(offsets)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(places)[order]


def message_units(files: Sequence[QueueFile], low: int, high: int) -> Iterator[tuple[Ints, Units]]:
    """Yield (queue offsets, units) of the message units in [low, high) of one queue; of a batch queue all units.

    :raises Unreadable: an I/O error.
    """
    for file in files:
        if file.kind == "batch_queue":
            yield from messages_in(file)
        else:
            yield from _between(file, low, high)


def _between(file: QueueFile, low: int, high: int) -> Iterator[tuple[Ints, Units]]:
    layout = dtype_of(LAYOUTS[file.kind])
    begin = file.base // layout.itemsize
    first, last = max(0, low - begin), min(file.size // layout.itemsize, high - begin)
    if first < last:
        with open_file(file) as reader:
            raw = reader.read(first * layout.itemsize, (last - first) * layout.itemsize)
        units = np.frombuffer(raw, layout, len(raw) // layout.itemsize)
        messages = message_mask(units)
        yield unit_numbers(file, first, units)[0][messages], units[messages]


def usual_sizes(store: Store) -> dict[str, int]:
    """Return the length of most queue files, by kind; of equally frequent ones the greatest.

    Nothing in a store says how long they are, so most of them do.
    """
    lengths: dict[str, Counter[int]] = {}
    for file in store.queue_files:
        if file.noted is None and file.size:
            lengths.setdefault(file.kind, Counter())[file.size] += 1
    return {kind: max(of_kind, key=lambda size: (of_kind[size], size)) for kind, of_kind in lengths.items()}

"""Where each consume queue begins and ends, as its broker finds it when it starts.

    places      | 0 | 0 | 131,090 | 131,304 | ... | 132,000 | zeros      the log begins at 131,072
    offsets       0   1      2         3               9    10
                             ^ minimum                      ^ maximum

The maximum is where reading stops: a broker takes the units of the last three files up to the first that it does not
accept, and deletes the files behind it. The minimum is looked for in the first file: up to 4.9.8 from its first unit
on, from 5.0.0 on by halves, which finds another unit where places do not ascend. Where every record is gone, that is
0 up to 4.9.8, and then the maximum. No reader of a broker knows filler: its place 0 counts like any other.

`survey_queues` reads every unit. `queue_ends` reads the first page and the end of each queue and takes it that the
units between ascend without a hole, as a broker writes them; where what it reads contradicts that, it reads them all.

Source: ConsumeQueue#recover, #correctMinOffset, #getMinOffsetInQueue, BatchConsumeQueue#recover, #correctMinOffset,
#reviseMaxAndMinOffsetInQueue, MappedFileQueue#truncateDirtyFiles; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.codec.java import wrapped_long
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import (
    LAYOUTS,
    QueueRows,
    filler_units,
    message_mask,
    read_units,
    unit_numbers,
    valid_units,
)
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import NotedEnds, QueueFile, Store
from rmqinspect.store.reader import allocated_size, open_file

_KIND_NAMES = {"queue": "file", "batch_queue": "batch"}
_IN_ROCKSDB = "rocksdb"
_RECOVERED_FILES = 3  # ConsumeQueue#recover begins in the third last file

_UNIT = dtype_of(QueueUnit)
_BLOCK = 4096
_PAGE = _BLOCK // _UNIT.itemsize * _UNIT.itemsize
_PAGE_OF_LOOK = 4096  # bytes per read of a quick look: 204 units
_SHORT = 64 << 10  # bytes: reading so few whole costs no more than searching them

Files = tuple[QueueFile, ...]
Searches = Callable[[], bool]
"""Whether the broker looks for the minimum by halves; asked only where that makes a difference. See
`broker.eras.searches_minimum`."""

Note = Callable[[str], None] | None  # gets a message for each file that cannot be read


class QueueSummary(Struct, frozen=True):
    """Where a queue begins and ends. Offsets are queue offsets unless called physical."""

    topic: str
    queue_id: int
    kind: str  # file, batch, rocksdb
    files: Files
    min_offset: int  # as the broker answers; of a batch queue without units -1
    max_offset: int  # as the broker answers
    first_kept: int  # first message whose record lies in the log or behind it, else max_offset
    units: int  # of messages, without filler
    first_physical_offset: int | None  # of the first message unit
    last_physical_offset: int | None
    last_size: int | None  # bytes of the record of the last message unit

    def bytes_on_disk(self) -> int | None:
        """Return the bytes that the files take on disk; holes take none. None for a queue in RocksDB.

        :raises Unreadable: a file cannot be opened.
        """
        if self.kind == _IN_ROCKSDB:
            return None
        return sum(map(allocated_size, self.files))


def queue_files_of(store: Store) -> Iterator[Files]:
    """Yield the files of each queue, by topic, queue and kind; ext files are not included."""
    files = (file for file in store.queue_files if file.kind in LAYOUTS)
    for _, group in groupby(files, lambda file: (file.topic, file.queue_id, file.kind)):
        yield tuple(group)


def survey_queues(
    store: Store, searches: Searches, done: Callable[[int], None] | None = None, on_unreadable: Note = None
) -> Iterator[QueueSummary]:
    """Yield the summary of every queue from all of its units.

    With `on_unreadable`, a queue of which a file cannot be read has none, and one that a file vanishes from, as
    retention removes the oldest, has that of its other files.

    :raises Unreadable: the system reports an I/O error, if there is no `on_unreadable`.
    """
    for files in queue_files_of(store):
        summary = _of_readable(files, lambda files: _survey(files, store.log_start, searches, done), on_unreadable)
        if summary is not None:
            yield summary


def queue_ends(
    store: Store, searches: Searches, only: Collection[tuple[str, int]] | None = None, on_unreadable: Note = None
) -> Iterator[QueueSummary]:
    """Yield the summary of every queue, or of those in `only`, by topic and queue id; little is read of each.

    A queue of up to 64 KiB, of one file on disk, is read whole: its summary is exact. Of any other, the first and
    last units are read, and those between are assumed to ascend without a hole; `verify` checks that.
    `on_unreadable` is used as by `survey_queues`.

    :raises Unreadable: the system reports an I/O error, if there is no `on_unreadable`.
    """
    for files in queue_files_of(store):
        if only is None or (files[0].topic, files[0].queue_id) in only:
            summary = _of_readable(files, lambda files: queue_end(files, store.log_start, searches), on_unreadable)
            if summary is not None:
                yield summary


def queue_end(files: Files, log_start: int, searches: Searches) -> QueueSummary:
    """Return the summary of one queue as `queue_ends` does.

    :raises Unreadable: an I/O error.
    """
    found = _peek(files, log_start, searches)
    if found is None:
        size = allocated_size(files[0]) if len(files) == 1 else sum(file.size for file in files)
        found = _look(files, log_start, searches) if size > _SHORT else None
    return found or _survey(files, log_start, searches)


def _of_readable(files: Files, read: Callable[[Files], QueueSummary], note: Note) -> QueueSummary | None:
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


# --- the broker's rules -------------------------------------------------------------------------------


def search_units(places: Ints | Sequence[int], log_start: int) -> int | None:
    """Return the unit that a search by halves ends at; None where it points before the log."""
    low, high = 0, len(places) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if places[middle] == log_start:
            low = high = middle
        elif places[middle] > log_start:
            high = middle
        else:
            low = middle
    return next((at for at in range(low, high + 1) if places[at] >= log_start), None)


def _minimum(begin: int, places: Ints, ends: tuple[int, int | None], log_start: int, searches: Searches) -> int:
    """Return the minimum of a queue in files that was just loaded.

    `begin` and `places` are of the first file: its queue offset, and what its readable units point at; `ends` are the
    queue's maximum and what its last unit points at, if the last file has any.
    """
    end, last = ends
    if len(places) > 1 and last is not None and min(places[0], last) >= log_start < places[1:].min():
        return begin  # both find the first one
    reached = places >= log_start
    scanned = begin + int(reached.argmax()) if reached.any() else 0
    searched = 0
    if end and last is not None and last < log_start:
        searched = end
    elif end and not (begin == 0 and reached[:1].all()):
        found = search_units(places, log_start)
        searched = 0 if found is None else begin + found
    return searched if scanned != searched and searches() else scanned


class Ends:
    """Finds the ends of a queue from its units: window by window, in the order of its files."""

    def __init__(self, files: Files, log_start: int, searches: Searches) -> None:
        self._files = files
        self._log_start = log_start
        self._searches = searches
        self._layout = dtype_of(LAYOUTS[files[0].kind])
        self._rows = [file.size // self._layout.itemsize for file in files]
        self._accepted = [0] * len(files)  # units up to the first that a broker does not accept
        self._lasts: list[Units | None] = [None] * len(files)  # the last accepted one
        self._first_file: list[tuple[int, Units]] = []  # by row
        self._first_kept: int | None = None
        self.units = 0  # of messages
        self._first: Units | None = None
        self._last: Units | None = None

    def take(self, number: int, row: int, units: Units) -> tuple[Units, Units]:
        """Take the units from a row of a file on; return queue offsets and units of the messages among them."""
        valid = valid_units(units) != 0
        if self._accepted[number] == row:
            count = len(units) if valid.all() else int(valid.argmin())
            self._accepted[number] += count
            if count:
                self._lasts[number] = units[count - 1]
        if number == 0:
            self._first_file.append((row, units))
        numbers = unit_numbers(self._files[number], row, units)[0]
        messages = valid & ~filler_units(units)
        numbers, units = numbers[messages], units[messages]
        self.units += len(units)
        if len(units):
            self._first = units[0] if self._first is None else self._first
            self._last = units[-1]
            if self._first_kept is None:
                reached: Bools = units["physical_offset"] >= self._log_start
                self._first_kept = int(numbers[reached.argmax()]) if reached.any() else None
        return numbers, units

    def summary(self) -> QueueSummary:
        """Return the ends, once all units are taken."""
        file = self._files[0]
        if file.noted is not None:
            return self._noted_summary(file.noted)
        newest, position, first_rows = self._recovered()
        units = np.zeros(first_rows, self._layout)
        for row, some in self._first_file:
            units[row : row + len(some)] = some[: max(0, first_rows - row)]
        if file.kind == "batch_queue":
            before = self._lasts[newest] if position or not newest else self._lasts[newest - 1]
            end = 0 if before is None else wrapped_long(int(before["queue_offset"]) + int(before["message_count"]))
            begin = self._batch_minimum(units)
        else:
            begin_of = [file.base // units.itemsize for file in self._files]
            end = begin_of[newest] + position
            last = self._lasts[newest] if position else None
            ends = end, None if last is None else int(last["physical_offset"])
            begin = _minimum(begin_of[0], units["physical_offset"], ends, self._log_start, self._searches)
        return self._summary(_KIND_NAMES[file.kind], begin, end, self.units)

    def _recovered(self) -> tuple[int, int, int]:
        """Return (number of the last file that is kept, units in it, readable units of the first file)."""
        files, unit = self._files, self._layout.itemsize
        at = max(0, len(files) - _RECOVERED_FILES)
        while self._accepted[at] == self._rows[at] and at + 1 < len(files):
            at += 1
        end = files[at].base + self._accepted[at] * unit
        newest = max((number for number, file in enumerate(files) if file.base <= end), default=0)
        size = max(self._rows) * unit  # of each file, but one that was cut
        position = size if files[newest].base + size <= end else end % size
        return newest, position // unit, position // unit if newest == 0 else self._rows[0]

    def _batch_minimum(self, units: Units) -> int:
        if not len(units):
            return -1
        reached = units["physical_offset"] >= self._log_start
        before = int(reached.argmax()) if reached.any() else len(units)
        if not before:
            return int(units["queue_offset"][0])
        return wrapped_long(int(units["queue_offset"][before - 1]) + int(units["message_count"][before - 1]))

    def _noted_summary(self, noted: NotedEnds) -> QueueSummary:
        """Return the summary of a queue in RocksDB: its ends are noted there, also where its units were not read."""
        end = noted.max_offset
        kept = end if self._first_kept is None else self._first_kept
        begin = kept if noted.min_offset is None else noted.min_offset
        if noted.last_physical_offset is None:
            return self._summary(_IN_ROCKSDB, begin, end, self.units)
        found = self._summary(_IN_ROCKSDB, begin, end, end - begin)
        return replace(found, first_kept=begin, last_physical_offset=noted.last_physical_offset)

    def _summary(self, kind: str, begin: int, end: int, units: int) -> QueueSummary:
        file, first, last = self._files[0], self._first, self._last
        return QueueSummary(
            file.topic,
            file.queue_id,
            kind,
            self._files,
            begin,
            end,
            end if self._first_kept is None else self._first_kept,
            units,
            None if first is None else int(first["physical_offset"]),
            None if last is None else int(last["physical_offset"]),
            None if last is None else int(last["size"]),
        )


# --- how much is read ---------------------------------------------------------------------------------


def _survey(
    files: Files, log_start: int, searches: Searches, done: Callable[[int], None] | None = None
) -> QueueSummary:
    ends = Ends(files, log_start, searches)
    for number, file in enumerate(files):
        with open_file(file) as reader:
            for row, units in read_units(reader, file.kind, done):
                ends.take(number, row, units)
    return ends.summary()


def _peek(files: Files, log_start: int, searches: Searches) -> QueueSummary | None:
    """Return the summary of a queue of one file whose units are plain and end in its first page, else None.

    A store may have ten thousand queues, most of them with a few units in one file: the first page and one look for
    further allocated bytes settle such a queue.
    """
    file = files[0]
    if len(files) > 1 or file.kind != "queue" or file.noted is not None:
        return None
    with open_file(file) as reader:
        page = reader.read(0, _PAGE)
        # Few bytes on disk that go on behind the page, perhaps with zeros between units: all are read.
        if len(page) == _PAGE and reader.allocated <= _SHORT and reader.next_allocated(_BLOCK) < reader.size:
            return None
    count = -(-len(page.rstrip(b"\0")) // _UNIT.itemsize)
    if not count or count * _UNIT.itemsize >= min(len(page), _PAGE):
        return None
    units = np.frombuffer(page, _UNIT, count)
    if not message_mask(units).all():
        return None
    (first, _, _), (last, last_size, _) = units[0].item(), units[count - 1].item()
    if first < log_start:
        ends = Ends(files, log_start, searches)
        ends.take(0, 0, units)
        return ends.summary()
    base = file.base // _UNIT.itemsize
    places = units["physical_offset"]
    begin = _minimum(base, places, (base + count, last), log_start, searches) if base or last < log_start else base
    return QueueSummary(
        file.topic, file.queue_id, "file", files, begin, base + count, base, count, first, last, last_size
    )


def _look(files: Files, log_start: int, searches: Searches) -> QueueSummary | None:
    """Return a summary from the first page and the end; None where that needs the whole queue."""
    with QueueRows(files) as rows:
        page = _PAGE_OF_LOOK // rows.layout.itemsize
        if rows.starts[-1] == 0 or files[0].noted is not None:
            return None
        head = np.frombuffer(rows.raw(0, page), rows.layout)
        messages, end = np.flatnonzero(message_mask(head)), _find_end(rows, page)
        last = None if end is None else rows.unit(end - 1)
        if not len(messages) or end is None or last is None or not message_mask(last)[0]:
            return None
        first_row = int(messages[0])
        first, last_place = head[first_row : first_row + 1], int(last["physical_offset"][0])
        _, behind = rows.numbers(end - 1, last)
        in_first = min(end, rows.starts[1])
        kept, reached = (
            row if head["physical_offset"][row] >= log_start else _first_reached(rows, row, high, log_start)
            for row, high in ((first_row, end), (0, in_first))
        )
        first_kept = rows.numbers(kept, first)[0] if kept == first_row else behind
        if first_row < kept < end:
            first_kept = rows.numbers(kept, rows.unit(kept))[0]
        if files[0].kind == "batch_queue":
            begin = rows.numbers(reached - 1, rows.unit(reached - 1))[1] if reached else rows.numbers(0, first)[0]
        elif last_place < log_start and rows.file_of(end - 1) == len(files) - 1:
            begin = behind if searches() else 0
        else:
            begin = rows.numbers(reached, first)[0] if reached < in_first else 0
        return QueueSummary(
            files[0].topic,
            files[0].queue_id,
            _KIND_NAMES[files[0].kind],
            files,
            begin,
            behind,
            first_kept,
            end - first_row,
            int(first["physical_offset"][0]),
            last_place,
            int(last["size"][0]),
        )


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
    while low < high:
        middle = (low + high) // 2
        if rows.unit(middle)["physical_offset"][0] < log_start:
            low = middle + 1
        else:
            high = middle
    return low


def last_places(store: Store, problems: list[str]) -> list[int]:
    """Return what the last unit of each queue points at: physical offsets of records that may be the log's last.

    Queues that cannot be read are left out, and the errors added to `problems`.
    """
    ends = queue_ends(store, lambda: True, on_unreadable=problems.append)
    return [queue.last_physical_offset for queue in ends if queue.last_physical_offset is not None]

"""Which queue offset a broker names for a time: where a consumer begins that is set back to it.

    store times    10   20   20   30
    offsets         0    1    2    3        asked 20: lower 1, upper 2     asked 25: lower 3, upper 2

Up to 5.1.0 a queue file is chosen by the time at which it was last changed: of a copied store, that of the copy. In
the file the nearest message counts. From 5.1.1 on a file is chosen by the times of its records, and a boundary says
which message is meant where several fit or none. All search by halves, so store times that do not ascend, after a
clock was set back, lead anywhere.

Source: ConsumeQueue#getOffsetInQueueByTime, BatchConsumeQueue#getOffsetInQueueByTime,
RocksDBConsumeQueueTable#binarySearchInCQByTime, MappedFileQueue#getConsumeQueueMappedFileByTime; RocketMQ 4.0.0 to
5.5.0.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rmqinspect.broker.read_rules import TimeRules

LOWER, UPPER = "lower", "upper"
BOUNDARIES = (LOWER, UPPER)


class TimedFile(NamedTuple):
    """The used units of a queue file, by queue offset; of a batch queue, by row."""

    begin: int
    end: int
    modified: int | None  # ms since 1970; None: unknown


class TimedQueue(Protocol):
    """The queue that is searched. Places and times are those of the record that a unit points at."""

    kind: str  # queue, batch_queue, rocksdb
    log_start: int  # physical offset of the log's first byte

    def ends(self, release: str) -> tuple[int, int]:
        """Return (minimum, maximum) in queue offsets as a release finds them."""

    def timed_files(self) -> Sequence[TimedFile]:
        """Return the files, in order."""

    def place(self, row: int) -> int | None:
        """Return a physical offset; None without a unit."""

    def time(self, row: int) -> int:
        """Return a store time in ms; -1 where there is no record."""

    def offset_of(self, row: int) -> int:
        """Return the first queue offset of a unit."""


def knows_boundary(release: str) -> bool:
    """Whether a client can name a boundary."""
    return TimeRules(release).boundary


def goes_by_change(release: str) -> bool:
    """Whether the result depends on when the queue's files were last changed."""
    return TimeRules(release).by_change


def offset_by_time(queue: TimedQueue | None, moment: int, boundary: str, release: str) -> int:
    """Return the queue offset that a broker of a release names for a time in ms; 0 without a queue.

    `boundary` counts where the release knows it, see `knows_boundary`.

    :raises Unreadable: a file of the queue cannot be read.
    """
    if queue is None:
        return 0
    rules = TimeRules(release)
    boundary = boundary if rules.boundary else LOWER
    low, high = queue.ends(release)
    if queue.kind == "rocksdb":
        return _in_rocksdb(queue, low, high, moment, boundary, rules) if high else 0
    if queue.kind == "batch_queue":
        found = _in_batches(queue, moment, boundary if rules.batch_boundary else LOWER)
    elif rules.by_change:
        found = _by_change(queue, low, moment)
    else:
        found = _by_records(queue, low, moment, boundary)
    return min(max(found, low), high) if rules.within else found


class _Found(NamedTuple):
    """Where a search ended. The messages beside the time: None if there is none."""

    exact: int | None = None
    left: int | None = None
    right: int | None = None
    left_time: int | None = None  # None also for a message below the log
    right_time: int | None = None


def _halve(queue: TimedQueue, low: int, high: int, moment: int) -> _Found | None:
    """Search a time between two offsets, both included; None where a record cannot be read."""
    left = right = left_time = right_time = None
    while high >= low:
        middle = (low + high) // 2
        place = queue.place(middle)
        if place is None:
            low = middle + 1
            continue
        if place < queue.log_start:
            low, left = middle + 1, middle
            continue
        time = queue.time(middle)
        if time < 0:
            return None
        if time == moment:
            return _Found(exact=middle)
        if time > moment:
            high, right, right_time = middle - 1, middle, time
        else:
            low, left, left_time = middle + 1, middle, time
    return _Found(None, left, right, left_time, right_time)


def _nearest(found: _Found, moment: int) -> int | None:
    """Return the nearer neighbour; of two at the same distance, the left one."""
    if found.exact is not None:
        return found.exact
    if found.left_time is None:
        return found.right
    if found.right_time is None:
        return found.left
    return found.right if moment - found.left_time > found.right_time - moment else found.left


def _bounded(queue: TimedQueue, found: _Found, moment: int, boundary: str, reach: tuple[int, int]) -> int | None:
    """Return the first or last of the messages with the time, else the neighbour. `reach`: both ends included."""
    if found.exact is None:
        return found.right if boundary == LOWER else found.left
    step, row = (-1 if boundary == LOWER else 1), found.exact
    while reach[0] <= row + step <= reach[1] and queue.time(row + step) == moment:
        row += step
    return row


def _in_file(row: int | None, file: TimedFile) -> int:
    """Return a result as a broker does: none is one byte before the file, and Java divides towards 0."""
    return max(file.begin - 1, 0) if row is None else row


def _by_change(queue: TimedQueue, low: int, moment: int) -> int:
    files = queue.timed_files()
    chosen = (file for file in files if file.modified is not None and file.modified >= moment)
    file = next(chosen, files[-1] if files else None)
    if file is None or file.begin == file.end:
        return 0
    found = _halve(queue, max(low, file.begin), file.end - 1, moment)
    return 0 if found is None else _in_file(_nearest(found, moment), file)


def _by_records(queue: TimedQueue, low: int, moment: int, boundary: str) -> int:
    file = _choose_file(queue, moment, boundary)
    if file is None or file.begin == file.end:
        return 0
    floor, ceiling = max(low, file.begin), file.end - 1
    if queue.time(ceiling) < moment:
        return ceiling + 1 if boundary == LOWER else ceiling
    if queue.time(floor) > moment:
        return file.begin if boundary == LOWER else 0
    found = _halve(queue, floor, ceiling, moment)
    return 0 if found is None else _in_file(_bounded(queue, found, moment, boundary, (floor, ceiling)), file)


def _choose_file(queue: TimedQueue, moment: int, boundary: str) -> TimedFile | None:
    files = queue.timed_files()
    if not files:
        return None
    if boundary == LOWER:
        return next((file for file in files[:-1] if queue.time(file.end - 1) >= moment), files[-1])
    return next((file for file in reversed(files) if queue.time(file.begin) <= moment), None)


def _in_batches(queue: TimedQueue, moment: int, boundary: str) -> int:
    """Return the first queue offset of a batch, by the store times in the units themselves; -1 for none."""
    files = [file for file in queue.timed_files() if file.begin < file.end]
    if not files:
        return -1
    file = next((file for file in reversed(files) if queue.time(file.begin) <= moment), files[0])
    low, high = file.begin, file.end - 1
    if moment >= queue.time(high):
        return queue.offset_of(high)
    row = _halve_batches(queue, low, high, moment, boundary)
    return -1 if row is None else queue.offset_of(row)


def _halve_batches(queue: TimedQueue, low: int, high: int, moment: int, boundary: str) -> int | None:
    """Search in the units of one file. Source: BatchConsumeQueue#binarySearchRight."""
    while low <= high:
        middle = (low + high) // 2
        time = queue.time(middle)
        if middle in (low, high):
            if time >= moment:
                return middle
            if middle == high:
                return None
            low = middle + 1
        elif boundary == LOWER:
            low, high = (middle + 1, high) if time < moment else (low, middle)
        else:
            low, high = (middle, high) if time <= moment else (low, middle - 1)
    return None


def _in_rocksdb(queue: TimedQueue, low: int, high: int, moment: int, boundary: str, rules: TimeRules) -> int:
    last = high - 1
    if rules.rocksdb == "ends":
        if queue.place(last) is not None and queue.time(last) < moment:
            return last + 1 if boundary == LOWER else last
        if queue.place(low) is not None and queue.time(low) > moment:
            return low if boundary == LOWER else 0
    found = _halve(queue, low, last, moment)
    if found is None:
        return 0
    nearest = rules.rocksdb == "nearest"
    row = _nearest(found, moment) if nearest else _bounded(queue, found, moment, boundary, (low, last))
    return -1 if row is None else row

"""What a master broker answers to a consumer that pulls from a queue offset.

    min                      max
     |#########################|
    ^                          ^    ^
    OFFSET_TOO_SMALL           |    OFFSET_OVERFLOW_BADLY
                               OFFSET_OVERFLOW_ONE
     <- units are scanned ---->     FOUND, NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING; OFFSET_FOUND_NULL

A broker scans some units from the offset on. It leaves out those whose tags code is not asked for, and, behind a
record that is not in the log, those that point into the rest of that segment. It gives what remains without looking
into the records: a tag with the hash of another is told apart by the client alone.

Two answers never come from the files. A queue that does not exist is made when it is asked for and is empty, so its
answer is NO_MESSAGE_IN_QUEUE, and never NO_MATCHED_LOGIC_QUEUE. OFFSET_RESET answers a group whose offset an
administrator has just reset: that is kept in memory alone.

Source: DefaultMessageStore#getMessage, #isTheBatchFull, ExpressionMessageFilter#isMatchedByConsumeQueue,
FilterAPI#buildSubscriptionData, PullMessageProcessor#processRequest; RocketMQ 4.0.0 to 5.5.0.

Which queue offset a broker names for a time: where a consumer begins that is set back to it.

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

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rmqinspect.broker.start_rules import PullRules, TimeRules
from rmqinspect.codec.java import java_string_hash, wrapped_int

FOUND = "FOUND"
NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"

STATUSES = (
    FOUND,
    NO_MATCHED_MESSAGE,
    MESSAGE_WAS_REMOVING,
    NO_MESSAGE_IN_QUEUE,
    OFFSET_TOO_SMALL,
    OFFSET_OVERFLOW_ONE,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_FOUND_NULL,
)
"""The statuses that follow from the files of a store."""

_SCANNED = 16_000  # bytes of units, or units: see PullRules
_INT = re.compile(r"\d{1,10}", re.ASCII)
_UNIT = 20  # bytes of a unit of a queue in files; RocksDB counts as many


class Unit(NamedTuple):
    """A unit of a queue."""

    queue_offset: int
    messages: int  # more than one: of a batch
    physical_offset: int
    size: int
    tags_code: int | None  # None: behind an address in an ext file that has no such unit


class Queue(Protocol):
    """The queue that is asked."""

    kind: str  # queue, batch_queue, rocksdb

    def ends(self, release: str) -> tuple[int, int]:
        """Return (minimum, maximum) as a release finds them."""

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """Return the units from one that holds an offset to the end of its file; None where there is none."""

    def behind_file(self, queue_offset: int) -> int:
        """Return where a broker goes on that cannot read the file with an offset."""


class Log(Protocol):
    """The log that the units point into."""

    def is_readable(self, physical_offset: int, size: int) -> bool:
        """Whether so many bytes lie in one segment, before the end of the log."""

    def behind_segment(self, physical_offset: int) -> int:
        """Return where the next segment begins."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a broker gives at once. The defaults are for messages that are still in memory."""

    messages: int = 32
    size: int = 256 << 10

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> "Limits":
        """Return the limits that a broker.conf sets."""
        names = {"messages": "maxTransferCountOnMessageInMemory", "size": "maxTransferBytesOnMessageInMemory"}
        given = {field: settings[name].strip() for field, name in names.items() if name in settings}
        # A broker keeps its default for what is no Java int. Source: MixAll#properties2Object.
        numbers = {field: int(text) for field, text in given.items() if _INT.fullmatch(text)}
        return cls(**{field: number for field, number in numbers.items() if number < 1 << 31})


@dataclass(frozen=True, slots=True)
class Subscription:
    """The tags that a consumer asks for. Source: FilterAPI#buildSubscriptionData."""

    tags: frozenset[str]  # empty: all

    @classmethod
    def parse(cls, expression: str | None) -> "Subscription":
        """Return the subscription of `A || B`; `*` and nothing are all messages.

        :raises ValueError: the expression names no tag; no broker takes it.
        """
        if expression in (None, "", "*"):
            return cls(frozenset())
        # Java's String#split and #trim: blanks are all characters up to the space.
        blanks = "".join(map(chr, range(0x21)))
        tags = frozenset(tag.strip(blanks) for tag in str(expression).split("||")) - {""}
        if not tags:
            raise ValueError("it names no tag")
        return cls(tags)

    def takes(self, tags_code: int | None) -> bool:
        """Whether a broker gives a message with this tags code. Source: #isMatchedByConsumeQueue."""
        return tags_code is None or not self.tags or wrapped_int(tags_code) in self._codes

    def keeps(self, tag: str | None) -> bool:
        """Whether the client passes on a message with this tag. Source: PullAPIWrapper#processPullResult."""
        return not self.tags or tag in self.tags

    @property
    def _codes(self) -> frozenset[int]:
        return frozenset(map(java_string_hash, self.tags))


@dataclass(frozen=True, slots=True)
class Pull:
    """What a consumer asks for."""

    offset: int
    count: int
    subscription: Subscription
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Answer:
    """What it gets."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    units: tuple[Unit, ...] = ()  # of what is given
    filtered: int = 0  # units left out for their tags code
    unreadable: int = 0  # units whose record is not in the log, and those passed over with them


def _limit_of_scan(rules: PullRules, kind: str, count: int) -> int:
    """Return the first distance from the offset asked for, in queue offsets, that is not scanned."""
    unit = 46 if kind == "batch_queue" else _UNIT
    if rules.scanned == "units + 1":
        return max(_SCANNED, count * _UNIT) + 1
    size = max(_SCANNED, count * unit)
    return -(-size // unit) if rules.scanned == "bytes" else size // unit + 1


# --- the rule -----------------------------------------------------------------------------------------


def following_offset(offset: int, low: int, high: int, release: str) -> int:
    """Return where a group goes on that asks a queue from `low` to before `high` for an offset; itself if it is there.

    A push consumer that is told another offset commits it, and pulls from there. Source: DefaultMessageStore
    #getMessage, DefaultMQPushConsumerImpl#pullMessage (OFFSET_ILLEGAL).
    """
    outside = _outside(offset, low, high, PullRules(release))
    return offset if outside is None else outside[1]


def pull(queue: Queue | None, log: Log, asked: Pull, release: str) -> Answer:
    """Return what a master of a release answers; None: there is no such queue.

    :raises Unreadable: a file of the queue cannot be read.
    """
    rules = PullRules(release)
    if queue is None:
        return Answer(NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    low, high = queue.ends(release)
    outside = _outside(asked.offset, low, high, rules)
    if outside is not None:
        return Answer(*outside, low, high)
    units = queue.units_from(asked.offset)
    if units is None:
        return Answer(OFFSET_FOUND_NULL, queue.behind_file(asked.offset), low, high)
    scan = _Scan(log, asked, rules)
    end = min(high, asked.offset + _limit_of_scan(rules, queue.kind, asked.count))
    if queue.kind == "rocksdb" and rules.reads_count:
        end = min(end, asked.offset + asked.count)
    for unit in units:
        if scan.next_offset >= high or unit.queue_offset >= end or not scan.take(unit):
            break
    return Answer(
        scan.status, scan.next_offset, low, high, tuple(scan.given), filtered=scan.filtered, unreadable=scan.unreadable
    )


def _outside(offset: int, low: int, high: int, rules: PullRules) -> tuple[str, int] | None:
    """Return (status, next offset) of an offset that the queue does not have."""
    if high == 0:
        return NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return OFFSET_TOO_SMALL, low
    if offset == high:
        return OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return OFFSET_OVERFLOW_BADLY, 0 if rules.to_zero and low == 0 else high
    return None


class _Scan:
    """The units of one pull, taken one after the other."""

    def __init__(self, log: Log, asked: Pull, rules: PullRules) -> None:
        self._log = log
        self._asked = asked
        self._rules = rules
        self.status = NO_MATCHED_MESSAGE
        self.next_offset = asked.offset
        self.given: list[Unit] = []
        self.filtered = self.unreadable = 0
        self._messages = self._size = 0
        self._pass_below: int | None = None  # physical offset up to which units are passed over

    def take(self, unit: Unit) -> bool:
        """Take the next unit; False: what was found before is given without it."""
        passed = self._pass_below is not None and unit.physical_offset < self._pass_below
        if self._is_full(unit) and not (passed and self._rules.passes_when_full):
            return False
        self.next_offset = unit.queue_offset + unit.messages
        if passed:
            self.unreadable += 1
        elif not self._asked.subscription.takes(unit.tags_code):
            self.filtered += 1
            self._leave_out(NO_MATCHED_MESSAGE)
        elif not self._log.is_readable(unit.physical_offset, unit.size):
            self.unreadable += 1
            self._leave_out(MESSAGE_WAS_REMOVING)
            self._pass_below = self._log.behind_segment(unit.physical_offset)
        else:
            self.given.append(unit)
            self._messages += unit.messages
            self._size += unit.size
            self.status, self._pass_below = FOUND, None
        return True

    def _leave_out(self, status: str) -> None:
        if not self._size:
            self.status = status

    def _is_full(self, unit: Unit) -> bool:
        """Whether a message no longer fits. Source: #isTheBatchFull."""
        if not self._size or not self._messages:
            return False
        limits = self._asked.limits
        return (
            self._messages + unit.messages > self._asked.count - self._rules.one_less
            or self._size + unit.size > limits.size
            or self._messages >= limits.messages
        )


# --- the offset of a time -----------------------------------------------------------------------------

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

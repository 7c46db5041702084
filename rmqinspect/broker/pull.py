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

Where the bytes of a unit are too few for the head of a record, or its size is no size, the broker fails with an
exception instead: each pull that reaches the unit gets SYSTEM_ERROR, or no answer. `client` says what a client makes of
the bytes of an answer.

Two answers never come from the files. A queue that does not exist is made when it is asked for and is empty, so its
answer is NO_MESSAGE_IN_QUEUE, and never NO_MATCHED_LOGIC_QUEUE. OFFSET_RESET answers a group whose offset an
administrator has just reset: that is kept in memory alone.

Source: DefaultMessageStore#getMessage, #isTheBatchFull, MappedFile#selectMappedBuffer,
ExpressionMessageFilter#isMatchedByConsumeQueue, FilterAPI#buildSubscriptionData,
PullMessageProcessor#processRequest, #readGetMessageResult; RocketMQ 4.0.0 to 5.5.0.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from rmqinspect.broker.read_rules import PullRules
from rmqinspect.codec.java import java_string_hash, wrapped_int

FOUND = "FOUND"
NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
SYSTEM_ERROR = "SYSTEM_ERROR"

STATUSES = (
    FOUND,
    NO_MATCHED_MESSAGE,
    MESSAGE_WAS_REMOVING,
    NO_MESSAGE_IN_QUEUE,
    OFFSET_TOO_SMALL,
    OFFSET_OVERFLOW_ONE,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_FOUND_NULL,
    SYSTEM_ERROR,
)
"""The statuses that follow from the files of a store."""

_SCANNED = 16_000  # bytes of units, or units: see PullRules
_INT = re.compile(r"\d{1,10}", re.ASCII)
_UNIT = 20  # bytes of a unit of a queue in files; RocksDB counts as many
_READ_BY_BROKER = 64  # bytes of each record, up to its store timestamp: #readGetMessageResult
_INT_END = 1 << 31


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

    def place_in_segment(self, physical_offset: int) -> int | None:
        """Return the distance from the begin of the segment that an offset lies in; None without one."""

    def behind_segment(self, physical_offset: int) -> int:
        """Return where the next segment begins."""


class Limits(Struct, frozen=True):
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


class Subscription(Struct, frozen=True):
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


class Pull(Struct, frozen=True):
    """What a consumer asks for."""

    offset: int
    count: int
    subscription: Subscription
    limits: Limits = Limits()


class Answer(Struct, frozen=True):
    """What it gets."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    units: tuple[Unit, ...] = ()  # of what is given
    filtered: int = 0  # units left out for their tags code
    passed: tuple[Unit, ...] = ()  # whose record is not in the log, and those behind one in the same segment
    failing: Unit | None = None  # with SYSTEM_ERROR: whose bytes no broker can give


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
    if scan.failing is not None:
        return Answer(SYSTEM_ERROR, asked.offset, low, high, failing=scan.failing)
    given, passed = tuple(scan.given), tuple(scan.passed)
    return Answer(scan.status, scan.next_offset, low, high, given, scan.filtered, passed)


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
        self.filtered = 0
        self.passed: list[Unit] = []
        self.failing: Unit | None = None
        self._messages = self._size = 0
        self._pass_below: int | None = None  # physical offset up to which units are passed over

    def take(self, unit: Unit) -> bool:
        """Take the next unit; False: what was found before is given without it."""
        passed = self._pass_below is not None and unit.physical_offset < self._pass_below
        if self._is_full(unit) and not (passed and self._rules.passes_when_full):
            return False
        self.next_offset = unit.queue_offset + unit.messages
        if passed:
            self.passed.append(unit)
        elif not self._asked.subscription.takes(unit.tags_code):
            self.filtered += 1
            self._leave_out(NO_MATCHED_MESSAGE)
        elif not self._log.is_readable(unit.physical_offset, unit.size):
            if self._is_no_size(unit):
                self.failing = unit
                return False
            self.passed.append(unit)
            self._leave_out(MESSAGE_WAS_REMOVING)
            self._pass_below = self._log.behind_segment(unit.physical_offset)
        else:
            if unit.size < _READ_BY_BROKER and self.failing is None:
                self.failing = unit
            self.given.append(unit)
            self._messages += unit.messages
            self._size += unit.size
            self.status, self._pass_below = FOUND, None
        return True

    def _is_no_size(self, unit: Unit) -> bool:
        """Whether Java takes the size for one that fits, and fails: negative, or beyond an int with its place."""
        place = self._log.place_in_segment(unit.physical_offset)
        return place is not None and (unit.size < 0 or place + unit.size >= _INT_END)

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

"""Where the commit log ends, from a few MiB of it.

Nothing in a store says how long the log is: segments are preallocated, and zeros follow the last
record. The consume queues nearly say it: the record that the newest unit points at is near the end.
From a little before it the chain is walked until it stops:

    queue     |unit|unit|unit|
                         |
    log       ...|rec|rec|rec|rec|rec|000000000|
                  <-sample->         ^ end

Without queues the end is looked for by bisection between a page with data and a page of zeros. A hole in
the log can mislead that; the walk still proves every record that is reported.

Counts over a few records that tell broker versions apart, from both ends of the log.

Source: MessageDecoder#messageProperties2String, MessageExtEncoder; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy

import numpy as np
from msgspec import Struct, field

from rmqinspect.commitlog.find_record import RecordFinder, Unread
from rmqinspect.commitlog.gaps import Gap, Split
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import LOOK_BACK, RecordRun, scan_split
from rmqinspect.errors import Unreadable
from rmqinspect.loops.record_rows import NO_CRC
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.topics import is_system_topic

_SAMPLED = 1000  # records of a window looked at
_ENOUGH, _FEW = 5000, 50  # after 5,000 records, 50 of each window
_KEPT_TAGS = 500
_KEPT_IDS = 8
_HEAD_SIZE = 1 << 20  # bytes of the first segment scanned
_TAIL_SIZE = 64 << 10  # bytes of a closed segment scanned, for its filler
_LONG_FILLER = 64  # bytes: a shorter one may be all zeros by chance

# Properties that only a broker writes, and the first version that does. Clients can send any other.
BROKER_NAMES = {
    "INNER_MULTI_QUEUE_OFFSET": "4.9.3",
    "INNER_BASE": "5.0.0",
    "1ST_POP_TIME": "5.0.0",
    "TIMER_ENQUEUE_MS": "5.0.0",
    "TIMER_OUT_MS": "5.0.0",
    "ORIGIN_GROUP": "5.4.0",
    "TRANS_OFFSET": "5.4.0",
    "TIMER_ROLL_LABEL": "5.4.0",
}
_ENCODED_NAMES = {name.encode() for name in BROKER_NAMES}


class Sample(Struct):
    """Numbers of records, unless a comment says otherwise; `take` adds those of a window."""

    records: int = 0
    v2: int = 0
    ipv6: int = 0
    record_crc: int = 0
    halves_in_user_topics: int = 0
    separated: int = 0  # singles whose properties end with the separator
    unseparated: int = 0
    singles: int = 0  # of user topics, with a client's id, no neighbour from the same batch
    singles_with_cluster: int = 0
    singles_with_region: int = 0
    batched: int = 0  # of user topics, with a client's id, beside a record of the same moment and queue
    batched_with_cluster: int = 0
    repeated_names: int = 0  # with a property name twice
    stale_fillers: int = 0  # fillers (not records) that hold older bytes
    zero_fillers: int = 0  # fillers that hold zeros
    names: set[bytes] = field(default_factory=set)  # of BROKER_NAMES
    system_topics: set[bytes] = field(default_factory=set)
    tags: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # physical offset -> topic, tag
    queues: dict[tuple[bytes, int], int] = field(default_factory=dict)  # topic, queue id -> physical offset of a record
    last: dict[tuple[bytes, int], tuple[int, int]] = field(default_factory=dict)  # of each queue: (place, queue offset)
    ids: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # physical offset -> topic, UNIQ_KEY

    def take(self, records: Records) -> None:
        """Count the last records of a window."""
        records = records.select(slice(-(_SAMPLED if self.records < _ENOUGH else _FEW), None))
        self.records += len(records)
        self.v2 += int((records.magic == message.MAGIC_V2).sum())
        v6 = SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6
        self.ipv6 += int(((records.sys_flag & v6) != 0).sum())
        self.record_crc += int((records.record_crcs != NO_CRC).sum())
        batched = _side_by_side(records)
        columns = (
            records.starts,
            records.topic_starts,
            records.topic_ends,
            records.properties_starts,
            records.properties_ends,
            records.sys_flag,
            records.field("queue_id"),
            records.field("queue_offset"),
            batched,
        )
        for start, topic_start, topic_end, begin, end, flag, queue_id, queue_offset, beside in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            topic = bytes(records.raw[topic_start:topic_end])
            text = bytes(records.raw[begin:end])
            if not flag & SysFlag.TRANSACTION_PREPARED:  # nor rolled back: those get no unit
                self.queues.setdefault((topic, queue_id), records.base + start)
                self.last[topic, queue_id] = max(
                    (records.base + start, queue_offset), self.last.get((topic, queue_id), (-1, -1))
                )
            self._take_one(records.base + start, topic, text, flag, beside)

    def _take_one(self, physical_offset: int, topic: bytes, text: bytes, flag: int, beside: bool) -> None:
        pairs = [item.partition(b"\x01") for item in text.split(b"\x02") if item]
        properties = {name: value for name, _, value in pairs}
        self.names |= _ENCODED_NAMES & properties.keys()
        self.repeated_names += len(properties) < len(pairs)
        if text and not beside:
            self.separated += text.endswith(b"\x02")
            self.unseparated += not text.endswith(b"\x02")
        if topic.startswith(b"%") or is_system_topic(topic.decode(errors="replace")):
            self.system_topics.add(topic)
            return
        prepared = flag & message.TRANSACTION_MASK == SysFlag.TRANSACTION_PREPARED
        self.halves_in_user_topics += prepared and b"TRAN_MSG" in properties
        if b"UNIQ_KEY" in properties and flag & message.TRANSACTION_MASK == 0:
            cluster = b"CLUSTER" in properties
            self.singles += not beside
            self.singles_with_cluster += cluster and not beside
            self.singles_with_region += b"MSG_REGION" in properties and not beside
            self.batched += beside
            self.batched_with_cluster += cluster and beside
        for kept, name, most in ((self.tags, b"TAGS", _KEPT_TAGS), (self.ids, b"UNIQ_KEY", _KEPT_IDS)):
            if properties.get(name):
                if len(kept) >= most:
                    del kept[next(iter(kept))]
                kept[physical_offset] = topic, properties[name]


def _side_by_side(records: Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which records have a neighbour that may come from the same client batch.

    A batch is stored in one append: its records share queue, born time and store time.
    """
    same = np.ones(max(0, len(records) - 1), np.bool_)
    for name in ("store_timestamp", "born_timestamp", "queue_id"):
        same &= np.diff(records.field(name)) == 0
    beside = np.zeros(len(records), np.bool_)
    beside[1:] |= same
    beside[:-1] |= same
    return beside


def sample_edges(store: Store, end: Sample, problems: list[str]) -> tuple[Sample, Sample]:
    """Return a sample of the log's first records and last fillers, and one of its last records.

    The second is `end`, taken by the search for the log's end, plus the last records of closed segments.
    Files that cannot be read are added to `problems`.
    """
    sample, last = Sample(), deepcopy(end)
    for segment in store.segments[:1]:
        for event in _events(Split(segment, 0, min(segment.size, _HEAD_SIZE)), problems):
            if isinstance(event, RecordRun) and not event.carved:
                sample.take(event.records)
    for segment in store.segments[:-1][-2:]:
        for event in _events(Split(segment, max(0, segment.size - _TAIL_SIZE), segment.size), problems):
            if isinstance(event, RecordRun) and not event.carved:
                last.take(event.records)
            elif isinstance(event, Gap) and event.kind == "filler" and event.end - event.start >= _LONG_FILLER:
                with open_file(segment) as reader:
                    raw = reader.read(event.start - segment.base, min(event.end - event.start, _TAIL_SIZE))
                stale = any(raw[message.Blank.sizeof() :])
                sample.stale_fillers += stale
                sample.zero_fillers += not stale
    return sample, last


def _events(split: Split, problems: list[str]) -> Iterator[object]:
    try:
        yield from scan_split(split, _HEAD_SIZE)
    except Unreadable as error:
        problems.append(str(error))


BUDGET = 64 << 20  # bytes of log walked at most
_STEP = 16 << 20  # bytes walked before testing whether only zeros follow
_BEFORE = 1 << 20  # bytes walked before the newest unit's record: a sample of what was written last
_WINDOW = 1 << 20  # bytes per read: little is walked
_TRIES = 32  # units that may point at nothing before the queues are given up
_PAGE = 4096


class LogEnd(Struct):
    """The last record, and what follows it. Offsets are physical.

    Found once per store and passed on: `info`, the version estimate and the plan of an export need it.
    """

    last_record: int | None = None
    last_timestamp: int | None = None  # ms
    newest_timestamp: int | None = None  # ms, of all records that were walked: a later one where the clock was set back
    end: int | None = None  # behind the last record and the blank record that may follow it
    looked_to: int | None = None  # how far was read; `rest` has what lies between the end and here
    rest: list[Gap] = field(default_factory=list)
    goes_on: bool = False  # the budget was used up before the chain ended
    damaged: bool = False  # a gap other than filler and zeros at the end was met on the way
    unread: list[str] = field(default_factory=list)  # what the system refused to read
    sample: Sample = field(default_factory=Sample)  # of the records that were walked


def find_log_end(store: Store, hints: Sequence[int], budget: int = BUDGET) -> LogEnd:
    """Return where the log ends; `hints` are physical offsets of records that may be the last.

    A file that cannot be opened is noted in `unread`.
    """
    found = _search(store, hints, LogEnd(), budget)
    if found.goes_on and hints:
        # The newest unit is far behind the log: queues lag, or units are lost.
        found = _search(store, [], LogEnd(sample=found.sample), budget)
    return found


def holds_data(segment: Segment) -> bool:
    """Return whether a segment begins with anything but zeros; holes of a sparse file count as zeros.

    :raises Unreadable: it cannot be read.
    """
    with open_file(segment) as reader:
        position = reader.next_allocated(0)
        return any(reader.read(0, _PAGE)) or (position > 0 and any(reader.read(position, _PAGE)))


def _search(store: Store, hints: Sequence[int], found: LogEnd, budget: int) -> LogEnd:
    """Walk from a good place near the end until the chain ends, or the budget."""
    segments = store.segments
    number, start = _where_to_begin(store, hints, found)
    while 0 <= number < len(segments):
        segment = segments[number]
        split = Split(segment, start, min(segment.size, start + _STEP))
        found.looked_to = segment.base + split.end
        _walk(split, found)
        zeros_follow = bool(found.rest) and found.rest[-1].kind == "zeros"
        budget -= split.end - split.start
        if split.end < segment.size and not zeros_follow:
            start = split.end
        elif found.end == segment.end and number + 1 < len(segments) and segments[number + 1].base == found.end:
            number, start = number + 1, 0
        else:
            break
        if budget <= 0:
            found.goes_on = True
            break
    return found


# --- where to begin -----------------------------------------------------------------------------


def _where_to_begin(store: Store, hints: Sequence[int], found: LogEnd) -> tuple[int, int]:
    """Return (number of a segment, position in it) from which the end is a short walk away."""
    segments = store.segments
    last = _last_with_data(segments, found)
    for hint in sorted(set(hints), reverse=True)[:_TRIES]:
        segment = store.segment_at(hint)
        number = -1 if segment is None else segments.index(segment)
        if segment is not None and number >= last and _is_record(segment, hint):
            return number, max(0, hint - segment.base - _BEFORE)
    if last < 0:
        return len(segments) - 1, 0
    try:
        with open_file(segments[last]) as reader:
            return last, max(0, _find_zeros(reader) - LOOK_BACK)
    except Unreadable as error:
        found.unread.append(str(error))
        return -1, 0


def _last_with_data(segments: Sequence[Segment], found: LogEnd) -> int:
    for number in range(len(segments) - 1, -1, -1):
        try:
            if holds_data(segments[number]):
                return number
        except Unreadable as error:
            found.unread.append(str(error))
    return -1


def _is_record(segment: Segment, offset: int) -> bool:
    # Not by a `RecordReader`, which reads a page: summaries tell how many bytes they read.
    try:
        with open_file(segment) as reader:
            return RecordFinder(segment, reader.size, reader.read).frame_at(offset) is not None
    except Unreadable:
        return False


def _find_zeros(reader: FileReader) -> int:
    """Return a position where data is followed by a page of zeros, or the file's size."""
    low, high = 0, -(-reader.size // _PAGE)
    while high - low > 1:
        middle = (low + high) // 2
        if any(reader.read(middle * _PAGE, _PAGE)):
            low = middle
        else:
            high = middle
    return min(high * _PAGE, reader.size)


# --- the walk -----------------------------------------------------------------------------------


def _walk(split: Split, found: LogEnd) -> None:
    """Walk one split and note what it holds."""
    if found.end is None:
        found.end = split.segment.base + split.start
    try:
        for event in scan_split(split, _WINDOW):
            if isinstance(event, Unread):
                found.unread.append(event.message)
            elif isinstance(event, Gap) and event.kind == "filler" and event.start == found.end:
                found.end = event.end
            elif isinstance(event, Gap):
                found.rest.append(event)
            elif isinstance(event, RecordRun):
                _take_records(event, split, found)
    except Unreadable as error:
        found.unread.append(str(error))


def _take_records(run: RecordRun, split: Split, found: LogEnd) -> None:
    records = run.records
    first, last = records.base + int(records.starts[0]), records.base + int(records.starts[-1])
    end = records.base + int(records.ends[-1])
    if run.stale:
        # An earlier life of the file, with its entry heads: what follows the end, if an end was seen.
        if found.rest:
            found.rest.append(Gap(first - split.segment.lead, end, "stale", None))
        return
    # What precedes the first record of a walk may belong to a record before it.
    found.damaged |= bool(found.rest) and (found.last_record is not None or split.start == 0)
    found.rest.clear()
    times = records.field("store_timestamp")
    found.last_record, found.last_timestamp = last, int(times[-1])
    found.newest_timestamp = max(int(times.max()), found.newest_timestamp or 0)
    found.end = end
    found.sample.take(records)

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
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqinspect.commitlog.find_record import RecordFinder
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.lenient_reader import Unread
from rmqinspect.commitlog.sample import Sample
from rmqinspect.commitlog.scan import LOOK_BACK, RecordRun, scan_split
from rmqinspect.commitlog.splits import Split
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

BUDGET = 64 << 20  # bytes of log walked at most
_STEP = 16 << 20  # bytes walked before testing whether only zeros follow
_BEFORE = 1 << 20  # bytes walked before the newest unit's record: a sample of what was written last
_WINDOW = 1 << 20  # bytes per read: little is walked
_TRIES = 32  # units that may point at nothing before the queues are given up
_PAGE = 4096


@dataclass(slots=True)
class LogEnd:
    """The last record, and what follows it. Offsets are physical.

    Found once per store and passed on: `info`, the version estimate and the plan of an export need it.
    """

    last_record: int | None = None
    last_timestamp: int | None = None  # ms
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
            elif isinstance(event, Gap):
                _take_gap(event, found)
            elif isinstance(event, RecordRun):
                _take_records(event, split, found)
    except Unreadable as error:
        found.unread.append(str(error))


def _take_gap(gap: Gap, found: LogEnd) -> None:
    if gap.kind == "filler" and gap.start == found.end:
        found.end = gap.end
    else:
        found.rest.append(gap)


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
    found.last_record, found.last_timestamp = last, int(records.field("store_timestamp")[-1])
    found.end = end
    found.sample.take(records)

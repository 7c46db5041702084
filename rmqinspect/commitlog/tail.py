"""Where the commit log ends, from a few MiB of it.

Nothing in a store says how long the log is. The consume queues nearly say it: the record that the
newest unit points at is near the end, and from there the chain is walked until it stops. Without
queues the end is looked for between a page with data and a page of zeros, which a hole in the log
can mislead; the walk still proves every record that is told.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.locate import read_frame
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.resync import Unread
from rmqinspect.commitlog.scan import LOOK_BACK, RecordRun, scan_split
from rmqinspect.commitlog.splits import Borders, Split
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

BUDGET = 64 << 20  # bytes of log that are walked at most
_STEP = 16 << 20  # walked before it is asked whether only zeros follow
_BEFORE = 1 << 20  # walked before the newest unit's record: a sample of what was written last
_WINDOW = 1 << 20  # little is walked, so little is read at a time
_TRIES = 32  # units that may point into nothing before the search does without them
_PAGE = 4096


@dataclass(slots=True)
class LogEnd:
    """The last record, and what follows it. Offsets are physical."""

    last_record: int | None = None
    last_timestamp: int | None = None  # ms
    end: int | None = None  # behind the last record and the blank record that may follow it
    looked_to: int | None = None  # the bytes between are in `rest`; what lies behind was not read
    rest: list[Gap] = field(default_factory=list)  # what follows the end, as far as was looked
    goes_on: bool = False  # the walk was given up before it came to an end
    damaged: bool = False  # a gap that is no filler and no tail of zeros was met on the way
    unread: list[str] = field(default_factory=list)  # what the system refused to read


def find_log_end(
    store: Store,
    hints: Sequence[int],
    see: Callable[[Records], None] | None = None,
    budget: int = BUDGET,
) -> LogEnd:
    """Return where the log ends; `hints` are physical offsets of records that may be the last.

    `see` gets the records that are walked; they are valid only while it runs. A file that cannot be
    opened is noted in `unread`.
    """
    found = _walk_on(store, hints, see, budget)
    if found.goes_on and hints:
        # The newest unit is far behind the log: its dispatch was, or queues are lost.
        found = _walk_on(store, [], see, budget)
    return found


def _walk_on(store: Store, hints: Sequence[int], see: Callable[[Records], None] | None, budget: int) -> LogEnd:
    found = LogEnd()
    segments = store.segments
    number, start = _where_to_begin(store, hints, found)
    while 0 <= number < len(segments):
        segment = segments[number]
        split = Split(segment, start, min(segment.size, start + _STEP))
        found.looked_to = segment.base + split.end
        complete = _walk(split, found, see)
        zeros_follow = bool(found.rest) and found.rest[-1].kind == "zeros"
        budget -= split.end - split.start
        if split.end < segment.size and not zeros_follow:
            start = split.end
        elif complete and number + 1 < len(segments) and segments[number + 1].base == found.end:
            number, start = number + 1, 0
        else:
            break
        if budget <= 0:
            found.goes_on = True
            break
    return found


def holds_data(segment: Segment) -> bool:
    """Tell whether a segment begins with anything but zeros; holes of a sparse file count as zeros.

    :raises Unreadable: it cannot be read.
    """
    with open_file(segment) as reader:
        position = reader.next_allocated(0)
        return any(reader.read(0, _PAGE)) or (position > 0 and any(reader.read(position, _PAGE)))


def _where_to_begin(store: Store, hints: Sequence[int], found: LogEnd) -> tuple[int, int]:
    """Return (which segment, position in it) from which the end is a short walk away."""
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
            return read_frame(reader, segment.base, offset) is not None
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


def _walk(split: Split, found: LogEnd, see: Callable[[Records], None] | None) -> bool:
    """Walk one split and note what it holds; tell whether its chain reaches the segment's end."""
    segment = split.segment
    lead = dledger.EntryHead.sizeof() if segment.kind == "dledger" else 0
    if found.end is None:
        found.end = segment.base + split.start
    try:
        for event in _events(split):
            if isinstance(event, Unread):
                found.unread.append(event.message)
            elif isinstance(event, Gap):
                if event.kind == "filler" and event.start == found.end:
                    found.end = event.end
                else:
                    found.rest.append(event)
            elif not event.stale:
                records = event.records
                # What precedes the first record of a walk may belong to a record before it.
                found.damaged |= bool(found.rest) and (found.last_record is not None or split.start == 0)
                found.last_record = records.base + int(records.starts[-1])
                found.last_timestamp = int(records.field("store_timestamp")[-1])
                found.rest.clear()
                found.end = records.base + int(records.ends[-1])
                if see:
                    see(records)
            elif found.rest:
                # Records of an earlier life of the file stand behind the end; lead: their entry heads.
                first, end = int(event.records.starts[0]) - lead, int(event.records.ends[-1])
                base = event.records.base
                found.rest.append(Gap(base + first, base + end, "stale", None))
    except Unreadable as error:
        found.unread.append(str(error))
    return found.end == segment.base + segment.size


def _events(split: Split) -> Iterator[RecordRun | Gap | Unread]:
    return (event for event in scan_split(split, _WINDOW) if not isinstance(event, Borders))

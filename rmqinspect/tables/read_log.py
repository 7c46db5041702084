"""The log, read split by split by threads: what every table and every fold of the log has in common.

    segment   |----split 0----|----split 1----|--2--|     threads read them, each on its own
    items     a, 5 MB, a, …, the split's result           taken in the order of the log

Invariants:
- What is yielded does not depend on the number of threads: a split whose borders differ is read again.
- Everything that could not be read, and every range that lost its records, is told through the request.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.lenient_reader import Unread
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import WINDOW_SIZE, RecordRun, redo_where_borders_differ, scan_split
from rmqinspect.commitlog.splits import Borders, ScanState, Split, plan_splits
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment
from rmqinspect.system.limits import keep_freed_memory
from rmqinspect.system.workers import stream_ordered
from rmqinspect.tables.table import Request
from rmqinspect.times import END_MILLI, FIRST_MILLI

Row = TypeVar("Row")

# Bytes. Large enough that the start of a split costs little; as many bytes of rows wait for each thread until those
# before them are taken.
SPLIT_SIZE = 32 << 20

_SMALL_WINDOW = 64 << 10

# Kinds of gaps that no broker leaves: records stood there. So do zeros that records follow.
_LOST_KINDS = frozenset({"unknown", "missing"})


@dataclass(frozen=True, slots=True)
class LogSplitRead:
    """The result of reading one split, apart from its rows."""

    split: Split
    unread: list[Unread]
    account: ByteAccount
    borders: Borders | None  # None: the file could not be opened


class Walked(NamedTuple):
    """A run of records whose rows are known."""

    position: int  # in the segment: where it ends
    records: int
    times: tuple[int, int] | None  # earliest and latest store time in ms, of those inside the years 1 to 9999


# What becomes known of a split while it is read, in this order: where it was entered; rows, up to where they are known,
# and what could not be read; the result.
Item: TypeAlias = ScanState | Row | Walked | Unread | LogSplitRead


def read_split(split: Split, rows_of: Callable[[RecordRun], Iterable[Row]]) -> Generator[Item[Row], None, None]:
    """Read a split to its end, whatever its damage; yield what becomes known, with the rows of each run.

    :raises Unreadable: the file cannot be opened; after the result.
    """
    keep_freed_memory()
    unread: list[Unread] = []
    account, borders = ByteAccount(split.segment), None
    entered: list[ScanState] = []
    failure: Unreadable | None = None
    try:
        for event in scan_split(split, _window_for(split), entered.append):
            if entered:
                yield entered.pop()
            if isinstance(event, Unread):
                unread.append(event)
                yield event
            elif isinstance(event, Borders):
                borders = event
            else:
                account.add(event)
            if isinstance(event, RecordRun):
                yield from rows_of(event)
                yield _walked(event.records, split)
    except Unreadable as error:
        base = split.segment.base
        unread.append(Unread(base + split.start, base + split.end, str(error)))
        failure = error
    yield LogSplitRead(split, unread, account, borders)
    if failure is not None:
        raise failure


def _walked(records: Records, split: Split) -> Walked:
    times = records.field("store_timestamp")
    times = times[(times >= FIRST_MILLI) & (times < END_MILLI)]
    position = records.base + int(records.ends[-1]) - split.segment.base
    return Walked(position, len(records), (int(times.min()), int(times.max())) if len(times) else None)


class Reading(Generic[Row]):
    """A split whose rows are taken while it is read."""

    def __init__(self, split: Split, items: Iterator[Item[Row]]) -> None:
        self.split = split
        self.account = ByteAccount(split.segment)
        self.borders: Borders | None = None  # the exit is right once all rows are taken
        first = next(items)
        if isinstance(first, ScanState):
            self.borders = Borders(first, first)
            self._items = items
        else:
            self._items = chain((first,), items)

    def rows(self, request: Request) -> Iterator[Row]:
        """Yield the rows; progress, and records, and what could not be read, are told in between."""
        tell, progress = request.on_unreadable, request.progress or (lambda size: None)
        done = self.split.start
        try:
            for item in self._items:
                if isinstance(item, Walked):
                    progress(item.position - done)
                    done = item.position
                    if request.on_records is not None:
                        request.on_records(item.records, item.times)
                elif isinstance(item, LogSplitRead):
                    self.account, self.borders = item.account, item.borders
                elif isinstance(item, Unread):
                    if tell is not None:
                        tell(item.message)
                elif not isinstance(item, ScanState):
                    yield item
        except Unreadable as error:
            if tell is None:
                raise
            tell(str(error))
        progress(self.split.end - done)


def readings(
    splits: Sequence[Split],
    request: Request,
    read: Callable[[Split], Generator[Item[Row], None, None]],
    size_of: Callable[[Item[Row]], int],
    room: int,
) -> Generator[Reading[Row], None, None]:
    """Yield splits of `splits_in`, in their order; take the rows of each before the next one.

    Threads run `read_split` or what adds to it, until items of a size of `room` wait. Ranges that lost their records
    are told through the request, but for holes between segments.
    """
    lost = _LostRanges(request)
    with closing(stream_ordered(read, splits, request.jobs, size_of, room)) as streams:
        started = (Reading(split, items) for split, items in zip(splits, streams, strict=True))
        entered_right = redo_where_borders_differ(
            started,
            lambda reading: reading.split,
            lambda reading: reading.borders,
            lambda split: Reading(split, read(split)),
        )
        for number, reading in enumerate(entered_right):
            yield reading
            lost.take(reading.account, splits[number + 1 : number + 2])


def splits_in(segments: Sequence[Segment], request: Request, *, whole: bool = False) -> list[Split]:
    """Return the splits to read of some segments, cut to the range of offsets asked for; with `whole` one of each."""
    splits = plan_splits(segments, 1 << 62 if whole else SPLIT_SIZE)
    if request.offsets is None:
        return splits
    start, end = request.offsets
    inside = (
        replace(
            split,
            start=max(split.start, start - split.segment.base),
            end=min(split.end, end - split.segment.base),
            entry=request.entry if split.start <= start - split.segment.base < split.end else None,
        )
        for split in splits
    )
    return [split for split in inside if split.start < split.end]


def _window_for(split: Split) -> int:
    """Return the bytes to read at a time: a split of few records needs no large window."""
    return max(_SMALL_WINDOW, min(WINDOW_SIZE, split.end - split.start))


def report_holes(holes: Iterable[Gap], request: Request) -> None:
    """Report the holes that reach into the range of offsets asked for."""
    first, last = request.offsets or (0, 1 << 63)
    for hole in holes:
        if request.on_gap is not None and hole.start < last and first < hole.end:
            request.on_gap(hole.kind, hole.start, hole.end)


class _LostRanges:
    """Reports the ranges that lost their records, when a segment was read: its splits cut gaps at their borders."""

    def __init__(self, request: Request) -> None:
        self._report = request.on_gap
        self._account: ByteAccount | None = None  # of the segment that is read
        self._zeros: list[Gap] = []  # at the end of what was read: unused space, unless records follow

    def take(self, account: ByteAccount, following: Sequence[Split] = ()) -> None:
        """Take the next split's account; `following` begins with the split after it."""
        if self._account is None:
            self._account = ByteAccount(account.segment)
        self._account.join(account)
        if self._report is None or (following and following[0].segment.path == account.segment.path):
            return
        gaps = [*self._zeros, *self._account.merged_gaps()]
        lost = lost_gaps(gaps, self._account.end or 0)
        for gap in lost:
            self._report(gap.kind, gap.start, gap.end)
        self._zeros = [gap for gap in gaps if gap.kind == "zeros" and gap not in lost]
        self._account = None


def lost_gaps(gaps: Iterable[Gap], log_end: int) -> list[Gap]:
    """Return the gaps that held records; `log_end` is the physical offset after the last record."""
    return [gap for gap in gaps if gap.kind in _LOST_KINDS or (gap.kind == "zeros" and gap.start < log_end)]

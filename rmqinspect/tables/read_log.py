"""The log, read split by split by threads: the one walk of all tables, folds, exports and samples.

    segment   |----split 0----|----split 1----|--2--|     threads read them, each on its own
    work      take take take    take take take  take      one for each split: rows, or what is kept of the records
    items     a, 5 MB, a, …, the split's result           taken in the order of the log

Who wants rows returns them from `take`; who counts or collects returns none, and keeps what `join` adds to the work of
the split before: numbers and distinct names, nothing for each record. A few wait for each thread. The splits are the
same for any number of threads, so a fold may forget something when it is joined.

Invariants:
- What is yielded does not depend on the number of threads: a split whose borders differ is read again.
- Everything that could not be read, and every range that lost its records, is told through the request.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from mmap import mmap
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rmqinspect.broker.behind_files import missing_behind
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import Borders, Gap, ScanState, Split, plan_splits
from rmqinspect.commitlog.missing import missing_in, unread_doubles
from rmqinspect.commitlog.scan import WINDOW_SIZE, RecordRun, redo_where_borders_differ, scan_split
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.system.workers import keep_freed_memory, stream_ordered
from rmqinspect.tables.request import Request
from rmqinspect.times import END_MILLI, FIRST_MILLI

Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)

# Bytes. Large enough that the start of a split costs little; as many bytes of rows wait for each thread until those
# before them are taken.
SPLIT_SIZE = 32 << 20

_SMALL_WINDOW = 64 << 10

# Kinds of gaps that no broker leaves: records stood there. So do zeros that records follow.
_LOST_KINDS = frozenset({"unknown", "missing"})


class Work(Protocol[Row_co]):
    """What is done with the records of one split."""

    def take(self, run: RecordRun) -> Iterable[Row_co] | None:
        """Take the next records of the chain; they are valid until this returns. Those of one split come in order.

        For the properties of few of them: `run.records.select(rows).properties` reads only theirs.
        """


@runtime_checkable
class TakesGaps(Protocol[Row_co]):
    """Work that makes rows of what lies in gaps, too."""

    def take_gap(self, segment: Segment, gap: Gap) -> Iterable[Row_co]:
        """Take the next gap of the split; its parts are taken one after the other."""


class LogFold(Work[Any], Protocol):
    """Work that only counts or collects."""

    def join(self, following: Self) -> None:
        """Add the fold of the part that follows."""


Fold = TypeVar("Fold", bound=LogFold)
Done = TypeVar("Done", bound=Work[Any])


class Collected:
    """Numbers that a fold keeps of records: columns by kind of record, joined part by part.

        {"op": {"of": np.int64, "offset": np.int64}, ...}   kind -> names and types of its columns, of one length each

    They stand in memory of their own: what they leave goes back to the system, without holes.
    """

    def __init__(self, kinds: Mapping[str, Mapping[str, type]]) -> None:
        self._rooms: dict[str, dict[str, NDArray[Any]]] = {
            kind: {name: np.zeros(0, dtype) for name, dtype in dtypes.items()} for kind, dtypes in kinds.items()
        }
        self._counts = dict.fromkeys(kinds, 0)

    def __getitem__(self, kind: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a kind."""
        return {name: room[: self._counts[kind]] for name, room in self._rooms[kind].items()}

    def add(self, kind: str, *columns: NDArray[Any] | int) -> None:
        """Add records: the columns in the order of their names; a number stands in all rows."""
        rooms, start = self._rooms[kind], self._counts[kind]
        end = self._counts[kind] = start + max(len(one) for one in columns if isinstance(one, np.ndarray))
        for (name, room), values in zip(rooms.items(), columns, strict=True):
            if end > len(room):
                # Twice as much as is needed: what is not written yet takes no memory.
                rooms[name] = np.frombuffer(mmap(-1, 2 * end * room.itemsize), room.dtype)
                rooms[name][:start] = room[:start]
            rooms[name][start:end] = values

    def join(self, following: "Collected") -> None:
        """Add what the part of the log that follows holds."""
        for kind in following._rooms:
            self.add(kind, *following[kind].values())

    def pop(self, kind: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a kind, and keep them no longer."""
        found = self[kind]
        del self._rooms[kind]
        return found


class OnlyBytes:
    """Keeps nothing: for who asks for the accounts alone."""

    def take(self, run: RecordRun) -> None:
        """Keep nothing."""

    def join(self, following: Self) -> None:
        """Add nothing."""


class LogSplitRead(Struct, frozen=True):
    """The result of reading one split, apart from its rows."""

    split: Split
    unread: list[Unread]
    account: ByteAccount
    borders: Borders | None  # None: the file could not be opened
    work: Any  # what was done with its records


class Walked(NamedTuple):
    """A run of records whose rows are known."""

    position: int  # in the segment: where it ends
    records: int
    times: tuple[int, int] | None  # earliest and latest store time in ms, of those inside the years 1 to 9999


# What becomes known of a split while it is read, in this order: where it was entered; rows, up to where they are known,
# and what could not be read; the result.
Item: TypeAlias = ScanState | Row | Walked | Unread | LogSplitRead


def read_split(split: Split, new: Callable[[], Work[Row]]) -> Generator[Item[Row], None, None]:
    """Read a split to its end, whatever its damage; yield what becomes known, with the rows of each run.

    :raises Unreadable: the file cannot be opened; after the result.
    """
    keep_freed_memory()
    unread: list[Unread] = []
    account, borders, work = ByteAccount(split.segment), None, new()
    entered: list[ScanState] = []
    failure: Unreadable | None = None
    try:
        # A split of few records needs no large window.
        window = max(_SMALL_WINDOW, min(WINDOW_SIZE, split.end - split.start))
        for event in scan_split(split, window, entered.append):
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
                yield from work.take(event) or ()
                times = event.records.field("store_timestamp")
                times = times[(times >= FIRST_MILLI) & (times < END_MILLI)]
                position = event.records.base + int(event.records.ends[-1]) - split.segment.base
                known = (int(times.min()), int(times.max())) if len(times) else None
                yield Walked(position, len(event.records), known)
            elif isinstance(event, Gap) and isinstance(work, TakesGaps):
                yield from work.take_gap(split.segment, event)
    except Unreadable as error:
        base = split.segment.base
        unread.append(Unread(base + split.start, base + split.end, str(error)))
        failure = error
    yield LogSplitRead(split, unread, account, borders, work)
    if failure is not None:
        raise failure


class Reading(Generic[Row]):
    """A split whose rows are taken while it is read."""

    def __init__(self, split: Split, items: Iterator[Item[Row]]) -> None:
        """Take what becomes known of it: the items of `read_split`."""
        self.split = split
        self.result: LogSplitRead | None = None  # known once all rows are taken
        self.borders: Borders | None = None  # the exit is right once all rows are taken
        first = next(items)
        if isinstance(first, ScanState):
            self.borders = Borders(first, first)
            self._items = items
        else:
            self._items = chain((first,), items)

    def rows(self, request: Request) -> Iterator[Row]:
        """Yield the rows; progress, and records, and what could not be read, are told in between."""
        progress = request.progress or (lambda size: None)
        done = self.split.start
        try:
            for item in self._items:
                if isinstance(item, Walked):
                    progress(item.position - done)
                    done = item.position
                    if request.on_records is not None:
                        request.on_records(item.records, item.times)
                elif isinstance(item, LogSplitRead):
                    self.result, self.borders = item, item.borders
                elif isinstance(item, Unread):
                    if request.on_unreadable is not None:
                        request.on_unreadable(item.message)
                elif not isinstance(item, ScanState):
                    yield item
        except Unreadable as error:
            request.tell_unread(error)
        progress(self.split.end - done)

    def end(self) -> LogSplitRead:
        """Return what was read; all rows are taken."""
        assert self.result is not None, "a split ends with its result"
        return self.result


def readings(
    splits: Sequence[Split],
    request: Request,
    new: Callable[[], Work[Row]],
    size_of: Callable[[Item[Row]], int] | None = None,
    room: int = 0,
    *,
    apart: bool = False,
) -> Generator[Reading[Row], None, None]:
    """Yield splits of `splits_in`, in their order; take the rows of each before the next one.

    Threads do the work that `new` makes for each split, until items of a size of `room` wait; without a `size_of`
    results for each thread. Ranges that lost their records are told through the request, but for those that no
    file has. Splits that lie `apart` are read each on its own: their borders are guessed, no lost range is told.

    :raises Unreadable: a file cannot be opened, and there is no `request.on_unreadable`.
    """
    read = partial(read_split, new=new)
    if size_of is None:
        # Positions and messages take no room worth counting.
        size_of, room = lambda item: int(isinstance(item, LogSplitRead)), request.jobs
    with closing(stream_ordered(read, splits, request.jobs, size_of, room)) as streams:
        started = (Reading(split, items) for split, items in zip(splits, streams, strict=True))
        if apart:
            yield from started
            return
        lost = _LostRanges(request)
        entered_right = redo_where_borders_differ(
            started,
            lambda reading: reading.split,
            lambda reading: reading.borders,
            lambda split: Reading(split, read(split)),
        )
        for number, reading in enumerate(entered_right):
            yield reading
            lost.take(reading.end().account, splits[number + 1 : number + 2])


def fold_log(store: Store, request: Request, new: Callable[[], Fold]) -> Fold:
    """Return the fold of the records of `messages` that start in `request.offsets`; `new` makes an empty one.

    Progress, lost ranges and what could not be read are told through the request.

    :raises Unreadable: a file cannot be opened, and there is no `request.on_unreadable`.
    """
    whole = new()
    report_account(store, request)
    report_behind(store, request)
    for fold, _ in folds_of(splits_in(store.log_files, request), request, new):
        whole.join(fold)
    return whole


def folds_of(
    splits: Sequence[Split], request: Request, new: Callable[[], Done], *, apart: bool = False
) -> Generator[tuple[Done, ByteAccount], None, None]:
    """Yield what was done with each split, and what its bytes are, in the order of the splits; as `readings`."""
    with closing(readings(splits, request, new, apart=apart)) as found:
        for reading in found:
            for _ in reading.rows(request):
                pass
            yield reading.end().work, reading.end().account


def add_account(accounts: dict[str, ByteAccount], account: ByteAccount) -> None:
    """Add the account of a split to that of its segment; `accounts` is by path."""
    accounts.setdefault(account.segment.path, ByteAccount(account.segment)).join(account)


def splits_in(segments: Sequence[Segment], request: Request, *, whole: bool = False) -> list[Split]:
    """Return the splits to read of some segments, cut to the range of offsets asked for; with `whole` one of each."""
    splits = plan_splits(segments, 1 << 62 if whole else SPLIT_SIZE)
    if request.offsets is None:
        return splits
    start, end = request.offsets
    inside = [clipped for split in splits if (clipped := split.clipped(start, end)) is not None]
    begins = [split.segment.base + split.start == start for split in inside]  # where the state is known
    return [replace(one, entry=request.entry) if known else one for one, known in zip(inside, begins, strict=True)]


def report_account(store: Store, request: Request) -> None:
    """Report what the log lacks in the range of offsets asked for: what no file has, and files that are not read."""
    report_missing(missing_in(store), request)
    report_doubles(store.segments, request)


def report_behind(store: Store, request: Request) -> None:
    """Report what is missing behind the last file of the log, if the range asked for has no end there."""
    _, beyond = request.offsets or (0, 1 << 63)
    if store.segments and beyond > max(segment.end for segment in store.segments):
        report_missing(missing_behind(store), request)


def report_doubles(segments: Iterable[Segment], request: Request) -> None:
    """Report the files that are not read, for one before them has their base, and that hold other bytes than it."""
    try:
        for message in unread_doubles(segments, request.offsets or (0, 1 << 63)):
            request.tell_unread(Unreadable(message))
    except Unreadable as error:
        request.tell_unread(error)


def report_missing(gaps: Iterable[Gap], request: Request) -> None:
    """Report what no file has, of some gaps those that reach into the range of offsets asked for."""
    first, last = request.offsets or (0, 1 << 63)
    for gap in gaps:
        if request.on_gap is not None and gap.start < last and first < gap.end:
            request.on_gap(gap.kind, gap.start, gap.end)


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
    """Return the gaps that held records; `log_end` is the physical offset after the last record.

    What bytes hold that could not be read is not known: they are no gap, and are told as unreadable.
    """
    read = (gap for gap in gaps if gap.reason != "unreadable")
    return [gap for gap in read if gap.kind in _LOST_KINDS or (gap.kind == "zeros" and gap.start < log_end)]

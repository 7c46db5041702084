"""The records of all segments that a store and its other choices have.

A log is read once for all releases and all other choices of a store: each segment has columns of its own, so that a
store without one of them, or with one more, needs no other read. What another reader of the log has found is taken from
it (`forecast.feed`). A forecast that reads the log itself keeps 25 bytes for each record, and so reads no more than
`JUDGED` bytes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.forecast.fed_scan import FedScan
from rmqinspect.forecast.feed import Feed, Part
from rmqinspect.forecast.outcome import note_unread
from rmqinspect.forecast.record_fold import Queue, QueueRecords, RecordFold
from rmqinspect.forecast.settled import NOT_COMPARED, Comparison, QueueLog, Ranges
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables.read_log import add_account, folds_of, lost_gaps, splits_in
from rmqinspect.tables.request import Request

JUDGED = 1 << 30
"""The longest log, in bytes, that is always read whole."""


def log_size(store: Store, end: int | None = None) -> int:
    """Return the bytes of the segments of a store, as far as the log reaches; `end`: None where that is not known.

    Behind its end lie zeros: a broker makes the next segment before it needs it.
    """
    return sum(
        segment.size if end is None else max(0, min(segment.size, end - segment.base)) for segment in store.segments
    )


class LogView:
    """The records of a log that consists of some segments."""

    def __init__(self, parts: Sequence[Mapping[Queue, QueueRecords]], comparison: Comparison, ranges: Ranges) -> None:
        """Take those that are kept of each segment, in the order of the log; `ranges`: where the others may lie."""
        self._parts = parts
        self._comparison = comparison
        self._ranges = ranges
        self.queues = sorted({queue for part in parts for queue in part} | set(comparison.settled))

    def of(self, queue: Queue) -> QueueLog:
        """Return the records of a queue."""
        found = [part[queue] for part in self._parts if queue in part]
        return QueueLog(QueueRecords.joined(found), self._comparison, queue, self._ranges)


class LogRecords(Struct):
    """The records of all segments that one store and its other choices have, each segment read once."""

    jobs: int = 1
    progress: Callable[[int], None] | None = None
    announce: Callable[[int, str], None] | None = None
    unread: list[str] = field(default_factory=list)  # what the system refused to read
    is_sound: bool = False  # the store that was read first: no record of it is damaged, and no byte of it is lost
    _first: Sequence[Segment] = ()  # its segments
    _records: Mapping[Queue, QueueRecords] = field(default_factory=dict)  # of them
    _comparison: Comparison = NOT_COMPARED  # of them with their units
    is_too_large: bool = False  # more of them would have to be kept than there is room for
    _alone: dict[Segment, Mapping[Queue, QueueRecords]] = field(default_factory=dict)  # of other segments

    def of(self, store: Store) -> LogView:
        """Return the records of a store, of all its segments."""
        if not self._first:
            self.read(store)
        if store.segments == self._first:
            return LogView([self._records], self._comparison, None)
        ranges = [(segment.base, segment.end) for segment in store.segments if self._is_known(segment)]
        return LogView([self._part(store, segment) for segment in store.segments], self._comparison, ranges)

    @property
    def are_known(self) -> bool:
        """Whether the log was read."""
        return bool(self._first)

    def feed(self, store: Store, scans: Sequence[FedScan], *, asks: bool) -> Feed:
        """Return what a reader of the whole log of a store can feed; `asks`: the records are wanted, too."""
        if not asks:
            return Feed(scans)
        return Feed(scans, partial(RecordFold, store), partial(self._know, store))

    def read(self, store: Store, scans: Sequence[FedScan] = ()) -> None:
        """Read the log of a store that is asked for first, unless another reader has; scans take what they want."""
        if self._first:
            return
        if self.announce is not None:
            self.announce(log_size(store), "the log is read, for what consumers get of it after the start")
        fold, accounts = self._fold(store, store, scans)
        self._know(store, fold, accounts, not self.unread)

    def read_anew(self, store: Store) -> None:
        """Read the log of a store again: what another reader has found does not hold for its queues."""
        self._first, self._comparison = (), NOT_COMPARED
        self._alone.clear()
        self.read(store)

    def _know(self, store: Store, fold: RecordFold, accounts: Collection[ByteAccount], was_read: bool) -> None:
        ends = (account.end for account in accounts if account.end is not None)
        end = max(ends, default=0)
        lost = any(lost_gaps(account.merged_gaps(), end) for account in accounts)
        self.is_too_large = fold.is_too_large
        self._first, self._records = store.segments, fold.by_queue()
        self._comparison = Comparison.of(store, fold, self._records)
        self.is_sound = was_read and not (lost or fold.damaged or fold.unread or missing_in(store))

    def _part(self, store: Store, segment: Segment) -> Mapping[Queue, QueueRecords]:
        """Return the records of one segment."""
        if self._is_known(segment):
            inside = {queue: some.between(segment.base, segment.end) for queue, some in self._records.items()}
            return {queue: some for queue, some in inside.items() if len(some.places)}
        if segment not in self._alone:
            fold, _ = self._fold(replace(store, segments=(segment,)), store)
            self._alone[segment] = fold.by_queue()
        return self._alone[segment]

    def _is_known(self, segment: Segment) -> bool:
        """Whether a segment is one of those that were read first, and alone in its place."""
        return segment in self._first and [one.base for one in self._first].count(segment.base) == 1

    def _fold(
        self, read: Store, whole: Store, scans: Sequence[FedScan] = ()
    ) -> tuple[RecordFold, Collection[ByteAccount]]:
        """Read a log; `whole` is where originals of copies are looked for."""
        request = Request(jobs=self.jobs, progress=self.progress, on_unreadable=self.unread.append)
        found, accounts = RecordFold(whole), dict[str, ByteAccount]()
        new = partial(Part, whole, Feed(scans).begin)
        for part, account in folds_of(splits_in(read.log_files, request), request, new):
            found.join(part.fold)
            part.hand_on(account.segment, scans if not read.doubles else ())  # a broker scans all files of one base
            add_account(accounts, account)
        note_unread(self.unread, *found.unread)
        return found, accounts.values()

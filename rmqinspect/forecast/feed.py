"""What a forecast takes of the log, whoever reads it: `verify`, or the forecast itself. So no byte is read twice.

log        split 1          split 2          split 3         read by any thread, taken in log order
scans          take(columns)    take(columns)    ...         `forecast.fed_scan`
records        join(fold)       join(fold)       ...  know   `forecast.record_fold`
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from rmqinspect.broker.dispatch import Dispatcher
from rmqinspect.codec.byte_ranges import Key, Numbering
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.forecast.fed_scan import FedScan, doubts_of
from rmqinspect.forecast.record_fold import RecordFold
from rmqinspect.store.model import Segment, Store

_NOWHERE = 1 << 63


class Feed(NamedTuple):
    """What a reader of the whole log can feed."""

    scans: Sequence[FedScan] = ()
    new_fold: Callable[[], RecordFold] | None = None  # None: nobody asks for the records
    # Takes the records, the account of each segment, and whether all bytes could be read.
    know: Callable[[RecordFold, Collection[ByteAccount], bool], None] | None = None

    @property
    def begin(self) -> int:
        """Physical offset from which the scans want records."""
        return min((scan.begin for scan in self.scans), default=_NOWHERE)


NO_FEED = Feed()


class Part:
    """The records of one split, as a forecast takes them that reads the log itself."""

    def __init__(self, store: Store, begin: int) -> None:
        """Take records; columns for the scans of those behind a physical offset."""
        self.fold = RecordFold(store)
        self._begin = begin
        self._numbering = Numbering()
        self._queues: list[Key] = []
        self._dispatcher = Dispatcher(keys=False, key_counts=True, rules=())
        self._doubts = 0

    def take(self, run: RecordRun) -> None:
        """Take a run of records."""
        self.fold.take(run)
        records = run.records
        if run.stale or not len(records) or int(records.places[0]) < self._begin:
            return
        topics = records.topic_starts, records.topic_ends
        numbers = self._numbering.number(records.bytes, *topics, records.field("queue_id"))
        self._queues += self._numbering.keys_from(len(self._queues))
        sound = records.body_crc_ok & (records.physical_offset == records.places)
        self._dispatcher.take(records, numbers, self._queues, sound)
        self._doubts |= doubts_of(records)

    def hand_on(self, segment: Segment, scans: Sequence[FedScan]) -> None:
        """Let the scans take the columns of the records."""
        found = self._dispatcher.columns(self._queues)
        for scan in scans if len(found) else ():
            scan.take(segment, found, self._doubts)

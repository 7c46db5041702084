"""What a page counts of the records of a log, while `verify` reads them: so the log is read once.

    verify   split 1            split 2            judged in any thread, joined in log order
             |rec|rec|rec|      |rec|rec|rec|
    page     PageFold           PageFold           usage, inflow by topic, transactions, delayed messages

`PageFold` is a `LogFold` of four, each the same that its own command makes. What they say is what these commands say.

The inflow is kept by topic and second of the store time; by the minute, hour or day once there are very many of both.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, merge
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.queue_offsets import offsets_taken
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.document import Part
from rmqinspect.loops.record_rows import SUM_BYTES, SUM_MESSAGES
from rmqinspect.store.model import Store
from rmqinspect.tables.delay_sources import CopyFold
from rmqinspect.tables.read_log import lost_gaps
from rmqinspect.tables.tally import MOST, Tally
from rmqinspect.tables.transactions import TransactionRecords
from rmqinspect.tables.usage import UsageFold, names_of

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000  # ms
_UNITS = (_SECOND, _MINUTE, _HOUR, _DAY)
_STEPS = (
    *(_SECOND * number for number in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 7, 30, 90, 365)),
)
_LONGEST = 365 * _DAY

# A few records with odd clocks must not make the rest one column: what lies this many times the span of nearly all
# records away is only counted.
_ODD = 0.01  # the share of messages at either end that may be odd
_FAR = 8


class FlowFold:
    """Messages and bytes by topic and time of storage, in a part of the log; nothing of an earlier life of a file."""

    def __init__(self) -> None:
        self.tally = Tally()  # topic; number of `unit` since 1970
        self.unit = _SECOND  # ms

    def take(self, run: RecordRun) -> None:
        """Count the records of a run."""
        records = run.records
        if run.stale or not len(records):
            return
        numbers = records.field("store_timestamp") // self.unit
        taken = offsets_taken(records)
        self.tally.take(records.bytes, records.topic_starts, records.topic_ends, numbers, records.rows, taken)
        self._coarsen()

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        for part in (self, following):
            part._coarsen(max(self.unit, following.unit))
        self.tally.join(following.tally)
        self._coarsen()

    def _coarsen(self, unit: int = 0) -> None:
        for coarser in _UNITS:
            if coarser > self.unit and (coarser <= unit or len(self.tally.keys) > MOST // 2):
                self.tally = self.tally.with_integers(self.tally.keys.integers * self.unit // coarser)
                self.unit = coarser


class PageFold:
    """All that a page counts of a part of the log."""

    def __init__(self) -> None:
        self.usage = UsageFold(by=frozenset())
        self.flow = FlowFold()
        self.transactions = TransactionRecords()
        self.delays = CopyFold()

    def take(self, run: RecordRun) -> None:
        """Count the records of a run."""
        for part in (self.usage, self.flow, self.transactions, self.delays):
            part.take(run)

    def join(self, following: Self) -> None:
        """Add the part that follows."""
        self.usage.join(following.usage)
        self.flow.join(following.flow)
        self.transactions.join(following.transactions)
        self.delays.join(following.delays)


def lost_ranges(store: Store, accounts: Iterable[ByteAccount]) -> list[tuple[int, int]]:
    """Return the ranges of a log that lost their records, as `fold_log` tells them: physical offsets."""
    known = list(accounts)
    end = max((account.end for account in known if account.end is not None), default=0)
    gaps = [gap for account in known for gap in account.merged_gaps()]
    return merge((gap.start, gap.end) for gap in (*missing_in(store), *lost_gaps(gaps, end)))


# --- the time line ----------------------------------------------------------------------------------------


class TopicFlow(Part, frozen=True):
    """What came in for one topic, column by column."""

    topic: str | None  # None: all other topics together
    messages: list[int]
    bytes: list[int]


class Flow(Part, frozen=True):
    """What came in when: columns of equal length."""

    begin: int  # ms since 1970 at which the first column begins
    step: int  # ms of a column
    topics: list[TopicFlow]  # those with the most bytes first; together all messages of the columns
    outside: int  # messages whose store time lies so far away that they are in no column


def flow_of(fold: FlowFold, columns: int, topics: int) -> Flow | None:
    """Return the time line in at most so many columns and topics; None without records."""
    tally = fold.tally
    if not len(tally.keys):
        return None
    times, messages, sizes = tally.keys.integers, tally.sums[:, SUM_MESSAGES], tally.sums[:, SUM_BYTES]
    first, last = _nearly_all(times, messages)
    inside = (times >= first) & (times <= last)
    step = next((one for one in _STEPS if one >= fold.unit and _width(first, last, one, fold.unit) <= columns), None)
    if step is None:  # clocks that are thousands of years apart
        step = _LONGEST * -(-_width(first, last, _LONGEST, fold.unit) // columns)
    numbers = times[inside] * fold.unit // step
    begin = int(numbers.min())
    width = int(numbers.max()) - begin + 1

    def row(name: str | None, which: Bools) -> TopicFlow:
        counted = (np.bincount(numbers[which] - begin, some[inside][which], width) for some in (messages, sizes))
        return TopicFlow(name, *(np.rint(one).astype(np.int64).tolist() for one in counted))

    names = names_of(tally, np.flatnonzero(inside)).dictionary_encode()
    distinct, of = names.dictionary.to_pylist(), names.indices.to_numpy()
    totals = np.bincount(of, sizes[inside])
    order = sorted(range(len(distinct)), key=lambda number: (-totals[number], distinct[number]))
    shown = order[: topics if len(order) <= topics else topics - 1]
    rows = [row(distinct[number], of == number) for number in shown]
    if len(shown) < len(order):
        rows.append(row(None, ~np.isin(of, shown)))
    return Flow(begin * step, step, rows, int(messages[~inside].sum()) + int(tally.others[SUM_MESSAGES]))


def _width(first: int, last: int, step: int, unit: int) -> int:
    return last * unit // step - first * unit // step + 1


def _nearly_all(times: Ints, messages: Ints) -> tuple[int, int]:
    """Return the first and last number of all times; without the few that lie very far from all others."""
    order = np.argsort(times, kind="stable")
    share = np.cumsum(np.maximum(messages[order], 0)) / max(int(np.maximum(messages, 0).sum()), 1)
    ends = np.minimum(np.searchsorted(share, (_ODD, 1 - _ODD)), len(order) - 1)
    low, high = times[order[ends]].tolist()
    room = _FAR * (high - low + 1)
    first, last = int(times.min()), int(times.max())
    return (first if low - first <= room else low), (last if last - high <= room else high)


def times_at(found: CopyFold, places: Sequence[int]) -> list[int | None]:
    """Return the highest store time (ms) of the records before each physical offset; None where there is none."""
    runs = found.found["run"]
    highest = np.maximum.accumulate(runs["last_time"]) if len(runs["place"]) else runs["last_time"]
    at = np.searchsorted(runs["place"], np.array(places, np.int64), "left") - 1
    return [int(highest[number]) if number >= 0 else None for number in at.tolist()]

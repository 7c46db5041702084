"""Who points where: what a worker needs to check all that points into its split of the log.

Made once from the surveys of the queues and index files, sent once to each process.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.index_geometry import IndexFile
from rmqinspect.pieces import Ints, Run
from rmqinspect.resync import ENTRY_HEAD
from rmqinspect.scan import Split
from rmqinspect.store import QueueFile, StoreFile

QueueName = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows of numbered files by the split that they point into: shape (n, 4), ascending by split."""

    rows: Ints  # split, number of the file, first row, number of rows

    @classmethod
    def of(cls, runs: Iterable[tuple[int, Run]]) -> "Runs":
        """Sort runs that come with the number of their file."""
        rows = np.array([(run.split, file, run.first, run.rows) for file, run in runs], np.int64).reshape(-1, 4)
        return cls(rows[np.argsort(rows[:, 0], kind="stable")])

    def of_split(self, number: int) -> list[tuple[int, int, int]]:
        """Return (file, first row, rows) of the runs that point into a split."""
        begin, end = np.searchsorted(self.rows[:, 0], (number, number + 1)).tolist()
        return [(file, first, count) for _, file, first, count in self.rows[begin:end].tolist()]


NO_RUNS = Runs(np.empty((0, 4), np.int64))


def border_of(split: Split) -> int:
    """Return the least physical offset that a record of a split can have, apart from the first of a segment.

    A record of a DLedger segment belongs to the split where its entry's head begins.
    """
    lead = ENTRY_HEAD if split.segment.kind == "dledger" and split.start else 0
    return split.segment.base + split.start + lead


@dataclass(frozen=True)
class CrossPlan:
    """What points into the log, cut by splits, and what is asked about it."""

    splits: tuple[tuple[str, int], ...]  # path of the segment and start, ascending by physical offset
    borders: tuple[int, ...]  # physical offset where each begins
    deep: bool = False  # also from the log to the queues and the index
    queue_files: tuple[QueueFile, ...] = ()
    queue_runs: Runs = NO_RUNS
    unread: frozenset[QueueName] = frozenset()  # queues of which a part could not be read
    whole: bool = False  # all queues of the store were given: one that is absent is lost
    ext_files: Mapping[QueueName, Sequence[QueueFile]] = field(default_factory=dict)
    may_hold: frozenset[str] = frozenset()  # of dispatch.DIFFERENCES, by the assumed version
    must_hold: frozenset[str] = frozenset()
    lmq_elsewhere: bool = False  # units of light queues may be in RocksDB only
    index: tuple[IndexFile, ...] = ()
    index_runs: Runs = NO_RUNS
    index_range: tuple[int, int] | None = None  # physical offsets of the first and the last entry
    index_complete: bool = True  # all index files could be read
    index_used: tuple[int, ...] = ()  # by index file: number of the newest entry
    timed: tuple[bool, ...] = ()  # by index file: its header's begin can be believed
    timer_files: tuple[StoreFile, ...] = ()
    timer_runs: Runs = NO_RUNS
    entry_index: tuple[StoreFile, ...] = ()  # the index of DLedger entries

    @property
    def needs_records(self) -> bool:
        """Whether anything points into the log, or something should."""
        pointers = self.queue_files or self.index_range is not None or self.timer_files
        return bool(pointers) or (self.deep and self.whole)

    def number_of(self, split: Split) -> int:
        """Return the number of a split in the plan."""
        base = border_of(split)
        low, high = bisect_left(self.borders, base), bisect_right(self.borders, base)
        return next(n for n in range(low, high) if self.splits[n] == (split.segment.path, split.start))

    def range_of(self, number: int) -> tuple[int, int]:
        """Return the physical offsets [low, high) whose pointers are a split's, holes behind it included."""
        low = self.borders[number]
        high = self.borders[number + 1] if number + 1 < len(self.borders) else 1 << 63
        return low, high

"""Who points where: what a worker needs to check all that points into its split of the log.

Made once from the surveys of the queues and index files, sent once to each process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.splits import Split
from rmqinspect.index.geometry import IndexFile
from rmqinspect.store.model import QueueFile, StoreFile
from rmqinspect.verify.runs import Run

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

    @classmethod
    def joined(cls, parts: Iterable["Runs"]) -> "Runs":
        """Return all runs of parts whose files are numbered alike."""
        rows = np.concatenate([NO_RUNS.rows, *(part.rows for part in parts)])
        return cls(rows[np.argsort(rows[:, 0], kind="stable")])

    def of_split(self, number: int) -> list[tuple[int, int, int]]:
        """Return (file, first row, rows) of the runs that point into a split."""
        begin, end = np.searchsorted(self.rows[:, 0], (number, number + 1)).tolist()
        return [(file, first, count) for _, file, first, count in self.rows[begin:end].tolist()]

    def pieces(self, number: int, most: int) -> Iterator["Runs"]:
        """Yield the runs of a split again, in pieces of up to so many rows."""
        for file, first, count in self.of_split(number):
            for start in range(0, count, most):
                yield Runs(np.array([[number, file, first + start, min(most, count - start)]], np.int64))


NO_RUNS = Runs(np.empty((0, 4), np.int64))


@dataclass(frozen=True)
class LogMap:
    """Which offsets of the log are which split's. What no split has is numbered too: holes, and what lies behind."""

    borders: tuple[int, ...] = (0,)  # physical offsets, ascending: number n has those up to the next border
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)  # by path of the segment and start
    outside: tuple[int, ...] = (0,)  # numbers that are no split


def map_log(splits: Sequence[Split]) -> LogMap:
    """Give each offset to one split. Of segments that overlap, or have the same base, the later one has it.

    A record of a DLedger segment belongs to the split where its entry's head begins.
    """
    borders: list[int] = []
    numbers: dict[tuple[str, int], int] = {}
    outside: list[int] = []
    reached: int | None = None
    for number, split in enumerate(splits):
        segment = split.segment
        lead = segment.lead
        start = segment.base + split.start + (lead if split.start else 0)
        end = segment.base + split.end + (lead if split.end < segment.size else 0)
        following = next((s.segment.base for s in splits[number + 1 :] if s.segment is not segment), None)
        if following is not None and following <= start:
            continue
        if reached is not None and reached < start:
            outside.append(len(borders))
            borders.append(reached)
        numbers[segment.path, split.start] = len(borders)
        borders.append(start)
        reached = end if following is None else min(end, following)
    outside.append(len(borders))
    borders.append(reached or 0)
    return LogMap(tuple(borders), numbers, tuple(outside))


@dataclass(frozen=True)
class CrossPlan:
    """What points into the log, cut by splits, and what is asked about it."""

    log: LogMap
    deep: bool = False  # also from the log to the queues and the index
    queue_files: tuple[QueueFile, ...] = ()
    queue_runs: Runs = NO_RUNS
    unread: frozenset[QueueName] = frozenset()  # queues of which a part could not be read
    unread_topics: frozenset[str] = frozenset()  # of which no queue is known to be all there
    whole: bool = False  # all queues of the store were given: one that is absent is lost
    ext_files: Mapping[QueueName, Sequence[QueueFile]] = field(default_factory=dict)
    may_hold: frozenset[str] = frozenset()  # of dispatch.DIFFERENCES, by the assumed version
    elsewhere: bool = False  # units may be in RocksDB only, which was not read
    index: tuple[IndexFile, ...] = ()
    index_runs: Runs = NO_RUNS
    index_range: tuple[int, int] | None = None  # physical offsets of the first and the last entry
    index_complete: bool = True  # all index files could be read
    index_used: tuple[int, ...] = ()  # by index file: number of the newest entry
    timed: tuple[bool, ...] = ()  # by index file: its header's begin can be believed
    timer_files: tuple[StoreFile, ...] = ()
    timer_runs: Runs = NO_RUNS
    entry_index: tuple[StoreFile, ...] = ()  # the index of DLedger entries

    def is_unread(self, name: QueueName) -> bool:
        """Whether units of a queue may stand where nobody could look."""
        return name in self.unread or name[0] in self.unread_topics

    @property
    def needs_records(self) -> bool:
        """Whether anything points into the log, or something should."""
        pointers = self.queue_files or self.index_range is not None or self.timer_files
        return bool(pointers) or (self.deep and self.whole)

    def number_of(self, split: Split) -> int | None:
        """Return the number of a split; None for one whose offsets are all another's."""
        return self.log.numbers.get((split.segment.path, split.start))

    def range_of(self, number: int) -> tuple[int, int]:
        """Return the physical offsets [low, high) that a number has."""
        borders = self.log.borders
        return borders[number], borders[number + 1] if number + 1 < len(borders) else 1 << 63

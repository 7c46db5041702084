"""The plan of the third phase: what a thread needs to check a split of the log with all that points into it.

    offsets of the log   0 ........ 64M ....... 128M    (hole)    256M ...
    split                |  split 0  |  split 1  |               | split 2 |
    number               |     0     |     1     |       2       |    3    |  4
                                                   no split: `outside`

Every offset has one number, so each pointer is judged once. Made from the surveys; all threads read the same one.

Queue units, index entries and timer units point into the log, nearly always in ascending order:

    rows of a file   | 0 1 2 3 4 | 5 6 7 | 8 9 ...
    split            |     0     |   1   |  2

So one run per file and split tells a worker which rows to read beside its split, without a table of the whole log.
Disorder only makes runs longer or overlap; it never loses a row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.gaps import Split
from rmqinspect.forecast.settled import plain_queues
from rmqinspect.index.geometry import IndexFile
from rmqinspect.loops.pointers import cut_at_borders
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import QueueFile, StoreFile
from rmqinspect.topics import SCHEDULE_TOPIC

# Ascending offsets give one run per split. Where damage gives more than this, one run spans all rows of a split.
_RUNS = 64
_ROWS_PER_RUN = 16


def cut_runs(file: int, first: int, offsets: Ints, borders: Ints) -> Ints:
    """Return the runs of consecutive rows as `Runs` has them, given the physical offset each points at, shape (n,).

    `file` is the number of the file, `first` that of the first row. `borders`, shape (splits,), ascending: the physical
    offset where each split begins; the last has no end. Runs cover every row and may overlap where offsets are in
    disorder: the reader of a run filters by offset.
    """
    runs = np.empty((most_runs(len(offsets)), 3), np.int64)
    count = cut_at_borders(offsets, borders, runs)
    runs = runs[:count] if count <= len(runs) else runs_by_split(np.arange(len(offsets)), offsets, borders)
    split, begin, last = runs.T
    return np.column_stack((split, np.full_like(split, file), first + begin, last - begin + 1))


def most_runs(rows: int) -> int:
    """Return how many runs so many rows may have; more are replaced by those of `runs_by_split`."""
    return _RUNS + rows // _ROWS_PER_RUN


def runs_by_split(rows: Ints, offsets: Ints, borders: Ints) -> Ints:
    """Return one run for each split that rows point into, shape (n, 3): split, first row, last row.

    `rows` are ascending numbers; `offsets` and `borders` as `cut_runs` has them.
    """
    splits = np.searchsorted(borders, offsets, "right") - 1
    numbers, first = np.unique(splits, return_index=True)
    _, last = np.unique(splits[::-1], return_index=True)
    return np.column_stack((numbers, rows[first], rows[::-1][last]))


def joined_runs(parts: Iterable[Ints]) -> Ints:
    """Join runs that continue others, given and returned as `Runs` has them, in the order of files and rows."""
    rows = np.concatenate([np.empty((0, 4), np.int64), *parts])
    if not len(rows):
        return rows
    before, after = rows[:-1], rows[1:]
    continues = (after[:, :2] == before[:, :2]).all(axis=1) & (after[:, 2] == before[:, 2] + before[:, 3])
    firsts = np.flatnonzero(np.concatenate(([True], ~continues)))
    joined = rows[firsts]
    joined[:, 3] = np.add.reduceat(rows[:, 3], firsts)
    return joined


QueueName = tuple[str, int]  # topic, queue id


class Runs(Struct, frozen=True):
    """The runs of many files, ascending by split."""

    rows: Ints  # shape (n, 4): split (-1: before the log), number of the file, first row, rows

    @classmethod
    def of(cls, parts: Iterable[Ints]) -> "Runs":
        """Return the runs of all parts, sorted; files have the same numbers in each."""
        rows = np.concatenate([NO_RUNS.rows, *parts])
        return cls(rows[np.argsort(rows[:, 0], kind="stable")])

    def of_split(self, number: int) -> list[tuple[int, int, int]]:
        """Return (file, first row, rows) of the runs that point into a split."""
        return [(file, first, count) for _, file, first, count in self.rows_of_split(number).tolist()]

    def rows_of_split(self, number: int) -> Ints:
        """Return the runs that point into a split, as `rows` has them."""
        begin, end = np.searchsorted(self.rows[:, 0], (number, number + 1)).tolist()
        return self.rows[begin:end]

    def cut(self, number: int, rows: int) -> Iterator["Runs"]:
        """Yield the runs of a split one by one, cut to at most `rows` rows each."""
        for file, first, count in self.of_split(number):
            for start in range(0, count, rows):
                yield Runs(np.array([[number, file, first + start, min(rows, count - start)]], np.int64))


NO_RUNS = Runs(np.empty((0, 4), np.int64))


class LogMap(Struct, frozen=True):
    """A number for every offset of the log: splits, and what lies between and behind them."""

    borders: tuple[int, ...] = (0,)  # physical offsets, ascending: number n begins at border n
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)  # of splits, by (path of segment, start)
    outside: tuple[int, ...] = (0,)  # numbers that are no split


def map_log(splits: Sequence[Split]) -> LogMap:
    """Give each offset to one split; where segments overlap or have the same base, to the later one.

    A record of a DLedger segment belongs to the split in which its entry begins.
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


class QueueNumbers(NamedTuple):
    """One number for each queue that has files, and columns by number of the file."""

    names: list[QueueName]  # in the order of the files
    number_of: dict[QueueName, int]
    of_file: Ints
    first_offset: Ints  # queue offset of the file's first unit; batch units hold theirs
    scheduled: Ints  # 1: units hold times of delivery in place of tags codes


class CrossPlan(Struct, frozen=True, dict=True):
    """What points into the log, by split, and which rules apply."""

    log: LogMap
    runs: Mapping[str, Runs] = field(default_factory=dict)  # of the files of a kind of pointer, by its name
    deep: bool = False  # check also that each record has its unit and its index entries
    queue_files: tuple[QueueFile, ...] = ()
    unread: frozenset[QueueName] = frozenset()  # queues that could not be read in full
    unread_topics: frozenset[str] = frozenset()  # whose folder could not be listed in full
    whole: bool = False  # all queues of the store were given: an absent one is lost
    ext_files: Mapping[QueueName, Sequence[QueueFile]] = field(default_factory=dict)
    hidden_ext: frozenset[QueueName] = frozenset()  # queues whose ext files were not all listed and opened
    may_hold: frozenset[str] = frozenset()  # of dispatch.DIFFERENCES: what the assumed releases may have done
    elsewhere: bool = False  # units may be in RocksDB alone, which was not read
    index: tuple[IndexFile, ...] = ()
    index_range: tuple[int, int] | None = None  # physical offsets of the first and the last entry
    index_begin: int | None = None  # physical offset of the first entry; None: older keys are not judged
    index_end: int | None = None  # physical offset of the last entry, -1 without files; None: newer keys are not judged
    index_complete: bool = True  # all index files could be read
    index_used: tuple[int, ...] = ()  # by index file: number of the newest entry
    timed: tuple[bool, ...] = ()  # by index file: its header's begin time can be trusted
    timer_files: tuple[StoreFile, ...] = ()
    entry_index: tuple[StoreFile, ...] = ()  # the index of DLedger entries
    scanned_from: int | None = None  # physical offset from which a start scans the log, and takes what is read here
    settles: bool = False  # say which records have their unit

    @cached_property
    def plain_queues(self) -> frozenset[QueueName]:
        """The queues that have plain units alone."""
        return frozenset(plain_queues(self.queue_files))

    @cached_property
    def queues(self) -> QueueNumbers:
        """Number the queues of the files."""
        names = [(file.topic, file.queue_id) for file in self.queue_files]
        unique = list(dict.fromkeys(names))
        number_of = {name: number for number, name in enumerate(unique)}
        return QueueNumbers(
            unique,
            number_of,
            np.array([number_of[name] for name in names], np.int64),
            np.array([file.base // QueueUnit.sizeof() for file in self.queue_files], np.int64),
            np.array([topic == SCHEDULE_TOPIC for topic, _ in names], np.int64),
        )

    @property
    def by_recovery(self) -> bool:
        """Whether a recovery may have given delayed messages the hash of their tags."""
        return "plain_schedule_tags" in self.may_hold

    def is_unread(self, name: QueueName) -> bool:
        """Whether a queue may have units that could not be read."""
        return name in self.unread or name[0] in self.unread_topics

    @property
    def needs_records(self) -> bool:
        """Whether anything points into the log, or something should."""
        pointers = self.queue_files or self.index_range is not None or self.timer_files
        return bool(pointers) or self.whole

    def joins(self, kind: str) -> bool:
        """Whether one kind of pointer is compared with the records of a split."""
        return self.index_range is not None if kind == "entry" else kind == "unit" or bool(self.timer_files)

    def runs_of(self, kind: str, number: int) -> list[tuple[int, int, int]]:
        """Return (file, first row, rows) of the runs of one kind of pointer into a split."""
        return self.runs.get(kind, NO_RUNS).of_split(number)

    def number_of(self, split: Split) -> int | None:
        """Return the number of a split; None if later splits have all its offsets."""
        return self.log.numbers.get((split.segment.path, split.start))

    def range_of(self, number: int) -> tuple[int, int]:
        """Return the physical offsets [low, high) of a number."""
        borders = self.log.borders
        return borders[number], borders[number + 1] if number + 1 < len(borders) else 1 << 63

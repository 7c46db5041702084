"""What the tasks of a load are: which stores share one, and which are cut into several.

    few stores on disks       the driver opens them, in threads, and cuts them into splits
    many, or several remote   of each only its log is looked at: a listing of one folder, in threads
      small ones of many      share tasks, which open, survey and read them; the driver holds a name and a path of each
      the others              are cut by ranges of their log; the task of a range opens the store, cuts it as ever, and
                              reads the splits that begin in its range
      what has no log         is opened by the driver, which says why

A task of small stores has about as much to do as one of a split. The stores keep their order, so rows do, too.

Invariant: the ranges of a store share out all physical offsets, and a split belongs to the range that it begins in. So
each split is read once, also if the log grows or shrinks between two tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from rmqinspect.store.log_size import FEW, OPENING, LogFile, in_threads, log_files
from rmqinspect.store.model import LAST_BASE
from rmqinspect.system.uri import is_remote
from rmqinspect.tables.lost_records import LostRecords
from rmqinspect.tables.splits import SMALLEST_PART, Origin, TableSplit, default_split_size

Named = tuple[str, Origin]  # a store by its name

# Tables that are cut by ranges of the log, and those that are cut otherwise: of any other a store is one split.
_RANGED, _CUT = ("messages", "gaps"), ("queue_units", "index_entries")
_WHOLE = 1 << 62  # bytes: no file is cut
_END = 1 << 63


@dataclass(frozen=True)
class SplitTask(InputPartition):
    """The work of one task: a split of a table of one store, and the bounds of time."""

    store: str
    split: TableSplit
    since: int | None
    until: int | None
    lost: LostRecords | None = None  # what the next start gives up, if that is asked for


@dataclass(frozen=True)
class StoresTask(InputPartition):
    """The work of one task: the table of some small stores, which only the task opens."""

    stores: tuple[Named, ...]
    now: datetime


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """The work of one task: the splits of a store that begin at physical offsets [start, end). Only it opens it."""

    store: Named
    start: int
    end: int
    split_size: int
    now: datetime

    def holds(self, split: TableSplit) -> bool:
        """Whether a split is for this task."""
        return self.start <= (split.segment.base + split.start if split.files else 0) < self.end


class Load(Struct, frozen=True):
    """What the planning of a load depends on, but for the stores."""

    table: str
    now: datetime
    split_size: int | None  # as asked for
    workers: int  # how many tasks run at a time
    by_ranges: bool = True  # whether tasks may open the stores that are cut: all is known without the driver


def tasks_of(
    stores: Sequence[Named], load: Load, cut: Callable[[Sequence[Named]], Iterator[Sequence[SplitTask]]]
) -> Iterator[InputPartition]:
    """Yield the tasks, in the order of the stores; `cut` opens some of them and yields the splits of each.

    :raises RmqinspectError: a store that has to be opened here cannot be.
    """
    limit = min(load.split_size or SMALLEST_PART, SMALLEST_PART)
    many = len(stores) > FEW
    asked = many or (len(stores) > 1 and any(is_remote(path) for _, origin in stores for path in origin.paths))
    logs: Sequence[list[LogFile] | None] = in_threads(_log, stores) if asked else [None] * len(stores)
    sizes = [None if log is None else sum(file.taken for file in log) for log in logs]
    small = [many and size is not None and size <= limit for size in sizes]
    apart = [
        log is not None and not is_small and load.by_ranges and load.table not in _CUT
        for log, is_small in zip(logs, small, strict=True)
    ]
    split_size = load.split_size or default_split_size(
        [file.size for log, is_apart in zip(logs, apart, strict=True) if is_apart for file in log or ()], load.workers
    )
    flags = [*zip(stores, small, apart, strict=True)]
    splits = cut([store for store, is_small, is_apart in flags if not is_small and not is_apart])
    together: list[Named] = []
    room = SMALLEST_PART
    for (store, is_small, is_apart), log, size in zip(flags, logs, sizes, strict=True):
        cost = OPENING + (size or 0)
        if together and (not is_small or cost > room):
            yield StoresTask(tuple(together), load.now)
            together, room = [], SMALLEST_PART
        if is_small:
            together.append(store)
            room -= cost
        elif is_apart:
            yield from _ranges(store, log or [], load, split_size)
        else:
            yield from next(splits)
    if together:
        yield StoresTask(tuple(together), load.now)


def _ranges(store: Named, log: Sequence[LogFile], load: Load, split_size: int) -> Iterator[RangeTask]:
    """Yield the tasks of a store: one for each place where a split is expected to begin."""
    size = _WHOLE if load.table == "gaps" else split_size
    bases = [(int(file.name), file.size) for file in log if file.name.isdecimal() and int(file.name) <= LAST_BASE]
    starts = {base + at for base, length in bases for at in range(0, max(length, 1), size)}
    borders = [0, *sorted(starts)[1:], _END] if load.table in _RANGED else [0, _END]
    for start, end in pairwise(borders):
        yield RangeTask(store, start, end, size, load.now)


def _log(store: Named) -> list[LogFile] | None:
    _, origin = store
    if len(origin.paths) != 1 or origin.config is not None or origin.given is not None:
        return None  # the log may lie elsewhere
    return log_files(origin.paths[0])

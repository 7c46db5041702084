"""What the tasks of a load are: which stores share one, and which are cut into several.

    few stores       the driver opens them, in threads, and cuts them into splits, as ever
    many stores      of each only its log is looked at: a listing of one folder, in threads
      small ones     share tasks, which open, survey and read them; the driver holds a name and a path of each
      the others     are opened and cut as few are

A task of small stores has about as much to do as one of a split. The stores keep their order, so rows do, too.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from rmqinspect.errors import RmqinspectError
from rmqinspect.system.filesystem import scandir
from rmqinspect.system.uri import is_remote, join
from rmqinspect.tables.lost_records import LostRecords
from rmqinspect.tables.splits import SMALLEST_PART, Origin, TableSplit

FEW = 8
"""More stores than this are many."""

_OPENING = 4 << 20  # what opening a store costs, as bytes of log that are read in that time
_THREADS = 32  # they wait for disks and object storage

Named = tuple[str, Origin]  # a store by its name
Done = TypeVar("Done")


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


def side_by_side(function: Callable[[Named], Done], stores: Sequence[Named]) -> list[Done]:
    """Return what a function that waits for files says of each store, in their order; it may raise."""
    if not stores:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(stores))) as pool:
        return list(pool.map(function, stores))


def tasks_of(
    stores: Sequence[Named],
    now: datetime,
    split_size: int | None,
    cut: Callable[[Sequence[Named]], Iterator[Sequence[SplitTask]]],
) -> Iterator[InputPartition]:
    """Yield the tasks, in the order of the stores; `cut` opens some of them and yields the splits of each.

    :raises RmqinspectError: a store that has to be opened here cannot be.
    """
    limit = min(split_size or SMALLEST_PART, SMALLEST_PART)
    sizes = side_by_side(log_size, stores) if len(stores) > FEW else [None] * len(stores)
    small = [size is not None and size <= limit for size in sizes]
    splits = cut([store for store, is_small in zip(stores, small, strict=True) if not is_small])
    together: list[Named] = []
    room = SMALLEST_PART
    for store, size, is_small in zip(stores, sizes, small, strict=True):
        cost = _OPENING + (size or 0)
        if together and (not is_small or cost > room):
            yield StoresTask(tuple(together), now)
            together, room = [], SMALLEST_PART
        if is_small:
            together.append(store)
            room -= cost
        else:
            yield from next(splits)
    if together:
        yield StoresTask(tuple(together), now)


def log_size(store: Named) -> int | None:
    """Return the bytes that a store's log takes, holes not counted where that can be seen; None if there is no telling.

    Nothing is opened: one listing, or two for DLedger.
    """
    _, origin = store
    if len(origin.paths) != 1 or origin.config is not None or origin.given is not None:
        return None  # the log may lie elsewhere
    root = origin.paths[0]
    try:
        names = ["commitlog"]
        if not is_remote(root):
            folders = [entry.name for entry in scandir(root) if entry.is_dir()]
            names = [name for name in folders if name == "commitlog"]
            names += [f"{name}/data" for name in folders if fnmatchcase(name, "dledger-*")]
        sizes = [_size(entry.stat()) for name in names for entry in scandir(join(root, name))]
    except (OSError, RmqinspectError):
        return None
    return sum(sizes) if sizes else None


def _size(status: os.stat_result) -> int:
    blocks = getattr(status, "st_blocks", None)  # of local files
    return status.st_size if blocks is None else min(status.st_size, blocks * 512)

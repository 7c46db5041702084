"""What the tasks of a load are: which stores share one, and which are cut into several.

    few stores       the driver opens them, in threads, and cuts them into splits, as ever
    many stores      of each only its log is looked at: a listing of one folder, in threads
      small ones     share tasks, which open, survey and read them; the driver holds a name and a path of each
      the others     are opened and cut as few are

A task of small stores has about as much to do as one of a split. The stores keep their order, so rows do, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql.datasource import InputPartition

from rmqinspect.store.log_size import FEW, OPENING, in_threads, log_size
from rmqinspect.tables.lost_records import LostRecords
from rmqinspect.tables.splits import SMALLEST_PART, Origin, TableSplit

Named = tuple[str, Origin]  # a store by its name


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
    sizes = in_threads(_log_size, stores) if len(stores) > FEW else [None] * len(stores)
    small = [size is not None and size <= limit for size in sizes]
    splits = cut([store for store, is_small in zip(stores, small, strict=True) if not is_small])
    together: list[Named] = []
    room = SMALLEST_PART
    for store, size, is_small in zip(stores, sizes, small, strict=True):
        cost = OPENING + (size or 0)
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


def _log_size(store: Named) -> int | None:
    _, origin = store
    if len(origin.paths) != 1 or origin.config is not None or origin.given is not None:
        return None  # the log may lie elsewhere
    return log_size(origin.paths[0])

"""One pass over the log for what is counted or collected: no row is built, no column of Arrow.

    log      |----split 0----|----split 1----|--2--|      threads read them
    folds    take take take    take take take  take       one for each split
    result   f0  .join(f1)  .join(f2)                     in the order of the log, whatever the number of threads

A fold keeps little: numbers and distinct names, nothing for each record. A few wait for each thread.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import holes_in
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.commitlog.splits import Split
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables.read_log import Item, LogSplitRead, read_split, readings, report_holes
from rmqinspect.tables.table import Request


class LogFold(Protocol):
    """What is counted or collected of a part of the log."""

    def take(self, run: RecordRun) -> None:
        """Take the next records of the chain; they are valid until this returns. Those of one split come in order.

        For the properties of few of them: `run.records.select(rows).properties` reads only theirs.
        """

    def join(self, following: Self) -> None:
        """Add the fold of the part that follows."""


Fold = TypeVar("Fold", bound=LogFold)


@dataclass(slots=True)
class Folded(Generic[Fold]):
    """The fold of some segments, and what their bytes are."""

    fold: Fold
    accounts: dict[str, ByteAccount]  # by path of the segment


class OnlyBytes:
    """Keeps nothing: for who asks for the accounts alone."""

    def take(self, run: RecordRun) -> None:
        """Keep nothing."""

    def join(self, following: Self) -> None:
        """Add nothing."""


def fold_log(store: Store, request: Request, new: Callable[[], Fold]) -> Fold:
    """Return the fold of the records of `messages` that start in `request.offsets`; `new` makes an empty one.

    Progress, lost ranges and what could not be read are told through the request.

    :raises Unreadable: a file cannot be opened, and there is no `request.on_unreadable`.
    """
    report_holes(holes_in(store), request)
    return fold_segments(store.segments, request, new).fold


def fold_segments(segments: Sequence[Segment], request: Request, new: Callable[[], Fold]) -> Folded[Fold]:
    """Return the fold of some segments; holes between them are not reported. Otherwise as `fold_log`."""
    folded = Folded(new(), {})
    read = partial(_fold_split, new=new)
    with closing(readings(segments, request, read, _is_result, request.jobs)) as splits:
        for reading in splits:
            for fold in reading.rows(request):
                folded.fold.join(fold)
            segment = reading.split.segment
            folded.accounts.setdefault(segment.path, ByteAccount(segment)).join(reading.account)
    return folded


def _fold_split(split: Split, new: Callable[[], Fold]) -> Generator[Item[Fold], None, None]:
    """Read a split; its only row is its fold, just before the result."""
    fold = new()

    def take(run: RecordRun) -> tuple[Fold, ...]:
        fold.take(run)
        return ()

    for item in read_split(split, take):
        if isinstance(item, LogSplitRead):
            yield fold
        yield item


def _is_result(item: object) -> int:
    """Return the room that an item takes while it waits: positions and messages take none worth counting."""
    return int(isinstance(item, LogSplitRead))

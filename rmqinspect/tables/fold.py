"""One pass over the log for what is counted or collected: no row is built, no column of Arrow.

    log      |----split 0----|----split 1----|--2--|      threads read them
    folds    take take take    take take take  take       one for each split
    result   f0  .join(f1)  .join(f2)                     in the order of the log, whatever the number of threads

A fold keeps little: numbers and distinct names, nothing for each record. A few wait for each thread. The splits are
the same for any number of threads, so a fold may forget something when it is joined.
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
from rmqinspect.system.workers import stream_ordered
from rmqinspect.tables.read_log import Item, LogSplitRead, Reading, read_split, readings, report_holes, splits_in
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
    """The fold of one split, and what its bytes are."""

    fold: Fold
    account: ByteAccount


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
    whole = new()
    report_holes(holes_in(store), request)
    for part in folds_in(store.segments, request, new):
        whole.join(part.fold)
    return whole


def folds_in(
    segments: Sequence[Segment], request: Request, new: Callable[[], Fold]
) -> Generator[Folded[Fold], None, None]:
    """Yield the folds of some segments split by split, in the order of the log; otherwise as `fold_log`.

    Holes between segments are not reported.
    """
    read = partial(_fold_split, new=new)
    with closing(readings(splits_in(segments, request), request, read, _is_result, request.jobs)) as splits:
        for reading in splits:
            for fold in reading.rows(request):
                yield Folded(fold, reading.account)


def folds_apart(
    splits: Sequence[Split], request: Request, new: Callable[[], Fold]
) -> Generator[Folded[Fold], None, None]:
    """Yield the folds of splits that do not touch each other: their borders are guessed, lost ranges not reported.

    :raises Unreadable: a file cannot be opened, and there is no `request.on_unreadable`.
    """
    read = partial(_fold_split, new=new)
    with closing(stream_ordered(read, splits, request.jobs, _is_result, request.jobs)) as streams:
        for split, items in zip(splits, streams, strict=True):
            reading = Reading(split, items)
            for fold in reading.rows(request):
                yield Folded(fold, reading.account)


def add_account(accounts: dict[str, ByteAccount], account: ByteAccount) -> None:
    """Add the account of a split to that of its segment; `accounts` is by path."""
    accounts.setdefault(account.segment.path, ByteAccount(account.segment)).join(account)


def _fold_split(split: Split, new: Callable[[], Fold]) -> Generator[Item[Fold], None, None]:
    """Read a split; its only row is its fold, behind the result."""
    fold = new()

    def take(run: RecordRun) -> tuple[Fold, ...]:
        fold.take(run)
        return ()

    for item in read_split(split, take):
        yield item
        if isinstance(item, LogSplitRead):
            yield fold


def _is_result(item: object) -> int:
    """Return the room that an item takes while it waits: positions and messages take none worth counting."""
    return int(isinstance(item, LogSplitRead))

"""What the joins of queue units, index entries and timer units have in common.

Each of them is a pointer: a row of a file that holds the physical offset of a record. A join takes the pointers
into one split and the records of that split.

    rows of files             the split                  outcome
    physical offset --------> a record starts here       hit: the join compares the two
    physical offset --------> inside a record, a gap,    dangling: one row for consecutive rows of
                              or no segment at all       a file that point into the same range

`Pointers` has the columns that every kind has; `PointerReport` turns rows of them into findings and `Dangling`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.errors import Unreadable
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.verify.dangling import Dangling, LogRanges, capped_dangling, where_of
from rmqinspect.verify.findings import Finding, unread_finding

MOST_RUNS = 5000  # of a kind in a split, kept one by one

Rows = TypeVar("Rows")


@dataclass(slots=True)
class Pointers:
    """Columns of n rows: what every kind of pointer has."""

    physical_offset: Ints  # that it points at
    file: Ints  # number of its file in the plan
    row: Ints  # number of the row in its file


class Location(NamedTuple):
    """Where a row is stored, and the queue that it belongs to."""

    file: str
    offset: int
    length: int
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class Evidence(NamedTuple):
    """What consecutive dangling rows prove about the records that are not there."""

    row: int  # number of the first row as readers know it: queue offset, entry
    messages: int
    newest: int | None = None  # store time in ms of the newest, where the rows have one


def read_runs(
    runs: Iterable[tuple[int, int, int]], read: Callable[[int, int, int], Rows], unread: list[Finding]
) -> Iterator[tuple[int, Rows | None]]:
    """Yield (number of the file, what `read` returns) for each run; None where the system reports an I/O error.

    `read` takes the number of the file, the first row and the number of rows.
    """
    for file, first, count in runs:
        try:
            yield file, read(file, first, count)
        except Unreadable as error:
            unread.append(unread_finding(error))
            yield file, None


class PointerReport:
    """Findings and dangling rows of one split; `locate` says where a row of `pointers` is stored."""

    def __init__(self, pointers: Pointers, locate: Callable[[int], Location], kept: CappedList[Finding, str]) -> None:
        self.pointers, self.locate, self.kept = pointers, locate, kept

    def each(self, code: str, which: Ints) -> Sequence[int]:
        """Return as many as are reported one by one, for `add`; count the others."""
        return self.kept.admit(code, which.tolist())

    def add(self, code: str, message: str, at: int, expected: object, found: object) -> None:
        """Add a finding about the row at index `at`; None stays None, all else becomes text."""
        location = self.locate(at)
        self.kept.add(
            Finding(
                code,
                message,
                **location._asdict(),
                physical_offset=int(self.pointers.physical_offset[at]),
                expected=None if expected is None else str(expected),
                found=None if found is None else str(found),
            )
        )

    def dangling(self, kind: str, which: Ints, ranges: LogRanges, prove: Callable[[Ints], Evidence]) -> list[Dangling]:
        """Return rows that point at no record, grouped by file, range and consecutive rows."""
        if not len(which):
            return []
        pointers = self.pointers
        which = which[np.lexsort((pointers.row[which], pointers.file[which]))]
        number = ranges.look_up(pointers.physical_offset[which])
        consecutive = pointers.row[which] - np.arange(len(which))
        capped = capped_dangling(MOST_RUNS)
        for first, behind in groups(pointers.file[which], number, consecutive):
            at = which[first:behind]
            location, evidence = self.locate(int(at[0])), prove(at)
            row = Dangling(
                kind,
                location.file,
                location.offset,
                location.length,
                len(at),
                evidence.row,
                location.topic,
                location.queue_id,
                int(pointers.physical_offset[at].min()),
                int(pointers.physical_offset[at].max()),
                where_of(int(number[first])),
                evidence.messages,
                evidence.newest,
            )
            capped.add(row)
        return capped.rows

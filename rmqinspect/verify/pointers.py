"""What the joins of queue units, index entries and timer units have in common.

Each of them is a pointer: a row of a file that holds the physical offset of a record. A join takes the pointers
into one split and the records of that split. A loop of each kind (`loops.pointers`) finds the record of every row and
judges the two; of the rows that break a rule it writes

    row | record | verdict     a bit for each rule that is broken

and the kind's table of `Verdict`s has the words. A row that leads to no start of a record is `Dangling`: consecutive
ones of a file that point into the same range of the log are one. The reader of a split knows only what stands at the
target in this split; whether the log ends before it is judged when the whole log was read (loss.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import fields

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.text import text_of
from rmqinspect.verify.findings import Finding, Found, unread_finding

INSIDE = "inside"  # a record or filler, but not at its start
GAP = "gap"  # bytes of the log that are no record
OUTSIDE = "outside"  # no segment holds this offset


class Dangling(NamedTuple):
    """Consecutive rows of one file that point where no record starts, all into the same gap."""

    kind: str  # unit, entry, timer
    file: str
    position: int  # of the first row, bytes
    row_size: int
    rows: int
    row: int  # of the first: queue offset of a unit, number of an entry
    topic: str | None
    queue_id: int | None
    low: int  # least and greatest physical offset that they point at
    high: int
    where: str
    messages: int  # units: messages; else different targets
    newest: int | None  # store time of the newest in ms, where the rows have one

    def merged(self, other: "Dangling") -> "Dangling":
        """Return both as one row, at the place of the first."""
        newest = max((time for time in (self.newest, other.newest) if time is not None), default=None)
        return self._replace(
            rows=self.rows + other.rows,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            messages=self.messages + other.messages,
            newest=newest,
        )


def capped_dangling(limit: int) -> CappedList[Dangling, tuple[str, str, str]]:
    """Return an empty list of up to `limit` rows; overflow becomes one row per file and kind of target."""
    return CappedList(limit, lambda row: (row.kind, row.file, row.where), merge=Dangling.merged)


class LogRanges(Struct, frozen=True):
    """The byte ranges of a split that are no record, ascending, for looking up many offsets at once."""

    starts: Ints
    ends: Ints
    filler: np.ndarray[tuple[int], np.dtype[np.bool_]]
    end: int  # of the split
    segment: Segment | None = None  # that the split is in; None: no split

    @classmethod
    def of(
        cls, gaps: list[Gap], stale: list[tuple[int, int, int]], end: int, segment: Segment | None = None
    ) -> "LogRanges":
        """Return the ranges of gaps, as the scan reports them, and of stale records."""
        parts = [(gap.start, gap.end, gap.kind == "filler") for gap in gaps]
        parts += [(start, stop, False) for start, stop, _ in stale]
        rows = np.array(sorted(parts), np.int64).reshape(-1, 3)
        return cls(rows[:, 0], rows[:, 1], rows[:, 2] != 0, end, segment)

    def look_up(self, places: Ints) -> Ints:
        """Return the number of the range that holds each offset; -1 inside a record or filler, -2 outside the split."""
        numbers: Ints = np.full(len(places), -1, np.int64)
        if len(self.starts):
            at = np.searchsorted(self.starts, places, "right") - 1
            inside = (at >= 0) & (places < self.ends[at]) & ~self.filler[at]
            numbers[inside] = at[inside]
        numbers[places >= self.end] = -2
        return numbers


def where_of(number: int) -> str:
    """Return the word for a number that `LogRanges.look_up` returned."""
    return GAP if number >= 0 else OUTSIDE if number == -2 else INSIDE


DANGLING = 1
"""The bit of a verdict, of every kind: no record starts where the row points."""

MOST_RUNS = 5000  # of a kind in a split, kept one by one

# Columns of the records that words name.
_OF_RECORDS = ("size", "store_timestamp", "tags_code", "messages", "real_topic")

Rows = TypeVar("Rows")


class Verdict(NamedTuple):
    """What a bit of a verdict means, in words; `{row[...]}` and `{record[...]}` stand for values of the two."""

    code: str
    message: str
    expected: str | None = None
    found: str | None = None


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


class Kind(Struct, frozen=True):
    """One kind of rows that point at records."""

    name: str  # unit, entry, timer
    noun: str
    dangling: str  # code of rows that point where no record starts
    beyond: str  # or past the end of the log
    verdicts: Mapping[int, Verdict]  # by bit; those of one code exclude each other
    joins_rows: bool = False  # consecutive rows of a file with the same verdict are one finding


class Pointers(Struct):
    """Columns of the n rows of one kind that broke a rule, or have to be looked at."""

    file: Ints  # number of its file in the plan
    row: Ints  # number of the row in its file
    record: Ints  # number of the record that it points at; -1 with DANGLING
    verdict: Ints  # bits
    values: dict[str, Ints]  # of the rows, by name; one is `physical_offset`

    @classmethod
    def joined(cls, parts: Sequence["Pointers"], names: Iterable[str]) -> "Pointers":
        """Return the rows of all parts, which have the values that are named."""
        nothing = np.empty(0, np.int64)
        own = [part.name for part in fields(cls)][:-1]
        columns = {name: np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in own}
        values = {name: np.concatenate([nothing, *(part.values[name] for part in parts)]) for name in names}
        return cls(**columns, values=values)

    def which(self, bits: int) -> Ints:
        """Return the indices of the rows with one of these bits."""
        return np.flatnonzero(self.verdict & bits)


class Joined(Found):
    """What the pointers of one kind into a split show."""

    dangling: list[Dangling] = field(default_factory=list)
    joined: int = 0  # how many lead to their record


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
    """Findings and dangling rows of one split; `locate` says where the row at an index of `pointers` is stored."""

    def __init__(
        self,
        kind: Kind,
        pointers: Pointers,
        records: Dispatched,
        locate: Callable[[int], Location],
        kept: CappedList[Finding, str],
    ) -> None:
        self.kind, self.pointers, self.records, self.locate, self.kept = kind, pointers, records, locate, kept

    def add_findings(self) -> None:
        """Report the rows that break a rule, code by code in the order of the rows."""
        verdicts = self.kind.verdicts
        for code in dict.fromkeys(verdict.code for verdict in verdicts.values()):
            bits = reduce(or_, (bit for bit, verdict in verdicts.items() if verdict.code == code))
            which = self.pointers.which(bits)
            if self.kind.joins_rows:
                verdict, row = self.pointers.verdict[which], self.pointers.row[which]
                for first, behind in groups(self.pointers.file[which], verdict, row - np.arange(len(which))):
                    self._add(int(which[first]), bits, behind - first)
            else:
                for at in self.kept.admit(code, which.tolist()):
                    self._add(at, bits, 1)

    def _add(self, at: int, bits: int, rows: int) -> None:
        """Add a finding about consecutive rows, from index `at` on, with one of the bits."""
        verdict = self.kind.verdicts[int(self.pointers.verdict[at]) & bits]
        location = self.locate(at)
        row: dict[str, object] = {name: int(column[at]) for name, column in self.pointers.values.items()}
        row |= {"number": int(self.pointers.row[at]), "queue": f"{location.topic} queue {location.queue_id}"}
        number = int(self.pointers.record[at])
        record: dict[str, object] = {name: int(getattr(self.records, name)[number]) for name in _OF_RECORDS}
        topic, queue_id = self.records.queues[int(self.records.queue[number])]
        record["queue"] = f"{text_of(topic)} queue {queue_id}"

        def filled(template: str | None) -> str | None:
            return None if template is None else template.format(row=row, record=record)

        self.kept.add(
            Finding(
                verdict.code,
                verdict.message.format(row=row),
                **location._replace(length=rows * location.length)._asdict(),
                physical_offset=int(self.pointers.values["physical_offset"][at]),
                count=rows,
                expected=filled(verdict.expected),
                found=filled(verdict.found),
            )
        )

    def dangling(self, ranges: LogRanges, prove: Callable[[Ints], Evidence]) -> list[Dangling]:
        """Return the rows that point at no record, grouped by file, range and consecutive rows."""
        pointers = self.pointers
        which = pointers.which(DANGLING)
        if not len(which):
            return []
        places = pointers.values["physical_offset"]
        which = which[np.lexsort((pointers.row[which], pointers.file[which]))]
        number = ranges.look_up(places[which])
        consecutive = pointers.row[which] - np.arange(len(which))
        capped = capped_dangling(MOST_RUNS)
        for first, behind in groups(pointers.file[which], number, consecutive):
            at = which[first:behind]
            location, evidence = self.locate(int(at[0])), prove(at)
            row = Dangling(
                self.kind.name,
                location.file,
                location.offset,
                location.length,
                len(at),
                evidence.row,
                location.topic,
                location.queue_id,
                int(places[at].min()),
                int(places[at].max()),
                where_of(int(number[first])),
                evidence.messages,
                evidence.newest,
            )
            capped.add(row)
        return capped.rows

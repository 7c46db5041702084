"""The table of differences: bounded rows, exact counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rmqinspect.tables.arrow import batches_of
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.tables.table import column

SIDES = ("A", "B")

# Kind of difference → part of the store, as named in the verdict.
KINDS = {
    "segment_only": "segments",
    "segment_length": "segments",
    "range_only": "log",
    "log_end": "log",
    "bytes": "log",
    "record_only": "records",
    "queue_only": "queues",
    "queue_min": "queues",
    "queue_max": "queues",
    "queue_units": "queues",
    "group_offset": "groups",
    "topic_only": "topics",
}

SCHEMA = pa.schema(
    [
        column("what", pa.string(), ", ".join(KINDS)),
        column("only_in", pa.string(), "A or B where only one has it, else null"),
        column("topic", pa.string(), "topic"),
        column("group", pa.string(), "consumer group"),
        column("queue_id", pa.int32(), "queue"),
        column("queue_offset", pa.int64(), "logical offset in the queue; queue_units: the first that differs"),
        column("physical_offset", pa.int64(), "where it begins in the commit log"),
        column("length", pa.int64(), "bytes concerned"),
        column("count", pa.int64(), "bytes that differ in a range, units of a queue, else 1"),
        column("a", pa.string(), "what A has, short"),
        column("b", pa.string(), "what B has, short"),
        column("message", pa.string(), "what it is and what it may come from"),
    ]
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of the table. The fields are its columns."""

    what: str
    message: str
    only_in: str | None = None
    topic: str | None = None
    group: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    length: int | None = None
    count: int = 1
    a: str | None = None
    b: str | None = None


class Differences:
    """The first `limit` rows of each kind and side, and exact counts."""

    def __init__(self, limit: int) -> None:
        self._capped = CappedList[Difference, tuple[str, str | None]](limit, lambda row: (row.what, row.only_in))
        self.rows = self._capped.rows
        self.counts = dict.fromkeys(KINDS, 0)

    def add(self, difference: Difference) -> None:
        """Count a difference; keep it, unless the limit is reached."""
        self.counts[difference.what] += 1
        self._capped.add(difference)

    def count_more(self, what: str, number: int) -> None:
        """Count differences without rows."""
        self.counts[what] += number

    def of(self, *kinds: str) -> list[Difference]:
        """Return the rows of some kinds, in the order they were found."""
        return [row for row in self.rows if row.what in kinds]

    @property
    def suppressed(self) -> int:
        """Differences that are counted without a row."""
        return sum(self.counts.values()) - len(self.rows)

    @property
    def parts(self) -> list[str]:
        """The parts of the stores that differ, in the order of KINDS."""
        return list(dict.fromkeys(part for what, part in KINDS.items() if self.counts[what]))


def only_in(a: bool, b: bool) -> str | None:
    """Return the side that has something; None if both do."""
    return None if a and b else SIDES[0] if a else SIDES[1]


def difference_batches(rows: Sequence[Difference]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as batches with SCHEMA."""
    yield from batches_of(SCHEMA, ([getattr(row, name) for name in SCHEMA.names] for row in rows))

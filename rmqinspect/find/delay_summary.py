"""Delayed messages counted: by level and for the timer, by real topic, and the next to fall due.

Takes the rows of the table `delays` batch by batch and keeps counts, and few rows.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.broker.delays import LOST, OVERDUE, PENDING, STATES, UNKNOWN

Row = dict[str, Any]
Place = tuple[str, int | None]  # source and delay level of the table

_WAITING = pa.array([STATES[PENDING], STATES[OVERDUE]])
_MISSING = pa.array([STATES[LOST], STATES[UNKNOWN]])
_SHOWN = ("source", "level", "due_timestamp", "state", "real_topic", "msg_id", "physical_offset", "reason")


@dataclass(slots=True)
class PlaceCount:
    """The messages of a level or of a timer. Times are in microseconds."""

    states: Counter[str] = field(default_factory=Counter)
    next_due: int | None = None  # of those that wait
    last_due: int | None = None
    delay: int | None = None  # of a level, measured: the shortest

    def take(self, rows: pa.RecordBatch) -> None:
        """Count rows."""
        for entry in pc.value_counts(rows.column("state")).to_pylist():
            self.states[entry["values"]] += entry["counts"]
        due = _micros(rows, "due_timestamp")
        waiting = due.filter(pc.is_in(rows.column("state"), _WAITING))
        first, last = (pc.min_max(waiting)[name].as_py() for name in ("min", "max"))
        self.next_due = min((one for one in (self.next_due, first) if one is not None), default=None)
        self.last_due = max((one for one in (self.last_due, last) if one is not None), default=None)
        delay = pc.min(pc.subtract(due, _micros(rows, "store_timestamp"))).as_py()
        self.delay = min((one for one in (self.delay, delay) if one is not None), default=None)


@dataclass(slots=True)
class DelaySummary:
    """The messages of a store."""

    most: int  # rows kept of each kind
    with_system: bool  # count messages bound for topics of the broker like all others
    places: dict[Place, PlaceCount] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)  # messages that wait, by real topic
    next: list[Row] = field(default_factory=list)  # the next to fall due
    missing: list[Row] = field(default_factory=list)  # the first that are lost or unknown
    system: int = 0  # messages bound for topics of the broker

    def take(self, batch: pa.RecordBatch) -> None:
        """Count rows of the table."""
        self.system += pc.sum(batch.column("system").cast(pa.int64())).as_py() or 0
        if not self.with_system:
            batch = batch.filter(pc.invert(batch.column("system")))
        for place, rows in _by_place(batch):
            self.places.setdefault(place, PlaceCount()).take(rows)
        waiting = batch.filter(pc.is_in(batch.column("state"), _WAITING))
        for entry in pc.value_counts(waiting.column("real_topic")).to_pylist():
            self.topics[entry["values"] or ""] += entry["counts"]
        nearest = waiting.select(_SHOWN).sort_by("due_timestamp").slice(0, self.most).to_pylist()
        self.next = sorted((*self.next, *nearest), key=_due)[: self.most]
        missing = batch.filter(pc.is_in(batch.column("state"), _MISSING)).select(_SHOWN)
        self.missing += missing.slice(0, self.most - len(self.missing)).to_pylist()

    def total(self, state: int) -> int:
        """Return how many messages are in a state of `broker.delays.STATES`."""
        return sum(place.states[STATES[state]] for place in self.places.values())


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """Yield the rows of each level and timer; a batch of the table nearly always has one."""
    found = pa.table({"source": batch.column("source"), "level": batch.column("level")})
    for row in found.group_by(["source", "level"], use_threads=False).aggregate([]).to_pylist():
        mask = pc.equal(batch.column("source"), row["source"])
        if row["level"] is not None:
            mask = pc.and_(mask, pc.equal(batch.column("level"), row["level"]))
        yield (row["source"], row["level"]), batch.filter(mask)


def _micros(rows: pa.RecordBatch, name: str) -> pa.Array:
    return rows.column(name).cast(pa.int64())


def _due(row: Row) -> tuple[bool, Any]:
    return row["due_timestamp"] is None, row["due_timestamp"]

"""Delayed messages counted: by level and for the timer, by real topic, and the next to fall due.

Takes the rows of the table `delays` batch by batch and keeps counts, and few rows.

What stands first about the transactions of a store: counts, the oldest pending one, what will happen to them.

What a retention would delete, and which messages consumer groups would lose by it.

    segments     |---- 0 ----|---- 1 ----|---- 2 ----|
    queue           5  6  7     8  9 10     11 12          a group at 7 would lose 7, if 0 goes: 8 is then the minimum

Times are those of the records, not of the files: a copy of a store has other file times than the broker saw.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from rmqinspect.broker import delays
from rmqinspect.broker.gone import expired_segments
from rmqinspect.broker.groups import is_system_group
from rmqinspect.broker.transactions import IN_HALF_TOPIC, IN_REAL_TOPIC, PENDING, REASONS, STATES
from rmqinspect.codec.arrays import ABSENT, Bools, Ints
from rmqinspect.commitlog.gaps import Split
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.consumequeue.bounds import queue_end
from rmqinspect.consumequeue.units import find_units
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.tables.config import report_problems
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.group_positions import Position, ends_of, positions
from rmqinspect.tables.read_log import OnlyBytes, folds_of
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import unread_places
from rmqinspect.tables.transactions import StoreTransactions, batches_of
from rmqinspect.tables.usage import WINDOW, Usage

Row = dict[str, Any]
Place = tuple[str, int | None]  # source and delay level of the table

_WAITING = pa.array([delays.STATES[delays.PENDING], delays.STATES[delays.OVERDUE]])
_STUCK = pa.array([delays.STATES[delays.STUCK]])
_MISSING = pa.array([delays.STATES[delays.LOST], delays.STATES[delays.UNKNOWN]])
_SHOWN = ("source", "level", "due_timestamp", "state", "real_topic", "msg_id", "physical_offset", "reason")


class PlaceCount(Struct):
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


class DelaySummary(Struct):
    """The messages of a store."""

    most: int  # rows kept of each kind
    with_system: bool  # count messages bound for topics of the broker like all others
    places: dict[Place, PlaceCount] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)  # messages that wait, by real topic
    next: list[Row] = field(default_factory=list)  # the next to fall due
    stuck: list[Row] = field(default_factory=list)  # the first that no broker delivers as things stand
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
        for kept, states in ((self.stuck, _STUCK), (self.missing, _MISSING)):
            some = batch.filter(pc.is_in(batch.column("state"), states)).select(_SHOWN)
            kept += some.slice(0, self.most - len(kept)).to_pylist()

    def total(self, state: int) -> int:
        """Return how many messages are in a state of `broker.delays.STATES`."""
        return sum(place.states[delays.STATES[state]] for place in self.places.values())


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


class Oldest(Struct, frozen=True):
    """The pending message whose first copy was stored first."""

    born: datetime | None  # None: outside the years 1 to 9999
    check_times: int


class Fate(Struct, frozen=True):
    """What brokers will do with pending messages: how many."""

    asked_again: int
    given_up: int  # at the next check
    left: int  # of 4.2.0 and before
    in_half_topic: int  # of those asked again


class TransactionSummary:
    """The transactions of a store that a selection chooses."""

    def __init__(self, found: StoreTransactions, selection: Selection) -> None:
        self.found = found
        self._chosen = np.flatnonzero(_choose(found, selection))

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def copies(self) -> int:
        """How many half copies they have."""
        return int(self.found.judged.copies[self._chosen].sum())

    def by_state(self) -> dict[str, int]:
        """Return how many there are in each state."""
        numbers = np.bincount(self.found.judged.state[self._chosen], minlength=len(STATES))
        return dict(zip(STATES, numbers.tolist(), strict=True))

    def by_origin(self) -> list[tuple[str | None, str | None, tuple[int, ...]]]:
        """Return (producer group, real topic, how many in each state), those with most pending ones first."""
        judged, origins = self.found.judged, self.found.origins
        cells = self.found.origin[judged.newest[self._chosen]].astype(np.int64) * len(STATES)
        cells = cells + judged.state[self._chosen]
        numbers = np.bincount(cells, minlength=len(origins) * len(STATES)).reshape(-1, len(STATES))
        sums: dict[tuple[str | None, str | None], Ints] = {}
        for (group, topic, _), row in zip(origins, numbers, strict=True):
            if row.any():
                sums[group, topic] = sums.get((group, topic), 0) + row

        def rank(item: tuple[tuple[str | None, str | None], Ints]) -> tuple[int, int, str, str]:
            (group, topic), row = item
            return -int(row[PENDING]), -int(row.sum()), group or "", topic or ""

        return [(group, topic, tuple(row.tolist())) for (group, topic), row in sorted(sums.items(), key=rank)]

    def reasons(self) -> Iterator[tuple[int, str]]:
        """Yield why states are uncertain or odd: (how many, in words)."""
        reasons = self.found.judged.reason[self._chosen]
        numbers = np.bincount(reasons[reasons != ABSENT], minlength=len(REASONS)).tolist()
        return ((number, REASONS[reason]) for reason, number in enumerate(numbers) if number)

    def half_topic_end(self) -> int | None:
        """Return the queue offset behind the last half copy in the half topic, None without one."""
        halves = self.found.halves
        offsets = halves.queue_offset[halves.kept_in == IN_HALF_TOPIC]
        return int(offsets.max()) + 1 if len(offsets) else None

    def oldest(self) -> Oldest | None:
        """Return the oldest pending message, None without one."""
        rows = self.rows([STATES[PENDING]])[:1]
        for batch in batches_of(self.found, rows, frozenset({"born_timestamp"})):
            (row,) = batch.select(["born_timestamp", "check_times"]).to_pylist()
            return Oldest(row["born_timestamp"], row["check_times"])
        return None

    def fate(self, check_max: int) -> Fate:
        """Return what will happen to the pending ones; `check_max`: transactionCheckMax."""
        rows = self.rows([STATES[PENDING]])
        kept_in = self.found.halves.kept_in[self.found.judged.newest[rows]]
        left, in_topic = kept_in == IN_REAL_TOPIC, kept_in == IN_HALF_TOPIC
        # TransactionalMessageServiceImpl#needDiscard
        spent = in_topic & (self.found.check_times[rows] >= check_max)
        return Fate(*(int(np.count_nonzero(part)) for part in (~left & ~spent, spent, left, in_topic & ~spent)))

    def rows(self, states: Sequence[str]) -> Ints:
        """Return those in some states as rows for `tables.transactions.batches_of`, by their first copies."""
        judged = self.found.judged
        numbers = [STATES.index(state) for state in states]
        rows = self._chosen[np.isin(judged.state[self._chosen], numbers)]
        return rows[np.argsort(self.found.halves.physical_offset[judged.first[rows]], kind="stable")]

    def place_of(self, row: int) -> int:
        """Return the physical offset of the newest copy of a row."""
        return int(self.found.halves.physical_offset[self.found.judged.newest[row]])


def _choose(found: StoreTransactions, selection: Selection) -> Bools:
    """Return which transactions pass the filters."""
    judged = found.judged
    chosen: Bools = np.ones(len(judged.state), np.bool_)
    for _, states in selection.cells:
        chosen &= np.isin(judged.state, [STATES.index(state) for state in states])
    if selection.topics and len(chosen):
        topics = [topic for _, topic, _ in found.origins]
        selection.topics_seen.update(topic for topic in topics if topic is not None)
        taken = np.array([topic is not None and selection.takes_topic(topic) for topic in topics], np.bool_)
        chosen &= taken[found.origin[judged.newest]]
    if selection.since is not None or selection.until is not None:
        rows = np.flatnonzero(chosen)
        chosen[rows] = _in_time(found, rows, selection)
    return chosen


def _in_time(found: StoreTransactions, rows: Ints, selection: Selection) -> Bools:
    """Return which rows were stored in the time asked for."""
    times = replace(selection, topics=(), cells=())
    passed: list[Bools] = [np.zeros(0, np.bool_)]
    for batch in batches_of(found, rows, frozenset({"store_timestamp"})):
        kept = times.select_rows(batch).column("physical_offset")
        passed.append(pc.is_in(batch.column("physical_offset"), kept).to_numpy(zero_copy_only=False))
    return np.concatenate(passed)


class Waiting(Struct, frozen=True):
    """The oldest message of a queue that a group has not consumed."""

    position: Position
    queue_offset: int
    physical_offset: int


class Retention(Struct, frozen=True):
    """What a retention of some hours deletes; `hours` are counted back from the last record."""

    hours: float
    segments: tuple[Segment, ...]  # the oldest ones
    last: int | None  # store time (ms) of their last record
    losses: Mapping[str, int] | None  # group -> messages, most first; None: not known

    @property
    def size(self) -> int:
        """The bytes of the segments."""
        return sum(segment.size for segment in self.segments)


def last_times(store: Store, usage: Usage, request: Request) -> list[int | None]:
    """Return the store time (ms) of the last record of each segment, None where it is not known.

    Of a sampled store, the last window of each segment is read.
    """
    if usage.sample is None:
        known = {path: account.last_timestamp for path, account in usage.accounts.items()}
    else:
        ends = [Split(one, max(0, one.size - WINDOW), one.size) for one in store.segments if one.size]
        parts = folds_of(ends, request, OnlyBytes, apart=True)
        known = {account.segment.path: account.last_timestamp for _, account in parts}
    return [known.get(segment.path) for segment in store.segments]


def read_waiting(store: Store, request: Request) -> list[Waiting] | None:
    """Return what each group waits for, the broker's own groups left out, by physical offset.

    None without any consumer offset of a queue that was read, or where not all offsets were: then nothing is known.

    A group waits for the message at its offset, or for the first one that is still there. The store has what its
    RocksDB databases hold.
    """
    entries, problems = read_consumer_offsets(store)
    report_problems(problems, request, readable=bool(entries))
    entries = [entry for entry in entries if not is_system_group(entry.group)]
    queues = ends_of(store, request, {(entry.topic, entry.queue_id) for entry in entries})
    if request.on_unreadable is not None:
        for message in unread_places(store, ("groups",)):
            request.on_unreadable(message)
    known = any((entry.topic, entry.queue_id) in queues for entry in entries)
    if not known or why_unknown(store, "consumer offsets"):
        return None
    by_queue: dict[tuple[QueueFile, ...], list[Position]] = defaultdict(list)
    for position in positions(entries, queues, store):
        if position.queue is not None and position.next_offset is not None:
            by_queue[position.queue.files].append(position)
    found: list[Waiting] = []
    for files, some in by_queue.items():
        offsets = [position.next_offset or 0 for position in some]
        try:
            units = find_units(files, offsets)
        except Unreadable as error:
            if request.on_unreadable is None:
                raise
            request.on_unreadable(str(error))
            continue
        for position, offset, unit in zip(some, offsets, units, strict=True):
            if unit is not None:
                found.append(Waiting(position, offset, unit[0]))
    return sorted(found, key=lambda one: (one.physical_offset, one.position.entry))


def retained(
    store: Store, times: Sequence[int | None], waiting: Sequence[Waiting] | None, hours: float, now: int | None
) -> Retention:
    """Return what a retention deletes at `now` (ms); `times` are the last writes of the segments.

    :raises Unreadable: a queue cannot be read.
    """
    count = 0 if now is None else expired_segments(times, now, hours)
    segments = store.segments[:count]
    losses: dict[str, int] = defaultdict(int)
    if segments:
        start = store.segments[count].base
        kept: dict[tuple[QueueFile, ...], int] = {}
        for one in waiting or ():
            queue = one.position.queue
            if queue is None or one.physical_offset >= start:
                continue
            if queue.files not in kept:
                kept[queue.files] = queue_end(queue.files, start, lambda: True).first_kept
            lost = kept[queue.files] - one.queue_offset
            if lost > 0:  # places of damaged units need not ascend: what is kept may be before the group
                losses[one.position.entry.group] += lost
    ordered = dict(sorted(losses.items(), key=lambda item: (-item[1], item[0])))
    return Retention(hours, segments, times[count - 1] if count else None, None if waiting is None else ordered)

"""What stands first about the transactions of a store: counts, the oldest pending one, what will happen to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow.compute as pc

from rmqinspect.broker.transactions import ABSENT, IN_HALF_TOPIC, IN_REAL_TOPIC, PENDING, REASONS, STATES
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.transactions import StoreTransactions, batches_of


@dataclass(frozen=True)
class Oldest:
    """The pending message whose first copy was stored first."""

    born: datetime | None  # None: outside the years 1 to 9999
    check_times: int


@dataclass(frozen=True)
class Fate:
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

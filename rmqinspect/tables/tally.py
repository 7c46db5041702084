"""Sums per distinct value: how many messages and bytes each topic, tag, host or minute has.

    keys      topic-a, 0 | topic-a, 1 | topic-b, 0 | ...        numbered as they appear
    sums      records, messages, bytes, first and last time     one row for each key

Exact up to 262,144 values of together 32 MiB. Above that the smaller half is forgotten, and counts as `others`: a value
that comes again begins at nothing, so the sums of a value may then be too small by at most what `others` has. The sums
of all values and others together are always exact.
"""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Bytes, Ints
from rmqinspect.codec.byte_ranges import Numbering
from rmqinspect.loops.record_rows import SUM_BYTES, SUM_FIRST, SUM_LAST, SUM_MESSAGES, SUM_RECORDS
from rmqinspect.loops.records import add_to_sums

MOST = 1 << 18  # values
_MOST_NAMES = 32 << 20  # bytes of them

_EMPTY = (0, 0, 0, (1 << 63) - 1, -(1 << 63))


class Tally(Struct):
    """Sums per key of one dimension. A key is some bytes and an integer; its meaning is the caller's."""

    keys: Numbering = field(default_factory=Numbering)
    _sums: Ints = field(default_factory=lambda: np.array([_EMPTY], np.int64))  # with room for more
    _squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    others: Ints = field(default_factory=lambda: np.array(_EMPTY, np.int64))  # sums of values that are not listed
    forgotten: int = 0  # bytes of values that came too late to be kept: a listed one may have some of them

    @property
    def sums(self) -> Ints:
        """A row of sums for each key; times are the lowest and the highest, in ms."""
        return self._sums[: len(self.keys)]

    @property
    def squares(self) -> NDArray[np.float64]:
        """For each key, the sum of the squares of its bytes in each tally that was joined."""
        return self._squares[: len(self.keys)]

    def take(self, raw: Bytes, starts: Ints, ends: Ints, integers: Ints, rows: Ints, messages: Ints) -> None:
        """Add records: their keys, their rows of `loops.record_rows`, and their numbers of messages; empty: all 1."""
        numbers = self.keys.number(raw, starts, ends, integers)
        self._make_room()
        add_to_sums(rows, messages, numbers, self._sums)
        self._forget()

    def join(self, following: "Tally") -> None:
        """Add the sums of another part of the log."""
        numbers = self.keys.number_of(following.keys)
        self._join(numbers, following)
        self._squares[numbers] += following.sums[:, SUM_BYTES].astype(np.float64) ** 2
        self._forget()

    def with_integers(self, integers: Ints) -> "Tally":
        """Return the sums under keys with other integers, one for each of the present ones; several may be alike."""
        return self._regrouped(self.keys.names, self.keys.starts, self.keys.sizes, integers)

    def by_integer(self, integers: Ints) -> "Tally":
        """Return the sums under keys without bytes."""
        nothing = np.zeros(len(self.keys), np.int64)
        return self._regrouped(np.empty(0, np.uint8), nothing, nothing, integers)

    def _regrouped(self, names: Bytes, starts: Ints, sizes: Ints, integers: Ints) -> "Tally":
        result = Tally()
        result._join(result.keys.number(names, starts, starts + sizes, integers), self)
        return result

    def by_one(self, integer: int) -> "Tally":
        """Return all sums under one key, those of `others` too."""
        result = Tally()
        if len(self.keys) or self.others[SUM_RECORDS]:
            result._numbers_of(integer)
            result._sums[0] = self.total()
        return result

    def add(self, integer: int, size: int) -> None:
        """Add bytes that are no record to the key of an integer."""
        number = self._numbers_of(integer)
        self._make_room()
        self._sums[number, SUM_BYTES] += size

    def total(self) -> Ints:
        """Return the sums of all values and others."""
        return joined(np.vstack((self.sums, self.others)))

    def _numbers_of(self, integer: int) -> Ints:
        nothing = np.zeros(1, np.int64)
        return self.keys.number(np.empty(0, np.uint8), nothing, nothing, nothing + integer)

    def select(self, which: Bools) -> "Tally":
        """Return the sums of some keys; those of the others are in `others`."""
        result, keys = Tally(), self.keys
        kept = np.flatnonzero(which)
        starts = keys.starts[kept]
        result.keys.number(keys.names, starts, starts + keys.sizes[kept], keys.integers[kept])
        result._sums, result._squares = self._sums[kept], self._squares[kept]
        result.others = joined(np.vstack((self.sums[~which], self.others)))
        result.forgotten = self.forgotten
        return result

    def _join(self, numbers: Ints, other: "Tally") -> None:
        self._make_room()
        for column in (SUM_RECORDS, SUM_MESSAGES, SUM_BYTES):
            np.add.at(self._sums[:, column], numbers, other.sums[:, column])
        np.minimum.at(self._sums[:, SUM_FIRST], numbers, other.sums[:, SUM_FIRST])
        np.maximum.at(self._sums[:, SUM_LAST], numbers, other.sums[:, SUM_LAST])
        self.others = joined(np.vstack((self.others, other.others)))
        self.forgotten += other.forgotten

    def _make_room(self) -> None:
        count = len(self.keys)
        if count > len(self._sums):
            self._sums = np.concatenate((self._sums, np.full((count, len(_EMPTY)), _EMPTY, np.int64)))
            self._squares = np.concatenate((self._squares, np.zeros(count)))

    def _forget(self) -> None:
        """Keep the values with the most bytes, half as many as there may be, if there are too many."""
        keys = self.keys
        if len(keys) <= MOST and len(keys.names) <= _MOST_NAMES:
            return
        order = np.argsort(-self.sums[:, SUM_BYTES], kind="stable")
        few = (np.arange(len(keys)) < MOST // 2) & (np.cumsum(keys.sizes[order]) <= _MOST_NAMES // 2)
        which = np.zeros(len(keys), np.bool_)
        which[order[few]] = True
        kept = self.select(which)
        self.forgotten += int(kept.others[SUM_BYTES] - self.others[SUM_BYTES])
        self.keys, self._sums, self._squares, self.others = kept.keys, kept._sums, kept._squares, kept.others


def joined(rows: Ints) -> Ints:
    """Return the sums of all rows."""
    sums: Ints = rows.sum(axis=0)
    sums[SUM_FIRST], sums[SUM_LAST] = rows[:, SUM_FIRST].min(), rows[:, SUM_LAST].max()
    return sums

"""Numpy columns: their types, runs and joins; ranges of offsets; attributes computed when they are first asked for.

Ranges [start, end) of offsets: merged, intersected, left over; those of a result are ascending and apart.

    spans         |----|  |---|           others     |-----|
    merge         |-----------|           where they touch, overlap, or lie near
    intersect        |-|  |-|             what both hold
    uncovered           ||                what of a whole none holds

Of one kind of thing: where each range has more to say of itself, its owner merges.

Joins of columns: which row of one belongs to which rows of another, and the first rule of many that fits a row.

    ascending    10  20  20  40          find: the first equal one, ABSENT without
    wanted       20  30  40   5      ->   1  -1   3  -1

    keys          a   b   a   a          Keyed: places by key, ascending, however they came
    places        7   8   9  11      ->  a: 7 9 11   b: 8        first, last, the next one behind a place, how many

    keys          5   2   5   0   0      Groups: rows of one key, in the order of keys; 0 is none
    group         3   2   3   0   1      so such a row is a group of its own

All results are columns as long as what was asked. Nothing wanted, and nothing to find it in, are columns of length 0.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from rmqinspect.loops.arrays import Bytes as Bytes
from rmqinspect.loops.arrays import Ints as Ints

Bools = NDArray[np.bool_]
Units = np.ndarray[Any, np.dtype[Any]]  # rows of a layout: a structured dtype, from `layout.dtype_of`


def groups(*keys: Ints) -> list[tuple[int, int]]:
    """Return (first row, row after the last) of each run of rows in which no key changes."""
    if not len(keys[0]):
        return []
    changes = np.zeros(len(keys[0]) - 1, np.bool_)
    for key in keys:
        changes |= key[1:] != key[:-1]
    firsts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    return list(zip(firsts.tolist(), np.append(firsts[1:], len(keys[0])).tolist(), strict=True))


def used_units(units: Units) -> Units:
    """Return a mask of the rows that are not all zeros."""
    return reduce(or_, (units[name] != 0 for name in units.dtype.names or ()))


Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801  used like a function
    """As `functools.cached_property`, without its lock.

    Up to Python 3.11 that lock is one for all instances: threads would compute the checksums of their own records
    one after the other.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        if instance is None:
            return self
        # From now on the attribute is found before this method.
        value = instance.__dict__[self._function.__name__] = self._function(instance)
        return value


Span = tuple[int, int]


def merge(ranges: Iterable[Span], within: int = 0) -> list[Span]:
    """Return ranges ascending and apart, empty ones left out; those up to `within` bytes apart become one."""
    merged: list[Span] = []
    for start, end in sorted(one for one in ranges if one[0] < one[1]):
        if merged and start <= merged[-1][1] + within:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def intersect(ranges: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return what lies in ranges of both; each is ascending and apart."""
    common: list[Span] = []
    at = 0
    for start, end in ranges:
        while at < len(others) and others[at][1] <= start:
            at += 1
        for first, last in islice(others, at, None):
            if first >= end:
                break
            common.append((max(start, first), min(end, last)))
    return common


def uncovered(covered: Iterable[Span], whole: Span) -> list[Span]:
    """Return what of `whole` no covered range holds; `covered` is ascending and apart."""
    borders = [whole[0], *(border for one in covered for border in one), whole[1]]
    pairs = ((max(start, whole[0]), min(end, whole[1])) for start, end in zip(borders[::2], borders[1::2], strict=True))
    return [pair for pair in pairs if pair[0] < pair[1]]


ABSENT = -1
"""In place of a row or of an offset: there is none."""

Keys = NDArray[Any]  # integers, signed or not
Indexes = NDArray[np.int32]
Integer = TypeVar("Integer", np.int64, np.int32)
Scalar = TypeVar("Scalar", bound=np.generic)


def find(ascending: Keys, wanted: Keys) -> Ints:
    """Return the first row of `ascending` that equals each one wanted, ABSENT without."""
    if not len(ascending):
        return np.full(len(wanted), ABSENT, np.int64)
    at = np.searchsorted(ascending, wanted)
    # Behind the last row is nothing to compare with: the last one is smaller than what was wanted.
    np.minimum(at, len(ascending) - 1, out=at)
    at[ascending[at] != wanted] = ABSENT
    return at


# Of more values numpy's own way is faster, by tables of hashes or of bits.
_FEW = 1 << 12


def distinct(values: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the distinct values, ascending.

    As np.unique. Its first call loads numpy's masked arrays, which takes longer than small stores do.
    """
    if len(values) > _FEW:
        return np.unique(values)
    ascending = np.sort(values)
    is_first = np.ones(len(ascending), np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending[is_first]


def is_among(values: Keys, some: Keys | Sequence[int]) -> Bools:
    """Return which values are among some others, in any order. As np.isin, without masked arrays as `distinct`."""
    if len(values) + len(some) > _FEW:
        return np.isin(values, some)
    found: Bools = find(np.sort(some), values) != ABSENT
    return found


def find_range(starts: Keys, ends: Keys, places: Keys) -> Ints:
    """Return the number of the range [start, end) that holds each place, ABSENT without; starts ascend.

    Of ranges that overlap only the one that starts last is looked at.
    """
    if not len(starts):
        return np.full(len(places), ABSENT, np.int64)
    at = np.searchsorted(starts, places, "right") - 1
    at[places >= ends[at]] = ABSENT  # ABSENT itself is compared with the last range: it stays
    return at


def take(values: NDArray[Integer], rows: Ints, absent: int = ABSENT) -> NDArray[Integer]:
    """Return the values in some rows; `absent` in place of that of no row."""
    if not len(values):
        return np.full(len(rows), absent, values.dtype)
    found = values[rows]
    found[rows < 0] = absent
    return found


def first_rule(conditions: Sequence[Bools]) -> NDArray[np.int8]:
    """Return the number of the first condition that holds in each row, that of the last one where none does."""
    numbers = np.full(len(conditions[0]), len(conditions) - 1, np.int8)
    for number in reversed(range(len(conditions))):
        numbers[conditions[number]] = number
    return numbers


def _ascend(values: Keys) -> bool:
    return bool((values[1:] > values[:-1]).all())


class Keyed:
    """Places by key: where the records that have a key are."""

    def __init__(self, keys: Keys, places: Ints) -> None:
        """Take columns of one length, in any order."""
        if not _ascend(keys):
            # One sort does where places come in order, as those of a log do.
            order = np.argsort(keys, kind="stable") if _ascend(places) else np.lexsort((places, keys))
            keys, places = keys[order], places[order]
        self.keys, self.places = keys, places
        self._unique = _ascend(keys)  # nearly always: one search does then

    def has(self, keys: Keys) -> Bools:
        """Return which keys there are."""
        return find(self.keys, keys) >= 0

    def first(self, keys: Keys) -> Ints:
        """Return the lowest place of each key, ABSENT without."""
        return take(self.places, find(self.keys, keys))

    def last(self, keys: Keys) -> Ints:
        """Return the highest place of each key, ABSENT without."""
        found = find(self.keys, keys)
        if not self._unique:
            found = np.where(found >= 0, np.searchsorted(self.keys, keys, "right") - 1, ABSENT)
        return take(self.places, found)

    def count(self, keys: Keys) -> Ints:
        """Return how many places each key has."""
        if self._unique:
            return self.has(keys).astype(np.int64)
        return np.searchsorted(self.keys, keys, "right") - np.searchsorted(self.keys, keys)

    def behind(self, keys: Keys, places: Ints) -> tuple[Ints, Ints]:
        """Return the first place of each key behind a given one, ABSENT without, and how many there are."""
        if self._unique:
            first = self.first(keys)
            first[first <= places] = ABSENT
            return first, (first != ABSENT).astype(np.int64)
        low, end = np.searchsorted(self.keys, keys), np.searchsorted(self.keys, keys, "right")
        high = end.copy()
        # A binary search in each key's places.
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            before = self.places[middle] <= places[open_]
            low[open_[before]] = middle[before] + 1
            high[open_[~before]] = middle[~before]
        return take(self.places, np.where(low < end, low, ABSENT)), end - low


class Groups:
    """The rows of a table by key, ascending: columns of one value for each group."""

    def __init__(self, keys: Keys) -> None:
        """Take the key of each row; 0: it has none."""
        self._order = np.argsort(keys, kind="stable").astype(np.int32)  # rows of one key stay in order
        ordered = keys[self._order]
        new = np.ones(len(keys), np.bool_)
        new[1:] = (ordered[1:] != ordered[:-1]) | (ordered[1:] == 0)
        self._begins = np.flatnonzero(new)
        self.size: Indexes = np.diff(self._begins, append=len(keys)).astype(np.int32)
        self.first: Indexes = self._order[self._begins]
        self.last: Indexes = self._order[self._begins + self.size - 1]

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of the values of each group."""
        return self._reduced(np.add, values)

    def least(self, places: Ints) -> Ints:
        """Return the lowest place of each group that is not ABSENT, ABSENT without."""
        # As an unsigned number ABSENT is the highest.
        return self._reduced(np.minimum, places.view(np.uint64)).view(np.int64)

    def _reduced(self, function: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        if not len(self._begins):
            return values[:0]
        reduced: NDArray[Any] = function.reduceat(values[self._order], self._begins, dtype=values.dtype)
        return reduced

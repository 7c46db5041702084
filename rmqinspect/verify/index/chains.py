"""The chains of an index file, followed in columns: IX-CHAIN.

A put makes its entry the newest of its slot and notes which one was that before. So, entries taken
in their order, the previous of each must be the newest so far of its slot, and in the end each slot
must begin with its newest.

One damaged entry makes up to three links look wrong: its own, the one that leads to it, and the one
that should. Only the first that is met is told; what it names is marked, and a link that is wrong
because of a marked entry says nothing new.

Source: IndexFile#putKey, #selectPhyOffset; core 5.5 and 5.6.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.index.geometry import Geometry
from rmqinspect.verify.index.header import Content

# Slots followed in one pass over the entries: a default file has five million.
SLOTS_AT_ONCE = 1 << 23
_SHARED = -1  # stands in a slot for a moment
_ROW_BITS = 24  # of a row's number in a window, beside its slot in one sortable number


class Broken(IntEnum):
    """What is wrong with an entry or a slot."""

    UNWRITTEN = 1
    HASH = 2
    OUTSIDE = 3
    LOOP = 4
    LINK = 5
    HEAD_OUTSIDE = 6
    HEAD_LOST = 7
    HEAD = 8


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive entries as columns of shape (n,)."""

    first: int  # number of the first one
    hash: Ints
    place: Ints  # physical offset
    previous: Ints
    written: Bools  # not all zeros

    @classmethod
    def of(cls, first: int, entries: NDArray[Any]) -> "Window":
        """Take rows of the dtype of IndexEntry, the first of which has the number `first`."""
        key_hash, place, previous = (
            entries[name].astype(np.int64) for name in ("key_hash", "physical_offset", "previous")
        )
        return cls(first, key_hash, place, previous, written(entries))


def written(entries: NDArray[Any]) -> Bools:
    """Return which entries hold anything but zeros: others were never written, or lost, whatever the header counts."""
    zeros: Bools = entries["physical_offset"] == 0
    if zeros.any():
        for name in ("key_hash", "time_diff", "previous"):
            zeros = zeros & (entries[name] == 0)
    return ~zeros


class Marks:
    """Numbers of entries, in one bit each. The number 0, for no entry, is never marked."""

    def __init__(self, last: int) -> None:
        self._bits = np.zeros((last >> 3) + 1, np.uint8)

    def add(self, numbers: Ints) -> None:
        """Mark entries."""
        numbers = numbers[numbers > 0]
        np.bitwise_or.at(self._bits, numbers >> 3, (1 << (numbers & 7)).astype(np.uint8))

    def has(self, numbers: Ints) -> Bools:
        """Return which entries are marked."""
        found: Bools = (self._bits[numbers >> 3] >> (numbers & 7) & 1).astype(np.bool_)
        return found


class Chains:
    """The chains of the slots from `low` on, as many as are followed at once."""

    def __init__(self, geometry: Geometry, low: int, content: Content, last: int, patterns: Marks) -> None:
        """`last` is the last entry that will be taken; `marks` are shared by all slots of the file."""
        self.low, self.slots = low, geometry.slots
        self.content, self.last, self.patterns = content, last, patterns
        self.heads = np.zeros(min(SLOTS_AT_ONCE, geometry.slots - low), np.int32)  # newest entry of each slot so far

    def take(self, window: Window) -> tuple[Ints, Ints, Ints]:
        """Follow the chains through a window; return the broken rows, how they are broken, what was expected."""
        rows, expected = self._lead(window)
        numbers, previous = window.first + rows, window.previous[rows]
        wrong = np.flatnonzero(previous != expected)
        kinds = np.zeros(len(window.hash), np.int64)
        kinds[rows[wrong]] = self._judge(numbers[wrong], previous[wrong], expected[wrong])
        wanted = np.zeros(len(window.hash), np.int64)
        wanted[rows] = expected
        if self.low == 0:  # what lies in no slot is told once
            kinds[~window.written] = Broken.UNWRITTEN
            kinds[window.hash < 0] = Broken.HASH
        broken = np.flatnonzero(kinds)
        return broken, kinds[broken], wanted[broken]

    def _lead(self, window: Window) -> tuple[Ints, Ints]:
        """Return the rows that lie in these slots, and which entry each must lead to; move the slots on."""
        slots = window.hash % self.slots - self.low
        lie = window.written & (window.hash >= 0)
        if not lie.all():
            self.patterns.add(window.first + np.flatnonzero(~lie))
        if self.low or len(self.heads) < self.slots:
            lie &= (slots >= 0) & (slots < len(self.heads))
        rows = np.flatnonzero(lie)
        slots = slots if len(rows) == len(slots) else slots[rows]
        numbers = (window.first + rows).astype(np.int32)
        expected = self.heads[slots].astype(np.int64)
        self.heads[slots] = numbers
        # Of entries that share a slot one was kept: all of them are taken once more, in order.
        passed_over = self.heads[slots] != numbers
        if passed_over.any():
            self.heads[slots[passed_over]] = _SHARED
            shared = np.flatnonzero(self.heads[slots] == _SHARED)
            expected[shared] = self._in_order(slots[shared], numbers[shared], expected[shared])
        return rows, expected

    def _in_order(self, slots: Ints, numbers: NDArray[np.int32], before: Ints) -> Ints:
        """Return which entry each must lead to, of entries that share slots; `before`: the slots' newest until then."""
        # A sort of plain numbers is faster than one that returns an order.
        pairs = np.sort(slots << _ROW_BITS | np.arange(len(slots)))
        slots, order = pairs >> _ROW_BITS, pairs & ((1 << _ROW_BITS) - 1)
        begins = np.concatenate(([True], slots[1:] != slots[:-1]))
        expected = np.empty_like(before)
        expected[order] = np.where(begins, before[order], np.concatenate(([0], numbers[order[:-1]])))
        ends = np.append(begins[1:], True)
        self.heads[slots[ends]] = numbers[order[ends]]
        return expected

    def _judge(self, numbers: Ints, previous: Ints, expected: Ints) -> Ints:
        """Return how the links of some entries are broken; 0 where a marked entry explains it."""
        self.patterns.add(numbers)
        outside = (previous < 0) | (previous > self.content.newest)
        loops = ~outside & (previous >= numbers)
        kinds = np.where(outside, Broken.OUTSIDE, np.where(loops, Broken.LOOP, Broken.LINK)).astype(np.int64)
        links = np.flatnonzero(kinds == Broken.LINK)
        kinds[links[self._explained(previous[links], expected[links])]] = 0
        return kinds

    def compare(self, first: int, heads: Ints) -> tuple[Ints, Ints, Ints]:
        """Compare slots as stored, from number `first` on, with what the entries say; as `take`."""
        expected = self._own(first, heads)
        wrong = heads != expected
        if self.content.newest > self.last:
            # The file was cut: what this slot begins with is not there.
            wrong &= (heads <= self.last) | (heads > self.content.newest)
        pending = self.content.pending_slot - first
        if 0 <= pending < len(heads):
            wrong[pending] &= heads[pending] != self.content.newest + 1
        rows = np.flatnonzero(wrong)
        found, wanted = heads[rows], expected[rows]
        outside = (found < 0) | (found > self.content.newest)
        kinds = np.where(outside, Broken.HEAD_OUTSIDE, np.where(found == 0, Broken.HEAD_LOST, Broken.HEAD))
        kinds = kinds.astype(np.int64)
        inside = np.flatnonzero(~outside)
        kinds[inside[self._explained(found[inside], wanted[inside])]] = 0
        reported = np.flatnonzero(kinds)
        return rows[reported], kinds[reported], wanted[reported]

    def count_used(self, first: int, heads: Ints) -> int:
        """Return how many of the slots as stored are used for certain: slot and entries agree."""
        return int(np.count_nonzero(heads[heads == self._own(first, heads)]))

    def _own(self, first: int, heads: Ints) -> Ints:
        return self.heads[first - self.low : first - self.low + len(heads)].astype(np.int64)

    def _explained(self, found: Ints, expected: Ints) -> Bools:
        """Return which wrong links are so because of a marked entry, and mark what the others name."""
        explained = self.patterns.has(found) | self.patterns.has(expected)
        new = np.flatnonzero(~explained)
        # Of two links that name the same entry, the first is told.
        names, owners = np.concatenate((found[new], expected[new])), np.concatenate((new, new))
        order = np.lexsort((owners, names))
        names, owners = names[order], owners[order]
        again = np.flatnonzero((names[1:] == names[:-1]) & (names[1:] > 0) & (owners[1:] != owners[:-1])) + 1
        explained[owners[again]] = True
        self.patterns.add(names)
        return explained

"""The slot chains of an index file, followed in columns: IX-CHAIN.

Idea: a put makes its entry the newest of its slot, and notes in the entry which one was the newest before. So take
the entries in order and keep the newest of each slot: an entry's `previous` must be that one, and in the end each
slot must hold its newest entry.

    slot 1   7
             |
    entries  7 -> 5 -> 2 -> 1 -> 0        `previous` of each; 0 ends the chain

    entry taken, of slot 1     5: previous must be 2, the newest of slot 1 so far; then the newest is 5

Invariants:
  - the links that are followed are those of the replay, never those of the file: a loop in the file ends nothing;
  - one damaged entry makes up to three links wrong: its own, the one that leads to it, and the one that should.
    The first that is met is reported and what it names is marked; a wrong link that names a marked entry is not, if it
    would be right had that entry another slot;
  - memory is bounded by SLOTS_AT_ONCE: a larger file takes a pass over its entries per so many slots.

Source: IndexFile#putKey, #selectPhyOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.index.geometry import Geometry
from rmqinspect.verify.index.entries import Entries, written
from rmqinspect.verify.index.header import Content

# Slots per pass over the entries; a default file has five million.
SLOTS_AT_ONCE = 1 << 23
_MOST_LOOKED_UP = 10_000  # entries read one by one; of more wrong links each that names a marked entry follows from it
_SHARED = -1  # marks slots that several entries of a window share
_ROW_BITS = 24  # low bits of a sort key: the row in the window; the slot is above


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
    physical_offset: Ints  # that each points at
    previous: Ints
    written: Bools  # not all zeros

    @classmethod
    def of(cls, first: int, entries: Entries) -> "Window":
        """Return the columns of entries, the first of which has the number `first`."""
        key_hash, physical_offset, previous = (
            entries[name].astype(np.int64) for name in ("key_hash", "physical_offset", "previous")
        )
        return cls(first, key_hash, physical_offset, previous, written(entries))


class EntrySet:
    """A set of entry numbers, one bit each. The number 0 means no entry and is never in it."""

    def __init__(self, last: int) -> None:
        self._bits = np.zeros((last >> 3) + 1, np.uint8)

    def add(self, numbers: Ints) -> None:
        """Add entries."""
        numbers = numbers[numbers > 0]
        np.bitwise_or.at(self._bits, numbers >> 3, (1 << (numbers & 7)).astype(np.uint8))

    def has(self, numbers: Ints) -> Bools:
        """Return which entries are in the set."""
        found: Bools = (self._bits[numbers >> 3] >> (numbers & 7) & 1).astype(np.bool_)
        return found


class MarkedEntries:
    """The entries of a file that may explain wrong links."""

    def __init__(self, last: int) -> None:
        """`last` is the last entry that will be taken."""
        self.last = last
        self.lost = EntrySet(last)  # of no slot: what leads to them is wrong anyway
        self.named = EntrySet(last)  # have a wrong link themselves, or a reported one names them
        self.wanted: dict[int, int] = {}  # which entry those with a wrong link should lead to


class Chains:
    """The chains of up to SLOTS_AT_ONCE slots, from slot `low` on."""

    def __init__(
        self,
        geometry: Geometry,
        low: int,
        content: Content,
        marked: MarkedEntries,
        previous_of: Callable[[int], int],
    ) -> None:
        """`marked` is shared by all slots of the file; `previous_of` reads the link of one entry."""
        last = marked.last
        self.low, self.slots = low, geometry.slots
        self.content, self.last, self.marked = content, last, marked
        self._previous_of = previous_of
        self.heads = np.zeros(min(SLOTS_AT_ONCE, geometry.slots - low), np.int32)  # newest entry of each slot so far

    def take(self, window: Window) -> tuple[Ints, Ints, Ints]:
        """Follow the chains through a window; return (rows, `Broken`, expected entry) of the broken links."""
        rows, expected = self._expected_links(window)
        numbers, previous = window.first + rows, window.previous[rows]
        wrong = np.flatnonzero(previous != expected)
        kinds = np.zeros(len(window.hash), np.int64)
        kinds[rows[wrong]] = self._judge(numbers[wrong], previous[wrong], expected[wrong])
        wanted = np.zeros(len(window.hash), np.int64)
        wanted[rows] = expected
        if self.low == 0:  # entries of no slot are reported once, in the first pass
            kinds[~window.written] = Broken.UNWRITTEN
            kinds[window.hash < 0] = Broken.HASH
        broken = np.flatnonzero(kinds)
        return broken, kinds[broken], wanted[broken]

    def _expected_links(self, window: Window) -> tuple[Ints, Ints]:
        """Return (rows in these slots, entry that each must lead to), and make the rows the newest of their slots."""
        slots = window.hash % self.slots - self.low
        lie = window.written & (window.hash >= 0)
        if not lie.all():
            self.marked.lost.add(window.first + np.flatnonzero(~lie))
        if self.low or len(self.heads) < self.slots:
            lie &= (slots >= 0) & (slots < len(self.heads))
        rows = np.flatnonzero(lie)
        slots = slots if len(rows) == len(slots) else slots[rows]
        numbers = (window.first + rows).astype(np.int32)
        expected = self.heads[slots].astype(np.int64)
        self.heads[slots] = numbers
        # Of entries that share a slot, the assignment kept one: take all of them again, in order.
        lost = self.heads[slots] != numbers
        if lost.any():
            self.heads[slots[lost]] = _SHARED
            shared = np.flatnonzero(self.heads[slots] == _SHARED)
            expected[shared] = self._in_order(slots[shared], numbers[shared], expected[shared])
        return rows, expected

    def _in_order(self, slots: Ints, numbers: NDArray[np.int32], before: Ints) -> Ints:
        """Return the entry that each must lead to, of entries that share slots; `before`: the newest so far."""
        # Sorting plain numbers is faster than argsort.
        pairs = np.sort(slots << _ROW_BITS | np.arange(len(slots)))
        slots, order = pairs >> _ROW_BITS, pairs & ((1 << _ROW_BITS) - 1)
        begins = np.concatenate(([True], slots[1:] != slots[:-1]))
        expected = np.empty_like(before)
        expected[order] = np.where(begins, before[order], np.concatenate(([0], numbers[order[:-1]])))
        ends = np.append(begins[1:], True)
        self.heads[slots[ends]] = numbers[order[ends]]
        return expected

    def _judge(self, numbers: Ints, previous: Ints, expected: Ints) -> Ints:
        """Return how the links of these entries are broken; 0 where a marked entry explains it."""
        self.marked.named.add(numbers)
        if len(self.marked.wanted) < _MOST_LOOKED_UP:
            self.marked.wanted.update(zip(numbers.tolist(), expected.tolist(), strict=True))
        outside = (previous < 0) | (previous > self.content.newest)
        loops = ~outside & (previous >= numbers)
        kinds = np.where(outside, Broken.OUTSIDE, np.where(loops, Broken.LOOP, Broken.LINK)).astype(np.int64)
        links = np.flatnonzero(kinds == Broken.LINK)
        kinds[links[self._explained(previous[links], expected[links])]] = 0
        return kinds

    def compare(self, first: int, heads: Ints) -> tuple[Ints, Ints, Ints]:
        """Compare stored slots, from number `first` on, with the replayed ones; return what `take` does."""
        expected = self._replayed(first, heads)
        wrong = heads != expected
        if self.content.newest > self.last:
            # The file was cut: the slot's newest entry may be gone.
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
        """Return how many of the stored slots are used for certain: slot and entries agree."""
        return int(np.count_nonzero(heads[heads == self._replayed(first, heads)]))

    def _replayed(self, first: int, heads: Ints) -> Ints:
        return self.heads[first - self.low : first - self.low + len(heads)].astype(np.int64)

    def _explained(self, found: Ints, expected: Ints) -> Bools:
        """Return which wrong links follow from a marked entry, and mark what the others name."""
        marked = self.marked
        left, joined = self._if_moved(found, expected)
        explained = marked.lost.has(found) | marked.lost.has(expected)
        explained |= (marked.named.has(found) & left) | (marked.named.has(expected) & joined)
        new = np.flatnonzero(~explained)
        # Of two links that name the same entry, the first is reported.
        names, owners = np.concatenate((found[new], expected[new])), np.concatenate((new, new))
        follows = np.concatenate((left[new], joined[new]))
        order = np.lexsort((owners, names))
        names, owners, follows = names[order], owners[order], follows[order]
        again = np.flatnonzero((names[1:] == names[:-1]) & (names[1:] > 0) & (owners[1:] != owners[:-1])) + 1
        explained[owners[again[follows[again]]]] = True
        marked.named.add(names)
        return explained

    def _if_moved(self, found: Ints, expected: Ints) -> tuple[Bools, Bools]:
        """Return which links would be right had the entry found, or the one expected, stayed in another slot.

        The links behind an entry whose hash changed: in its old slot it is found where its own previous one is
        expected, in its new one it is expected where the one that it should lead to is found.
        """
        if len(found) > _MOST_LOOKED_UP:
            return np.ones(len(found), np.bool_), np.ones(len(found), np.bool_)
        pairs = list(zip(found.tolist(), expected.tolist(), strict=True))
        wanted = self.marked.wanted
        left = [f > 0 and self._previous_of(f) == e for f, e in pairs]
        joined = [e > 0 and (wanted[e] if e in wanted else self._previous_of(e)) == f for f, e in pairs]
        return np.array(left, np.bool_), np.array(joined, np.bool_)

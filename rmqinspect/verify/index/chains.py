"""The slot chains of an index file, followed entry by entry: IX-CHAIN.

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

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.kernels import Bytes, BytesOut, Int32sOut, TableOut, int32_at, kernel, prefetch
from rmqinspect.codec.layout import place_of
from rmqinspect.index.geometry import Geometry
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.verify.index.entries import ENTRY_SIZE, is_written
from rmqinspect.verify.index.header import Content

# Slots per pass over the entries; a default file has five million.
SLOTS_AT_ONCE = 1 << 23
_MOST_LOOKED_UP = 10_000  # entries read one by one; of more wrong links each that names a marked entry follows from it

# What is wrong with an entry or a slot. From LINK on, it leads to another entry in use than it should.
UNWRITTEN, HASH, OUTSIDE, LOOP, HEAD_OUTSIDE, LINK, HEAD_LOST, HEAD = range(1, 9)
WORDS = {
    UNWRITTEN: "it is in use but holds only zeros",
    HASH: "its hash is negative, so it belongs to no slot",
    OUTSIDE: "its previous entry is not in use: the chain leaves the entries of the file",
    LOOP: "its previous entry is itself or a newer one: the chain loops",
    LINK: "its previous entry is not the next older one of the slot: the chain crosses another or skips entries",
    HEAD_OUTSIDE: "it holds the number of an entry that is not in use",
    HEAD_LOST: "it is empty, but entries belong to it",
    HEAD: "it does not hold the newest entry that belongs to it",
}

# Expected of an entry that belongs to no slot.
OF_NO_SLOT = {UNWRITTEN: "an entry", HASH: "0 or more"}

# Columns of a table of what is broken: row of the entry or slot in its window, and what it leads to.
ROW, KIND, _FOUND, _EXPECTED, _MOVED, _COLUMNS = range(6)

# Marks of an entry that may explain wrong links.
_LOST = 1  # of no slot: what leads to it is wrong anyway
_NAMED = 2  # it has a wrong link itself, or a reported one names it

# A wrong link would be right had an entry another slot: the one that was found stayed, the one expected not come.
_LEFT, _JOINED = 1, 2

_AHEAD = 64  # entries from which a slot is fetched until its entry's turn
_HASH, _PREVIOUS = place_of(IndexEntry, "key_hash"), place_of(IndexEntry, "previous")


@kernel
def _follow(
    raw: Bytes, first: int, slots: int, low: int, newest: int, heads: Int32sOut, marks: BytesOut, broken: TableOut
) -> int:
    """Follow the chains through entries, the first of which has the number `first`; return the broken ones' number.

    `low`: of the slot of heads[0]. Numbers of entries and slots are below 2^31.
    """
    count, rows = 0, min(len(raw) // ENTRY_SIZE, len(marks) - first, len(broken))
    for row in range(rows):
        at, number, kind, expected = row * ENTRY_SIZE, first + row, 0, 0
        if row + _AHEAD < rows:
            slot = int32_at(raw, at + _AHEAD * ENTRY_SIZE + _HASH) % slots - low
            if 0 <= slot < len(heads):
                prefetch(heads, slot)
        key_hash, previous = int32_at(raw, at + _HASH), int32_at(raw, at + _PREVIOUS)
        if key_hash < 0:
            kind = HASH
        elif key_hash | previous == 0 and not is_written(raw, at):
            kind = UNWRITTEN
        else:
            slot = key_hash % slots - low
            if slot < 0 or slot >= len(heads):
                continue
            expected = heads[slot]
            heads[slot] = number
            if previous == expected:
                continue
            kind = OUTSIDE if previous < 0 or previous > newest else LOOP if previous >= number else LINK
        marks[number] = marks[number] | (_NAMED if kind > HASH else _LOST)
        if kind > HASH or low == 0:  # entries of no slot are reported once, in the first pass
            broken[count, 0], broken[count, 1] = row, kind
            broken[count, 2], broken[count, 3] = previous, expected
            count += 1
    return count


@kernel
def _explain(marks: BytesOut, broken: TableOut) -> None:
    """Take the kind from links that follow from a marked entry, and mark what the others name."""
    for row in range(len(broken)):
        found, expected, moved = broken[row, 2], broken[row, 3], broken[row, 4]
        if broken[row, 1] < LINK or not (0 <= found < len(marks) and 0 <= expected < len(marks)):
            continue
        lost = (marks[found] | marks[expected]) & _LOST
        left, joined = marks[found] & _NAMED and moved & _LEFT, marks[expected] & _NAMED and moved & _JOINED
        if lost or left or joined:
            broken[row, 1] = 0
            continue
        if found:
            marks[found] = marks[found] | _NAMED
        if expected:
            marks[expected] = marks[expected] | _NAMED


class Marked:
    """The entries of a file that may explain wrong links, and where those look."""

    def __init__(self, last: int, previous_of: Callable[[int], int]) -> None:
        """`last` is the last entry that will be taken; `previous_of` reads the link of one entry."""
        self.last, self.previous_of = last, previous_of
        self.marks = np.zeros(last + 1, np.uint8)  # by entry; the number 0 means no entry and is never marked
        self.wanted: dict[int, int] = {}  # which entry those with a wrong link should lead to

    def unexplained(self, broken: Ints) -> Ints:
        """Return the rows that follow from no marked entry, and mark what they name."""
        links = np.flatnonzero(broken[:, KIND] >= LINK)
        broken[links, _MOVED] = _LEFT | _JOINED
        if len(links) <= _MOST_LOOKED_UP:
            broken[links, _MOVED] = [self._if_moved(*pair) for pair in broken[links, _FOUND : _EXPECTED + 1].tolist()]
        _explain(self.marks, broken)
        return broken[broken[:, KIND] > 0]

    def _if_moved(self, found: int, expected: int) -> int:
        """Return whether a link would be right had the entry found, or the one expected, another slot.

        The links behind an entry whose hash changed: in its old slot it is found where its own previous one is
        expected, in its new one it is expected where the one that it should lead to is found.
        """
        left = found > 0 and self.previous_of(found) == expected
        leads_to = self.wanted[expected] if expected in self.wanted else self.previous_of(expected) if expected else -1
        return left * _LEFT | (leads_to == found) * _JOINED


class Chains:
    """The chains of up to SLOTS_AT_ONCE slots, from slot `low` on."""

    def __init__(self, geometry: Geometry, low: int, content: Content, marked: Marked) -> None:
        """`marked` is shared by all slots of the file."""
        self.low, self.slots = low, geometry.slots
        self.content, self.marked = content, marked
        # The newest entry of each slot so far.
        self.heads: NDArray[np.int32] = np.zeros(min(SLOTS_AT_ONCE, geometry.slots - low), np.int32)
        self._broken = np.zeros((0, _COLUMNS), np.int64)

    def take(self, first: int, entries: Units) -> Ints:
        """Follow the chains through entries, from number `first` on; return a table of the broken ones."""
        if len(self._broken) < len(entries):
            self._broken = np.zeros((len(entries), _COLUMNS), np.int64)
        raw, marked = entries.view(np.uint8), self.marked
        count = _follow(raw, first, self.slots, self.low, self.content.newest, self.heads, marked.marks, self._broken)
        broken = self._broken[:count]
        if count and len(marked.wanted) < _MOST_LOOKED_UP:
            wrong = broken[broken[:, KIND] > HASH]
            marked.wanted.update(zip((first + wrong[:, ROW]).tolist(), wrong[:, _EXPECTED].tolist(), strict=True))
        return marked.unexplained(broken) if count else broken

    def compare(self, first: int, heads: NDArray[np.int32]) -> tuple[Ints, int]:
        """Compare stored slots, from number `first` on, with the replayed ones.

        Return a table of the broken ones, and how many are used for certain: slot and entries agree.
        """
        replayed = self.heads[first - self.low : first - self.low + len(heads)]
        rows = np.flatnonzero(heads != replayed)
        used = int(np.count_nonzero(heads)) - int(np.count_nonzero(heads[rows]))
        newest, last = self.content.newest, self.marked.last
        found = heads[rows]
        wrong = (rows + first != self.content.pending_slot) | (found != newest + 1)
        if newest > last:
            # The file was cut: the slot's newest entry may be gone.
            wrong &= (found <= last) | (found > newest)
        rows, found = rows[wrong], found[wrong]
        outside = (found < 0) | (found > newest)
        kinds = np.where(outside, HEAD_OUTSIDE, np.where(found == 0, HEAD_LOST, HEAD))
        broken = np.stack((rows, kinds, found, replayed[rows], np.zeros_like(rows)), axis=1).astype(np.int64)
        return self.marked.unexplained(broken) if len(rows) else broken, used

"""What the index of a DLedger log says of entries that are lost: where each began, and how long it was.

    index   |unit 17|unit 18|unit 19|...      32 bytes each, magic, position, size, index, term: at 32 times its index

Units behind the log's end may be of an earlier life: only those count whose place, index and term continue the log.

Source: DLedgerMmapFileStore#recover, DLedgerEntryCoder#encodeIndex.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.rescue.ledger_bridge import BLANK, SMALLEST_ENTRY
from rmqinspect.rescue.ledger_chain import Run
from rmqinspect.schemas.dledger import ENTRY_MAGICS, EntryIndexUnit
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file

_UNIT = dtype_of(EntryIndexUnit)
_READ = 1 << 16  # units read at a time
_MOST = 1 << 20  # units of one hole that are looked at


class Unit(Struct, frozen=True):
    """A unit of the index."""

    position: int
    size: int
    index: int
    term: int


class LedgerIndex:
    """The indexes of the sources."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self._files = [list(_named(store)) for store in stores]
        self._holes: dict[tuple[int, int], dict[int, Unit]] = {}

    def _between(self, before: Run | None, after: Run | None) -> dict[int, Unit]:
        """Return the units of the entries between two known ones, by their place."""
        first = 0 if before is None else before.last + 1
        end = first + _MOST if after is None else min(after.index, first + _MOST)
        if before is None and after is not None:
            first = max(0, end - _MOST)
        key = (first, end)
        if key not in self._holes:
            low = 0 if before is None else before.end
            high = 1 << 62 if after is None else after.start
            found: dict[int, Unit] = {}
            for files in self._files:
                for unit in _units(files, first, end):
                    inside = low <= unit.position and unit.position + unit.size <= high
                    term = (before is None or unit.term >= before.term) and (after is None or unit.term <= after.term)
                    if inside and term:
                        found.setdefault(unit.position, unit)
            self._holes[key] = found
        return self._holes[key]

    def unit_at(self, place: int, before: Run | None, after: Run | None) -> Unit | None:
        """Return the unit that leads to a place between two known entries, None without one."""
        return self._between(before, after).get(place)

    def following(self, place: int, before: Run | None, after: Run | None) -> list[int]:
        """Return where the entry at a place ends, by its unit; else the next place that a unit leads to."""
        if before is None and after is None:
            return []
        units = self._between(before, after)
        if place in units:
            return [place + units[place].size]
        return sorted(one for one in units if one > place)[:1]

    def behind(self, last: Run, end: int, size: int) -> Iterator[Unit]:
        """Yield the units that continue a log behind its last known entry; `end`: where the next one may begin."""
        index = last.last + 1
        for unit in sorted(self._between(last, None).values(), key=lambda one: one.index):
            border = end - end % size + size
            goes_on = unit.position in (end, border) and unit.index == index
            if not goes_on or unit.position % size + unit.size > size - BLANK:
                return
            yield unit
            index, end = unit.index + 1, unit.position + unit.size


def _named(store: Store) -> Iterator[tuple[int, StoreFile]]:
    for file in store.of_kind("dledger_index"):
        name = file.name.rpartition("/")[2]
        if name.isascii() and name.isdecimal() and len(name) <= 20:
            yield int(name), file


def _units(files: Sequence[tuple[int, StoreFile]], first: int, end: int) -> Iterator[Unit]:
    """Yield the units of the entries [first, end) that agree with their place in the index."""
    for base, file in files:
        low, high = max(first * _UNIT.itemsize, base), min(end * _UNIT.itemsize, base + file.size)
        low += -low % _UNIT.itemsize
        try:
            with open_file(file) as reader:
                for at in range(low, high, _READ * _UNIT.itemsize):
                    raw = reader.read(at - base, min(_READ * _UNIT.itemsize, high - at))
                    units: Any = np.frombuffer(raw, _UNIT, len(raw) // _UNIT.itemsize)
                    numbers = at // _UNIT.itemsize + np.arange(len(units))
                    good = (units["magic"] == ENTRY_MAGICS[0]) & (units["index"] == numbers)
                    good &= (units["size"] >= SMALLEST_ENTRY) & (units["position"] >= 0) & (units["term"] >= 0)
                    good &= units["position"] < 1 << 61
                    for row in np.flatnonzero(good).tolist():
                        unit = units[row]
                        yield Unit(*(int(unit[name]) for name in ("position", "size", "index", "term")))
                    if not good.any():
                        break
        except Unreadable:
            continue

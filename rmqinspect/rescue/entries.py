"""The index entries of the sources that lead to places in question: what they say of the keys and the time there.

    record at 4711: UNIQ_KEY 7F00...A1, KEYS order-8
    entry          hash of "orders#7F00...A1"    whole seconds since the begin of its file
    entry          hash of "orders#order-8"      the same

An entry may be damaged as well. Its hash is proven by the chain that leads to it: a broker finds it from the slot which
its hash selects, and a changed hash selects another one.

Source: IndexFile#putKey, #selectPhyOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Units
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, read_entries, read_index_files, slot_windows
from rmqinspect.rescue.sources import Source
from rmqinspect.store.reader import open_file

_WINDOW = 1 << 17  # entries read at a time
_LONGEST_CHAIN = 1 << 12  # entries of one slot that are walked; a default file has four on average when it is full


class Entry(NamedTuple):
    """An index entry that leads to a place."""

    held_in: IndexFile
    number: int
    key_hash: int
    low: int | None  # ms: the record was stored from here on, None where the entry does not tell
    high: int  # ms: and not later

    @property
    def is_chained(self) -> bool:
        """Whether the slot that its hash selects leads to it."""
        assert self.held_in.geometry is not None
        geometry, number = self.held_in.geometry, 0
        if self.key_hash < 0:
            return False  # IndexFile#indexKeyHashMethod: no hash is
        slot = self.key_hash % geometry.slots
        try:
            with open_file(self.held_in.file) as reader:
                for _, heads in slot_windows(reader, geometry, slot, slot + 1):
                    number = int(heads[0])
                for _ in range(_LONGEST_CHAIN):
                    if number <= self.number:
                        break
                    entries = read_entries(reader, geometry, number, 1)
                    before = int(entries["previous"][0]) if len(entries) else 0
                    if not 0 < before < number:
                        return False
                    number = before
        except Unreadable:
            return False
        return number == self.number


class Entries:
    """The index entries of all sources that lead to some places."""

    def __init__(self, sources: Sequence[Source], places: Sequence[int], misdated: Sequence[int]) -> None:
        """Read them. `misdated`: places whose records' times the index may contradict.

        Where one file contradicts several, its begin may be what is wrong, and its times say nothing.
        """
        self._found: dict[int, dict[tuple[int, int | None], Entry]] = {}
        wanted = np.unique(np.array(places, np.int64))
        doubted = set(misdated)
        for source in sources if len(wanted) else ():
            for index in read_index_files(source.store, []):
                try:
                    found = list(_entries_to(index, wanted))
                except Unreadable:
                    continue
                several = len({place for place, _ in found if place in doubted}) > 1
                for place, entry in found:
                    if several:
                        entry = entry._replace(low=None)
                    # A copy of the file says nothing new.
                    self._found.setdefault(place, {}).setdefault((entry.key_hash, entry.low), entry)

    def at(self, place: int) -> list[Entry]:
        """Return the entries that lead to a place, each of those that say the same once."""
        return list(self._found.get(place, {}).values())


def _entries_to(index: IndexFile, wanted: Units) -> Iterator[tuple[int, Entry]]:
    if index.geometry is None or index.header is None:
        return
    begin = int(index.header.begin_timestamp)
    with open_file(index.file) as reader:
        for first in range(1, index.readable_entries + 1, _WINDOW):
            count = min(_WINDOW, index.readable_entries + 1 - first)
            entries = read_entries(reader, index.geometry, first, count)
            places = entries["physical_offset"].astype(np.int64)
            at = np.minimum(np.searchsorted(wanted, places), len(wanted) - 1)
            # An entry that was never written leads to 0, too.
            written = (places != 0) | (entries["key_hash"] != 0) | (entries["time_diff"] != 0)
            for row in np.flatnonzero((wanted[at] == places) & written).tolist():
                number, second = first + row, int(entries["time_diff"][row])
                # The first entry of a file may count from the end of the file before it, and 0 is said of all before.
                low = begin + 1000 * second if begin > 0 and number > 1 and second > 0 else None
                key_hash = int(entries["key_hash"][row])
                yield int(places[row]), Entry(index, number, key_hash, low, (low or 0) + 999)


def indexed_time(entries: Sequence[Entry]) -> tuple[int, int] | None:
    """Return the bounds of the store time that all entries of a record agree on, ms; None without any."""
    bounds = {(entry.low, entry.high) for entry in entries if entry.low is not None}
    if len(bounds) != 1:
        return None
    ((low, high),) = bounds
    assert low is not None
    return low, high

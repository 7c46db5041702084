"""How many slots and entries an index file was made for: the file itself does not say.

The settings `maxHashSlotNum` and `maxIndexNum` decide. Where they are not given, the defaults fit a
file of their size, and the other files of a store share one geometry. What is left is found from
the content: the entries lie on a grid that ends with the file, so only the grid row of entry 0 is
unknown; the newest entry has the physical offset that the header calls the end; and the right
choice is the one where every entry lies in the chain of the slot that its hash asks for.

Source: IndexFile, IndexHeader; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import Container, dtype_of, parse
from rmqinspect.errors import BadRecord, Unreadable
from rmqinspect.schemas.index import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.broker_conf import setting_size
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import FileReader, open_file

_HEADER_SIZE: int = IndexHeader.sizeof()
_SLOT_SIZE: int = IndexSlot.sizeof()
_ENTRY_SIZE: int = IndexEntry.sizeof()

# Entries that a geometry is tried on, and slots of theirs that are looked up: enough to tell, few
# enough to do for many candidates.
_TRIED_ENTRIES = 1 << 16
_TRIED_SLOTS = 256
# Share of tried entries that must lie in the right chain. The right geometry of an undamaged file
# has all; a wrong one has few, because its slots and previous numbers are other bytes. Half leaves
# room for damage in a file of few entries.
_ENOUGH = 0.5
_MAX_CANDIDATES = 1000
_WINDOW = (4 << 20) // _ENTRY_SIZE  # entries read at a time
_SLOT_WINDOW = (1 << 20) // _SLOT_SIZE  # slots: as numbers they take twice the bytes


@dataclass(frozen=True, slots=True)
class Geometry:
    """Numbers of slots and entries; entry 0 is never used, so one entry less can be stored."""

    slots: int
    entries: int

    @property
    def possible(self) -> bool:
        """Whether a broker can have these settings: they are positive Java ints."""
        return 0 < self.slots < 2**31 and 0 < self.entries < 2**31

    @property
    def size(self) -> int:
        """Bytes of a file of this geometry."""
        return self.entry_position(self.entries)

    def slot_position(self, slot: int) -> int:
        """Return the byte where a slot starts."""
        return _HEADER_SIZE + slot * _SLOT_SIZE

    def entry_position(self, entry: int) -> int:
        """Return the byte where an entry starts."""
        return _HEADER_SIZE + self.slots * _SLOT_SIZE + entry * _ENTRY_SIZE


DEFAULT_GEOMETRY = Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file with what its header says and the geometry it has."""

    file: StoreFile
    header: Container | None  # None: the file is shorter than a header
    geometry: Geometry | None  # None: not to be known

    @property
    def entries(self) -> int:
        """Entries in use as the header says; never negative."""
        return max(0, int(self.header.index_count) - 1) if self.header else 0

    @property
    def readable_entries(self) -> int:
        """Entries in use that lie within the geometry and the file."""
        return min(self.entries, self.last_entry)

    @property
    def last_entry(self) -> int:
        """Number of the last entry that lies within the geometry and the file, used or not; 0 for none."""
        if self.geometry is None:
            return 0
        held = (self.file.size - self.geometry.entry_position(0)) // _ENTRY_SIZE
        return max(0, min(self.geometry.entries, held) - 1)


def read_index_files(store: Store, unread: list[tuple[str, str]] | None = None) -> list[IndexFile]:
    """Return the store's index files in their order, each with header and geometry.

    Files that cannot be read are left out and noted in `unread`, as (name, what the system says).

    :raises Unreadable: the system reports an I/O error, and no `unread` was given.
    """
    configured = configured_geometry(store)
    known = [geometry for geometry in (configured, DEFAULT_GEOMETRY) if geometry]
    files = []
    for file in store.index_files:
        try:
            with open_file(file) as reader:
                header = _read_header(reader)
                geometry = _choose(reader, header, known) if header else None
        except Unreadable as error:
            if unread is None:
                raise
            unread.append((file.name, str(error)))
            continue
        if geometry:
            # What fitted last is tried first: the files of a store are made with the same settings.
            known = [geometry, *(other for other in known if other != geometry)]
        files.append(IndexFile(file, header, geometry))
    counts = Counter(index.geometry for index in files if index.geometry)
    usual = configured or max(counts, key=lambda geometry: counts[geometry], default=None)
    return [_with_usual(index, usual) for index in files]


def reread_index_file(file: StoreFile, geometry: Geometry | None) -> IndexFile:
    """Return an index file whose geometry is known already, with its header.

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(file) as reader:
        return IndexFile(file, _read_header(reader), geometry)


def configured_geometry(store: Store) -> Geometry | None:
    """Return the geometry that the settings ask for, the defaults in place of one; None without any."""
    slots = setting_size(store.settings, "maxHashSlotNum")
    entries = setting_size(store.settings, "maxIndexNum")
    if slots is None and entries is None:
        return None
    geometry = Geometry(slots or DEFAULT_SLOTS, entries or DEFAULT_ENTRIES)
    return geometry if geometry.possible else None


def _read_header(reader: FileReader) -> Container | None:
    raw = reader.read(0, _HEADER_SIZE)
    try:
        return parse(IndexHeader, raw, lambda: f"{reader.file.name} at 0 (0x0)")
    except BadRecord:
        return None


def _choose(reader: FileReader, header: Container, known: list[Geometry]) -> Geometry | None:
    for geometry in known:
        empty = header.index_count <= 1
        if geometry.size == reader.size and (empty or _agreement(reader, header, geometry) >= _ENOUGH):
            return geometry
    if inferred := _infer(reader, header):
        return inferred
    # A file that was cut or lengthened has its geometry still.
    return next((geometry for geometry in known if _agreement(reader, header, geometry) >= _ENOUGH), None)


def _with_usual(index: IndexFile, usual: Geometry | None) -> IndexFile:
    """Give a file the geometry of the store where its own is not known or differs by its length only.

    A broker maps every file with the size that its settings ask for: bytes behind that are not read.
    """
    own = index.geometry
    if usual is None or index.header is None or (own and own.slots != usual.slots):
        return index
    made = IndexFile(index.file, index.header, usual)
    if own is None and usual.size != index.file.size and made.readable_entries:
        with open_file(index.file) as reader:
            return made if _agreement(reader, index.header, usual) >= _ENOUGH else index
    return made


def _agreement(reader: FileReader, header: Container, geometry: Geometry) -> float:
    """Return the share of entries that lie in the chain of their own slot, of those tried."""
    entries = read_entries(reader, geometry, 1, min(header.index_count - 1, _TRIED_ENTRIES))
    if not len(entries):
        return 0.0
    whole = len(entries) == header.index_count - 1
    slots = entries["key_hash"].astype(np.int64) % geometry.slots
    numbers = np.arange(1, len(entries) + 1)
    order = np.argsort(slots, kind="stable")
    # In this order the entries of a slot stand together, oldest first.
    first = np.ones(len(entries), bool)
    first[1:] = np.diff(slots[order]) != 0
    expected = np.where(first, 0, np.roll(numbers[order], 1))
    chained = (entries["previous"][order] == expected) & (entries["key_hash"][order] >= 0)
    newest = order[np.append(np.flatnonzero(first)[1:] - 1, len(order) - 1)]
    tried = newest[:: -(-len(newest) // _TRIED_SLOTS)]
    heads = np.array([_read_slot(reader, geometry, int(slots[entry])) for entry in tried])
    good = heads == numbers[tried] if whole else (heads >= numbers[tried]) & (heads < header.index_count)
    # The first entry makes the header's begin: without that, any grid row near it looks plausible.
    begins = 1.0 if entries["physical_offset"][0] == header.begin_physical_offset else 0.5
    return float(chained.mean() * good.mean() * begins)


def read_entries(reader: FileReader, geometry: Geometry, first: int, count: int) -> Units:
    """Return `count` entries from number `first` on, fewer at the file's end; the dtype of `IndexEntry`.

    :raises Unreadable: the system reports an I/O error.
    """
    raw = reader.read(geometry.entry_position(first), max(0, count) * _ENTRY_SIZE)
    return np.frombuffer(raw, dtype_of(IndexEntry), len(raw) // _ENTRY_SIZE)


def slot_windows(reader: FileReader, geometry: Geometry, low: int, high: int) -> Iterator[tuple[int, Ints]]:
    """Yield (number of the first, numbers of their newest entries) of the slots [low, high), a window at a time.

    They end where the file does.

    :raises Unreadable: the system reports an I/O error.
    """
    for first in range(low, high, _SLOT_WINDOW):
        raw = reader.read(geometry.slot_position(first), min(_SLOT_WINDOW, high - first) * _SLOT_SIZE)
        heads = np.frombuffer(raw, dtype_of(IndexSlot)["entry"], len(raw) // _SLOT_SIZE)
        if not len(heads):
            return
        yield first, heads.astype(np.int64)


def _read_slot(reader: FileReader, geometry: Geometry, slot: int) -> int:
    return int.from_bytes(reader.read(geometry.slot_position(slot), _SLOT_SIZE), "big", signed=True)


def _infer(reader: FileReader, header: Container) -> Geometry | None:
    """Return the geometry in which the entries lie in their chains, None when none is clear."""
    if header.index_count <= 1 or (reader.size - _HEADER_SIZE) % _SLOT_SIZE:
        return None
    found = [(_agreement(reader, header, geometry), geometry) for geometry in _candidates(reader, header)]
    best = max((agreement for agreement, _ in found), default=0.0)
    likely = [geometry for agreement, geometry in found if agreement == best]
    return likely[0] if best >= _ENOUGH and len(likely) == 1 else None


def _candidates(reader: FileReader, header: Container) -> Iterator[Geometry]:
    """Yield geometries of the file's size whose newest entry ends at the header's end offset."""
    count = header.index_count - 1
    words = (reader.size - _HEADER_SIZE) // _SLOT_SIZE
    per_entry = _ENTRY_SIZE // _SLOT_SIZE
    rows, phase = divmod(words, per_entry)  # of the grid; `phase` slots stand before its first row
    slot_0 = _read_slot(reader, Geometry(1, 1), 0)
    grid = Geometry(phase, rows)
    yielded = 0
    for start in range(count, rows, _WINDOW):
        entries = read_entries(reader, grid, start, min(_WINDOW, rows - start))
        fits = entries["physical_offset"] == header.end_physical_offset
        fits &= (entries["key_hash"] >= 0) & (entries["previous"] >= 0) & (entries["previous"] < count)
        if slot_0 != count:
            # Of many zero rows, when the end is offset 0, none is the newest entry unless slot 0 says so.
            fits &= entries["key_hash"] != 0
        for row in np.flatnonzero(fits):
            before = start + int(row) - count  # grid rows that are slots
            geometry = Geometry(phase + per_entry * before, rows - before)
            if not geometry.possible or geometry.entries <= count:
                continue
            if _read_slot(reader, geometry, int(entries["key_hash"][row]) % geometry.slots) == count:
                yield geometry
                yielded += 1
                if yielded == _MAX_CANDIDATES:
                    return

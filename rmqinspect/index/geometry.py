"""The geometry of an index file: its numbers of slots and entries, which the file does not store.

    header | slots, 4 bytes each | entries, 20 bytes each       both numbers are broker settings

Tried in order, each checked against the content:

1. the settings `maxHashSlotNum` and `maxIndexNum`, if given
2. the defaults, or the geometry of the store's other files, if the file has that size
3. inference: entries are aligned to the end of the file, so only the row of entry 0 is unknown.
   A candidate places an entry with the header's end offset at number `index_count - 1`.

The check: in the right geometry every entry is in the chain of the slot that its hash selects.

Source: IndexFile, IndexHeader; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

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

# Entries checked per geometry, and slots looked up for them: enough to decide, cheap enough for many candidates.
_TRIED_ENTRIES = 1 << 16
_TRIED_SLOTS = 256
# Share of checked entries that must be in the right chain: all in the right geometry of an intact file,
# few in a wrong one. One half tolerates damage in small files.
_ENOUGH = 0.5
_MAX_CANDIDATES = 1000
_LARGEST = 2**31 - 1  # bytes: a broker maps the file with a Java int as its size (IndexFile, MappedFile)
_WINDOW = (4 << 20) // _ENTRY_SIZE  # entries read at a time
_SLOT_WINDOW = (1 << 20) // _SLOT_SIZE  # slots read at a time; in a hole none is


class Geometry(Struct, frozen=True):
    """Numbers of slots and entries; entry 0 is never used."""

    slots: int
    entries: int

    @property
    def possible(self) -> bool:
        """Whether both are positive Java ints, as a broker's settings are."""
        return 0 < self.slots < 2**31 and 0 < self.entries < 2**31

    @property
    def size(self) -> int:
        """File size in bytes."""
        return self.entry_position(self.entries)

    def slot_position(self, slot: int) -> int:
        """Return the byte offset of a slot."""
        return _HEADER_SIZE + slot * _SLOT_SIZE

    def entry_position(self, entry: int) -> int:
        """Return the byte offset of an entry."""
        return _HEADER_SIZE + self.slots * _SLOT_SIZE + entry * _ENTRY_SIZE


DEFAULT_GEOMETRY = Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES)


class IndexFile(Struct, frozen=True):
    """An index file, its header and its geometry."""

    file: StoreFile
    header: Container | None  # None: the file is shorter than a header
    geometry: Geometry | None  # None: unknown

    @property
    def entries(self) -> int:
        """Entries in use according to the header; never negative."""
        return max(0, int(self.header.index_count) - 1) if self.header else 0

    @property
    def readable_entries(self) -> int:
        """Entries in use within the geometry and the file."""
        return min(self.entries, self.last_entry)

    @property
    def last_entry(self) -> int:
        """Number of the last entry within the geometry and the file, used or not; 0 without any."""
        if self.geometry is None:
            return 0
        held = (self.file.size - self.geometry.entry_position(0)) // _ENTRY_SIZE
        return max(0, min(self.geometry.entries, held) - 1)


def read_index_files(
    store: Store, unread: list[tuple[str, str]] | None = None, files: Sequence[StoreFile] | None = None
) -> list[IndexFile]:
    """Return the store's index files, or only `files`, in order, each with header and geometry.

    Unreadable files are skipped and added to `unread` as (name, error).

    :raises Unreadable: an I/O error, if `unread` is None.
    """
    configured = configured_geometry(store)
    known = [geometry for geometry in (configured, DEFAULT_GEOMETRY) if geometry]
    found = []
    for file in store.index_files if files is None else files:
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
            # Tried first for the next file: a store's files usually share one geometry.
            known = [geometry, *(other for other in known if other != geometry)]
        found.append(IndexFile(file, header, geometry))
    counts = Counter(index.geometry for index in found if index.geometry)
    usual = configured or max(counts, key=lambda geometry: counts[geometry], default=None)
    return [_with_usual(index, usual) for index in found]


def reread_index_file(file: StoreFile, geometry: Geometry | None) -> IndexFile:
    """Return an index file of known geometry, its header read again.

    :raises Unreadable: an I/O error.
    """
    with open_file(file) as reader:
        return IndexFile(file, _read_header(reader), geometry)


def configured_geometry(store: Store) -> Geometry | None:
    """Return the geometry of the settings, with the default for a missing one; None without both."""
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
    # A truncated or extended file keeps its geometry.
    for geometry in known:
        if _agreement(reader, header, geometry) >= _ENOUGH:
            return geometry
    # The header is wrong, or most entries are: the file's length is all there is.
    return next((geometry for geometry in known if geometry.size == reader.size), None)


def _with_usual(index: IndexFile, usual: Geometry | None) -> IndexFile:
    """Return the file with the store's geometry where its own is unknown or differs in length only.

    A broker maps every file with the size of its settings and ignores further bytes.
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
    """Return the share of checked entries that are in the chain of their slot."""
    entries = read_entries(reader, geometry, 1, min(header.index_count - 1, _TRIED_ENTRIES))
    if not len(entries):
        return 0.0
    whole = len(entries) == header.index_count - 1
    slots = entries["key_hash"].astype(np.int64) % geometry.slots
    previous, newest = replay(slots)
    chained = (entries["previous"] == previous) & (entries["key_hash"] >= 0)
    tried = newest[:: -(-len(newest) // _TRIED_SLOTS)]
    heads = np.array([_read_slot(reader, geometry, int(slots[entry])) for entry in tried])
    good = heads == tried + 1 if whole else (heads > tried) & (heads < header.index_count)
    # Entry 1 has the header's begin offset; without that check, neighbouring rows look plausible too.
    begins = 1.0 if entries["physical_offset"][0] == header.begin_physical_offset else 0.5
    return float(chained.mean() * good.mean() * begins)


def replay(slots: Ints) -> tuple[Ints, Ints]:
    """Return what the chains of a file's first entries must be, given the slot of each; at least one.

    (number of the entry that each leads to, row of the newest entry of each slot in the order of slots)
    """
    order = np.argsort(slots, kind="stable")  # by slot, the oldest entry first
    same = slots[order[1:]] == slots[order[:-1]]
    previous = np.zeros(len(slots), np.int64)
    previous[order[1:]] = np.where(same, order[:-1] + 1, 0)
    return previous, order[np.append(~same, True)]


def read_entries(reader: FileReader, geometry: Geometry, first: int, count: int) -> Units:
    """Return `count` entries from number `first` on, fewer at the file's end; dtype of `IndexEntry`.

    :raises Unreadable: an I/O error.
    """
    raw = reader.read(geometry.entry_position(first), max(0, count) * _ENTRY_SIZE)
    return np.frombuffer(raw, dtype_of(IndexEntry), len(raw) // _ENTRY_SIZE)


def slot_windows(
    reader: FileReader, geometry: Geometry, low: int, high: int
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Yield (first slot, newest entry of each slot) for the slots [low, high), a window at a time.

    Stops at the end of the file.

    :raises Unreadable: an I/O error.
    """
    for first in range(low, high, _SLOT_WINDOW):
        at = geometry.slot_position(first)
        size = min(min(_SLOT_WINDOW, high - first) * _SLOT_SIZE, reader.size - at) // _SLOT_SIZE * _SLOT_SIZE
        if size <= 0:
            return
        is_hole = reader.next_allocated(at) >= at + size
        raw = bytes(size) if is_hole else reader.read(at, size)
        heads = np.frombuffer(raw, dtype_of(IndexSlot)["entry"], len(raw) // _SLOT_SIZE)
        yield first, heads.astype(np.int32)


def _read_slot(reader: FileReader, geometry: Geometry, slot: int) -> int:
    return int.from_bytes(reader.read(geometry.slot_position(slot), _SLOT_SIZE), "big", signed=True)


def _infer(reader: FileReader, header: Container) -> Geometry | None:
    """Return the one geometry that agrees best with the chains, None if it is not clear."""
    if reader.size > _LARGEST:
        return None
    if header.index_count <= 1 or (reader.size - _HEADER_SIZE) % _SLOT_SIZE:
        return None
    found = [(_agreement(reader, header, geometry), geometry) for geometry in _candidates(reader, header)]
    best = max((agreement for agreement, _ in found), default=0.0)
    likely = [geometry for agreement, geometry in found if agreement == best]
    return likely[0] if best >= _ENOUGH and len(likely) == 1 else None


def _candidates(reader: FileReader, header: Container) -> Iterator[Geometry]:
    """Yield geometries of the file's size whose newest entry has the header's end offset."""
    count = header.index_count - 1
    words = (reader.size - _HEADER_SIZE) // _SLOT_SIZE
    per_entry = _ENTRY_SIZE // _SLOT_SIZE
    rows, phase = divmod(words, per_entry)  # rows of entries, after `phase` slots
    slot_0 = _read_slot(reader, Geometry(1, 1), 0)
    grid = Geometry(phase, rows)
    yielded = 0
    for start in range(count, rows, _WINDOW):
        if header.end_physical_offset and reader.next_allocated(grid.entry_position(start)) >= grid.entry_position(
            start + _WINDOW
        ):
            continue  # a hole: rows of zeros do not have that offset
        entries = read_entries(reader, grid, start, min(_WINDOW, rows - start))
        fits = entries["physical_offset"] == header.end_physical_offset
        fits &= (entries["key_hash"] >= 0) & (entries["previous"] >= 0) & (entries["previous"] < count)
        if slot_0 != count:
            # With end offset 0, zero rows match too; one is the newest entry only if slot 0 points to it.
            fits &= entries["key_hash"] != 0
        for row in np.flatnonzero(fits):
            before = start + int(row) - count  # rows that belong to the slots
            geometry = Geometry(phase + per_entry * before, rows - before)
            if not geometry.possible or geometry.entries <= count:
                continue
            if _read_slot(reader, geometry, int(entries["key_hash"][row]) % geometry.slots) == count:
                yield geometry
                yielded += 1
                if yielded == _MAX_CANDIDATES:
                    return

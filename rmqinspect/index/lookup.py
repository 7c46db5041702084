"""Key hashes to physical offsets by the index files, and for which of the log's bytes they speak.

    slot of the hash -> newest entry -> previous -> previous -> 0      as IndexFile#selectPhyOffset walks
    log     |....not covered....|a===========b===========c....not covered....|
                                ^ entries: the record at `a` ends where that at `b` begins

An index is complete for few logs: a broker that stopped uncleanly deletes its newest files, indexes nothing again
below the end of the last file, and skips what it could not dispatch. So the index speaks only for records that it
has entries for: from one entry's record to the next entry's, if the one ends where the other begins. A file with few
entries is checked so as a whole, of a larger one samples are. A file that contradicts itself speaks for nothing.

What is not covered is the caller's to scan. What an entry points at is the caller's to prove.

Source: IndexFile, IndexService; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints, Span, Units, distinct, is_among, merge
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import (
    DEFAULT_GEOMETRY,
    Geometry,
    IndexFile,
    configured_geometry,
    read_entries,
    read_index_files,
    replay,
    reread_index_file,
    slot_windows,
)
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader, open_file

Follows = Callable[[int, int], bool]

# A file with up to so many entries is read whole; of a larger one, chains and samples.
FEW_ENTRIES = 1 << 14
_FEW_SLOTS = 1 << 16  # read at once
_SAMPLES, _SAMPLED = 64, 8  # places looked at in a large file, and entries read at each
_MET = 256  # records looked at for their topics
_LONGEST_CHAIN = 1 << 16
_NEARBY_SLOTS = 512  # looked at around an empty slot: all empty in a file with many entries is a lost page
_LIKELY_USED = 0.05  # entries per slot above which so many neighbours are never all empty


class Found(Struct):
    """What the index knows about some keys. Offsets are physical."""

    places: dict[str, set[int]]  # for each key: of records with one of its hashes, not proven
    covered: list[Span] = field(default_factory=list)  # every indexed record in here was looked up; ascending
    files: int = 0  # that could be used


def look_up(
    files: Sequence[IndexFile],
    keys: Mapping[str, Sequence[int]],
    follows: Follows,
    known: dict[str, list[Span]] | None = None,
) -> Found:
    """Look keys up in all usable files of an index, each by some hashes.

    `follows(a, b)` says whether the record at `a` ends where that at `b` begins. `known` keeps for what each file
    speaks, by its name, from one look-up to the next.
    """
    known = {} if known is None else known
    found = Found({key: set() for key in keys})
    last: int | None = None  # the record of the last entry of the file before, if that is full
    for index in files:
        try:
            spans = _look_up_in(index, keys, follows, found.places, known)
        except (Unreadable, _Contradiction):
            last = None
            continue
        found.files += 1
        if spans and last is not None and (last == spans[0][0] or follows(last, spans[0][0])):
            found.covered.append((last, spans[0][0]))
        found.covered += spans
        full = index.geometry is not None and index.entries >= index.geometry.entries - 1
        last = spans[-1][1] if spans and full else None
    found.covered = merge(found.covered)
    return found


def sample_places(files: Sequence[IndexFile]) -> Iterator[int]:
    """Yield places that entries of all files point at, evenly spread."""
    for index in files:
        with suppress(Unreadable), open_file(index.file) as reader:
            assert index.geometry is not None
            most = min(index.readable_entries, max(_SAMPLED, _MET // len(files)))
            for number in distinct(np.linspace(1, index.readable_entries, most).astype(int)).tolist():
                yield from _places(read_entries(reader, index.geometry, number, 1)).tolist()


class _Contradiction(Exception):
    """A file whose parts do not fit each other."""


def usable_files(store: Store, unread: list[str] | None = None) -> list[IndexFile]:
    """Return the index files with a header and a geometry, in order.

    A geometry that fits the size is taken as it is: in a wrong one the file contradicts itself. Files that cannot be
    read are left out, and the errors added to `unread`.
    """
    likely = (DEFAULT_GEOMETRY, configured_geometry(store))
    known = {geometry.size: geometry for geometry in likely if geometry is not None}
    files = []
    for file in store.index_files:
        try:
            if file.size in known:
                index: IndexFile | None = reread_index_file(file, known[file.size])
            else:
                index = next(iter(read_index_files(store, files=[file])), None)
        except Unreadable as error:
            if unread is not None:
                unread.append(str(error))
            continue
        if index is not None and index.geometry is not None and index.header is not None:
            known[file.size] = index.geometry
            files.append(index)
    return files


def _look_up_in(
    index: IndexFile,
    keys: Mapping[str, Sequence[int]],
    follows: Follows,
    places: dict[str, set[int]],
    known: dict[str, list[Span]],
) -> list[Span]:
    """Add the places of entries with a wanted hash; return the spans for which the file speaks.

    :raises _Contradiction: it speaks for nothing.
    :raises Unreadable: an I/O error.
    """
    assert index.geometry is not None
    assert index.header is not None
    count = index.readable_entries
    if count < 1 or count != index.entries:
        raise _Contradiction
    with open_file(index.file) as reader:
        ends = [_places(read_entries(reader, index.geometry, number, 1)) for number in (1, count)]
        header = index.header.begin_physical_offset, index.header.end_physical_offset
        if [end[:1].tolist() for end in ends] != [[header[0]], [header[1]]]:
            raise _Contradiction
        if count <= FEW_ENTRIES:
            entries = _read_all(reader, index.geometry, count)
            offsets, stored = _places(entries), entries["key_hash"].astype(np.int64)
            for key, hashes in keys.items():
                places[key].update(offsets[is_among(stored, hashes)].tolist())
            if index.file.name not in known:
                pairs = pairwise(_distinct(offsets))
                known[index.file.name] = [(a, b) for a, b in pairs if a < b and follows(a, b)]
            return known[index.file.name]
        for key, hashes in keys.items():
            for key_hash in set(hashes):
                places[key].update(_walk_chain(reader, index.geometry, count, key_hash))
        if index.file.name not in known:
            known[index.file.name] = list(_sampled_spans(reader, index.geometry, count, follows))
        return known[index.file.name]


def _places(entries: Units) -> Ints:
    return entries["physical_offset"].astype(np.int64)


def _distinct(offsets: Ints) -> list[int]:
    """Return offsets without their repetitions: a record has an entry for each of its keys."""
    distinct: list[int] = offsets[np.append(True, np.diff(offsets) != 0)].tolist()
    return distinct


# --- small files: every entry ---------------------------------------------------------------------


def _read_all(reader: FileReader, geometry: Geometry, count: int) -> Units:
    """Return all entries of a file.

    :raises _Contradiction: an entry is not in the chain of its slot, or a slot is wrong.
    """
    entries = read_entries(reader, geometry, 1, count)
    if len(entries) != count:
        raise _Contradiction
    # Every entry and every slot is compared with the chains that the hashes make.
    hashes = entries["key_hash"].astype(np.int64)
    slots = hashes % geometry.slots
    previous, newest = replay(slots)
    if (hashes < 0).any() or (entries["previous"] != previous).any():
        raise _Contradiction
    if geometry.slots <= _FEW_SLOTS:
        heads = _read_slots(reader, geometry, 0, geometry.slots)[slots[newest]]
    else:
        heads = np.array([_read_slots(reader, geometry, slot, 1)[0] for slot in slots[newest].tolist()], np.int32)
    if not np.array_equal(heads, newest + 1):
        raise _Contradiction
    return entries


# --- large files: the chain of a slot, and samples --------------------------------------------------


def _walk_chain(reader: FileReader, geometry: Geometry, count: int, key_hash: int) -> Iterator[int]:
    """Yield the places of the entries with a hash.

    :raises _Contradiction: the chain leads to another slot's entries, or not downward.
    """
    slot = key_hash % geometry.slots
    number = int(_read_slots(reader, geometry, slot, 1)[0])
    if number == 0 and count > geometry.slots * _LIKELY_USED:
        low = max(0, slot - _NEARBY_SLOTS // 2)
        if not _read_slots(reader, geometry, low, _NEARBY_SLOTS).any():
            raise _Contradiction
    last = count + 1
    for _ in range(_LONGEST_CHAIN):
        if number == 0:
            return
        if not 0 < number < last:
            raise _Contradiction
        (entry,) = read_entries(reader, geometry, number, 1)
        if entry["key_hash"] % geometry.slots != slot:
            raise _Contradiction
        if entry["key_hash"] == key_hash:
            yield int(entry["physical_offset"])
        last, number = number, int(entry["previous"])
    raise _Contradiction


def _read_slots(reader: FileReader, geometry: Geometry, first: int, count: int) -> NDArray[np.int32]:
    _, values = next(slot_windows(reader, geometry, first, min(first + count, geometry.slots)), (0, None))
    if values is None or len(values) < min(count, geometry.slots - first):
        raise _Contradiction
    return values


def _sampled_spans(reader: FileReader, geometry: Geometry, count: int, follows: Follows) -> Iterator[Span]:
    """Yield the spans between neighbouring samples that show nothing wrong."""
    starts = distinct(np.linspace(1, count - _SAMPLED + 1, _SAMPLES).astype(int)).tolist()
    before: int | None = None  # the last place of the sample before, if that was good
    for start in starts:
        offsets = _places(read_entries(reader, geometry, start, _SAMPLED))
        places = _distinct(offsets)
        good = all(a < b and follows(a, b) for a, b in pairwise(places))
        if good and before is not None and before <= places[0]:
            yield before, places[0]
        if good and len(places) > 1:
            yield places[0], places[-1]
        before = places[-1] if good else None

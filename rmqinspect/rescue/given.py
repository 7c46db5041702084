"""What is given to a salvage, as sources: stores whose segments stand where their records say.

A source is a store, a copy of one, a folder of segments, or a single segment, with right, wrong or no names. Copies
beside the segments of a store, such as `00000000000000000000.bak`, are sources of their own. What is of no use is told,
and the others are taken.
"""

import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from rmqinspect.errors import NotAStore, RmqinspectError, Unreadable
from rmqinspect.store.discover import infer_segment_size, open_store
from rmqinspect.store.file_type import base_votes, file_type, own_base
from rmqinspect.store.model import Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri

_LOGS_IN = {"commitlog": "segment", "data": "dledger"}  # by the folder of the files, the kind of a log
_LOGS = frozenset(_LOGS_IN.values())


def open_sources(
    given: Sequence[tuple[str, str]],
    opening: Mapping[str, object],
    note: Callable[[str], None] = lambda text: None,
) -> list[tuple[str, Store]]:
    """Return (name, store) of the sources at (name, path); files beside a log that hold another copy are their own.

    Such a file, and each file of a folder without a log, has its own name behind that of the source: `store:x.bak`.
    Bases are those that the records say, where a segment's name says another one. A path that is of no use is noted,
    and the others are taken.

    :raises NotAStore: a path does not exist, or nothing of a log is in any.
    :raises Unreadable: no path can be listed or read.
    """
    found: list[tuple[str, Store]] = []
    useless: list[RmqinspectError] = []
    for name, path in given:
        local = uri.local_path(path)
        try:
            stores = _stores_at(path, opening)
        except (NotAStore, Unreadable) as error:
            if not uri.is_remote(local) and not os.path.lexists(local):
                raise
            useless.append(error)
            continue
        for store in stores:
            if not store.segments and store.given != "store":
                useless.append(NotAStore(f"{uri.shown(path)}: no segment of a log"))
            first = name if len(stores) == 1 else _named(name, store)
            whole, *beside = _layers(_without_useless(store, opening, note), opening)
            found += [(first, whole), *((_named(name, one), one) for one in beside)]
    if not any(store.segments for _, store in found):
        if useless:
            raise useless[0]
        raise NotAStore(f"{', '.join(uri.shown(path) for _, path in given)}: no commit log: there is nothing to save")
    for why in useless:
        note(f"not used: {why}")
    return found


def _named(name: str, file: Store) -> str:
    """Return the name of a file of a source that is a source of its own."""
    return f"{name}:{posixpath.basename(file.name)}"


def _without_useless(store: Store, opening: Mapping[str, object], note: Callable[[str], None]) -> Store:
    """Return a store without the segments of which nothing is known to be sound, and those that would hide others.

    The first cannot be opened; the others have no record, and names between those of the log's segments.
    """
    size = _usual_size(store)
    kept = []
    for segment in store.segments:
        between = opening.get("base") is None and segment.base % size and _hides_another(segment, store)
        try:
            open_file(segment).close()
            if not between or own_base(segment) is not None:
                kept.append(segment)
            else:
                note(f"not used: {segment.name}: no record is in it, and its name is none of a segment of this log")
        except Unreadable as error:
            note(f"not used: {error}")
    return _with_segments(store, kept)


def _with_segments(store: Store, segments: Sequence[Segment]) -> Store:
    """Return a store with other segments, of the size that they show."""
    chosen = tuple(sorted(segments, key=lambda one: one.base))
    if chosen == store.segments:
        return store
    files = tuple(file for file in store.files if not isinstance(file, Segment)) + chosen
    size = infer_segment_size(chosen, store.settings, [])
    return replace(store, segments=chosen, files=files, segment_size=size)


def _hides_another(segment: Segment, store: Store) -> bool:
    return any(one.base < segment.end and segment.base < one.end for one in store.segments if one is not segment)


def _stores_at(path: str, opening: Mapping[str, object]) -> list[Store]:
    """Return the store at a path, or each file with records in a folder that is none.

    :raises NotAStore: nothing of a log is there.
    :raises Unreadable: it cannot be listed or read.
    """
    try:
        return [open_store([path], **opening)]  # type: ignore[arg-type]
    except NotAStore:
        stores = list(_files_in(path, opening)) if os.path.isdir(path) else []
        if not stores:
            raise
        return stores


def _files_in(folder: str, opening: Mapping[str, object]) -> Iterator[Store]:
    """Yield each file of a folder that holds records, as a store of its own."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and not os.path.islink(path):
            try:
                store = open_store([path], **opening)  # type: ignore[arg-type]
            except (NotAStore, Unreadable):
                continue
            if store.segments:
                yield store


def _layers(store: Store, opening: Mapping[str, object]) -> Iterator[Store]:
    """Yield the store, its segments at the bases that their records say, then copies that lie beside its segments."""
    chosen: dict[int, Segment] = {}
    beside: list[Segment] = []
    for segment in store.segments:
        is_named = segment.kind in _LOGS and opening.get("base") is None
        own = _base_by_records(segment, _usual_size(store)) if is_named else None
        placed = segment if own is None else replace(segment, base=own)
        other = chosen.get(placed.base)
        if other is None:
            chosen[placed.base] = placed
        elif posixpath.basename(segment.name) == f"{placed.base:020}":
            chosen[placed.base] = placed
            beside.append(other)
        else:
            beside.append(placed)
    beside += list(_strays(store))
    yield _with_segments(store, list(chosen.values()))
    for segment in sorted(beside, key=lambda one: (one.base, one.name)):
        yield _alone(store, segment)


def _usual_size(store: Store) -> int:
    """Return the size of a store's segments; where their names are a distance apart that no file has, the usual one."""
    lengths = Counter(segment.size for segment in store.segments if segment.size)
    if store.segment_size in lengths or not lengths:
        return store.segment_size or 1
    return max(lengths, key=lambda length: (lengths[length], length))


def _base_by_records(segment: Segment, size: int) -> int | None:
    """Return the base that a segment's records say, None where they agree with its name, or do not tell.

    A name that is one of a log with segments of `size` bytes counts more than one record, or a base that is none.
    """
    try:
        own, votes = own_base(segment), base_votes(segment)
    except Unreadable:
        return None
    if own is None or own == segment.base:
        return None
    return None if segment.base % size == 0 and (own % size or votes[own] == 1) else own


def _strays(store: Store) -> Iterator[Segment]:
    """Yield files among the segments whose names are no offsets, and that hold records nevertheless."""
    for file in store.files:
        kind = _LOGS_IN.get(posixpath.dirname(file.name).rpartition("/")[2])
        if file.kind != "other" or kind is None:
            continue
        try:
            base = own_base(file) if file_type(file) == kind else None
        except Unreadable:
            continue
        if base is not None:
            yield Segment(file.path, file.name, file.size, kind, base)


def _alone(store: Store, segment: Segment) -> Store:
    """Return a segment as a store of its own."""
    files: tuple[StoreFile, ...] = (segment,)
    return Store(
        name=segment.name,
        paths=(segment.path,),
        given="segment",
        files=files,
        segments=(segment,),
        segment_size=store.segment_size,
        queue_files=(),
        index_files=(),
        checkpoint=None,
        config_files={},
        oddities=(),
        neighbours=False,
    )

"""Tables cut into splits: units of work for Spark's tasks, which share nothing but the files.

    table            one split is                          read by
    messages         a byte range of a segment             walking to its first record, then scanning
    gaps             a segment, and the hole before it     scanning
    queue_units      some queue files, and their ext files reading
    index_entries    an index file                         reading
    any other        the whole store                       opening the store again

Tables from RocksDB are not cut. A task uses what the planning process has unpacked; on another machine, where that is
not to be seen, it unpacks the store again.

The hard case is a range that starts inside a segment. Where its first record begins, and in which state the scan is
there, only the records before it tell:

    segment     |rec|record |rec|rec|record  |rec|
    splits      |-------- 0 -----:----- 1 -------|
                                 ^ split 1 begins inside a record that belongs to split 0

A pool of threads computes a split from a look back, compares its entry with the exit of the split before, and computes
it again where they differ (`commitlog.scan.redo_where_borders_differ`). Here nobody sees both, because Spark's tasks
do not meet. So each split walks the chain from the start of the segment, or from the first offset asked for, to its
own start (`commitlog.scan.walk_to`): it reads the bytes before it, but decodes no columns.

Invariants:
- The rows of all splits, concatenated in order, are exactly the rows of the table, wherever the borders lie.
- A split is small and picklable: paths and numbers, never an open file.
- A hole between segments belongs to the split that starts the segment behind it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.broker.behind_files import missing_behind
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.scan import walk_to
from rmqinspect.consumequeue.missing import MissingUnits, missing_units
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import Geometry, read_index_files, reread_index_file
from rmqinspect.rocksdb.databases import databases
from rmqinspect.rocksdb.unpack import Unpacking, still_unpacked, unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import MAX_CONFIG_SIZE, QueueFile, Segment, Store, StoreFile
from rmqinspect.system.uri import abspath
from rmqinspect.tables import TABLES
from rmqinspect.tables.log import gap_batches, messages_in, segment_gap_rows
from rmqinspect.tables.pointers import read_entries, units_in
from rmqinspect.tables.read_log import report_doubles, report_missing
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import databases_of, unpacking_for, unread_places

# Each split walks from the start of its segment: smaller ones cost more in walks than they gain in parallelism.
SMALLEST_PART = 64 << 20

# The cost of opening a file, in bytes read: many small files are not a small split.
_OPENING = 64 << 10


class Origin(Struct, frozen=True):
    """What opens a store again in another process: the arguments of `open_store`, and how its RocksDB is unpacked."""

    paths: tuple[str, ...]
    config: str | None = None
    base: int | None = None
    unpacking: Unpacking = field(default_factory=Unpacking)
    max_config: int = MAX_CONFIG_SIZE
    given: Store | None = None  # with what the planning process has unpacked

    def open(self) -> Store:
        """Open the store, without what its RocksDB databases hold.

        :raises NotAStore: nothing of a store is there.
        :raises Unreadable: a path cannot be listed.
        """
        return open_store(self.paths, config=self.config, base=self.base, max_config=self.max_config)

    @contextmanager
    def opened(self, only: Collection[str] | None) -> Iterator[Store]:
        """Open the store, with what these databases hold, None: all, until the block ends.

        :raises NotAStore: nothing of a store is there.
        :raises Unreadable: a path cannot be listed.
        """
        if self.given is not None and still_unpacked(self.given):
            yield self.given
            return
        with unpacked(self.open(), self.unpacking, only) as store:
            yield store


class TableSplit(Struct, frozen=True):
    """A split of a table of one store: `files`, or without any the whole store."""

    table: str
    origin: Origin
    files: tuple[StoreFile, ...] = ()
    start: int = 0  # positions [start, end) in a segment
    end: int = 0
    missing: tuple[Gap, ...] = ()  # what no file has, before the split's segment; behind the last one, too
    doubles: tuple[Segment, ...] = ()  # files of the segment's base that are not read
    missing_units: tuple[MissingUnits, ...] = ()  # what no queue file has, behind the split's files
    geometry: Geometry | None = None  # of an index file; inferred with the help of the store's other index files

    @property
    def segment(self) -> Segment:
        """The segment of a split of the log."""
        (file,) = self.files
        assert isinstance(file, Segment)
        return file

    @property
    def size(self) -> int:
        """Bytes to read, holes of files included; 0 if unknown."""
        cut = isinstance(next(iter(self.files), None), Segment)
        return self.end - self.start if cut else sum(file.size for file in self.files)


def split_table(
    table: str,
    store: Store,
    split_size: int,
    origin: Origin | None = None,
    offsets: tuple[int, int] | None = None,
    unpacking: Unpacking | None = None,
) -> list[TableSplit]:
    """Cut a table of a store into splits of about `split_size` bytes, in the order of the rows.

    Only segments of the log are cut, other files stay whole. `origin` says how the store was opened, if not by its
    paths alone; without it, the store has what its RocksDB databases hold, unpacked as `unpacking` says.
    `offsets` [start, end), physical, limits the splits of `messages`.
    """
    in_rocksdb = any(database.name in databases_of(table) for database in databases(store))
    if origin is None:
        given = store if in_rocksdb else None
        paths = tuple(map(abspath, store.paths))
        origin = Origin(paths, unpacking=unpacking or Unpacking(), max_config=store.max_config, given=given)
    one = TableSplit(table, origin)
    cut = None if in_rocksdb else _CUT.get(table)
    splits = [one] if cut is None else list(cut.plan(one, store, split_size))
    if table != "messages" or offsets is None:
        return splits
    return [clipped for split in splits if (clipped := _clip(split, *offsets)) is not None]


def split_rows(split: TableSplit, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    :raises NotAStore: the store no longer exists.
    """
    request = replace(request, jobs=1)
    read = _CUT[split.table].read if split.files else _read_whole
    try:
        yield from read(split, request)
    except Unreadable as error:
        request.tell_unread(error)


def default_split_size(sizes: Sequence[int], workers: int) -> int:
    """Return the split size for segments of these sizes: whole segments, if there are two for each worker.

    Otherwise two splits for each worker, but none below SMALLEST_PART.
    """
    if len(sizes) >= 2 * workers:
        return max(sizes, default=SMALLEST_PART)
    return max(-(-sum(sizes) // (2 * workers)), SMALLEST_PART)


# --- planning -------------------------------------------------------------------------------------


def _by_range(one: TableSplit, store: Store, split_size: int) -> Iterator[TableSplit]:
    missing = [*missing_in(store), *missing_behind(store)]
    for number, segment in enumerate(store.log_files, 1):
        is_last = number == len(store.log_files)
        own = [gap for gap in missing if is_last or gap.start < segment.base]
        missing = missing[len(own) :]
        doubles = tuple(one for one in store.doubles if one.base == segment.base)
        for start in range(0, max(segment.size, 1), split_size):
            split = replace(one, files=(segment,), start=start, end=min(start + split_size, segment.size))
            yield replace(split, missing=tuple(own) if start == 0 else (), doubles=doubles)


def _by_queue_files(one: TableSplit, store: Store, split_size: int) -> Iterator[TableSplit]:
    """Group queue files up to the split size, each group with the ext files of its queues."""
    exts: dict[tuple[str, int], list[QueueFile]] = {}
    for file in store.queue_files:
        if file.kind == "ext_queue":
            exts.setdefault((file.topic, file.queue_id), []).append(file)
    groups: list[list[QueueFile]] = []
    room = 0
    for file in (file for file in store.queue_files if file.kind in LAYOUTS):
        cost = max(file.size, _OPENING)
        if not groups or cost > room:
            groups.append([])
            room = split_size
        groups[-1].append(file)
        room -= cost
    missing = missing_units(store)
    for group in groups:
        queues = dict.fromkeys((file.topic, file.queue_id) for file in group)
        own = tuple(lacking for lacking in missing if lacking.before in group)
        files = (*group, *(ext for queue in queues for ext in exts.get(queue, ())))
        yield replace(one, files=files, missing_units=own)


def _by_index_file(one: TableSplit, store: Store, _split_size: int) -> Iterator[TableSplit]:
    """A file that cannot be read has no geometry; reading its split reports the error."""
    geometries = {index.file: index.geometry for index in read_index_files(store, [])}
    for file in store.index_files:
        yield replace(one, files=(file,), geometry=geometries.get(file))


def _clip(split: TableSplit, start: int, end: int) -> TableSplit | None:
    """Return the split clipped to physical offsets [start, end), None outside; it may be just what is missing."""
    base = split.segment.base
    first, behind = max(split.start, start - base), min(split.end, end - base)
    if first < behind:
        return replace(split, start=first, end=behind)
    touched = any(gap.start < end and start < gap.end for gap in split.missing)
    return replace(split, start=0, end=0) if touched else None


# --- reading --------------------------------------------------------------------------------------


def _read_whole(split: TableSplit, request: Request) -> Iterator[pa.RecordBatch]:
    only = databases_of(split.table)
    origin = replace(split.origin, unpacking=unpacking_for([split.table], split.origin.unpacking))
    with origin.opened(only) as store:
        yield from TABLES[split.table].rows(store, request)
        # The planning process tells of what it could not unpack.
        tried = tuple(oddity for oddity in store.oddities if "/".join(oddity.place) in only)
        for message in unread_places(replace(store, oddities=tried), (split.table,)) if not split.origin.given else ():
            raise Unreadable(message)


def _read_messages(split: TableSplit, request: Request) -> Iterator[pa.RecordBatch]:
    segment = split.segment
    base = segment.base
    lowest, beyond = request.offsets or (base, segment.end)
    report_missing(split.missing, request)
    # Without splits the scan starts at the first offset asked for, so later splits walk from there as well.
    origin = max(0, lowest - segment.lead - base)
    start, end = max(split.start, origin), min(split.end, beyond - base)
    if start < end:
        entry = walk_to(segment, origin, start) if start > origin else None
        inside = replace(request, offsets=(base + start, base + end), entry=entry)
        report_doubles((segment, *split.doubles), inside)
        yield from messages_in([segment], inside)


def _read_gaps(split: TableSplit, request: Request) -> Iterator[pa.RecordBatch]:
    whole = replace(request, offsets=None)  # all of them are rows
    report_missing(split.missing, whole)
    report_doubles((split.segment, *split.doubles), whole)
    before = [gap for gap in split.missing if gap.start < split.segment.base]
    behind = [gap for gap in split.missing if gap not in before]
    yield from gap_batches(before)
    yield from segment_gap_rows(split.segment, request)
    yield from gap_batches(behind)


def _read_units(split: TableSplit, request: Request) -> Iterator[pa.RecordBatch]:
    request.tell_missing(split.missing_units)
    yield from units_in([file for file in split.files if isinstance(file, QueueFile)], request)


class _Cut(NamedTuple):
    """How a table is cut, and how the rows of one split are read."""

    plan: Callable[[TableSplit, Store, int], Iterator[TableSplit]]
    read: Callable[[TableSplit, Request], Iterator[pa.RecordBatch]]


_CUT = {
    "messages": _Cut(_by_range, _read_messages),
    # By whole segments.
    "gaps": _Cut(lambda one, store, _: _by_range(one, store, 1 << 62), _read_gaps),
    "queue_units": _Cut(_by_queue_files, _read_units),
    "index_entries": _Cut(
        _by_index_file, lambda split, request: read_entries(reread_index_file(split.files[0], split.geometry), request)
    ),
}

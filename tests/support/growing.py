"""A store as it was at an earlier moment of the same life: made from what a real broker left later.

The log ends before a record; queue units and index entries that lead behind it are not written yet. Files that are the
same at both moments have the same time, as a broker leaves them; all others are older.
"""

import os
import shutil
from pathlib import Path

import numpy as np

from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.index.geometry import IndexFile, read_index_files
from rmqinspect.schemas.index import IndexEntry, IndexHeader
from rmqinspect.schemas.places import place_of
from rmqinspect.store.discover import open_store

LATER, EARLIER = 1_790_000_000, 1_780_000_000
"""Times of files, in seconds: long before any test runs."""


def record_starts(root: Path) -> list[int]:
    """Return the physical offsets where records (of a DLedger log, entries) of a store begin."""
    starts = []
    for split in plan_splits(open_store([str(root)]).segments, 1 << 30):
        for event in scan_split(split):
            if isinstance(event, RecordRun):
                lead = split.segment.lead
                starts += (event.records.base + event.records.starts - lead).tolist()
    return starts


def set_times(root: Path, seconds: int) -> None:
    """Give each file below a folder one time."""
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (seconds, seconds))


def as_it_was(later: Path, target: Path, end: int) -> Path:
    """Copy a store to a folder, with its log cut at a physical offset; `later` gets times that say what is new."""
    shutil.copytree(later, target, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    set_times(later, LATER)
    store = open_store([str(target)])
    for segment in store.segments:
        if segment.base >= end:
            Path(segment.path).unlink()
        elif segment.end > end:
            _zero(Path(segment.path), end - segment.base, segment.size)
    for file in store.queue_files:
        if file.kind in LAYOUTS and file.noted is None:
            units = np.fromfile(
                file.path, dtype_of(LAYOUTS[file.kind]), file.size // dtype_of(LAYOUTS[file.kind]).itemsize
            )
            behind = np.flatnonzero((units["physical_offset"] >= end) & (units["size"] > 0))
            for row in behind.tolist():
                _zero(Path(file.path), row * units.itemsize, (row + 1) * units.itemsize)
    for index in read_index_files(store, []):
        _cut_index(index, end)
    for path in target.rglob("*"):
        if path.is_file() and not path.is_symlink():
            same = path.read_bytes() == (later / path.relative_to(target)).read_bytes()
            seconds = EARLIER if same else EARLIER - 1000
            os.utime(path, (seconds, seconds))
            if same:
                os.utime(later / path.relative_to(target), (seconds, seconds))
    return target


def _cut_index(index: IndexFile, end: int) -> None:
    """Take out the entries that lead behind the log's end, and their number from the header."""
    if index.geometry is None or not index.readable_entries:
        return
    path, size = Path(index.file.path), dtype_of(IndexEntry).itemsize
    begin = index.geometry.entry_position(1)
    entries = np.frombuffer(path.read_bytes()[begin:][: index.readable_entries * size], dtype_of(IndexEntry))
    behind = np.flatnonzero(entries["physical_offset"] >= end)
    if not len(behind):
        return
    first = int(behind[0])
    _zero(path, begin + first * size, begin + len(entries) * size)
    with path.open("r+b") as out:
        out.seek(place_of(IndexHeader, "index_count"))
        out.write((first + 1).to_bytes(4, "big"))


def _zero(path: Path, start: int, stop: int) -> None:
    with path.open("r+b") as out:
        out.seek(start)
        out.write(bytes(stop - start))

"""IX-HEADER: the header of an index file against itself and against the entries.

A put writes in this order, so a broker that was killed in between leaves a header that is one put behind, which is
no damage:

    entry, slot, [first put: begin offset and time], slot count, entry count, end offset, end time

Each field is reported once, by the first rule that breaks.

Source: IndexFile#putKey, IndexHeader; RocketMQ 4.0.0 to 5.5.0.

Index entries window by window, and the rules of one entry.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Units
from rmqinspect.codec.layout import Container, dtype_of
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import Geometry, IndexFile, read_entries, read_index_files, slot_windows
from rmqinspect.loops.pointer_rows import ENTRY_SIZE
from rmqinspect.loops.pointers import java_seconds
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.times import time_words
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding, unread_finding

WINDOW_ROWS = (512 << 10) // ENTRY_SIZE  # entries per read: they stay in a processor's own cache


def entry_windows(
    index: IndexFile, first: int, count: int, reader: FileReader, rows: int = WINDOW_ROWS
) -> Iterator[tuple[int, Units]]:
    """Yield (number of the first one, entries) for `count` entries from number `first` on, fewer at the file's end.

    The next window overwrites the one before.

    :raises Unreadable: the system reports an I/O error.
    """
    behind = min(first + count, index.last_entry + 1)
    window = np.empty(max(0, min(rows, behind - first)), dtype_of(IndexEntry))
    for start in range(first, behind, rows):
        assert index.geometry is not None
        raw = window[: behind - start].view(np.uint8).data
        size = reader.read_into(raw, index.geometry.entry_position(start))
        if size >= ENTRY_SIZE:
            yield start, window[: size // ENTRY_SIZE]


Entry = dict[str, int]

_HEADER_SIZE = dtype_of(IndexHeader).itemsize
_SLOT_SIZE = dtype_of(IndexSlot).itemsize
_ENTRY_SIZE = dtype_of(IndexEntry).itemsize
_BLOCK = 1 << 20

# Clocks are set back a little all the time; more than this is reported.
_SET_BACK_MS = 1000

_OFFSETS = ("begin_physical_offset", "end_physical_offset")
_TIMES = ("begin_timestamp", "end_timestamp")


class Content(NamedTuple):
    """What the slots and entries of a file say about its header."""

    newest: int  # number of the newest entry in use, 0 for none; the header's unless contradicted
    pending_slot: int = -1  # slot of a put that was cut short behind the newest entry; -1: none
    used_slots: int = 0  # a lower bound


class _Wrong(NamedTuple):
    """A broken rule, and the header fields it is about."""

    fields: tuple[str, ...]
    words: str
    expected: str
    found: str
    severity: str = ""


# --- the rules ----------------------------------------------------------------------------------


class IndexFiles:
    """The index files of a store with their headers and geometries, read once for all rules of a run."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.unread: list[tuple[str, str]] = []  # (name, error)
        self.files = read_index_files(store, self.unread)

    @cached_property
    def as_stated(self) -> list[bool]:
        """Whether the first entry of each file points where its header says; False where that cannot be read."""
        return [_begins_as_stated(index) for index in self.files]

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """Return the physical offsets of the first and of the last index entry, by the headers.

        The first is None without an entry, the last then -1. Both are None where they are not known; the last also
        where newer records may rightly have no entry yet: after an unclean stop. But then, too, the broker had written
        a file in full if the checkpoint has an index time, and no file at all is too few.
        """
        store = self.store
        of_broker = store.given == "store" and any(store.of_kind(kind) for kind in ("checkpoint", "lock"))
        headers = [file.header for file in self.files if file.header is not None and file.header.index_count > 0]
        if not of_broker or store.hides("index") or self.unread or len(headers) < len(self.files):
            return None, None
        begin = min((int(header.begin_physical_offset) for header in headers), default=None)
        end = max((int(header.end_physical_offset) for header in headers), default=-1)
        pending = bool(store.of_kind("abort")) and (bool(self.files) or index_time(store) <= 0)
        return begin if all(self.as_stated) else None, None if pending else end


def index_time(store: Store) -> int:
    """Return the checkpoint's index time in ms, that of the newest index file that was full; 0 for none.

    Source: IndexService#flush.
    """
    try:
        return read_checkpoint(store).get("index_msg_timestamp", 0)
    except Unreadable:
        return 0


def check_index_headers(index_files: IndexFiles) -> Iterator[Finding]:
    """Yield IX-HEADER as far as the header and a few entries show it.

    For the levels without a survey, which finds all of this and more.
    """
    for index in index_files.files:
        try:
            with open_file(index.file) as reader:
                yield from header_findings(index, reader)
        except Unreadable as error:
            yield unread_finding(error)


def order_findings(index_files: IndexFiles) -> Iterator[Finding]:
    """Yield IX-ORDER and IX-DUPLICATE of files in the broker's order: by name.

    Entries are added in the order of the log, so each file begins where the one before it ends, or behind. A header
    that differs from its first entry is left to IX-HEADER.
    """
    files = [
        index
        for index, as_stated in zip(index_files.files, index_files.as_stated, strict=True)
        if index.entries and index.header is not None and as_stated
    ]
    begins = [_header_numbers(index)[_OFFSETS[0]] for index in files]
    kept = _kept_copies(files, begins)
    newest = -1  # number of the file with the newest records of those before
    for number, (index, begin) in enumerate(zip(files, begins, strict=True)):
        twin = files[kept[number]]
        if twin is not index:
            yield Finding(
                "IX-DUPLICATE",
                f"the file has the same entries as {twin.file.name}: key searches return each message twice",
                file=index.file.name,
                count=index.entries,
            )
        if newest >= 0 and begin < begins[newest]:
            yield Finding(
                "IX-ORDER",
                f"its name is newer than that of {files[newest].file.name}, its records are older: key searches from a "
                "time on miss records, and new keys may go into the wrong file",
                file=index.file.name,
                offset=place_of(IndexHeader, _OFFSETS[0]),
                expected=f"{begins[newest]} or behind",
                found=str(begin),
                do="" if twin is index else BY_CODE["IX-DUPLICATE"].do,
            )
        elif twin is index:
            newest = number


def _header_numbers(index: IndexFile) -> dict[str, int]:
    assert index.header is not None
    return {part.name: int(index.header[part.name]) for part in IndexHeader.subcons}


def _kept_copies(files: Sequence[IndexFile], begins: Sequence[int]) -> list[int]:
    """Return for each file the number of the one with the same entries to keep: whose name fits best, else is oldest.

    Without the others, a copy under a name of another time does not put all files behind it out of order.
    """
    same: dict[tuple[int, ...], list[int]] = {}
    for number, index in enumerate(files):
        same.setdefault(tuple(_header_numbers(index).values()), []).append(number)

    every = np.array(begins, np.int64)

    def misplaced(number: int) -> int:
        behind, begin = every[number + 1 :], begins[number]
        return int(np.count_nonzero(every[:number] > begin) + np.count_nonzero(behind < begin))

    kept = [0] * len(files)
    for numbers in same.values():
        best = min(numbers, key=misplaced) if len(numbers) > 1 else numbers[0]
        for number in numbers:
            kept[number] = best
    return kept


def _begins_as_stated(index: IndexFile) -> bool:
    if index.header is None or index.geometry is None:
        return False
    try:
        with open_file(index.file) as reader:
            first = _read_entry(reader, index.geometry, 1)
    except Unreadable:
        return False
    return first is not None and first["physical_offset"] == index.header[_OFFSETS[0]]


def header_findings(index: IndexFile, reader: FileReader, content: Content | None = None) -> Iterator[Finding]:
    """Yield IX-HEADER of one file. Without `content`, the header is believed and few entries are read.

    A file without a whole header is left to IX-SIZE.

    :raises Unreadable: the system reports an I/O error.
    """
    reported: set[str] = set()
    for wrong in _wrong(index, reader, content) if index.header is not None else ():
        if reported.isdisjoint(wrong.fields):
            reported.update(wrong.fields)
            yield header_finding(index, *wrong)


def header_finding(
    index: IndexFile, fields: Sequence[str], words: str, expected: str, found: str, severity: str = ""
) -> Finding:
    """Return IX-HEADER about adjacent fields of a header."""
    begin = place_of(IndexHeader, fields[0])
    end = place_of(IndexHeader, fields[-1]) + getattr(IndexHeader, fields[-1]).sizeof()
    return Finding(
        "IX-HEADER",
        f"header: {words}",
        severity=severity,
        file=index.file.name,
        offset=begin,
        length=end - begin,
        expected=expected,
        found=found,
    )


def _wrong(index: IndexFile, reader: FileReader, content: Content | None) -> Iterator[_Wrong]:
    header = index.header
    assert header is not None
    fields = tuple(part.name for part in IndexHeader.subcons)
    if not any(header[name] for name in fields):
        if found := _entries_behind_zeros(index, reader, content):
            yield _Wrong(fields, "all zeros, but entries are in use: key searches find none", found, "zeros")
        return
    counts = list(_wrong_counts(index, reader, content))
    yield from counts
    if content is None and any("index_count" in wrong.fields for wrong in counts):
        return  # the newest entry is not known
    if content is None:
        newest, geometry = _stated(header), index.geometry
        follows = geometry is not None and _read_entry(reader, geometry, newest + 1) is not None
        content = Content(newest, 0 if follows else -1)
    if not content.newest and content.pending_slot >= 0:
        return  # the first put was cut short: it may have set any of the fields
    edges = _Edges.read(reader, index.geometry, content.newest)
    yield from _wrong_offsets(header, content, edges)
    yield from _wrong_times(header, content, edges)


def _entries_behind_zeros(index: IndexFile, reader: FileReader, content: Content | None) -> str:
    """Return which entries are in use behind a header of zeros, in words; empty if none."""
    if content is not None:
        return f"{content.newest} entries" if content.newest else ""
    if index.geometry is not None:
        # A first put may have been cut short before it reached the header, a second one not.
        return "entries" if _read_entry(reader, index.geometry, 2) else ""
    used = 0
    for start in range(_HEADER_SIZE, reader.size, _BLOCK):
        used += int(np.count_nonzero(np.frombuffer(reader.read(start, _BLOCK), np.uint8)))
        if used > _SLOT_SIZE + _ENTRY_SIZE:
            return "entries"
    return ""


def _wrong_counts(index: IndexFile, reader: FileReader, content: Content | None) -> Iterator[_Wrong]:
    header, geometry = index.header, index.geometry
    assert header is not None
    count, stated = int(header.index_count), _stated(header)
    capacity = geometry.entries if geometry else max(0, reader.size - _HEADER_SIZE) // _ENTRY_SIZE
    words, expected = "", ""
    if content is not None and (count < 0 or stated != content.newest):
        words, expected = "the entry count is not the number of entries in use", str(content.newest + 1)
    elif not 0 <= count <= capacity:
        words, expected = "the entry count is outside of what the file can hold", f"0 to {capacity}"
    elif content is None and geometry and 0 < stated <= index.last_entry and not _read_entry(reader, geometry, stated):
        words, expected = "the entry count includes entries that hold only zeros", "fewer"
    elif content is None and geometry and stated + 2 <= index.last_entry and _read_entry(reader, geometry, stated + 2):
        # One entry behind the newest may be a put that was cut short.
        words, expected = "entries are in use behind the entry count: key searches miss them", "more"
    if words:
        yield _Wrong(("index_count",), words, expected, str(count))
        if content is None:
            return
    newest, pending = (content.newest, content.pending_slot >= 0) if content else (stated, True)
    used = content.used_slots if content else min(stated, 1)
    if not used <= header.hash_slot_count <= newest + pending:
        # Up to 4.7.0 brokers count entries here, later ones used slots; both may have written a file.
        yield _Wrong(
            ("hash_slot_count",),
            "the slot count is neither the number of used slots nor that of entries",
            f"{used} to {newest}",
            str(header.hash_slot_count),
        )


def _wrong_offsets(header: Container, content: Content, edges: "_Edges") -> Iterator[_Wrong]:
    begin, end = (int(header[name]) for name in _OFFSETS)
    first = edges.first["physical_offset"] if edges.first else begin
    if begin != first:
        yield _Wrong(_OFFSETS[:1], "the begin offset is not where the first entry points", str(first), str(begin))
    newest = edges.values("physical_offset")
    if newest and end not in newest:
        yield _Wrong(
            _OFFSETS[1:],
            "the end offset is not where the newest entry points: startup indexes from the wrong record on",
            str(newest[0]),
            str(end),
        )
    yield from _wrong_range(_OFFSETS, begin, end, content)
    if begin > end:
        yield _Wrong(_OFFSETS, "the begin offset is behind the end offset", "begin <= end", f"{begin} > {end}")


def _wrong_times(header: Container, content: Content, edges: "_Edges") -> Iterator[_Wrong]:
    begin, end = (int(header[name]) for name in _TIMES)
    yield from _wrong_range(_TIMES, begin, end, content)
    seconds = edges.values("time_diff")
    if content.newest > 1 and seconds and java_seconds(begin, end) not in seconds:
        yield _Wrong(
            _TIMES,
            "begin and end time do not fit the newest entry: key searches limited to a time go wrong",
            f"{seconds[0]} s apart",
            f"{java_seconds(begin, end)} s apart",
        )
    if begin > end + _SET_BACK_MS:
        yield _Wrong(
            _TIMES,
            "the begin time is later than the end time: the clock was set back, or one of them is wrong",
            "begin <= end",
            f"{time_words(begin)} > {time_words(end)}",
            "info",
        )


def _wrong_range(fields: tuple[str, str], begin: int, end: int, content: Content) -> Iterator[_Wrong]:
    """Yield negative values, and a begin and an end that differ while at most one entry is in use.

    A new file takes both from the end of the file before it; the first entry sets both.
    """
    if begin < 0 or end < 0:
        yield _Wrong(fields, "a value is negative", "0 or more", str(min(begin, end)))
    if content.newest <= 1 and begin != end:
        yield _Wrong(fields, "begin and end differ, but at most one entry is in use", "the same", f"{begin}, {end}")


# --- what the entries say -----------------------------------------------------------------------


class _Edges(NamedTuple):
    """The first entry in use, the newest, and the one before it; None where there is none or zeros."""

    first: Entry | None
    newest: Entry | None
    before: Entry | None

    @classmethod
    def read(cls, reader: FileReader, geometry: Geometry | None, newest: int) -> "_Edges":
        if geometry is None or not newest:
            return cls(None, None, None)
        numbers = (1, newest, newest - 1 or 1)
        return cls(*(_read_entry(reader, geometry, number) for number in numbers))

    def values(self, name: str) -> list[int]:
        """Return what the header's end may be: the newest entry's value, or that of the one before it."""
        if self.newest is None:
            return []
        before = self.before or self.newest
        # The first entry counts its seconds from the file before; its time is the begin.
        lagging = 0 if name == "time_diff" and before == self.first else before[name]
        return [self.newest[name], lagging]


def find_content(reader: FileReader, index: IndexFile) -> Content:
    """Return what slots and entries say; `index` has a header and a geometry.

    The newest entry is the highest number in any slot. Where the header says otherwise, the entry in question
    decides: it is the newest if it is written and is the newest of its own slot.

    :raises Unreadable: the system reports an I/O error.
    """
    header, geometry = index.header, index.geometry
    assert header is not None and geometry is not None
    highest = 0
    for _, heads in slot_windows(reader, geometry, 0, geometry.slots):
        highest = max(highest, int(heads[heads < geometry.entries].max(initial=0)))
    stated = _stated(header)
    if not 0 <= header.index_count <= geometry.entries:
        return Content(highest)
    if highest < stated:
        is_lost = stated <= index.last_entry and not _read_entry(reader, geometry, stated)
        return Content(highest if is_lost else stated)
    slot = _slot_of_newest(reader, geometry, highest) if highest > stated else -1
    if slot >= 0 and highest == stated + 1 and _is_pending(reader, header, geometry):
        return Content(stated, slot)
    return Content(highest if slot >= 0 else stated)


def _slot_of_newest(reader: FileReader, geometry: Geometry, number: int) -> int:
    """Return the slot of an entry if the entry is the newest in it, else -1."""
    entry = _read_entry(reader, geometry, number)
    if entry is None or entry["key_hash"] < 0 or not 0 <= entry["previous"] < number:
        return -1
    slot = entry["key_hash"] % geometry.slots
    return slot if any((heads == number).any() for _, heads in slot_windows(reader, geometry, slot, slot + 1)) else -1


def _is_pending(reader: FileReader, header: Container, geometry: Geometry) -> bool:
    """Whether the entry behind the stated ones is a put that was cut short before it reached the header."""
    stated = _stated(header)
    last, next_one = (_read_entry(reader, geometry, number) for number in (stated, stated + 1))
    if next_one is None or next_one["physical_offset"] < header.end_physical_offset:
        return False
    if not stated:
        return _read_entry(reader, geometry, 2) is None
    return last is not None and last["physical_offset"] == header.end_physical_offset


def _read_entry(reader: FileReader, geometry: Geometry, number: int) -> Entry | None:
    """Return one entry; None if the file does not hold it or it is all zeros."""
    if not 0 < number < geometry.entries:
        return None
    entries = read_entries(reader, geometry, number, 1)
    names = entries.dtype.names or ()
    entry = {name: int(entries[name][0]) for name in names} if len(entries) else {}
    return entry if any(entry.values()) else None


def _stated(header: Container) -> int:
    """Return the number of the newest entry by the header. Source: IndexHeader#load, which reads 0 as 1."""
    return max(int(header.index_count), 1) - 1

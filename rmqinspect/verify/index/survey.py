"""The rules that an index file decides by itself, and where its entries point into the log.

`survey_index` reads a file once, window by window, in any process. What its entries say of the log's
records is judged where those records are read (`index_join`); the survey only tells which entries
point into which split.

Source: IndexFile, IndexHeader, IndexService; RocketMQ 4.0.0 to 5.5.0; core 5.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints, groups
from rmqinspect.codec.layout import dtype_of, place_of
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, configured_geometry, read_entries, read_index_files, slot_windows
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system.limits import keep_freed_memory
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.index.chains import SLOTS_AT_ONCE, Broken, Chains, Marks, Window
from rmqinspect.verify.index.header import Content, find_content, header_finding, header_findings
from rmqinspect.verify.runs import Run, cut_runs, joined

Entries = NDArray[Any]  # of the dtype of IndexEntry

_SLOT_SIZE = dtype_of(IndexSlot).itemsize
_ENTRY_SIZE = dtype_of(IndexEntry).itemsize
_WINDOW = (2 << 20) // _ENTRY_SIZE  # entries read at a time
_MAX_INT = 2**31 - 1

# What a chain can suffer, by `Broken`.
_WORDS = {
    Broken.UNWRITTEN: "the entry is in use but holds only zeros",
    Broken.HASH: "the hash is negative: the entry belongs to no slot",
    Broken.OUTSIDE: "the previous entry is none that is in use: the chain leaves the file's entries",
    Broken.LOOP: "the previous entry is not older than the entry itself: the chain loops",
    Broken.LINK: "the previous entry is not the next older one of the slot: the chain crosses or skips entries",
    Broken.HEAD_OUTSIDE: "the slot's newest entry is none that is in use",
    Broken.HEAD_LOST: "the slot is empty, but entries belong into it",
    Broken.HEAD: "the slot does not begin with the newest entry that belongs into it",
}

# What is expected of an entry that no chain can hold.
_OF_NO_SLOT = {Broken.UNWRITTEN: "an entry", Broken.HASH: "0 or more"}


# --- sizes --------------------------------------------------------------------------------------


def check_index_sizes(store: Store) -> Iterator[Finding]:
    """Yield IX-SIZE: files whose length is not the one that their settings give them.

    The settings are those of the configuration, else what the files themselves show; where that
    is nothing, the length that most files have. Also yields ST-IO for files that cannot be read.

    Source: IndexService#load, which maps every file with the configured size.
    """
    unread: list[tuple[str, str]] = []
    files = read_index_files(store, unread)
    for name, message in unread:
        yield Finding("ST-IO", message, file=name)
    for oddity in store.oddities:
        if oddity.kind == "directory" and oddity.place[:-1] == ("index",):
            # IndexService#load opens every name that is a number, and fails at a folder.
            yield Finding(
                "IX-SIZE",
                "a folder whose name is a number stands among the index files: 5.1.0 and later do not start "
                "on it, older ones ignore it and the files behind it",
                file=oddity.name,
                expected="a file",
                found="a folder",
            )
    configured = configured_geometry(store)
    expected = configured.size if configured else _usual_size(files)
    for index in files:
        if index.file.size != expected and (expected is not None or not _is_possible(index.file.size)):
            yield Finding(
                "IX-SIZE",
                f"{_size_words(index, expected)}",
                file=index.file.name,
                expected=None if expected is None else str(expected),
                found=str(index.file.size),
            )


def _usual_size(files: Sequence[IndexFile]) -> int | None:
    made_for = Counter(index.geometry.size for index in files if index.geometry)
    if made_for:
        return max(made_for, key=lambda size: (made_for[size], size))
    lengths = Counter(index.file.size for index in files if _is_possible(index.file.size))
    usual = max(lengths, key=lambda size: lengths[size], default=0)
    # One file more than half, and not alone: else nothing says which length is right.
    return usual if lengths[usual] > max(1, len(files) // 2) else None


def _is_possible(size: int) -> bool:
    """Whether any numbers of slots and entries, at least one of each, give this length."""
    smallest = dtype_of(IndexHeader).itemsize + _SLOT_SIZE + _ENTRY_SIZE
    return size >= smallest and (size - smallest) % _SLOT_SIZE == 0


def _size_words(index: IndexFile, expected: int | None) -> str:
    if index.file.size == 0:
        return "the file is empty"
    if expected is None:
        return "the file has a length that no numbers of slots and entries give"
    if index.file.size > expected:
        return "the file is longer than its settings ask for: the broker does not read its end"
    missing = index.entries - index.readable_entries if index.geometry else 0
    cost = f": {missing} of its {index.entries} entries are cut off" if missing else ""
    return "the file is shorter than its settings ask for" + cost


# --- the survey ---------------------------------------------------------------------------------


@dataclass(slots=True)
class IndexSurvey:
    """What one index file says by itself."""

    findings: list[Finding] = field(default_factory=list)  # in file order
    suppressed: Counter[str] = field(default_factory=Counter)  # more findings of a code, not kept
    runs: list[Run] = field(default_factory=list)  # entries by where they point; `first` is an entry's number
    used_entries: int = 0  # that the file holds: numbers 1 to this
    first_physical_offset: int | None = None  # of the records of the first and the newest entry
    last_physical_offset: int | None = None
    times_told: bool = False  # a finding says that the header's times are wrong
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def survey_index(index: IndexFile, borders: Ints, limit: int) -> IndexSurvey:
    """Read an index file once and apply every rule that needs nothing else.

    `borders` has the physical offsets where the log's splits begin, as `cut_runs` wants them;
    `limit` bounds the findings of a code. Without a geometry only the header is judged.
    """
    keep_freed_memory()
    survey = _Survey(index, borders, limit)
    try:
        with open_file(index.file) as reader:
            survey.read(reader)
    except Unreadable as error:
        survey.result.unread.append(unread_finding(error))
    survey.result.findings.sort(key=lambda finding: finding.offset or 0)
    return survey.result


class _Survey:
    def __init__(self, index: IndexFile, borders: Ints, limit: int) -> None:
        self.index, self.borders = index, borders
        self.kept = capped_findings(limit)
        self.result = IndexSurvey(self.kept.rows, self.kept.suppressed)

    def read(self, reader: FileReader) -> None:
        geometry = self.index.geometry
        if geometry is None or self.index.header is None:
            self._header(reader, None)
            return
        content = find_content(reader, self.index)
        self.result.used_entries = min(content.newest, self.index.last_entry)
        self._ends(reader)
        patterns = Marks(self.result.used_entries)
        used_slots = 0
        for low in range(0, geometry.slots, SLOTS_AT_ONCE):
            chains = Chains(geometry, low, content, self.result.used_entries, patterns)
            for window in self._windows(reader):
                if low == 0:
                    self._place(window)
                self._tell_entries(window, chains.take(window))
            for first, heads in slot_windows(reader, geometry, low, low + len(chains.heads)):
                self._tell_slots(first, heads, chains.compare(first, heads))
                used_slots += chains.count_used(first, heads)
        self._header(reader, content._replace(used_slots=used_slots))

    def _windows(self, reader: FileReader) -> Iterator[Window]:
        assert self.index.geometry is not None
        for first in range(1, self.result.used_entries + 1, _WINDOW):
            count = min(_WINDOW, self.result.used_entries + 1 - first)
            entries = read_entries(reader, self.index.geometry, first, count)
            if len(entries):
                yield Window.of(first, entries)

    def _header(self, reader: FileReader, content: Content | None) -> None:
        for finding in header_findings(self.index, reader, content):
            self.result.findings.append(finding)
            self.result.times_told |= (finding.offset or 0) < place_of(IndexHeader, "begin_physical_offset")

    def _ends(self, reader: FileReader) -> None:
        """Find where the file begins and ends in the log: a median, so that one damaged number does not count."""
        header, geometry, last = self.index.header, self.index.geometry, self.result.used_entries
        assert header is not None and geometry is not None
        front = read_entries(reader, geometry, 1, min(2, last))["physical_offset"].tolist()
        back = read_entries(reader, geometry, max(1, last - 1), min(2, last))["physical_offset"].tolist()
        if front and back:
            self.result.first_physical_offset = sorted([header.begin_physical_offset, front[0], front[-1]])[1]
            self.result.last_physical_offset = sorted([header.end_physical_offset, back[0], back[-1]])[1]

    def _place(self, window: Window) -> None:
        """Note into which splits the entries point; tell those whose place nothing of the log can judge."""
        runs = self.result.runs
        for run in cut_runs(window.place, self.borders):
            first = window.first + run.first
            own = run._replace(first=first)
            whole = joined(runs[-1], own) if runs else None
            runs[-1 if whole else len(runs) :] = [whole or own]
        begin = self.result.first_physical_offset or 0
        log_start = int(self.borders[0]) if len(self.borders) else 0
        lost = np.flatnonzero(window.written & (window.place < min(begin, log_start)))
        # Of the first entry the header tells: one of the two is wrong.
        lost = lost[window.first + lost > 1]
        for at, count in self._rows("IX-DANGLING", lost):
            row = int(lost[at])
            self._tell_entry(
                "IX-DANGLING",
                "it points before the begin of its file: its record cannot stand there",
                window,
                row,
                count,
                f"{begin} or more",
                str(window.place[row]),
            )

    def _tell_entries(self, window: Window, broken: tuple[Ints, Ints, Ints]) -> None:
        which, kinds, expected = broken
        for at, count in self._rows("IX-CHAIN", which, kinds):
            row, kind = int(which[at]), Broken(int(kinds[at]))
            wanted, found = str(expected[at]), str(window.previous[row])
            if kind in _OF_NO_SLOT:
                wanted, found = _OF_NO_SLOT[kind], str(window.hash[row])
            self._tell_entry("IX-CHAIN", _WORDS[kind], window, row, count, wanted, found)

    def _tell_entry(
        self, code: str, words: str, window: Window, row: int, count: int, expected: str, found: str
    ) -> None:
        assert self.index.geometry is not None
        number = window.first + row
        self.kept.add(
            Finding(
                code,
                f"entry {number}: {words}",
                file=self.index.file.name,
                offset=self.index.geometry.entry_position(number),
                length=count * _ENTRY_SIZE,
                physical_offset=int(window.place[row]) if window.written[row] else None,
                count=count,
                expected=expected,
                found=found,
            )
        )

    def _tell_slots(self, first: int, heads: Ints, broken: tuple[Ints, Ints, Ints]) -> None:
        assert self.index.geometry is not None
        which, kinds, expected = broken
        for at, count in self._rows("IX-CHAIN", which, kinds):
            row = int(which[at])
            self.kept.add(
                Finding(
                    "IX-CHAIN",
                    f"slot {first + row}: {_WORDS[Broken(int(kinds[at]))]}",
                    file=self.index.file.name,
                    offset=self.index.geometry.slot_position(first + row),
                    length=count * _SLOT_SIZE,
                    count=count,
                    expected=str(expected[at]),
                    found=str(heads[row]),
                )
            )

    def _rows(self, code: str, which: Ints, *kinds: Ints) -> Iterator[tuple[int, int]]:
        """Yield (position in `which`, rows) of neighbours of a kind, while there is room for findings of a code."""
        room = self.kept.room(code) if len(which) else 0
        pieces = groups(which - np.arange(len(which)), *kinds) if room > 0 else []
        for at, behind in pieces[:room]:
            yield at, behind - at
        reported = pieces[:room][-1][1] if pieces else 0
        if reported < len(which):
            self.kept.suppressed[code] += len(which) - reported


# --- for the join with the log ------------------------------------------------------------------


def entry_columns(index: IndexFile, first: int, count: int, reader: FileReader) -> Entries:
    """Return `count` entries from number `first` on, fewer at the file's end; the dtype of `IndexEntry`.

    :raises Unreadable: the system reports an I/O error.
    """
    if index.geometry is None:
        return np.empty(0, dtype_of(IndexEntry))
    return read_entries(reader, index.geometry, first, min(count, index.last_entry + 1 - first))


def time_fits(time_diffs: Ints, begin_timestamp: int, store_timestamps: Ints, first_entries: Bools) -> Bools:
    """Return whether each entry's seconds are what a broker writes for its record, shape (n,).

    `store_timestamps` are those of the records, in ms. The first entry of a file has its seconds
    from the end of the file before it, if it was made when that one was full: any number will do.

    Source: IndexFile#putKey; core 5.5.
    """
    # Java's division truncates, and what is negative becomes 0, as does all when the file has no begin.
    seconds = (store_timestamps - np.int64(begin_timestamp)) // 1000
    expected = np.clip(seconds, 0, _MAX_INT) if begin_timestamp > 0 else np.zeros_like(seconds)
    fits: Bools = (time_diffs == expected) | (first_entries & (time_diffs >= 0))
    return fits


def check_header_times(
    index: IndexFile, survey: IndexSurvey, first_timestamp: int | None, newest_timestamps: Sequence[int]
) -> Iterator[Finding]:
    """Yield IX-HEADER where the header's times are not the store times of its records.

    `first_timestamp` is that of the record of entry 1, `newest_timestamps` those of the newest entry
    and the one before it, in ms, in any order: a put cut short leaves the older one. None and no
    timestamp: not in the log. Yields nothing where the survey told the times already.
    """
    header = index.header
    if header is None or survey.times_told or not survey.used_entries:
        return
    for name, times in (("begin_timestamp", [first_timestamp]), ("end_timestamp", newest_timestamps)):
        known = [time for time in times if time is not None]
        if known and header[name] not in known:
            yield header_finding(
                index,
                [name],
                "it is not the store time of its record: key searches limited to a time go wrong",
                str(known[-1]),
                str(header[name]),
            )

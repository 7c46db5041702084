"""An index file by itself: IX-SIZE, IX-CHAIN, IX-HEADER, and which entries point into which split of the log.

`survey_index` reads a file once, window by window. What its entries say of records is judged where the records are
read (`verify.index.join`).

Source: IndexFile, IndexHeader, IndexService; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.codec.layout import dtype_of, place_of
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, configured_geometry, read_entries, read_index_files, slot_windows
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system.limits import keep_freed_memory
from rmqinspect.times import time_words
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.index.chains import SLOTS_AT_ONCE, Broken, Chains, MarkedEntries, Window
from rmqinspect.verify.index.header import Content, find_content, header_finding, header_findings
from rmqinspect.verify.runs import Run, append_run, cut_runs

_SLOT_SIZE = dtype_of(IndexSlot).itemsize
_ENTRY_SIZE = dtype_of(IndexEntry).itemsize
WINDOW_ROWS = (2 << 20) // _ENTRY_SIZE  # entries per read

# What is wrong with an entry or a slot, behind its number.
_WORDS = {
    Broken.UNWRITTEN: "it is in use but holds only zeros",
    Broken.HASH: "its hash is negative, so it belongs to no slot",
    Broken.OUTSIDE: "its previous entry is not in use: the chain leaves the entries of the file",
    Broken.LOOP: "its previous entry is itself or a newer one: the chain loops",
    Broken.LINK: "its previous entry is not the next older one of the slot: the chain crosses another or skips entries",
    Broken.HEAD_OUTSIDE: "it holds the number of an entry that is not in use",
    Broken.HEAD_LOST: "it is empty, but entries belong to it",
    Broken.HEAD: "it does not hold the newest entry that belongs to it",
}

# Expected of an entry that belongs to no slot.
_OF_NO_SLOT = {Broken.UNWRITTEN: "an entry", Broken.HASH: "0 or more"}


# --- sizes --------------------------------------------------------------------------------------


def check_index_sizes(store: Store) -> Iterator[Finding]:
    """Yield IX-SIZE: files whose length is not the one that their settings give.

    Settings come from the configuration, else from the files themselves; without either, the length of
    most files counts. Also yields ST-IO for files that cannot be read.

    Source: IndexService#load, which maps every file with the configured size.
    """
    unread: list[tuple[str, str]] = []
    files = read_index_files(store, unread)
    for name, message in unread:
        yield Finding("ST-IO", message, file=name)
    configured = configured_geometry(store)
    expected = configured.size if configured else _usual_size(files)
    for index in files:
        if index.file.size != expected and (expected is not None or not _is_possible(index.file.size)):
            yield Finding(
                "IX-SIZE",
                _size_words(index, expected),
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
    # More than half of the files, and more than one: else nothing says which length is right.
    return usual if lengths[usual] > max(1, len(files) // 2) else None


def _is_possible(size: int) -> bool:
    """Whether some number of slots and of entries, at least one of each, gives this length."""
    smallest = dtype_of(IndexHeader).itemsize + _SLOT_SIZE + _ENTRY_SIZE
    return size >= smallest and (size - smallest) % _SLOT_SIZE == 0


def _size_words(index: IndexFile, expected: int | None) -> str:
    if index.file.size == 0:
        return "the index file is empty"
    if expected is None:
        return "the index file's length fits no number of slots and entries"
    if index.file.size > expected:
        return "the index file is longer than its settings make it: the broker does not read its end"
    missing = index.entries - index.readable_entries if index.geometry else 0
    cost = f": {missing} of its {index.entries} entries are cut off" if missing else ""
    return "the index file is shorter than its settings make it" + cost


# --- the survey ---------------------------------------------------------------------------------


@dataclass(slots=True)
class IndexSurvey:
    """Result of reading one index file."""

    findings: list[Finding] = field(default_factory=list)  # in file order
    suppressed: Counter[str] = field(default_factory=Counter)  # findings over the limit, by code
    runs: list[Run] = field(default_factory=list)  # entries by where they point; `first` is an entry's number
    used_entries: int = 0  # in use and in the file: numbers 1 to this
    first_physical_offset: int | None = None  # of the records of the first and the newest entry
    last_physical_offset: int | None = None
    times_reported: bool = False  # the header's times are reported as wrong
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def survey_index(index: IndexFile, borders: Ints, limit: int) -> IndexSurvey:
    """Read an index file and judge it by itself.

    `borders`: physical offsets where the log's splits begin, ascending (`cut_runs`); `limit` bounds
    the findings of a code. Without a geometry only the header is judged.
    """
    keep_freed_memory()
    survey = _Survey(index, borders, limit)
    try:
        with open_file(index.file) as reader:
            survey.read(reader)
    except Unreadable as error:
        survey.result.unread.append(unread_finding(error))
    survey.result.runs = [run for _, run in survey.runs]
    survey.result.findings.sort(key=lambda finding: finding.offset or 0)
    return survey.result


class _Survey:
    def __init__(self, index: IndexFile, borders: Ints, limit: int) -> None:
        self.index, self.borders = index, borders
        self.kept = capped_findings(limit)
        self.result = IndexSurvey(self.kept.rows, self.kept.suppressed)
        self.runs: list[tuple[int, Run]] = []

    def read(self, reader: FileReader) -> None:
        geometry = self.index.geometry
        if geometry is None or self.index.header is None:
            self._header(reader, None)
            return
        content = find_content(reader, self.index)
        self.result.used_entries = min(content.newest, self.index.last_entry)
        self._find_range(reader)
        marked = MarkedEntries(self.result.used_entries)

        def previous_of(number: int) -> int:
            entries = read_entries(reader, geometry, number, 1)
            return int(entries["previous"][0]) if len(entries) else -1

        used_slots = 0
        for low in range(0, geometry.slots, SLOTS_AT_ONCE):
            chains = Chains(geometry, low, content, marked, previous_of)
            for window in self._windows(reader):
                if low == 0:
                    self._take_places(window)
                self._report_links(window, chains.take(window))
            for first, heads in slot_windows(reader, geometry, low, low + len(chains.heads)):
                self._report_slots(first, heads, chains.compare(first, heads))
                used_slots += chains.count_used(first, heads)
        self._header(reader, content._replace(used_slots=used_slots))

    def _windows(self, reader: FileReader) -> Iterator[Window]:
        assert self.index.geometry is not None
        for first in range(1, self.result.used_entries + 1, WINDOW_ROWS):
            count = min(WINDOW_ROWS, self.result.used_entries + 1 - first)
            entries = read_entries(reader, self.index.geometry, first, count)
            if len(entries):
                yield Window.of(first, entries)

    def _header(self, reader: FileReader, content: Content | None) -> None:
        for finding in header_findings(self.index, reader, content):
            self.result.findings.append(finding)
            self.result.times_reported |= (finding.offset or 0) < place_of(IndexHeader, "begin_physical_offset")

    def _find_range(self, reader: FileReader) -> None:
        """Find the file's range in the log. Medians of header and entries: one damaged number does not move it."""
        header, geometry, last = self.index.header, self.index.geometry, self.result.used_entries
        assert header is not None and geometry is not None
        front = read_entries(reader, geometry, 1, min(2, last))["physical_offset"].tolist()
        back = read_entries(reader, geometry, max(1, last - 1), min(2, last))["physical_offset"].tolist()
        if front and back:
            self.result.first_physical_offset = sorted([header.begin_physical_offset, front[0], front[-1]])[1]
            self.result.last_physical_offset = sorted([header.end_physical_offset, back[0], back[-1]])[1]

    def _take_places(self, window: Window) -> None:
        """Note into which splits the entries point; report those that point where no split is."""
        for run in cut_runs(window.physical_offset, self.borders):
            append_run(self.runs, 0, run._replace(first=window.first + run.first))
        begin = self.result.first_physical_offset or 0
        log_start = int(self.borders[0]) if len(self.borders) else 0
        lost = np.flatnonzero(window.written & (window.physical_offset < min(begin, log_start)))
        # The first entry is compared with the header: IX-HEADER reports it.
        lost = lost[window.first + lost > 1]
        for at, count in self._rows("IX-DANGLING", lost):
            row = int(lost[at])
            self._report_entry(
                "IX-DANGLING",
                "it points before the records that its file covers, and before the log",
                window,
                row,
                count,
                f"{begin} or more",
                str(window.physical_offset[row]),
            )

    def _report_links(self, window: Window, broken: tuple[Ints, Ints, Ints]) -> None:
        which, kinds, expected = broken
        for at, count in self._rows("IX-CHAIN", which, kinds):
            row, kind = int(which[at]), Broken(int(kinds[at]))
            wanted, found = str(expected[at]), str(window.previous[row])
            if kind in _OF_NO_SLOT:
                wanted, found = _OF_NO_SLOT[kind], str(window.hash[row])
            self._report_entry("IX-CHAIN", _WORDS[kind], window, row, count, wanted, found)

    def _report_entry(
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
                physical_offset=int(window.physical_offset[row]) if window.written[row] else None,
                count=count,
                expected=expected,
                found=found,
            )
        )

    def _report_slots(self, first: int, heads: Ints, broken: tuple[Ints, Ints, Ints]) -> None:
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
        """Yield (index in `which`, rows) of consecutive rows of a kind, up to the limit of a code; count the others."""
        room = self.kept.room(code) if len(which) else 0
        runs = groups(which - np.arange(len(which)), *kinds) if room > 0 else []
        for at, behind in runs[:room]:
            yield at, behind - at
        reported = runs[:room][-1][1] if runs else 0
        if reported < len(which):
            self.kept.suppressed[code] += len(which) - reported


# --- with the records --------------------------------------------------------------------------


def check_header_times(
    index: IndexFile, survey: IndexSurvey, first_timestamp: int | None, newest_timestamps: Sequence[int]
) -> Iterator[Finding]:
    """Yield IX-HEADER where the header's times are not the store times of its records.

    `first_timestamp`: ms, of the record of entry 1; None if it is not in the log. `newest_timestamps`: ms, of the
    newest entry and the one before it, as far as they are in the log; a put cut short leaves the older one. Yields
    nothing where the survey has reported the times.
    """
    header = index.header
    if header is None or survey.times_reported or not survey.used_entries:
        return
    for name, times in (("begin_timestamp", [first_timestamp]), ("end_timestamp", newest_timestamps)):
        known = [time for time in times if time is not None]
        if known and header[name] not in known:
            yield header_finding(
                index,
                [name],
                f"{name} is not the store timestamp of its record: key searches limited to a time go wrong",
                time_words(known[-1]),
                time_words(int(header[name])),
            )

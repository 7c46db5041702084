"""An index file by itself: IX-SIZE, IX-CHAIN, IX-HEADER, and which entries point into which split of the log.

`survey_index` reads a file once, window by window. What its entries say of records is judged where the records are
read (`verify.index.join`).

Source: IndexFile, IndexHeader, IndexService; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.arrays import Ints, Units, groups, used_units
from rmqinspect.codec.layout import dtype_of, place_of
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, configured_geometry, read_entries, read_index_files, slot_windows
from rmqinspect.schemas.index import IndexHeader, IndexSlot
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system.limits import keep_freed_memory
from rmqinspect.times import time_words
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.index.chains import KIND, OF_NO_SLOT, ROW, SLOTS_AT_ONCE, WORDS, Chains, Marked
from rmqinspect.verify.index.entries import ENTRY_SIZE, WINDOW_ROWS, entry_windows
from rmqinspect.verify.index.header import Content, find_content, header_finding, header_findings
from rmqinspect.verify.runs import Run, append_run, cut_runs

_SLOT_SIZE = dtype_of(IndexSlot).itemsize


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
    smallest = dtype_of(IndexHeader).itemsize + _SLOT_SIZE + ENTRY_SIZE
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

        def previous_of(number: int) -> int:
            entries = read_entries(reader, geometry, number, 1)
            return int(entries["previous"][0]) if len(entries) else -1

        used_slots = 0
        marked = Marked(self.result.used_entries, previous_of)
        for low in range(0, geometry.slots, SLOTS_AT_ONCE):
            chains = Chains(geometry, low, content, marked)
            for first, entries in entry_windows(self.index, 1, marked.last, reader, WINDOW_ROWS):
                if low == 0:
                    self._take_places(first, entries)
                self._report_links(first, entries, chains.take(first, entries))
            for first, heads in slot_windows(reader, geometry, low, low + len(chains.heads)):
                broken, used = chains.compare(first, heads)
                self._report_slots(first, broken)
                used_slots += used
        self._header(reader, content._replace(used_slots=used_slots))

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

    def _take_places(self, first: int, entries: Units) -> None:
        """Note into which splits the entries point; report those that point where no split is."""
        offsets = entries["physical_offset"].astype(np.int64)
        for run in cut_runs(offsets, self.borders):
            append_run(self.runs, 0, run._replace(first=first + run.first))
        begin = self.result.first_physical_offset or 0
        log_start = int(self.borders[0]) if len(self.borders) else 0
        lost = np.flatnonzero(offsets < min(begin, log_start))
        if len(lost):
            # The first entry is compared with the header: IX-HEADER reports it.
            lost = lost[(first + lost > 1) & used_units(entries[lost])]
        words = "it points before the records that its file covers, and before the log"
        for at, count in self._rows("IX-DANGLING", lost):
            entry, place = first + int(lost[at]), int(offsets[lost[at]])
            self._report("IX-DANGLING", "entry", entry, words, count, f"{begin} or more", str(place), place)

    def _report_links(self, first: int, entries: Units, broken: Ints) -> None:
        for at, count in self._rows("IX-CHAIN", broken[:, ROW], broken[:, KIND]):
            row, kind, found, expected = broken[at, :4].tolist()
            entry = entries[row]
            place = int(entry["physical_offset"]) if any(entry.item()) else None
            wanted, was = (OF_NO_SLOT[kind], entry["key_hash"]) if kind in OF_NO_SLOT else (str(expected), found)
            self._report("IX-CHAIN", "entry", first + row, WORDS[kind], count, wanted, str(was), place)

    def _report_slots(self, first: int, broken: Ints) -> None:
        for at, count in self._rows("IX-CHAIN", broken[:, ROW], broken[:, KIND]):
            row, kind, found, expected = broken[at, :4].tolist()
            self._report("IX-CHAIN", "slot", first + row, WORDS[kind], count, str(expected), str(found))

    def _report(
        self,
        code: str,
        what: str,
        number: int,
        words: str,
        count: int,
        expected: str,
        found: str,
        physical_offset: int | None = None,
    ) -> None:
        """Add a finding about `count` entries or slots from a number on."""
        geometry = self.index.geometry
        assert geometry is not None
        position, size = (
            (geometry.entry_position, ENTRY_SIZE) if what == "entry" else (geometry.slot_position, _SLOT_SIZE)
        )
        self.kept.add(
            Finding(
                code,
                f"{what} {number}: {words}",
                file=self.index.file.name,
                offset=position(number),
                length=count * size,
                physical_offset=physical_offset,
                count=count,
                expected=expected,
                found=found,
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

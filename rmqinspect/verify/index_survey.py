"""An index file by itself: IX-SIZE, IX-CHAIN, IX-HEADER, and which entries point into which split of the log.

`survey_index` reads a file once, window by window. What its entries say of records is judged where the records are
read (`verify.index_join`).

Source: IndexFile, IndexHeader, IndexService; RocketMQ 4.0.0 to 5.5.0.

The slot chains of an index file, followed entry by entry: IX-CHAIN.

Idea: a put makes its entry the newest of its slot, and notes in the entry which one was the newest before. So take
the entries in order and keep the newest of each slot: an entry's `previous` must be that one, and in the end each
slot must hold its newest entry.

    slot 1   7
             |
    entries  7 -> 5 -> 2 -> 1 -> 0        `previous` of each; 0 ends the chain

    entry taken, of slot 1     5: previous must be 2, the newest of slot 1 so far; then the newest is 5

Invariants:
  - the links that are followed are those of the replay, never those of the file: a loop in the file ends nothing;
  - one damaged entry makes up to three links wrong: its own, the one that leads to it, and the one that should.
    The first that is met is reported and what it names is marked; a wrong link that names a marked entry is not, if it
    would be right had that entry another slot;
  - memory is bounded by SLOTS_AT_ONCE: a larger file takes a pass over its entries per so many slots.

Source: IndexFile#putKey, #selectPhyOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints, Units, groups, used_units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import Geometry, IndexFile, configured_geometry, read_entries, slot_windows
from rmqinspect.loops.pointer_rows import (
    BROKEN_COLUMNS,
    BROKEN_ROW,
    ENTRY_SIZE,
    FOUND,
    HASH,
    HEAD,
    HEAD_LOST,
    HEAD_OUTSIDE,
    KIND,
    LINK,
    LOOP,
    MOVED,
    MOVED_JOINED,
    MOVED_LEFT,
    OUTSIDE,
    UNWRITTEN,
    WANTED,
)
from rmqinspect.loops.pointers import explain_links, follow_chains
from rmqinspect.schemas.index import IndexHeader, IndexSlot
from rmqinspect.schemas.places import place_of
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system.workers import keep_freed_memory
from rmqinspect.times import time_words
from rmqinspect.verify.findings import Finding, Found, capped_findings, unread_finding
from rmqinspect.verify.index_header import (
    WINDOW_ROWS,
    Content,
    IndexFiles,
    entry_windows,
    find_content,
    header_finding,
    header_findings,
    order_findings,
)
from rmqinspect.verify.plan import NO_RUNS, cut_runs, joined_runs

# Slots per pass over the entries; a default file has five million.
SLOTS_AT_ONCE = 1 << 23
_MOST_LOOKED_UP = 10_000  # entries read one by one; of more wrong links each that names a marked entry follows from it

WORDS = {
    UNWRITTEN: "it is in use but holds only zeros",
    HASH: "its hash is negative, so it belongs to no slot",
    OUTSIDE: "its previous entry is not in use: the chain leaves the entries of the file",
    LOOP: "its previous entry is itself or a newer one: the chain loops",
    LINK: "its previous entry is not the next older one of the slot: the chain crosses another or skips entries",
    HEAD_OUTSIDE: "it holds the number of an entry that is not in use",
    HEAD_LOST: "it is empty, but entries belong to it",
    HEAD: "it does not hold the newest entry that belongs to it",
}

# Expected of an entry that belongs to no slot.
OF_NO_SLOT = {UNWRITTEN: "an entry", HASH: "0 or more"}


class Marked:
    """The entries of a file that may explain wrong links, and where those look."""

    def __init__(self, last: int, previous_of: Callable[[int], int]) -> None:
        """`last` is the last entry that will be taken; `previous_of` reads the link of one entry."""
        self.last, self.previous_of = last, previous_of
        self.marks = np.zeros(last + 1, np.uint8)  # by entry; the number 0 means no entry and is never marked
        self.wanted: dict[int, int] = {}  # which entry those with a wrong link should lead to

    def unexplained(self, broken: Ints) -> Ints:
        """Return the rows that follow from no marked entry, and mark what they name."""
        links = np.flatnonzero(broken[:, KIND] >= LINK)
        broken[links, MOVED] = MOVED_LEFT | MOVED_JOINED
        if len(links) <= _MOST_LOOKED_UP:
            broken[links, MOVED] = [self._if_moved(*pair) for pair in broken[links, FOUND : WANTED + 1].tolist()]
        explain_links(self.marks, broken)
        return broken[broken[:, KIND] > 0]

    def _if_moved(self, found: int, expected: int) -> int:
        """Return whether a link would be right had the entry found, or the one expected, another slot.

        The links behind an entry whose hash changed: in its old slot it is found where its own previous one is
        expected, in its new one it is expected where the one that it should lead to is found.
        """
        left = found > 0 and self.previous_of(found) == expected
        leads_to = self.wanted[expected] if expected in self.wanted else self.previous_of(expected) if expected else -1
        return left * MOVED_LEFT | (leads_to == found) * MOVED_JOINED


class Chains:
    """The chains of up to SLOTS_AT_ONCE slots, from slot `low` on."""

    def __init__(self, geometry: Geometry, low: int, content: Content, marked: Marked) -> None:
        """`marked` is shared by all slots of the file."""
        self.low, self.slots = low, geometry.slots
        self.content, self.marked = content, marked
        # The newest entry of each slot so far.
        self.heads: NDArray[np.int32] = np.zeros(min(SLOTS_AT_ONCE, geometry.slots - low), np.int32)
        self._broken = np.zeros((0, BROKEN_COLUMNS), np.int64)

    def take(self, first: int, entries: Units) -> Ints:
        """Follow the chains through entries, from number `first` on; return a table of the broken ones."""
        if len(self._broken) < len(entries):
            self._broken = np.zeros((len(entries), BROKEN_COLUMNS), np.int64)
        raw, marked = entries.view(np.uint8), self.marked
        count = follow_chains(
            raw, first, self.slots, self.low, self.content.newest, self.heads, marked.marks, self._broken
        )
        broken = self._broken[:count]
        if count and len(marked.wanted) < _MOST_LOOKED_UP:
            wrong = broken[broken[:, KIND] > HASH]
            marked.wanted.update(zip((first + wrong[:, BROKEN_ROW]).tolist(), wrong[:, WANTED].tolist(), strict=True))
        return marked.unexplained(broken) if count else broken

    def compare(self, first: int, heads: NDArray[np.int32]) -> tuple[Ints, int]:
        """Compare stored slots, from number `first` on, with the replayed ones.

        Return a table of the broken ones, and how many are used for certain: slot and entries agree.
        """
        replayed = self.heads[first - self.low : first - self.low + len(heads)]
        rows = np.flatnonzero(heads != replayed)
        used = int(np.count_nonzero(heads)) - int(np.count_nonzero(heads[rows]))
        newest, last = self.content.newest, self.marked.last
        found = heads[rows]
        wrong = (rows + first != self.content.pending_slot) | (found != newest + 1)
        if newest > last:
            # The file was cut: the slot's newest entry may be gone.
            wrong &= (found <= last) | (found > newest)
        rows, found = rows[wrong], found[wrong]
        outside = (found < 0) | (found > newest)
        kinds = np.where(outside, HEAD_OUTSIDE, np.where(found == 0, HEAD_LOST, HEAD))
        broken = np.stack((rows, kinds, found, replayed[rows], np.zeros_like(rows)), axis=1).astype(np.int64)
        return self.marked.unexplained(broken) if len(rows) else broken, used


_SLOT_SIZE = dtype_of(IndexSlot).itemsize


# --- sizes --------------------------------------------------------------------------------------


def check_index_files(index_files: IndexFiles) -> Iterator[Finding]:
    """Yield IX-ORDER and IX-DUPLICATE, and IX-SIZE: files whose length is not the one that their settings give.

    Settings come from the configuration, else from the files themselves; without either, the length of
    most files counts. Also yields ST-IO for files that cannot be read.

    Source: IndexService#load, which maps every file with the configured size.
    """
    files = index_files.files
    for name, message in index_files.unread:
        yield Finding("ST-IO", message, file=name)
    yield from order_findings(index_files)
    configured = configured_geometry(index_files.store)
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


class IndexSurvey(Found):
    """Result of reading one index file, with findings in the order of the file."""

    index: IndexFile
    runs: Ints = field(default_factory=lambda: NO_RUNS.rows)  # of entries, by number
    used_entries: int = 0  # in use and in the file: numbers 1 to this
    first_physical_offset: int | None = None  # of the records of the first and the newest entry
    last_physical_offset: int | None = None
    times_reported: bool = False  # the header's times are reported as wrong
    lowest: int | None = None  # physical offset that any entry points at


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
    survey.result.runs = joined_runs(survey.runs)
    survey.result.findings.sort(key=lambda finding: finding.offset or 0)
    return survey.result


class _Survey:
    def __init__(self, index: IndexFile, borders: Ints, limit: int) -> None:
        self.index, self.borders = index, borders
        self.kept = capped_findings(limit)
        self.result = IndexSurvey(index, findings=self.kept.rows, suppressed=self.kept.suppressed)
        self.runs: list[Ints] = []

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
        self.runs.append(cut_runs(0, first, offsets, self.borders))
        if len(offsets):
            lowest = int(offsets.min())
            self.result.lowest = lowest if self.result.lowest is None else min(lowest, self.result.lowest)
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
        for at, count in self._rows("IX-CHAIN", broken[:, BROKEN_ROW], broken[:, KIND]):
            row, kind, found, expected = broken[at, :4].tolist()
            entry = entries[row]
            place = int(entry["physical_offset"]) if any(entry.item()) else None
            wanted, was = (OF_NO_SLOT[kind], entry["key_hash"]) if kind in OF_NO_SLOT else (str(expected), found)
            self._report("IX-CHAIN", "entry", first + row, WORDS[kind], count, wanted, str(was), place)

    def _report_slots(self, first: int, broken: Ints) -> None:
        for at, count in self._rows("IX-CHAIN", broken[:, BROKEN_ROW], broken[:, KIND]):
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
    survey: IndexSurvey, first_timestamp: int | None, newest_timestamps: Sequence[int]
) -> Iterator[Finding]:
    """Yield IX-HEADER where the header's times are not the store times of its records.

    `first_timestamp`: ms, of the record of entry 1; None if it is not in the log. `newest_timestamps`: ms, of the
    newest entry and the one before it, as far as they are in the log; a put cut short leaves the older one. Yields
    nothing where the survey has reported the times.
    """
    header = survey.index.header
    if header is None or survey.times_reported or not survey.used_entries:
        return
    for name, times in (("begin_timestamp", [first_timestamp]), ("end_timestamp", newest_timestamps)):
        known = [time for time in times if time is not None]
        if known and header[name] not in known:
            yield header_finding(
                survey.index,
                [name],
                f"{name} is not the store timestamp of its record: key searches limited to a time go wrong",
                time_words(known[-1]),
                time_words(int(header[name])),
            )

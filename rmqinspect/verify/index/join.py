"""Index entries against the records of a split, both ways.

    entry -> record    does a record start where the entry points? does it have a key with the entry's
                       hash? is the entry's time that of the record?         IX-DANGLING, IX-KEY, IX-TIME
    record -> entry    does each key of the records have an entry?           IX-MISSING

Entries are written in the order of records and keys, so one walk through both finds the key of nearly every entry
(`verify.index.walk`). What it calls odd is judged here in columns, where a key is one number, record * 2^31 + hash.

Invariants:
  - an entry is judged in the one split whose range holds its physical offset;
  - a missing key is reported only inside the range that the index covers, and only when all index files could be
    read: retention takes index files and segments at different times;
  - an entry with a wrong hash is its record's: IX-KEY reports it, and the record misses no key.

Source: IndexService#buildIndex, IndexFile#putKey; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqinspect.broker.dispatch import TAG, Dispatched
from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.codec.kernels import Int32s
from rmqinspect.index.geometry import IndexFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import text_of
from rmqinspect.verify.commitlog.time_steps import Stamp
from rmqinspect.verify.dangling import Dangling, LogRanges, find_starts
from rmqinspect.verify.findings import Finding, capped_findings
from rmqinspect.verify.index.entries import ENTRY_SIZE, WINDOW_ROWS, entry_windows, time_fits
from rmqinspect.verify.index.walk import find_keys
from rmqinspect.verify.plan import CrossPlan
from rmqinspect.verify.pointers import MOST_RUNS, Evidence, Location, PointerReport, Pointers, read_runs
from rmqinspect.verify.wrong_records import WrongTime, wrong_times

_HASHES = 1 << 31  # hashes are below: a record's number and a hash make one number


class MissingKeys(NamedTuple):
    """Consecutive keys without an entry, of those that should have one."""

    finding: Finding  # about the first record
    keys: int
    from_start: bool  # begins with the first such key of the split
    to_end: bool


@dataclass(slots=True)
class IndexResult:
    """What the entries of one split show."""

    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)
    dangling: list[Dangling] = field(default_factory=list)
    missing: list[MissingKeys] = field(default_factory=list)
    asked: int = 0  # keys that should have an entry
    # The records that a file's header is about, by (number of the file, entry).
    edge_times: dict[tuple[int, int], Stamp] = field(default_factory=dict)
    wrong_times: list[WrongTime] = field(default_factory=list)
    joined: int = 0  # entries that point at a record with their key
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def join_entries(
    records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, segment: tuple[str, int], limit: int
) -> IndexResult:
    """Check the entries that point into split `number`, and its records' keys.

    `segment` is (name, base) of the split's file; `limit` bounds the findings of a code.
    """
    kept = capped_findings(limit)
    result = IndexResult(kept.rows, kept.suppressed)
    has_entry = np.zeros(len(records.key_record), np.uint8)
    entries = _read_odd(records, plan, number, has_entry, result)
    report = PointerReport(entries, partial(_locate, plan, entries), kept)
    join = _IndexJoin(records, plan, entries, report, result)
    join.match(ranges)
    if not result.unread:
        _, high = plan.range_of(number)
        join.find_missing(high, segment, has_entry)
    return result


@dataclass(slots=True)
class _Entries(Pointers):
    """Index entries, ascending by physical offset; `row` is the number of the entry."""

    hash: Ints
    time_diff: Ints  # s


def _read_odd(
    records: Dispatched, plan: CrossPlan, number: int, has_entry: NDArray[np.uint8], result: IndexResult
) -> _Entries:
    """Walk through the entries that point into split `number`; return those that need a closer look.

    Marks the keys of the others, and counts these.
    """
    low, high = plan.range_of(number)
    odd = np.zeros(WINDOW_ROWS + 1, np.int64)

    def read(which: int, first: int, count: int) -> tuple[int, list[Ints]]:
        index, used = plan.index[which], plan.index_used[which]
        known, parts = 0, []
        with open_file(index.file) as reader:
            for start, window in entry_windows(index, first, count, reader):
                known += find_keys(
                    window.view(np.uint8),
                    low,
                    min(high, 1 << 63) - 1,
                    max(0, _begin_of(index)) if plan.timed[which] else -1,
                    2 - start,  # the first entry and the newest two are needed for their times
                    used - 1 - start,
                    records.physical_offset,
                    records.store_timestamp,
                    records.key_record,
                    records.key_hash,
                    has_entry,
                    odd,
                )
                rows = odd[1 : odd[0] + 1]
                if len(rows):
                    place, key_hash, seconds = (
                        window[name][rows] for name in ("physical_offset", "key_hash", "time_diff")
                    )
                    parts.append(np.stack((place, np.full_like(rows, which), start + rows, key_hash, seconds)))
        return known, parts

    parts = [np.empty((5, 0), np.int64)]
    for _, found in read_runs(plan.index_runs.of_split(number), read, result.unread):
        if found is not None:
            result.joined += found[0]
            parts += found[1]
    columns = np.concatenate(parts, axis=1, dtype=np.int64)
    return _Entries(*columns[:, np.argsort(columns[0], kind="stable")])


def _begin_of(index: IndexFile) -> int:
    return int(index.header.begin_timestamp) if index.header else 0


def _locate(plan: CrossPlan, entries: _Entries, at: int) -> Location:
    index = plan.index[int(entries.file[at])]
    offset = index.geometry.entry_position(int(entries.row[at])) if index.geometry else 0
    return Location(index.file.name, offset, ENTRY_SIZE)


class _IndexJoin:
    def __init__(
        self, records: Dispatched, plan: CrossPlan, entries: _Entries, report: PointerReport, result: IndexResult
    ) -> None:
        self.records, self.plan, self.entries, self.report, self.result = records, plan, entries, report, result
        self.found = np.zeros(0, np.int64)  # keys that these entries have, as numbers of record and hash
        self.wrong_key = np.zeros(0, np.int64)  # records that an entry with a wrong hash points at

    def match(self, ranges: LogRanges) -> None:
        """Check where the entries point."""
        records, entries = self.records, self.entries
        if not len(entries.row):
            return
        at, hit = find_starts(records.physical_offset, entries.physical_offset)
        self.result.dangling = self.report.dangling("entry", np.flatnonzero(~hit), ranges, self._prove)
        hits, record = np.flatnonzero(hit), at[hit]
        wanted = record * _HASHES + entries.hash[hits]
        known = np.isin(wanted, _numbers(records, _keys_of(records, record))) & (entries.hash[hits] >= 0)
        self.found = wanted[known]
        self.result.joined += int(np.count_nonzero(known))
        for number in self.report.each("IX-KEY", np.flatnonzero(~known)):
            at_entry = int(hits[number])
            what = f"entry {entries.row[at_entry]}: its hash matches no key of the record it points at"
            self.report.add("IX-KEY", what, at_entry, None, entries.hash[at_entry])
        self.wrong_key = record[~known]
        self._check_times(hits[known], record[known])

    def _prove(self, at: Ints) -> Evidence:
        begin = _begin_of(self.plan.index[int(self.entries.file[at[0]])])
        newest = begin + 1000 * int(self.entries.time_diff[at].max()) if begin > 0 else None
        places = np.sort(self.entries.physical_offset[at])
        records = 1 + int(np.count_nonzero(places[1:] != places[:-1]))
        return Evidence(int(self.entries.row[at[0]]), records, newest)

    def _check_times(self, hits: Ints, record: Ints) -> None:
        """IX-TIME, and the store times that the headers' judge needs."""
        if not len(hits):
            return
        entries = self.entries
        begins = np.array([_begin_of(index) for index in self.plan.index], np.int64)
        fits = np.ones(len(hits), np.bool_)
        stored = self.records.store_timestamp[record]
        for which in range(int(entries.file[hits].min()), int(entries.file[hits].max()) + 1):
            if not self.plan.timed[which]:
                continue  # its header is wrong, which is reported once
            of_file = np.flatnonzero(entries.file[hits] == which)
            if not len(of_file):
                continue
            used = self.plan.index_used[which]
            for number in of_file[np.isin(entries.row[hits[of_file]], (1, used - 1, used))].tolist():
                stamp = Stamp(int(entries.physical_offset[hits[number]]), int(stored[number]))
                self.result.edge_times[which, int(entries.row[hits[number]])] = stamp
            first = entries.row[hits[of_file]] == 1
            fits[of_file] = time_fits(entries.time_diff[hits[of_file]], int(begins[which]), stored[of_file], first)
        self._blame(hits[~fits], record[~fits], begins)
        for number in self.report.each("IX-TIME", np.flatnonzero(~fits)):
            at = int(hits[number])
            seconds = (int(stored[number]) - int(begins[entries.file[at]])) // 1000
            what = f"entry {entries.row[at]}: its time does not match its record's store timestamp"
            self.report.add("IX-TIME", what, at, f"{seconds} s", f"{entries.time_diff[at]} s")

    def _blame(self, hits: Ints, record: Ints, begins: Ints) -> None:
        """Find the records that are wrong, of those that differ from entries; of many it is the file's begin."""
        if not 0 < len(np.unique(record)) <= max(1, len(self.records.physical_offset) // 2):
            return
        indexed = begins[self.entries.file[hits]] + 1000 * self.entries.time_diff[hits]
        records = self.records
        self.result.wrong_times += wrong_times(records.physical_offset, records.store_timestamp, record, indexed)

    def find_missing(self, high: int, segment: tuple[str, int], has_entry: NDArray[np.uint8]) -> None:
        """Find keys without an entry, in the range that the index covers.

        The first and the last record of the range may share their keys with a file that is gone, or with the
        moment of a crash. Tags need no entry: a version before 5.4.0 may have written the file.
        """
        records, covered = self.records, self.plan.index_range
        if covered is None or not self.plan.index_complete or not len(records.key_record):
            return
        offsets = records.physical_offset[records.key_record]
        asked = (offsets > covered[0]) & (offsets < min(covered[1], high)) & (records.key_kind != TAG)
        asked &= records.sound[records.key_record]
        self.result.asked = int(np.count_nonzero(asked))
        lacking = np.flatnonzero(asked & (has_entry == 0))
        if not len(lacking):
            return  # each key has its entry
        keys = _keys_of(records, records.key_record[lacking])
        found = np.concatenate((_numbers(records, keys[has_entry[keys] != 0]), self.found))
        lacking = lacking[~np.isin(_numbers(records, lacking), found)]
        lacking = lacking[~np.isin(records.key_record[lacking], self.wrong_key)]
        # Consecutive ones among the keys that should have an entry.
        number = np.cumsum(asked)[lacking] - 1
        for first, behind in groups(number - np.arange(len(lacking))):
            if len(self.result.missing) >= MOST_RUNS:
                self.result.suppressed["IX-MISSING"] += behind - first
                continue
            finding = self._missing_finding(int(records.key_record[lacking[first]]), segment)
            ends = int(number[behind - 1]) == self.result.asked - 1
            self.result.missing.append(MissingKeys(finding, behind - first, int(number[first]) == 0, ends))

    def _missing_finding(self, record: int, segment: tuple[str, int]) -> Finding:
        """Return a finding without its message, which is known when all splits were read."""
        records, (name, base) = self.records, segment
        topic, queue_id = records.queues[int(records.queue[record])]
        physical_offset = int(records.physical_offset[record])
        return Finding(
            "IX-MISSING",
            "",
            file=name,
            offset=physical_offset - base,
            length=int(records.size[record]),
            physical_offset=physical_offset,
            topic=text_of(topic),
            queue_id=queue_id,
            queue_offset=int(records.queue_offset[record]),
            timestamp=int(records.store_timestamp[record]),
        )


def _keys_of(records: Dispatched, which: Ints | Int32s) -> Ints:
    """Return the keys of some records, nearly always few."""
    asked = np.zeros(len(records), np.bool_)
    asked[which] = True
    return np.flatnonzero(asked[records.key_record])


def _numbers(records: Dispatched, which: Ints) -> Ints:
    """Return keys as numbers of record and hash."""
    return records.key_record[which].astype(np.int64) * _HASHES + records.key_hash[which]

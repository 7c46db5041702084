"""Index entries against the records of a split, both ways: what each leads to, and which key has none.

Source: IndexService#buildIndex, IndexFile#putKey; core 5.4 to 5.6.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.dispatch import TAG, Dispatched
from rmqinspect.codec.arrays import Bools, Ints, groups
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.store.reader import open_file
from rmqinspect.verify.dangling import Dangling, LogRanges, capped_dangling, find_places, where_of
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.index.chains import written
from rmqinspect.verify.index.survey import entry_columns, time_fits
from rmqinspect.verify.plan import CrossPlan

_ENTRY_SIZE = dtype_of(IndexEntry).itemsize
_RUNS = 5000  # of a kind in a split, told one by one
_HASHES = 1 << 31  # a key's record and hash as one number: hashes are below


class MissingKeys(NamedTuple):
    """Neighbours among the keys that are asked for, none of which has an entry."""

    finding: Finding  # about the first record
    keys: int
    from_start: bool  # it begins with the first key that is asked for in the split
    to_end: bool


@dataclass(slots=True)
class IndexResult:
    """What the entries of one split told."""

    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)
    dangling: list[Dangling] = field(default_factory=list)
    missing: list[MissingKeys] = field(default_factory=list)
    asked: int = 0  # keys that should have an entry
    # Store time in ms of the records that a file's header speaks of, by (number of the file, entry).
    edge_times: dict[tuple[int, int], int] = field(default_factory=dict)
    joined: int = 0  # entries that lead to a record with their key
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def join_entries(
    records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, segment: tuple[str, int], limit: int
) -> IndexResult:
    """Check the entries that point into split `number`, and its records' keys.

    `segment` is (name, base) of the split's file; `limit` bounds rows of a code.
    """
    join = _IndexJoin(records, plan, segment, limit)
    join.read(number)
    join.match(ranges)
    join.find_missing()
    return join.result


class _IndexJoin:
    def __init__(self, records: Dispatched, plan: CrossPlan, segment: tuple[str, int], limit: int) -> None:
        self.records, self.plan, self.segment, self.limit = records, plan, segment, limit
        self.kept = capped_findings(limit)
        self.result = IndexResult(self.kept.rows, self.kept.suppressed)
        self.keys = np.zeros(0, np.int64)  # of the records, as numbers of record and hash
        self.found = np.zeros(0, np.int64)  # keys that entries have, as `keys`
        self.complete, self.high = True, 0
        self.odd_records = np.zeros(0, np.int64)  # records that an entry with a wrong key points at

    def read(self, number: int) -> None:
        low, high = self.plan.range_of(number)
        self.high = high
        parts: list[tuple[Ints, ...]] = []
        for which, first, count in self.plan.index_runs.of_split(number):
            index = self.plan.index[which]
            try:
                with open_file(index.file) as reader:
                    entries = entry_columns(index, first, count, reader)
            except Unreadable as error:
                self.result.unread.append(unread_finding(error))
                self.complete = False
                continue
            place = entries["physical_offset"].astype(np.int64)
            numbers = np.arange(first, first + len(entries))
            mine = (place >= low) & (place < high) & written(entries)
            if not mine.all():
                entries, place, numbers = entries[mine], place[mine], numbers[mine]
            others = [entries[name].astype(np.int64) for name in ("key_hash", "time_diff")]
            parts.append((place, *others, numbers, np.full(len(entries), which, np.int64)))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 5
        if (columns[0][1:] < columns[0][:-1]).any():
            order = np.argsort(columns[0], kind="stable")
            columns = [column[order] for column in columns]
        self.place, self.hash, self.time_diff, self.entry, self.file = columns

    def match(self, ranges: LogRanges) -> None:
        records = self.records
        if self._is_what_is_due():
            self.result.joined = len(self.place)
            self.found = self.keys
            self._times(np.arange(len(self.place)), records.key_record)
            return
        self.keys = records.key_record * _HASHES + records.key_hash
        at, hit = find_places(records.place, self.place)
        self._lost(np.flatnonzero(~hit), ranges)
        hits, record = np.flatnonzero(hit), at[hit]
        wanted = record * _HASHES + self.hash[hits]
        known = _among(wanted, self.keys) & (self.hash[hits] >= 0)
        self.found = wanted[known]
        self.result.joined = int(np.count_nonzero(known))
        for number in self._some("IX-KEY", np.flatnonzero(~known)):
            self._report(
                "IX-KEY",
                "no key of the record that it points at has its hash",
                int(hits[number]),
                None,
                str(self.hash[hits[number]]),
            )
        self.odd_records = record[~known]
        self._times(hits[known], record[known])

    def _is_what_is_due(self) -> bool:
        """Whether the entries are the records' keys, all of them, in the order in which a broker puts them."""
        records = self.records
        return (
            len(self.place) == len(records.key_record)
            and bool((self.hash == records.key_hash).all())
            and bool((self.place == records.place[records.key_record]).all())
        )

    def _times(self, hits: Ints, record: Ints) -> None:
        if not len(hits):
            return
        begins = np.array([index.header.begin_timestamp if index.header else 0 for index in self.plan.index], np.int64)
        fits = np.ones(len(hits), np.bool_)
        stored = self.records.store_timestamp[record]
        for which in range(int(self.file[hits].min()), int(self.file[hits].max()) + 1):
            if not self.plan.timed[which]:
                continue  # its header is wrong, which is told once
            mine = np.flatnonzero(self.file[hits] == which)
            if not len(mine):
                continue
            used = self.plan.index_used[which]
            for number in mine[np.isin(self.entry[hits[mine]], (1, used - 1, used))].tolist():
                self.result.edge_times[which, int(self.entry[hits[number]])] = int(stored[number])
            first = self.entry[hits[mine]] == 1
            fits[mine] = time_fits(self.time_diff[hits[mine]], int(begins[which]), stored[mine], first)
        for number in self._some("IX-TIME", np.flatnonzero(~fits)):
            at = int(hits[number])
            seconds = (int(stored[number]) - int(begins[self.file[at]])) // 1000
            self._report(
                "IX-TIME",
                "its time is not that of its record",
                at,
                f"{seconds} s",
                f"{self.time_diff[at]} s",
                int(record[number]),
            )

    def _lost(self, which: Ints, ranges: LogRanges) -> None:
        if not len(which):
            return
        which = which[np.lexsort((self.entry[which], self.file[which]))]
        number = ranges.look_up(self.place[which])
        consecutive = self.entry[which] - np.arange(len(which))
        dangling = capped_dangling(_RUNS)
        for first, behind in groups(self.file[which], number, consecutive):
            at = which[first:behind]
            index = self.plan.index[int(self.file[at[0]])]
            begin = int(index.header.begin_timestamp) if index.header else 0
            entry = int(self.entry[at[0]])
            dangling.extend(
                [
                    Dangling(
                        "entry",
                        index.file.name,
                        self._position(int(at[0])),
                        _ENTRY_SIZE,
                        len(at),
                        entry,
                        None,
                        None,
                        int(self.place[at].min()),
                        int(self.place[at].max()),
                        where_of(int(number[first])),
                        len(np.unique(self.place[at])),
                        begin + 1000 * int(self.time_diff[at].max()) if begin > 0 else None,
                    )
                ]
            )
        self.result.dangling = dangling.rows

    def find_missing(self) -> None:
        """Tell records whose key has no entry, in the range that the index covers.

        The first and the last record of the range may share their keys with a file that is gone, or
        with the moment of a crash. No entry of the tags is asked for: versions before 5.4.0 may have written the file.
        """
        records, covered = self.records, self.plan.index_range
        if covered is None or not self.plan.index_complete or not self.complete or not len(records.key_record):
            return
        place = records.place[records.key_record]
        asked = (place > covered[0]) & (place < covered[1]) & (records.key_kind != TAG) & (place < self.high)
        asked &= records.sound[records.key_record]
        self.result.asked = int(np.count_nonzero(asked))
        if self.found is self.keys:
            return  # each key has its entry
        lacking = np.flatnonzero(asked & ~_among(self.keys, self.found))
        # An entry with a wrong hash points at the record: it is that key's.
        lacking = lacking[~np.isin(records.key_record[lacking], self.odd_records)]
        # Runs of neighbours among the keys that are asked for.
        number = np.cumsum(asked)[lacking] - 1
        for first, behind in groups(number - np.arange(len(lacking))):
            if len(self.result.missing) >= _RUNS:
                self.result.suppressed["IX-MISSING"] += behind - first
                continue
            record = int(records.key_record[lacking[first]])
            topic, queue_id = records.queues[int(records.queue[record])]
            stands = int(records.place[record])
            finding = Finding(
                "IX-MISSING",
                "",
                file=self.segment[0],
                offset=stands - self.segment[1],
                length=int(records.size[record]),
                physical_offset=stands,
                topic=topic.decode("utf-8", "replace"),
                queue_id=queue_id,
                queue_offset=int(records.queue_offset[record]),
                timestamp=int(records.store_timestamp[record]),
            )
            ends = int(number[behind - 1]) == self.result.asked - 1
            self.result.missing.append(MissingKeys(finding, behind - first, int(number[first]) == 0, ends))

    # --- reporting --------------------------------------------------------------------------------

    def _position(self, at: int) -> int:
        geometry = self.plan.index[int(self.file[at])].geometry
        return geometry.entry_position(int(self.entry[at])) if geometry else 0

    def _some(self, code: str, which: Ints) -> Sequence[int]:
        return self.kept.admit(code, which.tolist())

    def _report(
        self, code: str, what: str, at: int, expected: str | None, found: str | None, record: int | None = None
    ) -> None:
        index = self.plan.index[int(self.file[at])]
        self.kept.add(
            Finding(
                code,
                f"entry {self.entry[at]}: {what}",
                file=index.file.name,
                offset=self._position(at),
                length=_ENTRY_SIZE,
                physical_offset=int(self.place[at]),
                expected=expected,
                found=found,
            )
        )


def _among(wanted: Ints, values: Ints) -> Bools:
    """Return which numbers are among others; nearly always both are the same in the same order."""
    if len(wanted) == len(values) and (wanted == values).all():
        return np.ones(len(wanted), np.bool_)
    if not len(values):
        return np.zeros(len(wanted), np.bool_)
    ordered = np.sort(values, kind="stable")
    found: Bools = ordered[np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)] == wanted
    return found

"""Index entries against the records of a split, both ways.

    entry -> record    does a record start where the entry points? does it have a key with the entry's
                       hash? is the entry's time that of the record?         IX-DANGLING, IX-KEY, IX-TIME
    record -> entry    does each key of the records have an entry?           IX-MISSING

Entries are written in the order of records and keys, so one walk through both finds the key of nearly every entry and
judges it (`loops.pointers.step_entries`).

Invariants:
  - an entry is judged in the one split whose range holds its physical offset;
  - a missing key is reported only inside the range that the index covers, and only when all index files could be
    read: retention takes index files and segments at different times;
  - an entry with a wrong hash is its record's: IX-KEY reports it, and the record misses no key.

Source: IndexService#buildIndex, IndexFile#putKey; RocketMQ 4.0.0 to 5.5.0.
"""

from typing import NamedTuple

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import distinct, groups, is_among
from rmqinspect.index.geometry import IndexFile
from rmqinspect.loops.arrays import Int32s, Ints
from rmqinspect.loops.pointer_rows import AT_EDGE, ENTRY_COLUMNS, ENTRY_SIZE, FAR, KEY_BITS, WRONG_ENTRY_TIME, WRONG_KEY
from rmqinspect.loops.pointers import step_entries
from rmqinspect.loops.record_rows import MARKED_ID, TAG
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file
from rmqinspect.text import text_of
from rmqinspect.verify.findings import Finding, capped_findings, place_in
from rmqinspect.verify.index_header import WINDOW_ROWS, entry_windows
from rmqinspect.verify.plan import CrossPlan
from rmqinspect.verify.pointers import (
    MOST_RUNS,
    Evidence,
    Joined,
    Kind,
    Location,
    LogRanges,
    PointerReport,
    Pointers,
    Verdict,
    read_runs,
)
from rmqinspect.verify.wrong_records import Stamp, WrongTime, wrong_times

ENTRIES = Kind(
    "entry",
    "the index entry",
    "IX-DANGLING",
    "IX-BEYOND",
    {
        WRONG_KEY: Verdict(
            "IX-KEY", "entry {row[number]}: its hash matches no key of the record it points at", None, "{row[hash]}"
        ),
        WRONG_ENTRY_TIME: Verdict(
            "IX-TIME",
            "entry {row[number]}: its time does not match its record's store timestamp",
            "{row[seconds]} s",
            "{row[time_diff]} s",
        ),
    },
)


class MissingKeys(NamedTuple):
    """Consecutive keys without an entry, of those that should have one."""

    finding: Finding  # about the first record
    keys: int
    from_start: bool  # begins with the first such key of the split
    to_end: bool


class IndexResult(Joined):
    """What the entries of one split show."""

    missing: list[MissingKeys] = field(default_factory=list)
    asked: int = 0  # keys that should have an entry
    # The records that a file's header is about, by (number of the file, entry).
    edge_times: dict[tuple[int, int], Stamp] = field(default_factory=dict)
    wrong_times: list[WrongTime] = field(default_factory=list)


def join_entries(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> IndexResult:
    """Check the entries that point into a split, and its records' keys; `limit` bounds the findings of a code."""
    kept = capped_findings(limit)
    result = IndexResult(findings=kept.rows, suppressed=kept.suppressed)
    has_entry = np.zeros(len(records.key_record), np.uint8)
    entries = _step_through(records, plan, number, has_entry, result)

    def locate(at: int) -> Location:
        index = plan.index[int(entries.file[at])]
        offset = index.geometry.entry_position(int(entries.row[at])) if index.geometry else 0
        return Location(index.file.name, offset, ENTRY_SIZE)

    def prove(at: Ints) -> Evidence:
        begin = _begin_of(plan.index[int(entries.file[at[0]])])
        newest = begin + 1000 * int(entries.values["time_diff"][at].max()) if begin > 0 else None
        return Evidence(int(entries.row[at[0]]), len(distinct(entries.values["physical_offset"][at])), newest)

    report = PointerReport(ENTRIES, entries, records, locate, kept)
    result.dangling = report.dangling(ranges, prove)
    report.add_findings()
    _take_times(records, plan, entries, result)
    if not result.unread:
        _, high = plan.range_of(number)
        wrong_key = entries.record[entries.which(WRONG_KEY)]
        _find_missing(records, plan, high, ranges.segment, has_entry, wrong_key, result)
    return result


def _step_through(
    records: Dispatched, plan: CrossPlan, number: int, has_entry: NDArray[np.uint8], result: IndexResult
) -> Pointers:
    """Judge the entries that point into split `number`; return those with a verdict, ascending by where they point.

    Marks the keys that have an entry, and counts these entries.
    """
    low, high = plan.range_of(number)
    found, counts = np.zeros((WINDOW_ROWS, ENTRY_COLUMNS), np.int64), np.zeros(2, np.int64)
    sorted_keys = key_order = np.empty(0, np.int64)
    if (records.key_record[FAR:] == records.key_record[:-FAR]).any():
        numbers = _numbers(records, np.arange(len(records.key_record)))
        key_order = np.argsort(numbers, kind="stable")
        sorted_keys = numbers[key_order]

    def read(which: int, first: int, count: int) -> tuple[int, list[Ints]]:
        index = plan.index[which]
        known, parts = 0, []
        with open_file(index.file) as reader:
            for start, window in entry_windows(index, first, count, reader):
                step_entries(
                    window.view(np.uint8),
                    low,
                    min(high, 1 << 63) - 1,
                    max(0, _begin_of(index)) if plan.timed[which] else -1,
                    start,
                    plan.index_used[which],
                    records.physical_offset,
                    records.store_timestamp,
                    records.key_record,
                    records.key_hash,
                    sorted_keys,
                    key_order,
                    has_entry,
                    found,
                    counts,
                )
                known += int(counts[1])
                rows, record, verdict = found[: counts[0]].T
                if len(rows):
                    of_entry = [window[name][rows] for name in ("physical_offset", "key_hash", "time_diff")]
                    parts.append(np.stack((np.full_like(rows, which), start + rows, record, verdict, *of_entry)))
        return known, parts

    parts = [np.empty((7, 0), np.int64)]
    for _, of_run in read_runs(plan.runs_of(ENTRIES.name, number), read, result.unread):
        if of_run is not None:
            result.joined += of_run[0]
            parts += of_run[1]
    columns = np.concatenate(parts, axis=1, dtype=np.int64)
    columns = columns[:, np.argsort(columns[4], kind="stable")]
    file, row, record, verdict, place, key_hash, time_diff = columns
    # What the time should be, in words: where a record was not found, that of another one, which is not told.
    begins = np.array([_begin_of(index) for index in plan.index], np.int64)
    stored = records.store_timestamp[record] if len(records) else np.zeros_like(record)
    seconds = (stored - begins[file]) // 1000
    values = {"physical_offset": place, "hash": key_hash, "time_diff": time_diff, "seconds": seconds}
    return Pointers(file, row, record, verdict, values)


def _begin_of(index: IndexFile) -> int:
    return int(index.header.begin_timestamp) if index.header else 0


def _take_times(records: Dispatched, plan: CrossPlan, entries: Pointers, result: IndexResult) -> None:
    """Note the store times that the headers' judge needs, and the records whose time is wrong by their entries."""
    for at in entries.which(AT_EDGE).tolist():
        stamp = Stamp(int(entries.values["physical_offset"][at]), int(records.store_timestamp[entries.record[at]]))
        result.edge_times[int(entries.file[at]), int(entries.row[at])] = stamp
    which = entries.which(WRONG_ENTRY_TIME)
    record = entries.record[which]
    # Of many it is the file's begin that is wrong.
    if 0 < len(distinct(record)) <= max(1, len(records) // 2):
        begins = np.array([_begin_of(index) for index in plan.index], np.int64)
        indexed = begins[entries.file[which]] + 1000 * entries.values["time_diff"][which]
        result.wrong_times += wrong_times(records.physical_offset, records.store_timestamp, record, indexed)


def _find_missing(
    records: Dispatched,
    plan: CrossPlan,
    high: int,
    segment: Segment | None,
    has_entry: NDArray[np.uint8],
    wrong_key: Ints,
    result: IndexResult,
) -> None:
    """Find keys without an entry, in the range that the index covers.

    The first and the last record of the range may share their keys with a file that is gone, or with the
    moment of a crash. Tags need no entry: a version before 5.4.0 may have written the file. Of the two forms of
    an id (`codec.hashes`) one is enough.
    """
    covered = plan.index_range
    if covered is None or not plan.index_complete or not len(records.key_record):
        return
    offsets = records.physical_offset[records.key_record]
    asked = (offsets > covered[0]) & (offsets < min(covered[1], high)) & (records.key_kind != TAG)
    asked &= (records.key_kind != MARKED_ID) & records.sound[records.key_record]
    result.asked = int(np.count_nonzero(asked))
    lacking = np.flatnonzero(asked & (has_entry == 0))
    if not len(lacking):
        return  # each key has its entry
    keys = _keys_of(records, records.key_record[lacking])
    found = _numbers(records, keys[has_entry[keys] != 0])
    lacking = lacking[~is_among(_numbers(records, lacking), found)]
    marked = keys[records.key_kind[keys] == MARKED_ID]
    lacking = lacking[~is_among(lacking, marked[is_among(_numbers(records, marked), found)] - 1)]
    lacking = lacking[~is_among(records.key_record[lacking], wrong_key)]
    # Consecutive ones among the keys that should have an entry.
    number = np.cumsum(asked)[lacking] - 1
    for first, behind in groups(number - np.arange(len(lacking))):
        if len(result.missing) >= MOST_RUNS:
            result.suppressed["IX-MISSING"] += behind - first
            continue
        finding = _missing_finding(records, int(records.key_record[lacking[first]]), segment)
        ends = int(number[behind - 1]) == result.asked - 1
        result.missing.append(MissingKeys(finding, behind - first, int(number[first]) == 0, ends))


def _missing_finding(records: Dispatched, record: int, segment: Segment | None) -> Finding:
    """Return a finding without its message, which is known when all splits were read."""
    topic, queue_id = records.queues[int(records.queue[record])]
    physical_offset = int(records.physical_offset[record])
    return Finding(
        "IX-MISSING",
        "",
        **place_in(segment, physical_offset),
        length=int(records.size[record]),
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
    numbers: Ints = (records.key_record[which].astype(np.int64) << KEY_BITS) | records.key_hash[which]
    return numbers

"""Queue units against the records of a split, both ways: where each unit leads, and which record has none.

Source: ConsumeQueue, BatchConsumeQueue, CommitLogDispatcherBuildConsumeQueue; core 4.3 to 4.9.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.arrays import Bools, Ints, groups
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, filler_units, read_ext_tags, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX, QueueUnit
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.dangling import Dangling, LogRanges, capped_dangling, find_places, where_of
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.plan import CrossPlan

_RUNS = 5000  # of a kind in a split, told one by one
_SECOND = 1000  # ms


class Shift(NamedTuple):
    """Consecutive units of a queue that stand a constant distance from their records' queue offsets."""

    file: str
    position: int
    topic: str
    queue_id: int
    unit: int  # number of the first
    units: int
    by: int  # number of the unit minus queue offset of the record
    physical_offset: int  # of the first unit's record


class Missing(NamedTuple):
    """Consecutive records of a queue that have no unit."""

    topic: str
    queue_id: int
    queue_offset: int  # of the first
    records: int
    messages: int
    low: int  # physical offsets of the first and the last
    high: int
    first_timestamp: int  # ms
    last_timestamp: int
    newest: bool  # no record of this split behind the first one has a unit

    def merged(self, other: "Missing") -> "Missing":
        """Return both as one row, which says how many there are and no longer where the other is."""
        return self._replace(
            records=self.records + other.records,
            messages=self.messages + other.messages,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            first_timestamp=min(self.first_timestamp, other.first_timestamp),
            last_timestamp=max(self.last_timestamp, other.last_timestamp),
        )


def capped_missing(limit: int) -> CappedList[Missing, tuple[str, int, bool]]:
    """Return an empty list of up to `limit` runs; overflow becomes one run per queue."""
    return CappedList(limit, lambda run: (run.topic, run.queue_id, run.newest), merge=Missing.merged)


def capped_shifts(limit: int) -> CappedList[Shift, str]:
    """Return an empty list of up to `limit` runs; overflow becomes one run per file."""
    return CappedList(limit, lambda run: run.file, merge=lambda run, other: run._replace(units=run.units + other.units))


@dataclass(slots=True)
class UnitResult:
    """What the units of one split told."""

    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)
    shifts: list[Shift] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    dangling: list[Dangling] = field(default_factory=list)
    last_place: int | None = None  # physical offset of the last record that has its unit
    last_timestamp: int = 0  # its store time, ms
    joined: int = 0  # units that lead to their record
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def join_units(records: Dispatched, plan: CrossPlan, number: int, ranges: LogRanges, limit: int) -> UnitResult:
    """Check the units that point into split `number`, and its records; `limit` bounds rows of a code.

    Runs are bounded by themselves: what they are is known only when all splits were read.
    """
    join = _UnitJoin(records, plan, limit)
    join.read(number)
    join.match(ranges)
    join.find_missing()
    return join.result


@dataclass(slots=True)
class _Columns:
    """Units in the order of their files and rows, and so of places within each queue."""

    place: Ints
    size: Ints
    tags: Ints
    row: Ints
    file: Ints  # its number in the plan
    offset: Ints  # queue offset
    messages: Ints
    timestamp: Ints  # of a batch unit; else 0

    @classmethod
    def joined(cls, parts: Sequence["_Columns"]) -> "_Columns":
        """Return the units of all parts."""
        nothing = np.empty(0, np.int64)
        names = [part.name for part in fields(cls)]
        return cls(*(np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in names))


class _Rows:
    """Runs of the units of one layout, read into one array: thousands of queues may have a few units in a split."""

    def __init__(self, kind: str) -> None:
        self.layout = dtype_of(LAYOUTS[kind])
        self.runs: list[tuple[int, int, int]] = []  # number of the file, first row, rows
        self.raw: list[bytes] = []

    def add(self, file: QueueFile, number: int, first: int, count: int) -> None:
        """Read rows of a file.

        :raises Unreadable: the system reports an I/O error.
        """
        with open_file(file) as reader:
            raw = reader.read(first * self.layout.itemsize, count * self.layout.itemsize)
        rows = len(raw) // self.layout.itemsize
        self.raw.append(raw[: rows * self.layout.itemsize])
        self.runs.append((number, first, rows))

    def columns(self, low: int, high: int, firsts: Ints) -> _Columns:
        """Return the units of messages that point at [low, high); `firsts` has each file's first queue offset."""
        units = np.frombuffer(b"".join(self.raw), self.layout)
        number, first, rows = np.array(self.runs, np.int64).T
        begins = np.cumsum(rows) - rows
        place = units["physical_offset"].astype(np.int64)
        mine = valid_units(units) & ~filler_units(units) & (place >= low) & (place < high)
        file, row = np.repeat(number, rows), np.arange(len(units)) + np.repeat(first - begins, rows)
        if not mine.all():
            units, place, file, row = units[mine], place[mine], file[mine], row[mine]
        size, tags = units["size"].astype(np.int64), units["tags_code"].astype(np.int64)
        if "message_count" in (self.layout.names or ()):
            base, many, stored = (
                units[name].astype(np.int64) for name in ("queue_offset", "message_count", "store_timestamp")
            )
            return _Columns(place, size, tags, row, file, base, many, stored)
        return _Columns(place, size, tags, row, file, firsts[file] + row, np.ones_like(row), np.zeros_like(row))


class _UnitJoin:
    def __init__(self, records: Dispatched, plan: CrossPlan, limit: int) -> None:
        self.records, self.plan, self.limit = records, plan, limit
        self.kept = capped_findings(limit)
        self.result = UnitResult(self.kept.rows, self.kept.suppressed)
        self.missing = capped_missing(_RUNS)
        self.unread: set[tuple[str, int]] = set()  # queues that could be read when they were surveyed
        self.high = 0
        names = [(file.topic, file.queue_id) for file in plan.queue_files]
        self.names = list(dict.fromkeys(names))
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self.queue_of_file = np.array([self.number_of[name] for name in names], np.int64)
        own = [(topic.decode("utf-8", "surrogateescape"), queue_id) for topic, queue_id in records.queues]
        self.own_names = own
        # The queue of each record as the plan numbers queues; -1: it has no file.
        numbers = np.array([self.number_of.get(name, -1) for name in own], np.int64)
        self.queue = numbers[records.queue] if len(records) else np.empty(0, np.int64)

    # --- the units ------------------------------------------------------------------------------

    def read(self, number: int) -> None:
        low, high = self.plan.range_of(number)
        self.high = high
        read = [_Rows("queue"), _Rows("batch_queue")]
        for file_number, first, count in self.plan.queue_runs.of_split(number):
            file = self.plan.queue_files[file_number]
            try:
                read[file.kind == "batch_queue"].add(file, file_number, first, count)
            except Unreadable as error:
                self.result.unread.append(unread_finding(error))
                self.unread.add((file.topic, file.queue_id))
        firsts = np.array([file.base // QueueUnit.sizeof() for file in self.plan.queue_files], np.int64)
        parts = [rows.columns(low, high, firsts) for rows in read if rows.runs]
        self.units = parts[0] if len(parts) == 1 else _Columns.joined(parts)

    def match(self, ranges: LogRanges) -> None:
        units, records = self.units, self.records
        at, hit = self._in_step() or find_places(records.place, units.place)
        self._lost(np.flatnonzero(~hit), ranges)
        self.hit = np.flatnonzero(hit)
        self.record = at[self.hit]
        queue, record = self.queue_of_file[units.file[self.hit]], self.record
        expected, main, extra = self._expected_offsets(queue)
        named = main | extra
        same_size = units.size[self.hit] == records.size[record]
        entitled = records.entitled[record] | extra
        self._mismatches(np.flatnonzero(~(named & same_size & entitled)), named, same_size)
        good = named & same_size & entitled
        self.good, self.extra = good, extra
        self.result.joined = int(np.count_nonzero(good))
        if self.result.joined:
            last = record[good].max()
            self.result.last_place = int(records.place[last])
            self.result.last_timestamp = int(records.store_timestamp[last])
        self._shifts(np.flatnonzero(good & (units.offset[self.hit] != expected)), expected)
        self._tags(np.flatnonzero(good), extra)
        self._batches(np.flatnonzero(good & (units.timestamp[self.hit] != 0)))

    def _in_step(self) -> tuple[Ints, Bools] | None:
        """Return what `find_places` does where the units are the records' own, queue by queue; else None."""
        if len(self.queue) != len(self.units.place) or not len(self.queue) or int(self.queue.min()) < 0:
            return None
        # Queues are numbered in the order of their files: sorted by them, records stand as their units do.
        narrow = np.uint16 if len(self.names) < 1 << 16 else np.int64  # sorted by radix
        order = np.argsort(self.queue.astype(narrow), kind="stable")
        if (self.records.place[order] != self.units.place).any():
            return None
        return order, np.ones(len(order), np.bool_)

    def _expected_offsets(self, queue: Ints) -> tuple[Ints, Bools, Bools]:
        """Return (queue offset the record says, unit of its own queue, unit by multi-dispatch) per hit."""
        records, record = self.records, self.record
        expected = records.queue_offset[record].copy()
        main = self.queue[record] == queue
        extra = np.zeros(len(record), np.bool_)
        if records.extras:
            wanted = [(e.record, self.number_of.get((e.topic, e.queue_id), -1), e.queue_offset) for e in records.extras]
            rows = np.array(wanted, np.int64)
            keys = rows[:, 0] * len(self.names) + rows[:, 1]
            keys = np.where(rows[:, 1] < 0, -1, keys)
            order = np.argsort(keys, kind="stable")
            mine = record * len(self.names) + queue
            at = np.minimum(np.searchsorted(keys[order], mine), len(keys) - 1)
            extra = (keys[order][at] == mine) & ~main
            expected[extra] = rows[order[at[extra]], 2]
        return expected, main, extra

    # --- what a unit can be wrong about -----------------------------------------------------------

    def _lost(self, which: Ints, ranges: LogRanges) -> None:
        """Put units that lead to no record together by file, row and gap."""
        if not len(which):
            return
        units = self.units
        which = which[np.lexsort((units.row[which], units.file[which]))]
        number = ranges.look_up(units.place[which])
        consecutive = units.row[which] - np.arange(len(which))
        dangling = capped_dangling(_RUNS)
        for first, behind in groups(units.file[which], number, consecutive):
            at = which[first:behind]
            file, size = self._file(at[0])
            times = units.timestamp[at]
            dangling.extend(
                [
                    Dangling(
                        "unit",
                        file.name,
                        int(units.row[at[0]]) * size,
                        size,
                        len(at),
                        int(units.offset[at[0]]),
                        file.topic,
                        file.queue_id,
                        int(units.place[at].min()),
                        int(units.place[at].max()),
                        where_of(int(number[first])),
                        int(units.messages[at].sum()),
                        int(times.max()) if times.any() else None,
                    )
                ]
            )
        self.result.dangling = dangling.rows

    def _mismatches(self, wrong: Ints, named: Bools, same_size: Bools) -> None:
        for number in self._some("CQ-MISMATCH", wrong):
            at, record = int(self.hit[number]), int(self.record[number])
            topic, queue_id = self.own_names[self.records.queue[record]]
            file, _ = self._file(at)
            if not named[number]:
                what = "the record it points at is of another queue"
                expected, found = f"{file.topic} queue {file.queue_id}", f"{topic} queue {queue_id}"
            elif not same_size[number]:
                what = "the record it points at has another size"
                expected, found = str(self.records.size[record]), str(self.units.size[at])
            else:
                what = "the record it points at is prepared or rolled back and is entitled to none"
                expected, found = None, None
            self._report("CQ-MISMATCH", f"wrong unit: {what}", at, expected, found)

    def _shifts(self, wrong: Ints, expected: Ints) -> None:
        units = self.units
        at = self.hit[wrong]
        order = np.lexsort((units.row[at], units.file[at]))
        at, by = at[order], (units.offset[at] - expected[wrong])[order]
        consecutive = units.row[at] - np.arange(len(at))
        shifts = capped_shifts(_RUNS)
        for first, behind in groups(units.file[at], by, consecutive):
            file, size = self._file(at[first])
            shifts.extend(
                [
                    Shift(
                        file.name,
                        int(units.row[at[first]]) * size,
                        file.topic,
                        file.queue_id,
                        int(units.offset[at[first]]),
                        behind - first,
                        int(by[first]),
                        int(units.place[at[first]]),
                    )
                ]
            )
        self.result.shifts = shifts.rows

    def _tags(self, good: Ints, extra: Bools) -> None:
        """CQ-TAG and EX-ADDRESS. Source: ConsumeQueue#putMessagePositionInfo, #isExtAddr."""
        units = self.units
        at = self.hit[good]
        tags, known = self._plain_tags(at)
        expected = self.records.tags_code[self.record[good]]
        plain = tags == expected
        scheduled = self._are_of_topic(units.file[at], SCHEDULE_TOPIC) & ~extra[good] & known
        by_recovery = plain & ("plain_schedule_tags" in self.plan.may_hold)
        scheduled &= self.records.delayed[self.record[good]]
        self._delays(np.flatnonzero(scheduled & ~by_recovery), at, tags, self.record[good])
        for number in self._some("CQ-TAG", np.flatnonzero(known & ~scheduled & ~plain)):
            self._report(
                "CQ-TAG",
                "the tags code is not the hash of the record's tags: a consumer that filters by it misses it",
                int(at[number]),
                str(expected[number]),
                str(tags[number]),
            )

    def _plain_tags(self, at: Ints) -> tuple[Ints, Bools]:
        """Return (tags code, is it known) of each unit: that of its ext unit where it has the address of one."""
        units = self.units
        tags, all_known = units.tags[at].copy(), np.ones(len(at), np.bool_)
        for file_number in np.unique(units.file[at[tags <= EXT_ADDRESS_MAX]]).tolist():
            file = self.plan.queue_files[file_number]
            exts = self.plan.ext_files.get((file.topic, file.queue_id), ())
            of_file = units.file[at] == file_number
            mine = np.flatnonzero(of_file & (tags <= EXT_ADDRESS_MAX))
            # Without ext files a few such numbers are damaged hashes; many say that the files are lost.
            if not exts and 2 * len(mine) <= np.count_nonzero(of_file):
                continue
            found, known = np.zeros(len(mine), np.int64), np.zeros(len(mine), np.bool_)
            try:
                read_ext_tags(exts, tags[mine], found, known)
            except Unreadable as error:
                self.result.unread.append(unread_finding(error))
                all_known[mine] = False
                continue
            for number in self._some("EX-ADDRESS", np.flatnonzero(~known)):
                one = int(at[mine[number]])
                found_there = str(units.tags[one])
                self._report("EX-ADDRESS", "the unit's ext address leads to no ext unit", one, None, found_there)
            tags[mine], all_known[mine] = found, known
        return tags, all_known

    def _are_of_topic(self, files: Ints, topic: str) -> Bools:
        is_topic = np.array([file.topic == topic for file in self.plan.queue_files], np.bool_)
        chosen: Bools = is_topic[files]
        return chosen

    def _delays(self, which: Ints, at: Ints, tags: Ints, record: Ints) -> None:
        """A unit of the schedule topic holds the time of delivery: store time and the level's delay.

        The table of delays is a setting; a delay is a number of whole seconds, which no flipped bit keeps.
        """
        delays = tags[which] - self.records.store_timestamp[record[which]]
        wrong = which[(delays <= 0) | (delays % _SECOND != 0)]
        for number in self._some("CQ-TAG", wrong):
            self._report(
                "CQ-TAG",
                "the time of delivery is not the store time and a delay of whole seconds",
                int(at[number]),
                f"{self.records.store_timestamp[record[number]]} and seconds",
                str(tags[number]),
            )

    def _batches(self, numbers: Ints) -> None:
        at, record = self.hit[numbers], self.record[numbers]
        messages = self.records.messages[record]
        for number in self._some("BQ-COUNT", np.flatnonzero(self.units.messages[at] != messages)):
            self._report(
                "BQ-COUNT",
                "the batch unit has not the number of messages that its record says",
                int(at[number]),
                str(messages[number]),
                str(self.units.messages[at[number]]),
            )
        times = self.records.store_timestamp[record]
        for number in self._some("CQ-MISMATCH", np.flatnonzero(self.units.timestamp[at] != times)):
            self._report(
                "CQ-MISMATCH",
                "wrong unit: the record it points at has another store time",
                int(at[number]),
                str(times[number]),
                str(self.units.timestamp[at[number]]),
            )

    # --- records without a unit -------------------------------------------------------------------

    def find_missing(self) -> None:
        """Tell records that are entitled to a unit and have none; a wrong unit counts as theirs."""
        records, count = self.records, len(self.records)
        if not count:
            return
        has = np.zeros(count, np.bool_)
        has[self.record[self.good & ~self.extra]] = True
        has[self.record[~self.good]] = True
        judged = np.ones(count, np.bool_) if self.plan.whole else self.queue >= 0
        judged &= ~np.array([self._is_unread(name) for name in self.own_names])[records.queue]
        # What stands behind the split's range is in another segment too, and judged there.
        judged &= records.place < self.high
        lacking = np.flatnonzero(records.entitled & records.sound & ~has & judged)
        self._tell_missing(
            lacking, records.queue[lacking], records.queue_offset[lacking], records.messages[lacking], self.own_names
        )
        self._missing_extras()
        self.result.missing = self.missing.rows

    def _is_unread(self, name: tuple[str, int]) -> bool:
        return name in self.unread or self.plan.is_unread(name)

    def _missing_extras(self) -> None:
        records = self.records
        if not records.extras:
            return
        queues = self.queue_of_file[self.units.file[self.hit[self.good]]]
        had = set(zip(self.record[self.good].tolist(), queues.tolist(), strict=True))
        lacking: list[tuple[int, int, int]] = []
        names: dict[tuple[str, int], int] = {}
        for extra in records.extras:
            name = extra.topic, extra.queue_id
            number = self.number_of.get(name, -1)
            if (extra.record, number) in had or self._is_unread(name):
                continue
            if not records.sound[extra.record] or not records.entitled[extra.record]:
                continue
            # 5.5.0 copies the names with a message that it gives up, and gives it no new offsets.
            if records.queues[int(records.queue[extra.record])][0].startswith(b"%DLQ%"):
                continue
            # A light queue that nobody used for long is deleted; with RocksDB it may be kept there alone.
            if number < 0 and (not self.plan.whole or self.plan.elsewhere or extra.topic.startswith("%LMQ%$")):
                continue
            lacking.append((extra.record, names.setdefault(name, len(names)), extra.queue_offset))
        if lacking:
            rows = np.array(lacking, np.int64)
            self._tell_missing(rows[:, 0], rows[:, 1], rows[:, 2], np.ones(len(rows), np.int64), list(names))

    def _tell_missing(
        self, lacking: Ints, queue: Ints, offset: Ints, messages: Ints, names: list[tuple[str, int]]
    ) -> None:
        if not len(lacking):
            return
        records = self.records
        order = np.lexsort((lacking, queue))
        lacking, queue, offset, messages = lacking[order], queue[order], offset[order], messages[order]
        last = -1 if self.result.last_place is None else self.result.last_place
        newest = records.place[lacking] > last
        # Where one begins minus all messages before it: the same along a run.
        lead = offset - (np.cumsum(messages) - messages)
        for first, behind in groups(queue, lead, newest.astype(np.int64)):
            at = lacking[first:behind]
            topic, queue_id = names[int(queue[first])]
            self.missing.extend(
                [
                    Missing(
                        topic,
                        queue_id,
                        int(offset[first]),
                        len(at),
                        int(messages[first:behind].sum()),
                        int(records.place[at[0]]),
                        int(records.place[at[-1]]),
                        int(records.store_timestamp[at[0]]),
                        int(records.store_timestamp[at[-1]]),
                        bool(newest[first]),
                    )
                ]
            )

    # --- reporting --------------------------------------------------------------------------------

    def _file(self, at: int | np.int64) -> tuple[QueueFile, int]:
        file = self.plan.queue_files[int(self.units.file[at])]
        return file, dtype_of(LAYOUTS[file.kind]).itemsize

    def _some(self, code: str, which: Ints) -> Sequence[int]:
        """Return as many as are told one by one; count the others."""
        return self.kept.admit(code, which.tolist())

    def _report(self, code: str, what: str, at: int, expected: str | None, found: str | None) -> None:
        self.kept.add(self._finding(code, what, at, expected, found))

    def _finding(self, code: str, what: str, at: int, expected: str | None, found: str | None) -> Finding:
        file, size = self._file(at)
        units = self.units
        return Finding(
            code,
            what,
            file=file.name,
            offset=int(units.row[at]) * size,
            length=size,
            physical_offset=int(units.place[at]),
            topic=file.topic,
            queue_id=file.queue_id,
            queue_offset=int(units.offset[at]),
            expected=expected,
            found=found,
        )

"""The third phase of verify: one split of the log, its records and all that points into it.

    scan         runs of records     -> rules of a record and its neighbours    CL-CRC-*, CL-OFFSET, CL-FIELD, CL-TIME
                                     -> what is dispatched of them              broker/dispatch.py
                 gaps                -> byte account, judged later              whole_log.py
    then join    queue units, index entries, timer units that point into the split

`check_split` runs in any thread. Whatever needs the whole log is judged from the results, in log order. A chain
that a gap breaks is a new one: queues and times are not compared across it.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.dispatch import Dispatched, Dispatcher
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.bridges import records_in
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import BRIDGED, Borders, Gap, Split
from rmqinspect.commitlog.log_runs import FoldedRanges
from rmqinspect.commitlog.queue_offsets import Jump, QueueEnds, QueueOffsets
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.damage.misplaced import explain_body_crc, explain_record_crc
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.fed_scan import FedPart, doubts_of
from rmqinspect.forecast.record_fold import RecordFold
from rmqinspect.loops.record_rows import (
    FIELD_RULE,
    LAST_PLACE,
    LAST_PORT,
    OFFSET_RULE,
    TIME_RULE,
    WRONG_CRC,
)
from rmqinspect.loops.records import broken_rules
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Segment
from rmqinspect.system.workers import keep_freed_memory
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.tables.read_log import LogFold
from rmqinspect.text import text_of
from rmqinspect.topics import is_legal_topic
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.dledger import ChainEnds, EntryChain
from rmqinspect.verify.findings import Finding, capped_findings, place_in
from rmqinspect.verify.index_join import join_entries
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import Joined, LogRanges
from rmqinspect.verify.queue_join import UnitResult, join_units
from rmqinspect.verify.timer_survey import join_timer
from rmqinspect.verify.wrong_records import SplitTimes, TimeSteps

Join = Callable[[Dispatched, CrossPlan, int, LogRanges, int], Joined]
JOINS: Mapping[str, Join] = {"unit": join_units, "entry": join_entries, "timer": join_timer}
"""What compares the records of a split with the pointers of one kind."""

Values = tuple[str | None, str | None, str]  # expected, found, end of the message


class SplitResult(Struct):
    """What one split shows; `CheckLimits` bounds it, except for gaps and queues."""

    split: Split
    account: ByteAccount
    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)  # more findings of a code, not kept
    unread: list[Unread] = field(default_factory=list)
    stale: list[tuple[int, int, int]] = field(default_factory=list)  # [start, end), records
    jumps: list[tuple[int, Jump]] = field(default_factory=list)  # physical offset, jump
    ends: QueueEnds = field(default_factory=QueueEnds)
    set_back: list[tuple[int, int]] = field(default_factory=list)  # physical offset, milliseconds
    times: SplitTimes = field(default_factory=SplitTimes)
    borders: Borders | None = None  # None: the file could not be opened
    newest: int | None = None  # store time in ms of the newest record
    unindexed: tuple[int, int, int] | None = None  # records with keys behind the index; offset and time of the first
    before_index: tuple[int, int, int] | None = None  # the same before the index
    joined: list[Joined] = field(default_factory=list)  # of each kind of pointer that the plan has
    chain: ChainEnds | None = None  # of a DLedger segment
    dispatched: Dispatched | None = None  # all records, for the scan of a start; None: it asks for none
    doubts: int = 0  # of these (`forecast.fed_scan`)
    names: frozenset[QueueName] = frozenset()  # of the queues of its records, if asked
    fed: FedPart | None = None  # of one that was taken over: what stands for `dispatched`
    is_taken_over: bool = False  # from an earlier run
    folds: Sequence[LogFold] = ()  # of its records, for other answers
    damaged: FoldedRanges = field(default_factory=FoldedRanges)  # records with an error, all of them


def joined_unindexed(
    before: tuple[int, int, int] | None, after: tuple[int, int, int] | None
) -> tuple[int, int, int] | None:
    """Return what two neighbouring parts of the log have in `SplitResult.unindexed`, together."""
    if before is None or after is None:
        return before or after
    return before[0] + after[0], before[1], before[2]


class CheckLimits(Struct, frozen=True):
    """How many rows a result keeps, and which codes are checked."""

    per_code: int = 1000
    codes: frozenset[str] = frozenset()
    names: bool = False  # a result names the queues of its records


def check_split(
    split: Split, limits: CheckLimits, plan: CrossPlan | None = None, new_folds: Sequence[Callable[[], LogFold]] = ()
) -> SplitResult:
    """Scan a split, apply the rules that its own records decide, and check what points at them.

    What `new_folds` make takes the same records, so that who asks for something else does not read the log again.
    """
    keep_freed_memory()
    check = _SplitCheck(split, limits, plan)
    check.result.folds = [new() for new in new_folds]
    try:
        for event in scan_split(split):
            if isinstance(event, RecordRun):
                check.take_run(event)
            elif isinstance(event, Gap):
                check.take_gap(event)
            elif isinstance(event, Borders):
                check.result.borders = event
            else:
                check.result.unread.append(event)
    except Unreadable as error:
        check.queues.forget()
        base = split.segment.base
        check.result.unread.append(Unread(base + split.start, base + split.end, str(error)))
    check.finish()
    if plan is not None and check.result.borders is not None:
        check.join(plan)
    return check.result


def settle(folds: Iterable[LogFold], joined: Iterable[Joined]) -> None:
    """Let the folds of records know which have their unit."""
    records = [fold for fold in folds if isinstance(fold, RecordFold)]
    for one in joined:
        if isinstance(one, UnitResult) and one.comparison is not None:
            for fold in records:
                fold.settle(*one.comparison)
            one.comparison = None


class _SplitCheck:
    def __init__(self, split: Split, limits: CheckLimits, plan: CrossPlan | None) -> None:
        self.split = split
        self.chain: EntryChain | None = None
        if plan is not None and split.segment.kind == "dledger":
            self.chain = EntryChain(split.segment, plan.entry_index, limits.per_code)
        self.dispatcher: Dispatcher | None = None
        begin = None if plan is None else plan.scanned_from
        self.is_scanned = begin is not None and split.segment.base >= begin
        needed = plan is not None and (plan.needs_records or self.is_scanned)
        if plan is not None and needed and plan.number_of(split) is not None:
            # Keeps less of what is freed than Arrow's own. A check of records alone needs no Arrow.
            if (arrow := sys.modules.get("pyarrow")) is not None:
                arrow.set_memory_pool(arrow.system_memory_pool())
            self.dispatcher = Dispatcher(
                keys=plan.index_range is not None,
                real_topics=bool(plan.timer_files),
                key_counts=self.is_scanned,
                rules=plan.may_hold,
            )
        self.index_begin = None if plan is None else plan.index_begin
        self.index_end = None if plan is None else plan.index_end
        self.limits = limits
        self.kept = capped_findings(limits.per_code)
        self.jumps = CappedList[tuple[int, Jump], str](limits.per_code, lambda jump: "CL-QUEUE-OFFSET")
        self.set_back = CappedList[tuple[int, int], str](limits.per_code, lambda back: "CL-TIME")
        self.times = TimeSteps(limits.per_code)
        self.result = SplitResult(split, ByteAccount(split.segment), self.kept.rows, self.kept.suppressed)
        self.queues = QueueOffsets()
        self.legal: list[bool] = []  # by number of the queue
        self.last_time: int | None = None

    def take_gap(self, gap: Gap) -> None:
        self.result.account.add(gap)
        if gap.reason == BRIDGED:
            self.queues.forget()
            if self.chain is not None:
                # In a DLedger log they are entries like all others.
                for records in records_in(self.split.segment, gap.start, gap.end):
                    self.chain.take(records)
        elif gap.kind != "filler":
            self.queues.forget()
            self.times.forget()
            self.last_time = None

    def take_run(self, run: RecordRun) -> None:
        records = run.records
        self.result.account.add(run)
        for fold in self.result.folds:
            fold.take(run)
        numbers = self.queues.number(records)
        first_time = int(records.field("store_timestamp")[0]) if self.last_time is None else self.last_time
        broken = broken_rules(records.rows, records.base, first_time)
        self._checksums(records)
        if broken & OFFSET_RULE:
            self._offsets(records)
        if broken & FIELD_RULE:
            self._fields(records)
        self._texts(records, numbers)
        self._times(records, ascend=not broken & TIME_RULE)
        if run.stale:
            start, end = records.base + int(records.starts[0]), records.base + int(records.ends[-1])
            start -= self.split.segment.lead
            self.result.stale.append((start, end, len(records)))
            self.queues.forget()
            return
        if self.dispatcher is not None:
            sound = records.body_crc_ok
            if broken & OFFSET_RULE:
                sound = sound & (records.physical_offset == records.base + records.starts)
            self.dispatcher.take(records, numbers, self.queues.queues, sound)
            if self.is_scanned:
                self.result.doubts |= doubts_of(records)
        self._find_unindexed(records)
        if self.chain is not None:
            self.chain.take(records)
        for jump in self.queues.follow(records, numbers):
            self.jumps.add((records.base + jump.position, jump))

    def _find_unindexed(self, records: Records) -> None:
        """Count the records with keys that are older or newer than the index."""
        places = records.base + records.starts
        begin = int(places[0]) if self.index_begin is None else self.index_begin
        end = int(places[-1]) if self.index_end is None else self.index_end
        older, newer = bool(places[0] < begin), bool(places[-1] > end)
        if not older and not newer:
            return
        keyed = (records.properties.of(b"UNIQ_KEY") >= 0) | (records.properties.of(b"KEYS") >= 0)
        keyed &= (records.sys_flag & message.TRANSACTION_MASK) != message.TRANSACTION_MASK  # rolled back
        times, result = records.field("store_timestamp"), self.result
        if older and len(at := np.flatnonzero(keyed & (places < begin))):
            some = len(at), int(places[at[0]]), int(times[at[0]])
            result.before_index = joined_unindexed(result.before_index, some)
        if newer and len(at := np.flatnonzero(keyed & (places > end))):
            some = len(at), int(places[at[0]]), int(times[at[0]])
            result.unindexed = joined_unindexed(result.unindexed, some)

    def finish(self) -> None:
        result = self.result
        result.ends, result.jumps, result.set_back = self.queues.ends(), self.jumps.rows, self.set_back.rows
        result.times = self.times.result()
        result.suppressed.update(self.jumps.suppressed + self.times.suppressed)

    def join(self, plan: CrossPlan) -> None:
        """Check the units and entries that point into the split."""
        segment, result = self.split.segment, self.result
        if self.chain is not None:
            result.chain = self.chain.finish()
        if self.dispatcher is None:
            return
        records = self.dispatcher.columns(self.queues.queues)
        if self.limits.names:
            own = ((text_of(topic), queue_id) for topic, queue_id in records.queues)
            result.names = frozenset(own) | {(extra.topic, extra.queue_id) for extra in records.extras}
        if self.is_scanned:
            result.dispatched = records
        number = plan.number_of(self.split)
        if number is None:
            return
        ranges = LogRanges.of(result.account.gaps, result.stale, segment.base + self.split.end, segment)
        joins = (join for kind, join in JOINS.items() if plan.joins(kind))
        result.joined += [join(records, plan, number, ranges, self.limits.per_code) for join in joins]
        settle(result.folds, result.joined)

    # --- rules ----------------------------------------------------------------------------------

    def _checksums(self, records: Records) -> None:
        if "CL-CRC-BODY" in self.limits.codes:
            bad = ~records.body_crc_ok
            if bad.any():
                explain = _explain_crc(records, self.split.segment.base)
                self._report(records, bad, "CL-CRC-BODY", "the body's CRC does not match the stored one", explain)
        wrong = records.record_crcs == WRONG_CRC
        if wrong.any():
            self._report(
                records,
                wrong,
                "CL-CRC-RECORD",
                "the CRC of the whole record does not match its property __CRC32#",
                _explain_record_crc(records, self.split.segment.base),
            )

    def _offsets(self, records: Records) -> None:
        """Report records whose stored physical offset is not where they stand."""
        stored, right = records.physical_offset, records.base + records.starts
        self._report(
            records,
            stored != right,
            "CL-OFFSET",
            "the stored physical offset is not the record's position",
            lambda at: (str(right[at]), str(stored[at]), ""),
        )

    def _fields(self, records: Records) -> None:
        """Report records with values that no broker writes."""
        queue_id, place, born, store = map(records.field, ("queue_id", "queue_offset", "born_port", "store_port"))
        kind = (records.sys_flag & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
        compressed = (records.sys_flag & SysFlag.COMPRESSED) != 0
        for bad, what, values in (
            (queue_id < 0, "negative queue id", queue_id),
            ((place < 0) | (place > LAST_PLACE), "impossible queue offset", place),
            ((born < 0) | (born > LAST_PORT), "impossible producer port", born),
            ((store < 0) | (store > LAST_PORT), "impossible broker port", store),
            (compressed & (kind >= len(message.COMPRESSIONS)), "unknown compression type", kind),
        ):
            self._report(records, bad, "CL-FIELD", what, _found_in(values))

    def _texts(self, records: Records, numbers: Ints) -> None:
        """Report topics that no broker accepts, and properties that it does not write or cannot parse."""
        for topic, _ in self.queues.queues[len(self.legal) :]:
            self.legal.append(is_legal_topic(topic))
        if not all(self.legal):
            self._report(
                records, ~np.array(self.legal)[numbers], "CL-FIELD", "the topic is empty or has illegal characters"
            )
        self._report(records, records.not_utf8, "CL-FIELD", "the properties are not UTF-8")
        self._report(
            records, records.properties.malformed & ~records.not_utf8, "CL-FIELD", "the properties cannot be parsed"
        )

    def _times(self, records: Records, *, ascend: bool) -> None:
        """Follow the store timestamps; `ascend`: none is before that of the record before it."""
        times, places = records.field("store_timestamp"), records.base + records.starts
        self.result.newest = max(int(times.max()), self.result.newest or 0)
        if not ascend:
            before = np.concatenate(([times[0] if self.last_time is None else self.last_time], times[:-1]))
            for at in self.set_back.admit("CL-TIME", np.flatnonzero(before > times).tolist()):
                self.set_back.add((int(places[at]), int(before[at]) - int(times[at])))
        self.last_time = int(times[-1])
        self.times.follow(places, times, ascend=ascend)

    # --- reporting ------------------------------------------------------------------------------

    def _report(
        self, records: Records, bad: Bools, code: str, what: str, values: Callable[[int], Values] | None = None
    ) -> None:
        """Add a finding for each bad record; `values(at)` returns what was expected, what was found, and the cause."""
        if code not in self.limits.codes or not bad.any():
            return
        if BY_CODE[code].severity == "error":
            for at in np.flatnonzero(bad).tolist():
                start = records.base + int(records.starts[at])
                self.result.damaged.add(start, records.base + int(records.ends[at]))
        for at in self.kept.admit(code, np.flatnonzero(bad).tolist()):
            expected, found, why = values(at) if values is not None else (None, None, "")
            self.kept.add(record_finding(self.split.segment, records, at, code, what + why, expected, found))


def _found_in(column: Ints) -> Callable[[int], Values]:
    return lambda at: (None, str(column[at]), "")


def _explain_crc(records: Records, segment_base: int) -> Callable[[int], Values]:
    stored, computed = records.field("body_crc"), records.body_crcs

    def explain(at: int) -> Values:
        first = int(records.starts[at])
        raw, physical_offset = records.raw[first : int(records.ends[at])], records.base + first
        why = explain_body_crc(raw, physical_offset - segment_base, physical_offset)
        return str(stored[at]), str(computed[at]), f"; {why}" if why else ""

    return explain


def _explain_record_crc(records: Records, segment_base: int) -> Callable[[int], Values]:
    def explain(at: int) -> Values:
        first = int(records.starts[at])
        why = explain_record_crc(records.raw[first : int(records.ends[at])], records.base - segment_base + first)
        return None, None, f"; {why}" if why else ""

    return explain


def record_finding(
    segment: Segment, records: Records, at: int, code: str, what: str, expected: str | None, found: str | None
) -> Finding:
    """Return a finding about record `at`, with its place, queue, time and keys."""
    start, end = int(records.starts[at]), int(records.ends[at])
    physical_offset = records.base + start
    topic = bytes(records.raw[int(records.topic_starts[at]) : int(records.topic_ends[at])])
    return Finding(
        code,
        what,
        **place_in(segment, physical_offset),
        length=end - start,
        topic=text_of(topic),
        queue_id=int(records.field("queue_id")[at]),
        queue_offset=int(records.field("queue_offset")[at]),
        expected=expected,
        found=found,
        timestamp=int(records.field("store_timestamp")[at]),
        keys=_keys_of(records, at),
    )


def _keys_of(records: Records, at: int) -> str | None:
    keys = records.properties.value_of(b"KEYS", at)
    return None if keys is None else text_of(keys)

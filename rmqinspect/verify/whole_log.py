"""The rules that need the whole commit log: gaps, the end, queues and times across splits.

    split 0      split 1      split 2          LogJudge keeps, per split, no more than
    |--r-r-r-----|-r-r-r--r-r-|-r-r-000000|      byte account and gaps by segment
         first offsets and last offsets          the next offset of each queue
         first time       last time              the last time before the border

Invariants:
- Results arrive in log order.
- Across a gap or a missing segment nothing is assumed to continue.
- Bytes that could not be read are no damage: findings about them are dropped, ST-IO reports them.

Findings about the gaps of the log: bytes of a segment that are neither records nor filler. Parts of a gap touch; one
gap is one finding, named by what its first unknown byte breaks:

    record | magic? | zeros ... | record      CL-MAGIC, CL-LENGTH: bytes that are no record
    record | zeros .............| record      CL-ZERO-INSIDE: lost pages
    record | half a record | zeros to the end CL-TORN-TAIL
    record | zeros to the end                 preallocated, no finding
    record | blank of a wrong size            CL-BLANK-SIZE
    record | the same over a record | record  CL-BLANK-INSIDE
    record | gap | older records              CL-STALE-TAIL
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import BRIDGED, REASONS, ZERO_RUN, Gap
from rmqinspect.commitlog.log_runs import FoldedRanges
from rmqinspect.commitlog.queue_offsets import Jump, Queue
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.consumequeue.units import messages_in
from rmqinspect.damage.patterns import explain_difference
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.text import describe_duration, text_of
from rmqinspect.times import time_words
from rmqinspect.verify.findings import MERGED_ROWS, Finding, capped_findings, place_in, place_in_log
from rmqinspect.verify.split import SplitResult, record_finding
from rmqinspect.verify.wrong_records import LogTimes, Misnamed, TimeStep

_EXPLAINED = 200  # findings whose cause is searched for in the bytes
# Size and magic of a record or an entry stand where they stand in a blank record of the same kind of file.
_BLANKS = {"segment": message.Blank, "dledger": dledger.EntryBlank}
_HEAD: int = message.Blank.sizeof()

_CODE_OF_REASON = {
    "magic": "CL-MAGIC",
    "zero": "CL-MAGIC",
    "short": "CL-MAGIC",
    "size": "CL-LENGTH",
    "length": "CL-LENGTH",
    "cut": "CL-LENGTH",
    "entry": "CL-LENGTH",
    "blank_size": "CL-BLANK-INSIDE",
}


class SegmentState(Struct):
    """What the splits of one segment add up to."""

    account: ByteAccount
    stale: list[tuple[int, int, int]] = field(default_factory=list)  # [start, end), records of an earlier life

    def gaps(self) -> list[list[Gap]]:
        """Return the gaps that are no filler, parts that touch together."""
        groups: list[list[Gap]] = []
        end: int | None = None  # of the last part
        for gap in self.account.merged_gaps():
            if gap.kind == "filler":
                end = None
                continue
            if gap.start != end:
                groups.append([])
            groups[-1].append(gap)
            end = gap.end
        return groups


class Causes:
    """Searches the bytes for the cause of damage, for so many findings that all of it stays fast."""

    def __init__(self) -> None:
        self._explained = 0

    def explain(self, search: Callable[[], str | None]) -> str:
        """Return the likely cause as the end of a message, "" if none shows."""
        self._explained += 1
        why = search() if self._explained <= _EXPLAINED else None
        return f"; {why}" if why else ""


class GapJudge:
    """Judges the gaps of each segment of a store."""

    def __init__(self, store: Store, causes: Causes) -> None:
        self._store, self._causes = store, causes

    def findings(self, state: SegmentState, *, more_follows: bool) -> Iterator[Finding]:
        """Yield the findings of a segment; `more_follows`: a later segment has records."""
        for gap in state.account.merged_gaps():
            if gap.reason == "blank_size" and gap.kind == "filler":
                yield from self._judge_blank(state.account.segment, gap)
            if gap.reason == BRIDGED:
                yield Finding(
                    "CL-BRIDGED",
                    "a bridge: nothing of what was here could be saved",
                    **place_in(state.account.segment, gap.start),
                    length=gap.end - gap.start,
                )
        stale_from = {start for start, _, _ in state.stale}
        for parts in state.gaps():
            at_end = parts[-1].end == state.account.segment.end and not more_follows
            if parts[-1].end in stale_from:
                yield _stale_tail(state, parts[0].start, parts[-1].end)
                continue
            unknown = [part for part in parts if part.kind == "unknown" and part.reason != "unreadable"]
            # Zeros behind the last record are the preallocated rest; ST-IO reports what could not be read.
            if unknown or not (at_end or any(part.reason == "unreadable" for part in parts)):
                yield self._judge_gap(state.account.segment, parts, unknown, at_end=at_end)

    def _judge_gap(self, segment: Segment, parts: list[Gap], unknown: list[Gap], *, at_end: bool) -> Finding:
        start, stop = parts[0].start, parts[-1].end
        reason = unknown[0].reason or "magic" if unknown else "zero"
        head = self._read(segment, start, _HEAD)
        lost_pages = any(part.kind == "zeros" and part.end - part.start >= ZERO_RUN for part in parts)
        after = "up to the segment's end" if stop == segment.end else "the log continues after it"
        if not unknown:
            code, what = "CL-ZERO-INSIDE", "zeros inside the log: pages were lost"
        elif at_end and parts[0].kind == "unknown" and self._is_torn(segment, start, unknown[-1].end):
            code, what = "CL-TORN-TAIL", f"the last record is incomplete: {REASONS[reason]}"
            stop, after = unknown[-1].end, "nothing follows"
        elif _is_blank_without_magic(head, segment.end - start):
            code, what = "CL-MAGIC", "the blank record that ends this segment has a damaged magic"
        elif lost_pages and not at_end:
            code, what = "CL-ZERO-INSIDE", f"zeros inside the log: pages were lost; {REASONS[reason]}"
        else:
            code, what = _CODE_OF_REASON[reason], REASONS[reason]
        why = self._causes.explain(lambda: _cause_of_gap(self._store, segment, start, stop)) if unknown else ""
        return Finding(
            code,
            f"{what}; {after}{why}",
            **place_in(segment, start),
            length=stop - start,
            expected="a record or a blank record",
            found=f"bytes {head.hex(' ')}" if head else None,
        )

    def _is_torn(self, segment: Segment, start: int, written: int) -> bool:
        """Whether a record begins at `start`, and the bytes at the log's end stop before it would."""
        wraps = segment.kind == "dledger"
        raw = self._read(segment, start, min(_HEAD, written - start))
        magic = message.MAGIC_PREFIX if not wraps else dledger.ENTRY_MAGICS[0].to_bytes(4, "big")
        size = _stored_size(segment, raw)
        plausible = message.FIXED_SIZE <= size <= segment.end - start or len(raw) < _HEAD
        begun = raw[place_of(_BLANKS[segment.kind], "magic") :][: len(magic)]
        return magic.startswith(begun.rstrip(b"\0")) and plausible and start + size > written

    def _judge_blank(self, segment: Segment, gap: Gap) -> Iterator[Finding]:
        stored = _stored_size(segment, self._read(segment, gap.start, _HEAD))
        left = segment.end - gap.start
        # In a file of a wrong length the blank record is right about the length that the file should have.
        if self._store.segment_size is not None and stored == segment.base + self._store.segment_size - gap.start:
            return
        yield Finding(
            "CL-BLANK-SIZE",
            "the blank record's size is not the number of bytes left in the file",
            **place_in(segment, gap.start),
            length=_HEAD,
            expected=str(left),
            found=str(stored),
        )

    def _read(self, segment: Segment, start: int, size: int) -> bytes:
        try:
            with open_file(segment) as reader:
                return reader.read(start - segment.base, size)
        except Unreadable:
            return b""


def _stored_size(segment: Segment, head: bytes) -> int:
    """Return the size that a record, an entry or a blank record beginning with `head` claims."""
    return int.from_bytes(head[span_of(_BLANKS[segment.kind], "total_size")], "big", signed=True)


def _is_blank_without_magic(head: bytes, left: int) -> bool:
    """Whether the size of a blank record stands here, but not its magic."""
    if len(head) < _HEAD or left > 1 << 30:
        return False
    return int.from_bytes(head[span_of(message.Blank, "total_size")], "big") == left


def _stale_tail(state: SegmentState, start: int, first: int) -> Finding:
    records, end = 0, first
    for begin, stop, count in state.stale:
        if begin == end:
            records, end = records + count, stop
    return Finding(
        "CL-STALE-TAIL",
        f"{records} valid records after the log's end, older than the record before them: left from an earlier "
        f"life of this file; the first is at {first}",
        **place_in(state.account.segment, start),
        length=end - start,
        count=records,
        counted=True,
    )


# A chain that runs into old records jumps back in time and, within this many bytes, in a queue.
_STALE_REACH = 1 << 20


class LogSummary(Struct, frozen=True):
    """What the judges of queues, index, timer log and checkpoint must know of the whole log."""

    end: int | None  # physical offset behind the last record; None: the log was not read to its end
    end_with_filler: int = 0  # the same, behind the blank record that may follow
    last_timestamp: int | None = None  # store time in ms of the newest record
    unread: Sequence[tuple[int, int]] = ()  # physical offsets [start, end) of which nothing is known
    restarts: Mapping[tuple[str, int], int] = field(default_factory=dict)  # where a queue counts from 0 again
    time_steps: Sequence[TimeStep] = ()  # where store timestamps run backwards

    @property
    def misdated(self) -> frozenset[int]:
        """The physical offsets of the records whose store timestamps their neighbours contradict."""
        return frozenset(step.odd.place for step in self.time_steps if step.odd is not None)


class LogJudge:
    """Judges the commit log of one store from the results of its splits."""

    def __init__(self, store: Store, limit: int = 1000) -> None:
        """Prepare for a store; `limit`: rows of a code that are shown."""
        self.store = store
        self.segments: list[SegmentState] = []
        self.unread: list[Unread] = []
        self.damaged = FoldedRanges()  # records with an error
        self._kept = capped_findings(MERGED_ROWS * limit)
        self.suppressed = self._kept.suppressed
        self._last_timestamp: int | None = None  # of the newest record
        self._next: dict[Queue, int] = {}  # queue offset
        self._jumps = CappedList[tuple[int, Jump], str](MERGED_ROWS * limit, lambda jump: "CL-QUEUE-OFFSET")
        self._undone: set[int] = set()  # see QueueEnds
        self._set_back = CappedList[tuple[int, int], str](MERGED_ROWS * limit, lambda back: "CL-TIME")
        self._restarts: dict[tuple[str, int], int] = {}
        self._before: ByteAccount | None = None  # the last split with records, unless a gap follows it
        self._times = LogTimes(MERGED_ROWS * limit)
        self._causes = Causes()

    @property
    def accounts(self) -> list[ByteAccount]:
        """Return the byte account of each segment seen so far."""
        return [state.account for state in self.segments]

    # --- results of the splits ------------------------------------------------------------------

    def take(self, result: SplitResult) -> None:
        """Take the next split's result."""
        state = self._state_of(result)
        state.account.join(result.account)
        state.stale += result.stale
        self.damaged.extend(result.damaged.bits, result.damaged)
        self._kept.extend(result.findings)
        self.unread += [part._replace(end=min(part.end, state.account.segment.end)) for part in result.unread]
        self.suppressed.update(result.suppressed)
        self._follow_queues(result)
        self._follow_time(result)

    def _state_of(self, result: SplitResult) -> SegmentState:
        """Return the state of a split's segment; a segment that does not continue the last one breaks all chains."""
        segment, last = result.split.segment, self.segments[-1] if self.segments else None
        if last is not None and (last.account.segment is segment or last.account.segment == segment):
            return last
        if last is not None and last.account.segment.end != segment.base:
            self._next.clear()
            self._before = None
            self._times.forget()
        self.segments.append(SegmentState(ByteAccount(segment)))
        return self.segments[-1]

    def _follow_queues(self, result: SplitResult) -> None:
        for queue, (offset, physical_offset) in result.ends.firsts.items():
            expected = self._next.get(queue, offset)
            if expected != offset:
                # Not capped: at most one per queue and split.
                self._jumps.rows.append((physical_offset, Jump(physical_offset, queue, expected, offset)))
        self._jumps.extend(result.jumps)
        self._undone |= result.ends.undone
        if result.ends.gap:
            self._next.clear()
        self._next.update(result.ends.nexts)

    def _follow_time(self, result: SplitResult) -> None:
        account = result.account
        self._times.take(result.times)
        gaps = [gap for gap in account.gaps if gap.kind != "filler"]
        # The first record of the split follows the last one before it.
        last = None if self._before is None else self._before.last_timestamp
        if account.begin is not None and not (gaps and gaps[0].start < account.begin):
            first = account.first_timestamp
            if first is not None and last is not None and last > first:
                self._set_back.rows.append((account.begin, last - first))
        if result.newest is not None:
            self._last_timestamp = max(self._last_timestamp or 0, result.newest)
        self._set_back.extend(result.set_back)
        if account.first_timestamp is not None:
            self._before = account
        if gaps and (account.end is None or max(gap.end for gap in gaps) > account.end):
            self._before = None

    # --- at the end of the log ------------------------------------------------------------------

    def finish(self, misnamed: Mapping[int, Misnamed]) -> list[Finding]:
        """Return all findings of the log, in log order; `misnamed` records, by place, leave jumps in two queues."""
        rows = self._jumps.rows
        rows[:] = [row for row in rows if not any(wrong.explains(*row) for wrong in misnamed.values())]
        last_data = max((n for n, state in enumerate(self.segments) if state.account.records), default=-1)
        self.suppressed.update(self._jumps.suppressed + self._times.suppressed)
        found = list(self._kept.rows)
        gaps = GapJudge(self.store, self._causes)
        for number, state in enumerate(self.segments):
            found += gaps.findings(state, more_follows=number < last_data)
        found += self._judge_jumps()
        found += self._judge_returns()
        found += map(self._judge_step, self._times.steps)
        self.unread = _join_unread(self.unread)
        found = [self._with_cause(finding) for finding in found if not self._is_unread(finding)]
        return sorted(found, key=lambda finding: (finding.physical_offset or 0, finding.code))

    def summary(self, *, complete: bool) -> LogSummary:
        """Return what was learned of the log, when it is finished; `complete`: no split is missing."""
        end = max((account.end for account in self.accounts if account.end is not None), default=self.store.log_start)
        # The newest record may be in what could not be read.
        sees_end = complete and not any(unread.end > end for unread in self.unread)
        fillers = (gap.end for account in self.accounts for gap in account.gaps if gap.kind == "filler")
        return LogSummary(
            end if sees_end else None,
            max([end, *fillers]),
            self._last_timestamp,
            self._unread_ranges(),
            self._restarts,
            self._times.steps,
        )

    def _unread_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of which nothing is known: what could not be read, and the gap around it."""
        ranges = [(part.start, part.end) for part in self.unread]
        for state in self.segments if self.unread else ():
            for parts in state.gaps():
                start, stop = parts[0].start, parts[-1].end
                if any(part.start < stop and start < part.end for part in self.unread):
                    ranges.append((start, stop))
        return ranges

    def _is_unread(self, finding: Finding) -> bool:
        """Whether a finding is about bytes that could not be read: the scan took them as zeros."""
        start = finding.physical_offset or 0
        end = start + (finding.length or 1)
        return any(part.start < end and start < part.end for part in self.unread)

    def _with_cause(self, finding: Finding) -> Finding:
        offset = finding.physical_offset or 0
        segment = self.store.segment_at(offset) if finding.code == "CL-OFFSET" else None
        if segment is None:
            return finding
        why = self._causes.explain(lambda: _cause_of_own_offset(self.store, segment, offset))
        return replace(finding, message=finding.message + why)

    # --- queues and times -----------------------------------------------------------------------

    def _judge_jumps(self) -> Iterator[Finding]:
        oldest = _oldest_units(self.store, {_name(jump.queue) for _, jump in self._jumps.rows if jump.found == 0})
        for physical_offset, jump in self._jumps.rows:
            topic, queue_id = _name(jump.queue)
            # A topic deleted and recreated starts at 0, and no unit of its earlier life is left.
            restarted = jump.found == 0 and oldest.get((topic, queue_id), physical_offset) >= physical_offset
            if restarted:
                self._restarts[topic, queue_id] = max(physical_offset, self._restarts.get((topic, queue_id), 0))
            yield self._jump_finding(physical_offset, jump, restarted=restarted)

    def _jump_finding(self, physical_offset: int, jump: Jump, *, restarted: bool) -> Finding:
        topic, queue_id = _name(jump.queue)
        what = f"the queue offset {'repeats or goes back' if jump.found < jump.expected else 'skips ahead'}"
        if physical_offset in self._undone and (why := explain_difference(jump.expected, jump.found, 64)):
            what = f"{what}; {why}"
        if restarted:
            what = (
                "the queue restarts at 0 and has no older unit: its topic was deleted and recreated, "
                "or its queue was lost"
            )
        return Finding(
            "CL-QUEUE-OFFSET",
            what,
            severity="info" if restarted else "",
            **place_in_log(self.store, physical_offset),
            topic=topic,
            queue_id=queue_id,
            queue_offset=jump.found,
            expected=str(jump.expected),
            found=str(jump.found),
        )

    def _judge_returns(self) -> Iterator[Finding]:
        """Yield CL-STALE-TAIL where a chain runs from new records into older ones without a gap."""
        backwards = sorted(offset for offset, jump in self._jumps.rows if 0 < jump.found < jump.expected)
        for physical_offset, back in self._set_back.rows:
            if any(physical_offset <= other < physical_offset + _STALE_REACH for other in backwards):
                yield Finding(
                    "CL-STALE-TAIL",
                    f"the log runs into records that are {back} ms older and repeat queue offsets: "
                    "cut off earlier, and not overwritten",
                    **place_in_log(self.store, physical_offset),
                )

    def _judge_step(self, step: TimeStep) -> Finding:
        """Return CL-TIME: an error about the one record that is out of line, else where the clock went back."""
        if (odd := step.odd) is None:
            return finding_at(
                self.store,
                step.low.place,
                "CL-TIME",
                "store timestamp earlier than the previous record's",
                f"{time_words(step.high.time)} or later",
                time_words(step.low.time),
            )
        low, high = (step.before, step.low.time) if odd == step.high else (step.high.time, step.after)
        assert low is not None and high is not None
        return finding_at(
            self.store,
            odd.place,
            "CL-TIME",
            f"the store timestamp is {describe_duration(abs(odd.time - low) / 1000)} "
            f"{'later' if odd == step.high else 'earlier'} than those of both its neighbours",
            time_words(low) if low == high else f"{time_words(low)} to {time_words(high)}",
            time_words(odd.time),
            severity="error",
        )


def finding_at(
    store: Store, place: int, code: str, what: str, expected: str | None, found: str | None, severity: str = ""
) -> Finding:
    """Return a finding about the record at a physical offset; without its fields where it cannot be read."""
    segment = store.segment_at(place)
    assert segment is not None, "a record lies in a segment"
    with RecordReader(store) as log:
        raw = log.content_at(place, anywhere=True)
    if raw is None:
        finding = Finding(code, what, **place_in_log(store, place), expected=expected, found=found)
    else:
        finding = record_finding(segment, Records.of_one(raw, place), 0, code, what, expected, found)
    return replace(finding, severity=severity)


def _join_unread(parts: Iterable[Unread]) -> list[Unread]:
    """Return the parts sorted, those that touch or overlap as one, with the message of its first."""
    joined: list[Unread] = []
    for part in sorted(parts):
        if joined and part.start <= joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, part.end))
        else:
            joined.append(part)
    return joined


def _name(queue: Queue) -> tuple[str, int]:
    return text_of(queue[0]), queue[1]


def _oldest_units(store: Store, queues: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the least physical offset of any unit of these queues; none for a queue without."""
    oldest: dict[tuple[str, int], int] = {}
    for file in store.queue_files:
        name = (file.topic, file.queue_id)
        if name in queues and name not in oldest and file.kind != "ext_queue":
            offset = first_unit(file)
            oldest |= {} if offset is None else {name: offset}
    return oldest


def first_unit(file: QueueFile) -> int | None:
    """Return the physical offset of the first unit of a message in a file, None without one."""
    with suppress(Unreadable):
        for _, messages in messages_in(file):
            if len(messages):
                return int(messages["physical_offset"][0])
    return None


# What explains damage is loaded where there is some.


def _cause_of_gap(store: Store, segment: Segment, start: int, end: int) -> str | None:
    from rmqinspect.damage.diagnose import explain_gap

    return explain_gap(store, segment, start, end)


def _cause_of_own_offset(store: Store, segment: Segment, offset: int) -> str | None:
    from rmqinspect.damage.misplaced import explain_own_offset

    return explain_own_offset(store, segment, offset)

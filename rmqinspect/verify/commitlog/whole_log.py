"""What only the whole log can tell: its gaps, its end, and whether queues and times go on.

`LogJudge` takes the results of splits in log order and keeps no more of them than it needs.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import REASONS, ZERO_RUN, Gap, merge_gaps
from rmqinspect.commitlog.lenient_reader import Unread
from rmqinspect.commitlog.queue_offsets import Jump, Queue
from rmqinspect.consumequeue.units import read_units, valid_units
from rmqinspect.damage.diagnose import explain_gap
from rmqinspect.damage.misplaced import explain_own_offset
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.verify.commitlog.split import BACKWARDS_MS, SplitResult
from rmqinspect.verify.findings import Finding, capped_findings

# A chain that runs into old records jumps back in time and, within this many bytes, in a queue.
_STALE_REACH = 1 << 20

_ROOM = 8  # rows kept for each that is shown: many fold into few
_EXPLAINED = 200  # findings whose cause is looked for in the bytes

_CODE_OF_REASON = {
    "magic": "CL-MAGIC",
    "zero": "CL-MAGIC",
    "short": "CL-MAGIC",
    "size": "CL-LENGTH",
    "length": "CL-LENGTH",
    "cut": "CL-LENGTH",
    "entry": "CL-LENGTH",
}


@dataclass(slots=True)
class _SegmentState:
    segment: Segment
    account: ByteAccount
    stale: list[tuple[int, int, int]] = field(default_factory=list)


class LogJudge:
    """Judges the log of one store from the results of its splits."""

    def __init__(self, store: Store, limit: int = 1000) -> None:
        """Prepare for a store; `limit` bounds the rows of a code that are shown."""
        self.store = store
        self.segments: list[_SegmentState] = []
        self._kept = capped_findings(_ROOM * limit)
        self.suppressed = self._kept.suppressed
        self.unread: list[Unread] = []
        self.last_timestamp: int | None = None  # of the newest record seen
        self._next: dict[Queue, int] = {}
        self._jumps = CappedList[tuple[int, Jump], str](_ROOM * limit, lambda jump: "CL-QUEUE-OFFSET")
        self._set_back = CappedList[tuple[int, int], str](_ROOM * limit, lambda back: "CL-TIME")
        self._explained = 0
        self.restarts: dict[tuple[str, int], int] = {}  # where a queue began again at 0, known when finished
        self._before: ByteAccount | None = None  # the last split with records, unless a gap follows it

    @property
    def accounts(self) -> list[ByteAccount]:
        """Return the byte account of each segment seen so far."""
        return [state.account for state in self.segments]

    def take(self, result: SplitResult) -> None:
        """Take the next split's result."""
        segment = result.split.segment
        if not self.segments or (self.segments[-1].segment is not segment and self.segments[-1].segment != segment):
            if self.segments and self.segments[-1].segment.base + self.segments[-1].segment.size != segment.base:
                self._forget()  # a hole
            self.segments.append(_SegmentState(segment, ByteAccount(segment)))
        state = self.segments[-1]
        state.account.join(result.account)
        state.stale += result.stale
        self._kept.extend(result.findings)
        end = segment.base + segment.size
        self.unread += [part._replace(end=min(part.end, end)) for part in result.unread]
        self.suppressed.update(result.suppressed)
        self._follow_queues(result)
        self._follow_time(result)

    def _forget(self) -> None:
        self._next.clear()
        self._before = None

    def _follow_queues(self, result: SplitResult) -> None:
        for queue, (offset, place) in result.ends.firsts.items():
            expected = self._next.get(queue, offset)
            if expected != offset:
                # Not capped: at most one per queue and split.
                self._jumps.rows.append((place, Jump(place, queue, expected, offset)))
        self._jumps.extend(result.jumps)
        if result.ends.gap:
            self._next = dict(result.ends.nexts)
        else:
            self._next.update(result.ends.nexts)

    def _follow_time(self, result: SplitResult) -> None:
        account = result.account
        first_gap = next((gap for gap in result.account.gaps if gap.kind != "filler"), None)
        if account.first_timestamp is not None and account.begin is not None:
            gap_before = first_gap is not None and first_gap.start < account.begin
            if self._before is not None and self._before.last_timestamp is not None and not gap_before:
                back = self._before.last_timestamp - account.first_timestamp
                if back > 0:
                    self._set_back.rows.append((account.begin, back))
                if back > BACKWARDS_MS:
                    self._kept.add(
                        Finding(
                            "CL-TIME",
                            "store time earlier than the record before",
                            file=result.split.segment.name,
                            offset=account.begin - result.split.segment.base,
                            physical_offset=account.begin,
                            expected=f"{self._before.last_timestamp} or later",
                            found=str(account.first_timestamp),
                        )
                    )
        if result.newest is not None:
            self.last_timestamp = max(self.last_timestamp or 0, result.newest)
        self._set_back.extend(result.set_back)
        if account.first_timestamp is not None:
            self._before = account
        if first_gap is not None:
            last_gap = max(gap.end for gap in result.account.gaps if gap.kind != "filler")
            if account.end is None or last_gap > account.end:
                self._before = None

    # --- at the end of the log ------------------------------------------------------------------

    def finish(self) -> Iterator[Finding]:
        """Yield all findings of the log, in log order."""
        last_data = max((n for n, state in enumerate(self.segments) if state.account.records), default=-1)
        self.suppressed.update(self._jumps.suppressed)
        found = list(self._kept.rows)
        for number, state in enumerate(self.segments):
            found += self._judge_gaps(state, more_follows=number < last_data)
        found += self._judge_jumps()
        found += self._judge_returns()
        self.unread = _join_unread(self.unread)
        found = [self._with_cause(finding) for finding in found if not self._is_in_the_dark(finding)]
        yield from sorted(found, key=lambda finding: (finding.physical_offset or 0, finding.code))

    def _with_cause(self, finding: Finding) -> Finding:
        place = finding.physical_offset or 0
        segment = self.store.segment_at(place) if finding.code == "CL-OFFSET" else None
        if segment is None:
            return finding
        why = self._cause(lambda: explain_own_offset(self.store, segment, place))
        return replace(finding, message=finding.message + why)

    def dark_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of which nothing is known: what could not be read, and the gap around it."""
        ranges = [(part.start, part.end) for part in self.unread]
        for state in self.segments:
            end = state.segment.base + state.segment.size
            for parts in _groups(list(merge_gaps(state.account.gaps, end))):
                start, stop = parts[0].start, parts[-1].end
                if any(part.start < stop and start < part.end for part in self.unread):
                    ranges.append((start, stop))
        return ranges

    def _is_in_the_dark(self, finding: Finding) -> bool:
        """Whether a finding is about bytes that could not be read: the scan took them as zeros."""
        start = finding.physical_offset or 0
        end = start + (finding.length or 1)
        return any(part.start < end and start < part.end for part in self.unread)

    def _judge_gaps(self, state: _SegmentState, *, more_follows: bool) -> Iterator[Finding]:
        end = state.segment.base + state.segment.size
        gaps = list(merge_gaps(state.account.gaps, end))
        for gap in gaps:
            if gap.reason == "blank_size":
                yield from self._judge_blank(state.segment, gap)
        stale_from = {start for start, _, _ in state.stale}
        for parts in _groups(gaps):
            start, stop = parts[0].start, parts[-1].end
            unknown = [part for part in parts if part.kind == "unknown" and part.reason != "unreadable"]
            at_end = stop == end and not more_follows
            if stop in stale_from:
                yield self._stale_tail(state, start, stop)
            elif any(part.reason == "unreadable" for part in parts) and not unknown:
                continue  # nothing is known of it: ST-IO tells
            elif not unknown and at_end:
                continue  # Preallocated: zeros follow the last record and are no damage.
            else:
                yield self._gap_finding(state.segment, parts, unknown, at_end)

    def _gap_finding(self, segment: Segment, parts: list[Gap], unknown: list[Gap], at_end: bool) -> Finding:
        start, stop = parts[0].start, parts[-1].end
        reason = unknown[0].reason or "magic" if unknown else "zero"
        head = self._read(segment, start, 8)
        found = f"bytes {head.hex(' ')}" if head else None
        lost = any(part.kind == "zeros" and part.end - part.start >= ZERO_RUN for part in parts)
        if not unknown:
            code, what = "CL-ZERO-INSIDE", "zeros where the log goes on behind them: pages were lost"
        elif at_end and parts[0].kind == "unknown" and self._is_torn(segment, start, unknown[-1].end):
            code, what = "CL-TORN-TAIL", "the last record is not whole: " + REASONS[reason]
            stop = unknown[-1].end
        elif _is_blank_without_magic(head, segment.base + segment.size - start):
            code, what = "CL-MAGIC", "a blank record ends this segment, but its magic is damaged"
        elif lost and not at_end:
            code, what = "CL-ZERO-INSIDE", f"zeros inside the log: pages were lost; {REASONS[reason]}"
        else:
            code, what = _CODE_OF_REASON[reason], REASONS[reason]
        why = self._cause(lambda: explain_gap(self.store, segment, start, stop)) if unknown else ""
        behind = "to the segment's end" if stop == segment.base + segment.size else "then the log goes on"
        if code == "CL-TORN-TAIL":
            behind = "nothing follows"
        return Finding(
            code,
            f"{what}; {stop - start} bytes, {behind}{why}",
            file=segment.name,
            offset=start - segment.base,
            length=stop - start,
            physical_offset=start,
            expected="a record or a blank record",
            found=found,
        )

    def _cause(self, explain: Callable[[], str | None]) -> str:
        """Return the likely cause of damage as the end of a message, of so many that all of it stays quick."""
        self._explained += 1
        why = explain() if self._explained <= _EXPLAINED else None
        return f"; {why}" if why else ""

    def _is_torn(self, segment: Segment, start: int, written: int) -> bool:
        """Whether a record begins at `start`, and the bytes at the log's end stop before it would."""
        wraps = segment.kind == "dledger"
        raw = self._read(segment, start, min(8, written - start))
        size = int.from_bytes(raw[4:8] if wraps else raw[:4], "big", signed=True)
        begun = raw[4:7] if not wraps else raw[:4]
        magic = message.MAGIC_PREFIX if not wraps else dledger.ENTRY_MAGICS[0].to_bytes(4, "big")
        plausible = message.FIXED_SIZE <= size <= segment.base + segment.size - start or len(raw) < 8
        return magic.startswith(begun.rstrip(b"\0")) and plausible and start + size > written

    def _judge_blank(self, segment: Segment, gap: Gap) -> Iterator[Finding]:
        head = self._read(segment, gap.start, 8)
        stored = int.from_bytes(head[4:8] if segment.kind == "dledger" else head[:4], "big", signed=True)
        left = segment.base + segment.size - gap.start
        # In a file of wrong length the blank is right about the length the file should have.
        if self.store.segment_size is not None and stored == segment.base + self.store.segment_size - gap.start:
            return
        yield Finding(
            "CL-BLANK-SIZE",
            "the blank record's size is not the number of bytes left in the file",
            file=segment.name,
            offset=gap.start - segment.base,
            length=8,
            physical_offset=gap.start,
            expected=str(left),
            found=str(stored),
        )

    def _stale_tail(self, state: _SegmentState, start: int, first: int) -> Finding:
        records, end = 0, first
        for begin, stop, count in state.stale:
            if begin == end:
                records, end = records + count, stop
        return Finding(
            "CL-STALE-TAIL",
            f"{records} valid records behind the log's end, older than the record before it: from an earlier "
            f"life of this file; the first begins at {first}",
            file=state.segment.name,
            offset=start - state.segment.base,
            length=end - start,
            physical_offset=start,
            count=records,
        )

    def _read(self, segment: Segment, start: int, size: int) -> bytes:
        try:
            with open_file(segment) as reader:
                return reader.read(start - segment.base, size)
        except Unreadable:
            return b""

    # --- queues and times -----------------------------------------------------------------------

    def _judge_jumps(self) -> Iterator[Finding]:
        oldest = _oldest_units(self.store, {_name(jump.queue) for _, jump in self._jumps.rows if jump.found == 0})
        for place, jump in self._jumps.rows:
            segment = self.store.segment_at(place)
            topic, queue_id = _name(jump.queue)
            # A topic deleted and made again starts at 0, and no unit of its earlier life is left.
            restarted = jump.found == 0 and oldest.get((topic, queue_id), place) >= place
            if restarted:
                self.restarts[topic, queue_id] = max(place, self.restarts.get((topic, queue_id), 0))
            what = "repeats or goes back" if jump.found < jump.expected else "skips"
            yield Finding(
                "CL-QUEUE-OFFSET",
                "the queue starts at 0 again and has no older unit: its topic was deleted and made again, "
                "or its queue was lost"
                if restarted
                else f"the queue offset {what}",
                severity="info" if restarted else "",
                file=segment.name if segment else None,
                offset=place - segment.base if segment else None,
                physical_offset=place,
                topic=topic,
                queue_id=queue_id,
                queue_offset=jump.found,
                expected=str(jump.expected),
                found=str(jump.found),
            )

    def _judge_returns(self) -> Iterator[Finding]:
        """A chain that runs from new records into older ones without a gap."""
        backwards = sorted(place for place, jump in self._jumps.rows if 0 < jump.found < jump.expected)
        for place, back in self._set_back.rows:
            if any(place <= other < place + _STALE_REACH for other in backwards):
                segment = self.store.segment_at(place)
                yield Finding(
                    "CL-STALE-TAIL",
                    f"the log runs into records that are {back} ms older and repeat queue offsets: "
                    "from an earlier life of this file",
                    file=segment.name if segment else None,
                    offset=place - segment.base if segment else None,
                    physical_offset=place,
                )


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
    return queue[0].decode("utf-8", "replace"), queue[1]


def _groups(gaps: Iterable[Gap]) -> Iterator[list[Gap]]:
    """Yield the gaps that are not filler, those that touch together."""
    group: list[Gap] = []
    for gap in gaps:
        if group and (gap.kind == "filler" or gap.start != group[-1].end):
            yield group
            group = []
        if gap.kind != "filler":
            group.append(gap)
    if group:
        yield group


def _is_blank_without_magic(head: bytes, left: int) -> bool:
    """Whether the size of a blank record stands here, and next to it not its magic."""
    if len(head) < message.Blank.sizeof() or left > 1 << 30:
        return False
    return head[:4] == left.to_bytes(4, "big")


def _oldest_units(store: Store, queues: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the smallest physical offset any unit of these queues has; none for a queue without."""
    oldest: dict[tuple[str, int], int] = {}
    for file in store.queue_files:
        name = (file.topic, file.queue_id)
        if name not in queues or name in oldest or file.kind == "ext_queue":
            continue
        try:
            with open_file(file) as reader:
                for _, units in read_units(reader, file.kind):
                    messages = units[valid_units(units) & (units["size"] != PRE_BLANK_SIZE)]
                    if len(messages):
                        oldest[name] = int(messages["physical_offset"][0])
                        break
        except Unreadable:
            continue
    return oldest

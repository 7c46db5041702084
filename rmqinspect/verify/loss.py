"""Dangling pointers of all splits: what a gap of the log held, and what the log has lost.

    pointer into a gap of the log                  reference: the gap's finding says what it held
    pointer past the end of the log                CQ-BEYOND, IX-BEYOND, TM-BEYOND, and the record is lost
    pointer into a record or filler                CQ-DANGLING, IX-DANGLING, TM-CHAIN
    unit whose own record has no unit              damaged unit; nothing is lost

Only the reader of the whole log knows where it ends, so pointers are kept as rows of `Dangling` until then.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqinspect.text import count, describe_duration
from rmqinspect.verify.code_groups import GAPS
from rmqinspect.verify.commitlog.whole_log import LogSummary
from rmqinspect.verify.dangling import INSIDE, OUTSIDE, Dangling, capped_dangling
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.missing import MissingUnits

_DANGLING = {"unit": "CQ-DANGLING", "entry": "IX-DANGLING", "timer": "TM-CHAIN"}
_BEYOND = {"unit": "CQ-BEYOND", "entry": "IX-BEYOND", "timer": "TM-BEYOND"}
_NOUNS = {"unit": "the unit", "entry": "the index entry", "timer": "the timer unit"}
_NAMED_TOPICS = 3
_MOST_ROWS = 100_000  # over all splits; overflow is merged
_FAR = 1 << 40  # bytes past the log's end: no messages were ever there


@dataclass(slots=True)
class Loss:
    """Lower bounds of the messages that queues and index point at and the log no longer holds."""

    messages: dict[str, int] = field(default_factory=dict)  # by topic, from queue units
    entries: int = 0  # different records that index entries point at
    newest: int | None = None  # store time in ms of the newest lost record
    last: int | None = None  # store time in ms of the log's last record

    def __bool__(self) -> bool:
        return bool(self.messages or self.entries)

    def __str__(self) -> str:
        total = sum(self.messages.values())
        if total:
            what = f"at least {count(total, 'message')} of {_topics(self.messages)}"
            where = "in queues"
        else:
            what, where = f"at least {count(self.entries, 'message')}", "in the index"
        span = ""
        if self.newest is not None and self.last is not None and self.newest > self.last:
            span = f", about {describe_duration((self.newest - self.last) / 1000)}"
        was, is_ = ("was", "is") if (total or self.entries) == 1 else ("were", "are")
        return f"{what}{span + ',' if span else ''} {was} {where} but {is_} not in the log"


class DanglingJudge:
    """Judges the dangling pointers of all splits once the whole log is known."""

    def __init__(self, missing: MissingUnits, *, whole_log: bool) -> None:
        """`missing` knows the records without a unit. `whole_log`: all segments were given, not only some."""
        self.loss = Loss()
        self._missing, self._whole_log = missing, whole_log
        self._rows = capped_dangling(_MOST_ROWS)

    def take(self, rows: Iterable[Dangling]) -> None:
        """Take the dangling pointers of the next split."""
        self._rows.extend(rows)

    def finish(self, log: Sequence[Finding], summary: LogSummary) -> tuple[list[Finding], list[Finding]]:
        """Return `log`, whose gaps now say what they held, and the findings of pointers that lead into none."""
        self.loss.last = summary.last_timestamp
        references: dict[int, list[Dangling]] = defaultdict(list)
        found: list[Finding] = []
        spans = _GapSpans(log)
        for row in self._rows.rows:
            if not self._is_known(row, summary):
                continue
            gap = spans.find(row.low)
            if gap is not None and row.where != INSIDE:
                references[gap].append(row)
            elif summary.end is not None or row.where == INSIDE:
                found.append(self._judge(row, summary.end))
        return [_with_references(finding, references.get(at, ())) for at, finding in enumerate(log)], found

    def _is_known(self, row: Dangling, summary: LogSummary) -> bool:
        """Whether the bytes that a pointer leads to were given, and could be read."""
        if any(start <= row.low < end for start, end in summary.unread):
            return False
        return self._whole_log or (row.where != OUTSIDE and summary.end is not None and row.low < summary.end)

    def _judge(self, row: Dangling, log_end: int | None) -> Finding:
        beyond = log_end is not None and row.low >= log_end and row.where != INSIDE
        points = f"{_NOUNS[row.kind]} points {'past the end of the log' if beyond else 'where no record starts'}"
        # Rows are merged later, so the message states no count.
        what, expected = points, "the start of a record"
        if beyond:
            what, expected = f"{points}: its record is lost", f"below {log_end}"
        if (own := self._missing.own_record(row)) is not None:
            what, expected = f"{points}: the record of this queue offset is at {own}", str(own)
        elif beyond and log_end is not None:
            self._count_loss(row, log_end)
        return Finding(
            (_BEYOND if beyond else _DANGLING)[row.kind],
            what,
            file=row.file,
            offset=row.position,
            length=row.rows * row.row_size,
            physical_offset=row.low,
            topic=row.topic,
            queue_id=row.queue_id,
            queue_offset=row.row if row.kind == "unit" else None,
            count=row.rows,
            expected=expected,
            found=str(row.low),
        )

    def _count_loss(self, row: Dangling, log_end: int) -> None:
        """Count what a row proves to be lost: not what stands elsewhere, nor what can never have been there."""
        if row.low > log_end + _FAR:
            return
        if row.kind == "unit" and row.topic is not None:
            lost = row.messages - self._missing.found_elsewhere(row)
            if lost <= 0:
                return
            self.loss.messages[row.topic] = self.loss.messages.get(row.topic, 0) + lost
        elif row.kind == "entry":
            self.loss.entries += row.messages
        if row.newest is not None:
            self.loss.newest = max(self.loss.newest or 0, row.newest)


class _GapSpans:
    """The findings that are gaps of the log, by physical offset."""

    def __init__(self, log: Sequence[Finding]) -> None:
        self._spans = sorted(_gap_spans(log), key=lambda span: span[1])
        self._starts = [start for _, start, _ in self._spans]

    def find(self, offset: int) -> int | None:
        """Return the number of the finding whose gap holds an offset."""
        at = bisect_right(self._starts, offset) - 1
        return self._spans[at][0] if at >= 0 and offset < self._spans[at][2] else None


def _gap_spans(log: Sequence[Finding]) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, end) of the findings that are gaps of the log."""
    for at, finding in enumerate(log):
        start = finding.physical_offset
        if start is None:
            continue
        if finding.code in GAPS:
            yield at, start, start + (finding.length or 1)
        elif finding.code == "CL-SIZE" and finding.expected is not None and finding.found is not None:
            # The part that a segment cut short no longer has.
            yield at, start + int(finding.found), start + int(finding.expected)


def _with_references(finding: Finding, rows: Sequence[Dangling]) -> Finding:
    """Return a gap's finding that says what the gap held, by the pointers into it."""
    if not rows:
        return finding
    held = _held(rows)
    if finding.code == "CL-SIZE":
        return replace(finding, message=f"{finding.message}; the missing part held {held}")
    return replace(finding, expected=held)


def _held(rows: Sequence[Dangling]) -> str:
    """Return what a gap held, by the queues, or by the index where no unit points into the gap."""
    messages: Counter[str] = Counter()
    for row in rows:
        if row.kind == "unit" and row.topic is not None:
            messages[row.topic] += row.messages
    if messages:
        return f"at least {count(messages.total(), 'message')} of {_topics(messages)} (queue units)"
    return f"at least {count(sum(row.messages for row in rows if row.kind != 'unit'), 'message')} (index entries)"


def _topics(messages: Mapping[str, int]) -> str:
    ordered = sorted(messages.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == 1:
        return ordered[0][0]
    named = [f"{topic} {number}" for topic, number in ordered[:_NAMED_TOPICS]]
    rest = len(ordered) - len(named)
    return ", ".join(named) + (f" and {count(rest, 'more topic')}" if rest else "")

"""Dangling pointers of all splits: what a gap of the log held, and what the log has lost.

    pointer into a gap of the log                  reference: the gap's finding says what it held
    pointer past the end of the log                CQ-BEYOND, IX-BEYOND, TM-BEYOND, and the record is lost
    pointer into a record or filler                CQ-DANGLING, IX-DANGLING, TM-CHAIN
    unit whose own record has no unit              damaged unit; nothing is lost

Only the reader of the whole log knows where it ends, so pointers are kept as rows of `Dangling` until then.

Records without a queue unit, and keys without an index entry, joined over all splits.

A split reports runs: consecutive records of one queue, or consecutive keys. Runs cut by a split border are one
run, judged as a whole. Whether a missing unit is damage is known only at the end:

    records of a queue      r r r r r r | r r r r
    units                   u u u . . u | . . . .
                                  lost    newest: behind the newest unit of all queues

After an unclean shutdown the newest records may not have been dispatched yet (CQ-BEHIND); all others are
CQ-MISSING: each run at level deep; below, only what is missing at the ends of a queue, as one finding.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.broker.former_topics import former_until
from rmqinspect.broker.gone import TOPICS, gone_config
from rmqinspect.broker.lost_topics import always_exists
from rmqinspect.config.json_files import read_config
from rmqinspect.rocksdb.databases import CONFIG, unread_databases
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_duration, group_digits
from rmqinspect.topics import LMQ_PREFIX
from rmqinspect.verify.codes import BEFORE_START, COPY_AGAIN, FIND_LOG, GAPS, NO_MEND
from rmqinspect.verify.findings import Finding, place_in_log
from rmqinspect.verify.index_join import ENTRIES, IndexResult, MissingKeys
from rmqinspect.verify.plan import QueueName
from rmqinspect.verify.pointers import INSIDE, OUTSIDE, Dangling, capped_dangling
from rmqinspect.verify.queue_join import UNITS, Missing, UnitResult, capped_missing
from rmqinspect.verify.queue_survey import QueueSurvey
from rmqinspect.verify.taken_places import Taken, TakenPlaces
from rmqinspect.verify.timer_survey import TIMERS
from rmqinspect.verify.whole_log import LogSummary

_MOST_RUNS = 100_000  # over all splits; overflow is merged


class MissingUnits:
    """The records of all splits that are entitled to a queue unit and have none."""

    def __init__(
        self,
        store: Store,
        surveys: Sequence[QueueSurvey],
        dispatched_to: int,
        *,
        elsewhere: bool,
        releases: Sequence[str] = (),
    ) -> None:
        """`dispatched_to`: store time in ms up to which the checkpoint says that units were flushed.

        `elsewhere`: newer units may be in RocksDB, which was not read. `releases`: those that may have written it.
        """
        self.without_topic: list[Missing] = []  # of topics without a queue that topics.json does not name
        self._releases = releases
        self.behind: Counter[tuple[str, int]] = Counter()  # messages not dispatched yet, by queue
        self._store, self._dispatched_to, self._elsewhere = store, dispatched_to, elsewhere
        self._unclean = bool(store.of_kind("abort"))  # the broker was killed, or runs
        self._topics_with_units = frozenset(survey.topic for survey in surveys if survey.units)
        self._reaches = _reaches(surveys)
        # Where no queue has a unit, queues were lost, and no topic was deleted.
        self._topics = _known_topics(store, none_left=not self._topics_with_units)
        self._reported = capped_missing(_MOST_RUNS)
        self._runs: list[Missing] = []
        self._of_queue: dict[tuple[str, int], list[Missing]] = defaultdict(list)  # by queue offset
        self._taken = TakenPlaces(store)
        self._last_physical_offset, self.last_timestamp = -1, 0  # of the last record in the log that has its unit

    def take(self, units: UnitResult) -> None:
        """Take the runs of the next split."""
        self._reported.extend(units.missing)
        if units.last_physical_offset is not None and units.last_physical_offset > self._last_physical_offset:
            self._last_physical_offset, self.last_timestamp = units.last_physical_offset, units.last_timestamp

    def settle(self, restarts: Mapping[tuple[str, int], int], *, sees_end: bool) -> None:
        """Join the runs of all splits.

        `restarts`: physical offset from which a queue counts from 0 again, its topic recreated. `sees_end`: the
        log was read to its end.
        """
        oldest = {queue: first for queue, (first, _) in self._reaches.items()}
        former = former_until(restarts, _joined(self._reported.rows), oldest)
        runs = [run for run in self._reported.rows if run.low >= former.get((run.topic, run.queue_id), 0)]
        known = [run for run in runs if not self._has_no_topic(run.topic)]
        self.without_topic = _joined(run._replace(newest=False) for run in runs if self._has_no_topic(run.topic))
        runs = _joined(run._replace(newest=run.newest and run.low > self._last_physical_offset) for run in known)
        # A run is judged as a whole, wherever splits cut it.
        self._runs = _joined(run._replace(newest=run.newest and self._may_follow(run, sees_end)) for run in runs)
        for run in self._runs:
            self._of_queue[run.topic, run.queue_id].append(run)
        for of_queue in self._of_queue.values():
            of_queue.sort(key=lambda run: run.queue_offset)

    def _may_follow(self, run: Missing, sees_end: bool) -> bool:
        """Whether the units of a run behind all units may still have been to come, or may not have been read.

        Where units reach as far as the checkpoint says, none is lost, whatever the clock did since.
        """
        reached = max(run.first_timestamp, self.last_timestamp) >= self._dispatched_to
        return not sees_end or self._elsewhere or (self._unclean and reached)

    def _has_no_topic(self, topic: str) -> bool:
        """Whether a topic is not in topics.json, and no unit of it is left: the broker does not know it any more."""
        topics = self._topics
        if topics is None or topic in topics or topic.startswith(LMQ_PREFIX):
            return False  # light queues are not in topics.json
        return topic not in self._topics_with_units and not always_exists(topic, self._releases)

    def findings(self, *, sees_end: bool, deep: bool) -> Iterator[Finding]:
        """Yield CQ-MISSING by physical offset, then CQ-BEHIND."""
        may_have_units = not sees_end or self._elsewhere  # the newest: whether they have was not seen
        behind = [] if may_have_units else [run for run in self._runs if run.newest]
        lost = [run for run in self._runs if not run.newest]
        for runs in ([run] for run in lost) if deep else self._at_ends(lost):
            yield self._missing(runs)
        for run in behind:
            self.behind[run.topic, run.queue_id] += run.messages
        if behind:
            first = min(behind, key=lambda run: run.low)
            yield Finding(
                "CQ-BEHIND",
                f"not dispatched yet: the records from physical offset {first.low} on have no unit in any queue",
                **place_in_log(self._store, first.low),
                count=sum(run.records for run in behind),
            )

    def _at_ends(self, runs: Iterable[Missing]) -> Iterable[list[Missing]]:
        """Return, by queue, the runs before its first unit and behind its last one; all of a queue without units.

        By physical offset, which a shift of the units does not change. `_reaches` has that of the
        first unit that points into the log, and of the last one.
        """
        ends: dict[QueueName, list[Missing]] = {}
        for run in runs:
            name = run.topic, run.queue_id
            first, last = self._reaches.get(name, (run.low, run.low - 1))
            if run.low > last or run.high < first:
                ends.setdefault(name, []).append(run)
        return ends.values()

    def _missing(self, runs: Sequence[Missing]) -> Finding:
        """Return CQ-MISSING for runs of one queue, by physical offset."""
        first, records = runs[0], sum(run.records for run in runs)
        name = first.topic, first.queue_id
        taken = self._taken.find(name, first.queue_offset, first.messages) if name in self._reaches else None
        what = "the record has no unit in its queue: consumers do not receive it"
        if records > 1:
            what = f"{records} records of the queue have no unit: consumers do not receive them"
        if name not in self._reaches:
            what += "; the queue is empty or gone"
        if taken is not None:
            what += _taken_words(first, taken)
        do = ""
        if taken is None and runs[-1].low > self._reaches.get(name, (0, -1))[1]:
            do = BEFORE_START
            if name in self._reaches and first.low > self._last_physical_offset:
                what += "; no newer record has a unit in any queue"
                do = f"{COPY_AGAIN}; else {BEFORE_START}"
        return Finding(
            "CQ-MISSING",
            what,
            **place_in_log(self._store, first.low),
            topic=first.topic,
            queue_id=first.queue_id,
            queue_offset=first.queue_offset,
            count=records,
            counted=records > 1,
            expected=f"queue offset {_some_ranges(runs)}",
            found=_found_words(taken),
            timestamp=first.first_timestamp,
            do=do,
            mend="salvage" if taken is not None and taken.twice else "",  # the records contradict each other
        )

    # --- for dangling pointers ------------------------------------------------------------------

    def own_record(self, pointer: Dangling) -> int | None:
        """Return where the record with the queue offset of a single dangling unit is, if it has no unit."""
        if pointer.rows > 1 or pointer.topic is None:
            return None
        runs = self._of_queue.get((pointer.topic, pointer.queue_id or 0), [])
        at = bisect_right(runs, pointer.row, key=lambda run: run.queue_offset) - 1
        return runs[at].low if at >= 0 and runs[at].queue_offset == pointer.row else None

    def found_elsewhere(self, pointer: Dangling) -> int:
        """Return how many messages of dangling units are in the log after all, without a unit."""
        end, found = pointer.row + pointer.messages, 0
        runs = self._of_queue.get((pointer.topic or "", pointer.queue_id or 0), [])
        first = max(0, bisect_right(runs, pointer.row, key=lambda run: run.queue_offset) - 1)
        for run in runs[first:]:
            if run.queue_offset >= end:
                break
            found += max(0, min(end, run.queue_offset + run.messages) - max(pointer.row, run.queue_offset))
        return found


def _reaches(surveys: Iterable[QueueSurvey]) -> dict[QueueName, tuple[int, int]]:
    """Return the physical offsets of the first unit in the log and of the last one, by queue."""
    reaches: dict[QueueName, tuple[int, int]] = {}
    for survey in surveys:
        first, last = survey.first_physical_offset, survey.last_physical_offset
        if first is not None and last is not None:
            before = reaches.get(survey.name, (first, last))  # a topic may have had both types of queue
            reaches[survey.name] = min(first, before[0]), max(last, before[1])
    return reaches


def _known_topics(store: Store, *, none_left: bool) -> frozenset[str] | None:
    """Return the topics that the broker knows, None where that cannot be known.

    With the configuration unreadable, gone, or in a RocksDB that was not read, none is known: a topic without a unit
    may have been deleted. `none_left`: no topic has a unit.
    """
    if store.hides("config", TOPICS) or TOPICS in gone_config(store):
        return frozenset()
    topics = read_config(store, TOPICS)
    if topics is not None:  # without a copy that can be read: none
        return frozenset(topics.table("topicConfigTable"))
    return frozenset() if unread_databases(store, CONFIG) and not none_left else None


def _some_ranges(runs: Sequence[Missing]) -> str:
    """Return the queue offsets of runs in words; of many, the first and the last range."""
    last = [f" to {run.queue_offset + run.messages - 1}" if run.messages > 1 else "" for run in runs]
    ranges = [f"{run.queue_offset}{end}" for run, end in zip(runs, last, strict=True)]
    return " and ".join(ranges) if len(ranges) <= 2 else f"{ranges[0]}, …, {ranges[-1]}"


def _found_words(taken: Taken | None) -> str:
    if taken is None:
        return "no unit"
    return "a unit that leads to no record" if taken.record is None else f"the unit of record {taken.record}"


def _taken_words(run: Missing, taken: Taken) -> str:
    """Return what stands in the place of records that have no unit."""
    if taken.record is None:
        return ""  # a finding of the unit says so
    last = run.queue_offset + taken.offsets - 1
    offsets = f"offset {run.queue_offset}" if taken.offsets == 1 else f"offsets {run.queue_offset} to {last}"
    place = group_digits(taken.record)
    what = f"the unit at {run.queue_offset} leads to record {place}"
    if taken.offsets > 1:
        what = f"the units there lead to other records, from record {place} on"
    if not taken.twice:
        return f"; at queue {offsets} {what}"
    were = "was" if taken.offsets == 1 else "were"
    return f"; the queue {offsets} {were} given out twice: {what}, record {group_digits(run.low)} has none"


def _joined(runs: Iterable[Missing]) -> list[Missing]:
    """Return the runs by physical offset; runs of a queue that continue each other across splits are one."""
    joined: list[Missing] = []
    for run in sorted(runs, key=lambda run: (run.topic, run.queue_id, run.low)):
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.topic, last.queue_id, last.newest) == (run.topic, run.queue_id, run.newest)
            and last.queue_offset + last.messages == run.queue_offset
        ):
            joined[-1] = last._replace(
                records=last.records + run.records,
                messages=last.messages + run.messages,
                high=run.high,
                last_timestamp=run.last_timestamp,
            )
        else:
            joined.append(run)
    return sorted(joined, key=lambda run: run.low)


class MissingEntries:
    """The keys of all splits that should have an index entry and have none."""

    def __init__(self) -> None:
        self._runs: list[MissingKeys] = []

    def take(self, entries: IndexResult) -> None:
        """Take the runs of the next split; a run at its start continues one that reached the end of the last split."""
        for run in entries.missing:
            last = self._runs[-1] if self._runs else None
            if last is not None and last.to_end and run.from_start:
                self._runs[-1] = last._replace(keys=last.keys + run.keys, to_end=run.to_end)
            else:
                self._runs.append(run)
        if entries.asked and self._runs and not (entries.missing and entries.missing[-1].to_end):
            self._runs[-1] = self._runs[-1]._replace(to_end=False)

    def findings(self) -> Iterator[Finding]:
        """Yield IX-MISSING, one for each run."""
        for run in self._runs:
            what = "a key of this record has no index entry: a key search misses it"
            if run.keys > 1:
                what = f"{run.keys} keys of this record and following ones have no index entry: key searches miss them"
            yield replace(run.finding, message=what, count=run.keys, counted=run.keys > 1)


_KINDS = {kind.name: kind for kind in (UNITS, ENTRIES, TIMERS)}
_NAMED_TOPICS = 3
_MOST_ROWS = 100_000  # over all splits; overflow is merged
_FAR = 1 << 40  # bytes past the log's end: no messages were ever there


class Loss(Struct):
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
            what = f"at least {count(total, 'message')} of {by_topic(self.messages)}"
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
        kind = _KINDS[row.kind]
        beyond = log_end is not None and row.low >= log_end and row.where != INSIDE
        points = f"{kind.noun} points {'past the end of the log' if beyond else 'where no record starts'}"
        # Rows are merged later, so the message states no count.
        what, expected = points, "the start of a record"
        if beyond:
            what, expected = f"{points}: its record is lost", f"below {log_end}"
        if (own := self._missing.own_record(row)) is not None:
            what, expected = f"{points}: the record of this queue offset is at {own}", str(own)
        elif beyond and log_end is not None:
            self._count_loss(row, log_end)
        do = mend = ""
        if beyond and row.kind == "unit":
            do = COPY_AGAIN
            if self.loss.last is None:  # no record is left
                do, mend = FIND_LOG, NO_MEND
        return Finding(
            kind.beyond if beyond else kind.dangling,
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
            do=do,
            mend=mend,
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
        self._spans: list[tuple[int, int, int]] = []  # start, end, number of the finding
        for at, finding in enumerate(log):
            start = finding.physical_offset
            if start is None:
                continue
            if finding.code in GAPS:
                self._spans.append((start, start + (finding.length or 1), at))
            elif finding.code == "CL-SIZE" and finding.expected is not None and finding.found is not None:
                # The part that a segment cut short no longer has.
                self._spans.append((start + int(finding.found), start + int(finding.expected), at))
        self._spans.sort(key=lambda span: span[0])
        self._starts = [start for start, _, _ in self._spans]

    def find(self, offset: int) -> int | None:
        """Return the number of the finding whose gap holds an offset."""
        before = bisect_right(self._starts, offset)
        _, end, number = self._spans[before - 1] if before else (0, offset, 0)
        return number if offset < end else None


def _with_references(finding: Finding, rows: Sequence[Dangling]) -> Finding:
    """Return a gap's finding that says what the gap held, by the pointers into it."""
    if not rows:
        return finding
    place = "in the missing part" if finding.code == "CL-SIZE" else "here"
    return replace(finding, message=f"{finding.message}; {_witnesses(rows)} {place}")


def _witnesses(rows: Sequence[Dangling]) -> str:
    """Return what lies in a gap by the queues, or by the index where no unit points into the gap."""
    messages: Counter[str] = Counter()
    queues = set()
    for row in rows:
        if row.kind == "unit" and row.topic is not None:
            messages[row.topic] += row.messages
            queues.add((row.topic, row.queue_id))
    total = messages.total()
    said = "the queue says" if len(queues) == 1 else "the queues say"
    what = f" of {by_topic(messages)}" if messages else ""
    if not messages:
        total = sum(row.messages for row in rows if row.kind != "unit")
        said = "the index says"
    return f"{said}: {count(total, 'message')}{what} {'lies' if total == 1 else 'lie'}"


def by_topic(messages: Mapping[str, int]) -> str:
    """Return the topics with most messages, each with its number; a single topic without."""
    ordered = sorted(messages.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == 1:
        return ordered[0][0]
    named = [f"{topic} {number}" for topic, number in ordered[:_NAMED_TOPICS]]
    rest = len(ordered) - len(named)
    return ", ".join(named) + (f" and {count(rest, 'more topic')}" if rest else "")

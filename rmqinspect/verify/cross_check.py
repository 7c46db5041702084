"""What only all splits together tell about queues and index: losses, gaps' witnesses, shifts, missing units.

`CrossJudge` takes the results of splits in log order, after the surveys of the queues.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqinspect.broker.dispatch import LMQ_PREFIX
from rmqinspect.consumequeue.units import queue_files_of
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_duration
from rmqinspect.verify.commitlog.dledger import ChainEnds, join_chains
from rmqinspect.verify.consumequeue.join import Shift, UnitResult, capped_shifts
from rmqinspect.verify.consumequeue.missing import Missing, capped_missing
from rmqinspect.verify.consumequeue.order import find_disorder
from rmqinspect.verify.consumequeue.survey import QueueSurvey
from rmqinspect.verify.dangling import INSIDE, OUTSIDE, Dangling, capped_dangling
from rmqinspect.verify.findings import Finding, capped_findings
from rmqinspect.verify.index.join import IndexResult, MissingKeys
from rmqinspect.verify.timer.join import TimerResult

# A pointer into one of these is the witness of what it held and no finding of its own.
_GAP_CODES = frozenset({"CL-MAGIC", "CL-LENGTH", "CL-TORN-TAIL", "CL-ZERO-INSIDE", "CL-HOLE"})

# What makes a unit wrong enough: its order says nothing more.
_WRONG_UNIT = frozenset({"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH"})

_DANGLING = {"unit": "CQ-DANGLING", "entry": "IX-DANGLING", "timer": "TM-CHAIN"}
_BEYOND = {"unit": "CQ-BEYOND", "entry": "IX-BEYOND", "timer": "TM-BEYOND"}
_TOPICS_TOLD = 3
_ROOM = 8  # rows kept for each that is shown
_MOST_RUNS = 100_000  # of a kind in all splits, told one by one
_FAR = 1 << 40  # bytes behind the log's end: no messages were there


@dataclass(slots=True)
class Loss:
    """What queues, index and checkpoint know of and the log does not hold: at least so much is lost."""

    messages: dict[str, int] = field(default_factory=dict)  # by topic, from queue units
    entries: int = 0  # different records that index entries point at
    newest: int | None = None  # store time in ms of the newest that is known of
    last: int | None = None  # store time of the log's last record

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


class CrossJudge:
    """Judges queues and index of one store against its log, from the results of the splits."""

    def __init__(
        self,
        store: Store,
        surveys: Sequence[QueueSurvey],
        *,
        unclean: bool,
        dispatched_to: int,
        topics: frozenset[str] | None,
        deep: bool,
        whole_log: bool,
        elsewhere: bool,
        limit: int,
    ) -> None:
        """Prepare for a store whose queues were surveyed.

        `unclean`: the broker did not stop, or runs. `dispatched_to`: the store time in ms up to which
        the checkpoint says that units were flushed. `topics`: of topics.json, None without it.
        `deep`: tell records without a unit too. `elsewhere`: newer units may be in RocksDB, unread.
        `whole_log`: not only some segments were given. `limit` bounds the rows of a code that are shown.
        """
        self.store, self.surveys, self.topics = store, surveys, topics
        self.unclean, self.dispatched_to = unclean, dispatched_to
        self.deep, self.whole_log, self.elsewhere = deep, whole_log, elsewhere
        self._kept = capped_findings(_ROOM * limit)  # many rows fold into few in the end
        self.findings, self.suppressed = self._kept.rows, self._kept.suppressed
        self.unread: list[Finding] = []
        self.loss = Loss()
        self.joined_units = self.joined_entries = 0
        self.behind: Counter[tuple[str, int]] = Counter()  # messages not dispatched yet, by queue
        self._shifts = capped_shifts(_MOST_RUNS)
        self._missing = capped_missing(_MOST_RUNS)
        self._missing_keys: list[MissingKeys] = []
        self._nowhere = capped_dangling(_MOST_RUNS)
        self.edge_times: dict[tuple[int, int], int] = {}  # of index entries: see IndexResult
        self._chains: list[ChainEnds] = []
        self._last_place, self._last_timestamp = -1, 0
        self.missing: list[Missing] = []
        self._restarts: Mapping[tuple[str, int], int] = {}
        self._with_units = {survey.topic for survey in surveys if survey.units}
        self._missing_of: dict[tuple[str, int], list[Missing]] = defaultdict(list)

    def take(
        self,
        units: UnitResult | None,
        entries: IndexResult | None,
        timer: TimerResult | None = None,
        chain: ChainEnds | None = None,
    ) -> None:
        """Take what the next split told."""
        for result in (units, entries, timer):
            if result is not None:
                self._kept.extend(result.findings)
                self._nowhere.extend(result.dangling)
                self.unread += result.unread
        for counted in (units, entries, chain):
            if counted is not None:
                self.suppressed.update(counted.suppressed)
        if chain is not None:
            self._kept.extend(chain.findings)
            self.unread += chain.unread
            chain.findings = []
            self._chains.append(chain)
        if entries is not None:
            self.joined_entries += entries.joined
            self.edge_times.update(entries.edge_times)
            self._take_missing_keys(entries)
        if units is not None:
            self.joined_units += units.joined
            self._shifts.extend(units.shifts)
            self._missing.extend(units.missing)
            if units.last_place is not None and units.last_place > self._last_place:
                self._last_place, self._last_timestamp = units.last_place, units.last_timestamp

    def _take_missing_keys(self, entries: IndexResult) -> None:
        """Join the last run of the splits so far with one that goes on at the beginning of this split."""
        for run in entries.missing:
            last = self._missing_keys[-1] if self._missing_keys else None
            if last is not None and last.to_end and run.from_start:
                self._missing_keys[-1] = last._replace(keys=last.keys + run.keys, to_end=run.to_end)
            else:
                self._missing_keys.append(run)
        if entries.asked and self._missing_keys and not (entries.missing and entries.missing[-1].to_end):
            self._missing_keys[-1] = self._missing_keys[-1]._replace(to_end=False)

    def _judge_missing_keys(self) -> Iterator[Finding]:
        for run in self._missing_keys:
            what = "a key of the record has no entry in the index: a key search will miss it"
            if run.keys > 1:
                what = f"{run.keys} keys, of this record and others behind, have no entry: a key search will miss them"
            yield replace(run.finding, message=what, count=run.keys)

    def finish(
        self,
        log: Iterable[Finding],
        log_end: int | None,
        last_timestamp: int | None,
        unread: Sequence[tuple[int, int]],
        restarts: Mapping[tuple[str, int], int],
    ) -> list[Finding]:
        """Return `log`, the findings so far, with their witnesses, and all of the queues and the index.

        `log_end` is the physical offset behind the last record, None where it was not reached; of the ranges
        `unread` nothing is known. `restarts`: where queues began again at 0, as their topics were made again.
        """
        log = list(log)
        self.loss.last, self._restarts = last_timestamp, restarts
        witnesses: dict[int, list[Dangling]] = defaultdict(list)
        dangling: list[Dangling] = []
        spans = sorted(_gap_spans(log), key=lambda span: span[1])
        starts = [start for _, start, _ in spans]
        for lost in self._nowhere.rows:
            if any(start <= lost.low < end for start, end in unread):
                continue
            if not self.whole_log and (lost.where == OUTSIDE or log_end is None or lost.low >= log_end):
                continue  # what stands there was not given
            number = bisect_right(starts, lost.low) - 1
            at = spans[number][0] if number >= 0 and lost.low < spans[number][2] else None
            if at is not None and lost.where != INSIDE:
                witnesses[at].append(lost)
            elif log_end is not None or lost.where == INSIDE:
                dangling.append(lost)
        self._kept.extend(self._judge_missing(sees_end=log_end is not None))
        for lost in dangling:
            self._leads_nowhere(lost, log_end)
        for at, lost_rows in witnesses.items():
            held = _testimony(lost_rows)
            if log[at].code == "CL-SIZE":
                log[at] = replace(log[at], message=f"{log[at].message}; what is not there held {held}")
            else:
                log[at] = replace(log[at], expected=held)
        self._kept.extend(self._judge_shifts())
        self._kept.extend(self._judge_missing_keys())
        self._kept.extend(join_chains(self._chains, unclean=self.unclean))
        self._take_disorder()
        return log + self.findings

    def _leads_nowhere(self, lost: Dangling, log_end: int | None) -> None:
        beyond = log_end is not None and lost.low >= log_end and lost.where != INSIDE
        code = (_BEYOND if beyond else _DANGLING)[lost.kind]
        # Rows are folded, so the words do not count them.
        what, expected = "it points where no record starts", "the start of a record"
        if beyond:
            what, expected = "it points behind the log's end: what was there is gone", f"below {log_end}"
        if (own := self._own_record(lost)) is not None:
            # The record that should be there has no unit: this one is damaged, and nothing is lost.
            what = f"it points {'behind the log' if beyond else 'where no record starts'}"
            what, expected = f"{what}: the record of this queue offset stands at {own}", str(own)
        elif beyond and log_end is not None:
            self._count_loss(lost, log_end)
        self._kept.add(
            Finding(
                code,
                what,
                file=lost.file,
                offset=lost.position,
                length=lost.rows * lost.row_size,
                physical_offset=lost.low,
                topic=lost.topic,
                queue_id=lost.queue_id,
                queue_offset=lost.row if lost.kind == "unit" else None,
                count=lost.rows,
                expected=expected,
                found=str(lost.low),
            )
        )

    def _own_record(self, lost: Dangling) -> int | None:
        """Return where the record without a unit stands whose queue offset a lone unit has."""
        if lost.rows > 1 or lost.topic is None:
            return None
        run = self._missing_run(lost.topic, lost.queue_id, lost.row)
        return run.low if run is not None and run.queue_offset == lost.row else None

    def _missing_run(self, topic: str, queue_id: int | None, offset: int) -> Missing | None:
        """Return the last run of a queue that begins at or before a queue offset."""
        runs = self._missing_of.get((topic, queue_id or 0), [])
        number = bisect_right(runs, offset, key=lambda run: run.queue_offset) - 1
        return runs[number] if number >= 0 else None

    def _count_loss(self, lost: Dangling, log_end: int) -> None:
        """Count what a row proves to be gone: not what stands elsewhere, nor what can never have been there."""
        if lost.low > log_end + _FAR:
            return
        if lost.kind == "unit" and lost.topic is not None:
            gone = lost.messages - self._found_elsewhere(lost)
            if gone <= 0:
                return
            self.loss.messages[lost.topic] = self.loss.messages.get(lost.topic, 0) + gone
        elif lost.kind == "entry":
            self.loss.entries += lost.messages
        if lost.newest is not None:
            self.loss.newest = max(self.loss.newest or 0, lost.newest)

    def _found_elsewhere(self, lost: Dangling) -> int:
        """Return how many of the messages that units stand for are in the log, without a unit."""
        end, found = lost.row + lost.messages, 0
        runs = self._missing_of.get((lost.topic or "", lost.queue_id or 0), [])
        first = max(0, bisect_right(runs, lost.row, key=lambda run: run.queue_offset) - 1)
        for run in runs[first:]:
            if run.queue_offset >= end:
                break
            found += max(0, min(end, run.queue_offset + run.messages) - max(lost.row, run.queue_offset))
        return found

    def _judge_shifts(self) -> Iterator[Finding]:
        runs: list[Shift] = []
        for shift in sorted(self._shifts.rows, key=lambda s: (s.topic, s.queue_id, s.unit)):
            last = runs[-1] if runs else None
            if last is not None and _goes_on(last, shift):
                runs[-1] = last._replace(units=last.units + shift.units)
            else:
                runs.append(shift)
        for run in runs:
            how = f"{abs(run.by)} {'behind' if run.by > 0 else 'before'} the place that the record says"
            many = run.units > 1
            yield Finding(
                "CQ-SHIFT",
                f"from queue offset {run.unit} on {run.units} units stand {how}" if many else f"the unit stands {how}",
                file=run.file,
                offset=run.position,
                physical_offset=run.physical_offset,
                topic=run.topic,
                queue_id=run.queue_id,
                queue_offset=run.unit,
                count=run.units,
                expected=str(run.unit - run.by),
                found=str(run.unit),
            )

    def _judge_missing(self, *, sees_end: bool) -> Iterator[Finding]:
        runs = self.missing = self._merged_missing(sees_end=sees_end)
        for run in runs:
            self._missing_of[run.topic, run.queue_id].append(run)
        for of_queue in self._missing_of.values():
            of_queue.sort(key=lambda run: run.queue_offset)
        if not sees_end or self.elsewhere:
            runs = [run for run in runs if not run.newest]  # whether these have units was not seen
        if not self.deep:
            return  # they are known all the same: a unit that leads nowhere may be one of theirs
        behind = [run for run in runs if run.newest]
        for run in runs:
            if run.newest:
                self.behind[run.topic, run.queue_id] += run.messages
                continue
            segment = self.store.segment_at(run.low)
            many = run.records > 1
            yield Finding(
                "CQ-MISSING",
                f"{run.records} records of the queue have no unit: consumers will not get them"
                if many
                else "the record has no unit in its queue: consumers will not get it",
                file=segment.name if segment else None,
                offset=run.low - segment.base if segment else None,
                physical_offset=run.low,
                topic=run.topic,
                queue_id=run.queue_id,
                queue_offset=run.queue_offset,
                count=run.records,
                expected=f"queue offset {run.queue_offset}"
                + (f" to {run.queue_offset + run.messages - 1}" if run.messages > 1 else ""),
                found="no unit",
                timestamp=run.first_timestamp,
            )
        if behind:
            first = min(behind, key=lambda run: run.low)
            segment = self.store.segment_at(first.low)
            yield Finding(
                "CQ-BEHIND",
                f"not dispatched yet: the records from physical offset {first.low} on have no unit in any queue",
                file=segment.name if segment else None,
                offset=first.low - segment.base if segment else None,
                physical_offset=first.low,
                count=sum(run.records for run in behind),
            )

    def _merged_missing(self, *, sees_end: bool) -> list[Missing]:
        """Return the runs of all splits, `newest` where they are behind the newest unit of all queues.

        After a clean stop that says nothing, if the log was read to its end.
        """

        def settle(run: Missing) -> Missing:
            # Where units reach as far as the checkpoint says, none is lost, whatever the clock did since.
            reached = max(run.first_timestamp, self._last_timestamp) >= self.dispatched_to
            pending = self.elsewhere or (self.unclean and reached)
            return run._replace(newest=run.newest and (pending or not sees_end))

        known = (run for run in self._missing.rows if not self._is_deleted(run))
        runs = _merge_missing(run._replace(newest=run.newest and run.low > self._last_place) for run in known)
        # A run is judged as a whole, wherever splits cut it.
        return _merge_missing(map(settle, runs))

    def _is_deleted(self, run: Missing) -> bool:
        """Whether a run is of a deleted topic: topics.json does not have it, and no unit of it is left.

        Or of the life of its queue before the topic was made again.
        """
        if run.low < self._restarts.get((run.topic, run.queue_id), 0):
            return True
        if self.topics is None or run.topic in self.topics or run.topic.startswith(LMQ_PREFIX):
            return False  # light queues are no topics of topics.json
        return run.topic not in self._with_units

    def _take_disorder(self) -> None:
        """Add what the queues say by themselves, and their disorder, judged over the units that are not wrong."""
        wrong: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for finding in self.findings:
            if finding.code in _WRONG_UNIT and finding.file and finding.offset is not None:
                wrong[finding.file].append((finding.offset, finding.offset + (finding.length or 1)))
        for survey, files in zip(self.surveys, queue_files_of(self.store), strict=True):
            self.suppressed.update(survey.suppressed)
            self._kept.extend(survey.findings)
            if not survey.ascends:
                for finding in survey.findings:
                    if finding.code in _WRONG_UNIT and finding.file and finding.offset is not None:
                        wrong[finding.file].append((finding.offset, finding.offset + (finding.length or 1)))
                self._kept.extend(find_disorder(files, wrong))


def _goes_on(last: Shift, shift: Shift) -> bool:
    same = (last.topic, last.queue_id, last.by) == (shift.topic, shift.queue_id, shift.by)
    return same and last.unit + last.units == shift.unit


def _merge_missing(runs: Iterable[Missing]) -> list[Missing]:
    """Return the runs by place; those of one queue that go on across splits as one."""
    merged: list[Missing] = []
    for run in sorted(runs, key=lambda run: (run.topic, run.queue_id, run.low)):
        last = merged[-1] if merged else None
        if (
            last is not None
            and (last.topic, last.queue_id, last.newest) == (run.topic, run.queue_id, run.newest)
            and last.queue_offset + last.messages == run.queue_offset
        ):
            merged[-1] = last._replace(
                records=last.records + run.records,
                messages=last.messages + run.messages,
                high=run.high,
                last_timestamp=run.last_timestamp,
            )
        else:
            merged.append(run)
    return sorted(merged, key=lambda run: run.low)


def _gap_spans(log: Sequence[Finding]) -> list[tuple[int, int, int]]:
    """Return (number, start, end) of the findings that are gaps of the log."""
    spans: list[tuple[int, int, int]] = []
    for at, finding in enumerate(log):
        place = finding.physical_offset
        if place is None:
            continue
        if finding.code in _GAP_CODES:
            spans.append((at, place, place + (finding.length or 1)))
        elif finding.code == "CL-SIZE" and finding.expected is not None and finding.found is not None:
            # What a segment that is too short does not hold.
            spans.append((at, place + int(finding.found), place + int(finding.expected)))
    return spans


def _testimony(rows: Sequence[Dangling]) -> str:
    """Say what a gap held, by the queues if they say anything, else by the index."""
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
    reported = [f"{topic} {number}" for topic, number in ordered[:_TOPICS_TOLD]]
    rest = len(ordered) - len(reported)
    return ", ".join(reported) + (f" and {count(rest, 'more topic')}" if rest else "")

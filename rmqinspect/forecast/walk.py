"""One start of one release, walked without a broker: load, recovery, dispatch, and what is left.

    config, load   files of each folder                      -> the broker does not start, or goes on
    index          load; after an unclean exit delete those newer than the checkpoint
    queues         read the units of the last three files of each -> how far the queues reach
    start segment  from where the log is scanned
    scan           record by record, to the first that is refused -> the new end
    dispatch       of scanned records, into queues and index
    cut            queues and log at the new end
    reput          of records that no queue has yet
    minimum        of each queue

The procedure is the same for all releases. Where they differ it asks `Rules`; nothing here knows a release. Everything
that is read is in `Evidence` and shared by the walks; a walk only has its own state of queues and index. The walks of
several releases go side by side up to their scans of the log, which are made together (`walk_all`).

Source: DefaultMessageStore#load, #recover, #start; CommitLog#recoverNormally, #recoverAbnormally.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqinspect.broker.start_rules import Rules
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.config_files import read_config_files
from rmqinspect.forecast.dledger import cuts_queues, record_scan, recover_ledger
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.fed_scan import FedScan, can_be_fed
from rmqinspect.forecast.index_files import INDEX_IS_FILE, IndexState
from rmqinspect.forecast.load import (
    ABORT_DELETED,
    Loaded,
    abort_refusal,
    deletes_abort,
    folder_refusal,
    load,
    open_refusal,
)
from rmqinspect.forecast.outcome import Decision, Outcome, Refusal
from rmqinspect.forecast.queues import Queues
from rmqinspect.forecast.queues_in_rocksdb import RocksdbQueues, RocksdbTable
from rmqinspect.forecast.scan import Asked, Scan, reput
from rmqinspect.forecast.settings import contradictions
from rmqinspect.forecast.start_segment import are_confirmed, confirmed_offset, offsets_refusal, start_segment
from rmqinspect.forecast.timer_log import load_timer_log, timer_notes
from rmqinspect.store.model import Segment
from rmqinspect.text import count

Take = Callable[[Batch], None]
Steps = Generator[Asked, Scan, Outcome]  # of a walk: it asks for one scan at most


class Start(NamedTuple):
    """What is walked: the start of a release, and what is read for it."""

    evidence: Evidence
    release: str
    rules: Rules


def walk(evidence: Evidence, release: str, rules: Rules, *, clean: bool) -> Outcome:
    """Return what a start by the rules of a release does, apart from what is lost (`losses`).

    The outcome has no verdict yet.
    """
    (outcome,) = walk_all([Start(evidence, release, rules)], clean=clean)
    return outcome


def walk_all(starts: Sequence[Start], *, clean: bool) -> list[Outcome]:
    """Return what the starts of several releases do; where they scan the log from one place on, it is read once."""
    return Walks(starts, clean=clean).finish()


class Walks:
    """Starts of several releases, walked side by side: first up to their scans of the log."""

    def __init__(self, starts: Sequence[Start], *, clean: bool) -> None:
        """Walk each start to where it asks for the scan, or to its end."""
        self._starts, self._clean = starts, clean
        self._outcomes: dict[int, Outcome] = {}
        self._waiting: dict[tuple[object, ...], list[tuple[int, Steps, Asked]]] = {}
        for number, start in enumerate(starts):
            steps = _steps(start, clean=clean)
            try:
                asked = next(steps)
            except StopIteration as ended:
                self._outcomes[number] = ended.value
            else:
                self._waiting.setdefault(asked.place, []).append((number, steps, asked))
        # The scans that another reader of the log can feed.
        self.fed = {
            place: FedScan([asked for _, _, asked in members])
            for place, members in self._waiting.items()
            if all(can_be_fed(asked) for _, _, asked in members)
        }

    def finish(self) -> list[Outcome]:
        """Scan the log, but for what was fed, and walk each start to its end."""
        for place, members in self._waiting.items():
            feed = self.fed.get(place)
            was_fed = feed is not None and feed.took
            if feed is not None and was_fed:
                scans = feed.finish()
            else:
                asked = [one for _, _, one in members]
                _announce(asked[0], self._starts[members[0][0]].evidence)
                scans = asked[0].scanner.scan_together(asked)
            again = [number for (number, _, _), scan in zip(members, scans, strict=True) if scan is None]
            for (number, steps, _), scan in zip(members, scans, strict=True):
                if scan is not None:
                    self._outcomes[number] = _ended(steps, scan)
            # What these have taken does not hold for them.
            together = [again] if was_fed and again else [[number] for number in again]
            for numbers in together:
                outcomes = walk_all([self._starts[number] for number in numbers], clean=self._clean)
                self._outcomes.update(zip(numbers, outcomes, strict=True))
        return [self._outcomes[number] for number in range(len(self._starts))]


def _ended(steps: Steps, scan: Scan) -> Outcome:
    try:
        steps.send(scan)
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return outcome
    raise AssertionError("a walk asks for one scan")


def _announce(asked: Asked, evidence: Evidence) -> None:
    if evidence.announce is not None:
        segments = asked.scanner.segments[asked.first :]
        size = sum(segment.size for segment in segments) - asked.position
        evidence.announce(size, f"the start scans the log from segment {segments[0].base} on")


def _steps(start: Start, *, clean: bool) -> Steps:
    """Walk one start; it stops where it asks for the scan of the log."""
    evidence, release, rules = start
    outcome = Outcome(release, release, clean)
    if evidence.unknown is not None:
        outcome.unknown = evidence.unknown
        return outcome
    outcome.assumptions = list(evidence.assumptions)
    outcome.conf_notes = list(contradictions(evidence.store, evidence.settings, rules))
    outcome.notes += outcome.conf_notes
    state = _Walk(evidence, rules, clean, outcome)
    try:
        yield from state.run()
    except _Ends:
        pass
    except Unreadable as error:
        outcome.unknown = str(error)
    state.note_deleted()
    return outcome


class _Ends(Exception):
    """The walk ends here; the outcome says why."""


@dataclass
class _Walk:
    """The state of one walk; `outcome` is filled on the way."""

    evidence: Evidence
    rules: Rules
    clean: bool
    outcome: Outcome
    loaded: Loaded = field(init=False)
    queues: Queues | RocksdbQueues = field(init=False)
    index: IndexState = field(init=False)
    is_loaded: bool = False  # all of these are there
    confirmed: int | None = None  # confirmOffset; None: all of the log
    deleted_last: list[str] = field(default_factory=list)  # by what is loaded behind recovery

    def run(self) -> Generator[Asked, Scan, None]:
        """Walk the start to where it ends."""
        last, unknown = self._load()
        if self.evidence.ledger and self.rules.ledger_scan != "absent":
            self._recover_ledger()
        elif self.loaded.segments:
            yield from self._recover()
        else:
            self._recover_nothing()
        self._correct()
        # Load fails because of these, behind recovery, and start() at the last one.
        self._end_if(self.index.refusal)
        self.outcome.deleted_files += self.deleted_last
        for refusal in (last, abort_refusal(self.evidence.store, self.rules)):
            self._end_if(refusal)
        self._end_if(None, unknown)

    # --- load -----------------------------------------------------------------------------------

    def _load(self) -> tuple[Refusal | None, str | None]:
        """Load all files; return why load fails behind recovery, or why that cannot be told."""
        evidence, outcome = self.evidence, self.outcome
        timer = load_timer_log(evidence.store, self.rules, evidence.settings)
        config = read_config_files(evidence.store, self.rules, evidence.settings, evidence.config, timer.refusal)
        outcome.config_from_backup, outcome.unread = config.from_backup, config.unread
        outcome.lost_config = config.lost
        gone = evidence.config.gone
        outcome.notes += [*config.notes, *timer_notes(evidence.store, self.rules, evidence.settings, gone)]
        outcome.decisions += config.decisions
        outcome.deleted_files += config.deleted
        self.deleted_last = config.deleted_last + [entry.shown for entry in timer.deleted]
        self._end_if(config.first)
        self._open()
        table = evidence.rocksdb_queues if evidence.settings.has_rocksdb_queues else None
        if evidence.settings.has_rocksdb_queues:
            if self.rules.rocksdb_queues == "absent":
                self._end_if(None, "the queues are in RocksDB, which 5.2.0 and later read")
            self._end_if(None, table if isinstance(table, str) else None)
        if evidence.settings.rocksdb_cq_double_write_enable and self.rules.double_write == "both":
            self._end_if(None, "the queues are in files and in RocksDB (rocksdbCQDoubleWriteEnable), and are compared")
        self.loaded = load(evidence.store, self.rules, evidence.settings, evidence.listing)
        outcome.ignored_files = self.loaded.ignored
        outcome.notes += self.loaded.notes
        outcome.decisions += self.loaded.decisions
        outcome.deleted_files += self.loaded.deleted
        self._end_if(self.loaded.refusal, self.loaded.unknown)
        self._end_if(folder_refusal(evidence.store, "checkpoint"))
        self.index = evidence.index.load(self.rules, evidence.checkpoint, clean=self.clean)
        outcome.decisions += self.index.decisions
        unknown = self.index.unknown or config.unknown or timer.unknown
        if isinstance(table, RocksdbTable):
            log_min = self.loaded.segments[0].base if self.loaded.segments else 0
            self.queues = RocksdbQueues(table, self.rules, log_min)
            inputs: tuple[tuple[str, str | int], ...] = (("checkpoint", self.queues.max_physic_offset),)
            source = "RocksDBConsumeQueueOffsetTable#getMaxPhyOffset"
        else:
            self.queues = Queues(evidence.queues, self.rules, self.loaded.queues)
            unknown = unknown or next(iter(evidence.queues.problems), None)
            inputs = (("maxPhysicOffset", self.queues.max_physic_offset), ("queue_end", self.rules.queue_end))
            source = "ConsumeQueue#recover"
        self.is_loaded = True
        self._decide("queues", f"the queues reach {self.queues.max_physic_offset}", inputs, source)
        return config.last, unknown

    def _open(self) -> None:
        """Open what a start opens before it loads anything."""
        store, settings = self.evidence.store, self.evidence.settings
        refusal = open_refusal(store, self.rules, settings)
        # Without its lock there is no store yet that could be shut down.
        if refusal is not None and refusal.file != "lock" and deletes_abort(store, self.rules, settings, 0):
            self.outcome.deleted_files.append("abort")
            self.outcome.notes.append(ABORT_DELETED)
        self._end_if(refusal)

    # --- recovery -------------------------------------------------------------------------------

    def _recover(self) -> Generator[Asked, Scan, None]:
        """Scan the log from the segment that the rules say, and cut it where the scan ends."""
        evidence, segments, reached = self.evidence, self.loaded.segments, self.queues.max_physic_offset
        confirmed = confirmed_offset(self.rules, evidence.settings, evidence.checkpoint)
        if isinstance(confirmed, Refusal):
            self._end_if(confirmed)
        else:
            self.confirmed = confirmed
        scanner = evidence.scanner(segments)
        beside, unknown = evidence.asked_beside(self.rules)
        start = start_segment(
            scanner, self.rules, evidence.settings, evidence.checkpoint, reached, beside, clean=self.clean
        )
        self.outcome.decisions.append(start.decision)
        first = segments[start.segment]
        self.outcome.scan_start = first.base
        self._end_if(start.refusal, unknown or start.unknown)
        if self.rules.dispatch_from == "all_stores":
            reached_by_all = min([reached, *(place for place in beside if place)])
        else:
            reached_by_all = reached
        take = self._dispatching(first.base + start.position, reached_by_all)
        place = start.segment, start.position, self.clean, take, start.counted
        scan = yield Asked(
            scanner, self.rules, *place, self.queues.asks_properties, reached_by_all if self.clean else -1
        )
        self._end_if(self.queues.refusal or self.index.stuck)
        self._note_scan(scan)
        self._cut_queues(reached, scan.end)
        left = self._cut_log(segments, scan.end)
        size = evidence.settings.mapped_file_size_commit_log
        self._serve(left, _end_of_log(left, scan.end, size), scan.last_record)

    def _recover_ledger(self) -> None:
        """Let the library of DLedger recover its files; then cut the queues."""
        evidence, files, reached = self.evidence, self.evidence.ledger, self.queues.max_physic_offset
        ledger = recover_ledger(evidence.store, files, evidence.settings)
        self.outcome.decisions.append(ledger.decision)
        self.outcome.scan_start, self.outcome.rejected = ledger.scan_start, ledger.rejected
        self._end_if(ledger.refusal)
        if ledger.committed is not None and ledger.committed < ledger.end:
            self.outcome.notes.append(f"entries behind {ledger.committed} are served once the group has committed them")
        cut = ledger.end
        if not self.clean:
            records = record_scan(evidence.store, files, self.rules, evidence.settings, evidence.checkpoint, ledger)
            if records is not None:
                scanner, first = records
                take = self._dispatching(files[first].base, reached)
                scan = scanner.scan(self.rules, first, 0, clean=False, take=take)
                self._end_if(None, scan.unreadable)
                cut = scan.end
        if cuts_queues(self.rules, evidence.checkpoint, cut, clean=self.clean):
            self._cut_queues(reached, cut)
        left = [*self.loaded.segments, *self._cut_log(files, ledger.end)]
        outcome = self.outcome
        outcome.segments_after = [segment.base for segment in left]
        outcome.min_offset, outcome.end_offset = left[0].base, ledger.end
        if self.rules.reput_from == "queue_end":
            self._reput(left, ledger.end)

    def _recover_nothing(self) -> None:
        """Without a segment the queues are destroyed, or kept, and the log begins at 0."""
        kept = self.clean and self.rules.clean_without_log == "keep"
        if not kept:
            self.queues.destroy()
        self._decide(
            "cut",
            f"no segment is loaded: all queues are {'kept' if kept else 'deleted'}, and the log begins at 0",
            (("segments", 0), ("clean_without_log", self.rules.clean_without_log)),
            "CommitLog#recoverNormally, #recoverAbnormally",
        )

    def _dispatching(self, begin: int, reached: int) -> Take | None:
        """Return what dispatches the records of the scan; None where the scan dispatches nothing."""
        if self.clean and self.rules.clean_dispatch == "none":
            return None

        def take(batch: Batch) -> None:
            records = batch.records
            if self.clean:
                batch = batch.chosen(records.physical_offset > reached)
            elif self.confirmed is not None:
                batch = batch.chosen(are_confirmed(self.rules, records, self.confirmed))
            self._dispatch(batch)

        self.outcome.dispatch_start = max(begin, reached + 1) if self.clean else begin
        what = f"those whose PHYSICALOFFSET is above {reached}" if self.clean else "each one"
        confirmed = () if self.confirmed is None else (("confirmOffset", self.confirmed),)
        source = "CommitLog#recoverNormally" if self.clean else "CommitLog#recoverAbnormally"
        self._decide(
            "dispatch", f"of the records of the scan {what}", (("maxPhysicOffset", reached), *confirmed), source
        )
        return take

    def _dispatch(self, batch: Batch) -> None:
        for _ in batch.mismatched:
            self.index.dispatch_unknown()
        self.queues.dispatch(batch)
        self.index.dispatch(batch)

    def _note_scan(self, scan: Scan) -> None:
        """Keep where and why the scan ended."""
        self.outcome.rejected, self.outcome.end_offset = scan.rejected, scan.end
        self.outcome.misplaced = scan.misplaced
        self._end_if(None, scan.unreadable)
        if (where := scan.killed) is not None:
            why = (
                f"the record at {where.physical_offset} says a size that a heap of 1 GiB does not hold "
                "(OutOfMemoryError); a larger heap would cut the log there"
            )
            since = Rules.size_fits.since(True)
            remedy = f"start a release that compares the size with the file: {since} or later"
            self._end_if(Refusal(where.file, where.rule, why, remedy))
        why = REASONS[scan.rejected.rule] if scan.rejected else "no record follows"
        self._decide("scan", f"ends at {scan.end}: {why}", (("end", scan.end),), "CommitLog#checkMessageAndReturnSize")

    def _cut_queues(self, reached: int, end: int) -> None:
        """Cut the queues at an end where the rules say so; `reached`: their own end before the scan."""
        if self.rules.queue_cut == "unclean_always":
            cuts, compared = not self.clean, reached
        else:
            compared = reached if self.rules.queue_cut_end == "before_dispatch" else self.queues.max_physic_offset
            cuts = compared >= end
        if cuts:
            self.queues.truncate(end)
        self._decide(
            "cut",
            f"the queues are cut at {end}" if cuts else "the queues are left as they are",
            (("maxPhysicOffset", compared), ("end", end), ("queue_cut", self.rules.queue_cut)),
            "ConsumeQueue#truncateDirtyLogicFiles",
        )

    def _cut_log(self, segments: Sequence[Segment], end: int) -> list[Segment]:
        """Delete the segments behind the new end; return those that are left."""
        behind = [segment for segment in segments if segment.base > end]
        self.outcome.deleted_segments += [segment.base for segment in behind]
        self.outcome.deleted_files += [segment.name for segment in behind]
        text = f"the log ends at {end}; deleted behind it: {count(len(behind), 'segment')}"
        self._decide("cut", text, (("end", end),), "MappedFileQueue#truncateDirtyFiles")
        return [segment for segment in segments if segment.base <= end]

    # --- start ----------------------------------------------------------------------------------

    def _serve(self, segments: Sequence[Segment], end: int, last_record: int | None) -> None:
        """Go from recovery to where the broker serves: `segments` are left, and the log ends at `end`."""
        outcome, settings = self.outcome, self.evidence.settings
        outcome.segments_after = [segment.base for segment in segments]
        outcome.min_offset, outcome.end_offset = segments[0].base, end
        confirmed = end if self.confirmed is None else min(max(self.confirmed, outcome.min_offset), end)
        if settings.duplication_enable and last_record is not None:
            confirmed = last_record
        scanner = self.evidence.scanner(segments)
        self._end_if(offsets_refusal(self.rules, settings, scanner, segments, confirmed, end))
        if self.rules.reput_from == "queue_end" or settings.recheck_reput_offset_from_cq:
            self._reput(segments, end)

    def _reput(self, segments: Sequence[Segment], end: int) -> None:
        """Dispatch from where the queues end."""
        reached, settings = self.queues.max_physic_offset, self.evidence.settings
        begin = max(reached, self.outcome.min_offset, 0)
        self._decide(
            "reput",
            f"dispatch goes on at {begin}, the end of the queues" if begin < end else "nothing is left to dispatch",
            (("maxPhysicOffset", reached), ("end", end)),
            "DefaultMessageStore#start, ReputMessageService#doReput",
        )
        if begin >= end:
            return
        # Of a DLedger log all is confirmed that is committed. Source: DLedgerCommitLog#getConfirmOffset.
        if settings.duplication_enable and self.rules.reput_from == "queue_end" and not self.evidence.ledger:
            why = "with duplicationEnable dispatch waits for confirmOffset, which a start leaves at -1"
            self._end_if(Refusal.till_off("commitlog", "reput_from", why, "duplicationEnable"))
        known = self.outcome.dispatch_start
        self.outcome.dispatch_start = begin if known is None else min(begin, known)
        stuck = reput(self.evidence.store, segments, self.rules, settings, begin, end, self._dispatch)
        self._end_if(self.queues.refusal or self.index.stuck)
        if stuck is not None:
            why = f"dispatch does not get past {stuck}, and the start waits for it forever"
            self._end_if(Refusal("commitlog", "reput_from", why, "restore what is missing or damaged there"))

    def _correct(self) -> None:
        """Correct the minimum of each queue, and describe what is left."""
        evidence, outcome, index = self.evidence, self.outcome, self.index
        if outcome.dispatch_start is not None and outcome.dispatch_start >= outcome.end_offset:
            outcome.dispatch_start = None  # nothing lies behind it
        refusal = self.queues.correct_minimum(outcome.min_offset)
        outcome.queues = self.queues.outcomes(range(max(0, outcome.min_offset), outcome.end_offset))
        outcome.led = self.queues.led()
        outcome.unreachable = sum(queue.unreachable for queue in outcome.queues) + self.queues.dropped
        if self.queues.failed_at is not None:
            outcome.blocked_by = self.queues.failed_at[0]
            self._note_short(
                "{} is a file: the unit of the record at {} cannot be written, which is tried for 30 "
                "seconds; from there on no queue gets a unit".format(*self.queues.failed_at)
            )
        elif isinstance(self.queues, Queues) and (files := evidence.in_the_way):
            outcome.blocked_by = files[0]
            self._note_short(
                f"{files[0]} is a file in the place of a folder of queues: the unit of the first new message that "
                "needs it is tried for 30 seconds, and from there on no queue gets a unit; move it to a place outside "
                "of the store"
            )
        if index.is_file and index.stuck is None:
            self._note_short(INDEX_IS_FILE)
        outcome.new_index_files = index.new
        outcome.index_entries_behind = index.entries_behind(outcome.end_offset, evidence.unread)
        self._end_if(refusal)

    # --- what the outcome says ------------------------------------------------------------------

    def _note_short(self, text: str) -> None:
        """Note what other commands say, too."""
        self.outcome.notes.append(text)
        self.outcome.conf_notes.append(text)

    def note_deleted(self) -> None:
        """Note what is deleted of queues and index, also where the start fails behind that."""
        if self.is_loaded:
            outcome, index = self.outcome, self.index
            outcome.deleted_files += self.queues.deleted_files + index.deleted
            outcome.index_files_after, outcome.deleted_index_files = (
                [name.rpartition("/")[2] for name in names] for names in (index.after, index.deleted)
            )

    def _end_if(self, refusal: Refusal | None, unknown: str | None = None) -> None:
        """End the walk where the start fails, or where it cannot be told how it goes on.

        :raises _Ends: it does.
        """
        if refusal is not None or unknown is not None:
            self.outcome.refusal, self.outcome.unknown = refusal, unknown if refusal is None else None
            raise _Ends

    def _decide(self, step: str, text: str, inputs: tuple[tuple[str, str | int], ...], source: str) -> None:
        self.outcome.decisions.append(Decision(step, text, inputs, source))


def _end_of_log(segments: Sequence[Segment], end: int, size: int) -> int:
    """Return the maximum offset that the broker gives: the write position of the last file that is left.

    Source: MappedFileQueue#truncateDirtyFiles, #getMaxOffset.
    """
    base = segments[-1].base
    position = end % size if end >= 0 else -(-end % size)  # as in Java
    return base + position if base <= end < base + size else base + size

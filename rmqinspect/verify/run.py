"""One run of `verify`: four phases, one result.

    quick       names, sizes, headers, configuration, lock          files.py, config/, index/header.py
    survey      each queue, index and timer file by itself:         survey.py
                which of its rows point into which split            plan.py
    log         split by split, in any thread: the records, and     commitlog/split.py
                all that points into the split
    judgement   gaps, losses, order, the log's end, checkpoint,     commitlog/whole_log.py, cross_check.py
                consumer groups

Invariants:
- Findings and their order are the same for any number of threads, and wherever the log is cut into splits.
- Memory is bounded by splits and caps, never by the store.
- Ctrl-C ends the reading, not the result: what was found stays, and the verdict is INCOMPLETE.

Ctrl-C may end a run at any moment. It always has a result to print, replaced by better ones as it goes on:

    nothing_judged -> quick_part (long runs only) -> verify_after -> with_custody
         0 %            names, headers, lock           everything      what changed meanwhile

Ctrl-C in between ends with the newest one, marked with the physical offset up to which the log was judged.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import cached_property, partial

from msgspec.structs import replace

from rmqinspect.broker.dispatch import MARKED_IDS, Dispatcher, holding
from rmqinspect.broker.version_estimate import RELEASES, VersionEstimate, estimate_version
from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import Split, plan_splits
from rmqinspect.commitlog.scan import redo_where_borders_differ
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.damage.patterns import explain_difference
from rmqinspect.forecast.fed_scan import FedPart
from rmqinspect.forecast.feed import NO_FEED, Feed
from rmqinspect.forecast.record_fold import RecordFold
from rmqinspect.forecast.versions import Forecaster, ForecastRequest
from rmqinspect.store.model import Store
from rmqinspect.system.workers import run_ordered
from rmqinspect.text import count
from rmqinspect.verify.codes import CODES, FIELD_BITS, OF_RECORDS, levels_up_to
from rmqinspect.verify.config import check_configs
from rmqinspect.verify.cross_check import CrossJudge, checkpoint_time
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.delay_offsets import check_clock, check_levels
from rmqinspect.verify.files import (
    CHECKPOINT_SKEW_MS,
    check_checkpoint,
    check_files,
    check_names,
    has_strays,
    list_unchecked,
    segments_for_quick,
)
from rmqinspect.verify.findings import Finding, Findings, place_in_log
from rmqinspect.verify.group_offsets import check_age, check_groups, check_refused
from rmqinspect.verify.index_header import IndexFiles, check_index_headers
from rmqinspect.verify.index_survey import check_index_files
from rmqinspect.verify.log_map import log_map
from rmqinspect.verify.next_start import is_told
from rmqinspect.verify.plan import CrossPlan, map_log
from rmqinspect.verify.pointers import Joined, LogRanges
from rmqinspect.verify.queue_survey import QueueSurvey, check_sizes
from rmqinspect.verify.result import VerifyOptions, VerifyResult, log_end
from rmqinspect.verify.since import Memory
from rmqinspect.verify.split import JOINS, CheckLimits, SplitResult, check_split, settle
from rmqinspect.verify.survey import Surveys, before_the_log, make_plan, survey_findings, survey_pointers
from rmqinspect.verify.whole_log import LogJudge

_ROWS = 1 << 16  # pointers outside of all splits that are judged at a time
_WRITES_OLDER_TIME = "5.5.0"  # StoreCheckpoint#setTmpLogicsMsgTimestamp
_LEAST_ROOM = 1000  # rows of a code that a split keeps at least: the judgement needs more than is shown
_ANY_OFFSET = 2**63 - 1  # the end of a queue that could not be read

# Bytes. What is dispatched for a split's records is held beside it, with records of 360 bytes a quarter of its size.
# Smaller splits cost more: each reads a piece of every queue file.
SPLIT_SIZE = 48 << 20


def verify(
    store: Store,
    options: VerifyOptions,
    quick_done: Callable[[list[Finding]], None] = lambda findings: None,
    progress: Callable[[int], None] = lambda size: None,
    feed: Feed = NO_FEED,
) -> VerifyResult:
    """Check a store at a level, reading only.

    `quick_done` gets the findings of the quick phase before the log is read; `progress` gets how many more bytes
    of log were read; `feed` gets the records that a forecast asks for. Ctrl-C ends the reading, not the result.
    """
    run = VerifyRun(store, options, progress, feed)
    quick_done(run.quick())
    try:
        run.survey()
        run.read_log()
    except KeyboardInterrupt:
        run.interrupted_at = run.reached
    return run.result()


class VerifyRun:
    """The phases of one run, and what they hand on."""

    def __init__(
        self,
        store: Store,
        options: VerifyOptions,
        progress: Callable[[int], None],
        feed: Feed = NO_FEED,
    ) -> None:
        self.store, self.options, self.progress, self.feed = store, options, progress, feed
        self.scans = feed.scans if not store.doubles else ()  # a broker scans all files of one base
        self.memory = options.memory
        self.limit = max(options.max_findings, _LEAST_ROOM)
        self.deep = options.level == "deep"
        self.splits = splits_to_read(store, options.level)
        self.listed: list[Finding] = []  # of the quick phase
        self.surveys = Surveys()
        self.versions: VersionEstimate | None = None
        self.plan: CrossPlan | None = None  # None: nothing that points into the log is read
        self.log = LogJudge(store, self.limit)
        self.cross: CrossJudge | None = None  # as `plan`
        self.reached = store.log_start  # physical offset
        self.interrupted_at: int | None = None
        self.log_end: int | None = None  # physical offset behind the last record; None: not known
        self.found: list[Finding] = []  # all, before neighbours are merged and codes are chosen
        self.new_folds = [new for new in (options.fold, feed.new_fold) if new is not None]
        self.folds = [new() for new in self.new_folds]
        self.has_all = True  # the folds have the records of every split

    @cached_property
    def index(self) -> IndexFiles:
        """The index files."""
        return IndexFiles(self.store)

    # --- quick ------------------------------------------------------------------------------------

    def quick(self) -> list[Finding]:
        """Judge names, sizes, headers, configuration and lock."""
        self.listed = [*check_files(self.store), *check_sizes(self.store), *check_configs(self.store)]
        if has_strays(self.store):
            versions = estimate_version(self.store, last_places(self.store, []), self.options.broker_version)
            self.listed += check_names(self.store, versions.releases)
        self.listed += check_index_files(self.index)
        if not self.deep:
            self.listed += check_index_headers(self.index)
        return list(_wanted(self.listed, self.options))

    # --- survey -----------------------------------------------------------------------------------

    def survey(self) -> None:
        """Read what points into the log, each file by itself."""
        if self.options.level == "quick" or not _has_pointers(self.store):
            return
        log = map_log(self.splits)
        self.surveys = survey_pointers(
            self.store,
            self.index.files,
            log.borders,
            self.limit,
            deep=self.deep,
            jobs=self.options.jobs,
            memory=self.memory,
        )
        self.versions = estimate_version(self.store, self.surveys.newest_offsets, self.options.broker_version)
        rules = holding(self.versions.releases, RELEASES)
        if self.versions.other is not None:
            rules |= {MARKED_IDS, "tag_keys"}
        self.plan = make_plan(self.store, log, self.surveys, self.index, deep=self.deep, rules=rules)
        if self.scans:
            self.plan = replace(self.plan, scanned_from=self.feed.begin)
        self.plan = replace(self.plan, settles=self.feed.new_fold is not None)
        self.cross = CrossJudge(
            self.store,
            self.surveys.queues,
            deep=self.deep,
            elsewhere=self.plan.elsewhere,
            index_begin=self.plan.index_begin,
            limit=self.limit,
            releases=self.versions.releases,
        )

    # --- log --------------------------------------------------------------------------------------

    def read_log(self) -> None:
        """Read the splits of the log, each with what points into it."""
        with closing(self._check_splits()) as results:
            for result in results:
                if self.memory is not None:
                    self.memory.take(result)
                self.log.take(result)
                self.has_all &= len(result.folds) == len(self.folds)
                for fold, part in zip(self.folds, result.folds, strict=False):
                    fold.join(part)
                result.folds = ()
                if self.cross is not None:
                    self.cross.take(result)
                if result.dispatched is not None:
                    for scan in self.scans:
                        scan.take(result.split.segment, result.dispatched, result.doubts)
                    result.dispatched = None
                elif result.fed is not None:
                    for scan in self.scans:
                        scan.take_known(result.split.segment, result.fed)
                self.reached = result.split.segment.base + result.split.end
                self.progress(result.split.end - result.split.start)
        # Without a log nothing says where the pointers should lead.
        has_log = self.splits or (self.store.given == "store" and not self.store.hides_log)
        if self.cross is not None and self.plan is not None and has_log:
            for joined in _join_outside(self.plan, self.limit):
                self.cross.take_joined(joined)
                settle(self.folds, [joined])
        if self.feed.know is not None and self.has_all:
            records = self.folds[-1]
            assert isinstance(records, RecordFold)
            self.feed.know(records, self.log.accounts, not self.log.unread)

    def _check_splits(self) -> Generator[SplitResult, None, None]:
        standard = {code.code for code in CODES if code.level in levels_up_to("standard")}
        memory = self.memory
        limits = CheckLimits(self.limit, frozenset(standard & self.options.codes), names=memory is not None)
        check = partial(check_split, limits=limits, plan=self.plan)
        if self.new_folds:
            check = partial(check, new_folds=self.new_folds)
        if memory is not None:
            memory.plan(self.plan, limits)
            check = partial(self._known_or_checked, memory, check)
        with closing(run_ordered(check, self.splits, self.options.jobs)) as results:
            yield from redo_where_borders_differ(
                results, lambda result: result.split, lambda result: result.borders, check
            )

    def _known_or_checked(self, memory: Memory, check: Callable[[Split], SplitResult], split: Split) -> SplitResult:
        """Return the result of a split: that of an earlier run, or a new one."""
        scans = [scan for scan in self.scans if self.plan is not None and split.segment.base >= scan.begin]

        def is_enough(part: FedPart | None) -> bool:
            return not scans or (part is not None and not any(scan.needs_records(part) for scan in scans))

        return memory.known(split, is_enough) or check(split)

    # --- judgement --------------------------------------------------------------------------------

    def result(self) -> VerifyResult:
        """Judge what needs the whole, and put all findings in order."""
        store, options = self.store, self.options
        found = list(self._judge())
        found += [_unread_log(store, unread) for unread in self.log.unread]
        found += list_unchecked(store, options.level)
        self.found = found
        findings = Findings(options.max_findings)
        for finding in sorted(_wanted(found, options), key=_in_file_order):
            findings.add(_with_flip(finding))
        suppressed = self.log.suppressed
        if self.cross is not None:
            suppressed = suppressed + self.cross.suppressed + self.surveys.suppressed
        findings.add_suppressed({code: number for code, number in suppressed.items() if code in options.codes})
        result = VerifyResult(
            store,
            options,
            findings,
            self.log.accounts,
            # What was not read makes the verdict incomplete, whichever codes were asked for.
            [finding.message for finding in found if finding.code == "ST-IO" or finding.covered],
            self.interrupted_at,
            log_read=options.level != "quick",
            warnings=findings.severities["warning"],
            errors=findings.severities["error"],
            versions=self.versions,
            units=sum(survey.units for survey in self.surveys.queues),
            log_end=self.log_end,
            fold=self.folds[0] if options.fold is not None else None,
            log_map=log_map(
                store,
                self.log.segments,
                self.log.damaged,
                found,
                self.log.unread,
                self.surveys.queues,
                self.index.files,
                self.interrupted_at,
            ),
        )
        if self.cross is not None:
            result.loss = self.cross.dangling.loss
            result.joined_units, result.joined_entries = self.cross.joined_units, self.cross.joined_entries
        if self.memory is not None and self.interrupted_at is None and options.level != "quick":
            result.resume = self.memory.resume(self.surveys, self.plan, options)
        return result

    def _judge(self) -> Iterator[Finding]:
        complete = self.interrupted_at is None
        log = [*self.listed, *self.log.finish(self.cross.misnamed if self.cross is not None else {})]
        summary = self.log.summary(complete=complete and not self.store.hides_log)
        self.log_end = summary.end
        if self.cross is None:
            yield from log
        else:
            yield from self.cross.finish(log, summary)
            edge_times = {key: stamp.time for key, stamp in self.cross.edge_times.items()}
            yield from before_the_log(self.store, self.surveys.queues, self.index.files, summary.last_timestamp)
            yield from survey_findings(self.surveys, edge_times)
            unread = (finding for survey in self.surveys.in_order() for finding in survey.unread)
            yield from dict.fromkeys((*self.cross.unread, *unread))
        if summary.end is not None:
            yield from check_checkpoint(
                self.store, summary.last_timestamp, summary.end_with_filler, self._queued_by_the_stop()
            )
        if self.cross is not None and self.deep and summary.end is not None:
            ends, behind = _ends(self.surveys.queues), self.cross.missing_units.behind
            yield from check_groups(self.store, ends, behind)
            yield from check_age(self.store, summary.last_timestamp)
            yield from check_refused(self.store)
            yield from check_levels(self.store, ends, behind, self._newest_of_whole_log(summary.last_timestamp))
        if self.deep and summary.end is not None:
            lasts = (account.last_timestamp for account in reversed(self.log.accounts))
            last = next((time for time in lasts if time is not None), None)
            is_step = bool(summary.time_steps) and not summary.misdated
            yield from check_clock(self.store, last, summary.last_timestamp, is_step=is_step)

    def _newest_of_whole_log(self, newest: int | None) -> int | None:
        """Return the store time (ms) of the newest record; None where the log has lost its end, and records with it."""
        if newest is None or self.cross is None or self.cross.dangling.loss:
            return None
        stored = checkpoint_time(self.store, "physic_msg_timestamp")
        return newest if stored <= newest + CHECKPOINT_SKEW_MS else None

    def _queued_by_the_stop(self) -> int | None:
        """Return the store time (ms) of the newest record with a unit, which a stop in order wrote into the checkpoint.

        None for 5.5.0: it writes the time of the last thorough flush of the queues, up to 60 s before.
        """
        if self.cross is None or self.versions is None or _WRITES_OLDER_TIME in self.versions.releases:
            return None
        return self.cross.missing_units.last_timestamp


def splits_to_read(store: Store, level: str) -> list[Split]:
    """Return the parts of the log that a level reads."""
    return plan_splits(segments_for_quick(store) if level == "quick" else store.log_files, SPLIT_SIZE)


def _has_pointers(store: Store) -> bool:
    """Whether anything that points into the log was given, or should be there."""
    wraps = any(segment.kind == "dledger" for segment in store.segments)
    more = store.given == "store" or len(store.files) > len(store.segments)
    return wraps or bool(store.queue_files) or more


def _join_outside(plan: CrossPlan, limit: int) -> Iterator[Joined]:
    """Yield what points into no split: into holes, and behind the last segment."""
    no_records, nothing = Dispatcher(keys=True).columns([]), LogRanges.of([], [], 0)
    for number in plan.log.outside:
        for kind, join in JOINS.items():
            for runs in plan.runs[kind].cut(number, _ROWS):
                yield join(no_records, replace(plan, runs={kind: runs}), number, nothing, limit)


def _ends(surveys: Iterable[QueueSurvey]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (first offset, offset behind the last) of each queue."""
    return {survey.name: (survey.first_kept, _ANY_OFFSET if survey.unread else survey.max_offset) for survey in surveys}


# --- findings ---------------------------------------------------------------------------------------


def _wanted(findings: Iterable[Finding], options: VerifyOptions) -> Iterator[Finding]:
    return (finding for finding in findings if finding.code in options.codes)


def _in_file_order(finding: Finding) -> tuple[int, int, str, str, int]:
    """The log first, by physical offset; then the store's other files by name."""
    in_log = finding.code.startswith("CL-") or finding.code in OF_RECORDS
    place = (finding.physical_offset or 0) if in_log else 0
    return (0 if in_log else 1, place, finding.file or "", finding.code, finding.offset or 0)


def _with_flip(finding: Finding) -> Finding:
    """Append the flipped bit to the message if found and expected value differ in one bit."""
    width = FIELD_BITS.get(finding.code)
    if width is None or finding.count > 1 or finding.expected is None or finding.found is None:
        return finding
    try:
        why = explain_difference(int(finding.expected), int(finding.found), width)
    except ValueError:
        return finding
    return replace(finding, message=f"{finding.message}; {why}") if why else finding


def _unread_log(store: Store, unread: Unread) -> Finding:
    return Finding(
        "ST-IO",
        f"{unread.message}; {count(unread.end - unread.start, 'byte')} not read",
        length=unread.end - unread.start,
        **place_in_log(store, unread.start),
    )


def can_verify(store: Store) -> bool:
    """Return whether a store, or a part of one, contains a file that verify judges by itself."""
    files = (store.segments, store.queue_files, store.index_files, store.config_files, store.of_kind("timer_log"))
    return store.given == "store" or any(files)


def nothing_judged(store: Store, options: VerifyOptions) -> VerifyResult:
    """Return the result of a run that is interrupted before its first check."""
    return VerifyResult(store, options, Findings(options.max_findings), interrupted_at=store.log_start)


def quick_part(store: Store, options: VerifyOptions) -> tuple[VerifyResult, bool]:
    """Run the checks of level quick; return their result, and whether Ctrl-C ended them.

    For the level that was asked for it is a partial result: no part of the log is accounted for.
    """
    quick = verify(store, replace(options, level="quick", memory=None, fold=None))
    return replace(
        quick, options=options, interrupted_at=store.log_start, accounts=[], log_map=None
    ), quick.interrupted_at is not None


def verify_and_forecast(
    store: Store,
    options: VerifyOptions,
    quick_done: Callable[[list[Finding]], None] = lambda findings: None,
    progress: Callable[[int], None] = lambda size: None,
) -> VerifyResult:
    """Check a store and forecast its next start, which takes the records that the checks have read.

    Level quick does not count what a start loses. An interrupted run has no forecast.
    """
    if not is_told(store):
        return verify(store, options, quick_done, progress)
    counts = options.level != "quick"
    # Of a long log the other choices read much again: `forecast` has them.
    request = ForecastRequest(
        options.broker_version,
        count_losses=counts,
        jobs=options.jobs,
        instead=options.instead and counts,
        instead_if_judged=counts,
    )
    start = Forecaster(store, request)
    result = verify(store, options, quick_done, progress, start.feed)
    return result if result.interrupted_at is not None else replace(result, next_start=start.finish())


def verify_after(before: VerifyResult, progress: Callable[[int], None]) -> VerifyResult:
    """Run all checks; return their result, or `before` with the listed findings if Ctrl-C loses the new one."""
    listed: list[Finding] = []
    try:
        return verify_and_forecast(before.store, before.options, listed.extend, progress)
    except KeyboardInterrupt:
        return _with_listed(before, listed)


def _with_listed(before: VerifyResult, listed: list[Finding]) -> VerifyResult:
    """Add the findings of names, sizes and lock, unless the quick part has found them already."""
    if before.findings.rows:
        return before
    findings = Findings(before.options.max_findings)
    for finding in listed:
        findings.add(finding)
    return replace(
        before,
        findings=findings,
        warnings=findings.severities["warning"],
        errors=findings.severities["error"],
    )


def interrupted(result: VerifyResult) -> VerifyResult:
    """Return a result as that of an interrupted run; one that had read the log keeps all it found."""
    return result if result.interrupted_at is not None else replace(result, interrupted_at=log_end(result.store))


def with_custody(result: VerifyResult, custody: Custody) -> VerifyResult:
    """Return a result with what could not be read for the digests, and what changed during the run."""
    unread = [*result.unread, *(line for line in custody.unread if line not in result.unread)]
    changed = [f"{change.file}: changed while it was read: {change.what}" for change in custody.changed]
    return replace(result, unread=[*unread, *changed])

"""All checks of a level on one store, one outcome."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from rmqinspect.broker.dispatch import Dispatcher, holding
from rmqinspect.broker.version_estimate import RELEASES, VersionEstimate, assume_writer
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.lenient_reader import Unread
from rmqinspect.commitlog.scan import redo_where_borders_differ
from rmqinspect.commitlog.splits import Split, plan_splits
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.config.json_files import read_config
from rmqinspect.consumequeue.rocksdb import UNPACKED
from rmqinspect.damage.flips import explain_difference
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, read_index_files
from rmqinspect.store.model import Store
from rmqinspect.system import uri
from rmqinspect.system.workers import run_ordered
from rmqinspect.text import count
from rmqinspect.verify.codes import CODES, levels_up_to
from rmqinspect.verify.commitlog.split import CheckLimits, SplitResult, check_split
from rmqinspect.verify.commitlog.whole_log import LogJudge
from rmqinspect.verify.config.files import check_configs
from rmqinspect.verify.config.groups import check_groups
from rmqinspect.verify.consumequeue.ext import ExtSurvey
from rmqinspect.verify.consumequeue.join import join_units
from rmqinspect.verify.consumequeue.survey import QueueSurvey, check_sizes, retention_findings
from rmqinspect.verify.cross_check import CrossJudge, Loss
from rmqinspect.verify.dangling import LogRanges
from rmqinspect.verify.files import check_checkpoint, check_files, list_unchecked, segments_for_quick
from rmqinspect.verify.findings import Finding, Findings
from rmqinspect.verify.index.header import check_index_headers
from rmqinspect.verify.index.join import join_entries
from rmqinspect.verify.index.survey import IndexSurvey, check_header_times, check_index_sizes
from rmqinspect.verify.plan import CrossPlan, map_log
from rmqinspect.verify.survey import SurveyLimits, make_plan, run_survey, survey_tasks
from rmqinspect.verify.timer.join import join_timer
from rmqinspect.verify.timer.survey import TimerSurvey

_PRELOAD = "rmqinspect.verify.commitlog.split"
# Findings about records that are told with the log, in its order.
_OF_RECORDS = frozenset({"CQ-MISSING", "CQ-BEHIND", "IX-MISSING"})

# Findings whose expected and found values are one field of so many bits.
_FIELD_WIDTHS = {
    "CQ-DANGLING": 64,
    "CQ-BEYOND": 64,
    "CQ-MISMATCH": 32,
    "CQ-TAG": 64,
    "BQ-COUNT": 64,
    "CL-QUEUE-OFFSET": 64,
}

_ROWS = 1 << 16  # pointers outside of all splits that are judged at a time
_KEPT = 1000  # rows of a code at least that a process keeps
_ANY_OFFSET = 2**63 - 1  # the end of a queue that could not be read

# Large enough that looking back at its start is nothing, small enough that all processes end together.
SPLIT_SIZE = 64 << 20
# All that points into a split is held beside it, so splits are smaller then; unless each of many
# queues has a few units only in each split, and reading these is what costs.
_SMALLER, _MANY_QUEUES = 4, 2000
# Below this a second process costs more than it brings.
WORTH_PROCESSES = 128 << 20


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What is asked of verify."""

    level: str = "standard"
    codes: frozenset[str] = frozenset(code.code for code in CODES)
    max_findings: int = 1000  # rows per code; counts stay exact
    jobs: int = 1
    broker_version: str | None = None  # a release of writer.RELEASES; None: estimated from content
    unread: str = ""  # what of queues that live in RocksDB could not be unpacked, and why


@dataclass(slots=True)
class VerifyResult:
    """What verify found. `findings` are in file order, the same for any number of processes."""

    store: Store
    options: VerifyOptions
    findings: Findings
    accounts: list[ByteAccount] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # one line each
    interrupted_at: int | None = None  # physical offset up to which the log was read
    log_read: bool = True  # False when the level reads only the end of the log
    warnings: int = 0
    errors: int = 0  # damage; what could not be read is in `unread`
    writer: VersionEstimate | None = None  # whose rules were applied; None at level quick
    loss: Loss = field(default_factory=Loss)  # what is known of and not in the log
    joined_units: int = 0  # queue units that lead to their record
    joined_entries: int = 0  # index entries that lead to a record with their key
    units: int = 0  # of messages, in all queues

    @property
    def complete(self) -> bool:
        """Whether everything the level asks for was read."""
        return not self.unread and self.interrupted_at is None

    @property
    def verdict(self) -> str:
        """WHOLE, `WHOLE, n WARNINGS` or DAMAGED, then `, INCOMPLETE` where it holds."""
        if self.errors:
            words = "DAMAGED"
        elif self.warnings:
            words = f"WHOLE, {self.warnings} WARNING{'S' if self.warnings > 1 else ''}"
        else:
            words = "WHOLE"
        return words if self.complete else words + ", INCOMPLETE"


def verify(
    store: Store,
    options: VerifyOptions,
    quick_done: Callable[[list[Finding]], None] = lambda findings: None,
    progress: Callable[[int], None] = lambda size: None,
) -> VerifyResult:
    """Check a store at a level, reading only.

    `quick_done` is told what names, sizes and lock show, before the log is read; `progress` is
    told how many more bytes of log were read. Ctrl-C ends the reading, not the outcome.
    """
    run = VerifyRun(store, options, progress)
    quick_done(run.quick())
    try:
        run.survey()
        run.read_log()
    except KeyboardInterrupt:
        run.interrupt()
    return run.outcome()


class VerifyRun:
    """One run over a store: quick part, surveys, log, and what follows from all of them."""

    def __init__(self, store: Store, options: VerifyOptions, progress: Callable[[int], None]) -> None:
        self.store, self.options, self.progress = store, options, progress
        self.splits = splits_to_read(store, options.level)
        # How many rows are shown says nothing about what they are: enough are kept to judge.
        self.limit = max(options.max_findings, _KEPT)
        self.judge = LogJudge(store, self.limit)
        self.writer: VersionEstimate | None = None
        self.listed: list[Finding] = []
        self.surveys: list[QueueSurvey] = []
        self.index: list[tuple[IndexFile, IndexSurvey]] = []
        self.ext: ExtSurvey | None = None
        self.timer: TimerSurvey | None = None
        self.cross: CrossJudge | None = None
        self.plan: CrossPlan | None = None
        self.reached = store.log_start
        self.interrupted_at: int | None = None

    def quick(self) -> list[Finding]:
        """Judge names, sizes, headers, configuration and lock."""
        self.listed = [*check_files(self.store), *check_sizes(self.store), *check_configs(self.store)]
        self.listed += check_index_sizes(self.store)
        if self.options.unread:
            self.listed.append(Finding("ST-IO", self.options.unread, file="consumequeue"))
        if self.options.level != "deep":
            self.listed += check_index_headers(self.store)
        return list(_wanted(self.listed, self.options))

    def survey(self) -> None:
        """Read what points into the log, each file by itself."""
        if self.options.level == "quick":
            return
        deep = self.options.level == "deep"
        wraps = any(segment.kind == "dledger" for segment in self.store.segments)
        more = self.store.place == "store" or len(self.store.files) > len(self.store.segments)
        if not (wraps or self.store.queue_files or (deep and more)):
            return  # nothing but a log
        index_files = read_index_files(self.store, []) if deep else []  # what cannot be read was told
        unread = {oddity.place[:1] for oddity in self.store.oddities if oddity.is_unread}
        tasks = survey_tasks(self.store, index_files, timer=deep and ("timerlog",) not in unread)
        log = map_log(self.splits)
        limits = SurveyLimits(log.borders, self.store.log_start, self.limit)
        size = sum(file.size for file in (*self.store.queue_files, *self.store.index_files))
        jobs = self.options.jobs if size > WORTH_PROCESSES and len(tasks) > 1 else 1
        with closing(run_ordered(partial(run_survey, limits=limits), tasks, jobs, preload=_PRELOAD)) as results:
            for task, result in zip(tasks, results, strict=True):
                self.surveys += result.queues
                if task.index is not None and result.index is not None:
                    self.index.append((task.index, result.index))
                self.ext, self.timer = result.ext or self.ext, result.timer or self.timer
        hints = [survey.last_physical_offset for survey in self.surveys if survey.last_physical_offset is not None]
        self.writer = assume_writer(self.store, hints, self.options.broker_version)
        unpacked = any(UNPACKED in file.name for file in self.store.queue_files)
        rules = holding(self.writer.releases, RELEASES)
        self.plan = make_plan(
            self.store,
            log,
            self.surveys,
            self.index,
            self.timer,
            deep=deep,
            rules=rules,
            unread=_unread_places(self.store),
            rocksdb=unpacked,
        )
        self.cross = CrossJudge(
            self.store,
            self.surveys,
            unclean=bool(self.store.of_kind("abort")),
            dispatched_to=_dispatched_to(self.store),
            topics=_known_topics(self.store),
            deep=deep,
            whole_log=not _is_loose(self.store),
            elsewhere=self.plan.elsewhere,
            limit=self.limit,
        )

    def read_log(self) -> None:
        """Read the splits of the log, each with what points into it."""
        with closing(self._check_splits()) as results:
            for result in results:
                self.judge.take(result)
                if self.cross is not None:
                    self.cross.take(result.units, result.entries, result.timer, result.chain)
                self.reached = result.split.segment.base + result.split.end
                self.progress(result.split.end - result.split.start)
        if self.cross is not None and self.plan is not None and (self.splits or self.store.place == "store"):
            self._outside(self.plan, self.cross)

    def _outside(self, plan: CrossPlan, cross: CrossJudge) -> None:
        """Take what points into no split: into holes, and behind the last segment."""
        nothing, dangling = Dispatcher(keys=True).columns([]), LogRanges.of([], [], 0)
        for number in plan.log.outside:
            for runs in plan.queue_runs.pieces(number, _ROWS):
                some = replace(plan, queue_runs=runs)
                cross.take(join_units(nothing, some, number, dangling, self.limit), None)
            for runs in plan.index_runs.pieces(number, _ROWS):
                some = replace(plan, index_runs=runs)
                cross.take(None, join_entries(nothing, some, number, dangling, ("", 0), self.limit))
            for runs in plan.timer_runs.pieces(number, _ROWS):
                some = replace(plan, timer_runs=runs)
                cross.take(None, None, join_timer(nothing, some, number, dangling, self.limit))

    def _check_splits(self) -> Generator[SplitResult, None, None]:
        looked_for = {code.code for code in CODES if code.level in levels_up_to("standard")}
        limits = CheckLimits(self.limit, frozenset(looked_for & self.options.codes))
        check = partial(check_split, limits=limits, plan=self.plan)
        size = sum(split.end - split.start for split in self.splits)
        jobs = self.options.jobs if size > WORTH_PROCESSES else 1
        with closing(run_ordered(check, self.splits, jobs, preload=_PRELOAD)) as results:
            yield from redo_where_borders_differ(
                results, lambda result: result.split, lambda result: result.borders, check
            )

    def interrupt(self) -> None:
        """Note how far the log was read when Ctrl-C came."""
        self.interrupted_at = self.reached

    # --- what follows -----------------------------------------------------------------------------

    def outcome(self) -> VerifyResult:
        """Judge what needs the whole, and put all findings in order."""
        store, options, judge = self.store, self.options, self.judge
        found = list(self._judge_all())
        found += [_unread_finding(store, unread) for unread in judge.unread]
        found += list_unchecked(store, options.level)
        outcome = VerifyResult(
            store,
            options,
            Findings(options.max_findings),
            judge.accounts,
            interrupted_at=self.interrupted_at,
            writer=self.writer,
        )
        for finding in sorted(_wanted(found, options), key=_in_file_order):
            outcome.findings.add(_with_flip(finding))
        suppressed = judge.suppressed + self.cross.suppressed if self.cross is not None else judge.suppressed
        outcome.findings.add_suppressed({code: number for code, number in suppressed.items() if code in options.codes})
        if self.cross is not None:
            outcome.loss = self.cross.loss
            outcome.units = sum(survey.units for survey in self.surveys)
            outcome.joined_units, outcome.joined_entries = self.cross.joined_units, self.cross.joined_entries
        # What was not read makes the verdict incomplete, whichever findings were asked for.
        unread = {id(finding): finding.message for finding in found if finding.code == "ST-IO"}
        outcome.unread = list(unread.values())
        outcome.warnings = outcome.findings.severities.get("warning", 0)
        outcome.errors = outcome.findings.severities.get("error", 0) - outcome.findings.counts.get("ST-IO", 0)
        outcome.log_read = options.level != "quick"
        return outcome

    def _judge_all(self) -> Iterator[Finding]:
        store, judge, complete = self.store, self.judge, self.interrupted_at is None
        log = [*self.listed, *judge.finish()]
        ends = [account.end for account in judge.accounts if account.end is not None]
        end = max(ends, default=store.log_start)
        # The newest record may lie in what was not read.
        sees_end = complete and not any(unread.end > end for unread in judge.unread)
        if self.cross is not None:
            dark = judge.dark_ranges()
            yield from self.cross.finish(log, end if sees_end else None, judge.last_timestamp, dark, judge.restarts)
            yield from retention_findings(self.surveys, store.log_start)
            for survey in self.surveys:
                self.cross.unread += survey.unread
            for number, (file, index) in enumerate(self.index):
                used, times = index.used_entries, self.cross.edge_times
                newest = [times[number, at] for at in (used - 1, used) if (number, at) in times]
                if file.entries <= used:  # else the newest ones were cut off
                    yield from check_header_times(file, index, times.get((number, 1)), newest)
                yield from _unknown_geometry(file)
            if self.ext is not None:
                yield from self.ext.findings
                self.cross.unread += self.ext.unread
            sides: list[IndexSurvey | TimerSurvey] = [survey for _, survey in self.index]
            sides += [self.timer] if self.timer is not None else []
            for one in sides:
                yield from one.findings
                self.cross.suppressed.update(one.suppressed)
                self.cross.unread += one.unread
            yield from dict.fromkeys(self.cross.unread)
        else:
            yield from log
        if sees_end:
            # A blank record behind the last one belongs to the log.
            fillers = (gap.end for account in judge.accounts for gap in account.gaps if gap.kind == "filler")
            yield from check_checkpoint(store, judge.last_timestamp, max([end, *fillers]))
        if self.cross is not None and self.options.level == "deep" and complete:
            ends_of = {
                survey.name: (survey.min_offset, _ANY_OFFSET if survey.unread else survey.max_offset)
                for survey in self.surveys
            }
            yield from check_groups(store, ends_of, self.cross.behind)


def splits_to_read(store: Store, level: str) -> list[Split]:
    """Return the parts of the log that a level reads."""
    size = SPLIT_SIZE
    if level != "quick" and 0 < len(store.queue_files) < _MANY_QUEUES:
        size //= _SMALLER
    return plan_splits(segments_for_quick(store) if level == "quick" else store.segments, size)


def _wanted(findings: Iterable[Finding], options: VerifyOptions) -> Iterator[Finding]:
    return (finding for finding in findings if finding.code in options.codes)


def _in_file_order(finding: Finding) -> tuple[int, int, str, str, int]:
    """The log first, by physical offset; then the store's other files by name."""
    in_log = finding.code.startswith("CL-") or finding.code in _OF_RECORDS
    place = (finding.physical_offset or 0) if in_log else 0
    return (0 if in_log else 1, place, finding.file or "", finding.code, finding.offset or 0)


def _unread_places(store: Store) -> frozenset[tuple[str, ...]]:
    """Return the folders of queues of which the system did not say what is in them."""
    places = (oddity.place for oddity in store.oddities if oddity.is_unread)
    return frozenset(place for place in places if place and "consumequeue" in place[0])


def _is_loose(store: Store) -> bool:
    """Whether segments were given one by one: what lies before and behind them was not."""
    paths = {uri.realpath(path) for path in store.paths}
    return any(segment.path in paths for segment in store.segments)


def _known_topics(store: Store) -> frozenset[str] | None:
    """Return the topics that the broker knows, None where that cannot be known.

    Where the configuration is in RocksDB, which is not read, no topic is known to be there: one without
    a unit may have been deleted.
    """
    topics = read_config(store, "topics.json")
    if topics is not None and topics.source:
        return frozenset(topics.table("topicConfigTable"))
    return frozenset() if any(file.name.startswith("config") for file in store.of_kind("rocksdb")) else None


def _dispatched_to(store: Store) -> int:
    """Return the store time of the newest record that the checkpoint knows in the queues; 0 if it does not say."""
    try:
        return read_checkpoint(store).get("logics_msg_timestamp", 0)
    except Unreadable:
        return 0


def _with_flip(finding: Finding) -> Finding:
    """Say so where what is found differs from what was expected in one bit of its field."""
    width = _FIELD_WIDTHS.get(finding.code)
    if width is None or finding.count > 1 or finding.expected is None or finding.found is None:
        return finding
    try:
        why = explain_difference(int(finding.expected), int(finding.found), width)
    except ValueError:
        return finding
    return replace(finding, message=f"{finding.message}; {why}") if why else finding


def _unknown_geometry(index: IndexFile) -> Iterator[Finding]:
    """Yield ST-UNCHECKED for an index file in use whose numbers of slots and entries are not to be known."""
    if index.geometry is None and index.header is not None and index.entries:
        yield Finding(
            "ST-UNCHECKED",
            "not checked: entries of an index file whose numbers of slots and entries do not show; "
            "--config names maxHashSlotNum and maxIndexNum",
            file=index.file.name,
            length=index.file.size,
        )


def _unread_finding(store: Store, unread: Unread) -> Finding:
    segment = store.segment_at(unread.start)
    return Finding(
        "ST-IO",
        f"{unread.message}; {count(unread.end - unread.start, 'byte')} not read",
        file=segment.name if segment else None,
        offset=unread.start - segment.base if segment else None,
        length=unread.end - unread.start,
        physical_offset=unread.start,
    )

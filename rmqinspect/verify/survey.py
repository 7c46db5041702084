"""The second phase of verify: every queue, index and timer file by itself, and which split each row points into.

Tasks are small, so that all threads end together; results come in the order of the tasks.

The plan of the third phase: what a thread needs to check a split of the log with all that points into it.

    offsets of the log   0 ........ 64M ....... 128M    (hole)    256M ...
    split                |  split 0  |  split 1  |               | split 2 |
    number               |     0     |     1     |       2       |    3    |  4
                                                   no split: `outside`

Every offset has one number, so each pointer is judged once. Made from the surveys; all threads read the same one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.splits import Split
from rmqinspect.consumequeue.bounds import queue_files_of
from rmqinspect.index.geometry import IndexFile
from rmqinspect.rocksdb.databases import QUEUES, unread_databases
from rmqinspect.rocksdb.entries import timer_units_file
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import QueueFile, Store, StoreFile
from rmqinspect.system.workers import run_ordered
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.consumequeue.survey import ExtSurvey, QueueSurvey, survey_ext, survey_queue
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.index.header import IndexFiles
from rmqinspect.verify.index.survey import IndexSurvey, check_header_times, survey_index
from rmqinspect.verify.pointers import Run
from rmqinspect.verify.timer.survey import TimerFiles, TimerSurvey, survey_timer

QueueName = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of many files, ascending by split."""

    rows: Ints  # shape (n, 4): split, number of the file, first row, rows

    @classmethod
    def of(cls, runs: Iterable[tuple[int, Run]]) -> "Runs":
        """Return runs that come with the number of their file, sorted."""
        rows = np.array([(run.split, file, run.first, run.rows) for file, run in runs], np.int64).reshape(-1, 4)
        return cls(rows[np.argsort(rows[:, 0], kind="stable")])

    @classmethod
    def joined(cls, parts: Iterable["Runs"]) -> "Runs":
        """Return the runs of all parts; files have the same numbers in each."""
        rows = np.concatenate([NO_RUNS.rows, *(part.rows for part in parts)])
        return cls(rows[np.argsort(rows[:, 0], kind="stable")])

    def of_split(self, number: int) -> list[tuple[int, int, int]]:
        """Return (file, first row, rows) of the runs that point into a split."""
        begin, end = np.searchsorted(self.rows[:, 0], (number, number + 1)).tolist()
        return [(file, first, count) for _, file, first, count in self.rows[begin:end].tolist()]

    def cut(self, number: int, rows: int) -> Iterator["Runs"]:
        """Yield the runs of a split one by one, cut to at most `rows` rows each."""
        for file, first, count in self.of_split(number):
            for start in range(0, count, rows):
                yield Runs(np.array([[number, file, first + start, min(rows, count - start)]], np.int64))


NO_RUNS = Runs(np.empty((0, 4), np.int64))


@dataclass(frozen=True)
class LogMap:
    """A number for every offset of the log: splits, and what lies between and behind them."""

    borders: tuple[int, ...] = (0,)  # physical offsets, ascending: number n begins at border n
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)  # of splits, by (path of segment, start)
    outside: tuple[int, ...] = (0,)  # numbers that are no split


def map_log(splits: Sequence[Split]) -> LogMap:
    """Give each offset to one split; where segments overlap or have the same base, to the later one.

    A record of a DLedger segment belongs to the split in which its entry begins.
    """
    borders: list[int] = []
    numbers: dict[tuple[str, int], int] = {}
    outside: list[int] = []
    reached: int | None = None
    for number, split in enumerate(splits):
        segment = split.segment
        lead = segment.lead
        start = segment.base + split.start + (lead if split.start else 0)
        end = segment.base + split.end + (lead if split.end < segment.size else 0)
        following = next((s.segment.base for s in splits[number + 1 :] if s.segment is not segment), None)
        if following is not None and following <= start:
            continue
        if reached is not None and reached < start:
            outside.append(len(borders))
            borders.append(reached)
        numbers[segment.path, split.start] = len(borders)
        borders.append(start)
        reached = end if following is None else min(end, following)
    outside.append(len(borders))
    borders.append(reached or 0)
    return LogMap(tuple(borders), numbers, tuple(outside))


class QueueNumbers(NamedTuple):
    """One number for each queue that has files, and columns by number of the file."""

    names: list[QueueName]  # in the order of the files
    number_of: dict[QueueName, int]
    of_file: Ints
    first_offset: Ints  # queue offset of the file's first unit; batch units hold theirs
    scheduled: Ints  # 1: units hold times of delivery in place of tags codes


@dataclass(frozen=True)
class CrossPlan:
    """What points into the log, by split, and which rules apply."""

    log: LogMap
    deep: bool = False  # check also that each record has its unit and its index entries
    queue_files: tuple[QueueFile, ...] = ()
    queue_runs: Runs = NO_RUNS
    unread: frozenset[QueueName] = frozenset()  # queues that could not be read in full
    unread_topics: frozenset[str] = frozenset()  # whose folder could not be listed in full
    whole: bool = False  # all queues of the store were given: an absent one is lost
    ext_files: Mapping[QueueName, Sequence[QueueFile]] = field(default_factory=dict)
    hidden_ext: frozenset[QueueName] = frozenset()  # queues whose ext files were not all listed and opened
    may_hold: frozenset[str] = frozenset()  # of dispatch.DIFFERENCES: what the assumed releases may have done
    elsewhere: bool = False  # units may be in RocksDB alone, which was not read
    index: tuple[IndexFile, ...] = ()
    index_runs: Runs = NO_RUNS
    index_range: tuple[int, int] | None = None  # physical offsets of the first and the last entry
    index_begin: int | None = None  # physical offset of the first entry; None: older keys are not judged
    index_end: int | None = None  # physical offset of the last entry, -1 without files; None: newer keys are not judged
    index_complete: bool = True  # all index files could be read
    index_used: tuple[int, ...] = ()  # by index file: number of the newest entry
    timed: tuple[bool, ...] = ()  # by index file: its header's begin time can be trusted
    timer_files: tuple[StoreFile, ...] = ()
    timer_runs: Runs = NO_RUNS
    entry_index: tuple[StoreFile, ...] = ()  # the index of DLedger entries
    scanned_from: int | None = None  # physical offset from which a start scans the log, and takes what is read here

    @cached_property
    def queues(self) -> QueueNumbers:
        """Number the queues of the files."""
        names = [(file.topic, file.queue_id) for file in self.queue_files]
        unique = list(dict.fromkeys(names))
        number_of = {name: number for number, name in enumerate(unique)}
        return QueueNumbers(
            unique,
            number_of,
            np.array([number_of[name] for name in names], np.int64),
            np.array([file.base // QueueUnit.sizeof() for file in self.queue_files], np.int64),
            np.array([topic == SCHEDULE_TOPIC for topic, _ in names], np.int64),
        )

    @property
    def by_recovery(self) -> bool:
        """Whether a recovery may have given delayed messages the hash of their tags."""
        return "plain_schedule_tags" in self.may_hold

    def is_unread(self, name: QueueName) -> bool:
        """Whether a queue may have units that could not be read."""
        return name in self.unread or name[0] in self.unread_topics

    @property
    def needs_records(self) -> bool:
        """Whether anything points into the log, or something should."""
        pointers = self.queue_files or self.index_range is not None or self.timer_files
        return bool(pointers) or self.whole

    def number_of(self, split: Split) -> int | None:
        """Return the number of a split; None if later splits have all its offsets."""
        return self.log.numbers.get((split.segment.path, split.start))

    def range_of(self, number: int) -> tuple[int, int]:
        """Return the physical offsets [low, high) of a number."""
        borders = self.log.borders
        return borders[number], borders[number + 1] if number + 1 < len(borders) else 1 << 63


# A task ends at so many bytes of queue files, or so many queues: in a store of many queues most files are nearly empty.
_TASK_SIZE = 64 << 20
_TASK_QUEUES = 200


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Some queues, all ext files, one index file, or the timer files of a store."""

    queues: tuple[tuple[QueueFile, ...], ...] = ()
    ext: tuple[QueueFile, ...] = ()
    index: IndexFile | None = None
    timer: TimerFiles | None = None


@dataclass(slots=True)
class SurveyResult:
    """Results of a task."""

    queues: list[QueueSurvey] = field(default_factory=list)
    ext: ExtSurvey | None = None
    index: IndexSurvey | None = None
    timer: TimerSurvey | None = None


@dataclass(frozen=True, slots=True)
class SurveyLimits:
    """The borders of the log's splits, and how many findings of a code a survey keeps."""

    borders: tuple[int, ...]  # physical offsets where splits begin
    log_start: int
    per_code: int


@dataclass(slots=True)
class Surveys:
    """Results of all files that point into the log."""

    queues: list[QueueSurvey] = field(default_factory=list)
    index: list[tuple[IndexFile, IndexSurvey]] = field(default_factory=list)
    ext: ExtSurvey | None = None
    timer: TimerSurvey | None = None

    @property
    def newest_offsets(self) -> list[int]:
        """Physical offsets that the newest units of the queues point at: near the end of the log."""
        return [queue.last_physical_offset for queue in self.queues if queue.last_physical_offset is not None]

    @property
    def unread(self) -> list[Finding]:
        """ST-IO: what could not be read."""
        surveys = [*self.queues, self.ext, *(survey for _, survey in self.index), self.timer]
        return [finding for survey in surveys if survey is not None for finding in survey.unread]

    @property
    def suppressed(self) -> Counter[str]:
        """Findings by code of index and timer files of which no row was kept."""
        surveys = [*(survey for _, survey in self.index), self.timer]
        return sum((survey.suppressed for survey in surveys if survey is not None), Counter[str]())


def survey_pointers(
    store: Store, index_files: Iterable[IndexFile], limits: SurveyLimits, *, deep: bool, jobs: int
) -> Surveys:
    """Read every file that points into the log, in up to `jobs` threads; index and timer files only if `deep`."""
    unread = {oddity.place[:1] for oddity in store.oddities if oddity.is_unread}
    tasks = survey_tasks(store, index_files if deep else (), timer=deep and ("timerlog",) not in unread)
    surveys = Surveys()
    survey = partial(run_survey, limits=limits)
    with closing(run_ordered(survey, tasks, jobs)) as results:
        for task, result in zip(tasks, results, strict=True):
            surveys.queues += result.queues
            if task.index is not None and result.index is not None:
                surveys.index.append((task.index, result.index))
            surveys.ext, surveys.timer = result.ext or surveys.ext, result.timer or surveys.timer
    return surveys


def survey_findings(surveys: Surveys, edge_times: Mapping[tuple[int, int], int]) -> Iterator[Finding]:
    """Yield the findings of the surveys but those of single queues, which are judged with their units.

    `edge_times`: store time in ms of the records of an index file's first and newest entries, by (number of the
    file, entry).
    """
    for number, (file, survey) in enumerate(surveys.index):
        used = survey.used_entries
        if file.entries <= used:  # else the newest ones were cut off
            newest = [edge_times[number, at] for at in (used - 1, used) if (number, at) in edge_times]
            yield from check_header_times(file, survey, edge_times.get((number, 1)), newest)
        yield from _unknown_geometry(file)
    if surveys.ext is not None:
        yield from surveys.ext.findings
    for _, survey in surveys.index:
        yield from survey.findings
    if surveys.timer is not None:
        yield from surveys.timer.findings


def _unknown_geometry(index: IndexFile) -> Iterator[Finding]:
    """Yield ST-UNCHECKED for an index file in use whose numbers of slots and entries are not known."""
    if index.geometry is None and index.header is not None and index.entries:
        subject = (
            "entries of an index file with unknown numbers of slots and entries; "
            "--config names maxHashSlotNum and maxIndexNum"
        )
        yield Finding(
            "ST-UNCHECKED",
            f"not checked: {subject}",
            file=index.file.name,
            length=index.file.size,
            unchecked=subject,
            covered=True,
        )


def survey_tasks(store: Store, index_files: Iterable[IndexFile], *, timer: bool) -> list[SurveyTask]:
    """Cut the work into tasks, index files first: one may take long."""
    tasks = [SurveyTask(index=index) for index in index_files]
    in_files = any(file.kind in ("timer_log", "timer_wheel") for file in store.files)
    if timer and (in_files or timer_units_file(store) is not None):
        tasks.append(SurveyTask(timer=TimerFiles.of(store)))
    if ext := tuple(file for file in store.queue_files if file.kind == "ext_queue"):
        tasks.append(SurveyTask(ext=ext))
    some: list[tuple[QueueFile, ...]] = []
    size = 0
    for files in queue_files_of(store):
        some.append(files)
        size += sum(file.size for file in files)
        if size >= _TASK_SIZE or len(some) >= _TASK_QUEUES:
            tasks.append(SurveyTask(tuple(some)))
            some, size = [], 0
    return [*tasks, SurveyTask(tuple(some))] if some else tasks


def run_survey(task: SurveyTask, limits: SurveyLimits) -> SurveyResult:
    """Survey the files of a task, in any thread."""
    borders = np.array(limits.borders, np.int64)
    result = SurveyResult()
    for files in task.queues:
        result.queues.append(survey_queue(files, borders, limits.log_start, limits.per_code))
    if task.index is not None:
        result.index = survey_index(task.index, borders, limits.per_code)
    if task.ext:
        result.ext = survey_ext(task.ext)
    if task.timer is not None:
        result.timer = survey_timer(task.timer, borders, limits.per_code)
    return result


def make_plan(
    store: Store, log: LogMap, surveys: Surveys, index_files: IndexFiles, *, deep: bool, rules: frozenset[str]
) -> CrossPlan:
    """Return what each split has to be checked against.

    `rules`: which of `dispatch.DIFFERENCES` may hold. Without surveys nothing points into the log.
    """
    rocksdb = _rocksdb_queues(store)
    timer = surveys.timer
    index_begin, index_end = index_files.reach
    queue_files, queue_runs = _number_queue_files(store, surveys.queues)
    return CrossPlan(
        log=log,
        deep=deep,
        queue_files=queue_files,
        queue_runs=queue_runs,
        unread=frozenset(survey.name for survey in surveys.queues if survey.unread),
        unread_topics=frozenset(place[1] for place in _unread_folders(store) if len(place) > 1),
        whole=_has_all_queues(store, rocksdb),
        ext_files=_by_queue(file for file in store.queue_files if file.kind == "ext_queue"),
        hidden_ext=frozenset(
            s.name for s in surveys.queues if store.hides("consumequeue_ext", s.topic, str(s.queue_id))
        ),
        may_hold=rules,
        elsewhere=rocksdb == "unread",
        index=tuple(file for file, _ in surveys.index),
        index_runs=Runs.of((n, run) for n, (_, survey) in enumerate(surveys.index) for run in survey.runs),
        index_range=_covered(survey for _, survey in surveys.index) if deep else None,
        index_begin=index_begin,
        index_end=index_end,
        index_complete=_has_all_entries(store, surveys),
        index_used=tuple(survey.used_entries for _, survey in surveys.index),
        timed=tuple(not survey.times_reported for _, survey in surveys.index),
        timer_files=timer.files if timer is not None else (),
        timer_runs=Runs.of(timer.runs if timer is not None else ()),
        entry_index=tuple(store.of_kind("dledger_index")),
    )


def _number_queue_files(store: Store, surveys: Iterable[QueueSurvey]) -> tuple[tuple[QueueFile, ...], Runs]:
    """Return the files of all queues, and the runs of the surveys with the numbers of these files."""
    files: list[QueueFile] = []
    runs: list[Runs] = []
    for survey, queue in zip(surveys, queue_files_of(store), strict=True):
        runs.append(Runs(survey.runs + np.array([0, len(files), 0, 0])))
        files += queue
    return tuple(files), Runs.joined(runs)


def _rocksdb_queues(store: Store) -> str:
    """Return how queues are in RocksDB: "read" (unpacked into files), "unread" or "none"."""
    if any(file.noted is not None for file in store.queue_files):
        return "read"
    return "unread" if unread_databases(store, QUEUES) else "none"


def _unread_folders(store: Store) -> frozenset[tuple[str, ...]]:
    """Return the folders of queues that could not be listed, as places."""
    places = (oddity.place for oddity in store.oddities if oddity.is_unread)
    return frozenset(place for place in places if place and "consumequeue" in place[0])


def _has_all_queues(store: Store, rocksdb: str) -> bool:
    """Whether all queues of a whole store were given and listed.

    A root with a log and neither queues nor the files of a broker is a copy of the log.
    """
    some = any(file.kind != "ext_queue" for file in store.queue_files)
    given = some or (rocksdb != "unread" and any(store.of_kind(kind) for kind in ("checkpoint", "lock")))
    return store.given == "store" and given and not any(len(place) == 1 for place in _unread_folders(store))


def _has_all_entries(store: Store, surveys: Surveys) -> bool:
    """Whether all index files could be read."""
    return len(surveys.index) == len(store.index_files) and not any(survey.unread for _, survey in surveys.index)


def _by_queue(files: Iterable[QueueFile]) -> dict[tuple[str, int], list[QueueFile]]:
    queues: dict[tuple[str, int], list[QueueFile]] = {}
    for file in files:
        queues.setdefault((file.topic, file.queue_id), []).append(file)
    return queues


def _covered(surveys: Iterable[IndexSurvey]) -> tuple[int, int] | None:
    """Return the physical offsets of the first and the last entry of all files."""
    ends: Iterator[tuple[int | None, int | None]]
    ends = ((survey.first_physical_offset, survey.last_physical_offset) for survey in surveys)
    known = [(first, last) for first, last in ends if first is not None and last is not None]
    return (min(first for first, _ in known), max(last for _, last in known)) if known else None

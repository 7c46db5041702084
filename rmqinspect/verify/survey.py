"""The second phase of verify: every queue, index and timer file by itself, and which split each row points into.

Tasks are small, so that all threads end together; results come in the order of the tasks.

Then what is gone before the log's start, and whether a retention can have taken it: CL-FIRST, CQ-EXPIRED.

    segments      (0)      (64k)   |128k ......          gone: 0 to 128k, as queues and index know
    queue files   |---a---|---b---|---c---               a, b: all units below 128k
    index files   |----d----|----e----|--f--             d: all entries below 128k

A retention deletes the oldest segments by the age of their last write, or where the disk is nearly full by none. Within
seconds it deletes what points at nothing else: the queue files a and b, the index file d, never the last of each.

    against it   files like a and d are still there; a message was younger than fileReservedTime at the newest record
    for it       queues or index begin within the last segment that is gone: they were cleaned; or the folder of the
                 log was not changed after the broker's last write, where the files have their times from the broker

Source: CleanCommitLogService#deleteExpiredFiles, CleanConsumeQueueService#deleteExpiredFiles,
MappedFileQueue#deleteExpiredFileByOffset, IndexService#deleteExpiredFile; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from rmqinspect.broker.gone import changed_by_a_broker, reserved_hours, was_cleaned
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import queue_ends, queue_files_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, read_entries
from rmqinspect.rocksdb.databases import QUEUES, timer_units_file, unread_databases
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.system.workers import run_ordered
from rmqinspect.text import count, describe_duration
from rmqinspect.verify.findings import Finding, Found
from rmqinspect.verify.index_header import IndexFiles
from rmqinspect.verify.index_survey import IndexSurvey, check_header_times, survey_index
from rmqinspect.verify.loss import by_topic
from rmqinspect.verify.plan import CrossPlan, LogMap, Runs
from rmqinspect.verify.queue_survey import ExtSurvey, QueueSurvey, survey_ext, survey_queue
from rmqinspect.verify.timer_survey import TimerSurvey, survey_timer

# A task ends at so many bytes of queue files, or so many queues: in a store of many queues most files are nearly empty.
_TASK_SIZE = 64 << 20
_TASK_QUEUES = 200


AnyFound = TypeVar("AnyFound", bound=Found)
Survey = Callable[[Ints, int], list[Found]]
"""Reads some files; gets the physical offsets where splits begin, and how many findings of a code to keep."""


class Surveys(Struct, frozen=True):
    """Results of all files that point into the log."""

    every: Sequence[Found] = ()  # in the order of the tasks

    def _of(self, kind: type[AnyFound]) -> list[AnyFound]:
        return [found for found in self.every if isinstance(found, kind)]

    @property
    def queues(self) -> list[QueueSurvey]:
        """Those of the queues, in the order of `queue_files_of`."""
        return self._of(QueueSurvey)

    @property
    def index(self) -> list[IndexSurvey]:
        """Those of the index files."""
        return self._of(IndexSurvey)

    @property
    def timer(self) -> TimerSurvey | None:
        """That of the timer's files."""
        return next(iter(self._of(TimerSurvey)), None)

    @property
    def newest_offsets(self) -> list[int]:
        """Physical offsets that the newest units of the queues point at: near the end of the log."""
        return [queue.last_physical_offset for queue in self.queues if queue.last_physical_offset is not None]

    def in_order(self) -> list[Found]:
        """Return them as their findings and I/O errors are told: queues, ext files, index files, timer."""
        return [found for kind in _KINDS for found in self.every if isinstance(found, kind)]

    @property
    def suppressed(self) -> Counter[str]:
        """Findings by code of index and timer files of which no row was kept."""
        others = (found.suppressed for found in self.every if not isinstance(found, QueueSurvey))
        return sum(others, Counter[str]())


_KINDS = QueueSurvey, ExtSurvey, IndexSurvey, TimerSurvey


class Known(Protocol):
    """The surveys of an earlier run (`verify.since`)."""

    def map_log(self, borders: Ints) -> None:
        """Take the physical offsets where the splits of this run begin."""

    def queue(self, files: Sequence[QueueFile]) -> QueueSurvey | None:
        """Return the survey of a queue that is as it was; None: it has to be read."""

    def index_file(self, index: IndexFile) -> IndexSurvey | None:
        """Return the survey of an index file that is as it was; None: it has to be read."""


def survey_pointers(
    store: Store,
    index_files: Iterable[IndexFile],
    borders: Sequence[int],
    limit: int,
    *,
    deep: bool,
    jobs: int,
    memory: Known | None = None,
) -> Surveys:
    """Read every file that points into the log, in up to `jobs` threads; index and timer files only if `deep`.

    `borders`: physical offsets where splits begin; `limit`: how many findings of a code a survey keeps; `memory`: the
    surveys of an earlier run.
    """
    unread = {oddity.place[:1] for oddity in store.oddities if oddity.is_unread}
    starts = np.array(borders, np.int64)
    if memory is not None:
        memory.map_log(starts)
    tasks = survey_tasks(store, index_files if deep else (), timer=deep and ("timerlog",) not in unread, memory=memory)
    with closing(run_ordered(lambda survey: survey(starts, limit), tasks, jobs)) as results:
        return Surveys([*chain.from_iterable(results)])


def survey_tasks(
    store: Store, index_files: Iterable[IndexFile], *, timer: bool, memory: Known | None = None
) -> list[Survey]:
    """Cut the work into tasks, index files first: one may take long."""

    def of_queue(files: Sequence[QueueFile], borders: Ints, limit: int) -> QueueSurvey:
        known = None if memory is None else memory.queue(files)
        return known or survey_queue(files, borders, store.log_start, limit)

    def of_queues(queues: Sequence[Sequence[QueueFile]], borders: Ints, limit: int) -> list[Found]:
        return [of_queue(files, borders, limit) for files in queues]

    def of_index(index: IndexFile, borders: Ints, limit: int) -> IndexSurvey:
        known = None if memory is None else memory.index_file(index)
        return known or survey_index(index, borders, limit)

    tasks: list[Survey] = [partial(_alone, partial(of_index, index)) for index in index_files]
    in_files = any(file.kind in ("timer_log", "timer_wheel") for file in store.files)
    if timer and (in_files or timer_units_file(store) is not None):
        tasks.append(partial(_alone, partial(survey_timer, store)))
    if ext := [file for file in store.queue_files if file.kind == "ext_queue"]:
        tasks.append(lambda borders, limit: [survey_ext(ext)])
    some: list[Sequence[QueueFile]] = []
    size = 0
    for files in queue_files_of(store):
        some.append(files)
        size += sum(file.size for file in files)
        if size >= _TASK_SIZE or len(some) >= _TASK_QUEUES:
            tasks.append(partial(of_queues, some))
            some, size = [], 0
    return [*tasks, partial(of_queues, some)] if some else tasks


def _alone(survey: Callable[[Ints, int], Found], borders: Ints, limit: int) -> list[Found]:
    return [survey(borders, limit)]


def survey_findings(surveys: Surveys, edge_times: Mapping[tuple[int, int], int]) -> Iterator[Finding]:
    """Yield the findings of the surveys but those of single queues, which are judged with their units.

    `edge_times`: store time in ms of the records of an index file's first and newest entries, by (number of the
    file, entry).
    """
    for number, survey in enumerate(surveys.index):
        file = survey.index
        used = survey.used_entries
        if file.entries <= used:  # else the newest ones were cut off
            newest = [edge_times[number, at] for at in (used - 1, used) if (number, at) in edge_times]
            yield from check_header_times(survey, edge_times.get((number, 1)), newest)
        yield from _unknown_geometry(file)
    for found in surveys.in_order():
        if not isinstance(found, QueueSurvey):
            yield from found.findings


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


def make_plan(
    store: Store, log: LogMap, surveys: Surveys, index_files: IndexFiles, *, deep: bool, rules: frozenset[str]
) -> CrossPlan:
    """Return what each split has to be checked against.

    `rules`: which of `dispatch.DIFFERENCES` may hold. Without surveys nothing points into the log.
    """
    rocksdb = _rocksdb_queues(store)
    timer, index = surveys.timer, surveys.index
    index_begin, index_end = index_files.reach
    queue_files, queue_runs = _number_queue_files(store, surveys.queues)
    return CrossPlan(
        log=log,
        deep=deep,
        queue_files=queue_files,
        runs={
            "unit": queue_runs,
            "entry": Runs.of(np.add(survey.runs, (0, n, 0, 0)) for n, survey in enumerate(index)),
            "timer": Runs.of([] if timer is None else [timer.runs]),
        },
        unread=frozenset(survey.name for survey in surveys.queues if survey.unread),
        unread_topics=frozenset(place[1] for place in _unread_folders(store) if len(place) > 1),
        whole=_has_all_queues(store, rocksdb),
        ext_files=_by_queue(file for file in store.queue_files if file.kind == "ext_queue"),
        hidden_ext=frozenset(
            s.name for s in surveys.queues if store.hides("consumequeue_ext", s.topic, str(s.queue_id))
        ),
        may_hold=rules,
        elsewhere=rocksdb == "unread",
        index=tuple(survey.index for survey in index),
        index_range=_covered(index) if deep else None,
        index_begin=index_begin,
        index_end=index_end,
        index_complete=len(index) == len(store.index_files) and not any(survey.unread for survey in index),
        index_used=tuple(survey.used_entries for survey in index),
        timed=tuple(not survey.times_reported for survey in index),
        timer_files=timer.files if timer is not None else (),
        entry_index=tuple(store.of_kind("dledger_index")),
    )


def _number_queue_files(store: Store, surveys: Iterable[QueueSurvey]) -> tuple[tuple[QueueFile, ...], Runs]:
    """Return the files of all queues, and the runs of the surveys with the numbers of these files."""
    files: list[QueueFile] = []
    runs: list[Ints] = []
    for survey, queue in zip(surveys, queue_files_of(store), strict=True):
        runs.append(np.add(survey.runs, (0, len(files), 0, 0)))
        files += queue
    return tuple(files), Runs.of(runs)


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


_HOUR = 3600  # s


def before_the_log(
    store: Store, surveys: Sequence[QueueSurvey], index_files: Sequence[IndexFile], newest: int | None
) -> Iterator[Finding]:
    """Yield CL-FIRST, CQ-EXPIRED and CQ-ZERO-BEHIND; `newest`: store time in ms of the newest record."""
    start = store.log_start
    expired = [survey for survey in surveys if survey.expired]
    if start and store.given == "store" and not store.hides_log and newest is not None:
        yield from _Before(store, surveys, index_files).judge(newest)
    if expired:
        yield Finding(
            "CQ-EXPIRED",
            f"units of {count(len(expired), 'queue')} point before the log's start: their records are gone",
            file="consumequeue",
            count=sum(survey.expired for survey in expired),
            expected=f"{start} or behind",
        )
    zeros = [survey for survey in surveys if survey.zero_behind]
    if zeros:
        yield Finding(
            "CQ-ZERO-BEHIND",
            f"units of {count(len(zeros), 'queue')} have physical offset 0, before the log's first segment",
            file="consumequeue",
            count=sum(survey.zero_behind for survey in zeros),
        )


class _Before:
    """What queues and index know of the log before its start."""

    def __init__(self, store: Store, surveys: Sequence[QueueSurvey], index_files: Sequence[IndexFile]) -> None:
        self.store, self.start = store, store.log_start
        self.queues = list(zip(surveys, queue_files_of(store), strict=True))
        self.index = [file for file in index_files if file.header is not None and file.entries]

    def judge(self, newest: int) -> Iterator[Finding]:
        """Yield CL-FIRST where something is known to be gone, and something speaks against a retention."""
        messages: Counter[str] = Counter()
        for survey, _ in self.queues:
            messages[survey.topic] += survey.expired + survey.zero_behind
        known = [_gone(file, file.header, self.start) for file in self.index if file.header is not None]
        entries = sum(number for number, _ in known)
        against = [*self._left(), *self._too_young(newest, [time for number, time in known if number])]
        if not against or not (messages.total() or entries):
            return
        ends = queue_ends(
            self.store, lambda: False, on_unreadable=lambda message: None
        )  # the minimum is of no interest
        if was_cleaned(self.store, ends, self.index) or changed_by_a_broker(self.store, newest):
            return
        held = [f"{count(messages.total(), 'message')} of {by_topic(+messages)} (queue units)"] * bool(messages.total())
        held += [f"{count(entries, 'key')} (index entries)"] * bool(entries)
        yield Finding(
            "CL-FIRST",
            f"what lay before the first segment is gone, but not as a retention takes it: {'; '.join(against)}",
            file=self.store.segments[0].name,
            physical_offset=self.start,
            expected=f"segments before it, with at least {' and '.join(held)}",
            found=f"the log begins at {self.start}",
        )

    def _left(self) -> Iterator[str]:
        """Yield, in words, how many files a retention would have deleted besides."""
        queue_files = sum(_points_before(survey, [file.base for file in files]) for survey, files in self.queues)
        index_files = 0
        for file in self.index[:-1]:
            if file.header is None or file.header.end_physical_offset >= self.start:
                break
            index_files += 1
        left = [(queue_files, "queue file"), (index_files, "index file")]
        words = " and ".join(count(number, noun) for number, noun in left if number)
        if words:
            yield f"{words} that it deletes besides {'is' if queue_files + index_files == 1 else 'are'} there"

    def _too_young(self, newest: int, times: Sequence[int]) -> Iterator[str]:
        """Yield, in words, that the last message that is gone was too young; `times`: of the last ones known."""
        hours = reserved_hours(self.store.settings)
        age = (newest - max(times, default=0)) / 1000
        if 0 <= age < hours * _HOUR:
            yield (
                f"it was {describe_duration(age)} old at the newest record, below fileReservedTime ({hours} h): "
                "only a nearly full disk would do, or as long a time without messages"
            )


def _points_before(survey: QueueSurvey, bases: Sequence[int]) -> int:
    """Return how many files of a queue hold only units that point before the log; the last file never counts."""
    size = dtype_of(LAYOUTS[survey.kind]).itemsize
    units = survey.expired + survey.zero_behind
    return sum((base - bases[0]) // size <= units for base in bases[1:])


def _gone(index: IndexFile, header: Any, start: int) -> tuple[int, int]:
    """Return how many entries of an index file point before the log, and the store time (ms) of the last of them.

    Entries ascend; their times are whole seconds from the file's first.
    """
    geometry = index.geometry
    if header.begin_physical_offset >= start:
        return 0, 0
    if header.end_physical_offset < start:
        return index.entries, int(header.end_timestamp)
    low, high = 1, index.readable_entries  # the first one points before the log
    seconds = 0
    try:
        with open_file(index.file) as reader:
            while geometry is not None and low < high:
                middle = (low + high + 1) // 2
                entry = read_entries(reader, geometry, middle, 1)
                if not len(entry) or entry["physical_offset"][0] >= start:
                    high = middle - 1
                else:
                    low, seconds = middle, int(entry["time_diff"][0])
    except Unreadable:
        return 0, 0
    return low, int(header.begin_timestamp) + 1000 * seconds

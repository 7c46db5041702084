"""The first pass over all that points into the log: each file by itself, and where it points.

A task is small enough that all processes end together; results come in the order of the tasks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rmqinspect.consumequeue.units import queue_files_of
from rmqinspect.index.geometry import IndexFile
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.verify.consumequeue.ext import ExtSurvey, survey_ext
from rmqinspect.verify.consumequeue.survey import QueueSurvey, survey_queue
from rmqinspect.verify.index.survey import IndexSurvey, survey_index
from rmqinspect.verify.plan import NO_RUNS, CrossPlan, LogMap, Runs
from rmqinspect.verify.timer.survey import TimerSurvey, survey_timer

# Bytes of queue files in a task, and queues: most files of a store with many queues are nearly empty.
_TASK_SIZE = 64 << 20
_TASK_QUEUES = 200


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Some queues, or the ext files of queues, or an index file, or the timer files of a store."""

    queues: tuple[tuple[QueueFile, ...], ...] = ()
    ext: tuple[QueueFile, ...] = ()
    index: IndexFile | None = None
    timer: Store | None = None


@dataclass(slots=True)
class SurveyResult:
    """What the files of a task say by themselves."""

    queues: list[QueueSurvey] = field(default_factory=list)
    ext: ExtSurvey | None = None
    index: IndexSurvey | None = None
    timer: TimerSurvey | None = None


@dataclass(frozen=True, slots=True)
class SurveyLimits:
    """What a survey must know of the log, and how many findings of a code it keeps."""

    borders: tuple[int, ...]  # physical offsets where splits begin
    log_start: int
    per_code: int


def survey_tasks(store: Store, index_files: Iterable[IndexFile], *, timer: bool) -> list[SurveyTask]:
    """Cut the work: index files first, since one may be long."""
    tasks = [SurveyTask(index=index) for index in index_files]
    timer_files = [file for file in store.files if file.kind in ("timer_log", "timer_wheel", "config")]
    if timer and any(file.kind != "config" for file in timer_files):
        # Only what the survey reads travels to the process.
        tasks.append(SurveyTask(timer=replace(store, files=tuple(timer_files), queue_files=(), oddities=())))
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
    """Survey the files of a task, in any process."""
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
    store: Store,
    log: LogMap,
    queues: Sequence[QueueSurvey],
    index: Sequence[tuple[IndexFile, IndexSurvey]],
    timer: TimerSurvey | None,
    *,
    deep: bool,
    rules: frozenset[str],
    unread: frozenset[tuple[str, ...]] = frozenset(),
    rocksdb: bool = False,
) -> CrossPlan:
    """Put the surveys together: what each split has to be checked against.

    `rules`: which of `dispatch.DIFFERENCES` may hold. `unread`: folders of queues that could
    not be listed, as places. `rocksdb`: queues that live there are among those surveyed.
    """
    files: list[QueueFile] = []
    runs: list[Runs] = []
    for survey, queue in zip(queues, queue_files_of(store), strict=True):
        runs.append(Runs(survey.runs + np.array([0, len(files), 0, 0])))
        files += queue
    elsewhere = any(file.kind == "rocksdb" and file.name.startswith("consumequeue") for file in store.files)
    return CrossPlan(
        log=log,
        deep=deep,
        queue_files=tuple(files),
        queue_runs=Runs.joined(runs),
        unread=frozenset(survey.name for survey in queues if survey.unread),
        unread_topics=frozenset(place[1] for place in unread if len(place) > 1),
        whole=store.place == "store"
        and (bool(files) or rocksdb or not elsewhere)
        and not any(len(place) == 1 for place in unread),
        ext_files=_by_queue(file for file in store.queue_files if file.kind == "ext_queue"),
        may_hold=rules,
        elsewhere=elsewhere and not rocksdb,
        index=tuple(file for file, _ in index),
        index_runs=Runs.of((n, run) for n, (_, survey) in enumerate(index) for run in survey.runs)
        if index
        else NO_RUNS,
        index_range=_covered(survey for _, survey in index) if deep else None,
        index_complete=len(index) == len(store.index_files) and not any(survey.unread for _, survey in index),
        index_used=tuple(survey.used_entries for _, survey in index),
        timed=tuple(not survey.times_told for _, survey in index),
        timer_files=timer.files if timer is not None else (),
        timer_runs=Runs.of(timer.runs) if timer is not None else NO_RUNS,
        entry_index=tuple(store.of_kind("dledger_index")),
    )


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

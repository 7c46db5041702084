"""What is gone before the log's start, and whether a retention can have taken it: CL-FIRST, CQ-EXPIRED.

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
from collections.abc import Iterator, Sequence
from typing import Any

from rmqinspect.broker.gone import changed_by_a_broker, reserved_hours, was_cleaned
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import queue_ends, queue_files_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import IndexFile, read_entries
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import count, describe_duration
from rmqinspect.verify.consumequeue.survey import QueueSurvey
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.loss import by_topic

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

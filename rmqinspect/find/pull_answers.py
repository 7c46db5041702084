"""What a store answers a consumer, by every release that may have written it; and the messages of an answer.

A queue and the log are taken as a broker sees them that answers a consumer, for the rules of `broker.pull` and others.
Nothing is read but the queue's ends, the units that are asked for, and the heads of single records, all once. What a
start would change is not foreseen. Releases that answer alike are told together.

Source: PullMessageProcessor#composeResponseHeader for the response code of a status,
DefaultMQPushConsumerImpl#pullMessage for what a push consumer makes of it.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from rmqinspect.broker import pull as statuses
from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.pull import Answer, Pull, TimedFile, Unit, goes_by_change, knows_boundary, offset_by_time, pull
from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.codec.arrays import Units
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.tail import LogEnd, find_log_end
from rmqinspect.config.json_files import integer, read_config
from rmqinspect.consumequeue.bounds import QueueSummary, queue_end
from rmqinspect.consumequeue.units import QueueRows, read_ext_tags, read_units, unit_numbers, valid_units
from rmqinspect.errors import NothingFound
from rmqinspect.find.plan import rows_at
from rmqinspect.find.queue_units import COMPACTION, compacted_topics
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import modified_at, open_file
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.table import Request
from rmqinspect.text import count, group_digits
from rmqinspect.topics import LMQ_PREFIX

_READ = 256  # units at once


class ConsumerLog:
    """The log that units point into. Source: CommitLog#getMessage, #rollNextFile."""

    def __init__(self, store: Store, end: int) -> None:
        """Take the physical offset behind the last record."""
        self._store = store
        self._end = end

    def is_readable(self, physical_offset: int, size: int) -> bool:
        """Whether so many bytes lie in one segment, before the end of the log."""
        segments = self._store.segments
        segment = self._store.segment_at(physical_offset)
        start = physical_offset
        if segment is None and physical_offset == 0 and segments:
            # Brokers of all versions take the first file for offset 0.
            segment, start = segments[0], segments[0].base
        return segment is not None and size >= 0 and start + size <= min(segment.end, self._end)

    def behind_segment(self, physical_offset: int) -> int:
        """Return where the next segment begins."""
        size = self._store.segment_size or 1
        return physical_offset + size - physical_offset % size


class ConsumerQueue:
    """One queue. Its rows are queue offsets; those of a batch queue are counted from its first file on.

    Methods raise Unreadable where the system reports an I/O error.
    """

    def __init__(self, store: Store, files: Sequence[QueueFile], ext_files: Sequence[QueueFile] = ()) -> None:
        self._files = tuple(files)
        self._ext_files = ext_files
        self._opened = ExitStack()
        self._rows = self._opened.enter_context(QueueRows(self._files))
        self._log = self._opened.enter_context(RecordReader(store))
        self.log_start = store.log_start
        self.kind = "rocksdb" if files[0].noted is not None else files[0].kind

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    # --- its ends -------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> QueueSummary:
        """Where it begins and ends; the minimum is that of 5.x."""
        return queue_end(self._files, self.log_start, lambda: True)

    @cached_property
    def _scanned(self) -> QueueSummary:
        """The same with the minimum of 4.x."""
        return queue_end(self._files, self.log_start, lambda: False)

    def ends(self, release: str) -> tuple[int, int]:
        """Return (minimum, maximum) in queue offsets as a release finds them."""
        found = self.summary if rules_of_start(release).minimum == "search" else self._scanned
        return found.min_offset, found.max_offset

    def _count_used(self, which: int) -> int:
        """Return how many units a file has before the first that a broker does not accept.

        Source: ConsumeQueue#recover.
        """
        used = 0
        with open_file(self._files[which]) as reader:
            for row, units in read_units(reader, self._files[which].kind):
                if row > used:  # a hole of the file
                    break
                bad = np.flatnonzero(valid_units(units) == 0)
                used += int(bad[0]) if len(bad) else len(units)
                if len(bad):
                    break
        return used

    # --- its units ------------------------------------------------------------------------------------

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """Return the units from one that holds an offset to the end of its file; None where there is none."""
        row = self._row_of(queue_offset)
        if row is None:
            return None
        units = self._units(row)
        if self.kind != "rocksdb":
            return units
        # What RocksDB lacks ends what is read of it.
        first = next(units, None)
        return None if first is None else chain((first,), units)

    def behind_file(self, queue_offset: int) -> int:
        """Return where a broker goes on that cannot read the file with an offset. Source: #rollNextFile."""
        if self.kind != "queue":
            return 0
        units = max(self._files[0].size // self._rows.layout.itemsize, 1)
        return queue_offset + units - queue_offset % units

    def _row_of(self, queue_offset: int) -> int | None:
        """Return the row of `QueueRows` of the unit with an offset."""
        if self.kind == "batch_queue":
            return self._batch_row(queue_offset)
        for file, start, end in zip(self._files, self._rows.starts, self._rows.starts[1:], strict=False):
            row = start + queue_offset - file.base // self._rows.layout.itemsize
            if start <= row < end and queue_offset < self.summary.max_offset:
                return row
        return None

    def _batch_row(self, queue_offset: int) -> int | None:
        """Return the row of the last batch of a file that begins at or before an offset.

        Source: BatchConsumeQueue#getBatchMsgIndexBuffer, #binarySearch.
        """
        for file in reversed(self.timed_files()):
            if file.begin == file.end or self.offset_of(file.begin) > queue_offset:
                continue
            low, high = file.begin, file.end
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self.offset_of(middle) <= queue_offset else (low, middle)
            return low
        return None

    def _units(self, row: int) -> Iterator[Unit]:
        which = self._rows.file_of(row)
        file, begin = self._files[which], self._rows.starts[which]
        end = self._end_row(which)
        while row < end:
            raw = self._rows.raw(row, min(_READ, end - row))
            units = np.frombuffer(raw, self._rows.layout)
            offsets, messages = unit_numbers(file, row - begin, units)
            # The tags code of an address that leads to no ext unit is not known.
            codes = units["tags_code"].astype(np.int64)
            tags, known = codes.copy(), codes > EXT_ADDRESS_MAX
            read_ext_tags(self._ext_files, codes, tags, known)
            places, sizes = units["physical_offset"].tolist(), units["size"].tolist()
            rows = zip(offsets.tolist(), messages.tolist(), places, sizes, tags.tolist(), strict=True)
            for at, unit in enumerate(rows):
                if self.kind == "rocksdb" and not unit[3]:
                    return
                yield Unit(*unit) if known[at] else Unit(*unit[:-1], None)
            row += len(units)

    # --- its times ------------------------------------------------------------------------------------

    def timed_files(self) -> Sequence[TimedFile]:
        """Return the files, in order."""
        return self._timed_files

    @cached_property
    def _timed_files(self) -> list[TimedFile]:
        found = []
        for which, file in enumerate(self._files):
            begin, end = self._rows.starts[which], self._end_row(which)
            if self.kind == "queue":
                first = file.base // self._rows.layout.itemsize
                begin, end = first, first + end - begin
            modified = modified_at(file) // 1_000_000 or None
            if modified is not None and modified % 1000 == 0:
                modified += 999  # archives keep whole seconds: the last ms of such a one is meant
            found.append(TimedFile(begin, end, modified))
        return found

    def _end_row(self, which: int) -> int:
        """Return the row of `QueueRows` behind the used units of a file: all but the last are full."""
        begin, end = self._rows.starts[which], self._rows.starts[which + 1]
        if which < len(self._files) - 1:
            return end
        if self.kind == "batch_queue":
            return begin + self._count_used(which)
        used = self.summary.max_offset - self._files[which].base // self._rows.layout.itemsize
        return begin + min(max(used, 0), end - begin)

    def place(self, row: int) -> int | None:
        """Return a physical offset; None without a unit."""
        unit = self._unit(row)
        return None if unit is None else int(unit["physical_offset"][0])

    def time(self, row: int) -> int:
        """Return a store time in ms; -1 where there is no record.

        Batch units have their own. So have those of RocksDB, but here their records are asked.
        """
        unit = self._unit(row)
        if unit is None:
            return -1
        if self.kind == "batch_queue":
            return int(unit["store_timestamp"][0])
        found = self._log.timestamp_of(int(unit["physical_offset"][0]), int(unit["size"][0]))
        return -1 if found is None else found

    def record_time(self, unit: Unit) -> int | None:
        """Return the store time in ms of the record that a unit points at; None where there is none."""
        return self._log.timestamp_of(unit.physical_offset, unit.size)

    def offset_of(self, row: int) -> int:
        """Return the first queue offset of a unit of a batch queue."""
        return int(self._rows.unit(row)["queue_offset"][0])

    def _unit(self, row: int) -> Units | None:
        at = row if self.kind == "batch_queue" else self._row_of(row)
        if at is None:
            return None
        unit = self._rows.unit(at)
        return None if self.kind == "rocksdb" and not unit["size"][0] else unit


def open_queue(store: Store, topic: str, queue_id: int) -> ConsumerQueue | None:
    """Open a queue, None if the store has no such queue. Of one that is in files and in RocksDB, the files.

    Source: CombineConsumeQueueStore: `combineCQPreferCQType` says which is read, by default the files.
    """
    of_queue = [file for file in store.queue_files if (file.topic, file.queue_id) == (topic, queue_id)]
    ext_files = [file for file in of_queue if file.kind == "ext_queue"]
    kinds = (
        [file for file in of_queue if file.kind == "batch_queue"],
        [file for file in of_queue if file.kind == "queue" and file.noted is None],
        [file for file in of_queue if file.kind == "queue" and file.noted is not None],
    )
    files = next(filter(None, kinds), None)
    return None if files is None else ConsumerQueue(store, files, ext_files)


Answered = TypeVar("Answered", bound=Hashable)

_OF_RECORD = ("store_timestamp", "tags", "keys", "status")
_PERM_READ = 4  # PermName.PERM_READ

MESSAGES = pa.schema(
    [
        pa.field("queue_offset", pa.int64()),
        pa.field("physical_offset", pa.int64()),
        pa.field("size", pa.int32()),
        *(pa.field(name, SCHEMA.field(name).type) for name in _OF_RECORD),
        pa.field("client", pa.string()),  # keeps, drops; null where no record proves itself
    ]
)
"""The messages of an answer. The queue offset is that of the unit, which in a light queue is not the record's."""


@dataclass(frozen=True, slots=True)
class Agreed(Generic[Answered]):
    """What some releases answer alike."""

    releases: tuple[str, ...]
    answer: Answered

    @property
    def spans(self) -> str:
        """The releases as text: `4.2.0 to 4.9.3, 5.5.0`."""
        runs: list[list[str]] = []
        for release in self.releases:
            follows = runs and RELEASES.index(runs[-1][-1]) + 1 == RELEASES.index(release)
            runs = [*runs[:-1], [*runs[-1], release]] if follows else [*runs, [release]]
        return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class AskedQueue:
    """A queue of a store that is asked, None if the store has no such queue."""

    store: Store
    topic: str
    queue_id: int
    queue: ConsumerQueue | None
    log_end: LogEnd
    releases: tuple[str, ...]  # that may have written the store, or the one that is named

    @property
    def unknown(self) -> str | None:
        """Why the queue cannot be asked, though the store may have it; None if it can."""
        return why_unknown(self.store, "queues", self.topic, str(self.queue_id)) if self.queue is None else None

    def pull(self, asked: Pull) -> list[Agreed[Answer]]:
        """Return what a consumer gets; nothing where that is not known.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.unknown:
            return []
        log = ConsumerLog(self.store, self.log_end.end or 0)
        return _together(self.releases, lambda release: pull(self.queue, log, asked, release))

    def by_time(self, moment: int, boundary: str | None) -> list[Agreed[int]]:
        """Return the queue offset for a time in ms; nothing where that is not known.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.unknown:
            return []
        return _together(
            self.releases, lambda release: offset_by_time(self.queue, moment, boundary or "lower", release)
        )

    def messages(self, asked: Pull, units: Sequence[Unit]) -> pa.RecordBatch:
        """Return the rows of MESSAGES for the units of an answer.

        :raises Unreadable: the log cannot be read.
        """
        columns = frozenset({"physical_offset", *_OF_RECORD})
        places = {unit.physical_offset for unit in units}
        records = {row["physical_offset"]: row for row in rows_at(self.store, places, Request(columns=columns))}
        rows = []
        for unit in units:
            row = {"queue_offset": unit.queue_offset, "physical_offset": unit.physical_offset, "size": unit.size}
            record = records.get(unit.physical_offset)
            if record is not None:
                kept = asked.subscription.keeps(record["tags"])
                row |= {name: record[name] for name in _OF_RECORD} | {"client": "keeps" if kept else "drops"}
            rows.append(row)
        return pa.RecordBatch.from_pylist(rows, MESSAGES)

    def store_time(self, queue_offset: int) -> int | None:
        """Return the store time in ms of the message at a queue offset; None without one.

        :raises Unreadable: a file of the queue cannot be read.
        """
        if self.queue is None:
            return None
        unit = next(self.queue.units_from(queue_offset) or iter(()), None)
        return None if unit is None else self.queue.record_time(unit)

    def refusals(self) -> Iterator[str]:
        """Yield why a broker would answer something else before it looks into the queue."""
        if not self.store.queue_files and not self.unknown:
            yield "no consume queue was given: a broker that starts on this log makes them first, and answers by those"
        config = read_config(self.store, "topics.json")
        topics = {} if config is None else config.table("topicConfigTable")
        if not topics or self.topic.startswith(LMQ_PREFIX):
            return
        entry = topics.get(self.topic)
        if not isinstance(entry, dict):
            yield "topics.json does not have the topic: unless it is made anew, the broker refuses with TOPIC_NOT_EXIST"
            return
        perm, queues = integer(entry.get("perm")), integer(entry.get("readQueueNums"))
        if perm is not None and not perm & _PERM_READ:
            yield f"topics.json gives the topic perm {perm}, without reading: the broker refuses with NO_PERMISSION"
        if queues is not None and self.queue_id >= queues:
            yield f"topics.json gives the topic {queues} queues to read: the broker refuses this one with SYSTEM_ERROR"
        if self.topic in compacted_topics(self.store):
            yield f"the topic has {COMPACTION}; this is the answer of the queue itself"

    def time_notes(self, boundary: str | None) -> Iterator[str]:
        """Yield what to know of an offset for a time."""
        if any(map(goes_by_change, self.releases)) and self.queue is not None and len(self.queue.timed_files()) > 1:
            yield (
                "up to 5.1.0 the queue file is chosen by the time of its last change, and a copy may have other times: "
                "then so has the answer"
            )
        if boundary is not None and not all(map(knows_boundary, self.releases)):
            yield "a boundary is known from 5.1.4 on; earlier releases answer without it"


@contextmanager
def asked_queue(store: Store, topic: str, queue_id: int, release: str | None) -> Iterator[AskedQueue]:
    """Open a queue to be asked; `release`: the only one that answers.

    :raises NothingFound: there is no log, so that nothing can be said.
    :raises Unreadable: a file cannot be read.
    """
    if not store.segments:
        raise NothingFound(f"{store.name}: no commit log given: what a broker answers depends on it")
    queue = open_queue(store, topic, queue_id)
    last = None if queue is None else queue.summary.last_physical_offset
    log_end = find_log_end(store, [] if last is None else [last])
    releases = estimate_store(store, log_end.sample).releases if release is None else (release,)
    asked = AskedQueue(store, topic, queue_id, queue, log_end, releases)
    if queue is None:
        yield asked
        return
    with queue:
        yield asked


def _together(releases: Sequence[str], ask: Callable[[str], Answered]) -> list[Agreed[Answered]]:
    found: dict[Answered, list[str]] = {}
    for release in releases:
        found.setdefault(ask(release), []).append(release)
    return [Agreed(tuple(alike), answer) for answer, alike in found.items()]


_AGAIN = "the consumer gets {messages}, and asks again from offset {next}"
_AT_ONCE = "the consumer asks again at once, from offset {next}"
_WAITS = (
    "the broker holds the request up to 15 s until a message arrives; then the consumer asks again from offset {next}"
)
_CORRECTS = "the consumer drops what it has of the queue, and begins it again at offset {next}"


def why(asked: Pull, answer: Answer) -> str:
    """Return why a broker gives this answer."""
    low, high = group_digits(answer.min_offset), group_digits(answer.max_offset)
    scanned = count(max(answer.next_offset - asked.offset, 0), "offset")
    reasons = {
        statuses.FOUND: f"{scanned} scanned",
        statuses.NO_MATCHED_MESSAGE: f"{scanned} scanned, and none has a tags code that is asked for",
        statuses.MESSAGE_WAS_REMOVING: f"{scanned} scanned, and no record of them is in the log",
        statuses.NO_MESSAGE_IN_QUEUE: "the queue is empty, or is made now, as it is asked for",
        statuses.OFFSET_TOO_SMALL: f"the queue begins at {low}",
        statuses.OFFSET_OVERFLOW_ONE: f"the queue ends before {high}: there is no newer message",
        statuses.OFFSET_OVERFLOW_BADLY: f"the queue ends before {high}, "
        f"{count(asked.offset - answer.max_offset, 'offset')} before the one asked for",
        statuses.OFFSET_FOUND_NULL: f"the queue goes from {low} to {high}, but no file or entry holds the unit",
    }
    more = [
        f"{count(answer.filtered, 'unit')} left out by tag" if answer.filtered else "",
        f"{count(answer.unreadable, 'unit')} passed over: not in the log, or in the same segment behind one that is not"
        if answer.unreadable
        else "",
    ]
    return "; ".join(filter(None, (reasons[answer.status], *more)))


def consequence(asked: Pull, answer: Answer, dropped: int = 0) -> str:
    """Return what the consumer does next; `dropped`: messages that are given, but not of a tag it asked for."""
    then = {
        statuses.FOUND: _AGAIN,
        statuses.NO_MATCHED_MESSAGE: _AT_ONCE,
        statuses.MESSAGE_WAS_REMOVING: _AT_ONCE,
        statuses.NO_MESSAGE_IN_QUEUE: _CORRECTS if asked.offset else _WAITS,
        statuses.OFFSET_TOO_SMALL: _CORRECTS,
        statuses.OFFSET_OVERFLOW_ONE: _WAITS,
        statuses.OFFSET_OVERFLOW_BADLY: _CORRECTS,
        statuses.OFFSET_FOUND_NULL: _WAITS,
    }[answer.status].format(
        next=group_digits(answer.next_offset), messages=count(sum(unit.messages for unit in answer.units), "message")
    )
    lost = answer.min_offset - max(asked.offset, 0)
    again = answer.max_offset - answer.next_offset
    skipped = answer.next_offset - asked.offset
    if answer.status == statuses.FOUND and dropped:
        return f"{then}; it drops {dropped} of them: another tag with the same hash"
    if answer.status == statuses.OFFSET_TOO_SMALL:
        return f"{then}; {count(lost, 'offset')} below it cannot be consumed any more"
    if answer.status == statuses.OFFSET_OVERFLOW_BADLY and again:
        return f"{then}; it consumes {count(again, 'message')} there again"
    if answer.status == statuses.OFFSET_FOUND_NULL and skipped > 0:
        return f"{then}; {count(skipped, 'offset')} are skipped"
    return then

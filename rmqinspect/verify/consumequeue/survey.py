"""A consume queue by itself: CQ-SIZE, CQ-HOLE, CQ-DANGLING, BQ-COUNT, and which units point into which split.

`survey_queue` reads a queue once, window by window. What its units say about records is judged where the records
are read (`verify.consumequeue.join`). Rows are numbered through the whole queue by the names of its files:

    file 00000000000000000000        file 00000000000000006000
    | pre-blank | unit | unit | ... | unit | unit | zeros, preallocated
      row 0                           row 300

Source: ConsumeQueue#recover, #correctMinOffset, #fillPreBlank, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.sizes import usual_sizes
from rmqinspect.consumequeue.units import LAYOUTS, filler_units, read_units, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import count
from rmqinspect.verify.consumequeue import walk
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding
from rmqinspect.verify.runs import joined_runs, most_runs, runs_by_split

# Rows that a kernel takes at once: so few that a process that has not compiled it yet soon does.
_STEP = 4096
_DEVIATIONS = 1024  # of a window that are reported at once


def check_sizes(store: Store) -> Iterator[Finding]:
    """Yield CQ-SIZE: files whose length is not the usual one of their kind in this store, or cuts a unit.

    Source: MappedFileQueue#load, which compares each length with the setting.
    """
    by_kind: dict[str, list[QueueFile]] = {}
    for file in store.queue_files:
        if file.noted is None and file.path not in store.unopened:
            by_kind.setdefault(file.kind, []).append(file)
    sizes = usual_sizes(store)
    for kind, files in by_kind.items():
        usual = sizes.get(kind)
        step = dtype_of(LAYOUTS[kind]).itemsize if kind in LAYOUTS else 1
        for file in files:
            if file.size == usual and not file.size % step:
                continue
            what = "the queue file's length differs from that of the store's other queue files"
            if file.size % step:
                what = f"the queue file ends inside a unit: its length is not a multiple of {step}"
            yield Finding(
                "CQ-SIZE",
                what,
                file=file.name,
                topic=file.topic,
                queue_id=file.queue_id,
                expected=str(usual) if usual != file.size else None,
                found=str(file.size),
            )


@dataclass(slots=True)
class QueueSurvey:
    """Result of reading one queue. Offsets are queue offsets unless called physical."""

    topic: str
    queue_id: int
    kind: str  # queue, batch_queue
    runs: Ints = field(default_factory=lambda: np.empty((0, 4), np.int64))  # as `plan.Runs` has them
    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)  # findings over the limit, by code
    ascends: bool = True  # every unit points behind the one before it
    units: int = 0  # of messages
    expired: int = 0  # those that point before the log's first segment
    zero_behind: int = 0  # those with physical offset 0, while the log begins later
    min_offset: int = 0
    max_offset: int = 0
    first_physical_offset: int | None = None  # that the first unit of a message in the log points at
    last_physical_offset: int | None = None  # that the newest unit of a message points at
    unread: list[Finding] = field(default_factory=list)  # ST-IO

    @property
    def name(self) -> tuple[str, int]:
        """(topic, queue id)."""
        return self.topic, self.queue_id


def survey_queue(files: Sequence[QueueFile], borders: Ints, log_start: int, limit: int) -> QueueSurvey:
    """Read all units of one queue; `limit` bounds the findings of a code.

    `borders`: physical offsets where the log's splits begin, ascending (`cut_runs`).
    """
    survey = _Survey(files, borders, log_start, limit)
    for number, file in enumerate(files):
        try:
            survey.take_file(number, file)
        except Unreadable as error:
            survey.result.unread.append(unread_finding(error))
            survey.forget()
    survey.finish()
    return survey.result


class _Survey:
    def __init__(self, files: Sequence[QueueFile], borders: Ints, log_start: int, limit: int) -> None:
        first = files[0]
        self.files, self.borders, self.log_start = files, borders, log_start
        self.unit_size = dtype_of(LAYOUTS[first.kind]).itemsize
        self.kept = capped_findings(limit)
        self.result = QueueSurvey(
            first.topic, first.queue_id, first.kind, findings=self.kept.rows, suppressed=self.kept.suppressed
        )
        self.runs: list[Ints] = []  # rows as `plan.Runs` has them
        self.deviations = np.empty((_DEVIATIONS, 3), np.int64)
        self.totals = totals = np.zeros(walk.TOTALS, np.int64)
        totals[[walk.MIN_OFFSET, walk.FIRST_PLACE, walk.LAST_PLACE]] = -1
        totals[walk.LAST_TIME] = -(2**63)
        # The file names of a batch queue say nothing about its queue offsets.
        totals[walk.MAX_OFFSET] = first.base // self.unit_size if first.kind == "queue" else 0
        self.forget()
        # A broker fills the rows before a queue's first message with pre-blanks: none is unused.
        totals[walk.LAST_USED] = first.base // self.unit_size - 1

    def forget(self) -> None:
        """Forget the rows before: some could not be read."""
        self.totals[[walk.LAST_USED, walk.NEXT_OFFSET]] = walk.UNKNOWN

    def take_file(self, number: int, file: QueueFile) -> None:
        with open_file(file) as reader:
            for row, units in read_units(reader, file.kind):
                self._take_window(number, file, row, units)

    def _take_window(self, number: int, file: QueueFile, row: int, units: Units) -> None:
        raw, totals, size = units.view(np.uint8), self.totals, self.unit_size
        runs = np.empty((most_runs(len(units)), 3), np.int64)
        totals[walk.SPLIT], totals[walk.RUNS] = walk.UNKNOWN, 0
        at, first = 0, file.base // size + row
        while at < len(units):
            behind = min(at + _STEP, len(units))
            if not raw[at * size : behind * size].any():  # preallocated
                at = behind
                continue
            totals[walk.DEVIATIONS] = 0
            at = walk.survey_units(
                raw, size, at, behind, first, self.borders, self.log_start, totals, runs, self.deviations
            )
            if totals[walk.DEVIATIONS]:
                self._report(file, row, units, self.deviations[: totals[walk.DEVIATIONS]])
        found = int(totals[walk.RUNS])
        if not found:
            return
        if found > len(runs):
            messages = np.flatnonzero(valid_units(units) & ~filler_units(units))
            places = units["physical_offset"][messages].astype(np.int64)
            runs = runs_by_split(messages, places, self.borders)
        split, start, last = runs[:found].T
        self.runs.append(np.column_stack((split, np.full_like(split, number), row + start, last - start + 1)))

    # --- reporting ----------------------------------------------------------------------------------

    def _report(self, file: QueueFile, row: int, units: Units, deviations: Ints) -> None:
        for kind, at, value in deviations[deviations[:, 0] != walk.INVALID].tolist():
            if kind == walk.HOLE:
                self._report_hole(at, value)
            else:
                self._report_count(file, row + at, int(units["queue_offset"][at]), value)
        bad = deviations[deviations[:, 0] == walk.INVALID, 1]
        for at in self.kept.admit("CQ-DANGLING", bad.tolist()):
            self._report_invalid(file, row + at, units[at])

    def _report_hole(self, row: int, count: int) -> None:
        position = row * self.unit_size
        # Rows behind the end of a file that was cut still belong to it.
        usual = max(file.size for file in self.files)
        file = next((file for file in reversed(self.files) if file.base <= position < file.base + usual), None)
        what = "unused units between used ones" if file is not None else "a queue file is missing"
        self.kept.add(
            Finding(
                "CQ-HOLE",
                f"{what}: startup truncates the queue here if it scans this",
                file=file.name if file is not None else f"{self.files[0].name.rpartition('/')[0]}/{position:020}",
                offset=position - file.base if file is not None else None,
                length=count * self.unit_size,
                topic=self.result.topic,
                queue_id=self.result.queue_id,
                queue_offset=row if self.files[0].kind == "queue" else None,
                count=count,
                expected="units or filler",
                found="no file" if file is None else "zeros" if position < file.base + file.size else "the file's end",
            )
        )

    def _report_invalid(self, file: QueueFile, row: int, unit: Units) -> None:
        self.kept.add(
            self._unit_finding(
                "CQ-DANGLING",
                "invalid unit: its offset is negative or its size is not positive; "
                "startup truncates the queue here if it scans it",
                file,
                row,
                None,
                "an offset and a size",
                f"offset {unit['physical_offset']}, size {unit['size']}",
            )
        )

    def _report_count(self, file: QueueFile, row: int, offset: int, expected: int) -> None:
        """Report a batch unit that leaves a gap or overlaps. Source: BatchConsumeQueue#recover."""
        self.kept.add(
            self._unit_finding(
                "BQ-COUNT",
                "the batch unit does not begin at the queue offset where the one before it ends",
                file,
                row,
                offset,
                str(expected),
                str(offset),
            )
        )

    def _unit_finding(
        self,
        code: str,
        what: str,
        file: QueueFile,
        row: int,
        queue_offset: int | None,
        expected: str | None,
        found: str | None,
    ) -> Finding:
        if queue_offset is None and file.kind == "queue":
            queue_offset = file.base // self.unit_size + row
        return Finding(
            code,
            what,
            file=file.name,
            offset=row * self.unit_size,
            length=self.unit_size,
            topic=self.result.topic,
            queue_id=self.result.queue_id,
            queue_offset=queue_offset,
            expected=expected,
            found=found,
        )

    def finish(self) -> None:
        """Fill in the result."""
        result, totals = self.result, self.totals.tolist()
        # An array takes a tenth of the memory: there may be ten thousand queues and as many splits.
        result.runs = joined_runs(self.runs)
        result.ascends = not totals[walk.DISORDER]
        result.units, result.expired, result.zero_behind = totals[walk.UNITS : walk.MIN_OFFSET]
        reached, result.max_offset = totals[walk.MIN_OFFSET] >= 0, totals[walk.MAX_OFFSET]
        result.min_offset = totals[walk.MIN_OFFSET] if reached else result.max_offset
        result.first_physical_offset = totals[walk.FIRST_PLACE] if reached else None
        result.last_physical_offset = totals[walk.LAST_PLACE] if result.units else None


def retention_findings(surveys: Iterable[QueueSurvey], log_start: int) -> Iterator[Finding]:
    """Yield one row each for units whose records retention deleted: CQ-EXPIRED and CQ-ZERO-BEHIND."""
    surveys = list(surveys)
    expired = [survey for survey in surveys if survey.expired]
    if expired:
        yield Finding(
            "CQ-EXPIRED",
            f"units of {count(len(expired), 'queue')} point before the log's start: retention deleted their records",
            file="consumequeue",
            count=sum(survey.expired for survey in expired),
            expected=f"{log_start} or behind",
        )
    zeros = [survey for survey in surveys if survey.zero_behind]
    if zeros:
        yield Finding(
            "CQ-ZERO-BEHIND",
            f"units of {count(len(zeros), 'queue')} have physical offset 0, before the log's first segment",
            file="consumequeue",
            count=sum(survey.zero_behind for survey in zeros),
        )

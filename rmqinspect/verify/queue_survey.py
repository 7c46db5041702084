"""A consume queue by itself: CQ-SIZE, CQ-HOLE, CQ-DANGLING, BQ-COUNT, and which units point into which split.

`survey_queue` reads a queue once, window by window. What its units say about records is judged where the records
are read (`verify.queue_join`). Rows are numbered through the whole queue by the names of its files:

    file 00000000000000000000        file 00000000000000006000
    | pre-blank | unit | unit | ... | unit | unit | zeros, preallocated
      row 0                           row 300

Source: ConsumeQueue#recover, #correctMinOffset, #fillPreBlank, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.

Ext consume queues by themselves: EX-SIZE.

Whether a queue unit's address points to an ext unit is judged with the queue unit (`verify.queue_join`).

Source: ConsumeQueueExt#recover, #putAndFlush; RocketMQ 4.1.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import field

from rmqinspect.codec.arrays import Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import (
    LAYOUTS,
    message_mask,
    read_units,
    usual_sizes,
)
from rmqinspect.errors import Unreadable
from rmqinspect.loops.arrays import Ints
from rmqinspect.loops.pointer_rows import (
    COUNT,
    DEVIATIONS,
    DISORDER,
    FIRST_KEPT,
    FIRST_PLACE,
    HOLE,
    INVALID,
    LAST_PLACE,
    LAST_TIME,
    LAST_USED,
    MAX_OFFSET,
    NEXT_OFFSET,
    RUNS,
    SPLIT,
    TOTALS,
    UNITS,
    UNKNOWN,
)
from rmqinspect.loops.pointers import survey_units
from rmqinspect.schemas.consumequeue import EXT_END_OF_FILE, ExtHead
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.verify.findings import Finding, Found, capped_findings, unread_finding
from rmqinspect.verify.plan import joined_runs, most_runs, runs_by_split

_OF_UNITS = {
    INVALID: (
        "CQ-DANGLING",
        "invalid unit: its offset is negative or its size is not positive; "
        "startup truncates the queue here if it scans it",
    ),
    # Source: BatchConsumeQueue#recover.
    COUNT: ("BQ-COUNT", "the batch unit does not begin at the queue offset where the one before it ends"),
}


# Rows that the loop takes at once; where all of them are preallocated zeros, none.
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


class QueueSurvey(Found):
    """Result of reading one queue. Offsets are queue offsets unless called physical."""

    topic: str
    queue_id: int
    kind: str  # queue, batch_queue
    runs: Ints = field(default_factory=lambda: np.empty((0, 4), np.int64))  # as `plan.Runs` has them
    ascends: bool = True  # every unit points behind the one before it
    units: int = 0  # of messages
    expired: int = 0  # those that point before the log's first segment
    zero_behind: int = 0  # those with physical offset 0, while the log begins later
    first_kept: int = 0
    max_offset: int = 0
    first_physical_offset: int | None = None  # that the first unit of a message in the log points at
    last_physical_offset: int | None = None  # that the newest unit of a message points at

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
        self.totals = totals = np.zeros(TOTALS, np.int64)
        totals[[FIRST_KEPT, FIRST_PLACE, LAST_PLACE]] = -1
        totals[LAST_TIME] = -(2**63)
        # The file names of a batch queue say nothing about its queue offsets.
        totals[MAX_OFFSET] = first.base // self.unit_size if first.kind == "queue" else 0
        self.forget()
        # A broker fills the rows before a queue's first message with pre-blanks: none is unused.
        totals[LAST_USED] = first.base // self.unit_size - 1

    def forget(self) -> None:
        """Forget the rows before: some could not be read."""
        self.totals[[LAST_USED, NEXT_OFFSET]] = UNKNOWN

    def take_file(self, number: int, file: QueueFile) -> None:
        with open_file(file) as reader:
            for row, units in read_units(reader, file.kind):
                self._take_window(number, file, row, units)

    def _take_window(self, number: int, file: QueueFile, row: int, units: Units) -> None:
        raw, totals, size = units.view(np.uint8), self.totals, self.unit_size
        runs = np.empty((most_runs(len(units)), 3), np.int64)
        totals[SPLIT], totals[RUNS] = UNKNOWN, 0
        at, first = 0, file.base // size + row
        while at < len(units):
            behind = min(at + _STEP, len(units))
            if not raw[at * size : behind * size].any():  # preallocated
                at = behind
                continue
            totals[DEVIATIONS] = 0
            at = survey_units(raw, size, at, behind, first, self.borders, self.log_start, totals, runs, self.deviations)
            if totals[DEVIATIONS]:
                self._report(file, row, units, self.deviations[: totals[DEVIATIONS]])
        found = int(totals[RUNS])
        if not found:
            return
        if found > len(runs):
            messages = np.flatnonzero(message_mask(units))
            places = units["physical_offset"][messages].astype(np.int64)
            runs = runs_by_split(messages, places, self.borders)
        split, start, last = runs[:found].T
        self.runs.append(np.column_stack((split, np.full_like(split, number), row + start, last - start + 1)))

    # --- reporting ----------------------------------------------------------------------------------

    def _report(self, file: QueueFile, row: int, units: Units, deviations: Ints) -> None:
        for kind, at, value in deviations[deviations[:, 0] != INVALID].tolist():
            if kind == HOLE:
                self._report_hole(at, value)
            else:
                self._report_unit(COUNT, file, row + at, units[at], str(value))
        bad = deviations[deviations[:, 0] == INVALID, 1]
        for at in self.kept.admit("CQ-DANGLING", bad.tolist()):
            self._report_unit(INVALID, file, row + at, units[at], "an offset and a size")

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

    def _report_unit(self, kind: int, file: QueueFile, row: int, unit: Units, expected: str) -> None:
        code, what = _OF_UNITS[kind]
        offset = file.base // self.unit_size + row if file.kind == "queue" else None
        found = f"offset {unit['physical_offset']}, size {unit['size']}"
        if kind == COUNT:
            offset = int(unit["queue_offset"])
            found = str(offset)
        self.kept.add(
            Finding(
                code,
                what,
                file=file.name,
                offset=row * self.unit_size,
                length=self.unit_size,
                topic=self.result.topic,
                queue_id=self.result.queue_id,
                queue_offset=offset,
                expected=expected,
                found=found,
            )
        )

    def finish(self) -> None:
        """Fill in the result."""
        result, totals = self.result, self.totals.tolist()
        # An array takes a tenth of the memory: there may be ten thousand queues and as many splits.
        result.runs = joined_runs(self.runs)
        result.ascends = not totals[DISORDER]
        result.units, result.expired, result.zero_behind = totals[UNITS:FIRST_KEPT]
        reached, result.max_offset = totals[FIRST_KEPT] >= 0, totals[MAX_OFFSET]
        result.first_kept = totals[FIRST_KEPT] if reached else result.max_offset
        result.first_physical_offset = totals[FIRST_PLACE] if reached else None
        result.last_physical_offset = totals[LAST_PLACE] if result.units else None


_HEAD = dtype_of(ExtHead)
WINDOW_SIZE = 1 << 20  # bytes per read
_SIZE = _HEAD["size"]


class ExtSurvey(Found):
    """Result of reading all ext files: at most one finding of each, as the units behind it cannot be found."""

    units: int = 0


def survey_ext(files: Sequence[QueueFile]) -> ExtSurvey:
    """Follow the sizes of the units of each file; return the units and what breaks the walk."""
    survey = ExtSurvey()
    for file in files:
        try:
            with open_file(file) as reader:
                _follow(reader, file, survey)
        except Unreadable as error:
            survey.unread.append(unread_finding(error))
    return survey


def _follow(reader: FileReader, file: QueueFile, survey: ExtSurvey) -> None:
    """Step from unit to unit. Runs of units of one size, as nearly all are, take one step."""
    start, raw = 0, reader.read(0, WINDOW_SIZE)
    at = 0  # position in the window
    while True:
        if at + _HEAD.itemsize > len(raw) and start + len(raw) < reader.size:
            start, at = start + at, 0
            raw = reader.read(start, WINDOW_SIZE)
        left = len(raw) - at
        size = int(np.frombuffer(raw, _SIZE, 1, at)[0]) if left >= _SIZE.itemsize else 0
        if size == 0 or size == EXT_END_OF_FILE:
            return  # end of the written part, or of a full file
        if size < _HEAD.itemsize or start + at + size > reader.size:
            survey.findings.append(_finding(file, start + at, None, size))
            return
        if size > left:
            start, at = start + at, 0
            raw = reader.read(start, max(WINDOW_SIZE, size))
            continue
        heads = np.ndarray((left // size,), _HEAD, raw, at, (size,)) if left >= size else np.empty(0, _HEAD)
        alike = (heads["size"] == size) & (heads["bitmap_size"] == size - _HEAD.itemsize)
        count = len(alike) if alike.all() else int(np.argmin(alike))
        if count == 0:
            bitmap = int(heads["bitmap_size"][0])
            survey.findings.append(_finding(file, start + at, _HEAD.itemsize + bitmap, size))
            return
        survey.units += count
        at += count * size


def _finding(file: QueueFile, position: int, expected: int | None, found: int) -> Finding:
    what = "the length of its bitmap" if expected is not None else "the file"
    return Finding(
        "EX-SIZE",
        f"the ext unit's size does not fit {what}: startup truncates the file here if it scans it",
        file=file.name,
        offset=position + place_of(ExtHead, "size"),
        length=_SIZE.itemsize,
        topic=file.topic,
        queue_id=file.queue_id,
        expected=None if expected is None else str(expected),
        found=str(found),
    )

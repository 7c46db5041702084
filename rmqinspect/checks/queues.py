"""The rules that a consume queue's own units decide, and where its units point into the log.

`survey_queue` reads a queue once, window by window. What its units say of the log's records is
judged where those records are read (`queue_join`); the survey only tells which rows point into
which split.

Source: ConsumeQueue#recover, #correctMinOffset, #fillPreBlank, BatchConsumeQueue; core 4.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.checks.findings import Finding
from rmqinspect.errors import Unreadable
from rmqinspect.layout import dtype_of
from rmqinspect.pieces import Ints, Run, cut_runs
from rmqinspect.queue_files import LAYOUTS, Units, read_units, unit_numbers, used_units, valid_units
from rmqinspect.rocksdb.queues import UNPACKED
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
from rmqinspect.store import QueueFile, Store, open_file

# Two messages and the one before them tell which of the three is out of order.
_CARRIED = 3


def check_sizes(store: Store) -> Iterator[Finding]:
    """Yield CQ-SIZE: files whose length is not that of their kind in this store, or holds part of a unit.

    Source: MappedFileQueue#load, which compares each length with the setting.
    """
    by_kind: dict[str, list[QueueFile]] = {}
    for file in store.queue_files:
        if UNPACKED not in file.name:
            by_kind.setdefault(file.kind, []).append(file)
    for kind, files in by_kind.items():
        lengths = Counter(file.size for file in files if file.size)
        usual = max(lengths, key=lambda size: (lengths[size], size), default=None)
        step = dtype_of(LAYOUTS[kind]).itemsize if kind in LAYOUTS else 1
        for file in files:
            if file.size == usual and not file.size % step:
                continue
            what = "the file has not the length that the store's other queue files have"
            if file.size % step:
                what = f"the file's length is no multiple of {step}, the size of a unit"
            yield Finding(
                "CQ-SIZE", what, file=file.name, topic=file.topic, queue_id=file.queue_id,
                expected=str(usual) if usual != file.size else None, found=str(file.size),
            )  # fmt: skip


@dataclass(slots=True)
class QueueSurvey:
    """What one queue says by itself. Offsets are logical unless they are called physical."""

    topic: str
    queue_id: int
    kind: str  # queue, batch_queue
    runs: list[tuple[int, Run]] = field(default_factory=list)  # (number of the file, rows of it)
    findings: list[Finding] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)  # more findings of a code, not kept
    disorder: list[Finding] = field(default_factory=list)  # CQ-ORDER, where the unit is not wrong otherwise
    units: int = 0  # of messages
    expired: int = 0  # of them before the log's first segment
    zero_behind: int = 0  # of them that have offset 0 while the log begins later
    min_offset: int = 0
    max_offset: int = 0
    last_physical_offset: int | None = None  # that the newest unit of a message points at
    unread: list[str] = field(default_factory=list)

    @property
    def name(self) -> tuple[str, int]:
        """(topic, queue id)."""
        return self.topic, self.queue_id


def survey_queue(files: Sequence[QueueFile], borders: Ints, log_start: int, limit: int) -> QueueSurvey:
    """Read all units of one queue; `limit` bounds the findings of a code.

    `borders` has the physical offsets where the log's splits begin, as `cut_runs` wants them.
    """
    survey = _Survey(files, borders, log_start, limit)
    for number, file in enumerate(files):
        try:
            survey.take_file(number, file)
        except Unreadable as error:
            survey.result.unread.append(str(error))
            survey.forget()
            survey.last_used = None
    survey.finish()
    return survey.result


class _Survey:
    def __init__(self, files: Sequence[QueueFile], borders: Ints, log_start: int, limit: int) -> None:
        first = files[0]
        self.files, self.borders, self.log_start, self.limit = files, borders, log_start, limit
        self.unit_size = dtype_of(LAYOUTS[first.kind]).itemsize
        # The file names of a batch queue say nothing about its queue offsets.
        start = first.base // self.unit_size if first.kind == "queue" else 0
        self.result = QueueSurvey(first.topic, first.queue_id, first.kind, min_offset=-1, max_offset=start)
        # Rows are counted through the queue by the names of its files. A broker fills up with
        # pre-blanks what lies before a queue's first message, so a queue begins with its first file.
        self.last_used: int | None = first.base // self.unit_size - 1  # None: not known
        self.last_order = ("", -1)
        self.forget()

    def forget(self) -> None:
        """Forget what came before: rows are missing."""
        self.carried: Units | None = None
        self.carried_rows: list[tuple[QueueFile, int, int]] = []
        self.next_offset: int | None = None  # of a batch queue

    def take_file(self, number: int, file: QueueFile) -> None:
        with open_file(file) as reader:
            for row, units in read_units(reader, file.kind):
                self._take_window(number, file, row, units)

    def _take_window(self, number: int, file: QueueFile, row: int, units: Units) -> None:
        used = np.flatnonzero(used_units(units))
        if not len(used):
            return
        self._holes(file.base // self.unit_size + row + used)
        valid = valid_units(units)
        bad = used[~valid[used]]
        if len(bad):
            self._invalid(file, row, units, bad)
        good = used[valid[used]]
        if not len(good):
            return
        offsets, counts = unit_numbers(file, row, units)
        last = good[-1]
        self.result.max_offset = min(int(offsets[last]) + int(counts[last]), 2**63 - 1)
        messages = good[units["size"][good] != PRE_BLANK_SIZE]
        if not len(messages):
            return
        places = units["physical_offset"][messages].astype(np.int64)
        self.result.last_physical_offset = int(places[-1])
        self._count(places, offsets[messages])
        self._order(file, row, units, messages, offsets)
        if file.kind == "batch_queue":
            self._counts_lead_on(file, row, units, messages)
        for run in cut_runs(places, self.borders):
            rows = messages[run.first], messages[run.first + run.rows - 1]
            self._add_run(number, Run(row + int(rows[0]), int(rows[1] - rows[0]) + 1, run.split))

    def _add_run(self, number: int, run: Run) -> None:
        runs = self.result.runs
        if runs and runs[-1][0] == number and runs[-1][1].split == run.split:
            before = runs[-1][1]
            if before.first + before.rows == run.first:
                runs[-1] = (number, Run(before.first, before.rows + run.rows, run.split))
                return
        runs.append((number, run))

    def _count(self, places: Ints, offsets: Units) -> None:
        result = self.result
        result.units += len(places)
        if result.min_offset >= 0:
            return
        reached = np.flatnonzero(places >= self.log_start)
        behind = places[: reached[0]] if len(reached) else places
        zeros = int(np.count_nonzero(behind == 0)) if self.log_start else 0
        result.expired += len(behind) - zeros
        result.zero_behind += zeros
        if len(reached):
            result.min_offset = int(offsets[reached[0]])

    # --- rules ----------------------------------------------------------------------------------

    def _holes(self, rows: Ints) -> None:
        """Tell rows without a unit between used ones; `rows` are those in use, counted through the queue."""
        last = rows[0] - 1 if self.last_used is None else self.last_used
        before = np.concatenate(([last], rows[:-1]))
        for at in np.flatnonzero(rows - before > 1).tolist():
            self._hole(int(before[at]) + 1, int(rows[at] - before[at]) - 1)
        self.last_used = int(rows[-1])

    def _hole(self, row: int, count: int) -> None:
        position = row * self.unit_size
        file = next((file for file in self.files if file.base <= position < file.base + file.size), None)
        what = "unused units" if file is not None else "a file is missing"
        self._report(
            Finding(
                "CQ-HOLE", f"{what}, and used ones behind: a start that reads this ends the queue here",
                file=file.name if file is not None else f"{self.files[0].name.rpartition('/')[0]}/{position:020}",
                offset=position - file.base if file is not None else None, length=count * self.unit_size,
                topic=self.result.topic, queue_id=self.result.queue_id,
                queue_offset=row if self.files[0].kind == "queue" else None, count=count,
                expected="units or filler", found="zeros" if file is not None else "no file",
            )
        )  # fmt: skip

    def _invalid(self, file: QueueFile, row: int, units: Units, bad: Ints) -> None:
        for at in bad[: self.limit].tolist():
            unit = units[at]
            self._report(self._unit_finding(
                "CQ-DANGLING", "no unit: its offset is negative or its size not above 0; "
                "a start that reads it ends the queue here", file, row + at, None,
                "an offset and a size", f"offset {unit['physical_offset']}, size {unit['size']}",
            ))  # fmt: skip
        self.result.left_out["CQ-DANGLING"] += max(0, len(bad) - self.limit)

    def _order(self, file: QueueFile, row: int, units: Units, messages: Ints, offsets: Units) -> None:
        """Tell units that stand out of order; of three neighbours the one without which the others ascend."""
        kept = units[messages]
        places = [(file, row + int(at), int(offsets[at])) for at in messages[-_CARRIED:].tolist()]
        merged = kept if self.carried is None else np.concatenate((self.carried, kept))
        start = 0 if self.carried is None else len(self.carried)
        self._breaks(merged, start, file, row, messages, offsets)
        self.carried = merged[-_CARRIED:].copy()
        self.carried_rows = (self.carried_rows + places)[-_CARRIED:]

    def _breaks(self, merged: Units, start: int, file: QueueFile, row: int, messages: Ints, offsets: Units) -> None:
        where = merged["physical_offset"].astype(np.int64)
        wrong = where[1:] <= where[:-1]
        code = "CQ-ORDER"
        if file.kind == "batch_queue":
            code = "BQ-ORDER"
            times = merged["store_timestamp"].astype(np.int64)
            wrong = wrong | (times[1:] < times[:-1])
        for at in (np.flatnonzero(wrong) + 1).tolist():
            if at < start or (at == start and start == 0):
                continue
            outlier = at
            if at >= 2 and where[at - 2] < where[at] and (at + 1 >= len(where) or where[at + 1] <= where[at - 1]):
                outlier = at - 1
            if outlier >= start:
                inside = int(messages[outlier - start])
                place = (file, row + inside, int(offsets[inside]))
            else:
                place = self.carried_rows[outlier - start]
            self._disorder(code, place, int(where[outlier]), int(where[outlier - 1]) if outlier else None)

    def _disorder(self, code: str, place: tuple[QueueFile, int, int], found: int, before: int | None) -> None:
        file, row, offset = place
        if self.last_order == (file.name, row):
            return
        self.last_order = file.name, row
        what = "its record stands before, or at, that of the unit before it"
        if before is not None and found > before:
            what = "its record stands behind that of the unit after it"
        if code == "BQ-ORDER":
            what = "physical offsets or store times of the batch units do not ascend here"
        finding = self._unit_finding(
            code, f"the queue is out of order: {what}", file, row, offset,
            f"behind {before}" if before is not None and found <= before else None, str(found),
        )  # fmt: skip
        if len(self.result.disorder) < self.limit:
            self.result.disorder.append(finding)
        else:
            self.result.left_out[code] += 1

    def _counts_lead_on(self, file: QueueFile, row: int, units: Units, messages: Ints) -> None:
        """BQ-COUNT: each batch unit begins where the one before it ends. Source: BatchConsumeQueue#recover."""
        base = units["queue_offset"][messages].astype(np.int64)
        after = base + units["message_count"][messages].astype(np.int64)
        expected = np.concatenate(([base[0] if self.next_offset is None else self.next_offset], after[:-1]))
        self.next_offset = int(after[-1])
        for at in np.flatnonzero(expected != base).tolist():
            self._report(self._unit_finding(
                "BQ-COUNT", "the batch unit does not begin where the one before it ends", file,
                row + int(messages[at]), int(base[at]), str(expected[at]), str(base[at]),
            ))  # fmt: skip

    # --- reporting ------------------------------------------------------------------------------

    def _unit_finding(
        self, code: str, what: str, file: QueueFile, row: int, queue_offset: int | None,
        expected: str | None, found: str | None,
    ) -> Finding:  # fmt: skip
        if queue_offset is None and file.kind == "queue":
            queue_offset = file.base // self.unit_size + row
        return Finding(
            code, what, file=file.name, offset=row * self.unit_size, length=self.unit_size,
            topic=self.result.topic, queue_id=self.result.queue_id, queue_offset=queue_offset,
            expected=expected, found=found,
        )  # fmt: skip

    def _report(self, finding: Finding) -> None:
        kept = sum(other.code == finding.code for other in self.result.findings[: self.limit + 1])
        if kept < self.limit:
            self.result.findings.append(finding)
        else:
            self.result.left_out[finding.code] += finding.count

    def finish(self) -> None:
        """Settle what only the queue's end tells."""
        if self.result.min_offset < 0:
            self.result.min_offset = self.result.max_offset


def retention_findings(surveys: Iterable[QueueSurvey], log_start: int) -> Iterator[Finding]:
    """Yield one row each for units that retention left behind: CQ-EXPIRED and CQ-ZERO-BEHIND."""
    surveys = list(surveys)
    expired = [survey for survey in surveys if survey.expired]
    if expired:
        yield Finding(
            "CQ-EXPIRED",
            f"units of {len(expired)} queues point before the log's first segment, as retention leaves them",
            file="consumequeue", count=sum(survey.expired for survey in expired), expected=f"{log_start} or behind",
        )  # fmt: skip
    zeros = [survey for survey in surveys if survey.zero_behind]
    if zeros:
        yield Finding(
            "CQ-ZERO-BEHIND", f"units of {len(zeros)} queues have physical offset 0, before the log's first segment",
            file="consumequeue", count=sum(survey.zero_behind for survey in zeros),
        )  # fmt: skip

"""The queue units that point into one split: their bytes, and columns of those that break a rule.

`loops.pointers.step_units` judges them; `verify.queue_join` words what it finds.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.loops.arrays import Bytes, Ints
from rmqinspect.loops.pointer_rows import EXPECTED, RECORD, ROW, VERDICT
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import Pointers, read_runs

VALUES = ("physical_offset", "size", "tags", "offset", "messages", "timestamp", "expected")
"""What is known of a unit: `offset` is its queue offset, `expected` the one that its record gives it; `timestamp` is 0
for a plain unit, which has none."""


class UnitBytes:
    """Rows of one kind of file, one behind another: in a split, thousands of queues may have a few units each."""

    def __init__(self, plan: CrossPlan, kind: str, rows: int) -> None:
        """Make room for so many rows."""
        self.plan, self.layout = plan, dtype_of(LAYOUTS[kind])
        self.runs: list[tuple[int, int, int]] = []  # number of the file, first row, rows
        self._room, self._used = np.empty(rows * self.layout.itemsize, np.uint8).data, 0

    def read(self, number: int, first: int, count: int) -> None:
        """Append rows of a file.

        :raises Unreadable: the system reports an I/O error.
        """
        size = self.layout.itemsize
        with open_file(self.plan.queue_files[number]) as reader:
            rows = reader.read_into(self._room[self._used : self._used + count * size], first * size) // size
        self.runs.append((number, first, rows))
        self._used += rows * size

    @property
    def raw(self) -> Bytes:
        """The rows that were read."""
        return np.frombuffer(self._room[: self._used], np.uint8)

    def pointers(self, wrong: Ints) -> Pointers:
        """Return the units in a table that `step_units` filled."""
        which = wrong[:, ROW]
        units = self.raw.view(self.layout)[which]
        number, first, rows = np.array(self.runs, np.int64).T
        behind = np.cumsum(rows)
        run = np.searchsorted(behind, which, "right")
        file, row = number[run], first[run] + which - (behind - rows)[run]
        names = self.layout.names or ()

        def column(name: str, default: Ints) -> Ints:
            return units[name].astype(np.int64) if name in names else default

        values = (
            units["physical_offset"].astype(np.int64),
            units["size"].astype(np.int64),
            units["tags_code"].astype(np.int64),
            column("queue_offset", self.plan.queues.first_offset[file] + row),
            column("message_count", np.ones_like(row)),
            column("store_timestamp", np.zeros_like(row)),
            wrong[:, EXPECTED],
        )
        values_by_name = dict(zip(VALUES, values, strict=True))
        return Pointers(file, row, wrong[:, RECORD], wrong[:, VERDICT], values_by_name)


def read_unit_bytes(plan: CrossPlan, number: int, problems: list[Finding], unread: set[QueueName]) -> list[UnitBytes]:
    """Return the units that the survey found to point into split `number`, and others between them.

    Queues with an I/O error are added to `unread`, ST-IO to `problems`.
    """
    runs, files = plan.runs_of("unit", number), plan.queue_files
    rows = dict.fromkeys(LAYOUTS, 0)
    for file, _, count in runs:
        rows[files[file].kind] += count
    parts = {kind: UnitBytes(plan, kind, of_kind) for kind, of_kind in rows.items()}

    def read(file: int, first: int, count: int) -> bool:
        parts[files[file].kind].read(file, first, count)
        return True

    for file, done in read_runs(runs, read, problems):
        if not done:
            unread.add((files[file].topic, files[file].queue_id))
    return [part for part in parts.values() if part.runs]


class JoinedUnits(Struct):
    """The units of a split, and what its records have of them."""

    plan: CrossPlan
    records: Dispatched
    own_names: list[QueueName]  # of the records' queues, as the records number them
    own_numbers: Ints  # their numbers in `plan.queues`; -1: no file
    wrong: Pointers  # units that break a rule
    has_unit: NDArray[np.uint8]  # by record: `step.OWN_UNIT` and others
    further: set[tuple[int, int]]  # (record, number of the queue) of the units by multi-dispatch that are there
    joined: Ints  # by number of the file: how many units point at a record of theirs

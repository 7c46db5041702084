"""The queue units that point into one split: their bytes, and columns of those that are judged one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from rmqinspect.codec.arrays import Bytes, Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import Location, Pointers, read_runs


@dataclass(slots=True)
class QueuePointers(Pointers):
    """Units in the order of their files and rows, and so of physical offsets within each queue."""

    size: Ints
    tags: Ints
    offset: Ints  # queue offset
    messages: Ints
    timestamp: Ints  # of a batch unit, ms; else 0

    @classmethod
    def joined(cls, parts: Sequence["QueuePointers"]) -> "QueuePointers":
        """Return the units of all parts."""
        nothing = np.empty(0, np.int64)
        names = [part.name for part in fields(cls)]
        return cls(*(np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in names))


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

    def columns(self, which: Ints) -> QueuePointers:
        """Return the units at these rows of `raw`."""
        units = self.raw.view(self.layout)[which]
        number, first, rows = np.array(self.runs, np.int64).T
        behind = np.cumsum(rows)
        run = np.searchsorted(behind, which, "right")
        file, row = number[run], first[run] + which - (behind - rows)[run]
        names = self.layout.names or ()

        def column(name: str, default: Ints) -> Ints:
            return units[name].astype(np.int64) if name in names else default

        return QueuePointers(
            units["physical_offset"].astype(np.int64),
            file,
            row,
            units["size"].astype(np.int64),
            units["tags_code"].astype(np.int64),
            column("queue_offset", self.plan.queues.first_offset[file] + row),
            column("message_count", np.ones_like(row)),
            column("store_timestamp", np.zeros_like(row)),
        )


def read_unit_bytes(plan: CrossPlan, number: int, problems: list[Finding], unread: set[QueueName]) -> list[UnitBytes]:
    """Return the units that the survey found to point into split `number`, and others between them.

    Queues with an I/O error are added to `unread`, ST-IO to `problems`.
    """
    runs, files = plan.queue_runs.of_split(number), plan.queue_files
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


def locate_unit(plan: CrossPlan, units: QueuePointers, at: int) -> Location:
    """Return where a unit is stored."""
    file = plan.queue_files[int(units.file[at])]
    size = dtype_of(LAYOUTS[file.kind]).itemsize
    return Location(file.name, int(units.row[at]) * size, size, file.topic, file.queue_id, int(units.offset[at]))

"""The queue units that point into one split, read as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, filler_units, valid_units
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import Location, Pointers, read_runs

_UNIT_SIZE: int = QueueUnit.sizeof()


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


class _RawRuns:
    """Rows of one layout joined into one array: in a split, thousands of queues may have a few units each."""

    def __init__(self, kind: str) -> None:
        self.layout = dtype_of(LAYOUTS[kind])
        self.runs: list[tuple[int, int, int]] = []  # number of the file, first row, rows
        self.raw: list[bytes] = []

    def add(self, file: QueueFile, number: int, first: int, count: int) -> None:
        """Read rows of a file.

        :raises Unreadable: the system reports an I/O error.
        """
        with open_file(file) as reader:
            raw = reader.read(first * self.layout.itemsize, count * self.layout.itemsize)
        rows = len(raw) // self.layout.itemsize
        self.raw.append(raw[: rows * self.layout.itemsize])
        self.runs.append((number, first, rows))

    def columns(self, low: int, high: int, firsts: Ints) -> QueuePointers:
        """Return the units of messages that point at [low, high); `firsts` has each file's first queue offset."""
        units = np.frombuffer(b"".join(self.raw), self.layout)
        number, first, rows = np.array(self.runs, np.int64).T
        begins = np.cumsum(rows) - rows
        offsets = units["physical_offset"].astype(np.int64)
        inside = valid_units(units) & ~filler_units(units) & (offsets >= low) & (offsets < high)
        file, row = np.repeat(number, rows), np.arange(len(units)) + np.repeat(first - begins, rows)
        if not inside.all():
            units, offsets, file, row = units[inside], offsets[inside], file[inside], row[inside]
        size, tags = units["size"].astype(np.int64), units["tags_code"].astype(np.int64)
        if "message_count" in (self.layout.names or ()):
            base, messages, stored = (
                units[name].astype(np.int64) for name in ("queue_offset", "message_count", "store_timestamp")
            )
            return QueuePointers(offsets, file, row, size, tags, base, messages, stored)
        return QueuePointers(offsets, file, row, size, tags, firsts[file] + row, np.ones_like(row), np.zeros_like(row))


def read_queue_pointers(plan: CrossPlan, number: int, problems: list[Finding], unread: set[QueueName]) -> QueuePointers:
    """Return the units that point into split `number`.

    Queues with an I/O error are added to `unread`, ST-IO to `problems`.
    """
    low, high = plan.range_of(number)
    raw = {kind: _RawRuns(kind) for kind in LAYOUTS}

    def read(number: int, first: int, count: int) -> bool:
        file = plan.queue_files[number]
        raw[file.kind].add(file, number, first, count)
        return True

    for file, done in read_runs(plan.queue_runs.of_split(number), read, problems):
        if not done:
            unread.add((plan.queue_files[file].topic, plan.queue_files[file].queue_id))
    firsts = np.array([file.base // _UNIT_SIZE for file in plan.queue_files], np.int64)
    parts = [runs.columns(low, high, firsts) for runs in raw.values() if runs.runs]
    return parts[0] if len(parts) == 1 else QueuePointers.joined(parts)


def locate_unit(plan: CrossPlan, units: QueuePointers, at: int) -> Location:
    """Return where a unit is stored."""
    file = plan.queue_files[int(units.file[at])]
    size = dtype_of(LAYOUTS[file.kind]).itemsize
    return Location(file.name, int(units.row[at]) * size, size, file.topic, file.queue_id, int(units.offset[at]))

"""Which units of a queue are out of order: CQ-ORDER and BQ-ORDER.

Judged over the units that are not wrong otherwise: a unit that leads nowhere says nothing about the
order of its neighbours. So it is asked last, and only of the queues that do not ascend.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, filler_units, read_units, unit_numbers, unit_times, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding

Spans = Sequence[tuple[int, int]]  # [start, end) in bytes of a file

# Two units and the one before them tell which of the three is out of order.
_CARRIED = 3


class _Unit(NamedTuple):
    place: int  # physical offset
    time: int  # ms; 0 where units have none
    file: QueueFile
    row: int
    offset: int  # queue offset


def find_disorder(files: Sequence[QueueFile], wrong: Mapping[str, Spans]) -> Iterator[Finding]:
    """Yield the units of a queue that are out of order, leaving out those in the `wrong` spans of its files.

    Files that cannot be read are left out too: that was told.
    """
    carried: list[_Unit] = []
    reported: set[tuple[str, int]] = set()
    for file in files:
        try:
            with open_file(file) as reader:
                for row, units in read_units(reader, file.kind):
                    messages = np.flatnonzero(valid_units(units) & ~filler_units(units))
                    messages = messages[~_within(row + messages, wrong.get(file.name, ()), units.dtype.itemsize)]
                    offsets, _ = unit_numbers(file, row, units)
                    places = units["physical_offset"][messages].astype(np.int64)
                    times = unit_times(units[messages])
                    times = np.zeros_like(places) if times is None else times
                    lead = len(carried)
                    places = np.concatenate(([unit.place for unit in carried], places)).astype(np.int64)
                    times = np.concatenate(([unit.time for unit in carried], times)).astype(np.int64)

                    def unit_at(
                        at: int,
                        file: QueueFile = file,
                        row: int = row,
                        before: list[_Unit] = carried,
                        places: Ints = places,
                        times: Ints = times,
                        messages: Ints = messages,
                        offsets: Ints = offsets,
                    ) -> _Unit:
                        if at < len(before):
                            return before[at]
                        inside = int(messages[at - len(before)])
                        return _Unit(int(places[at]), int(times[at]), file, row + inside, int(offsets[inside]))

                    for at in _outliers(places, times, lead):
                        unit = unit_at(at)
                        if (unit.file.name, unit.row) not in reported:
                            reported.add((unit.file.name, unit.row))
                            yield _finding(unit, int(places[at - 1]) if at else None)
                    carried = [unit_at(at) for at in range(max(0, len(places) - _CARRIED), len(places))]
        except Unreadable:
            carried = []


def _within(rows: Ints, spans: Spans, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows begin in one of the spans."""
    inside = np.zeros(len(rows), np.bool_)
    for start, end in spans:
        inside |= (rows * size >= start) & (rows * size < end)
    return inside


def _outliers(places: Ints, times: Ints, lead: int) -> Iterator[int]:
    """Yield which of consecutive units, judged before `lead` already, the others ascend without."""
    wrong = (places[1:] <= places[:-1]) | (times[1:] < times[:-1])
    for at in (np.flatnonzero(wrong) + 1).tolist():
        if at < lead:
            continue
        healed = at >= 2 and places[at - 2] < places[at]
        goes_on = at + 1 < len(places) and places[at + 1] > places[at - 1]
        yield at - 1 if healed and not goes_on else at


def _finding(unit: _Unit, before: int | None) -> Finding:
    behind = before is not None and unit.place > before
    what = "its record stands before, or at, that of the unit before it"
    if behind:
        what = "its record stands behind that of the unit after it"
    size = dtype_of(LAYOUTS[unit.file.kind]).itemsize
    batch = unit.file.kind == "batch_queue"
    if batch:
        what = "physical offsets or store times of the batch units do not ascend here"
    return Finding(
        "BQ-ORDER" if batch else "CQ-ORDER",
        f"the queue is out of order: {what}",
        file=unit.file.name,
        offset=unit.row * size,
        length=size,
        topic=unit.file.topic,
        queue_id=unit.file.queue_id,
        queue_offset=unit.offset,
        expected=None if before is None or behind else f"behind {before}",
        found=str(unit.place),
    )

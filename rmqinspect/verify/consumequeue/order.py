"""Units of a queue that are out of order: CQ-ORDER and BQ-ORDER.

Physical offsets must ascend along a queue. Where they do not, one of three units is the outlier: the one whose
removal lets the others ascend.

    100  200  900  300  400      900 is reported: 200, 300 ascend without it
    100  200   50  300  400       50 is reported

Units that are wrong otherwise are left out: a dangling unit says nothing about its neighbours. So this runs last,
and only for queues that do not ascend.
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

_CARRIED = 3  # units of the window before: an outlier is judged with its two neighbours


class _Unit(NamedTuple):
    physical_offset: int  # that it points at
    time: int  # ms; 0 where units have none
    file: QueueFile
    row: int
    offset: int  # queue offset


def find_disorder(files: Sequence[QueueFile], wrong: Mapping[str, Spans]) -> Iterator[Finding]:
    """Yield the units of a queue that are out of order, without those in the `wrong` spans of its files.

    Files that cannot be read are skipped: the survey has reported them.
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
                    places = np.concatenate(([unit.physical_offset for unit in carried], places)).astype(np.int64)
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
    """Yield the outliers among consecutive units; those before `lead` were judged in the window before."""
    wrong = (places[1:] <= places[:-1]) | (times[1:] < times[:-1])
    for at in (np.flatnonzero(wrong) + 1).tolist():
        if at < lead:
            continue
        healed = at >= 2 and places[at - 2] < places[at]
        goes_on = at + 1 < len(places) and places[at + 1] > places[at - 1]
        yield at - 1 if healed and not goes_on else at


def _finding(unit: _Unit, before: int | None) -> Finding:
    behind = before is not None and unit.physical_offset > before
    what = "the unit points at or before the record of the previous unit"
    if behind:
        what = "the unit points behind the record of the next unit"
    size = dtype_of(LAYOUTS[unit.file.kind]).itemsize
    batch = unit.file.kind == "batch_queue"
    if batch:
        what = "physical offsets or store times of batch units do not ascend here"
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
        found=str(unit.physical_offset),
    )

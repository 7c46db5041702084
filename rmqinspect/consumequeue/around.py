"""The message units of a queue around some queue offsets, read without the rest of the queue."""

from collections.abc import Iterator, Sequence

import numpy as np

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, filler_units, read_units, unit_numbers, valid_units
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import open_file


def units_around(files: Sequence[QueueFile], low: int, high: int) -> tuple[Ints, Ints]:
    """Return (queue offsets, physical offsets) of the message units in [low, high) of one queue, by queue offset.

    Batch units do not stand at their queue offset: all of a batch queue are returned.

    :raises Unreadable: an I/O error.
    """
    offsets: list[Ints] = [np.empty(0, np.int64)]
    places: list[Ints] = [np.empty(0, np.int64)]
    for numbers, units in message_units(files, low, high):
        offsets.append(numbers)
        places.append(units["physical_offset"].astype(np.int64))
    found = np.concatenate(offsets)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(places)[order]


def message_units(files: Sequence[QueueFile], low: int, high: int) -> Iterator[tuple[Ints, Units]]:
    """Yield (queue offsets, units) of the message units in [low, high) of one queue; of a batch queue all units.

    :raises Unreadable: an I/O error.
    """
    for file in files:
        read = _rows_between(file, low, high) if file.kind == "queue" else _all_rows(file)
        for row, units in read:
            message = (valid_units(units) != 0) & ~filler_units(units)
            yield unit_numbers(file, row, units)[0][message], units[message]


def _rows_between(file: QueueFile, low: int, high: int) -> Iterator[tuple[int, Units]]:
    layout = dtype_of(LAYOUTS[file.kind])
    begin = file.base // layout.itemsize
    first, last = max(0, low - begin), min(file.size // layout.itemsize, high - begin)
    if first < last:
        with open_file(file) as reader:
            raw = reader.read(first * layout.itemsize, (last - first) * layout.itemsize)
        yield first, np.frombuffer(raw, layout, len(raw) // layout.itemsize)


def _all_rows(file: QueueFile) -> Iterator[tuple[int, Units]]:
    with open_file(file) as reader:
        yield from read_units(reader, file.kind)

"""Units of the queues in which delayed messages wait."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, Units
from rmqinspect.consumequeue.units import filler_units, read_ext_tags, read_units, unit_numbers, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.record_columns import CHUNK_ROWS

NO_OFFSET = -1


@dataclass(slots=True)
class DelayUnits:
    """Some messages of one queue: columns of one length."""

    queue_id: int
    offsets: Ints  # queue offsets; NO_OFFSET where no unit of the queue leads to the record
    places: Ints  # physical offsets of the records
    sizes: Ints  # of the records
    due: Ints  # ms; 0 where only the record tells

    def select(self, which: Bools | slice) -> "DelayUnits":
        """Return some of them."""
        return DelayUnits(self.queue_id, self.offsets[which], self.places[which], self.sizes[which], self.due[which])

    def chunks(self) -> Iterator["DelayUnits"]:
        """Yield a few at a time: their records are read together."""
        for first in range(0, len(self.places), CHUNK_ROWS):
            yield self.select(slice(first, first + CHUNK_ROWS))


def units_of_topic(store: Store, topic: str, tell: Callable[[str], None] | None) -> Iterator[DelayUnits]:
    """Yield the message units of a topic, by queue and queue offset; `due` is the tags code.

    0 is the tags code of an ext unit that cannot be read. `tell` gets what else cannot be read.

    :raises Unreadable: a file cannot be read, and there is no `tell`.
    """
    files = sorted((file for file in store.queue_files if file.topic == topic), key=_queue_id)
    for queue_id, group in groupby(files, _queue_id):
        of_queue = list(group)
        exts = [file for file in of_queue if file.kind == "ext_queue"]
        for file in of_queue:
            try:
                if file.kind == "queue":
                    yield from _units_in(file, queue_id, exts)
            except Unreadable as error:
                if tell is None:
                    raise
                tell(str(error))


def _queue_id(file: QueueFile) -> int:
    return file.queue_id


def _units_in(file: QueueFile, queue_id: int, exts: Sequence[QueueFile]) -> Iterator[DelayUnits]:
    with open_file(file) as reader:
        for first, window in read_units(reader, file.kind):
            some = np.flatnonzero(valid_units(window) & ~filler_units(window))
            offsets, units = unit_numbers(file, first, window)[0][some], window[some]
            places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            yield DelayUnits(queue_id, offsets, places, sizes, _tags_codes(units, exts))


def _tags_codes(units: Units, exts: Sequence[QueueFile]) -> Ints:
    tags: Ints = units["tags_code"].astype(np.int64)
    in_ext = tags <= EXT_ADDRESS_MAX
    if not in_ext.any():
        return tags
    found, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), np.bool_)
    read_ext_tags(exts, tags, found, known)
    return np.where(in_ext, np.where(known, found, 0), tags)

"""What starts read of the files of queues: units in tables of columns, and which of them a broker accepts.

    file       |....accepted....|..filler..|stale.....|
    prefix     rows, the last of them, the largest physical offset       read once for all walks
    table      a column for each: physical offset, size; of a batch queue first queue offset and messages

Source: ConsumeQueue#recover, BatchConsumeQueue#recover; RocketMQ 4.0.0 to 5.5.0.
"""

from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, read_units, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import open_file

SIMPLE, BATCH = LAYOUTS  # kinds of files
UNITS = {kind: layout.sizeof() for kind, layout in LAYOUTS.items()}  # bytes
_COLUMNS = {
    SIMPLE: ("physical_offset", "size"),
    BATCH: ("physical_offset", "size", "queue_offset", "message_count"),
}
_HELD = 16 << 20  # bytes of queue files that are held for the walks of other releases
_HELD_COST = 256  # what a read takes beside its bytes
_LONG_READ = 1 << 16  # bytes: longer ones are not held


class Prefix(NamedTuple):
    """The units at the start of a file that a broker accepts."""

    rows: int
    offset: int = -1  # physical offset of the last one; -1: none
    size: int = -1
    top: int = -1  # largest physical offset


class Shelf:
    """Reads the files of queues; what cannot be read is in `problems`."""

    def __init__(self, settings: Settings) -> None:
        """Take the settings that say how long each file is."""
        sizes = (settings.mapped_file_size_consume_queue, settings.mapper_file_size_batch_consume_queue)
        self._layouts = {kind: dtype_of(layout) for kind, layout in LAYOUTS.items()}
        # ConsumeQueue rounds its setting up to whole units.
        self.file_sizes = {
            kind: max(1, -(-size // layout.itemsize)) * layout.itemsize
            for (kind, layout), size in zip(self._layouts.items(), sizes, strict=True)
        }
        self.problems: list[str] = []  # for people
        self._prefixes: dict[str, Prefix] = {}  # by path
        self._held: dict[tuple[str, int, int], bytes] = {}  # by path, row, number of units
        self._room = _HELD

    def prefix(self, file: QueueFile) -> Prefix:
        """Return the accepted units at the start of a file, read once; none where it cannot be read."""
        known = self._prefixes.get(file.path)
        if known is None:
            try:
                known = _prefix(file)
            except Unreadable as error:
                self.problems.append(str(error))
                known = Prefix(0)
            self._prefixes[file.path] = known
        return known

    def table(self, file: QueueFile, first: int, count: int) -> Ints:
        """Return units of a file from a row on as columns: physical offset, size; of a batch its base, messages."""
        units = self.units(file, first, count)
        return np.array([units[name] for name in _COLUMNS[file.kind]], np.int64)

    def units(self, file: QueueFile, row: int, count: int) -> Units:
        """Return units of a file from a row on; zeros where it is shorter or cannot be read.

        The starts of all releases ask for the same ones: what was read is held, as long as there is room.
        """
        key = file.path, row, count
        raw = self._held.get(key)
        if raw is None:
            raw = self._read(file, row, count)
            if len(raw) <= min(_LONG_READ, self._room):
                self._held[key] = raw
                self._room -= len(raw) + _HELD_COST
        return np.frombuffer(raw, self._layouts[file.kind])

    def _read(self, file: QueueFile, row: int, count: int) -> bytes:
        size = self._layouts[file.kind].itemsize
        raw = bytearray(count * size)
        try:
            with open_file(file) as reader:
                reader.read_into(raw, row * size)
        except Unreadable as error:
            self.problems.append(str(error))
        return bytes(raw)


def _prefix(file: QueueFile) -> Prefix:
    """Read the units at the start of a file, as ConsumeQueue#recover accepts them.

    :raises Unreadable: the system reports an I/O error.
    """
    rows, offset, size, top = 0, -1, -1, -1
    with open_file(file) as reader:
        for row, units in read_units(reader, file.kind):
            if row > rows:
                break  # a hole of zeros lies before it
            refused = ~valid_units(units)
            count = int(refused.argmax()) if refused.any() else len(units)
            if count:
                offsets = units["physical_offset"][:count]
                offset, size, top = int(offsets[-1]), int(units["size"][count - 1]), max(top, int(offsets.max()))
            rows += count
            if count < len(units):
                break
    return Prefix(rows, offset, size, top)

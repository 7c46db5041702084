"""The files of consume queues under construction: units stand where their queue offsets say.

    queue offset      0 .. 3        4 5 6 7     8  9        first record of the queue: 6; units per file: 4
    file              (none)        00000080    00000160
    units                           f f m m     m  h        f: filler, as a broker writes it before the first unit
                                                            h: no record has this offset: a copy of a neighbour's unit

A batch queue has no such places: its units stand one behind the other. An ext queue has a unit for each of the queue's.
A queue without a record has nothing to copy: its units lead to no record at all (`Vacant`).

What a broker does with an offset that it does not expect, and what is done here:

    offset            a broker                                 here
    as expected       appends the unit                         the same
    lower             leaves it out                            the same, but for 0
    0, not the first  appends it: all that follow are left     the queue begins anew: its topic was deleted, and
                      out, or stand in the wrong place         made again; its other queues begin anew, or are gone
    higher            appends it: all units from there on      the offsets between get copies of the unit
                      stand in the wrong place

Source: ConsumeQueue#putMessagePositionInfo, #fillPreBlank, ConsumeQueueExt#put, BatchConsumeQueue
#putBatchMessagePositionInfo, MappedFileQueue#getLastMappedFile; RocketMQ 4.0.0 to 5.5.0.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.codec.arrays import Ints, Units, groups
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Refused
from rmqinspect.schemas.consumequeue import (
    EXT_ADDRESS_BASE,
    EXT_END_OF_FILE,
    PRE_BLANK,
    BatchUnit,
    ExtHead,
    QueueUnit,
)
from rmqinspect.system.output_file import as_refusal
from rmqinspect.system.uri import shown
from rmqinspect.text import group_digits

Queue = tuple[str, int]  # topic, queue id

UNIT, BATCH_UNIT = dtype_of(QueueUnit), dtype_of(BatchUnit)
_EXT_HEAD = dtype_of(ExtHead)
_EXT_END = np.array([EXT_END_OF_FILE], _EXT_HEAD["size"]).tobytes()
_EXT_SPARE = 4  # bytes of an ext file that no unit uses: ConsumeQueueExt.END_BLANK_DATA_LENGTH
_FILLER = np.array([tuple(PRE_BLANK.values())], UNIT)

_LAST_TIME = 253_402_300_799_999  # ms: the end of the year 9999

_LARGEST_HOLE = 1 << 24
"""Offsets between two records of a queue that get units. No log that a broker wrote lacks so many in its middle, and
a number that a record makes up must not fill a disk."""


_LARGEST_BATCH = 2**15 - 1  # messages of a batch unit, a Java short

_MOST_VACANT = 1 << 20
"""Offsets of a queue without a record that get units: the last ones. They say no more than where the queue goes on."""

LAST_OFFSET = (2**63 - 1 - 2**31) // UNIT.itemsize  # a file behind it has an offset that is a Java long, too


class HoleTooLarge(Refused):
    """The record at `place`, a physical offset, says a queue offset too far from that of the one before it."""

    def __init__(self, text: str, place: int) -> None:
        super().__init__(text)
        self.place = place


def may_be_folder(topic: str) -> bool:
    """Return whether a topic can name a folder of its own. A broker asks no record for that."""
    return topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic


class QueueWritten(Struct):
    """What was written of one queue: its offsets are [first, end), of which `copies` have the unit of a neighbour."""

    first: int
    end: int
    copies: int = 0
    left_out: int = 0  # records at an offset that an earlier one has
    restarts: int = 0  # how often the queue began anew at 0
    vacant: "Vacant | None" = None  # no record is left: the copies are of a unit that leads to none
    copied: list[range] = field(default_factory=list)  # their offsets


class Vacant(NamedTuple):
    """What a queue of which no record is left has at its offsets [first, end): one and the same unit."""

    first: int
    end: int
    place: int  # physical offset
    size: int
    tags_code: int = 0
    timestamp: int = 0  # ms: store time, where units have one
    guessed: bool = False  # only consumer offsets tell where it ends


class LostQueues(NamedTuple):
    """What queues had that the log does not say."""

    vacant: Mapping[Queue, Vacant] = {}  # of which no record is left; one of which the log has a record is left out
    batch_ends: Mapping[Queue, int] = {}  # of batch queues: the offset behind the last message
    reached: Mapping[Queue, int] = {}  # the offset at which a group goes on
    first_lost: int | None = None  # place behind which queues that begin have lost their beginning: their log has not
    most_lost: int = 0  # messages that can have been lost: queues do not reach further than that beyond their records


NOTHING_LOST = LostQueues()


class QueueFiles:
    """All queues of one kind; units are added in the order of the log."""

    unit = UNIT
    """The layout of the units that are added."""

    first_lost: int | None = None
    """As in `LostQueues`."""

    most_lost = 0
    """As in `LostQueues`."""

    has_files = True
    """Whether a unit stands where its queue offset says in a row of files."""

    def __init__(self, folder: str, file_size: int, lost: Mapping[Queue, Ints], *, ext_size: int | None = None) -> None:
        """Write below `folder` files of so many bytes, a multiple of a unit; with `ext_size`, ext files, too.

        `lost`: offsets that queues have to have, ascending; see `rebuild.rebuild_derived`.
        """
        self.folder, self.file_size = folder, file_size
        self.written: dict[Queue, QueueWritten] = {}
        self._lost = lost
        self._ext_size = ext_size
        self._last: dict[Queue, Units] = {}  # the newest unit of each queue
        self._begun: dict[Queue, int] = {}  # where the first record of each queue is, physical offset
        self._ended: dict[Queue, int] = {}  # of those that began anew, where the last record of before is
        self.former: dict[Queue, int] = {}  # queues that went with their topic, and how many records they had
        self._ext_units: dict[Queue, int] = {}

    def add(self, queue: Queue, offsets: Ints, units: Units, times: Ints, *, with_ext: bool = True) -> None:
        """Add units of one queue, at least one, and the store times of their records, ms.

        `with_ext`: each gets an ext unit, if there are ext files.

        :raises Refused: a file cannot be written, or a hole is larger than any log has.
        """
        if self._ext_size is not None and with_ext:
            units["tags_code"] = self._add_ext(queue, units["tags_code"], times)
        written = self.written.get(queue)
        if int(offsets.min()) < 0 or int(offsets.max()) > LAST_OFFSET:
            raise Refused(f"{shown(queue[0])}/{queue[1]}: a record has a queue offset that no queue can have")
        expected = int(offsets[0]) if written is None else written.end
        if int(offsets[0]) == expected and bool((offsets[1:] - offsets[:-1] == 1).all()):
            self._append(queue, expected, units)
        else:
            for first, behind in _steady(offsets):
                self._add_run(queue, int(offsets[first]), units[first:behind])
        if self.has_files:
            self._date(queue, offsets, times)

    def _date(self, queue: Queue, offsets: Ints, times: Ints) -> None:
        """Give each file the time of its newest unit: up to 5.1.0 a search by time asks when files were changed.

        Source: MappedFileQueue#getConsumeQueueMappedFileByTime.
        """
        position = offsets * UNIT.itemsize
        for first, behind in groups(position // self.file_size):
            start = int(position[first]) // self.file_size * self.file_size
            path = os.path.join(self.path_of(queue), f"{start:020d}")
            changed = min(max(int(times[behind - 1]), 0), _LAST_TIME) * 1_000_000
            with suppress(FileNotFoundError):  # of a queue that has begun anew
                os.utime(path, ns=(changed, changed))

    def _add_run(self, queue: Queue, offset: int, units: Units) -> None:
        """Add units at consecutive offsets."""
        written = self.written.get(queue)
        if written is not None and offset == 0 < written.end:
            self._restart(queue)
            self._begun[queue] = int(units["physical_offset"][0])
        elif written is not None and offset < written.end:
            known = min(len(units), written.end - offset)
            written.left_out += known
            offset, units = offset + known, units[known:]
        if len(units):
            self._append(queue, offset, units)

    def _append(self, queue: Queue, offset: int, units: Units) -> None:
        """Write units from an offset on; offsets before it that should be there get copies of the first one."""
        written = self.written.get(queue)
        if written is None:
            lost = self._lost.get(queue)
            first = offset if lost is None or not len(lost) else min(offset, int(lost[0]))
            if self.first_lost is not None and int(units["physical_offset"][0]) > self.first_lost:
                # Filler would lead to the log's first byte: a broker takes it for a message that was removed.
                first = 0 if offset <= min(self.most_lost, _LARGEST_HOLE) else first
            written = self.written[queue] = QueueWritten(first, first)
            self._begun[queue] = int(units["physical_offset"][0])
            self._begin(queue, first)
        self._copy(queue, written, units[:1], offset)
        self._write(queue, offset, units)
        written.end = offset + len(units)
        self._last[queue] = units[-1:].copy()

    def _copy(self, queue: Queue, written: QueueWritten, unit: Units, end: int) -> None:
        """Write copies of a unit up to an offset."""
        count = end - written.end
        if count > _LARGEST_HOLE:
            topic, queue_id = queue
            raise HoleTooLarge(
                f"{shown(topic)} queue {queue_id}: no record has the queue offsets {group_digits(written.end)} to "
                f"{group_digits(end - 1)}: no log that a broker wrote has such a hole",
                int(unit["physical_offset"][0]),
            )
        if count > 0:
            self._write(queue, written.end, np.repeat(unit, count))
            written.copies += count
            written.copied.append(range(written.end, end))
            written.end = end

    def _restart(self, queue: Queue) -> None:
        written = self.written[queue]
        self._ended[queue] = int(self._last[queue]["physical_offset"][0])
        self._delete(queue)
        restarts, left_out = written.restarts + 1, written.left_out + written.end - written.first
        self.written[queue] = QueueWritten(0, 0, 0, left_out, restarts)

    def _delete(self, queue: Queue) -> None:
        with as_refusal(self.path_of(queue), "deleted"):
            shutil.rmtree(self.path_of(queue))

    def drop_former(self) -> None:
        """Take away queues that went with their topic, and have had no record since.

        One record at offset 0 does not tell of a present life: it may be wrong, and the others would be lost for it.
        """
        ends: dict[str, tuple[int, int]] = {}  # of the topic's former life: its last known record, and the next one
        for queue, last_old in self._ended.items():
            if self.written[queue].end > 1:
                ends[queue[0]] = max((last_old, self._begun[queue]), ends.get(queue[0], (0, 0)))
        for queue in [queue for queue in self.written if queue[0] in ends]:
            last_old, begun = ends[queue[0]]
            if self._begun[queue] <= last_old and int(self._last[queue]["physical_offset"][0]) < begun:
                self._delete(queue)
                written = self.written.pop(queue)
                self.former[queue] = written.end - written.first

    def finish(self) -> None:
        """Write the copies behind the last records."""
        for queue, lost in self._lost.items():
            written = self.written.get(queue)
            if written is not None and len(lost) and not written.vacant:
                self._copy(queue, written, self._last[queue], int(lost[-1]) + 1)

    def reach(self, ends: Mapping[Queue, int]) -> None:
        """Write copies behind the last records up to offsets at which groups go on."""
        for queue, end in ends.items():
            written = self.written.get(queue)
            if (
                written is not None
                and not written.vacant
                and 0 < end - written.end <= min(self.most_lost, _LARGEST_HOLE)
            ):
                self._copy(queue, written, self._last[queue], end)

    def add_vacant(self, queue: Queue, vacant: Vacant) -> None:
        """Add a queue of which no record is left.

        :raises Refused: a file cannot be written.
        """
        first = max(vacant.first, vacant.end - _MOST_VACANT)
        units = self._vacant_units(first, vacant)
        self.written[queue] = QueueWritten(first, vacant.end, vacant.end - first, vacant=vacant)
        self._begin(queue, first)
        self._write(queue, first, units)
        self._last[queue] = units[-1:].copy()

    def _vacant_units(self, first: int, vacant: Vacant) -> Units:
        units: Units = np.zeros(vacant.end - first, self.unit)
        units["physical_offset"], units["size"], units["tags_code"] = vacant.place, vacant.size, vacant.tags_code
        if "store_timestamp" in (units.dtype.names or ()):
            units["store_timestamp"] = vacant.timestamp
        return units

    # --- files ----------------------------------------------------------------------------------

    def path_of(self, queue: Queue) -> str:
        """Return the folder of a queue."""
        return os.path.join(self.folder, queue[0], str(queue[1]))

    def _begin(self, queue: Queue, offset: int) -> None:
        """Fill the first file up to the first unit."""
        filler = offset * UNIT.itemsize % self.file_size // UNIT.itemsize
        if filler:
            self._write(queue, offset - filler, np.repeat(_FILLER, filler))

    def _write(self, queue: Queue, offset: int, units: Units) -> None:
        """Write units from a queue offset on."""
        put_bytes(self.path_of(queue), offset * UNIT.itemsize, units.tobytes(), self.file_size)

    def _add_ext(self, queue: Queue, tags: Units, times: Ints) -> Ints:
        """Write an ext unit for each unit; return their addresses."""
        size = self._ext_size or 0
        folder = os.path.join(os.path.dirname(self.folder), "consumequeue_ext", queue[0], str(queue[1]))
        in_file = (size - _EXT_SPARE) // _EXT_HEAD.itemsize
        first = self._ext_units.get(queue, 0)
        self._ext_units[queue] = first + len(times)
        heads = np.zeros(len(times), _EXT_HEAD)
        heads["size"], heads["tags_code"], heads["store_timestamp"] = _EXT_HEAD.itemsize, tags, times
        files, rows = np.divmod(np.arange(first, first + len(times)), in_file)
        for which in np.unique(files).tolist():
            own = files == which
            row = int(rows[own][0])
            if row == 0 and which > 0:
                put_bytes(folder, (which - 1) * size + in_file * _EXT_HEAD.itemsize, _EXT_END, size)
            put_bytes(folder, which * size + row * _EXT_HEAD.itemsize, heads[own].tobytes(), size)
        addresses: Ints = files * size + rows * _EXT_HEAD.itemsize + np.int64(EXT_ADDRESS_BASE)
        return addresses


class BatchQueueFiles(QueueFiles):
    """All batch queues: a unit holds the messages from its own queue offset on. Their holes stay.

    Offsets that are lost behind the last record get a copy of its unit with a base and a number of its own: the queue
    goes on where it would have.
    """

    unit = BATCH_UNIT

    def __init__(self, folder: str, file_size: int, ends: Mapping[Queue, int]) -> None:
        """`ends`: the offset behind the last message that a queue had, where that is known."""
        super().__init__(folder, file_size, {})
        self._rows: dict[Queue, int] = {}
        self._ends = ends

    def add(self, queue: Queue, offsets: Ints, units: Units, times: Ints, *, with_ext: bool = False) -> None:
        """Add units of one queue, at least one.

        :raises Refused: a file cannot be written.
        """
        first = int(offsets[0])
        written = self.written.setdefault(queue, QueueWritten(first, first))
        self._write(queue, first, units)
        written.end = int(offsets[-1]) + int(units["message_count"][-1])
        self._last[queue] = units[-1:].copy()

    def _begin(self, queue: Queue, offset: int) -> None:
        """Write nothing: a queue may begin anywhere."""

    def _write(self, queue: Queue, offset: int, units: Units) -> None:
        """Write units behind those that are there."""
        row = self._rows.get(queue, 0)
        put_bytes(self.path_of(queue), row * BATCH_UNIT.itemsize, units.tobytes(), self.file_size)
        self._rows[queue] = row + len(units)

    def finish(self) -> None:
        """Write the copies behind the last records."""
        for queue, end in self._ends.items():
            written = self.written.get(queue)
            if written is not None and 0 < end - written.end <= _LARGEST_HOLE:
                bases = np.arange(written.end, end, _LARGEST_BATCH)
                units = np.repeat(self._last[queue], len(bases))
                units["queue_offset"], units["message_count"] = bases, np.minimum(end - bases, _LARGEST_BATCH)
                self._write(queue, written.end, units)
                written.copied.append(range(written.end, end))
                written.copies, written.end = end - written.end, end

    def _vacant_units(self, first: int, vacant: Vacant) -> Units:
        units = super()._vacant_units(first, vacant)
        units["queue_offset"], units["message_count"] = np.arange(first, vacant.end), 1
        units["compacted_offset"] = -1
        return units


class CountedQueues(QueueFiles):
    """Queues without files: what a run would write is only counted."""

    has_files = False

    def _write(self, queue: Queue, offset: int, units: Units) -> None:
        """Write nothing."""

    def _begin(self, queue: Queue, offset: int) -> None:
        """Write nothing."""

    def _delete(self, queue: Queue) -> None:
        """Delete nothing."""

    def _add_ext(self, _queue: Queue, tags: Ints, _times: Ints) -> Ints:
        return tags


class CountedBatchQueues(CountedQueues, BatchQueueFiles):
    """Batch queues without files."""


def put_bytes(folder: str, position: int, raw: bytes, file_size: int) -> None:
    """Write bytes from a position of a row of files on, over as many as they take; a new file has its length at once.

    Each file has the position of its first byte as its name, 20 digits.

    :raises Refused: a file cannot be written.
    """
    view = memoryview(raw)
    with as_refusal(folder):
        while view:
            inside = position % file_size
            part = view[: file_size - inside]
            path = os.path.join(folder, f"{position - inside:020d}")
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                os.makedirs(folder, exist_ok=True)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                os.ftruncate(descriptor, file_size)
            try:
                while part:
                    done = os.pwrite(descriptor, part, inside)
                    part, view, inside, position = part[done:], view[done:], inside + done, position + done
            finally:
                os.close(descriptor)


def _steady(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of runs of consecutive offsets."""
    borders = np.flatnonzero(offsets[1:] - offsets[:-1] != 1) + 1
    yield from zip([0, *borders.tolist()], [*borders.tolist(), len(offsets)], strict=True)

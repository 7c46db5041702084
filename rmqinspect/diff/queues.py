"""The consume queues of two stores side by side: where each starts and ends, and which units differ.

A slave builds its queues from its own log, so files may start at other offsets and have other sizes. The unit of a
queue offset is the same in both, except for ext addresses, which point into a local file.

Pairs are (A, B). Source: ConsumeQueue, BatchConsumeQueue.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, queue_files_of, read_ext_tags, read_units, unit_numbers, valid_units
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX, PRE_BLANK_SIZE, QueueUnit
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri
from rmqinspect.text import group_digits

Files = tuple[QueueFile, ...]
Queue = tuple[str, int, str]  # topic, queue id, kind of file
Block = tuple[Units, Units, Units]  # queue offsets, units, tags codes; of messages, ascending

_ALL_QUEUES = ("consumequeue", "batchconsumequeue")
_LAST_OFFSET = 2**63 - 1

# Fields compared as stored; the tags code may be an address in a local file.
_FIELDS = {
    kind: [name for name in dtype_of(layout).names or () if name != "tags_code"] for kind, layout in LAYOUTS.items()
}


class QueueEnds(NamedTuple):
    """Where a queue starts and ends, as its broker computes it. Offsets are logical."""

    min_offset: int  # first message whose record is not before the log's start, else max_offset
    max_offset: int  # behind the last valid unit
    units: int  # of messages, without filler


@dataclass(slots=True)
class QueueDiff:
    """One queue in two stores."""

    topic: str
    queue_id: int
    kind: str  # queue, batch_queue
    ends: list[QueueEnds | None]  # None: the store has no such queue
    loose: bool = False  # loose files: units they lack are not missing
    differing: int = 0  # queue offsets that both cover and whose units differ, or that one lacks
    first: int | None = None  # the first of them
    units: tuple[str, str] = ("", "")  # the units there, in words

    @property
    def is_same(self) -> bool:
        """Whether nothing differs. A queue without units equals a missing one."""
        empty = QueueEnds(0, 0, 0)
        a, b = (end or empty for end in self.ends)
        return not self.differing and (self.loose or a[:2] == b[:2])


def compare_queues(
    stores: tuple[Store, Store],
    progress: Callable[[int], None] = lambda size: None,
    on_unreadable: Callable[[int, str], None] = lambda side, message: None,
) -> Iterator[QueueDiff]:
    """Yield the comparison of each queue of either store, by topic, queue and kind.

    If single queues of a store are given, only those are compared. `progress` gets the bytes read since its last
    call; `on_unreadable` gets the side (0, 1) and a message.
    """
    found = [{_name(files[0]): files for files in queue_files_of(store)} for store in stores]
    ext_files = [_ext_files(store) for store in stores]
    queues = found[0].keys() | found[1].keys()
    for store, files in zip(stores, found, strict=True):
        queues = queues & files.keys() if _is_piece(store) else queues
    loose = not all(store.neighbours for store in stores)
    # Units that point before the log count as expired only if both logs are known.
    log_starts = [store.log_start if all(one.segments for one in stores) else 0 for store in stores]
    for queue in sorted(queues):
        if any(store.hides_queue(*queue[:2]) for store in stores):
            continue  # the entries are reported
        sides = [
            _Side(files[queue], ext.get(queue[:2], ()), log_start, progress) if queue in files else None
            for files, ext, log_start in zip(found, ext_files, log_starts, strict=True)
        ]
        try:
            yield _compare(QueueDiff(*queue, ends=[None, None], loose=loose), sides)
        except Unreadable as error:
            on_unreadable(next(number for number, side in enumerate(sides) if side and side.failed), str(error))


def _is_piece(store: Store) -> bool:
    """Whether single queues were given, not the folder of all."""
    names = (uri.basename(uri.realpath(path)) for path in store.paths)
    return store.given in LAYOUTS and not any(name in _ALL_QUEUES for name in names)


def _name(file: QueueFile) -> Queue:
    return file.topic, file.queue_id, file.kind


def _ext_files(store: Store) -> dict[tuple[str, int], Files]:
    files = (file for file in store.queue_files if file.kind == "ext_queue")
    return {key: tuple(group) for key, group in groupby(files, lambda file: (file.topic, file.queue_id))}


class _Side:
    """The queue of one store: a stream of its message units, and its ends when the stream is exhausted."""

    def __init__(
        self, files: Files, ext_files: Sequence[QueueFile], log_start: int, progress: Callable[[int], None]
    ) -> None:
        self.files = files
        self.ext_files = ext_files
        self.log_start = log_start
        self.progress = progress
        self.min_offset: int | None = None
        # The file names of a batch queue say nothing about its queue offsets.
        batch = files[0].kind == "batch_queue"
        self.max_offset = 0 if batch else files[0].base // dtype_of(QueueUnit).itemsize
        self.units = 0
        self.failed = False

    def ends(self) -> QueueEnds:
        return QueueEnds(self.max_offset if self.min_offset is None else self.min_offset, self.max_offset, self.units)

    def blocks(self) -> Iterator[Block]:
        """Yield the units of messages in blocks.

        :raises Unreadable: the system reports an I/O error.
        """
        last = -1
        try:
            for numbers, units in self._messages():
                which = np.flatnonzero(_in_order(numbers, last))
                if len(which):
                    last = int(numbers[which[-1]])
                    yield numbers[which], units[which], self._tags(units[which])
        except Unreadable:
            self.failed = True
            raise

    def _messages(self) -> Iterator[tuple[Units, Units]]:
        """Yield the queue offsets and units of messages, window by window; update the ends."""
        for file in self.files:
            with open_file(file) as reader:
                for row, units in read_units(reader, file.kind, self.progress):
                    valid = np.flatnonzero(valid_units(units))
                    if not len(valid):
                        continue
                    numbers, counts = unit_numbers(file, row, units)
                    self.max_offset = min(int(numbers[valid[-1]]) + int(counts[valid[-1]]), _LAST_OFFSET)
                    which = valid[units["size"][valid] != PRE_BLANK_SIZE]
                    self.units += len(which)
                    self._update_min(numbers[which], units[which])
                    yield numbers[which], units[which]

    def _update_min(self, numbers: Units, units: Units) -> None:
        if self.min_offset is None:
            reached = np.flatnonzero(units["physical_offset"] >= self.log_start)
            self.min_offset = int(numbers[reached[0]]) if len(reached) else None

    def _tags(self, units: Units) -> Units:
        """Return the tags codes, read from the ext file where an address resolves."""
        tags = units["tags_code"].astype(np.int64)
        found, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), np.bool_)
        read_ext_tags(self.ext_files, tags, found, known)
        return np.where(known, found, tags)


def _in_order(numbers: Units, last: int) -> Bools:
    """Return the mask of queue offsets that ascend from `last` on; damage and overlapping files break the order."""
    keep: Bools = numbers > last
    keep[:-1] &= numbers[:-1] < numbers[1:]  # one far too large offset must not hide all later ones
    highest = np.maximum.accumulate(np.where(keep, numbers, last))
    keep[1:] &= numbers[1:] > highest[:-1]
    return keep


def _compare(diff: QueueDiff, sides: list[_Side | None]) -> QueueDiff:
    a, b = sides
    if a is not None and b is not None:
        _compare_units(diff, a.blocks(), b.blocks())
    for number, side in enumerate(sides):
        if side is not None:
            if None in sides:
                for _ in side.blocks():
                    pass
            diff.ends[number] = side.ends()
    return diff


def _compare_units(diff: QueueDiff, a: Iterator[Block], b: Iterator[Block]) -> None:
    """Compare the units of the queue offsets that both cover; other starts and ends are no differing units."""
    begun = False
    for ours, theirs in _aligned(a, b):
        low, high = 0, _LAST_OFFSET
        if not begun:
            if not len(ours[0]) or not len(theirs[0]):
                continue
            begun, low = True, max(int(ours[0][0]), int(theirs[0][0]))
        _compare_block(diff, *(_cut(block, low, high) for block in (ours, theirs)))


def _aligned(a: Iterator[Block], b: Iterator[Block]) -> Iterator[tuple[Block, Block]]:
    """Yield blocks of both up to the same queue offset; units behind the other's end are skipped."""
    ours, theirs = next(a, None), next(b, None)
    while ours is not None and theirs is not None:
        reach = min(int(ours[0][-1]), int(theirs[0][-1]))
        yield _cut(ours, 0, reach), _cut(theirs, 0, reach)
        ours, theirs = _rest(ours, reach) or next(a, None), _rest(theirs, reach) or next(b, None)
    for _ in chain(a, b):  # exhaust both streams, for their ends
        pass


def _cut(block: Block, low: int, high: int) -> Block:
    """Return the rows with queue offsets from `low` to `high`, both included."""
    begin, end = np.searchsorted(block[0], low), np.searchsorted(block[0], high, "right")
    return block[0][begin:end], block[1][begin:end], block[2][begin:end]


def _rest(block: Block, reach: int) -> Block | None:
    begin = np.searchsorted(block[0], reach, "right")  # `reach` may be the last offset there is
    return (block[0][begin:], block[1][begin:], block[2][begin:]) if begin < len(block[0]) else None


def _compare_block(diff: QueueDiff, ours: Block, theirs: Block) -> None:
    numbers, at_ours, at_theirs = np.intersect1d(ours[0], theirs[0], assume_unique=True, return_indices=True)
    differs = np.zeros(len(numbers), np.bool_)
    for name in _FIELDS[diff.kind]:
        differs |= ours[1][name][at_ours] != theirs[1][name][at_theirs]
    tags = ours[2][at_ours], theirs[2][at_theirs]
    differs |= (tags[0] != tags[1]) & (tags[0] > EXT_ADDRESS_MAX) & (tags[1] > EXT_ADDRESS_MAX)
    alone = np.setxor1d(ours[0], theirs[0], assume_unique=True)
    diff.differing += int(np.count_nonzero(differs)) + len(alone)
    if diff.first is None and (len(alone) or differs.any()):
        diff.first = int(min([*numbers[differs][:1], *alone[:1]]))
        diff.units = (_describe(ours, diff.first), _describe(theirs, diff.first))


def _describe(block: Block, number: int) -> str:
    at = int(np.searchsorted(block[0], number))
    if at >= len(block[0]) or block[0][at] != number:
        return "no unit"
    unit = block[1][at]
    text = f"physical {group_digits(int(unit['physical_offset']))}, {group_digits(int(unit['size']))} bytes"
    if "message_count" in (unit.dtype.names or ()):
        text += f", {group_digits(int(unit['message_count']))} messages"
    return f"{text}, tags code {int(block[2][at])}"

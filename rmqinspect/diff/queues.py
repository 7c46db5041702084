"""The consume queues of two stores side by side: where each starts and ends, and which units differ.

A slave builds its queues from its own log, so files may start at other offsets and have other sizes. The unit of a
queue offset is the same in both, except for ext addresses, which point into a local file.

Pairs are (A, B). Source: ConsumeQueue, BatchConsumeQueue.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.codec.arrays import Bools, Units
from rmqinspect.consumequeue.bounds import Ends, QueueSummary, queue_files_of
from rmqinspect.consumequeue.units import LAYOUTS, read_ext_tags, read_units
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX, QueueUnit
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri
from rmqinspect.text import group_digits

Files = tuple[QueueFile, ...]
Queue = tuple[str, int, str]  # topic, queue id, kind of file
Block = tuple[Units, Units]  # queue offsets, and units with the tags codes they lead to; of messages, ascending

_ALL_QUEUES = ("consumequeue", "batchconsumequeue")


class QueueDiff(Struct):
    """One queue in two stores."""

    topic: str
    queue_id: int
    kind: str  # queue, batch_queue
    ends: list[QueueSummary | None]  # None: the store has no such queue
    loose: bool = False  # loose files: units they lack are not missing
    differing: int = 0  # queue offsets that both cover and whose units differ, or that one lacks
    first: int | None = None  # the first of them
    units: tuple[str, str] = ("", "")  # the units there, in words

    @property
    def is_same(self) -> bool:
        """Whether nothing differs. A queue without units equals a missing one."""
        a, b = ((0, 0) if end is None else (end.min_offset, end.max_offset) for end in self.ends)
        return not self.differing and (self.loose or a == b)


def compare_queues(
    stores: tuple[Store, Store],
    progress: Callable[[int], None] = lambda size: None,
    on_unreadable: Callable[[int, str], None] = lambda side, message: None,
) -> Iterator[QueueDiff]:
    """Yield the comparison of each queue of either store, by topic, queue and kind.

    If single queues of a store are given, only those are compared. `progress` gets the bytes read since its last
    call; `on_unreadable` gets the side (0, 1) and a message.
    """
    found: list[dict[Queue, Files]] = []
    ext_files: list[defaultdict[tuple[str, int], list[QueueFile]]] = []
    for store in stores:
        found.append({(files[0].topic, files[0].queue_id, files[0].kind): files for files in queue_files_of(store)})
        ext_files.append(defaultdict(list))
        for file in store.queue_files:
            if file.kind == "ext_queue":
                ext_files[-1][file.topic, file.queue_id].append(file)
    queues = found[0].keys() | found[1].keys()
    for store, files in zip(stores, found, strict=True):
        queues = queues & files.keys() if _is_piece(store) else queues
    loose = not all(store.neighbours for store in stores)
    # Units that point before the log count as expired only if both logs are known.
    log_starts = [store.log_start if all(one.segments for one in stores) else 0 for store in stores]
    rules = list(zip(log_starts, map(searches_minimum, stores), strict=True))
    for queue in sorted(queues):
        if any(store.hides_queue(*queue[:2]) for store in stores):
            continue  # the entries are reported
        sides = [
            _Side(files[queue], ext[queue[:2]], Ends(files[queue], *rule), progress) if queue in files else None
            for files, ext, rule in zip(found, ext_files, rules, strict=True)
        ]
        try:
            yield _compare(QueueDiff(*queue, ends=[None, None], loose=loose), sides)
        except Unreadable as error:
            on_unreadable(next(number for number, side in enumerate(sides) if side and side.failed), str(error))


def _is_piece(store: Store) -> bool:
    """Whether single queues were given, not the folder of all."""
    names = (uri.basename(uri.realpath(path)) for path in store.paths)
    return store.given in LAYOUTS and not any(name in _ALL_QUEUES for name in names)


class _Side:
    """The queue of one store: a stream of its message units, and its ends when the stream is exhausted."""

    def __init__(
        self, files: Files, ext_files: Sequence[QueueFile], ends: Ends, progress: Callable[[int], None]
    ) -> None:
        self.files = files
        self.ext_files = ext_files
        self.ends = ends
        self.progress = progress
        self.failed = False
        self.first: int | None = None  # queue offset of the first message

    def blocks(self) -> Iterator[Block]:
        """Yield the units of messages in blocks. Damage and overlapping files break the order: such units are left out.

        :raises Unreadable: the system reports an I/O error.
        """
        last = -1
        try:
            for file_number, file in enumerate(self.files):
                with open_file(file) as reader:
                    for row, window in read_units(reader, file.kind, self.progress):
                        numbers, units = self.ends.take(file_number, row, window)
                        which = np.flatnonzero(_in_order(numbers, last))
                        if len(which):
                            last = int(numbers[which[-1]])
                            self.first = int(numbers[which[0]]) if self.first is None else self.first
                            yield numbers[which], self._with_tags(units[which])
        except Unreadable:
            self.failed = True
            raise

    def _with_tags(self, units: Units) -> Units:
        """Return units with the tags codes of the ext file, where an address resolves."""
        tags = units["tags_code"].astype(np.int64)
        found, known = np.zeros(len(tags), np.int64), np.zeros(len(tags), np.bool_)
        read_ext_tags(self.ext_files, tags, found, known)
        units["tags_code"][known] = found[known]
        return units


def _in_order(numbers: Units, last: int) -> Bools:
    """Return the mask of queue offsets that ascend from `last` on."""
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
                deque(side.blocks(), maxlen=0)
            diff.ends[number] = side.ends.summary()
    if a is None or b is None or a.first is None or b.first is None or diff.loose or diff.kind == "batch_queue":
        return diff
    # Messages of one store where the file of the other has filler, or nothing, before its first message.
    first, last = sorted((a.first, b.first))
    later = a if a.first == last else b
    low = max(first, later.files[0].base // QueueUnit.sizeof())
    if low < last:
        diff.differing += last - low
        diff.first = low
        diff.units = f"the first message is {a.first}", f"the first message is {b.first}"
    return diff


def _compare_units(diff: QueueDiff, a: Iterator[Block], b: Iterator[Block]) -> None:
    """Compare the units of the queue offsets that both cover; other starts and ends are no differing units.

    Blocks are compared up to the queue offset that both reach. Units behind the other's end are skipped, but read:
    for the ends.
    """
    low = None  # where the later of both begins
    ours, theirs = next(a, None), next(b, None)
    while ours is not None and theirs is not None:
        reach = min(int(ours[0][-1]), int(theirs[0][-1]))
        (our_part, ours), (their_part, theirs) = _split(ours, reach), _split(theirs, reach)
        if low is None and len(our_part[0]) and len(their_part[0]):
            low = max(int(our_part[0][0]), int(their_part[0][0]))
            (_, our_part), (_, their_part) = _split(our_part, low - 1), _split(their_part, low - 1)
        if low is not None:
            _compare_block(diff, our_part, their_part)
        ours, theirs = (block if len(block[0]) else next(rest, None) for block, rest in ((ours, a), (theirs, b)))
    deque(chain(a, b), maxlen=0)


def _split(block: Block, reach: int) -> tuple[Block, Block]:
    """Return the rows with queue offsets up to `reach`, and the others."""
    numbers, units = block
    at = np.searchsorted(numbers, reach, "right")  # `reach` may be the last offset there is
    return (numbers[:at], units[:at]), (numbers[at:], units[at:])


def _compare_block(diff: QueueDiff, ours: Block, theirs: Block) -> None:
    numbers, at_ours, at_theirs = np.intersect1d(ours[0], theirs[0], assume_unique=True, return_indices=True)
    a, b = ours[1][at_ours], theirs[1][at_theirs]
    # An address that leads to no ext unit says nothing.
    differs: Bools = (a["tags_code"] != b["tags_code"]) & (np.minimum(a["tags_code"], b["tags_code"]) > EXT_ADDRESS_MAX)
    for name in a.dtype.names or ():
        if name != "tags_code":
            differs |= a[name] != b[name]
    alone = np.setxor1d(ours[0], theirs[0], assume_unique=True)
    diff.differing += int(np.count_nonzero(differs)) + len(alone)
    if diff.first is None and (len(alone) or differs.any()):
        diff.first = int(min([*numbers[differs][:1], *alone[:1]]))
        diff.units = (_describe(ours, diff.first), _describe(theirs, diff.first))


def _describe(block: Block, number: int) -> str:
    numbers, units = block
    found = units[numbers == number]
    if not len(found):
        return "no unit"
    unit = found[0]
    text = f"physical {group_digits(int(unit['physical_offset']))}, {group_digits(int(unit['size']))} bytes"
    if "message_count" in (unit.dtype.names or ()):
        text += f", {group_digits(int(unit['message_count']))} messages"
    return f"{text}, tags code {int(unit['tags_code'])}"

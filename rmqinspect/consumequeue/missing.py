"""What no file of a queue has: the account of its units by the names and the sizes of its files.

    places     0---------400-------800-------1200      by names, with files of 400 bytes
    files      |=========|         |====|    |====
    missing              |---------|    |----|         a file that is absent; one that ends early

A queue that begins behind 0 lacks nothing: retention deletes from the front. Nor does one whose last file has just been
made, or was cut in the zeros behind its last unit. Zeros between units are bytes that are present: `verify` finds them.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.bounds import Files, queue_files_of
from rmqinspect.consumequeue.units import LAYOUTS, usual_sizes
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import describe_span, escape, group_digits


class MissingUnits(NamedTuple):
    """A range of a queue that no file has: positions [start, end) in bytes from the queue's beginning."""

    before: QueueFile  # the file in front of it
    start: int
    end: int
    is_short: bool  # that file ends before its place; else a file is absent

    @property
    def queue(self) -> tuple[str, int]:
        """(topic, queue id)."""
        return self.before.topic, self.before.queue_id

    @property
    def offset_behind(self) -> int | None:
        """The queue offset behind its last unit; None in a batch queue, where units say their offsets."""
        return self.end // _unit_size(self.before) if self.before.kind == "queue" else None

    def __str__(self) -> str:
        topic, queue_id = self.queue
        folder = self.before.name.rpartition("/")[0]
        why = f"there is no file {folder}/{self.start:020}"
        if self.is_short:
            why = f"{self.before.name} ends at {group_digits(self.before.size)} bytes"
        what = f"bytes {describe_span(self.start, self.end)}"
        if self.offset_behind is not None:
            first = self.start // _unit_size(self.before)
            what = f"units {group_digits(first)} to {group_digits(self.offset_behind)}"
        return f"{escape(topic)} queue {queue_id}: {what} are missing: {why}"


def missing_units(store: Store) -> list[MissingUnits]:
    """Return the ranges of queues that no file has, in the order of the files.

    Of loose files nothing is missing between them: their neighbours were not given. Nothing of a queue in RocksDB.
    """
    sizes = usual_sizes(store)
    some = (one for files in queue_files_of(store) for one in _of_queue(files, sizes.get(files[0].kind, 0)))
    return [one for one in some if store.neighbours or one.is_short]


def _of_queue(files: Files, size: int) -> Iterator[MissingUnits]:
    """Yield what is missing of one queue, whose files should have `size` bytes."""
    # A name that fits no file of the queue is that of a stray one.
    files = tuple(file for file in files if size and file.base % size == 0)
    if not files or files[0].noted is not None:
        return
    reached = 0
    for before, after in pairwise(files):
        reached = max(reached, before.base + before.size)
        if before.base == after.base:
            continue  # two names of one place: one of them may have it
        place_end = before.base + size
        if reached < place_end:
            yield MissingUnits(before, reached, place_end, is_short=True)
        if place_end < after.base:
            yield MissingUnits(before, place_end, after.base, is_short=False)
    last = files[-1]
    reached = max(reached, last.base + last.size)
    if last.size and reached < last.base + size and _ends_in_unit(last):
        yield MissingUnits(last, reached, last.base + size, is_short=True)


def _ends_in_unit(file: QueueFile) -> bool:
    """Whether the last bytes of a file are used, so that units may have followed."""
    start = max(0, file.size - _unit_size(file))
    try:
        with open_file(file) as reader:
            return any(reader.read(start, file.size - start))
    except Unreadable:
        return False


def _unit_size(file: QueueFile) -> int:
    return dtype_of(LAYOUTS[file.kind]).itemsize

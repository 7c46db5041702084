"""What lies behind the last file of a log: the newest files are missing, or the only one was cut.

    log          |== file ==|== file ==|                 names and sizes end here (`commitlog.missing`)
    queue units      ->   ->      ->      ->   ->        two of them lead behind it
    index file       begin, end .............. end       its header names the newest record that it has an entry of

A broker makes a unit or an entry of a record that its log has, so there were bytes up to the end of that record.
A single unit that leads further than a segment's length behind the end is a damaged one.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from rmqinspect.broker.acknowledged import newest_units
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.missing import log_range, may_go_on
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import reread_index_file
from rmqinspect.store.model import Store


def missing_behind(store: Store, queues: Iterable[QueueSummary] | None = None) -> list[Gap]:
    """Return the range behind the last file of the log that units and entries lead into: one gap, or none.

    `queues`: whose ends are known; None: those of all queues are read. The header of the newest index file is read.
    Nothing is read where the last file ends in zeros, as that of a broker does. Of loose files nothing is missing: the
    others were not given.
    """
    if store.given != "store" or not store.segments or store.hides_log:
        return []
    if not may_go_on(store.log_files[-1]):
        return []
    _, end = log_range(store)
    if queues is None:
        queues = queue_ends(store, lambda: True, on_unreadable=lambda _: None)
    reached = max(_reached(store, end, queues), default=end)
    return [Gap(end, reached, "missing", None)] if reached > end else []


def _reached(store: Store, end: int, queues: Iterable[QueueSummary]) -> Iterator[int]:
    """Yield where records end that something leads to."""
    near = end + (store.segment_size or 0)
    for queue in queues:
        place = queue.last_physical_offset
        if place is None or place < end:
            continue
        with suppress(Unreadable):
            if place < near or newest_units(queue, end)[0] > 1:
                yield place + (queue.last_size or 0)
    for file in store.index_files[-1:]:
        with suppress(Unreadable):
            header = reread_index_file(file, geometry=None).header
            if header is not None and end <= header.end_physical_offset < near:
                yield int(header.end_physical_offset) + 1

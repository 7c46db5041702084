"""The ends of very many queues in little time: one page of each where that is enough.

A store may have ten thousand queues, most of them with a few units in one file. The first page and one look for
further allocated bytes settle such a queue; every other is left to `queue_ends`.
"""

from collections.abc import Collection, Iterator

import numpy as np

from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import SHORT_FILE, QueueSummary, of_readable, queue_end, queue_files_of
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE, QueueUnit
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file

_UNIT = dtype_of(QueueUnit)
_BLOCK = 4096
_PAGE = _BLOCK // _UNIT.itemsize * _UNIT.itemsize
_ZEROS = bytes(_PAGE)


def peek_queues(
    store: Store, problems: list[str], only: Collection[tuple[str, int]] | None = None
) -> Iterator[QueueSummary]:
    """Yield the summary of every queue, or of those in `only`, by topic and queue id; the same as `queue_ends`.

    Queues that cannot be read are left out, and the errors added to `problems`.
    """

    def read(files: tuple[QueueFile, ...]) -> QueueSummary:
        return _peek(files, store.log_start) or queue_end(files, store.log_start)

    for files in queue_files_of(store):
        if only is None or (files[0].topic, files[0].queue_id) in only:
            summary = of_readable(files, read, problems.append)
            if summary is not None:
                yield summary


def _peek(files: tuple[QueueFile, ...], log_start: int) -> QueueSummary | None:
    """Return the summary of a queue of one file whose units are plain and end in its first page, else None."""
    file = files[0]
    if len(files) > 1 or file.kind != "queue" or file.noted is not None:
        return None
    with open_file(file) as reader:
        page = reader.read(0, _PAGE)
        # Few bytes on disk that go on behind the page, perhaps with zeros between units: `queue_ends` reads them.
        if len(page) == _PAGE and reader.allocated <= SHORT_FILE and reader.next_allocated(_BLOCK) < reader.size:
            return None
    units = np.frombuffer(page, _UNIT, len(page) // _UNIT.itemsize)
    sizes = units["size"]
    plain = (sizes > 0) & (sizes != PRE_BLANK_SIZE) & (units["physical_offset"] >= 0)
    count = int(np.count_nonzero(plain))
    end = count * _UNIT.itemsize
    if not count or end == _PAGE or not plain[:count].all() or page[end:] != _ZEROS[end : len(page)]:
        return None
    first, last = units[0].item(), units[count - 1].item()
    if first[0] < log_start:
        return None
    begin = file.base // _UNIT.itemsize
    return QueueSummary(
        file.topic, file.queue_id, "file", files, begin, begin + count, count, first[0], last[0], last[1]
    )

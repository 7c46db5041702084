"""The records of a range of the log that is known to hold nothing else, bridges included.

Readers of a salvaged log get fillers for its bridges (`commitlog.scan`), and need no more. In a DLedger log each bridge
is the body of an entry, and entries count: they have indexes, and units in the index of entries.
"""

from collections.abc import Iterator

import numpy as np

from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import WINDOW_SIZE, Window
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

_GROWTH = 4
_LARGEST = 64 << 20  # bytes of a record


def records_in(segment: Segment, start: int, end: int) -> Iterator[Records]:
    """Yield the records that follow each other from `start` on, physical offsets, up to `end` or a blank record.

    Those of a step are valid until the next one.

    :raises Unreadable: the file cannot be opened.
    """
    at, end = start - segment.base, end - segment.base
    with open_file(segment) as file:
        window = Window(LenientReader(file, segment), max(1, min(WINDOW_SIZE, end - at)), end)
        window.load(at)
        while at < end:
            records = window.next_batch(at)
            records = records.select(slice(0, int(np.searchsorted(records.starts + window.start, end))))
            if not len(records):
                # A blank record, or one that is larger than the window.
                more = min(end - at, _GROWTH * window.capacity)
                if not window.capacity < more <= _LARGEST:
                    return
                window.need(at, more)
                continue
            yield records
            at = window.start + int(records.ends[-1])

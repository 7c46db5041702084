"""Records at known places of the log, many at a time: what queue units and timer units point at.

places   |rec|   |rec||rec|             |rec|
reads    <------------------>           <--->      near ones in one read
"""

from collections.abc import Iterator

import numpy as np

from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.commitlog.columns import SLACK
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.message import FIXED_SIZE
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file

_NEAR = 64 << 10  # bytes: reading as much costs less than a read of its own
_WINDOW = 4 << 20  # bytes of one read, unless a record is larger
_LARGEST = 64 << 20  # bytes: brokers take 4 MiB by default, and a damaged size must not take all memory


def records_at(store: Store, places: Ints, sizes: Ints) -> Iterator[tuple[Ints, Records]]:
    """Yield (indexes into `places`, records) of the records of these sizes at these physical offsets.

    A record counts when its lengths agree and its own offset and size are those asked for; the others are left out,
    as are those in files that cannot be read. The records are valid until the next ones are taken.
    """
    order = np.argsort(places, kind="stable")
    bases = np.array([segment.base for segment in store.segments], np.int64)
    numbers = np.searchsorted(bases, places[order], "right") - 1
    for first, behind in groups(numbers) if len(order) else ():
        if numbers[first] >= 0:
            yield from _in_segment(store.segments[numbers[first]], places, sizes, order[first:behind])


def _in_segment(segment: Segment, places: Ints, sizes: Ints, which: Ints) -> Iterator[tuple[Ints, Records]]:
    starts = places[which] - segment.base
    ends = starts + sizes[which]
    inside = (sizes[which] >= FIXED_SIZE) & (sizes[which] <= _LARGEST) & (ends <= segment.size)
    which, starts, ends = which[inside], starts[inside], ends[inside]
    if not len(which):
        return
    try:
        with open_file(segment) as reader:
            for low, high in _windows(starts, ends):
                begin, size = int(starts[low]), int(ends[low:high].max() - starts[low])
                buffer = bytearray(size + SLACK)
                filled = reader.read_into(memoryview(buffer)[:size], begin)
                records = Records.at(memoryview(buffer), segment.base + begin, starts[low:high] - begin)
                asked = which[low:high]
                good = records.are_sound(filled) & (records.total_size == sizes[asked])
                good &= records.physical_offset == places[asked]
                if good.any():
                    yield asked[good], records.select(good)
    except Unreadable:
        return


def _windows(starts: Ints, ends: Ints) -> Iterator[tuple[int, int]]:
    """Yield (first, behind the last) of the records to read at once; `starts` ascend."""
    apart = np.append(np.flatnonzero(starts[1:] - ends[:-1] > _NEAR) + 1, len(starts))
    low = 0
    while low < len(starts):
        full = int(np.searchsorted(starts, starts[low] + _WINDOW))
        high = max(low + 1, min(full, int(apart[np.searchsorted(apart, low, "right")])))
        yield low, high
        low = high

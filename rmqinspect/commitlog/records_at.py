"""Records at known places of the log, many at a time: what queue units and timer units point at.

places   |rec|   |rec||rec|             |rec|
reads    <------------------>           <--->      near ones in one read
joined   |rec|   |rec||rec||rec|                   on request, what was read stands together: fewer, longer columns
"""

from collections.abc import Iterator, Sequence

import numpy as np

from rmqinspect.codec.arrays import Ints, groups
from rmqinspect.commitlog.columns import SLACK
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.message import FIXED_SIZE
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file

_Window = tuple[int, int]  # the first record of one read, and behind the last

_NEAR = 64 << 10  # bytes: reading as much costs less than a read of its own
_WINDOW = 4 << 20  # bytes of one read, unless a record is larger
_LARGEST = 64 << 20  # bytes: brokers take 4 MiB by default, and a damaged size must not take all memory


def records_at(store: Store, places: Ints, sizes: Ints, *, joined: bool = False) -> Iterator[tuple[Ints, Records]]:
    """Yield (indexes into `places`, records) of the records of these sizes at these physical offsets.

    A record counts when its lengths agree and its own offset and size are those asked for; the others are left out,
    as are those in files that cannot be read. The records are valid until the next ones are taken. `joined`: from one
    record to the next may be less than in the log, so that `base` says nothing.
    """
    order = np.argsort(places, kind="stable")
    bases = np.array([segment.base for segment in store.segments], np.int64)
    numbers = np.searchsorted(bases, places[order], "right") - 1
    for first, behind in groups(numbers) if len(order) else ():
        if numbers[first] >= 0:
            yield from _in_segment(store.segments[numbers[first]], places, sizes, order[first:behind], joined=joined)


def _in_segment(
    segment: Segment, places: Ints, sizes: Ints, which: Ints, *, joined: bool
) -> Iterator[tuple[Ints, Records]]:
    starts, wanted = places[which] - segment.base, sizes[which]
    inside = (wanted >= FIXED_SIZE) & (wanted <= _LARGEST)
    inside &= starts <= segment.size - wanted  # a damaged place may be so large that a sum overflows
    which, starts = which[inside], starts[inside]
    ends = starts + sizes[which]
    if not len(which):
        return
    try:
        with open_file(segment) as reader:
            for windows in _together(_windows(starts, ends), starts, ends, joined=joined):
                low, high = windows[0][0], windows[-1][1]
                buffer, shifts, filled = _read(reader, windows, starts, ends)
                base = segment.base + int(starts[low])
                records = Records.at(memoryview(buffer), base, starts[low:high] - shifts)
                asked = which[low:high]
                good = records.are_sound(filled) & (records.total_size == sizes[asked])
                good &= records.physical_offset == places[asked]
                if good.any():
                    yield asked[good], records.select(good)
    except Unreadable:
        return


def _read(reader: FileReader, windows: Sequence[_Window], starts: Ints, ends: Ints) -> tuple[bytearray, Ints, int]:
    """Read windows one behind the other: the bytes, how far each record moved, and where the first short read ended."""
    begins = [int(starts[low]) for low, _ in windows]
    sizes = [int(ends[low:high].max()) - begin for (low, high), begin in zip(windows, begins, strict=True)]
    buffer, at = bytearray(sum(sizes) + SLACK), 0
    shifts = []
    for (low, high), begin, size in zip(windows, begins, sizes, strict=True):
        shifts.append(np.full(high - low, begin - at))
        filled = reader.read_into(memoryview(buffer)[at : at + size], begin)
        at += filled
        if filled < size:  # nothing is behind the end of a file
            shifts += [np.full(high - low, begin - at) for low, high in windows[len(shifts) :]]
            break
    return buffer, np.concatenate(shifts), at


def _together(windows: Iterator[_Window], starts: Ints, ends: Ints, *, joined: bool) -> Iterator[list[_Window]]:
    """Yield windows in groups; `joined`: of several, as long as they are small."""
    group: list[_Window] = []
    room = _WINDOW
    for low, high in windows:
        group.append((low, high))
        room -= int(ends[low:high].max() - starts[low])
        if not joined or room <= 0:
            yield group
            group, room = [], _WINDOW
    if group:
        yield group


def _windows(starts: Ints, ends: Ints) -> Iterator[_Window]:
    """Yield (first, behind the last) of the records to read at once; `starts` ascend."""
    apart = np.append(np.flatnonzero(starts[1:] - ends[:-1] > _NEAR) + 1, len(starts))
    low = 0
    while low < len(starts):
        full = int(np.searchsorted(starts, starts[low] + _WINDOW))
        high = max(low + 1, min(full, int(apart[np.searchsorted(apart, low, "right")])))
        yield low, high
        low = high

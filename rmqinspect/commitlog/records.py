"""The records of one window of commit log, as record_rows.

A `Records` holds the window's bytes and one row of numbers for each record (`loops.record_rows`), in log order.
Positions are bytes from the window's start.

Records at known places of the log, many at a time: what queue units and timer units point at.

places   |rec|   |rec||rec|             |rec|
reads    <------------------>           <--->      near ones in one read
joined   |rec|   |rec||rec||rec|                   on request, what was read stands together: fewer, longer columns

Copied records: PHYSICALOFFSET is another place, and the original stands there.

A segment that was copied to another name, or records that were written twice, hold messages that the log has once
more; consumers get them from their own place, which is where the queue units point.

    log      |seg 0: A B C|seg 1: D E F|seg 2: A B C|      the records of segment 2 say that they are in segment 0

Source: CommitLog.DefaultAppendMessageCallback#doAppend, which writes where a record lies into it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Bytes, Ints, distinct, groups, lazy
from rmqinspect.codec.byte_ranges import are_utf8, copy_ranges
from rmqinspect.codec.properties import Items, split_properties
from rmqinspect.errors import Unreadable
from rmqinspect.loops import record_rows
from rmqinspect.loops import records as loops
from rmqinspect.loops.checksum import CRC32
from rmqinspect.loops.record_rows import COLUMNS, SLACK
from rmqinspect.schemas import message
from rmqinspect.schemas.message import FIXED_SIZE
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file


class _Column:
    """One of COLUMNS as an attribute of `Records`, by its number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __get__(self, records: "Records", _: type) -> Ints:
        return records.rows[:, self._number]


class Records:
    """Columns of n records: each an array of shape (n,) in log order."""

    def __init__(self, raw: memoryview, base: int, rows: Ints) -> None:
        """Take a window whose first byte has physical offset `base`, `SLACK` bytes included, and rows of it."""
        self.raw = raw
        self.base = base
        self.rows = rows

    @classmethod
    def at(cls, raw: memoryview, base: int, starts: Ints) -> Self:
        """Return what stands at some positions, whatever it is; `raw` goes on for SLACK bytes behind each."""
        rows = np.empty((len(starts), len(COLUMNS)), np.int64)
        loops.read_records(np.frombuffer(raw, np.uint8), starts, rows)
        return cls(raw, base, rows)

    @classmethod
    def of_one(cls, raw: bytes, physical_offset: int) -> Self:
        """Return the record at the beginning of some bytes; `physical_offset` is that of the first one."""
        return cls.at(memoryview(raw + bytes(SLACK)), physical_offset, np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, which: Any) -> Self:
        """Return the records that a slice, a mask or an array of indexes picks."""
        return type(self)(self.raw, self.base, self.rows[which])

    @lazy
    def bytes(self) -> Bytes:
        """The window, SLACK bytes included."""
        return np.frombuffer(self.raw, np.uint8)

    def gather(self, dtype: np.dtype[Any], starts: Ints) -> NDArray[Any]:
        """Return one struct of `dtype` from each position."""
        return self.view(np.dtype((np.void, dtype.itemsize)))[starts].view(dtype)

    def view(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the window as values of `dtype` at every byte position, unaligned."""
        return np.ndarray((len(self.raw) - dtype.itemsize + 1,), dtype, self.raw, 0, (1,))

    # --- columns --------------------------------------------------------------------------------

    def field(self, name: str) -> Ints:
        """Return one of COLUMNS; fields have the names of the layout, ports are `born_port` and `store_port`."""
        return self.rows[:, COLUMNS.index(name)]

    starts = _Column(record_rows.START)
    ends = _Column(record_rows.END)  # by TOTALSIZE
    total_size = _Column(record_rows.TOTAL_SIZE)
    magic = _Column(record_rows.MAGIC)
    physical_offset = _Column(record_rows.PHYSICAL_OFFSET)  # in an intact record this equals `base + starts`
    sys_flag = _Column(record_rows.SYS_FLAG)  # also determines the size of the head
    body_size = _Column(record_rows.BODY_SIZE)  # negative only in a damaged record
    body_starts = _Column(record_rows.BODY_START)  # behind the head, whose size depends on the hosts
    body_ends = _Column(record_rows.BODY_END)  # the topic length stands there; a negative BODYLEN counts as 0
    topic_starts = _Column(record_rows.TOPIC_START)
    topic_ends = _Column(record_rows.TOPIC_END)  # the length of the properties stands there
    properties_starts = _Column(record_rows.PROPERTIES_START)
    properties_ends = _Column(record_rows.PROPERTIES_END)  # by their own length, of which a negative one counts as 0

    @property
    def places(self) -> Ints:
        """Where each record stands in the log: physical offsets."""
        return self.base + self.starts

    @lazy
    def properties(self) -> Items:
        """The properties of all records, as positions in the window."""
        return split_properties(self.bytes, self.properties_starts, self.properties_ends)

    @lazy
    def not_utf8(self) -> Bools:
        """Which records have properties that no broker writes: it encodes them as UTF-8."""
        found: Bools = self.properties.beyond_ascii.copy()
        which = np.flatnonzero(found)
        if len(which):
            texts = copy_ranges(self.bytes, self.properties_starts[which], self.properties_ends[which])
            found[which] = ~are_utf8(*texts)
        return found

    @property
    def are_bridges(self) -> Bools:
        """Which records are no messages: a salvage wrote them over gaps."""
        marked: Bools = self.rows[:, record_rows.FLAG] == message.BRIDGE_FLAG
        found: Bools = marked & (self.sys_flag == message.TRANSACTION_MASK)
        return found

    # --- judgement ------------------------------------------------------------------------------

    def are_sound(self, filled: int) -> Bools:
        """Return whether each record has a magic, a plausible size, and lengths that add up to it.

        `filled`: the window's valid bytes; a record that goes on behind them is not sound.
        """
        sound = np.empty(len(self), np.int64)
        loops.judge_soundness(self.rows, filled, sound)
        ok: Bools = sound != 0
        return ok

    @lazy
    def body_crcs(self) -> Ints:
        """The CRC-32 of each stored body, masked as the broker stores it."""
        crcs = np.empty(len(self), np.int64)
        loops.body_crcs(CRC32, self.bytes, self.rows, crcs)
        return crcs

    @lazy
    def body_crc_ok(self) -> Bools:
        """Whether BODYCRC is right. The broker does not test it for an empty body."""
        ok: Bools = self.rows[:, record_rows.BODY_CRC] == self.body_crcs
        return ok

    @lazy
    def record_crcs(self) -> Ints:
        """NO_CRC, WRONG_CRC or RIGHT_CRC of `loops.record_rows`, for the property `__CRC32#` (5.2.0 and later)."""
        found = np.empty(len(self), np.int64)
        loops.record_crcs(CRC32, self.bytes, self.rows, found)
        return found


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
                good &= ~records.are_bridges
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


_HEAD = message.HEADS[False, False]
_COMPARED = np.arange(place_of(_HEAD, "physical_offset") + _HEAD.physical_offset.sizeof())
"""Places of the bytes by which a record and its original are compared: from TOTALSIZE to PHYSICALOFFSET."""
_MOST_DISTANCES = 64  # between copies and originals, in one window; more are damage


def are_copies(store: Store, records: Records, unread: list[str]) -> Bools:
    """Return which of some records are copies of records of the same log that stand in their own place.

    What the system refuses to read is noted in `unread`: there no record is a copy.
    """
    places = records.base + records.starts
    distances = records.physical_offset - places
    found = np.zeros(len(records), np.bool_)
    for distance in distinct(distances[distances != 0])[:_MOST_DISTANCES].tolist():
        rows = np.flatnonzero(distances == distance)
        found[rows] = _stand_there(store, records.select(rows), unread)
    return found


def _stand_there(store: Store, records: Records, unread: list[str]) -> Bools:
    """Return whether the original of each record is there; all have the same distance to it."""
    own: Ints = records.physical_offset
    low = int(own.min())
    segment = store.segment_at(low)
    if segment is None:
        return np.zeros(len(own), np.bool_)
    try:
        with open_file(segment) as reader:
            raw = reader.read(low - segment.base, int(own.max()) - low + len(_COMPARED))
    except Unreadable as error:
        unread.append(str(error))
        return np.zeros(len(own), np.bool_)
    there = np.frombuffer(raw.ljust(int(own.max()) - low + len(_COMPARED), b"\0"), np.uint8)
    same: Bools = (records.bytes[records.starts[:, None] + _COMPARED] == there[(own - low)[:, None] + _COMPARED]).all(1)
    return same

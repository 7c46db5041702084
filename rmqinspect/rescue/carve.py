r"""Records in any bytes: at every alignment, without names, chains or neighbours to go by.

    image    ......|rec|rec|..garbage..|rec....cut|..hole..|r|rec|ec|.....
                    whole whole         partial             whole, nested inside

A window of the image is searched for the two magic codes; what stands around each is judged as a record (`Records`):

    magic   ->  lengths     body, topic and properties end exactly where TOTALSIZE says
            ->  checksum    the body has the CRC that the head claims
            ->  whole       it counts, unless it begins inside of one that counts: then it is nested, or overlaps it
            ->  doubtful    topic or properties, which no CRC covers, may be cut at a block's border: no record follows
    a head that no chance writes, without the rest: partial

A record whose own lengths say that it ends behind the window begins the next window. One that is larger than half a
window is proved in small reads, and read by itself when it is right.

Invariants:
- a position is reported once, ascending; records that count never share a byte;
- time and output are linear in the image, whatever its bytes claim. Every byte that is searched earns a credit, and
  checksums, and windows read again, are paid from it; what the credit does not cover is `unchecked`, and told. Of what
  does not count, no byte is given twice: deeper down only heads are;
- memory is bounded by the window and the largest right record, never by what a size claims;
- holes of a sparse image are not read, but for those inside of what looks like a record.
"""

import zlib
from collections.abc import Generator, Iterator
from itertools import islice

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rmqinspect import loops
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.record_proof import LONGEST_HEAD, LONGEST_TRAILER, MAGIC, read_head, trailer_size
from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.records import Records
from rmqinspect.loops import text
from rmqinspect.loops.record_rows import RIGHT_CRC, SLACK
from rmqinspect.loops.text import find_places
from rmqinspect.schemas import message
from rmqinspect.schemas.message import FIXED_SIZE
from rmqinspect.schemas.places import place_of
from rmqinspect.store.reader import FileReader

# What was found. Of the first four lengths and checksum are right.
KINDS = ("whole", "doubtful", "nested", "overlapping", "bad_body", "unchecked", "partial")
WHOLE, DOUBTFUL, NESTED, OVERLAPPING, BAD_BODY, UNCHECKED, PARTIAL = range(len(KINDS))

# How much of it is given.
FRONT, HEAD, ALL = range(3)

WINDOW = 4 << 20
_FITS = WINDOW // 2  # larger records are proved and read by themselves
_MANY = 1 << 16  # candidates judged at once: 25 numbers each
_PARTIAL_BODY = 64 << 10  # bytes of a cut body that are given at most

# Bytes that may be checked, or read again, for each byte searched: records in records, seven deep.
_CREDIT = 8
_FIRST_CREDIT = 64 << 20
_SMALL_READS = 64 << 10  # what the head and the end of a large record cost

_HEAD = message.HEADS[False, False]
_MAGIC_AT: int = place_of(_HEAD, "magic")
_OFFSET_AT: int = place_of(_HEAD, "physical_offset")
_BEHIND_OFFSET: int = _OFFSET_AT + _HEAD.physical_offset.sizeof()
_FRONT_SIZE: int = place_of(_HEAD, "sys_flag") + _HEAD.sys_flag.sizeof()
_MAGIC_SIZE = 4
_PREFIX = np.frombuffer(message.MAGIC_PREFIX, np.uint8)
_LAST_BYTES = [magic & 0xFF for magic in message.RECORD_MAGICS]
_BLOCK = 512  # bytes: disks and file systems cut at multiples of it
_PAGE = bytes(4096)
_ZEROS = bytes(WINDOW)
_READ = 1 << 20

# A head that is cut, or whose record is, proves itself by fields that no broker fills with more than this. Random bytes
# pass all of them once in 2^98, a magic code alone once in 2^31.
_MOST_SIZE = 1 << 30  # a segment; mappedFileSizeCommitLog
_MOST_QUEUE_ID = 1 << 27
_MOST_QUEUE_OFFSET = 1 << 48
_MOST_OFFSET = 1 << 56
_MOST_FLAGS = 1 << 16
_TIMES = 10**12, 41 * 10**11  # ms: 2001 to 2099; RocketMQ is from 2012
_MOST_PORT = 1 << 16


class FoundRecords(Records):
    """Records of an image: `base + starts` is where they stand in it, `places` where in their log."""

    @property
    def places(self) -> Ints:
        """Where each record stood in its log, as it says itself: PHYSICALOFFSET."""
        return self.physical_offset

    @property
    def positions(self) -> Ints:
        """Where each record stands in the image."""
        return self.base + self.starts


class Found(Struct, frozen=True):
    """Records that begin in one window of an image, by position; each column has one row for each of them."""

    records: FoundRecords  # valid until the next step of the iterator
    kinds: NDArray[np.int8]  # numbers of KINDS
    given: NDArray[np.int8]  # FRONT: fields up to SYSFLAG; HEAD: up to BODYLEN; ALL: of a partial one, its right body
    within: Ints  # position of the record that counts in which it begins; -1 outside
    body_ok: Bools  # the body has its CRC
    readable: Ints  # of partial ones: index of the window at which what may be its body ends

    def select(self, which: Ints | Bools | slice) -> "Found":
        """Return some of them."""
        return Found(
            self.records.select(which),
            self.kinds[which],
            self.given[which],
            self.within[which],
            self.body_ok[which],
            self.readable[which],
        )


class Carver:
    """The search of one image. `position` is how far it has come."""

    def __init__(self, file: FileReader, reader: LenientReader) -> None:
        self.position = 0
        self.unchecked = 0  # records whose checksum the credit did not cover
        self._file, self._reader = file, reader
        self._size = reader.size
        self._buffer = bytearray(WINDOW + SLACK)
        self._start = self._filled = 0  # the window: bytes [start, start + filled) of the image
        self._credit = _FIRST_CREDIT
        self._claimed = (-1, 0)  # the last record that counts: [start, end)
        self._whole = False  # the next window is read as a whole, across holes
        self._shown = 0  # where the last record ends that does not count and is given in full
        loops.expect(min(file.allocated, reader.size))

    def run(self) -> Iterator[Found]:
        """Yield what begins in each window."""
        while True:
            # A magic holds no zero byte; the size in front of it may begin in a hole.
            data = self._file.next_allocated(self.position)
            self.position = max(self.position, data - _MAGIC_AT) if data < self._size else self._size
            if self.position >= self._size:
                return
            self._load(self.position)
            behind = yield from self._search()
            self._credit += _CREDIT * (behind - self.position)
            self.position = behind

    def _load(self, position: int) -> None:
        """Read the window at a position: to the next hole, or a whole one where a record goes on in the hole."""
        end = min(position + WINDOW, self._size)
        if not self._whole:
            end = min(end, self._file.next_hole(max(position, self._file.next_allocated(position))) + LONGEST_HEAD)
        self._whole = False
        self._start, self._filled = position, end - position
        with memoryview(self._buffer) as view:
            self._reader.fill(view[: self._filled], position)
            view[self._filled : self._filled + SLACK] = bytes(SLACK)

    # --- one window -------------------------------------------------------------------------------

    def _search(self) -> Generator[Found, None, int]:
        """Yield what begins in the window; return the position from which the next window is searched."""
        goes_on = self._start + self._filled < self._size
        if self._is_zero():
            return self._start + max(1, self._filled - _MAGIC_AT) if goes_on else self._size
        stop = max(1, self._filled - LONGEST_HEAD) if goes_on else self._filled
        sizes = np.ndarray((self._filled,), ">i4", self._buffer, 0, (1,))
        for found in self._candidates(stop):
            starts = found[sizes[found] >= FIXED_SIZE]
            records = FoundRecords.at(memoryview(self._buffer), self._start, starts)
            cut = self._first_cut(records)
            if cut != 0:
                limit = self._filled if cut is None else int(starts[cut])
                yield from self._judge(records.select(slice(cut)), limit)
            if cut is not None:
                return self._start + int(starts[cut])
        return self._start + stop

    def _is_zero(self) -> bool:
        buffer, filled = self._buffer, self._filled
        return buffer.startswith(_PAGE[:filled]) and buffer.startswith(_ZEROS[:filled])

    def _candidates(self, stop: int) -> Iterator[Ints]:
        """Yield the indexes below `stop` where a record begins if the magic behind it is one, some at a time."""
        end = min(stop + _MAGIC_AT + _MAGIC_SIZE - 1, self._filled)
        if not text.COMPILED:
            matches = MAGIC.finditer(self._buffer, _MAGIC_AT, end)
            while found := [match.start() - _MAGIC_AT for match in islice(matches, _MANY)]:
                yield np.array(found, np.int64)
            return
        raw = np.frombuffer(self._buffer, np.uint8)
        at, places = _MAGIC_AT, np.empty(_MANY, np.int64)
        while (count := find_places(raw, at, end - 1, _PREFIX, places)) > 0:
            at = int(places[count - 1]) + 1
            last = raw[places[:count] + len(_PREFIX)]
            if (kept := np.isin(last, _LAST_BYTES)).any():
                yield places[:count][kept] - _MAGIC_AT

    def _first_cut(self, records: FoundRecords) -> int | None:
        """Return the first record that the window cuts, and that the next one holds; None without one."""
        cut = _is_framed(records) & (records.ends > self._filled) & (records.total_size <= _FITS)
        cut &= records.positions + records.total_size <= self._size
        first = int(np.argmax(cut)) if cut.any() else -1
        if first < 0 or self._filled == min(WINDOW, self._size - self._start):
            return None if first < 0 or not records.starts[first] else first
        # The window ends at a hole: it is read again from there to its full size, as long as that can be paid.
        if self._credit < WINDOW:
            return None
        self._credit -= WINDOW
        self._whole = True
        return first

    # --- judgement --------------------------------------------------------------------------------

    def _judge(self, records: FoundRecords, limit: int) -> Iterator[Found]:
        """Yield what the candidates are; behind them is no other one before the index `limit`."""
        starts, ends = records.positions, records.positions + records.total_size
        front, head = _has_front(records, self._filled), _has_head(records, self._filled)
        lengths, checked, right, large = self._prove(records, head)
        whole = lengths & right
        doubtful = np.zeros(len(records), np.bool_)
        doubtful[self._cut_in_properties(records, whole & ~large)] = True
        counts = self._claim(starts, ends, whole & ~doubtful)
        within, outer_ends = self._within(starts, ends, counts)

        kinds = np.full(len(records), -1, np.int8)
        outside = within < 0
        kinds[front & outside & ~lengths] = PARTIAL
        kinds[head & lengths & ~checked] = UNCHECKED
        kinds[front & lengths & checked & ~right & outside] = BAD_BODY
        kinds[whole & ~counts] = OVERLAPPING
        kinds[whole & ~counts & (ends <= outer_ends)] = NESTED
        kinds[doubtful & outside] = DOUBTFUL
        kinds[counts] = WHOLE
        self.unchecked += int(np.count_nonzero(kinds == UNCHECKED))
        given = np.where(head, HEAD, FRONT).astype(np.int8)
        given[counts] = ALL
        ends = np.where(lengths, ends, starts - records.starts + records.body_ends)
        given[self._may_show(starts, ends, (kinds >= 0) & (lengths | right) & ~counts & ~large)] = ALL

        rows = np.flatnonzero(kinds >= 0)
        readable = np.minimum(records.body_ends, np.minimum(self._filled, records.body_starts + _PARTIAL_BODY))[rows]
        following = np.append(records.starts[rows][1:], limit)
        found = Found(
            records.select(rows), kinds[rows], given[rows], within[rows], right[rows], np.minimum(readable, following)
        )
        yield from self._with_large(found, np.flatnonzero(large[rows] & counts[rows]).tolist())

    def _with_large(self, found: Found, large: list[int]) -> Iterator[Found]:
        """Yield what was found; of large records that count, all of it, each by itself."""
        first = 0
        for row in large:
            if first < row:
                yield found.select(slice(first, row))
            one = found.select(slice(row, row + 1))
            raw = self._reader.read(int(one.records.positions[0]), int(one.records.total_size[0]))
            records = FoundRecords.at(
                memoryview(raw + bytes(SLACK)), int(one.records.positions[0]), np.zeros(1, np.int64)
            )
            yield replace(one, records=records)
            first = row + 1
        if first < len(found.kinds):
            yield found.select(slice(first, None))

    def _prove(self, records: FoundRecords, head: Bools) -> tuple[Bools, Bools, Bools, Bools]:
        """Return of each candidate: lengths agree; the body was compared with its CRC; it has it; it is large."""
        large = _is_framed(records) & (records.ends > self._filled)
        large &= records.positions + records.total_size <= self._size
        lengths = records.are_sound(self._filled)
        # A record without a body has no checksum: its head must prove it. Of one that is cut behind its body, that.
        empty = records.body_size <= 0
        lengths &= ~empty | head
        inside = lengths | (head & ~large & ~empty & (records.body_ends <= self._filled))
        costs = np.cumsum(np.where(inside, np.maximum(records.body_size, 0), 0))
        checked = inside & (costs <= self._credit)
        self._credit -= int(costs[checked].max(initial=0))
        right = np.zeros(len(records), np.bool_)
        right[checked] = records.select(checked).body_crc_ok
        for row in np.flatnonzero(large).tolist():
            lengths[row], checked[row], right[row] = self._prove_large(records.select(slice(row, row + 1)))
        return lengths, checked, right, large

    def _prove_large(self, record: FoundRecords) -> tuple[bool, bool, bool]:
        """Return the same of a record that goes on behind the window."""
        if self._credit < _SMALL_READS:
            return True, False, False
        self._credit -= _SMALL_READS
        position, end = int(record.positions[0]), int(record.positions[0] + record.total_size[0])
        head = read_head(self._reader.read(position, LONGEST_HEAD))
        if head is None:
            return False, False, False
        body_start, body_end = position + head.body_start, position + head.body_end
        if trailer_size(head, self._reader.read(body_end, end - body_end)) != end - body_end:
            return False, False, False
        if self._credit < body_end - body_start:
            return True, False, False
        self._credit -= body_end - body_start
        crc = 0
        for start in range(body_start, body_end, _READ):
            crc = zlib.crc32(self._reader.read(start, min(_READ, body_end - start)), crc)
        return True, True, crc & message.CRC_MASK == head.body_crc

    # --- what counts ------------------------------------------------------------------------------

    def _claim(self, starts: Ints, ends: Ints, whole: Bools) -> Bools:
        """Return which whole records count: those that begin behind the end of the last one that does."""
        rows = np.flatnonzero(whole)
        counts = whole.copy()
        if not len(rows):
            return counts
        before = np.concatenate(([self._claimed[1]], ends[rows][:-1]))
        if (starts[rows] < before).any():  # records in records
            end = self._claimed[1]
            for row, start, own_end in zip(rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True):
                counts[row] = start >= end
                end = own_end if start >= end else end
        return counts

    def _within(self, starts: Ints, ends: Ints, counts: Bools) -> tuple[Ints, Ints]:
        """Return where the record begins and ends that counts, and in which each candidate begins; -1 without one."""
        outer_starts = np.concatenate(([self._claimed[0]], starts[counts]))
        outer_ends = np.concatenate(([self._claimed[1]], ends[counts]))
        outer = np.searchsorted(outer_starts, starts - counts, "right") - 1
        inside = (outer >= 0) & (starts < outer_ends[outer]) & ~counts
        self._claimed = int(outer_starts[-1]), int(outer_ends[-1])
        return np.where(inside, outer_starts[outer], -1), np.where(inside, outer_ends[outer], -1)

    def _cut_in_properties(self, records: FoundRecords, whole: Bools) -> Ints:
        """Return which whole records may have been cut inside of topic or properties: lengths and body stay right.

        What follows a cut may be text, too, so nothing but a checksum or a neighbour proves that there is none: the
        next record of the log, a blank one, or zeros. Else it counts where no border of a block lies in between.
        """
        rows = np.flatnonzero(whole)
        rows = rows[~self._are_followed(records.select(rows))]
        rows = rows[records.select(rows).record_crcs != RIGHT_CRC]
        some = records.select(rows)
        cut: Bools = (some.base + some.body_ends) // _BLOCK != (some.base + some.ends - 1) // _BLOCK
        cut[~cut] = some.select(~cut).properties.malformed
        found: Ints = rows[cut]
        return found

    def _are_followed(self, records: FoundRecords) -> Bools:
        """Return which records are followed by the next one of their log, a blank one, zeros, or nothing."""
        ends, inside = records.ends, records.ends + _BEHIND_OFFSET <= self._filled
        following = records.physical_offset + records.total_size
        places = np.where(inside, ends, 0)
        magics = np.ndarray((WINDOW,), ">i4", self._buffer, _MAGIC_AT, (1,))[places]
        own = np.ndarray((WINDOW,), ">i8", self._buffer, _OFFSET_AT, (1,))[places]
        followed: Bools = np.isin(magics, message.RECORD_MAGICS) & (own == following)
        # Zeros end a log, if they do not begin inside: a topic and properties are text.
        empty = records.properties_ends == records.properties_starts
        text_end = records.bytes[np.where(empty, records.topic_ends, ends) - 1] != 0
        followed |= (magics == message.MAGIC_BLANK) | ((magics == 0) & (own == 0) & text_end)
        fronts: dict[int, bytes] = {}
        for row in np.flatnonzero(~inside).tolist():  # at the end of the window
            position = int(records.base + ends[row])
            if position not in fronts:
                fronts[position] = self._reader.read(position, _BEHIND_OFFSET).ljust(_BEHIND_OFFSET, b"\0")
            front = fronts[position]
            next_magic = front[_MAGIC_AT : _MAGIC_AT + _MAGIC_SIZE]
            next_own = int.from_bytes(front[_OFFSET_AT:], "big")
            followed[row] = (text_end[row] and not any(front)) or (
                MAGIC.fullmatch(next_magic) is not None and next_own == following[row]
            )
        return followed

    def _may_show(self, starts: Ints, ends: Ints, which: Bools) -> Ints:
        """Return which records that do not count are given in full: none that begins inside of another such one."""
        shown = []
        rows = np.flatnonzero(which)
        for row, start, end in zip(rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True):
            if start >= self._shown:
                self._shown = end
                shown.append(row)
        return np.array(shown, np.int64)


def _is_framed(records: FoundRecords) -> Bools:
    """Return which heads leave room between body and end for a topic and properties, and no more."""
    rest = records.ends - records.body_ends
    framed: Bools = (records.total_size >= FIXED_SIZE) & (records.body_size >= 0)
    framed &= (rest > 0) & (rest <= LONGEST_TRAILER)
    return framed


def _below(values: Ints, most: int) -> Bools:
    below: Bools = (values >= 0) & (values < most)
    return below


def _has_front(records: FoundRecords, filled: int) -> Bools:
    """Return which have fields up to SYSFLAG that no chance writes."""
    plausible: Bools = (records.starts + _FRONT_SIZE <= filled) & (records.total_size >= FIXED_SIZE)
    plausible &= (records.total_size <= _MOST_SIZE) & (records.field("body_crc") >= 0)
    for name, most in (
        ("queue_id", _MOST_QUEUE_ID),
        ("queue_offset", _MOST_QUEUE_OFFSET),
        ("physical_offset", _MOST_OFFSET),
        ("sys_flag", _MOST_FLAGS),
    ):
        plausible &= _below(records.field(name), most)
    return plausible


def _has_head(records: FoundRecords, filled: int) -> Bools:
    """Return which have such fields up to BODYLEN."""
    plausible = _has_front(records, filled) & (records.body_starts <= filled)
    plausible &= _below(records.body_size, _MOST_SIZE)
    for side in ("born", "store"):
        times = records.field(f"{side}_timestamp")
        plausible &= (times >= _TIMES[0]) & (times < _TIMES[1]) & _below(records.field(f"{side}_port"), _MOST_PORT)
    return plausible

"""Commit-log bytes → the records of the chain, and the gaps between them.

A segment is a chain: each record ends where the next begins, until a blank record, zeros, or
damage. The scan walks the chain window by window, proves each record by its lengths, and behind
damage looks for the next record that proves itself: magic, plausible lengths, its own physical
offset, a good body CRC. Every byte belongs to a record or to exactly one gap.

A split of a segment starts by walking from a little before its first byte, so that it finds the
same records as a reader that comes from the segment's start.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqinspect.errors import Unreadable
from rmqinspect.layout import dtype_of
from rmqinspect.records import SLACK, Records
from rmqinspect.schemas import dledger, message
from rmqinspect.store import FileReader, Segment, open_file

# 4 MiB stays in the second-level cache while the columns are computed; 16 and 64 MiB were slower.
WINDOW_SIZE = 4 << 20

# A split looks this far back for its first record: the broker's largest record (4 MiB and 64 KiB
# by default) and a neighbour. A larger one costs a search, never an answer.
LOOK_BACK = 6 << 20

# A run of zeros inside damage is told as zeros from one disk sector on.
ZERO_RUN = 512

_CHUNK = 1 << 20  # bytes searched at a time behind damage
_BLOCK = 4096  # what is given up around bytes that cannot be read

# The columns of so many records stay in the second-level cache; of fewer, numpy's calls cost more.
_BATCH_RECORDS = 3500
_BATCH_SIZE = 256 << 10  # bytes of the first batch, and of any at least
_PARTS = 96  # parts of a batch that are followed at once
_PART_SIZE = 4096

_PHYSICAL_OFFSET = (dtype_of(message.HEADS[False, False]).fields or {})["physical_offset"][1]
_RECORD_MAGICS = (message.MAGIC_V1, message.MAGIC_V2)
_ENTRY_HEAD = dledger.EntryHead.sizeof()
_ENTRY_FIELDS = dtype_of(dledger.EntryHead).fields or {}
_ENTRY_SIZE, _ENTRY_BODY_SIZE = _ENTRY_FIELDS["size"][1], _ENTRY_FIELDS["body_size"][1]
_BLANK_SIZE = message.Blank.sizeof()


class Gap(NamedTuple):
    """Bytes [start, end) of the log, in physical offsets, that are no record."""

    start: int
    end: int
    kind: str  # filler, zeros, unknown, missing
    reason: str | None  # a key of REASONS; None where nothing is wrong


class Unread(NamedTuple):
    """Bytes [start, end) of the log that the system refused to read; the scan took them as zeros."""

    start: int
    end: int
    message: str


REASONS = {
    "magic": "neither a record, nor a blank record, nor zeros begin here",
    "size": "the magic of a record, but a total size that cannot be",
    "length": "the lengths of body, topic and properties do not add up to the total size",
    "cut": "a record runs past the end of the file",
    "short": "too few bytes are left for a record or a blank record",
    "entry": "no DLedger entry begins here, or its sizes disagree with its record",
    "zero": "the chain reaches zeros, and something else follows",
    "blank_size": "a blank record whose size is not the number of bytes left",
    "unreadable": "the system could not read these bytes",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of the chain in one window, and how the first one was found."""

    records: Records
    carved: bool  # the first record stands behind a gap; the rest follow from it in the chain
    stale: bool  # all of them stand behind a gap and are older than the record before it


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range [start, end) of a segment, in positions; its records are those that start there."""

    segment: Segment
    start: int
    end: int


Event = Stretch | Gap | Unread


def plan_splits(segments: Iterable[Segment], split_size: int) -> list[Split]:
    """Cut segments at multiples of `split_size`; an empty segment gives no split."""
    return [
        Split(segment, start, min(start + split_size, segment.size))
        for segment in segments
        for start in range(0, segment.size, split_size)
    ]


def scan_split(split: Split, window_size: int = WINDOW_SIZE) -> Iterator[Event]:
    """Yield the records that start in a split, and its gaps, in order.

    A gap is cut at the split's borders: `merge_gaps` joins the parts again. The records of a
    stretch are valid until the next step of the iterator, which reuses the window.

    :raises Unreadable: the file cannot be opened.
    """
    with open_file(split.segment) as reader:
        chain = _Chain(reader, split.segment, window_size)
        yield from chain.run(split.start, min(split.end, reader.size))


def find_holes(segments: Sequence[Segment], segment_size: int | None) -> Iterator[Gap]:
    """Yield the ranges between neighbouring segments that no file covers, one per missing file."""
    for before, after in pairwise(segments):
        start = before.base + (segment_size or before.size)
        while start < after.base:
            end = min(after.base, start + segment_size) if segment_size else after.base
            yield Gap(start, end, "missing", None)
            start = end


def merge_gaps(gaps: Iterable[Gap], end: int) -> Iterator[Gap]:
    """Make the gaps of one segment, cut at split borders, what one reader would have found.

    Parts are joined; an unknown part that began at a border gets the reason of its gap; a short
    run of zeros beside unknown bytes is unknown too, unless it reaches `end`, the segment's.
    """
    previous: Gap | None = None
    whole = list(_join(gaps))
    parts: list[Gap] = []
    for number, gap in enumerate(whole):
        follows = previous is not None and previous.end == gap.start and previous.kind in ("zeros", "unknown")
        following = whole[number + 1] if number + 1 < len(whole) else None
        beside = (follows and previous is not None and previous.kind == "unknown") or (
            following is not None and following.start == gap.end and following.kind == "unknown"
        )
        if gap.kind == "zeros" and gap.end - gap.start < ZERO_RUN and beside and gap.end != end:
            gap = gap._replace(kind="unknown")
        parts.append(gap)
        previous = gap
    yield from _join(_give_reasons(parts))


def _join(gaps: Iterable[Gap]) -> Iterator[Gap]:
    last: Gap | None = None
    for gap in gaps:
        if last is not None and last.end == gap.start and last.kind == gap.kind and gap.reason in (last.reason, None):
            last = last._replace(end=gap.end)
            continue
        if last is not None:
            yield last
        last = gap
    if last is not None:
        yield last


def _give_reasons(gaps: list[Gap]) -> Iterator[Gap]:
    """Give every unknown part the reason why the chain broke at the beginning of its gap."""
    reason, reached = None, -1
    for number, gap in enumerate(gaps):
        if gap.start != reached or reason is None:
            reason = next((later.reason for later in gaps[number : number + 3] if later.reason), None)
        reached = gap.end
        yield gap._replace(reason=reason or "magic") if gap.kind == "unknown" else gap


class _Chain:
    """The walk over one segment. Positions are bytes from the segment's start."""

    def __init__(self, reader: FileReader, segment: Segment, window_size: int) -> None:
        self.reader = reader
        self.base = segment.base
        self.size = reader.size
        # A DLedger segment wraps each record in an entry: the chain runs over the entries.
        self.lead = _ENTRY_HEAD if segment.kind == "dledger" else 0
        self.window_size = window_size
        self.last_timestamp: int | None = None
        self.unread: list[Unread] = []
        self.batch_size = _BATCH_SIZE
        self._use_buffer(min(window_size, max(self.size, 1)))

    # --- from start to end ----------------------------------------------------------------------

    def run(self, start: int, end: int) -> Iterator[Event]:
        """Yield what starts in [start, end), having walked up to it from a little before."""
        position, carved, stale = self._enter(start, end), False, False
        if position > start:  # nothing before the split proved itself: it begins inside a gap
            yield from self._describe(start, position, None)
            carved, stale = True, position < end and self._is_stale(position)
        while position < end:
            records = self._walk(position)
            yield from self._take_unread()
            if len(records):
                position = self.start + int(records.ends[-1])
                self.last_timestamp = int(records.field("store_timestamp")[-1])
                inside = self._inside(records, start, end)
                if len(inside):
                    yield Stretch(inside, carved and inside.starts[0] == records.starts[0], stale)
                carved = False
                continue
            kind, reason = self._judge(position)
            if kind == "blank":
                yield Gap(self.base + max(position, start), self.base + min(self.size, end), "filler", reason)
                break
            if kind == "damage":
                gap, position = position, self._find_next(position + 1, end)
                yield from self._describe(max(gap, start), position, reason)
                carved, stale = True, position < end and self._is_stale(position)
            yield from self._take_unread()

    def _enter(self, start: int, end: int) -> int:
        """Return where to begin walking for a split that begins at `start`."""
        begin = start - LOOK_BACK
        if begin <= 0:
            return 0
        before = self._find_next(begin, start)
        return before if before < start else self._find_next(start, end)

    def _inside(self, records: Records, start: int, end: int) -> Records:
        """Return the records that start in the split."""
        borders = np.array((start, end)) - self.start + self.lead
        first, last = np.searchsorted(records.starts, borders)
        return records if (first, last) == (0, len(records)) else records.select(slice(first, last))

    def _take_unread(self) -> Iterator[Unread]:
        taken, self.unread = self.unread, []
        return iter(taken)

    # --- the window -----------------------------------------------------------------------------

    def _use_buffer(self, size: int) -> None:
        self.buffer = bytearray(size + SLACK)
        self.octets = memoryview(self.buffer)
        self.int32 = np.ndarray((size + SLACK - 3,), ">i4", self.buffer, 0, (1,))
        self.uint32 = self.int32.view(">u4")
        self.int64 = np.ndarray((size + SLACK - 7,), ">i8", self.buffer, 0, (1,))
        self.start = self.filled = 0  # position of the window's first byte; its valid bytes

    def _load(self, position: int) -> None:
        """Fill the window from `position` on; what cannot be read is taken as zeros, and noted."""
        capacity = len(self.buffer) - SLACK
        self.start = position
        self.filled = max(0, min(capacity, self.size - position))
        try:
            self.filled = self.reader.read_into(self.octets[: self.filled], position)
        except Unreadable:
            for at in range(0, self.filled, _BLOCK):
                block = self.octets[at : min(at + _BLOCK, self.filled)]
                try:
                    self.reader.read_into(block, position + at)
                except Unreadable as error:
                    block[:] = bytes(len(block))
                    place = self.base + position + at
                    self.unread.append(Unread(place, place + len(block), str(error)))

    def _has(self, position: int, size: int) -> bool:
        return self.start <= position and position + size <= self.start + self.filled

    def _need(self, position: int, size: int) -> int:
        """Load the window unless it holds these bytes; return the position in the window."""
        if not self._has(position, min(size, self.size - position)):
            if size > len(self.buffer) - SLACK:
                self._use_buffer(size)
            self._load(position)
        return position - self.start

    def _records(self, starts: NDArray[np.int64]) -> Records:
        return Records(self.octets, self.base + self.start, starts)

    # --- the chain ------------------------------------------------------------------------------

    def _walk(self, position: int) -> Records:
        """Return a batch of the chain from `position` on, none where it stops.

        The records are proved by magic, size and lengths.
        """
        batch = min(self.batch_size, self.window_size, self.size - position)
        if not self._has(position, batch):
            self._load(position)
        starts = self._guess_starts(position - self.start)
        records = self._records(starts)
        size, magic = records.total_size, records.magic
        sound = (magic == message.MAGIC_V1) | (magic == message.MAGIC_V2)
        sound &= (size >= message.FIXED_SIZE) & (records.ends <= self.filled)
        sound &= records.lengths_agree
        if self.lead:
            entries = starts - self.lead
            body = self.int32[entries + _ENTRY_BODY_SIZE]
            sound &= (body == size) & (self.int32[entries + _ENTRY_SIZE] == size + self.lead)
            sound &= np.isin(self.int32[entries], dledger.ENTRY_MAGICS)
        if not sound.all():
            records = records.select(slice(int(np.argmin(sound))))
        if len(records):
            walked = int(records.ends[-1] - records.starts[0])
            self.batch_size = max(walked // len(records) * _BATCH_RECORDS, _BATCH_SIZE)
        return records

    def _guess_starts(self, at: int) -> NDArray[np.int64]:
        """Follow the total sizes from `at` as far as a batch goes, without judging them.

        A chain is followed from record to record, which is slow in Python. So several records
        further on that know their own place are found by their magic, and the chain is followed
        from all of them at once: where each part ends exactly where the next begins, the parts
        are the chain. Sizes are read unsigned: a part only moves forward.
        """
        at += self.lead
        last = min(self.filled - message.FIXED_SIZE, at + self.batch_size)
        begins = self._find_begins(at, last)
        ends = np.append(begins[1:], last + 1)
        parts = np.arange(len(begins), dtype=np.uint16)
        reached = begins.copy()
        found, owners = [], []
        position = begins if at <= last else begins[:0]
        while len(position):
            found.append(position)
            owners.append(parts)
            size = self.uint32[position].astype(np.int64)
            position = position + size + self.lead
            going = (position < ends) & (size >= message.FIXED_SIZE)
            if not going.all():
                reached[parts[~going]] = position[~going]
                position, parts, ends = position[going], parts[going], ends[going]
        if not found:
            return begins[:0]
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        broken = np.flatnonzero(reached[:-1] != begins[1:])
        if len(broken):
            order = order[: np.searchsorted(owner[order], broken[0], "right")]
        return np.concatenate(found)[order]

    def _find_begins(self, at: int, last: int) -> NDArray[np.int64]:
        """Return `at` and some records behind it, up to `last`, that know their own place."""
        begins = [at]
        step = max((last - at) // _PARTS, _PART_SIZE)
        find, offset_at = self.buffer.find, self.int64.item
        for begin in range(at + step, last, step):
            place = find(message.MAGIC_PREFIX, begin + 4, min(begin + step, last + 4)) - 4
            if place > 0 and offset_at(place + _PHYSICAL_OFFSET) == self.base + self.start + place:
                begins.append(place)
        return np.array(begins, np.int64)

    def _judge(self, position: int) -> tuple[str, str | None]:
        """Say what stands where the chain stopped: ("more" | "blank" | "damage", reason).

        "more": the window ended here, or in the middle of a plausible record; now it begins here.
        """
        left = self.size - position
        if left < _BLANK_SIZE:
            return "damage", "short"
        if not self._has(position, _BLANK_SIZE):
            self._load(position)
            return "more", None
        at = position - self.start
        if self.lead:
            return self._judge_entry(position, left)
        size, magic = int(self.int32[at]), int(self.int32[at + 4])
        if magic == message.MAGIC_BLANK:
            return "blank", None if size == left else "blank_size"
        if magic not in _RECORD_MAGICS:
            return "damage", "zero" if magic == 0 else "magic"
        if size < message.FIXED_SIZE:
            return "damage", "size"
        if size > left:
            return "damage", "cut" if self._knows_place(position, at) else "size"
        return self._judge_size(position, size)

    def _judge_entry(self, position: int, left: int) -> tuple[str, str | None]:
        at = position - self.start
        magic, size = int(self.int32[at]), int(self.int32[at + 4])
        if magic == dledger.ENTRY_MAGIC_BLANK:
            return "blank", None if size == left else "blank_size"
        if magic == 0:
            return "damage", "zero"
        if magic not in dledger.ENTRY_MAGICS or not _ENTRY_HEAD <= size <= left:
            return "damage", "entry"
        return self._judge_size(position, size)

    def _judge_size(self, position: int, size: int) -> tuple[str, str | None]:
        """Decide between a record that the window cut and one whose lengths disagree."""
        if not self._has(position, size):
            # Larger than a window is believed only when its own lengths lead to the same end.
            if size <= self.window_size or self._read_record(position + self.lead) is not None:
                self._need(position, size)
                return "more", None
        return "damage", "entry" if self.lead else "length"

    # --- behind damage --------------------------------------------------------------------------

    def _find_next(self, position: int, limit: int) -> int:
        """Return where in [position, limit) the next record or blank that proves itself begins.

        `limit` if none does. Source of the test: the physical offset alone is 64 bits of evidence.
        """
        return next(filter(self._proves_itself, self._candidates(position, limit)), limit)

    def _candidates(self, position: int, limit: int) -> Iterator[int]:
        """Yield, ascending, where in [position, limit) a magic says that something could begin."""
        blank = _int32(dledger.ENTRY_MAGIC_BLANK if self.lead else message.MAGIC_BLANK)
        needles = ((message.MAGIC_PREFIX, self.lead + 4), (blank, 0 if self.lead else 4))
        for start, octets in self._chunks(position, limit, overlap=self.lead + _BLANK_SIZE):
            stop = min(start + _CHUNK, limit)
            hits = [[start + at - ahead for at in _find_all(octets, needle)] for needle, ahead in needles]
            yield from (place for place in sorted(hits[0] + hits[1]) if start <= place < stop)

    def _chunks(self, position: int, limit: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) of [position, limit), holes and zeros left out.

        `overlap` bytes of the next chunk are repeated. What cannot be read is taken as zeros.
        """
        while (position := max(position, self.reader.next_allocated(position))) < limit:
            octets = self._read(position, min(_CHUNK, limit - position) + overlap)
            if octets.count(0) < len(octets):
                yield position, octets
            position += _CHUNK

    def _read(self, position: int, size: int) -> bytes:
        try:
            return self.reader.read(position, size)
        except Unreadable:
            # Noted when the chain itself came here; a search only wants to go on.
            return b"".join(self._read_block(position + at, min(_BLOCK, size - at)) for at in range(0, size, _BLOCK))

    def _read_block(self, position: int, size: int) -> bytes:
        try:
            return self.reader.read(position, size)
        except Unreadable as error:
            self.unread.append(Unread(self.base + position, self.base + position + size, str(error)))
            return bytes(size)

    def _proves_itself(self, position: int) -> bool:
        left = self.size - position
        octets = self._read(position, self.lead + _BLANK_SIZE)
        if octets[: len(_int32(0))] == _int32(dledger.ENTRY_MAGIC_BLANK) and self.lead:
            return _int32(left) == octets[4:8]
        if octets[4:8] == _int32(message.MAGIC_BLANK) and not self.lead:
            return _int32(left) == octets[:4]
        record = self._read_record(position + self.lead)
        return record is not None and self._at_own_place(record) and bool(record.body_crc_ok[0])

    def _knows_place(self, position: int, at: int) -> bool:
        front = self._records(np.array([at], np.int64))
        return int(front.physical_offset[0]) == self.base + position

    def _at_own_place(self, record: Records) -> bool:
        return int(record.physical_offset[0]) == record.base

    def _read_record(self, position: int) -> Records | None:
        """Return the whole record at `position` if magic, sizes and lengths are plausible."""
        left = self.size - position
        if left < message.FIXED_SIZE:
            return None
        head = Records(_with_slack(self._read(position, SLACK)), self.base + position, np.zeros(1, np.int64))
        size = int(head.total_size[0])
        # What is neither head nor body has 16-bit lengths: no field of damage sizes a read.
        rest = size - int(head.body_ends[0])
        if head.magic[0] not in _RECORD_MAGICS or not message.FIXED_SIZE <= size <= left or not 0 < rest < 1 << 17:
            return None
        octets = _with_slack(self._read(position, size))
        record = Records(octets, self.base + position, np.zeros(1, np.int64))
        return record if record.lengths_agree[0] else None

    def _is_stale(self, position: int) -> bool:
        """Whether the record at `position`, found behind a gap, is older than the one before the gap.

        Truncation erases nothing: what an earlier life of the store wrote behind the new end stays
        there, whole and at its own offset, and is older than what was written since.
        Source: MappedFileQueue#truncateDirtyFiles.
        """
        record = self._read_record(position + self.lead)
        before = self.last_timestamp if self.last_timestamp is not None else self._timestamp_before(position)
        return record is not None and before is not None and int(record.field("store_timestamp")[0]) < before

    def _timestamp_before(self, position: int) -> int | None:
        """Return the store time of the last record before `position` that proves itself."""
        for start in range(max(0, position - _CHUNK), -_CHUNK, -_CHUNK):
            for place in reversed(list(self._candidates(max(0, start), min(start + _CHUNK, position)))):
                record = self._read_record(place + self.lead)
                if record is not None and self._proves_itself(place):
                    return int(record.field("store_timestamp")[0])
        return None

    def _describe(self, start: int, end: int, reason: str | None) -> Iterator[Gap]:
        """Yield the gap [start, end) as runs of zeros and runs of anything else."""
        position = start
        for run_start, run_end in self._zero_runs(start, end):
            if position < run_start:
                yield Gap(self.base + position, self.base + run_start, "unknown", reason)
            yield Gap(self.base + run_start, self.base + run_end, "zeros", None)
            position = run_end
        if position < end:
            yield Gap(self.base + position, self.base + end, "unknown", reason)

    def _zero_runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of zeros in [start, end) that are long, or touch one of its ends."""
        zeros_from = start
        for chunk_start, octets in self._chunks(start, end):
            used = np.flatnonzero(np.frombuffer(octets, np.uint8)) + chunk_start
            before = np.concatenate(([zeros_from], used[:-1] + 1))
            if zeros_from == start < used[0]:
                yield start, int(used[0])
            for number in np.flatnonzero(used - before >= ZERO_RUN):
                if before[number] > start:
                    yield int(before[number]), int(used[number])
            zeros_from = int(used[-1]) + 1
        if zeros_from < end:
            yield zeros_from, end


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _with_slack(octets: bytes) -> memoryview:
    return memoryview(octets + bytes(SLACK))


def _find_all(octets: bytes, needle: bytes) -> Iterator[int]:
    at = octets.find(needle)
    while at != -1:
        yield at
        at = octets.find(needle, at + 1)

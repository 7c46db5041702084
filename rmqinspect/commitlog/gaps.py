"""Byte ranges of the log: the splits in which it is scanned, and the gaps, which are no record.

A split is scanned on its own; `ScanState` is the state of the scan at its border.

A gap found by the scan consists of runs of zeros, of bytes that could not be read, and of the rest:

    ...record|unknown|zeros........|unknown|record...

Splits cut gaps at their borders. `merge_gaps` undoes that, so that the gaps of a segment do not depend
on how it was split.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.store.model import Segment

# Inside damage, zeros are a gap of their own from one disk sector on.
ZERO_RUN = 512
_ZERO_RUN = bytes(ZERO_RUN)
_ZEROS = re.compile(b"\0*")


class Gap(NamedTuple):
    """Bytes [start, end) of the log, in physical offsets, that are no record."""

    start: int
    end: int
    kind: str  # filler, zeros, unknown, missing (no file has these bytes: `missing_in`)
    reason: str | None  # a key of REASONS; None where nothing is wrong


BRIDGED = "bridged"
"""The reason of a filler that a salvage wrote: a record of type rollback with a mark, which no reader takes for a
message. Nothing is known of the queue offsets that were there."""

SHORT = "short_file"
"""The reason of bytes that no file has because one ends before its place in the log does."""

REASONS = {
    "magic": "neither a record, nor a blank record, nor zeros begin here",
    "size": "the magic of a record, but a total size that cannot be",
    "length": "the lengths of body, topic and properties do not add up to the total size",
    "cut": "a record runs past the end of the file",
    "short": "too few bytes are left for a record or a blank record",
    "entry": "no DLedger entry begins here, or its sizes disagree with its record",
    "zero": "zeros where a record should begin",
    "blank_size": "a blank record whose size is not the number of bytes left",
    "unreadable": "the system could not read these bytes",
    BRIDGED: "a bridge: a salvage wrote it in the place of what could not be saved",
    SHORT: "the file ends before its place in the log does",
}


def describe_gap(reader: LenientReader, start: int, end: int, reason: str | None) -> Iterator[Gap]:
    """Yield the parts of a gap: runs of zeros, what could not be read, and the rest, which has the reason.

    `start` and `end` are positions in the segment.
    """
    position = start
    for first, last in _zero_runs(reader, start, end):
        if position < first:
            yield Gap(reader.base + position, reader.base + first, "unknown", reason)
        yield from _without_unread(reader, first, last)
        position = last
    if position < end:
        yield Gap(reader.base + position, reader.base + end, "unknown", reason)


def _without_unread(reader: LenientReader, start: int, end: int) -> Iterator[Gap]:
    """Yield a run of zeros, except where the zeros only stand for what could not be read."""
    for dark_start, dark_end in reader.dark:
        first, last = max(start, dark_start), min(end, dark_end)
        if first >= last:
            continue
        if start < first:
            yield Gap(reader.base + start, reader.base + first, "zeros", None)
        yield Gap(reader.base + first, reader.base + last, "unknown", "unreadable")
        start = last
    if start < end:
        yield Gap(reader.base + start, reader.base + end, "zeros", None)


def _zero_runs(reader: LenientReader, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of zeros in [start, end) that are long, or touch one of its ends."""
    zeros_from = start
    for chunk_start, _, raw in reader.chunks(start, end):
        at = _behind_zeros(raw, 0)
        used = chunk_start + at
        if zeros_from < used and (zeros_from == start or used - zeros_from >= ZERO_RUN):
            yield zeros_from, used
        # Python's search for a long text leaps over bytes that cannot be in it: 5 GB/s, no loop of ours is as fast.
        while (found := raw.find(_ZERO_RUN, at)) != -1 and (at := _behind_zeros(raw, found)) < len(raw):
            yield chunk_start + found, chunk_start + at
        zeros_from = chunk_start + len(raw.rstrip(b"\0"))
    if zeros_from < end:
        yield zeros_from, end


def _behind_zeros(raw: bytes, start: int) -> int:
    """Return the first position from `start` on where no zero is."""
    zeros = _ZEROS.match(raw, start)
    assert zeros is not None  # it may be empty
    return zeros.end()


def merge_gaps(gaps: Iterable[Gap], end: int) -> Iterator[Gap]:
    """Yield the gaps that one reader of a whole segment would find, from those of its splits, in order.

    Parts cut at a border are joined; an unknown part that began at a border gets the reason of its gap;
    a short run of zeros beside unknown bytes is unknown too, unless it reaches `end`, the segment's.
    """
    whole = list(_join(gaps))
    parts: list[Gap] = []
    for number, gap in enumerate(whole):
        neighbours = [parts[-1]] if parts and parts[-1].end == gap.start else []
        neighbours += [after for after in whole[number + 1 : number + 2] if after.start == gap.end]
        beside_unknown = any(neighbour.kind == "unknown" for neighbour in neighbours)
        if gap.kind == "zeros" and gap.end - gap.start < ZERO_RUN and beside_unknown and gap.end != end:
            gap = gap._replace(kind="unknown")
        parts.append(gap)
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
    """Give every unknown part the reason why the chain broke at the beginning of its gap; a filler is part of none."""
    reason, reached = None, -1
    for number, gap in enumerate(gaps):
        if gap.kind == "filler":
            reason = None
        elif gap.start != reached or reason is None:
            parts = (part.reason for part in gaps[number : number + 3] if part.kind != "filler")
            reason = next((one for one in parts if one not in (None, "unreadable")), None)
        reached = gap.end
        known = gap.kind != "unknown" or gap.reason == "unreadable"
        yield gap if known else gap._replace(reason=reason or "magic")


@dataclass(frozen=True, slots=True)
class ScanState:
    """The state of the scan at a split's border, decided by the bytes before it."""

    position: int  # where the next element of the chain begins, at the border or behind it
    in_gap: bool = False  # none begins here: the bytes before the border belong to a gap
    stale: bool = False  # the chain is in records of an earlier life of the file
    closed: bool = False  # a blank record ended the segment: no record follows
    # Store times (ms) of the last few records of this life, as far as the scan saw them.
    last_times: tuple[int, ...] = field(default=(), compare=False)


class Split(Struct, frozen=True):
    """A byte range [start, end) of a segment, in positions; its records are those that start in it.

    `entry` is the exit of the split before it, where that is known. Otherwise the scan looks back, which
    gives the same unless damage reaches further.
    """

    segment: Segment
    start: int
    end: int
    entry: ScanState | None = None

    def clipped(self, first: int, behind: int) -> "Split | None":
        """Return what of it lies in physical offsets [first, behind), entered from no known state; None without any."""
        base = self.segment.base
        start, end = max(self.start, first - base), min(self.end, behind - base)
        return Split(self.segment, start, end) if start < end else None


class Borders(NamedTuple):
    """The last event of a split: the state at its start, and at its end."""

    entry: ScanState
    exit: ScanState


SEGMENT_START = ScanState(0)


# Splits of one segment. No broker writes segments of 2 GiB or more; one that seems to have a terabyte is a hole.
_MOST_SPLITS = 256


def plan_splits(segments: Iterable[Segment], split_size: int) -> list[Split]:
    """Return the splits of segments, cut at multiples of `split_size` bytes; an empty segment has none.

    A segment of more than 256 times that is cut into 256 splits.
    """
    return [
        Split(segment, start, min(start + step, segment.size))
        for segment in segments
        for step in (max(split_size, -(-segment.size // _MOST_SPLITS)),)
        for start in range(0, segment.size, step)
    ]

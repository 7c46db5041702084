"""Byte ranges of the log that are no record, and how their parts are joined."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rmqinspect.store.model import Segment

# A run of zeros inside damage is told as zeros from one disk sector on.
ZERO_RUN = 512

# More missing files than these between two that are there are told as one range.
_MOST_MISSING = 1000


class Gap(NamedTuple):
    """Bytes [start, end) of the log, in physical offsets, that are no record."""

    start: int
    end: int
    kind: str  # filler, zeros, unknown, missing
    reason: str | None  # a key of REASONS; None where nothing is wrong


REASONS = {
    "magic": "neither a record, nor a blank record, nor zeros begin here",
    "size": "the magic of a record, but a total size that cannot be",
    "length": "the lengths of body, topic and properties do not add up to the total size",
    "cut": "a record runs past the end of the file",
    "short": "too few bytes are left for a record or a blank record",
    "entry": "no DLedger entry begins here, or its sizes disagree with its record",
    "zero": "zeros stand where the magic of a record should",
    "blank_size": "a blank record whose size is not the number of bytes left",
    "unreadable": "the system could not read these bytes",
}


def find_holes(segments: Sequence[Segment], segment_size: int | None) -> Iterator[Gap]:
    """Yield the ranges between neighbouring segments that no file covers.

    One range per missing file; a wide hole (a wrong name, most likely) is one range.
    """
    for before, after in pairwise(segments):
        start = before.base + (segment_size or before.size)
        if segment_size and start + _MOST_MISSING * segment_size < after.base:
            yield Gap(start, after.base, "missing", None)
            continue
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
            parts = gaps[number : number + 3]
            reason = next((part.reason for part in parts if part.reason not in (None, "unreadable")), None)
        reached = gap.end
        known = gap.kind != "unknown" or gap.reason == "unreadable"
        yield gap if known else gap._replace(reason=reason or "magic")

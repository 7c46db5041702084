"""Ranges [start, end) of offsets: merged, intersected, left over; those of a result are ascending and apart.

    spans         |----|  |---|           others     |-----|
    merge         |-----------|           where they touch, overlap, or lie near
    intersect        |-|  |-|             what both hold
    uncovered           ||                what of a whole none holds

Of one kind of thing: where each range has more to say of itself, its owner merges.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

Span = tuple[int, int]


def merge(ranges: Iterable[Span], within: int = 0) -> list[Span]:
    """Return ranges ascending and apart, empty ones left out; those up to `within` bytes apart become one."""
    merged: list[Span] = []
    for start, end in sorted(one for one in ranges if one[0] < one[1]):
        if merged and start <= merged[-1][1] + within:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def intersect(ranges: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return what lies in ranges of both; each is ascending and apart."""
    common: list[Span] = []
    at = 0
    for start, end in ranges:
        while at < len(others) and others[at][1] <= start:
            at += 1
        for first, last in islice(others, at, None):
            if first >= end:
                break
            common.append((max(start, first), min(end, last)))
    return common


def uncovered(covered: Iterable[Span], whole: Span) -> list[Span]:
    """Return what of `whole` no covered range holds; `covered` is ascending and apart."""
    borders = [whole[0], *(border for one in covered for border in one), whole[1]]
    pairs = ((max(start, whole[0]), min(end, whole[1])) for start, end in zip(borders[::2], borders[1::2], strict=True))
    return [pair for pair in pairs if pair[0] < pair[1]]

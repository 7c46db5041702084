"""The ranges of physical offsets that the segments of two logs cover, and how they are cut for comparing.

    A            |--- seg ---|--- seg ---|           |--- seg ---|
    B                        |--- seg ---|--- seg ---|--- seg ---|
    pieces       |  A only   |   both    |  B only   |   both    |
    cells        |   :   :   |:   :   :  | :   :   : |   :   :   |

A piece is a range in which each log has one segment or none. A cell is a part of a piece between two lines of a grid
that is the same for both logs. Ranges are half-open.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from rmqinspect.store.model import Segment

Range = tuple[int, int]


class Part(NamedTuple):
    """Physical offsets [start, end) and the segment that holds them."""

    start: int
    end: int
    segment: Segment


class Piece(NamedTuple):
    """Physical offsets [start, end) and the segment of each log, None where it has none."""

    start: int
    end: int
    segments: tuple[Segment | None, Segment | None]

    @property
    def is_cut_by_one_segment(self) -> bool:
        """Whether a segment of one log alone starts or ends at a border of the piece, which may cut a record."""
        a, b = self.segments
        if a is None or b is None:
            return False
        ends = (a.base + a.size, b.base + b.size)
        starts_alone = a.base != b.base and self.start in (a.base, b.base)
        return starts_alone or (ends[0] != ends[1] and self.end in ends)


def cover(segments: Iterable[Segment]) -> list[Part]:
    """Return which segment holds which physical offsets, ascending and without overlap.

    A segment that is too long ends where the next one starts; of two with the same base the first counts.
    """
    by_base: dict[int, Segment] = {}
    for segment in segments:
        if segment.size:
            by_base.setdefault(segment.base, segment)
    bases = sorted(by_base)
    nexts = dict(pairwise(bases))
    ends = {base: base + by_base[base].size for base in bases}
    return [Part(base, min(ends[base], nexts.get(base, ends[base])), by_base[base]) for base in bases]


def overlap(parts: list[Part], other: list[Part]) -> list[Part]:
    """Return `parts` clipped to what `other` covers."""
    return [
        Part(piece.start, piece.end, piece.segments[0])
        for piece in pieces((parts, other))
        if piece.segments[0] is not None and piece.segments[1] is not None
    ]


def pieces(covered: tuple[list[Part], list[Part]]) -> Iterator[Piece]:
    """Yield the ranges that at least one log covers, cut where a segment of either starts or ends."""
    starts = [[part.start for part in parts] for parts in covered]
    for start, end in pairwise(sorted({edge for parts in covered for part in parts for edge in part[:2]})):
        found: list[Segment | None] = []
        for parts, begins in zip(covered, starts, strict=True):
            which = bisect_right(begins, start) - 1
            found.append(parts[which].segment if which >= 0 and start < parts[which].end else None)
        if found != [None, None]:
            yield Piece(start, end, (found[0], found[1]))


class Grid:
    """Cuts pieces into cells: at multiples of the cell size, and at further borders."""

    def __init__(self, cell_size: int, borders: Iterable[int]) -> None:
        self._cell_size = cell_size
        self._borders = sorted(set(borders))

    def cell_at(self, piece: Piece, offset: int) -> Piece:
        """Return the cell of a piece that holds an offset."""
        line = offset // self._cell_size * self._cell_size
        cuts = [piece.start, piece.end, line, line + self._cell_size, *self._borders]
        return Piece(
            max(cut for cut in cuts if cut <= offset), min(cut for cut in cuts if cut > offset), piece.segments
        )


def extend(ranges: list[Range], start: int, end: int) -> None:
    """Append a range, merged with the last one where they touch."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = ranges[-1][0], end
    else:
        ranges.append((start, end))

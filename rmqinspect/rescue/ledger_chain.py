"""Which entries of a DLedger log belong together: their indexes count up, and what is missing between two has room.

    place      0      1      2      3      4      5
    index     17     18     19   6163     21     22      the record of entry 20 is sound, a bit of its head is not
    runs       |------------|     |-|     |------|
    chain      |------------|             |------|       one entry is missing, and there is room for one

A record proves itself, the head of its entry does not: no CRC covers index and term. So the head that is wrong is the
one that fits to none, and the chain that holds most entries counts. Entries of an earlier life of the log, behind a
place where a follower cut it, fit to none either.

Source: DLedgerMmapFileStore#recover.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.arrays import groups
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.bridges import records_in
from rmqinspect.commitlog.records import Records
from rmqinspect.rescue.ledger_bridge import BLANK, HEAD, most_entries
from rmqinspect.rescue.sources import Composite, Range
from rmqinspect.schemas.dledger import ENTRY_MAGICS, EntryHead

_LOOKED_AT = 64  # runs before one that may be the one before it in the chain
_MOST_TERM = _MOST_INDEX = 1 << 58  # of entries: a unit of the index has a place


class Run(Struct, frozen=True, order=True):
    """Entries that touch, whose indexes count up, of one term: bytes [start, end) of one segment."""

    start: int
    end: int
    index: int  # of the first
    count: int
    term: int

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.index + self.count - 1


def runs_of(composite: Composite, size: int) -> Iterator[Run]:
    """Yield the runs of what is sound; none goes over the border of a segment, of `size` bytes, or a source."""
    for piece in composite.pieces:
        store = composite.sources[piece.source].store
        at = piece.start
        while at < piece.end:
            border = min(piece.end, at - at % size + size)
            segment = store.segment_at(at)
            if segment is not None:
                for records in records_in(segment, at, border):
                    yield from _runs_in(records)
            at = border


def _runs_in(records: Records) -> Iterator[Run]:
    heads = records.gather(dtype_of(EntryHead), records.starts - HEAD)
    index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
    # Brokers refuse entries of other magics, those of later versions of the library.
    good = (heads["magic"] == ENTRY_MAGICS[0]) & (heads["position"] == records.places - HEAD)
    # What differs from its number in the batch begins a run; so does another term.
    for first, behind in groups(index - np.arange(len(index)), term, good.astype(np.int64)):
        if not good[first]:
            continue
        start, end = int(records.starts[first]) - HEAD, int(records.ends[behind - 1])
        yield Run(records.base + start, records.base + end, int(index[first]), behind - first, int(term[first]))


def joined(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield runs, those joined that continue each other in their segment."""
    last: Run | None = None
    for run in runs:
        if last is not None and last.end == run.start and last.last + 1 == run.index and last.term == run.term:
            last = replace(last, end=run.end, count=last.count + run.count)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def follows(before: Run, after: Run, size: int) -> bool:
    """Whether a run can be the next one in the chain: the entries that are missing between them have room there."""
    missing = after.index - before.last - 1
    if missing < 0 or after.term < before.term:
        return False
    return fits(before.end, after.start, missing, size)


def fits(start: int, end: int, missing: int, size: int) -> bool:
    """Whether so many entries can have stood in [start, end), one at least in each segment but the first one."""
    least = most = 0
    for number, part in enumerate(parts_of(start, end, size)):
        segment_end = part.start - part.start % size + size
        is_middle = part.end != segment_end
        if not is_middle and part.end - part.start < BLANK:
            return False
        least += 1 if number or is_middle or part.start % size == 0 else 0
        most += most_entries(part.start, part.end, segment_end)
    return least <= missing <= most


def parts_of(start: int, end: int, size: int) -> Iterator[Range]:
    """Yield a range, cut at the borders of segments."""
    while start < end:
        border = min(end, start - start % size + size)
        yield Range(start, border)
        start = border


def choose_chain(runs: list[Run], size: int) -> list[Run]:
    """Return the runs, a part of these in order, that follow each other and have most entries."""
    best = [0] * len(runs)
    before = [-1] * len(runs)
    for at, run in enumerate(runs):
        if not (0 <= run.index < _MOST_INDEX and 0 <= run.term < _MOST_TERM):
            continue
        for other in range(at - 1, max(-1, at - 1 - _LOOKED_AT), -1):
            if best[other] > best[at] and follows(runs[other], run, size):
                best[at], before[at] = best[other], other
        best[at] += run.count
    at = max(range(len(runs)), key=lambda number: best[number], default=-1)
    chain: list[Run] = []
    while at >= 0 and best[at]:
        chain.append(runs[at])
        at = before[at]
    return chain[::-1]

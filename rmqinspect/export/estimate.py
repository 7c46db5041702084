"""How large an export will be, from a few pieces of the log; asked before anything is written."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rmqinspect.errors import Unreadable
from rmqinspect.export.plan import StorePlan
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

_PIECE = 1 << 20
_PIECES = 16  # of each store
# Columns compress better than the log they stand in, but bodies that were compressed before are unpacked.
_MARGIN = 1.2


def estimate_size(plans: Sequence[StorePlan]) -> int:
    """Return about how many bytes the files will have: rather too many than too few.

    The log is compressed as it stands, a MiB here and there; what other tables are made of counts whole.
    """
    return sum(_log_size(plan) + sum(part.split.size for part in plan.side_parts) for plan in plans)


def _log_size(plan: StorePlan) -> int:
    taken = packed = 0
    for raw in _pieces(plan):
        taken += len(raw)
        packed += len(pa.compress(raw, "zstd", asbytes=True))
    size = sum(part.size for part in plan.parts if part.writes and not part.is_tail)
    return int(size * packed / taken * _MARGIN) if taken else 0


def _pieces(plan: StorePlan) -> Iterator[bytes]:
    """Yield pieces of the log before its end, evenly spread over what is to be written."""
    places: list[tuple[Segment, int, int]] = []
    for part in plan.parts:
        if part.writes and not part.is_tail:
            for split in part.splits:
                places += [(split.segment, start, split.end) for start in range(split.start, split.end, _PIECE)]
    for segment, start, end in places[:: max(1, len(places) // _PIECES)]:
        try:
            with open_file(segment) as reader:
                yield reader.read(start, min(_PIECE, end - start))
        except Unreadable:
            continue

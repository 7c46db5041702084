"""The size of an export, estimated from samples of the log before anything is written."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rmqinspect.errors import Unreadable
from rmqinspect.export.plan import StorePlan
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

_SAMPLE_SIZE = 1 << 20
_SAMPLES = 16  # per store
# Columns compress better than the log, but bodies that are stored compressed get unpacked.
_MARGIN = 1.2


def estimate_size(plans: Sequence[StorePlan]) -> int:
    """Return the estimated bytes of all files, on the high side.

    The log counts as its samples compress; the sources of other tables count in full.
    """
    return sum(_log_size(plan) + sum(part.split.size for part in plan.side_parts) for plan in plans)


def _log_size(plan: StorePlan) -> int:
    sampled = packed = 0
    for content in _samples(plan):
        sampled += len(content)
        packed += len(pa.compress(content, "zstd", asbytes=True))
    size = sum(part.size for part in plan.parts if part.writes and not part.is_tail)
    return int(size * packed / sampled * _MARGIN) if sampled else 0


def _samples(plan: StorePlan) -> Iterator[bytes]:
    """Yield samples of the log before its end, evenly spread over what will be written."""
    places: list[tuple[Segment, int, int]] = []
    for part in plan.parts:
        if part.writes and not part.is_tail:
            for split in part.splits:
                starts = range(split.start, split.end, _SAMPLE_SIZE)
                places += [(split.segment, start, split.end) for start in starts]
    for segment, start, end in places[:: max(1, len(places) // _SAMPLES)]:
        try:
            with open_file(segment) as reader:
                yield reader.read(start, min(_SAMPLE_SIZE, end - start))
        except Unreadable:
            continue

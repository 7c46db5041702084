"""What no file of a log has: the account of its bytes by the names and the sizes of its files.

    places     0---------100-------200-------300-------400      by names, with a segment size of 100
    files      |=========|====|              |=========|
    missing              |    |----|=========|                  "short", then a file that is absent

The log is expected from its first file to the end of the last one's place. A log that begins behind 0 lacks nothing:
retention deletes from the front. Nor does one whose last file is empty, as a broker has just made it, or was cut in
the zeros behind its last record.

Every command that says complete, none or not there asks here. Records that are damaged are bytes that are present:
those are gaps which the scan finds.
"""

from collections.abc import Iterator
from itertools import pairwise

from rmqinspect.codec.arrays import Span
from rmqinspect.codec.layout import span_of
from rmqinspect.commitlog.gaps import SHORT, Gap
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file

# More absent files than this between two neighbours are one range: a wrong name, most likely.
_MOST_ABSENT = 1000

# Bytes at the end of a short file in which its blank record, or unused zeros, are looked for.
_END = 64 << 10
_FEWEST_ZEROS = 512

_BLANKS = {
    "segment": (message.Blank, message.MAGIC_BLANK),
    "dledger": (dledger.EntryBlank, dledger.ENTRY_MAGIC_BLANK),
}


def missing_in(store: Store) -> list[Gap]:
    """Return the ranges of the log that no file has, ascending: a gap for each absent file or cut part of one.

    Kind `missing`; reason `SHORT` where a file ends before its place does, None where there is no file.

    Of loose files nothing is missing between them: their neighbours were not given.
    """
    gaps = [*_between(store), *_behind(store)]
    return [gap for gap in gaps if store.neighbours or gap.reason == SHORT]


def absent_in(store: Store) -> list[Gap]:
    """Return those of `missing_in` for which there is no file at all."""
    return [gap for gap in missing_in(store) if gap.reason is None]


def log_range(store: Store) -> Span:
    """Return the range of the log that is expected, [start, end): from the first file, with all that is missing.

    (0, 0) without segments.
    """
    ends = [segment.end for segment in store.segments] + [gap.end for gap in missing_in(store)]
    return store.log_start, max(ends, default=0)


def doubled_in(store: Store) -> list[tuple[Segment, Segment]]:
    """Return the pairs of files that have one place."""
    return [(one, other) for one, other in pairwise(store.segments) if one.base == other.base]


def _between(store: Store) -> Iterator[Gap]:
    """Yield what is missing between the first file and the last one."""
    size = store.segment_size
    reached = store.log_start
    for before, after in pairwise(store.segments):
        reached = max(reached, before.end)
        if reached >= after.base:
            continue
        place_end = min(after.base, before.base + (size or before.size))
        if reached < place_end:
            if not _is_unused_behind(before, place_end):
                yield Gap(reached, place_end, "missing", SHORT)
            reached = place_end
        yield from _absent(reached, after.base, size)


def _absent(start: int, end: int, size: int | None) -> Iterator[Gap]:
    """Yield a range without a file, in parts of a file's size."""
    step = size if size and end - start <= _MOST_ABSENT * size else end - start
    while start < end:
        yield Gap(start, min(start + step, end), "missing", None)
        start += step


def _behind(store: Store) -> Iterator[Gap]:
    """Yield what the last file lacks of its place."""
    if not store.segments or not store.segment_size:
        return
    last = store.segments[-1]
    reached = max(segment.end for segment in store.segments)
    place_end = last.base + store.segment_size
    if last.size and reached < place_end and not _is_unused_behind(last, place_end, is_last=True):
        yield Gap(reached, place_end, "missing", SHORT)


def _is_unused_behind(segment: Segment, place_end: int, *, is_last: bool = False) -> bool:
    """Whether a short file was cut behind its records: in its blank record, or in the zeros at the end of the log."""
    try:
        with open_file(segment) as reader:
            start = max(0, segment.size - _END)
            raw = reader.read(start, segment.size - start)
    except Unreadable:
        return False
    if is_last and raw and not any(raw[-_FEWEST_ZEROS:]):
        return True
    return _ends_in_blank(segment.kind, raw, place_end - segment.base - start)


def _ends_in_blank(kind: str, raw: bytes, left: int) -> bool:
    """Whether a blank record begins in `raw` that reaches to the end of a place, `left` bytes from the first of `raw`.

    A broker writes there how many bytes are left in the file, so no stray bytes look like it.
    Source: CommitLog.DefaultAppendMessageCallback#doAppend, MmapFileList#preAppend.
    """
    layout, magic = _BLANKS[kind]
    size_span, magic_span = span_of(layout, "total_size"), span_of(layout, "magic")
    magic_bytes = magic.to_bytes(4, "big", signed=True)
    found = raw.find(magic_bytes)
    while found != -1:
        start = found - magic_span.start
        size = raw[start + size_span.start : start + size_span.stop] if start >= 0 else b""
        if int.from_bytes(size, "big") == left - start:
            return True
        found = raw.find(magic_bytes, found + 1)
    return False

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

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Span
from rmqinspect.commitlog.gaps import SHORT, Gap
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.places import span_of
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import group_digits

# More absent files than this between two neighbours are one range: a wrong name, most likely.
_MOST_ABSENT = 1000

# Bytes at the end of a short file in which its blank record, or unused zeros, are looked for.
_END = 64 << 10
_FEWEST_ZEROS = 512

# A blank record is shorter than the record that did not fit: maxMessageSize is 4 MiB, unless it was raised.
_LONGEST_BLANK = 16 << 20

_COMPARED = 4 << 20  # bytes of two files with one base at a time

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


class Double(NamedTuple):
    """A file that the log is not read from, for another one has its base."""

    file: Segment
    read: Segment  # the other one
    differs_at: int | None  # physical offset of the first byte that it alone has; None: it holds nothing of its own


def doubles_of(segments: Iterable[Segment], span: Span = (0, 1 << 63)) -> Iterator[Double]:
    """Yield each file that begins where one before it does, as far as both lie in a span of the log.

    They are compared up to the first difference. Where it has zeros, a file holds nothing.

    :raises Unreadable: the system reports an I/O error.
    """
    read: dict[int, Segment] = {}
    for file in segments:
        one = read.setdefault(file.base, file)
        if one is not file:
            yield Double(file, one, _difference(one, file, span))


def unread_doubles(segments: Iterable[Segment], span: Span) -> Iterator[str]:
    """Yield a message for each of the `doubles_of` a log that holds bytes of its own.

    :raises Unreadable: the system reports an I/O error.
    """
    for file, read, place in doubles_of(segments, span):
        if place is not None:
            where = f"{group_digits(place)} ({place:#x})"
            yield f"{file.name}: not read: {read.name} begins at the same offset, and they differ at physical {where}"


def _difference(one: Segment, other: Segment, span: Span) -> int | None:
    """Return the first physical offset in a span where a file has a byte that is not zero, and another is different."""
    position, end = max(0, span[0] - other.base), min(other.size, span[1] - other.base)
    with open_file(one) as reader, open_file(other) as others:
        while (position := others.next_allocated(position)) < end:
            raw = others.read(position, min(_COMPARED, end - position))
            if not raw:
                break
            beside = reader.read(position, len(raw)).ljust(len(raw), b"\0") if position < one.size else bytes(len(raw))
            if raw != beside:
                found, expected = np.frombuffer(raw, np.uint8), np.frombuffer(beside, np.uint8)
                differs = np.flatnonzero((found != expected) & (found != 0))
                if len(differs):
                    return other.base + position + int(differs[0])
            position += len(raw)
    return None


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


def may_go_on(segment: Segment) -> bool:
    """Whether another file may have followed one: it is full or cut, not one with zeros behind its last record."""
    with suppress(Unreadable), open_file(segment) as reader:
        for size in (_END, _LONGEST_BLANK):
            raw = reader.read(max(0, segment.size - size), size)
            if any(raw):
                return any(raw[-_FEWEST_ZEROS:]) or _ends_in_blank(segment.kind, raw, len(raw))
        return False
    return True


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

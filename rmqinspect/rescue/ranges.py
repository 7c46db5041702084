"""Bytes of a salvaged log on their way into its files: ranges of sources, repaired records, bridges."""

from typing import BinaryIO

from rmqinspect.store.reader import FileReader

_STEP = 4 << 20  # bytes per read of a copy
_HOLE = 64 << 10  # bytes of zeros that stay a hole


def write_at(out: BinaryIO, position: int, raw: bytes) -> None:
    out.seek(position)
    out.write(raw)


def copy_range(reader: FileReader, start: int, end: int, out: BinaryIO, position: int) -> None:
    """Copy bytes [start, end) of a file; long runs of zeros stay holes."""
    at = start
    while at < end:
        at = max(at, min(reader.next_allocated(at), end))
        raw = reader.read(at, min(_STEP, end - at))
        if not raw:
            return
        for first in range(0, len(raw), _HOLE):
            part = raw[first : first + _HOLE]
            if any(part):
                write_at(out, position + at - start + first, part)
        at += len(raw)

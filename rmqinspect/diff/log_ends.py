"""Where two logs end, and how far bytes have to be compared behind the shorter one."""

from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.commitlog.splits import Split
from rmqinspect.diff.coverage import Part
from rmqinspect.diff.log_diff import LogDiff
from rmqinspect.diff.log_reader import LogReader, SegmentReader
from rmqinspect.errors import Unreadable
from rmqinspect.store.reader import open_file


def find_ends(diff: LogDiff, reader: LogReader) -> None:
    """Set `ends` and `reach` of both logs.

    Without a record in either, both reach to their last segment, so bytes are compared all the same. A log whose end
    could not be read is taken to reach as far as the other one.
    """
    ends, reach = diff.ends, diff.reach
    unsure = []
    for side, parts in enumerate(diff.covered):
        reader.failed = False
        ends[side] = find_end(side, parts, reader)
        begin = parts[0].start if parts else -1
        reach[side] = begin if ends[side] is None else ends[side] or 0
        unsure += [side] if reader.failed else []
    if ends == [None, None]:
        reach[:] = 2 * [max((part.end for parts in diff.covered for part in parts), default=-1)]
    for side in unsure:
        reach[side] = max(reach)


def find_end(side: int, parts: list[Part], reader: LogReader) -> int | None:
    """Return the end of the last record, or of the blank record behind it; None without any record.

    The last segment with records is scanned completely: only then are records of an earlier life of the file, which
    may follow the end, told from records of the log.
    """
    for part in reversed(parts):
        end: int | None = None
        for event in reader.events(side, Split(part.segment, 0, part.segment.size)):
            if isinstance(event, RecordRun) and not event.stale:
                end = event.records.base + int(event.records.ends[-1])
            elif isinstance(event, Gap) and event.kind == "filler" and event.start == end:
                end = event.end
        if end is not None:
            return min(end, part.end)
    return None


def last_used(side: int, parts: list[Part], low: int, high: int, reader: LogReader) -> int:
    """Return the end of the last byte in [low, high) that is not zero; `low` if all are."""
    buffer = bytearray(reader.window_size)
    for part in reversed(parts):
        start, end = max(part.start, low), min(part.end, high)
        try:
            with open_file(part.segment) as opened:
                segment = SegmentReader(part.segment, opened)
                while start < end:
                    begin = max(start, end - reader.window_size)
                    if segment.next_allocated(begin) < end:
                        used = segment.fill(buffer, begin, end - begin).rstrip(b"\0")
                        if used:
                            return begin + len(used)
                    end = begin
        except Unreadable as error:
            reader.note(side, str(error))
    return low

"""Reading two logs for comparison: unreadable bytes count as zeros and are noted, never as a difference."""

from collections.abc import Iterator
from contextlib import ExitStack

from rmqinspect.codec.arrays import Bools
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.lenient_reader import LenientReader, Unread
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.commitlog.splits import Borders, Split
from rmqinspect.diff.coverage import Piece
from rmqinspect.diff.differences import SIDES
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader, open_file


class SegmentReader:
    """Reads a segment by physical offsets, window by window."""

    def __init__(self, segment: Segment, reader: FileReader) -> None:
        self.base = segment.base
        self.reader = reader
        self.lenient = LenientReader(reader, segment)

    def next_allocated(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in a hole of a sparse file."""
        return self.base + self.reader.next_allocated(offset - self.base)

    def fill(self, buffer: bytearray, offset: int, size: int) -> bytearray:
        """Return `size` bytes from `offset` on, in `buffer` if it has that size, else in a new one."""
        content = buffer if size == len(buffer) else bytearray(size)
        self.lenient.fill(memoryview(content), offset - self.base)
        return content

    def clear_unread(self, differs: Bools, offset: int) -> None:
        """Clear the mask of differing bytes where they could not be read; it starts at `offset`."""
        position = offset - self.base
        for start, end in reversed(self.lenient.dark):
            if end <= position:
                break
            differs[max(0, start - position) : max(0, end - position)] = False


class LogReader:
    """Reads both logs, and notes what could not be read."""

    def __init__(self, unread: dict[str, None], window_size: int) -> None:
        self.unread = unread  # messages; an ordered set
        self.window_size = window_size
        self.failed = False  # set when something could not be read; callers reset it

    def note(self, side: int, message: str) -> None:
        """Add a message about one log."""
        self.unread[f"{SIDES[side]}: {message}"] = None

    def open_both(self, piece: Piece, stack: ExitStack) -> list[SegmentReader]:
        """Open the segments of both logs; return [] where only one log has one that can be opened."""
        readers = []
        for side, segment in enumerate(piece.segments):
            if segment is None:
                return []
            try:
                readers.append(SegmentReader(segment, stack.enter_context(open_file(segment))))
            except Unreadable as error:
                self.note(side, str(error))
                return []
        return readers

    def events(self, side: int, split: Split) -> Iterator[RecordRun | Gap | Borders]:
        """Yield the events of a scan; what could not be read is noted."""
        try:
            for event in scan_split(split, self.window_size):
                if isinstance(event, Unread):
                    self.failed = True
                    self.note(side, event.message)
                else:
                    yield event
        except Unreadable as error:
            self.failed = True
            self.note(side, str(error))

"""What is asked of a table, or of a walk along the log."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from rmqinspect.commitlog.gaps import ScanState
from rmqinspect.consumequeue.missing import MissingUnits
from rmqinspect.errors import Unreadable
from rmqinspect.tables.lost_records import ANY_START, AskedStart

if TYPE_CHECKING:
    from rmqinspect.tables.filters import Selection  # reads Arrow, which a walk does without


class Request(Struct, frozen=True):
    """What to read of a table. Filters are hints: a table may yield more rows, the caller applies its filters."""

    # The filters that the caller applies to all rows, of `messages` and `groups` only: records that cannot pass are
    # left out, and what is missing of the others is not told.
    records_of: "tuple[Selection, ...]" = ()
    # Records of `messages` that no walk meets, as queue units name them: (physical offset, size), ascending.
    named: tuple[tuple[int, int], ...] = ()
    with_damaged: bool = False  # those with a wrong body CRC are not left out
    offsets: tuple[int, int] | None = None  # physical offsets [start, end)
    entry: ScanState | None = None  # state of the scan at the start of `offsets`, if they lie in one segment
    trace_topics: tuple[str, ...] = ()  # of `traces`: topics that hold traces, besides those that are found
    start: AskedStart = ANY_START  # of `next_starts`: the release, None: each; and the exit before it
    raw_body: bool = False  # bodies as stored, not decompressed
    max_body: int = 64 << 20  # bodies larger than this after decompression stay compressed
    jobs: int = 1  # threads
    columns: frozenset[str] | None = None  # columns the caller uses; others may be null
    progress: Callable[[int], None] | None = None  # gets the bytes read since its last call
    # Gets the records read since its last call, rows or not: their number, and their earliest and latest store time in
    # ms, None if none of them is a time.
    on_records: Callable[[int, tuple[int, int] | None], None] | None = None
    # Gets each range of the log that lost its records (kind, start, end), possibly in several parts.
    on_gap: Callable[[str, int, int], None] | None = None
    # Gets each range of a queue that no file has, possibly several times: topic, queue id, a message.
    on_missing: Callable[[str, int, str], None] | None = None
    on_unreadable: Callable[[str], None] | None = None  # gets a message for everything that could not be read
    on_remark: Callable[[str], None] | None = None  # gets what a reader of the rows should know of their source

    def tell_unread(self, error: Unreadable) -> None:
        """Tell what could not be read.

        :raises Unreadable: nobody listens.
        """
        if self.on_unreadable is None:
            raise error
        self.on_unreadable(str(error))

    def tell_missing(self, ranges: Iterable[MissingUnits]) -> None:
        """Tell the ranges of queues that no file has."""
        if self.on_missing is None:
            return
        for one in ranges:
            self.on_missing(*one.queue, str(one))

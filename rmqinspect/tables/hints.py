"""What an engine of queries will keep, as filters: Spark and DuckDB push their filters down, and less is read.

They are hints: a range or a list of values that a column must have narrows a Selection, which may still pass more rows.
"""

import glob
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rmqinspect.codec.message_id import offset_place
from rmqinspect.tables.filters import Range, Selection

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1  # of a column's numbers; those of damaged records may be negative
EVERYTHING = (_FIRST, _LAST + 1)


def narrowed(selection: Selection, column: str, first: int, last: int) -> Selection:
    """Return a selection of rows whose column, one of RANGED, lies in [first, last); times are microseconds."""
    return _RANGES[column](selection, first, last)


def limited(selection: Selection, column: str, values: Sequence[Any]) -> Selection:
    """Return a selection of rows whose column has one of some values."""
    return _VALUES[column](selection, tuple(values)) if column in _VALUES else selection


def _overlap(before: Range | None, first: int, last: int) -> Range:
    lowest, beyond = before or EVERYTHING
    start = min(max(lowest, first), _LAST)
    return start, max(start, min(beyond, last), _FIRST + 1)


def _with_time(column: str) -> Callable[[Selection, int, int], Selection]:
    def add(selection: Selection, first: int, last: int) -> Selection:
        before = None
        if selection.since is not None and selection.until is not None:
            if selection.time_column != column:
                return selection  # a Selection has one time column
            before = selection.since, selection.until
        since, until = _overlap(before, first, last)
        return replace(selection, since=since, until=min(until, _LAST), time_column=column)

    return add


_RANGES: dict[str, Callable[[Selection, int, int], Selection]] = {
    "physical_offset": lambda s, first, last: replace(s, offsets=_overlap(s.offsets, first, last)),
    "queue_offset": lambda s, first, last: replace(s, queue_offsets=_overlap(s.queue_offsets, first, last)),
    "store_timestamp": _with_time("store_timestamp"),
    "born_timestamp": _with_time("born_timestamp"),
}
_VALUES: dict[str, Callable[[Selection, tuple[Any, ...]], Selection]] = {
    "topic": lambda s, names: replace(s, topics=tuple(map(glob.escape, names))),
    "queue_id": lambda s, ids: replace(s, queue_id=ids[0]) if len(ids) == 1 else s,
    "tags": lambda s, tags: replace(s, tags=tags),
    # An offset msg id is another question to a Selection: which record lies at the place that it names?
    "msg_id": lambda s, ids: s if any(offset_place(one) is not None for one in ids) else replace(s, ids=ids),
}

RANGED = frozenset(_RANGES)
"""The columns that `narrowed` knows."""

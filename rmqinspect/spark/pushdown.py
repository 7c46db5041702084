"""Filters that Spark pushes down, translated to the filters of the command line.

They are hints: Spark applies all filters again, so a translation may pass more rows than its filter, never fewer. A
filter without a counterpart is ignored.
"""

import glob
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as api
from pyspark.sql.datasource import Filter

from rmqinspect.codec.message_id import offset_place
from rmqinspect.tables.filters import Range, Selection

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1  # of a column's numbers; those of damaged records may be negative
_EVERYTHING = (_FIRST, _LAST + 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Hints:
    """The rows that Spark will keep: those of `stores` (None: of all) that pass `selection`."""

    selection: Selection = field(default_factory=Selection)
    stores: frozenset[str] | None = None

    def add(self, filter_: Filter) -> "Hints":
        """Return these hints narrowed by a filter, as far as it translates."""
        column = ".".join(getattr(filter_, "attribute", ()))
        bounds = _bounds(filter_)
        if column in _RANGES and bounds is not None:
            return replace(self, selection=_RANGES[column](self.selection, *bounds))
        values = _values(filter_)
        if column in _VALUES and values is not None:
            return replace(self, selection=_VALUES[column](self.selection, values))
        if column == "store" and values is not None:
            return replace(self, stores=frozenset(values) & (self.stores or frozenset(values)))
        return self


def _values(filter_: Filter) -> tuple[Any, ...] | None:
    """Return the values that a filter lists, None if it lists none."""
    if isinstance(filter_, api.In):
        values = filter_.value
    elif isinstance(filter_, api.EqualTo | api.EqualNullSafe):
        values = (filter_.value,)
    else:
        return None
    return None if None in values else tuple(values)


def _bounds(filter_: Filter) -> Range | None:
    """Return the half-open range of integers (times: microseconds) that a filter passes, None if it is no range."""
    value = _number(getattr(filter_, "value", None))
    if value is None:
        return None
    first, last = _EVERYTHING
    if isinstance(filter_, api.EqualTo | api.EqualNullSafe):
        first, last = value, value + 1
    elif isinstance(filter_, api.GreaterThan | api.GreaterThanOrEqual):
        first = value + isinstance(filter_, api.GreaterThan)
    elif isinstance(filter_, api.LessThan | api.LessThanOrEqual):
        last = value + isinstance(filter_, api.LessThanOrEqual)
    else:
        return None
    return first, last


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _overlap(before: Range | None, first: int, last: int) -> Range:
    lowest, beyond = before or _EVERYTHING
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

"""What a place of the log is to a question that leads there: expired, beyond the end, damaged, of another record.

Little is read: the ends of the queues, the last megabytes of the log, what lies around the place.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.message_id import host_text
from rmqinspect.commitlog.gaps import holes_in
from rmqinspect.commitlog.locate import Spot, locate
from rmqinspect.commitlog.tail import LogEnd, find_log_end
from rmqinspect.consumequeue.bounds import peek_queues
from rmqinspect.consumequeue.units import QueueSummary
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.read import planned_rows
from rmqinspect.find.reasons import BEYOND, DAMAGED, EXPIRED, NOT_THERE, UNREAD
from rmqinspect.find.spans import Log, place_span, whole_log
from rmqinspect.index.lookup import merge
from rmqinspect.store.model import Store
from rmqinspect.tables.table import Request
from rmqinspect.text import count, describe_size, group_digits
from rmqinspect.times import format_micros

NO_LOG = "no commit log was given, so no record was searched"
_LISTED = 3  # queues that are named
_HOSTS_OF = 16  # segments whose first record is asked for the address of the broker


class Found(NamedTuple):
    """A reason, and in words why it holds."""

    reason: str
    text: str


class Evidence:
    """What is known of one store as a whole; each part is read when it is first asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: list[str] = []  # what could not be read

    @cached_property
    def queues(self) -> list[QueueSummary]:
        """Where each queue begins and ends."""
        return list(peek_queues(self.store, self.problems))

    @cached_property
    def end(self) -> LogEnd:
        """Where the log ends."""
        hints = [queue.last_physical_offset for queue in self.queues if queue.last_physical_offset is not None]
        return find_log_end(self.store, hints)

    @cached_property
    def first_time(self) -> int | None:
        """The store time of the first record, in microseconds."""
        with Log(self.store) as log:
            for segment in self.store.segments[:1]:
                found = log.next_record(segment.base, segment.end)
                return None if found is None else found[1] * 1000
        return None

    @property
    def last_time(self) -> int | None:
        """The store time of the last record, in microseconds."""
        time = self.end.last_timestamp
        return None if time is None else time * 1000

    @cached_property
    def hosts(self) -> list[str]:
        """The addresses under which the broker stored the log, as some records say."""
        segments = self.store.segments
        some = segments[:: max(1, len(segments) // _HOSTS_OF)]
        with Log(self.store) as log:
            found = [(segment.lead, log.next_record(segment.base, segment.end)) for segment in some]
        places = [lead + one[0] for lead, one in found if one is not None]
        rows = rows_at(self.store, places, ("store_host", "store_port"))
        return list(dict.fromkeys(stored_by(row) for row in rows))

    def units_beyond(self, end: int) -> list[QueueSummary]:
        """Return the queues whose last unit points at or behind an offset."""
        return [
            queue
            for queue in self.queues
            if queue.last_physical_offset is not None and queue.last_physical_offset >= end
        ]

    @cached_property
    def begins(self) -> str:
        """Where the log begins, in words."""
        when = "" if self.first_time is None else f", {format_micros(self.first_time)}"
        return f"the log begins at {group_digits(self.store.log_start)}{when}"


def rows_at(store: Store, places: Sequence[int], columns: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """Return the rows of `messages` at some places, ascending; places without a record give none."""
    wanted = None if columns is None else frozenset((*columns, "physical_offset", "status"))
    request = Request(columns=wanted, on_unreadable=lambda message: None)
    spans = merge(place_span(store, place) for place in places)
    rows: list[dict[str, Any]] = []
    for batch in planned_rows(store, spans, request):
        here = pc.is_in(batch.column("physical_offset"), pa.array(places, pa.int64()))
        rows += batch.filter(here).to_pylist()
    return rows


def stored_by(row: dict[str, Any]) -> str:
    """Return the address of the broker that stored a record."""
    return host_text(row["store_host"], row["store_port"])


def describe_row(row: dict[str, Any]) -> str:
    """Return which record a row is: `record 96 253 (TopicA queue 1 offset 8)`."""
    where = f"{row['topic']} queue {row['queue_id']} offset {group_digits(row['queue_offset'])}"
    return f"record {group_digits(row['physical_offset'])} ({where})"


def lies_at(evidence: Evidence, place: int) -> Found:
    """Return why no record that was meant is at a physical offset."""
    store = evidence.store
    start, stop = whole_log(store)
    if not store.segments:
        return Found(NOT_THERE, NO_LOG)
    where = f"physical offset {group_digits(place)}"
    if not store.neighbours and not start <= place < stop:
        return Found(NOT_THERE, f"{where} is not in the files given, which hold {_range(start, stop)}")
    if place < start:
        return Found(EXPIRED, f"{where} lies {describe_size(start - place)} below the first segment; {evidence.begins}")
    end = stop if evidence.end.end is None or evidence.end.goes_on else evidence.end.end
    if place >= end and not evidence.end.unread and (store.neighbours or end < stop):
        return Found(BEYOND, _beyond(evidence, where, place, end, stop))
    try:
        spot = locate(store, place)
    except NothingFound:
        hole = next(gap for gap in holes_in(store) if gap.start <= place < gap.end)
        return Found(DAMAGED, f"{where} lies in a segment that is missing: {_range(hole.start, hole.end)}")
    except Unreadable as error:
        return Found(UNREAD, f"{where} could not be read: {error}")
    with Log(store) as log:
        proven = spot.kind == "record" and log.identity_at(spot.start) is not None
    return _in_spot(spot, where, place, proven=proven)


def _in_spot(spot: Spot, where: str, place: int, *, proven: bool) -> Found:
    end = "an unknown end" if spot.end is None else group_digits(spot.end)
    reach = f"{group_digits(spot.start)} to {end}"
    if spot.kind == "record" and proven and spot.start == place:
        return Found(NOT_THERE, f"another record begins at {where}")
    if spot.kind == "record" and proven:
        return Found(NOT_THERE, f"{where} is inside of the record at {reach}: rmqinspect show --at {place}")
    if spot.kind in ("blank", "entry"):
        return Found(NOT_THERE, f"{where} is in a {spot.kind} that holds no message: {reach}")
    what = {"zeros": "zeros", "record": "a record that is cut or damaged"}.get(spot.kind, "bytes that are no record")
    return Found(DAMAGED, f"{where} lies in {what}, {reach}, {spot.segment.name}")


def _beyond(evidence: Evidence, where: str, place: int, end: int, stop: int) -> str:
    rest = "zeros follow" if place < stop else f"its last file ends at {group_digits(stop)}"
    units = evidence.units_beyond(end)
    points = "no queue unit points beyond the end"
    if units:
        queues = ", ".join(f"{queue.topic} queue {queue.queue_id}" for queue in units[:_LISTED])
        points = f"{count(len(units), 'queue')} with units that point beyond the end: {queues}"
    return f"{where}; the log ends at {group_digits(end)}, {rest}; {points}"


def _range(start: int, end: int) -> str:
    return f"{group_digits(start)} to {group_digits(end)}"

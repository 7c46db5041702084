"""What a place of the log is to a question that leads there: before it, beyond the end, damaged, of another record.

Little is read: the ends of the queues, the last megabytes of the log, what lies around the place.

Whether consumers can get a record that is in the log: by its queue unit, and the minimum of its queue.
"""

from functools import cached_property
from typing import Any, NamedTuple

from rmqinspect.broker.acknowledged import acknowledged_behind, acknowledged_words
from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.gone import changed_by_a_broker, tiered_files, was_cleaned
from rmqinspect.codec.message_id import host_text
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.record_reader import RecordReader, Spot
from rmqinspect.commitlog.tail import LogEnd, find_log_end
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find import BEFORE, BEYOND, DAMAGED, EXPIRED, NOT_IN_QUEUE, NOT_THERE, OUT_OF_REACH, UNREAD
from rmqinspect.find.answers import MISSING_FATE
from rmqinspect.find.life import Life
from rmqinspect.find.plan import rows_at
from rmqinspect.find.ways import whole_log
from rmqinspect.index.geometry import read_index_files
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import why_no_log
from rmqinspect.text import count, describe_size, group_digits
from rmqinspect.times import format_micros

_NO_LOG = "no commit log was given, so no record was searched"
_LISTED = 3  # queues that are named
_HOSTS_OF = 16  # segments whose first record is asked for the address of the broker


class Found(NamedTuple):
    """A reason, and in words why it holds."""

    reason: str
    text: str
    fate: str = ""  # what became of a record that was there, if the reason does not say it
    place: int | None = None  # the physical offset of a record that is destroyed
    proof: str = ""  # ARRIVED, BY_ID or LIKELY, of a message that something proves
    answer: str = ""  # in a sentence, where neither the proof nor the reason gives it


class Evidence:
    """What is known of one store as a whole; each part is read when it is first asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: list[str] = []  # what could not be read

    @cached_property
    def queues(self) -> list[QueueSummary]:
        """Where each queue begins and ends."""
        return list(queue_ends(self.store, searches_minimum(self.store), on_unreadable=self.problems.append))

    @cached_property
    def no_log(self) -> Found:
        """What a store without a segment is to every question."""
        gone = why_no_log(self.store)
        return Found(UNREAD, f"not known: {gone}") if gone else Found(NOT_THERE, _NO_LOG)

    @cached_property
    def end(self) -> LogEnd:
        """Where the log ends."""
        hints = [queue.last_physical_offset for queue in self.queues if queue.last_physical_offset is not None]
        return find_log_end(self.store, hints)

    @cached_property
    def first_time(self) -> int | None:
        """The store time of the first record, in microseconds."""
        with RecordReader(self.store) as log:
            for segment in self.store.segments[:1]:
                found = log.next_record(segment.base, segment.end)
                return None if found is None else found[1] * 1000
        return None

    @cached_property
    def acknowledged(self) -> str:
        """What other files prove that lay behind the end of the log, in words; "" if they prove nothing."""
        if not self.store.segments:
            return ""
        found = acknowledged_behind(self.store, self.end, self.queues)
        return "" if found is None else acknowledged_words(found)

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
        with RecordReader(self.store) as log:
            found = [(segment.lead, log.next_record(segment.base, segment.end)) for segment in some]
        places = [lead + one[0] for lead, one in found if one is not None]
        columns = frozenset({"physical_offset", "status", "store_host", "store_port"})
        rows = rows_at(self.store, places, Request(columns=columns, on_unreadable=lambda message: None))
        return list(dict.fromkeys(stored_by(row) for row in rows))

    @cached_property
    def before(self) -> str:
        """The reason for what lies before the log: whether queues, index or folder are as a retention leaves them."""
        index = [
            file for file in read_index_files(self.store, unread=[], files=self.store.index_files[:1]) if file.header
        ]
        newest = self.end.last_timestamp
        fits = was_cleaned(self.store, self.queues, index) or (
            newest is not None and changed_by_a_broker(self.store, newest)
        )
        return EXPIRED if fits else BEFORE

    @cached_property
    def begins(self) -> str:
        """Where the log begins, in words."""
        when = "" if self.first_time is None else f", {format_micros(self.first_time)}"
        tiered = "; the store has tiered storage: what is expired here may be there" if tiered_files(self.store) else ""
        return f"the log begins at {group_digits(self.store.log_start)}{when}{tiered}"


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
        return evidence.no_log
    where = f"physical offset {group_digits(place)}"
    if not store.neighbours and not start <= place < stop:
        return Found(NOT_THERE, f"{where} is not in the files given, which hold {_range(start, stop)}")
    if place < start:
        return Found(
            evidence.before, f"{where} lies {describe_size(start - place)} below the first segment; {evidence.begins}"
        )
    end = stop if evidence.end.end is None or evidence.end.goes_on else evidence.end.end
    if place >= end and not evidence.end.unread and (store.neighbours or end < stop):
        rest = "zeros follow" if place < stop else f"its last file ends at {group_digits(stop)}"
        beyond = [
            f"{queue.topic} queue {queue.queue_id}"
            for queue in evidence.queues
            if queue.last_physical_offset is not None and queue.last_physical_offset >= end
        ]
        points = "no queue unit points beyond the end"
        if beyond:
            queues = count(len(beyond), "queue")
            points = f"{queues} with units that point beyond the end: {', '.join(beyond[:_LISTED])}"
        return Found(BEYOND, f"{where}; the log ends at {group_digits(end)}, {rest}; {points}")
    try:
        with RecordReader(store) as log:
            spot = log.locate(place)
            proven = spot.kind == "record" and log.identity_at(spot.start) is not None
    except NothingFound:
        return Found(DAMAGED, f"{where} lies {_in_no_segment(store, place)}", MISSING_FATE)
    except Unreadable as error:
        return Found(UNREAD, f"{where} could not be read: {error}")
    return _in_spot(spot, where, place, proven=proven)


def _in_no_segment(store: Store, place: int) -> str:
    """Say why no segment has a place within the log: one is missing, or the one before it is cut off."""
    gap = next((one for one in missing_in(store) if one.start <= place < one.end), None)
    if gap is not None and gap.reason is None:
        return f"in a segment that is missing: {_range(gap.start, gap.end)}"
    cut = max((one for one in store.segments if one.base <= place), key=lambda one: one.base)
    what = "" if gap is None else f": {_range(gap.start, gap.end)} is missing"
    return f"in the part of {cut.name} that is cut off, behind {group_digits(cut.end)}{what}"


def _in_spot(spot: Spot, where: str, place: int, *, proven: bool) -> Found:
    end = "an unknown end" if spot.end is None else group_digits(spot.end)
    reach = f"{group_digits(spot.start)} to {end}"
    if spot.kind == "record" and proven and spot.start == place:
        return Found(NOT_THERE, f"another record begins at {where}")
    if spot.kind == "record" and proven:
        return Found(NOT_THERE, f"{where} is inside of the record at {reach}: show --at {place}")
    if spot.kind in ("blank", "entry"):
        return Found(NOT_THERE, f"{where} is in a {spot.kind} that holds no message: {reach}")
    what = {"zeros": "zeros", "record": "a record that is cut or damaged"}.get(spot.kind, "bytes that are no record")
    return Found(DAMAGED, f"{where} lies in {what}, {reach}, {spot.segment.name}", place=place)


def _range(start: int, end: int) -> str:
    return f"{group_digits(start)} to {group_digits(end)}"


def out_of_reach(store: Store, life: Life) -> Found | None:
    """Return why no group can pull the record of a life; None if one can, or nothing is known of its queue."""
    record = life.record
    units = [unit for unit in life.units if (unit.topic, unit.queue_id) == (record.topic, record.queue_id)]
    if not units or any(unit.state in ("present", "unknown") for unit in units):
        return None
    try:
        ends = list(queue_ends(store, searches_minimum(store), [(record.topic, record.queue_id)]))
    except Unreadable:
        return None
    lowest = min((end.min_offset for end in ends), default=0)
    queue = f"{record.topic} queue {record.queue_id}"
    if units[0].state == "missing" and record.queue_offset < lowest:
        begins = f"{queue} begins at {group_digits(lowest)}"
        return Found(OUT_OF_REACH, f"{begins}, behind this record's offset {group_digits(record.queue_offset)}")
    return Found(NOT_IN_QUEUE, f"{queue} has no unit for it: {units[0].detail}")

"""Filters to a plan: what of the log has to be read for the records that are asked for.

    --id, an offset msg id           the place that it names
    -t, --queue, --queue-offset      the queue's units                 `queue_offsets`
    -k; --id, a producer's id        the index                         `keys`
    --unconsumed                     the units of the group's queues   `queue_offsets`
    --since, --until                 the store times of the log        `times`
    -t, --queue                      the units of the topic's queues   `topics`, also with times

A plan is a set of spans of the log. All filters are applied to every record in them, so a pointer that is wrong
finds no wrong record. It could hide a right one: what no pointer can be trusted for is part of the spans as well,
up to the whole log. They are the range that was asked for: a gap in them may hold a record that was meant, a
gap elsewhere does not concern the question. That holds for a scan of the whole log as well, which gives the same
rows and the same exit status.
"""

from dataclasses import dataclass, replace

from rmqinspect.codec.message_id import offset_place
from rmqinspect.commitlog.locate import find_segment
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.keys import by_index
from rmqinspect.find.queue_offsets import by_units
from rmqinspect.find.spans import Way, place_span, whole_log
from rmqinspect.find.times import by_times
from rmqinspect.find.topics import by_topics
from rmqinspect.index.lookup import Span, merge
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection, is_pattern, spellings
from rmqinspect.tables.sources import range_to_read
from rmqinspect.text import count, describe_offset
from rmqinspect.topics import LMQ_PREFIX


@dataclass(frozen=True, slots=True)
class LookUp:
    """What of a log to read for a selection. Spans are physical offsets [start, end), ascending, disjoint."""

    spans: tuple[Span, ...]  # the range asked for: a gap in it may hold what was asked for
    to_read: tuple[Span, ...]  # the same and more
    way: str  # by the index, by the queue's units, …; several with commas between
    searched: str  # for a question without a hit: where it was looked for
    asks_for_records: bool  # for certain records, so that finding none is a result of its own
    told: str = ""  # the way in more words; "" if there is no more to say

    @property
    def size(self) -> int:
        """Bytes of the log to read."""
        return sum(end - start for start, end in self.to_read)


def plan_look_up(store: Store, selection: Selection) -> LookUp | None:
    """Return what to read of the table `messages`; None where the filters lead nowhere: everything.

    :raises Unreadable: a queue file cannot be read.
    """
    ways = _ways(store, selection)
    if not ways or not store.segments:
        return None
    spans = [span for way in ways for span in way.spans]
    offsets = range_to_read(store, selection.offsets)
    return LookUp(
        _within(spans, offsets),
        _within([*spans, *(span for way in ways for span in way.beside)], offsets),
        ", ".join(dict.fromkeys(way.name for way in ways)),
        "; ".join(dict.fromkeys(way.searched for way in ways)),
        asks_for_records=selection.asks_for_records,
        told="; ".join(dict.fromkeys(way.told for way in ways if way.told)),
    )


def _within(spans: list[Span], offsets: Span | None) -> tuple[Span, ...]:
    """Return spans ascending and disjoint, within the physical offsets asked for."""
    first, last = offsets or (0, 1 << 63)
    return tuple((max(start, first), min(end, last)) for start, end in merge(spans) if start < last and first < end)


def _ways(store: Store, selection: Selection) -> list[Way]:
    topics = None if not selection.topics or any(map(is_pattern, selection.topics)) else selection.topics
    if selection.ids:
        places = {text: offset_place(text) for text in selection.ids}
        ways = [_by_offset(store, place) for place in places.values() if place is not None]
        client_ids = [text for text, place in places.items() if place is None]
        return ways + ([by_index(store, topics, {one: spellings(one) for one in client_ids})] if client_ids else [])
    if selection.queue_offsets is not None and topics is not None and selection.queue_id is not None:
        return [by_units(store, topic, selection.queue_id, selection.queue_offsets) for topic in topics]
    if selection.keys:
        return [by_index(store, topics, {key: (key,) for key in selection.keys})]
    if selection.unconsumed is not None:
        return _by_ranges(store, selection)
    timed = selection.since is not None or selection.until is not None
    ways = []
    if timed and selection.time_column == "store_timestamp":
        ways = [by_times(store, selection.since, selection.until)]
    if topics is not None and store.segments:
        within = ways[0].spans if ways else [whole_log(store)]
        way = by_topics(store, topics, selection.queue_id, within)
        return ways if way is None else [way]
    return ways


def _by_ranges(store: Store, selection: Selection) -> list[Way]:
    """Return how to find what a group has not consumed, of the queues that the other filters leave."""
    # The records of a light queue have another topic.
    ranges = [
        one
        for one in selection.unconsumed_in
        if one.topic.startswith(LMQ_PREFIX) or selection.wants_queue(one.topic, one.queue_id)
    ]
    searched = f"{count(len(ranges), 'queue')} with messages that {selection.unconsumed} has not consumed"
    ways = [by_units(store, one.topic, one.queue_id, (one.first, one.behind)) for one in ranges]
    return [Way("by the offsets of the group", [], searched), *(replace(way, searched=searched) for way in ways)]


def _by_offset(store: Store, place: int) -> Way:
    try:
        find_segment(store, place)
    except (NothingFound, Unreadable) as error:
        return Way("by the offset in the id", [], str(error))
    return Way("by the offset in the id", [place_span(store, place)], f"physical offset {describe_offset(place)}")

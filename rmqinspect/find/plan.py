"""Filters to a plan: what of the log has to be read for the records that are asked for; and the rows of a plan.

    --id, an offset msg id           the place that it names
    -t, --queue, --queue-offset      the queue's units                 `by_units`
    -k; --id, a producer's id        the index                         `by_index`
    --unconsumed                     the units of the group's queues   `by_units`
    --since, --until                 the store times of the log        `by_times`
    -t, --queue                      the units of the topic's queues   `by_topics`, also with times

A plan is a set of spans of the log. All filters are applied to every record in them, so a pointer that is wrong
finds no wrong record. It could hide a right one: what no pointer can be trusted for is part of the spans as well,
up to the whole log. They are the range that was asked for: a gap in them may hold a record that was meant, a
gap elsewhere does not concern the question. That holds for a scan of the whole log as well, which gives the same
rows and the same exit status.

An index entry holds the hash of `topic#key`, so the topic must be known: the one asked for, or all that the store's
files name, and those of some records that the index points at. Every hit is proven in its record, which is read.
Where the index does not speak for a part of the log, that part is read as well.

Rows of some spans are the same that a scan of the whole log has there. A scan knows from all that lies before a
record whether it is the log's: not an older one behind a gap or behind the blank record that ends a segment. So a
span is entered in one of two ways:

- its first record has a unit in its queue that points at it: the broker took it for the log's, too. A short look
  back then tells the state of the scan;
- any other is entered by a walk from the start of its segment, which reads what lies between.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.arrays import Span, intersect, merge, uncovered
from rmqinspect.codec.java import ID_MARKS, index_hash, index_key
from rmqinspect.codec.message_id import offset_place
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Gap, ScanState, Split
from rmqinspect.commitlog.missing import log_range, missing_in
from rmqinspect.commitlog.record_reader import RecordReader, find_segment
from rmqinspect.commitlog.scan import RecordRun, scan_split, walk_to
from rmqinspect.config.json_files import read_config
from rmqinspect.consumequeue.units import find_unit
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.ways import NEAR, Way, by_times, by_topics, by_units, place_span, whole_log
from rmqinspect.index.geometry import IndexFile
from rmqinspect.index.lookup import Found, look_up, sample_places, usable_files
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.tables.filters import Selection, is_pattern, spellings
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.read_log import lost_gaps, report_account, report_behind
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import range_to_read
from rmqinspect.text import count, describe_offset, describe_size, group_digits
from rmqinspect.topics import LMQ_PREFIX

# The log of a key that the index does not know is read where that takes seconds: a damaged key, or one of a topic
# that no file names any more, is found by reading alone.
CONFIRMED = 1 << 30
_TOLD = 3  # ranges that are listed


def known_topics(store: Store) -> set[str]:
    """Return the topics that the store's files name."""
    topics = {file.topic for file in store.queue_files}
    for name, table in (("topics.json", "topicConfigTable"), ("consumerOffset.json", "offsetTable")):
        document = read_config(store, name)
        for one in () if document is None else (document, *document.other_copies()):
            topics.update(key.partition("@")[0] for key in one.table(table))
    return topics


def id_texts(msg_id: str) -> list[str]:
    """Return what may stand behind `topic#` in the index for a producer's id, whoever wrote it."""
    return [mark + one for one in spellings(msg_id) for mark in ID_MARKS]


def by_index(store: Store, topics: Sequence[str] | None, keys: Mapping[str, Sequence[str]]) -> Way:
    """Return how to find the records with one of some keys; each may be written in several ways.

    `topics` are those asked for, None for all.
    """
    whole, found = whole_log(store), entries_of(store, topics, keys)
    spans: list[Span] = []
    for places in found.places.values():
        hits = [place_span(store, place) for place in places if whole[0] <= place < whole[1]]
        spans += hits if hits or whole[1] - whole[0] > CONFIRMED else [whole]
    spans = merge([*spans, *uncovered(found.covered, whole)])
    told = _tell(store, found, [whole] if spans == [whole] else uncovered(found.covered, whole), whole)
    return Way(_name(spans, whole, found), spans, _describe(spans, whole, found), told=told)


def entries_of(store: Store, topics: Sequence[str] | None, keys: Mapping[str, Sequence[str]]) -> Found:
    """Return what the index knows about some keys, each of which may be written in several ways."""
    files = usable_files(store)
    with RecordReader(store) as log:
        searched = set(topics) if topics is not None else known_topics(store) | topics_met(files, log)
        return look_up(
            files,
            {key: [index_hash(index_key(topic, one)) for topic in searched for one in keys[key]] for key in keys},
            log.follows,
        )


def topics_met(files: Sequence[IndexFile], log: RecordReader) -> set[str]:
    """Return the topics of records all over the index: those of a topic that was deleted are still in the log."""
    identities = (log.identity_at(place) for place in sample_places(files))
    return {identity.topic for identity in identities if identity is not None}


def _tell(store: Store, found: Found, scanned: Sequence[Span], whole: Span) -> str:
    """Return what the index had to say, its files and candidates, and which ranges of the log were scanned."""
    given, places = len(store.index_files), {place for places in found.places.values() for place in places}
    if not found.files:
        told = f"none of {count(given, 'index file')} is usable" if given else "no index files"
    elif found.files < given:
        told = f"{group_digits(found.files)} of {group_digits(given)} index files, {count(len(places), 'candidate')}"
    else:
        told = f"{count(found.files, 'index file')}, {count(len(places), 'candidate')}"
    if not scanned:
        return told
    ranges = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in scanned[:_TOLD])
    more = f" and {count(len(scanned) - _TOLD, 'more range')}" if len(scanned) > _TOLD else ""
    why = "" if list(scanned) == [whole] else ", for they do not cover it"
    return f"{told}; scanned{why}: physical {ranges}{more}"


def _name(spans: Sequence[Span], whole: Span, found: Found) -> str:
    if not found.files:
        return "by a scan, for there is no usable index"
    if list(spans) != [whole]:
        return "by the index"
    places = [place for some in found.places.values() for place in some]
    if not places:
        return "by a scan, for the index has no such key"
    inside = any(whole[0] <= place < whole[1] for place in places)
    where = "before the log's start" if max(places) < whole[0] else "outside of the log"
    return f"by a scan, for the index {'does not cover the log' if inside else f'leads {where}'}"


def _describe(spans: Sequence[Span], whole: Span, found: Found) -> str:
    """Return where was searched, for a question without a hit."""
    if list(spans) == [whole]:
        return "the whole log"
    read = describe_size(sum(end - start for start, end in spans))
    return f"{count(found.files, 'index file')}, and the {read} of the log that they do not cover"


class LookUp(Struct, frozen=True):
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
    asked = [range_to_read(store, selection.offsets) or (0, 1 << 63)]
    return LookUp(
        tuple(intersect(merge(spans), asked)),
        tuple(intersect(merge([*spans, *(span for way in ways for span in way.beside)]), asked)),
        ", ".join(dict.fromkeys(way.name for way in ways)),
        "; ".join(dict.fromkeys(way.searched for way in ways)),
        asks_for_records=selection.asks_for_records,
        told="; ".join(dict.fromkeys(way.told for way in ways if way.told)),
    )


def _ways(store: Store, selection: Selection) -> list[Way]:
    topics = None if not selection.topics or any(map(is_pattern, selection.topics)) else selection.topics
    # Index entries name the topic in the record's head, which of a light message is another one.
    keyed = None if selection.names_light_queues else topics
    if selection.ids:
        places = {text: offset_place(text) for text in selection.ids}
        ways = []
        for place in places.values():
            if place is None:
                continue
            spans, searched = [place_span(store, place)], f"physical offset {describe_offset(place)}"
            try:
                find_segment(store, place)
            except (NothingFound, Unreadable) as error:
                spans, searched = [], str(error)
            ways.append(Way("by the offset in the id", spans, searched))
        client_ids = [text for text, place in places.items() if place is None]
        return ways + ([by_index(store, keyed, {one: id_texts(one) for one in client_ids})] if client_ids else [])
    if selection.queue_offsets is not None and topics is not None and selection.queue_id is not None:
        return [by_units(store, topic, selection.queue_id, selection.queue_offsets) for topic in topics]
    if selection.keys:
        return [by_index(store, keyed, {key: (key,) for key in selection.keys})]
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


def why_not_known(store: Store, selection: Selection) -> str | None:
    """Return why a queue may have records that were not found in the log: its units were not read."""
    return why_unknown(store, "queues", selection.topics[0]) if selection.needs_queues else None


_AROUND_GAP = 64 << 10  # bytes around a span that ends in a gap; sixteen times as many at each further look


def rows_at(
    store: Store, places: Collection[int], request: Request, log: RecordReader | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `messages` at some physical offsets, ascending; places without a record give none.

    Rows have the columns of the request. `log` is used as by `planned_rows`.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    wanted = pa.array(sorted(set(places)), pa.int64())
    spans = [place_span(store, place) for place in places]
    for batch in planned_rows(store, spans, request, log):
        rows = batch.filter(pc.is_in(batch.column("physical_offset"), wanted))
        yield from (rows if request.columns is None else rows.select(sorted(request.columns))).to_pylist()


def planned_rows(
    store: Store, spans: Sequence[Span], request: Request, log: RecordReader | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `messages` in some spans of the log, and maybe of what lies between near ones.

    `log` is an open reader of the store: what it has read of a record that a span begins with is not read again.

    :raises Unreadable: a file cannot be read, and there is no `request.on_unreadable`.
    """
    if missing_in(store) or store.doubles:
        for span in spans:
            report_account(store, replace(request, offsets=span))
    if list(spans) == [log_range(store)]:
        report_behind(store, request)
    joined = merge(spans, NEAR)
    with nullcontext(log) if log is not None else RecordReader(store) as log:
        doors = _Doors(store, log)
        for segment in store.log_files:
            for start, end in joined:
                inside = max(start, segment.base), min(end, segment.end)
                if inside[0] < inside[1]:
                    yield from _rows_inside(segment, inside, doors, request)


def _rows_inside(segment: Segment, span: Span, doors: "_Doors", request: Request) -> Iterator[pa.RecordBatch]:
    account = ByteAccount(segment)
    try:
        inside = replace(request, offsets=span, entry=doors.entry(segment, span[0]), on_gap=None)
        yield from messages_in([segment], inside, account.join)
        if request.on_gap is not None:
            for gap in _lost_gaps(account, span, doors.records_behind):
                request.on_gap(gap.kind, gap.start, gap.end)
    except Unreadable as error:
        if request.on_unreadable is None:
            raise
        request.on_unreadable(str(error))


def _lost_gaps(account: ByteAccount, span: Span, records_behind: Callable[[Segment], bool]) -> list[Gap]:
    """Return the gaps of a span that held records: what a gap is depends on the bytes around it, and what follows."""
    segment, around = account.segment, 0
    gaps = account.merged_gaps()
    while any(_is_cut(gap, segment, (span[0] - around, span[1] + around)) for gap in gaps):
        around = around * 16 or _AROUND_GAP
        start, end = span[0] - segment.base - around, span[1] - segment.base + around
        account = ByteAccount(segment)
        for event in scan_split(Split(segment, max(0, start), min(segment.size, end))):
            if isinstance(event, RecordRun | Gap):
                account.add(event)
        gaps = [gap for gap in account.merged_gaps() if gap.start < span[1] and span[0] < gap.end]
    to_the_end = any(gap.kind == "zeros" and gap.end >= segment.end for gap in gaps)
    return lost_gaps(gaps, segment.end if to_the_end and records_behind(segment) else account.end or 0)


def _is_cut(gap: Gap, segment: Segment, span: Span) -> bool:
    """Whether a gap may go on beyond the span that was read."""
    before = segment.base < span[0] and gap.start <= span[0]
    behind = span[1] < segment.end and gap.end >= span[1]
    return gap.kind in ("unknown", "zeros") and (before or behind)


class _Doors:
    """How spans are entered; spans come in ascending order."""

    def __init__(self, store: Store, log: RecordReader) -> None:
        self._store = store
        self._log = log
        self._segment: Segment | None = None
        self._walked: tuple[int, ScanState | None] = 0, None  # position in the segment, and the scan's state there

    @cached_property
    def _queues(self) -> dict[tuple[str, int], list[QueueFile]]:
        queues = defaultdict(list)
        for file in self._store.queue_files:
            if file.kind == "queue":
                queues[file.topic, file.queue_id].append(file)
        return queues

    def entry(self, segment: Segment, offset: int) -> ScanState | None:
        """Return the state of the scan at an offset of a segment; None if a look back tells it."""
        position = offset - segment.base
        if segment is not self._segment:
            self._segment, self._walked = segment, (0, None)
        if position == 0 or self._has_unit(offset + segment.lead):
            return None
        start, state = self._walked
        state = walk_to(segment, start, position, state)
        self._walked = position, state
        return state

    def records_behind(self, segment: Segment) -> bool:
        """Whether a record lies in a segment behind this one."""
        later = (other for other in self._store.segments if other.base > segment.base)
        return any(self._log.next_record(other.base, other.end) is not None for other in later)

    def _has_unit(self, place: int) -> bool:
        """Whether the queue's unit for the record at a place points at it."""
        identity = self._log.identity_at(place)
        files = self._queues.get((identity.topic, identity.queue_id)) if identity is not None else None
        if identity is None or not files:
            return False
        try:
            return find_unit(files, identity.queue_offset) == (place, identity.size)
        except Unreadable:
            return False

"""The filter options, applied to batches of any table.

Filters find columns by name, so they apply to every table that has the columns. Values of one filter are alternatives
(except `--property`); different filters must all hold.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rmqinspect.codec.message_id import offset_place
from rmqinspect.store.model import LAST_BASE
from rmqinspect.tables import lost_records, queue_ranges
from rmqinspect.tables.lost_records import AskedStart, LostRecords
from rmqinspect.tables.queue_ranges import Needles, of_body, of_host, of_values
from rmqinspect.topics import LMQ_PREFIX, is_system_topic

Range = tuple[int, int]

_OF_LIGHT = ("topic", "queue_id", "transaction", "properties")  # columns that say which light queues a record is in
_OF_QUEUE = ("--topic", "--queue", "--queue-offset")

_PATTERN = re.compile(r"[*?\[]")

_OPEN_END = 1 << 63  # above every offset


def parse_range(text: str) -> Range:
    """Parse `A`, `A..B`, `A..` or `..B` as a half-open range; `A` alone is exactly A.

    Numbers may be hex (`0x7ba3`) and grouped as printed (`97 187`).

    :raises ValueError: malformed, or the end is before the start.
    """
    first, dots, last = text.partition("..")
    try:
        start = _parse_number(first) if first.strip() else 0
        end = _parse_number(last) if last.strip() else _OPEN_END
    except ValueError as error:
        raise ValueError(f"{text!r} is not an offset or a range A..B") from error
    if not dots:
        if not first.strip():
            raise ValueError("missing offset or range A..B")
        return start, start + 1
    if end < start:
        raise ValueError(f"{text!r} ends before it starts")
    return start, end


def _parse_number(text: str) -> int:
    number = int(re.sub(r"[\s,_]", "", text), 0)
    if not 0 <= number < _OPEN_END:
        raise ValueError("not an offset")
    return number


def is_pattern(topic: str) -> bool:
    """Whether a topic filter may match several topics."""
    return _PATTERN.search(topic) is not None


def spellings(client_id: str) -> tuple[str, ...]:
    """Return how a producer may have written an id: as given, or with the other hex digits."""
    return tuple(dict.fromkeys((client_id, client_id.upper(), client_id.lower())))


def parse_offset(text: str) -> int:
    """Parse the physical offset of a segment: `65536`, `0x10000`.

    :raises ValueError: it is not one.
    """
    number = int(text, 0)
    if not 0 <= number <= LAST_BASE:
        raise ValueError(f"{text!r} is not a physical offset of a segment")
    return number


def parse_property(text: str) -> tuple[str, str | None]:
    """Parse `NAME` or `NAME=VALUE`; the value is None where any matches.

    :raises ValueError: there is no name.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} has no name; write NAME or NAME=VALUE")
    return name, value if equals else None


def parse_bytes(text: str) -> bytes:
    """Parse `7B226964223A` or `0x7b 22`: bytes as hex digits, which spaces may group.

    :raises ValueError: it is something else, or nothing.
    """
    try:
        content = bytes.fromhex(text.strip().removeprefix("0x"))
    except ValueError:
        content = b""
    if not content:
        raise ValueError(f"{text!r} is not a text of hex digits, two for each byte")
    return content


def parse_host(text: str) -> tuple[str, int | None]:
    """Parse `HOST`, `HOST:PORT` or `[V6]:PORT` as (address as printed in tables, port).

    :raises ValueError: it is not an IP address.
    """
    host, port = text, None
    if bracketed := re.fullmatch(r"\[(.+)\](?::(\d+))?", text):
        host, port = bracketed[1], bracketed[2]
    elif text.count(":") == 1:
        host, port = text.split(":")
    try:
        return str(ipaddress.ip_address(host)), None if port is None else int(port)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an IP address with an optional :PORT") from error


@dataclass(frozen=True)
class Selection:
    """The filters in use; a field at its default does not filter.

    `topics_seen` collects all topics that the topic filter saw, to report patterns that match none.
    """

    topics: tuple[str, ...] = ()  # shell patterns, case-sensitive
    queue_id: int | None = None
    queue_offsets: Range | None = None
    in_queues: bool = False  # queue offsets: only of what is in a queue; prepared and rollback records say 0
    offsets: Range | None = None  # physical
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    keys_name_ids: bool = False  # a message id is a key, too, as for a broker's query by key
    ids: tuple[str, ...] = ()  # message ids or offset message ids, any case
    properties: tuple[tuple[str, str | None], ...] = ()  # (name, value or None for any); all must hold
    body_text: str | None = None
    body_bytes: bytes | None = None
    since: int | None = None  # microseconds since 1970, included
    until: int | None = None  # excluded
    time_column: str = "store_timestamp"
    host: tuple[str, int | None] | None = None
    system_topics: bool = True
    cells: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (column of texts, shell patterns); all must hold
    unconsumed: str | None = None  # consumer group: only messages that it has not consumed
    unconsumed_in: tuple[queue_ranges.QueueRange, ...] = ()  # where these are in one store: `find.unconsumed`
    lost_at_start: AskedStart | None = None  # only records that this start gives up
    lost: LostRecords | None = None  # which these are in one store: `forecast.lost_records`
    topics_seen: set[str] = field(default_factory=set, compare=False, repr=False)

    def columns(self, schema: pa.Schema) -> frozenset[str]:
        """Return the columns of `schema` that the filters use."""
        alternatives = [names for rule in _RULES if rule.is_set(self) for names in rule.alternatives(self)]
        alternatives += [_OF_LIGHT] if self.names_light_queues else []
        return frozenset(name for names in alternatives for name in names if name in schema.names)

    @property
    def names_light_queues(self) -> bool:
        """Whether light queues may be meant: their messages name them in a property, and another topic in the head."""
        return any(topic.startswith(LMQ_PREFIX.rstrip("%")) for topic in self.topics)

    @property
    def named(self) -> tuple[tuple[int, int], ...]:
        """Records that may pass and that no walk meets: (physical offset, size), ascending."""
        return self.lost.named if self.lost is not None else ()

    @property
    def needs_queues(self) -> bool:
        """Whether units of queues tell what no record tells: where a queue offset leads, what is in a light queue."""
        return bool(self.topics) and (self.queue_offsets is not None or self.names_light_queues)

    @property
    def asks_for_records(self) -> bool:
        """Whether certain records are asked for, by their name: an id, a key, an offset in a queue."""
        in_queue = self.queue_offsets is not None and self.queue_id is not None and bool(self.topics)
        return bool(self.ids or self.keys) or in_queue

    def missing_columns(self, schema: pa.Schema) -> list[str]:
        """Return the options in use for which a table with this schema has no column."""
        return [
            rule.option
            for rule in _RULES
            if rule.is_set(self) and _choose(rule.alternatives(self), schema.names) is None
        ]

    def select_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass all filters.

        :raises KeyError: a filter has no column here; `missing_columns` says so beforehand.
        """
        mask = self.mask_of(batch)
        return batch if mask is None else batch.filter(mask)

    def mask_of(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return which rows pass all filters, None where all do.

        :raises KeyError: as `select_rows`.
        """
        mask: pa.Array | None = None
        for option, hit in self._masks(batch):
            if hit is None:
                raise KeyError(option)
            mask = hit if mask is None else pc.and_(mask, hit)
        return mask

    def _masks(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array | None]]:
        """Yield the options in use with the rows that pass each; None without its columns."""
        light = None
        if self.names_light_queues and all(name in batch.schema.names for name in _OF_LIGHT):
            light = pa.array(queue_ranges.in_further_queues(batch, self._takes_unit))
        for rule in _RULES:
            if rule.is_set(self):
                columns = _choose(rule.alternatives(self), batch.schema.names)
                hit = None if columns is None else pc.fill_null(rule.mask(self, batch, columns), False)
                of_queue = light is not None and hit is not None and rule.option in _OF_QUEUE
                yield rule.option, pc.or_(hit, light) if of_queue else hit

    def _takes_unit(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the filters of topics, queues and queue offsets leave a unit."""
        self.topics_seen.add(topic)
        lowest, beyond = self.queue_offsets or (0, _OPEN_END)
        return self.wants_queue(topic, queue_id) and lowest <= queue_offset < beyond

    def takes_topic(self, topic: str) -> bool:
        """Whether rows of a topic may pass."""
        return self.names_light_queues or self.wants_topic(topic)

    @cached_property
    def needles(self) -> tuple[Needles, ...]:
        """What the bytes of a record contain if its row passes; all of them."""
        return tuple(needles for rule in _RULES if rule.is_set(self) for needles in rule.needles(self))

    def unseen_of(self, topics: Sequence[str]) -> set[str]:
        """Return those of some topics of which a row has yet to be seen, for the report on patterns without a topic."""
        if not self.topics:
            return set()
        seen = self.topics_seen.copy()  # another thread may add to it
        return set(topics) - seen if replace(self, topics_seen=seen).unmatched_topics() else set()

    def excluding(self, batch: pa.RecordBatch) -> list[str]:
        """Return the options in use that no row of a batch passes."""
        return [option for option, hit in self._masks(batch) if hit is not None and not pc.any(hit).as_py()]

    def wants_topic(self, topic: str) -> bool:
        """Whether the filters of topics leave a topic."""
        named = not self.topics or any(fnmatchcase(topic, pattern) for pattern in self.topics)
        return named and (self.system_topics or not is_system_topic(topic))

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether the filters of topics and queues leave a queue."""
        return self.queue_id in (None, queue_id) and self.wants_topic(topic)

    def unmatched_topics(self) -> list[str]:
        """Return the topic patterns that matched no topic seen so far."""
        return [
            pattern for pattern in self.topics if not any(fnmatchcase(topic, pattern) for topic in self.topics_seen)
        ]

    def near_topics(self, pattern: str) -> list[str]:
        """Return up to three seen topics with names similar to the pattern, nearest first."""
        folded = {topic.casefold(): topic for topic in sorted(self.topics_seen)}
        names = get_close_matches(pattern.casefold(), folded, n=3, cutoff=0.5)
        return [folded[name] for name in names]


_PLAIN = Selection()

Columns = tuple[str, ...]


class _Rule(Struct, frozen=True):
    """One filter option: what sets it, the columns it needs (in order of preference), and its mask."""

    option: str
    fields: tuple[str, ...]  # of Selection: it is in use where one of them is not at its default
    columns: Sequence[Columns] | Callable[[Selection], Sequence[Columns]]
    mask: Callable[[Selection, pa.RecordBatch, Columns], pa.Array]
    needles: Callable[[Selection], tuple[Needles, ...]] = lambda selection: ()  # what records contain that pass

    def is_set(self, selection: Selection) -> bool:
        """Whether the option is in use."""
        return any(getattr(selection, name) != getattr(_PLAIN, name) for name in self.fields)

    def alternatives(self, selection: Selection) -> Sequence[Columns]:
        """Return the columns that it needs."""
        return self.columns(selection) if callable(self.columns) else self.columns


def _choose(alternatives: Sequence[Columns], names: Sequence[str]) -> Columns | None:
    return next((columns for columns in alternatives if all(name in names for name in columns)), None)


def _pattern_mask(texts: pa.Array, distinct: Sequence[str | None], patterns: Sequence[str]) -> pa.Array:
    """Return the rows whose text matches one of some patterns; `distinct`: all texts there are."""
    wanted = [one for one in distinct if one is not None and any(fnmatchcase(one, pattern) for pattern in patterns)]
    return _value_mask(wanted, texts)


def _topic_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    topics = batch.column(columns[0])
    distinct = topics.unique().to_pylist()
    selection.topics_seen.update(topic for topic in distinct if topic is not None)
    return _pattern_mask(topics, distinct, selection.topics)


def _system_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    topics = batch.column(columns[0])
    system = [topic for topic in topics.unique().to_pylist() if topic is not None and is_system_topic(topic)]
    return pc.invert(pc.is_in(topics, pa.array(system, topics.type)))


def _range_mask(start: pa.Array, end: pa.Array | None, wanted: Range) -> pa.Array:
    """Return the rows whose number lies in `wanted`; with `end`, those whose [start, end) overlaps it."""
    lowest, beyond = wanted
    below = pc.less_equal(start, pa.scalar(beyond - 1, pa.int64()))
    return pc.and_(below, pc.greater_equal(start, lowest) if end is None else pc.greater(end, lowest))


def _queue_offset_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    assert selection.queue_offsets is not None
    first = batch.column(columns[0])
    if columns[1:] == ("transaction",):
        in_queue = pc.is_in(batch.column(columns[1]), pa.array(["none", "commit"]))
        return pc.and_(in_queue, _range_mask(first, None, selection.queue_offsets))
    # A unit of a batch queue stands for several messages.
    end = pc.add(first, batch.column(columns[1]).cast(pa.int64())) if len(columns) > 1 else None
    return _range_mask(first, end, selection.queue_offsets)


def _offset_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    assert selection.offsets is not None
    start = batch.column(columns[0])
    if len(columns) == 1:
        return _range_mask(start, None, selection.offsets)
    last = batch.column(columns[1])
    end = pc.add(start, last) if columns[1] == "file_size" else last
    return _range_mask(start, end, selection.offsets)


def _value_mask(values: Sequence[str], array: pa.Array) -> pa.Array:
    return pc.is_in(array, pa.array(values, array.type))


def _key_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    lists = batch.column(columns[0])
    hits = pc.list_parent_indices(lists).filter(_value_mask(selection.keys, pc.list_flatten(lists)))
    mask = pc.is_in(pa.array(range(batch.num_rows), pa.int64()), hits.cast(pa.int64()))
    for name in columns[1:]:
        mask = pc.or_(mask, pc.fill_null(_value_mask(selection.keys, batch.column(name)), False))
    return mask


def _id_needles(selection: Selection) -> tuple[Needles, ...]:
    places = tuple(place for one in selection.ids if (place := offset_place(one)) is not None)
    own = [spelling for one in selection.ids if offset_place(one) is None for spelling in spellings(one)]
    return of_values(own, places=places)


def _property_needles(selection: Selection) -> tuple[Needles, ...]:
    """Return one text for each: the broker writes a name, 01, and the value."""
    return tuple(needles for name, value in selection.properties for needles in of_values([f"{name}\x01{value or ''}"]))


def _id_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """Return the records whose offset msg id names their place, or whose producer gave them the id.

    An offset msg id names one place: a record elsewhere that claims it has a damaged offset.
    """
    named = {one.strip().upper(): place for one in selection.ids if (place := offset_place(one)) is not None}
    own = [spelling for one in selection.ids if offset_place(one) is None for spelling in spellings(one)]
    mask = pc.fill_null(_value_mask(own, batch.column(columns[0])), False)
    if not named:
        return mask
    here = pc.is_in(batch.column(columns[2]), pa.array(named.values(), pa.int64()))
    return pc.or_(mask, pc.and_(here, pc.fill_null(_value_mask(list(named), batch.column(columns[1])), False)))


def _property_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    mask = pa.repeat(True, batch.num_rows)
    for name, value in selection.properties:
        found = pc.map_lookup(batch.column(columns[0]), pa.scalar(name), "first")
        hit = found.is_valid() if value is None else pc.fill_null(pc.equal(found, value), False)
        mask = pc.and_(mask, hit)
    return mask


def _text_in_body(selection: Selection) -> bytes:
    assert selection.body_text is not None
    return selection.body_text.encode("utf-8", "surrogateescape")  # bytes of the command line that are not UTF-8


def _time_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    micros = batch.column(columns[0]).cast(pa.timestamp("us")).cast(pa.int64())
    mask = micros.is_valid()
    if selection.since is not None:
        mask = pc.and_(mask, pc.fill_null(pc.greater_equal(micros, selection.since), False))
    if selection.until is not None:
        mask = pc.and_(mask, pc.fill_null(pc.less(micros, selection.until), False))
    return mask


def _cells_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    mask = pa.repeat(True, batch.num_rows)
    for name, patterns in selection.cells:
        texts = batch.column(name)
        mask = pc.and_(mask, _pattern_mask(texts, texts.unique().to_pylist(), patterns))
    return mask


def _host_mask(selection: Selection, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    assert selection.host is not None
    host, port = selection.host
    mask = pc.equal(batch.column(columns[0]), host)
    return mask if port is None else pc.and_(mask, pc.equal(batch.column(columns[1]), port))


_RULES: tuple[_Rule, ...] = (
    # Topics first, so that `topics_seen` has all topics before another filter drops rows.
    # A table of messages that wait has their real topic alone.
    _Rule("--topic", ("topics",), [("topic",), ("real_topic",)], _topic_mask),
    _Rule("--no-system-topics", ("system_topics",), [("topic",)], _system_mask),
    _Rule(
        "--queue",
        ("queue_id",),
        [("queue_id",)],
        lambda s, batch, columns: pc.equal(batch.column(columns[0]), s.queue_id),
    ),
    _Rule(
        "--queue-offset",
        ("queue_offsets",),
        lambda s: [
            ("queue_offset", "message_count"),
            ("queue_offset", "transaction") if s.in_queues else ("queue_offset",),
            ("queue_offset",),
        ],
        _queue_offset_mask,
    ),
    _Rule("--offset", ("offsets",), [("physical_offset",), ("start", "end"), ("base", "file_size")], _offset_mask),
    _Rule(
        "--tag",
        ("tags",),
        [("tags",)],
        lambda s, batch, columns: _value_mask(s.tags, batch.column(columns[0])),
        lambda s: of_values(s.tags),
    ),
    _Rule(
        "--key",
        ("keys",),
        lambda s: [("keys", "msg_id") if s.keys_name_ids else ("keys",)],
        _key_mask,
        lambda s: of_values(s.keys),
    ),
    _Rule("--id", ("ids",), [("msg_id", "offset_msg_id", "physical_offset")], _id_mask, _id_needles),
    _Rule("--property", ("properties",), [("properties",)], _property_mask, _property_needles),
    _Rule(
        "--body-contains",
        ("body_text",),
        [("body",)],
        lambda s, batch, columns: pc.match_substring(batch.column(columns[0]), _text_in_body(s)),
        lambda s: of_body(_text_in_body(s)),
    ),
    _Rule(
        "--body-bytes",
        ("body_bytes",),
        [("body",)],
        lambda s, batch, columns: pc.match_substring(batch.column(columns[0]), s.body_bytes or b""),
        lambda s: of_body(s.body_bytes or b""),
    ),
    _Rule("--since, --until", ("since", "until"), lambda s: [(s.time_column,)], _time_mask),
    _Rule(
        "--unconsumed",
        ("unconsumed",),
        [queue_ranges.COLUMNS],
        lambda s, batch, columns: queue_ranges.in_ranges(s.unconsumed_in, batch),
    ),
    _Rule(
        "--lost-at-start",
        ("lost_at_start",),
        [lost_records.COLUMNS],
        lambda s, batch, columns: lost_records.lost_mask(s.lost, batch, columns),
    ),
    _Rule("--state, --group", ("cells",), lambda s: [tuple(name for name, _ in s.cells)], _cells_mask),
    _Rule(
        "--host",
        ("host",),
        lambda s: [("born_host",)] if s.host and s.host[1] is None else [("born_host", "born_port")],
        _host_mask,
        lambda s: of_host(s.host[0]) if s.host else (),
    ),
)

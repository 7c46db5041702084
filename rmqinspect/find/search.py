"""One pass over what is read of a store for an answer: the rows that pass, and what the pass saw.

What it saw is the scope of the answer, and stands in the explanation of a miss: which part of the log, how many
records, of which times, with which damage, and which keys and ids were nearly the ones asked for.

What a search is asked for, one by one: each question is answered, or its miss explained.

--id A --id B -t orders             two questions, the ids; the topic is a filter that may exclude an answer
-k K1 -k K2                         two questions, the keys
-t orders --queue 0 --queue-offset  one question for each topic
--offset A..B                       one question
anything else                       one question: all filters together

Messages of batches have keys and ids that no column shows and no index entry knows.

    inner batch       one record for all; keys and ids of its messages are in the body
    batch of 5.x      a record for each; behind its own UNIQ_KEY stands that of the batch, and the last one counts

A batch queue has one unit for an inner batch, and the index the id of the batch alone, so a broker finds its messages
by no query. Nor does it find the ids that SendResult names for a batch of 5.x. Here the bytes are searched.

Source: MessageDecoder#encodeMessage, DefaultMQProducer#batch, MessageExtEncoder#encode; RocketMQ 5.0.0 and later.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.arrays import Span, intersect, merge
from rmqinspect.codec.layout import walk_fields
from rmqinspect.codec.message_id import OffsetId, decode, offset_place
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.errors import Unreadable
from rmqinspect.find.near import NearIds, NearKeys
from rmqinspect.find.plan import CONFIRMED, LookUp, by_index, id_texts, planned_rows
from rmqinspect.find.ways import gaps_asked, whole_log
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.statuses import SOUND
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection, is_pattern, spellings
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.redact import Redaction
from rmqinspect.tables.request import Request
from rmqinspect.text import group_digits

ID, KEY, QUEUE_OFFSET, OFFSET, FILTERS = "id", "key", "queue_offset", "offset", "filters"
_HIDDEN = "(hidden)"

# Kind of question -> the fields of a selection that it consists of.
_PARTS = {
    ID: ("ids",),
    KEY: ("keys", "keys_name_ids"),
    QUEUE_OFFSET: ("topics", "queue_id", "queue_offsets", "in_queues"),
    OFFSET: ("offsets",),
    FILTERS: tuple(field.name for field in fields(Selection)),
}


class Question(Struct, frozen=True):
    """One thing asked for."""

    kind: str
    text: str  # as the command line names it
    alone: Selection  # without the filters that are no part of the question
    words: str  # what no record has or is, for a sentence; what is to be hidden is
    shown: str  # `text`, likewise

    def select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that answer the question, whatever else was asked."""
        return self.alone.select_rows(rows)

    def others(self, selection: Selection) -> Selection:
        """Return the filters of a selection that are no part of the question."""
        none = Selection()
        return dataclasses.replace(selection, **{name: getattr(none, name) for name in _PARTS[self.kind]})

    @property
    def asked(self) -> str:
        """The key or the id; "" for another kind."""
        return "".join(self.alone.ids or self.alone.keys)

    @property
    def place(self) -> int | None:
        """The physical offset that an offset msg id names; None for what is none."""
        return offset_place(self.asked) if self.kind == ID else None

    @property
    def broker(self) -> OffsetId | None:
        """The address and place that an offset msg id names; None for what is none."""
        if self.place is None:
            return None
        return next(one for one in decode(self.asked) if isinstance(one, OffsetId))


def questions_of(selection: Selection, redaction: Redaction | None = None) -> list[Question]:
    """Return the questions of a selection, at least one."""
    topics = selection.topics if not any(map(is_pattern, selection.topics)) else ()
    if selection.ids:
        return [id_question(one, redaction) for one in dict.fromkeys(selection.ids)]
    if selection.queue_offsets is not None and topics and selection.queue_id is not None:
        bare = Selection(queue_id=selection.queue_id, queue_offsets=selection.queue_offsets, in_queues=True)
        where = f"queue {selection.queue_id} at {describe_range(selection.queue_offsets)}"
        option = f"--queue {selection.queue_id} --queue-offset {_as_given(selection.queue_offsets)}"
        asked = {topic: f"-t {topic} {option}" for topic in topics}
        return [
            Question(QUEUE_OFFSET, text, dataclasses.replace(bare, topics=(topic,)), f"is in {topic} {where}", text)
            for topic, text in asked.items()
        ]
    if selection.keys:
        return [key_question(one, redaction) for one in dict.fromkeys(selection.keys)]
    if selection.offsets is not None:
        text = f"--offset {_as_given(selection.offsets)}"
        words = f"begins at {describe_range(selection.offsets)}"
        return [Question(OFFSET, text, Selection(offsets=selection.offsets), words, text)]
    return [Question(FILTERS, "", selection, "passes all filters", "")]


def id_question(text: str, redaction: Redaction | None = None) -> Question:
    """Return the question for an id."""
    shown, alone = hidden(redaction, "hosts", text), Selection(ids=(text,))
    return Question(ID, f"--id {text}", alone, f"has the id {shown}", f"--id {shown}")


def key_question(text: str, redaction: Redaction | None = None) -> Question:
    """Return the question for a key."""
    shown, alone = hidden(redaction, "keys", text), Selection(keys=(text,), keys_name_ids=True)
    return Question(KEY, f"-k {text}", alone, f"has the key {shown}", f"-k {shown}")


def hidden(redaction: Redaction | None, word: str, text: str) -> str:
    """Return a text as it may be shown: itself, its keyed hash, or that it is hidden."""
    if redaction is None or not redaction.hides(word):
        return text
    return redaction.value(word, text.encode("utf-8", "surrogateescape")) or _HIDDEN


def describe_range(range_: tuple[int, int]) -> str:
    """Return a range as `230 000` or `5 to 8`, its end left out."""
    start, end = range_
    if end >= 1 << 63:
        return f"{group_digits(start)} or more"
    return group_digits(start) if end == start + 1 else f"{group_digits(start)} to {group_digits(end)}"


def _as_given(range_: tuple[int, int]) -> str:
    start, end = range_
    if end >= 1 << 63:
        return f"{start}.."
    return str(start) if end == start + 1 else f"{start}..{end}"


def select_client_id(rows: pa.RecordBatch, text: str) -> pa.RecordBatch:
    """Return the rows whose producer gave them an id, also one that looks like an offset msg id."""
    column = rows.column("msg_id")
    return rows.filter(pc.fill_null(pc.is_in(column, pa.array(spellings(text), column.type)), False))


ITEM_COLUMNS = frozenset({"sys_flag", "body"})
_BETWEEN_NAME_AND_VALUE, _BETWEEN = b"\x01", b"\x02"


def batch_topics(store: Store) -> tuple[str, ...]:
    """Return the topics with batch queues."""
    return tuple(sorted({file.topic for file in store.queue_files if file.kind == "batch_queue"}))


def select_items(rows: pa.RecordBatch, text: str, name: str) -> pa.RecordBatch:
    """Return the inner batches with a message whose property `name`, KEYS or UNIQ_KEY, has a text."""
    flags, bodies = rows.column("sys_flag").to_numpy(), rows.column("body")
    wanted = {one.encode("utf-8", "surrogatepass") for one in (spellings(text) if name == "UNIQ_KEY" else (text,))}
    passing = np.zeros(rows.num_rows, np.bool_)
    for row in np.flatnonzero(flags & SysFlag.INNER_BATCH).tolist():
        body = bodies[row].as_py() or b""
        values = (value for one in items_of(body) if (value := one.get(name.encode())) is not None)
        passing[row] = any(wanted & {value, *value.split(b" ")} for value in values)
    return rows.filter(pa.array(passing))


def select_replaced(rows: pa.RecordBatch, text: str, log: RecordReader) -> pa.RecordBatch:
    """Return the rows that have an id as one of several UNIQ_KEY."""
    wanted = {b"UNIQ_KEY" + _BETWEEN_NAME_AND_VALUE + one.encode("utf-8", "surrogatepass") for one in spellings(text)}
    passing = []
    for place in rows.column("physical_offset").to_pylist():
        record = log.fields_at(place)
        properties = record.fields.get("properties") if record is not None else None
        passing.append(properties is not None and not wanted.isdisjoint(bytes(properties.value).split(_BETWEEN)))
    return rows.filter(pa.array(passing, pa.bool_()))


def items_of(body: bytes) -> Iterator[dict[bytes, bytes]]:
    """Yield the properties of the messages of an inner batch, up to the first that cannot be parsed."""
    at = 0
    while at < len(body):
        item = walk_fields(message.BatchItem.subcons, body, start=at)
        if item.reason is not None or item.end <= at:
            return
        properties: Any = item.fields["properties"].value
        pairs = (pair.partition(_BETWEEN_NAME_AND_VALUE) for pair in bytes(properties).split(_BETWEEN))
        yield {name: value for name, sign, value in pairs if sign}
        at = item.end


COLUMNS = frozenset({"physical_offset", "store_timestamp", "status", "topic"})
"""Columns of `messages` that a search looks at."""


class Scope(Struct):
    """What was read of one store. Offsets are physical, times in microseconds."""

    way: str  # by the index, …
    told: str  # the way in more words; "" if there is no more to say
    spans: tuple[Span, ...]  # where the answer may lie: what was searched
    whole: Span  # of the log
    pointed: bool  # pointers led there: the rest of the log was left out
    records: int = 0  # that were read
    first_time: int | None = None  # of these records
    last_time: int | None = None
    statuses: Counter[str] = field(default_factory=Counter)  # of records that are not sound and could be a hit
    gaps: list[Span] = field(default_factory=list)  # in `spans`, that held records
    unread: list[str] = field(default_factory=list)  # messages: what could not be read
    stopped: bool = False  # a limit ended the pass: more records were read than `records`, maybe

    @property
    def is_whole(self) -> bool:
        """Whether all of the log was searched."""
        if self.whole[0] == self.whole[1]:
            return not self.unread  # a log that is not here was not searched
        return list(self.spans) == [self.whole]

    @property
    def complete(self) -> bool:
        """Whether all that should have been read was there, and was read: no gap, and the pass came to its end."""
        return not self.unread and not self.stopped and not self.gaps


Select = Callable[[pa.RecordBatch], pa.RecordBatch]


class Search:
    """A pass over one store."""

    def __init__(
        self, store: Store, look_up: LookUp | None, questions: Sequence[Question], request: Request, select: Select
    ) -> None:
        """Search what `look_up` names, None: the whole log; `select` chooses the rows."""
        self.store = store
        self._look_up, self._select = look_up, select
        whole = whole_log(store)
        offsets = request.offsets
        spans = look_up.spans if look_up is not None else tuple(intersect([whole], [offsets])) if offsets else (whole,)
        way, told = ("by a scan", "") if look_up is None else (look_up.way, look_up.told)
        self.scope = Scope(way, told, spans, whole, look_up is not None and list(spans) != [whole])
        self.near_keys = {one.text: NearKeys(one.alone.keys[0]) for one in questions if one.kind == KEY}
        self.near_ids = {one.text: NearIds(one.alone.ids[0]) for one in questions if one.kind == ID}
        wanted = {"keys"} if self.near_keys else set()
        wanted |= {"msg_id", "offset_msg_id", "born_timestamp"} if self.near_ids else set()
        self._told_unread = request.on_unreadable
        self._rows = 0  # that the search has looked at
        self._request = replace(
            request,
            columns=None if request.columns is None else request.columns | COLUMNS | wanted,
            # Near keys and ids are looked for among all records.
            records_of=() if self.near_keys or self.near_ids else request.records_of,
            with_damaged=True,
            on_records=self._note_records,
            on_gap=self._note_gap,
            on_unreadable=self._note_unread,
        )

    @classmethod
    def for_client_id(cls, log: RecordReader, question: Question, request: Request) -> "Search | None":
        """Return the search for an offset msg id as the id that a producer gave; None for other texts."""
        if question.place is None:
            return None
        text = question.asked
        way = by_index(log.store, None, {text: id_texts(text)})
        spans = tuple(merge(way.spans))
        look_up = LookUp(spans, spans, way.name, way.searched, asks_for_records=True, told=way.told)
        return cls(log.store, look_up, (question,), request, lambda rows: select_client_id(rows, text))

    @classmethod
    def in_batches(cls, log: RecordReader, question: Question, request: Request) -> "Search | None":
        """Return the search for a key or an id inside of inner batches; None without batch queues.

        It reads the whole log, and is left out where that takes long.
        """
        topics, (start, end) = batch_topics(log.store), whole_log(log.store)
        if not topics or question.kind not in (ID, KEY) or end - start > CONFIRMED:
            return None
        text, name = question.asked, "KEYS" if question.kind == KEY else "UNIQ_KEY"
        bytes_ = Selection(topics=topics, body_text=text.upper() if decode(text) else text)
        columns = None if request.columns is None else request.columns | ITEM_COLUMNS
        request = replace(request, records_of=(bytes_,), columns=columns)
        return cls(log.store, None, (), request, lambda rows: select_items(rows, text, name))

    @classmethod
    def replaced(cls, log: RecordReader, question: Question, request: Request) -> "Search | None":
        """Return the search for an id that the id of a batch replaced; None for other texts, or if it takes long."""
        text, (start, end) = question.asked, whole_log(log.store)
        if question.kind != ID or question.place is not None or not decode(text) or end - start > CONFIRMED:
            return None
        request = replace(request, records_of=(Selection(ids=(text,)),))
        return cls(log.store, None, (), request, lambda rows: select_replaced(rows, text, log))

    def rows(self) -> Generator[pa.RecordBatch]:
        """Yield the rows that pass; `scope` is complete behind the last one."""
        self.scope.stopped = True
        try:
            for batch in (
                message_rows(self.store, self._request)
                if self._look_up is None
                else planned_rows(self.store, self._look_up.to_read, self._request)
            ):
                self._look_at(batch)
                rows = self._select(batch)
                if rows.num_rows:
                    yield rows
        except Unreadable as error:
            self._note_unread(str(error))
        except GeneratorExit:
            # Records are counted behind their rows, a stretch of the log at a time.
            self.scope.records = max(self.scope.records, self._rows)
            raise
        self.scope.stopped = False
        self.scope.gaps = merge(self.scope.gaps)

    def _look_at(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        for row in pc.value_counts(batch.column("status")).to_pylist():
            if row["values"] not in (None, *SOUND["status"]):
                self.scope.statuses[row["values"]] += row["counts"]
        for keys in self.near_keys.values():
            keys.take(batch)
        for ids in self.near_ids.values():
            ids.take(batch)

    def _note_records(self, number: int, times: tuple[int, int] | None) -> None:
        scope = self.scope
        scope.records += number
        if times is not None:
            first, last = (time * 1000 for time in times)
            scope.first_time = first if scope.first_time is None else min(first, scope.first_time)
            scope.last_time = last if scope.last_time is None else max(last, scope.last_time)

    def _note_gap(self, _kind: str, start: int, end: int) -> None:
        self.scope.gaps += gaps_asked((start, end), self.scope.spans, self.scope.whole)

    def _note_unread(self, message: str) -> None:
        if message not in self.scope.unread:
            self.scope.unread.append(message)
            if self._told_unread is not None:
                self._told_unread(message)

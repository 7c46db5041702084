"""Why one store has no answer to a question, from evidence.

    an offset msg id       its address; what lies at its place            then the same text as a producer's id
    a queue offset         the ends of the queue; what its unit points at
    a physical offset      what lies there
    a key, an id           the same without the other filters; index entries that lead out of the log, or into a gap;
                           when the id was made; the gaps of what was searched
    anything else          the times of the log; the topics that there are

The first that holds is the reason. What was searched, and what was not, stands beside it (`search.Scope`); the answer
that follows is worded in `find.answers`.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.arrays import Span
from rmqinspect.codec.message_id import decode, host_text
from rmqinspect.consumequeue.units import units_around
from rmqinspect.errors import Unreadable
from rmqinspect.find import BEFORE, BEYOND, DAMAGED, EXPIRED, FILTERED, NOT_IN_QUEUE, NOT_THERE, OTHER_BROKER, UNREAD
from rmqinspect.find.answers import (
    ARRIVED,
    BY_ID,
    LIKELY,
    MAY_BE_GONE,
    answer_of,
    may_have_arrived,
    not_there,
    proven,
)
from rmqinspect.find.near import NearIds
from rmqinspect.find.places import Evidence, Found, describe_row, lies_at, stored_by
from rmqinspect.find.plan import LookUp, entries_of, id_texts, known_topics, plan_look_up, rows_at
from rmqinspect.find.queue_units import files_of_queue
from rmqinspect.find.search import (
    FILTERS,
    ID,
    KEY,
    OFFSET,
    QUEUE_OFFSET,
    Question,
    Scope,
    Search,
    Select,
    hidden,
    id_question,
    key_question,
    questions_of,
)
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection, is_pattern
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.redact import Redaction
from rmqinspect.tables.request import Request
from rmqinspect.text import count, describe_spans, group_digits
from rmqinspect.times import format_micros
from rmqinspect.topics import LMQ_PREFIX

OFFSET_ID, CLIENT_ID = "offset msg id", "msg id"
REPLACED, ITEM = "msg id, which the id of its batch replaced", "a message of an inner batch"
"""What an id may be; the last one may be a key, too."""

_GONE = (BEFORE, BEYOND, NOT_THERE)  # what has a record that is proven: not what a retention deleted, or was not read
_LOST = (BEFORE, EXPIRED, BEYOND, DAMAGED)  # what a place says of a record that was there

_NAMED = 3  # records that an explanation names
_QUEUES = 16  # queues that an explanation names


class Miss(Struct):
    """Why one store has no answer to one question."""

    store: str
    asked: str
    reading: str | None  # of an id: OFFSET_ID or CLIENT_ID
    reason: str  # a key of REASONS
    is_lost: bool  # whether damage has the record, or may have it: no proof that it never arrived
    text: str
    scope: Scope | None  # what was searched; None where only a place was looked at
    answer: str = ""  # the same for a person, in a sentence
    acknowledged: str = ""  # what is gone behind the end of the log, if the message may be among it
    place: int | None = None  # where its destroyed record is, a physical offset
    near: list[str] = field(default_factory=list)
    instead: list[str] = field(default_factory=list)  # what finds a record after all


class Explainer:
    """Explains the misses of one store."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        search: Search,
        request: Request,
        redaction: Redaction | None = None,
    ) -> None:
        self.store = store
        self._redaction = redaction
        self.evidence = Evidence(store)
        self._selection, self._search = selection, search
        self._request = replace(request, on_gap=None, offsets=None, on_unreadable=lambda message: None)

    def misses(self, question: Question, second: Search | None = None) -> Iterator[Miss]:
        """Yield why a question has no answer here, once for each way to read it.

        `second` is the search for an offset msg id as a producer's id.
        """
        if question.kind in (ID, KEY) and question.place is None:
            yield self._as_named(question, self._search, CLIENT_ID if question.kind == ID else None)
            return
        rules = {ID: self._offset_id, QUEUE_OFFSET: self._queue_offset, OFFSET: self._offset, FILTERS: self._filters}
        found = next(filter(None, rules[question.kind](question)))
        reading, scope = (OFFSET_ID, None) if question.kind == ID else (None, self._search.scope)
        yield self._miss(question, reading, found, scope, self._near_topics())
        if second is not None:
            yield self._as_named(question, second, CLIENT_ID)

    def _miss(
        self,
        question: Question,
        reading: str | None,
        found: Found,
        scope: Scope | None,
        near: list[str],
        instead: Sequence[str] = (),
    ) -> Miss:
        answer = found.answer or answer_of(question.kind, found.reason)
        if found.proof:
            answer = proven(found.proof, found.reason, found.fate)
        gone = self.evidence.acknowledged if self._may_be_behind_the_end(question, found) else ""
        if gone and not found.proof:
            answer = f"{answer} {MAY_BE_GONE}"
        return Miss(
            self.store.name,
            question.shown,
            reading,
            found.reason,
            found.reason == DAMAGED or bool(gone) or bool(found.proof and found.reason in _GONE),
            found.text,
            scope,
            answer,
            gone,
            found.place,
            near,
            list(instead),
        )

    def _may_be_behind_the_end(self, question: Question, found: Found) -> bool:
        """Whether what was asked for may have been stored behind what is now the end of the log."""
        until, last = self._selection.until, self.evidence.last_time
        offsets, end = self._selection.offsets, self.evidence.end.end
        in_the_log = until is not None and last is not None and until <= last
        in_the_log |= offsets is not None and end is not None and offsets[1] <= end
        if found.proof or in_the_log:
            return found.reason == BEYOND
        asked_place = found.reason in (NOT_THERE, DAMAGED) and question.kind == OFFSET
        return found.reason in (BEYOND, NOT_THERE, DAMAGED) and not asked_place

    @property
    def _lacks_its_beginning(self) -> bool:
        """Whether the log has lost its beginning; files without their neighbours say nothing."""
        return self.store.neighbours and self.store.log_start > 0

    # --- rules: the first that holds is the reason, and what is behind it is not looked at ---------------

    def _offset_id(self, question: Question) -> Iterator[Found | None]:
        broker, place = question.broker, question.place
        assert broker is not None
        assert place is not None
        address = host_text(broker.address, broker.port)
        rows = list(rows_at(self.store, [place], Request(on_unreadable=lambda message: None)))
        here = {stored_by(row) for row in rows} or set(self.evidence.hosts)
        found = self._excluded(question, rows) or lies_at(self.evidence, place)
        named = hidden(self._redaction, "hosts", address)
        if not here or address in here:
            text = f"broker {named}{' (this store)' if here else ''}, {found.text}"
            yield found._replace(text=text, proof=BY_ID if found.reason in _LOST and here else "")
            return
        stored = ", ".join(hidden(self._redaction, "hosts", one) for one in sorted(here))
        text = found.text
        if rows:
            text = f"{describe_row(rows[0])}, its id is {hidden(self._redaction, 'hosts', rows[0]['offset_msg_id'])}"
        yield Found(OTHER_BROKER, f"the id names {named}; the records here were stored by {stored}; here: {text}")

    def _offset(self, question: Question) -> Iterator[Found | None]:
        assert question.alone.offsets is not None
        yield self._excluded(question, self._relaxed(question))
        yield lies_at(self.evidence, question.alone.offsets[0])

    def _queue_offset(self, question: Question) -> Iterator[Found | None]:
        topic, queue_id, wanted = question.alone.topics[0], question.alone.queue_id, question.alone.queue_offsets
        assert wanted is not None
        assert queue_id is not None
        yield self._excluded(question, self._relaxed(question))
        everywhere = dataclasses.replace(question.alone, in_queues=False)
        if unqueued := self._first(self._plan(everywhere), everywhere.select_rows):
            kinds = ", ".join(f"{describe_row(row)} is {row['transaction']}" for row in unqueued[:_NAMED])
            yield Found(NOT_IN_QUEUE, f"{kinds}: such records get no queue unit")
        scope, queue = self._search.scope, f"queue {queue_id} of {topic}"
        ends = [one for one in self.evidence.queues if (one.topic, one.queue_id) == (topic, queue_id)]
        if not ends and self.evidence.problems:
            text = f"no record {question.words}, nor could its units be read: {self.evidence.problems[0]}"
            yield self._in_scope(UNREAD, text, scope)
        if not ends and (why := why_unknown(self.store, "queues", topic, str(queue_id))):
            yield self._in_scope(UNREAD, f"no record {question.words}; not known: {why}", scope)
        if not ends:
            others = sorted({file.queue_id for file in self.store.queue_files if file.topic == topic})
            has = f"{topic} has the queues {', '.join(map(str, others[:_QUEUES]))}"
            yield self._in_scope(
                NOT_THERE, f"{queue} has no files; {has if others else 'no such topic has a queue'}", scope
            )
        first, end = min(one.first_kept for one in ends), max(one.max_offset for one in ends)
        reach = f"{queue} has messages from {group_digits(first)} to {group_digits(end - 1)}"
        if first == end:
            reach = f"{queue} has no message; its next is {group_digits(end)}"
        if wanted[0] >= end:
            yield self._in_scope(BEYOND, f"{reach}, none behind", scope)
        if wanted[1] <= first and self._lacks_its_beginning:
            yield Found(self.evidence.before, f"{reach}; {self.evidence.begins}")
        # What lies where its unit points at.
        try:
            found = where_unit_leads(self.evidence, topic, queue_id, wanted)
        except Unreadable as error:
            yield Found(UNREAD, str(error))
            return
        if found is None:
            yield self._in_scope(NOT_THERE, f"{reach}, but no unit there", scope)
            return
        yield found._replace(text=f"{reach}; its unit leads there: {found.text}", proof=ARRIVED)

    # --- keys and producers' ids -------------------------------------------------------------------

    def _as_named(self, question: Question, search: Search, reading: str | None) -> Miss:
        text = question.asked
        found = next(filter(None, self._rules_of_name(question, search)))
        near = [] if found.reason == FILTERED else [*self._near(question, search), *self._near_topics()]
        return self._miss(question, reading, found, search.scope, near, list(self._instead(question, text)))

    def _rules_of_name(self, question: Question, search: Search) -> Iterator[Found | None]:
        # An entry names topic and key: it is about the record that was asked for, other topics are not.
        if self._selection.topics:
            yield self._by_entries(question.asked)
        yield self._excluded(question, self._relaxed(question))
        yield self._by_entries(question.asked)
        yield self._by_time(search.near_ids.get(question.text))
        topics = f" of {', '.join(self._selection.topics)}" if self._selection.topics else ""
        nobody = f"no record{topics} {question.words}"
        if question.place is not None:
            nobody = f"no record has the UNIQ_KEY {hidden(self._redaction, 'hosts', question.asked)}"
        yield self._in_scope(NOT_THERE, nobody, search.scope)

    def _relaxed(self, question: Question) -> list[dict[str, Any]]:
        """Return a few records that answer a question, whatever the other filters say; none without others."""
        if question.others(self._selection) == Selection():
            return []
        return self._first(self._plan(question.alone), question.select)

    def _plan(self, selection: Selection) -> LookUp | None:
        """Return what to read for other filters; None where nothing leads there, or it cannot be read."""
        try:
            return plan_look_up(self.store, selection)
        except Unreadable:
            return None

    def _first(self, look_up: LookUp | None, select: Select) -> list[dict[str, Any]]:
        """Return a few rows; first those that are bound for a topic asked for."""
        rows: list[dict[str, Any]] = []
        if look_up is None:
            return rows
        columns = frozenset(SCHEMA.names) - {"body"} | self._selection.columns(SCHEMA)
        search = Search(self.store, look_up, (), replace(self._request, columns=columns), select)
        for batch in search.rows():
            bound = pc.fill_null(
                pc.is_in(batch.column("real_topic"), pa.array(self._selection.topics, pa.string())), False
            )
            for some in (batch.filter(bound), batch.filter(pc.invert(bound))):
                rows += some.slice(0, _NAMED).to_pylist()
            rows = sorted(rows, key=lambda row: row["real_topic"] not in self._selection.topics)[:_NAMED]
        return rows

    def _excluded(self, question: Question, rows: Sequence[dict[str, Any]]) -> Found | None:
        """Return which other filters exclude some records; None where there are none, or none is excluded."""
        others, told = question.others(self._selection), []
        for row in rows[:_NAMED]:
            options = others.excluding(pa.RecordBatch.from_pylist([row], schema=SCHEMA))
            if options:
                bound = f", bound for {row['real_topic']}," if row["real_topic"] in self._selection.topics else ""
                told.append(f"{describe_row(row)}{bound} is excluded by {', '.join(options)}")
        return Found(FILTERED, "; ".join(told)) if told else None

    def _by_entries(self, text: str) -> Found | None:
        """Return where index entries with the hash of a key lead, if that is no record."""
        topics = self._selection.topics
        asked = None if not topics or any(map(is_pattern, topics)) else topics
        places = entries_of(self.store, asked, {text: id_texts(text)}).places[text]
        for place in sorted(places)[-_NAMED:]:
            found = lies_at(self.evidence, place)
            if found.reason != NOT_THERE:
                return found._replace(text=f"an index entry with its hash leads there: {found.text}", proof=LIKELY)
        return None

    def _by_time(self, ids: NearIds | None) -> Found | None:
        """Return that a Java client made an id before the log begins."""
        made, first = None if ids is None else ids.made(), self.evidence.first_time
        if made is None or first is None or not self._lacks_its_beginning or made > first:
            return None
        when = format_micros(made)
        by = "by its own time, and other ids of the same process"
        return Found(self.evidence.before, f"{by}, the id was made at {when}; {self.evidence.begins}")

    def _in_scope(self, reason: str, text: str, scope: Scope) -> Found:
        """Return a reason, or another one where what was searched has gaps, or could not be read."""
        if not self.store.segments and (self.evidence.no_log.reason == UNREAD or not scope.unread):
            before = f"{text}; " if reason == UNREAD else ""
            return Found(self.evidence.no_log.reason, f"{before}{self.evidence.no_log.text}")
        if scope.unread:
            return Found(UNREAD, f"{text}; not all could be read: {'; '.join(scope.unread[:_NAMED])}")
        if scope.gaps:
            size = count(sum(end - start for start, end in scope.gaps), "byte")
            ranges = describe_spans(scope.gaps, _NAMED)
            text = f"{text}; {count(len(scope.gaps), 'gap')} of {size} may have held it: {ranges}"
            return Found(DAMAGED, text, answer=may_have_arrived(self.store, scope.gaps))
        return Found(reason, text, answer=self._not_there(scope) if reason == NOT_THERE else "")

    def _not_there(self, scope: Scope) -> str:
        first = self.evidence.first_time if self._lacks_its_beginning else None
        begins = "" if first is None else format_micros(first)
        return not_there(scope, whole_store=self.store.neighbours, begins=begins)

    # --- anything else ------------------------------------------------------------------------------

    def _filters(self, _question: Question) -> Iterator[Found | None]:
        selection, evidence, scope = self._selection, self.evidence, self._search.scope
        first, last = evidence.first_time, evidence.last_time
        if selection.time_column == "store_timestamp" and first is not None and last is not None:
            if selection.until is not None and selection.until <= first and self._lacks_its_beginning:
                until = format_micros(selection.until)
                yield Found(evidence.before, f"nothing is here that was stored before {until}: {evidence.begins}")
            if selection.since is not None and selection.since > last and self.store.neighbours:
                yield Found(BEYOND, f"the last record was stored at {format_micros(last)}, before the time asked for")
        light = any(topic.startswith(LMQ_PREFIX) for topic in selection.topics)  # their units alone name them
        if light and (why := why_unknown(self.store, "queues")):
            yield self._in_scope(UNREAD, f"not known: {why}", scope)
        yield self._in_scope(NOT_THERE, "no record passes all filters", scope)

    def _near(self, question: Question, search: Search) -> list[str]:
        """Return the keys or ids next to the one asked for."""
        if question.kind == KEY:
            near = search.near_keys[question.text]
            return near.texts(lambda key: hidden(self._redaction, "keys", key))
        ids = search.near_ids[question.text]
        return [
            f"{hidden(self._redaction, 'hosts', one.msg_id)} at {group_digits(one.physical_offset)}"
            for one in (ids.before, ids.behind)
            if one is not None
        ]

    def _near_topics(self) -> list[str]:
        near: list[str] = []
        for pattern in self._selection.unmatched_topics():
            names = get_close_matches(pattern, known_topics(self.store) | self._selection.topics_seen, 3, 0.5)
            near += [f"topic {name}" for name in names]
        return near

    def _instead(self, question: Question, text: str) -> Iterator[str]:
        """Yield the options that find the same text as something else."""
        other = key_question(text, self._redaction) if question.kind == ID else None
        if other is None and decode(text):
            other = id_question(text, self._redaction)
        if other is not None and (rows := self._first(self._plan(other.alone), other.select)):
            yield f"{other.shown} finds {describe_row(rows[0])}"
        if question.kind == KEY and " " in text:
            words = " ".join(key_question(one, self._redaction).shown for one in text.split())
            yield f"a key holds no space, which stands between keys: {words}"


def where_unit_leads(evidence: Evidence, topic: str, queue_id: int, wanted: Span) -> Found | None:
    """Return why no record is where the unit of a queue offset leads; None without a unit.

    Of a range of queue offsets the first unit counts, of a batch queue the unit of the batch.

    :raises Unreadable: an I/O error.
    """
    offsets, places = units_around(files_of_queue(evidence.store, topic, queue_id), *wanted)
    if not len(places):
        return None
    return lies_at(evidence, int(places[max(0, int(np.searchsorted(offsets, wanted[0], "right")) - 1)]))


def destroyed_records(store: Store, selection: Selection) -> Iterator[Found]:
    """Yield of the queue offsets that a selection asks for those whose unit leads to a destroyed record.

    :raises Unreadable: an I/O error.
    """
    for question in questions_of(selection):
        if question.kind == QUEUE_OFFSET:
            alone = question.alone
            assert alone.queue_id is not None
            assert alone.queue_offsets is not None
            found = where_unit_leads(Evidence(store), alone.topics[0], alone.queue_id, alone.queue_offsets)
            if found is not None and found.reason == DAMAGED:
                yield found

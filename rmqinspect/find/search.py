"""One pass over what is read of a store for an answer: the rows that pass, and what the pass saw.

What it saw is the scope of the answer, and stands in the explanation of a miss: which part of the log, how many
records, of which times, with which damage, and which keys and ids were nearly the ones asked for.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.message_id import decode
from rmqinspect.errors import Unreadable
from rmqinspect.find.batches import ITEM_COLUMNS, batch_topics, select_items, select_replaced
from rmqinspect.find.keys import CONFIRMED, by_index
from rmqinspect.find.near import NearIds, NearKeys
from rmqinspect.find.plan import LookUp
from rmqinspect.find.questions import ID, KEY, Question, select_client_id
from rmqinspect.find.read import planned_rows
from rmqinspect.find.spans import Log, whole_log
from rmqinspect.index.lookup import Span, intersect, merge
from rmqinspect.statuses import SOUND
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection, spellings
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.table import Request

COLUMNS = frozenset({"physical_offset", "store_timestamp", "status", "topic"})
"""Columns of `messages` that a search looks at."""


@dataclass(slots=True)
class Scope:
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
    stopped: bool = False  # a limit ended the pass

    @property
    def is_whole(self) -> bool:
        """Whether all of the log was searched."""
        return list(self.spans) == [self.whole] or self.whole[0] == self.whole[1]

    @property
    def complete(self) -> bool:
        """Whether all that should have been read was."""
        return not self.unread and not self.stopped


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
    def for_client_id(cls, store: Store, question: Question, request: Request) -> "Search":
        """Return the search for an offset msg id as the id that a producer gave, in all topics."""
        text = question.asked
        way = by_index(store, None, {text: spellings(text)})
        spans = tuple(merge(way.spans))
        look_up = LookUp(spans, spans, way.name, way.searched, asks_for_records=True, told=way.told)
        return cls(store, look_up, (question,), request, lambda rows: select_client_id(rows, text))

    @classmethod
    def in_batches(cls, store: Store, question: Question, request: Request) -> "Search | None":
        """Return the search for a key or an id inside of inner batches; None without batch queues.

        It reads the whole log, and is left out where that takes long.
        """
        topics, (start, end) = batch_topics(store), whole_log(store)
        if not topics or question.kind not in (ID, KEY) or end - start > CONFIRMED:
            return None
        text, name = question.asked, "KEYS" if question.kind == KEY else "UNIQ_KEY"
        bytes_ = Selection(topics=topics, body_text=text.upper() if decode(text) else text)
        columns = None if request.columns is None else request.columns | ITEM_COLUMNS
        request = replace(request, records_of=(bytes_,), columns=columns)
        return cls(store, None, (), request, lambda rows: select_items(rows, text, name))

    @classmethod
    def replaced(cls, store: Store, question: Question, request: Request, log: Log) -> "Search | None":
        """Return the search for an id that the id of a batch replaced; None for other texts, or if it takes long."""
        text, (start, end) = question.asked, whole_log(store)
        if question.kind != ID or question.place is not None or not decode(text) or end - start > CONFIRMED:
            return None
        request = replace(request, records_of=(Selection(ids=(text,)),))
        return cls(store, None, (), request, lambda rows: select_replaced(rows, text, log))

    def rows(self) -> Generator[pa.RecordBatch]:
        """Yield the rows that pass; `scope` is complete behind the last one."""
        self.scope.stopped = True
        try:
            for batch in self._batches():
                self._look_at(batch)
                rows = self._select(batch)
                if rows.num_rows:
                    yield rows
        except Unreadable as error:
            self._note_unread(str(error))
        self.scope.stopped = False
        self.scope.gaps = merge(self.scope.gaps)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._look_up is None:
            return message_rows(self.store, self._request)
        return planned_rows(self.store, self._look_up.to_read, self._request)

    def _look_at(self, batch: pa.RecordBatch) -> None:
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
        self.scope.gaps += intersect([(start, end)], merge(self.scope.spans))

    def _note_unread(self, message: str) -> None:
        if message not in self.scope.unread:
            self.scope.unread.append(message)
            if self._told_unread is not None:
                self._told_unread(message)

"""One question to several stores, such as the brokers of a cluster: hits, and why there are none.

stores, each with its plan -> Search -> hits -> the questions that they answer
an offset msg id without a hit -> searched again as a producer's id; an id or a key in batches
questions without a hit in any store -> Explainer -> a miss for each store (`find.misses`)
"""

import dataclasses
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.arrays import Span, merge
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.errors import NothingFound, RecordLost, Unreadable
from rmqinspect.find import UNREAD
from rmqinspect.find.answers import foremost
from rmqinspect.find.misses import CLIENT_ID, ITEM, OFFSET_ID, REPLACED, Explainer, Miss
from rmqinspect.find.plan import LookUp, plan_look_up
from rmqinspect.find.search import (
    FILTERS,
    ID,
    KEY,
    Question,
    Scope,
    Search,
    questions_of,
)
from rmqinspect.statuses import SOUND
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.redact import Redaction
from rmqinspect.tables.request import Request

# Ways to search again for what was not found: what an id or a key turns out to be, in this order for all stores.
_OTHER_WAYS = ((CLIENT_ID, Search.for_client_id), (REPLACED, Search.replaced), (ITEM, Search.in_batches))


class Target(NamedTuple):
    """A store, and what of it is searched."""

    store: Store
    selection: Selection
    look_up: LookUp | None  # None: the whole log
    request: Request
    unread: tuple[str, ...] = ()  # files and folders of the log that cannot be read


class Searched(Struct, frozen=True):
    """What was read of one store, and what it holds."""

    store: Store
    scope: Scope
    hits: int
    second: Mapping[Question, Scope]  # of ids that were searched again, as those of producers


class Finding:
    """A search of some stores; `hits` first, then the rest."""

    def __init__(
        self,
        targets: Sequence[Target],
        selection: Selection,
        limit: int | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        """Search at most until there are `limit` hits; misses and readings are told without what is to be hidden."""
        self.questions = questions_of(selection, redaction)
        self._redaction = redaction
        self.more: str | None = None  # whether hits follow the limit: more exist, more may exist
        self.hits_of: Counter[str] = Counter()  # by store
        self.bad_hits = 0
        self.beside: dict[str, None] = {}  # what could not be read beside what was searched: queues, groups
        self.readings: dict[Question, str] = {}  # what an id turned out to be, and a key that is none
        self._answered: set[str] = set()
        self._limit = limit
        self._targets = targets
        self._searches = [
            Search(
                one.store,
                one.look_up,
                self.questions,
                replace(one.request, records_of=(one.selection,)),
                one.selection.select_rows,
            )
            for one in targets
        ]
        for one, search in zip(targets, self._searches, strict=True):
            search.scope.unread += one.unread
        self._second: dict[tuple[str, Question], Search] = {}  # by store

    @property
    def total(self) -> int:
        """The hits so far."""
        return self.hits_of.total()

    @property
    def searched(self) -> list[Searched]:
        """What was read of each store."""
        return [
            Searched(
                one.store,
                one.scope,
                self.hits_of[one.store.name],
                {question: search.scope for (name, question), search in self._second.items() if name == one.store.name},
            )
            for one in self._searches
        ]

    @property
    def unanswered(self) -> list[Question]:
        """The questions without a hit in any store; none if a limit ended the search."""
        return [] if self.more else [one for one in self.questions if one.text not in self._answered]

    @property
    def unread(self) -> list[str]:
        """What could not be read."""
        scopes = [scope for one in self.searched for scope in (one.scope, *one.second.values())]
        return list(dict.fromkeys([*(message for scope in scopes for message in scope.unread), *self.beside]))

    @property
    def complete(self) -> bool:
        """Whether all that was searched was there and could be read."""
        scopes = [scope for one in self.searched for scope in (one.scope, *one.second.values())]
        return not self.unread and not any(scope.gaps for scope in scopes)

    @property
    def lacking(self) -> dict[str, list[Span]]:
        """The gaps, by store, that may hold more hits: an offset or an id has one, a key or a filter any number."""
        if self.more or self.unanswered or all(one.kind not in (KEY, FILTERS) for one in self.questions):
            return {}
        return {one.store.name: merge(one.scope.gaps) for one in self.searched if one.scope.gaps}

    @property
    def is_cut_short(self) -> bool:
        """Whether all of something was asked for, and damage has, or may have, some: one message is there or not."""
        return bool(self.lacking) and any(one.kind == FILTERS for one in self.questions)

    def hits(self) -> Generator[tuple[Store, pa.RecordBatch]]:
        """Yield the rows that pass, with all columns, store by store."""
        with closing(self._all_hits()) as found:
            for store, rows in found:
                room = rows.num_rows if self._limit is None else self._limit - self.total
                if room < rows.num_rows:
                    self.more = "more exist"
                    rows = rows.slice(0, room)
                self._count(store, rows)
                if rows.num_rows:
                    yield store, rows
                if self.more is None and self.total == self._limit:
                    self.more = "more may exist"
                if self.more is not None:
                    return

    def _all_hits(self) -> Generator[tuple[Store, pa.RecordBatch]]:
        for search in self._searches:
            for rows in search.rows():
                self._attribute(rows)
                yield search.store, rows
        for reading, again in _OTHER_WAYS:
            for target in self._targets if self.more is None else ():
                for question in self.unanswered:
                    with RecordReader(target.store) as log:
                        second = again(log, question, target.request)
                        if second is None:
                            continue
                        if reading == CLIENT_ID:
                            self._second[target.store.name, question] = second
                        second.scope.unread += target.unread
                        others = question.others(target.selection)
                        for rows in second.rows():
                            passing = others.select_rows(rows)
                            if passing.num_rows:
                                self._answered.add(question.text)
                                self.readings[question] = reading
                                yield target.store, passing

    def _attribute(self, rows: pa.RecordBatch) -> None:
        for question in self.questions:
            if question.text not in self._answered and question.select(rows).num_rows:
                self._answered.add(question.text)
                if (
                    question.kind == KEY
                    and not dataclasses.replace(question.alone, keys_name_ids=False).select_rows(rows).num_rows
                ):
                    self.readings[question] = CLIENT_ID
                if question.kind == ID:
                    self.readings[question] = CLIENT_ID if question.place is None else OFFSET_ID

    def _count(self, store: Store, rows: pa.RecordBatch) -> None:
        self.hits_of[store.name] += rows.num_rows
        self.bad_hits += sum(status not in SOUND["status"] for status in rows.column("status").to_pylist())

    def misses(self) -> Iterator[Miss]:
        """Yield why the questions without a hit have none, store by store."""
        unanswered = self.unanswered
        for target, search in zip(self._targets, self._searches, strict=True) if unanswered else ():
            explainer = Explainer(target.store, target.selection, search, target.request, self._redaction)
            for question in unanswered:
                for miss in explainer.misses(question, self._second.get((target.store.name, question))):
                    if miss.reason == UNREAD:
                        self.beside[miss.text] = None
                    yield miss


def answers(misses: Iterable[Miss]) -> Iterator[Miss]:
    """Yield of each question and store the miss that answers it: a text may be read in several ways."""
    for _, readings in groupby(misses, key=lambda miss: (miss.store, miss.asked)):
        some = list(readings)
        yield some[foremost([miss.reason for miss in some])]


def find_records(store: Store, selection: Selection, most: int) -> tuple[list[int], str]:
    """Return the physical offsets of up to `most` records, in the order of the log, and how they were found.

    Where one is destroyed, of which a queue unit or an index entry still says where it was, that is its place.

    :raises NothingFound: there are none; the message says why.
    :raises RecordLost: damage has them, or may have them.
    :raises Unreadable: something that had to be read for that could not be read.
    """
    look_up = plan_look_up(store, selection)
    if look_up is None:
        raise NothingFound(f"{store.name}: no commit log given, so there is no record")
    finding = Finding([Target(store, selection, look_up, Request(columns=selection.columns(SCHEMA)))], selection, most)
    places: list[int] = []
    for _, rows in finding.hits():
        places += rows.column("physical_offset").to_pylist()
    if places:
        return sorted(places), look_up.way
    misses = list(finding.misses())
    destroyed = [miss.place for miss in misses if miss.place is not None]
    if destroyed:
        return sorted(set(destroyed)), look_up.way
    (miss,) = answers(misses)
    text = f"{store.name}: {miss.answer} ({miss.text})"
    if finding.unread:
        raise Unreadable(text)
    raise RecordLost(text) if miss.is_lost else NothingFound(text)

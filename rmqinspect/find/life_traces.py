"""What clients traced of one message: who sent it, and what each consumer made of it.

    by the index     the records of trace topics have the ids of the messages as keys
    by their queue   the next records of the trace topics behind the message: of a batch the ids are one key, and what
                     the index does not cover

A SubBefore and a SubAfter of one request are one consumption. Clients leave traces out under load, and lose them when
they are killed: what is not traced may have happened all the same.

Source: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl, EndTransactionTraceHookImpl.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rmqinspect.codec.arrays import Span, uncovered
from rmqinspect.codec.java import index_hash, index_key
from rmqinspect.find.life_records import MOST_NOTES, LifeRecords, Step
from rmqinspect.find.traces import SCHEMA, contexts_at, trace_topics
from rmqinspect.index.lookup import look_up
from rmqinspect.tables.filters import is_pattern
from rmqinspect.text import count
from rmqinspect.times import to_micros

_NEAR = 200  # records of a trace topic behind a message that are read whatever the index says: some seconds
_MANY_TOPICS = 200  # with a queue: in stores with more, traces are looked for in topics with known names alone
_MOST_KEPT = 1 << 18  # contexts, for the next lives
_KINDS = {
    "Pub": "sent",
    "SubBefore": "consumed",
    "SubAfter": "consumed",
    "EndTransaction": "ended",
    "Recall": "recalled",
}


class Traced(Struct, frozen=True):
    """What a client traced of one sending, consumption, end of a transaction, or recall. Times are ms."""

    kind: str  # sent, consumed, ended, recalled
    group: str | None
    client: str | None  # address that the trace came from
    began: int | None  # by the client's clock; of what has no beginning: when it was traced
    ended: int | None  # of a consumption: None where nothing says that it has ended, or when
    cost_ms: int | None
    success: bool | None  # None: not told, as of a consumption that has no end
    result: str | None  # of a consumption
    reconsume_times: int | None  # of a consumption
    transaction_state: str | None  # of the end of a transaction
    from_check: bool | None
    messages: int  # that were sent together: a batch
    places: tuple[int, ...]  # physical offsets of the records that say so


class TraceRecords:
    """The traces of one store, as far as lives ask for them; keeps what several lives need."""

    def __init__(self, records: LifeRecords, asked: tuple[str, ...] = ()) -> None:
        """Take the topics that the user says hold traces, besides those that are found."""
        self._records, self._asked = records, asked
        self._read: set[int] = set()
        self._contexts = SCHEMA.empty_table()

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The trace topics of the store."""
        found = trace_topics(self._records.store, self._asked, self._records.unread, _MANY_TOPICS)
        return tuple(topic for topic in found if not is_pattern(topic))

    def of(self, steps: Sequence[Step], others: Sequence[Step] = ()) -> tuple[list[Traced], list[str]]:
        """Return what was traced of the message of some records, by time; and what is not known of it.

        `others` are records of other messages with its id: where they have other keys, the keys tell them apart.

        :raises Unreadable: an I/O error.
        """
        ids = {step.properties["UNIQ_KEY"] for step in steps if "UNIQ_KEY" in step.properties}
        stored = {step.offset_msg_id for step in steps}
        # A message without an id has for a client that of its place.
        ids = ids or stored
        if not self.topics or not steps or steps[0].topic in self.topics:
            return [], []
        hashes = {one: [index_hash(index_key(topic, one)) for topic in self.topics] for one in ids}
        found = look_up(self._records.index_files, hashes, self._records.log.follows, self._records.spans_of)
        places = set[int]().union(*found.places.values())
        near, complete = self._near(min(step.physical_offset for step in steps), found.covered)
        rows = self._rows(places | near, ids, stored)
        if others:
            rows = [row for row in rows if row["type"] == "Pub" or tuple(row["keys"] or ()) == steps[0].keys]
        traced = sorted(_joined(rows), key=lambda one: (one.began or one.ended or 0, one.places))
        alike = sum(other.keys == steps[0].keys for other in others)
        return traced, list(_unknown(traced, alike, complete=complete))

    def _near(self, place: int, covered: Sequence[Span]) -> tuple[set[int], bool]:
        """Return the traces behind a message that the index may not lead to; and whether these are all."""
        found: set[int] = set()
        complete = True
        for topic in self.topics if self._records.store.queue_files else ():
            behind, all_of_them = self._records.places_behind(topic, place, MOST_NOTES)
            found.update(behind[:_NEAR])
            found.update(at for at in behind[_NEAR:] if uncovered(covered, (at, at + 1)))
            if not all_of_them:
                complete = complete and not uncovered(covered, (behind[-1], self._records.end))
        return found, complete

    def _rows(self, places: set[int], ids: Collection[str], stored: Collection[str]) -> list[dict[str, Any]]:
        """Return the contexts in some records that are about a message."""
        if self._contexts.num_rows > _MOST_KEPT:
            self._read, self._contexts = set(), SCHEMA.empty_table()
        if new := places - self._read:
            records = self._records
            found = contexts_at(records.store, new, records.log, records.unread.append)
            self._contexts = pa.concat_tables([self._contexts, found])
            self._read |= new
        mask = pc.is_in(self._contexts["msg_id"], pa.array(sorted(ids)))
        for name, texts in (("msg_id", ids), ("offset_msg_id", stored)):
            for one in texts:  # of a batch: among others
                mask = pc.or_(mask, pc.fill_null(pc.match_substring(self._contexts[name], one), False))
        rows: list[dict[str, Any]] = self._contexts.filter(mask).to_pylist()
        return [row for row in rows if _names(row["msg_id"], ids) or _names(row["offset_msg_id"], stored)]


def _names(text: str | None, wanted: Collection[str]) -> bool:
    return text is not None and not set(text.split(",")).isdisjoint(wanted)


def _joined(rows: Sequence[dict[str, Any]]) -> Iterator[Traced]:
    """Yield what some contexts say, those of one consumption together."""
    known = [row for row in rows if row["type"] in _KINDS]

    def consumption(row: dict[str, Any]) -> tuple[str, str, int, int]:
        if _KINDS[row["type"]] == "consumed" and row["request_id"] is not None:
            return "consumed", row["request_id"], 0, 0
        return row["type"], "", row["physical_offset"], row["number"]

    for _, some in groupby(sorted(known, key=consumption), consumption):
        parts = {row["type"]: row for row in some}
        first = next(iter(parts.values()))
        before, after = parts.get("SubBefore", {}), parts.get("SubAfter", {})
        told = after or first
        yield Traced(
            _KINDS[first["type"]],
            next((row["group"] for row in parts.values() if row["group"] is not None), None),
            first["born_host"],
            _millis((before or ({} if after else first)).get("client_timestamp")),
            _millis(after.get("client_timestamp")),
            told["cost_ms"],
            told["success"],
            told["result"],
            before.get("reconsume_times"),
            told["transaction_state"],
            told["from_transaction_check"],
            len((told["msg_id"] or "").split(",")),
            tuple(sorted({row["physical_offset"] for row in parts.values()})),
        )


def _millis(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time) // 1000


def _unknown(traced: Sequence[Traced], alike: int, *, complete: bool) -> Iterator[str]:
    """Yield what is not known of the traces of a message; `alike`: other messages with the same id and keys."""
    if alike and any(one.kind == "consumed" for one in traced):
        yield f"whether the consumptions traced are its own: {count(alike, 'other message')} with its id and keys"
    if not complete:
        yield "not all traces behind it were searched"

"""What a search is asked for, one by one: each question is answered, or its miss explained.

--id A --id B -t orders             two questions, the ids; the topic is a filter that may exclude an answer
-k K1 -k K2                         two questions, the keys
-t orders --queue 0 --queue-offset  one question for each topic
--offset A..B                       one question
anything else                       one question: all filters together
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.message_id import OffsetId, decode, offset_place
from rmqinspect.tables.filters import Selection, is_pattern, spellings
from rmqinspect.tables.redact import Redaction
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


@dataclass(frozen=True, slots=True)
class Question:
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
        return replace(selection, **{name: getattr(none, name) for name in _PARTS[self.kind]})

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
    return list(_questions(selection, redaction))


def _questions(selection: Selection, redaction: Redaction | None) -> Iterator[Question]:
    topics = selection.topics if not any(map(is_pattern, selection.topics)) else ()
    if selection.ids:
        yield from (id_question(one, redaction) for one in dict.fromkeys(selection.ids))
    elif selection.queue_offsets is not None and topics and selection.queue_id is not None:
        bare = Selection(queue_id=selection.queue_id, queue_offsets=selection.queue_offsets, in_queues=True)
        where = f"queue {selection.queue_id} at {describe_range(selection.queue_offsets)}"
        for topic in dict.fromkeys(topics):
            text = f"-t {topic} --queue {selection.queue_id} --queue-offset {_as_given(selection.queue_offsets)}"
            yield Question(QUEUE_OFFSET, text, replace(bare, topics=(topic,)), f"is in {topic} {where}", text)
    elif selection.keys:
        yield from (key_question(one, redaction) for one in dict.fromkeys(selection.keys))
    elif selection.offsets is not None:
        text = f"--offset {_as_given(selection.offsets)}"
        words = f"begins at {describe_range(selection.offsets)}"
        yield Question(OFFSET, text, Selection(offsets=selection.offsets), words, text)
    else:
        yield Question(FILTERS, "", selection, "passes all filters", "")


def id_question(text: str, redaction: Redaction | None = None) -> Question:
    """Return the question for an id."""
    shown = hidden(redaction, "hosts", text)
    return Question(ID, f"--id {text}", Selection(ids=(text,)), f"has the id {shown}", f"--id {shown}")


def key_question(text: str, redaction: Redaction | None = None) -> Question:
    """Return the question for a key."""
    shown = hidden(redaction, "keys", text)
    return Question(
        KEY, f"-k {text}", Selection(keys=(text,), keys_name_ids=True), f"has the key {shown}", f"-k {shown}"
    )


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

"""The answer to a question without a hit, in a plain sentence: what a person does with it at once.

    a queue unit leads there                              "It arrived; its record is destroyed."
    an index entry with its hash leads there              "It very likely arrived; it was deleted with the old files …"
    what was searched has gaps                            "It may have arrived: 4 982 bytes of the log are destroyed."
    nothing is missing, all was read                      "It is not in this log, all of which was read."

The reason says how that is known, and the scope what was searched: both stand below it.
"""

from collections.abc import Iterable, Sequence

from rmqinspect.codec.arrays import Span, intersect, merge
from rmqinspect.commitlog.missing import log_range, missing_in
from rmqinspect.find import (
    BEFORE,
    BEYOND,
    DAMAGED,
    EXPIRED,
    FILTERED,
    NOT_IN_QUEUE,
    NOT_THERE,
    OTHER_BROKER,
    UNREAD,
)
from rmqinspect.find.search import OFFSET, QUEUE_OFFSET, Scope
from rmqinspect.store.model import Store
from rmqinspect.text import count

ARRIVED, BY_ID, LIKELY = "It arrived", "By its id it arrived", "It very likely arrived"
"""What proves that a message arrived: its queue unit, an id that this broker gave, an index entry, which has a hash."""

MISSING_FATE = "the part of the log that held its record is missing"

MAY_BE_GONE = "It may be among the messages that were acknowledged and are gone."

_FATES = {
    BEFORE: "it was in the beginning of the log, which is gone",
    EXPIRED: "it was deleted with the old files of the log",
    BEYOND: "it lay behind what is now the end of the log, and is gone",
    DAMAGED: "its record is destroyed",
    UNREAD: "its record could not be read",
    NOT_THERE: "another record is in its place",
}
"""What became of a record that has been in the log, by what lies at its place."""

_ANSWERS = {
    BEFORE: "It would be in the beginning of the log, which is gone.",
    EXPIRED: "It is older than what is kept here.",
    BEYOND: "Nothing here was stored so late.",
    DAMAGED: "No record can be read there.",
    UNREAD: "Not known: something that had to be read for the answer could not be read.",
    OTHER_BROKER: "Another broker stored it, if the id is that of a message.",
    FILTERED: "It is here; another filter of the question leaves it out.",
    NOT_IN_QUEUE: "It is here, and no consumer gets it: it is in no queue.",
    NOT_THERE: "It is not here.",
}

# Of a place, and not of a message.
_OF_PLACES = {
    (QUEUE_OFFSET, BEYOND): "The queue has not come so far.",
    (OFFSET, BEYOND): "The log has not come so far.",
    (OFFSET, EXPIRED): "What was there was deleted with the old files of the log.",
    (OFFSET, BEFORE): "It lies in the beginning of the log, which is gone.",
    (OFFSET, NOT_THERE): "No record begins there.",
}

# Of several readings of one text, the answer of the first of these counts.
_FIRST = (FILTERED, NOT_IN_QUEUE, DAMAGED, UNREAD, EXPIRED, BEFORE, BEYOND, NOT_THERE, OTHER_BROKER)


def proven(proof: str, reason: str, fate: str) -> str:
    """Return what is known of a message that arrived: `fate`, or what the reason says."""
    return f"{proof}; {fate or _FATES[reason]}."


def answer_of(kind: str, reason: str) -> str:
    """Return the answer to a kind of question, where no more is known than the reason."""
    return _OF_PLACES.get((kind, reason), _ANSWERS[reason])


def may_have_arrived(store: Store, spans: Iterable[Span]) -> str:
    """Return the answer where what was searched has gaps, the `spans`: physical offsets [start, end)."""
    gaps = merge(spans)
    nowhere = [(gap.start, gap.end) for gap in missing_in(store)] + [(log_range(store)[1], 1 << 63)]
    missing = _size(intersect(gaps, merge(nowhere)))
    destroyed = _size(gaps) - missing
    parts = [_are(size, word) for size, word in ((destroyed, "destroyed"), (missing, "missing")) if size]
    return f"It may have arrived: {', and '.join(parts)}."


def _are(size: int, word: str) -> str:
    return f"{count(size, 'byte')} of the log {'is' if size == 1 else 'are'} {word}"


def not_there(scope: Scope, *, whole_store: bool, begins: str) -> str:
    """Return the answer where nothing that was read is asked for: how far that goes.

    `begins`: since when the log has records, if it has lost older ones.
    """
    if not scope.is_whole:
        rest = "; the rest of the log was not read" if scope.pointed else ""
        return f"It is not where it was looked for{rest}."
    log = "this log, all of which was read" if whole_store else "the files given, all of which were read"
    bad = scope.statuses.total()
    damaged = f"; {count(bad, 'record')} of it {'is' if bad == 1 else 'are'} damaged" if bad else ""
    older = f" What was stored before {begins} is no longer here." if begins else ""
    return f"It is not in {log}{damaged}.{older}"


def _size(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


def foremost(reasons: Sequence[str]) -> int:
    """Return which of some reasons, of the readings of one text, has the answer."""
    return min(range(len(reasons)), key=lambda number: _FIRST.index(reasons[number]))

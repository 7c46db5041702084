"""Which records the next start gives up, as a filter of rows: `--lost-at-start`.

The start is walked as `forecast` walks it, and the worst of its answers decides, as it does there: the rows that pass
are the messages that the forecast counts as lost, each once. Messages that stay in the log and only lose their queue
unit are none of them: they can be read from the log after the start, too.
"""

from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct

from rmqinspect.errors import Unreadable
from rmqinspect.forecast.evidence import Announce, of_parts
from rmqinspect.forecast.outcome import Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import outcome_words, verdict_line
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.lost_records import AskedStart, LostRecords

_BEHIND_ALL = 1 << 63
_NOWHERE = _BEHIND_ALL - 1  # no record begins there


class LostAtStart(Struct, frozen=True):
    """What a start gives up of one store."""

    records: LostRecords
    told: str  # the verdict of the start, for people
    unread: tuple[str, ...]  # what could not be read: maybe not all are known


def lost_at_start(
    store: Store,
    asked: AskedStart,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
    announce: Announce | None = None,
) -> LostAtStart:
    """Return which records a start of a broker gives up; of a store that a broker runs on, as its files are now.

    The store has what its RocksDB databases hold.

    :raises Unreadable: it cannot be told.
    """
    request = ForecastRequest(
        release=asked.release,
        clean_exit=asked.clean_exit,
        as_copied=True,
        jobs=jobs,
        progress=progress,
        announce=announce,
    )
    found = of_parts(store) or forecast(store, request)
    worst = found.worst
    if worst.verdict is Verdict.UNKNOWN:
        raise Unreadable(f"{store.name}: what the next start gives up: {outcome_words(worst)}")
    return LostAtStart(records_of(worst), f"next start: {verdict_line(found)}", tuple(found.unread))


def records_of(outcome: Outcome) -> LostRecords:
    """Return the records that an outcome counts as lost; none where the broker does not start."""
    losses = outcome.losses
    if not losses.messages:
        return LostRecords(end=_NOWHERE)
    return LostRecords(outcome.end_offset, tuple(losses.turns), tuple(sorted(losses.named)))


def with_lost(selection: Selection, lost: LostRecords) -> Selection:
    """Return a selection with the records that are lost in one store; nothing before them is read."""
    first, behind = selection.offsets or (0, _BEHIND_ALL)
    start = max(first, lost.end)
    return replace(selection, lost=lost, offsets=(start, max(start, behind)))

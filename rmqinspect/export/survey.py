"""What a few MiB of a store tell before an export is planned: how far the log goes, and who wrote it.

The end of the log is searched once. The records on the way are also the sample that the version estimate needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmqinspect.broker.version_estimate import estimate_store
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.consumequeue.bounds import peek_queues
from rmqinspect.export.log_parts import LogReach
from rmqinspect.store.model import Store


@dataclass(frozen=True, slots=True)
class StoreSurvey:
    """The reach of a store's log, and the broker releases that may have written it."""

    reach: LogReach
    releases: Sequence[str]


def survey_store(store: Store) -> StoreSurvey:
    """Return what planning an export needs to know; damage near the log's end makes it shorter, never longer."""
    hints = [queue.last_physical_offset for queue in peek_queues(store, []) if queue.last_physical_offset is not None]
    found = find_log_end(store, hints)
    end = found.end if found.last_record is not None and found.end is not None else store.log_start
    reach = LogReach(store.log_start, end, store.segment_at(end), max(hints, default=None))
    return StoreSurvey(reach, estimate_store(store, found.sample).releases)

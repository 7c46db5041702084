"""The table `next_starts`: a row for each release with what its start does to a store, as `forecast` tells it.

All releases are worked out, or the one that is asked for. Releases that answer alike have equal rows.
Where no start can be worked out, of a part of a store or below a broker that runs, one row without a release says so.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqinspect.broker.version_estimate import RELEASES, estimate_store
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.document import is_told, starts
from rmqinspect.forecast.evidence import of_parts
from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import already_lost
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import ALL_DATABASES, TIMESTAMP, Source, Table, batch_of, column
from rmqinspect.times import millis_to_micros

_TEXTS = pa.list_(pa.string())

SCHEMA = pa.schema(
    [
        column("release", pa.string(), "of the broker that is started; null where no start was worked out"),
        column("era", pa.string(), "all releases whose start does the same"),
        column("may_be_writer", pa.bool_(), "whether this release may have written the store last, by its content"),
        column("verdict", pa.string(), ", ".join(verdict.value for verdict in Verdict)),
        column("starts", pa.bool_(), "whether the broker starts; null: it cannot be told, or a broker runs"),
        column("messages_lost", pa.int64(), "records at or behind the new end of the log, each once; null: not told"),
        column("intact_lost", pa.int64(), "those of them that are whole on disk now"),
        column("bytes_lost", pa.int64(), "of the lost records"),
        column("units_lost", pa.int64(), "queue units that are cut off"),
        column("first_lost_timestamp", TIMESTAMP, "store time of the first lost record"),
        column("last_lost_timestamp", TIMESTAMP, "store time of the last one"),
        column("lost_by_topic", pa.map_(pa.string(), pa.int64()), "lost records by topic"),
        column("unreachable_messages", pa.int64(), "messages that stay in the log, and to which no queue unit leads"),
        column("healed_units", pa.int64(), "queue units that are missing now, and come back"),
        column("groups_beyond", pa.int64(), "queues of groups whose offset ends beyond the queue's new maximum"),
        column("clean_exit", pa.bool_(), "whether the start takes the last stop for a clean one"),
        column("scan_start_base", pa.int64(), "base of the segment where the scan of the log begins"),
        column("min_offset", pa.int64(), "of the log after the start; -1 without a segment"),
        column("end_offset", pa.int64(), "where the log ends after the start"),
        column("rejected_at", pa.int64(), "physical offset of what ends the scan; null at the ordinary end of a log"),
        column("rejected_rule", pa.string(), "what it breaks, such as body_crc"),
        column("rejected_file", pa.string(), "the segment"),
        column("segments_deleted", pa.int64(), "segments that are deleted"),
        column("files_deleted", pa.int64(), "all files that are deleted, segments among them"),
        column("refused_file", pa.string(), "the file for which the broker does not start"),
        column("why", pa.string(), "why it does not start, or why that cannot be told"),
        column("remedy", pa.string(), "what makes it start"),
        column("already_lost", _TEXTS, "what is gone before the start, as far as it reads that"),
        column("assumptions", _TEXTS, "settings that were assumed"),
        column(
            "wrong_messages", pa.int64(), "queue units by which a pull returns another record than their own, or none"
        ),
        column(
            "jumped_messages", pa.int64(), "sound messages that a pull jumps over, because they stand behind damage"
        ),
        column("skipped_messages", pa.int64(), "new messages that groups do not get, at most"),
        column("undelivered_messages", pa.int64(), "delayed messages that the broker never delivers, at most"),
    ]
)

_BRIEF = ("release", "may_be_writer", "verdict", "messages_lost", "first_lost_timestamp", "unreachable_messages", "why")


def start_rows(found: Forecast, writers: frozenset[str]) -> Iterator[list[Any]]:
    """Yield the rows of a forecast; `writers` are the releases that may have written the store."""
    for outcome in found.outcomes:
        row = _row(outcome)
        for release in _releases_of(outcome):
            yield [release, outcome.era or None, release in writers if release else None, *row]


def _releases_of(outcome: Outcome) -> tuple[str | None, ...]:
    """Return the releases whose start is this one."""
    if not outcome.era:
        return (outcome.release or None,)
    words = outcome.era.split(" ")  # 4.9.4, or 5.0.0 to 5.1.4
    return RELEASES[RELEASES.index(words[0]) : RELEASES.index(words[-1]) + 1]


def _row(outcome: Outcome) -> list[Any]:
    """Return the columns from `verdict` on; what was not counted is null, as in the document of `forecast`."""
    told, losses, refusal, rejected = is_told(outcome), outcome.losses, outcome.refusal, outcome.rejected
    counts = (losses.messages, losses.intact, losses.bytes, losses.units)
    times = (losses.first_timestamp, losses.last_timestamp)
    changes = (outcome.unreachable, outcome.healed_units, len(outcome.groups_beyond))
    does_start = starts(outcome)
    return [
        outcome.verdict.value,
        does_start,
        *(counts if told else [None] * len(counts)),
        *(None if time is None else millis_to_micros(time) for time in times),
        list(losses.by_topic.items()) if told else None,
        *(changes if told else [None] * len(changes)),
        outcome.clean_exit if outcome.release else None,
        outcome.scan_start,
        *((outcome.min_offset, outcome.end_offset) if does_start else (None, None)),
        *((rejected.physical_offset, rejected.rule, rejected.file) if rejected is not None else [None] * 3),
        *((len(outcome.deleted_segments), len(outcome.deleted_files)) if told else (None, None)),
        refusal.file if refusal is not None else None,
        refusal.why if refusal is not None else outcome.unknown,
        refusal.remedy if refusal is not None else None,
        already_lost(outcome),
        outcome.assumptions,
        *((outcome.wrong, outcome.jumped, outcome.skipped, outcome.undelivered) if told else [None] * 4),
    ]


def _writers(store: Store) -> frozenset[str]:
    return frozenset(estimate_store(store, find_log_end(store, last_places(store, [])).sample).releases)


def _rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    found = of_parts(store) or forecast(
        store,
        ForecastRequest(
            release=request.start.release,
            all_versions=request.start.release is None,
            clean_exit=request.start.clean_exit,
            jobs=request.jobs,
            progress=request.progress,
        ),
    )
    for problem in found.unread:
        request.tell_unread(Unreadable(problem))
    walked = any(outcome.release for outcome in found.outcomes)
    yield batch_of(SCHEMA, list(start_rows(found, _writers(store) if walked else frozenset())))


NEXT_STARTS = Table(
    "next_starts",
    SCHEMA,
    _BRIEF,
    _rows,
    scans=(),
    looks_into=tuple(Source),
    databases=ALL_DATABASES,
)

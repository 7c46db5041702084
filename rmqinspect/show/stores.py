"""The table `stores`: a row with what `info` says of a store. No full scan.

Its columns are the fields of the document of `info`, flat; where a part of a store was given, only what that part says.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rmqinspect.broker.version_evidence import RUST
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.outcome import Forecast
from rmqinspect.show.overview import Overview, entries_not_read, overview
from rmqinspect.show.short_start import short_start
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import ALL_DATABASES, TIMESTAMP, Source, Table, batch_of, column
from rmqinspect.times import millis_to_micros
from rmqinspect.verify.next_start import told_verdict

_TEXTS = pa.list_(pa.string())


class _Column(NamedTuple):
    name: str
    type: pa.DataType
    meaning: str
    value: Callable[[Overview, Forecast | None], Any]


def writer_of(facts: Overview) -> str | None:
    """Return who wrote a store; None where nothing shows it of a part of one."""
    if facts.versions.other is not None:
        return str(facts.versions.other)
    return str(facts.versions) if facts.versions.clues or facts.place == "store" else None


def writer_told(releases: str, clues: Sequence[str]) -> str:
    """Return the same by a report: a clue of another program begins with its name."""
    return next((clue.partition(":")[0] for clue in clues if clue.startswith(RUST)), releases)


def _time(millis: int | None) -> int | None:
    return None if millis is None else millis_to_micros(millis)


_COLUMNS = (
    _Column("place", pa.string(), "what was given: store, or a part of one", lambda facts, _: facts.place),
    _Column("files", pa.int64(), "files", lambda facts, _: facts.files),
    _Column("size_bytes", pa.int64(), "their sizes", lambda facts, _: facts.total_bytes),
    _Column("layout", _TEXTS, "log, queues and index, in the words of info", lambda facts, _: list(facts.layout)),
    _Column("features", _TEXTS, "optional parts, such as RocksDB queues", lambda facts, _: list(facts.features)),
    _Column(
        "writer", pa.string(), "who wrote it: releases of the broker, or another program", lambda f, _: writer_of(f)
    ),
    _Column(
        "writer_low", pa.string(), "the oldest release that may have written it", lambda facts, _: facts.versions.low
    ),
    _Column("writer_high", pa.string(), "the youngest one", lambda facts, _: facts.versions.high),
    _Column("writer_clues", _TEXTS, "from which content that follows", lambda facts, _: list(_clues_of_writer(facts))),
    _Column(
        "stopped",
        pa.string(),
        "how the last broker ended: clean, unclean, running, or unknown",
        lambda facts, _: facts.stop.state,
    ),
    _Column(
        "lock_holder",
        pa.int64(),
        "process that holds the lock; 0 or less: one that cannot be seen from here; null: none",
        lambda facts, _: facts.stop.lock_holder,
    ),
    _Column("segments", pa.int64(), "segments of the log", lambda facts, _: facts.log.segments),
    _Column("segment_size", pa.int64(), "bytes of each", lambda facts, _: facts.log.segment_size),
    _Column(
        "log_start",
        pa.int64(),
        "physical offset of the first segment",
        lambda facts, _: facts.log.first_base if facts.log.segments else None,
    ),
    _Column("log_end", pa.int64(), "physical offset behind the last record", lambda facts, _: facts.log.end.end),
    _Column("last_record", pa.int64(), "physical offset of the last record", lambda f, _: f.log.end.last_record),
    _Column("last_timestamp", TIMESTAMP, "its store time", lambda facts, _: _time(facts.log.end.last_timestamp)),
    _Column(
        "end_damaged", pa.bool_(), "whether there is damage near the log's end", lambda facts, _: facts.log.end.damaged
    ),
    _Column("holes", pa.int64(), "ranges of the log that no segment holds", lambda facts, _: len(facts.log.holes)),
    _Column(
        "hole_bytes", pa.int64(), "their bytes", lambda facts, _: sum(hole.end - hole.start for hole in facts.log.holes)
    ),
    _Column(
        "checkpoint_newer", _TEXTS, "fields of the checkpoint newer than the log", lambda facts, _: list(facts.newer)
    ),
    _Column("topics", pa.int64(), "topics with a queue", lambda facts, _: facts.queues.topics),
    _Column("queues", pa.int64(), "queues", lambda facts, _: facts.queues.queues),
    _Column("queue_units", pa.int64(), "units of all queues", lambda facts, _: facts.queues.units),
    _Column(
        "queues_beyond",
        pa.int64(),
        "queues whose last unit points at or behind the log's end",
        lambda facts, _: facts.queues.beyond,
    ),
    _Column("index_files", pa.int64(), "index files", lambda facts, _: facts.index.files),
    _Column("index_entries", pa.int64(), "entries of all index files", lambda facts, _: facts.index.entries),
    _Column("index_newest", TIMESTAMP, "store time of the newest entry", lambda facts, _: _time(facts.index.newest)),
    _Column("groups", pa.int64(), "consumer groups with an offset", lambda facts, _: facts.groups.groups),
    _Column("subscriptions", pa.int64(), "pairs of group and topic", lambda facts, _: facts.groups.subscriptions),
    _Column("waiting_timers", pa.int64(), "timer messages that wait in RocksDB", lambda facts, _: facts.waiting.timers),
    _Column("waiting_halves", pa.int64(), "half messages that wait in RocksDB", lambda facts, _: facts.waiting.halves),
    _Column(
        "next_start",
        pa.string(),
        "the worst verdict on the next start, of releases that may have written it; null if that reads much, or "
        "what it loses was not counted: next_starts has it",
        lambda _, start: None if start is None else told_verdict(start.worst),
    ),
    _Column("start_bytes", pa.int64(), "bytes of log and queues that a start reads, about", lambda f, _: f.start_bytes),
    _Column("odd", _TEXTS, "entries that do not belong there: name, and what is odd", lambda facts, _: _odd(facts)),
    _Column("not_read", _TEXTS, "what could not be read, and why", lambda facts, _: list(facts.unread)),
)


def _clues_of_writer(facts: Overview) -> tuple[str, ...]:
    return facts.versions.clues if facts.versions.other is None else facts.versions.other.clues


def _odd(facts: Overview) -> list[str]:
    return [f"{name}: {what}" for name, what in facts.oddities]


SCHEMA = pa.schema([column(one.name, one.type, one.meaning) for one in _COLUMNS])

_BRIEF = (
    *("size_bytes", "writer", "stopped", "last_timestamp", "log_start", "log_end", "topics", "queue_units"),
    *("groups", "next_start"),
)


def store_row(facts: Overview, start: Forecast | None) -> list[Any]:
    """Return the row of a store, from its summary and its next start."""
    return [one.value(facts, start) for one in _COLUMNS]


def _rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    facts = overview(store)
    asked = request.columns is None or "next_start" in request.columns
    start = short_start(store, facts) if asked else None
    # What the list of files shows already, the caller tells.
    for problem in [line for line in facts.unread if line not in entries_not_read(store)]:
        request.tell_unread(Unreadable(problem))
    yield batch_of(SCHEMA, [store_row(facts, start)])


STORES = Table(
    "stores",
    SCHEMA,
    _BRIEF,
    _rows,
    scans=(),
    looks_into=tuple(Source),
    databases=ALL_DATABASES,
    ends_only=True,
)

"""A forecast as one JSON document: tables of its fields, and the walk over them.

`FIELDS` is also what docs/forecast.md lists. A field of several parts has a table of its own:

    queues[].topic      Field("queues", "list", …, parts=(Field("topic", "text", …), …))
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, tzinfo
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from rmqinspect.forecast.outcome import STARTING, Alternative, Forecast, Outcome, Verdict, already_lost
from rmqinspect.times import format_millis
from rmqinspect.version import tool_name

SCHEMA_VERSION = 1
"""Of the document: a minor change adds fields at the end, a major one renames."""


class Field(NamedTuple):
    """A field of an object: its name, its type as docs/ says it, what it means, and how to get it.

    Times are taken as milliseconds, and written as text. With `parts` the value is an object, a list of them, or null.
    """

    name: str
    kind: str
    meaning: str
    of: Callable[[Any], Any]
    parts: tuple["Field", ...] = ()


class Told(NamedTuple):
    """An outcome, and the other ways to start that were found for it."""

    outcome: Outcome
    instead: Sequence[Alternative]


def _of(name: str) -> Callable[[Told], Any]:
    return attrgetter(f"outcome.{name}")


def _direct(name: str, kind: str, meaning: str, own: str | None = None) -> Field:
    return Field(name, kind, meaning, attrgetter(own or name))


def _remedy(name: str, kind: str, meaning: str) -> Field:
    pairs = attrgetter(f"remedy.{name.removesuffix('.*')}")
    return Field(name, kind, meaning, lambda way: dict(pairs(way)))


def _if_starts(name: str) -> Callable[[Told], Any]:
    return lambda told: getattr(told.outcome, name) if starts(told.outcome) else None


def _if_told(name: str) -> Callable[[Told], Any]:
    return lambda told: attrgetter(name)(told.outcome) if is_told(told.outcome) else None


def is_told(outcome: Outcome) -> bool:
    """Return whether a start was walked to its end: else nothing of it was counted."""
    return outcome.verdict not in (Verdict.UNKNOWN, Verdict.RUNS)


def starts(outcome: Outcome) -> bool | None:
    """Return whether the broker starts; None if it cannot be told, or one runs already."""
    return outcome.verdict in STARTING if is_told(outcome) else None


_REJECTED = (
    _direct("physical_offset", "number", "of the first byte that is refused"),
    _direct("rule", "text", "what it breaks, such as `body_crc`"),
    _direct("file", "text", "the segment"),
    _direct("position", "number", "in the file"),
)

_REFUSAL = (
    _direct("file", "text", "relative to the store"),
    _direct("rule", "text", "a [rule](eras.md), or one that holds in all releases"),
    _direct("why", "text", "in words"),
    _direct("remedy", "text", "what makes it start; `instead` has its price, and that of other ways"),
)

_QUEUE = (
    _direct("topic", "text", ""),
    _direct("queue_id", "number", ""),
    _direct("min_offset_before", "number", "queue offsets, as a broker would give them now", "min_before"),
    _direct("max_offset_before", "number", "one behind the last", "max_before"),
    _direct("min_offset_after", "number", "when the broker serves", "min_after"),
    _direct("max_offset_after", "number", "", "max_after"),
    _direct("cut_units", "number", "units that are there and are cut off", "cut"),
    _direct("added_units", "number", "units that this start appends", "added"),
    _direct("given_twice", "number", "queue offsets that are taken, and that the broker gives out again"),
)

_INSTEAD = (
    _direct("way", "text", "in words"),
    _direct("verdict", "text", "of this way", "outcome.verdict.value"),
    _direct("lost_messages", "number", "of this way", "outcome.losses.messages"),
    _direct("better", "boolean", "than the start that the document is about", "is_better"),
    _direct("broker_version", "text", "of the broker to start", "outcome.release"),
    _direct("clean_exit", "boolean", "false: with the file `abort`", "outcome.clean_exit"),
    _direct("scan_start_base", "number, null", "of this way", "outcome.scan_start"),
    _direct("moved[]", "text", "files and folders to move out of the store before", "moved"),
    Field(
        "lengths.*",
        "number",
        "files to cut, or to fill with zeros, to so many bytes",
        lambda way: dict(way.remedy.lengths),
    ),
    Field("renamed.*", "text", "files to rename, and their new names", lambda way: dict(way.remedy.renamed)),
    Field("settings.*", "text", "lines to put into broker.conf", lambda way: dict(way.remedy.settings)),
    Field("costs[]", "text", "what this gives up beside messages", attrgetter("remedy.costs")),
    _direct("unreachable_messages", "number", "of this way", "outcome.unreachable"),
    _direct("healed_units", "number", "of this way", "outcome.healed_units"),
)

_GROUP = tuple(
    _direct(name, kind, meaning)
    for name, kind, meaning in (
        ("group", "text", ""),
        ("topic", "text", ""),
        ("queue_id", "number", ""),
        ("offset", "number", "of the group"),
        ("max_offset", "number", "of the queue after the start"),
    )
)

_GROUP_START = (
    _direct("group", "text", ""),
    Field(
        "queues[]",
        "object",
        "those in which the start means something to it",
        attrgetter("queues"),
        (Field("topic", "text", "", itemgetter(0)), Field("queue_id", "number", "", itemgetter(1))),
    ),
    _direct("unconsumed", "number", "of the messages that are gone then, those that it has not consumed"),
    _direct("skips", "number", "new messages that it does not get, at most"),
    _direct("again", "number", "messages that it gets a second time, if it asks before the queues have grown"),
)

_LOST_QUEUE = (
    _direct("topic", "text", ""),
    _direct("queue_id", "number", ""),
    _direct("given_twice", "number", "queue offsets of its records that the broker gives out again, at least"),
)

_STEP = (
    _direct(
        "step", "text", "`load`, `queues`, `index`, `start`, `scan`, `dispatch`, `cut`, `reput`, `minimum`, `config`"
    ),
    _direct("text", "text", "what was decided"),
    Field("inputs.*", "number, text", "what it was decided from, by name", lambda decision: dict(decision.inputs)),
    _direct("source", "text", "class and method of the broker"),
)

OF_OUTCOME: tuple[Field, ...] = (
    Field(
        "verdict",
        "text",
        ", ".join(f"`{verdict}`" for verdict in Verdict),
        lambda told: told.outcome.verdict.value,
    ),
    Field("starts", "boolean, null", "null: it cannot be told, or a broker runs", lambda told: starts(told.outcome)),
    Field(
        "broker_version",
        "text, null",
        "the release that was walked; null if none was",
        lambda told: told.outcome.release or None,
    ),
    Field("era", "text, null", "all releases that do the same", lambda told: told.outcome.era or None),
    Field("clean_exit", "boolean", "whether the start takes the last stop for a clean one", _of("clean_exit")),
    Field("scan_start_base", "number, null", "base of the segment where the scan of the log begins", _of("scan_start")),
    Field(
        "rejected",
        "object, null",
        "what ends the scan, where a record is expected; null at the ordinary end of a log",
        _of("rejected"),
        _REJECTED,
    ),
    Field("min_offset", "number, null", "of the log after the start; -1 without a segment", _if_starts("min_offset")),
    Field("end_offset", "number, null", "where the log ends after the start", _if_starts("end_offset")),
    Field("segments_after[]", "number", "bases of the segments that are left", _of("segments_after")),
    Field("deleted_segments[]", "number", "bases of the segments that are deleted", _of("deleted_segments")),
    Field(
        "lost_messages",
        "number, null",
        "records at or behind the new end, each once; null, as the next three: it cannot be told, or a broker runs",
        _if_told("losses.messages"),
    ),
    Field("lost_intact", "number, null", "those of them that are whole on disk now", _if_told("losses.intact")),
    Field("lost_units", "number, null", "queue units that are cut off", _if_told("losses.units")),
    Field("lost_bytes", "number, null", "of the lost records", _if_told("losses.bytes")),
    Field("first_lost_timestamp", "time", "store time of the first lost record", _of("losses.first_timestamp")),
    Field("last_lost_timestamp", "time", "of the last one", _of("losses.last_timestamp")),
    Field("lost_by_topic.*", "number", "lost records by topic", _of("losses.by_topic")),
    Field("queues[]", "object", "all queues before and after", _of("queues"), _QUEUE),
    Field("index_files_after[]", "text", "names of the index files that stay", _of("index_files_after")),
    Field("deleted_index_files[]", "text", "names of those that are deleted", _of("deleted_index_files")),
    Field("deleted_files[]", "text", "all files that are deleted, relative to the store", _of("deleted_files")),
    Field("refusal", "object, null", "why the broker does not start", _of("refusal"), _REFUSAL),
    Field(
        "config_from_backup[]", "text", "configuration files whose `.bak` is read instead", _of("config_from_backup")
    ),
    Field("assumptions[]", "text", "settings that were assumed", _of("assumptions")),
    Field(
        "instead[]",
        "object",
        "every other way to start, walked and priced; none where nothing is lost and no file is in the way",
        attrgetter("instead"),
        _INSTEAD,
    ),
    Field("notes[]", "text", "what else is to be known", _of("notes")),
    Field("cannot_tell", "text, null", "why it cannot be told", _of("unknown")),
    Field(
        "unreachable_messages",
        "number",
        "messages that stay in the log and lose their queue unit: no consumer gets them",
        _of("unreachable"),
    ),
    Field("lost_bytes_by_topic.*", "number", "bytes of lost records by topic", _of("losses.bytes_by_topic")),
    Field("new_index_files", "number", "index files that this start makes", _of("new_index_files")),
    Field(
        "index_entries_behind",
        "number",
        "entries of index files that stay, and point behind the new end",
        _of("index_entries_behind"),
    ),
    Field(
        "groups_beyond[]",
        "object",
        "consumer groups whose offset ends beyond the new maximum of a queue",
        _of("groups_beyond"),
        _GROUP,
    ),
    Field("ignored_files[]", "text", "files that the broker does not load, and leaves", _of("ignored_files")),
    Field(
        "decisions[]", "object", "the steps of the start, in order, as `--explain` shows them", _of("decisions"), _STEP
    ),
    Field(
        "already_lost[]",
        "text",
        "what is gone before the start, as far as it reads that",
        lambda told: already_lost(told.outcome),
    ),
    Field("healed_units", "number", "queue units that are missing now, and come back", _of("healed_units")),
    Field("empty_segments[]", "number", "of the deleted segments those without a record", _of("empty_segments")),
    Field("proofs[]", "text", "of `STARTS EMPTY`: what proves the log or the queues that are not there", _of("proofs")),
    Field("groups[]", "object", "what it means to consumer groups, the worst first", _of("groups"), _GROUP_START),
    Field(
        "copies",
        "number",
        "records that are given up, too, and are copies of others that stand in their place: no messages",
        _of("losses.copies"),
    ),
    Field(
        "lock_holder",
        "number, null",
        "the process that holds the lock of the store, or has its file open; 0 or less: it cannot be seen from here",
        _of("lock_holder"),
    ),
    Field(
        "lost_queues[]",
        "object",
        "queues of records in a sample of the log that have no unit, and get none",
        _of("lost_queues"),
        _LOST_QUEUE,
    ),
)
"""The fields of the document of one outcome."""

HEAD: tuple[Field, ...] = (
    Field("schema_version", "number", "of the document", lambda _: SCHEMA_VERSION),
    Field("tool", "text", "name and version of the program", lambda _: tool_name()),
    Field(
        "complete",
        "boolean",
        "whether all that had to be read could be; false where it cannot be told, or a broker runs",
        lambda forecast: not forecast.unread and is_told(forecast.worst),
    ),
)
"""The fields in front of the worst outcome."""

VERSIONS = "versions"
"""The last field of the root, where releases differ: the documents of all outcomes, without the fields of HEAD."""


def document(forecast: Forecast, zone: tzinfo = UTC) -> dict[str, Any]:
    """Return the document: the worst outcome, and where releases differ all of them under `versions`."""
    worst = forecast.worst
    told = _object(HEAD, forecast, zone) | _object(OF_OUTCOME, Told(worst, forecast.instead), zone)
    if len(forecast.outcomes) > 1:
        told[VERSIONS] = [
            _object(OF_OUTCOME, Told(outcome, forecast.instead if outcome is worst else ()), zone)
            for outcome in forecast.outcomes
        ]
    return told


def outcome_document(outcome: Outcome, zone: tzinfo = UTC) -> dict[str, Any]:
    """Return the document of one outcome, without other ways to start."""
    return _object(OF_OUTCOME, Told(outcome, ()), zone)


def listed_fields() -> Iterator[tuple[str, str, str]]:
    """Yield (path, type, meaning) of every field, in the order of the document."""
    yield from _listed(HEAD)
    yield from _listed(OF_OUTCOME)
    yield f"{VERSIONS}[]", "object", "where releases differ: the fields above from `verdict` on, for each outcome"


def _listed(fields: tuple[Field, ...], before: str = "") -> Iterator[tuple[str, str, str]]:
    for field in fields:
        kind = "text, null" if field.kind == "time" else field.kind
        yield f"{before}{field.name}", kind, field.meaning
        yield from _listed(field.parts, f"{before}{field.name}.")


def _object(fields: tuple[Field, ...], whole: Any, zone: tzinfo) -> dict[str, Any]:
    return {field.name.removesuffix("[]").removesuffix(".*"): _value(field, whole, zone) for field in fields}


def _value(field: Field, whole: Any, zone: tzinfo) -> Any:
    value = field.of(whole)
    if field.kind == "time":
        return None if value is None else format_millis(value, zone)
    if value is None or not field.parts:
        return list(value) if isinstance(value, tuple) else value
    if field.name.endswith("[]"):
        return [_object(field.parts, one, zone) for one in value]
    return _object(field.parts, value, zone)

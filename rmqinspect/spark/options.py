"""The options of the data source, named as on the command line, and their parsers.

Spark passes option names in lower case and every value as text. An option that takes several values accepts one value
or a JSON list: tags, keys and properties may contain commas.

Filters that Spark pushes down, translated to the filters of the command line.

They are hints: Spark applies all filters again, so a translation may pass more rows than its filter, never fewer. A
filter without a counterpart is ignored.
"""

import ast
import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace
from pyspark.sql import datasource as api
from pyspark.sql.datasource import Filter

from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.choices import DEFAULT_LEVEL, LEVELS
from rmqinspect.errors import BadOption
from rmqinspect.export.request import FINDINGS, MESSAGES
from rmqinspect.rocksdb.unpack import Unpacking
from rmqinspect.store.model import Store
from rmqinspect.store.names import name_store
from rmqinspect.system.uri import abspath
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import (
    Range,
    Selection,
    parse_bytes,
    parse_host,
    parse_offset,
    parse_property,
    parse_range,
)
from rmqinspect.tables.hints import EVERYTHING, RANGED, limited, narrowed
from rmqinspect.tables.lost_records import AskedStart
from rmqinspect.tables.record_columns import with_text_bodies
from rmqinspect.tables.redact import Redaction, parse_redaction
from rmqinspect.tables.sources import last_store_time
from rmqinspect.tables.splits import Origin
from rmqinspect.tables.table import with_store
from rmqinspect.text import parse_size
from rmqinspect.times import parse_time, parse_zone
from rmqinspect.verify import finding_rows

SCHEMAS: dict[str, pa.Schema] = {name: table.schema for name, table in TABLES.items()} | {FINDINGS: finding_rows.SCHEMA}

_NEXT_STARTS = "next_starts"


class Option(Struct, frozen=True):
    """One option: its parser, its meaning, and its default as text."""

    name: str
    parse: Callable[[str], Any]
    meaning: str
    default: str | None = None
    several: bool = False
    filter: str = ""  # the field of Selection that it sets


def _one_of(*words: str) -> Callable[[str], str]:
    """Return a parser for one of some words, in any case."""
    by_fold = {word.casefold(): word for word in words}

    def parse(text: str) -> str:
        if text.casefold() not in by_fold:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return by_fold[text.casefold()]

    return parse


def _parse_flag(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _parse_time_field(text: str) -> str:
    return f"{_one_of('store', 'born')(text)}_timestamp"


def _parse_split_size(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise ValueError("must be greater than 0")
    return size


def _parse_zone_name(text: str) -> str:
    parse_zone(text)
    return text


def _parse_names(text: str) -> tuple[str, ...]:
    texts = _as_list(text)
    names = (name.strip() for name in (text.split(",") if texts is None else texts))
    return tuple(dict.fromkeys(name for name in names if name))


def _parse_queue_id(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**31:
        raise ValueError(f"{text!r} is not a queue id")
    return number


OPTIONS: tuple[Option, ...] = (
    Option("table", str, f"Which table: those of `decode --table`, or `{FINDINGS}`.", MESSAGES),
    Option("columns", _parse_names, "Columns to compute, in this order: `topic,keys,body`.", "all"),
    Option("topic", str, "Shell pattern.", several=True, filter="topics"),
    Option("queue", _parse_queue_id, "Queue id.", filter="queue_id"),
    Option("queue_offset", parse_range, "Logical offset in the queue, `A` or `A..B`.", filter="queue_offsets"),
    Option(
        "offset", parse_range, "Physical offset in the commit log, `A` or `A..B`; limits the read.", filter="offsets"
    ),
    Option("tag", str, "Tag.", several=True, filter="tags"),
    Option("key", str, "One of the record's keys.", several=True, filter="keys"),
    Option("id", str, "Message id or offset message id.", several=True, filter="ids"),
    Option("property", parse_property, "`NAME` or `NAME=VALUE`; all must match.", several=True, filter="properties"),
    Option("body_contains", str, "Text in the body.", filter="body_text"),
    Option("body_bytes", parse_bytes, "Bytes in the body, as hex digits.", filter="body_bytes"),
    Option("since", str, "Inclusive. ISO 8601, epoch ms, `yyyy-MM-dd#HH:mm:ss:SSS`, `-2h`, `last-5m`, `now`."),
    Option("until", str, "Exclusive."),
    Option(
        "time_field", _parse_time_field, "The clock of `since` and `until`: store, born.", "store", filter="time_column"
    ),
    Option("tz", _parse_zone_name, "Zone of times given without one. Timestamp columns are instants.", "UTC"),
    Option("host", parse_host, "Address of the producer, `IP` or `IP:PORT`.", filter="host"),
    Option("system_topics", _parse_flag, "`false` skips the broker's own topics.", "true", filter="system_topics"),
    Option(
        "lost_at_start",
        _parse_flag,
        "`true`: records that the next start of the broker gives up, as `forecast` counts them; the driver finds them.",
        "false",
    ),
    Option(
        "broker_version",
        _one_of(*RELEASES),
        "Of `lost_at_start` and `next_starts`: whose rules apply. Default: estimated; of `next_starts` all releases.",
    ),
    Option(
        "exit",
        _one_of("clean", "unclean"),
        "Of `lost_at_start` and `next_starts`: the last stop. Default: by the file `abort`.",
    ),
    Option("raw_body", _parse_flag, "Bodies as stored, not decompressed.", "false"),
    Option("body", _one_of("bytes", "text"), "`text`: the column `body` as text, null where it is not UTF-8.", "bytes"),
    Option("max_body", parse_size, "Larger bodies stay compressed.", "64MiB"),
    Option(
        "redact", parse_redaction, "Mask `body,keys,tags,properties,hosts`; `keys=hash:KEYFILE` writes keyed hashes."
    ),
    Option("config", str, "A broker.conf with sizes and paths. Default: inferred."),
    Option("base", parse_offset, "Physical offset where a loose segment starts."),
    Option(
        "rocksdb",
        _parse_flag,
        "Read RocksDB. Default: if the extra is installed.",
    ),
    Option("rocksdb_copy", str, "Folder on each worker for the private copy of RocksDB, removed afterwards."),
    Option("split_size", _parse_split_size, "Bytes per partition. Default: segments, or parts of at least 64 MiB."),
    Option("mode", _one_of("PERMISSIVE", "FAILFAST"), "`FAILFAST`: damage fails the job.", "PERMISSIVE"),
    Option("pushdown", _parse_flag, "Use Spark's filters to read less; needs the configuration below.", "false"),
    Option("level", _one_of(*LEVELS), "How thorough `findings` is: quick, standard, deep.", DEFAULT_LEVEL),
)

_BY_NAME = {option.name: option for option in OPTIONS}
_PATHS = ("path", "paths")  # set by `load`
_AS_GIVEN = ("since", "until", "raw_body", "max_body", "split_size", "pushdown", "level")  # fields of Settings


class Settings(Struct, frozen=True):
    """The parsed options of one load. Sent to every task: a few hundred bytes."""

    stores: tuple[tuple[str, Origin], ...]  # (name, how to open); "" gets its name when opened
    table: str
    columns: tuple[str, ...]
    selection: Selection  # without times: those relative to `last` depend on the store
    since: str | None
    until: str | None
    zone: str
    raw_body: bool
    text_bodies: bool
    max_body: int
    redaction: Redaction | None
    split_size: int | None
    failfast: bool
    pushdown: bool
    level: str
    start: AskedStart  # that the table `next_starts` is about

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, without documentation."""
        return pa.schema([field.remove_metadata() for field in self.documented()])

    def documented(self) -> list[pa.Field]:
        """Return the columns with their documentation."""
        whole = with_store(SCHEMAS[self.table])
        if self.text_bodies:
            whole = with_text_bodies(whole)
        return [whole.field(name) for name in self.columns]

    def times(self, store: Store | None, now: datetime) -> tuple[int | None, int | None]:
        """Return `since` and `until` in microseconds since 1970; without a store, only check their syntax.

        :raises BadOption: malformed, or relative to the last record of a store without any.
        """

        def read(name: str, text: str | None) -> int | None:
            last = (lambda: 0) if store is None else (lambda: last_store_time(store))
            return None if text is None else _parse(name, text, lambda one: parse_time(one, zone, lambda: now, last))

        zone = parse_zone(self.zone)
        return read("since", self.since), read("until", self.until)


def read_options(options: Mapping[str, str]) -> Settings:
    """Parse the options of one load. Opens no store.

    :raises BadOption: an unknown option, a malformed value, no store, two stores of one name, or a filter for which
        the table has no column.
    """
    texts = _known(options)
    values = {option.name: _value(option, texts.get(option.name)) for option in OPTIONS}
    table = values["table"]
    if table not in SCHEMAS:
        raise BadOption(f"option table: no table {table!r}; there are: {', '.join(SCHEMAS)}")
    settings = Settings(
        stores=_stores(options, values),
        table=table,
        columns=_columns(table, values["columns"]),
        selection=Selection(
            **{option.filter: values[option.name] for option in OPTIONS if option.filter},
            lost_at_start=_start(values) if values["lost_at_start"] else None,
        ),
        start=_start(values),
        zone=values["tz"],
        redaction=values["redact"],
        failfast=values["mode"] == "FAILFAST",
        text_bodies=values["body"] == "text",
        **{name: values[name] for name in _AS_GIVEN},
    )
    since, until = settings.times(None, datetime.now(UTC))
    missing = dataclasses.replace(settings.selection, since=since, until=until).missing_columns(SCHEMAS[table])
    if missing:
        raise BadOption(f"the table {table} has no column for {missing[0].replace('--', '').replace('-', '_')}")
    return settings


def _start(values: Mapping[str, Any]) -> AskedStart:
    """Return the start that is meant.

    :raises BadOption: one is described, and not asked for.
    """
    release, stop = values["broker_version"], values["exit"]
    for name in ("broker_version", "exit") if not values["lost_at_start"] and values["table"] != _NEXT_STARTS else ():
        if values[name] is not None:
            raise BadOption(f"option {name} belongs to lost_at_start, or to the table {_NEXT_STARTS}")
    return AskedStart(release, None if stop is None else stop == "clean")


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Return the texts by option; `queue-offset` is the same as `queue_offset`."""
    found: dict[str, str] = {}
    for given, text in options.items():
        name = given.casefold().replace("-", "_")
        if name in _PATHS:
            continue
        if name not in _BY_NAME:
            raise BadOption(f"no option {given!r}; there are: {', '.join(_BY_NAME)}")
        if name in found:
            raise BadOption(f"option {name} is given twice")
        found[name] = text
    return found


def _value(option: Option, text: str | None) -> Any:
    text = option.default if text is None else text
    if option.several:
        texts = () if text is None else (_as_list(text) or (text,))
        return tuple(_parse(option.name, one, option.parse) for one in texts)
    return None if text is None else _parse(option.name, text, option.parse)


def _parse(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise BadOption(f"option {name}: {error}") from error


def _as_list(text: str) -> list[str] | None:
    """Parse a JSON list of texts, or the `str` of a Python list, which is what `option("topic", ["a", "b"])` passes.

    Anything else is None, also the shell pattern `[ab]*`.
    """
    if not text.startswith("["):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, list) and found and all(isinstance(one, str) for one in found):
            return found
    return None


def _columns(table: str, names: tuple[str, ...]) -> tuple[str, ...]:
    there = with_store(SCHEMAS[table]).names
    if names == ("all",):
        return tuple(there)
    unknown = [name for name in names if name not in there]
    if unknown or not names:
        problem = f"no column {unknown[0]!r} in {table}" if unknown else "no column given"
        raise BadOption(f"option columns: {problem}; there are: {', '.join(there)}")
    return names


def _stores(options: Mapping[str, str], values: Mapping[str, Any]) -> tuple[tuple[str, Origin], ...]:
    config, base = values["config"], values["base"]
    unpacking = Unpacking(values["rocksdb"], values["rocksdb_copy"])
    given = {name.casefold(): text for name, text in options.items()}
    texts: list[str] = _parse("paths", given.get("paths", "[]"), json.loads)
    texts = texts or ([given["path"]] if "path" in given else [])
    where = None if config is None else abspath(config)
    if not texts and where is None:
        raise BadOption("no store: use load(PATH), load([PATH, …]), or the option config")
    named = [name_store(text) for text in texts]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise BadOption(f"two stores are called {name!r}: their rows would look alike; load NAME=PATH")
    stores = tuple((name, Origin((abspath(path),), where, base, unpacking)) for name, path in named)
    return stores or (("", Origin((), where, base, unpacking)),)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Hints(Struct, frozen=True):
    """The rows that Spark will keep: those of `stores` (None: of all) that pass `selection`."""

    selection: Selection = field(default_factory=Selection)
    stores: frozenset[str] | None = None

    def add(self, filter_: Filter) -> "Hints":
        """Return these hints narrowed by a filter, as far as it translates."""
        column = ".".join(getattr(filter_, "attribute", ()))
        bounds = _bounds(filter_)
        if column in RANGED and bounds is not None:
            return replace(self, selection=narrowed(self.selection, column, *bounds))
        values = _values(filter_)
        if values is None:
            return self
        if column == "store":
            return replace(self, stores=frozenset(values) & (self.stores or frozenset(values)))
        return replace(self, selection=limited(self.selection, column, values))


def _values(filter_: Filter) -> tuple[Any, ...] | None:
    """Return the values that a filter lists, None if it lists none."""
    if isinstance(filter_, api.In):
        values = filter_.value
    elif isinstance(filter_, api.EqualTo | api.EqualNullSafe):
        values = (filter_.value,)
    else:
        return None
    return None if None in values else tuple(values)


def _bounds(filter_: Filter) -> Range | None:
    """Return the half-open range of integers (times: microseconds) that a filter passes, None if it is no range."""
    value = _number(getattr(filter_, "value", None))
    if value is None:
        return None
    first, last = EVERYTHING
    if isinstance(filter_, api.EqualTo | api.EqualNullSafe):
        first, last = value, value + 1
    elif isinstance(filter_, api.GreaterThan | api.GreaterThanOrEqual):
        first = value + isinstance(filter_, api.GreaterThan)
    elif isinstance(filter_, api.LessThan | api.LessThanOrEqual):
        last = value + isinstance(filter_, api.LessThanOrEqual)
    else:
        return None
    return first, last


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

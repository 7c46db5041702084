"""The options of the data source, named as on the command line, and what is made of their texts.

Spark gives option names in lower case and every value as a text. Where several values are possible a text is
one value or a JSON list of them, because tags, keys and properties may hold commas.
"""

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from rmqinspect.errors import BadOption
from rmqinspect.store.model import Store
from rmqinspect.system.uri import abspath
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection, parse_host, parse_offset, parse_property, parse_range
from rmqinspect.tables.redact import Redaction, parse_redaction
from rmqinspect.tables.sources import last_store_time
from rmqinspect.tables.splits import Origin, name_store
from rmqinspect.text import parse_size
from rmqinspect.times import parse_time, parse_zone
from rmqinspect.verify import table as findings
from rmqinspect.verify.codes import LEVELS

FINDINGS = "findings"
SCHEMAS: dict[str, pa.Schema] = {name: table.schema for name, table in TABLES.items()} | {FINDINGS: findings.SCHEMA}

STORE = pa.field("store", pa.string(), metadata={"doc": "which of the stores given"})


@dataclass(frozen=True)
class Option:
    """One option: how its text is read, its text where it is not given, and what it means."""

    name: str
    parse: Callable[[str], Any]
    meaning: str
    default: str | None = None
    several: bool = False


def _one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of one of some words, in whatever case."""
    by_fold = {word.casefold(): word for word in words}

    def parse(text: str) -> str:
        if text.casefold() not in by_fold:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return by_fold[text.casefold()]

    return parse


def _parse_flag(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _parse_split_size(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise ValueError("splits of no bytes never end")
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
        raise ValueError(f"{text!r} is no queue id")
    return number


OPTIONS: tuple[Option, ...] = (
    Option("table", str, "Which table: those of `decode --table`, or `findings`.", "messages"),
    Option("columns", _parse_names, "Columns, in this order: `topic,keys,body`. Others are not computed.", "all"),
    Option("topic", str, "Shell pattern.", several=True),
    Option("queue", _parse_queue_id, "Queue id."),
    Option("queue_offset", parse_range, "Logical offset in the queue, `A` or `A..B`."),
    Option("offset", parse_range, "Physical offset in the commit log, `A` or `A..B`; only this range is read."),
    Option("tag", str, "Tag.", several=True),
    Option("key", str, "One of the record's keys.", several=True),
    Option("id", str, "Message id or offset message id.", several=True),
    Option("property", parse_property, "`NAME` or `NAME=VALUE`; all must hold.", several=True),
    Option("body_contains", str, "Text in the body."),
    Option("since", str, "Included. ISO 8601, epoch ms, `yyyy-MM-dd#HH:mm:ss:SSS`, `-2h`, `last-5m`, `now`."),
    Option("until", str, "Excluded."),
    Option("time_field", _one_of("store", "born"), "The clock that `since` and `until` mean.", "store"),
    Option("tz", _parse_zone_name, "Zone of times given without one. Timestamps are always instants.", "UTC"),
    Option("host", parse_host, "The producer's address, `IP` or `IP:PORT`."),
    Option("system_topics", _parse_flag, "`false` leaves the broker's own topics out.", "true"),
    Option("raw_body", _parse_flag, "Bodies as they are stored, not decompressed.", "false"),
    Option("max_body", parse_size, "Larger bodies stay compressed.", "64MiB"),
    Option("redact", parse_redaction, "Hide `body,keys,tags,properties,hosts`; `keys=hash:KEYFILE` hashes them."),
    Option("config", str, "A broker.conf with sizes and paths; otherwise they are inferred."),
    Option("base", parse_offset, "Physical offset at which a loose segment begins."),
    Option("split_size", _parse_split_size, "Bytes of a partition. Default: segments, or parts of at least 64 MiB."),
    Option("mode", _one_of("PERMISSIVE", "FAILFAST"), "`FAILFAST`: damage fails the job.", "PERMISSIVE"),
    Option("pushdown", _parse_flag, "Take filters from Spark; needs the configuration below.", "false"),
    Option("level", _one_of(*LEVELS), "How much `findings` looks at: quick, standard, deep.", "standard"),
)

_BY_NAME = {option.name: option for option in OPTIONS}
_PATHS = ("path", "paths")  # what `load` puts its argument into


@dataclass(frozen=True)
class Settings:
    """The options of one load, read. Travels to every task: paths, numbers and words, a few hundred bytes."""

    stores: tuple[tuple[str, Origin], ...]  # name and how to open; "" is named when it is opened
    table: str
    columns: tuple[str, ...]
    selection: Selection  # without times: `last` depends on the store
    since: str | None
    until: str | None
    zone: str
    raw_body: bool
    max_body: int
    redaction: Redaction | None
    split_size: int | None
    failfast: bool
    pushdown: bool
    level: str

    @property
    def schema(self) -> pa.Schema:
        """What the rows look like: names and types, without documentation."""
        whole = _with_store(self.table)
        return pa.schema([pa.field(name, whole.field(name).type) for name in self.columns])

    def documented(self) -> list[pa.Field]:
        """Return the columns with their documentation."""
        whole = _with_store(self.table)
        return [whole.field(name) for name in self.columns]

    def times(self, store: Store | None, now: datetime) -> tuple[int | None, int | None]:
        """Return `since` and `until` in microseconds since 1970; without a store only look whether they can be read.

        :raises BadOption: they cannot, or count from the last record of a store that has none.
        """

        def read(name: str, text: str | None) -> int | None:
            last = (lambda: 0) if store is None else (lambda: last_store_time(store))
            return None if text is None else _read(name, text, lambda one: parse_time(one, zone, lambda: now, last))

        zone = parse_zone(self.zone)
        return read("since", self.since), read("until", self.until)


def read_options(options: Mapping[str, str]) -> Settings:
    """Read the options of one load. No store is opened.

    :raises BadOption: an unknown option, a value that cannot be read, no store, two stores of one name, or a
        filter that the table has no column for.
    """
    texts = _known(options)
    values = {option.name: _value(option, texts.get(option.name)) for option in OPTIONS}
    table = values["table"]
    if table not in SCHEMAS:
        raise BadOption(f"option table: no table {table!r}; there are: {', '.join(SCHEMAS)}")
    settings = Settings(
        stores=_stores(options, values["config"], values["base"]),
        table=table,
        columns=_columns(table, values["columns"]),
        selection=Selection(
            topics=values["topic"],
            queue_id=values["queue"],
            queue_offsets=values["queue_offset"],
            offsets=values["offset"],
            tags=values["tag"],
            keys=values["key"],
            ids=values["id"],
            properties=values["property"],
            body_text=values["body_contains"],
            time_column=f"{values['time_field']}_timestamp",
            host=values["host"],
            system_topics=values["system_topics"],
        ),
        since=values["since"],
        until=values["until"],
        zone=values["tz"],
        raw_body=values["raw_body"],
        max_body=values["max_body"],
        redaction=values["redact"],
        split_size=values["split_size"],
        failfast=values["mode"] == "FAILFAST",
        pushdown=values["pushdown"],
        level=values["level"],
    )
    since, until = settings.times(None, datetime.now(UTC))
    missing = replace(settings.selection, since=since, until=until).missing_columns(SCHEMAS[table])
    if missing:
        raise BadOption(f"the table {table} has no column for {missing[0].replace('--', '').replace('-', '_')}")
    return settings


def _with_store(table: str) -> pa.Schema:
    return SCHEMAS[table].insert(0, STORE)


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Return the texts by our names, `queue-offset` and `queue_offset` alike."""
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
        return tuple(_read(option.name, one, option.parse) for one in texts)
    return None if text is None else _read(option.name, text, option.parse)


def _read(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise BadOption(f"option {name}: {error}") from error


def _as_list(text: str) -> list[str] | None:
    """Return a JSON list of texts; what `option("topic", ["a", "b"])` makes of Python's own list is one, too.

    Everything else is None, also the shell pattern `[ab]*`.
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
    there = _with_store(table).names
    if names == ("all",):
        return tuple(there)
    unknown = [name for name in names if name not in there]
    if unknown or not names:
        problem = f"no column {unknown[0]!r} in {table}" if unknown else "no column given"
        raise BadOption(f"option columns: {problem}; there are: {', '.join(there)}")
    return names


def _stores(options: Mapping[str, str], config: str | None, base: int | None) -> tuple[tuple[str, Origin], ...]:
    given = {name.casefold(): text for name, text in options.items()}
    texts: list[str] = _read("paths", given.get("paths", "[]"), json.loads)
    texts = texts or ([given["path"]] if "path" in given else [])
    where = None if config is None else abspath(config)
    if not texts and where is None:
        raise BadOption("no store: load(PATH), load([PATH, …]), or the option config")
    named = [name_store(text) for text in texts]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise BadOption(f"two stores are called {name!r}: their rows would look alike; load NAME=PATH")
    stores = tuple((name, Origin((abspath(path),), where, base)) for name, path in named)
    return stores or (("", Origin((), where, base)),)

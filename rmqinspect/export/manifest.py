"""`_manifest.json`: what an export holds, of which files it was made, and how far it reaches.

Readers may trust it: it is written last but `_SUCCESS`. What differs between two exports of an unchanged
store stands in the object `run` alone.
"""

import hashlib
import json
import platform
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from rmqinspect.errors import Refused, Unreadable
from rmqinspect.output import SCHEMA_VERSION
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.system.uri import shown, without_secrets
from rmqinspect.version import tool_name

MANIFEST, SUCCESS = "_manifest.json", "_SUCCESS"

_EDGE = 4096  # bytes of the first and of the last records that a fingerprint is made of
_MOST_LOST = 10_000  # ranges without records that are listed; their sums are exact


@dataclass(slots=True)
class ExportedFile:
    """One file of an export."""

    name: str  # relative to the target
    table: str
    store: str
    rows: int
    size: int
    start: int | None = None  # physical offsets, for parts of the log
    end: int | None = None
    is_tail: bool = False  # behind the log's end when it was written: an incremental export replaces it
    statuses: dict[str, int] = field(default_factory=dict)  # rows whose status is not ok; a part's in its first file

    def as_document(self) -> dict[str, Any]:
        """Return the file's entry in the manifest."""
        entry: dict[str, Any] = {"name": self.name, "store": self.store, "rows": self.rows, "bytes": self.size}
        if self.start is not None:
            entry |= {"start": self.start, "end": self.end}
        if self.is_tail:
            entry["behind_log_end"] = True
        return entry | ({"statuses": self.statuses} if self.statuses else {})


@dataclass(slots=True)
class ExportedStore:
    """What an export says of one of its stores."""

    name: str
    paths: Sequence[str]
    inputs: list[dict[str, Any]] = field(default_factory=list)  # file, size, modified
    start: int | None = None  # physical offsets of the log that was covered
    end: int | None = None
    segments: list[dict[str, Any]] = field(default_factory=list)  # fingerprints
    lost: list[tuple[int, int, str]] = field(default_factory=list)  # start, end, kind: unknown, missing
    unread: list[str] = field(default_factory=list)
    releases: Sequence[str] = ()  # that may have written it

    def as_document(self) -> dict[str, Any]:
        """Return the store's entry in the manifest."""
        sums: dict[str, Counter[str]] = {}
        for start, end, kind in self.lost:
            sums.setdefault(kind, Counter()).update({"count": 1, "bytes": end - start})
        return {
            "name": self.name,
            "paths": list(map(shown, self.paths)),
            "writer": list(self.releases),
            "covered": None if self.start is None else {"start": self.start, "end": self.end},
            "complete": not self.unread,
            "unread": self.unread,
            "gaps": {kind: dict(sums[kind]) for kind in sorted(sums)},
            "lost": [{"start": start, "end": end, "kind": kind} for start, end, kind in self.lost[:_MOST_LOST]],
            "segments": self.segments,
            "inputs": self.inputs,
        }


@dataclass(slots=True)
class Manifest:
    """All that `_manifest.json` holds."""

    request: dict[str, Any]
    files: list[ExportedFile] = field(default_factory=list)
    stores: list[ExportedStore] = field(default_factory=list)
    findings: dict[str, int] | None = None  # by severity; None unless the table findings was asked for
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for was read."""
        return not any(store.unread for store in self.stores)

    def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        return sum(file.rows for file in self.files if file.table == table)

    def as_json(self) -> bytes:
        """Return the document."""
        tables: dict[str, Any] = {}
        for name in self.request["tables"]:
            files = [file.as_document() for file in self.files if file.table == name]
            tables[name] = {"rows": self.rows(name), "files": files}
        document = {
            "schema_version": SCHEMA_VERSION,
            "tool": tool_name(),
            "complete": self.complete,
            "export": self.request,
            "tables": tables,
            "findings": self.findings,
            "stores": [store.as_document() for store in self.stores],
            "run": self.run,
        }
        return json.dumps(document, indent=1, ensure_ascii=True).encode() + b"\n"


def read_manifest(raw: bytes, where: str) -> Manifest:
    """Read what `as_json` wrote.

    :raises Refused: it is no manifest of this tool, or of a later schema.
    """
    try:
        document = json.loads(raw)
        if document["schema_version"] != SCHEMA_VERSION:
            raise Refused(f"{where}: schema version {document['schema_version']}; this tool writes {SCHEMA_VERSION}")
        _check(document, _DOCUMENT)
        tables = document["export"]["tables"]
        files = [_read_file(table, entry) for table in tables for entry in document["tables"][table]["files"]]
        return Manifest(
            document["export"],
            files,
            [_read_store(entry) for entry in document["stores"]],
            document["findings"],
            document["run"],
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{where}: is no manifest of an export: {error}") from error


# What is counted with, compared or asked for by name later: anybody may have edited the file.
_DOCUMENT = {"export": dict, "tables": dict, "stores": list, "findings": dict | None, "run": dict}
_FILE = {"name": str, "store": str, "rows": int, "bytes": int}
_STORE = {"name": str, "paths": list, "inputs": list, "segments": list, "lost": list, "unread": list, "writer": list}
_RANGE = {"start": int, "end": int}
_SEGMENT = {"base": int, "begin": int | None, "end": int | None}


def _check(entry: Any, types: Mapping[str, Any]) -> None:
    for name, type_ in types.items():
        if not isinstance(entry[name], type_):
            raise TypeError(f"{name} is of type {type(entry[name]).__name__}")


def _read_file(table: str, entry: dict[str, Any]) -> ExportedFile:
    _check(entry, _FILE)
    if "start" in entry:
        _check(entry, _RANGE)
    statuses = entry.get("statuses", {})
    _check(statuses, dict.fromkeys(statuses, int))
    return ExportedFile(
        entry["name"],
        table,
        entry["store"],
        entry["rows"],
        entry["bytes"],
        entry.get("start"),
        entry.get("end"),
        entry.get("behind_log_end", False),
        statuses,
    )


def _read_store(entry: dict[str, Any]) -> ExportedStore:
    _check(entry, _STORE)
    covered = entry["covered"]
    if covered is not None:
        _check(covered, _RANGE)
    for segment in entry["segments"]:
        _check(segment, _SEGMENT)
    for lost in entry["lost"]:
        _check(lost, {**_RANGE, "kind": str})
    return ExportedStore(
        entry["name"],
        entry["paths"],
        entry["inputs"],
        covered and covered["start"],
        covered and covered["end"],
        entry["segments"],
        [(one["start"], one["end"], one["kind"]) for one in entry["lost"]],
        list(map(str, entry["unread"])),
        entry["writer"],
    )


# --- fingerprints ---------------------------------------------------------------------------------


def fingerprint(segment: Segment, begin: int | None, end: int | None) -> dict[str, Any]:
    """Return what shows later whether the records of a segment are still those that were exported.

    `begin` and `end` are the physical offsets of the first record and behind the last one that is
    covered, None without one. It has the size and a hash of the first and the last 4 KiB of them.
    """
    known: dict[str, Any] = {"base": segment.base, "size": segment.size, "begin": begin, "end": end}
    known["sha256"] = None if begin is None or end is None else _hash_edges(segment, begin, end)
    return known


def _hash_edges(segment: Segment, begin: int, end: int) -> str | None:
    start, stop = begin - segment.base, end - segment.base
    try:
        with open_file(segment) as reader:
            raw = reader.read(start, min(_EDGE, stop - start))
            raw += reader.read(max(start, stop - _EDGE), min(_EDGE, stop - start))
    except Unreadable:
        return None
    return hashlib.sha256(raw).hexdigest()


def is_unchanged(known: dict[str, Any], segment: Segment) -> bool:
    """Tell whether a segment still is what a fingerprint was taken of."""
    now = fingerprint(segment, known["begin"], known["end"])
    return all(known[name] == value for name, value in now.items())


def missed_segments(store: Store, known: ExportedStore) -> list[Segment]:
    """Return the segments of which the export could not read everything, as far as they are still there."""
    missed = {entry["base"] for entry in known.segments if not entry.get("complete", True)}
    return [segment for segment in store.segments if segment.base in missed]


def changed_segments(store: Store, known: ExportedStore, log_end: int) -> list[Segment]:
    """Return the segments that were exported and are different now; those that have expired are none.

    What was exported and lies behind the log's end now was cut off, and what a broker wrote over the begin
    of it need not reach to its last bytes.
    """
    by_base = {segment.base: segment for segment in store.segments}
    return [
        by_base[entry["base"]]
        for entry in known.segments
        if entry["base"] in by_base
        and (_last_covered(known, entry) > log_end or not is_unchanged(entry, by_base[entry["base"]]))
    ]


def _last_covered(known: ExportedStore, entry: dict[str, Any]) -> int:
    """Return the physical offset behind the last record of a segment that is no later than what was covered."""
    return min(entry["end"] or 0, known.end or 0)


def cut_segments(store: Store, known: ExportedStore) -> list[int]:
    """Return the bases of segments that were exported, are gone, and have none behind them.

    Retention deletes from the front (MappedFileQueue#deleteExpiredFileByTime); from the back a start deletes
    that ends the log before them (MappedFileQueue#truncateDirtyFiles), and somebody who copied too little.
    """
    last = max((segment.base for segment in store.segments), default=-1)
    return [entry["base"] for entry in known.segments if entry["base"] > last]


# --- what differs between two runs ----------------------------------------------------------------


def describe_run(arguments: Sequence[str], engine: str, started: datetime, packages: Sequence[str]) -> dict[str, Any]:
    """Return the object `run`: the exact command, times, versions."""
    return {
        "command": shlex.join(map(without_secrets, arguments)),
        "engine": engine,
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _version(package: str) -> str:
    """Return the version of a package; that of a Spark that is on the path and was not installed is in itself."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return str(getattr(sys.modules.get(package), "__version__", "unknown"))

"""`_manifest.json`: the files of an export, the stores they were made from, and the range of the log they cover.

It is written after all files and before `_SUCCESS`. Two exports of an unchanged store differ in the object `run`
alone. docs/export.md describes every field.
"""

import hashlib
import json
import platform
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, NamedTuple

from msgspec import Struct, field

from rmqinspect.document import as_object
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.output import SCHEMA_VERSION
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.system import run as system_run
from rmqinspect.system.uri import shown
from rmqinspect.version import tool_name

MANIFEST, SUCCESS = "_manifest.json", "_SUCCESS"

_EDGE = 4096  # bytes at either end of a segment's records that its fingerprint covers
_MAX_LOST = 10_000  # ranges without records that are listed; their sums are exact


class ExportedFile(Struct):
    """One file of an export."""

    name: str  # relative to the target
    table: str
    store: str
    rows: int
    size: int
    start: int | None = None  # physical offsets, for parts of the log
    end: int | None = None
    is_tail: bool = False  # behind the log's end at that time: --incremental replaces it
    statuses: dict[str, int] = field(
        default_factory=dict
    )  # rows whose status is not ok; for all files of a part in its first one

    def as_document(self) -> dict[str, Any]:
        """Return the file's entry in the manifest."""
        entry: dict[str, Any] = {"name": self.name, "store": self.store, "rows": self.rows, "bytes": self.size}
        if self.start is not None:
            entry |= {"start": self.start, "end": self.end}
        if self.is_tail:
            entry["behind_log_end"] = True
        return entry | ({"statuses": self.statuses} if self.statuses else {})


class ExportedStore(Struct):
    """The entry of one store."""

    name: str
    paths: Sequence[str]
    inputs: list[dict[str, Any]] = field(default_factory=list)  # file, size, modified
    start: int | None = None  # range of the log that is covered, physical offsets
    end: int | None = None
    segments: list[dict[str, Any]] = field(default_factory=list)  # fingerprints
    lost: list[tuple[int, int, str]] = field(default_factory=list)  # start, end, kind: unknown, zeros, missing
    unread: list[str] = field(default_factory=list)
    releases: Sequence[str] = ()  # broker releases that may have written it

    def lost_in(self, offsets: Sequence[int] | None) -> list[tuple[int, int, str]]:
        """Return (start, end, kind) of what is lost of the range asked for, None: of all."""
        first, behind = offsets or (0, 1 << 63)
        cut = [(max(start, first), min(end, behind), kind) for start, end, kind in self.lost]
        return [(start, end, kind) for start, end, kind in cut if start < end]

    def is_complete(self, offsets: Sequence[int] | None) -> bool:
        """Whether all of the range asked for was there and could be read."""
        return not self.unread and not self.lost_in(offsets)

    def as_document(self, offsets: Sequence[int] | None) -> dict[str, Any]:
        """Return the store's entry in the manifest; `offsets`: the range asked for."""
        sums: dict[str, Counter[str]] = {}
        for start, end, kind in self.lost:
            sums.setdefault(kind, Counter()).update({"count": 1, "bytes": end - start})
        return {
            "name": self.name,
            "paths": list(map(shown, self.paths)),
            "writer": list(self.releases),
            "covered": None if self.start is None else {"start": self.start, "end": self.end},
            "complete": self.is_complete(offsets),
            "unread": self.unread,
            "gaps": {kind: dict(sums[kind]) for kind in sorted(sums)},
            "lost": [{"start": start, "end": end, "kind": kind} for start, end, kind in self.lost[:_MAX_LOST]],
            "segments": self.segments,
            "inputs": self.inputs,
        }


class SkippedStore(NamedTuple):
    """A store that was given and could not be read, with --skip-unreadable."""

    name: str
    paths: Sequence[str]
    error: str

    def as_document(self) -> dict[str, Any]:
        """Return the store's entry in the manifest."""
        return {"name": self.name, "paths": list(map(shown, self.paths)), "error": self.error}


class Manifest(Struct):
    """The content of `_manifest.json`."""

    request: dict[str, Any]
    files: list[ExportedFile] = field(default_factory=list)
    stores: list[ExportedStore] = field(default_factory=list)
    findings: dict[str, int] | None = None  # by severity; None without the table `findings`
    run: dict[str, Any] = field(default_factory=dict)
    skipped: list[SkippedStore] = field(default_factory=list)  # of the newest run

    @property
    def offsets(self) -> Sequence[int] | None:
        """The range of the log that was asked for, None: all of it."""
        offsets: Sequence[int] | None = self.request.get("filters", {}).get("offsets")
        return offsets

    @property
    def complete(self) -> bool:
        """Whether everything requested was there and could be read."""
        return self.is_read and all(store.is_complete(self.offsets) for store in self.stores)

    @property
    def is_read(self) -> bool:
        """Whether everything requested that is there could be read."""
        return not self.skipped and not any(store.unread for store in self.stores)

    def rows(self, table: str) -> int:
        """Return the number of rows of a table."""
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
            "stores": [store.as_document(self.offsets) for store in self.stores],
            "skipped": [store.as_document() for store in self.skipped],
            "run": self.run,
        }
        return json.dumps(document, indent=1, ensure_ascii=True).encode() + b"\n"


def read_manifest(raw: bytes, where: str) -> Manifest:
    """Parse the output of `as_json`; `where` names the file in messages.

    :raises Refused: it is not a manifest, or has another schema version.
    """
    try:
        document = json.loads(raw)
        if document["schema_version"] != SCHEMA_VERSION:
            raise Refused(f"{where}: schema version {document['schema_version']}; this tool writes {SCHEMA_VERSION}")
        _check_types(document, _DOCUMENT)
        tables = document["export"]["tables"]
        files = [_read_file(table, entry) for table in tables for entry in document["tables"][table]["files"]]
        return Manifest(
            document["export"],
            files,
            [_read_store(entry) for entry in document["stores"]],
            document["findings"],
            document["run"],
            [_read_skipped(entry) for entry in document.get("skipped", ())],
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{where}: is not the manifest of an export: {error}") from error


# Fields that later code computes with or looks up. The file may have been edited.
_DOCUMENT = {"export": dict, "tables": dict, "stores": list, "findings": dict | None, "run": dict}
_FILE = {"name": str, "store": str, "rows": int, "bytes": int}
_STORE = {"name": str, "paths": list, "inputs": list, "segments": list, "lost": list, "unread": list, "writer": list}
_RANGE = {"start": int, "end": int}
_SEGMENT = {"base": int, "begin": int | None, "end": int | None}


def _check_types(entry: Any, types: Mapping[str, Any]) -> None:
    for name, type_ in types.items():
        if not isinstance(entry[name], type_):
            raise TypeError(f"{name} is of type {type(entry[name]).__name__}")


def _read_file(table: str, entry: dict[str, Any]) -> ExportedFile:
    _check_types(entry, _FILE)
    if "start" in entry:
        _check_types(entry, _RANGE)
    statuses = entry.get("statuses", {})
    _check_types(statuses, dict.fromkeys(statuses, int))
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
    _check_types(entry, _STORE)
    covered = entry["covered"]
    if covered is not None:
        _check_types(covered, _RANGE)
    for segment in entry["segments"]:
        _check_types(segment, _SEGMENT)
    for lost in entry["lost"]:
        _check_types(lost, {**_RANGE, "kind": str})
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


def _read_skipped(entry: dict[str, Any]) -> SkippedStore:
    _check_types(entry, {"name": str, "paths": list, "error": str})
    return SkippedStore(entry["name"], tuple(map(str, entry["paths"])), entry["error"])


# --- fingerprints ---------------------------------------------------------------------------------


def fingerprint(segment: Segment, begin: int | None, end: int | None) -> dict[str, Any]:
    """Return the fingerprint of a segment's exported records: size, and a hash of their first and last 4 KiB.

    `begin` and `end` are the physical offsets of the first covered record and behind the last one, None without any.
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
    """Whether a segment still matches a fingerprint."""
    now = fingerprint(segment, known["begin"], known["end"])
    return all(known[name] == value for name, value in now.items())


def missed_segments(store: Store, known: ExportedStore) -> list[Segment]:
    """Return the existing segments that the earlier export could not read completely."""
    missed = {entry["base"] for entry in known.segments if not entry.get("complete", True)}
    return [segment for segment in store.segments if segment.base in missed]


def changed_segments(store: Store, known: ExportedStore, log_end: int) -> list[Segment]:
    """Return the existing segments whose exported records have changed.

    Exported records that now lie behind the log's end were cut off. Records written over them may end before the
    hashed edge, so the end is compared as well.
    """
    by_base = {segment.base: segment for segment in store.segments}
    return [
        by_base[entry["base"]]
        for entry in known.segments
        if entry["base"] in by_base
        # Where its last covered record ends, or whether it is as it was.
        and (min(entry["end"] or 0, known.end or 0) > log_end or not is_unchanged(entry, by_base[entry["base"]]))
    ]


def cut_segments(store: Store, known: ExportedStore) -> list[int]:
    """Return the bases of exported segments that are missing from the end of the log.

    Retention deletes from the front (MappedFileQueue#deleteExpiredFileByTime). From the end, segments go when a
    recovery truncates the log (MappedFileQueue#truncateDirtyFiles), or when a copy is incomplete.
    """
    last = max((segment.base for segment in store.segments), default=-1)
    return [entry["base"] for entry in known.segments if entry["base"] > last]


# --- the object `run` ------------------------------------------------------------------------------


def describe_run(engine: str, started: datetime, packages: Sequence[str]) -> dict[str, Any]:
    """Return the object `run`: that of all documents, and the command line in one, engine, times and versions."""
    own = system_run.describe_run()
    return {
        **as_object(own),
        "command": shlex.join(["rmqinspect", *own.arguments]),
        "engine": engine,
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _version(package: str) -> str:
    """Return the version of a package; a Spark that is on the path but not installed knows its own."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return str(getattr(sys.modules.get(package), "__version__", "unknown"))

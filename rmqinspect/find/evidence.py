"""What `find --evidence` writes: an answer that a stranger can check with the files of the store alone.

    hits, scopes, misses -> evidence_of -> Evidence -> JSON      docs/evidence.md has its fields

A record is proved by its bytes, the place where they lie, and the digest of the file that holds that place. So is a
queue unit or an index entry that leads to it. A miss is proved as far as it can be: by what was searched, with the
digests of these files, and by what was not. Both are said in `proves` and `does_not_prove`, with no word more than the
files show. All but `run` is the same in every run on the same files.

A file is hashed once its bytes were taken. If its time is then another than before the search, the evidence is
incomplete.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from rmqinspect.codec.arrays import Span, intersect
from rmqinspect.codec.java import ID_MARKS, index_hash, index_key
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import BadOption, Unreadable
from rmqinspect.find.evidence_document import (
    SCHEMA_VERSION,
    Evidence,
    FoundRecord,
    Gap,
    HashedFile,
    LeadingEntry,
    LeadingUnit,
    Left,
    Missed,
    SearchedAgain,
    SearchedStore,
    Stretch,
)
from rmqinspect.find.finding import Finding, Searched
from rmqinspect.find.misses import Miss
from rmqinspect.find.queue_units import units_of
from rmqinspect.find.search import ID, KEY, QUEUE_OFFSET, Scope
from rmqinspect.index.geometry import IndexFile, read_entries
from rmqinspect.index.lookup import usable_files
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.store.digest import sha256_of
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import modified_at, open_file
from rmqinspect.text import describe_size
from rmqinspect.times import format_micros, format_nanos
from rmqinspect.version import tool_name

MOST_RECORDS, MOST_BYTES = 1000, 256 << 20
"""Records that an evidence has at most, and their bytes: it is about some messages, not about a topic."""

COLUMNS = frozenset({"physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "size", "status"})
"""Columns of a hit that are told of it."""

_WINDOW = 1 << 17  # index entries read at a time
_ENTRY_SIZE: int = IndexEntry.sizeof()


# --- gathering them ---------------------------------------------------------------------------------------


class Hits(Struct):
    """The records that are found, as they come: `watch` the stores, `take` the hits; `evidence_of` tells of them."""

    rows: list[tuple[Store, dict[str, Any]]] = field(default_factory=list)
    size: int = 0  # bytes of them
    modified: dict[str, int] = field(default_factory=dict)  # path -> when it was changed last, before it was read

    def watch(self, store: Store) -> None:
        """Note the times of the files of a store that a search may read, before it does."""
        some = (*store.segments, *store.index_files, *store.queue_files)
        own = {file.path for file in store.files}  # what is unpacked from RocksDB is no file of the store
        self.modified |= {file.path: modified_at(file) for file in some if file.path in own}

    def take(self, store: Store, rows: pa.RecordBatch) -> None:
        """Take some hits of a store, with `COLUMNS`.

        :raises BadOption: there are too many.
        """
        if len(self.rows) + rows.num_rows > MOST_RECORDS:
            raise BadOption(f"--evidence: more than {MOST_RECORDS} records: narrow the question, or give -n")
        told = rows.select([name for name in rows.schema.names if name in COLUMNS])
        for row in told.to_pylist():
            segment = store.segment_at(row["physical_offset"])
            self.size += 0 if segment is None else min(row["size"] or 0, segment.end - row["physical_offset"])
            self.rows.append((store, row))
        if self.size > MOST_BYTES:
            raise BadOption(f"--evidence: records of more than {describe_size(MOST_BYTES)}: give -n")


def evidence_of(finding: Finding, misses: Sequence[Miss], hits: Hits, question: Mapping[str, Any]) -> Evidence:
    """Return the evidence of a search that has ended."""
    stores: list[SearchedStore] = []
    records: list[FoundRecord] = []
    asked = {one.kind for one in finding.questions}
    for searched in finding.searched:
        gathered = _Gathered(searched.store, hits.modified)
        own = [row for store, row in hits.rows if store is searched.store]
        records += gathered.records(own)
        stores.append(gathered.searched(searched, asked))
    unread = [*finding.unread, *(line for one in stores for line in one.unread)]
    found = "FOUND IN PART" if finding.unanswered else "FOUND"
    return Evidence(
        schema_version=SCHEMA_VERSION,
        tool=tool_name(),
        complete=not unread and not any(one.gaps for one in stores),
        question=dict(question),
        answer=found if records else "NOT FOUND",
        more=bool(finding.more),
        records=records,
        misses=[Missed(one.store, one.asked, one.reading, one.reason, one.text) for one in misses],
        stores=stores,
        proves=list(_proves(records, misses, stores)),
        does_not_prove=list(_does_not_prove(records, misses, stores)),
    )


class _Gathered:
    """What is taken from one store: bytes, and then the digests of the files that they are from."""

    def __init__(self, store: Store, modified: Mapping[str, int]) -> None:
        self._store = store
        self._modified = modified
        self._files: dict[str, StoreFile] = {}  # by name: on which something rests
        self._unread: list[str] = []

    def _note(self, file: StoreFile) -> bool:
        """Note that something rests on a file; return whether it is one of the store."""
        if file.path not in self._modified:
            return False
        self._files[file.name] = file
        return True

    def records(self, rows: Sequence[dict[str, Any]]) -> list[FoundRecord]:
        """Return records with their bytes, and what leads to them."""
        with RecordReader(self._store) as log:
            entries = self._entries({row["physical_offset"] for row in rows})
            return [one for row in rows if (one := self._record(log, row, entries)) is not None]

    def _record(self, log: RecordReader, row: dict[str, Any], entries: Mapping[int, list[Any]]) -> FoundRecord | None:
        place = row["physical_offset"]
        segment = self._store.segment_at(place)
        if segment is None:
            return None  # it went while it was read
        try:
            part = self._bytes(segment, place - segment.base, max(0, row["size"] or 0))
            fields = log.fields_at(place)
        except Unreadable as error:
            self._unread.append(str(error))
            return None
        time = row["store_timestamp"]
        return FoundRecord(
            **part,
            store=self._store.name,
            physical_offset=place,
            topic=row["topic"],
            queue_id=row["queue_id"],
            queue_offset=row["queue_offset"],
            store_timestamp=None if time is None else format_micros(_micros(time)),
            status=row["status"],
            units=list(self._units(fields)),
            entries=list(self._leading(fields, entries.get(place, []))),
        )

    def _bytes(self, file: StoreFile, position: int, size: int) -> dict[str, Any]:
        """Return the fields of `Bytes`.

        :raises Unreadable: an I/O error.
        """
        self._note(file)
        with open_file(file) as reader:
            raw = reader.read(position, size)
        return {
            "file": file.name,
            "position": position,
            "size": len(raw),
            "bytes": base64.b64encode(raw).decode(),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }

    def _units(self, record: ParsedFields | None) -> Iterator[LeadingUnit]:
        """Yield the units that lead to a record, those that lie in files."""
        if record is None:  # it does not prove itself: nothing can be said to lead to it
            return
        files = {file.name: file for file in self._store.queue_files}
        try:
            for unit in units_of(self._store, record):
                file = None if unit.file is None else files.get(unit.file)
                if file is None or unit.position is None or unit.state not in ("present", "wrong"):
                    continue
                if self._note(file):
                    part = self._bytes(file, unit.position, LAYOUTS[file.kind].sizeof())
                    yield LeadingUnit(
                        **part,
                        topic=unit.topic,
                        queue_id=unit.queue_id,
                        queue_offset=unit.queue_offset,
                        state=unit.state,
                        detail=unit.detail,
                    )
        except Unreadable as error:
            self._unread.append(str(error))

    def _entries(self, places: set[int]) -> dict[int, list[tuple[IndexFile, int, int]]]:
        """Return (file, number, hash) of the index entries that lead to some places, by place; a file is read once."""
        found: dict[int, list[tuple[IndexFile, int, int]]] = {}
        for index in usable_files(self._store, self._unread) if places else ():
            assert index.header is not None
            assert index.geometry is not None
            borders = index.header.begin_physical_offset, index.header.end_physical_offset
            inside = [place for place in places if borders[0] <= place <= borders[1]]
            try:
                with open_file(index.file) as reader:
                    for first in range(1, index.readable_entries + 1, _WINDOW) if inside else ():
                        number = min(_WINDOW, index.readable_entries + 1 - first)
                        some = read_entries(reader, index.geometry, first, number)
                        for row in np.flatnonzero(np.isin(some["physical_offset"], inside)).tolist():
                            entry = index, first + row, int(some["key_hash"][row])
                            found.setdefault(int(some["physical_offset"][row]), []).append(entry)
            except Unreadable as error:
                self._unread.append(str(error))
        return found

    def _leading(
        self, record: ParsedFields | None, entries: Iterable[tuple[IndexFile, int, int]]
    ) -> Iterator[LeadingEntry]:
        """Yield index entries, each with the key of the record that it is about."""
        keys = {} if record is None else _hashes(record)
        for index, number, key_hash in entries:
            assert index.geometry is not None
            try:
                part = self._bytes(index.file, index.geometry.entry_position(number), _ENTRY_SIZE)
            except Unreadable as error:
                self._unread.append(str(error))
                continue
            yield LeadingEntry(**part, entry=number, key_hash=key_hash, key=keys.get(key_hash))

    def searched(self, searched: Searched, asked: set[str]) -> SearchedStore:
        """Return what was read of the store, with the digests of its files."""
        scope, store = searched.scope, self._store
        if scope.pointed:  # what leads to records was searched, too
            for file in store.index_files if asked & {ID, KEY} else ():
                self._note(file)
            for file in store.queue_files if QUEUE_OFFSET in asked else ():
                self._note(file)
        second = [one for again in searched.second.values() for one in again.unread]
        return SearchedStore(
            name=store.name,
            hits=searched.hits,
            way=scope.way,
            log_start=scope.whole[0],
            log_end=scope.whole[1],
            searched=self._stretches(scope),
            not_searched=_left(scope),
            gaps=_gaps(scope),
            records=scope.records,
            statuses=dict(sorted(scope.statuses.items())),
            first_store_timestamp=None if scope.first_time is None else format_micros(scope.first_time),
            last_store_timestamp=None if scope.last_time is None else format_micros(scope.last_time),
            again=[
                SearchedAgain(
                    asked=question.text,
                    way=one.way,
                    searched=self._stretches(one),
                    not_searched=_left(one),
                    gaps=_gaps(one),
                    records=one.records,
                )
                for question, one in searched.second.items()
            ],
            files=[self._hashed(name) for name in sorted(self._files)],
            unread=list(dict.fromkeys([*scope.unread, *second, *self._unread])),
        )

    def _stretches(self, scope: Scope) -> list[Stretch]:
        """Return the parts of the segments that were searched."""
        stretches = []
        for segment in self._store.segments:
            for start, end in intersect([(segment.base, segment.end)], list(scope.spans)):
                self._note(segment)
                stretches.append(Stretch(segment.name, start - segment.base, end - start, start))
        return stretches

    def _hashed(self, name: str) -> HashedFile:
        file = self._files[name]
        mtime = self._modified[file.path]
        digest = None
        try:
            digest = sha256_of(file)
        except Unreadable as error:
            self._unread.append(str(error))
        if modified_at(file) != mtime:
            self._unread.append(f"{name}: changed while it was read")
        return HashedFile(name, file.size, format_nanos(mtime), digest)


def _micros(time: Any) -> int:
    """Return a time of a row in microseconds since 1970."""
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))


def _hashes(record: ParsedFields) -> dict[int, str]:
    """Return the keys of a record by the hashes that the index has of them."""
    names = [*record.properties.get("KEYS", "").split(" "), record.properties.get("UNIQ_KEY", "")]
    return {index_hash(index_key(record.topic, name, mark)): name for name in names if name for mark in ("", *ID_MARKS)}


def _left(scope: Scope) -> list[Left]:
    why = "no pointer leads there; --scan reads it" if scope.pointed else "outside of what was asked for"
    return [Left(start, end, why) for start, end in _rest(scope)]


def _gaps(scope: Scope) -> list[Gap]:
    return [Gap(start, end) for start, end in sorted(scope.gaps)]


def _rest(scope: Scope) -> list[Span]:
    """Return what of the log was not searched."""
    rest, at = [], scope.whole[0]
    for start, end in (*sorted(scope.spans), (scope.whole[1], scope.whole[1])):
        if at < start:
            rest.append((at, start))
        at = max(at, end)
    return rest


# --- what follows from it -----------------------------------------------------------------------------------


def _proves(records: Sequence[FoundRecord], misses: Sequence[Miss], stores: Sequence[SearchedStore]) -> Iterator[str]:
    if records:
        yield (
            "The bytes of each record, unit and entry lie at the named position of the named file, and that file has "
            "the named SHA-256: whoever holds files with these digests can read them there."
        )
    if misses:
        limits = "".join(
            word
            for word, some in (
                (", except in `gaps`, where no record can be read", any(one.gaps for one in stores)),
                (
                    ", as far as damaged records (`statuses`) still say what they were",
                    any(one.statuses for one in stores),
                ),
                (", as far as it could be read (`unread`)", any(one.unread for one in stores)),
            )
            if some
        )
        yield (
            "No record that begins in the ranges in `searched`, of files with the named SHA-256, answers a question in "
            "`misses`; an id that may be a producer's was looked for as one in those of `again`"
            f"{limits}."
        )


def _does_not_prove(
    records: Sequence[FoundRecord], misses: Sequence[Miss], stores: Sequence[SearchedStore]
) -> Iterator[str]:
    if records:
        yield (
            "That a producer sent these bytes, or that a broker wrote them at that time: a record can be forged with a "
            "right checksum. A replica, logs of clients, or digests from before would tell."
        )
        yield "That a consumer has got or processed the message."
    if not misses:
        return
    yield (
        "That the message was never sent, or never stored: retention deletes the oldest segments; after an unclean "
        "stop a broker ends the log earlier and writes other records over what followed; and whoever can write to the "
        "files can remove a record and leave a log that is whole."
    )
    for store in stores:
        if store.log_start:
            yield f"{store.name}: what lay before physical offset {store.log_start}, where this log begins."
        if store.not_searched:
            size = sum(one.end - one.start for one in store.not_searched)
            yield f"{store.name}: what lies in the {size} bytes in `not_searched`."
        if store.gaps:
            yield f"{store.name}: what the {sum(one.end - one.start for one in store.gaps)} bytes in `gaps` held."
        if store.unread:
            yield f"{store.name}: what is in files that could not be read."
    yield "Anything about brokers whose stores are not in `stores`."

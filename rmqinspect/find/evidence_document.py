"""The fields of what `find --evidence` writes; docs/evidence.md lists them, `evidence` fills them in."""

from typing import Annotated, Any

from rmqinspect.document import Part, means

SCHEMA_VERSION = 1
"""A minor change adds fields at the end of their object, a major one renames."""


class Bytes(Part, frozen=True, kw_only=True):
    """Some bytes of a file."""

    file: Annotated[str, means("the file that holds it, by its name in `stores[].files[]`")]
    position: Annotated[int, means("where it begins in that file, in bytes")]
    size: Annotated[int, means("bytes")]
    bytes: Annotated[str, means("the bytes themselves, Base64")]
    sha256: Annotated[str, means("SHA-256 of these bytes, 64 hex digits")]


class LeadingUnit(Bytes, frozen=True, kw_only=True):
    """A queue unit that leads to a record."""

    topic: Annotated[str, means("of the queue")]
    queue_id: Annotated[int, means("of the queue")]
    queue_offset: Annotated[int, means("of the unit")]
    state: Annotated[str, means("`present`, or `wrong`: it contradicts the record")]
    detail: Annotated[str, means("what is wrong")]


class LeadingEntry(Bytes, frozen=True, kw_only=True):
    """An index entry that leads to a record."""

    entry: Annotated[int, means("its number in the file, from 1")]
    key_hash: Annotated[int, means("the hash that it holds")]
    key: Annotated[str | None, means("the key or id of the record that has this hash; null: none has")]


class FoundRecord(Bytes, frozen=True, kw_only=True):
    """A record that answers the question."""

    store: Annotated[str, means("name of the store")]
    physical_offset: Annotated[int, means("where it begins in the log")]
    topic: Annotated[str | None, means("as the record has it")]
    queue_id: Annotated[int | None, means("as the record has it")]
    queue_offset: Annotated[int | None, means("as the record has it")]
    store_timestamp: Annotated[str | None, means("as the record has it, ISO 8601 in UTC")]
    status: Annotated[str, means("`ok`, or what is wrong with it, as in [messages](tables.md)")]
    units: Annotated[list[LeadingUnit], means("queue units that lead to it")]
    entries: Annotated[list[LeadingEntry], means("index entries that lead to it")]


class Stretch(Part, frozen=True):
    """A range of the log that was searched, in one file."""

    file: Annotated[str, means("the segment")]
    position: Annotated[int, means("where it begins in the file")]
    size: Annotated[int, means("bytes")]
    physical_offset: Annotated[int, means("where it begins in the log")]


class Left(Part, frozen=True):
    """A range of the log that was not searched."""

    start: Annotated[int, means("physical offset of its first byte")]
    end: Annotated[int, means("physical offset behind its last byte")]
    why: Annotated[str, means("why not")]


class Gap(Part, frozen=True):
    """A searched range that holds no record that can be read."""

    start: Annotated[int, means("physical offset of its first byte")]
    end: Annotated[int, means("physical offset behind its last byte")]


class SearchedAgain(Part, frozen=True, kw_only=True):
    """What was read once more for one id, which may be that of a broker or that of a producer."""

    asked: Annotated[str, means("the id, as an option")]
    way: Annotated[str, means("how it was looked for, as that of a producer")]
    searched: Annotated[list[Stretch], means("what of the log was searched")]
    not_searched: Annotated[list[Left], means("what of it was not")]
    gaps: Annotated[list[Gap], means("where no record could be read")]
    records: Annotated[int, means("records that were read")]


class HashedFile(Part, frozen=True):
    """A file that something rests on."""

    file: Annotated[str, means("name relative to the store")]
    size: Annotated[int, means("bytes")]
    mtime: Annotated[str, means("modification time, ISO 8601 in UTC with nanoseconds")]
    sha256: Annotated[str | None, means("SHA-256 of its content; null: it could not be read to its end")]


class SearchedStore(Part, frozen=True, kw_only=True):
    """What was read of a store."""

    name: Annotated[str, means("name of the store")]
    hits: Annotated[int, means("records of it that answer the question")]
    way: Annotated[str, means("how they were looked for: `by a scan`, `by the index`, …")]
    log_start: Annotated[int, means("physical offset of the first byte of its log")]
    log_end: Annotated[int, means("physical offset behind the last byte that was to be searched")]
    searched: Annotated[list[Stretch], means("what of the log was searched, in the order of the log")]
    not_searched: Annotated[list[Left], means("what of it was not")]
    gaps: Annotated[list[Gap], means("what of the searched ranges no record could be read in, and may have held some")]
    records: Annotated[int, means("records that were read")]
    statuses: Annotated[
        dict[str, Annotated[int, means("records with this status")]],
        means("of these records those that are not sound and could be an answer: compared by what they say now"),
    ]
    first_store_timestamp: Annotated[str | None, means("of these records, ISO 8601 in UTC")]
    last_store_timestamp: Annotated[str | None, means("of these records, ISO 8601 in UTC")]
    again: Annotated[list[SearchedAgain], means("what was searched again for an id that may be of two kinds")]
    unread: Annotated[list[str], means("what could not be read, one text each")]
    files: Annotated[list[HashedFile], means("what was searched, and what holds the records and what leads to them")]


class Missed(Part, frozen=True):
    """Why a store has no answer to a question."""

    store: Annotated[str, means("name of the store")]
    asked: Annotated[str, means("the question, as options")]
    reading: Annotated[str | None, means("how an id was read; null: there is one way only")]
    reason: Annotated[str, means("[the reason](find.md#questions)")]
    text: Annotated[str, means("why it holds")]


class Evidence(Part, frozen=True, kw_only=True):
    """The whole document; `run` follows it."""

    schema_version: Annotated[int, means("of this document: 1")]
    tool: Annotated[str, means("`rmqinspect` and its version")]
    complete: Annotated[
        bool, means("whether all was there and could be read, without `gaps`, and no file changed meanwhile")
    ]
    question: Annotated[
        dict[str, Annotated[Any, means("value of the filter of this name")]], means("the filters, all of which hold")
    ]
    answer: Annotated[str, means("`FOUND`, `FOUND IN PART`: one of several ids or keys was not, or `NOT FOUND`")]
    more: Annotated[bool, means("whether `-n` ended the search: there may be more, and not all of `searched` was read")]
    records: Annotated[list[FoundRecord], means("in the order in which they were found: by store, then by place")]
    misses: Annotated[list[Missed], means("for each question without an answer, why each store has none")]
    stores: Annotated[list[SearchedStore], means("in the order given")]
    proves: Annotated[list[str], means("what follows from the files, sentences")]
    does_not_prove: Annotated[list[str], means("what does not, sentences")]

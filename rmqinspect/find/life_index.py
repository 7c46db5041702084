"""Which index files lead to a record of a message's life, by each of its keys, and why none does."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from rmqinspect.broker.dispatch import has_index_keys
from rmqinspect.codec.arrays import Span
from rmqinspect.codec.java import ID_MARKS, index_hash, index_key
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.index.geometry import IndexFile
from rmqinspect.index.lookup import look_up
from rmqinspect.text import describe_offset


class KeyEntry(Struct, frozen=True):
    """One key of a record, and the index files with an entry that leads from it to the record."""

    kind: str  # msg_id or key
    key: str
    files: tuple[str, ...]
    detail: str = ""  # why there is no file


def entries_of(records: LifeRecords, step: Step) -> list[KeyEntry]:
    """Return the keys of a record with the index files that lead from each to the record.

    An entry holds a hash: another key may have the same. Source: IndexService#buildIndex.

    :raises Unreadable: an I/O error.
    """
    if not has_index_keys(step.sys_flag):
        return []
    keys = [("msg_id", step.properties.get("UNIQ_KEY")), *(("key", key) for key in dict.fromkeys(step.keys))]
    wanted = {
        key: [index_hash(index_key(step.topic, key, mark)) for mark in (ID_MARKS if kind == "msg_id" else ("",))]
        for kind, key in reversed(keys)
        if key
    }
    if not wanted:
        return []
    place, found = step.physical_offset, dict[str, list[str]]()
    headers = [index.header for index in records.index_files if index.header is not None]  # each usable file has one
    borders = [(int(one.begin_physical_offset), int(one.end_physical_offset)) for one in headers]
    for index in _files_around(records.index_files, borders, place):
        for key, places in look_up([index], wanted, records.log.follows, records.spans_of).places.items():
            if place in places:
                found.setdefault(key, []).append(index.file.name)
    why = "" if len(found) == len(wanted) else _why_none(records, borders, place)
    return [KeyEntry(kind, key, tuple(found.get(key, ())), "" if key in found else why) for kind, key in keys if key]


def _why_none(records: LifeRecords, borders: Sequence[Span], place: int) -> str:
    """Return why no entry leads to a record; `borders` are those of the index files. The first that holds counts."""
    files, around = records.index_files, _files_around(records.index_files, borders, place)
    if records.store.hides("index") or records.unread_index:
        records.unread.append("not all index files could be read")
        return "not known: not all index files could be read"
    if not files:
        return "no index file can be used" if records.store.index_files else "no index files given"
    if place < borders[0][0]:
        return f"the index begins at {describe_offset(borders[0][0])}"
    if place > (last := max(end for _, end in borders)):
        return f"the index ends at {describe_offset(last)}"
    if around and not look_up(around, {}, records.log.follows, records.spans_of).files:
        return f"{around[0].file.name} contradicts itself"
    for (low, (_, end)), (high, (begin, _)) in pairwise(zip(files, borders, strict=True)):
        if end < place < begin:
            return f"{low.file.name} ends before it, {high.file.name} begins behind it"
    return "the entry is missing"


def _files_around(files: Sequence[IndexFile], borders: Sequence[Span], place: int) -> list[IndexFile]:
    """Return the files whose borders a place lies between."""
    return [index for index, (begin, end) in zip(files, borders, strict=True) if begin <= place <= end]

"""The index entries that lead to a record: in which files, and why there is none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqinspect.broker.dispatch import has_index_keys
from rmqinspect.codec.hashes import index_hash, index_key
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.index.geometry import IndexFile
from rmqinspect.index.lookup import look_up
from rmqinspect.text import describe_offset


@dataclass(frozen=True, slots=True)
class KeyEntry:
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
    wanted = {key: [index_hash(index_key(step.topic, key))] for _, key in keys if key}
    if not wanted:
        return []
    place, found = step.physical_offset, dict[str, list[str]]()
    for index in _files_around(records.index_files, place):
        for key, places in look_up([index], wanted, records.log.follows, records.spans_of).places.items():
            if place in places:
                found.setdefault(key, []).append(index.file.name)
    why = "" if len(found) == len(wanted) else _why_none(records, place)
    return [KeyEntry(kind, key, tuple(found.get(key, ())), "" if key in found else why) for kind, key in keys if key]


def _borders(index: IndexFile) -> tuple[int, int]:
    """Return the lowest and the highest place that a file's header names."""
    assert index.header is not None
    return int(index.header.begin_physical_offset), int(index.header.end_physical_offset)


def _files_around(files: Sequence[IndexFile], place: int) -> Iterator[IndexFile]:
    for index in files:
        low, high = _borders(index)
        if low <= place <= high:
            yield index


def _why_none(records: LifeRecords, place: int) -> str:
    """Return why no entry leads to a record."""
    files = records.index_files
    if not files:
        return "no index file can be used" if records.store.index_files else "no index files given"
    first, last = _borders(files[0])[0], max(_borders(index)[1] for index in files)
    if place < first:
        return f"the index begins at {describe_offset(first)}"
    if place > last:
        return f"the index ends at {describe_offset(last)}"
    around = list(_files_around(files, place))
    if around and not look_up(around, {}, records.log.follows, records.spans_of).files:
        return f"{around[0].file.name} contradicts itself"
    between = [(low, high) for low, high in pairwise(files) if _borders(low)[1] < place < _borders(high)[0]]
    if between:
        return f"{between[0][0].file.name} ends before it, {between[0][1].file.name} begins behind it"
    return "the entry is missing"

"""Queue units that point at a record, found with a few small reads.

The queue units that lead, or should lead, to a record: of its own queue, and of the light queues it belongs to.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.dispatch import further_units
from rmqinspect.codec.java import java_string_hash
from rmqinspect.codec.layout import ParsedFields, dtype_of
from rmqinspect.config.json_files import read_config
from rmqinspect.consumequeue.units import LAYOUTS, find_unit
from rmqinspect.damage.patterns import explain_difference
from rmqinspect.loops.pointers import is_filler
from rmqinspect.loops.records import has_queue_unit
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.schemas import consumequeue
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.text import describe_offset, escape
from rmqinspect.topics import LMQ_PREFIX, SCHEDULE_TOPIC

_MOST_OTHER_FILES = 2000  # each costs about ten small reads


class Reference(Struct, frozen=True):
    """A queue unit that points at a record, or stands where the one that should does."""

    file: QueueFile
    position: int  # bytes, in the file
    number: int  # of the unit in the queue; of a batch unit: its first queue offset
    place: int  # that it points at, a physical offset
    size: int  # of the record there; 0: not written
    tags_code: int
    problems: tuple[str, ...]  # what differs from the record

    @property
    def disagrees(self) -> bool:
        """Whether the unit contradicts the record; one not written (yet) does not."""
        return bool(self.problems) and self.size != 0 and not is_filler(self.place, self.size, self.tags_code)


def files_of_queue(store: Store, topic: str, queue_id: int) -> list[QueueFile]:
    """Return the files that hold the units of a queue, in order; batch queues among them."""
    return [
        file for file in store.queue_files if (file.topic, file.queue_id) == (topic, queue_id) and file.kind in LAYOUTS
    ]


def find_references(store: Store, record: ParsedFields) -> list[Reference]:
    """Return the queue units of a record: the one at its queue offset, and else also one that points at it.

    Where none of the record's queue points at it, those of other queues are searched: topic or queue id of the record
    may be wrong. Light queues hold records of other topics anyway.

    :raises Unreadable: an I/O error.
    """
    own = record.topic, record.number("queue_id")
    place = _place_of(record)
    found: list[Reference] = []
    for kind in LAYOUTS:
        some = [file for file in files_of_queue(store, *own) if file.kind == kind]
        here = _at_queue_offset(some, record) if kind == "queue" else None
        there = None if here is not None and here.place == place else _pointing_at(some, record)
        found += [reference for reference in (here, there) if reference is not None]
    if any(reference.place == place for reference in found) or not has_queue_unit(record.number("sys_flag")):
        return found
    others = [
        file
        for file in store.queue_files
        if file.kind in LAYOUTS and (file.topic, file.queue_id) != own and not file.topic.startswith(LMQ_PREFIX)
    ]
    pointing = (_pointing_at([file], record) for file in others[:_MOST_OTHER_FILES])
    return found + [reference for reference in pointing if reference is not None]


def _at_queue_offset(files: list[QueueFile], record: ParsedFields) -> Reference | None:
    """Return the unit at the record's queue offset."""
    at = record.number("queue_offset") * consumequeue.QueueUnit.sizeof()
    for file in files:
        if file.base <= at < file.base + file.size:
            with open_file(file) as reader:
                return _reference(file, at - file.base, _unit(reader, file, at - file.base), record)
    return None


def _pointing_at(files: list[QueueFile], record: ParsedFields) -> Reference | None:
    """Return the unit with the record's physical offset, by bisection: units ascend in it."""
    target = _place_of(record)
    for file in files:
        size = LAYOUTS[file.kind].sizeof()
        low, high = 0, file.size // size
        with open_file(file) as reader:
            while low < high:
                middle = (low + high) // 2
                unit = _unit(reader, file, middle * size)
                if unit["size"] and unit["physical_offset"] < target:
                    low = middle + 1
                else:
                    high = middle
            unit = _unit(reader, file, low * size)
        if unit["physical_offset"] == target and unit["size"] > 0:
            return _reference(file, low * size, unit, record)
    return None


def _unit(reader: FileReader, file: QueueFile, position: int) -> Any:
    """Return the unit at a position of a file, a numpy struct; zeros behind the file's end."""
    layout = dtype_of(LAYOUTS[file.kind])
    return np.frombuffer(reader.read(position, layout.itemsize).ljust(layout.itemsize, b"\0"), layout)[0]


def _reference(file: QueueFile, position: int, unit: Any, record: ParsedFields) -> Reference:
    if file.kind == "queue":
        number = (file.base + position) // consumequeue.QueueUnit.sizeof()
    else:
        number = int(unit["queue_offset"])
    fields = int(unit["physical_offset"]), int(unit["size"]), int(unit["tags_code"])
    found = Reference(file, position, number, *fields, ())
    return replace(found, problems=tuple(_problems(found, record)))


def _problems(found: Reference, record: ParsedFields) -> Iterator[str]:
    if found.size == 0:
        yield "not written"
        return
    if is_filler(found.place, found.size, found.tags_code):
        yield "a pre-blank filler"
        return
    place = _place_of(record)
    if found.place != place:
        yield f"points at {found.place}, not here{_flip(place, found.place, 64)}"
        return
    file, topic, queue_id = found.file, record.topic, record.number("queue_id")
    if (file.topic, file.queue_id) != (topic, queue_id):
        flip = _flip(file.queue_id, queue_id, 32) if file.topic == topic else ""
        own, named = f"{escape(file.topic)} queue {file.queue_id}", f"{escape(topic)} queue {queue_id}"
        yield f"a unit of {own}, the record says {named}{flip}"
    size, queue_offset = record.number("total_size"), record.number("queue_offset")
    if found.size != size:
        yield f"size {found.size}, the record has {size}{_flip(size, found.size, 32)}"
    if found.number != queue_offset:
        flip = _flip(found.number, queue_offset, 64)
        yield f"unit {found.number}, the record's queue offset is {queue_offset}{flip}"
    expected = _tags_code(record)
    if expected is not None and found.tags_code > consumequeue.EXT_ADDRESS_MAX and found.tags_code != expected:
        flip = _flip(expected, found.tags_code, 64)
        yield f"tags code {found.tags_code}, of the record's tags it would be {expected}{flip}"


def _place_of(record: ParsedFields) -> int:
    """Return the physical offset where a record lies, which its own field may name wrongly."""
    return record.number("physical_offset") if record.physical_offset is None else record.physical_offset


def _flip(expected: int, found: int, width: int) -> str:
    why = explain_difference(expected, found, width)
    return f"; {why}" if why else ""


def _tags_code(record: ParsedFields) -> int | None:
    """Return the tags code of a record's unit; None in the schedule topic, whose units hold a deliver time.

    Source: CommitLog#checkMessageAndReturnSize, MessageExtBrokerInner#tagsString2tagsCode.
    """
    if record.topic == SCHEDULE_TOPIC:
        return None
    tags = record.properties.get("TAGS")
    return java_string_hash(tags) if tags else 0


STATES = {
    "present": "a unit leads to the record",
    "wrong": "the unit contradicts the record, or points elsewhere",
    "missing": "no unit leads to the record",
    "none": "the record belongs in no queue",
    "unknown": "the queue was not given, or could not be read",
}
"""States of the unit that a record should have, with their meaning."""


class Unit(Struct, frozen=True):
    """A queue unit that leads to a record, or does not."""

    topic: str
    queue_id: int
    queue_offset: int  # of the unit; of a missing one, where it should be
    state: str  # one of STATES
    detail: str = ""  # what is wrong, or why none is there
    file: str | None = None
    position: int | None = None  # bytes, in the file


COMPACTION = (
    "cleanup policy COMPACTION: from 5.1.0 on a broker serves it from its compaction log, which is not read here"
)


def compacted_topics(store: Store) -> frozenset[str]:
    """Return the topics that a broker serves from their compaction log. Source: CleanupPolicyUtils#getDeletePolicy."""
    config = read_config(store, "topics.json")
    topics = {} if config is None else config.table("topicConfigTable")
    attributes = {topic: entry.get("attributes") for topic, entry in topics.items() if isinstance(entry, dict)}
    policies = {topic: own.get("cleanup.policy") for topic, own in attributes.items() if isinstance(own, dict)}
    return frozenset(topic for topic, policy in policies.items() if policy == "COMPACTION")


def units_of(store: Store, record: ParsedFields) -> list[Unit]:
    """Return the units of a record that proves itself: that of its queue first.

    :raises Unreadable: an I/O error.
    """
    properties = {name: value.encode() for name, value in record.properties.items()}
    further = further_units(
        record.topic.encode(),
        record.number("queue_id"),
        properties.get("INNER_MULTI_DISPATCH", b""),
        properties.get("INNER_MULTI_QUEUE_OFFSET", b""),
    )
    return [*_own_units(store, record), *(_further_unit(store, record, *queue) for queue in further)]


def _own_units(store: Store, record: ParsedFields) -> Iterator[Unit]:
    queue = record.topic, record.number("queue_id"), record.number("queue_offset")
    if not has_queue_unit(record.number("sys_flag")):
        yield Unit(*queue, "none", "prepared and rollback records have no unit")
        return
    if (why := _why_unknown(store, *queue[:2])) is not None:
        yield Unit(*queue, "unknown", why)
        return
    references = find_references(store, record)
    for one in references:
        place = one.file.name, one.position
        if not one.problems:
            yield Unit(one.file.topic, one.file.queue_id, one.number, "present", "", *place)
        else:
            yield Unit(*queue, "wrong" if one.disagrees else "missing", "; ".join(one.problems), *place)
    if not references:
        yield Unit(*queue, "missing", "its queue has no unit there")


def _further_unit(store: Store, record: ParsedFields, topic: str, queue_id: int, queue_offset: int) -> Unit:
    queue = topic, queue_id, queue_offset
    files = files_of_queue(store, topic, queue_id)
    if not files:
        why = _why_unknown(store, *queue[:2])
        return Unit(*queue, "unknown" if why else "missing", why or "no such queue")
    unit = find_unit(files, queue_offset)
    if unit == (record.physical_offset, record.number("total_size")):
        return Unit(*queue, "present")
    if unit is None:
        return Unit(*queue, "missing", "not written, or deleted")
    return Unit(*queue, "wrong", f"points at {describe_offset(unit[0])}")


def _why_unknown(store: Store, topic: str, queue_id: int) -> str | None:
    """Return why nothing can be said of a queue, None if something can."""
    if any((file.topic, file.queue_id) == (topic, queue_id) for file in store.queue_files):
        return "not all of its files could be read" if store.hides_queue(topic, queue_id) else None
    if why := why_unknown(store, "queues", topic, str(queue_id)):
        return why
    return None if store.queue_files else "no consume queues given"

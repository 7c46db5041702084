"""Queue units that point at a record, found with a few small reads."""

from collections.abc import Iterator
from dataclasses import dataclass

from rmqinspect.broker.dispatch import has_queue_unit
from rmqinspect.codec.fields import ParsedFields, walk_fields
from rmqinspect.codec.hashes import java_string_hash
from rmqinspect.damage.flips import explain_difference
from rmqinspect.schemas import consumequeue
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import escape
from rmqinspect.topics import LMQ_PREFIX, SCHEDULE_TOPIC

_UNITS = {"queue": consumequeue.QueueUnit, "batch_queue": consumequeue.BatchUnit}
_MOST_OTHER_FILES = 2000  # each costs about ten small reads


@dataclass(frozen=True, slots=True)
class Reference:
    """A queue unit that points at a record, or stands where the one that should does."""

    file: QueueFile
    position: int  # bytes, in the file
    number: int  # of the unit in the queue; of a batch unit: its first queue offset
    unit: ParsedFields
    problems: tuple[str, ...]  # what differs from the record

    @property
    def disagrees(self) -> bool:
        """Whether the unit contradicts the record; one not written (yet) does not."""
        return bool(self.problems) and self.unit.number("size") not in (0, consumequeue.PRE_BLANK_SIZE)


def find_references(store: Store, record: ParsedFields) -> list[Reference]:
    """Return the queue units of a record: the one at its queue offset, and else also one that points at it.

    Where none of the record's queue points at it, those of other queues are searched: topic or queue id of the record
    may be wrong.

    :raises Unreadable: an I/O error.
    """
    found = []
    for kind, expected in (("queue", _at_queue_offset), ("batch_queue", _nothing)):
        files = _files_of(store, record, kind)
        here = expected(files, record)
        if here is None or here.unit.number("physical_offset") != _place_of(record):
            there = _pointing_at(files, record)
            found += [reference for reference in (here, there) if reference is not None]
        else:
            found.append(here)
    pointed_at = any(reference.unit.number("physical_offset") == _place_of(record) for reference in found)
    if not pointed_at and has_queue_unit(record.number("sys_flag")):
        found += _in_other_queues(store, record)
    return found


def _in_other_queues(store: Store, record: ParsedFields) -> Iterator[Reference]:
    """Yield the units of other queues that point at a record; light queues hold records of other topics anyway."""
    own = _queue_of(record)
    others = [
        file
        for file in store.queue_files
        if file.kind in _UNITS and (file.topic, file.queue_id) != own and not file.topic.startswith(LMQ_PREFIX)
    ]
    for file in others[:_MOST_OTHER_FILES]:
        reference = _pointing_at([file], record)
        if reference is not None:
            yield reference


def _queue_of(record: ParsedFields) -> tuple[str, int]:
    return record.topic, record.number("queue_id")


def _files_of(store: Store, record: ParsedFields, kind: str) -> list[QueueFile]:
    """Return the files of the record's queue, by base."""
    own = _queue_of(record)
    return [file for file in store.queue_files if file.kind == kind and (file.topic, file.queue_id) == own]


def _nothing(files: list[QueueFile], record: ParsedFields) -> None:
    return None


def _at_queue_offset(files: list[QueueFile], record: ParsedFields) -> Reference | None:
    """Return the unit at the record's queue offset."""
    at = record.number("queue_offset") * consumequeue.QueueUnit.sizeof()
    for file in files:
        if file.base <= at < file.base + file.size:
            return _read_unit(file, at - file.base, record)
    return None


def _pointing_at(files: list[QueueFile], record: ParsedFields) -> Reference | None:
    """Return the unit with the record's physical offset, by bisection: units ascend in it."""
    target = _place_of(record)
    for file in files:
        size = _UNITS[file.kind].sizeof()
        low, high = 0, file.size // size
        while low < high:
            middle = (low + high) // 2
            unit = _parse(file, middle * size)
            unused = unit.number("size") == 0
            if not unused and unit.number("physical_offset") < target:
                low = middle + 1
            else:
                high = middle
        if low < file.size // size:
            reference = _read_unit(file, low * size, record)
            if reference.unit.number("physical_offset") == target and reference.unit.number("size") > 0:
                return reference
    return None


def _parse(file: QueueFile, position: int) -> ParsedFields:
    layout = _UNITS[file.kind]
    with open_file(file) as reader:
        return walk_fields(layout.subcons, reader.read(position, layout.sizeof()))


def _read_unit(file: QueueFile, position: int, record: ParsedFields) -> Reference:
    unit = _parse(file, position)
    number = unit.number("queue_offset")
    if file.kind == "queue":
        number = (file.base + position) // consumequeue.QueueUnit.sizeof()
    return Reference(file, position, number, unit, tuple(_problems(file, unit, number, record)))


def _problems(file: QueueFile, unit: ParsedFields, number: int, record: ParsedFields) -> Iterator[str]:
    size, offset = unit.number("size"), unit.number("physical_offset")
    if size == 0:
        yield "not written"
        return
    if size == consumequeue.PRE_BLANK_SIZE:
        yield "a pre-blank filler"
        return
    place = _place_of(record)
    if offset != place:
        yield f"points at {offset}, not here{_flip(place, offset, 64)}"
        return
    topic, queue_id = _queue_of(record)
    if (file.topic, file.queue_id) != (topic, queue_id):
        flip = _flip(file.queue_id, queue_id, 32) if file.topic == topic else ""
        own, named = f"{escape(file.topic)} queue {file.queue_id}", f"{escape(topic)} queue {queue_id}"
        yield f"a unit of {own}, the record says {named}{flip}"
    total_size, queue_offset = record.number("total_size"), record.number("queue_offset")
    if size != total_size:
        yield f"size {size}, the record has {total_size}{_flip(total_size, size, 32)}"
    if number != queue_offset:
        yield f"unit {number}, the record's queue offset is {queue_offset}{_flip(number, queue_offset, 64)}"
    tags_code, expected = unit.number("tags_code"), tags_code_of(record)
    if expected is not None and tags_code > consumequeue.EXT_ADDRESS_MAX and tags_code != expected:
        flip = _flip(expected, tags_code, 64)
        yield f"tags code {tags_code}, of the record's tags it would be {expected}{flip}"


def _place_of(record: ParsedFields) -> int:
    """Return the physical offset where a record lies, which its own field may name wrongly."""
    return record.number("physical_offset") if record.physical_offset is None else record.physical_offset


def _flip(expected: int, found: int, width: int) -> str:
    why = explain_difference(expected, found, width)
    return f"; {why}" if why else ""


def tags_code_of(record: ParsedFields) -> int | None:
    """Return the tags code of a record's unit; None in the schedule topic, whose units hold a deliver time.

    Source: CommitLog#checkMessageAndReturnSize, MessageExtBrokerInner#tagsString2tagsCode.
    """
    if record.topic == SCHEDULE_TOPIC:
        return None
    tags = record.properties.get("TAGS")
    return java_string_hash(tags) if tags else 0

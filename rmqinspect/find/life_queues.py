"""The queue units that lead, or should lead, to a record: of its own queue, and of the light queues it belongs to."""

from collections.abc import Iterator
from dataclasses import dataclass

from rmqinspect.broker.dispatch import further_units, has_queue_unit
from rmqinspect.codec.fields import ParsedFields
from rmqinspect.consumequeue.units import LAYOUTS, find_unit
from rmqinspect.find.queue_units import Reference, find_references
from rmqinspect.store.model import Store
from rmqinspect.text import describe_offset

STATES = {
    "present": "a unit leads to the record",
    "wrong": "the unit contradicts the record, or points elsewhere",
    "missing": "no unit leads to the record",
    "none": "the record belongs in no queue",
    "unknown": "the queue was not given, or could not be read",
}
"""States of the unit that a record should have, with their meaning."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A queue unit that leads to a record, or does not."""

    topic: str
    queue_id: int
    queue_offset: int  # of the unit; of a missing one, where it should be
    state: str  # one of STATES
    detail: str = ""  # what is wrong, or why none is there
    file: str | None = None
    position: int | None = None  # bytes, in the file


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
    for reference in references:
        yield _own_unit(reference, queue)
    if not references:
        yield Unit(*queue, "missing", "its queue has no unit there")


def _own_unit(reference: Reference, queue: tuple[str, int, int]) -> Unit:
    file, detail = reference.file, "; ".join(reference.problems)
    place = (file.name, reference.position)
    if not reference.problems:
        return Unit(file.topic, file.queue_id, reference.number, "present", "", *place)
    return Unit(*queue, "wrong" if reference.disagrees else "missing", detail, *place)


def _further_unit(store: Store, record: ParsedFields, topic: str, queue_id: int, queue_offset: int) -> Unit:
    queue = topic, queue_id, queue_offset
    files = [file for file in store.queue_files if (file.topic, file.queue_id) == queue[:2] and file.kind in LAYOUTS]
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
    if any(oddity.kind == "rocksdb" for oddity in store.oddities):
        return "the queues are in RocksDB, which was not read"
    if store.hides_queue(topic, queue_id):
        return "its files could not be read"
    return None if store.queue_files else "no consume queues given"

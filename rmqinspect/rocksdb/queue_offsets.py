"""What a database of queues says of where each of them begins and ends, as it was unpacked."""

import json
from typing import NamedTuple

from rmqinspect.rocksdb.databases import HOLDS, QUEUES
from rmqinspect.rocksdb.job import QUEUE_OFFSETS
from rmqinspect.store.model import Store
from rmqinspect.text import text_of

UNITS_NEEDED = "the units of the queues in RocksDB decide, and only their ends were read"

Queue = tuple[str, int]  # topic, queue id


class End(NamedTuple):
    """The first or last message of a queue."""

    physical_offset: int
    queue_offset: int


class QueueOffsets(NamedTuple):
    """The column family `offset`. Source: RocksDBConsumeQueueOffsetTable."""

    checkpoint: int  # MAX_PHYSICAL_OFFSET_CHECKPOINT: physical offset behind the newest dispatched record; 0: none
    maxima: dict[Queue, End]
    minima: dict[Queue, End]
    with_units: bool  # the units of the queues were unpacked, too
    folder: str  # of the database, relative to the store


def read_queue_offsets(store: Store) -> QueueOffsets | None:
    """Return what was unpacked of the database of queues, None if nothing was."""
    for place in (place for place, holds in HOLDS.items() if holds == QUEUES):
        file = store.unpacked_config.get((place[-1], QUEUE_OFFSETS))
        if file is not None:
            with open(file.path, encoding="ascii") as content:
                document = json.load(content)
            found: dict[str, dict[Queue, End]] = {"max": {}, "min": {}}
            for end in document["ends"]:
                queue = text_of(bytes.fromhex(end["topic"])), end["queue_id"]
                found[end["which"]][queue] = End(end["physical_offset"], end["queue_offset"])
            return QueueOffsets(
                document["checkpoint"], found["max"], found["min"], document["with_units"], "/".join(place)
            )
    return None

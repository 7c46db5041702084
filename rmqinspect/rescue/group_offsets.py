"""Offsets of groups and delay levels beyond the ends that rebuilt queues have.

    queue     |.......units........|units of lost messages|       a group goes on at 816
    log       |.......records......|                              its last record has queue offset 737
    rebuilt   |.......units........|                              the next message gets 738: the group never gets it,
                                                                  nor those that follow up to 815

Where the source still has units up to the group's offset, `salvage` lets the queue keep its end. Else the offset has
to be set back, in a copy of the file that the broker reads.

Source: PullMessageProcessor#processRequest, ConsumerOffsetManager, ScheduleMessageService; RocketMQ 4.0.0 to 5.5.0.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.config.json_files import (
    OFFSET_FILES,
    ConfigDocument,
    consumer_offsets_of,
    integer,
    key_number,
    read_config,
    read_copy,
)
from rmqinspect.rescue.queue_files import LAST_OFFSET, Queue
from rmqinspect.rescue.units import unit_place
from rmqinspect.store.model import Store
from rmqinspect.topics import LMQ_PREFIX, SCHEDULE_TOPIC, is_system_topic

DELAYS = "delayOffset.json"
_TABLE, _LIGHT_TABLE = "offsetTable", "lmqOffsetTable"


class Position(NamedTuple):
    """Where a group, or a delay level, goes on in a queue."""

    file: str  # of config/
    group: str  # of a delay level its number
    topic: str
    queue_id: int
    offset: int


class Beyond(NamedTuple):
    """A position beyond the end that a rebuilt queue has."""

    position: Position
    end: int
    is_proven: bool  # the source has a unit at the offset before: the queue did reach so far

    @property
    def skipped(self) -> int:
        """How many of the next messages of the queue are not delivered."""
        return self.position.offset - self.end


def positions_of(store: Store) -> list[Position]:
    """Return the positions in queues of topics that exist, above 0, as the broker reads them."""
    document = read_config(store, "topics.json")
    topics = None if document is None else document.table("topicConfigTable")
    return [
        one
        for one in _positions(store)
        # Of its own topics a broker saves some only.
        if (topics is None or one.topic in topics or one.topic.startswith(LMQ_PREFIX) or is_system_topic(one.topic))
        and one.queue_id >= 0
        and 0 < one.offset <= LAST_OFFSET
    ]


def _positions(store: Store) -> Iterator[Position]:
    for name in OFFSET_FILES:
        if (document := _as_broker(store, name)) is not None:
            for one in consumer_offsets_of(document, []):
                yield Position(name, one.group, one.topic, one.queue_id, one.offset)
    if (document := _as_broker(store, DELAYS)) is not None:
        for level, value in document.table(_TABLE).items():
            number, offset = key_number(level), integer(value)
            if number is not None and offset is not None:
                yield Position(DELAYS, level, SCHEDULE_TOPIC, number - 1, offset)


def _as_broker(store: Store, name: str) -> ConfigDocument | None:
    """Return a file as a broker reads it: itself, else its `.bak`. Source: ConfigManager#load."""
    for copy in (name, f"{name}.bak"):
        file = store.config_files.get(copy)
        if file is not None and (read := read_copy(file, name, store.max_config)).source is not None:
            return read
    return None


def without_record(store: Store, positions: Sequence[Position]) -> list[Position]:
    """Return the positions of which no unit of the source shows that the record before them is in the log."""
    with RecordReader(store) as log:
        return [one for one in positions if not _has_record(store, log, one)]


def _has_record(store: Store, log: RecordReader, one: Position) -> bool:
    place = unit_place(store, one.topic, one.queue_id, one.offset - 1)
    identity = None if place is None else log.identity_at(place)
    own = one.topic, one.queue_id, one.offset - 1
    return identity is not None and (identity.topic, identity.queue_id, identity.queue_offset) == own


def beyond(store: Store, positions: Sequence[Position], ends: Mapping[Queue, int]) -> list[Beyond]:
    """Return those of some positions that lie beyond the ends of queues; `ends` has no queue without a record."""
    found = []
    for one in positions:
        end = ends.get((one.topic, one.queue_id), 0)
        if one.offset > end:
            is_proven = unit_place(store, one.topic, one.queue_id, one.offset - 1) is not None
            found.append(Beyond(one, end, is_proven))
    return found


def set_back(store: Store, some: Sequence[Beyond]) -> dict[str, bytes]:
    """Return the files of `config/` with these offsets set to the ends of their queues, by name."""
    by_file: dict[str, list[Beyond]] = defaultdict(list)
    for one in some:
        by_file[one.position.file].append(one)
    edited = {}
    for name, rows in by_file.items():
        document = _as_broker(store, name)
        assert document is not None, "the positions were read from it"
        value: Any = json.loads(json.dumps(document.value))
        for one in rows:
            _set(value, one)
        edited[f"config/{name}"] = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return edited


def _set(value: Any, one: Beyond) -> None:
    position = one.position
    if position.file == DELAYS:
        value[_TABLE][position.group] = one.end
        return
    for key, queues in value.get(_TABLE, {}).items():
        # A third part marks a proxy's broadcast consumer.
        if key.split("@")[:2] == [position.topic, position.group] and isinstance(queues, dict):
            for queue in queues:
                if key_number(queue) == position.queue_id and queues[queue] == position.offset:
                    queues[queue] = one.end
    light = value.get(_LIGHT_TABLE, {})
    for key in light:
        if key.split("@")[:2] == [position.topic, position.group] and light[key] == position.offset:
            light[key] = one.end

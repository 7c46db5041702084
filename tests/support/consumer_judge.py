"""What consumers get of a store that a real broker has started, in numbers: the judge of verdicts.

All sound records of the evidence are listed before the start. Then a real store of a release starts on a copy, each
queue is drained with 32 a pull, the client of that release decodes what comes, and one message is put into each
queue that a group has an offset of.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqinspect.broker.client import WRONG
from rmqinspect.broker.consumer_queue import ConsumerLog, ConsumerQueue
from rmqinspect.broker.drain import Trouble, drain
from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.table import Request
from rmqinspect.topics import is_system_topic
from tests.support.real_brokers import RealBrokers
from tests.support.side_tables import rows

Queue = tuple[str, int]  # topic, queue id

_COLUMNS = frozenset(["physical_offset", "topic", "queue_id", "queue_offset", "status", "size", "transaction"])
_IN_QUEUES = ("none", "commit")


class Place(NamedTuple):
    """A sound record and its place."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class Counted(NamedTuple):
    """What consumers get, by topic, without the broker's own; `skipped` by group."""

    deleted: Mapping[str, int]  # sound records that the log no longer has
    unreachable: Mapping[str, int]  # that it has, and no pull of their queue gives
    wrong: Mapping[str, int]  # messages that are no sound record of the queue
    jumped: Mapping[str, int]  # sound records that a pull gives, and the client leaves out
    again: Mapping[str, int]  # sound records that come another time, at the place of another one
    skipped: Mapping[str, int]  # new messages of the queues that the group will not get


def sound_places(root: Path) -> set[Place]:
    """Return the sound records of a store that belong into queues of users' topics."""
    found = rows(MESSAGES_TABLE, open_store([str(root)]), Request(columns=_COLUMNS))
    return {
        Place(row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"])
        for row in found
        if row["status"] == "ok" and row["transaction"] in _IN_QUEUES and not is_system_topic(row["topic"])
    }


def sizes_of(root: Path) -> dict[str, object]:
    """Return the settings that the files of a kept store were written with."""
    large = (open_store([str(root)]).segment_size or 0) > 1 << 18
    return {
        "mappedFileSizeCommitLog": open_store([str(root)]).segment_size,
        "mappedFileSizeConsumeQueue": 6000,
        "mappedFileSizeTimerLog": 1 << 20,
        "maxHashSlotNum": 2000 if large else 100,
        "maxIndexNum": 5000 if large else 400,
    }


def count_what_consumers_get(
    brokers: RealBrokers, release: str, root: Path, sound: Collection[Place], settings: Mapping[str, object]
) -> Counted:
    """Start a real store at `root`, which changes it, and count what its consumers get of the sound records."""
    offsets = [one for one in read_consumer_offsets(open_store([str(root)]))[0] if one.queue_id is not None]
    users = [one for one in offsets if not is_system_topic(one.topic) and not one.topic.startswith("%")]
    put = sorted({(one.topic, one.queue_id) for one in users})
    answer = brokers.ask(release, "open", root, settings, serve=True, client=True, put=put)
    assert answer["start"]["ok"], answer
    assert answer["dispatch"]["caught_up"], answer["dispatch"]
    low, high = answer["after_dispatch"]["min_phy"], answer["after_dispatch"]["max_phy"]
    kept = {one for one in sound if low <= one.physical_offset < high}
    given, decoded = _given(answer), _decoded(answer)
    ends = {queue: row[2] for queue, row in zip(put, answer["put"], strict=True)}
    skipped: Counter[str] = Counter()
    for one in users:
        skipped[one.group] += max(one.offset - ends[one.topic, one.queue_id], 0)
    right = kept & decoded.keys()
    reached = {place for place in kept if (place.topic, place.queue_id, place.physical_offset) in given}
    return Counted(
        _by_topic(set(sound) - kept),
        _by_topic(kept - reached),
        _by_queue_topic(answer, kept),
        _by_topic(reached - right),
        _by_topic([place for place in right for _ in range(decoded[place] - 1)]),
        {group: number for group, number in sorted(skipped.items()) if number},
    )


def _given(answer: Mapping[str, Any]) -> set[tuple[str, int, int]]:
    """Return (topic, queue id, physical offset) of what brokers give."""
    return {(row["topic"], row["queue_id"], got[0]) for row in answer["drained"] for got in row["got"]}


def _decoded(answer: Mapping[str, Any]) -> Counter[Place]:
    return Counter(
        Place(*one[:4])
        for row in answer["drained"]
        for one in row["decoded"]
        if one[:2] == [row["topic"], row["queue_id"]]
    )


def _by_queue_topic(answer: Mapping[str, Any], kept: Collection[Place]) -> dict[str, int]:
    """Return how many messages are no sound record of their queue, by the topic that is drained."""
    wrong: Counter[str] = Counter()
    for row in answer["drained"]:
        if not is_system_topic(row["topic"]):
            places = (Place(*one[:4]) for one in row["decoded"])
            own = (place in kept and place[:2] == (row["topic"], row["queue_id"]) for place in places)
            wrong[row["topic"]] += sum(not is_own for is_own in own)
    return {topic: number for topic, number in sorted(wrong.items()) if number}


def _by_topic(places: Collection[Place]) -> dict[str, int]:
    return dict(sorted(Counter(place.topic for place in places).items()))


# --- the same without a broker ----------------------------------------------------------------------


def doubtful_units(queue: ConsumerQueue, release: str, sound: Collection[Place]) -> Ints:
    """Return the queue offsets of units that do not lead to the sound record of their place."""
    low, high = queue.ends(release)
    bad: list[int] = []
    while low < high and (units := list(queue.units_from(low) or ())):
        places = (Place(queue.topic, queue.queue_id, unit.queue_offset, unit.physical_offset) for unit in units)
        bad += [place.queue_offset for place in places if place not in sound]
        low = units[-1].queue_offset + units[-1].messages
    return np.array(bad, np.int64)


def troubles_of(
    store: Store, queue: ConsumerQueue, release: str, doubtful: Ints, begin: int | None = None, count: int = 32
) -> list[Trouble]:
    """Return the pulls with trouble of a queue as it lies there."""
    log = ConsumerLog(store, find_log_end(store, []).end or 0)
    found = list(drain(queue, log, release, doubtful, begin=begin, count=count))
    assert all(wrong.kind in WRONG for trouble in found for wrong in trouble.wrong)
    return found

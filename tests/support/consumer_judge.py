"""What consumers get of a store that a real broker has started, in numbers: the judge of verdicts.

All sound records of the evidence are listed before the start. Then a real store of a release starts on a copy, each
queue is drained with 32 a pull, the client of that release decodes what comes, and one message is put into each
queue that a group has an offset of.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqinspect.broker.client import WRONG
from rmqinspect.broker.consumer_queue import ConsumerLog, ConsumerQueue
from rmqinspect.broker.drain import Trouble, drain
from rmqinspect.broker.groups import is_system_group
from rmqinspect.codec.arrays import Ints
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.request import Request
from rmqinspect.topics import LMQ_PREFIX, is_system_topic
from tests.support.real_brokers import RealBrokers
from tests.support.side_tables import rows

Queue = tuple[str, int]  # topic, queue id

_COLUMNS = frozenset(
    ["physical_offset", "topic", "queue_id", "queue_offset", "status", "size", "transaction", "properties"]
)
_IN_QUEUES = ("none", "commit")


class Place(NamedTuple):
    """A sound record and its place. A batch is one record of several messages."""

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
    stuck: bool = False  # new messages get no units: no consumer gets them


def sound_places(store: Store) -> dict[Place, int]:
    """Return the sound records of a store that belong into queues of users' topics, and how many messages each is."""
    found = rows(MESSAGES_TABLE, store, Request(columns=_COLUMNS))
    return {
        Place(row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"]): int(
            dict(row["properties"]).get("INNER_NUM", 1)
        )
        for row in found
        if row["status"] == "ok" and row["transaction"] in _IN_QUEUES and not is_system_topic(row["topic"])
    }


def settings_of(root: Path) -> dict[str, str]:
    """Return the settings of a kept store: its broker.conf, else those that its files were written with."""
    conf = root.parent / "broker.conf"
    if conf.is_file():
        lines = (line.split("=", 1) for line in conf.read_text().splitlines() if line)
        return dict(line for line in lines if line[0] != "storePathRootDir")
    size = open_store([str(root)]).segment_size or 0
    is_large = size > 1 << 18
    found: dict[str, object] = {
        "mappedFileSizeCommitLog": size,
        "mappedFileSizeConsumeQueue": 6000,
        "mappedFileSizeTimerLog": 1 << 20,
        "maxHashSlotNum": 2000 if is_large else 100,
        "maxIndexNum": 5000 if is_large else 400,
    }
    if (root / "config" / "lmqConsumerOffset.json").exists():
        found |= {"enableLmq": "true", "enableMultiDispatch": "true"}
    return {name: str(value) for name, value in found.items()}


def opened(root: Path, settings: Mapping[str, str]) -> Store:
    """Return a store with its settings."""
    conf = root.parent / f"{root.name}.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return open_store([str(root)], config=str(conf))


def count_what_consumers_get(
    brokers: RealBrokers, release: str, root: Path, sound: Mapping[Place, int], settings: Mapping[str, str]
) -> Counted:
    """Start a real store at `root`, which changes it, and count what its consumers get of the sound records."""
    offsets = [one for one in read_consumer_offsets(open_store([str(root)]))[0] if one.queue_id is not None]
    users = [one for one in offsets if not is_system_topic(one.topic)]
    put = sorted({(one.topic, one.queue_id) for one in users})
    # Queues in RocksDB have to be named; they have holes where batches are, behind which no drain gets.
    asked = sorted(sound) if settings.get("storeType") == "defaultRocksDB" else []
    queues = {
        topic: max(one.queue_id for one in asked if one.topic == topic) + 1 for topic in {one.topic for one in asked}
    }
    more = {"put": put, "queues": queues, "consumers": [one[:3] for one in asked]}
    answer = brokers.ask(release, "open", root, settings, serve=True, client=True, **more)
    assert answer["start"]["ok"], answer
    low, high = answer["after_dispatch"]["min_phy"], answer["after_dispatch"]["max_phy"]
    kept = {one for one in sound if low <= one.physical_offset < high}
    given, decoded = _given(answer), _decoded(answer)
    ends = {queue: row[2] for queue, row in zip(put, answer["put"], strict=True)}
    skipped: Counter[str] = Counter()
    for one in users:
        skipped[one.group] += max(one.offset - ends[one.topic, one.queue_id], 0)
    right = kept & decoded.keys()
    reached = {place for place in kept if (place.topic, place.queue_id, place.physical_offset) in given}
    for place, (*_, first) in zip(asked, answer["consumed"], strict=True):
        if first and first[0] == place.physical_offset:
            reached.add(place)
            right.add(place)
    return Counted(
        _by_topic(sound.keys() - kept, sound),
        _by_topic(kept - reached, sound),
        _by_queue_topic(answer, kept),
        _by_topic(reached - right),
        _by_topic([place for place in right for _ in range(decoded[place] - 1)]),
        {group: number for group, number in sorted(skipped.items()) if number},
        _is_stuck(answer),
    )


def _is_stuck(answer: Mapping[str, Any]) -> bool:
    """Return whether a message that was put comes to no consumer."""
    there = {got[0] for row in answer["drained_again"] for got in row["got"]}
    return not there.issuperset(place for _, place, _ in answer["put"])


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
        if not is_system_topic(row["topic"]) and not row["topic"].startswith(LMQ_PREFIX):
            places = (Place(*one[:4]) for one in row["decoded"])
            own = (place in kept and place[:2] == (row["topic"], row["queue_id"]) for place in places)
            wrong[row["topic"]] += sum(not is_own for is_own in own)
    return {topic: number for topic, number in sorted(wrong.items()) if number}


def _by_topic(places: Iterable[Place], messages: Mapping[Place, int] = {}) -> dict[str, int]:
    found = Counter[str]()
    for place in places:
        found[place.topic] += messages.get(place, 1)
    return dict(sorted(found.items()))


# --- the same without a broker ----------------------------------------------------------------------


def foretold(root: Path, release: str, settings: Mapping[str, str]) -> Counted:
    """Return what a forecast says of the same; of `again` nothing, and damaged messages are not `wrong`."""
    start = forecast(opened(root, settings), ForecastRequest(release)).worst
    skips = {group.group: group.skips for group in start.groups if group.skips and not is_system_group(group.group)}
    return Counted(
        _of_users(start.losses.by_topic),
        _of_users({**start.unreachable_by_topic, **start.in_no_queue}),
        _of_users(start.wrong_by_topic),
        _of_users(start.jumped_by_topic),
        {},
        dict(sorted(skips.items())),
        bool(start.doubled),
    )


def _of_users(by_topic: Mapping[str, int]) -> dict[str, int]:
    return {topic: number for topic, number in sorted(by_topic.items()) if not is_system_topic(topic)}


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

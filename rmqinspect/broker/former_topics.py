"""Topics that were deleted and made again: which of their records no queue has any more, and rightly so.

A topic that is made again gives its queue offsets from 0 on, in every queue. The records of before stay in the log:

    place       100      200      300      400      500      600
    orders/0    offset 0          offset 1          offset 0          restarts at 500
    orders/1             offset 0                            (no more)
                <- former, of both queues ->

One queue that restarts tells it of all queues of its topic, if nothing speaks against it. A queue alone may have been
lost, and then its records are missing, or one record says a wrong queue offset:

    another queue has a unit from before the restart       deleting a topic deletes all of its queues
    the records of another queue go on across the restart  they would begin at 0 again

Source: DefaultMessageStore#cleanUnusedTopic, #deleteTopics; ConsumeQueue#destroy; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from rmqinspect.codec.arrays import Ints

Queue = tuple[str, int]  # topic, queue id
NO_END = 2**63
"""The `high` of a life that is not over: its queue has units."""


class Run(Protocol):
    """Consecutive records of a queue without a unit; `low` and `high` are the places of the first and the last.

    `queue_offset` is that of the first.
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...


class Life(NamedTuple):
    """Records of a queue whose queue offsets ascend; `low` and `high` are the places of the first and the last."""

    queue: Queue
    low: int
    high: int


def may_be_made_again(queue: Queue, last_old: int, place: int, lives: Iterable[Life]) -> bool:
    """Return whether a topic may have been made again where a queue of it restarts; else this queue alone was lost.

    `last_old`: the place of the queue's last record before the restart, -1 without one. `place`: that of the first one
    behind it. `lives`: of all queues of the topic. The topic was deleted somewhere between the two places.
    """
    return not any(one.low <= last_old and one.high >= place for one in lives if one.queue != queue)


def lives_of(queue: Queue, places: Ints, offsets: Ints) -> Iterator[Life]:
    """Yield the lives of a queue; `places` and QUEUEOFFSET of its records are in the order of the log."""
    borders = (np.flatnonzero(offsets[1:] <= offsets[:-1]) + 1).tolist()
    for start, end in pairwise([0, *borders, len(offsets)]):
        if start < end:
            yield Life(queue, int(places[start]), int(places[end - 1]))


def beginnings(queue: Queue, places: Ints, offsets: Ints, lives: Sequence[Life]) -> Iterator[tuple[int, bool]]:
    """Yield where a queue begins at 0 again because its topic was made again, and whether with one record only.

    `lives`: of all queues of the topic. One record may say a wrong offset: it tells of no new life while another queue
    is there from before, for that would be lost with it.
    """
    present = [one._replace(high=NO_END) for one in {one.queue: one for one in lives}.values()]
    for at in (np.flatnonzero((offsets[1:] == 0) & (offsets[:-1] >= 0)) + 1).tolist():
        behind = int(offsets[at + 1]) if at + 1 < len(offsets) else 0
        is_alone = behind == 0
        goes_down = is_alone or behind <= offsets[at - 1]
        last_old, place = int(places[at - 1]), int(places[at])
        if goes_down and may_be_made_again(queue, last_old, place, present if is_alone else lives):
            yield place, is_alone


def former_until(
    restarts: Mapping[Queue, int], runs: Iterable[Run], oldest_units: Mapping[Queue, int]
) -> dict[Queue, int]:
    """Return, by queue, the place before which its records are of a topic's former life.

    `restarts`: where a queue counts from 0 again, and has no unit from before. `runs`: the records without a unit,
    joined over all splits. `oldest_units`: the place of each queue's oldest unit in the log.
    """
    by_topic: dict[str, dict[Queue, int]] = defaultdict(dict)
    for queue, place in restarts.items():
        by_topic[queue[0]][queue] = place
    of_topic: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.topic in by_topic:
            of_topic[run.topic].append(run)
    found: dict[Queue, int] = {}
    for topic, places in by_topic.items():
        units = {queue: place for queue, place in oldest_units.items() if queue[0] == topic}
        found |= _former_of_topic(places, of_topic[topic], units)
    return found


def _former_of_topic(
    restarts: Mapping[Queue, int], runs: Sequence[Run], oldest_units: Mapping[Queue, int]
) -> dict[Queue, int]:
    """Return the same for one topic."""
    lives = [*_lives(restarts, runs, oldest_units)]
    proven: dict[Queue, int] = {}
    for queue, place in restarts.items():
        last_old = max((run.high for run in runs if _queue(run) == queue and run.low < place), default=-1)
        if may_be_made_again(queue, last_old, place, lives):
            proven[queue] = place
    if not proven:
        return {}
    last = max(proven.values())
    found = {_queue(run): last for run in runs if _queue(run) not in oldest_units}
    return found | {queue: max(place, found.get(queue, 0)) for queue, place in proven.items()}


def _lives(restarts: Mapping[Queue, int], runs: Iterable[Run], oldest_units: Mapping[Queue, int]) -> Iterator[Life]:
    """Yield the lives of a topic's queues: what has units is there still, from its oldest record on."""
    oldest = dict(oldest_units)
    last: dict[Queue, tuple[Life, int]] = {}  # of queues without units: and the offset of its last run
    for run in sorted(runs, key=lambda run: run.low):
        queue = _queue(run)
        if queue in restarts:
            continue
        if queue in oldest:
            oldest[queue] = min(oldest[queue], run.low)
            continue
        life, offset = last.get(queue, (None, -1))
        if life is not None and run.queue_offset <= offset:
            yield life
            life = None
        last[queue] = Life(queue, run.low if life is None else life.low, run.high), run.queue_offset
    yield from (life for life, _ in last.values())
    yield from (Life(queue, low, NO_END) for queue, low in oldest.items())


def _queue(run: Run) -> Queue:
    return run.topic, run.queue_id

"""Topics that were deleted and made again: which of their records no queue has any more, and rightly so.

A topic that is made again gives its queue offsets from 0 on, in every queue. The records of before stay in the log:

    place       100      200      300      400      500      600
    orders/0    offset 0          offset 1          offset 0          restarts at 500
    orders/1             offset 0                            (no more)
                <- former, of both queues ->

One queue that restarts tells it of all queues of its topic, if nothing speaks against it. A queue alone may have been
lost, and then its records are missing:

    another queue has a unit from before the restart       deleting a topic deletes all of its queues
    the records of another queue go on across the restart  they would begin at 0 again

Source: DefaultMessageStore#cleanUnusedTopic, #deleteTopics; ConsumeQueue#destroy; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rmqinspect.verify.plan import QueueName


class Run(Protocol):
    """Consecutive records of a queue without a unit; `low` and `high` are the places of the first and the last."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...


def former_until(
    restarts: Mapping[QueueName, int], runs: Iterable[Run], oldest_units: Mapping[QueueName, int]
) -> dict[QueueName, int]:
    """Return, by queue, the place before which its records are of a topic's former life.

    `restarts`: where a queue counts from 0 again, and has no unit from before. `runs`: the records without a unit,
    joined over all splits. `oldest_units`: the place of each queue's oldest unit in the log.
    """
    by_topic: dict[str, list[tuple[QueueName, int]]] = defaultdict(list)
    for queue, place in restarts.items():
        by_topic[queue[0]].append((queue, place))
    of_topic: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.topic in by_topic:
            of_topic[run.topic].append(run)
    found: dict[QueueName, int] = {}
    for topic, places in by_topic.items():
        units = {queue: place for queue, place in oldest_units.items() if queue[0] == topic}
        found |= _former_of_topic(places, of_topic[topic], units)
    return found


def _former_of_topic(
    restarts: Sequence[tuple[QueueName, int]], runs: Sequence[Run], oldest_units: Mapping[QueueName, int]
) -> dict[QueueName, int]:
    """Return the same for one topic."""
    proven = {queue: place for queue, place in restarts if _is_of_topic(queue, place, restarts, runs, oldest_units)}
    if not proven:
        return {}
    last = max(proven.values())
    found = {_queue(run): last for run in runs if _queue(run) not in oldest_units}
    return found | {queue: max(place, found.get(queue, 0)) for queue, place in proven.items()}


def _is_of_topic(
    restarted: QueueName,
    place: int,
    restarts: Sequence[tuple[QueueName, int]],
    runs: Sequence[Run],
    oldest_units: Mapping[QueueName, int],
) -> bool:
    """Return whether the topic was made again where a queue restarts; else this queue alone was lost."""
    # The topic was deleted somewhere behind the last record of the queue's former life.
    last_old = max((run.high for run in runs if _queue(run) == restarted and run.low < place), default=-1)
    if any(unit <= last_old for queue, unit in oldest_units.items() if queue != restarted):
        return False
    # A queue that goes on from before to behind the place, and does not begin at 0 there.
    going_on = {_queue(run) for run in runs if run.low <= last_old} - {queue for queue, _ in restarts}
    return going_on.isdisjoint(oldest_units) and not any(_queue(run) in going_on and run.high >= place for run in runs)


def _queue(run: Run) -> QueueName:
    return run.topic, run.queue_id

"""What a start means to consumer groups: it changes how far queues reach, and leaves the offsets of groups as they are.

    queue     |#######|.......lost.......|
              min     new maximum
    group                        ^ offset   the lost messages behind it were not consumed by it
                      <- skipped ->         new messages take these queue offsets

A group whose offset lies beyond the maximum is told another one when it asks: the maximum, so that it misses what was
written before it asked; up to 4.9.3 the beginning of a queue whose minimum is 0. Once the queue has grown beyond the
offset, it goes on there, and has skipped all up to it.

The broker's own consumers lose no message of users. That of transactions (CID_RMQ_SYS_TRANS) asks producers about half
messages that were not decided; what is committed is delivered whatever its offsets are.

Source: ConsumerOffsetManager, PullMessageProcessor, DefaultMessageStore#getMessage,
TransactionalMessageServiceImpl#check, #fillOpRemoveMap; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from rmqinspect.broker.groups import is_system_group
from rmqinspect.broker.pull import following_offset
from rmqinspect.broker.transactions import CHECK_GROUP
from rmqinspect.config.json_files import ConsumerOffset
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.outcome import GroupBeyond, GroupStart, Outcome, QueueOutcome, TransactionStart
from rmqinspect.topics import HALF_TOPIC, OP_TOPIC


def note_groups(outcome: Outcome, evidence: Evidence) -> None:
    """Note what a start means to the groups of users, and to the check of transactions.

    A queue that is not there is made when it is asked for, and begins at 0; not that of a topic that was deleted. Where
    topics.json has lost the topic, the queue comes back with the topic, which consumers ask for.
    """

    def is_made(topic: str, queue_id: int) -> bool:
        return topic in evidence.topics or evidence.is_proven(outcome.release, topic, queue_id)

    queues = {
        (lost[:2]): QueueOutcome(*lost[:2], 0, 0, 0, 0, given_twice=lost.given_twice) for lost in outcome.lost_queues
    }
    queues |= {(queue.topic, queue.queue_id): queue for queue in outcome.queues}
    met = [
        (entry, queues.get(name) or QueueOutcome(*name, 0, 0, 0, 0))
        for entry in evidence.group_offsets
        if (name := (entry.topic, entry.queue_id)) in queues or (entry.offset > 0 and is_made(*name))
    ]
    _note_check(outcome, [(entry, queue) for entry, queue in met if entry.group == CHECK_GROUP])
    met = [(entry, queue) for entry, queue in met if not is_system_group(entry.group)]
    outcome.groups_beyond = sorted(
        GroupBeyond(entry.group, entry.topic, entry.queue_id, entry.offset, queue.max_after)
        for entry, queue in met
        if entry.offset > queue.max_after
    )
    runs = groupby(met, key=lambda one: one[0].group)  # offsets come by group
    groups = (_group(outcome.release, group, tuple(run)) for group, run in runs)
    touched = [group for group in groups if group.queues]
    outcome.groups = sorted(touched, key=attrgetter("unconsumed", "skips", "again"), reverse=True)


def _note_check(outcome: Outcome, met: Sequence[tuple[ConsumerOffset, QueueOutcome]]) -> None:
    """Note which half messages are not checked back, and which once more, by the offsets of the check.

    An offset beyond the end is set to the end by the next check, a minute later at most: half messages that were stored
    until then are passed over. What becomes of ops that are passed over: the half messages that they decide are checked
    back. Up to 4.9.3 the offset may go back to 0, and so may the check.
    """
    unchecked = again = 0
    for entry, queue in met:
        _, skips, repeats = _in_queue(outcome.release, entry.offset, queue)
        if entry.topic == HALF_TOPIC:
            unchecked, again = unchecked + skips, again + repeats
        elif entry.topic == OP_TOPIC:
            again += skips
    outcome.transactions = TransactionStart(unchecked, again) if unchecked or again else None


def _group(release: str, group: str, met: Sequence[tuple[ConsumerOffset, QueueOutcome]]) -> GroupStart:
    """Return the sums over the queues of one group."""
    numbers = {(queue.topic, queue.queue_id): _in_queue(release, entry.offset, queue) for entry, queue in met}
    touched = {name: of_queue for name, of_queue in numbers.items() if any(of_queue)}
    unconsumed, skips, again = (sum(of_queue[at] for of_queue in touched.values()) for at in range(3))
    return GroupStart(group, tuple(sorted(touched)), unconsumed, skips, again)


def _in_queue(release: str, offset: int, queue: QueueOutcome) -> tuple[int, int, int]:
    """Return how many messages of a queue are gone unconsumed, how many new ones are skipped, how many come again."""
    low, high = queue.min_after, queue.max_after
    first, end = max(offset, queue.min_before), max(queue.max_before, high + queue.given_twice)
    unconsumed = max(0, end - max(first, high)) + max(0, min(low, end) - first) * (low > queue.min_before)
    again = high - following_offset(offset, low, high, release) if offset > high else 0
    return unconsumed, max(0, offset - high), max(0, again)

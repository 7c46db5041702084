"""Whose topic is it: the names that a broker gives to the topics of consumer groups.

    %RETRY%group                        messages that the group gave back
    %RETRY%group_topic, group+topic     messages that the group popped and did not acknowledge (5.0.0; 5.2.0)
    %DLQ%group                          messages that the group gave back too often
    %LMQ%name                           a queue of light messages; the records have another topic (4.9.3)

Source: MixAll#getRetryTopic, #getDLQTopic, #isSysConsumerGroup, KeyBuilder#buildPopRetryTopic; RocketMQ 4.0.0 to
5.5.0.

What became of popped messages, by the checkpoints and acks that a broker writes for them.

    pop of n messages       checkpoint: topic, queue, group, start offset, pop time; which offsets
    ack of some of them     ack: the same names, and the offsets
    other invisible time    an ack, and a newer checkpoint of that one message
    revive time reached     the broker compares both; what has no ack goes to a retry topic

Both are written when they happen, and a second time when they fall due, so each is met up to twice.

Source: PopCheckPoint, AckMsg, BatchAckMsg, PopReviveService, ChangeInvisibleTimeProcessor; RocketMQ 5.0.0 to 5.5.0.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rmqinspect.config.json_files import integer
from rmqinspect.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, is_system_topic

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"  # PopAckConstants#REVIVE_GROUP: how far the broker has handled them

KINDS = ("normal", "retry", "pop_retry", "dlq", "lmq", "broadcast", "system")

_POP_SEPARATORS = ("_", "+")
# Groups of the broker and its tools (MixAll); those of the broker itself begin with the prefix.
_SYSTEM_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_GROUPS = frozenset(
    {
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)


def is_system_group(group: str) -> bool:
    """Whether a group is the broker's own, or of its tools."""
    return group.startswith(_SYSTEM_PREFIX) or group in _SYSTEM_GROUPS


def own_name(group: str) -> str:
    """Return a group's name without what follows it for a proxy's broadcast consumer: `group@broadcast…`."""
    return group.partition("@")[0]


def retry_topic(group: str) -> str:
    """Return the topic of what a group gave back."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of what a group gave back too often."""
    return DLQ_PREFIX + group


def is_retry_of(topic: str, group: str) -> bool:
    """Whether a topic is the group's retry topic, or one of those for messages that it pops."""
    return topic == retry_topic(group) or _popped_topic(topic, group) is not None


def _popped_topic(topic: str, group: str) -> str | None:
    """Return the topic whose popped messages a retry topic of the group takes back; None for another topic."""
    for separator in _POP_SEPARATORS:
        start = retry_topic(group) + separator
        if topic.startswith(start):
            return topic[len(start) :] or None
    return None


def kind_of(group: str, topic: str) -> str:
    """Return what a consumer offset is of: one of KINDS."""
    if "@" in group:
        return "broadcast"
    if is_system_group(group):
        return "system"
    if topic.startswith(LMQ_PREFIX) or group.startswith(LMQ_PREFIX):
        return "lmq"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    if topic == retry_topic(group):
        return "retry"
    return "normal" if _popped_topic(topic, group) is None else "pop_retry"


def owner_of(topic: str, groups: Collection[str], topics: Collection[str]) -> str | None:
    """Return the group that a retry or dead-letter topic belongs to; None for every other topic.

    A pop retry topic of names with `_` can be read in several ways: the one whose group and topic are both known
    counts, else the longest known group, else all of it is the group of an ordinary retry topic.
    """
    if topic.startswith(DLQ_PREFIX):
        return topic[len(DLQ_PREFIX) :] or None
    if not topic.startswith(RETRY_PREFIX):
        return None
    name = topic[len(RETRY_PREFIX) :]
    if name in groups:
        return name
    heads = [name[:end] for end in range(len(name) - 1, 0, -1) if name[end] in _POP_SEPARATORS]
    known = [head for head in heads if head in groups]
    both = (head for head in known if name[len(head) + 1 :] in topics)
    return next(both, known[0] if known else name or None)


def is_own_topic(topic: str) -> bool:
    """Whether a topic is the broker's, or a group's: nobody subscribes to it by name."""
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX))


CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"  # PopAckConstants

_MOST = 1024  # messages of one pop: brokers give up to 32, a damaged number must not take all memory


class Pop(NamedTuple):
    """What names a pop: equal in its checkpoint and its acks."""

    group: str
    topic: str  # a retry topic, too
    queue_id: int
    start_offset: int
    pop_time: int  # ms


class Checkpoint(Struct, frozen=True):
    """The messages of a pop, or one of them whose invisible time was changed."""

    pop: Pop
    revive_time: int  # ms: from then on it is delivered again
    offsets: tuple[int, ...]  # in the queue
    merged: int  # bit k: the ack of offsets[k] was merged in memory


class Ack(Struct, frozen=True):
    """Messages of a pop that the group is done with."""

    pop: Pop
    offsets: tuple[int, ...]


class PoppedMessage(Struct, frozen=True):
    """What the newest checkpoint of a message says about it."""

    checkpoint: Checkpoint
    acked: bool
    pops: int  # checkpoints of the message


class PopCount(Struct):
    """Messages that a group popped from a queue, of the checkpoints that are there."""

    in_flight: int = 0  # neither acknowledged nor due
    acked: int = 0
    awaiting_revive: int = 0  # due, not acknowledged, and the broker has not compared them yet
    revived: int = 0  # due, not acknowledged, and delivered again

    def add(self, other: "PopCount") -> None:
        """Add the messages of another queue."""
        self.in_flight += other.in_flight
        self.acked += other.acked
        self.awaiting_revive += other.awaiting_revive
        self.revived += other.revived


def read_body(body: Mapping[str, Any]) -> Checkpoint | Ack | None:
    """Return the checkpoint or ack of a record's body; None if it is neither.

    The names are those of the annotations in PopCheckPoint and AckMsg; a few brokers write the long ones.
    """

    def number(short: str, long: str) -> int | None:
        return integer(body.get(short, body.get(long)))

    group, topic = body.get("c", body.get("consumerGroup")), body.get("t", body.get("topic"))
    numbers = number("q", "queueId"), number("so", "startOffset"), number("pt", "popTime")
    if not isinstance(group, str) or not isinstance(topic, str) or None in numbers:
        return None
    queue_id, start, popped = (value or 0 for value in numbers)
    pop = Pop(group, topic, queue_id, start, popped)
    several = body.get("aol", body.get("ackOffsetList"))
    if isinstance(several, list):
        return Ack(pop, _integers(several))
    acked = number("ao", "ackOffset")
    if acked is not None:
        return Ack(pop, (acked,))
    count, invisible = number("n", "num"), number("it", "invisibleTime")
    if count is None or invisible is None or not 0 < count <= _MOST:
        return None
    differences = body.get("d", body.get("queueOffsetDiff"))
    relative = _integers(differences) if isinstance(differences, list) else ()
    offsets = tuple(start + one for one in relative or range(count))
    return Checkpoint(pop, popped + invisible, offsets, number("bm", "bitMap") or 0)


def _integers(values: list[Any]) -> tuple[int, ...]:
    numbers = (integer(value) for value in values[:_MOST])
    return tuple(number for number in numbers if number is not None)


class PopStates:
    """Matches checkpoints and acks, given in any order."""

    def __init__(self) -> None:
        self._checkpoints: dict[Pop, Checkpoint] = {}
        self._handled: set[Pop] = set()
        self._acked: dict[Pop, set[int]] = defaultdict(set)

    def add(self, found: Checkpoint | Ack, *, handled: bool = False) -> None:
        """Add one; `handled`: it is a checkpoint that the broker has compared with its acks, after its time."""
        if isinstance(found, Ack):
            self._acked[found.pop].update(found.offsets)
            return
        # A checkpoint that is put again keeps its name, and has a later revive time.
        known = self._checkpoints.get(found.pop)
        if known is None or known.revive_time <= found.revive_time:
            self._checkpoints[found.pop] = found
        if handled:
            self._handled.add(found.pop)

    def count(self, now: int) -> dict[tuple[str, str, int], PopCount]:
        """Return what became of the messages by (group, topic, queue id); `now`: the last activity, in ms."""
        counts: dict[tuple[str, str, int], PopCount] = defaultdict(PopCount)
        newer = self._changed()
        for pop, checkpoint in self._checkpoints.items():
            place = pop.group, pop.topic, pop.queue_id
            tally, acked = counts[place], self._acked.get(pop, ())
            for bit, offset in enumerate(checkpoint.offsets):
                if newer.get((*place, offset), 0) > pop.pop_time:
                    continue  # counted by the newer checkpoint
                if offset in acked or checkpoint.merged >> bit & 1:
                    tally.acked += 1
                elif now < checkpoint.revive_time:
                    tally.in_flight += 1
                elif pop in self._handled:
                    tally.revived += 1
                else:
                    tally.awaiting_revive += 1
        return dict(counts)

    def of_message(self, topic: str, queue_id: int, queue_offset: int) -> dict[str, PoppedMessage]:
        """Return what became of one message, by the group that popped it."""
        found: dict[str, PoppedMessage] = {}
        for pop, checkpoint in sorted(self._checkpoints.items(), key=lambda item: item[0].pop_time):
            if (pop.topic, pop.queue_id) == (topic, queue_id) and queue_offset in checkpoint.offsets:
                merged = checkpoint.merged >> checkpoint.offsets.index(queue_offset) & 1
                acked = bool(merged) or queue_offset in self._acked.get(pop, ())
                before = found.get(pop.group)
                found[pop.group] = PoppedMessage(checkpoint, acked, 1 if before is None else before.pops + 1)
        return found

    def _changed(self) -> dict[tuple[str, str, int, int], int]:
        """Return the newest pop time of each message that has a checkpoint of its own."""
        newest: dict[tuple[str, str, int, int], int] = {}
        for pop, checkpoint in self._checkpoints.items():
            if len(checkpoint.offsets) == 1:
                place = pop.group, pop.topic, pop.queue_id, checkpoint.offsets[0]
                newest[place] = max(newest.get(place, 0), pop.pop_time)
        return newest

"""Whose topic is it: the names that a broker gives to the topics of consumer groups.

    %RETRY%group                        messages that the group gave back
    %RETRY%group_topic, group+topic     messages that the group popped and did not acknowledge (5.0.0; 5.2.0)
    %DLQ%group                          messages that the group gave back too often
    %LMQ%name                           a queue of light messages; the records have another topic (4.9.3)

Source: MixAll#getRetryTopic, #getDLQTopic, #isSysConsumerGroup, KeyBuilder#buildPopRetryTopic; RocketMQ 4.0.0 to
5.5.0.
"""

from collections.abc import Collection

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

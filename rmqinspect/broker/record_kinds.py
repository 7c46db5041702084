"""Kinds of records: whose messages they are, and what the broker keeps for itself.

Source: TopicValidator, MixAll, MessageSysFlag, TimerMessageStore, PopAckConstants; RocketMQ 4.0.0 to 5.5.0.
"""

from rmqinspect.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)

KINDS = (
    "normal",
    "half",  # of a transaction: prepared
    "commit",  # the message of a committed transaction
    "rollback",
    "op",  # says that a half message is settled
    "delayed",
    "timer",
    "retry",
    "dlq",
    "pop",  # checkpoints and acks
    "system",
)
# By name of the topic.
_KIND_OF_TOPIC = {
    HALF_TOPIC: "half",
    ROCKSDB_HALF_TOPIC: "half",
    OP_TOPIC: "op",
    ROCKSDB_OP_TOPIC: "op",
    SCHEDULE_TOPIC: "delayed",
    TIMER_TOPIC: "timer",
}
_KIND_OF_PREFIX = {RETRY_PREFIX: "retry", DLQ_PREFIX: "dlq", REVIVE_PREFIX: "pop"}
# By the transaction bits, in any other topic: `message.TRANSACTIONS`.
_KIND_OF_TRANSACTION = ("normal", "half", "commit", "rollback")


def kind_of(topic: str, transaction: int = 0) -> str:
    """Return the kind of a topic's records; `transaction` is the value of their transaction bits."""
    if topic in _KIND_OF_TOPIC:
        return _KIND_OF_TOPIC[topic]
    for prefix, kind in _KIND_OF_PREFIX.items():
        if topic.startswith(prefix):
            return kind
    return "system" if is_system_topic(topic) else _KIND_OF_TRANSACTION[transaction]

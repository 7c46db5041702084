"""Which names topics may have, and the names of the broker's own topics. Source: TopicValidator."""

import re

# VALID_PATTERN_STR, and the "+" of pop retry topics (5.2.0 and later).
_LEGAL_NAME = re.compile(rb"[%|a-zA-Z0-9_+-]+")

# Holds delayed messages until they are due: RMQ_SYS_SCHEDULE_TOPIC.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# Retry topics of a consumer group, its pop retry topics (`%RETRY%group_topic`, since 5.2.0 also `%RETRY%group+topic`),
# and its dead letters. Source: MixAll, KeyBuilder.
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

# Prepared messages, what became of them (op), and those given up after the last check; the second of each pair is
# that of transactions in RocksDB (5.4.0). Source: TopicValidator, TransactionalMessageUtil.
HALF_TOPIC, ROCKSDB_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP_TOPIC, ROCKSDB_OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

# Timer messages until they are due (5.0.0), and the checkpoints and acks of pop (5.0.0; behind it the cluster's name).
# Source: TimerMessageStore.TIMER_TOPIC, PopAckConstants.REVIVE_TOPIC.
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"

# Message traces: of clients that name no other topic; with AccessChannel.CLOUD a region stands behind the prefix.
# Source: TopicValidator, TraceConstants.TRACE_TOPIC_PREFIX.
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRACE_PREFIX = "rmq_sys_TRACE_DATA_"

# System topics (TopicValidator#isSystemTopic, and additions of later versions). %RETRY%, %DLQ% and %LMQ%
# topics are not included: they hold users' messages. Neither are topics named after a cluster or broker
# (`<cluster>_REPLY_TOPIC`), which cannot be recognized by name.
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        SCHEDULE_TOPIC,
        TRACE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_TOPIC,
        GIVEN_UP_TOPIC,
    }
)
SYSTEM_PREFIX = "rmq_sys_"

# Queues of light messages (4.9.3). Source: MixAll.LMQ_PREFIX.
LMQ_PREFIX = "%LMQ%"


def is_system_topic(topic: str) -> bool:
    """Whether a topic is one of the broker's own."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_legal_topic(topic: bytes) -> bool:
    """Whether a broker accepts a topic of this name, as stored in records."""
    return _LEGAL_NAME.fullmatch(topic) is not None

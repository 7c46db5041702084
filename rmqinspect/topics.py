"""Topics that the broker makes for itself, by name. Source: TopicValidator."""

# Delayed messages wait here until they are due: RMQ_SYS_SCHEDULE_TOPIC.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# The broker's own topics (TopicValidator#isSystemTopic, and what later versions added).
# %RETRY%, %DLQ% and %LMQ% topics hold users' messages and are none. Topics named after a cluster or a
# broker (also `<cluster>_REPLY_TOPIC`) cannot be told from others by their name.
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
SYSTEM_PREFIX = "rmq_sys_"


def is_system_topic(topic: str) -> bool:
    """Tell whether the broker made the topic for itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)

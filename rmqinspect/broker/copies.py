"""What one record is in the life of a message, and which other records it names.

A broker never moves a message. Each step of its life is a further record, with the same UNIQ_KEY and body:

    step         topic                        says where it comes from, or goes to
    ----         -----                        ------------------------------------
    half         RMQ_SYS_TRANS_HALF_TOPIC     REAL_TOPIC; a half message that is checked is stored again
    commit       the real topic               PREPAREDTRANSACTIONOFFSET: the half message
    scheduled    SCHEDULE_TOPIC_XXXX          REAL_TOPIC, DELAY
    timer        rmq_sys_wheel_timer          REAL_TOPIC, TIMER_OUT_MS; stored again where it is rolled
    delivered    the real topic               keeps DELAY or TIMER_OUT_MS; of other writers see `find.life`
    retry        %RETRY%group                 ORIGIN_MESSAGE_ID, RETRY_TOPIC; scheduled before
    pop_retry    %RETRY%group_topic, +topic   1ST_POP_TIME
    dlq          %DLQ%group                   DLQ_ORIGIN_MESSAGE_ID (5.1.0), ORIGIN_MESSAGE_ID

The topic decides: a delivered record still has the properties of its delay, a retried one those of its transaction.

Source: SendMessageProcessor#consumerSendMsgBack, ScheduleMessageService, TimerMessageStore, TransactionalMessageBridge,
EndTransactionProcessor, PopReviveService; RocketMQ 4.0.0 to 5.5.0.

Kinds of records: whose messages they are, and what the broker keeps for itself.

Source: TopicValidator, MixAll, MessageSysFlag, TimerMessageStore, PopAckConstants; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from rmqinspect.codec.message_id import offset_place
from rmqinspect.schemas.message import TRANSACTION_MASK, TRANSACTION_SHIFT, TRANSACTIONS
from rmqinspect.topics import (
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
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

RECORD_KINDS = (
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


def record_kind(topic: str, transaction: int = 0) -> str:
    """Return the kind of a topic's records; `transaction` is the value of their transaction bits."""
    if topic in _KIND_OF_TOPIC:
        return _KIND_OF_TOPIC[topic]
    for prefix, kind in _KIND_OF_PREFIX.items():
        if topic.startswith(prefix):
            return kind
    return "system" if is_system_topic(topic) else _KIND_OF_TRANSACTION[transaction]


KINDS = {
    "sent": "stored as the producer sent it",
    "half": "half message of a transaction, not visible to consumers",
    "commit": "stored in its topic when the transaction was committed",
    "rollback": "notes that the transaction was rolled back (up to 4.2)",
    "op": "notes which half messages are committed or rolled back",
    "given_up": "half message that was checked too often, or became too old",
    "scheduled": "waits for its delay level to pass",
    "timer": "waits for its time on the timer wheel",
    "timer_cancel": "cancels a message on the timer wheel",
    "delivered": "stored in its topic when its delay had passed",
    "retry": "stored again for a group that sent it back",
    "pop_retry": "stored again for a group that popped it and did not acknowledge it",
    "dlq": "dead letter of a group that tried it too often",
    "checkpoint": "notes which messages a group has popped",
    "ack": "notes which popped messages a group has acknowledged",
}
"""Kinds of records, with their meaning."""

CONSUMED = frozenset({"sent", "commit", "delivered", "retry", "pop_retry", "dlq"})
"""Kinds that consumers of a topic receive."""

NO_COPIES = frozenset({"op", "checkpoint", "ack", "rollback"})
"""Kinds that are the broker's notes, not copies of a message."""

# By `record_kinds`; other kinds have the same name, and some are refined by properties.
_BY_KIND = {"normal": "sent", "system": "sent", "delayed": "scheduled"}
_POP_NOTES = {"ck": "checkpoint", "ack": "ack", "bAck": "ack"}  # by TAGS. Source: PopAckConstants

Queue = tuple[str, int]


class Stored(Struct, frozen=True):
    """What a record says of itself, as far as it tells what the record is."""

    topic: str
    queue_id: int
    sys_flag: int
    prepared_transaction_offset: int
    properties: Mapping[str, str]


class Copy(Struct, frozen=True):
    """What a record is in the life of its message."""

    kind: str  # one of KINDS
    group: str | None = None  # of a retry, scheduled or not, or of a dead letter
    bound_for: Queue | None = None  # of a record that waits: topic and queue id
    level: int | None = None  # of a delay
    due: int | None = None  # TIMER_OUT_MS, ms
    checks: int = 0  # how often the half message was stored again
    rolls: int = 0  # how often it was put back on the timer wheel
    messages: int = 1  # of an inner batch

    @property
    def is_consumed(self) -> bool:
        """Whether consumers of its topic receive the record."""
        return self.kind in CONSUMED


class Links(Struct, frozen=True):
    """The other records that a record names. Places are physical offsets."""

    unique_key: str | None  # UNIQ_KEY, shared by all copies of a message, and sometimes by other messages
    origins: tuple[int, ...]  # of the records that it is a copy of
    half: int | None  # of the half message that it commits or, up to 4.2, rolls back
    topics: frozenset[str]  # that other copies may be in


def copy_of(record: Stored, topics: Collection[str] = ()) -> Copy:
    """Return what a record is; `topics` are known ones, to find the group in the name of a pop retry topic."""
    properties = record.properties
    kind = _kind(record)
    real_topic = properties.get("REAL_TOPIC")
    waits = kind in ("scheduled", "timer", "timer_cancel", "half", "given_up") and real_topic is not None
    # A record that waits for its retry belongs to the group as well.
    group_topic = real_topic if waits and real_topic is not None else record.topic
    return Copy(
        kind,
        group=_group_in(group_topic, properties, topics),
        bound_for=(real_topic, _number(properties.get("REAL_QID")) or 0) if waits and real_topic is not None else None,
        # ScheduleMessageService#delayLevel2QueueId
        level=record.queue_id + 1 if kind == "scheduled" else _level(properties) if kind == "delivered" else None,
        due=_number(properties.get("TIMER_OUT_MS")) if kind in ("timer", "timer_cancel", "delivered") else None,
        checks=(_number(properties.get("TRANSACTION_CHECK_TIMES")) or 0) if kind in ("half", "given_up") else 0,
        rolls=_rolls(properties) if kind == "timer" else 0,
        messages=max(1, _number(properties.get("INNER_NUM")) or 1),
    )


def links_of(record: Stored, topics: Collection[str] = ()) -> Links:
    """Return which other records a record names; `topics` are known ones, that a pop retry topic may end with."""
    properties, copy = record.properties, copy_of(record)
    named = (properties.get(name) for name in ("REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"))
    # A client that could not send a message back stores the producer's id here: no place.
    ids = (properties.get(name, "") for name in ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID"))
    places = (offset_place(text) for text in ids)
    transaction = TRANSACTIONS[(record.sys_flag & TRANSACTION_MASK) >> TRANSACTION_SHIFT]
    names_half = copy.kind == transaction or (transaction == "commit" and copy.kind in ("scheduled", "timer"))
    return Links(
        properties.get("UNIQ_KEY") or properties.get("__transactionId__"),
        tuple(dict.fromkeys(place for place in places if place is not None)),
        record.prepared_transaction_offset if names_half else None,
        frozenset(name for name in (record.topic, *named, *_retried_topics(record, topics)) if name),
    )


def _kind(record: Stored) -> str:
    properties, topic = record.properties, record.topic
    kind = record_kind(topic, (record.sys_flag & TRANSACTION_MASK) >> TRANSACTION_SHIFT)
    if kind == "pop" or properties.get("REAL_TOPIC", "").startswith(REVIVE_PREFIX):
        return _POP_NOTES.get(properties.get("TAGS", ""), "sent")
    if kind == "timer" and "TIMER_DEL_UNIQKEY" in properties:
        return "timer_cancel"
    if kind == "retry" and "1ST_POP_TIME" in properties:
        return "pop_retry"
    if topic == GIVEN_UP_TOPIC:
        return "given_up"
    if kind in ("normal", "commit"):
        delayed = _level(properties) is not None and properties.get("REAL_TOPIC") == topic
        if delayed or "TIMER_OUT_MS" in properties:  # the RocksDB timer delivers without REAL_TOPIC
            return "delivered"
    return _BY_KIND.get(kind, kind)


def _group_in(topic: str, properties: Mapping[str, str], topics: Collection[str]) -> str | None:
    """Return the group in the name of a retry topic or dead letter queue; None for other topics.

    `%RETRY%group_topic` does not say where the group ends: the record may (ORIGIN_GROUP, 5.4.0), or a known topic
    does, the longest.
    """
    if topic.startswith(DLQ_PREFIX):
        return topic.removeprefix(DLQ_PREFIX)
    if not topic.startswith(RETRY_PREFIX):
        return None
    name = topic.removeprefix(RETRY_PREFIX)
    if "+" in name:
        return name.partition("+")[0]
    if "1ST_POP_TIME" not in properties:
        return name
    named = properties.get("ORIGIN_GROUP")
    if named and (name == named or name.startswith(named + "_")):
        return named
    ends = [f"_{other}" for other in topics if name.endswith(f"_{other}")]
    return name.removesuffix(max(ends, key=len, default=""))


def _retried_topics(record: Stored, topics: Collection[str]) -> Iterator[str]:
    """Yield the topics whose messages a pop retry topic may hold."""
    name = record.topic.removeprefix(RETRY_PREFIX)
    if name == record.topic:
        return
    if "+" in name:
        yield name.partition("+")[2]
    elif "1ST_POP_TIME" in record.properties:
        yield from (topic for topic in topics if name.endswith(f"_{topic}"))


def _level(properties: Mapping[str, str]) -> int | None:
    """Return the delay level of a record; 0 is none."""
    return _number(properties.get("DELAY")) or None


def _rolls(properties: Mapping[str, str]) -> int:
    # The RocksDB timer only marks what it stores again. Source: MessageConst.PROPERTY_TIMER_ROLL_LABEL (5.4.0).
    return _number(properties.get("TIMER_ROLL_TIMES")) or int("TIMER_ROLL_LABEL" in properties)


def _number(text: str | None) -> int | None:
    """Return a decimal number that fits a Java long, None for other text."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 19):
        return None
    return int(text)

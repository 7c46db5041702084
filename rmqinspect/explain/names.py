"""Message properties, topics, and numbers that stand for something, by name.

Source: MessageConst, TopicValidator; core 2.1, 2.10 to 2.14, 4.2; aux 5.5, 6, 7, 8.
"""

from dataclasses import replace

from rmqinspect.explain import values
from rmqinspect.explain.entry import Named, Words
from rmqinspect.schemas import consumequeue
from rmqinspect.topics import SCHEDULE_TOPIC

_BY_PROPERTY = "rmqinspect decode STORE --property {}"


def _property(name: str, since: str, meaning: str, words: Words | None = None, see: tuple[str, ...] = ()) -> Named:
    where = f"message property, since {since}"
    return Named("property", name, where, meaning, words=words, see=see, next=(_BY_PROPERTY.format(name),))


PROPERTIES: tuple[Named, ...] = (
    _property("KEYS", "4.0.0", "the user's keys, separated by a space; each is indexed", see=("keyHash",)),
    _property("TAGS", "4.0.0", "the tag; its hash goes into the queue unit", values.tags, ("tagsCode",)),
    _property(
        "UNIQ_KEY",
        "4.0.0",
        "the msg id that the client made: address, process, time, counter; indexed. Retried, delayed and committed "
        "copies keep it, so it is not unique in the log",
        values.identity,
    ),
    _property("WAIT", "4.0.0", "the producer waits until the message is stored (true or false)"),
    _property(
        "DELAY",
        "4.0.0",
        f"delay level. A copy that was delivered still has it: only in {SCHEDULE_TOPIC} it means waiting",
        values.delay_level,
        (SCHEDULE_TOPIC,),
    ),
    _property("RETRY_TOPIC", "4.0.0", "original topic of a message that a consumer gave back"),
    _property(
        "REAL_TOPIC",
        "4.0.0",
        "where a half, delayed or timer message is bound for; the copy that was delivered still has it",
        see=("REAL_QID",),
    ),
    _property("REAL_QID", "4.0.0", "queue id that belongs to REAL_TOPIC", see=("REAL_TOPIC",)),
    _property("TRAN_MSG", "4.0.0", "true: a half message, or the committed copy of one"),
    _property("PGROUP", "4.0.0", "producer group"),
    _property("MIN_OFFSET", "4.0.0", "added for consumers; on disk only when a client sent the message again"),
    _property("MAX_OFFSET", "4.0.0", "added for consumers; on disk only when a client sent the message again"),
    _property("BUYER_ID", "4.0.0", "of old versions"),
    _property("ORIGIN_MESSAGE_ID", "4.0.0", "id of the first message of a chain of retries", values.identity),
    _property("TRANSFER_FLAG", "4.0.0", "of old versions"),
    _property("CORRECTION_FLAG", "4.0.0", "of old versions"),
    _property("MQ2_FLAG", "4.0.0", "of old versions"),
    _property("RECONSUME_TIME", "4.0.0", "number of retries as the client sent it", see=("RECONSUMETIMES",)),
    _property("MSG_REGION", "4.0.0", "region id; from 5.0.0 on in every message, before only with a send hook"),
    _property("TRACE_ON", "4.0.0", "trace switch; from 5.0.0 on in every message, before only with a send hook"),
    _property("MAX_RECONSUME_TIMES", "4.0.0", "limit of retries, then the message goes to the dead letters"),
    _property("CONSUME_START_TIME", "4.0.0", "time on a client, ms", values.time),
    _property(
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "4.3.0",
        "how long the producer is not asked about its half message; each putting back counts as a check all the same",
    ),
    _property("TRAN_PREPARED_QUEUE_OFFSET", "4.3.0", "queue offset of the first copy of a half message"),
    _property("TRANSACTION_CHECK_TIMES", "4.3.0", "number of checks so far of a half message"),
    _property("INSTANCE_ID", "4.6.0", "namespace"),
    _property("CORRELATION_ID", "4.6.0", "request and reply"),
    _property("REPLY_TO_CLIENT", "4.6.0", "request and reply"),
    _property("TTL", "4.6.0", "request and reply"),
    _property("ARRIVE_TIME", "4.6.0", "request and reply"),
    _property("PUSH_REPLY_TIME", "4.6.0", "request and reply"),
    _property("MSG_TYPE", "4.6.0", "request and reply"),
    _property("CLUSTER", "4.6.0", "name of the broker's cluster, added to every message that a client sent"),
    _property(
        "INNER_MULTI_DISPATCH",
        "4.9.3",
        "further queues that get a unit for this record, separated by commas; their numbers are in "
        "INNER_MULTI_QUEUE_OFFSET",
        see=("INNER_MULTI_QUEUE_OFFSET", "%LMQ%"),
    ),
    _property(
        "INNER_MULTI_QUEUE_OFFSET",
        "4.9.3",
        "queue offsets in the queues of INNER_MULTI_DISPATCH, in the same order; where the counts differ, none of them "
        "gets a unit",
        see=("INNER_MULTI_DISPATCH",),
    ),
    _property("EXTEND_UNIQ_INFO", "5.0.0", "more information of the client"),
    _property("INNER_NUM", "5.0.0", "how many messages an inner batch holds", see=("INNER_BATCH", "BQ-COUNT")),
    _property(
        "INNER_BASE",
        "5.0.0",
        "queue offset of the first message of an inner batch",
        values.queue_offset,
        ("INNER_BATCH", "BQ-COUNT"),
    ),
    _property(
        "DUP_INFO",
        "5.0.0",
        "duplication mode: two parts joined by _; with duplicationEnable a start refuses records without it",
    ),
    _property("__transactionId__", "5.0.0", "transaction id"),
    _property("POP_CK", "5.0.0", "checkpoint of POP consumption"),
    _property("POP_CK_OFFSET", "5.0.0", "checkpoint offset of POP consumption"),
    _property("1ST_POP_TIME", "5.0.0", "when the message was first popped, ms", values.time),
    _property("__SHARDINGKEY", "5.0.0", "sharding key: messages with the same one stay in order"),
    _property("PROPERTY_FORWARD_QUEUE_ID", "5.0.0", "forwarding of static topics"),
    _property("REDIRECT", "5.0.0", "forwarding of static topics"),
    _property("TRACE_CONTEXT", "5.0.0", "trace"),
    _property("TIMER_DELAY_SEC", "5.0.0", "what the client asked for: delay in seconds", see=("TIMER_OUT_MS",)),
    _property("TIMER_DELAY_MS", "5.0.0", "what the client asked for: delay in ms", see=("TIMER_OUT_MS",)),
    _property(
        "TIMER_DELIVER_MS", "5.0.0", "what the client asked for: time of delivery, ms", values.time, ("TIMER_OUT_MS",)
    ),
    _property("TIMER_DELAY_LEVEL", "5.0.0", "what the client asked for: a level", see=("TIMER_OUT_MS",)),
    _property(
        "TIMER_OUT_MS",
        "5.0.0",
        "time of delivery, ms, as the broker set it: cut to the precision (1 s), one second less where it was whole "
        "already. The copy that was delivered keeps it",
        values.time,
        ("rmq_sys_wheel_timer",),
    ),
    _property("TIMER_ENQUEUE_MS", "5.0.0", "when the message was put into the timer wheel, ms", values.time),
    _property("TIMER_DEQUEUE_MS", "5.0.0", "when the message was taken out of the timer wheel, ms", values.time),
    _property(
        "TIMER_ROLL_TIMES", "5.0.0", "how often the message was put back, being due later than the wheel reaches"
    ),
    _property(
        "TIMER_DEL_UNIQKEY",
        "5.0.0",
        "this message deletes the timer message with this UNIQ_KEY and the same TIMER_OUT_MS; 5.3.2 and 5.3.3 want "
        "topic+UNIQ_KEY, later versions only with appendTopicForTimerDeleteKey",
    ),
    _property("__BORNHOST", "5.0.0", "the producer's address as a proxy saw it"),
    _property("BORN_TIMESTAMP", "5.0.0", "the producer's time as a proxy saw it, ms", values.time),
    _property("DLQ_ORIGIN_TOPIC", "5.1.0", "topic that a dead letter came from"),
    _property("DLQ_ORIGIN_MESSAGE_ID", "5.1.0", "id of the message that became a dead letter", values.identity),
    _property(
        "__CRC32#",
        "5.2.0",
        "CRC-32 of the whole record before these last 20 bytes, without its top bit, as ten digits with the least "
        "significant first; written with enabledAppendPropCRC (off by default)",
        see=("CL-CRC-RECORD",),
    ),
    replace(
        _property("__RMQ.TRANSIENT.", "5.0.0", "properties that begin so are meant for memory only, not for the disk"),
        next=("rmqinspect decode STORE --columns physical_offset,properties",),
    ),
    _property("_SYS_MSG_PRIORITY_", "5.4.0", "priority; the message goes to the queue of that number, or the last one"),
    _property("ORIGIN_GROUP", "5.4.0", "consumer group, in POP retry messages"),
    _property(
        "TRANS_OFFSET",
        "5.4.0",
        "physical offset of the half message, in ops of RocksDB transactions",
        values.physical_offset,
    ),
    _property("TIMER_ROLL_LABEL", "5.4.0", "R: the RocksDB timer stored the message again"),
    _property(
        "__LITE_TOPIC",
        "5.5.0",
        "name of the lite topic; the broker sets INNER_MULTI_DISPATCH from it",
        see=("INNER_MULTI_DISPATCH",),
    ),
)


PREFIX = "beginning of topic names"


def _topic(name: str, meaning: str, see: tuple[str, ...] = ()) -> Named:
    command = f"rmqinspect decode STORE -t {name}"
    return Named("topic", name, "the broker's own topic", meaning, see=see, next=(command,))


def _prefix(name: str, meaning: str, see: tuple[str, ...] = ()) -> Named:
    command = f"rmqinspect decode STORE -t '{name}*'"
    return Named("topic", name, PREFIX, meaning, see=see, next=(command,))


TOPICS: tuple[Named, ...] = (
    _prefix(
        "%RETRY%",
        "messages that a consumer group gave back; %RETRY%group_topic and %RETRY%group+topic are those of POP (5.0.0, "
        "5.2.0)",
        ("RETRY_TOPIC", "RECONSUMETIMES"),
    ),
    _prefix("%DLQ%", "dead letters of a consumer group: their retries are used up", ("DLQ_ORIGIN_TOPIC",)),
    _prefix(
        "%LMQ%",
        "light queues (4.9.3): only a consume queue, whose records have another topic; %LMQ%$topic$lite belongs to a "
        "lite topic (5.5.0)",
        ("INNER_MULTI_DISPATCH",),
    ),
    _topic(
        SCHEDULE_TOPIC,
        "delayed messages wait here, level n in queue n minus 1; the tags code of a unit is the time of delivery",
        ("DELAY", "tagsCode"),
    ),
    _topic("rmq_sys_wheel_timer", "timer messages wait here (5.0.0), in queue 0", ("TIMER_OUT_MS", "TM-BEYOND")),
    _topic(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "half messages of transactions (4.3.0), in queue 0; each check adds a new copy",
        ("TRAN_MSG", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    ),
    _topic(
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "says which half messages are decided: tag d, and their queue offsets in the body (one; from 5.1.0 on several "
        "with commas)",
        ("RMQ_SYS_TRANS_HALF_TOPIC",),
    ),
    _topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "half messages of RocksDB transactions (5.4.0)"),
    _topic(
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "says which half messages of RocksDB transactions are decided (5.4.0)",
        ("TRANS_OFFSET",),
    ),
    _topic(
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "half messages that were given up after too many checks",
        ("TRANSACTION_CHECK_TIMES",),
    ),
    _prefix("rmq_sys_REVIVE_LOG_", "checkpoints (tag ck) and acks (ack, bAck) of POP consumption, one topic a cluster"),
    _prefix("rmq_sys_", "the broker's own topics (5.0.0)"),
    _topic("TBW102", "template from which topics are made automatically; normally without messages"),
    _topic("BenchmarkTest", "for measurements; normally without messages"),
    _topic("SELF_TEST_TOPIC", "for self-tests; normally without messages"),
    _topic("OFFSET_MOVED_EVENT", "events about corrected consumer offsets; normally without messages"),
    _topic("RMQ_SYS_TRACE_TOPIC", "message traces"),
    _topic("CHECKPOINT_TOPIC", "a key in RocksDB consume queues: up to which physical offset they were built (5.x)"),
)

_SHOW = "rmqinspect show STORE --at OFFSET"
_QUEUE_UNITS = "rmqinspect decode STORE --table queue_units"


def _number(value: int, size: int, where: str, meaning: str, see: tuple[str, ...], command: str) -> Named:
    unsigned = value & (1 << 8 * size) - 1
    return Named(
        "number",
        f"{unsigned:#0{2 + 2 * size}x}",
        where,
        f"{meaning}; decimal {value}",
        also=(str(value), str(unsigned), f"{unsigned:0{2 * size}x}"),
        see=see,
        next=(command,),
    )


NUMBERS: tuple[Named, ...] = (
    *(
        _number(value, 4, "magic of the commit log", f"begins {words}", ("MAGICCODE",), _SHOW)
        for value, words in values.MAGICS.items()
    ),
    _number(
        consumequeue.PRE_BLANK_SIZE,
        4,
        "size in a queue unit",
        "filler (pre-blank): keeps the numbers right where a queue does not begin at 0; offset and tags code are 0",
        ("tagsCode", "CQ-ZERO-BEHIND"),
        _QUEUE_UNITS,
    ),
    _number(
        consumequeue.EXT_ADDRESS_MAX,
        8,
        "tags code in a queue unit",
        "from this number down a tags code is an address in the ext files: 2^63 added gives the position",
        ("tagsCode", "EX-ADDRESS"),
        _QUEUE_UNITS,
    ),
)

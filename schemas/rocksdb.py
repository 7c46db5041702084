"""RocksDB: keys and values of the consume queue (5.2.0+), of timer and half messages (5.4.0+), and of the
configuration in its second form (5.3.2+).

Keys hold names of any length, so they are declared as what stands before them and behind them.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable, ConfigHelper, ConsumerOffsetManagerV2,
TopicConfigManagerV2, SubscriptionGroupManagerV2, TimerRocksDBRecord, TransRocksDBRecord; RocketMQ 5.2.0 to 5.5.0.
"""

from construct import Bytes, Int8sb, Int8ub, Int16ub, Int32sb, Int64sb, Struct, this

SEPARATOR = 1  # AbstractRocksDBStorage.CTRL_1; 0 and 2 stand in the bounds of range scans only

KeyHead = Struct(
    "topic_size" / Int32sb,  # 0   bytes of the topic
    "separator" / Int8sb,    # 4
)                            # 5   the topic begins

# Behind the topic in column family `default`: one entry for each message.
UnitKeyTail = Struct(
    "separator" / Int8sb,         # 0
    "queue_id" / Int32sb,         # 1
    "queue_separator" / Int8sb,   # 5
    "queue_offset" / Int64sb,     # 6
)                                 # 14

UnitValue = Struct(
    "physical_offset" / Int64sb,  # 0
    "size" / Int32sb,             # 8
    "tags_code" / Int64sb,        # 12
    "store_timestamp" / Int64sb,  # 20  ms
)                                 # 28  RocksDBConsumeQueueTable.CQ_UNIT_SIZE

# Behind the topic in column family `offset`: the last and the first message of each queue.
EndKeyTail = Struct(
    "separator" / Int8sb,        # 0
    "which" / Bytes(3),          # 1   max, min
    "which_separator" / Int8sb,  # 4
    "queue_id" / Int32sb,        # 5
)                                # 9

EndValue = Struct(
    "physical_offset" / Int64sb,  # 0
    "queue_offset" / Int64sb,     # 8   of that message
)                                 # 16

# Its `max` is one number: up to which physical offset the queues are built.
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"

CheckpointValue = Struct("physical_offset" / Int64sb)  # 8

# --- rocksdbstore -----------------------------------------------------------------------------------

# Column family `timer`. Behind it in the key: UNIQ_KEY.
TimerKeyHead = Struct("deliver_timestamp" / Int64sb)  # 8  ms; TIMER_OUT_MS

TimerValue = Struct(
    "record_size" / Int32sb,      # 0
    "physical_offset" / Int64sb,  # 4   of the record, topic rmq_sys_wheel_timer
)                                 # 12  TimerRocksDBRecord.VALUE_LENGTH

# Column family `trans`. Behind it in the key: @, the real topic, @, the transaction id.
HalfKeyHead = Struct("physical_offset" / Int64sb)  # 8  of the half message

HalfValue = Struct(
    "check_times" / Int32sb,  # 0  how often the producer was asked
    "record_size" / Int32sb,  # 4
)                             # 8  TransRocksDBRecord.VALUE_LENGTH

HALF_KEY_SEPARATOR = b"@"  # TransRocksDBRecord.KEY_SPLIT

# Keys of MessageRocksDBStorage that are no entries; each value is one number.
TIMELINE_CHECKPOINT = b"timeline_checkpoint"  # ms; what is due before it was delivered
SCAN_CHECKPOINT = b"sys_topic_scan_offset_checkpoint"  # next queue offset of rmq_sys_wheel_timer to take
TIMER_KEYS = frozenset({TIMELINE_CHECKPOINT, SCAN_CHECKPOINT})
LAST_HALF = b"lastOffsetPy"  # the highest physical offset of a half message that was entered
HALF_KEYS = frozenset({LAST_HALF})

NumberValue = Struct("number" / Int64sb)  # 8

# --- configManagerVersion=v2 ------------------------------------------------------------------------

# Every key in `config/rdb` begins with it; behind it `data_version`, or what the record is about.
ConfigKeyHead = Struct(
    "prefix" / Int8ub,   # 0  TablePrefix.TABLE
    "table" / Int16ub,   # 1  TableId
    "record" / Int8ub,   # 3  RecordPrefix
)                        # 4

ConsumerOffsetKey = Struct(
    *ConfigKeyHead.subcons,
    "group_size" / Int16ub,
    "group" / Bytes(this.group_size),
    "group_separator" / Int8sb,
    "topic_size" / Int16ub,
    "topic" / Bytes(this.topic_size),
    "topic_separator" / Int8sb,
    "queue_id" / Int32sb,
)

ConsumerOffsetValue = Struct("queue_offset" / Int64sb)  # 8  the next to consume

# Of a topic or a group; behind the head of its value its text.
ConfigKey = Struct(*ConfigKeyHead.subcons, "name_size" / Int16ub, "name" / Bytes(this.name_size))

ConfigValueHead = Struct("serialization" / Int8ub)  # 1

ConfigDataVersion = Struct(
    "state_version" / Int64sb,  # 0
    "timestamp" / Int64sb,      # 8   ms
    "counter" / Int64sb,        # 16
)                               # 24

CONFIG_PREFIX = 1  # TablePrefix.TABLE
CONSUMER_OFFSETS, TOPICS, SUBSCRIPTION_GROUPS = 1, 3, 4  # TableId; 2 are offsets of pull consumers
RECORD_DATA_VERSION, RECORD_DATA = 1, 2  # RecordPrefix
JSON_TEXT = 1  # SerializationType.JSON

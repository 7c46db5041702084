"""The consume queue in RocksDB (5.2.0+): keys and values of its two column families.

Keys hold a topic of any length, so they are declared as what stands before it and behind it.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable; RocketMQ 5.2.0 to 5.5.0.
"""

from construct import Bytes, Int8sb, Int32sb, Int64sb, Struct

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

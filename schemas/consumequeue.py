"""Consume queues: the 20-byte unit, the 46-byte batch unit, the ext unit.

Source: ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt; RocketMQ 4.0.0 to 5.5.0.
"""

from construct import Bytes, Int16sb, Int32sb, Int64sb, Struct, this

QueueUnit = Struct(
    "physical_offset" / Int64sb,  # 0   where the record starts in the commit log
    "size" / Int32sb,             # 8   the whole record; 0 marks an unused unit
    "tags_code" / Int64sb,        # 12  tag hash, deliver time (schedule topic), or ext address
)                                 # 20  ConsumeQueue.CQ_STORE_UNIT_SIZE

# Filler that keeps unit numbers aligned when a queue does not start at 0:
# ConsumeQueue#fillPreBlank writes offset 0, this size, tags code 0.
PRE_BLANK_SIZE = 0x7FFFFFFF

PRE_BLANK = {"physical_offset": 0, "size": PRE_BLANK_SIZE, "tags_code": 0}

NOWHERE_SIZE = 2
"""Bytes that a unit of a salvaged queue leads to whose messages are all lost: the last byte of a segment, and the first
of the next one. No broker reads over that border, and goes on with the following unit."""

BatchUnit = Struct(
    "physical_offset" / Int64sb,   # 0   -1 ends a full file of the compaction queue
    "size" / Int32sb,              # 8
    "tags_code" / Int64sb,         # 12
    "store_timestamp" / Int64sb,   # 20  ms
    "queue_offset" / Int64sb,      # 28  of the first message
    "message_count" / Int16sb,     # 36
    "compacted_offset" / Int32sb,  # 38  -1: none
    "reserved" / Int32sb,          # 42
)                                  # 46  BatchConsumeQueue.CQ_STORE_UNIT_SIZE

EXT_ADDRESS_MAX = -2147483649  # ConsumeQueueExt.MAX_ADDR: a tags code at or below is an address
EXT_ADDRESS_BASE = -(2**63)  # address = this + position in the ext files
EXT_END_OF_FILE = -1  # stands where the next unit's size would

ExtHead = Struct(
    "size" / Int16sb,             # 0   the whole unit
    "tags_code" / Int64sb,        # 2
    "store_timestamp" / Int64sb,  # 10  ms
    "bitmap_size" / Int16sb,      # 18
)                                 # 20  ConsumeQueueExt.MIN_EXT_UNIT_SIZE

ExtUnit = Struct(*ExtHead.subcons, "bitmap" / Bytes(this.bitmap_size))

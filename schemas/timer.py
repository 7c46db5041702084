"""The timer of 5.0.0 and later: the units of `timerlog`, the slots of `timerwheel`, `config/timercheck`.

Source: TimerLog, Slot, TimerWheel, TimerCheckpoint; RocketMQ 5.0.0 to 5.5.0.
"""

from construct import Int32sb, Int64sb, Struct

from .message import MAGIC_BLANK

TimerUnit = Struct(
    "size" / Int32sb,               # 0   UNIT_SIZE
    "previous" / Int64sb,           # 4   timer log offset of the unit before it in its slot; NO_UNIT: none
    "magic" / Int32sb,              # 12  bits: 1 normal, 2 to be rolled, 4 deletes another
    "enqueue_timestamp" / Int64sb,  # 16  ms, a multiple of the wheel's precision
    "delay" / Int32sb,              # 24  ms; due at enqueue_timestamp + delay
    "physical_offset" / Int64sb,    # 28  of the record, topic rmq_sys_wheel_timer
    "record_size" / Int32sb,        # 36
    "real_topic_hash" / Int32sb,    # 40  String.hashCode of REAL_TOPIC, 0 without
    "reserved" / Int64sb,           # 44
)                                   # 52  TimerLog.UNIT_SIZE

UNIT_SIZE: int = TimerUnit.sizeof()
NO_UNIT = -1
UNIT_MAGICS = range(16)  # 1 normal, 2 to be rolled, 4 deletes another; TimerMessageStore#isMagicOK

# Ends a file in which no further unit and blank have room.
TimerBlank = Struct(
    "total_size" / Int32sb,  # 0   all bytes left, these 16 included
    "reserved" / Int64sb,    # 4
    "magic" / Int32sb,       # 12  BLANK_MAGIC, where a unit has its own
)                            # 16  TimerLog.MIN_BLANK_LEN

BLANK_MAGIC = MAGIC_BLANK  # TimerLog.BLANK_MAGIC_CODE is the commit log's

WheelSlot = Struct(
    "time" / Int64sb,           # 0   due time / precision; with 1000 ms: seconds since 1970
    "first" / Int64sb,          # 8   timer log offset of the slot's oldest unit
    "last" / Int64sb,           # 16  and of its newest, from which `previous` leads back
    "message_count" / Int32sb,  # 24  a hint: deletions count -1, a recovery does not count
    "magic" / Int32sb,          # 28  0
)                               # 32  Slot.SIZE

WHEEL_SLOTS = 2 * 7 * 24 * 3600  # TimerWheel: twice TIMER_WHEEL_TTL_DAY, whatever the precision
DEFAULT_PRECISION = 1000  # ms; timerPrecisionMs

TimerCheck = Struct(
    "last_read_timestamp" / Int64sb,        # 0   ms; slots before it have fired. 0: a failed start (5.4.0)
    "last_timer_log_flush_pos" / Int64sb,   # 8   up to where the timer log was flushed
    "last_timer_queue_offset" / Int64sb,    # 16  next queue offset of rmq_sys_wheel_timer to take
    "master_timer_queue_offset" / Int64sb,  # 24
    "state_version" / Int64sb,              # 32  dataVersion
    "version_timestamp" / Int64sb,          # 40  ms
    "version_counter" / Int64sb,            # 48
)                                           # 56; the rest of the page is zero

"""The commit-log record, and the blank record that ends a full segment.

`FRONT`, the two host forms and `TAIL` are declared once. The four `HEADS` (everything
before the body, whose length depends on the two address families only) and `Message` are
composed of those same pieces, so the bulk reader and the one-record reader cannot differ.

Source: CommitLog.DefaultAppendMessageCallback#doAppend, MessageExtEncoder#encode,
CommitLog#checkMessageAndReturnSize; RocketMQ 4.0.0 to 5.5.0.
"""

from enum import IntFlag

from construct import (
    Bytes,
    IfThenElse,
    Int8sb,
    Int16sb,
    Int32sb,
    Int64sb,
    Struct,
    this,
)
from construct.expr import FuncPath

MAGIC_V1 = -626843481  # 0xDAA320A7  CommitLog.MESSAGE_MAGIC_CODE, 4.0.0
MAGIC_V2 = -626843477  # 0xDAA320AB  MESSAGE_MAGIC_CODE_V2, 5.1.0: the topic length has 2 bytes
RECORD_MAGICS = (MAGIC_V1, MAGIC_V2)
MAGIC_BLANK = -875286124  # 0xCBD43194  CommitLog.BLANK_MAGIC_CODE
# The three bytes that both record magics begin with: what a search for lost records looks for.
MAGIC_PREFIX = b"\xda\xa3\x20"


# A record is appended only where it leaves room for this: CommitLog.END_FILE_MIN_BLANK_LENGTH.
BLANK_MIN_SIZE = 8


class SysFlag(IntFlag):
    """Bits of SYSFLAG. Source: MessageSysFlag (module common)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    BORNHOST_V6 = 0x10  # 4.6.0
    STOREHOSTADDRESS_V6 = 0x20  # 4.6.0
    NEED_UNWRAP = 0x40  # 5.0.0
    INNER_BATCH = 0x80  # 5.0.0
    COMPRESSION_BIT_0 = 0x100  # 4.9.4
    COMPRESSION_BIT_1 = 0x200
    COMPRESSION_BIT_2 = 0x400


TRANSACTION_MASK = 0xC
TRANSACTION_SHIFT = 2
TRANSACTIONS = ("none", "prepared", "commit", "rollback")  # by the value of the two bits

COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8
# By the value of the three bits; 4 to 7 make the Java reader throw. 0 is the zlib of clients
# that knew no other: CompressionType#findByValue.
COMPRESSIONS = ("zlib", "lz4", "zstd", "zlib")

WELL_KNOWN = (
    b"UNIQ_KEY",
    b"KEYS",
    b"TAGS",
    b"REAL_TOPIC",
    b"REAL_QID",
    b"RETRY_TOPIC",
    b"TIMER_OUT_MS",
    b"DELAY",
    b"INNER_NUM",
    b"INNER_MULTI_DISPATCH",
    b"INNER_MULTI_QUEUE_OFFSET",
    b"TIMER_DEL_UNIQKEY",
    b"TIMER_ROLL_TIMES",
    b"TIMER_ROLL_LABEL",
)
"""Names that every record is searched for."""

NAME_VALUE_SEPARATOR = 0x01  # MessageDecoder.NAME_VALUE_SEPARATOR
PROPERTY_SEPARATOR = 0x02  # MessageDecoder.PROPERTY_SEPARATOR

# The optional whole-record CRC (`enabledAppendPropCRC`, 5.2.0) is the last property:
# name, separator, ten digits with the least significant first, separator.
CRC32_NAME = b"__CRC32#"
CRC32_DIGITS = 10
CRC32_RESERVED_SIZE = 20  # CommitLog.CRC32_RESERVED_LEN

# Records that `rmqinspect salvage` writes in the place of what could not be saved: of type rollback, so that no broker
# dispatches them, with this FLAG ("Brdg") and this topic, or as many of its letters as there is room for.
BRIDGE_FLAG = 0x42726467
BRIDGE_TOPIC = b"RMQINSPECT_BRIDGE"

# Both CRCs lose their top bit: UtilAll#crc32 masks to a non-negative Java int.
CRC_MASK = 0x7FFFFFFF

HostV4 = Struct(
    "address" / Bytes(4),  # 0
    "port" / Int32sb,      # 4   an int, though 16 bits would do
)                          # 8

HostV6 = Struct(
    "address" / Bytes(16),  # 0
    "port" / Int32sb,       # 16
)                           # 20

FRONT = (
    "total_size" / Int32sb,       # 0   the whole record, this field included
    "magic" / Int32sb,            # 4
    "body_crc" / Int32sb,         # 8   CRC-32 of the stored body, masked; 0 without a body
    "queue_id" / Int32sb,         # 12
    "flag" / Int32sb,             # 16  the user's, not interpreted
    "queue_offset" / Int64sb,     # 20  logical; 0 in prepared and rollback records
    "physical_offset" / Int64sb,  # 28  of this record's first byte
    "sys_flag" / Int32sb,         # 36
    "born_timestamp" / Int64sb,   # 40  ms, the producer's clock
)                                 # 48

TAIL = (
    "reconsume_times" / Int32sb,              # +0
    "prepared_transaction_offset" / Int64sb,  # +4   a commit's half message
    "body_size" / Int32sb,                    # +12
)                                             # +16


def _head(born_host: Struct, store_host: Struct) -> Struct:
    return Struct(                    # v4 v4  v6 v4  v4 v6  v6 v6
        *FRONT,                       #     0      0      0      0
        "born_host" / born_host,      #    48     48     48     48
        "store_timestamp" / Int64sb,  #    56     68     56     68   ms, the broker's clock
        "store_host" / store_host,    #    64     76     64     76
        *TAIL,                        #    72     84     84     96
    )                                 #    88    100    100    112   the body begins


# Everything before the body, by (born host is IPv6, store host is IPv6).
HEADS = {
    (False, False): _head(HostV4, HostV4),
    (True, False): _head(HostV6, HostV4),
    (False, True): _head(HostV4, HostV6),
    (True, True): _head(HostV6, HostV6),
}


def _bytes_of_length(size: int) -> int:
    # The broker reads a negative length as "none" and counts it as 0.
    return size if size > 0 else 0


at_least_zero = FuncPath(_bytes_of_length)
"""In a layout, the bytes that a length stands for. An expression, and no lambda: `docs/build/kaitai.py` reads it."""

Message = Struct(
    *FRONT,
    "born_host" / IfThenElse(this.sys_flag & SysFlag.BORNHOST_V6, HostV6, HostV4),
    "store_timestamp" / Int64sb,
    "store_host" / IfThenElse(this.sys_flag & SysFlag.STOREHOSTADDRESS_V6, HostV6, HostV4),
    *TAIL,
    "body" / Bytes(at_least_zero(this.body_size)),
    "topic_size" / IfThenElse(this.magic == MAGIC_V2, Int16sb, Int8sb),
    "topic" / Bytes(this.topic_size),
    "properties_size" / Int16sb,
    "properties" / Bytes(at_least_zero(this.properties_size)),
)

# Head, topic length and properties length of a record with both hosts IPv4 and an empty topic:
# the 91 of MessageExtEncoder#calMsgLength. A real record has a topic of at least one byte.
FIXED_SIZE = HEADS[False, False].sizeof() + Int8sb.sizeof() + Int16sb.sizeof()

Blank = Struct(
    "total_size" / Int32sb,  # 0   all bytes left in the file, these 8 included
    "magic" / Int32sb,       # 4   MAGIC_BLANK; what follows is undefined
)                            # 8

# One message of an inner batch (5.0.0+: SysFlag.INNER_BATCH), and of a client batch on the wire.
BatchItem = Struct(
    "total_size" / Int32sb,  # 0   this field included
    "magic" / Int32sb,       # 4   0
    "body_crc" / Int32sb,    # 8   0
    "flag" / Int32sb,        # 12  the user's, not interpreted
    "body_size" / Int32sb,   # 16
    "body" / Bytes(at_least_zero(this.body_size)),
    "properties_size" / Int16sb,
    "properties" / Bytes(at_least_zero(this.properties_size)),
)

"""Numbers that `loops.records` shares with its callers: columns of its tables, bits and kinds that it writes."""

from enum import IntFlag

from rmqinspect.schemas import message
from rmqinspect.topics import SCHEDULE_TOPIC

SLACK = 256
"""Bytes behind the end of every window: a whole head can be read from any index in it."""

# The columns of a record's row; places are indexes of the window.
COLUMNS = (
    "start",
    *(field.name for field in message.FRONT),
    "born_host",  # place of the address
    "born_port",
    "store_timestamp",
    "store_host",
    "store_port",
    *(field.name for field in message.TAIL),
    "end",  # by TOTALSIZE
    "body_start",
    "body_end",  # where the topic length stands
    "topic_start",
    "topic_end",  # where the length of the properties stands
    "properties_start",
    "properties_end",  # by their own length
)
(
    START,
    TOTAL_SIZE,
    MAGIC,
    BODY_CRC,
    QUEUE_ID,
    FLAG,
    QUEUE_OFFSET,
    PHYSICAL_OFFSET,
    SYS_FLAG,
    BORN_TIMESTAMP,
    BORN_HOST,
    BORN_PORT,
    STORE_TIMESTAMP,
    STORE_HOST,
    STORE_PORT,
    RECONSUME_TIMES,
    PREPARED_OFFSET,
    BODY_SIZE,
    END,
    BODY_START,
    BODY_END,
    TOPIC_START,
    TOPIC_END,
    PROPERTIES_START,
    PROPERTIES_END,
) = range(len(COLUMNS))

NO_CRC, WRONG_CRC, RIGHT_CRC = range(3)  # of the property `__CRC32#`

# What a field of a record may hold.
LAST_PORT = 0xFFFF
LAST_PLACE = (2**63 - 1 - 2**31) // 20  # of a queue: its unit, and the file after it, have places that are Java longs
OFFSET_RULE, FIELD_RULE, TIME_RULE = 1, 2, 4  # that `broken_rules` looks at

# Columns of the table of queues whose offsets are followed, and what stands for no offset.
NEXT_OFFSET, FIRST_OFFSET, FIRST_PLACE, JUMPED, JUMP_WANTED, JUMP_END, JUMP_PLACE = range(7)
UNKNOWN_OFFSET = -1

# Columns of the table of sums.
SUM_RECORDS, SUM_MESSAGES, SUM_BYTES, SUM_FIRST, SUM_LAST = range(5)

# --- what is dispatched -------------------------------------------------------------------------

UNIQUE, MARKED_ID, KEY, TAG = range(4)  # kinds of index keys, in the order in which they are written
PLAIN, TAGGED, MARKED, MARKS = range(4)  # what stands between the topic and a key: nothing, or a mark

# What is asked for.
ASKED_INDEX_KEYS, ASKED_TAG_KEYS, ASKED_REAL_TOPICS, ASKED_BATCHES, ASKED_ID_MARKS, ASKED_KEY_COUNTS = (
    1 << bit for bit in range(6)
)

# Rows of the tables that are columns of `Dispatched`, in its order.
TO_PHYSICAL_OFFSET, TO_QUEUE_OFFSET, TO_STORE_TIMESTAMP = range(3)
TO_SIZE, TO_QUEUE, TO_TAGS_CODE, TO_MESSAGES, TO_REAL_TOPIC, TO_KEY_COUNT = range(6)
TO_ENTITLED, TO_SOUND, TO_DELAYED, TO_HAS_TAGS = range(4)
TO_KEY_RECORD, TO_KEY_HASH = range(2)

# --- what a start judges ------------------------------------------------------------------------


class Doubt(IntFlag):
    """What a sound record can be rejected for."""

    BODY_CRC = 1  # it does not match
    V2 = 2
    IPV6 = 4
    DELAY = 8  # of a delayed message, and not a plain number
    INNER = 16  # the numbers of an inner batch are there, and one is not a plain number
    PROPERTY_CRC = 32  # it is not at its usual place, or does not match
    DUPLICATION = 64  # DUP_INFO is asked for
    OFFSET = 128  # PHYSICALOFFSET lies outside of the segment


DOUBT_TEXTS = b"DELAY\x01INNER_NUM\x01INNER_BASE\x01" + SCHEDULE_TOPIC.encode()
"""What `doubt_records` searches records for."""
AT_DELAY, AT_NUMBER, AT_BASE, AT_TOPIC = 0, 6, 16, 27  # where each text begins

# What is known of the DLedger entries so far, and why following them stopped.
LAST_INDEX, LAST_TERM, STOP = range(3)
MORE, BLANK, ZERO, BAD_MAGIC, BAD_SIZE, BAD_PLACE, BAD_ORDER = range(7)

"""The loops over records: one row of numbers for each record, and checksums.

    raw      ...|head····|body......|topic|properties|head····|...
    rows         start, total_size, magic, ..., body_start, ...     int64, one row for each record

`follow` walks the chain as the broker does at its start: it reads a record, judges it, and goes on where it ends.
Nothing else of a record is believed on the way: in a damaged one a column holds what its bytes say.

Invariants: `raw` goes on for SLACK bytes behind any place where a record may begin, which is more than the longest
head; behind the head, a place is compared with that limit before it is read. Places stay within 33 bits: an index of a
window and one length, of the record or its body, are below 2^31; the lengths of topic and properties have 16 bits.

Source: CommitLog#checkMessageAndReturnSize.
"""

# mypy: disable-error-code="no-any-return"

from rmqinspect.codec.kernels import (
    Bytes,
    Ints,
    IntsOut,
    Table,
    TableOut,
    byte_at,
    crc32_of,
    inlined,
    int16_at,
    int32_at,
    int64_at,
    kernel,
)
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of

# Bytes behind the end of every window: a whole head can be read from any index in it.
SLACK = 256

# The columns of a row; places are indexes of the window.
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

_HEAD = message.HEADS[False, False]
(
    _TOTAL_SIZE,
    _MAGIC,
    _BODY_CRC,
    _QUEUE_ID,
    _FLAG,
    _QUEUE_OFFSET,
    _PHYSICAL_OFFSET,
    _SYS_FLAG,
    _BORN_TIMESTAMP,
    _BORN_HOST,
    _STORE_TIMESTAMP,
    _STORE_HOST,
    _RECONSUME_TIMES,
    _PREPARED_OFFSET,
    _BODY_SIZE,
) = (place_of(_HEAD, field.name) for field in _HEAD.subcons)
_HEAD_SIZE: int = _HEAD.sizeof()
_PORT_V4, _PORT_V6 = (place_of(host, "port") for host in (message.HostV4, message.HostV6))
_WIDER: int = message.HostV6.sizeof() - message.HostV4.sizeof()  # what an IPv6 host moves all behind it
_BORN_V6, _STORE_V6 = int(SysFlag.BORNHOST_V6), int(SysFlag.STOREHOSTADDRESS_V6)
_V1, _V2 = message.RECORD_MAGICS
FIXED_SIZE: int = message.FIXED_SIZE
_TOPIC_SIZE_V1, _TOPIC_SIZE_V2 = 1, 2  # bytes of the topic's length
_PROPERTIES_SIZE = FIXED_SIZE - _HEAD_SIZE - _TOPIC_SIZE_V1  # of that of the properties

_ENTRY_MAGIC, _ENTRY_SIZE, _ENTRY_BODY_SIZE = (
    place_of(dledger.EntryHead, name) for name in ("magic", "size", "body_size")
)
_FIRST_ENTRY_MAGIC, _LAST_ENTRY_MAGIC = min(dledger.ENTRY_MAGICS), max(dledger.ENTRY_MAGICS)

_CRC_MASK = message.CRC_MASK
_CRC32_SIZE = message.CRC32_RESERVED_SIZE
_CRC32_NAME = int.from_bytes(message.CRC32_NAME, "big", signed=True)
_CRC32_NAME_SIZE, _CRC32_DIGITS = len(message.CRC32_NAME), message.CRC32_DIGITS
_SEPARATOR, _END_OF_ITEM = message.NAME_VALUE_SEPARATOR, message.PROPERTY_SEPARATOR
_ZERO = ord("0")
NO_CRC, WRONG_CRC, RIGHT_CRC = range(3)
_BRIDGE_FLAG, _ROLLED_BACK = message.BRIDGE_FLAG, message.TRANSACTION_MASK


@inlined
def _read_record(raw: Bytes, at: int, rows: TableOut, row: int) -> None:
    """Write what stands at `at`, which is at most len(raw) - SLACK."""
    flags = int32_at(raw, at + _SYS_FLAG)
    born_v6, store_v6 = flags & _BORN_V6, flags & _STORE_V6
    behind_born = at + (_WIDER if born_v6 else 0)
    behind_store = behind_born + (_WIDER if store_v6 else 0)
    total_size, magic = int32_at(raw, at + _TOTAL_SIZE), int32_at(raw, at + _MAGIC)
    body_size = int32_at(raw, behind_store + _BODY_SIZE)
    rows[row, START] = at
    rows[row, TOTAL_SIZE] = total_size
    rows[row, MAGIC] = magic
    rows[row, BODY_CRC] = int32_at(raw, at + _BODY_CRC)
    rows[row, QUEUE_ID] = int32_at(raw, at + _QUEUE_ID)
    rows[row, FLAG] = int32_at(raw, at + _FLAG)
    rows[row, QUEUE_OFFSET] = int64_at(raw, at + _QUEUE_OFFSET)
    rows[row, PHYSICAL_OFFSET] = int64_at(raw, at + _PHYSICAL_OFFSET)
    rows[row, SYS_FLAG] = flags
    rows[row, BORN_TIMESTAMP] = int64_at(raw, at + _BORN_TIMESTAMP)
    rows[row, BORN_HOST] = at + _BORN_HOST
    rows[row, BORN_PORT] = int32_at(raw, at + _BORN_HOST + (_PORT_V6 if born_v6 else _PORT_V4))
    rows[row, STORE_TIMESTAMP] = int64_at(raw, behind_born + _STORE_TIMESTAMP)
    rows[row, STORE_HOST] = behind_born + _STORE_HOST
    rows[row, STORE_PORT] = int32_at(raw, behind_born + _STORE_HOST + (_PORT_V6 if store_v6 else _PORT_V4))
    rows[row, RECONSUME_TIMES] = int32_at(raw, behind_store + _RECONSUME_TIMES)
    rows[row, PREPARED_OFFSET] = int64_at(raw, behind_store + _PREPARED_OFFSET)
    rows[row, BODY_SIZE] = body_size
    rows[row, END] = at + total_size
    rows[row, BODY_START] = behind_store + _HEAD_SIZE
    # A damaged length can point anywhere: what stands there is read inside of the window, and judged later.
    last = len(raw) - SLACK
    body_end = behind_store + _HEAD_SIZE + max(body_size, 0)
    topic_size_at = min(body_end, last)
    if magic == _V2:
        topic_size, topic_start = int16_at(raw, topic_size_at), topic_size_at + _TOPIC_SIZE_V2
    else:
        topic_size, topic_start = byte_at(raw, topic_size_at), topic_size_at + _TOPIC_SIZE_V1
    topic_end = topic_start + topic_size  # a negative size stays: it is damage
    properties_size = int16_at(raw, min(max(topic_end, 0), last))
    rows[row, BODY_END] = body_end
    rows[row, TOPIC_START] = topic_start
    rows[row, TOPIC_END] = topic_end
    rows[row, PROPERTIES_START] = topic_end + _PROPERTIES_SIZE
    rows[row, PROPERTIES_END] = topic_end + _PROPERTIES_SIZE + max(properties_size, 0)


@inlined
def _is_sound(rows: Table, row: int, filled: int) -> bool:
    """Whether a row has a magic, a plausible size, and lengths that add up to it; `filled`: where the bytes end."""
    magic, end = rows[row, MAGIC], rows[row, END]
    if magic != _V1 and magic != _V2:
        return False
    if rows[row, TOTAL_SIZE] < FIXED_SIZE or end > filled:
        return False
    if rows[row, BODY_END] >= end or rows[row, TOPIC_START] > rows[row, TOPIC_END]:
        return False
    return rows[row, PROPERTIES_END] == end


@inlined
def _is_wrapped(raw: Bytes, entry: int, lead: int, rows: Table, row: int) -> bool:
    """Whether the DLedger entry head at `entry` agrees with the record behind it."""
    magic, total_size = int32_at(raw, entry + _ENTRY_MAGIC), rows[row, TOTAL_SIZE]
    if magic < _FIRST_ENTRY_MAGIC or magic > _LAST_ENTRY_MAGIC:
        return False
    if int32_at(raw, entry + _ENTRY_BODY_SIZE) != total_size:
        return False
    return int32_at(raw, entry + _ENTRY_SIZE) == total_size + lead


@kernel
def follow(raw: Bytes, at: int, filled: int, lead: int, rows: TableOut) -> int:
    """Write a row for each record of the chain from the index `at` on, as many as `rows` holds; return their number.

    Ends in front of the first one that is not sound, or that goes on behind `filled`, where the window's bytes end.
    `lead`: bytes of DLedger entry head before each record.
    """
    count = 0
    # A sound record ends behind its begin, and at most at `filled`: the walk only moves forward.
    while count < len(rows) and at + lead + FIXED_SIZE <= filled:
        _read_record(raw, at + lead, rows, count)
        if not _is_sound(rows, count, filled):
            break
        if lead > 0 and not _is_wrapped(raw, at, lead, rows, count):
            break
        at = rows[count, END]
        count += 1
    return count


@kernel
def first_bridge(rows: Table, start: int) -> int:
    """Return the first row from `start` on that is a bridge, else the number of rows.

    A bridge is what `rmqinspect salvage` writes over a gap: FLAG and the type rollback, as `schemas.message` says.
    """
    for row in range(start, len(rows)):
        if rows[row, FLAG] == _BRIDGE_FLAG and rows[row, SYS_FLAG] == _ROLLED_BACK:
            return row
    return len(rows)


@kernel
def read_records(raw: Bytes, starts: Ints, rows: TableOut) -> None:
    """Write a row for what stands at each of some indexes, at most len(raw) - SLACK."""
    for row in range(len(starts)):
        _read_record(raw, starts[row], rows, row)


@kernel
def judge_soundness(rows: Table, filled: int, sound: IntsOut) -> None:
    """Write 1 for each row that is sound, else 0; see `_is_sound`."""
    for row in range(len(rows)):
        sound[row] = 1 if _is_sound(rows, row, filled) else 0


@kernel
def body_crcs(address: int, raw: Bytes, rows: Table, crcs: IntsOut) -> None:
    """Write the CRC-32 of each stored body, masked as the broker stores it."""
    for row in range(len(rows)):
        start, end = min(rows[row, BODY_START], len(raw)), min(rows[row, BODY_END], len(raw))
        crcs[row] = crc32_of(address, raw, start, end - start) & _CRC_MASK


@kernel
def record_crcs(address: int, raw: Bytes, rows: Table, found: IntsOut) -> int:
    """Write whether each record's property `__CRC32#` is there and right; return how many are there.

    It is the last property, of fixed size: name, separator, ten digits with the least significant first, separator.
    Source: CommitLog#checkMessageAndReturnSize with forceVerifyPropCRC, 5.2.0.
    """
    count = 0
    for row in range(len(rows)):
        start, end = rows[row, START], rows[row, END]
        at = end - _CRC32_SIZE
        found[row] = NO_CRC
        if rows[row, PROPERTIES_END] - rows[row, PROPERTIES_START] < _CRC32_SIZE or at < start or end > len(raw):
            continue
        if int64_at(raw, at) != _CRC32_NAME:
            continue
        digits = at + _CRC32_NAME_SIZE + 1
        sound = raw[digits - 1] == _SEPARATOR and raw[digits + _CRC32_DIGITS] == _END_OF_ITEM
        stored = 0  # below 10^10
        for place in range(_CRC32_DIGITS):
            digit = raw[digits + _CRC32_DIGITS - 1 - place] - _ZERO
            sound = sound and 0 <= digit <= 9
            stored = stored * 10 + digit
        right = sound and stored == crc32_of(address, raw, start, at - start) & _CRC_MASK
        found[row] = RIGHT_CRC if right else WRONG_CRC
        count += 1
    return count

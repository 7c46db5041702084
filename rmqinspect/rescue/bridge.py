"""Bridges: what stands in a salvaged log where nothing could be saved, so that the chain of records goes on.

A broker reads its log as a chain, and gives up all that lies behind the first byte that is no record. So a gap
between sound records is covered by records of type rollback: recovery and dispatch pass over them, they get no
queue unit and no index entry, no topic appears, and no consumer gets them.

    |record|??????????????????|record|          a gap of at least 92 bytes: one bridge, or several of up to 1 MiB
    |record|bridge............|record|
    |record|??????????????????| next segment    a gap that reaches the segment's end: a bridge, then the blank
    |record|bridge|blank......|                 record that a broker writes there
    |         no file         |                 a whole segment that is not there: the same, sparse

Each has the property `__CRC32#` if there is room: brokers with `forceVerifyPropCRC` (5.2.0 and later) end the log at a
record without.

They are told from messages by FLAG and topic (`schemas.message`), and `commitlog.scan` yields them as fillers with
the reason `bridged`. PHYSICALOFFSET, sizes and CRC are right, the body is zeros: a bridge of 1 MiB takes one page on
a file system with holes.

Where it comes to less than the smallest record, 92 bytes, nothing can stand: no broker leaves so little between two
records, so one of the two is not what it seems, and the gap takes it in (`rescue.salvage`). At a segment's end 8
bytes are enough, for a blank record.

Source: CommitLog#checkMessageAndReturnSize, CommitLogDispatcherBuildConsumeQueue, IndexService#buildIndex; what real
store classes do with bridges is in docs/salvage.md.
"""

from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

from rmqinspect.codec.java import masked_crc32
from rmqinspect.schemas import message
from rmqinspect.schemas.message import (
    BRIDGE_FLAG,
    BRIDGE_TOPIC,
    CRC32_DIGITS,
    CRC32_NAME,
    CRC32_RESERVED_SIZE,
    CRC_MASK,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
)

SMALLEST = FIXED_SIZE + 1  # bytes: a topic has at least one letter
SMALLEST_AT_END = message.Blank.sizeof()
USUAL = FIXED_SIZE + len(BRIDGE_TOPIC) + CRC32_RESERVED_SIZE  # bytes of one without a body
LARGEST = 1 << 20  # a broker takes a record into memory to check it

_HOST = {"address": bytes((127, 0, 0, 1)), "port": 0}
_HEAD_SIZE: int = message.HEADS[False, False].sizeof()
_ZEROS = bytes(LARGEST)

Write = tuple[int, bytes]  # physical offset of the first byte, bytes


def bridge(start: int, end: int, segment_end: int, timestamp: int) -> Iterator[Write]:
    """Yield what to write over [start, end), physical offsets in one segment, in order; all between is zeros.

    `timestamp`: store time in ms of the records around it.

    :raises ValueError: it is too small to hold anything: fewer than `SMALLEST` bytes, or `SMALLEST_AT_END` at the end.
    """
    if end == segment_end:
        if end - start < SMALLEST_AT_END:
            raise ValueError(f"no blank record fits into {end - start} bytes")
        if end - start >= USUAL + SMALLEST_AT_END:
            yield from bridge_record(start, USUAL, timestamp)
            start += USUAL
        elif end - start >= SMALLEST + SMALLEST_AT_END:
            yield from bridge_record(start, end - start - SMALLEST_AT_END, timestamp)
            start = end - SMALLEST_AT_END
        yield start, message.Blank.build({"total_size": end - start, "magic": MAGIC_BLANK})
        return
    if end - start < SMALLEST:
        raise ValueError(f"no record fits into {end - start} bytes")
    while start < end:
        left = end - start
        # What is left must hold another one.
        size = left if left <= LARGEST else min(LARGEST, left - USUAL)
        yield from bridge_record(start, size, timestamp)
        start += size


def bridge_record(start: int, size: int, timestamp: int) -> Iterator[Write]:
    """Yield the head and the end of one bridge of `size` bytes: the body between them is zeros."""
    with_crc = size >= SMALLEST + CRC32_RESERVED_SIZE
    room = size - FIXED_SIZE - with_crc * CRC32_RESERVED_SIZE
    topic = BRIDGE_TOPIC[:room]
    body_size = room - len(topic)
    fields = {
        "total_size": size,
        "magic": MAGIC_V1,
        "body_crc": _crc_of_zeros(body_size),
        "queue_id": 0,
        "flag": BRIDGE_FLAG,
        "queue_offset": 0,
        "physical_offset": start,
        "sys_flag": message.TRANSACTION_MASK,  # of type rollback
        "born_timestamp": timestamp,
        "born_host": _HOST,
        "store_timestamp": timestamp,
        "store_host": _HOST,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body_size": body_size,
    }
    head: bytes = message.HEADS[False, False].build(fields)
    without_body = {
        "body_size": 0,
        "body": b"",
        "topic_size": len(topic),
        "topic": topic,
        "properties_size": with_crc * CRC32_RESERVED_SIZE,
        "properties": bytes(with_crc * CRC32_RESERVED_SIZE),
    }
    tail: bytes = message.Message.build(fields | without_body)[_HEAD_SIZE:]
    if with_crc:
        tail = tail[:-CRC32_RESERVED_SIZE]
        tail += _crc_property(crc32(tail, crc32(_zeros(body_size), crc32(head))))
    yield start, head
    yield start + _HEAD_SIZE + body_size, tail


def _zeros(size: int) -> memoryview:
    return memoryview(_ZEROS)[:size]


@lru_cache(maxsize=64)
def _crc_of_zeros(size: int) -> int:
    """Return BODYCRC of a body of zeros: most bridges of a wide gap have the same size."""
    return masked_crc32(_zeros(size)) if size else 0


def _crc_property(crc: int) -> bytes:
    """Return the property of a record that has a CRC-32 up to there. Source: MessageDecoder#createCrc32."""
    digits = f"{crc & CRC_MASK:0{CRC32_DIGITS}}"[::-1].encode()
    return CRC32_NAME + bytes([NAME_VALUE_SEPARATOR]) + digits + bytes([PROPERTY_SEPARATOR])

"""Records, logs and segment files, built from the layouts of `rmqinspect.schemas`.

A log is a list of pieces: a dict of arguments of `record`, or bytes that are copied. `lay` assigns physical
offsets and concatenates. `fill` and `pad` complete a segment: a full one ends in a blank record, the newest
one in zeros.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, EntryBlank, EntryHead
from rmqinspect.schemas.message import (
    CRC32_DIGITS,
    CRC32_NAME,
    CRC32_RESERVED_SIZE,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    BatchItem,
    Blank,
    Message,
    SysFlag,
)
from rmqinspect.store.model import Segment

Piece = Mapping[str, Any] | bytes

BORN, STORED = 1716193815123, 1716193815135  # ms; of the first worked example of the format's description
PRODUCER, BROKER = "192.168.1.10:53422", "10.0.0.5:10911"
PRODUCER_V6, BROKER_V6 = "[2001:db8::1]:53422", "[2001:db8::2]:10911"


def record(
    physical_offset: int = 0,
    *,
    topic: str | bytes = "TopicTest",
    body: bytes = b"Hello RocketMQ",
    properties: Mapping[str, str] | bytes = b"",
    ended: bool = True,
    queue_id: int = 0,
    queue_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = BORN,
    store_timestamp: int = STORED,
    born_host: str = PRODUCER,
    store_host: str = BROKER,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    crc: bool = False,
) -> bytes:
    """Return one record as a broker stores it.

    `properties` given as bytes stay as they are; `ended`: the last property has its separator behind it.
    `crc`: the last property is `__CRC32#`. Hosts set their bits of `sys_flag`. A topic of more than 127
    bytes makes a V2 record.
    """
    name = topic.encode() if isinstance(topic, str) else topic
    text = properties if isinstance(properties, bytes) else properties_text(properties, ended=ended or crc)
    born, store = _host(born_host), _host(store_host)
    flags = sys_flag
    flags |= SysFlag.BORNHOST_V6 if len(born["address"]) > 4 else 0
    flags |= SysFlag.STOREHOSTADDRESS_V6 if len(store["address"]) > 4 else 0
    fields = {
        "total_size": 0,
        "magic": MAGIC_V1 if len(name) < 128 else MAGIC_V2,
        "body_crc": zlib.crc32(body) & CRC_MASK,
        "queue_id": queue_id,
        "flag": flag,
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "sys_flag": flags,
        "born_timestamp": born_timestamp,
        "born_host": born,
        "store_timestamp": store_timestamp,
        "store_host": store,
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": prepared_transaction_offset,
        "body_size": len(body),
        "body": body,
        "topic_size": len(name),
        "topic": name,
        "properties_size": len(text) + crc * CRC32_RESERVED_SIZE,
        "properties": text + bytes(crc * CRC32_RESERVED_SIZE),
    }
    fields["total_size"] = len(Message.build(fields))
    raw: bytes = Message.build(fields)
    return raw[:-CRC32_RESERVED_SIZE] + crc_property(raw[:-CRC32_RESERVED_SIZE]) if crc else raw


def properties_text(properties: Mapping[str, str], *, ended: bool = True) -> bytes:
    """Return properties as stored: without `ended`, as 4.9.1 to 5.1.4 write them."""
    items = [name.encode() + bytes([NAME_VALUE_SEPARATOR]) + value.encode() for name, value in properties.items()]
    separator = bytes([PROPERTY_SEPARATOR])
    return separator.join(items) + (separator if ended and items else b"")


def crc_property(covered: bytes) -> bytes:
    """Return the last 20 bytes of a record that begins with `covered`: its CRC as a property."""
    digits = f"{zlib.crc32(covered) & CRC_MASK:0{CRC32_DIGITS}}"[::-1].encode()
    return CRC32_NAME + bytes([NAME_VALUE_SEPARATOR]) + digits + bytes([PROPERTY_SEPARATOR])


def batch_item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """Return one message of an inner batch."""
    fields = {
        "total_size": 0,
        "magic": 0,
        "body_crc": 0,
        "flag": flag,
        "body_size": len(body),
        "body": body,
        "properties_size": len(properties),
        "properties": properties,
    }
    fields["total_size"] = len(BatchItem.build(fields))
    raw: bytes = BatchItem.build(fields)
    return raw


def blank(left: int) -> bytes:
    """Return a blank record: 8 bytes, for the `left` bytes up to the end of the segment."""
    raw: bytes = Blank.build({"total_size": left, "magic": MAGIC_BLANK})
    return raw


def entry(raw: bytes, position: int, *, index: int = 0, magic: int = 1) -> bytes:
    """Wrap a record, whose own offset is 48 more than `position`, in a DLedger entry."""
    fields = dict.fromkeys(("term", "channel", "chain_crc", "body_crc"), 0)
    size = EntryHead.sizeof() + len(raw)
    head = {"magic": magic, "size": size, "index": index, "position": position, "body_size": len(raw)}
    wrapped: bytes = EntryHead.build(fields | head) + raw
    return wrapped


def entry_blank(left: int) -> bytes:
    """Return the blank entry that ends a full DLedger file."""
    raw: bytes = EntryBlank.build({"magic": ENTRY_MAGIC_BLANK, "total_size": left})
    return raw


def lay(pieces: Iterable[Piece], base: int = 0, *, dledger: bool = False) -> bytes:
    """Concatenate pieces; each record gets its physical offset."""
    log = b""
    for index, piece in enumerate(pieces):
        at = base + len(log)
        if isinstance(piece, bytes):
            log += piece
        elif dledger:
            log += entry(record(at + EntryHead.sizeof(), **piece), at, index=index)
        else:
            log += record(at, **piece)
    return log


def pad(raw: bytes, size: int) -> bytes:
    """Complete a segment that is still written: zeros to its end."""
    return raw + bytes(size - len(raw))


def fill(raw: bytes, size: int, junk: bytes = b"") -> bytes:
    """Complete a full segment: a blank record to its end, with `junk` behind its 8 bytes."""
    return pad(raw + blank(size - len(raw)) + junk, size)


def write_segment(folder: Path, raw: bytes, base: int = 0, kind: str = "segment") -> Segment:
    """Write a segment file, named by its base, and return its Segment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020}"
    path.write_bytes(raw)
    return Segment(str(path), path.name, len(raw), kind, base)


def write_queue(root: Path, *pieces: Piece) -> None:
    """Write the queue of these records, which begin a log and have no tags, as TopicTest/0 of a store."""
    ends = [len(lay(pieces[:number])) for number in range(len(pieces) + 1)]
    units = [{"physical_offset": at, "size": end - at, "tags_code": 0} for at, end in pairwise(ends)]
    folder = root / "consumequeue" / "TopicTest" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}").write_bytes(pad(b"".join(map(QueueUnit.build, units)), 20 * QueueUnit.sizeof()))


def various(count: int, *, properties: int = 2) -> list[dict[str, Any]]:
    """Return pieces of every shape in turn: V1, V2, IPv6, a record CRC, compressed, empty, without properties.

    Store times ascend by one millisecond; messages go to four queues in turn.
    """
    shapes: tuple[dict[str, Any], ...] = (
        {},
        {"topic": "%RETRY%" + 60 * "g" + "+" + 80 * "t"},
        {"born_host": PRODUCER_V6, "store_host": BROKER_V6},
        {"crc": True},
        {"body": zlib.compress(b"Hello RocketMQ " * 20), "sys_flag": int(SysFlag.COMPRESSED)},
        {"born_host": PRODUCER_V6, "crc": True},
        {"body": b""},
        {"store_host": BROKER_V6, "ended": False},
    )
    return [
        {
            "queue_id": number % 4,
            "queue_offset": number // 4,
            "store_timestamp": STORED + number,
            "body": b"message %d" % number,
            "properties": {f"name-{at}": f"value-{number}" for at in range(properties)},
            **shapes[number % len(shapes)],
        }
        for number in range(count)
    ]


def _host(text: str) -> dict[str, Any]:
    address, _, port = text.rpartition(":")
    return {"address": ip_address(address.strip("[]")).packed, "port": int(port)}


def flips(raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (position, bit, bytes with that bit flipped) for every bit; bit 0 is the lowest."""
    for position, value in enumerate(raw):
        for bit in range(8):
            yield position, bit, raw[:position] + bytes([value ^ 1 << bit]) + raw[position + 1 :]


def fields_of(raw: bytes) -> list[str]:
    """Return the name of the field that each byte of a sound record belongs to, its CRC property apart."""
    parsed = Message.parse(raw)
    names: list[str] = []
    for field in Message.subcons:
        value = parsed[field.name]
        size = len(value) if isinstance(value, bytes) else len(field.build(value, **parsed))
        names += [field.name] * size
    if raw[-CRC32_RESERVED_SIZE:].startswith(CRC32_NAME):
        names[-CRC32_RESERVED_SIZE:] = ["crc_name"] * len(CRC32_NAME) + ["crc"] * (CRC32_DIGITS + 2)
    assert len(names) == len(raw)
    return names

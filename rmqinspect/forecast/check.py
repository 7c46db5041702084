"""The check of one record that a start makes, exactly: what it accepts, and where it stops reading.

    |size|magic| ... head ... |body|topic|properties|     a record; `at` is its first byte
     ^ at                                           ^ at + parsed
    |<----------------- left ------------------------------->|     up to the end of the segment

This is the specification, slow: one record in 20 µs. `forecast.scan` judges whole windows and asks here for what it
cannot vouch for.

Java reads each variable field into an array of TOTALSIZE bytes, from index 0 on; so a field longer than TOTALSIZE is an
exception, as is one that goes on behind the segment. Every exception is caught and means: no record. An Error is not:
an array that is too large for the heap ends the start.

Source: CommitLog#checkMessageAndReturnSize, MessageDecoder#string2messageProperties; RocketMQ 4.0.0 to 5.5.0.

The fields of a record that the tests for a start segment look at: at fixed places, whatever stands there.

Source: CommitLog#isMappedFileMatchedRecover, DLedgerCommitLog#isMmapFileMatchedRecover; RocketMQ 4.0.0 to 5.5.0.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.java import java_number, wrapped_int
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of
from rmqinspect.topics import SCHEDULE_TOPIC

Read = Callable[[int, int], bytes]
"""Reads up to `size` bytes from a position; fewer only at the end."""

REASONS: Final[Mapping[str, str]] = {
    "zero": "zeros where a record is expected",
    "magic": "no magic code of a record",
    "v2": "the magic code of version 2, which this release does not know",
    "short": "the segment ends inside of the record",
    "size": "TOTALSIZE is larger than what is left of the segment",
    "size_negative": "TOTALSIZE is negative",
    "memory": "TOTALSIZE is larger than any array that the broker's heap holds",
    "field_size": "a field is longer than TOTALSIZE, or its length is negative",
    "body_crc": "BODYCRC does not match the body",
    "duplication_info": "the property DUP_INFO is missing or malformed, with duplicationEnable",
    "delay": "the property DELAY of a delayed message is no number",
    "property_crc": "the property __CRC32# is missing or does not match, with forceVerifyPropCRC",
    "length": "TOTALSIZE is not the sum of the fields",
    "inner_batch": "the property INNER_NUM or INNER_BASE is no number",
    "offset": "PHYSICALOFFSET lies outside of the segment, with checkCommitLogOffsetOnRecover",
    "blank_size": "the magic code of a blank record, whose size is not what is left of the segment",
    "entry_magic": "no magic code of a DLedger entry",
    "entry_size": "the size of a DLedger entry is not that of its body and head, or larger than what is left",
    "entry_place": "a DLedger entry of another place",
    "entry_order": "a DLedger entry that does not follow the one before it: its index or term",
}
"""Why a scan ends, in words for people."""

LARGEST_ARRAY: Final = 672 << 20
"""Bytes of the largest array that the broker's heap is taken to hold: that of a heap of 1 GiB.

A broker with a larger heap reads on, and rejects the record for another reason.
"""

_CHUNK: Final = 1 << 20
_BYTE, _SHORT, _INT, _LONG = 1, 2, 4, 8
_HOST_SIZES: Final[Mapping[bool, int]] = {False: message.HostV4.sizeof(), True: message.HostV6.sizeof()}
_NAME_END, _ITEM_END = chr(message.NAME_VALUE_SEPARATOR), chr(message.PROPERTY_SEPARATOR)


class Check(NamedTuple):
    """What the broker makes of the bytes at one place."""

    size: int  # of a record; 0: a blank record; -1: no record
    success: bool
    reason: str | None = None  # of REASONS, without success
    kills: bool = False  # a Java Error: the start ends here
    parsed: int = 0  # bytes from the record's start to where the parser stopped

    @property
    def is_blank(self) -> bool:
        """Whether the scan goes on in the next segment."""
        return self.success and self.size == 0

    @property
    def is_mismatch(self) -> bool:
        """Whether all fields could be read, and TOTALSIZE is not their sum."""
        return not self.success and self.size > 0


def from_bytes(raw: bytes) -> Read:
    """Return how to read some bytes by position."""
    return lambda position, size: raw[position : position + size]


def check_record(
    read: Read, at: int, left: int, rules: Rules, settings: Settings, *, crc: bool, read_body: bool = True
) -> Check:
    """Return what a broker makes of the bytes from `at` on, of which the segment has `left`.

    `crc`: checksums are compared. Without `read_body` the body is skipped, as dispatch while running does.
    """
    buffer = _Buffer(read, at, left)
    try:
        size = _parse(buffer, rules, settings, crc=crc, read_body=read_body)
    except _Rejected as rejected:
        return Check(rejected.size, False, rejected.reason, rejected.reason == "memory", buffer.position)
    return Check(size, True, None, False, buffer.position)


class _Rejected(Exception):
    def __init__(self, reason: str, size: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.size = size


class _Buffer:
    """A java.nio.ByteBuffer over the bytes that are left of a segment, and the array that fields are read into."""

    def __init__(self, read: Read, at: int, left: int) -> None:
        self._read = read
        self.at = at
        self._left = left
        self.position = 0
        self.array_size = 0

    @property
    def remaining(self) -> int:
        return self._left - self.position

    def number(self, size: int) -> int:
        """Read a signed integer of `size` bytes."""
        return int.from_bytes(self._take(size), "big", signed=True)

    def skip(self, size: int) -> None:
        """Set the position ahead; behind the limit that is an exception."""
        if size > self.remaining:
            raise _Rejected("short")
        self.position += size

    def enter(self, size: int) -> int:
        """Move over `size` bytes, as if they were read into the array; return where they begin."""
        if not 0 <= size <= self.array_size:
            raise _Rejected("field_size")
        start = self.position
        self.skip(size)
        return start

    def text(self, size: int) -> str:
        """Read a text into the array. Java replaces what is not UTF-8."""
        start = self.enter(size)
        return self._read(self.at + start, size).decode("utf-8", "replace")

    def crc32(self, start: int, end: int) -> int:
        """Return the masked CRC-32 of the bytes from `start` to `end`. Source: UtilAll#crc32."""
        value = 0
        while start < end:
            value = zlib.crc32(self._read(self.at + start, min(_CHUNK, end - start)), value)
            start += _CHUNK
        return value & message.CRC_MASK

    def _take(self, size: int) -> bytes:
        start = self.position
        self.skip(size)
        return self._read(self.at + start, size)


def _parse(buffer: _Buffer, rules: Rules, settings: Settings, *, crc: bool, read_body: bool) -> int:
    """Read one record; return its size, 0 for a blank record."""
    if rules.size_fits and buffer.remaining <= _INT:
        raise _Rejected("short")
    total_size = buffer.number(_INT)
    if rules.size_fits and buffer.remaining < wrapped_int(total_size - _INT):
        raise _Rejected("size_negative" if total_size < 0 else "size")
    magic = buffer.number(_INT)
    if magic == message.MAGIC_BLANK:
        return 0
    _check_magic(magic, total_size, rules)
    buffer.array_size = total_size
    stored_crc, flags, body_size = _read_head(buffer, rules)
    whole_record = crc and rules.property_crc != "none" and settings.force_verify_prop_crc
    if body_size > 0 and read_body:
        body = buffer.enter(body_size)
        if crc and not whole_record and buffer.crc32(body, body + body_size) != stored_crc:
            raise _Rejected("body_crc")
    elif body_size > 0:
        buffer.skip(body_size)
    topic_size = buffer.number(_SHORT if magic == message.MAGIC_V2 else _BYTE)
    topic = buffer.text(topic_size)
    properties_size = buffer.number(_SHORT)
    properties: dict[str, str] = {}
    if properties_size > 0:
        properties = parse_properties(buffer.text(properties_size), rules)
        if rules.duplication_info and settings.duplication_enable and not _is_pair(properties.get("DUP_INFO")):
            raise _Rejected("duplication_info")
        delay = properties.get("DELAY") if topic == SCHEDULE_TOPIC else None
        if delay is not None and java_number(delay, 32) is None:
            raise _Rejected("delay")
    if whole_record:
        _check_property_crc(buffer, properties, total_size, rules)
    if total_size != _sum_of(rules, magic, flags, body_size, topic_size, properties_size):
        raise _Rejected("length", total_size)
    if rules.inner_batches and not _has_good_batch(properties):
        raise _Rejected("inner_batch")
    return total_size


def _has_good_batch(properties: Mapping[str, str]) -> bool:
    """Whether the numbers of an inner batch, if both are there, are numbers. Source: CommitLog#setBatchSizeIfNeeded."""
    number, base = properties.get("INNER_NUM"), properties.get("INNER_BASE")
    return number is None or base is None or None not in (java_number(base, 64), java_number(number, 16))


def _check_magic(magic: int, total_size: int, rules: Rules) -> None:
    """Judge magic code and TOTALSIZE of what is no blank record."""
    if magic == message.MAGIC_V2 and not rules.v2_records:
        raise _Rejected("v2")
    if magic not in message.RECORD_MAGICS:
        raise _Rejected("zero" if magic == 0 == total_size else "magic")
    if total_size < 0:
        raise _Rejected("size_negative")
    if total_size > LARGEST_ARRAY:
        raise _Rejected("memory")


def _read_head(buffer: _Buffer, rules: Rules) -> tuple[int, int, int]:
    """Read what lies between magic code and body; return BODYCRC, SYSFLAG and BODYLEN."""
    stored_crc = buffer.number(_INT)
    buffer.skip(_INT + _INT + _LONG + _LONG)  # QUEUEID, FLAG, QUEUEOFFSET, PHYSICALOFFSET
    flags = buffer.number(_INT)
    born_v6, store_v6 = _wide_hosts(flags, rules)
    buffer.skip(_LONG)  # BORNTIMESTAMP
    buffer.enter(_HOST_SIZES[born_v6])
    buffer.skip(_LONG)  # STORETIMESTAMP
    buffer.enter(_HOST_SIZES[store_v6])
    buffer.skip(_INT + _LONG)  # RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET
    return stored_crc, flags, buffer.number(_INT)


def _wide_hosts(flags: int, rules: Rules) -> tuple[bool, bool]:
    """Return whether the born host and the store host have 20 bytes."""
    known = flags if rules.ipv6_hosts else 0
    return bool(known & SysFlag.BORNHOST_V6), bool(known & SysFlag.STOREHOSTADDRESS_V6)


def _sum_of(rules: Rules, magic: int, flags: int, body_size: int, topic_size: int, properties_size: int) -> int:
    """Return the size of a record with such fields. Source: MessageExtEncoder#calMsgLength, CommitLog#calMsgLength."""
    head: int = message.HEADS[_wide_hosts(flags, rules)].sizeof()
    topic_length = _SHORT if magic == message.MAGIC_V2 else _BYTE
    return head + max(body_size, 0) + topic_length + topic_size + _SHORT + max(properties_size, 0)


def _check_property_crc(buffer: _Buffer, properties: Mapping[str, str], total_size: int, rules: Rules) -> None:
    """Compare the property `__CRC32#`, decimal digits with the least significant first, with the bytes before it.

    The parser's position counts as the record's end. Any character counts as digit, and the sum overflows as in Java.
    """
    digits = properties.get(message.CRC32_NAME.decode())
    if digits is None:
        raise _Rejected("property_crc")
    expected = 0
    units = digits.encode("utf-16-be", "surrogatepass")
    for high, low in reversed(list(zip(units[::2], units[1::2], strict=True))):
        expected = wrapped_int(expected * 10 + (high << 8 | low) - ord("0"))
    start = buffer.position - total_size
    if expected < 0 or (expected == 0 and rules.property_crc == "not_zero") or buffer.at + start < 0:
        raise _Rejected("property_crc")
    if expected != buffer.crc32(start, buffer.position - message.CRC32_RESERVED_SIZE):
        raise _Rejected("property_crc")


def parse_properties(text: str, rules: Rules) -> dict[str, str]:
    """Return the properties as the broker parses them; of equal names the last one counts.

    Source: MessageDecoder#string2messageProperties.
    """
    found = {}
    for item in text.split(_ITEM_END):
        if rules.property_items == "split":
            # String#split drops empty parts at the end.
            parts = item.rstrip(_NAME_END).split(_NAME_END)
            if len(parts) == 2:
                found[parts[0]] = parts[1]
        else:
            name, _, value = item.partition(_NAME_END)
            if name and value:
                found[name] = value
    return found


def _is_pair(text: str | None) -> bool:
    """Whether String#split at "_" gives two parts: it drops empty ones at the end."""
    return text is not None and len(text.rstrip("_").split("_")) == 2


HEAD_SIZE: Final[int] = message.HEADS[True, True].sizeof()
"""Bytes of the longest head."""

_V4, _V6 = message.HEADS[False, False], message.HEADS[True, False]
_MAGIC, _FLAGS, _OFFSET, _TIME = (
    place_of(_V4, name) for name in ("magic", "sys_flag", "physical_offset", "store_timestamp")
)
_TIME_V6 = place_of(_V6, "store_timestamp")


class RecordHead(NamedTuple):
    """Some fields of a record."""

    magic: int
    store_timestamp: int  # ms, where the release looks for it
    physical_offset: int  # PHYSICALOFFSET


def record_head(raw: bytes, *, ipv6_hosts: bool) -> RecordHead:
    """Return the fields of the record at the start of `raw`; what is missing counts as zeros."""
    raw = raw.ljust(HEAD_SIZE, b"\0")
    wide = ipv6_hosts and _int(raw, _FLAGS, 4) & SysFlag.BORNHOST_V6
    time = _int(raw, _TIME_V6 if wide else _TIME, 8)
    return RecordHead(_int(raw, _MAGIC, 4), time, _int(raw, _OFFSET, 8))


def _int(raw: bytes, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "big", signed=True)

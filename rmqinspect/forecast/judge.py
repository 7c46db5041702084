"""What a start would judge record by record, for a whole window at once: which records need the exact check.

A record whose magic code, size and lengths are sound (`commitlog.columns.follow`) is valid for every release, but for
what is noted here as bits. Without a bit, it is valid; with one, `forecast.check` decides by the rules.

Source: CommitLog#checkMessageAndReturnSize.
"""

# mypy: disable-error-code="no-any-return"

from enum import IntFlag

import numpy as np

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import (
    CRC32,
    Bytes,
    IntsOut,
    Table,
    crc32_of,
    find_bytes,
    inlined,
    kernel,
    same_bytes,
)
from rmqinspect.commitlog import columns
from rmqinspect.commitlog.columns import (
    BODY_CRC,
    BODY_END,
    BODY_START,
    MAGIC,
    PROPERTIES_END,
    PROPERTIES_START,
    SYS_FLAG,
    TOPIC_END,
    TOPIC_START,
)
from rmqinspect.commitlog.records import Records
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.topics import SCHEDULE_TOPIC


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


DEPENDS: dict[Doubt, tuple[str, ...]] = {
    Doubt.V2: ("v2_records",),
    Doubt.IPV6: ("ipv6_hosts",),
    Doubt.DELAY: ("property_items",),
    Doubt.INNER: ("inner_batches", "property_items"),
    Doubt.PROPERTY_CRC: ("property_crc", "property_items"),
}
"""The rules by which a doubt is decided; the others are decided alike in all releases that have them."""


def doubts_that_count(rules: Rules) -> Doubt:
    """Return the doubts that can reject a record by some rules."""
    every = Doubt.BODY_CRC | Doubt.DELAY | Doubt.PROPERTY_CRC | Doubt.DUPLICATION | Doubt.OFFSET
    v2 = Doubt(0) if rules.v2_records else Doubt.V2
    ipv6 = Doubt(0) if rules.ipv6_hosts else Doubt.IPV6
    return every | v2 | ipv6 | (Doubt.INNER if rules.inner_batches else Doubt(0))


_NAMES = b"DELAY\x01INNER_NUM\x01INNER_BASE\x01" + SCHEDULE_TOPIC.encode()
_TEXTS = np.frombuffer(_NAMES, np.uint8)
_DELAY, _NUMBER, _BASE, _TOPIC = 0, 6, 16, 27  # where each text begins in _NAMES
_DELAY_DIGITS, _NUMBER_DIGITS, _BASE_DIGITS = 9, 4, 18  # that always fit into an int, a short, a long
_ZERO = ord("0")
_END_OF_ITEM = message.PROPERTY_SEPARATOR
_V2 = message.MAGIC_V2
_CRC_MASK = message.CRC_MASK
_IPV6 = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6)
_BODY_CRC_BIT, _V2_BIT, _IPV6_BIT = int(Doubt.BODY_CRC), int(Doubt.V2), int(Doubt.IPV6)
_DELAY_BIT, _INNER_BIT = int(Doubt.DELAY), int(Doubt.INNER)
_ABSENT, _PLAIN, _ODD = range(3)


def judge(records: Records, *, body_crc: bool) -> Ints:
    """Return the doubts of each of some sound records; with `body_crc`, bodies are compared with BODYCRC."""
    doubts = np.empty(len(records), np.int64)
    _judge(CRC32, records.bytes, records.rows, _TEXTS, int(body_crc), doubts)
    return doubts


def doubt_property_crc(records: Records, doubts: Ints) -> None:
    """Note the records whose property `__CRC32#` is not the last one, as it is written, with the right value above 0.

    What is written in its place by a batch that ends without a separator is not found by the broker.
    """
    ends, sizes = records.ends, records.properties_ends - records.properties_starts
    right = records.record_crcs == columns.RIGHT_CRC
    reserved = message.CRC32_RESERVED_SIZE
    right &= (sizes == reserved) | (records.bytes[ends - reserved - 1] == _END_OF_ITEM)
    digits = records.bytes[ends[:, None] - reserved + len(message.CRC32_NAME) + 1 + np.arange(message.CRC32_DIGITS)]
    right &= (digits != _ZERO).any(axis=1)
    doubts[~right] |= int(Doubt.PROPERTY_CRC)


@kernel
def _judge(address: int, raw: Bytes, rows: Table, texts: Bytes, body_crc: int, doubts: IntsOut) -> None:
    """Write the doubts of each row; all rows are sound, so every place of theirs is inside."""
    for row in range(len(rows)):
        doubt = 0
        body, body_end = rows[row, BODY_START], rows[row, BODY_END]
        if body_crc != 0 and body < body_end:
            stored = rows[row, BODY_CRC]
            if crc32_of(address, raw, body, body_end - body) & _CRC_MASK != stored:
                doubt |= _BODY_CRC_BIT
        if rows[row, MAGIC] == _V2:
            doubt |= _V2_BIT
        if rows[row, SYS_FLAG] & _IPV6 != 0:
            doubt |= _IPV6_BIT
        start, end = rows[row, PROPERTIES_START], rows[row, PROPERTIES_END]
        topic, topic_end = rows[row, TOPIC_START], rows[row, TOPIC_END]
        size = topic_end - topic
        is_delayed = size == len(texts) - _TOPIC and same_bytes(raw, topic, texts, _TOPIC, size)
        if is_delayed and _number_after(raw, start, end, texts, _DELAY, _NUMBER, _DELAY_DIGITS) == _ODD:
            doubt |= _DELAY_BIT
        number = _number_after(raw, start, end, texts, _NUMBER, _BASE, _NUMBER_DIGITS)
        if number != _ABSENT:
            base = _number_after(raw, start, end, texts, _BASE, _TOPIC, _BASE_DIGITS)
            if base != _ABSENT and (number == _ODD or base == _ODD):
                doubt |= _INNER_BIT
        doubts[row] = doubt


@inlined
def _number_after(raw: Bytes, start: int, end: int, texts: Bytes, first: int, beyond: int, digits: int) -> int:
    """Say whether `texts[first:beyond]`, a name and its separator, is in a text, and always before a plain number.

    A plain number has at most so many ASCII digits, and then its item ends.
    """
    found = _ABSENT
    at = find_bytes(raw, start, end, texts, first, beyond)
    while at >= 0:
        at += beyond - first
        last = at
        while last < end and last - at <= digits and 0 <= raw[last] - _ZERO <= 9:
            last += 1
        plain = at < last <= at + digits and (last == end or raw[last] == _END_OF_ITEM)
        if not plain:
            return _ODD
        found = _PLAIN
        at = find_bytes(raw, last, end, texts, first, beyond)
    return found

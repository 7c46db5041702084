"""What a client makes of the bytes of a pull.

    given      |  record 7  |  record 8  |  record 9  |      one behind the other, nothing between them
    decoded    |  message   |  message |   X                 each field behind the one before; TOTALSIZE is not used

A client decodes until a record fails, and leaves out all behind it. What it decodes it does not check: neither the
body's CRC nor where the record says that it lies. A record whose lengths are wrong ends elsewhere, and the next message
is read from there. The group goes on behind all that was given, so what was not decoded it never gets.

A record that proves itself is taken for decoded: of the others alone, bytes are read.

Source: PullAPIWrapper#processPullResult, MessageDecoder#decodes, #decodesBatch, #decode; RocketMQ 4.0.0 to 5.5.0. The
client is taken to be of the broker's release.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from rmqinspect.broker.pull import Unit
from rmqinspect.broker.read_rules import ClientRules
from rmqinspect.codec.decompress import decompress
from rmqinspect.codec.layout import ParsedFields, walk_fields
from rmqinspect.codec.record_proof import LONGEST_HEAD
from rmqinspect.errors import BadRecord
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of
from rmqinspect.text import text_of
from rmqinspect.topics import LMQ_PREFIX

RIGHT = "right"
DAMAGED = "damaged"
OTHER_RECORD = "other record"
OTHER_TOPIC = "other topic"
NO_TOPIC = "no topic"

WRONG = {
    DAMAGED: "its place is right, its bytes are not sound",
    OTHER_RECORD: "another record of the topic",
    OTHER_TOPIC: "a record of another topic",
    NO_TOPIC: "a message without topic",
}
"""What a message may be that is not the one of its place."""

_MOST_BODY = 64 << 20  # bytes of a compressed body that is tried; what is longer is taken for broken
_MAGICS = {
    "any": None,
    "v1": frozenset([message.MAGIC_V1]),
    "v1 or v2": frozenset(message.RECORD_MAGICS),
}
_FLAG_AT = place_of(message.HEADS[False, False], "sys_flag")
_PORTS = range(1 << 16)


class Bytes(Protocol):
    """The bytes of the log."""

    def read(self, physical_offset: int, size: int) -> bytes:
        """Return the bytes at an offset, up to the end of its segment."""


class Received(NamedTuple):
    """A message that a consumer gets."""

    unit: int  # number of the given unit in whose bytes it begins
    kind: str  # RIGHT, or one of WRONG
    topic: str | None = None  # of one that is wrong
    tags: str | None = None  # of the same


def received(
    units: Sequence[Unit], sound: Sequence[bool], queue: tuple[str, int], log: Bytes, release: str
) -> list[Received]:
    """Return the messages of a pull that gave these units, in order.

    `sound`: whether a unit leads to the record of its place, which proves itself. `queue`: topic and queue id.

    :raises Unreadable: the log cannot be read.
    """
    return list(_decoded(_Given(units, log), sound, queue, ClientRules(release)))


def _decoded(given: "_Given", sound: Sequence[bool], queue: tuple[str, int], rules: ClientRules) -> Iterator[Received]:
    light = queue[0].startswith(LMQ_PREFIX)  # its records are of other topics
    at = 0
    while at < given.size:
        which, begins = given.unit_at(at)
        unit = given.units[which]
        if begins and sound[which]:
            yield Received(which, RIGHT)
            at += unit.size
            continue
        decoded = _decode(given, at, rules)
        if decoded is None:
            return
        topic = decoded.topic
        own = begins and (light or (topic, decoded.queue_id, decoded.queue_offset) == (*queue, unit.queue_offset))
        yield Received(which, DAMAGED if own else _kind_of(topic, queue[0]), topic, decoded.tags)
        at = decoded.end


def _kind_of(topic: str, asked: str) -> str:
    if not topic:
        return NO_TOPIC
    return OTHER_RECORD if topic == asked else OTHER_TOPIC


class _Given:
    """The bytes of a pull, one unit's behind the other's."""

    def __init__(self, units: Sequence[Unit], log: Bytes) -> None:
        self.units = units
        self._log = log
        self._starts = [0]
        for unit in units:
            self._starts.append(self._starts[-1] + unit.size)
        self.size = self._starts[-1]

    def unit_at(self, position: int) -> tuple[int, bool]:
        """Return the number of the unit that a position lies in, and whether its bytes begin there."""
        which = next(number for number in range(len(self.units)) if position < self._starts[number + 1])
        return which, position == self._starts[which]

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes at a position, up to the end."""
        parts = []
        end = min(position + size, self.size)
        for unit, start in zip(self.units, self._starts, strict=False):
            first, last = max(position, start), min(end, start + unit.size)
            if first < last:
                parts.append(self._log.read(unit.physical_offset + first - start, last - first))
        return b"".join(parts)


class _Decoded(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int
    tags: str | None
    end: int  # where the client reads on


def _decode(given: _Given, at: int, rules: ClientRules) -> _Decoded | None:
    """Return the message that a client reads at a position; None where it fails. Source: MessageDecoder#decode."""
    head = _read_head(given, at, rules)
    if head is None:
        return None
    behind = at + head.end + max(head.number("body_size"), 0)
    if behind > given.size or not _body_decodes(given, at + head.end, head, rules):
        return None
    # Before 5.1.0 the topic length of a record of version 2 is read as one byte, too.
    width = 2 if rules.magic == "v1 or v2" and head.number("magic") == message.MAGIC_V2 else 1
    topic_at = behind + width
    topic_size = _number(given.read(behind, width), width)
    if topic_size is None or topic_size < 0:
        return None
    trailer = given.read(topic_at, topic_size + 2)
    properties_size = _number(trailer[topic_size:], 2)
    if properties_size is None:
        return None
    end = topic_at + topic_size + 2 + max(properties_size, 0)
    if end > given.size:
        return None
    tags = _tags(given.read(topic_at + topic_size + 2, max(properties_size, 0)))
    topic = text_of(trailer[:topic_size])
    return _Decoded(topic, head.number("queue_id"), head.number("queue_offset"), tags, end)


def _tags(properties: bytes) -> str | None:
    """Return the value of TAGS; None without. Source: MessageDecoder#string2messageProperties."""
    parts = properties.split(bytes([message.PROPERTY_SEPARATOR]))
    items = (part.partition(bytes([message.NAME_VALUE_SEPARATOR])) for part in parts)
    found = [value for name, _, value in items if name == b"TAGS"]
    return text_of(found[-1]) if found else None


def _read_head(given: _Given, at: int, rules: ClientRules) -> ParsedFields | None:
    raw = given.read(at, LONGEST_HEAD)
    flags = _number(raw[_FLAG_AT : _FLAG_AT + 4], 4) or 0
    v6 = [bool(rules.ipv6_hosts and flags & flag) for flag in (SysFlag.BORNHOST_V6, SysFlag.STOREHOSTADDRESS_V6)]
    head = walk_fields(message.HEADS[v6[0], v6[1]].subcons, raw)
    magics = _MAGICS[rules.magic]
    if head.reason is not None or (magics is not None and head.number("magic") not in magics):
        return None
    # InetSocketAddress takes no other.
    hosts = (head.fields[name].value for name in ("born_host", "store_host"))
    return head if all(host.port in _PORTS for host in hosts) else None


def _body_decodes(given: _Given, at: int, head: ParsedFields, rules: ClientRules) -> bool:
    """Whether a compressed body can be decompressed; another one is not looked at."""
    size, flags = head.number("body_size"), head.number("sys_flag")
    if size <= 0 or not flags & SysFlag.COMPRESSED:
        return True
    number = (flags & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT if rules.compressions else 0
    if number >= len(message.COMPRESSIONS) or size > _MOST_BODY:
        return False
    try:
        decompress(given.read(at, size), message.COMPRESSIONS[number], _MOST_BODY)
    except BadRecord:
        return False
    return True


def _number(raw: bytes, size: int) -> int | None:
    return int.from_bytes(raw, "big", signed=True) if len(raw) == size else None

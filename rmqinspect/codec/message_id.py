"""Message ids: the broker's offset id, the Java client's id, the gRPC client's id.

An id is hex text without a type tag, and 32 digits (56 with IPv6) may be either of two kinds:
`decode` returns every reading, each with the reasons to doubt it.

Source: MessageDecoder#createMessageId, MessageClientIDSetter; MessageIdCodec of rocketmq-clients.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from ipaddress import IPv6Address, ip_address
from typing import Any, ClassVar

from msgspec import Struct

from rmqinspect.schemas import messageid

GRPC_EPOCH = datetime.fromisoformat(messageid.GRPC_EPOCH)

ID_FORMS = (
    "32 or 56 hex digits (offset msg id or msg id), 34 hex digits (gRPC client), or several of them with commas between"
)

_IPV4_SIZE = 4
_MAX_PORT = 65535
_LONGEST_LOG = 1 << 48  # bytes: 256 TiB
# A month of 31 days in a zone that sets its clock back, plus the 12 hours that 4.0.0 may be wrong.
_MONTH_LIMIT = timedelta(days=31, hours=13)
_NEAR = timedelta(seconds=30)  # BORNTIMESTAMP is taken a moment after the id
_ZONE_STEP = timedelta(minutes=15)
_ZONES_WEST, _ZONES_EAST = timedelta(hours=-12), timedelta(hours=14)


def _that_hold(*doubts: tuple[str, bool]) -> tuple[str, ...]:
    return tuple(doubt for doubt, holds in doubts if holds)


class OffsetId(Struct, frozen=True):
    """The broker's id of a record: broker address and physical offset."""

    kind: ClassVar[str] = "offset_msg_id"
    text: str
    address: str
    port: int
    physical_offset: int

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt this reading."""
        return _that_hold(
            (f"port {self.port} is not in 1..{_MAX_PORT}", not 1 <= self.port <= _MAX_PORT),
            (f"physical offset {self.physical_offset} is negative", self.physical_offset < 0),
        )


class ClientId(Struct, frozen=True):
    """The Java client's id (`UNIQ_KEY`): process, time within the month, counter."""

    kind: ClassVar[str] = "msg_id"
    text: str
    address: str
    pid: int
    loader_hash: int
    time_in_month: int  # ms
    counter: int

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt this reading."""
        days = self.time_in_month / timedelta(days=1).total_seconds() / 1000
        return _that_hold(
            # In an offset msg id these two bytes are the upper half of the port: 0.
            ("pid 0 is not a client process", self.pid == 0),
            (f"{days:.1f} days is longer than a month", self.since_month_start > _MONTH_LIMIT),
        )

    @property
    def since_month_start(self) -> timedelta:
        """Time since the month began in the client's zone."""
        return timedelta(milliseconds=self.time_in_month)


class GrpcId(Struct, frozen=True):
    """The id made by clients of rocketmq-clients 5.x."""

    kind: ClassVar[str] = "grpc_msg_id"
    text: str
    version: int
    mac: str
    pid: int
    seconds: int
    sequence: int

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt this reading."""
        return _that_hold((f"version {self.version} is unknown", self.version != messageid.GRPC_VERSION))

    @property
    def instant(self) -> datetime:
        """Creation time, to the second."""
        return GRPC_EPOCH + timedelta(seconds=self.seconds)


MessageId = OffsetId | ClientId | GrpcId


def decode(text: str) -> tuple[MessageId, ...]:
    """Return every reading of an id, plausible ones first; () if the text is not an id."""
    if not re.fullmatch(r"(?:[0-9A-Fa-f]{2})+", text.strip()):
        return ()
    raw = bytes.fromhex(text.strip())
    readings = [
        make(text=raw.hex().upper(), **_plain(layout.parse(raw)))
        for layout, make in _FORMS
        if layout.sizeof() == len(raw)
    ]
    return tuple(sorted(readings, key=lambda reading: bool(reading.doubts)))


def offset_place(text: str) -> int | None:
    """Return the physical offset that an offset msg id names; None for what is none.

    A producer's id looks like one where its process number is a multiple of 65,536. Its offset would then begin
    with half of a hash, which is more bytes than a log has.
    """
    readings = (reading for reading in decode(text) if isinstance(reading, OffsetId) and not reading.doubts)
    return next((reading.physical_offset for reading in readings if reading.physical_offset < _LONGEST_LOG), None)


def split_batch(text: str) -> list[str]:
    """Return the ids of a batch; a SendResult joins them with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def offset_msg_id(address: bytes, port: int, physical_offset: int) -> str:
    """Return the broker's id of a record; `address` is its store host, 4 or 16 bytes."""
    layout = messageid.OffsetIdV4 if len(address) == _IPV4_SIZE else messageid.OffsetIdV6
    raw: bytes = layout.build({"address": address, "port": port, "physical_offset": physical_offset})
    return raw.hex().upper()


def address_text(raw: bytes) -> str:
    """Return 4 bytes as dotted IPv4, 16 bytes as IPv6 in the form of RFC 5952."""
    address = ip_address(raw)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        # RFC 5952, section 5. Python writes this form from 3.13 on only.
        return f"::ffff:{address.ipv4_mapped}"
    return str(address)


def host_text(address: str, port: int) -> str:
    """Return `address:port`, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def instant_in_month(reading: ClientId, year: int, month: int, zone: tzinfo) -> datetime:
    """Return the creation time, in UTC, of an id made in a month by a client in `zone`.

    :raises ValueError: the time lies outside the years 1 to 9999.
    """
    try:
        start = datetime(year, month, 1, tzinfo=zone).astimezone(UTC)
        return start + reading.since_month_start
    except OverflowError as error:
        raise ValueError(f"{year:04}-{month:02}: outside of the years 1 to 9999") from error


def instants_around(reading: ClientId, anchor: datetime, zone: tzinfo) -> list[datetime]:
    """Return the possible creation times, the nearest to `anchor` first.

    One each for the anchor's month and the months before and after. The best anchor is the record's
    BORNTIMESTAMP; Java uses the current time, which is wrong for old records.
    """
    local = anchor.astimezone(zone)
    months = local.year * 12 + local.month - 1
    instants = []
    for number in (months - 1, months, months + 1):
        try:
            instants.append(instant_in_month(reading, number // 12, number % 12 + 1, zone))
        except ValueError:
            continue
    return sorted(instants, key=lambda instant: abs(instant - anchor))


def client_zone(reading: ClientId, born: datetime) -> timezone | None:
    """Return the client's offset from UTC, inferred from a record's BORNTIMESTAMP.

    East of UTC a month begins earlier, so an id decoded as UTC is later than the timestamp by the
    client's offset. None if the difference is no zone's offset.
    """
    # Near the turn of a month a farther candidate may be right: the offset decides.
    for instant in instants_around(reading, born, UTC):
        offset = -round((born - instant) / _ZONE_STEP) * _ZONE_STEP
        if _ZONES_WEST <= offset <= _ZONES_EAST and abs(born - instant + offset) <= _NEAR:
            return timezone(offset)
    return None


_FORMS: tuple[tuple[Any, Callable[..., MessageId]], ...] = (
    (messageid.OffsetIdV4, OffsetId),
    (messageid.OffsetIdV6, OffsetId),
    (messageid.ClientIdV4, ClientId),
    (messageid.ClientIdV6, ClientId),
    (messageid.GrpcClientId, GrpcId),
)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Callable[[bytes], str]] = {"address": address_text, "mac": lambda raw: raw.hex(":")}
    return {
        name: shown[name](value) if name in shown else value
        for name, value in fields.items()
        if not name.startswith("_")  # construct's own
    }

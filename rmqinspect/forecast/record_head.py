"""The fields of a record that the tests for a start segment look at: at fixed places, whatever stands there.

Source: CommitLog#isMappedFileMatchedRecover, DLedgerCommitLog#isMmapFileMatchedRecover; RocketMQ 4.0.0 to 5.5.0.
"""

from typing import Final, NamedTuple

from rmqinspect.codec.layout import place_of
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag

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

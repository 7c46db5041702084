"""Every single bit of a small log, flipped: `verify` says something, or the bit is known to be unprotectable."""

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rmqinspect.verify.run
from rmqinspect.commitlog.gaps import Split
from rmqinspect.schemas import message
from rmqinspect.store.discover import open_store
from rmqinspect.verify.commitlog.split import CheckLimits, SplitResult, check_split
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from rmqinspect.verify.survey import CrossPlan
from tests.support.building import (
    BROKER_V6,
    PRODUCER_V6,
    STORED,
    fill,
    lay,
    pad,
    record,
    write_segment,
)
from tests.support.unprotected import UNPROTECTED

LONG_TOPIC = "%RETRY%" + 60 * "g" + "+" + 62 * "t"  # longer than 127: a V2 record
TAGGED = {"KEYS": "k", "TAGS": "a"}


def _pieces(*pieces: dict[str, Any], first: int) -> list[dict[str, Any]]:
    """Give the records store times, a millisecond apart."""
    return [{"store_timestamp": STORED + at} | piece for at, piece in enumerate(pieces, first)]


# Two queues of four and three records, and one of a V2 topic with two; every shape a record can have.
SEGMENTS = (
    _pieces(
        {"queue_id": 0, "queue_offset": 0, "properties": TAGGED},
        {"queue_id": 1, "queue_offset": 0, "born_host": PRODUCER_V6, "store_host": BROKER_V6},
        {"queue_id": 0, "queue_offset": 1, "properties": TAGGED},
        {"queue_id": 1, "queue_offset": 1, "body": zlib.compress(b"hello"), "sys_flag": 1, "properties": TAGGED},
        {"topic": LONG_TOPIC, "queue_offset": 0},
        first=0,
    ),
    _pieces(
        {"queue_id": 0, "queue_offset": 2, "crc": True, "properties": TAGGED},
        {"topic": LONG_TOPIC, "queue_offset": 1, "properties": TAGGED},
        {"queue_id": 1, "queue_offset": 2, "body": b"", "born_host": PRODUCER_V6, "properties": TAGGED},
        {"queue_id": 0, "queue_offset": 3, "properties": TAGGED},
        first=5,
    ),
)
SIZE = 784

# Fields whose flips show in the queue offsets of the neighbours in the queue.
QUEUE_FIELDS = ("queue_id", "topic", "sys_flag 0x4")


class Bit(NamedTuple):
    """One bit of the log, and what it is part of."""

    name: str
    position: int  # of its byte, in the segment
    bit: int  # 0 is the lowest


def bits_of_segment(number: int, raw: bytes) -> Iterator[Bit]:
    """Yield every bit of a segment with its name."""
    base, at = number * SIZE, 0
    pieces = SEGMENTS[number]
    for piece in pieces:
        size = len(record(base + at, **piece))
        for offset, names in enumerate(_names(piece, raw[at : at + size])):
            for bit, name in enumerate(names):
                yield Bit(name, at + offset, bit)
        at += size
    full = raw[at + 4 : at + 8] == message.MAGIC_BLANK.to_bytes(4, "big", signed=True)
    for position in range(at, len(raw)):
        name = "zero tail" if not full else "blank record" if position < at + 8 else "behind a blank record"
        yield from (Bit(name, position, bit) for bit in range(8))


def _names(piece: dict[str, Any], raw: bytes) -> Iterator[list[str]]:
    """Yield the names of the eight bits, lowest first, of each byte of a record."""
    fields = message.Message.parse(raw)
    place = _place_in_queue(piece)
    covered = len(raw) - message.CRC32_RESERVED_SIZE if piece.get("crc") else 0
    for offset, (field, octet, size) in enumerate(_layout(fields)):
        if offset < covered:
            yield ["covered by __CRC32#"] * 8
        elif covered:
            yield [_crc_name(offset - covered)] * 8
        else:
            names = (_bit_name(field, 8 * (size - 1 - octet) + bit, raw[offset], fields) for bit in range(8))
            yield [name + place if name in QUEUE_FIELDS else name + _place_in_log(name, piece) for name in names]


def _layout(fields: Any) -> Iterator[tuple[str, int, int]]:
    """Yield (field, number of the byte in it, size of the field) for each byte of a record."""
    for part in message.HEADS[len(fields.born_host.address) > 4, len(fields.store_host.address) > 4].subcons:
        if part.name in ("born_host", "store_host"):
            yield from _bytes_of(part.name + ".address", len(fields[part.name].address))
            yield from _bytes_of(part.name + ".port", 4)
        else:
            yield from _bytes_of(part.name, part.sizeof())
    yield from _bytes_of("body", len(fields.body))
    yield from _bytes_of("topic_size", 2 if fields.magic == message.MAGIC_V2 else 1)
    yield from _bytes_of("topic", len(fields.topic))
    yield from _bytes_of("properties_size", 2)
    yield from _bytes_of("properties", len(fields.properties))


def _bytes_of(field: str, size: int) -> Iterator[tuple[str, int, int]]:
    return ((field, octet, size) for octet in range(size))


def _bit_name(field: str, bit: int, octet: int, fields: Any) -> str:
    """Return the name of a bit: its field, and where the field has parts, which."""
    match field:
        case "born_host.port" | "store_host.port":
            return f"{field}, {'low' if bit < 16 else 'high'} half"
        case "sys_flag":
            known = 1 << bit < message.SysFlag.COMPRESSION_BIT_0
            return f"sys_flag {1 << bit:#x}" if known else "sys_flag 0x100 to 0x400" if bit < 11 else "sys_flag above"
        case "store_timestamp":
            return f"{field}, below 1024 ms" if bit < 10 else field
        case "body_size" if bit == 31 and not fields.body:
            return "body_size, sign, without a body"
        case "properties_size" if bit == 15 and not fields.properties:
            return "properties_size, sign, without properties"
        case "properties" if octet == message.NAME_VALUE_SEPARATOR:
            return "properties, 01 behind a name"
        case "properties" if octet == message.PROPERTY_SEPARATOR:
            return "properties, 02 behind a value"
        case "properties":
            return "properties, names and values"
    return field


def _crc_name(offset: int) -> str:
    if offset < len(message.CRC32_NAME):
        return "__CRC32#, its name"
    return "__CRC32#, its last byte" if offset == message.CRC32_RESERVED_SIZE - 1 else "__CRC32#, its value"


def _place_in_queue(piece: dict[str, Any]) -> str:
    queue = [other for other in (*SEGMENTS[0], *SEGMENTS[1]) if _queue(other) == _queue(piece)]
    return ", first of its queue" if piece is queue[0] else ", last of its queue" if piece is queue[-1] else ""


def _queue(piece: dict[str, Any]) -> tuple[Any, Any]:
    return piece.get("topic"), piece.get("queue_id")


def _place_in_log(name: str, piece: dict[str, Any]) -> str:
    if name != "store_timestamp":
        return ""
    return ", first of the log" if piece is SEGMENTS[0][0] else ", last of the log" if piece is SEGMENTS[1][-1] else ""


@pytest.fixture
def log(tmp_path: Path) -> tuple[bytes, bytes]:
    """Write the log into the folder `commitlog` and return its two segments."""
    segments = fill(lay(SEGMENTS[0]), SIZE), pad(lay(SEGMENTS[1], SIZE), SIZE)
    for number, raw in enumerate(segments):
        assert len(raw) == SIZE
        write_segment(tmp_path / "commitlog", raw, number * SIZE)
    return segments


def test_every_flipped_bit_is_found_or_known_to_be_unprotectable(
    tmp_path: Path, log: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store([str(tmp_path / "commitlog")])
    untouched: dict[int, SplitResult] = {}
    touched = -1

    def check_once(split: Split, limits: CheckLimits, plan: CrossPlan | None) -> SplitResult:
        """The segment that no bit was flipped in is read once for all."""
        if split.segment.base == touched:
            return check_split(split, limits, plan)
        if split.segment.base not in untouched:
            untouched[split.segment.base] = check_split(split, limits, plan)
        return untouched[split.segment.base]

    monkeypatch.setattr(rmqinspect.verify.run, "check_split", check_once)
    assert verify(store, VerifyOptions()).findings.rows == []

    flipped, silent = Counter[str](), Counter[str]()
    for number, raw in enumerate(log):
        touched = number * SIZE
        handle = os.open(store.segments[number].path, os.O_WRONLY)
        for name, position, bit in bits_of_segment(number, raw):
            os.pwrite(handle, bytes([raw[position] ^ 1 << bit]), position)
            flipped[name] += 1
            silent[name] += not verify(store, VerifyOptions()).findings.rows
            os.pwrite(handle, raw[position : position + 1], position)
        os.close(handle)

    assert flipped.total() == 2 * SIZE * 8
    assert UNPROTECTED.keys() <= flipped.keys(), "a name of the list that no bit has"
    unnoticed = {name for name, count in silent.items() if count}
    assert unnoticed - UNPROTECTED.keys() == set(), "unnoticed, and not on the list"
    assert UNPROTECTED.keys() - unnoticed == set(), "on the list, but always found"
